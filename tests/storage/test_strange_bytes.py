"""Bytes that are no stored value, or no longer, or not yet."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from furcate.primitives._errors import FurcateError, StorageError
from furcate.primitives._exchange import Exchange
from furcate.primitives._message import Message
from furcate.primitives._result import Result
from furcate.storage import Storable, base_of, from_bytes, to_bytes
from furcate.storage._form import MAGIC
from furcate.testing.strategies import json_values

DATA = Path(__file__).resolve().parents[1] / "data" / "storage"
WHOLE = st.sampled_from([(DATA / f"{name}.v1.bin").read_bytes() for name in ("exchange", "result", "bare-result")])
HUGE = b"\xff\xff\xff\xff"


def framed(body: bytes, version: int = 1) -> bytes:
    """Put a body into a whole frame, as somebody hostile would."""
    return MAGIC + version.to_bytes(2, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def packed(value: object) -> bytes:
    """Frame any plain value."""
    return framed(msgspec.msgpack.encode(value))


def tell(data: bytes) -> StorageError | Storable:
    """Read bytes; they are a value, or the one typed error."""
    try:
        return from_bytes(data)
    except StorageError as error:
        return error


def reason(data: bytes) -> str | None:
    told = tell(data)
    return told.reason if isinstance(told, StorageError) else None


MESSAGE: dict[str, Any] = {"value": "message", "role": "user", "parts": [{"part": "text", "text": "x"}]}
ACTIVITY: dict[str, Any] = {"part": "hosted_activity", "id": "a", "name": "web_search", "state": "started"}


def spoilt(part: dict[str, Any]) -> dict[str, Any]:
    return {"value": "message", "role": "assistant", "parts": [part]}


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: MAGIC + tail) | st.binary().map(framed))
@example(b"")
@example(MAGIC)
@example(MAGIC + b"\x00")
@example(MAGIC + b"\x00\x01")
@example(framed(b""))
@example(framed(b"\xc1"))
@example(framed(b"\xc0"))
def test_any_bytes_are_a_value_or_the_typed_error(data: bytes) -> None:
    """Nothing else comes out of reading, whatever goes in."""
    tell(data)


@given(json_values(40), st.booleans())
def test_any_messagepack_is_a_value_or_the_typed_error(value: Any, tagged: bool) -> None:
    """A whole frame around anything well-formed is no more trusted."""
    if tagged and isinstance(value, dict):
        value = {"value": "result", **value}
    try:
        data = packed(value)
    except OverflowError:
        return
    assert isinstance(tell(data), StorageError)


@given(WHOLE, st.data())
def test_bytes_within_a_whole_frame_may_be_anything(whole: bytes, data: st.DataObject) -> None:
    """Some bytes of a body put otherwise give a value or the typed error, checksum or no checksum."""
    body = bytearray(whole[14:])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        how = data.draw(st.sampled_from(["put", "cut", "add"]))
        if how == "put":
            body[place] = data.draw(st.integers(0, 255))
        elif how == "add":
            body[place:place] = data.draw(
                st.sampled_from([b"\xdd" + HUGE, b"\xdf" + HUGE, b"\xc6" + HUGE, b"\x91" * 9])
            )
        elif len(body) > 1:
            del body[place]
    told = tell(framed(bytes(body)))
    if not isinstance(told, StorageError):
        to_bytes(told)


@given(WHOLE, st.data())
def test_damage_is_noticed(whole: bytes, data: st.DataObject) -> None:
    """A changed byte, a missing end or a longer one is told as damage; nothing else is read from it."""
    place = data.draw(st.integers(len(MAGIC) + 2, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert reason(bytes(changed)) == "damaged"
    assert reason(whole[: data.draw(st.integers(1, len(whole) - 1))]) == "damaged"
    assert reason(whole + b"\x00") == "damaged"


@pytest.mark.parametrize("data", [b"", b"{}", b"\x80", b"\x89PNG\r\n", b"\xc1fu-cate\x00\x01", b"x" * 10_000])
def test_foreign_bytes_are_told_apart_from_damaged_ones(data: bytes) -> None:
    """What never was a stored value is not called a damaged one."""
    assert reason(data) == "foreign"


@pytest.mark.parametrize("version", [2, 3, 255, 65535])
def test_a_newer_version_is_refused(version: int, exchange: Exchange) -> None:
    """A later form is told as such, with its number, whatever it consists of; it is not tried."""
    body = to_bytes(exchange)[14:]
    for data in (framed(body, version), framed(b"zstd?", version), MAGIC + version.to_bytes(2, "big")):
        with pytest.raises(StorageError, match=f"version {version}") as caught:
            from_bytes(data)
        assert caught.value.reason == "newer"
        assert caught.value.version == version
        with pytest.raises(StorageError):
            base_of(data)


@pytest.mark.parametrize(
    "value",
    [
        {**MESSAGE, "mood": "good"},
        {**MESSAGE, "value": "thread"},
        {**MESSAGE, "role": "narrator"},
        {**MESSAGE, "parts": []},
        {**MESSAGE, "parts": [{"part": "hologram", "text": "x"}]},
        {**MESSAGE, "parts": [{"part": "text", "text": "x", "colour": "red"}]},
        {**MESSAGE, "parts": [{"part": "text", "text": b"x"}]},
        {**MESSAGE, "parts": [{"part": "text"}]},
        {**MESSAGE, "parts": [{"part": "tool_result", "call_id": "a", "content": "b"}]},
        {**MESSAGE, "cache": {"ttl_s": "long"}},
        spoilt({**ACTIVITY, "state": "paused"}),
        spoilt({**ACTIVITY, "input": {1: 2}}),
        spoilt({**ACTIVITY, "input": {"a": b"bytes"}}),
        spoilt({**ACTIVITY, "input": {"a": float("inf")}}),
        spoilt({**ACTIVITY, "input": {"a": msgspec.msgpack.Ext(7, b"\x00")}}),
        spoilt({**ACTIVITY, "payload": {"provider": "p", "format": "f", "version": 2, "value": b""}}),
        spoilt({"part": "media", "media_type": "image/png"}),
        spoilt({"part": "media", "media_type": "image/png", "data": b"", "url": "u"}),
        spoilt({"part": "text", "text": "x", "attributions": [{"source": {"url": "u"}, "range": [5, 3]}]}),
        {"value": "history", "messages": [], "base": b"short"},
        {"value": "exchange", "run_id": "r", "history": {"value": "history", "messages": []}},
        {"value": "exchange", "run_id": "r", "history": {"value": "history", "messages": [MESSAGE]}},
        [],
        "message",
    ],
    ids=str,
)
def test_what_the_form_does_not_have_is_refused(value: object) -> None:
    """Unknown kinds, members and words, and values that cannot be, are refused and not passed over."""
    with pytest.raises(StorageError, match="version 1") as caught:
        from_bytes(packed(value), base=None)
    assert caught.value.reason == "misshapen"
    assert isinstance(caught.value, FurcateError)


def test_a_result_without_its_message_is_refused(result: Result) -> None:
    """Its message is its own, or the last of its exchange."""
    plain = msgspec.msgpack.decode(to_bytes(result)[14:])
    del plain["exchange"]
    assert reason(packed(plain)) == "misshapen"


@pytest.mark.parametrize(
    "tail",
    [
        b"\xdd" + HUGE,
        b"\xdf" + HUGE,
        b"\xdb" + HUGE,
        b"\xc6" + HUGE,
        b"\xc9" + HUGE,
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
    ],
    ids=["array", "map", "text", "bytes", "extension", "deep arrays", "deep maps"],
)
def test_hostile_lengths_and_depths_cost_little(tail: bytes) -> None:
    """What claims to be huge or nests without end is refused before memory is taken for it."""
    activity = msgspec.msgpack.encode(spoilt(ACTIVITY))
    # A fifth member of the activity, with what follows.
    body = activity.replace(b"\x84\xa4part", b"\x85\xa4part") + b"\xa5input\x81\xa1a" + tail
    tracemalloc.start()
    try:
        assert reason(framed(body)) == "misshapen"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_deep_json_is_refused() -> None:
    """JSON that nests deeper than values may is refused, though it could be decoded."""
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    assert reason(packed(spoilt({**ACTIVITY, "input": {"a": deep}}))) == "misshapen"


def test_another_kind_is_refused(exchange: Exchange, result: Result) -> None:
    """A value is of the kind that was asked for, or the sentence says of which it is."""
    with pytest.raises(StorageError, match="hold a value of the class Result, not Exchange") as caught:
        from_bytes(to_bytes(result), Exchange)
    assert caught.value.reason == "kind"
    with pytest.raises(StorageError, match="hold a value of the class Exchange, not Message"):
        from_bytes(to_bytes(exchange), Message)


@pytest.mark.parametrize("base", [5, bytes, "digest", b"bytes"])
def test_a_base_is_a_conversation(exchange: Exchange, base: Any) -> None:
    """Anything else is a mistake of the program, and no property of the bytes or of the value."""
    stored = to_bytes(exchange)
    uses: tuple[Callable[..., object], ...] = (partial(to_bytes, exchange), partial(from_bytes, stored))
    for use in uses:
        with pytest.raises(TypeError, match=r"^base is of the class \w+; give an Exchange or a History, or leave it "):
            use(base=base)


def test_a_kind_is_a_class(exchange: Exchange) -> None:
    """The name of one is none."""
    kind: Any = "Exchange"
    with pytest.raises(TypeError, match=r"^kind is 'Exchange'; give a class, such as furcate\.Exchange$"):
        from_bytes(to_bytes(exchange), kind)


@pytest.mark.req("S0-25")
def test_errors_show_no_opaque_value() -> None:
    """What is wrong is told by its place; payloads, and words that move a terminal's cursor, are not shown."""
    payload = {"provider": "p", "format": "f", "version": "1", "value": "secret-in-a-text"}
    with pytest.raises(StorageError) as caught:
        from_bytes(packed(spoilt({**ACTIVITY, "payload": payload})))
    assert "secret" not in str(caught.value)
    with pytest.raises(StorageError) as caught:
        from_bytes(packed({**MESSAGE, "role": "\x1b[2J\u202e" + "x" * 10_000}))
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1500
