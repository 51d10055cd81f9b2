"""The text that sends an answer back to the model with its faults."""

from __future__ import annotations

from collections.abc import Iterable

from furcate.primitives._contract import Contract
from furcate.primitives._result import Fault

_KINDS = {"object": "one JSON object", "array": "one JSON array", "string": "one JSON string"}


def repair_note(faults: Iterable[Fault], contract: Contract) -> str:
    """Write what asks the model for a corrected answer: each fault with its path, and the form that is wanted.

    Args:
        faults: what the check found; each becomes one line.
        contract: what the answer was checked against.
    """
    kind = contract.schema.get("type")
    wanted = _KINDS.get(kind, "one JSON value") if isinstance(kind, str) else "one JSON value"
    lines = "\n".join(f"- {' '.join(str(fault).split())}" for fault in faults)
    return (
        "Your answer does not have the form that was asked for:\n"
        f"{lines}\n"
        f"Give the whole answer again with these points corrected, as {wanted} and nothing else: "
        "no explanation and no code fence around it."
    )
