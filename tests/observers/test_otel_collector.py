"""Collectors that refuse, drip, never end or answer something else: what is believed, and what is told of it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

import furcate
from furcate.observers import OTelObserver, observe_otel
from furcate.observers._otel_http import secrets_of, words
from furcate.observers._otel_sdk import _OwnWords

# Generous, since other things run on this machine; what hangs would take many times as long.
SOON_S = 8.0


@contextmanager
def collector(answer: bytes, *, again: bytes = b"", every_s: float = 0.02) -> Iterator[str]:
    """Give the address of a collector that answers each request, and then sends the same bytes again and again."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(taken: socket.socket) -> None:
        with taken:
            try:
                taken.settimeout(SOON_S)
                head = b""
                while b"\r\n\r\n" not in head:
                    head += taken.recv(65_536) or b"\r\n\r\n"
                body = head.partition(b"\r\n\r\n")[2]
                size = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
                while len(body) < size:
                    body += taken.recv(65_536) or b" " * size
                taken.sendall(answer)
                while again and not over.wait(every_s):
                    taken.sendall(again)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(taken,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(SOON_S)


def answered(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Write an answer of a collector."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def runs(observer: OTelObserver, count: int) -> None:
    """Tell an observer of runs."""
    for number in range(count):
        observer.on_event(
            furcate.RunStarted(
                run_id=str(number), parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="d"
            )
        )
        observer.on_event(
            furcate.RunFinished(
                run_id=str(number),
                status="succeeded",
                duration_s=1.0,
                usage=furcate.Usage(output_tokens=1),
                attempts=1,
                repairs=0,
                validation="not_requested",
            )
        )


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Give all lines of warning, whoever has written them."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def rejecting(count: int, why: str) -> bytes:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = count
    answer.partial_success.error_message = why
    return answer.SerializeToString()


PROTOBUF, JSON, HTML = "application/x-protobuf", "application/json", "text/html"


@pytest.mark.parametrize(
    ("answer", "lost", "why"),
    [
        (answered("200 OK"), 0, ""),
        (answered("204 No Content"), 0, ""),
        (answered("200 OK", b"{}", content_type=JSON), 0, ""),
        (answered("200 OK", b'{"partialSuccess": {}}', content_type=f"{JSON}; charset=utf-8"), 0, ""),
        (answered("200 OK", rejecting(0, "a hint"), content_type=PROTOBUF), 0, ""),
        (answered("307 Temporary Redirect", b"x", location="/elsewhere"), 3, "307 (Temporary Redirect), which points"),
        (answered("200 OK", b"<html>Sign in</html>", content_type=HTML), 3, "200 with text/html, which is no OTLP"),
        (answered("200 OK", b"not JSON", content_type=JSON), 3, "200 with what is no OTLP"),
        (answered("200 OK", b"[]", content_type=JSON), 3, "200 with what is no OTLP"),
        (answered("200 OK", b"\xff\xff", content_type=PROTOBUF), 3, "200 with what is no OTLP"),
        (answered("200 OK", rejecting(2, "too old"), content_type=PROTOBUF), 2, "it rejected some (too old)"),
        (
            answered("200 OK", json.dumps({"partialSuccess": {"rejectedSpans": "2"}}).encode(), content_type=JSON),
            2,
            "it rejected some",
        ),
        (answered("400 Bad Request"), 3, "it answered 400 (Bad Request)"),
        (answered("503 Busy", retry_after="900"), 3, "it answered 503 (Busy)"),
        (b"This is no HTTP at all\r\n\r\n", 3, "it does not speak HTTP"),
    ],
)
def test_only_a_confirmation_is_believed(caplog, answer, lost, why) -> None:
    """A redirect, a page, a refusal of some or what is no answer confirm nothing; the warning says what it was."""
    with collector(answer) as url, observe_otel(endpoint=url, metrics=False) as observer:
        runs(observer, 3)
    if not lost:
        assert said(caplog) == []
        return
    [line] = said(caplog)
    assert line.startswith(f"telemetry: {lost} of 3 spans were not confirmed by 127.0.0.1:")
    assert why in line


def test_metrics_that_are_not_taken_are_counted(caplog, monkeypatch) -> None:
    """Metrics have a number, a collector and a reason of their own."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/v1/traces")
    with collector(answered("404 Not Found")) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{url}/v1/metrics")
        with observe_otel() as observer:
            runs(observer, 1)
    _, metrics = said(caplog)
    assert metrics.startswith(f"telemetry: 1 of 1 batches of metrics were not confirmed by {url[7:]}: ")
    assert metrics.endswith(": it answered 404 (Not Found)")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 500 No\r\n\r\n",
    ],
    ids=["until it closes", "long", "header lines", "error"],
)
@pytest.mark.parametrize(("again", "every_s"), [(b"x: y\r\n", 0.1), (b" " * 65_536, 0.0001)], ids=["drips", "floods"])
def test_an_answer_that_does_not_end_is_left(caplog, answer, again, every_s) -> None:
    """An answer that drips or never ends leaves no thread behind, and confirms nothing."""
    with collector(answer, again=again, every_s=every_s) as url:
        began = time.monotonic()
        with observe_otel(endpoint=url, metrics=False, flush_s=0.3) as observer:
            runs(observer, 1)
        assert time.monotonic() - began < SOON_S
        named = [thread.name for thread in threading.enumerate()]
    assert not [name for name in named if name.startswith(("Otel", "furcate-otel"))]
    [line] = said(caplog)
    assert "1 of 1 spans were not confirmed" in line


def test_one_export_takes_no_longer_than_it_may(monkeypatch, caplog) -> None:
    """The time limit of an export holds for all of it, however often a byte comes."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    with collector(b"HTTP/1.1 200 OK\r\n", again=b"x: y\r\n", every_s=0.05) as url:
        with observe_otel(endpoint=url, metrics=False, flush_s=30) as observer:
            runs(observer, 1)
    [line] = said(caplog)
    assert line.endswith(": no answer within 0.3 s")


def test_the_collectors_words_are_made_printable(caplog) -> None:
    """Control characters of a reason phrase reach no terminal, and a long one ends after a whole word."""
    phrase = "\x1b[31mred\x07 " + "word " * 60
    with collector(answered(f"400 {phrase}")) as url, observe_otel(endpoint=url, metrics=False) as observer:
        runs(observer, 1)
    [line] = said(caplog)
    assert line.isprintable()
    assert line.endswith("word ...)")


def test_a_collector_that_tells_a_secret_is_not_repeated(caplog) -> None:
    """A header's value that the collector sends back is not in the log, whole or without its scheme."""
    answer = answered("401 no sk-secret here, Bearer sk-secret")
    given = {"Authorization": "Bearer sk-secret"}
    with collector(answer) as url, observe_otel(endpoint=url, headers=given, metrics=False) as observer:
        runs(observer, 1)
    [line] = said(caplog)
    assert line.endswith(": it answered 401 (no *** here, ***)")


def test_headers_of_the_request_itself_are_no_secrets() -> None:
    """What every request has may be shown; what the user gave may not."""
    found = secrets_of({"User-Agent": "agent", "x-key": b"KEY-123", "Content-Type": "text/html", "x-empty": ""})
    assert found == ("KEY-123",)
    assert words("KEY-123 and agent", found) == "*** and agent"


def test_the_exporters_own_words_are_never_told(caplog) -> None:
    """Of what the exporter logs of our exports nothing is repeated, since it may hold headers and addresses."""
    with observe_otel(endpoint="http://127.0.0.1:9", metrics=False, flush_s=0.1) as observer:
        runs(observer, 1)
    assert _OwnWords().filter(logging.makeLogRecord({"msg": "somebody else's"}))
    [line] = said(caplog)
    assert line.endswith(": nobody listens there (connection refused)")


def test_a_full_queue_says_why_it_is_full(caplog) -> None:
    """Where nobody answers and the queue runs full, the warning names what is behind it."""
    with observe_otel(endpoint="http://127.0.0.1:9", metrics=False, queue_size=4, flush_s=0.1) as observer:
        deadline = time.monotonic() + SOON_S
        while not said(caplog) and time.monotonic() < deadline:
            runs(observer, 1)
            # The SDK's thread has the first batch refused before the queue is full.
            time.sleep(0.05)
        first = said(caplog)[0]
    assert "spans are being lost on the way to 127.0.0.1:9" in first
    assert "nobody listens there (connection refused)" in first


def test_a_host_that_is_not_there_is_said(caplog) -> None:
    """A name that nobody has is told as such."""
    with observe_otel(endpoint="http://collector.invalid:4318", metrics=False, flush_s=5) as observer:
        runs(observer, 1)
    [line] = said(caplog)
    assert "by collector.invalid:4318: " in line
