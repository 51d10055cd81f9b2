"""``furcate run`` where the provider searches: rows, sources, and what goes where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.testing import Answer, StubCitation, StubProvider, StubSearch, StubSource, answer, error_in_stream

Command = Callable[..., Any]

DIALECTS = ("openai-responses", "anthropic-messages")
PAGE = StubSource("https://tides.example/north", "Tides\x1b[2J of the \u202eNorth")


def searched(text: str = "High water is at noon.", **more: Any) -> Answer:
    citation = StubCitation(PAGE.url, PAGE.title, quote="at noon")
    return answer(text, searches=[StubSearch("high water", [PAGE])], citations=[citation], **more)


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[StubProvider, str], None]:
    """Write a configuration for a stub that is spoken to in a dialect; the terminal is one that can move."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    def write(stub: StubProvider, dialect: str) -> None:
        Path("furcate.toml").write_text(
            f'[backends.stub]\nbase_url = "{stub.base_url}"\ndialect = "{dialect}"\nattempts = 1\n'
            '[profiles.only]\nbackend = "stub"\nmodel = "m"\nserver_tools = ["web_search"]\nmax_output_tokens = 99\n',
            encoding="utf-8",
        )

    return write


def test_terminal_shows_rows_in_place_and_sources_under_the_answer(
    speaking: Command, on_terminal: Command, loop: str
) -> None:
    """The search runs and ends in one line above the answer, its sources follow, and titles are harmless."""
    with StubProvider.in_thread(searched()) as stub:
        speaking(stub, "anthropic-messages")
        status, shown = on_terminal("run", "-m", "x", "--loop", loop)
    assert status == 0
    running, _, rest = shown.partition("\n")
    assert running == "[~] web_search · running"
    rewritten, _, rest = rest.partition("\x1b8")
    assert rewritten == "\x1b7\x1b[1A\r\x1b[2K[+] web_search · high water"
    assert rest.startswith(
        "High water is at noon.\n\nSources:\n[1] Tides of the North · https://tides.example/north\n"
        "tools: web_search 1\ntokens: "
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pipe_gets_the_answer_with_its_sources(
    speaking: Command, furcate_command: Command, loop: str, dialect: str
) -> None:
    """Into a pipe go the answer and its sources; rows are plain lines on stderr."""
    with StubProvider.in_thread(searched()) as stub:
        speaking(stub, dialect)
        said = furcate_command("run", "-m", "x", "--loop", loop)
    assert said.out == ("High water is at noon.\n\nSources:\n[1] Tides of the North · https://tides.example/north\n")
    rows = ["[~] web_search · running", "[+] web_search · high water", "tools: web_search 1"]
    assert said.err.splitlines()[:3] == rows


def test_checked_answer_stays_what_can_be_parsed(speaking: Command, furcate_command: Command) -> None:
    """Where an answer has to meet a contract, stdout holds it alone, and its sources are told on stderr."""
    Path("s.json").write_text('{"type": "object"}')
    with StubProvider.in_thread(searched('{"high": "at noon"}')) as stub:
        speaking(stub, "openai-responses")
        said = furcate_command("run", "-m", "x", "--schema", "s.json")
    assert (said.status, said.out) == (0, '{"high": "at noon"}\n')
    assert "Sources:\n[1] Tides of the North · https://tides.example/north\n" in said.err


@pytest.mark.parametrize("dialect", DIALECTS)
def test_json_holds_activities_and_sources(speaking: Command, furcate_command: Command, dialect: str) -> None:
    """The JSON object has the facts of each row, and each source once, as they came."""
    with StubProvider.in_thread(searched()) as stub:
        speaking(stub, dialect)
        said = furcate_command("run", "-m", "x", "--json")
    (told,) = said.lines
    (activity,) = told["activities"]
    assert (activity["name"], activity["state"], activity["finished"]) == ("web_search", "completed", True)
    assert activity["input"] == {"type": "search", "queries": ["high water"]}
    assert told["sources"] == [{"number": 1, "url": PAGE.url, "title": PAGE.title}]
    assert said.out.strip().isprintable()


def test_failed_search_is_told(speaking: Command, furcate_command: Command) -> None:
    """A search that its provider could not run is a failed row."""
    script = answer("Sorry.", searches=[StubSearch("high water", error="max_uses_exceeded")])
    with StubProvider.in_thread(script) as stub:
        speaking(stub, "anthropic-messages")
        said = furcate_command("run", "-m", "x")
    assert (said.status, said.out) == (0, "Sorry.\n")
    assert "[!] web_search · failed" in said.err.splitlines()


@pytest.mark.req("S1-50")
def test_broken_answer_leaves_no_row_running(speaking: Command, on_terminal: Command, loop: str) -> None:
    """Where the answer breaks off while a search runs, its row ends as failed and the failure is told."""
    with StubProvider.in_thread(searched(disconnect_after=2)) as stub:
        speaking(stub, "anthropic-messages")
        status, shown = on_terminal("run", "-m", "x", "--loop", loop)
    assert status == 1
    assert "[+]" not in shown
    assert shown.count("[~] web_search") == shown.count("[!] web_search · failed")
    assert "furcate: " in shown


def test_answer_without_tools_has_neither_rows_nor_sources(speaking: Command, furcate_command: Command) -> None:
    """An answer that needed no tool is the answer alone."""
    with StubProvider.in_thread([answer("Hello."), error_in_stream("", "no")]) as stub:
        speaking(stub, "openai-responses")
        said = furcate_command("run", "-m", "x")
        failed = furcate_command("run", "-m", "x")
    assert (said.out, said.err.startswith("tokens: ")) == ("Hello.\n", True)
    assert (failed.status, failed.out) == (1, "")
