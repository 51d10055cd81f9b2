"""What must not grow unnoticed: objects and bytes of what is held by the thousand, calls of a run, an import's modules.

Nothing here measures time, so these say the same on any machine. Each ceiling is some 15 percent above what was counted
when it was set; whoever has to raise one knows what it costs.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import FrameType

import pytest

import furcate
from furcate.primitives._history import MemoKey
from furcate.primitives._wire import ResponseHead

BRANCHES = 300
TURNS = 5
PIECES = 200
PACKAGE = str(Path(furcate.__file__).parent) + os.sep

# Loaded when they are first needed: contracts, templates, files, telemetry, other HTTP libraries, the command line.
NOT_AT_IMPORT = (
    "aiohttp",
    "cattrs",
    "click",
    "difflib",
    "httpx2",
    "jsonschema_rs",
    "minijinja",
    "opentelemetry",
    "rich",
    "tomllib",
    "trio",
    "furcate.dialects.anthropic_messages",
    "furcate.dialects.google_generatecontent",
    "furcate.dialects.openai_responses",
)


def _shared(messages: int) -> furcate.History:
    pairs = [(furcate.Message.user(f"u{n}"), furcate.Message.assistant(f"a{n}")) for n in range(messages // 2)]
    return furcate.History([message for pair in pairs for message in pair])


def _branch(history: furcate.History, number: int) -> furcate.Exchange:
    for turn in range(TURNS):
        asked = furcate.Message.user(f"q{number}.{turn} ".ljust(40, "."))
        history = history.extend([asked, furcate.Message.assistant(f"a{number}.{turn} ".ljust(200, "."))])
    return furcate.Exchange(history, "held")


def _held(shared: furcate.History) -> tuple[float, float]:
    """Count bytes, and objects that the collector walks, of one of many branches."""
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        kept = [_branch(shared, number) for number in range(BRANCHES)]
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    walked = len(gc.get_objects()) - objects
    assert len(kept) == BRANCHES
    return size / BRANCHES, walked / BRANCHES


def test_a_branch_costs_what_it_adds() -> None:
    """Five turns of 240 characters cost 2.5 kB (1.7 of them text) and one walked object, however long the past is."""
    for messages in (2, 200):
        size, walked = _held(_shared(messages))
        assert size < 2900
        assert walked < 1.5


def test_a_turn_is_one_node() -> None:
    """An answer joins what asked for it, since each node of a branch keeps encoded forms of its own."""
    shared = _shared(4)
    asked = shared.extend([furcate.Message.user("q")])
    answered = asked.answered(furcate.Message.assistant("a"))
    assert answered.parent is shared
    assert answered == asked.extend([furcate.Message.assistant("a")])
    assert len(answered.nodes()) == 2


def test_a_fork_encodes_the_shared_part_once() -> None:
    """What is computed of a node is computed once, whichever branch asks."""
    key: MemoKey[int] = MemoKey("length")
    computed: list[int] = []

    def compute(node: furcate.History) -> int:
        computed.append(len(node))
        return len(node)

    shared = _shared(10)
    for number in range(3):
        for node in _branch(shared, number).history.nodes():
            node.memo(key, compute)
    assert computed.count(10) == 1
    assert len(computed) == 1 + 3 * TURNS


def test_a_long_conversation_is_let_go_on_a_small_stack() -> None:
    """Nodes are released one after the other, not one within the other: a stack of 64 kB is enough for all of them."""
    held = [_shared(2)]
    for _ in range(50_000):
        held[0] = held[0].extend([furcate.Message.user("q")])
    before = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(target=held.clear)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert not held


def test_import_loads_what_every_request_needs_only() -> None:
    """Each of these takes longer to load than all that a plain request needs of furcate's own."""
    program = "import sys, furcate; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not [name for name in NOT_AT_IMPORT if name in loaded]
    assert len([name for name in loaded if name.partition(".")[0] == "furcate"]) < 112


class _Canned:
    """Answer every request with the same bytes, in place of a transport and of its calls: no socket, no other task."""

    at_end = False

    def __init__(self, reads: Sequence[bytes]) -> None:
        self._reads = reads
        self._left: list[bytes] = []

    async def __aenter__(self) -> _Canned:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def call(self, *_: object, **_named: object) -> _Canned:
        self._left = list(reversed(self._reads))
        return self

    async def begin(self) -> ResponseHead:
        return ResponseHead(200, (("content-type", "text/event-stream"), ("date", "Mon, 01 Jan 2024 00:00:00 GMT")))

    async def receive(self, by_s: float = inf) -> bytes:
        del by_s
        return self._left.pop() if self._left else b""


def _chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    body = {"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _answered(pieces: int) -> list[bytes]:
    said = [_chunk({"content": f"w{number} "}) for number in range(pieces)]
    return [_chunk({"role": "assistant", "content": ""}), *said, _chunk({}, "stop"), b"data: [DONE]\n\n"]


def _is_ours(file: str) -> bool:
    # The methods that attrs makes have the name of their class in place of a file's.
    return file.startswith(PACKAGE) or (file.startswith("<attrs generated") and " furcate." in file)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Collect the names of furcate's functions as they are called, or go on after they waited."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and _is_ours(frame.f_code.co_filename):
            called.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)


async def _calls(reads: list[bytes], monkeypatch: pytest.MonkeyPatch, *, watched: bool) -> int:
    """Count the calls of one run, when everything that is made once has been made."""
    monkeypatch.setattr("furcate.orchestrator._engine.make_transport", lambda _: _Canned(reads))
    backend = furcate.Backend("b", dialect="openai-chat", base_url="http://127.0.0.1:9/v1", api_key="k")
    request = furcate.Request(messages=[furcate.Message.user("q")], profile="p")
    calls: list[int] = []
    async with furcate.Engine(backends=[backend], profiles=[furcate.Profile("p", "b", "m")]) as engine:
        for _ in range(3):
            with _counted() as called:
                if watched:
                    async with engine.stream(request) as stream:
                        async for _event in stream:
                            pass
                    result = stream.result
                else:
                    result = await engine.run(request)
            assert result.message.text.startswith("w0 ")
            calls.append(len(called))
    assert calls[1] == calls[2]
    return calls[2]


async def test_a_run_makes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what furcate adds to a small request are calls of its functions: 419 of them when this was set."""
    assert await _calls(_answered(1), monkeypatch, watched=False) < 480


@pytest.mark.parametrize(
    ("watched", "at_once", "ceiling"),
    [(False, False, 24), (False, True, 21), (True, False, 29), (True, True, 25.5)],
    ids=["unwatched", "unwatched-in-one-read", "watched", "watched-in-one-read"],
)
async def test_a_streamed_piece_makes_few_calls(
    watched: bool, at_once: bool, ceiling: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams have pieces by the thousand: 21 calls for one that nobody watches, 25 for others, fewer in one read."""

    async def calls_for(pieces: int) -> int:
        reads = _answered(pieces)
        return await _calls([b"".join(reads)] if at_once else reads, monkeypatch, watched=watched)

    assert (await calls_for(1 + PIECES) - await calls_for(1)) / PIECES < ceiling
