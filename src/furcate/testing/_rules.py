"""What the rules of all dialects share: how a request is refused, and how JSON of any shape is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from furcate.testing._framing import JsonObject

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest


class Refused(Exception):
    """Raised when a request is one that the real provider answers with status 400.

    Attributes:
        message: what is wrong, and where.
        code: the error code; None for none.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Rules(Protocol):
    """Judge the requests of one dialect by what was answered before."""

    def remember(self, said: JsonObject, request: StubRequest) -> None:
        """Take note of an answer in its whole form, and of the request that it answers."""

    def check(self, request: StubRequest) -> None:
        """Look at a request.

        Raises:
            Refused: the real provider would not take it.
        """


def dicts(value: object) -> list[JsonObject]:
    """Return the objects of a list; anything else has none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def member(value: object, name: str) -> object:
    """Return a member of an object; None where there is none, or no object."""
    return value.get(name) if isinstance(value, dict) else None


def text(value: object, name: str) -> str:
    """Return a member that is a text; empty where there is none."""
    found = member(value, name)
    return found if isinstance(found, str) else ""
