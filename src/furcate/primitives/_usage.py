"""Token counts that know what they do not know.

A count is an ``int`` where the provider reported it and None where it did not: zero is a report.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen
from attrs.validators import optional

from furcate.primitives._checks import whole

USAGE_FIELDS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
)


def _names(value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


@frozen(kw_only=True)
class Usage:
    """Count tokens of one or several answers; None is unknown.

    Attributes:
        input_tokens: plain input, without what was read from or written to a cache.
        cache_read_tokens: input read from a provider's cache.
        cache_write_tokens: input written to a provider's cache.
        output_tokens: everything generated, reasoning included.
        reasoning_tokens: the part of the output that was reasoning.
        lower_bounds: names of the known counts that may be too small, since some answer behind them
            broke off or did not report.
    """

    input_tokens: int | None = field(default=None, validator=optional(whole(0)))
    cache_read_tokens: int | None = field(default=None, validator=optional(whole(0)))
    cache_write_tokens: int | None = field(default=None, validator=optional(whole(0)))
    output_tokens: int | None = field(default=None, validator=optional(whole(0)))
    reasoning_tokens: int | None = field(default=None, validator=optional(whole(0)))
    lower_bounds: frozenset[str] = field(default=frozenset(), converter=_names)

    @property
    def known(self) -> bool:
        """Whether any count is known."""
        return any(getattr(self, name) is not None for name in USAGE_FIELDS)

    def as_lower_bound(self) -> Usage:
        """Mark every known count as possibly too small, as after a stream that broke."""
        known = {name: getattr(self, name) for name in USAGE_FIELDS if getattr(self, name) is not None}
        return Usage(**known, lower_bounds=frozenset(known))

    @classmethod
    def total(cls, terms: Iterable[Usage]) -> Usage:
        """Add up usages; a count that only some terms know is a lower bound, one that none knows stays unknown."""
        listed = tuple(terms)
        if len(listed) == 1:
            return listed[0]
        counts: dict[str, int] = {}
        bounds = set()
        for name in USAGE_FIELDS:
            values = [getattr(term, name) for term in listed]
            known = [value for value in values if value is not None]
            if not known:
                continue
            counts[name] = sum(known)
            if len(known) < len(values) or any(name in term.lower_bounds for term in listed):
                bounds.add(name)
        return cls(**counts, lower_bounds=frozenset(bounds))


UNKNOWN = Usage()
"""The usage of an answer whose provider reported nothing."""


@frozen(kw_only=True)
class FieldTotal:
    """Total one usage field over the runs of a group.

    Attributes:
        known: sum of what was reported, in tokens; None where nobody reported.
        exact: number of ended runs that reported the field exactly.
        at_least: number of ended runs that reported a lower bound.
        unknown: number of ended runs that did not report it.
        running: number of runs that have not ended.
    """

    known: int | None
    exact: int
    at_least: int
    unknown: int
    running: int

    @property
    def complete(self) -> bool:
        """Whether every run has ended and reported this field exactly (there being any)."""
        return self.exact > 0 and not (self.at_least or self.unknown or self.running)


def total_field(name: str, usages: Iterable[Usage], running: int) -> FieldTotal:
    """Total one field over the usages of ended runs, beside `running` runs that have not ended."""
    known: int | None = None
    exact = at_least = unknown = 0
    for usage in usages:
        value: int | None = getattr(usage, name)
        if value is None:
            unknown += 1
            continue
        known = (known or 0) + value
        if name in usage.lower_bounds:
            at_least += 1
        else:
            exact += 1
    return FieldTotal(known=known, exact=exact, at_least=at_least, unknown=unknown, running=running)
