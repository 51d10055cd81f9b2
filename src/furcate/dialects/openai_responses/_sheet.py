"""What the items of one ``openai-responses`` answer share: where they tell their events, and how text is compared."""

from __future__ import annotations

from attrs import define, field

from furcate.dialects._failures import malformed
from furcate.dialects._open_work import OpenWork
from furcate.primitives._content import HostedActivity, Origin, ProviderPayload
from furcate.primitives._stream import HostedTransition, Noticed, StreamEvent
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

VERSION = "1"
ITEM_FORMAT = "openai-responses.item"
REASONING_FORMAT = "openai-responses.reasoning"
UNKNOWN_FORMAT = "openai-responses.unknown"
UNKNOWN_PIECE_FORMAT = "openai-responses.unknown-piece"


def unsupported(what: str) -> AttemptFailed:
    """Make the failure of an answer that holds content which nobody decided about."""
    message = f"the answer holds {what}, which this dialect does not carry"
    return AttemptFailed(Failure(kind="provider", reason="unsupported_content", message=message))


@define
class Sheet:
    """What the items of one answer write to.

    Attributes:
        origin: goes onto reasoning state, and its provider onto payloads.
        unknown_content: what becomes of content of an unknown kind.
        open_work: what earlier answers began.
        scope: the response's id; the ids of its activities belong to it.
        events: what was told and not yet given out.
    """

    origin: Origin
    unknown_content: UnknownContent
    open_work: OpenWork
    scope: str = ""
    events: list[StreamEvent] = field(factory=list)
    _parts: int = 0
    _noticed: set[str] = field(factory=set)

    def emit(self, event: StreamEvent) -> None:
        """Tell an event."""
        self.events.append(event)

    def allot(self) -> int:
        """Give the index of a new part."""
        self._parts += 1
        return self._parts - 1

    def notice(self, kind: str) -> None:
        """Tell of something that makes no difference, once."""
        if kind not in self._noticed and len(self._noticed) < 100:
            self._noticed.add(kind)
            self.emit(Noticed(kind))

    def payload(self, written: bytes, form: str = ITEM_FORMAT, *, version: str = VERSION) -> ProviderPayload:
        """Make the payload of a native value; `version` is the recorded one where earlier work goes on."""
        return ProviderPayload(self.origin.provider, form, version, written)

    def carry(self, kind: str, written: bytes, *, id: str, position: int | None, form: str) -> None:
        """Keep content of an unknown kind, or break the answer.

        Raises:
            AttemptFailed: such content is not to be carried.
        """
        if self.unknown_content != "carry":
            raise unsupported(f"content of the kind {kind}")
        payload = self.payload(written, form)
        activity = HostedActivity(id, kind, "completed", payload=payload, position=position, scope=self.scope)
        self.emit(HostedTransition(activity))


@define
class Piece:
    """Text that comes in pieces."""

    index: int
    length: int = 0
    _pieces: list[str] = field(factory=list)

    @property
    def text(self) -> str:
        """All of the pieces, joined once for each time that some were added."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._pieces.append(text)
        self.length += len(text)

    def missing(self, whole: str, what: str) -> str:
        """Give what a repetition of all the text has beyond the pieces.

        Raises:
            AttemptFailed: the repetition is another text.
        """
        known = self.text
        if "\ufffd" in known:  # a character that was cut in two there and is whole here is no contradiction
            return ""
        if not whole.startswith(known):
            raise AttemptFailed(malformed(f"the answer tells {what} twice, and differently"))
        return whole[len(known) :]
