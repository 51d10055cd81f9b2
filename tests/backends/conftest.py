"""Real servers that take traces, and a nursery of branches in which something of everything happens.

The servers are looked for in the folders that the variable ``FURCATE_BACKENDS`` names, else on the path. Best those are
the ``bin`` of an environment for each: they bring half of PyPI along, and one of them a plugin that pytest chokes on.
Each server has a new database and free ports.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from attrs import define, field, frozen

import furcate
from furcate.observers._otel_setup import observe_otel
from furcate.testing import Answer, StubProvider, StubRequest, answer, error, no_head

ROOT = Path(__file__).resolve().parents[2]
WHERE = os.environ.get("FURCATE_BACKENDS")
# The first start after an installation compiles everything these packages hold.
START_S = 600.0
ARRIVE_S = 120.0
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and give its first test the time that a server takes to start."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.backends)
            item.add_marker(pytest.mark.timeout(START_S + 120))


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Give a client of an MLflow server; skip where it is not installed."""
    folder = tmp_path_factory.mktemp("mlflow")
    [port] = _free_ports(1)
    command = ["mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1"]
    stores = ["--backend-store-uri=sqlite:///mlflow.db", "--artifacts-destination=artifacts"]
    # Its workers for jobs are eight more processes, which nobody here gives work.
    environment = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _served([*command, *stores], folder, environment, f"http://127.0.0.1:{port}", "/health") as client:
        yield client


@pytest.fixture(scope="session")
def phoenix_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """Give a client of a Phoenix server; skip where it is not installed."""
    folder = tmp_path_factory.mktemp("phoenix")
    port, grpc_port = _free_ports(2)
    environment = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    command = ["phoenix", "serve"]
    with _served(command, folder, environment, f"http://127.0.0.1:{port}", "/healthz") as client:
        yield client


def _free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextmanager
def _served(
    command: list[str], folder: Path, environment: Mapping[str, str], base_url: str, health: str
) -> Iterator[httpx2.Client]:
    program = shutil.which(command[0], path=WHERE)
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MLFLOW_", "PHOENIX_"))}
    log = folder / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [program, *command[1:]],
            cwd=folder,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as server,
        httpx2.Client(base_url=base_url, timeout=ARRIVE_S, trust_env=False) as client,
    ):
        try:
            _await_health(server, client, health, log)
            yield client
        finally:
            _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server with all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def _await_health(server: subprocess.Popen[bytes], client: httpx2.Client, health: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            if client.get(health).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")


@frozen(kw_only=True)
class Span:
    """Hold what a backend gives back of one span, ids in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    status: Literal["UNSET", "OK", "ERROR"]
    message: str
    attributes: Mapping[str, Any]
    events: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


@define
class Story:
    """Tell what happened in a nursery of branches, and hold a backend's spans against it.

    Attributes:
        group: counted every run.
        recorder: heard everything.
        branches: how each branch ended, by its name.
    """

    group: furcate.Group = field(factory=lambda: furcate.Group("story"))
    recorder: furcate.Recorder = field(factory=furcate.Recorder)
    branches: dict[str, str] = field(factory=dict)

    async def run(self, observer: furcate.Observer) -> None:
        """Fork five branches: one ends well, one is repaired, one tried again, one fails, one is cancelled."""
        ended: list[furcate.Observation] = []
        others_ended = anyio.Event()

        def count(event: furcate.Observation) -> None:
            if isinstance(event, furcate.CoordinatorFinished):
                ended.append(event)
                if len(ended) == 4:
                    others_ended.set()

        async with StubProvider(_Script()) as stub, self._engine(stub, observer) as engine:
            draft = (await engine.run(_ask("begin", groups=[self.group], capture=True))).exchange
            async with furcate.open_branches(
                engine, draft, name="sides", groups=[self.group], observers=[count]
            ) as branches:
                branches.start_soon(_follow("clear 1", "clear 2"), additional_turns=2, name="clear")
                for text in ("repaired", "busy", "broken", "left"):
                    branches.start_soon(_follow(text), additional_turns=1, name=text)
                await others_ended.wait()
                await stub.wait_until(lambda s: s.in_flight == 1)
                branches.cancel()
            self.branches = {str(branch.name): branch.status for branch in branches}
            async with self._engine(stub, observer) as other:
                await other.continue_from(draft, _ask("elsewhere", groups=[self.group]))

    def _engine(self, stub: StubProvider, observer: furcate.Observer) -> furcate.Engine:
        retry = furcate.RetryPolicy(attempts=2, first_backoff_s=0.001, max_backoff_s=0.002)
        return furcate.Engine(
            backends=[furcate.Backend("stub", base_url=stub.base_url, capacity=5, retry=retry)],
            profiles=[furcate.Profile("p", "stub", "some-model")],
            observers=[observer, self.recorder],
        )

    @property
    def tokens(self) -> tuple[int, int]:
        """Input tokens, with those that a cache served, and output tokens of all runs, as the group counted them."""
        usage = self.group.summary().usage
        read, written = usage.cache_read_tokens.known, usage.cache_write_tokens.known
        return (usage.input_tokens.known or 0) + (read or 0) + (written or 0), usage.output_tokens.known or 0

    @property
    def spans(self) -> int:
        """How many spans it makes: one for each nursery, branch, run and attempt."""
        kinds = (furcate.NurseryStarted, furcate.CoordinatorStarted, furcate.RunStarted, furcate.AttemptStarted)
        return sum(len(self.recorder.of(kind)) for kind in kinds)

    def check_ends(self) -> None:
        """See that the story went as it should; everything else is held against it."""
        assert self.branches == {
            "clear": "succeeded",
            "repaired": "succeeded",
            "busy": "succeeded",
            "broken": "failed",
            "left": "cancelled",
        }
        summary = self.group.summary()
        assert (summary.succeeded, summary.failed, summary.cancelled, summary.running) == (6, 1, 1, 0)
        assert (summary.attempts, summary.repairs) == (10, 1)
        assert self.tokens == (7 * 111, 7 * 7)

    def check_spans(self, spans: list[Span]) -> None:
        """Compare names, parents, attributes and status of a backend's spans with what was heard."""
        runs = _by(spans, "furcate.run.id", lambda span: "furcate.attempt.number" not in span.attributes)
        scopes = _by(spans, "furcate.scope.id", lambda span: "furcate.run.id" not in span.attributes)
        [nursery] = self.recorder.of(furcate.NurseryStarted)
        root = scopes.pop(nursery.scope_id)
        assert (root.name, root.parent_id, root.status) == ("invoke_workflow sides", None, "UNSET")
        for begun in self.recorder.of(furcate.CoordinatorStarted):
            span = scopes.pop(begun.scope_id)
            assert (span.name, span.parent_id) == (f"invoke_workflow {begun.name}", root.span_id)
            assert span.trace_id == root.trace_id
            assert span.status == ("ERROR" if begun.name == "broken" else "UNSET")
        assert not scopes
        assert runs.keys() == {entry.run_id for entry in self.group.summary().runs}
        for run in self.recorder.of(furcate.RunStarted):
            self._check_run(run, runs, spans)

    def _check_run(self, begun: furcate.RunStarted, runs: dict[str, Span], spans: list[Span]) -> None:
        span = runs[begun.run_id]
        [ended] = [end for end in self.recorder.of(furcate.RunFinished) if end.run_id == begun.run_id]
        around = next((one.span_id for one in spans if _is_scope(one, begun.scope_id)), None)
        assert (span.name, span.parent_id) == ("chat some-model", around)
        assert span.attributes["furcate.status"] == ended.status
        assert span.status == ("ERROR" if ended.status == "failed" else "UNSET")
        attempts = [one for one in spans if one.parent_id == span.span_id]
        assert all(one.trace_id == span.trace_id for one in attempts)
        purposes = sorted(one.attributes["furcate.attempt.purpose"] for one in attempts)
        heard = [one for one in self.recorder.of(furcate.AttemptStarted) if one.run_id == begun.run_id]
        assert purposes == sorted(one.purpose for one in heard)
        assert not [name for one in attempts for name in one.attributes if name.startswith("gen_ai.usage.")]
        if begun.parent_run_id is None:
            assert "furcate.parent.run.id" not in span.attributes
            return
        source = runs[begun.parent_run_id]
        assert span.attributes["furcate.parent.run.id"] == begun.parent_run_id
        assert span.attributes["furcate.parent.trace_id"] == source.trace_id
        assert span.attributes["furcate.parent.span_id"] == source.span_id

    def check_links(self, spans: list[Span]) -> None:
        """See that every span that goes on from a run is linked to that run's span, and no other span is."""
        runs = _by(spans, "furcate.run.id", lambda span: "furcate.attempt.number" not in span.attributes)
        continuing = 0
        for span in spans:
            source = runs.get(span.attributes.get("furcate.parent.run.id", ""))
            assert span.links == (() if source is None else ((source.trace_id, source.span_id),)), span.name
            continuing += source is not None
        assert continuing == 1 + 5 + 7, "a nursery, its branches, and all runs but the first"


def _by(spans: list[Span], attribute: str, wanted: Callable[[Span], bool]) -> dict[str, Span]:
    found = [span for span in spans if attribute in span.attributes and wanted(span)]
    by_id = {str(span.attributes[attribute]): span for span in found}
    assert len(by_id) == len(found), f"two spans have the same {attribute}"
    return by_id


def _is_scope(span: Span, scope_id: str | None) -> bool:
    attributes = span.attributes
    return (
        scope_id is not None and attributes.get("furcate.scope.id") == scope_id and "furcate.run.id" not in attributes
    )


def _ask(text: str, **given: Any) -> furcate.Request:
    return furcate.Request(profile="p", messages=text, **given)


def _follow(*texts: str) -> Callable[[furcate.Turn], Awaitable[furcate.Action]]:
    left = list(texts)

    async def next_action(turn: furcate.Turn) -> furcate.Action:
        if not left:
            return furcate.Stop()
        text = left.pop(0)
        contract = furcate.Contract(SCHEMA, repairs=1) if text == "repaired" else None
        return furcate.Continue(_ask(text, contract=contract))

    return next_action


@define
class _Script:
    """Answer by what the user asked first in the turn; what is repaired or tried again ends well the second time."""

    seen: dict[str, int] = field(factory=dict)

    def __call__(self, request: StubRequest) -> Answer:
        texts = [str(message["content"]) for message in request.body["messages"]]
        topic = next(text for text in ("repaired", "busy", "broken", "left", "") if text in texts or not text)
        self.seen[topic] = self.seen.get(topic, 0) + 1
        first = self.seen[topic] == 1
        usage = furcate.Usage(input_tokens=60, cache_read_tokens=50, cache_write_tokens=1, output_tokens=7)
        match topic:
            case "broken":
                return error(400, "no such thing")
            case "left":
                return no_head(silent=True)
            case "busy" if first:
                return error(503, "busy")
            case "repaired" if first:
                return answer("words", usage=usage)
        return answer('{"n": 1}', usage=usage)


@pytest.fixture
def story() -> Story:
    """Give a story that is still to run."""
    return Story()


@pytest.fixture
def until_stored() -> Callable[[Callable[[], Any]], Any]:
    """Ask a backend until it gives something, since it may store in the background what it took."""

    def ask(question: Callable[[], Any]) -> Any:
        end = time.monotonic() + ARRIVE_S
        while not (found := question()):
            assert time.monotonic() < end, "the backend did not store everything in time"
            time.sleep(0.2)
        return found

    return ask


@pytest.fixture
def make_span() -> type[Span]:
    """Give the form in which a story takes spans."""
    return Span


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[furcate.Observer]]:
    """Make an observer that sends to a server, as the standard variables say, for a block that ends when it is sent."""

    def observe(client: httpx2.Client, header: str, **given: Any) -> AbstractContextManager[furcate.Observer]:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{str(client.base_url).rstrip('/')}/v1/traces")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", header)
        return observe_otel(flush_s=120, **given)

    return observe


@pytest.fixture
def documented(tmp_path: Path) -> Callable[[Mapping[str, str]], list[str]]:
    """Run the program of the page about tracing as its reader does, on a scripted provider; give what it prints."""

    def run(environment: Mapping[str, str]) -> list[str]:
        page = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
        [program] = re.findall(r"^```python file=sides.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        [configuration] = re.findall(r"^```toml config\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        (tmp_path / "sides.py").write_text(program, encoding="utf-8")
        with StubProvider.in_thread(answer("It stands.")) as stub:
            elsewhere = configuration.replace('kind = "embedded"', f'base_url = "{stub.base_url}"')
            elsewhere = elsewhere.replace('backend = "local"', 'backend = "local"\nmodel = "some-model"')
            (tmp_path / "furcate.toml").write_text(elsewhere, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "sides.py"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
                capture_output=True,
                text=True,
                timeout=ARRIVE_S,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


@pytest.fixture
def variables() -> Callable[[str, httpx2.URL], dict[str, str]]:
    """Give the variables that the page about tracing exports in its commands for a server."""

    def read(program: str, base_url: httpx2.URL) -> dict[str, str]:
        page = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
        commands = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        [block] = [block for block in commands if f"\n{program} " in block]
        assert len(block.splitlines()) == 4
        [line] = [line for line in block.splitlines() if line.startswith("export ")]
        given = dict(word.split("=", 1) for word in line.split()[1:])
        return {name: re.sub(r"http://127.0.0.1:\d+", str(base_url).rstrip("/"), text) for name, text in given.items()}

    return read
