"""The analysis loop of the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import furcate
from furcate.testing import StubProvider, answer

TEXT = "Lamps are lit at dusk. Keepers write\nthe name of each ship into a book."
TRUE = answer(json.dumps({"claim": "Keepers keep a book.", "quote": "Keepers write the name of each ship"}))
FALSE = answer(json.dumps({"claim": "Ships are counted.", "quote": "Keepers count all of the ships"}))
SHORT = answer(json.dumps({"claim": "A book.", "quote": "into a book"}))


def entries(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def program(load):
    """Give the program's module."""
    return load("analyse_docs")


@pytest.mark.req("S4-137", "S4-002")
async def test_three_turns_from_an_exchange_and_the_next_run_goes_on(program, engine_on, wanted, tmp_path) -> None:
    """Each new result is recorded, three further turns are asked, and the next run asks what was left open."""
    book = program.Notebook(tmp_path / "book.jsonl")
    topics = list(program.QUESTIONS)

    async with StubProvider(lambda request: TRUE if wanted(request) else answer("About lamps.")) as stub:
        async with engine_on(stub) as engine:
            assert await program.analyse(engine, TEXT, book, "local") is furcate.Outcome.EXHAUSTED
            assert len(stub.requests) == 1 + 3
            assert await program.analyse(engine, TEXT, book, "local") is furcate.Outcome.STOPPED
            assert len(stub.requests) == 4 + 2
            # All is settled now, so nobody needs to be asked.
            assert await program.analyse(engine, TEXT, book, "local") is furcate.Outcome.STOPPED
            assert len(stub.requests) == 6
        asked = [request.body["messages"] for request in stub.requests]

    assert [entry["topic"] for entry in entries(book.path)] == topics
    assert all(entry["settled"] for entry in entries(book.path))
    # Every turn goes on from what was said so far; the second run begins anew.
    assert [len(messages) for messages in asked] == [1, 3, 5, 7, 1, 3]
    assert asked[1][:2] == asked[2][:2] == [asked[0][0], {"role": "assistant", "content": "About lamps."}]
    assert TEXT in asked[0][0]["content"]


@pytest.mark.req("S4-137")
@pytest.mark.parametrize("doubtful", [FALSE, SHORT], ids=["not there", "too short"])
async def test_the_application_judges_and_the_library_does_not(program, engine_on, tmp_path, doubtful) -> None:
    """An answer that has the form is a success to the library; the program asks again, once, then goes on."""
    book = program.Notebook(tmp_path / "book.jsonl")
    recorder = furcate.Recorder()

    script = [answer("About lamps."), doubtful, doubtful, TRUE]
    async with StubProvider(script) as stub, engine_on(stub, recorder) as engine:
        await program.analyse(engine, TEXT, book, "local")
        asked = [request.body["messages"][-1]["content"] for request in stub.requests]

    purpose, users = list(program.QUESTIONS.values())[:2]
    assert [purpose in text for text in asked] == [False, True, True, False]
    assert asked[1] != asked[2]
    assert users in asked[3]
    assert [(entry["topic"], entry["settled"]) for entry in entries(book.path)] == [
        ("purpose", False),
        ("purpose", False),
        ("users", True),
    ]
    ends = [event for event in recorder.events if isinstance(event, furcate.RunFinished)]
    assert [end.status for end in ends] == ["succeeded"] * 4
    assert [end.validation for end in ends[1:]] == ["passed"] * 3


@pytest.mark.req("S4-139")
async def test_only_a_checked_answer_is_decoded(program, engine_on, tmp_path) -> None:
    """An answer without the form, and one that was cut off, are kept as they were said, with their status."""
    book = program.Notebook(tmp_path / "book.jsonl")
    cut_off = answer('{"claim": "Keep', finish_reason="length")

    script = [answer("About lamps."), answer("no JSON"), answer("none either"), cut_off, TRUE]
    async with StubProvider(script) as stub, engine_on(stub) as engine:
        await program.analyse(engine, TEXT, book, "local")
        assert len(stub.requests) == 5

    failed, skipped, passed = entries(book.path)
    assert (failed["validation"], failed["said"], failed["settled"]) == ("failed", "none either", False)
    assert failed["faults"]
    assert (skipped["validation"], skipped["said"]) == ("skipped", '{"claim": "Keep')
    assert passed["claim"] == "Keepers keep a book."


@pytest.mark.req("S4-137")
def test_its_command_runs_on_both_loops(program, configured, loop, wanted, tmp_path) -> None:
    """The command reads an installed package's description, asks the configured server and tells what is open."""
    book = tmp_path / "book.jsonl"
    with StubProvider.in_thread(lambda request: FALSE if wanted(request) else answer("A package.")) as stub:
        arguments = ["click", "--notebook", str(book), "--config", configured(stub.base_url), "--loop", loop]
        ended = CliRunner().invoke(program.main, arguments)
        assert len(stub.requests) == 4
        assert "Click" in stub.requests[0].body["messages"][0]["content"]
    assert ended.exit_code == 0, ended.output
    assert "0 of 4 questions settled" in ended.output
    assert "run it again" in ended.output
    assert len(entries(book)) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such-package"], "'no-such-package' is not installed"),
        (["click", "--profile", "other"], "other"),
        (["click", "--notebook", "broken"], "broken, line 1: no entry of a notebook"),
        (["click", "--notebook", "missing/book"], "missing"),
        (["click", "--config", "none.toml"], "none.toml"),
    ],
)
def test_bad_input_is_told_in_a_sentence(program, configured, tmp_path, monkeypatch, arguments, sentence) -> None:
    """What is wrong with the package, the profile, the notebook or the configuration is named, without a traceback."""
    monkeypatch.chdir(tmp_path)
    Path("broken").write_text("not JSON\n", encoding="utf-8")
    with StubProvider.in_thread(answer("A package.")) as stub:
        ended = CliRunner().invoke(program.main, ["--config", configured(stub.base_url), *arguments])
    assert ended.exit_code == 1
    assert sentence in ended.output
    assert ended.output.startswith("Error: ")


def test_descriptions_lose_their_markup(program) -> None:
    """Images and programs are no part of what is read, and the beginning is cut at the asked length."""
    text = program.description("click", 100_000)
    assert "<" not in text
    assert "```" not in text
    assert program.description("click", 10) == text[:10]


@pytest.mark.embedded
@pytest.mark.timeout(240)
def test_it_runs_on_the_embedded_model(program, model, tmp_path) -> None:
    """Without a configuration the embedded model answers, whatever it says."""
    book = tmp_path / "book.jsonl"
    arguments = ["click", "--notebook", str(book), "--characters", "300", "--loop", "trio"]
    ended = CliRunner().invoke(program.main, arguments)
    assert ended.exit_code == 0, ended.output
    assert len(entries(book)) == 3
