"""The note that asks for a repair."""

from __future__ import annotations

import json

import pytest

from furcate.primitives._contract import Contract
from furcate.primitives._result import Fault
from furcate.validation import compile_contract, repair_note


@pytest.mark.field(40)
def test_the_note_lists_each_fault_with_its_path() -> None:
    """Every fault is one line with its path, and the wanted form is said."""
    note = repair_note([Fault("$.a", "9 is too much"), Fault("$", "one\ntwo")], Contract({"type": "object"}))
    assert "\n- $.a: 9 is too much\n- $: one two\n" in note
    assert "as one JSON object and nothing else" in note


@pytest.mark.field(40)
def test_the_note_stays_short_whatever_the_answer() -> None:
    """A long broken answer makes a short note without the answer in it."""
    contract = Contract({"type": "array", "items": {"type": "integer"}})
    found = compile_contract(contract).check(json.dumps([{"long": "y" * 1000}] * 500))
    note = repair_note(found.faults, contract)
    assert len(note) < 2_000
    assert "yyy" not in note
    assert "as one JSON array" in note


def test_any_kind_of_value_may_be_wanted() -> None:
    """A schema without one type asks for a JSON value."""
    assert "one JSON value" in repair_note([Fault("$", "x")], Contract({"type": ["object", "null"]}))
