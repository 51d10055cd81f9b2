"""Scripted answers: what the stub provider does with one request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import attrs

from furcate.testing._completion import (
    Completion,
    StreamError,
    StubCitation,
    StubSearch,
    StubToolCall,
    UsageChoice,
)
from furcate.testing._framing import COMMENT, DONE, EVENT_STREAM, JSON, Rendered, choose_pieces, sse
from furcate.testing._render import GENERAL, HttpError, render
from furcate.testing._steps import Disconnect, Head, Send, Silence, Step, Wait

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest


class How(TypedDict, total=False):
    """How an answer is delivered; every constructor takes these as keywords.

    An event is one server-sent event of a stream (the opening chunk with the role and ``[DONE]`` count),
    one half of a whole JSON answer, or one piece given to ``raw``.

    Keys:
        headers: more response headers, by name; they win over the stub's own.
        delay_s: seconds before the head.
        delta_delay_s: seconds between two events.
        disconnect_after: close the connection abruptly after so many events.
        silence_after: say nothing more after so many events, until the client leaves.
        comments: send a keep-alive comment before each event of a stream.
        at: any step to insert after so many events, such as ``{2: Hold(event.wait)}``.
    """

    headers: Mapping[str, str]
    delay_s: float
    delta_delay_s: float
    disconnect_after: int
    silence_after: int
    comments: bool
    at: Mapping[int, Step]


class HowWithStatus(How, total=False):
    """How an answer is delivered, with another HTTP status than 200.

    Keys:
        status: the HTTP status.
    """

    status: int


class Said(HowWithStatus, total=False):
    """What an assistant's turn holds besides text, and how it is delivered.

    Keys:
        tool_calls: the calls that the assistant makes.
        refusal: the text of a refusal. anthropic-messages and google-generatecontent have no channel for it: it goes
            into the explanation of the ending.
        reasoning: shown reasoning.
        reasoning_state: the opaque state of the reasoning: a signature where reasoning is shown, the sealed or
            redacted thought alone where it is not. None makes one up beside shown reasoning, but not in openai-chat,
            where few have one; an empty text sends none.
        searches: web searches that the provider runs before it speaks.
        citations: citations of the text.
        pause: leave the last of the searches open, after the text, and end there, or with the tool calls where there
            are any. The next answer of the conversation begins with its results, taken from the search with the same
            query. For anthropic-messages only.
    """

    tool_calls: Sequence[StubToolCall]
    refusal: str | None
    reasoning: str | None
    reasoning_state: str | None
    searches: Sequence[StubSearch]
    citations: Sequence[StubCitation]
    pause: bool


# Both converters also take what they once made, so that ``attrs.evolve`` works.
def _pairs(headers: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in dict(headers).items())


def _in_order(steps: Mapping[int, Step] | tuple[tuple[int, Step], ...]) -> tuple[tuple[int, Step], ...]:
    return tuple(sorted(dict(steps).items(), key=lambda item: item[0]))


@attrs.frozen(kw_only=True)
class Answer:
    """Say what the stub does with one request.

    Make it with ``answer``, ``error``, ``raw``, ``events``, ``html_error``, ``no_head`` or ``steps``. In which
    dialect a completion or an error goes out, and whether as a stream or as one JSON body, is settled when the
    request is there.

    Attributes:
        content: a completion, an error, a fixed body, or the exact steps.
        status: the HTTP status.
        headers: response headers besides the stub's own; a name given here wins.
        delay_s: seconds before the head.
        delta_delay_s: seconds between two events.
        disconnect_after: close the connection abruptly after so many events; None for never.
        silence_after: say nothing more after so many events; None for never.
        comments: whether a keep-alive comment goes before each event of a stream.
        at: steps to insert, each with the number of events before it.
    """

    content: Completion | HttpError | Rendered | tuple[Step, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)
    delay_s: float = 0.0
    delta_delay_s: float = 0.0
    disconnect_after: int | None = None
    silence_after: int | None = None
    comments: bool = False
    at: tuple[tuple[int, Step], ...] = attrs.field(default=(), converter=_in_order)

    def steps_for(self, request: StubRequest) -> tuple[Step, ...]:
        """Work out the steps for a request.

        Raises:
            ValueError: a step is due after more events than the answer has, or the dialect of the request has no
                such answer.
        """
        before: tuple[Step, ...] = (Wait(self.delay_s),) if self.delay_s else ()
        if isinstance(self.content, tuple):
            return before + self.content
        rendered = self._rendered(self.content, request)
        inserted = self._inserted(len(rendered.events))
        steps: list[Step] = [*before, self._head(rendered)]
        for place, event in enumerate(rendered.events):
            steps += inserted.get(place, ())
            if place and self.delta_delay_s:
                steps.append(Wait(self.delta_delay_s))
            commented = self.comments and rendered.content_type == EVENT_STREAM
            steps.append(Send(COMMENT + event if commented else event))
        return (*steps, *inserted.get(len(rendered.events), ()))

    def _rendered(self, content: Completion | HttpError | Rendered, request: StubRequest) -> Rendered:
        match content:
            case Completion():
                return render(content, request)
            case HttpError():
                return content.render(request, self.status, dict(self.headers).get("retry-after"))
            case Rendered():
                return content

    def _inserted(self, events: int) -> dict[int, list[Step]]:
        due: list[tuple[int, Step]] = list(self.at)
        if self.silence_after is not None:
            due.append((self.silence_after, Silence()))
        if self.disconnect_after is not None:
            due.append((self.disconnect_after, Disconnect()))
        inserted: dict[int, list[Step]] = {}
        for place, step in due:
            if not 0 <= place <= events:
                raise ValueError(
                    f"{type(step).__name__} is due after {place} events, but this answer has {events}; "
                    f"give a number from 0 to {events}"
                )
            inserted.setdefault(place, []).append(step)
        return inserted

    def _head(self, rendered: Rendered) -> Head:
        framing = (
            ("content-length", str(sum(map(len, rendered.events))))
            if rendered.sized
            else ("transfer-encoding", "chunked")
        )
        return Head(self.status, tuple(dict((("content-type", rendered.content_type), framing, *self.headers)).items()))


def answer(
    text: str = "",
    *,
    deltas: Sequence[str] | None = None,
    finish_reason: str | None = None,
    usage: UsageChoice = "plausible",
    **said: Unpack[Said],
) -> Answer:
    """Answer with an assistant's turn, in the dialect of the request, as a stream or as JSON, whichever it asks for.

    Arguments:
        text: what the assistant says.
        deltas: the pieces in which a stream carries the text; the text alone is cut into a few at spaces.
        finish_reason: a stop reason of ours, such as ``max_output_tokens``, or a word of openai-chat, such as
            ``length``, both of which every dialect spells in its way; any other word goes as it is. By default what
            fits the turn.
        usage: token counts, spelled by each dialect, those that are None left out; or a mapping that goes as it is,
            whatever the dialect; None sends null, ``"omitted"`` leaves it out, ``"plausible"`` counts a word as a
            token. A stream of openai-chat carries it only where ``stream_options`` asks for it.
        said: what else the turn holds, and its delivery, see ``Said`` and ``How``.

    Raises:
        ValueError: text and deltas were both given and differ, a citation is not of the text, or a pause has no
            search to stand in.
    """
    pieces = choose_pieces(text, deltas)
    completion = Completion(
        pieces=pieces,
        finish_reason=finish_reason,
        usage=usage,
        tool_calls=tuple(said.pop("tool_calls", ())),
        refusal=said.pop("refusal", None),
        reasoning=said.pop("reasoning", None),
        reasoning_state=said.pop("reasoning_state", None),
        searches=tuple(said.pop("searches", ())),
        citations=tuple(said.pop("citations", ())),
        pause=said.pop("pause", False),
    )
    if completion.placed() and not completion.text:
        raise ValueError("answer: there is no text to cite for; give a text, or leave out the citations")
    if completion.pause and not completion.searches:
        raise ValueError("answer: pause=True ends inside a search; give searches=(StubSearch(...),) as well")
    # What the turn does not hold is its delivery.
    return Answer(content=completion, **cast("HowWithStatus", said))


def error_in_stream(
    text: str, message: str, *, code: str | int | None = None, kind: str = "server_error", **how: Unpack[How]
) -> Answer:
    """Begin a turn with status 200 and break off with an error in place of its end, in the form of the dialect.

    openai-chat sends an error object, openai-responses an ``error`` event and ``response.failed``,
    anthropic-messages an ``error`` event, google-generatecontent a bare JSON error. A request that asks for whole
    JSON gets the error alone (a failed response in openai-responses), still with status 200.

    Arguments:
        text: what arrives before the error; may be empty.
        message: the error's message.
        code: the error's code, a string or a number; Google's numbers are HTTP statuses.
        kind: the error's ``type``, such as ``overloaded_error`` for anthropic-messages; upper case is Google's
            ``status``.
        how: delivery, see ``How``.
    """
    broken = StreamError(message=message, code=code, kind=kind)
    pieces = choose_pieces(text, None)
    return Answer(content=Completion(pieces=pieces, usage=None, error=broken), **how)


def error(
    status: int,
    message: str = "the stub was told to fail",
    *,
    code: str | int | None = None,
    kind: str = GENERAL,
    body: Mapping[str, object] | str | bytes | None = None,
    **how: Unpack[How],
) -> Answer:
    """Answer with an HTTP error, its object in the form of the request's dialect.

    Arguments:
        status: the HTTP status, such as 429; give ``headers={"retry-after": "1"}`` for a wait hint in seconds, which
            Google repeats in its object.
        message: the message of the error object.
        code: the error object's code; Google gives it as a reason among the details, anthropic-messages has none.
        kind: the error object's ``type``; by default one that fits the status where the dialect has such.
        body: another body in place of the error object; a mapping is sent as JSON.
        how: delivery, see ``How``.
    """
    if body is None:
        return Answer(content=HttpError(message=message, code=code, kind=kind), status=status, **how)
    if isinstance(body, Mapping):
        body = json.dumps(body)
    return raw(body, status=status, **how)


def html_error(status: int = 502, title: str = "Bad Gateway", **how: Unpack[How]) -> Answer:
    """Answer with an error page, as a proxy in between does.

    Arguments:
        status: the HTTP status; proxies send such pages even with 200.
        title: the page's heading.
        how: delivery, see ``How``.
    """
    page = f"<html>\n<head><title>{title}</title></head>\n<body><h1>{status} {title}</h1></body>\n</html>\n"
    return raw(page, status=status, content_type="text/html; charset=utf-8", **how)


def raw(*pieces: bytes | str, status: int = 200, content_type: str = JSON, **how: Unpack[How]) -> Answer:
    """Answer with these bytes, whatever was asked; their joint length is announced.

    Arguments:
        pieces: the body; each piece counts as an event and is sent by itself.
        status: the HTTP status.
        content_type: the media type.
        how: delivery, see ``How``.
    """
    encoded = tuple(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    return Answer(content=Rendered(content_type, encoded, sized=True), status=status, **how)


def events(*chunks: Mapping[str, object] | str | bytes, done: bool = True, **how: Unpack[How]) -> Answer:
    """Answer with a stream of these events, whatever was asked.

    Arguments:
        chunks: a mapping is sent as JSON, a string as the event's data, bytes as they are, framing included.
        done: whether ``[DONE]`` ends the stream.
        how: delivery, see ``How``.
    """
    framed = tuple(sse(chunk) for chunk in chunks) + ((DONE,) if done else ())
    return Answer(content=Rendered(EVENT_STREAM, framed, sized=False), **how)


def no_head(*, silent: bool = False, delay_s: float = 0.0) -> Answer:
    """Read the request and send no byte back.

    Arguments:
        silent: keep the connection open until the client leaves, instead of closing it.
        delay_s: seconds before the connection is closed.
    """
    return Answer(content=(Silence() if silent else Disconnect(),), delay_s=delay_s)


def steps(*exact: Step) -> Answer:
    """Answer by exactly these steps, beginning with a ``Head`` unless no byte is to be sent.

    Arguments:
        exact: the steps in their order; after the last one the response is complete.
    """
    return Answer(content=exact)
