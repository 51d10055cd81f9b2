"""What a configuration says about sending telemetry."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen
from attrs.validators import optional

from furcate.primitives._checks import whole

CONTENT_LIMIT = 16_384
LEAST_CONTENT_LIMIT = 256
FLUSH_S = 5.0


def _pairs(value: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not all(isinstance(text, str) for text in (*value, *value.values())):
        raise TypeError("headers maps str to str, each header's name to its value")
    return tuple(value.items())


def _check_seconds(_instance: object, attribute: object, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{getattr(attribute, 'name', 'value')} is {value!r}; give a number of seconds")
    if not 0 < value < 3600:
        raise ValueError(
            f"{getattr(attribute, 'name', 'value')} is {value}; give more than 0 and less than 3600 seconds"
        )


def _check_endpoint(_instance: object, _attribute: object, value: str | None) -> None:
    if value is not None and not value.startswith(("http://", "https://")):
        raise ValueError("endpoint is no URL of a collector; give one such as http://localhost:4318")


@frozen(kw_only=True)
class OTelSettings:
    """Say where OpenTelemetry data goes and what is in it; None leaves a setting to the ``OTEL_...`` variables.

    Attributes:
        service_name: how the program is called in the backend.
        endpoint: base URL of a collector that speaks OTLP over HTTP.
        headers: further headers of each export; never shown.
        metrics: whether metrics are sent beside the traces.
        capture_content: whether prompts and answers are put on the spans.
        content_limit: most characters of content on one span.
        queue_size: most spans that wait to be sent.
        flush_s: how long the end may wait for the collector, in seconds.
    """

    service_name: str | None = None
    endpoint: str | None = field(default=None, validator=_check_endpoint)
    headers: tuple[tuple[str, str], ...] = field(factory=dict, converter=_pairs, repr=False)
    metrics: bool | None = None
    capture_content: bool | None = None
    content_limit: int = field(default=CONTENT_LIMIT, validator=whole(LEAST_CONTENT_LIMIT))
    queue_size: int | None = field(default=None, validator=optional(whole(1)))
    flush_s: float = field(default=FLUSH_S, validator=_check_seconds)
