"""Whatever is wrong is told in one sentence, with the right exit status and without a traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.local import weights_path
from furcate.testing import Answer, Disconnect, Head, Send, StubProvider, answer, error, html_error, no_head, raw, steps

Command = Callable[..., Any]

STREAM = Head(200, (("content-type", "text/event-stream"),))
CONFIG = '[backends.b]\nbase_url = "http://127.0.0.1:9/v1"\n[profiles.p]\nbackend = "b"\nmodel = "m"\n'
PROMPT = '[prompts.hello]\nmessages = [{ role = "user", template = "Hello {{ name }}" }]\n'
PLAN = (
    '[opening]\nmessages = [{ role = "user", template = "{{ inputs.input }}" }]\n'
    '[[branches]]\nname = "b"\nfollow_ups = ["more"]\n'
)


def one_sentence(said: Any) -> str:
    """Give the only line of stderr, without the program's name."""
    (line,) = said.err.splitlines()
    assert line.startswith("furcate: ")
    assert "Traceback" not in said.err
    assert said.out == ""
    return str(line.removeprefix("furcate: "))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "-m", "x", "--config", "gone.toml"], "gone.toml: cannot be read: No such file"),
        (["run", "-m", "x", "--config", "."], ".: cannot be read: Is a directory"),
        (["run", "-m", "x", "--config", "broken.toml"], "broken.toml: no TOML: "),
        (["run", "-m", "x", "--config", "unknown.toml"], "[profiles.p] backend: no backend named 'a'"),
        (["run", "helo"], "no prompt named 'helo'; there are: hello; a message of your own goes after -m"),
        (["run", "-m", "x", "--profile", "q"], "no profile named 'q'; there are: p"),
        (["run", "hello"], "prompt 'hello', message 1 (user): "),
        (["run", "hello", "--var", "name"], "--var 'name' is not of the form NAME=TEXT"),
        (["run", "hello", "--vars", "gone.json"], "--vars gone.json cannot be read: No such file"),
        (["run", "hello", "--vars", "broken.toml"], "--vars broken.toml holds no JSON object: "),
        (["run", "hello", "--vars", "list.json"], "--vars list.json holds no JSON object: "),
        (["run", "hello", "--var", "name=x", "--input", "a=b"], "input 'a': the prompt declares no such input"),
        (["run"], "nothing to say: name a configured prompt, or give a message with -m"),
        (["run", "-m", " "], "a message is empty; give -m some text"),
        (["run", "-m", "x", "--repairs", "1"], "--repairs goes with --schema"),
        (["run", "-m", "x", "--schema", "gone.json"], "schema file gone.json: No such file"),
        (["run", "-m", "x", "--schema", "broken.toml"], "schema file broken.toml: no JSON"),
        (["run", "-m", "x", "--schema", "wrong.json"], "schema"),
        (["run", "-m", "x", "--max-output-tokens", "0"], "Invalid value for '--max-output-tokens'"),
        (["run", "--zigzag"], "No such option '--zigzag'; see 'furcate run --help'"),
        (["rum"], "No such command 'rum'"),
        (["run", "-m", "x", "--loop", "uvloop"], "Invalid value for '--loop'"),
        (["explore"], "Missing argument 'PLAN'; see 'furcate explore --help'"),
        (["explore", "gone.toml"], "gone.toml: cannot be read: No such file"),
        (["explore", "broken.toml"], "broken.toml: no TOML: "),
        (["explore", "furcate.toml"], "furcate.toml: [opening]: missing; a plan has a table [opening]"),
        (["explore", "plan.toml"], "plan.toml: opening reads inputs.input; give an INPUT file"),
        (["explore", "plan.toml", "gone.txt"], "input gone.txt cannot be read: No such file"),
        (["explore", "plan.toml", "latin.txt"], "input latin.txt is no UTF-8 text (byte 0); convert it to UTF-8"),
        (["explore", "plan.toml", "in.txt", "in.txt"], "input in.txt is given 2 times; give each file once"),
        (["explore", "plan.toml", "in.txt", "--out", "no/x"], "--out no/x: there is no folder no; make it first"),
        (["explore", "plan.toml", "in.txt", "--out", "in.txt"], "--out in.txt is an input of this exploration"),
        (["explore", "plan.toml", "in.txt", "--out", "."], "--out . is a folder; name a file"),
        (["explore", "plan.toml", "in.txt", "--config", "gone.toml"], "gone.toml: cannot be read"),
        (["explore", "plan.toml", "in.txt", "--max-active", "0"], "Invalid value for '--max-active'"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_two(furcate_command: Command, arguments: list[str], told: str) -> None:
    """Wrong use and wrong configuration are told before anything runs."""
    Path("furcate.toml").write_text(CONFIG + PROMPT)
    Path("broken.toml").write_text("[backends\n")
    Path("unknown.toml").write_text(CONFIG.replace('backend = "b"', 'backend = "a"'))
    Path("list.json").write_text("[1]")
    Path("wrong.json").write_text('{"type": "obiect"}')
    Path("plan.toml").write_text(PLAN)
    Path("in.txt").write_text("text")
    Path("latin.txt").write_bytes(b"\xe9t\xe9")
    said = furcate_command(*arguments)
    assert said.status == 2
    assert told in one_sentence(said)
    assert Path("in.txt").read_text() == "text"


@pytest.mark.parametrize(
    ("follow_ups", "told"),
    [
        ('["{{ nobody }}"]', "prompt 'branches[0].follow_ups[0]', message 1 (user): "),
        ('["{{ open"]', "[branches[0]] follow_ups[0]: "),
        ('[{ prompt = "helo" }]', "no prompt named 'helo'; did you mean 'hello'?"),
        ('[{ prompt = "hello" }]', "prompt 'hello', message 1 (user): "),
        ('[{ template = "x", profile = "q" }]', "no profile named 'q'"),
    ],
)
def test_follow_ups_are_checked_before_anything_runs(furcate_command: Command, follow_ups: str, told: str) -> None:
    """A follow-up that cannot be asked is found before the opening is."""
    Path("furcate.toml").write_text(CONFIG + PROMPT)
    Path("in.txt").write_text("text")
    Path("plan.toml").write_text(PLAN.replace('["more"]', follow_ups))
    said = furcate_command("explore", "plan.toml", "in.txt")
    assert said.status == 2
    assert told in one_sentence(said)


@pytest.mark.parametrize(
    ("callable_", "told"),
    [
        ("gone:step", "there is no module 'gone' beside the plan or in this folder"),
        ("mine:gone", "module 'mine' has no 'gone'"),
        ("mine:plain", "'mine:plain' is no async function"),
        ("mine:number", "'mine:number' is not callable"),
        ("mine:none", "'mine:none' does not take one argument, the turn"),
        ("broken:step", "module 'broken' cannot be imported: ZeroDivisionError"),
        ("needy:step", "module 'needy' cannot be imported: No module named 'not_there'"),
        ("mine", "'mine' names no function; write it as \"module:function\""),
    ],
)
def test_callables_are_checked_before_anything_runs(
    furcate_command: Command, folder: Path, callable_: str, told: str
) -> None:
    """A callable that is not to be had is told with the branch that wants it."""
    Path("furcate.toml").write_text(CONFIG)
    plan = '[opening]\nmessages = [{ role = "user", template = "x" }]\n[[branches]]\nname = "b"\nturns = 1\n'
    plans = folder / "plans"
    plans.mkdir()
    (plans / "plan.toml").write_text(f'{plan}callable = "{callable_}"\n')
    (plans / "mine.py").write_text("def plain(turn): ...\nasync def none(): ...\nnumber = 3\n")
    (plans / "broken.py").write_text("1 / 0\n")
    (plans / "needy.py").write_text("import not_there\n")
    said = furcate_command("explore", "plans/plan.toml")
    assert said.status == 2
    sentence = one_sentence(said)
    assert told in sentence
    assert "[branches[0]] callable: " in sentence


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (error(401, "Incorrect API key provided."), "authentication: "),
        (html_error(502), "HTTP 502 with an HTML page instead of JSON"),
        (html_error(200, "Welcome"), "provider: "),
        (error(400, "no such model"), "no such model"),
        (raw('{"choices": [', content_type="application/json"), "provider: "),
        (answer("never whole", disconnect_after=2), "broke in the middle of the answer"),
        (
            steps(Head(200, (("content-type", "text/event-stream"),)), Send(b"data: {"), Disconnect()),
            "broke in the middle",
        ),
        (no_head(), ": "),
    ],
)
def test_provider_failure_is_one_sentence_and_status_one(
    furcate_command: Command, configured: Command, script: Answer, told: str, loop: str
) -> None:
    """A server that fails in whatever way is told in one sentence."""
    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--loop", loop)
    assert said.status == 1
    assert told in one_sentence(said)


def test_unreachable_server_is_told(furcate_command: Command, configured: Command) -> None:
    """A port where nobody listens is a provider failure."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configured(f"http://127.0.0.1:{port}/v1")
    said = furcate_command("run", "-m", "x")
    assert said.status == 1
    assert "unavailable: " in one_sentence(said)


def test_missing_key_variable_is_told(furcate_command: Command) -> None:
    """A backend whose variable is not set is a configuration fault."""
    Path("furcate.toml").write_text(CONFIG.replace("[profiles", 'api_key_env = "NOT_SET_KEY"\n[profiles'))
    said = furcate_command("run", "-m", "x")
    assert said.status == 2
    assert "the environment variable NOT_SET_KEY is not set" in one_sentence(said)


def test_unexpected_error_is_a_sentence_and_debug_shows_where(
    furcate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw is told in a sentence; its traceback is there for the asking."""
    Path("furcate.toml").write_text(CONFIG)
    monkeypatch.setattr(json, "loads", lambda *_: 1 / 0)
    Path("x.json").write_text("{}")
    said = furcate_command("run", "-m", "x", "--schema", "x.json")
    assert said.status == 1
    assert one_sentence(said).startswith("unexpected ZeroDivisionError: division by zero; `furcate --debug")
    assert "Traceback (most recent call last)" in furcate_command("--debug", "run", "-m", "x", "--schema", "x.json").err


@pytest.mark.embedded
def test_port_in_use_is_told(furcate_command: Command) -> None:
    """A port that somebody else has is told by number."""
    pytest.importorskip("xllamacpp")
    if not weights_path().exists():
        pytest.skip("the embedded model's weights are not here; `furcate local fetch` brings them")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = furcate_command("local", "serve", "--port", str(port))
    assert said.status == 2
    assert str(port) in one_sentence(said)
