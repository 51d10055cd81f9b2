"""Citations of ``openai-responses``: the annotations of one text part.

Offsets count characters of the part's text, from 0, the end excluded. Recordings cannot tell code points from UTF-16
units, so a range behind a character that the two count differently is not believed. Nor is one that does not fit the
text, or that cuts through a link although it should hold one. The citation itself is kept. A range ahead of the text
waits for it. What was told with an event is told again with the part, the item and the response, and counts once.
"""

from __future__ import annotations

import re

from attrs import frozen
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, malformed, read_plain
from furcate.dialects.openai_responses._wire import clean_kind, compact, read_members, read_whole, text_of
from furcate.primitives._content import Attribution, ProviderPayload, Source
from furcate.primitives._json import Plain
from furcate.primitives._wire import AttemptFailed

ANNOTATION_FORMAT = "openai-responses.annotation"

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@frozen
class _Held:
    attribution: Attribution
    span: tuple[int, int] | None
    marks: tuple[str, ...]  # what a slice holds that is what it claims to be


class CitationBook:
    """Follow the citations of one text part."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._seen: dict[int, Plain] = {}
        self._held: list[_Held] = []

    def due(self, length: int) -> bool:
        """Tell whether there is a citation to give, the text having `length` characters so far."""
        span = self._held[0].span if self._held and length else (0, length + 1)
        return span is None or span[1] <= length

    def add(self, number: int | None, raw: Raw) -> str | None:
        """Take annotation `number` of the text; give the kind of one that cites nothing, or None.

        Raises:
            AttemptFailed: there was another one of that number.
        """
        plain = read_plain(raw)
        number = number if number is not None else len(self._seen)
        if number in self._seen:
            if self._seen[number] != plain:
                raise AttemptFailed(malformed("the answer tells one citation twice, and differently"))
            return None
        self._seen[number] = plain
        return self._hold(raw)

    def ready(self, text: str) -> list[Attribution]:
        """Give the citations whose range can be judged by the text so far, in the order in which they came."""
        given = 0
        for held in self._held:
            if not text or (held.span is not None and held.span[1] > len(text)):
                break
            given += 1
        ready, self._held = self._held[:given], self._held[given:]
        return [_placed(one, text) for one in ready]

    def rest(self, text: str) -> list[Attribution]:
        """Give what is left once the text is whole."""
        held, self._held = self._held, []
        return [_placed(one, text) for one in held]

    def _hold(self, raw: Raw) -> str | None:
        try:
            members = read_members(raw)
        except UNREADABLE:
            return "unreadable"
        kind = text_of(members, "type")
        url, filename = text_of(members, "url"), text_of(members, "filename") or text_of(members, "file_id")
        if not url and not filename:
            return clean_kind(kind)
        start, end = read_whole(members.get("start_index")), read_whole(members.get("end_index"))
        replay = ProviderPayload(self._provider, ANNOTATION_FORMAT, "1", compact(members))
        source = Source(url, text_of(members, "title") or filename)
        self._held.append(
            _Held(
                Attribution(source, replay=replay),
                (start, end) if start is not None and end is not None else None,
                (url,) if url else (filename, "sandbox:"),
            )
        )
        return None if kind in ("url_citation", "file_citation", "container_file_citation", "file_path") else kind


def _placed(held: _Held, text: str) -> Attribution:
    if held.span is None:
        return held.attribution
    start, end = held.span
    if not 0 <= start < end <= len(text):
        return held.attribution
    # Only what stands before the end is looked at, so that the judgement is the same at once and later.
    before, piece = text[:end], text[start:end]
    if not before.isascii() and _ASTRAL.search(before):
        return held.attribution
    marked = any(mark in piece for mark in held.marks)
    if not marked and ("://" in piece or any(mark in before for mark in held.marks)):
        return held.attribution
    one = held.attribution
    return Attribution(one.source, one.excerpt, (start, end), one.replay)
