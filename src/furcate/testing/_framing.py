"""Bodies as they go over the wire, whatever wire language they are in."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence

import attrs

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"

# A fixed moment, so that equal requests get equal bytes.
CREATED = 1_700_000_000

JsonObject = dict[str, object]


@attrs.frozen
class Rendered:
    """Hold a body ready for the wire.

    Attributes:
        content_type: the media type.
        events: the body in pieces, each sent by itself.
        sized: whether its length is announced; otherwise it goes out chunked.
    """

    content_type: str
    events: tuple[bytes, ...]
    sized: bool


def sse(payload: Mapping[str, object] | str | bytes, *, event: str = "", newline: str = "\n") -> bytes:
    """Frame one server-sent event.

    Arguments:
        payload: a mapping, sent as JSON; a string, sent as the event's data on one line; or bytes, sent as
            they are, framing included.
        event: the event's name; empty leaves it out.
        newline: how lines end.
    """
    if isinstance(payload, bytes):
        return payload
    text = payload if isinstance(payload, str) else json.dumps(payload)
    named = f"event: {event}{newline}" if event else ""
    return f"{named}data: {text}{newline}{newline}".encode()


def whole_json(body: object) -> Rendered:
    """Frame a JSON body in two pieces, so that it can break in the middle as well."""
    data = json.dumps(body).encode()
    return Rendered(JSON, halves(data), sized=True)


def halves(data: bytes) -> tuple[bytes, ...]:
    """Cut bytes in two."""
    middle = len(data) // 2
    return (data[:middle], data[middle:])


def text_halves(text: str) -> tuple[str, ...]:
    """Cut a text in the middle; pieces that are empty are left out."""
    middle = len(text) // 2
    return tuple(piece for piece in (text[:middle], text[middle:]) if piece)


def split_text(text: str, most: int = 4) -> tuple[str, ...]:
    """Cut a text at spaces into at most so many pieces that join to it again; an empty text gives none."""
    words = text.split(" ")
    words = [word if place == 0 else " " + word for place, word in enumerate(words)]
    size = -(-len(words) // most)
    pieces = ("".join(words[start : start + size]) for start in range(0, len(words), size))
    return tuple(piece for piece in pieces if piece)


def choose_pieces(text: str, deltas: Sequence[str] | None) -> tuple[str, ...]:
    """Settle what the stream sends of a text.

    Raises:
        ValueError: both were given and the deltas do not join to the text.
    """
    if deltas is None:
        return split_text(text)
    if text and "".join(deltas) != text:
        raise ValueError(f"answer: deltas join to {''.join(deltas)!r}, not to the text {text!r}; give only one of them")
    return tuple(deltas)


def cut_pieces(pieces: Iterable[str], cuts: Iterable[int]) -> list[list[str]]:
    """Group the pieces of a text by stretches of it, cutting a piece wherever a stretch ends inside of it.

    Arguments:
        pieces: the text in order.
        cuts: the places between the stretches, in code points, ascending.
    """
    groups: list[list[str]] = [[]]
    left = list(cuts)
    at = 0
    for piece in pieces:
        rest = piece
        while left and at + len(rest) > left[0]:
            take = left.pop(0) - at
            if take:
                groups[-1].append(rest[:take])
            groups.append([])
            rest, at = rest[take:], at + take
        groups[-1].append(rest)
        at += len(rest)
    return groups


def sealed(*names: object) -> str:
    """Make up an opaque value: Base64 that is the same for the same names and another one for others."""
    return base64.b64encode(("stub:" + ":".join(map(str, names))).encode()).decode()
