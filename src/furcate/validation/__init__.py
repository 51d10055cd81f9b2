"""From a contract to a checked value or to faults, and from faults to the note that asks for a repair."""

from __future__ import annotations

from furcate.validation._checker import Checked, Checker, compile_contract
from furcate.validation._note import repair_note

__all__ = ("Checked", "Checker", "compile_contract", "repair_note")
