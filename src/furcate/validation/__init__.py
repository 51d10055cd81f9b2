"""From a contract to a checked value or to faults, and from faults to the note that asks for a repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.validation._note import repair_note

if TYPE_CHECKING:
    from furcate.validation._checker import Checked, Checker, compile_contract

__all__ = ("Checked", "Checker", "compile_contract", "repair_note")


def __getattr__(name: str) -> object:
    # Who asks for no contract need not load the libraries that check one.
    if name in __all__:
        from furcate.validation import _checker  # noqa: PLC0415

        return getattr(_checker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
