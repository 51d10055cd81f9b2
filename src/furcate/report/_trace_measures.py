"""Measures that a recording's totals are made of: durations, and tokens of which some are unknown."""

from __future__ import annotations

import math
from array import array

from attrs import define

from furcate.primitives._json import Plain
from furcate.primitives._usage import USAGE_FIELDS, Usage

INPUTS = ("input_tokens", "cache_read_tokens", "cache_write_tokens")


class Durations:
    """Hold numbers of seconds, and give what lies in their middle and at their end."""

    def __init__(self) -> None:
        self._held = array("d")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._held)

    def add(self, seconds: float) -> None:
        """Take one."""
        self._held.append(seconds)
        self._sorted = False

    def at(self, share: float) -> float | None:
        """Give the smallest of them that a share of all, from 0 to 1, does not exceed; None where there is none."""
        if not self._held:
            return None
        if not self._sorted:
            self._held = array("d", sorted(self._held))
            self._sorted = True
        # Nearest rank: always one of the measured numbers, the last one for a share of 1.
        return self._held[max(0, math.ceil(share * len(self._held)) - 1)]

    def described(self) -> Plain:
        """Give them as plain data."""
        return {"count": len(self), "median_s": self.at(0.5), "p95_s": self.at(0.95), "max_s": self.at(1.0)}


@define
class TokenTotal:
    """Total one usage field over ended runs.

    Attributes:
        known: sum of what was reported; None where nobody reported.
        exact: number of runs that reported it exactly.
        at_least: number of runs that reported a lower bound.
        unknown: number of runs that did not report it.
    """

    known: int | None = None
    exact: int = 0
    at_least: int = 0
    unknown: int = 0

    def add(self, value: int | None, *, bound: bool) -> None:
        """Take what one run reported."""
        if value is None:
            self.unknown += 1
            return
        self.known = (self.known or 0) + value
        if bound:
            self.at_least += 1
        else:
            self.exact += 1

    def described(self) -> Plain:
        """Give it as plain data."""
        return {"tokens": self.known, "exact": self.exact, "at_least": self.at_least, "unknown": self.unknown}


class Tokens:
    """Total the usage of ended runs.

    Attributes:
        fields: a total for each usage field.
        share_runs: number of runs that told both how much they read from a cache and how much not.
    """

    def __init__(self) -> None:
        self.fields = {name: TokenTotal() for name in USAGE_FIELDS}
        self.share_runs = 0
        self._cached = 0
        self._sent = 0

    def add(self, usage: Usage) -> None:
        """Take what one run used."""
        for name, total in self.fields.items():
            total.add(getattr(usage, name), bound=name in usage.lower_bounds)
        if usage.input_tokens is not None and usage.cache_read_tokens is not None:
            self.share_runs += 1
            self._cached += usage.cache_read_tokens
            self._sent += sum(getattr(usage, name) or 0 for name in INPUTS)

    @property
    def cache_share(self) -> float | None:
        """Share of the input that was read from a cache, over the runs that told; None where nobody told of any."""
        return self._cached / self._sent if self._sent else None

    def described(self) -> dict[str, Plain]:
        """Give them as plain data."""
        return {
            **{name: total.described() for name, total in self.fields.items()},
            "cache_share": self.cache_share,
            "cache_share_runs": self.share_runs,
        }
