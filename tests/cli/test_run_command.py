"""``furcate run`` against a stub: what goes to stdout, what to stderr, and the exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import furcate.cli
from furcate.testing import Answer, StubProvider, StubRequest, answer, error, error_in_stream

Command = Callable[..., Any]
SOURCES = str(Path(furcate.cli.__file__).parents[2])
SCHEMA = '{"type": "object", "required": ["a"]}'


def test_answer_goes_to_stdout_and_the_account_to_stderr(
    furcate_command: Command, configured: Command, loop: str
) -> None:
    """Into a pipe goes the answer alone; unknown counts are called unknown."""
    with StubProvider.in_thread(answer("Good day.", usage={"prompt_tokens": 7, "completion_tokens": 2})) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "Hello", "--system", "Be polite.", "--loop", loop)
    assert (said.status, said.out) == (0, "Good day.\n")
    assert said.err.startswith("tokens: input 7, ")
    assert "output 2" in said.err
    assert "reasoning unknown" in said.err
    assert [m["role"] for m in stub.requests[0].body["messages"]] == ["system", "user"]


def test_json_tells_all_of_the_result(furcate_command: Command, configured: Command, loop: str) -> None:
    """One JSON object holds text, stop reason, validation, usage with null for unknown, run id and digest."""
    with StubProvider.in_thread(answer("Hi", usage="omitted")) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "Hello", "--json", "--loop", loop)
    (told,) = said.lines
    assert (told["text"], told["stop_reason"], told["validation"]["status"]) == ("Hi", "end_turn", "not_requested")
    assert set(told["usage"].values()) == {None}
    assert len(told["digest"]) == 64
    assert told["run_id"]


def test_prompt_takes_variables_and_inputs(furcate_command: Command, configured: Command) -> None:
    """Variables from a file and from the command line and an input file reach the prompt's template."""
    template = "{{ n + 1 }} {{ who }} {{ inputs.text }}"
    more = f'[prompts.p]\nmessages = [{{ role = "user", template = "{template}" }}]\ninputs = ["text"]\n'
    Path("vars.json").write_text('{"n": 2, "who": "file"}')
    Path("in.txt").write_text("read")
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url, more=more)
        said = furcate_command("run", "p", "--vars", "vars.json", "--var", "who=me", "--input", "text=in.txt")
    assert said.status == 0
    assert stub.requests[0].body["messages"][0]["content"] == "3 me read"


def test_limit_and_profile_reach_the_wire(furcate_command: Command, configured: Command) -> None:
    """The token limit of the command line is laid over the chosen profile's settings."""
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url, more='[profiles.other]\nbackend = "stub"\nmodel = "o"\nmax_output_tokens = 9\n')
        said = furcate_command("run", "-m", "x", "--profile", "other", "--max-output-tokens", "3")
    assert said.status == 0
    assert (stub.requests[0].body["model"], stub.requests[0].body["max_tokens"]) == ("o", 3)


def test_cut_and_refused_answers_are_told(furcate_command: Command, configured: Command) -> None:
    """Truncation and refusal are told on stderr; the answer stays an answer."""
    with StubProvider.in_thread([answer("Half", finish_reason="length"), answer(refusal="No.")]) as stub:
        configured(stub.base_url)
        cut = furcate_command("run", "-m", "x")
        refused = furcate_command("run", "-m", "x")
    assert (cut.status, cut.out) == (0, "Half\n")
    assert "cut off at the limit of output tokens" in cut.err
    assert refused.status == 0
    assert "the model refused: No." in refused.err


def test_repair_into_a_pipe_gives_the_final_answer_only(
    furcate_command: Command, configured: Command, loop: str
) -> None:
    """A candidate that was superseded does not reach a pipe."""
    Path("s.json").write_text(SCHEMA)
    with StubProvider.in_thread([answer("nonsense"), answer('{"a": 1}')]) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--schema", "s.json", "--repairs", "1", "--loop", loop)
    assert (said.status, said.out) == (0, '{"a": 1}\n')
    assert "answer 2, a repair:" in said.err


def test_failed_validation_tells_the_faults(furcate_command: Command, configured: Command) -> None:
    """The last answer is printed, its faults are on stderr, and the status is 1."""
    Path("s.json").write_text(SCHEMA)
    with StubProvider.in_thread(answer('{"b": 1}')) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--schema", "s.json")
    assert (said.status, said.out) == (1, '{"b": 1}\n')
    assert "the answer does not meet its contract:" in said.err
    assert "  $: " in said.err


def test_answer_that_could_not_be_checked_is_no_success(furcate_command: Command, configured: Command) -> None:
    """An answer that was cut off under a contract gives status 1, and it is said why nothing was checked."""
    Path("s.json").write_text(SCHEMA)
    with StubProvider.in_thread(answer('{"a"', finish_reason="length")) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--schema", "s.json", "--json")
    assert said.status == 1
    assert said.lines[0]["validation"]["status"] == "skipped"
    assert "cut off at the limit of output tokens" in said.err
    assert "the answer was not checked against its contract" in said.err


def test_message_may_come_from_standard_input(configured: Command, spawn: Command) -> None:
    """A message of one hyphen is what stdin holds."""
    with StubProvider.in_thread(lambda request: answer(request.body["messages"][0]["content"][::-1])) as stub:
        configured(stub.base_url)
        process = spawn("run", "-m", "-", stdin=subprocess.PIPE)
        out, _ = process.communicate("abc")
    assert (process.returncode, out) == (0, "cba\n")


def test_terminal_sees_every_answer_as_it_arrives(
    configured: Command, on_terminal: Command, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal each answer stands on lines of its own, and nothing in it but colours reaches the terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    Path("s.json").write_text(SCHEMA)
    with StubProvider.in_thread([answer("non\x1b[31m\x1b[2Jsense"), answer('{"a": 1}')]) as stub:
        configured(stub.base_url)
        status, shown = on_terminal("run", "-m", "x", "--schema", "s.json", "--repairs", "1", "--loop", loop)
    assert status == 0
    first, second, third, *_ = shown.splitlines()
    assert (first, second, third) == ("non\x1b[31msense\x1b[0m", "answer 2, a repair:", '{"a": 1}')


def test_terminal_keeps_what_arrived_before_a_failure(configured: Command, on_terminal: Command) -> None:
    """A broken answer's text stays on its line, and the failure is told on the next."""
    with StubProvider.in_thread(error_in_stream("Once upon", "the model fell over")) as stub:
        configured(stub.base_url)
        status, shown = on_terminal("run", "-m", "x")
    assert status == 1
    first, second = shown.splitlines()
    assert first == "Once upon"
    assert second.startswith("furcate: ")
    assert "the model fell over" in second


@pytest.mark.field(76)
def test_reader_that_left_is_harmless(configured: Command, spawn: Command) -> None:
    """Closed ends of stdout and stderr give no traceback and no other status."""
    with StubProvider.in_thread(answer("Hello")) as stub:
        configured(stub.base_url)
        read, write = os.pipe()
        os.close(read)
        without_stdout = spawn("run", "-m", "x", stdout=write)
        _, err = without_stdout.communicate()
        without_stderr = spawn("run", "-m", "x", stderr=write)
        out, _ = without_stderr.communicate()
        os.close(write)
    assert (without_stdout.returncode, without_stderr.returncode) == (0, 0)
    assert "Traceback" not in err
    assert "Exception" not in err
    assert out == "Hello\n"


def test_standard_streams_may_be_closed_from_the_start(configured: Command) -> None:
    """Without any standard stream the command still runs and ends well."""
    with StubProvider.in_thread(answer("Hello")) as stub:
        configured(stub.base_url)
        shell = f"exec {sys.executable} -m furcate run -m x <&- >&- 2>&-"
        ended = subprocess.run(["sh", "-c", shell], env={**os.environ, "PYTHONPATH": SOURCES}, check=False)
    assert ended.returncode == 0
    assert len(stub.requests) == 1


def test_interrupted_run_ends_at_once(configured: Command, spawn: Command, loop: str) -> None:
    """Ctrl-C ends the answer, says that the answer is not complete, and gives status 130."""
    arrived = threading.Event()

    def script(request: StubRequest) -> Answer:
        arrived.set()
        return answer("never all", silence_after=2)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        process = spawn("run", "-m", "x", "--loop", loop)
        assert arrived.wait(30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "furcate: interrupted; the answer is not complete\n"


def test_long_wait_is_told(furcate_command: Command, configured: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for as long as a server asked for says so, and why."""
    monkeypatch.setattr("furcate.cli._run._LONG_S", 0.0)
    with StubProvider.in_thread([error(429, "slow down", headers=(("retry-after", "0"),)), answer("Hi")]) as stub:
        path = configured(stub.base_url)
        path.write_text(path.read_text().replace("attempts = 1", "attempts = 2"))
        said = furcate_command("run", "-m", "x")
    assert (said.status, said.out) == (0, "Hi\n")
    assert said.err.startswith("furcate: waiting 0 s before the next attempt, since the last one failed: rate_limit")
