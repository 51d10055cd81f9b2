"""What a journal tells: values that are read out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Literal, TypeAlias

from attrs import field, frozen

from furcate.primitives._json import FrozenMap, Json, Plain, canonical, freeze, thaw
from furcate.primitives._usage import UNKNOWN, FieldTotal, Usage

ItemState: TypeAlias = Literal["pending", "finished", "failed"]
MALFORMED = "malformed"
"""The kind of failure of an item that cannot be read."""


class Unreadable(Exception):
    """Raised when something is not in a journal as it was written."""


@contextmanager
def as_written(what: str) -> Iterator[None]:
    """Tell what cannot be read, whatever is wrong with it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"{what} cannot be read: {error}") from error


def _digests(value: Mapping[str, str]) -> FrozenMap:
    return FrozenMap(value)


@frozen(kw_only=True)
class About:
    """Tell what a job is, so that a later start can tell whether it is still the same.

    Attributes:
        target: what is done with each item, such as ``module:function``.
        source: where the items come from.
        digests: what results depend on besides the item: names, such as ``configuration`` or ``code``, and digests or
            versions.
        id_field: the member that holds the items' ids; empty where that is not known.
    """

    target: str = ""
    source: str = ""
    id_field: str = ""
    digests: FrozenMap = field(factory=FrozenMap, converter=_digests)

    @property
    def setup(self) -> bytes:
        """SHA-256 of the target and the digests, 32 bytes: what an item was finished under."""
        return sha256(canonical([self.target, thaw(self.digests)])).digest()

    def to_json(self) -> str:
        """Give the same as JSON."""
        told: dict[str, Plain] = {"target": self.target, "source": self.source, "digests": thaw(self.digests)}
        if self.id_field:
            told["id_field"] = self.id_field
        return canonical(told).decode()

    @classmethod
    def from_json(cls, text: str) -> About:
        """Read what `to_json` gave."""
        with as_written("what the job is"):
            return cls(**json.loads(text))


@frozen
class ItemFailure:
    """Tell why an item failed.

    Attributes:
        kind: the kind of failure, in one word.
        message: what went wrong, in a sentence.
    """

    kind: str
    message: str

    def to_json(self) -> bytes:
        """Give the same as JSON."""
        return encode({"kind": self.kind, "message": self.message})

    @classmethod
    def from_json(cls, data: bytes) -> ItemFailure:
        """Read what `to_json` gave."""
        with as_written("why an item failed"):
            return cls(**json.loads(data))


@frozen(kw_only=True)
class JournalRow:
    """Hold what a journal has of one item.

    Attributes:
        id: what it is called; None where it could not be read so far.
        line: the line of the input that it begins on, from 1 on; of an item that the input no longer has, where it was.
        position: its place in the input, from 0 on; None where the input no longer has it.
        state: ``pending``, ``finished`` or ``failed``.
        tries: how often it was begun.
        order: the number of its end, in the order of ends; None while it is pending.
        result: of a finished item, JSON in UTF-8 on one line.
        error: of a failed item.
        usage: the tokens of its last try, as they were told when it ended.
        setup: what it ended under (`About.setup`); None while it is pending, and of an item that could not be read.
        started_at: when it was last begun, in seconds since 1970; None where it was not.
        ended_at: when it ended, likewise.
    """

    id: str | None
    line: int
    position: int | None
    state: ItemState
    tries: int = 0
    order: int | None = None
    result: bytes | None = field(default=None, repr=False)
    error: ItemFailure | None = None
    usage: Usage = UNKNOWN
    setup: bytes | None = field(default=None, repr=False)
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def value(self) -> Plain:
        """The result as a fresh value; None where there is none."""
        value: Plain = None if self.result is None else json.loads(self.result)
        return value


@frozen(kw_only=True)
class KeptCall:
    """Hold a call of an item that was answered.

    Attributes:
        run_id: the run that made it.
        number: its attempt's number.
        key: SHA-256 of the run's first request, 32 bytes.
        data: the answer.
    """

    run_id: str
    number: int
    key: bytes = field(repr=False)
    data: bytes = field(repr=False)


@frozen(kw_only=True)
class Enrollment:
    """Tell how an input compares with what the journal had.

    Attributes:
        items: how many items the input has.
        new: how many of them the journal did not have, those without a readable id left out.
        malformed: how many of them cannot be read; they have failed.
        changed: how many it had finished with another content.
        outdated: how many more it had finished under another setup.
        redone: how many of the changed and outdated are to be done again.
        gone: how many items of the journal the input no longer has.
        pending: how many items of the input are to be done.
        finished: how many are finished.
        failed: how many have failed, the malformed ones included.
    """

    items: int = 0
    new: int = 0
    malformed: int = 0
    changed: int = 0
    outdated: int = 0
    redone: int = 0
    gone: int = 0
    pending: int = 0
    finished: int = 0
    failed: int = 0


@frozen(kw_only=True)
class Holder:
    """Name the process that runs a journal's job.

    Attributes:
        pid: its number; None where that is not known.
        host: the machine that it runs on; empty where that is not known.
    """

    pid: int | None = None
    host: str = ""


@frozen(kw_only=True)
class Status:
    """Tell how far a job is.

    Attributes:
        about: what it is.
        furcate: the release that began it.
        created_at: when it began, in seconds since 1970.
        pending: how many items of its input are to be done.
        finished: how many are finished.
        failed: how many have failed.
        gone: how many items it has that its input no longer has, whatever came of them.
        gone_finished: how many of those are finished.
        failures: the kinds of failure of items that its input has, and how many of each, most frequent first.
        usage: for each count of tokens, its total over the items that have ended, those that are gone included.
        started_at: when the first item was begun; None where none was.
        ended_at: when the last item ended; None where none did.
    """

    about: About
    furcate: str
    created_at: float
    pending: int
    finished: int
    failed: int
    gone: int
    gone_finished: int
    failures: tuple[tuple[str, int], ...]
    usage: Mapping[str, FieldTotal]
    started_at: float | None
    ended_at: float | None

    @property
    def items(self) -> int:
        """How many items the input has."""
        return self.pending + self.finished + self.failed


_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x7f\x85\u2028\u2029"}


def encode(value: Json) -> bytes:
    """Encode a JSON-like value on one line, in UTF-8, with its members in their order.

    Raises:
        TypeError: it holds something that JSON has no form for; the message names its place.
        ValueError: it holds a number that is not finite, or nests too deeply.
    """
    plain = thaw(freeze(value))
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        # What other readers of lines take for the end of one stands in texts only, where it can be written otherwise.
        return (text if text.isascii() else text.translate(_BREAKS)).encode("utf-8")
    except UnicodeEncodeError:
        # Half of a surrogate pair has no form in UTF-8, but JSON has one for it.
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode("ascii")
