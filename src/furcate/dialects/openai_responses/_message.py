"""Messages of one ``openai-responses`` answer: text parts with their citations, and refusals."""

from __future__ import annotations

from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import malformed
from furcate.dialects.openai_responses._citations import CitationBook
from furcate.dialects.openai_responses._sheet import UNKNOWN_PIECE_FORMAT, Piece, Sheet
from furcate.dialects.openai_responses._wire import Members, clean_kind, compact, read_list, read_members, text_of, told
from furcate.primitives._stream import Citation, PartEnded, PartPayload, RefusalDelta, TextDelta
from furcate.primitives._wire import AttemptFailed

_IN_THE_MESSAGE = frozenset({"type", "role", "content"})


@define
class _TextPart(Piece):
    citations: CitationBook = field(kw_only=True)


@define
class _RefusalPart(Piece):
    pass


class MessageItem:
    """Follow a message: text parts with their citations, and refusals."""

    def __init__(self, sheet: Sheet) -> None:
        self.done = False
        self.refused = False
        self._sheet = sheet
        self._parts: dict[int, _TextPart | _RefusalPart] = {}
        self._carried: set[int] = set()

    def say(self, number: int, text: str) -> None:
        """Take a piece of the text of part `number`."""
        part = self._text(number)
        if text:
            part.add(text)
            self._sheet.emit(TextDelta(part.index, text))
            self._cite(part)

    def said(self, number: int, whole: str) -> None:
        """Take all the text of part `number`."""
        part = self._text(number)
        self.say(number, part.missing(whole, "a text"))

    def decline(self, number: int, text: str) -> None:
        """Take a piece of a refusal."""
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = _RefusalPart(self._sheet.allot())
        if not isinstance(part, _RefusalPart):
            raise AttemptFailed(malformed("the answer tells a text as a refusal as well"))
        self.refused = True
        if text:
            part.add(text)
            self._sheet.emit(RefusalDelta(part.index, text))

    def declined(self, number: int, whole: str) -> None:
        """Take all of a refusal."""
        self.decline(number, "")
        self.decline(number, self._parts[number].missing(whole, "a refusal"))

    def annotate(self, number: int, place: int | None, raw: Raw) -> None:
        """Take annotation `place` of part `number`."""
        part = self._text(number)
        kind = part.citations.add(place, raw)
        if kind is not None:
            self._sheet.notice(f"annotation.{clean_kind(kind)}")
        self._cite(part)

    def confirm_part(self, number: int, raw: Raw) -> None:
        """Take a part as a whole."""
        members = read_members(raw)
        kind = text_of(members, "type")
        if kind == "output_text":
            self.said(number, told(members.get("text")))
            for place, annotation in enumerate(read_list(members.get("annotations"))):
                self.annotate(number, place, annotation)
        elif kind == "refusal":
            self.declined(number, told(members.get("refusal")))
        elif number not in self._carried:
            self._carried.add(number)
            self._sheet.carry(
                clean_kind(kind), compact(members), id=f"part_{number}", position=None, form=UNKNOWN_PIECE_FORMAT
            )

    def confirm(self, members: Members) -> None:
        """Take the item as a whole."""
        for number, raw in enumerate(read_list(members.get("content"))):
            self.confirm_part(number, raw)

    def finish(self, members: Members) -> None:
        """Take the item's end."""
        self.confirm(members)
        payload = compact(members, without=_IN_THE_MESSAGE)
        self.flush()
        for part in self._parts.values():
            if isinstance(part, _TextPart) and payload != b"{}":
                self._sheet.emit(PartPayload(part.index, self._sheet.payload(payload)))
            self._sheet.emit(PartEnded(part.index))
        self.done = True

    def flush(self) -> None:
        """Tell the citations that were held back, as far as there is text for them."""
        for part in self._parts.values():
            if isinstance(part, _TextPart):
                for one in part.citations.rest(part.text):
                    self._sheet.emit(Citation(part.index, one))

    def _text(self, number: int) -> _TextPart:
        part = self._parts.get(number)
        if part is None:
            part = _TextPart(self._sheet.allot(), citations=CitationBook(self._sheet.origin.provider))
            self._parts[number] = part
        if not isinstance(part, _TextPart):
            raise AttemptFailed(malformed("the answer tells a refusal as a text as well"))
        return part

    def _cite(self, part: _TextPart) -> None:
        if part.citations.due(part.length):
            for one in part.citations.ready(part.text):
                self._sheet.emit(Citation(part.index, one))
