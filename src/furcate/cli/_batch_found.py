"""What a start of a batch job finds in its journal, in the words of the command line."""

from __future__ import annotations

import contextlib
import os

from furcate.batch import About, Enrollment, read_journal
from furcate.batch._target import target_name
from furcate.cli._batch_target import Doing
from furcate.cli._told import say
from furcate.orchestrator._config_digests import configuration_digests
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import FurcateError, JournalError
from furcate.primitives._resources import Prompt


def about_job(doing: Doing, engine: Engine, *, source: str, code: str) -> About:
    """Tell what a job is now.

    Arguments:
        doing: what is done with each item.
        engine: has the configuration.
        source: where the items come from.
        code: the version of the target's code.
    """
    digests = configuration_digests(engine._resources, doing if isinstance(doing, Prompt) else None)
    return About(target=target_name(doing), source=source, digests={**digests, "code": code})


async def refusal(error: JournalError, journal: str | os.PathLike[str], now: About) -> JournalError:
    """Say what has changed since items were finished, and which options say what to do about it.

    Arguments:
        error: the library's refusal.
        journal: where they were finished.
        now: what the job is.
    """
    stored = About()
    with contextlib.suppress(FurcateError):
        async with read_journal(journal) as reader:
            stored = (await reader.status()).about
    if stored.target and stored.target != now.target:
        problem = (
            f"this is the journal of target {stored.target!r}; name another by --journal, or, where that is only "
            "another name for the same, keep its results by --changed keep"
        )
    else:
        names = sorted({*stored.digests, *now.digests})
        other = [name for name in names if stored.digests.get(name) != now.digests.get(name)]
        told = f"; what is another: {', '.join(other)}" if other else ""
        problem = f"{error.problem} (--changed redo, or --changed keep){told}"
    return JournalError(problem, "changed", path=os.fspath(journal))


def tell_found(found: Enrollment, journal: str | os.PathLike[str], source: str) -> None:
    """Tell in what the input differs from what the journal had, and what that means.

    Arguments:
        found: what was found.
        journal: the journal.
        source: where the items come from, as messages name it.
    """
    if not found.items:
        say(f"furcate: there is no item in {source}")
    place = os.fspath(journal)
    failed = found.failed - found.malformed
    if found.finished or failed or found.redone or found.gone:
        again = f", {failed:,} failed before ('furcate batch retry {place}' has them tried again)" if failed else ""
        say(f"furcate: {place} has {items_told(found.finished, 'finished')}{again}; {found.pending:,} to do")
    if found.redone:
        say(f"furcate: {items_told(found.redone)} finished before will be done again, since something has changed")
    elif found.changed or found.outdated:
        say(f"furcate: {items_told(found.changed + found.outdated)} changed since; their results are kept")
    if found.gone:
        say(f"furcate: the items no longer have {found.gone:,} of those in the journal")


def items_told(count: int, which: str = "") -> str:
    """Say how many items, in the singular where it is one.

    Arguments:
        count: how many.
        which: a word on them.
    """
    return f"{count:,} {which}{' ' if which else ''}{'item' if count == 1 else 'items'}"
