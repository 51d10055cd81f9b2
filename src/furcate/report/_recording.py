"""Recordings read back: lines of JSON to the observations that they were written of."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from attrs import frozen
from cattrs import Converter

from furcate.observers._lines import VERSION
from furcate.primitives._json import FrozenMap
from furcate.primitives._observations import Observation
from furcate.primitives._receipt import TransportReceipt
from furcate.report._line_faults import misfits, unparsed
from furcate.validation._paths import shown
from furcate.validation._structure import Misfit, strict_converter

MOST_FAULTS = 20


@frozen(kw_only=True)
class ContentRecorded:
    """Hold what an attempt sent or brought, where recording content was chosen.

    Attributes:
        direction: ``sent`` or ``received``.
        inherited: number of messages of the exchange that the run continues that stand before these.
        messages: the messages as plain data: role, parts, and what those hold that is for people.
    """

    run_id: str
    number: int
    direction: Literal["sent", "received"]
    inherited: int = 0
    messages: tuple[FrozenMap, ...]


RecordedEvent: TypeAlias = Observation | ContentRecorded


@frozen
class Recorded:
    """Hold one line of a recording.

    Attributes:
        at_s: when it was told, in seconds since 1970 by the clock of the machine that recorded.
        event: what was told.
    """

    at_s: float
    event: RecordedEvent


@frozen
class LineFault:
    """Say what is wrong with a line.

    Attributes:
        line: its number; 1 is the first.
        problem: what is wrong.
    """

    line: int
    problem: str


@frozen(kw_only=True)
class _Sent:
    """Hold the fields of a ContentSent as they are written."""

    run_id: str
    number: int
    inherited: int
    messages: list[FrozenMap]


@frozen(kw_only=True)
class _Received:
    """Hold the fields of a ContentReceived as they are written."""

    run_id: str
    number: int
    message: FrozenMap


class Recording:
    """Give the observations of a recording, each when its line is read, once.

    What cannot be read is passed over and counted while the lines go by: a newer furcate's kinds of lines, a last line
    that was cut off, lines that are broken.

    Arguments:
        lines: the lines with their ends.
        receipts: whether to read the attempts' receipts too, which takes as long as all the rest.

    Attributes:
        lines: number of lines that have gone by, empty ones included.
        told: how many of them gave an observation.
        contents: how many of these hold what was said.
        skipped: how many are of a form or kind that this version does not know.
        torn: whether the last line was cut off.
        broken: how many are no lines of a recording.
        faults: what is wrong with the first of the broken ones.
    """

    def __init__(self, lines: Iterable[bytes], *, receipts: bool = True) -> None:
        self._source = lines
        self._receipts = receipts
        self.lines = 0
        self.told = 0
        self.contents = 0
        self.skipped = 0
        self.torn = False
        self.broken = 0
        self.faults: list[LineFault] = []

    def __iter__(self) -> Iterator[Recorded]:
        for line in self._source:
            self.lines += 1
            if not line.strip():
                continue
            try:
                recorded = _read(line, receipts=self._receipts)
            except ValueError as error:
                self._note(line, str(error))
                continue
            if recorded is None:
                self.skipped += 1
            else:
                self.told += 1
                self.contents += isinstance(recorded.event, ContentRecorded)
                yield recorded

    def _note(self, line: bytes, problem: str) -> None:
        if not line.endswith(b"\n"):
            self.torn = True
            return
        self.broken += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(LineFault(self.lines, problem))


def read_recording(path: str | Path, *, receipts: bool = True) -> Recording:
    """Open a recording, to be read line by line when it is iterated over.

    Arguments:
        path: the file.
        receipts: whether to read the attempts' receipts too, which takes as long as all the rest.

    Raises:
        OSError: the file cannot be read; raised at once.
    """
    path = Path(path)
    with path.open("rb"):
        pass
    return Recording(_lines_of(path), receipts=receipts)


def _lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _made_converter() -> Any:
    converter = strict_converter()
    # Most fields are of this form, and a recording may have millions of them.
    converter.register_structure_hook_factory(_is_optional, _optional_hook)
    converter.register_structure_hook(FrozenMap, lambda value, _: FrozenMap(_object(value)))
    converter.register_structure_hook(TransportReceipt, lambda value, _: TransportReceipt.from_dict(value))
    return converter


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Misfit(f"{shown(value)} is not an object")
    return value


def _is_optional(hint: Any) -> bool:
    return isinstance(hint, UnionType) and len(get_args(hint)) == 2 and get_args(hint)[1] is type(None)


def _optional_hook(hint: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    inner = get_args(hint)[0]
    structure = converter.get_structure_hook(inner)
    return lambda value, _: None if value is None else structure(value, inner)


_CONVERTER = _made_converter()
_KINDS: Mapping[str, type[Any]] = {
    **{cls.__name__: cls for cls in get_args(Observation)},
    "ContentSent": _Sent,
    "ContentReceived": _Received,
}
_HEAD = ("v", "at", "kind")
# Somewhere in the year 5138, which a clock that is merely wrong does not show.
_NO_TIME_S = 1e11


def _read(line: bytes, *, receipts: bool) -> Recorded | None:
    """Read one line; None where it is of a form or kind that a newer version writes.

    Raises:
        ValueError: it is no line of a recording; the message says why.
    """
    told = _parsed(line)
    version, at_s, kind = (told.pop(name, None) for name in _HEAD)
    if type(version) is not int or version < 1:
        raise ValueError("has no version v, a whole number from 1")
    if type(at_s) not in (int, float) or not 0 <= at_s < _NO_TIME_S:
        raise ValueError("has no time at, a number of seconds since 1970")
    if type(kind) is not str:
        raise ValueError("has no kind, the name of an observation")
    cls = _KINDS.get(kind)
    if version > VERSION or cls is None:
        return None
    if not receipts:
        told.pop("receipt", None)
    try:
        found = _CONVERTER.structure(told, cls)
    except Exception as error:
        raise ValueError(f"is no {kind}: {misfits(error)}") from error
    return Recorded(float(at_s), _content(found) if isinstance(found, (_Sent, _Received)) else found)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        # Editors and shells of Windows put a byte order mark at the start of what they write.
        told = msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(unparsed(error, line)) from error
    if not isinstance(told, dict):
        raise ValueError("is no JSON object, such as the lines that --record writes")
    return told


def _content(told: _Sent | _Received) -> ContentRecorded:
    if isinstance(told, _Received):
        return ContentRecorded(run_id=told.run_id, number=told.number, direction="received", messages=(told.message,))
    return ContentRecorded(
        run_id=told.run_id,
        number=told.number,
        direction="sent",
        inherited=told.inherited,
        messages=tuple(told.messages),
    )
