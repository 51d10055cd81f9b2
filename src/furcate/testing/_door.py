"""Who comes in: requests with the right key, to a known route, with a body that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.testing._answer import Answer, error
from furcate.testing._render import GENERAL

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_INVALID = "invalid_request_error"


def refuse(request: StubRequest, key: str | None) -> Answer | None:
    """Give the answer to a request that does not come in; None for one that does.

    Arguments:
        request: what came.
        key: the key that it must carry, or None.
    """
    google = request.dialect == "google-generatecontent"
    if key is not None and key not in _keys(request):
        if google:
            return error(400, "API key not valid. Please pass a valid API key.", code="API_KEY_INVALID")
        if request.dialect == "anthropic-messages":
            return error(401, "invalid x-api-key")
        return error(401, "Incorrect API key provided.", code="invalid_api_key", kind=_INVALID)
    if request.method != "POST" or request.dialect is None:
        return error(404, f"No route {request.method} {request.path.partition('?')[0]}.", kind=_INVALID)
    if not isinstance(request.body, dict):
        return error(400, "The body is no JSON object.", kind=GENERAL if google else _INVALID)
    return None


def _keys(request: StubRequest) -> tuple[str | None, ...]:
    """Give the credentials that a request carries where its dialect looks for them."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token if scheme == "Bearer" else None
    if request.dialect == "anthropic-messages":
        # Older clients of the vendor send the one, newer ones the other.
        return (request.headers.get("x-api-key"), bearer)
    if request.dialect != "google-generatecontent":
        return (bearer,)
    query = (pair.partition("=") for pair in request.path.partition("?")[2].split("&"))
    return (request.headers.get("x-goog-api-key"), bearer, *(value for name, _, value in query if name == "key"))
