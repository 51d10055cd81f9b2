"""The totals of a recording in columns of plain text, at most 80 cells wide, and as plain data."""

from __future__ import annotations

import datetime
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from furcate.primitives._json import Plain
from furcate.primitives._printable import printable
from furcate.report._clean import clean_line
from furcate.report._recording import Recording
from furcate.report._trace_measures import Durations, TokenTotal
from furcate.report._trace_totals import Part, Scopes, TraceTotals

WIDTH = 80
_LABEL = 22
_ELLIPSIS = "…"
_MOST_ROWS = 20


def trace_text(totals: TraceTotals, recording: Recording) -> str:
    """Write the totals of a recording that has gone by."""
    blocks = [
        _head(totals, recording),
        _counts(totals),
        _tokens(totals.all),
        _seconds(totals.all),
        _parts("backend", totals.backends),
        _parts("prompt", totals.prompts),
        _failures(totals),
        _slowest(totals),
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in map(list, blocks) if block)


def trace_data(totals: TraceTotals, recording: Recording) -> dict[str, Plain]:
    """Give the totals of a recording that has gone by as plain data."""
    return {
        "recording": {
            "observations": recording.told,
            "skipped": recording.skipped,
            "broken": recording.broken,
            "torn": recording.torn,
            "contents": totals.contents,
            "repeated_runs": totals.repeated,
            "first_at": totals.first_s,
            "last_at": totals.last_s,
        },
        **totals.all.described(),
        "attempts": {"by_status": {**totals.attempts}, "by_purpose": {**totals.purposes}},
        "retries": {**totals.retries},
        "validation": {**totals.validation},
        "branches": {**totals.branches.described(), "turns": totals.turns},
        "nurseries": totals.nurseries.described(),
        "activities": [
            {"name": name, "state": state, "count": number} for (name, state), number in totals.activities.items()
        ],
        "backend_pauses": {**totals.pauses},
        "backends": {name: part.described() for name, part in totals.backends.items()},
        "prompts": {name: part.described() for name, part in totals.prompts.items()},
        "failures": [
            {"kind": kind, "reason": reason, "attempts": one.attempts, "runs": one.runs, "run_id": one.run_id}
            for (kind, reason), one in totals.failures.items()
        ],
        "slowest": [
            {
                "run_id": run.run_id,
                "duration_s": run.duration_s,
                "status": run.status,
                "backend": run.backend,
                "prompt": run.prompt,
                "model": run.model,
                "branch": run.branch or None,
            }
            for run in totals.slowest
        ],
    }


def _head(totals: TraceTotals, recording: Recording) -> Iterator[str]:
    told = _number(recording.told, "observation")
    if totals.first_s is None or totals.last_s is None:
        yield told
    else:
        yield f"{told} in {totals.last_s - totals.first_s:,.1f} s, from {_moment(totals.first_s)}"
    if totals.contents:
        yield f"{_number(totals.contents, 'of them holds content', 'of them hold content')}"
    if recording.skipped:
        yield f"{_number(recording.skipped, 'line')} passed over: written by a newer furcate"
    if totals.repeated:
        ends = _number(totals.repeated, "run is told again and", "runs are told again and")
        yield f"{ends} counted once"
    if recording.torn:
        yield "the last line was cut off and is passed over"
    if recording.broken:
        yield f"{_number(recording.broken, 'broken line')} passed over"


def _moment(at_s: float) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_s:g} s after 1970"


def _counts(totals: TraceTotals) -> Iterator[str]:
    runs = totals.all.runs
    yield _count_row("runs", runs.total(), _worded(runs))
    repairs, resumes = totals.purposes["repair"], totals.purposes["resume"]
    purposes = [_number(number, word) for word, number in (("repair", repairs), ("resume", resumes)) if number]
    yield _count_row("attempts", totals.attempts.total(), ", ".join([_worded(totals.attempts), *purposes]))
    if totals.retries:
        yield _count_row("retries", totals.retries.total(), _worded(totals.retries))
    checked = {word: number for word, number in totals.validation.items() if word != "not_requested"}
    if checked:
        yield _count_row("checked", sum(checked.values()), _worded(checked))
    if totals.branches.started or totals.branches.ended:
        yield _count_row("branches", *_scoped(totals.branches))
        yield _count_row("turns", totals.turns, "")
    if totals.nurseries.started or totals.nurseries.ended:
        yield _count_row("nurseries", *_scoped(totals.nurseries))
    if totals.activities:
        words = {f"{name} {state}": number for (name, state), number in totals.activities.items()}
        yield _count_row("provider's tools", totals.activities.total(), _worded(words))
    if totals.pauses:
        yield _count_row("pauses of a backend", totals.pauses.total(), _worded(totals.pauses))


def _scoped(scopes: Scopes) -> tuple[int, str]:
    ended: dict[str, int] = {**scopes.ended}
    if scopes.unfinished:
        ended["unfinished"] = scopes.unfinished
    errors = f" ({_worded(scopes.errors)})" if scopes.errors else ""
    return max(scopes.started, scopes.ended.total()), _worded(ended) + errors


def _count_row(label: str, number: int, words: str) -> str:
    head = f"{label:<{_LABEL}}{_amount(number, 10):>10}   "
    shown = [_fitted(line, WIDTH - len(head)) for line in textwrap.wrap(words, WIDTH - len(head))]
    return head + f"\n{'':<{len(head)}}".join(shown)


def _worded(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {clean_line(word)}" for word, number in counts.items() if number)


def _tokens(part: Part) -> Iterator[str]:
    yield _row(("tokens", "known", "runs: exact", "at least", "unknown"), (_LABEL, 14, 14, 12, 12))
    for name, total in part.tokens.fields.items():
        words = name.removesuffix("_tokens").replace("_", " ")
        known = "unknown" if total.known is None else _bounded(total)
        cells = (f"  {words}", known, _amount(total.exact, 10), _amount(total.at_least, 10), _amount(total.unknown, 10))
        yield _row(cells, (_LABEL, 14, 14, 12, 12))
    share = part.tokens.cache_share
    if share is None:
        yield f"{'  cache share':<{_LABEL}}{'unknown':>14}"
    else:
        yield f"{'  cache share':<{_LABEL}}{share:>13.1%}   of the input of {_number(part.tokens.share_runs, 'run')}"


def _bounded(total: TokenTotal) -> str:
    # A sum in which some term is missing or too small is itself a lower bound.
    return f"{'>= ' if total.at_least or total.unknown else ''}{_amount(total.known or 0, 10)}"


def _seconds(part: Part) -> Iterator[str]:
    columns = (_LABEL, 14, 14, 12, 12)
    yield _row(("seconds", "median", "p95", "max", "count"), columns)
    rows = (
        ("  waited for a place", part.waited),
        ("  to the first event", part.first_event),
        ("  streamed", part.streamed),
        ("  whole run", part.run),
    )
    for label, durations in rows:
        middle, high, most = (_seconds_cell(durations, share) for share in (0.5, 0.95, 1.0))
        yield _row((label, middle, high, most, f"{len(durations):,}"), columns)


def _seconds_cell(durations: Durations, share: float) -> str:
    value = durations.at(share)
    return "-" if value is None else _amount(value, 7)


def _parts(what: str, parts: Mapping[str, Part]) -> Iterator[str]:
    if not parts:
        return
    columns = (_LABEL, 7, 7, 11, 8, 9, 8, 8)
    yield _row((what, "runs", "failed", "all input", "cached", "output", "first s", "run s"), columns)
    ordered = sorted(parts.items(), key=lambda item: -item[1].runs.total())
    names = _told_apart((name for name, _ in ordered[:_MOST_ROWS]), _LABEL - 3)
    for name, part in ordered[:_MOST_ROWS]:
        tokens = part.tokens
        share = tokens.cache_share
        # Input as people compare it: everything that was sent, from a cache or not.
        cells = (
            f"  {names[name]}",
            _amount(part.runs.total(), 6),
            _amount(part.runs["failed"], 6),
            _known(
                tokens.fields["input_tokens"], tokens.fields["cache_read_tokens"], tokens.fields["cache_write_tokens"]
            ),
            "-" if share is None else f"{share:.0%}",
            _known(tokens.fields["output_tokens"]),
            _seconds_cell(part.first_event, 0.5),
            _seconds_cell(part.run, 0.5),
        )
        yield _row(cells, columns)
    if len(ordered) > _MOST_ROWS:
        yield f"  and {_number(len(ordered) - _MOST_ROWS, 'more', 'more')}"


def _known(*totals: TokenTotal) -> str:
    known = [total.known for total in totals if total.known is not None]
    return _amount(sum(known), 8) if known else "-"


def _failures(totals: TraceTotals) -> Iterator[str]:
    if not totals.failures:
        return
    columns = (27, 9, 7)
    yield f"{_row(('failures', 'attempts', 'runs'), columns)}  one of the runs"
    ordered = sorted(totals.failures.items(), key=lambda item: -(item[1].attempts + item[1].runs))
    for (kind, reason), one in ordered[:_MOST_ROWS]:
        words = kind if reason == kind else reason if kind == "none" else f"{kind}, {reason}"
        cells = (f"  {words}", _amount(one.attempts, 8), _amount(one.runs, 6))
        yield f"{_row(cells, columns)}  {_fitted(one.run_id, 35)}"
    if len(ordered) > _MOST_ROWS:
        yield f"  and {_number(len(ordered) - _MOST_ROWS, 'more', 'more')}"


def _slowest(totals: TraceTotals) -> Iterator[str]:
    if not totals.slowest:
        return
    yield f"{'slowest runs':<{_LABEL}}{'s':>9}  {'status':<10}run"
    names = _told_apart((run.branch or run.prompt for run in totals.slowest), _LABEL - 3)
    for run in totals.slowest:
        name = set_cell_size(f"  {names[run.branch or run.prompt]}", _LABEL)
        yield f"{name}{_amount(run.duration_s, 8):>9}  {run.status:<10}{_fitted(run.run_id, 37)}"


def _row(cells: Iterable[str], columns: Sequence[int]) -> str:
    """Set cells in columns: the first to the left, the others, which are numbers, to the right."""
    first, *rest = cells
    shown = set_cell_size(_fitted(first, columns[0] - 1), columns[0])
    return shown + "".join(f"{cell:>{width}}" for cell, width in zip(rest, columns[1:], strict=True))


def _amount(number: int | float, room: int) -> str:
    """Write a number in so many cells: in full, else without its fraction, else by its first digits."""
    forms = (f"{number:,}" if isinstance(number, int) else f"{number:,.2f}", f"{number:,.0f}")
    return next((form for form in forms if len(form) <= room), f"{number:.1e}")


def _fitted(text: str, width: int) -> str:
    text = printable(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + _ELLIPSIS


def _told_apart(names: Iterable[str], width: int) -> dict[str, str]:
    """Fit names by leaving out of each what lies in its middle, where that keeps them apart, else by numbers."""
    named = list(dict.fromkeys(names))
    middle = width // 2
    # Names of one plan begin alike and end alike, so the part that differs may lie before or behind the middle.
    for head in sorted(range(2, width - 2), key=lambda head: abs(head - middle)):
        short = {name: _without_middle(name, head, width) for name in named}
        if len(set(short.values())) == len(named):
            return short
    counts: Counter[str] = Counter()
    fitted: dict[str, str] = {}
    for name in named:
        short_name = _without_middle(name, middle, width)
        counts[short_name] += 1
        number = f"~{counts[short_name]}"
        alone = counts[short_name] == 1
        fitted[name] = short_name if alone else set_cell_size(short_name, width - len(number)) + number
    return fitted


def _without_middle(name: str, head: int, width: int) -> str:
    # However long a name is, only its ends can be seen.
    name = printable(name if len(name) <= 2 * width else f"{name[:width]}{name[-width:]}")
    if cell_len(name) <= width:
        return name
    tail = name[-(width - 1 - head) :]
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return set_cell_size(name, head) + _ELLIPSIS + tail


def _number(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
