"""The parts of a ``google-generatecontent`` answer, one after the other, as stream events.

A stream cuts one part into many, so parts of text that follow each other are one part here, whole answers included:
the same answer is the same message however it came. Thought signatures are opaque reasoning state; the state's format
says where the signature goes when the message is sent back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec
from msgspec import Raw

from furcate.dialects._failures import malformed
from furcate.dialects._open_work import OpenWork
from furcate.dialects.google_generatecontent._calls import CallBook
from furcate.dialects.google_generatecontent._hosted import HostedBook
from furcate.dialects.google_generatecontent._text import TextBook
from furcate.dialects.google_generatecontent._wire import Blob, File, clean_kind, given, read_members, read_text
from furcate.primitives._content import Media, Origin, ReasoningState
from furcate.primitives._stream import (
    MediaArrived,
    Noticed,
    PartEnded,
    ReasoningDelta,
    ReasoningSealed,
    StreamEvent,
    TextDelta,
)
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

OF_NEXT = "google-generatecontent.signature.next"
"""The signature sits on the part that follows the reasoning."""
OF_PREVIOUS = "google-generatecontent.signature.previous"
"""The signature sits on the part ahead of the reasoning."""
OF_THOUGHT = "google-generatecontent.signature.thought"
"""The signature sits on the thought itself."""
ALONE = "google-generatecontent.signature.alone"
"""The signature sits on a text part that is empty."""

_BESIDE = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_KNOWN = frozenset(
    {
        "text",
        "functionCall",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
        "inlineData",
        "fileData",
    }
)

_BLOBS = msgspec.json.Decoder(Blob)
_FILES = msgspec.json.Decoder(File)


class PartBook:
    """Follow the parts of one answer.

    `emit` takes the events. What cannot be understood, and content of an unknown kind where it is not to be carried,
    raises ``AttemptFailed``; a known part of another shape raises ``msgspec.DecodeError``.

    Attributes:
        texts: the visible text.
        calls: the function calls.
        hosted: the provider-run work.
    """

    def __init__(
        self,
        origin: Origin,
        unknown_content: UnknownContent,
        emit: Callable[[StreamEvent], None],
        *,
        open_work: OpenWork,
    ) -> None:
        self._origin = origin
        self._carry = unknown_content == "carry"
        self._emit = emit
        self._count = 0
        self._text: int | None = None
        self._thought: int | None = None
        self._sealed = False  # whether the text or the thought that is open has its signature
        self.texts = TextBook()
        self.calls = CallBook(self.allot)
        self.hosted = HostedBook(origin, open_work)

    def allot(self) -> int:
        """Give the index of a new part."""
        self._count += 1
        return self._count - 1

    def begin(self, response_id: str) -> None:
        """Take the id of the response."""
        self.calls.scope = self.hosted.scope = response_id

    def take(self, raw: Raw) -> None:
        """Take a part, or a piece of one."""
        members = read_members(raw)
        kinds = [kind for kind in members if kind not in _BESIDE and given(members[kind])]
        known = [kind for kind in kinds if kind in _KNOWN]
        signature = read_text(members.get("thoughtSignature"))
        thought = members.get("thought") == Raw(b"true")
        if kinds and not known:
            self._unknown(kinds[0], raw)
        elif not known:
            self._text_piece("", signature, thought)
        for kind in kinds:
            if kind not in _KNOWN:
                self._emit(Noticed(f"part.{clean_kind(kind)}"))
            elif kind == "text":
                self._text_piece(msgspec.json.decode(members[kind], type=str), signature, thought)
            else:
                self.texts.skip()
                self._other(kind, members[kind], raw, signature=signature, thought=thought)

    def close(self) -> None:
        """End the part of text or thought that is open."""
        for part in (self._text, self._thought):
            if part is not None:
                self._emit(PartEnded(part))
        self._text = self._thought = None
        self._sealed = False

    def _text_piece(self, text: str, signature: str | None, thought: bool) -> None:
        if thought:
            self.texts.skip()
            self._think(text, signature)
        elif text:
            self._say(text, signature)
        else:
            self.texts.skip()
            if signature is not None:
                self._sign_empty(signature)

    def _say(self, text: str, signature: str | None) -> None:
        if self._text is None or (signature is not None and self._sealed):
            self.close()
            self._text = self.allot()
            self.texts.begin(self._text)
        self._emit(TextDelta(self._text, text))
        self.texts.add(text)
        if signature is not None:
            self._seal(self.allot(), OF_PREVIOUS, signature)
            self._sealed = True

    def _sign_empty(self, signature: str) -> None:
        # A stream signs its text at the end, on an empty part; the whole answer signs the text itself.
        if self._text is not None and not self._sealed:
            self._seal(self.allot(), OF_PREVIOUS, signature)
            self._sealed = True
        else:
            self.close()
            self._seal(self.allot(), ALONE, signature)

    def _think(self, text: str, signature: str | None) -> None:
        if not text and signature is None:
            return
        if self._thought is None or (signature is not None and self._sealed):
            self.close()
            self._thought = self.allot()
        if text:
            self._emit(ReasoningDelta(self._thought, text))
        if signature is not None:
            self._seal(self._thought, OF_THOUGHT, signature)
            self._sealed = True

    def _other(self, kind: str, value: Raw, part: Raw, *, signature: str | None, thought: bool) -> None:
        if kind == "functionCall":
            self._call(value, signature)
            return
        if kind in ("inlineData", "fileData"):
            if thought:  # a draft of an image that follows; neither an answer nor text
                self._emit(Noticed(f"thought.{kind}"))
                return
            self._sign_next(signature)
            self.close()
            self._emit(MediaArrived(self.allot(), _medium(kind, value)))
            return
        # These go back as they came, so their signatures stay inside them.
        self.close()
        if kind == "executableCode":
            self._emit(self.hosted.code(value, part))
        elif kind == "codeExecutionResult":
            self._emit(self.hosted.result(value, part))
        elif kind == "toolCall":
            self._emit(self.hosted.call(value, part))
        else:
            self._emit(self.hosted.answer(value, part))

    def _call(self, value: Raw, signature: str | None) -> None:
        further = self.calls.goes_on(value)
        if not further:
            self._sign_next(signature)
        self.close()
        for event in self.calls.take(value):
            self._emit(event)
        if further and signature is not None:
            self._seal(self.allot(), OF_PREVIOUS, signature)

    def _sign_next(self, signature: str | None) -> None:
        if signature is None:
            return
        thought = self._thought if self._thought is not None and not self._sealed else self.allot()
        self._seal(thought, OF_NEXT, signature)

    def _seal(self, part: int, form: str, signature: str) -> None:
        self._emit(ReasoningSealed(part, ReasoningState(self._origin, form, signature.encode())))

    def _unknown(self, kind: str, part: Raw) -> None:
        self.texts.skip()
        if not self._carry:
            message = f"the answer holds content of the kind {clean_kind(kind)}, which this dialect does not know"
            raise AttemptFailed(Failure(kind="provider", reason="unsupported_content", message=message))
        self.close()
        self._emit(self.hosted.unknown(kind, part))


def _medium(kind: str, value: Raw) -> Media:
    if kind == "fileData":
        file = _FILES.decode(value)
        return Media(file.mime_type, url=file.file_uri)
    blob = _BLOBS.decode(value)
    written = blob.data.replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AttemptFailed(malformed("the answer holds a medium that is no base64")) from error
    return Media(blob.mime_type, data)
