"""What must not grow unnoticed: objects and bytes of what is held by the thousand, and what an import loads.

Nothing here measures time, so these say the same on any machine. Each ceiling is some 15 percent above what was counted
when it was set; whoever has to raise one knows what it costs.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import tracemalloc

import furcate
from furcate.primitives._history import MemoKey

BRANCHES = 300
TURNS = 5

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
