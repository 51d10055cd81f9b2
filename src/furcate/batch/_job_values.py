"""What a job is told and what it tells: its options, how far it is, and what came of each item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from attrs import field, frozen
from attrs.validators import optional

from furcate.batch._enroll import OnChanged
from furcate.batch._formats import Format
from furcate.batch._items import check_id_field
from furcate.batch._rows import Enrollment, ItemFailure
from furcate.primitives._checks import whole
from furcate.primitives._json import Plain
from furcate.primitives._usage import UNKNOWN, Usage

Ended: TypeAlias = Literal["all", "limit", "drained", "failures", "cancelled"]


@frozen(kw_only=True)
class ItemOutcome:
    """Tell what came of an item; it is in the journal already.

    Attributes:
        id: what it is called; None where it cannot be read, so that it has failed.
        line: the line of the input that it begins on, from 1 on.
        state: ``finished`` or ``failed``.
        result: what the target returned, as fresh plain data; None where it failed.
        error: why it failed.
        usage: the tokens of all its calls, those of an earlier start included that were not made again.
    """

    id: str | None
    line: int
    state: Literal["finished", "failed"]
    result: Plain = field(default=None, repr=False)
    error: ItemFailure | None = None
    usage: Usage = UNKNOWN


@frozen(kw_only=True)
class JobProgress:
    """Tell how far a job is.

    Attributes:
        enrollment: what its input held when it began.
        running: items that have begun and not ended.
        finished: items that this start of the job has finished.
        failed: items that have failed in this start of it.
        ended: why it begins no more items; None while it does: ``all`` were begun, the ``limit`` is reached, it is
            ``drained`` or ``cancelled``, or there were too many ``failures``.
    """

    enrollment: Enrollment
    running: int = 0
    finished: int = 0
    failed: int = 0
    ended: Ended | None = None

    @property
    def left(self) -> int:
        """How many items have not ended."""
        return max(0, self.enrollment.pending - self.finished - self.failed)


def _one_of(known: tuple[str, ...]) -> Callable[[object, object, object], None]:
    """Make a validator for one of some words."""

    def check(_instance: object, attribute: object, value: object) -> None:
        if value not in known:
            raise ValueError(f"{_name(attribute)} is {value!r}; give one of {', '.join(known)}")

    return check


def _text(_instance: object, attribute: object, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{_name(attribute)} is {value!r}; give text")


def _flag(_instance: object, attribute: object, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{_name(attribute)} is {value!r}; give True or False")


def _id_field(_instance: object, _attribute: object, value: str) -> None:
    check_id_field(value)


def _name(attribute: object) -> str:
    return str(getattr(attribute, "name", "value"))


@frozen(kw_only=True)
class JobOptions:
    """Say how a job is run.

    Attributes:
        concurrency: how many items are worked on at once, whatever the capacity of backends is.
        on_changed: what to do where finished items, the configuration or `code` have changed since: ``refuse``,
            ``redo`` those items, or ``keep`` their results, which settles it for later starts.
        code: a version of the target's code; a change of it counts as a change of all that was finished under it.
        replay: whether an item that was begun before is given what it had been answered, instead of asking again.
        limit: most items to begin; None begins all.
        max_failures: how many items may fail before no more are begun; None does not count.
        format: of the items: ``jsonl``, ``csv`` or ``json``; None goes by the file's suffix.
        id_field: the member that holds the items' ids; None takes ``id`` wherever there is one.
        observations: whether the journal keeps what was observed of each item's runs, receipts included.

    Raises:
        TypeError: a number is no whole number, a text no text, or a switch neither True nor False.
        ValueError: a number is too small, or a word none of those that are known.
    """

    concurrency: int = field(default=8, validator=whole(1))
    on_changed: OnChanged = field(default="refuse", validator=_one_of(get_args(OnChanged)))
    code: str = field(default="", validator=_text)
    replay: bool = field(default=True, validator=_flag)
    limit: int | None = field(default=None, validator=optional(whole(0)))
    max_failures: int | None = field(default=None, validator=optional(whole(0)))
    format: Format | None = field(default=None, validator=optional(_one_of(get_args(Format))))
    id_field: str | None = field(default=None, validator=optional(_id_field))
    observations: bool = field(default=True, validator=_flag)


DEFAULT_OPTIONS = JobOptions()
