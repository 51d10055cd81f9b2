"""``furcate batch``: something done with each of many items, once, whatever comes between."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from furcate.batch import JobOptions
from furcate.batch._target import target_name
from furcate.cli._batch_dry import rehearse
from furcate.cli._batch_journal import failures, results, retry, status
from furcate.cli._batch_results import check_writable
from furcate.cli._batch_running import Assignment, Running
from furcate.cli._batch_target import Aim, file_of
from furcate.cli._batch_where import executor_for
from furcate.cli._files import check_target, files_of, is_same
from furcate.cli._kept import Keeping, Kept, keeping_options
from furcate.cli._loop import Interruption, run_on
from furcate.cli._output import stdout_is_closed
from furcate.cli._setup import choose, config_option, loop_option
from furcate.cli._told import FAILED, INTERRUPTED, WELL, complain
from furcate.primitives._errors import RequestError

_START = "start"
_HEEDED = 2


class _Batch(click.Group):
    """Take what is no subcommand for the target and the items of `start`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_START, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "TARGET ITEMS [OPTIONS]")
        formatter.write_usage(ctx.command_path, "status|results|failures|retry JOURNAL [OPTIONS]")


@click.group(cls=_Batch)
def batch() -> None:
    """Work on many items, each once, and go on where it stopped by the same command.

    TARGET is an async function MODULE:FUNCTION of yours, called with an item and what to work with, or the id of a
    prompt, whose variables come from the item. ITEMS is a file of JSON lines, a CSV file, a JSON array, or - for
    standard input.

    `furcate batch TARGET ITEMS` is short for `furcate batch start TARGET ITEMS`, which has to be written out where a
    target is called like one of the commands below. `furcate batch start --help` lists its options.

    Exit status: 0 all items finished, 1 some failed, 2 wrong use or configuration, 130 interrupted.
    """


@frozen(kw_only=True)
class _Chosen:
    """Hold what the command line says about how the job is run."""

    journal: Path | None
    results: Path | None
    order: str
    fail_fast: bool
    failed_status: int
    dry_run: bool


@batch.command(_START)
@click.argument("words", nargs=-1, metavar="TARGET ITEMS")
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="A user message, in place of TARGET.")
@click.option("--system", metavar="TEXT", help="A system message before those of -m.")
@click.option("--profile", metavar="NAME", help="Profile to use instead of the prompt's.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where finished items are kept. [default: beside ITEMS, with the suffix .journal]",
)
@click.option("--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Items at once.")
@click.option("--on", "where", metavar="CLUSTER", help="Work there: dask, dask://HOST:PORT, ray or ray://HOST:PORT.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes of --on. [default: one for a core]")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=lambda _context, _option, path: None if path == Path("-") else path,
    help="Where results go; - is stdout. [default: stdout]",
)
@click.option(
    "--order",
    type=click.Choice(["ends", "items"]),
    default="ends",
    show_default=True,
    help="Results as items end, or in the order of the items, at the end.",
)
@click.option("--format", type=click.Choice(["jsonl", "csv", "json"]), help="Of the items. [default: by the suffix]")
@click.option("--id-field", metavar="NAME", help="The member that holds the items' ids. [default: id, if there is one]")
@click.option(
    "--changed",
    "on_changed",
    type=click.Choice(["refuse", "redo", "keep"]),
    default="refuse",
    show_default=True,
    help="What to do with finished items where they, the configuration or --code have changed since.",
)
@click.option("--code", default="", metavar="TEXT", help="Version of the target's code; another one is a change.")
@click.option("--no-replay", is_flag=True, help="Ask again what an unfinished item was answered before.")
@click.option("--fail-fast", is_flag=True, help="Cancel everything at the first failure.")
@click.option("--max-failures", type=click.IntRange(min=0), metavar="N", help="Begin no more after more failures.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Begin so many items, and no more.")
@click.option(
    "--failed-status",
    type=click.IntRange(0, 255),
    default=FAILED,
    show_default=True,
    metavar="N",
    help="Exit status where all was done and some items failed, or some answers do not meet their contract.",
)
@click.option("--dry-run", is_flag=True, help="Read, render and encode every item, and send nothing.")
@config_option
@keeping_options
@loop_option
def start(words: tuple[str, ...], config: Path | None, loop: str, **given: Any) -> int:
    """Do what TARGET says with each of ITEMS.

    Results go to stdout as JSON lines, what goes on is shown on stderr. With -m, messages take the place of TARGET;
    they are templates like those of prompts: furcate batch -m 'Translate into French: {{ text }}' items.csv
    """
    messages: tuple[str, ...] = given.pop("messages")
    target, items = _words(words, messages)
    keeping = Keeping(**{name: given.pop(name) for name in ("receipts", "record", "record_content")})
    executor = executor_for(given.pop("where"), given.pop("workers"))
    setup = choose(config)
    aim = Aim(name=target, messages=messages, system=given.pop("system"), profile=given.pop("profile"))
    with redirect_stdout(sys.stderr):
        # What a module prints while it is imported must not end up among the results.
        doing = aim.find(setup)
    names = ("journal", "results", "order", "fail_fast", "failed_status", "dry_run")
    chosen = _Chosen(**{name: given.pop(name) for name in names})
    assignment = Assignment(
        setup=setup,
        doing=doing,
        items=items,
        journal=chosen.journal or _beside(items, needed=not chosen.dry_run),
        options=JobOptions(replay=not given.pop("no_replay"), **given),
        results=chosen.results,
        order="items" if chosen.order == "items" else "ends",
        fail_fast=chosen.fail_fast,
        failed_status=chosen.failed_status,
        executor=executor,
    )
    _check_files(assignment, keeping)
    if chosen.dry_run:
        return _rehearse(assignment, loop)
    if assignment.results is None and stdout_is_closed():
        raise RequestError("stdout is closed, so that the results would be lost; give --results FILE")
    return _run(assignment, keeping, loop)


def _words(words: tuple[str, ...], messages: tuple[str, ...]) -> tuple[str | None, str]:
    if messages:
        if len(words) != 1:
            raise click.UsageError("With -m, give ITEMS and no TARGET.")
        return None, words[0]
    if len(words) != 2:
        raise click.UsageError("Give TARGET and ITEMS.")
    return words[0], words[1]


def _beside(items: str, *, needed: bool) -> Path:
    if items == "-":
        if needed:
            raise RequestError(
                "items from standard input have no place of their own; name the journal by --journal FILE"
            )
        return Path("-")
    path = Path(items)
    if needed and path.exists() and not path.is_file() and not path.is_dir():
        raise RequestError(f"{items} is no file that a journal could lie beside; name the journal by --journal FILE")
    if path.suffix == ".journal" and needed:
        raise RequestError(f"{items} looks like a journal; give the items, and the journal by --journal")
    # A name that is none is told by whoever reads it.
    return path.with_suffix(".journal") if path.name else path / "items.journal"


def _check_files(assignment: Assignment, keeping: Keeping) -> None:
    """Check that nothing that the job reads is written over, and nothing is written twice."""
    read = files_of(assignment.setup.path, "the configuration")
    module = file_of(assignment.doing)
    if module is not None:
        read[module] = "the module of the target"
    if assignment.items != "-":
        read[Path(assignment.items)] = "the file of the items"
    for other, what in read.items():
        if is_same(assignment.journal, other):
            raise RequestError(f"--journal {assignment.journal} is {what}; name another file")
    read[assignment.journal] = "the journal"
    for suffix in ("-wal", "-shm", ".lock"):
        read[Path(f"{assignment.journal}{suffix}")] = "a part of the journal"
    if assignment.results is not None:
        check_target("--results", assignment.results, read)
        read[assignment.results] = "the file of --results too"
    keeping.check(read)


def _run(assignment: Assignment, keeping: Keeping, loop: str) -> int:
    running = Running(assignment)
    kept = Kept(keeping, assignment.setup.resources.otel)
    engine = assignment.setup.engine([*kept.observers, running.view])
    with kept, kept.job(target_name(assignment.doing)) if assignment.executor else nullcontext():
        ended = run_on(loop, lambda interruption: running.run(engine, interruption), heeded=_HEEDED)
    return kept.conclude(ended)


def _rehearse(assignment: Assignment, loop: str) -> int:
    engine = assignment.setup.engine()
    if assignment.results is not None:
        check_writable(assignment.results)

    async def command(interruption: Interruption) -> int:
        with interruption.scope():
            try:
                failed = await rehearse(assignment, engine)
            except OSError as error:
                complain(f"stdout cannot be written ({error.strerror or error}); the dry run has ended there")
                return FAILED
            return assignment.failed_status if failed else WELL
        complain("interrupted; not all items were looked at")
        return INTERRUPTED

    return run_on(loop, command)


for _command in (status, results, failures, retry):
    batch.add_command(_command)
