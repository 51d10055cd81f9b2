"""An assistant's turn in neutral words; what it becomes on the wire is another file's matter, one for each dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import attrs

from furcate.primitives._usage import Usage
from furcate.testing._framing import JsonObject, sealed

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

UsageChoice = Mapping[str, object] | Usage | Literal["plausible", "omitted"] | None

# The words of openai-chat are understood in every dialect, beside our own.
_NEUTRAL: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_output_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


@attrs.frozen
class StubToolCall:
    """Describe one call of a function tool that the stub's model makes.

    Attributes:
        name: the function's name.
        arguments: a mapping, sent as JSON; or a string, sent as it is (broken JSON, say). Where a dialect carries
            an object and no text, a string that is none becomes an empty one.
        id: the call's id; empty takes ``call_1``, ``call_2`` and so on by place in openai-chat, and an id of the
            dialect's own kind elsewhere.
    """

    name: str
    arguments: Mapping[str, object] | str = attrs.field(factory=dict)
    id: str = ""

    def arguments_text(self) -> str:
        """Return the arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)

    def arguments_object(self) -> JsonObject:
        """Return the arguments as an object."""
        try:
            parsed = json.loads(self.arguments_text())
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def id_for(self, request: StubRequest, place: int, prefix: str) -> str:
        """Return the given id, or one that no other call of this stub has."""
        return self.id or f"{prefix}_{request.number}_{place}"


@attrs.frozen
class StubSource:
    """Describe one page that a search found.

    Attributes:
        url: its address.
        title: its title.
        snippet: what it says, where the dialect shows that.
        page_age: how old it is, in the provider's free words.
    """

    url: str
    title: str = ""
    snippet: str = ""
    page_age: str | None = None


@attrs.frozen
class StubSearch:
    """Describe one web search that the provider runs on its own side.

    Attributes:
        query: what is searched for.
        results: what is found. openai-responses shows the addresses alone, where the request includes
            ``web_search_call.action.sources``; Google shows cited pages only.
        error: the error code of a search that failed, such as ``max_uses_exceeded``; Google has no way to say it.
    """

    query: str
    results: tuple[StubSource, ...] = attrs.field(default=(), converter=tuple[StubSource, ...])
    error: str | None = None


def _check_place(instance: StubCitation, _attribute: object, value: int | None) -> None:
    if (instance.start is None) != (value is None) or (value is not None and instance.quote is not None):
        raise ValueError("a citation has a start and an end, or a quote, or none of them")
    if value is not None and not 0 <= (instance.start or 0) < value:
        raise ValueError(f"a citation from {instance.start} to {value} covers nothing; give 0 <= start < end")


@attrs.frozen
class StubCitation:
    """Describe one citation of the text.

    Attributes:
        url: the cited page.
        title: its title.
        start: where the cited stretch of the answer begins, in code points.
        end: where it ends, exclusive.
        quote: the stretch itself instead, found at its first place in the answer. Without a place the citation
            belongs to the whole text.
        excerpt: words of the page, where the dialect carries them.
    """

    url: str
    title: str = ""
    start: int | None = attrs.field(default=None, kw_only=True)
    end: int | None = attrs.field(default=None, kw_only=True, validator=_check_place)
    quote: str | None = attrs.field(default=None, kw_only=True)
    excerpt: str = attrs.field(default="", kw_only=True)

    def span(self, text: str) -> tuple[int, int] | None:
        """Return where in the text it stands; None for the whole of it.

        Raises:
            ValueError: the text has no such stretch.
        """
        if self.quote is not None:
            start = text.find(self.quote)
            if start < 0 or not self.quote:
                raise ValueError(f"answer: the quote {self.quote!r} of a citation is not in the text {text!r}")
            return start, start + len(self.quote)
        if self.start is None or self.end is None:
            return None
        if self.end > len(text):
            raise ValueError(f"answer: a citation ends at {self.end}, but the text has {len(text)} characters")
        return self.start, self.end


@attrs.frozen(kw_only=True)
class StreamError:
    """Hold an error that takes the place of an answer's end."""

    message: str
    code: str | int | None
    kind: str


@attrs.frozen(kw_only=True)
class Completion:
    """Hold an assistant's turn; each dialect's file renders it once the request is there."""

    pieces: tuple[str, ...] = ()
    finish_reason: str | None = None
    usage: UsageChoice = "plausible"
    tool_calls: tuple[StubToolCall, ...] = ()
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_state: str | None = None
    searches: tuple[StubSearch, ...] = ()
    citations: tuple[StubCitation, ...] = ()
    pause: bool = False
    error: StreamError | None = None

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(self.pieces)

    def placed(self) -> list[tuple[StubCitation, tuple[int, int] | None]]:
        """Return the citations with their places, those of the whole text last and the others by their ends."""
        found = [(one, one.span(self.text)) for one in self.citations]
        return sorted(found, key=lambda item: (item[1] is None, item[1][1] if item[1] else 0))

    def state_for(self, request: StubRequest) -> str:
        """Return the opaque reasoning state; made up where reasoning is shown, empty where there is none."""
        if self.reasoning_state is not None:
            return self.reasoning_state
        return sealed("thought", request.number) if self.reasoning is not None else ""

    def stop(self, words: Mapping[str, str]) -> str:
        """Return the finish reason in a dialect's words; a word that is not ours goes as it is."""
        word = self.finish_reason or ("tool_use" if self.tool_calls else "end_turn")
        return words.get(_NEUTRAL.get(word, word), word)

    def counts(self, request: StubRequest) -> Usage | None:
        """Return the token counts where they are to be spelled by the dialect, a word being a token."""
        if isinstance(self.usage, Usage):
            return self.usage
        if self.usage != "plausible":
            return None
        reasoning = len((self.reasoning or "").split())
        said = [self.text, self.refusal or "", *(call.arguments_text() for call in self.tool_calls)]
        return Usage(
            input_tokens=max(1, request.words()),
            cache_read_tokens=0,
            output_tokens=max(1, reasoning + sum(len(text.split()) for text in said)),
            reasoning_tokens=reasoning,
        )


def prompt_tokens(usage: Usage) -> int | None:
    """Return the input tokens as a dialect counts them that has the cached ones among them; None where unknown."""
    if usage.input_tokens is None:
        return None
    return usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def known(counts: Mapping[str, object]) -> JsonObject:
    """Leave out what is not known, and details of which nothing is."""
    return {name: count for name, count in counts.items() if count is not None and count != {}}


def total(*counts: int | None) -> int | None:
    """Add counts up; None where one of them is not known."""
    return sum(count for count in counts if count is not None) if None not in counts else None
