"""Where an answer's claims come from: the list of sources that stands under every text that cites any."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from furcate.primitives._content import Attribution, Text
from furcate.primitives._json import Plain
from furcate.primitives._message import Message
from furcate.report._clean import clean_line

HEADING = "Sources:"


@frozen
class ListedSource:
    """Hold one line of a list of sources, as it came.

    Attributes:
        number: from 1 on, in the order in which the sources are first cited.
        url: where it is; may be empty.
        title: the first title that a citation of it gives; may be empty.
    """

    number: int
    url: str
    title: str = ""

    def described(self) -> dict[str, Plain]:
        """Give the same facts as plain data."""
        return {"number": self.number, "url": self.url, "title": self.title}


def cited_in(*messages: Message) -> tuple[Attribution, ...]:
    """Collect the citations of messages, in order."""
    parts = (part for message in messages for part in message.parts if isinstance(part, Text))
    return tuple(one for part in parts for one in part.attributions)


def list_sources(citations: Iterable[Attribution]) -> tuple[ListedSource, ...]:
    """Number the sources of citations, each URL once; without a URL the title tells sources apart."""
    titles: dict[tuple[str, str], str] = {}
    for citation in citations:
        source = citation.source
        key = (source.url, "" if source.url else source.title)
        titles[key] = titles.get(key) or source.title
    return tuple(ListedSource(number, url, title) for number, ((url, _), title) in enumerate(titles.items(), start=1))


def source_line(source: ListedSource) -> str:
    """Show a source in one line that nothing in its title or its URL can break."""
    # No URL has spaces, and whoever put some there wants it to look like two.
    url = "".join(clean_line(source.url).split())
    named = " · ".join(text for text in (clean_line(source.title), url) if text)
    return f"[{source.number}] {named or 'a source without title and address'}"


def sources_text(citations: Iterable[Attribution]) -> str:
    """Write the list of sources, its heading first; empty where nothing is cited."""
    listed = list_sources(citations)
    return "".join(f"{line}\n" for line in (HEADING, *map(source_line, listed))) if listed else ""
