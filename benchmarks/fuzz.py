"""Look for bytes that the event parser or a decoder does not survive, by a fuzzer that watches which lines it reaches.

    pip install atheris
    python benchmarks/fuzz.py openai-chat /tmp/found tests/data/openai-chat -max_total_time=600 -timeout=10

The first word is one of the targets: ``sse``, or the name of a dialect. What follows goes to libFuzzer as it is: the
folder in which it keeps inputs that reached something new, folders to begin with, and its options; ``-help=1`` lists
them. Other recorded bodies make good beginnings too. An input that breaks a promise is written to a file named
``crash-...``, one that takes too long or too much memory to ``timeout-...`` or ``oom-...``; give that file in place of
the folders to see the traceback again.

Promised of any bytes whatever:

- the parser gives the same events, and a decoder the same answer, however the bytes were cut
- a decoder gives events of which exactly the last one is an ending, or a typed failure, and raises nothing else
- what it gives becomes a message, whole or partial, and a message can be sent back or is refused by a typed error
- an answer in one piece says the same as the same answer in a stream, where both are complete
- an error response has a typed failure, on one line and bounded

Everything but the fuzzer itself works without atheris, which is how the tests use it.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["furcate"]) if atheris is not None else nullcontext():
    from furcate.dialects import Assembler, Dialect, dialect_named
    from furcate.dialects._sse import SseEvent, SseParser
    from furcate.primitives._content import Origin
    from furcate.primitives._errors import RequestError
    from furcate.primitives._history import History
    from furcate.primitives._json import TooDeep
    from furcate.primitives._message import Message
    from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
    from furcate.primitives._wire import AttemptFailed, ModelCall, ResponseHead, UnknownContent

# The engine makes one typed failure of both.
_TOO_DEEP = (TooDeep, RecursionError)
_MOST_MESSAGE = 600
_SMALL = 600


class BrokenPromise(AssertionError):
    """Raised when an input shows that a promise does not hold."""


def _promise(held: object, what: str) -> None:
    if not held:
        raise BrokenPromise(what)


# --- what must hold


def look_at_events(body: bytes) -> None:
    """Parse bytes as server-sent events, in one piece, in some pieces, byte by byte, and with little room.

    Raises:
        BrokenPromise: how the bytes were cut made a difference, or more was kept than the limit allows.
    """
    dice = random.Random(zlib.crc32(body))
    at_once = _parsed(body, (0, len(body)))
    _promise(at_once == _parsed(body, _places(dice, len(body))), "cut into some pieces, the events are others")
    if len(body) <= _SMALL:
        _promise(at_once == _parsed(body, range(len(body) + 1)), "byte by byte, the events are others")
    most = dice.randrange(1, 60)
    narrow = SseParser(most)
    for start, end in pairwise(_places(dice, len(body))):
        was_over = narrow.overflowed
        found = narrow.feed(body[start:end])
        _promise(not (was_over and found), "events come after the limit was exceeded")
        _promise(all(len(event.data) <= most for event in found), "an event is larger than the limit")
    _promise(not narrow.overflowed or narrow.close() is None, "an event comes after the limit was exceeded")
    _promise(len(narrow.stray) <= most + len(body), "the lines that are no field are kept without a limit")


def look_at_answer(name: str, body: bytes) -> None:
    """Decode bytes in every way in which a dialect can be given them.

    Raises:
        BrokenPromise: one of the promises to a decoder's callers does not hold.
    """
    dice = random.Random(zlib.crc32(body))
    dialect = dialect_named(name)
    unknown: UnknownContent = "fail" if dice.random() < 0.5 else "carry"
    at_once = streamed(dialect, body, (0, len(body)), unknown)
    cut = streamed(dialect, body, _places(dice, len(body)), unknown)
    _promise(at_once == cut, f"cut into some pieces, the answer is another:\n{at_once}\n{cut}")
    if len(body) <= _SMALL:
        _promise(at_once == streamed(dialect, body, range(len(body) + 1), unknown), "byte by byte, it is another")
    look_at_ending(dialect, at_once)
    whole = in_one_piece(dialect, body, unknown)
    look_at_ending(dialect, whole)
    _promise(_same(at_once, whole), f"the same bytes streamed and whole differ:\n{at_once}\n{whole}")
    for made in _twins(name, body):
        streaming = streamed(dialect, made[1], (0, len(made[1])), unknown)
        whole = in_one_piece(dialect, made[0], unknown)
        look_at_ending(dialect, streaming)
        _promise(_same(streaming, whole), f"the same answer streamed and whole differ:\n{streaming}\n{whole}")
    status = dice.choice((400, 401, 404, 408, 409, 413, 429, 500, 502, 503, 529, 302))
    failure = dialect.decode_error(ResponseHead(status, (("content-type", "application/json"),)), body)
    _promise(len(failure.message) <= _MOST_MESSAGE and "\n" not in failure.message, "an error's message is too long")


def streamed(dialect: Dialect, body: bytes, places: Sequence[int], unknown: UnknownContent) -> list[StreamEvent] | None:
    """Decode a stream that was cut at these places; None where it nests too deep."""
    decoder = dialect.decoder(Origin("p", dialect.name, "m"), unknown)
    events: list[StreamEvent] = []
    try:
        for start, end in pairwise(places):
            events += decoder.feed(body[start:end])
        events += decoder.finish()
    except AttemptFailed as error:
        events.append(StreamFailed(error.failure))
    except _TOO_DEEP:
        return None
    return events


def in_one_piece(dialect: Dialect, body: bytes, unknown: UnknownContent) -> list[StreamEvent] | None:
    """Decode an answer that came in one piece; None where it nests too deep."""
    try:
        return dialect.decode_whole(body, Origin("p", dialect.name, "m"), unknown)
    except AttemptFailed as error:
        return [StreamFailed(error.failure)]
    except _TOO_DEEP:
        return None


def look_at_ending(dialect: Dialect, events: list[StreamEvent] | None) -> None:
    """Look for the one ending, and make of the events what an engine makes of them.

    Raises:
        BrokenPromise: there is no ending, or another one, or something behind it.
    """
    if events is None:
        return
    ends = [event for event in events if isinstance(event, Stopped | StreamFailed)]
    _promise(len(ends) == 1 and ends[0] is events[-1], f"not exactly one ending, at the end: {events}")
    assembler = Assembler()
    try:
        for event in events:
            assembler.add(event)
    except AttemptFailed:
        assembler.partial()
        return
    assembler.partial()
    with suppress(RequestError, *_TOO_DEEP):
        history = History([Message.user("a"), assembler.message(), Message.user("b")])
        b"".join(dialect.encode(ModelCall(model="m", history=history)).body).decode()


def _same(one: list[StreamEvent] | None, other: list[StreamEvent] | None) -> bool:
    """Tell whether two answers say the same, where both are complete."""
    if not one or not other or not isinstance(one[-1], Stopped) or not isinstance(other[-1], Stopped):
        return True
    first, second = _assembled(one), _assembled(other)
    return (first.message(), first.stop, first.usage) == (second.message(), second.stop, second.usage)


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _parsed(body: bytes, places: Sequence[int]) -> tuple[list[SseEvent], SseEvent | None, bytes]:
    parser = SseParser()
    found = [event for start, end in pairwise(places) for event in parser.feed(body[start:end])]
    return found, parser.close(), parser.stray


def _places(dice: random.Random, size: int) -> list[int]:
    return sorted({0, size, *(dice.randint(0, size) for _ in range(dice.randrange(1, 12)))})


# --- the same answer in one piece and in a stream


def _twins(name: str, body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give an answer in one piece, on one line, and a stream that says the same, where the body is such an answer."""
    value = _read(body)
    if not isinstance(value, dict):
        return
    whole = _written(value)
    if name == "google-generatecontent":
        yield whole, b"data: " + whole + b"\n\n"
    elif name == "openai-chat":
        yield whole, b"data: " + whole + b"\n\ndata: [DONE]\n\n"
    elif name == "openai-responses" and value.get("status") in ("completed", "incomplete"):
        yield whole, _sse({"type": f"response.{value['status']}", "response": value})
    elif name == "anthropic-messages" and isinstance(value.get("content"), list) and value.get("stop_reason"):
        yield whole, b"".join(_as_messages(value))


def _as_messages(value: dict[str, Any]) -> Iterator[bytes]:
    began = {**value, "content": [], "stop_reason": None, "stop_sequence": None}
    ended = {key: value[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in value}
    yield _sse({"type": "message_start", "message": began})
    for index, block in enumerate(value["content"]):
        yield _sse({"type": "content_block_start", "index": index, "content_block": block})
        yield _sse({"type": "content_block_stop", "index": index})
    yield _sse({"type": "message_delta", "delta": ended, "usage": value.get("usage") or {}})
    yield _sse({"type": "message_stop"})


def _sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: ".encode() + _written(event) + b"\n\n"


def _written(value: object) -> bytes:
    return json.dumps(value).encode()


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- changes that keep JSON what it is, so that more than its reader is tried

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -1e308, 2**31, 2**63, 2**64, -(2**63), 10**30),
    *("", "x", "\ud800", "\U0001f600", "\u2028", "\0", "null", "{}", "[", '"', "data: x", "a\nb", "error", "1"),
    *([], {}, [None], [[]], [{}], ["x", "y"], [3], {"": None}, {"a": []}, {"type": "x"}, {"error": {"message": "m"}}),
)


def mutate(body: bytes, seed: int) -> bytes:
    """Change a body here or there: values within its JSON, the order of its events, its framing, or a byte."""
    dice = random.Random(seed)
    for _ in range(dice.randrange(1, 4)):
        body = _mutated(body, dice)
    return body


def _mutated(body: bytes, dice: random.Random) -> bytes:
    value = _read(body)
    if isinstance(value, dict | list):
        return _written(_with_a_change(value, dice)) if dice.random() < 0.9 else b"data: " + _written(value) + b"\n\n"
    events = body.replace(b"\r\n", b"\n").split(b"\n\n")
    place = dice.randrange(len(events))
    match dice.randrange(8):
        case 0:
            events.insert(dice.randrange(len(events) + 1), events[place])
        case 1:
            del events[place]
        case 2:
            other = dice.randrange(len(events))
            events[place], events[other] = events[other], events[place]
        case 3 if body:
            at = dice.randrange(len(body))
            return body[:at] + dice.choice((b"", b"\r", b"\n", b"\0", b"\xff", b'"', b"[DONE]", b"}")) + body[at + 1 :]
        case _:
            head, mark, told = events[place].partition(b"data:")
            value = _read(told)
            if isinstance(value, dict | list):
                events[place] = head + mark + _written(_with_a_change(value, dice))
    return dice.choice((b"\n\n", b"\n\n", b"\r\n\r\n")).join(events)


def _with_a_change(value: Any, dice: random.Random) -> Any:
    """Change one value somewhere in a document, by one of our own or by another of the same document."""
    root = {"": value}
    places = list(_all_places(root))
    holder, key = dice.choice(places)
    far, name = dice.choice(places)
    old = holder[key]
    match dice.randrange(9):
        case 0 if holder is not root:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(far[name]))
        case 2 if isinstance(holder, dict) and isinstance(name, str):
            holder[name] = copy.deepcopy(old)
        case 3 | 4:
            holder[key] = copy.deepcopy(far[name])
        case 5 if isinstance(old, str):
            at = dice.randrange(len(old) + 1)
            holder[key] = old[:at] + dice.choice(("", "\ud800", "\0", '"', "{", "\U0001f600", old)) + old[at + 1 :]
        case 5 if isinstance(old, int):
            holder[key] = old + dice.choice((-1, 1, 1000))
        case 6:
            holder[key] = [old]
        case _:
            holder[key] = copy.deepcopy(dice.choice(_VALUES))
    return root.get("")


def _all_places(holder: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _all_places(holder[key])


# --- the fuzzer


TARGETS: dict[str, Callable[[bytes], None]] = {"sse": look_at_events}
"""What is looked at, by name."""


def _looking_at(name: str) -> Callable[[bytes], None]:
    return lambda body: look_at_answer(name, body)


for _name in ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent"):
    TARGETS[_name] = _looking_at(_name)


def main(arguments: list[str]) -> int:
    """Fuzz one target until libFuzzer's options or a finding end it; give 2 where there is nothing to do."""
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        print(f"fuzz: name what to look at, one of {', '.join(TARGETS)}", file=sys.stderr)  # noqa: T201
        return 2
    if atheris is None:
        print("fuzz: atheris is not installed; pip install atheris (Linux or macOS)", file=sys.stderr)  # noqa: T201
        return 2
    target = TARGETS[arguments[1]]

    def change(body: bytes, most: int, seed: int) -> bytes:
        # Bytes have their turn as well, so that the reading of JSON and of events is not left out.
        if seed % 4 == 0 or (target is look_at_events and seed % 8):
            return bytes(atheris.Mutate(body, most))
        with suppress(RecursionError):
            changed = mutate(body, seed)
            if len(changed) <= most:
                return changed
        return bytes(atheris.Mutate(body, most))

    atheris.Setup([arguments[0], *arguments[2:]], target, custom_mutator=change)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
