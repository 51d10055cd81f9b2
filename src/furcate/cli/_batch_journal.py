"""What a batch job's journal tells, also while the job runs, and failed items that are to be tried again."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import click

from furcate.batch import Holder, JournalReader, JournalRow, Order, Status, open_journal, read_journal, write_rows
from furcate.batch._rows import MALFORMED
from furcate.cli._batch_found import items_told
from furcate.cli._batch_progress import roughly
from furcate.cli._lines import json_line
from furcate.cli._loop import Interruption, run_on
from furcate.cli._output import stdout_is_closed
from furcate.cli._told import FAILED, INTERRUPTED, WELL, complain, one_line, say
from furcate.primitives._errors import RequestError
from furcate.primitives._json import Plain
from furcate.primitives._usage import USAGE_FIELDS, FieldTotal

_journal = click.argument("journal", type=click.Path(path_type=Path))


def _told(work: Callable[[], Awaitable[int]]) -> int:
    async def command(interruption: Interruption) -> int:
        with interruption.scope():
            try:
                return await work()
            except BrokenPipeError:
                return FAILED  # whoever read it has seen enough
            except OSError as error:
                complain(f"stdout cannot be written ({error.strerror or error}); what was to be said there is lost")
                return FAILED
        complain("interrupted")
        return INTERRUPTED

    return run_on("asyncio", command)


@click.command()
@_journal
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(journal: Path, as_json: bool) -> int:
    """Tell how far the job of a JOURNAL is."""

    async def work() -> int:
        async with read_journal(journal) as reader:
            found, holder = await reader.status(), await reader.holder()
        if as_json:
            click.echo(json_line(_described(found, holder)), nl=False)
        else:
            for line in _lines(found, holder):
                click.echo(line)
        return WELL

    return _told(work)


@click.command()
@_journal
@click.option(
    "--order",
    type=click.Choice(["items", "ends"]),
    default="items",
    show_default=True,
    help="In the order of the items, or as they ended.",
)
@click.option("--gone", is_flag=True, help="Also those that the items do not have any more.")
def results(journal: Path, order: str, gone: bool) -> int:
    """Write the results of a JOURNAL as JSON lines."""
    if stdout_is_closed():
        raise RequestError("stdout is closed, so that the results would be lost")
    chosen: Order = "ends" if order == "ends" else "items"

    async def work() -> int:
        async with read_journal(journal) as reader, reader.rows(chosen, gone=gone) as rows:
            await write_rows(rows, 1)
        return WELL

    return _told(work)


@click.command()
@_journal
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only failures of this kind; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as in the results.")
def failures(journal: Path, kinds: tuple[str, ...], as_json: bool) -> int:
    """List the items of a JOURNAL that failed, and why."""

    async def work() -> int:
        async with read_journal(journal) as reader:
            found = await reader.status()
            async with reader.rows(states=("failed",)) as rows:
                wanted = (row async for row in rows if not kinds or (row.error and row.error.kind in kinds))
                if as_json:
                    await write_rows(wanted, 1)
                else:
                    async for row in wanted:
                        click.echo(_failure(row))
        if not found.failed and not as_json:
            say("nothing has failed")
        elif unknown := _unknown(kinds, found):
            complain(unknown)
        return WELL

    return _told(work)


@click.command()
@_journal
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only failures of this kind; may be repeated.")
def retry(journal: Path, kinds: tuple[str, ...]) -> int:
    """Let the next start try failed items again.

    The start itself is the command by which the job of the JOURNAL was begun. What the items were answered before they
    failed is not asked again. Items that cannot be read stay failed until their lines are mended.
    """

    async def work() -> int:
        async with read_journal(journal):
            pass  # an empty file becomes a journal where it is opened to be written, and is refused here
        async with open_journal(journal, create=False) as opened:
            before = await opened.status()
            count = await opened.retry(kinds or None)
            told = await _after_retry(opened, journal, count, pending=before.pending)
        if unknown := _unknown(kinds, before):
            complain(unknown)
        for line in told:
            say(line)
        return WELL if count or not kinds else FAILED

    return _told(work)


def _unknown(kinds: tuple[str, ...], found: Status) -> str:
    """Say which kinds of failure there are none of; empty where there are some of each."""
    known = dict(found.failures)
    unknown = ", ".join(kind for kind in kinds if kind not in known)
    return f"no item failed with {unknown}; there are: {', '.join(known) or 'none'}" if unknown else ""


async def _after_retry(opened: JournalReader, journal: Path, count: int, *, pending: int) -> list[str]:
    found = await opened.status()
    told = [f"{items_told(count, 'failed')} {'is' if count == 1 else 'are'} to be tried again"]
    if not count:
        told = ["no failed item is there to be tried again"]
        if pending:
            told[0] += f"; {items_told(pending)} {'is' if pending == 1 else 'are'} waiting for the next start already"
    malformed = dict(found.failures).get(MALFORMED, 0)
    if malformed:
        told.append(
            "1 item cannot be read and stays failed until its line is mended"
            if malformed == 1
            else f"{malformed:,} items cannot be read and stay failed until their lines are mended"
        )
    if found.pending:
        source = "-" if found.about.source == "standard input" else found.about.source
        target = found.about.target
        rest = shlex.join([source, "--journal", str(journal)])
        told.append(
            f"start the job as before, with the options that it had: furcate batch {target} {rest}"
            if not target.startswith("(")
            else f"start the job as before, with its -m and the options that it had: {rest}"
        )
    return told


def _failure(row: JournalRow) -> str:
    assert row.error is not None
    kind, message = row.error.kind, one_line(row.error.message)
    said = message if message.startswith(f"{kind}:") else f"{kind}: {message}"
    return f"line {row.line:,}  {one_line(row.id or '(no id)')}  {said}"


def _described(found: Status, holder: Holder | None) -> dict[str, Plain]:
    usage: dict[str, Plain] = {name: _total(total) for name, total in found.usage.items()}
    kinds: dict[str, Plain] = dict(found.failures)
    return {
        "target": found.about.target,
        "source": found.about.source,
        "items": found.items,
        "finished": found.finished,
        "failed": found.failed,
        "pending": found.pending,
        "gone": found.gone,
        "failures": kinds,
        "usage": usage,
        "created_at": _moment(found.created_at),
        "started_at": _moment(found.started_at),
        "ended_at": _moment(found.ended_at),
        "running": {"pid": holder.pid, "host": holder.host} if holder is not None else None,
        "furcate": found.furcate,
    }


def _total(total: FieldTotal) -> Plain:
    return {"tokens": total.known, "at_least": total.at_least, "unknown": total.unknown}


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _lines(found: Status, holder: Holder | None) -> list[str]:
    state = "not running" if found.pending else "done"
    if holder is not None:
        state = f"running ({holder_told(holder)})"
    lines = [
        f"target    {one_line(found.about.target) or 'none yet'}",
        f"items     {found.items:,} of {one_line(found.about.source) or 'no source yet'}",
        f"state     {state}",
        f"finished  {found.finished:,}",
        f"failed    {found.failed:,}" + (f" ({_kinds(found)})" if found.failures else ""),
        f"to do     {found.pending:,}",
    ]
    if found.gone:
        lines.append(f"gone      {found.gone:,} that the items do not have any more")
    shown = [f"{name.removesuffix('_tokens').replace('_', ' ')} {_words(found.usage[name])}" for name in USAGE_FIELDS]
    known = any(total.known is not None for total in found.usage.values())
    lines.append(f"tokens    {', '.join(shown) if known else 'none reported'}")
    if found.started_at is not None and found.ended_at is not None:
        took_s = found.ended_at - found.started_at
        took = roughly(took_s) if took_s >= 1 else "less than 1 s"
        lines.append(
            f"times     begun {_moment(found.started_at)}, last end {_moment(found.ended_at)} ({took} between)"
        )
    return lines


def holder_told(holder: Holder) -> str:
    """Name the process that runs a job."""
    return "another process" if holder.pid is None else f"pid {holder.pid} on {holder.host}"


def _kinds(found: Status) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in found.failures)


def _words(total: FieldTotal) -> str:
    if total.known is None:
        return "unknown"
    return f"{'at least ' if total.unknown or total.at_least else ''}{total.known:,}"
