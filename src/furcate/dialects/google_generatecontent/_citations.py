"""Citations of ``google-generatecontent``: grounding chunks with the stretches they stand behind, and recitations."""

from __future__ import annotations

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE
from furcate.dialects.google_generatecontent._text import TextBook
from furcate.dialects.google_generatecontent._wire import (
    Members,
    Place,
    Recited,
    Segment,
    Support,
    clean_kind,
    read_list,
    read_members,
)
from furcate.primitives._content import Attribution, Source
from furcate.primitives._stream import Citation

_PLACES = msgspec.json.Decoder(Place)
_SUPPORTS = msgspec.json.Decoder(Support)
_RECITED = msgspec.json.Decoder(Recited)


@define
class CitationBook:
    """Follow the citations of one answer, each counted once.

    One stretch that names several sources is several citations with one range. A source that no stretch names is a
    citation of the text as a whole. What points beyond the text waits for it.
    """

    _texts: TextBook
    _seen: set[tuple[Source, Segment | None]] = field(factory=set)
    _held: list[tuple[Attribution, Segment]] = field(factory=list)
    _sources: dict[Source, str | None] = field(factory=dict)
    _cited: set[Source] = field(factory=set)

    def ground(self, members: Members) -> list[str]:
        """Take grounding metadata; give the kinds of what in it is not understood."""
        odd: list[str] = []
        sources: list[tuple[Source, str | None] | None] = []
        for raw in read_list(members["groundingChunks"]) if "groundingChunks" in members else ():
            source, kind = _source(raw)
            sources.append(source)
            if source is None:
                odd.append(f"groundingChunks.{clean_kind(kind)}")
            else:
                self._sources.setdefault(*source)
        for raw in read_list(members["groundingSupports"]) if "groundingSupports" in members else ():
            support = _SUPPORTS.decode(raw)
            for number in support.grounding_chunk_indices or ():
                found = sources[number] if 0 <= number < len(sources) else None
                if found is None:
                    odd.append("groundingSupports.without_chunk")
                else:
                    self._take(Attribution(*found), support.segment or Segment())
        return odd

    def recite(self, members: Members) -> None:
        """Take citation metadata, in the spelling of either API."""
        for key in ("citationSources", "citations"):
            for raw in read_list(members[key]) if key in members else ():
                one = _RECITED.decode(raw)
                source = Source(one.uri or "", one.title or "")
                self._take(Attribution(source), Segment(start_index=one.start_index, end_index=one.end_index))

    def ready(self) -> list[Citation]:
        """Give the citations that the text so far can place, in the order in which they came."""
        if self._texts.last is None or any(segment.end_index > self._texts.size for _, segment in self._held):
            return []
        return self._placed()

    def rest(self, spare: int | None = None) -> list[Citation]:
        """Give what is left once no more text comes; `spare` is the part that takes it where there is no text."""
        left = self._placed(spare)
        part = self._texts.last if self._texts.last is not None else spare
        if part is not None:
            left += [
                Citation(part, Attribution(source, excerpt))
                for source, excerpt in self._sources.items()
                if source not in self._cited
            ]
            self._sources.clear()
        return left

    @property
    def waiting(self) -> bool:
        """Whether some citation was not given out yet."""
        return bool(self._held) or any(source not in self._cited for source in self._sources)

    def _take(self, one: Attribution, segment: Segment) -> None:
        key = (one.source, segment)
        if key not in self._seen:
            self._seen.add(key)
            self._cited.add(one.source)
            self._held.append((one, segment))

    def _placed(self, spare: int | None = None) -> list[Citation]:
        held, self._held = self._held, []
        told = []
        for one, segment in held:
            found = self._texts.place(segment)
            part, span = found if found is not None else (self._texts.last, None)
            if part is None:
                part = spare
            if part is not None:
                told.append(Citation(part, Attribution(one.source, one.excerpt, span)))
        return told


def _source(raw: Raw) -> tuple[tuple[Source, str | None] | None, str]:
    """Read a grounding chunk, an object of one member that names its kind."""
    members = read_members(raw)
    for kind in members:
        try:
            place = _PLACES.decode(members[kind])
        except UNREADABLE:
            continue
        title = place.title or place.document_name or ("" if place.uri else place.file_search_store) or ""
        url = place.uri or place.source_uri or ""
        if url or title or place.text:
            return (Source(url, title), place.text or None), kind
    return None, next(iter(members), "")
