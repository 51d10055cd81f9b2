"""``furcate explore``: one opening for each input, many branches from its answer."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import click
from attrs import frozen

from furcate.cli._asking import Asking
from furcate.cli._callables import Function
from furcate.cli._exploring import Exploration, Limits, Source
from furcate.cli._files import check_target, files_of, is_special, module_file
from furcate.cli._kept import Keeping, Kept, keeping_options
from furcate.cli._lines import LineWriter
from furcate.cli._loop import Interruption, run_on
from furcate.cli._output import stdout_is_closed
from furcate.cli._plan import Ask
from furcate.cli._plan_check import Loaded, load_plan
from furcate.cli._setup import config_option, loop_option, make_ready
from furcate.cli._told import FAILED, INTERRUPTED, WELL, complain, say
from furcate.orchestrator._config_read import Report
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import ConfigError, RequestError
from furcate.primitives._resources import Backend
from furcate.report import LiveView


@frozen(kw_only=True)
class Job:
    """Hold everything an exploration was decided to be, checked.

    Attributes:
        engine: not yet open.
        view: one of the engine's observers.
        asking: makes the requests.
        functions: the branches' callables by branch name.
        sources: the inputs, at least one.
        backends: the backends that are known to be used, the opening's first.
        out: where the lines go.
        out_name: what people call it.
        max_active: most openings and branches at once; None leaves it to the backends' capacity.
    """

    engine: Engine
    view: LiveView
    asking: Asking
    functions: dict[str, Function]
    sources: tuple[Source, ...]
    backends: tuple[Backend, ...]
    out: BinaryIO
    out_name: str
    max_active: int | None

    @property
    def limits(self) -> Limits:
        """What may go on at once."""
        return Limits(inputs=self.max_active or self.backends[0].capacity, active=self.max_active)


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--out", default="-", metavar="FILE", help="Where each branch's JSON line goes. [default: stdout]")
@click.option("--max-active", type=click.IntRange(min=1), metavar="N", help="Most openings and branches at once.")
@config_option
@keeping_options
@loop_option
def explore(
    plan: Path,
    inputs: tuple[str, ...],
    out: str,
    *,
    max_active: int | None,
    config: Path | None,
    loop: str,
    **kept_files: Any,
) -> int:
    """Ask a PLAN's opening once for each INPUT file, and drive all its branches from the answer.

    Each branch gives one JSON line as soon as it has ended; what goes on is shown on stderr.
    """
    report = Report(str(plan))
    loaded = load_plan(plan, config, report)
    report.raise_first()
    assert loaded is not None
    asking = Asking(loaded.plan, loaded.setup)
    sources = _sources(inputs)
    keeping = Keeping(**kept_files)
    _check_targets(loaded, sources, out, keeping=keeping)
    kept = Kept(keeping, loaded.setup.resources.otel)
    view = LiveView(roots="openings", expected=len(sources))
    engine = loaded.setup.engine([*kept.observers, view])
    backends = _check_requests(engine, asking, sources)
    # Opened last: a plan that cannot run must not empty the results of an earlier one.
    with kept, _opened(out) as file:
        job = Job(
            engine=engine,
            view=view,
            asking=asking,
            functions=loaded.functions,
            sources=sources,
            backends=backends,
            out=file,
            out_name="stdout" if out == "-" else out,
            max_active=max_active,
        )
        status = run_on(loop, lambda interruption: _explore(job, interruption))
    return kept.conclude(status)


def _sources(inputs: tuple[str, ...]) -> tuple[Source, ...]:
    """Look at the input files before anything is asked."""
    if not inputs:
        return (Source(None),)
    for name, times in Counter(inputs).items():
        if times > 1:
            raise RequestError(f"input {name} is given {times} times; give each file once")
    return tuple(Source(name, _readable(name)) for name in inputs)


def _readable(name: str) -> Path:
    path = Path(name)
    if is_special(path):
        raise RequestError(f"input {name} is no regular file; save it first")
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"input {name} is no UTF-8 text (byte {error.start}); convert it to UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"input {name} cannot be read: {reason}; name a text file that is there") from error
    return path


def _check_targets(loaded: Loaded, sources: tuple[Source, ...], out: str, *, keeping: Keeping) -> None:
    """Check that nothing that the exploration reads is written over."""
    if out == "-" and stdout_is_closed():
        raise RequestError("stdout is closed, so that the results would be lost; give --out FILE")
    read = files_of(loaded.setup.path, "the configuration")
    read |= files_of(loaded.plan.path, "the plan")
    for function in loaded.functions.values():
        module = module_file(function)
        if module is not None:
            read[module] = "the module of a callable"
    read |= {source.path: "an input of this exploration" for source in sources if source.path is not None}
    if out != "-":
        check_target("--out", Path(out), read)
    keeping.check(read if out == "-" else {**read, Path(out): "the file of --out too"})


def _opened(out: str) -> AbstractContextManager[BinaryIO]:
    if out == "-":
        return contextlib.nullcontext(sys.stdout.buffer)
    try:
        return Path(out).open("wb")
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written: {error.strerror or error}; name another file") from error


def _check_requests(engine: Engine, asking: Asking, sources: tuple[Source, ...]) -> tuple[Backend, ...]:
    """Render and encode what the plan asks, without calling anyone, and give the backends it would go to."""
    plan = asking.plan
    asked = [(plan.opening, source) for source in sources]
    asked += [(ask, sources[0]) for branch in plan.branches for ask in branch.follow_ups]
    names: dict[str, None] = {}
    for ask, source in asked:
        prepared = _prepared_backend(engine, asking, ask, source=source)
        names[prepared] = None
    return tuple(engine.inspect_backend(name) for name in names)


def _prepared_backend(engine: Engine, asking: Asking, ask: Ask, *, source: Source) -> str:
    asking.check_source(ask, source.path)
    try:
        return str(engine.prepare(asking.request(ask, source.path)).details()["backend"])
    except ConfigError:
        raise
    except RequestError as error:
        raise RequestError(f"{asking.plan.path}: {error}") from error


async def _explore(job: Job, interruption: Interruption) -> int:
    with interruption.scope():
        await make_ready(job.asking.setup, job.backends)
    if interruption.caught:
        complain("interrupted before anything was asked")
        return INTERRUPTED
    async with job.engine:
        asking = attrs.evolve(job.asking, interrupt=interruption.interrupt)
        exploration = Exploration(job.engine, asking, job.sources, functions=job.functions, limits=job.limits)
        # A callback that prints must not end up among the results.
        with contextlib.redirect_stdout(sys.stderr):
            await exploration.run(job.view, _writer(job), interruption.scope())
    return _conclude(job, exploration)


def _writer(job: Job) -> LineWriter:
    if os.isatty(1) and job.out_name == "stdout":
        return LineWriter(job.out, job.view.aside)
    return LineWriter(job.out)


def _conclude(job: Job, exploration: Exploration) -> int:
    """Tell the account of it all, and give the exit status."""
    for problem in exploration.problems:
        complain(problem)
    if exploration.more_problems:
        complain(f"and {exploration.more_problems:,} more failed; the results say why")
    say(str(exploration.group.summary()))
    branches = exploration.endings.total()
    ended = ", ".join(f"{number} {ending}" for ending, number in exploration.endings.items())
    # Where they could not all be written, that is told below, and the two must not contradict each other.
    where = f"; results in {job.out_name}" if exploration.undelivered is None else ""
    say(f"branches: {branches} ({ended}){where}")
    if exploration.unmet:
        say(f"branches without an answer that meets its contract: {exploration.unmet}")
    if exploration.undelivered is not None:
        error = exploration.undelivered
        complain(f"results cannot be written to {job.out_name} any more ({error.strerror or error}); stopped")
        return FAILED
    well = exploration.endings["stopped"] + exploration.endings["exhausted"] == branches and not exploration.unmet
    return WELL if well else FAILED
