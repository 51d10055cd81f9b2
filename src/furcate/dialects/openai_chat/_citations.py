"""Citations of ``openai-chat``: annotations of the text, and the pages that searching servers list beside it.

Offsets count characters of the text, from 0, the end excluded. Recordings cannot tell code points from UTF-16
units, so a range behind a character that the two count differently is not believed; nor is one that does not fit
the text. The citation itself is kept. Ranges ahead of the text wait for it.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, read_plain
from furcate.dialects.openai_chat._wire import Annotation
from furcate.primitives._content import Attribution, Source
from furcate.primitives._json import Plain

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_ANNOTATIONS = msgspec.json.Decoder(Annotation)

_Span = tuple[int, int] | None


class CitationBook:
    """Follow the citations of one answer, each counted once."""

    def __init__(self) -> None:
        self._length = 0
        self._astral: int | None = None
        self._seen: set[bytes] = set()
        self._held: list[tuple[Attribution, _Span]] = []
        self._pages: dict[str, Attribution] = {}
        self._last_pages: tuple[bytes, bytes] = (b"", b"")

    def measure(self, text: str) -> None:
        """Take note of the answer's next text."""
        if self._astral is None and not text.isascii():
            found = _ASTRAL.search(text)
            if found is not None:
                self._astral = self._length + found.start()
        self._length += len(text)

    def annotate(self, raw: Raw) -> str | None:
        """Take an annotation; give the kind of one that is no citation of a page, or None."""
        written = bytes(raw)
        if written in self._seen:
            return None
        try:
            one = _ANNOTATIONS.decode(raw)
        except UNREADABLE:
            return "unreadable"
        inner = one.url_citation
        url = inner.url if inner is not None else one.url
        if one.type not in (None, "url_citation") or url is None:
            return clean_kind(one.type)
        self._seen.add(written)
        start = inner.start_index if inner is not None else one.start_index
        end = inner.end_index if inner is not None else one.end_index
        title = (inner.title if inner is not None else one.title) or ""
        excerpt = (inner.content if inner is not None else None) or None
        self._held.append(
            (Attribution(Source(url, title), excerpt), (start, end) if start is not None and end is not None else None)
        )
        return None

    def list_pages(self, citations: Raw, results: Raw) -> None:
        """Take the pages that stand beside the text; they come again with every chunk."""
        written = (bytes(citations), bytes(results))
        if written == self._last_pages:
            return
        self._last_pages = written
        found = _pages(results)
        cited = _pages(citations)
        for url, page in (cited or found).items():
            self._pages[url] = found.get(url, page)

    def ready(self) -> list[Attribution]:
        """Give the citations whose range can be judged by the text that is there, in the order in which they came."""
        given = 0
        for _, span in self._held:
            if not self._length or (span is not None and span[1] > self._length):
                break
            given += 1
        ready, self._held = self._held[:given], self._held[given:]
        return [self._placed(one, span) for one, span in ready]

    def rest(self) -> list[Attribution]:
        """Give what is left once the text is whole; listed pages count only where nothing was annotated."""
        held, self._held = self._held, []
        left = [self._placed(one, span) for one, span in held]
        if not self._seen:
            left.extend(self._pages.values())
            self._pages = {}
        return left

    def _placed(self, one: Attribution, span: _Span) -> Attribution:
        if span is None or not 0 <= span[0] < span[1] <= self._length:
            return one
        if self._astral is not None and self._astral < span[1]:
            return one
        return Attribution(one.source, one.excerpt, span)


def clean_kind(kind: str | None) -> str:
    """Make a kind that a server named fit for a notice: short, and nothing but a word."""
    return re.sub(r"[^\w.\-]", "_", kind or "unnamed")[:60]


def _pages(raw: Raw) -> dict[str, Attribution]:
    listed = read_plain(raw)
    pages: dict[str, Attribution] = {}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, str):
            pages.setdefault(item, Attribution(Source(item)))
        elif isinstance(item, dict) and isinstance(url := item.get("url"), str):
            excerpt = _text(item, "snippet") or None
            pages.setdefault(url, Attribution(Source(url, _text(item, "title")), excerpt))
    return pages


def _text(item: dict[str, Plain], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""
