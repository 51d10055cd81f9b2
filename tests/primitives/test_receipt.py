"""Receipts: the documents that are some, those that are none, and the published schema, which says the same."""

from __future__ import annotations

import copy
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.primitives._errors import ReceiptError
from furcate.primitives._receipt import Completed, Failed, ReceiptUsage, TransportReceipt
from furcate.primitives._wire import FailureKind, StopReason

SCHEMA = json.loads(
    importlib.resources.files("furcate.primitives").joinpath("transport-receipt.schema.json").read_text("utf-8")
)
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
U32, U64 = 2**32 - 1, 2**64 - 1

Change = Callable[[dict[str, Any]], object]


def completed(**given: Any) -> dict[str, Any]:
    usage = {"input_tokens": 12, "cache_read_tokens": 0, "cache_write_tokens": 3, "output_tokens": 5}
    return document({"Completed": {"stop_reason": "end_turn", "usage": usage, **given}})


def failed(kind: str = "timeout", message: str = "no answer") -> dict[str, Any]:
    return document({"Failed": {"kind": kind, "message": message}})


def document(outcome: object) -> dict[str, Any]:
    return {
        "schema_id": "furcate.transport_receipt.v1",
        "request_id": "run-1",
        "caller_runtime_id": "runtime",
        "native_request_sha256": list(range(32)),
        "provider_request_sha256": [255] * 32,
        "model": "m",
        "provider": "lab",
        "foreign_reasoning_dropped": 0,
        "outcome": outcome,
    }


def accepted(found: Any) -> bool:
    try:
        TransportReceipt.from_dict(found)
    except ReceiptError:
        return False
    return True


def at(*steps: str | int) -> Callable[[object], Change]:
    """Make a change of the member at a place."""

    def to(value: object) -> Change:
        def change(found: dict[str, Any]) -> None:
            target: Any = found
            for step in steps[:-1]:
                target = target[step]
            target[steps[-1]] = value

        return change

    return to


def without(*steps: str) -> Change:
    def change(found: dict[str, Any]) -> None:
        for step in steps[:-1]:
            found = found[step]
        del found[steps[-1]]

    return change


def changed(found: dict[str, Any], change: Change) -> dict[str, Any]:
    copied = copy.deepcopy(found)
    change(copied)
    return copied


def tokens(name: str) -> Callable[[object], Change]:
    return at("outcome", "Completed", "usage", name)


DROPPED = at("foreign_reasoning_dropped")
NATIVE = at("native_request_sha256")
COUNTS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
MEMBERS = tuple(completed())

GOOD = [
    completed(),
    completed(provider_response_id="resp_1"),
    completed(provider_response_id=None),
    changed(completed(), tokens("reasoning_tokens")(0)),
    changed(completed(), tokens("reasoning_tokens")(None)),
    changed(completed(), tokens("input_tokens")(U64)),
    changed(completed(), tokens("input_tokens")(7.0)),
    changed(completed(), DROPPED(U32)),
    changed(completed(), at("schema_id")("")),
    failed(message=""),
    *(completed(stop_reason=reason) for reason in get_args(StopReason)),
    *(failed(kind) for kind in get_args(FailureKind)),
]


@pytest.mark.req("S2-01", "S2-07", "S2-09", "S2-10", "S2-13", "S2-15")
@pytest.mark.parametrize("found", GOOD)
def test_good_receipts_are_taken_and_given_back(found: dict[str, Any]) -> None:
    """What the schema allows is read, and written again in a form that says the same."""
    assert VALIDATOR.is_valid(found)
    receipt = TransportReceipt.from_dict(found)
    written = receipt.to_dict()
    assert VALIDATOR.is_valid(written)
    assert TransportReceipt.from_dict(written) == receipt
    assert json.loads(json.dumps(written)) == written


def bad(req: str, found: dict[str, Any], *changes: Change) -> list[Any]:
    return [pytest.param(changed(found, change), marks=pytest.mark.req(req, "S2-15")) for change in changes]


BAD = [
    *bad("S2-01", completed(), *(without(name) for name in MEMBERS)),
    *bad(
        "S2-02",
        completed(),
        at("note")(1),
        at("outcome", "Completed", "note")(1),
        tokens("note")(1),
    ),
    *bad("S2-02", failed(), at("outcome", "Failed", "note")(1)),
    *bad("S2-03", completed(), *(at(name)(5) for name in MEMBERS[:3]), at("model")(None), at("provider")(["lab"])),
    *bad(
        "S2-04",
        completed(),
        NATIVE("00" * 32),
        NATIVE([0] * 31),
        NATIVE([0] * 33),
        NATIVE([256] * 32),
        NATIVE([-1] * 32),
        NATIVE([0.5] * 32),
        NATIVE(None),
        at("provider_request_sha256")(["0"] * 32),
    ),
    *bad("S2-05", completed(), DROPPED(-1), DROPPED("0"), DROPPED(None), DROPPED(0.5)),
    *bad(
        "S2-06",
        completed(),
        at("outcome")({}),
        at("outcome")("Completed"),
        at("outcome")([]),
        at("outcome")({"Cancelled": {}}),
        at("outcome", "Failed")({"kind": "timeout", "message": ""}),
    ),
    *bad("S2-07", completed(), *(without("outcome", "Completed", name) for name in ("stop_reason", "usage"))),
    *bad("S2-07", completed(), at("outcome", "Completed", "provider_response_id")(5), at("outcome", "Completed")(None)),
    *bad("S2-08", failed(), without("outcome", "Failed", "kind"), without("outcome", "Failed", "message")),
    *bad("S2-08", failed(), at("outcome", "Failed", "usage")({}), at("outcome", "Failed", "message")(5)),
    *bad("S2-09", completed(), at("outcome", "Completed", "stop_reason")("pause_turn")),
    *bad("S2-09", completed(), at("outcome", "Completed", "stop_reason")(["end_turn"])),
    *bad("S2-10", failed("overloaded"), at("model")("m")),
    *bad("S2-10", failed(), at("outcome", "Failed", "kind")(None), at("outcome", "Failed", "kind")(["timeout"])),
    *bad("S2-12", completed(), *(without("outcome", "Completed", "usage", name) for name in COUNTS)),
    *bad("S2-12", completed(), *(tokens(name)(None) for name in COUNTS), *(tokens(name)(-1) for name in COUNTS)),
    *bad("S2-13", completed(), tokens("reasoning_tokens")("5"), tokens("reasoning_tokens")(-1)),
    *bad(
        "S2-17",
        completed(),
        DROPPED(True),
        DROPPED(False),
        NATIVE([True] * 32),
        *(tokens(name)(True) for name in (*COUNTS, "reasoning_tokens")),
    ),
]


# Each case of BAD says which one it is about.
@pytest.mark.req("S2-01", "S2-02", "S2-03", "S2-04", "S2-05", "S2-06", "S2-07", "S2-08", "S2-09", "S2-10", "S2-12")
@pytest.mark.req("S2-13", "S2-15", "S2-17")
@pytest.mark.parametrize("found", BAD)
def test_bad_receipts_are_refused_by_code_and_schema(found: dict[str, Any]) -> None:
    """A member that is missing, unknown, of another type or out of bounds is refused by both, alike."""
    assert not VALIDATOR.is_valid(found)
    with pytest.raises(ReceiptError) as caught:
        TransportReceipt.from_dict(found)
    assert caught.value.place.startswith("$")


@pytest.mark.parametrize("found", [None, True, 5, "x", [], [completed()]])
def test_what_is_no_object_is_no_receipt(found: Any) -> None:
    """Any other JSON document is refused as a whole."""
    assert not VALIDATOR.is_valid(found)
    with pytest.raises(ReceiptError, match=r"receipt: \$ is an object"):
        TransportReceipt.from_dict(found)


@pytest.mark.req("S2-16")
@pytest.mark.parametrize(
    ("change", "place"),
    [
        (DROPPED(U32 + 1), "$.foreign_reasoning_dropped"),
        (tokens("input_tokens")(U64 + 1), "$.outcome.Completed.usage.input_tokens"),
        (tokens("output_tokens")(2.0**64), "$.outcome.Completed.usage.output_tokens"),
        (tokens("reasoning_tokens")(U64 + 1), "$.outcome.Completed.usage.reasoning_tokens"),
    ],
)
def test_upper_bounds_are_held_by_the_code(change: Change, place: str) -> None:
    """The schema gives the widths of counts as formats, which check nothing; reading a receipt does check them."""
    found = changed(completed(), change)
    assert VALIDATOR.is_valid(found)
    with pytest.raises(ReceiptError) as caught:
        TransportReceipt.from_dict(found)
    assert caught.value.place == place


SOURCE = Path(__file__).parents[3] / "shared" / "spec" / "transport-receipt.schema.json"


@pytest.mark.req("S2-15")
@pytest.mark.parametrize("found", [*GOOD, *BAD])
def test_the_source_schema_judges_alike(found: dict[str, Any]) -> None:
    """Where the schema that ours was made after lies beside the project, it accepts the same documents as ours."""
    if not SOURCE.exists():
        pytest.skip(f"there is no {SOURCE.name} in shared/spec beside the project")
    source = jsonschema_rs.validator_for(json.loads(SOURCE.read_text("utf-8")))
    assert source.is_valid(found) == VALIDATOR.is_valid(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(-3, 300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def _places(found: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = found.items() if isinstance(found, dict) else enumerate(found[:2]) if isinstance(found, list) else ()
    return [*([place] if place else []), *(deeper for key, value in inside for deeper in _places(value, (*place, key)))]


@pytest.mark.req("S2-15")
@given(st.sampled_from(GOOD).flatmap(lambda found: st.tuples(st.just(found), st.sampled_from(_places(found)), JSON)))
def test_code_and_schema_agree_whatever_stands_somewhere(case: tuple[dict[str, Any], tuple[Any, ...], Any]) -> None:
    """Any JSON in the place of any member is judged alike by both, as long as no count is very large."""
    found, place, value = case
    other = changed(found, at(*place)(value))
    assert accepted(other) == VALIDATOR.is_valid(other)


@pytest.mark.req("S2-05", "S2-13")
def test_zero_is_written_and_unknown_is_not() -> None:
    """The count of what was dropped is always there; reasoning tokens and a response id only where they are known."""
    usage = ReceiptUsage(input_tokens=1, cache_read_tokens=0, cache_write_tokens=0, output_tokens=0)
    written = receipt(Completed(stop_reason="end_turn", usage=usage)).to_dict()
    assert written["foreign_reasoning_dropped"] == 0
    assert written["outcome"] == {
        "Completed": {
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 0},
        }
    }


def receipt(outcome: Completed | Failed, **given: Any) -> TransportReceipt:
    members = {
        "request_id": "run-1",
        "caller_runtime_id": "runtime",
        "native_request_sha256": bytes(range(32)),
        "provider_request_sha256": bytes(32),
        "model": "m",
        "provider": "lab",
        "foreign_reasoning_dropped": 0,
    }
    return TransportReceipt(outcome=outcome, **{**members, **given})


@pytest.mark.req("S2-04")
@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_digest_of_another_length_makes_no_receipt(length: int) -> None:
    """A receipt that is made here is held to 32 bytes as well; they are written as numbers, not as hex."""
    written = receipt(Failed(kind="timeout", message="x")).to_dict()
    assert written["native_request_sha256"] == list(range(32))
    with pytest.raises(ReceiptError, match=f"has {length} bytes; a SHA-256 has 32"):
        receipt(Failed(kind="timeout", message="x"), native_request_sha256=bytes(length))


@pytest.mark.req("S2-15")
def test_the_schema_names_what_the_code_names() -> None:
    """Members, stop reasons and failure kinds of the published schema are those that the code has."""
    parts = SCHEMA["$defs"]
    assert sorted(SCHEMA["required"]) == sorted(MEMBERS) == sorted(SCHEMA["properties"])
    assert _words(parts["StopReason"]) == set(get_args(StopReason))
    assert _words(parts["FailureKind"]) == set(get_args(FailureKind))


def _words(part: Any) -> set[str]:
    """Find the constants that a schema allows."""
    if isinstance(part, dict):
        own = {part["const"]} if isinstance(part.get("const"), str) else set()
        listed = set(part["enum"]) if isinstance(part.get("enum"), list) else set()
        return own.union(listed, *(_words(inner) for inner in part.values()))
    return set().union(*(_words(inner) for inner in part)) if isinstance(part, list) else set()
