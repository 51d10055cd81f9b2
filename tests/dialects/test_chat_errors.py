"""Error responses of ``openai-chat`` servers, and bodies that are no answers."""

from __future__ import annotations

import json

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._content import Origin
from furcate.primitives._stream import StreamFailed
from furcate.primitives._wire import AttemptFailed, Failure, FailureKind, ResponseHead

_CHAT = dialect_named("openai-chat")
_ORIGIN = Origin("p", "openai-chat", "m")


def _failure(status: int, body: object = None, **headers: str) -> Failure:
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {"error": "e"}).encode()
    return _CHAT.decode_error(ResponseHead(status, given), data)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (402, "provider", False),
        (403, "authentication", False),
        (404, "invalid_request", False),
        (408, "timeout", True),
        (409, "provider", True),
        (413, "invalid_request", False),
        (418, "provider", False),
        (422, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "provider", True),
        (502, "provider", True),
        (503, "unavailable", True),
        (504, "timeout", True),
        (529, "unavailable", True),
        (302, "provider", False),
    ],
)
def test_status_gives_the_kind(status: int, kind: FailureKind, retryable: bool) -> None:
    """Each status has its kind, and only what may pass by waiting is worth repeating."""
    failure = _failure(status)
    assert (failure.status, failure.kind, failure.retryable) == (status, kind, retryable)


def test_an_empty_purse_is_not_a_rate_limit() -> None:
    """A 429 for a used-up quota is not worth repeating."""
    failure = _failure(429, {"error": {"message": "Pay.", "code": "insufficient_quota"}}, retry_after="1")
    assert (failure.kind, failure.reason, failure.retryable, failure.wait_s) == (
        "rate_limited",
        "insufficient_quota",
        False,
        None,
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "No such model."}}, "No such model."),
        ({"error": "No such model."}, "No such model."),
        ({"object": "error", "message": "No such model.", "code": 400}, "No such model."),
        ([{"error": {"code": 400, "message": "No such model.", "status": "INVALID_ARGUMENT"}}], "No such model."),
        ({"detail": "No such model."}, "No such model."),
        ({"detail": [{"loc": ["body", "n"], "msg": "Too big.", "input": "PROMPT"}]}, "body.n: Too big."),
        ({"message": {"detail": [{"loc": ["n"], "msg": "Too big."}, {"msg": "Bad."}]}}, "n: Too big.; Bad."),
        ({"error": {"message": "Upstream.", "metadata": {"raw": "busy"}}}, "Upstream. (busy)"),
        ({"error": {"message": " two\n\tlines\x1b[31m "}}, "two lines [31m"),
    ],
)
def test_the_providers_words(body: object, words: str) -> None:
    """The provider's own words are found in whatever form they come, on one line, without the input."""
    assert _failure(400, body).message == f"HTTP 400: {words}"


def test_words_are_bounded() -> None:
    """A long explanation is cut."""
    assert len(_failure(400, {"error": {"message": "long " * 1000}}).message) <= 310


@pytest.mark.parametrize(
    "secret", ["sk-proj-abc123", "sk-abc***xyz", "Bearer abcdef", "gsk_a1b2c3d4", "KEY-123", "AIzaSyA-0123456"]
)
def test_credentials_are_masked(secret: str) -> None:
    """What looks like a credential does not come back in a message."""
    message = _failure(401, {"error": {"message": f"Bad key {secret} given"}}).message
    assert message == "HTTP 401: Bad key *** given"
    plain = _failure(401, {"error": {"message": "Incorrect API key provided: hello. See the docs."}})
    assert plain.message == "HTTP 401: Incorrect API key provided: *** See the docs."


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (
            b"<html><body>Bad Gateway</body></html>",
            "text/html; charset=utf-8",
            "HTTP 502 with an HTML page instead of JSON (content type text/html)",
        ),
        (b"\n<!DOCTYPE html>", "", "HTTP 502 with an HTML page instead of JSON"),
        (b"upstream died", "text/plain", "HTTP 502 with something else instead of JSON (content type text/plain)"),
        (b"", "", "HTTP 502 with an empty body"),
        (b"[" * 100_000, "", "HTTP 502 with something else instead of JSON"),
        (b"{}", "", "HTTP 502 without an explanation"),
        (b"null", "", "HTTP 502 without an explanation"),
        (b"[]", "", "HTTP 502 without an explanation"),
    ],
)
def test_bodies_that_explain_nothing(body: bytes, content_type: str, message: str) -> None:
    """A page or a text in the place of an error object is named for what it is, and not quoted."""
    assert _failure(502, body, content_type=content_type).message == message


_DATE = "Wed, 21 Oct 2026 07:28:{:02} GMT"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": _DATE.format(3), "date": _DATE.format(0)}, 3.0),
        ({"retry_after": _DATE.format(3), "date": _DATE.format(9)}, 0.0),
        ({"retry_after": _DATE.format(3)}, None),
        ({"retry_after": "soon", "date": _DATE.format(0)}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "1m2.5s"}, 62.5),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "120ms"}, 0.12),
        ({"x_ratelimit_remaining_requests": "3", "x_ratelimit_reset_requests": "120ms"}, None),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1700000000"}, None),
        ({}, None),
    ],
)
def test_wait_hints(headers: dict[str, str], wait_s: float | None) -> None:
    """Wait hints are read in each of their spellings, and ignored where they are not clear."""
    assert _failure(429, **headers).wait_s == wait_s


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html><head>PRIVATE</head></html>", "an HTML page instead of JSON"),
        (b'{"choices": [{"message": {"content": "PRIVATE', "JSON answer breaks off or is broken"),
        (b"", "an empty body instead of JSON"),
        (b"PRIVATE", "something that is no JSON"),
        (b'{"id": "x", "choices": []}', "JSON answer has no choices"),
        (b'{"text": "PRIVATE"}', "JSON answer has no choices"),
        (b'{"choices": "PRIVATE"}', "JSON answer has another shape"),
        (b'{"x": ' + b"[" * 100_000, "JSON answer breaks off or is broken"),
    ],
)
def test_whole_bodies_that_are_no_answers(body: bytes, message: str) -> None:
    """A body that is no answer is a typed failure that says what it is, and shows nothing of it."""
    with pytest.raises(AttemptFailed, match=message) as caught:
        _CHAT.decode_whole(body, _ORIGIN)
    assert (caught.value.failure.kind, caught.value.failure.reason) == ("provider", "malformed")
    assert "PRIVATE" not in caught.value.failure.message


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        ({"message": "m", "code": 429}, "rate_limited", True),
        ({"message": "m", "code": "rate_limit_exceeded"}, "rate_limited", True),
        ({"message": "m", "type": "overloaded_error"}, "overloaded", True),
        ({"message": "m", "code": "502"}, "server_error", True),
        ({"message": "m", "code": 599}, "provider_error", True),
        ({"message": "m", "type": "server_error"}, "server_error", True),
        ({"message": "m", "code": "insufficient_quota", "type": "insufficient_quota"}, "insufficient_quota", False),
        ({"message": "m", "code": "context_length_exceeded"}, "context_length", False),
        ({"message": "m", "code": "tool_use_failed", "type": "invalid_request_error"}, "invalid_request", False),
        ({"message": "m"}, "provider_error", False),
        ("m", "provider_error", False),
    ],
)
def test_errors_inside_a_200(error: object, reason: str, retryable: bool) -> None:
    """An error inside an answer is of kind provider, streamed or whole; its codes say whether repeating may help."""
    body = json.dumps({"error": error}).encode()
    decoder = _CHAT.decoder(_ORIGIN)
    streamed = decoder.feed(b"data: " + body + b"\n\n")
    assert streamed == _CHAT.decode_whole(body, _ORIGIN)
    assert decoder.done
    assert decoder.finish() == []
    failed = streamed[-1]
    assert isinstance(failed, StreamFailed)
    assert (failed.failure.kind, failed.failure.reason, failed.failure.retryable) == ("provider", reason, retryable)
    assert failed.failure.message == f"the provider ended its answer with an error ({reason}): m"
