"""An answer with its sources."""

from __future__ import annotations

import pytest

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    ProviderPayload,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolCall,
)
from furcate.primitives._message import Message
from furcate.report import cited_in, list_sources, source_line, sources_text, written


def cite(url: str, title: str = "", **more) -> Attribution:
    return Attribution(Source(url, title), **more)


def test_sources_are_numbered_once_in_order_of_first_citation() -> None:
    """A URL has one number however often it is cited, and the first title that comes with it."""
    message = Message.assistant(
        Text("Tides rise.", (cite("https://b.example"), cite("https://a.example", "Moon"))),
        Text(" And fall.", (cite("https://a.example", "Another title"), cite("https://b.example", "Sea"))),
    )
    listed = list_sources(cited_in(message))
    assert [(one.number, one.url, one.title) for one in listed] == [
        (1, "https://b.example", "Sea"),
        (2, "https://a.example", "Moon"),
    ]
    assert sources_text(cited_in(message)) == "Sources:\n[1] Sea · https://b.example\n[2] Moon · https://a.example\n"
    assert listed[0].described() == {"number": 1, "url": "https://b.example", "title": "Sea"}


def test_sources_without_a_url_are_told_apart_by_title() -> None:
    """Files have a title only, and what has neither is listed all the same."""
    lines = [
        source_line(one) for one in list_sources([cite("", "a.pdf"), cite("", "b.pdf"), cite("", "a.pdf"), cite("")])
    ]
    assert lines == ["[1] a.pdf", "[2] b.pdf", "[3] a source without title and address"]


@pytest.mark.parametrize(
    "text",
    [
        Text("Tides.", (cite("https://a.example"),)),
        Text("Tides.", (cite("", "", excerpt="a quote"),)),
        Text("Tides.", (cite("https://a.example", range=(0, 3)),), attribution_complete=False),
        Text("Tides.", (cite("https://a.example", replay=ProviderPayload("p", "f", "1", b"x")),)),
    ],
)
def test_cited_text_never_stands_without_its_sources(text: Text) -> None:
    """Whatever a citation holds, under the text that it belongs to stands a list of sources."""
    said, heading, *listed = written(Message.assistant(text)).replace("\n\n", "\n").split("\n")
    assert (said, heading) == ("Tides.", "Sources:")
    assert len(listed) == 1
    assert listed[0].startswith("[1] ")


def test_text_that_cites_nothing_stands_alone() -> None:
    """There is no heading without sources."""
    assert written(Message.assistant("Tides.")) == "Tides."
    assert sources_text([]) == ""


def test_titles_and_addresses_cannot_drive_a_terminal() -> None:
    """Titles lose every control, addresses their spaces too."""
    source = cite("https://a.example/\x1b]0;t\x07 b\u202e\n/c", "Sea\x1b[31m\nlevel\u2066")
    assert sources_text([source]) == "Sources:\n[1] Sea level · https://a.example/b/c\n"
    assert list_sources([source])[0].title == "Sea\x1b[31m\nlevel\u2066"


def test_whole_answer_as_people_read_it() -> None:
    """Texts, rows in their places and sources; thought and calls to the application are for others to show."""
    search = {"type": "search", "queries": ["tides"]}
    message = Message.assistant(
        Reasoning("Let me see."),
        "I look it up.\n",
        HostedActivity("a", "web_search", "started"),
        HostedActivity("a", "web_search", "completed", input=search),
        Text("Tides \x1b[1mrise\x1b[2J.", (cite("https://a.example"),)),
        Text(" And fall."),
        ToolCall("c", "clock"),
        Refusal("No more."),
    )
    assert written(message) == (
        "I look it up.\n[+] web_search · tides\nTides \x1b[1mrise. And fall.No more.\x1b[0m\n\n"
        "Sources:\n[1] https://a.example"
    )
    assert written(message, 14).splitlines()[1] == "[+] web_search"
    assert written(Message.assistant()) == ""
