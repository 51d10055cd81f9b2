"""One answer of ``google-generatecontent``, chunk by chunk; a whole answer is one chunk."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, error_in, malformed, read_plain, stream_failure
from furcate.dialects._open_work import OpenWork
from furcate.dialects.google_generatecontent._account import breakdown, read_ending, read_usage, refused
from furcate.dialects.google_generatecontent._citations import CitationBook
from furcate.dialects.google_generatecontent._hosted import GROUNDING, VERSION
from furcate.dialects.google_generatecontent._parts import PartBook
from furcate.dialects.google_generatecontent._wire import (
    Members,
    clean_kind,
    given,
    mended,
    read_list,
    read_members,
    read_text,
    rewritten,
)
from furcate.primitives._content import Origin, ProviderPayload
from furcate.primitives._json import Plain
from furcate.primitives._stream import (
    Noticed,
    PartPayload,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    UsageReported,
)
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

# What changes nothing for anybody, or is looked at elsewhere.
_CHUNK = frozenset(
    {
        "candidates",
        "promptFeedback",
        "usageMetadata",
        "modelVersion",
        "responseId",
        "createTime",
        "modelStatus",
        "error",
    }
)
_CANDIDATE = frozenset(
    {
        "content",
        "finishReason",
        "finishMessage",
        "index",
        "safetyRatings",
        "tokenCount",
        "avgLogprobs",
        "logprobsResult",
        "citationMetadata",
        "groundingMetadata",
        "groundingAttributions",
        "urlContextMetadata",
    }
)
_NO_GROUNDING = frozenset({"googleMapsWidgetContextToken", "retrievalMetadata", "sourceFlaggingUris"})
_GROUNDING = _NO_GROUNDING | {
    "groundingChunks",
    "groundingSupports",
    "webSearchQueries",
    "imageSearchQueries",
    "retrievalQueries",
    "searchEntryPoint",
}


class GoogleAnswer:
    """Turn the chunks of one answer into stream events.

    Attributes:
        done: whether the answer has ended, well or badly.
        taken: how many chunks were taken.
    """

    def __init__(self, origin: Origin, unknown_content: UnknownContent, open_work: OpenWork) -> None:
        self.done = False
        self.taken = 0
        self._origin = origin
        self._out: list[StreamEvent] = []
        self._parts = PartBook(origin, unknown_content, self._emit, open_work=open_work)
        self._citations = CitationBook(self._parts.texts)
        self._started = False
        self._answered = False
        self._finish: str | None = None
        self._blocked: str | None = None
        self._explained: str | None = None
        self._last_usage = b""
        self._noticed: set[str] = set()

    @property
    def ending(self) -> bool:
        """Whether a chunk said why the answer ends; further chunks may follow it."""
        return self._finish is not None or self._blocked is not None

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take a chunk."""
        self._out = []
        if self.done:
            return self._out
        self.taken += 1
        data = mended(data)
        try:
            self._read(read_members(data))
        except AttemptFailed as failed:
            self._fail(failed.failure)
        except UNREADABLE:
            error = error_in(read_plain(data))
            told = malformed(f"chunk {self.taken} of the answer is not of the shape of this dialect")
            self._fail(stream_failure(error) if error else told)
        return self._out

    def end(self, *, marked: bool = False, whole: bool = False) -> list[StreamEvent]:
        """Take the end of the answer.

        Args:
            marked: a gateway's mark said so, and not Google; it counts only once the answer said why it ends.
            whole: it came in one piece, so that nothing can be missing.
        """
        self._out = []
        if self.done or (marked and not self.ending):
            return self._out
        if self.ending or (whole and self._answered):
            self._conclude()
        elif whole:
            self._fail(malformed("the server's answer has no candidates and does not say why"))
        else:
            message = "the answer broke off: the connection ended before the model said why it stopped"
            self._fail(Failure(kind="provider", reason="cut_off", message=message))
        return self._out

    def stop_short(self, failure: Failure) -> list[StreamEvent]:
        """End the answer with a failure."""
        self._out = []
        self._fail(failure)
        return self._out

    def _emit(self, event: StreamEvent) -> None:
        if not isinstance(event, Noticed):
            self._out.append(event)
        elif event.kind not in self._noticed and len(self._noticed) < 100:
            self._noticed.add(event.kind)
            self._out.append(event)

    def _fail(self, failure: Failure) -> None:
        if self.done:
            return
        self.done = True
        self._out.extend(self._citations.rest())  # what was cited so far belongs to the text so far
        self._out.append(StreamFailed(failure))

    def _conclude(self) -> None:
        finish, called = self._finish or "", self._parts.calls.count > 0
        failure = breakdown(finish)
        if failure is None and self._parts.calls.open and read_ending(finish, called=False)[0] == "end_turn":
            message = "the answer ended inside a function call"
            failure = Failure(kind="provider", reason="unfinished_call", message=message)
        if failure is not None:
            self._fail(failure)
            return
        self.done = True
        self._out.extend(self._parts.calls.cut())
        spare = self._parts.allot() if self._citations.waiting and self._parts.texts.last is None else None
        self._out.extend(self._citations.rest(spare))
        self._parts.close()
        if self._blocked is not None:
            self._out.append(Stopped("refusal", self._blocked))
        else:
            reason, detail = read_ending(finish, called=called)
            self._out.append(Stopped(reason, refused(finish, self._explained) if reason == "refusal" else detail))

    def _read(self, chunk: Members) -> None:
        if given(chunk.get("error")):
            error: Plain = {"error": read_plain(chunk["error"])}
            self._fail(stream_failure(error))
            return
        self._start(read_text(chunk.get("responseId")), read_text(chunk.get("modelVersion")))
        for raw in read_list(chunk["candidates"]) if "candidates" in chunk else ():
            candidate = read_members(raw)
            index = read_plain(candidate.get("index"))
            if index in (None, 0):
                self._answered = True
                self._read_candidate(candidate)
            else:
                self._emit(Noticed(f"candidates.{clean_kind(str(index))}"))
        if given(chunk.get("promptFeedback")):
            self._read_feedback(read_members(chunk["promptFeedback"]))
        if given(chunk.get("usageMetadata")):
            self._read_usage(chunk["usageMetadata"])
        self._tell_unknown("chunk", chunk, _CHUNK)

    def _start(self, response_id: str | None, model: str | None) -> None:
        if not self._started and (response_id or model):
            self._started = True
            self._parts.begin(response_id or "")
            self._out.append(ResponseStarted(response_id or None, model or None))

    def _read_candidate(self, candidate: Members) -> None:
        if given(candidate.get("content")):
            content = read_members(candidate["content"])
            for raw in read_list(content["parts"]) if "parts" in content else ():
                self._parts.take(raw)
            self._tell_unknown("content", content, frozenset({"parts", "role"}))
        self._beside(candidate, "urlContextMetadata", self._read_fetched)
        self._beside(candidate, "groundingMetadata", self._read_grounding)
        self._beside(candidate, "citationMetadata", self._read_recited)
        self._out.extend(self._citations.ready())
        finish = read_text(candidate.get("finishReason"))
        # Some servers say STOP with every chunk; what the last one says counts.
        if finish and finish != "FINISH_REASON_UNSPECIFIED":
            self._finish = finish
            self._explained = read_text(candidate.get("finishMessage")) or self._explained
        self._tell_unknown("candidate", candidate, _CANDIDATE)

    def _beside(self, candidate: Members, key: str, read: Callable[[Members, Raw], None]) -> None:
        raw = candidate.get(key)
        if raw is None or not given(raw):
            return
        try:
            read(read_members(raw), raw)
        except UNREADABLE:
            # Sources of an odd shape are a loss that can be told of; they are not worth the answer.
            self._emit(Noticed(f"{key}.unreadable"))

    def _read_fetched(self, members: Members, _raw: Raw) -> None:
        if "urlMetadata" in members:
            self._out.extend(self._parts.hosted.fetched(members["urlMetadata"]))
        self._tell_unknown("urlContextMetadata", members, frozenset({"urlMetadata"}))

    def _read_grounding(self, members: Members, raw: Raw) -> None:
        told = self._parts.hosted.grounding(members, raw)
        self._out.extend(told)
        text = self._parts.texts.last
        if not told and "searchEntryPoint" in members and text is not None:
            # The search was told of as a part already; what has to be shown with its results stays with the text.
            payload = ProviderPayload(self._origin.provider, GROUNDING, VERSION, rewritten(raw))
            self._out.append(PartPayload(text, payload))
        for kind in self._citations.ground(members):
            self._emit(Noticed(kind))
        self._tell_unknown("groundingMetadata", members, _GROUNDING)

    def _read_recited(self, members: Members, _raw: Raw) -> None:
        self._citations.recite(members)
        self._tell_unknown("citationMetadata", members, frozenset({"citationSources", "citations"}))

    def _read_feedback(self, feedback: Members) -> None:
        reason = read_text(feedback.get("blockReason"))
        if reason and reason != "BLOCK_REASON_UNSPECIFIED":
            self._blocked = refused(reason, read_text(feedback.get("blockReasonMessage")))

    def _read_usage(self, raw: Raw) -> None:
        written = bytes(raw)
        if written == self._last_usage:
            return
        self._last_usage = written
        usage, readable = read_usage(raw)
        if usage is not None:
            self._out.append(UsageReported(usage))
        elif not readable:
            self._emit(Noticed("usageMetadata.unreadable"))

    def _tell_unknown(self, where: str, members: Members, known: frozenset[str]) -> None:
        if not members.keys() <= known:
            for key in members:
                if key not in known and given(members[key]):
                    self._emit(Noticed(f"{where}.{clean_kind(key)}"))


def is_answer(chunk: Members) -> bool:
    """Tell whether an object is an answer of this dialect, by what every answer has one of."""
    return any(given(chunk.get(key)) for key in ("candidates", "promptFeedback", "usageMetadata", "error"))


def read_chunks(body: bytes) -> list[Raw]:
    """Read a body that is one chunk, or a list of chunks, as a stream without server-sent events is.

    Raises:
        msgspec.DecodeError: it is neither.
        RecursionError: the JSON is nested without reason.
    """
    body = mended(body)
    if body.lstrip().startswith(b"["):
        return msgspec.json.decode(body, type=list[Raw])
    read_members(body)
    return [Raw(body)]
