"""Telemetry of a command: set up when it begins, and not before."""

from __future__ import annotations

import logging

import pytest

import furcate
from furcate.cli._kept import Keeping, Kept
from furcate.cli._telemetry import Telemetry
from furcate.primitives._telemetry import OTelSettings

STARTED = furcate.RunStarted(
    run_id="r", parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
)


def settings(**given) -> OTelSettings:
    """Give settings of a collector that is not there."""
    return OTelSettings(endpoint="http://127.0.0.1:9", metrics=False, flush_s=0.1, **given)


def test_without_a_table_nothing_happens() -> None:
    """A command whose configuration has no table takes what it is told and gives nothing to carry along."""
    with Telemetry(None) as telemetry:
        telemetry.on_event(STARTED)
        assert telemetry.carrier("r") == {}
        assert telemetry.on_content is None


def test_runs_are_followed_while_the_command_lasts() -> None:
    """What is told inside the block has a trace to carry along; before and after it there is none."""
    telemetry = Telemetry(settings())
    telemetry.on_event(STARTED)
    assert telemetry.carrier("r") == {}
    with telemetry:
        telemetry.on_event(STARTED)
        assert telemetry.carrier("r")["traceparent"].startswith("00-")
    assert telemetry.carrier("r") == {}


@pytest.mark.parametrize("captures", [True, False])
def test_content_is_taken_only_where_it_is_captured(captures: bool) -> None:
    """An engine that is made before the block knows already whether content is asked for."""
    telemetry = Telemetry(settings(capture_content=captures))
    assert (telemetry.on_content is not None) is captures
    sent = furcate.ContentSent(run_id="r", number=1, inherited=0, messages=(furcate.Message.user("x"),))
    with telemetry:
        telemetry.on_event(STARTED)
        if telemetry.on_content is not None:
            telemetry.on_content(sent)


FINISHED = furcate.RunFinished(
    run_id="r",
    status="succeeded",
    duration_s=1.0,
    usage=furcate.Usage(),
    attempts=0,
    repairs=0,
    validation="not_requested",
)


def test_what_did_not_arrive_is_told_at_the_end(caplog, capsys) -> None:
    """What the collector did not confirm is one line on stderr, and not logged; the work is as good as without."""
    with Kept(Keeping(), settings()) as kept:
        for event in (STARTED, FINISHED):
            kept.observers[-1].on_event(event)
    assert capsys.readouterr().err == ""
    assert (kept.conclude(0), kept.conclude(1)) == (0, 1)
    told = "telemetry: 1 of 1 spans were not confirmed by 127.0.0.1:9: nobody listens there (connection refused)"
    assert capsys.readouterr().err.count(told) == 2
    assert "not confirmed" not in caplog.text


def test_nothing_sent_is_no_problem(capsys) -> None:
    """Without spans, a collector that is not there is none."""
    with Kept(Keeping(), settings()) as kept:
        pass
    assert kept.conclude(0) == 0
    assert capsys.readouterr().err == ""


def test_a_variable_that_does_nothing_is_told_at_the_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, in a sentence, though a command does not show the library's log; what is logged later is not told."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "yes")
    with Kept(Keeping(), settings()):
        told = capsys.readouterr().err
        logging.getLogger("furcate").warning("something else")
    assert told == (
        "furcate: telemetry: OTEL_SDK_DISABLED is neither true nor false, so it switches nothing off; give true\n"
    )
    assert capsys.readouterr().err == ""
