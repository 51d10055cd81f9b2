"""Hypothesis strategies for the values of furcate, for property tests of one's own; needs Hypothesis."""

from __future__ import annotations

from furcate.testing.strategies._conversations import exchanges, histories, messages, parts
from furcate.testing.strategies._plain import json_objects, json_values, words
from furcate.testing.strategies._results import attempts, receipts, results, usages

__all__ = (
    "attempts",
    "exchanges",
    "histories",
    "json_objects",
    "json_values",
    "messages",
    "parts",
    "receipts",
    "results",
    "usages",
    "words",
)
