"""What a group knows at one moment, made from the facts of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import frozen

from furcate.primitives._observations import RunFinished, RunStatus
from furcate.primitives._usage import USAGE_FIELDS, FieldTotal, total_field


@frozen
class Member:
    """Hold what a group heard of one run.

    Attributes:
        run_id: the run.
        parent_run_id: the run whose exchange it continues; None also where its start was not heard.
        finished: its end; None while it has not been heard.
    """

    run_id: str
    parent_run_id: str | None = None
    finished: RunFinished | None = None


@frozen
class RunEntry:
    """Name one run of a group.

    Attributes:
        run_id: the run.
        parent_run_id: the run whose exchange it continues, which need not be in the group.
        status: ``succeeded``, ``failed`` or ``cancelled``; None while it has not ended.
    """

    run_id: str
    parent_run_id: str | None
    status: RunStatus | None


@frozen(kw_only=True)
class UsageTotals:
    """Total each usage field over the runs of a group; every field says how much of it is known."""

    input_tokens: FieldTotal
    cache_read_tokens: FieldTotal
    cache_write_tokens: FieldTotal
    output_tokens: FieldTotal
    reasoning_tokens: FieldTotal


@frozen(kw_only=True)
class GroupSummary:
    """Summarise the runs of a group as far as they were heard of; later events change nothing in it.

    Totals of groups that share runs do not add up, since each counts the shared run.

    Attributes:
        name: the group's name.
        runs: every run, in the order in which it was first heard of.
        succeeded: number of runs that succeeded.
        failed: number of runs that failed.
        cancelled: number of runs that were cancelled.
        running: number of runs whose end was not heard yet; nothing else in here counts them.
        attempts: number of attempts that the ended runs sent.
        repairs: how many of those were repairs.
        validation_failed: number of ended runs whose final answer failed its contract.
        run_seconds_total: sum of the durations of the ended runs, in seconds. Runs overlap, so this is no elapsed
            time. None where no run has ended.
        usage: totals by field.
    """

    name: str | None
    runs: tuple[RunEntry, ...]
    succeeded: int
    failed: int
    cancelled: int
    running: int
    attempts: int
    repairs: int
    validation_failed: int
    run_seconds_total: float | None
    usage: UsageTotals

    @property
    def ended(self) -> int:
        """Number of runs whose end was heard, however they ended."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def cached_share(self) -> float | None:
        """The part of all known input that came from a provider's cache, 0 to 1; None where nobody reported any."""
        read = self.usage.cache_read_tokens.known
        told = (self.usage.input_tokens.known, read, self.usage.cache_write_tokens.known)
        total = sum(count or 0 for count in told)
        return read / total if read is not None and total else None

    def __str__(self) -> str:
        title = "group" if self.name is None else f"group {self.name}"
        if not self.runs:
            return f"{title}: no runs"
        lines = [f"{title}: {_count(len(self.runs), 'run')} ({self._standing()})"]
        if self.ended:
            lines.append(
                f"  {_count(self.attempts, 'attempt')}, {_count(self.repairs, 'repair')}, "
                f"{_count(self.validation_failed, 'answer')} failed validation"
            )
        if self.run_seconds_total is not None:
            lines.append(f"  durations of single runs add up to {self.run_seconds_total:.1f} s")
        share = {"cache_read_tokens": f"{self.cached_share:.0%} of all input"} if self.cached_share else {}
        lines.extend(f"  {_field_line(name, getattr(self.usage, name), share.get(name))}" for name in USAGE_FIELDS)
        return "\n".join(lines)

    def _standing(self) -> str:
        counts = {
            "succeeded": self.succeeded,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "running": self.running,
        }
        return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)


def summarise(name: str | None, members: Iterable[Member]) -> GroupSummary:
    """Summarise what was heard of the members of a group.

    Each run counts by its one end; a run without an end counts as running and adds nothing to any total.
    """
    listed = tuple(members)
    ends = [member.finished for member in listed if member.finished is not None]
    running = len(listed) - len(ends)
    by_status = Counter(end.status for end in ends)
    usages = [end.usage for end in ends]
    return GroupSummary(
        name=name,
        runs=tuple(
            RunEntry(m.run_id, m.parent_run_id, m.finished.status if m.finished is not None else None) for m in listed
        ),
        succeeded=by_status["succeeded"],
        failed=by_status["failed"],
        cancelled=by_status["cancelled"],
        running=running,
        attempts=sum(end.attempts for end in ends),
        repairs=sum(end.repairs for end in ends),
        validation_failed=sum(end.validation == "failed" for end in ends),
        run_seconds_total=sum(end.duration_s for end in ends) if ends else None,
        usage=UsageTotals(**{field: total_field(field, usages, running) for field in USAGE_FIELDS}),
    )


def _field_line(name: str, total: FieldTotal, remark: str | None = None) -> str:
    words = name.removesuffix("_tokens").replace("_", " ")
    shown = "unknown" if total.known is None else _count(total.known, "token")
    remarks = [remark] if remark is not None else []
    remarks.extend(
        f"{_count(number, 'run')} {word}"
        for number, word in ((total.at_least, "at least"), (total.unknown, "unknown"), (total.running, "running"))
        if number
    )
    return f"{words} {shown}" + (f" ({', '.join(remarks)})" if remarks else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
