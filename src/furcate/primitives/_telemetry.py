"""What a configuration says about sending telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from attrs import field, frozen
from attrs.validators import optional

from furcate.primitives._checks import whole

CONTENT_LIMIT = 16_384
LEAST_CONTENT_LIMIT = 256
FLUSH_S = 5.0
FLUSH_BOUND_S = 3600.0

_EXAMPLE = "give one such as http://localhost:4318"
_PATHS = ("/v1/traces", "/v1/metrics")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def header_fault(name: str, value: str) -> tuple[str, str] | None:
    """Say what is wrong with a header, and what would be right; the value is never told.

    Arguments:
        name: printable ASCII without white space, as HTTP has it.
        value: printable ASCII without white space around it.
    """
    if not _HEADER_NAME.fullmatch(name):
        return f"{name!r} is no header name", "use ASCII letters, digits and hyphens"
    if not (value.isascii() and value.isprintable() and value == value.strip()):
        return f"the value of {name!r} is no header value", "use printable ASCII without white space around it"
    return None


def endpoint_fault(url: str, *, whole: bool = False) -> tuple[str, str] | None:
    """Say what is wrong with a collector's address, and what would be right; a password in it is never told.

    Arguments:
        url: the address.
        whole: whether it is used as it is, rather than as the base of one address for each signal.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "no URL of a collector", _EXAMPLE
    if "@" in parts.netloc:
        return "there is a user name or password in it", "leave that out, and give headers instead"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        return "no URL of a collector", _EXAMPLE
    if not _has_a_port(parts):
        return "its port is none", "give one from 1 to 65535, such as http://localhost:4318"
    if "#" in url or ("?" in url and not whole):
        return "there is a query or a fragment in it", "leave that out; keys go into headers"
    path = parts.path.rstrip("/")
    end = next((end for end in _PATHS if path.endswith(end)), None)
    if end is not None and not whole:
        base = f"{parts.scheme}://{parts.netloc}{path.removesuffix(end)}"
        return f"it ends in {end}, which is appended to it", f"give the base URL, {base}"
    return None


def _has_a_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"headers is no mapping but a {type(value).__name__}; give a mapping of each header's name to its value"
        )
    found: list[tuple[str, str]] = []
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("headers maps str to str, each header's name to its value")
        fault = header_fault(name, text)
        if fault is not None:
            raise ValueError(f"headers: {fault[0]}; {fault[1]}")
        found.append((name, text))
    return tuple(found)


def _check_seconds(_instance: object, attribute: object, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{getattr(attribute, 'name', 'value')} is {value!r}; give a number of seconds")
    if not 0 < value < FLUSH_BOUND_S:
        raise ValueError(
            f"{getattr(attribute, 'name', 'value')} is {value}; give more than 0 and less than 3600 seconds"
        )


def _check_endpoint(_instance: object, _attribute: object, value: str | None) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"endpoint is {value!r}; give the URL of a collector as a str")
    fault = endpoint_fault(value)
    if fault is not None:
        raise ValueError(f"endpoint: {fault[0]}; {fault[1]}")


def _check_name(_instance: object, _attribute: object, value: str | None) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"service_name is {value!r}; give a str")
    if not value.strip():
        raise ValueError("service_name is empty; give the program's name, or leave it out")


def _check_flag(_instance: object, attribute: object, value: bool | None) -> None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{getattr(attribute, 'name', 'value')} is {value!r}; give True, False or None")


@frozen(kw_only=True)
class OTelSettings:
    """Say where OpenTelemetry data goes and what is in it; None leaves a setting to the ``OTEL_...`` variables.

    Attributes:
        service_name: how the program is called in the backend.
        endpoint: base URL of a collector that speaks OTLP over HTTP; no user name, query or ``/v1/...`` is in it.
        headers: further headers of each export, printable ASCII; never shown.
        metrics: whether metrics are sent beside the traces.
        capture_content: whether prompts and answers are put on the spans.
        content_limit: most characters of content on one span.
        queue_size: most spans that wait to be sent.
        flush_s: how long the end may wait for the collector, in seconds; more than 0 and less than 3600.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value is out of bounds, or no address or header.
    """

    service_name: str | None = field(default=None, validator=_check_name)
    endpoint: str | None = field(default=None, validator=_check_endpoint)
    headers: tuple[tuple[str, str], ...] = field(factory=dict, converter=_pairs, repr=False)
    metrics: bool | None = field(default=None, validator=_check_flag)
    capture_content: bool | None = field(default=None, validator=_check_flag)
    content_limit: int = field(default=CONTENT_LIMIT, validator=whole(LEAST_CONTENT_LIMIT))
    queue_size: int | None = field(default=None, validator=optional(whole(1)))
    flush_s: float = field(default=FLUSH_S, validator=_check_seconds)
