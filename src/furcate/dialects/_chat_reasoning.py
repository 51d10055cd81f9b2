"""Reasoning as OpenRouter details it: shown text, and opaque pieces that the model behind it wants back."""

from __future__ import annotations

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._chat_wire import read_plain
from furcate.primitives._json import Plain

DETAILS_FORMAT = "openrouter.reasoning_details"

_SHOWN = {"reasoning.text": "text", "reasoning.summary": "summary"}


@define
class _Detail:
    members: dict[str, Plain]
    key: str | None
    pieces: list[str] = field(factory=list)

    def plain(self) -> Plain:
        return {**self.members, self.key: "".join(self.pieces)} if self.key is not None else self.members


class DetailBook:
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

    def sealed(self) -> bytes | None:
        """Give all details so far as JSON, in order, or None where none of them is opaque."""
        if not self.opaque:
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
