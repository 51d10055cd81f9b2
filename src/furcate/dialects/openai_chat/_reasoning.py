"""What a server of ``openai-chat`` wants back of a model's reasoning.

DeepSeek, and servers that follow it, want the text that came as ``reasoning_content``; OpenRouter wants the details
that it gave: shown text, and opaque pieces that the model behind it understands.
"""

from __future__ import annotations

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import read_plain
from furcate.dialects.openai_chat._wire import Members, read_text
from furcate.primitives._content import Origin, ReasoningState
from furcate.primitives._json import Plain

CONTENT_FORMAT = "openai-chat.reasoning_content"
DETAILS_FORMAT = "openrouter.reasoning_details"

_SHOWN = {"reasoning.text": "text", "reasoning.summary": "summary"}


@define
class _Detail:
    members: dict[str, Plain]
    key: str | None
    pieces: list[str] = field(factory=list)

    def plain(self) -> Plain:
        return {**self.members, self.key: "".join(self.pieces)} if self.key is not None else self.members


class _DetailBook:
    """Follow the details of one answer; pieces of one text become one again.

    Attributes:
        opaque: whether something came that is not just text.
    """

    def __init__(self) -> None:
        self._details: list[_Detail] = []
        self.opaque = False

    def take(self, raw: Raw) -> str:
        """Take the details of one delta and give the text that they show."""
        listed = read_plain(raw)
        shown = [self._add(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        return "".join(shown)

    def sealed(self, *, called: bool = False) -> bytes | None:
        """Give all details so far as JSON, in order, or None where nobody wants them back.

        Opaque details are wanted back always, and mere text beside tool calls (`called`) only.
        """
        if not self._details or not (self.opaque or called):
            return None
        return msgspec.json.encode([detail.plain() for detail in self._details])

    def _add(self, item: dict[str, Plain]) -> str:
        kind = item.get("type")
        key = _SHOWN.get(kind) if isinstance(kind, str) else None
        # Whatever is not plain text, a kind of detail that came up later included, is kept for its model.
        self.opaque = self.opaque or key is None or bool(item.get("signature"))
        text = item.pop(key, None) if key is not None else None
        last = self._details[-1] if self._details else None
        if last is None or key is None or last.key != key or last.members.get("index") != item.get("index"):
            last = _Detail(item, key)
            self._details.append(last)
        else:
            last.members.update({name: value for name, value in item.items() if value})
        if not isinstance(text, str):
            return ""
        last.pieces.append(text)
        return text


class ReasoningBook:
    """Follow the reasoning of one answer: what it shows, and what its server wants back."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._details = _DetailBook()
        self._plain = False
        self._content: list[str] | None = None
        self._sealed: bytes | None = None

    @property
    def wants_place(self) -> bool:
        """Whether something opaque came that has no state yet, and so no place among the parts."""
        return self._details.opaque and self._sealed is None

    def take(self, members: Members) -> str:
        """Take the reasoning of one delta, under all of its names, and give the text that it shows, once."""
        detailed = self._details.take(members["reasoning_details"]) if "reasoning_details" in members else ""
        content = read_text(members["reasoning_content"]) if "reasoning_content" in members else None
        if content is not None:
            self._content = self._content or []
            self._content.append(content)
        plain = read_text(members["reasoning"]) if "reasoning" in members else None
        shown = content or plain  # a server that knows both spellings says it twice
        if shown:
            self._plain = True
            return shown
        # The details repeat the plain text wherever there is one.
        return "" if self._plain else detailed

    def seal(self, *, called: bool = False) -> ReasoningState | None:
        """Give the state so far, or None where nothing is wanted back, or nothing that was not given already.

        `called` tells whether the answer holds tool calls: DeepSeek wants even empty reasoning back beside them.
        """
        sealed, form = self._details.sealed(called=called), DETAILS_FORMAT
        if sealed is None and self._content is not None and (called or any(self._content)):
            sealed, form = "".join(self._content).encode(), CONTENT_FORMAT
        if sealed is None or sealed == self._sealed:
            return None
        self._sealed = sealed
        return ReasoningState(self._origin, form, sealed)
