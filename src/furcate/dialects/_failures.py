"""What an error response, or an error inside an answer, means for the attempt.

Providers agree on little here: the error may be an object, a text or a list, its code a number or a word. What is
found is judged by one table; messages are cut, put on one line, and cleaned of what looks like a credential.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

import msgspec
from attrs import frozen

from furcate.primitives._json import Plain
from furcate.primitives._wire import AttemptFailed, Failure, FailureKind, ResponseHead

MAX_MESSAGE = 300

# What msgspec raises for bytes that are no JSON, and for JSON nested deeper than any answer is.
UNREADABLE = (msgspec.DecodeError, RecursionError)

_SECRETS = re.compile(
    r"\b(?:bearer\s+\S+|(?:sk|pk|gsk|xai|hf|key)[-_](?=[\w*.\-]*[\d*])[\w*.\-]{3,}|AIza[\w*.\-]{6,})"
    r"|(?<=api key provided: )\S+",
    re.IGNORECASE,
)
_KINDS: dict[int, FailureKind] = {
    400: "invalid_request",
    401: "authentication",
    403: "authentication",
    404: "invalid_request",
    408: "timeout",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limited",
    503: "unavailable",
    504: "timeout",
    529: "unavailable",
}
_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")

# Reason, whether repeating may help, the numbers and the pieces of words that mean it. The first row that fits counts.
_REASONS: tuple[tuple[str, bool, tuple[int, ...], tuple[str, ...]], ...] = (
    ("insufficient_quota", False, (402,), ("insufficient_quota", "insufficient_credit", "billing")),
    ("context_length", False, (), ("context_length", "context_window", "exceed_context")),
    ("rate_limited", True, (429,), ("rate_limit", "ratelimit", "too_many_requests", "resource_exhausted")),
    ("overloaded", True, (503, 529), ("overload", "unavailable", "slow_down", "over_capacity")),
    ("timeout", True, (408, 504), ("timeout", "timed_out", "deadline")),
    ("authentication", False, (401, 403), ("authentication", "permission", "invalid_api_key", "unauthorized")),
    ("not_found", False, (404,), ("not_found",)),
    ("conflict", True, (409,), ()),
    ("too_large", False, (413,), ("too_large",)),
    ("invalid_request", False, (400, 422), ("invalid", "unsupported", "bad_request")),
    ("server_error", True, (500, 502), ("server_error", "internal", "api_error", "bad_gateway")),
)


def read_plain(raw: msgspec.Raw | bytes | None) -> Plain:
    """Read any JSON value; what is none reads as None."""
    if raw is None:
        return None
    try:
        value: Plain = msgspec.json.decode(raw)
    except UNREADABLE:
        return None
    return value


@frozen
class ErrorFacts:
    """Hold what an error value says.

    Attributes:
        message: the provider's words, bounded and cleaned; empty where it has none.
        words: its codes and types in lower case.
        number: the HTTP-like status among them, or None.
    """

    message: str = ""
    words: tuple[str, ...] = ()
    number: int | None = None


def clean(text: str, limit: int = MAX_MESSAGE) -> str:
    """Put text on one printable line of at most `limit` characters, with credentials masked."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    line = _SECRETS.sub("***", line)
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def error_facts(value: Plain) -> ErrorFacts:
    """Read an error in whatever form a provider gives it."""
    if isinstance(value, list):
        return error_facts(value[0]) if value else ErrorFacts()
    if isinstance(value, str):
        return ErrorFacts(clean(value))
    if not isinstance(value, dict):
        return ErrorFacts()
    inner = value.get("error")
    if isinstance(inner, (dict, list)):
        return error_facts(inner)
    codes = [value.get(key) for key in ("code", "type", "status", "status_code")]
    if isinstance(inner, str):
        return ErrorFacts(clean(inner), *_sort(codes))
    message = _words_of(value)
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str) and raw and not raw.lstrip().startswith(("{", "[", "<")):
        message = f"{message} ({raw})" if message else raw
    return ErrorFacts(clean(message), *_sort(codes))


def error_in(plain: Plain, name: str = "") -> Plain:
    """Find the error that a JSON value is or holds; `name` is the name of its server-sent event."""
    if isinstance(plain, list):
        return error_in(plain[0]) if plain and isinstance(plain[0], dict) else None
    if not isinstance(plain, dict):
        return plain if name == "error" else None
    if plain.get("error"):
        return plain
    bare = plain.get("object") == "error" or (
        "message" in plain and "choices" not in plain and ("code" in plain or "type" in plain)
    )
    return plain if bare or (name == "error" and "choices" not in plain) else None


def _sort(codes: list[Plain]) -> tuple[tuple[str, ...], int | None]:
    words, number = [], None
    for code in codes:
        if isinstance(code, str) and not code.isdecimal():
            words.append(code.lower())
        elif isinstance(code, (int, str)) and not isinstance(code, bool) and 400 <= int(code) <= 599:
            number = int(code) if number is None else number
    return tuple(words), number


def _words_of(value: dict[str, Plain]) -> str:
    for key in ("message", "detail", "msg"):
        found = value.get(key)
        if isinstance(found, str) and found.strip():
            return found
        if isinstance(found, dict):
            return _words_of(found)
        if isinstance(found, list):
            # A validation error of the FastAPI kind also repeats the input; only place and complaint are taken.
            items = [item for item in found if isinstance(item, dict)]
            return "; ".join(f"{_place(item.get('loc'))}{_words_of(item)}" for item in items)
    return ""


def _place(loc: Plain) -> str:
    return ".".join(str(step) for step in loc) + ": " if isinstance(loc, list) and loc else ""


def judge(words: tuple[str, ...], number: int | None) -> tuple[str, bool]:
    """Give the reason that codes and a status mean, and whether repeating may help."""
    for reason, retryable, numbers, pieces in _REASONS:
        if number in numbers or any(piece in word for piece in pieces for word in words):
            return reason, retryable
    return "provider_error", number is not None and number >= 500


def stream_failure(error: Plain) -> Failure:
    """Say what an error inside an answer with HTTP 200 means; whatever it is, the kind is ``provider``."""
    facts = error_facts(error)
    reason, retryable = judge(facts.words, facts.number)
    told = f": {facts.message}" if facts.message else " without saying why"
    return Failure(
        kind="provider",
        reason=reason,
        message=f"the provider ended its answer with an error ({reason}){told}",
        retryable=retryable,
    )


def response_failure(head: ResponseHead, body: bytes) -> Failure:
    """Say what a response with an HTTP status other than success means."""
    status = head.status
    facts, told = _read(head, body)
    # The status decides, and the words only refine: proxies put the words of one failure on the status of another.
    reason, _ = judge((), status)
    worded, _ = judge(facts.words, None)
    if worded in ("insufficient_quota", "context_length") or reason == "provider_error":
        reason = worded
    retryable = (status in (408, 409, 429) or status >= 500) and reason != "insufficient_quota"
    return Failure(
        kind=_KINDS.get(status, "provider"),
        reason=reason,
        message=f"HTTP {status}{told}",
        retryable=retryable,
        wait_s=wait_hint_s(head) if retryable else None,
        status=status,
    )


def _read(head: ResponseHead, body: bytes) -> tuple[ErrorFacts, str]:
    content_type = clean((head.get("content-type") or "").partition(";")[0], 60)
    if not body.strip():
        return ErrorFacts(), " with an empty body"
    try:
        value: Plain = msgspec.json.decode(body)
    except UNREADABLE:
        what = "an HTML page" if "html" in content_type or looks_like_html(body) else "something else"
        return ErrorFacts(), f" with {what} instead of JSON" + (
            f" (content type {content_type})" if content_type else ""
        )
    facts = error_facts(value)
    return facts, f": {facts.message}" if facts.message else " without an explanation"


def wait_hint_s(head: ResponseHead) -> float | None:
    """Read how long the server asks to wait, in seconds; None where it does not say, or not clearly.

    A date is counted from the response's own ``Date`` header, since a dialect has no clock.
    """
    millis = _number(head.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    value = head.get("retry-after")
    if value is not None:
        plain = _number(value)
        return plain if plain is not None else _seconds_until(value, head.get("date"))
    spans = (
        _span_s(head.get(f"x-ratelimit-reset-{what}") or "")
        for what in ("requests", "tokens")
        if _number(head.get(f"x-ratelimit-remaining-{what}")) == 0
    )
    return max((span for span in spans if span is not None), default=None)


def _number(text: str | None) -> float | None:
    if text is None or re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) is None:
        return None
    return float(text)


def _seconds_until(then: str, now: str | None) -> float | None:
    try:
        span = parsedate_to_datetime(then) - parsedate_to_datetime(now or "")
    except (TypeError, ValueError):  # no date, or one with a zone and one without
        return None
    return max(0.0, span.total_seconds())


def _span_s(text: str) -> float | None:
    match = _SPAN.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, millis = (float(group or 0) for group in match.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


def looks_like_html(body: bytes) -> bool:
    """Tell whether a body begins as HTML or XML does."""
    return body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def malformed(what: str) -> Failure:
    """Make the failure of an answer that is not what the dialect describes; `what` is a sentence without content."""
    return Failure(kind="provider", reason="malformed", message=what)


def no_json(body: bytes) -> AttemptFailed:
    """Make the failure of a whole answer that is no JSON."""
    if not body.strip():
        said = "the server answered with an empty body instead of JSON"
    elif looks_like_html(body):
        said = "the server answered with an HTML page instead of JSON; check the backend's base_url"
    elif body.lstrip()[:1] in b"{[":
        said = f"the server's JSON answer breaks off or is broken ({len(body)} bytes)"
    else:
        said = f"the server answered with something that is no JSON ({len(body)} bytes)"
    return AttemptFailed(malformed(said))
