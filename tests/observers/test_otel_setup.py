"""Switching telemetry on: what is set up, what a collector that is dead or silent costs, and what the variables say."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.sdk.trace import TracerProvider

import furcate
from furcate.observers import OTelObserver, _otel_setup, observe_otel
from furcate.testing import StubProvider, answer

# Generous, since other things run on this machine; what hangs would take ten times as long.
SOON_S = 8.0


def ask(text: str = "Hello?", **given) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})


@pytest.fixture
def nobody() -> str:
    """Give an address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Give the address of a collector that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class Collector:
    """A collector that keeps what it gets."""

    def __init__(self, status: int = 200) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def paths(self) -> list[str]:
        return sorted({path for path, _, _ in self.got})


def one_run(observer: OTelObserver, run_id: str = "r") -> None:
    """Tell an observer of a run."""
    observer.on_event(
        furcate.RunStarted(
            run_id=run_id, parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
        )
    )
    observer.on_event(
        furcate.RunFinished(
            run_id=run_id,
            status="succeeded",
            duration_s=1.0,
            usage=furcate.Usage(output_tokens=1),
            attempts=1,
            repairs=0,
            validation="not_requested",
        )
    )


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Give the warnings, and check that the telemetry library has none of its own."""
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry") and r.levelno >= logging.WARNING]
    return [r.getMessage() for r in caplog.records if r.name == "furcate" and r.levelno == logging.WARNING]


def test_spans_and_metrics_arrive(caplog) -> None:
    """What was told in the block has arrived when it is left, under the service's name and with the headers given."""
    with Collector() as collector:
        with observe_otel(
            service_name="my-service", endpoint=f"{collector.url}/", headers={"X-Team": "blue"}
        ) as observer:
            one_run(observer)
    assert collector.paths == ["/v1/metrics", "/v1/traces"]
    [(_, headers, body)] = [got for got in collector.got if got[0] == "/v1/traces"]
    assert headers["x-team"] == "blue"
    assert b"my-service" in body
    assert b"chat m" in body
    assert said(caplog) == []


def test_nothing_is_left_when_the_block_has_ended() -> None:
    """No thread outlives the block, and a second block works like the first."""
    before = threading.active_count()
    with Collector() as collector:
        before = threading.active_count()
        for _ in range(2):
            with observe_otel(endpoint=collector.url) as observer:
                one_run(observer)
            assert threading.active_count() == before
    assert len([got for got in collector.got if got[0] == "/v1/traces"]) == 2


async def test_a_dead_collector_costs_nothing(engine_of, nobody, caplog) -> None:
    """Runs end well though nobody takes their spans; that and how many they are is logged once, leaving is bounded."""
    with observe_otel(endpoint=nobody, metrics=False, flush_s=0.2) as observer:
        async with StubProvider(answer("ok")) as stub, engine_of(stub, observer) as engine:
            for _ in range(3):
                assert (await engine.run(ask())).text == "ok"
        left = time.monotonic()
    assert time.monotonic() - left < SOON_S
    [lost] = said(caplog)
    assert lost.startswith("telemetry: 6 of 6 spans were not confirmed by 127.0.0.1:")


def test_a_silent_collector_costs_nothing(silent, caplog) -> None:
    """A collector that never answers holds up neither what is told nor the end of the block."""
    began = time.monotonic()
    with observe_otel(endpoint=silent, flush_s=0.2) as observer:
        one_run(observer)
    assert time.monotonic() - began < SOON_S
    assert [text for text in said(caplog) if "1 of 1 spans were not confirmed by" in text]


def test_what_does_not_fit_the_queue_is_dropped_and_counted(silent, caplog) -> None:
    """The queue is bounded: what is too much is dropped, said once when it begins and once at the end."""
    with observe_otel(endpoint=silent, metrics=False, queue_size=10, flush_s=0.2) as observer:
        for number in range(500):
            one_run(observer, str(number))
    first, last = said(caplog)
    assert "spans are being lost" in first
    assert "10 spans wait to be sent" in first
    assert "500 of 500 spans were not confirmed by" in last


def test_a_collector_that_refuses_is_told_of_once(caplog) -> None:
    """A refusal is logged once with its reason, however many batches it meets."""
    with Collector(status=400) as collector:
        with observe_otel(endpoint=collector.url, headers={"x-key": "KEY-123"}, queue_size=4) as observer:
            for number in range(40):
                one_run(observer, str(number))
    texts = said(caplog)
    assert len([text for text in texts if "spans were not confirmed by" in text]) == 1
    assert len([text for text in texts if "spans are being lost" in text]) <= 1
    assert len([text for text in texts if "batches of metrics were not confirmed by" in text]) == 1
    assert not [text for text in texts if "KEY-123" in text]


def test_others_exporters_keep_their_words(caplog) -> None:
    """What an exporter of somebody else logs is still to be heard after a block of ours."""
    with Collector() as collector, observe_otel(endpoint=collector.url) as observer:
        one_run(observer)
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").warning("mine")
    assert "mine" in [record.getMessage() for record in caplog.records]


def test_the_variables_say_where_to(monkeypatch, caplog) -> None:
    """Without arguments, the standard variables name the collector, the headers and the service."""
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "named-by-variable")
        with observe_otel() as observer:
            one_run(observer)
    assert collector.paths == ["/v1/metrics", "/v1/traces"]
    assert all(headers["x-team"] == "blue" and b"named-by-variable" in body for _, headers, body in collector.got)
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("variables", "arguments", "paths"),
    [
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/mine"}, {}, ["/mine"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/mine"}, {"metrics": False}, ["/mine"]),
        ({"OTEL_METRICS_EXPORTER": "none"}, {"endpoint": "{url}"}, ["/v1/traces"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, {"endpoint": "{url}"}, ["/v1/metrics"]),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, {"endpoint": "{url}", "metrics": False}, ["/v1/traces"]),
        ({"OTEL_SDK_DISABLED": "true"}, {"endpoint": "{url}"}, []),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, {"endpoint": "{url}"}, ["/v1/metrics"]),
    ],
)
def test_signals_are_chosen_one_by_one(monkeypatch, caplog, variables, arguments, paths) -> None:
    """Traces and metrics are sent, or not, as variables and arguments say; metrics not to a backend of traces."""
    with Collector() as collector:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(url=collector.url))
        given = {key: v.format(url=collector.url) if isinstance(v, str) else v for key, v in arguments.items()}
        with observe_otel(**given) as observer:
            one_run(observer)
    assert collector.paths == paths
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "console", "otlp or none"),
        ("OTEL_METRICS_EXPORTER", "prometheus", "otlp or none"),
    ],
)
def test_what_is_not_there_is_said(monkeypatch, variable, value, problem) -> None:
    """A variable that asks for what is not there is an error that says what would be right."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(furcate.ConfigError, match=problem) as caught, observe_otel():
        pass
    assert variable in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "argument", "captures"),
    [
        (None, None, False),
        ("true", None, True),
        ("SPAN_ONLY", None, True),
        ("SPAN_AND_EVENT", None, True),
        ("EVENT_ONLY", None, False),
        ("NO_CONTENT", None, False),
        ("true", False, False),
        (None, True, True),
    ],
)
def test_content_is_captured_only_where_asked_for(monkeypatch, nobody, variable, argument, captures) -> None:
    """Content is captured where the argument says so, or else the variable that other instrumentations know."""
    if variable is not None:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", variable)
    with observe_otel(endpoint=nobody, metrics=False, capture_content=argument) as observer:
        assert (observer.on_content is not None) is captures


def test_the_sdks_own_limit_counts(monkeypatch, nobody) -> None:
    """Where the SDK would cut an attribute, content is cut before, so that it stays JSON."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1000")
    with observe_otel(endpoint=nobody, metrics=False, capture_content=True) as observer:
        assert observer._content_limit == 1000


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"endpoint": "localhost:4318"}, ValueError, "no URL of a collector"),
        ({"content_limit": 1}, ValueError, "content_limit"),
        ({"queue_size": 0}, ValueError, "queue_size"),
        ({"flush_s": 0}, ValueError, "flush_s"),
        ({"flush_s": "soon"}, TypeError, "flush_s"),
        ({"flush_s": float("inf")}, ValueError, "more than 0 and less than 3600 seconds"),
        ({"headers": {"a": 1}}, TypeError, "headers"),
        ({"headers": [("a", "b")]}, TypeError, "headers is no mapping but a list"),
        ({"headers": {"x-é": "b"}}, ValueError, "no header name"),
        ({"headers": {"": "b"}}, ValueError, "no header name"),
        ({"headers": {"a": "ü"}}, ValueError, "the value of 'a'"),
        ({"headers": {"a": " b"}}, ValueError, "the value of 'a'"),
        ({"capture_content": "false"}, TypeError, "capture_content"),
        ({"metrics": "no"}, TypeError, "metrics"),
        ({"service_name": 5}, TypeError, "service_name"),
        ({"service_name": " "}, ValueError, "service_name is empty"),
        ({"endpoint": 5}, TypeError, "endpoint is 5"),
        ({"endpoint": "http://"}, ValueError, "no URL of a collector"),
        ({"endpoint": "http://[::1"}, ValueError, "no URL of a collector"),
        ({"endpoint": "http://a b"}, ValueError, "no URL of a collector"),
        ({"endpoint": "http://127.0.0.1:99999"}, ValueError, "from 1 to 65535"),
        ({"endpoint": "http://h:1/x/v1/traces/"}, ValueError, "give the base URL, http://h:1/x$"),
        ({"endpoint": "http://h/v1/metrics"}, ValueError, "give the base URL, http://h$"),
        ({"endpoint": "http://h?key=1"}, ValueError, "query or a fragment"),
        ({"endpoint": "http://h#top"}, ValueError, "query or a fragment"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, problem) -> None:
    """An argument that cannot be right is refused before anything is set up."""
    with pytest.raises(error, match=problem), observe_otel(**arguments):
        pass


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": {"Authorization": "Bearer sk-secret\n"}},
        {"endpoint": "http://user:sk-secret@127.0.0.1:99999"},
        {"endpoint": "http://sk-secret@127.0.0.1"},
        {"endpoint": "http://h:1/?key=sk-secret"},
    ],
)
def test_what_is_refused_tells_no_secret(caplog, arguments) -> None:
    """The error about a header or an address names no value, password or key."""
    with pytest.raises(ValueError, match=r"headers|endpoint") as caught, observe_otel(**arguments):
        pass
    assert "secret" not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "no URL of a collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:sk-secret@h", "user name or password"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h/v1/traces", "give the base URL, http://h"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h:0/mine?key=sk-secret", "from 1 to 65535"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,authorization=Bearer%0Ask-secret", "the value of 'authorization'"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b,sk-secret", "header 2 is no pair"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "a number of seconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "a number of milliseconds"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "abc", "whole number"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "whole number"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999", "does not take"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc", "http/protobuf"),
    ],
)
def test_a_variable_that_is_wrong_is_named(monkeypatch, caplog, variable, value, problem) -> None:
    """A variable that cannot be right is an error with its name and what would be right, and without secrets."""
    monkeypatch.setenv(variable, value)
    threads = threading.active_count()
    with pytest.raises(furcate.ConfigError, match=problem) as caught, observe_otel():
        pass
    assert "OTEL_" in str(caught.value)
    assert variable in str(caught.value) or problem == "does not take"
    assert "secret" not in str(caught.value) + caplog.text
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"), ("OTEL_METRIC_EXPORT_INTERVAL", "0")],
)
def test_variables_of_metrics_count_only_where_they_are_sent(monkeypatch, nobody, variable, value) -> None:
    """What nobody reads is no error."""
    monkeypatch.setenv(variable, value)
    with observe_otel(endpoint=nobody, metrics=False):
        pass


@pytest.mark.parametrize(
    ("variable", "value", "warns"),
    [
        ("OTEL_SDK_DISABLED", "1", True),
        ("OTEL_SDK_DISABLED", "False", False),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "yes", True),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "no_content", False),
    ],
)
def test_a_switch_that_means_nothing_is_told_of(monkeypatch, nobody, caplog, variable, value, warns) -> None:
    """A switch set to what the specification does not know does nothing, and one warning says so."""
    monkeypatch.setenv(variable, value)
    with observe_otel(endpoint=nobody, metrics=False) as observer:
        assert observer.on_content is None
    assert [variable in text for text in said(caplog)] == [True] * warns


@pytest.mark.parametrize("scheme", ["HTTP", "http"])
def test_a_scheme_may_be_written_large(scheme: str) -> None:
    """Schemes know no upper and lower case."""
    with Collector() as collector:
        with observe_otel(endpoint=collector.url.replace("http", scheme), metrics=False) as observer:
            one_run(observer)
    assert collector.paths == ["/v1/traces"]


@pytest.mark.parametrize("value", ["100", "0"])
def test_content_that_the_sdk_would_cut_to_pieces_is_left_out(monkeypatch, nobody, caplog, value) -> None:
    """Where the SDK leaves no room for content none is captured, which is told; the span's own limit counts first."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "1000")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", value)
    with observe_otel(endpoint=nobody, metrics=False, capture_content=True) as observer:
        assert observer.on_content is None
    assert ["no content is captured" in text for text in said(caplog)] == [True]


def test_a_missing_extra_says_what_to_install(monkeypatch) -> None:
    """Without the SDK, the error names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "furcate.observers._otel_sdk", raising=False)
    monkeypatch.delattr("furcate.observers._otel_sdk", raising=False)
    with pytest.raises(furcate.ConfigError, match=r"pip install 'furcate\[otel\]'"), observe_otel():
        pass


def test_the_programs_own_providers_are_used(monkeypatch, caplog) -> None:
    """Where the program has set up its own, nothing is set up, and arguments that then mean nothing are told of."""
    monkeypatch.setattr(_otel_setup, "nobody_has_set_up", lambda: False)
    threads = threading.active_count()
    with observe_otel(endpoint="http://127.0.0.1:9"):
        assert threading.active_count() == threads
    assert ["own providers" in text for text in said(caplog)] == [True]


def test_an_observer_finds_providers_that_are_set_up_after_it() -> None:
    """In a program that sets up the SDK only later, an observer that was made before uses it from then on."""
    program = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import furcate
from furcate.observers import OTelObserver

observer = OTelObserver()
def tell(number):
    observer.on_event(furcate.RunStarted(run_id=number, parent_run_id=None, prompt=None, profile="p", backend="b",
        model="m", dialect="openai-chat"))
    observer.on_event(furcate.RunFinished(run_id=number, status="succeeded", duration_s=1.0, usage=furcate.Usage(),
        attempts=0, repairs=0, validation="not_requested"))
tell("before")
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tell("after")
with furcate.observe_otel() as other:
    observer = other
    tell("inside")
print([span.attributes["furcate.run.id"] for span in exporter.get_finished_spans()])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("['after', 'inside']", "")


def test_a_block_that_raises_is_flushed_all_the_same() -> None:
    """An error in the block passes through, and what was told before it arrives."""
    with Collector() as collector:
        with pytest.raises(LookupError), observe_otel(endpoint=collector.url, metrics=False) as observer:
            one_run(observer)
            raise LookupError
    assert collector.paths == ["/v1/traces"]


def test_the_library_itself_needs_no_sdk() -> None:
    """A provider of spans by anybody serves; ours is one of several."""
    assert isinstance(OTelObserver(tracer_provider=TracerProvider(shutdown_on_exit=False)), furcate.Observer)
