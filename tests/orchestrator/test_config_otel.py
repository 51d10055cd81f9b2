"""The table ``[otel]`` of a configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

import furcate
from furcate.observers import OTelObserver
from furcate.orchestrator._config import find_faults, load_config
from furcate.primitives._telemetry import OTelSettings

BACKEND = '[backends.b]\nkind = "embedded"\n'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "furcate.toml"
    path.write_text(BACKEND + text, encoding="utf-8")
    return path


def test_every_key_is_read(tmp_path) -> None:
    """The table's keys become settings; header values are shown nowhere."""
    path = write(
        tmp_path,
        """
[otel]
service_name = "reviews"
endpoint = "http://127.0.0.1:5000"
headers = { x-key = "KEY-123" }
metrics = false
capture_content = true
content_limit = 4000
queue_size = 100
flush_s = 2
""",
    )
    settings = load_config(path).otel
    assert settings == OTelSettings(
        service_name="reviews",
        endpoint="http://127.0.0.1:5000",
        headers={"x-key": "KEY-123"},
        metrics=False,
        capture_content=True,
        content_limit=4000,
        queue_size=100,
        flush_s=2,
    )
    assert "KEY-123" not in repr(settings)


def test_an_empty_table_switches_it_on(tmp_path) -> None:
    """Without the table nothing is sent; an empty one leaves all to the variables."""
    assert load_config(write(tmp_path, "")).otel is None
    assert load_config(write(tmp_path, "[otel]\n")).otel == OTelSettings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[otel]\nendpoints = 'x'", "did you mean 'endpoint'"),
        ("[otel]\nendpoint = 'localhost:4318'", "no URL of a collector"),
        ("[otel]\nservice_name = ''", "empty"),
        ("[otel]\nmetrics = 'no'", "true or false"),
        ("[otel]\ncontent_limit = 10", "256 or more"),
        ("[otel]\nqueue_size = 0", "1 or more"),
        ("[otel]\nflush_s = 0", "more than 0 seconds"),
        ("[otel]\nflush_s = 9999", "less than 3600 seconds"),
        ("[otel]\nflush_s = inf", "more than 0 seconds and less than 3600 seconds"),
        ("[otel]\nflush_s = nan", "more than 0 seconds and less than 3600 seconds"),
        ("[otel]\nflush_s = 'x'", "seconds as a number"),
        ("[otel]\nheaders = { a = 1 }", "a text in quotes"),
        ('[otel]\nheaders = { "x-é" = "ü" }', "no header name"),
        ('[otel]\nheaders = { a = "b\\n" }', "the value of 'a' is no header value"),
        ("[otel]\nendpoint = 'http://u:p@h'", "user name or password"),
        ("[otel]\nendpoint = 'http://h/v1/traces'", "give the base URL, http://h"),
        ("[[otel]]\nmetrics = true", "give a table"),
        ("[otels]\n", "did you mean 'otel'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, problem) -> None:
    """Each fault names the place and what would be right."""
    [fault] = find_faults(write(tmp_path, text))
    assert problem in str(fault)
    assert "otel" in str(fault)


def test_an_applications_own_table_of_that_name_is_left_alone(tmp_path) -> None:
    """A table that belongs to the application is passed over, whatever its name."""
    path = write(tmp_path, "[otel]\nmine = 1\n")
    assert load_config(path, beside=["otel"]).otel is None


def test_a_program_gets_the_observers_that_a_file_asks_for(tmp_path) -> None:
    """A file without the table gives no observer; one with it gives one that sends where it says."""
    with furcate.observe_config(write(tmp_path, "")) as observers:
        assert observers == ()
    text = '[otel]\nendpoint = "http://127.0.0.1:9"\nmetrics = false\nflush_s = 0.1\n'
    with furcate.observe_config(write(tmp_path, text)) as observers:
        [observer] = observers
        assert isinstance(observer, OTelObserver)
