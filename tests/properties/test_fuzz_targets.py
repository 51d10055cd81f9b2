"""What the fuzzer promises of any bytes, on recordings of our own that were changed here and there."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_ROOT = Path(__file__).parents[2]
_FUZZ = _ROOT / "benchmarks" / "fuzz.py"
_DATA = _ROOT / "tests" / "data"

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")

pytestmark = pytest.mark.skipif(not _FUZZ.exists(), reason="the benchmarks are not part of this copy")


@cache
def _fuzz() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("fuzz", _FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


@cache
def _recorded(target: str) -> tuple[bytes, ...]:
    paths = sorted(_DATA.glob(f"{'*' if target == 'sse' else target}/*/response.*"))
    return tuple(path.read_bytes() for path in paths)


every_target = pytest.mark.parametrize("target", ["sse", *DIALECTS])


@every_target
def test_recordings_as_they_are(target: str) -> None:
    """Every promise holds of what servers really send."""
    assert _recorded(target)
    for body in _recorded(target):
        _fuzz().TARGETS[target](body)


@every_target
@settings(max_examples=60)
@given(st.data())
def test_recordings_changed(target: str, data: st.DataObject) -> None:
    """Every promise holds of recordings in which values, events and bytes were changed."""
    body = data.draw(st.sampled_from(_recorded(target)))
    _fuzz().TARGETS[target](_fuzz().mutate(body, data.draw(st.integers(0, 2**32))))


@pytest.mark.parametrize("how", ["streamed", "whole"])
def test_arguments_that_are_no_text(how: str) -> None:
    """A tool call of ``openai-chat`` whose arguments are an object with bytes that are no UTF-8 is a typed failure."""
    call = b'{"index":0,"id":"c","function":{"name":"f","arguments":{"q":"\xf5"}}}'
    choice = b'{"choices":[{"index":0,"%b":{"tool_calls":[' + call + b']},"finish_reason":"tool_calls"}]}'
    body = b"data: " + choice % b"delta" + b"\n\n" if how == "streamed" else choice % b"message"
    fuzz = _fuzz()
    dialect = fuzz.dialect_named("openai-chat")
    events = (
        fuzz.streamed(dialect, body, (0, len(body)), "fail")
        if how == "streamed"
        else fuzz.in_one_piece(dialect, body, "fail")
    )
    assert events[-1].failure.reason == "malformed"
    fuzz.look_at_answer("openai-chat", body)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_in_one_piece_have_a_twin(dialect: str) -> None:
    """Recorded answers in one piece are compared with a stream that says the same, so that the comparison has food."""
    fuzz = _fuzz()
    pairs = [
        (fuzz.streamed(fuzz.dialect_named(dialect), stream, (0, len(stream)), "fail"), whole)
        for body in _recorded(dialect)
        for whole, stream in fuzz._twins(dialect, body)
    ]
    assert any(isinstance(events[-1], fuzz.Stopped) for events, _ in pairs)
    assert all(json.loads(whole) for _, whole in pairs)


def test_a_parser_that_loses_events_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an event that is cut in two is lost, the promise says so."""
    fuzz = _fuzz()

    class Forgetful(fuzz.SseParser):
        def feed(self, data: bytes) -> list[object]:
            self._pieces.clear()
            return super().feed(data)

    monkeypatch.setattr(fuzz, "SseParser", Forgetful)
    with pytest.raises(fuzz.BrokenPromise, match="the events are others"):
        fuzz.TARGETS["sse"](b"data: one\n\ndata: two\n\n")


def test_a_second_ending_is_found() -> None:
    """Events with two endings, or with none, break the promise."""
    fuzz = _fuzz()
    dialect = fuzz.dialect_named("openai-chat")
    for events in ([], [fuzz.Stopped("end_turn")] * 2):
        with pytest.raises(fuzz.BrokenPromise, match="not exactly one ending"):
            fuzz.look_at_ending(dialect, events)


@pytest.mark.parametrize(("words", "said"), [([], "name what to look at"), (["no-such"], "openai-chat")])
def test_the_script_says_what_it_takes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a target that it knows, the script names them."""
    assert _fuzz().main(["fuzz.py", *words]) == 2
    assert said in capsys.readouterr().err
