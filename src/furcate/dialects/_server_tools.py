"""How each dialect spells the tools that a provider runs on its own side.

One table, asked alike by whoever checks a configuration and by the encoders. A new capability is a new row; a cell
left out means that the dialect has no spelling that works without further arguments. Nothing is inferred from a
model's name or an address: a declaration is the owner's claim that the route serves it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from furcate.primitives._json import FrozenMap


@frozen(kw_only=True)
class Spelling:
    """Say how a dialect asks for one capability.

    Attributes:
        tool: the entry of the request's ``tools``, or None where the capability is no entry of it.
        member: name and value of a top-level member of the request body, or None.
        beta: the ``anthropic-beta`` value that the capability needs, or None.
    """

    tool: FrozenMap | None = None
    member: tuple[str, FrozenMap] | None = None
    beta: str | None = None


_RESPONSES = "openai-responses"
_CHAT = "openai-chat"
_MESSAGES = "anthropic-messages"
_GOOGLE = "google-generatecontent"

_TABLE: Mapping[str, Mapping[str, Spelling]] = {
    "web_search": {
        _RESPONSES: Spelling(tool=FrozenMap({"type": "web_search"})),
        _CHAT: Spelling(member=("web_search_options", FrozenMap())),
        _MESSAGES: Spelling(tool=FrozenMap({"type": "web_search_20250305", "name": "web_search"})),
        _GOOGLE: Spelling(tool=FrozenMap({"google_search": {}})),
    },
    "code_execution": {
        _RESPONSES: Spelling(tool=FrozenMap({"type": "code_interpreter", "container": {"type": "auto"}})),
        _MESSAGES: Spelling(
            tool=FrozenMap({"type": "code_execution_20250825", "name": "code_execution"}),
            beta="code-execution-2025-08-25",
        ),
        _GOOGLE: Spelling(tool=FrozenMap({"code_execution": {}})),
    },
    "web_fetch": {
        _MESSAGES: Spelling(
            tool=FrozenMap({"type": "web_fetch_20250910", "name": "web_fetch"}), beta="web-fetch-2025-09-10"
        ),
        _GOOGLE: Spelling(tool=FrozenMap({"url_context": {}})),
    },
}

CAPABILITIES: tuple[str, ...] = tuple(_TABLE)
"""The names that ``server_tools`` may hold, the same that records and rows show."""


def spelling(dialect: str, capability: str) -> Spelling | None:
    """Give how `dialect` asks for `capability`; None where it cannot, or where either is not known."""
    return _TABLE.get(capability, {}).get(dialect)


def spelled(dialect: str, capabilities: tuple[str, ...]) -> tuple[Spelling, ...]:
    """Give the spellings of declared capabilities, in their order, for an encoder.

    Raises:
        AssertionError: one of them has no spelling; the configuration was to be refused before it came to a request.
    """
    found = []
    for capability in capabilities:
        one = spelling(dialect, capability)
        if one is None:
            raise AssertionError(f"server tool {capability!r} reached the encoder of {dialect}, which cannot spell it")
        found.append(one)
    return tuple(found)
