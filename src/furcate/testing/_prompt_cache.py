"""A model of a provider's prompt cache, put in front of a stub's script."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import anyio
import attrs
from anyio.lowlevel import checkpoint

from furcate.primitives._usage import Usage
from furcate.testing._answer import Answer
from furcate.testing._completion import Completion
from furcate.testing._steps import Hold, Step

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_MARKED = "anthropic-messages"
_MOST_MARKS = 4
_LOOK_BACK = 20
_INSTRUCTIONS = ("system", "instructions", "systemInstruction")
_CONVERSATION = ("messages", "input", "contents")


@attrs.frozen
class _Piece:
    """A tool, an instruction, or a block or message of a conversation."""

    digest: bytes
    tokens: int
    marked: bool


@attrs.frozen
class _Prefix:
    """A beginning of a request: all pieces up to one of them.

    Attributes:
        kept: whether it is put into the cache.
        sought: whether it is looked for there.
    """

    digest: bytes
    tokens: int
    kept: bool
    sought: bool


class PromptCache:
    """Cache the beginnings of requests as providers do, and report it in the usage of the answers.

    ::

        cache = PromptCache(min_tokens=1024)
        async with StubProvider(cache.before(answer("Hello."))) as stub:
            ...
        assert cache.tokens_read < cache.tokens_asked

    A beginning is available from when the answer to the first request with it begins to arrive, so requests that come
    together each read all of it. The longest known one counts; each use prolongs its life. In anthropic-messages only
    what stands up to a ``cache_control`` is kept, it is found again up to twenty blocks in front of another, and
    writing it is reported; in the other dialects every beginning is kept that ends with a message. A word is a token,
    as elsewhere in the stub, whether it stands in a message, in the instructions or in a tool's declaration. Counts
    that a script gives in numbers stay as they are.

    Arguments:
        min_tokens: no shorter beginning is kept, in tokens.
        expiry_s: how long one is kept after its last use, in seconds.
        read_tokens_per_s: how fast input is read that is in no cache; the answer begins so much later. None takes no
            time.

    Attributes:
        requests: how many requests were answered with a turn.
        tokens_asked: input tokens of all of them.
        tokens_read: how many of those had to be read, since they were in no cache.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, *, min_tokens: int = 1024, expiry_s: float = 300.0, read_tokens_per_s: float | None = None
    ) -> None:
        if min_tokens < 1 or expiry_s <= 0 or (read_tokens_per_s is not None and read_tokens_per_s <= 0):
            raise ValueError("PromptCache: min_tokens, expiry_s and read_tokens_per_s are greater than zero")
        self._min_tokens = min_tokens
        self._expiry_s = expiry_s
        self._read_tokens_per_s = read_tokens_per_s
        self._used_s: dict[bytes, float] = {}
        self.requests = 0
        self.tokens_asked = 0
        self.tokens_read = 0

    @property
    def tokens_cached(self) -> int:
        """How many input tokens were found in the cache."""
        return self.tokens_asked - self.tokens_read

    def before(self, script: Answer | Callable[[StubRequest], Answer]) -> Callable[[StubRequest], Answer]:
        """Give a script that answers as `script` does, through the cache.

        Arguments:
            script: an answer to every request, or a plain callable that gives one. Errors, and bodies that are given
                byte by byte, pass as they are and are no reading.
        """

        def answer_through(request: StubRequest) -> Answer:
            chosen = script if isinstance(script, Answer) else script(request)
            return self._through(chosen, request) if isinstance(chosen.content, Completion) else chosen

        return answer_through

    def _through(self, chosen: Answer, request: StubRequest) -> Answer:
        assert isinstance(chosen.content, Completion)
        prefixes = tuple(_prefixes(request))
        total = prefixes[-1].tokens if prefixes else 0
        kept = [one for one in prefixes if one.kept and one.tokens >= self._min_tokens]
        now_s = anyio.current_time()
        found = next((one for one in reversed(prefixes) if one.sought and self._knows(one, now_s)), None)
        cached = found.tokens if found is not None else 0
        if found is not None:
            self._used_s[found.digest] = now_s
        written = None if request.dialect != _MARKED else max(0, kept[-1].tokens - cached) if kept else 0
        self.requests += 1
        self.tokens_asked += total
        self.tokens_read += total - cached

        async def available() -> None:
            begun_s = anyio.current_time()
            self._used_s.update((one.digest, begun_s) for one in kept)
            await checkpoint()

        took_s = 0.0 if self._read_tokens_per_s is None else (total - cached) / self._read_tokens_per_s
        return attrs.evolve(
            chosen,
            content=_counted(chosen.content, request, cached=cached, written=written, tokens=total),
            delay_s=chosen.delay_s + took_s,
            at=_before_first(chosen.at, available),
        )

    def _knows(self, prefix: _Prefix, now_s: float) -> bool:
        used_s = self._used_s.get(prefix.digest)
        return used_s is not None and now_s - used_s <= self._expiry_s


def _before_first(steps: tuple[tuple[int, Step], ...], tell: Callable[[], Awaitable[None]]) -> Mapping[int, Step]:
    """Tell of the answer's beginning right before its first event, after whatever step is there already."""
    at = dict(steps)
    there = at.get(0)
    if there is None:
        at[0] = Hold(tell)
    elif isinstance(there, Hold):
        at[0] = Hold(partial(_both, there.wait, tell))
    # Any other step there ends the answer before it begins, or makes no HTTP of it.
    return at


async def _both(first: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]]) -> None:
    await first()
    await then()


def _counted(
    completion: Completion, request: StubRequest, *, cached: int, written: int | None, tokens: int
) -> Completion:
    if completion.usage != "plausible":
        return completion
    counts = completion.counts(request) or Usage()
    plain = max(0, tokens - cached - (written or 0))
    usage = attrs.evolve(counts, input_tokens=plain, cache_read_tokens=cached, cache_write_tokens=written)
    return attrs.evolve(completion, usage=usage)


def _prefixes(request: StubRequest) -> Iterator[_Prefix]:
    """Give the beginnings of a request, shortest first."""
    pieces = tuple(_pieces(request))
    marks = [place for place, piece in enumerate(pieces) if piece.marked][-_MOST_MARKS:]
    digest = hashlib.sha256(repr((request.dialect, request.model)).encode()).digest()
    tokens = 0
    for place, piece in enumerate(pieces):
        digest = hashlib.sha256(digest + piece.digest).digest()
        tokens += piece.tokens
        if request.dialect == _MARKED:
            sought = any(0 <= mark - place < _LOOK_BACK for mark in marks)
            yield _Prefix(digest, tokens, kept=place in marks, sought=sought)
        else:
            yield _Prefix(digest, tokens, kept=True, sought=True)


def _pieces(request: StubRequest) -> Iterator[_Piece]:
    body: Mapping[str, object] = request.body if isinstance(request.body, dict) else {}
    yield from map(_piece, _listed(body.get("tools")))
    for name in _INSTRUCTIONS:
        yield from map(_piece, _listed(body.get(name)))
    for name in _CONVERSATION:
        for message in _listed(body.get(name)):
            yield from _message(message)


def _message(message: object) -> Iterator[_Piece]:
    """Give a message whole, or block by block where a dialect marks blocks; a text alone is a block too."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or content is None:
        yield _piece(message)
        return
    beside = {name: value for name, value in message.items() if name != "content"}
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _listed(content)
    for block in blocks:
        yield _piece({**beside, "content": block})


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _piece(value: object) -> _Piece:
    bare, marked = _unmarked(value)
    written = json.dumps(bare, sort_keys=True, ensure_ascii=False)
    return _Piece(hashlib.sha256(written.encode("utf-8", "surrogatepass")).digest(), _words(bare), marked)


def _unmarked(value: object) -> tuple[object, bool]:
    """Take the cache marks out, which are no part of what is cached; tell whether there was one."""
    if isinstance(value, list):
        pairs = [_unmarked(item) for item in value]
        return [bare for bare, _ in pairs], any(marked for _, marked in pairs)
    if not isinstance(value, dict):
        return value, False
    found = {name: _unmarked(member) for name, member in value.items() if name != "cache_control"}
    bare = {name: member for name, (member, _) in found.items()}
    return bare, "cache_control" in value or any(marked for _, marked in found.values())


def _words(value: object, name: str = "text") -> int:
    if isinstance(value, str):
        # Kinds, roles and ids are no words of the conversation.
        return len(value.split()) if name in ("text", "content", "description", "arguments", "output") else 0
    if isinstance(value, list):
        return sum(_words(item, name) for item in value)
    return sum(_words(member, key) for key, member in value.items()) if isinstance(value, dict) else 0
