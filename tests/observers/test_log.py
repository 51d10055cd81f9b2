"""The log observer's records: levels, one line, fields that programs find."""

from __future__ import annotations

import logging

import pytest

import furcate
from furcate.observers import LogObserver
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    BackendPaused,
    CoordinatorFinished,
    NurseryStarted,
    RunFinished,
)
from furcate.primitives._usage import Usage
from furcate.testing import StubProvider, answer, error


@pytest.mark.field(58)
async def test_a_run_is_logged_without_content(caplog: pytest.LogCaptureFixture) -> None:
    """Failed attempts are warnings, the run itself is information, steps are for debugging; nothing said is there."""
    caplog.set_level(logging.DEBUG, logger="furcate.observations")
    refused = error(400, message="you said SECRET-7F3A")
    async with (
        StubProvider([error(503), answer("PRIVATE-91"), refused]) as stub,
        furcate.Engine(
            backends=[
                furcate.Backend(
                    "b",
                    base_url=stub.base_url,
                    api_key="KEY-123",
                    capacity=1,
                    retry=furcate.RetryPolicy(first_backoff_s=0.001),
                )
            ],
            profiles=[furcate.Profile("p", backend="b", model="m")],
            observers=[LogObserver()],
        ) as engine,
    ):
        request = furcate.Request(profile="p", messages="SECRET-7F3A")
        await engine.run(request)
        with pytest.raises(furcate.ProviderError):
            await engine.run(request)
    told = [record for record in caplog.records if record.name == "furcate.observations"]
    seen = [(record.__dict__["furcate_event"], record.levelname) for record in told]
    assert seen[:8] == [
        ("RunStarted", "INFO"),
        ("AttemptStarted", "DEBUG"),
        ("AttemptFinished", "WARNING"),
        ("AttemptsPaused", "INFO"),
        ("AttemptStarted", "DEBUG"),
        ("AttemptFinished", "DEBUG"),
        ("RunFinished", "INFO"),
        ("RunStarted", "INFO"),
    ]
    assert seen[-1] == ("RunFinished", "WARNING")
    everything = "".join(f"{record.getMessage()} {record.__dict__}" for record in told)
    assert not [secret for secret in ("SECRET-7F3A", "PRIVATE-91", "KEY-123") if secret in everything]
    assert len({record.__dict__["furcate_run_id"] for record in told}) == 2


def test_fields_stand_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    """Counts are fields of their own, unknown ones None, and no field takes the place of one of the log's."""
    caplog.set_level(logging.INFO, logger="mine")
    observer = LogObserver(logging.getLogger("mine"))
    usage = Usage(input_tokens=3, output_tokens=4, lower_bounds={"output_tokens"})
    observer.on_event(
        RunFinished(
            run_id="run-1", status="succeeded", duration_s=1.5, usage=usage, attempts=1, repairs=0, validation="passed"
        )
    )
    observer.on_event(NurseryStarted(scope_id="s", parent_run_id="r", name="angles"))
    run, nursery = caplog.records
    assert (run.name, nursery.name) == ("mine", "mine")
    told = run.__dict__
    assert (told["furcate_input_tokens"], told["furcate_cache_read_tokens"]) == (3, None)
    assert told["furcate_lower_bounds"] == ["output_tokens"]
    assert (told["furcate_duration_s"], told["furcate_validation"]) == (1.5, "passed")
    assert nursery.__dict__["furcate_name"] == "angles"


def test_messages_are_one_printable_line(caplog: pytest.LogCaptureFixture) -> None:
    """A name with line breaks or control sequences forges no further record."""
    caplog.set_level(logging.DEBUG, logger="furcate.observations")
    LogObserver().on_event(BackendPaused(backend="a\nCRITICAL:root:forged\x1b[2J", wait_s=1, failure_kind="timeout"))
    [record] = caplog.records
    assert record.getMessage().isprintable()
    caplog.clear()
    told = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \N{MAN}\u200d\N{GIRL}"
    LogObserver().on_event(ActivityChanged(run_id="r", number=1, activity_id="a", name=told, state="started"))
    LogObserver().on_event(BackendPaused(backend=told, wait_s=1, failure_kind="timeout"))
    assert [told in record.getMessage() for record in caplog.records] == [True, True]


def test_a_level_that_nobody_listens_to_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    """Steps are not even described where debugging is off, and failures are told still."""
    caplog.set_level(logging.WARNING, logger="furcate.observations")
    observer = LogObserver()
    step = AttemptFinished(
        run_id="r", number=1, purpose="generate", request_id="r-1", status="succeeded", duration_s=1,
        first_event_s=None, body_sha256="",
    )  # fmt: skip
    observer.on_event(step)
    observer.on_event(CoordinatorFinished(scope_id="s", status="failed", outcome=None, error_type="ValueError"))
    [record] = caplog.records
    assert record.__dict__["furcate_error_type"] == "ValueError"
