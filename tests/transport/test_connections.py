"""Which connection a call gets, and when one is closed."""

from __future__ import annotations

import zlib

import pytest
from httpcore2 import AsyncConnectionInterface

from furcate.primitives._wire import AttemptFailed, ResponseHead
from furcate.transport._connections import Connections
from furcate.transport._place import encoded_path, place_of
from furcate.transport._unpack import unpacking


class Wire(AsyncConnectionInterface):
    """Be a connection that never connects."""

    def __init__(self) -> None:
        self.expired = self.closed = False
        self.idle = True

    async def aclose(self) -> None:
        self.closed = True

    def has_expired(self) -> bool:
        return self.expired

    def is_idle(self) -> bool:
        return self.idle

    def is_closed(self) -> bool:
        return self.closed


async def test_the_one_used_last_is_taken_first() -> None:
    """Those that a rush alone needed fall idle."""
    connections = Connections(Wire)
    first, second = await connections.take(), await connections.take()
    assert first is not second
    await connections.give_back(first)
    await connections.give_back(second)
    assert await connections.take() is second
    assert await connections.take() is first


async def test_a_connection_that_expired_is_closed_and_not_taken() -> None:
    """Neither one that is at hand, nor the oldest when another comes back."""
    connections = Connections(Wire)
    old, other = await connections.take(), await connections.take()
    await connections.give_back(old)
    old.expired = True
    await connections.give_back(other)
    assert old.closed
    other.expired = True
    fresh = await connections.take()
    assert fresh is not other
    assert other.closed


async def test_what_cannot_be_used_again_is_closed() -> None:
    """A call that was left early leaves a connection within its answer."""
    connections = Connections(Wire)
    busy = await connections.take()
    busy.idle = False
    await connections.give_back(busy)
    assert busy.closed
    assert await connections.take() is not busy


async def test_closing_closes_all_and_nothing_comes_back() -> None:
    """Those in use as well as those that are idle."""
    connections = Connections(Wire)
    used, idle = await connections.take(), await connections.take()
    await connections.give_back(idle)
    await connections.aclose()
    assert used.closed
    assert idle.closed
    await connections.give_back(used)
    assert await connections.take() not in (used, idle)


@pytest.mark.parametrize(
    ("url", "host", "named", "path"),
    [
        ("https://Models.example/v1/", "models.example", "models.example", "/v1"),
        ("http://[::1]:8000/v1", "::1", "[::1]:8000", "/v1"),
        ("https://bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example", ""),
        ("http://a.example/mit ä/%20", "a.example", "a.example", "/mit%20%C3%A4/%20"),
    ],
)
def test_a_base_url_is_read_for_the_wire(url, host, named, path) -> None:
    """Hosts in the form that DNS knows, paths encoded once."""
    place = place_of(url)
    assert (place.host, place.named, place.path) == (host, named, path)


def test_a_path_with_a_query_stays_as_it_is() -> None:
    """Gemini's methods and parameters are no characters to encode."""
    assert encoded_path("/models/a:streamGenerateContent?alt=sse&x=%2F") == (
        "/models/a:streamGenerateContent?alt=sse&x=%2F"
    )


def test_half_of_a_packed_body_is_no_answer() -> None:
    """A body that ends within what was packed is broken, and an empty one is empty."""
    head = ResponseHead(200, (("content-encoding", "deflate"),))
    assert unpacking(head).finish() is None
    half = unpacking(head)
    half.feed(zlib.compress(b"words" * 99)[:9])
    with pytest.raises(AttemptFailed, match="compression"):
        half.finish()


def test_what_was_not_asked_for_is_told() -> None:
    """A form of compression that no request names."""
    with pytest.raises(AttemptFailed, match="compression"):
        unpacking(ResponseHead(200, (("content-encoding", "br"),)))
