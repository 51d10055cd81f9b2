"""``furcate batch``: every item once, whatever its lines hold and however often it is started."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from furcate.batch import open_journal
from furcate.testing import Answer, StubProvider, StubRequest, answer, error

Command = Callable[..., Any]

PROMPT = '[prompts.say]\nmessages = [{ role = "user", template = "Say {{ word }}." }]\n'


def word(request: StubRequest) -> str:
    """Give the word that a request is about."""
    said: str = request.body["messages"][-1]["content"]
    return said.removeprefix("Say ").removesuffix(".")


def echo(request: StubRequest) -> Answer:
    """Answer with the word."""
    return answer(word(request), usage={"prompt_tokens": 10, "completion_tokens": 2})


def write(path: str, *rows: object) -> None:
    """Write JSON lines, text as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    Path(path).write_text("".join(f"{line}\n" for line in lines))


def numbered(count: int) -> list[dict[str, str]]:
    """Make items."""
    return [{"id": f"i{number}", "word": f"w{number}"} for number in range(count)]


@pytest.fixture
def furcate(furcate_by_descriptor: Command) -> Command:
    """Run the command line in this process."""
    return furcate_by_descriptor


@pytest.fixture
def stub(configured: Command) -> Iterator[StubProvider]:
    """Serve a stub that echoes, with a prompt configured for it."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=PROMPT)
        yield stub


def by_id(lines: list[Any]) -> dict[str, str]:
    """Give the texts of finished items."""
    found = {line["id"]: line["result"]["text"] for line in lines if line["status"] == "finished"}
    assert len(found) == sum(1 for line in lines if line["status"] == "finished")
    return found


@pytest.mark.field(69)
@pytest.mark.parametrize(("more", "status"), [((), 1), (("--failed-status", "0"), 0)])
def test_bad_rows_do_not_kill_the_job(
    furcate: Command, configured: Command, loop: str, more: tuple[str, ...], status: int
) -> None:
    """97 results and 3 error lines with ids and line numbers; the exit status is the one that was asked for."""
    rows: list[object] = [{"id": f"i{number}", "word": f"w{number}"} for number in range(1, 101)]
    rows[36] = '{"id": "i37", '
    rows[51] = {"id": "i52"}
    write("items.jsonl", *rows)

    def script(request: StubRequest) -> Answer:
        return error(400, "no such thing") if word(request) == "w70" else echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT)
        said = furcate("batch", "say", "items.jsonl", "--loop", loop, *more)
        assert len(stub.requests) == 98
    assert said.status == status
    assert len(by_id(said.lines)) == 97
    failed = {line["line"]: (line["id"], line["error"]["kind"]) for line in said.lines if line["status"] == "failed"}
    assert failed == {37: (None, "malformed"), 52: ("i52", "RenderError"), 70: ("i70", "invalid_request")}
    assert "97 of 100 items finished, 3 failed (" in said.err
    listed = furcate("batch", "failures", "items.journal")
    assert [line.split()[:2] for line in listed.out.splitlines()] == [["line", "37"], ["line", "52"], ["line", "70"]]


@pytest.mark.field(39)
@pytest.mark.parametrize(("more", "status"), [((), 1), (("--failed-status", "0"), 0)])
def test_an_answer_of_another_form_stops_nothing(
    furcate: Command, configured: Command, loop: str, more: tuple[str, ...], status: int
) -> None:
    """Five items under a schema, the third answered by half an object: five lines, its own with the raw text."""
    write("items.jsonl", *numbered(5))

    def script(request: StubRequest) -> Answer:
        return answer('{"a": 1' if word(request) == "w2" else '{"a": 1}')

    form = '\ncontract = { schema = { type = "object", required = ["a"] }, repairs = 0 }\n'
    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT.rstrip() + form)
        said = furcate("batch", "say", "items.jsonl", "--loop", loop, *more)
    assert said.status == status
    found = {line["id"]: line["result"] for line in said.lines}
    assert len(said.lines) == len(found) == 5
    bad = found.pop("i2")
    assert (bad["validation"], bad["text"]) == ("failed", '{"a": 1')
    assert {good["validation"] for good in found.values()} == {"passed"}
    assert "5 of 5 items finished" in said.err
    assert "1 answer does not meet its contract" in said.err


@pytest.mark.field(70)
def test_a_resumed_job_goes_by_ids(furcate: Command, stub: StubProvider) -> None:
    """After six of ten a line is deleted and two are swapped: only unfinished items are sent, none is mispaired."""
    rows = numbered(10)
    write("items.jsonl", *rows)
    assert furcate("batch", "say", "items.jsonl", "--limit", "6").status == 0
    assert len(stub.requests) == 6
    done = {word(request) for request in stub.requests}
    del rows[1]
    rows[5], rows[7] = rows[7], rows[5]
    write("items.jsonl", *rows)
    said = furcate("batch", "say", "items.jsonl")
    assert said.status == 0
    assert len(stub.requests) == 10
    assert {word(request) for request in stub.requests[6:]}.isdisjoint(done)
    assert by_id(said.lines) == {f"i{n}": f"w{n}" for n in range(10) if n != 1}
    assert "the items no longer have 1 of those in the journal" in said.err


@pytest.mark.field(72)
def test_equal_items_with_ids_of_their_own_stay_three(furcate: Command, configured: Command) -> None:
    """Three requests, three lines, and the same lines after a resume."""
    write("items.jsonl", *({"id": name, "word": "same"} for name in "abc"))
    answers = iter(["one", "two", "three"])
    with StubProvider.in_thread(lambda request: answer(next(answers))) as stub:
        configured(stub.base_url, more=PROMPT)
        furcate("batch", "say", "items.jsonl", "--limit", "2", "--concurrency", "1")
        first = furcate("batch", "say", "items.jsonl", "--concurrency", "1")
        again = furcate("batch", "say", "items.jsonl")
        assert len(stub.requests) == 3
    assert by_id(first.lines) == {"a": "one", "b": "two", "c": "three"}
    assert again.out == first.out


@pytest.mark.field(74)
def test_results_come_in_either_order(furcate: Command, configured: Command, loop: str) -> None:
    """Items that finish in reverse are written as they end, each with its own id, or in the order of the items."""
    write("items.jsonl", *numbered(4))
    ended = [anyio.Event() for _ in range(5)]

    async def script(request: StubRequest) -> Answer:
        number = int(word(request)[1:])
        if number < 3:
            await ended[number + 1].wait()
            await anyio.sleep(0.2)
        ended[number].set()
        return echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=f'{PROMPT}[backends.other]\ncapacity = 4\nbase_url = "{stub.base_url}"\n')
        text = Path("furcate.toml").read_text().replace('backend = "stub"', 'backend = "other"')
        Path("furcate.toml").write_text(text)
        said = furcate("batch", "say", "items.jsonl", "--loop", loop)
    assert [line["id"] for line in said.lines] == ["i3", "i2", "i1", "i0"]
    assert by_id(said.lines) == {f"i{n}": f"w{n}" for n in range(4)}
    ordered = furcate("batch", "say", "items.jsonl", "--order", "items", "--results", "out.jsonl")
    assert ordered.out == ""
    assert [json.loads(line)["id"] for line in Path("out.jsonl").read_text().splitlines()] == ["i0", "i1", "i2", "i3"]
    assert [line["id"] for line in furcate("batch", "results", "items.journal").lines] == ["i0", "i1", "i2", "i3"]
    lines = furcate("batch", "results", "items.journal", "--order", "ends").lines
    assert [line["id"] for line in lines] == ["i3", "i2", "i1", "i0"]


@pytest.mark.field(75)
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_id_that_occurs_twice_is_refused(furcate: Command, stub: StubProvider, more: tuple[str, ...]) -> None:
    """Both lines are named, nothing is sent, and nothing is written."""
    write("items.jsonl", {"id": "a", "word": "x"}, {"id": "b", "word": "y"}, {"id": "a", "word": "z"})
    said = furcate("batch", "say", "items.jsonl", *more)
    assert (said.status, said.out) == (2, "")
    assert said.err == (
        "furcate: items.jsonl: two items have the id 'a' (lines 1 and 3); give each item an id of its own\n"
    )
    assert not stub.requests


@pytest.mark.field(77)
@pytest.mark.parametrize(
    ("what", "told"),
    [("template", "prompt say"), ("model", "profile only"), ("code", "code"), ("item", "'i1' (line 2)")],
)
def test_what_changed_is_refused_or_done_again(furcate: Command, stub: StubProvider, what: str, told: str) -> None:
    """The message names what is another and what to do; --changed redo does those items again, keep does nothing."""
    rows = numbered(3)
    write("items.jsonl", *rows)
    assert furcate("batch", "say", "items.jsonl").status == 0
    changed = {"template": ("Say {{", "Please say {{"), "model": ('model = "m"', 'model = "n"')}
    if what in changed:
        path = Path("furcate.toml")
        path.write_text(path.read_text().replace(*changed[what]))
    if what == "item":
        rows[1]["word"] = "new"
        write("items.jsonl", *rows)
    again = ("batch", "say", "items.jsonl", *(("--code", "2") if what == "code" else ()))
    refused = furcate(*again)
    assert (refused.status, refused.out) == (2, "")
    assert told in refused.err
    assert "(--changed redo, or --changed keep)" in refused.err
    kept = furcate(*again, "--changed", "keep")
    assert (kept.status, len(kept.lines), len(stub.requests)) == (0, 3, 3)
    redone = furcate(*again, "--changed", "redo")
    assert (redone.status, len(redone.lines)) == (0, 3)
    assert len(stub.requests) == (4 if what == "item" else 6)


def test_the_journal_of_another_target_is_told(furcate: Command, stub: StubProvider) -> None:
    """Two targets with one file of items would share a journal by default; the second is told to name another."""
    path = Path("furcate.toml")
    path.write_text(path.read_text() + PROMPT.replace("say", "shout"))
    write("items.jsonl", *numbered(1))
    assert furcate("batch", "say", "items.jsonl").status == 0
    said = furcate("batch", "shout", "items.jsonl")
    assert said.status == 2
    assert "items.journal: this is the journal of target 'say'; name another by --journal" in said.err


FUNCTIONS = """
import furcate

async def twice(item, job):
    print("not a result")
    first = await job.engine.run(furcate.Request("say", vars=item, profile="only", capture=True))
    second = await job.engine.continue_from(first.exchange, furcate.Request("say", vars=item, profile="only"))
    return {"id": job.item_id, "line": job.line, "said": [first.text, second.text]}

async def nothing(item, job):
    return item

async def swallows(item, job):
    try:
        await job.engine.run(furcate.Request("say", vars=item, profile="only"))
    except Exception:
        return "swallowed"

def no_async(item, job):
    return None

async def one(item):
    return None

async def many(item, job):
    yield None

five = 5
"""


def test_a_function_is_found_in_this_folder(furcate: Command, stub: StubProvider, loop: str) -> None:
    """It may ask as often as it likes, what it prints is no result, and its journal is beside the items."""
    Path("work.py").write_text(FUNCTIONS)
    write("items.jsonl", *numbered(3))
    said = furcate("batch", "work:twice", "items.jsonl", "--loop", loop)
    assert said.status == 0
    assert {line["id"]: line["result"] for line in said.lines} == {
        f"i{n}": {"id": f"i{n}", "line": n + 1, "said": [f"w{n}", f"w{n}"]} for n in range(3)
    }
    assert "not a result" in said.err
    assert len(stub.requests) == 6
    assert Path("items.journal").exists()


def test_a_function_that_leaves_the_program_fails_alone(furcate: Command, stub: StubProvider, loop: str) -> None:
    """The others are finished, and the sentence says what to do instead."""
    Path("leave.py").write_text(
        "import sys\nasync def go(item, job):\n    return sys.exit(3) if item['id'] == 'i1' else 'stays'\n"
    )
    write("items.jsonl", *numbered(3))
    said = furcate("batch", "leave:go", "items.jsonl", "--loop", loop)
    assert said.status == 1
    assert {line["id"]: line["status"] for line in said.lines} == {"i0": "finished", "i1": "failed", "i2": "finished"}
    [failed] = [line for line in said.lines if line["status"] == "failed"]
    assert "tried to leave the program (SystemExit 3)" in failed["error"]["message"]
    assert failed["error"]["kind"] == "SystemExit"


def test_a_function_is_known_by_what_it_was_called(furcate: Command, stub: StubProvider) -> None:
    """Also where it was defined elsewhere, so that what `retry` tells is the command that was given."""
    Path("helpers.py").write_text("async def act(item, job):\n    return 1\n")
    Path("mine.py").write_text("from helpers import act as go\n")
    write("items.jsonl", *numbered(1))
    assert furcate("batch", "mine:go", "items.jsonl").lines[0]["result"] == 1
    [found] = furcate("batch", "status", "items.journal", "--json").lines
    assert found["target"] == "mine:go"


@pytest.mark.parametrize("raised", ["GeneratorExit", "Mine"])
def test_what_is_no_exception_ends_the_job_with_a_sentence(
    furcate: Command, stub: StubProvider, loop: str, raised: str
) -> None:
    """No traceback, and the status says that something failed."""
    Path("work.py").write_text(
        f"class Mine(BaseException):\n    pass\nasync def go(item, job):\n    raise {raised}('no')\n"
    )
    write("items.jsonl", *numbered(1))
    said = furcate("batch", "work:go", "items.jsonl", "--loop", loop)
    assert said.status == 1
    assert said.err.splitlines()[-1] == f"furcate: unexpected {raised}: no; `furcate --debug ...` shows where"
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shout", "is no configured prompt (there are: 'say') and no module:function"),
        ("nowhere:f", "there is no module 'nowhere' in this folder or among the installed ones"),
        ("work:none", "module 'work' has no 'none'"),
        ("work:no_async", "give an async function"),
        ("work:one", "write async def target(item, job)"),
        ("work:many", "is an async generator, which yields; let it return one value"),
        ("work:five", "is no function, but of the type int"),
        ("./work.py:twice", "names a file, where the name of a module is wanted; write work:twice"),
        ("work.py:twice", "names a file, where the name of a module is wanted; write work:twice"),
        ("parts/work.py:twice", "names a file, where the name of a module is wanted; write parts.work:twice"),
        ("../work.py:twice", "names a file, where the name of a module is wanted; go to its folder"),
        (":twice", "has no module before the colon; write it as module:function"),
        ("work:", "has no function after the colon; write it as module:function"),
    ],
)
def test_what_is_no_target_is_told(furcate: Command, stub: StubProvider, target: str, told: str) -> None:
    """One sentence, the status of wrong use, and no journal."""
    Path("work.py").write_text(FUNCTIONS)
    write("items.jsonl", *numbered(1))
    said = furcate("batch", target, "items.jsonl")
    assert said.status == 2
    assert told in said.err
    assert len(said.err.splitlines()) == 1
    assert not Path("items.journal").exists()


@pytest.mark.parametrize(
    ("target", "sent", "asks_nothing", "failed"),
    [("say", 3, 0, 2), ("work:swallows", 3, 0, 2), ("work:nothing", 0, 4, 1)],
)
def test_a_dry_run_sends_nothing(
    furcate: Command, stub: StubProvider, loop: str, target: str, *, sent: int, asks_nothing: int, failed: int
) -> None:
    """Every item is rendered and encoded up to its first request; failures are told by line; no journal is made."""
    Path("work.py").write_text(FUNCTIONS.replace("except Exception", "except ZeroDivisionError"))
    write("items.jsonl", *numbered(3), {"id": "bare"}, "{")
    said = furcate("batch", target, "items.jsonl", "--dry-run", "--loop", loop)
    assert said.status == 1
    assert not stub.requests
    assert f"dry run: {sent} items would be sent; nothing was" in said.err
    assert ("4 items would ask nothing" in said.err) == bool(asks_nothing)
    assert ("bytes: from " in said.err) == bool(sent)
    assert [line["line"] for line in said.lines] == [4, 5][2 - failed :]
    assert not Path("items.journal").exists()


def test_a_dry_run_is_not_fooled_by_what_swallows_errors(furcate: Command, stub: StubProvider) -> None:
    """A target that goes on after any error would have sent its first request all the same."""
    Path("work.py").write_text(FUNCTIONS)
    write("items.jsonl", *numbered(2))
    said = furcate("batch", "work:swallows", "items.jsonl", "--dry-run")
    assert said.status == 0
    assert "dry run: 2 items would be sent; nothing was" in said.err


def test_messages_may_take_the_place_of_a_target(furcate: Command, stub: StubProvider) -> None:
    """A template on the command line is enough; another text is a change."""
    Path("items.csv").write_text("id,word\n1,one\n2,two\n")
    said = furcate("batch", "-m", "Say {{ word }}.", "items.csv")
    assert said.status == 0
    assert by_id(said.lines) == {"1": "one", "2": "two"}
    assert "what is another: prompt (message)" in furcate("batch", "-m", "Sing {{ word }}.", "items.csv").err
    broken = furcate("batch", "-m", "Say {{ word", "items.csv")
    assert broken.status == 2
    assert "unexpected end of input" in broken.err


def test_a_target_may_be_called_like_a_subcommand(furcate: Command, stub: StubProvider) -> None:
    """The subcommand wins; written out, start takes the target."""
    path = Path("furcate.toml")
    path.write_text(path.read_text() + PROMPT.replace("say", "status"))
    write("items.jsonl", *numbered(1))
    assert furcate("batch", "status", "items.jsonl").status == 2
    assert by_id(furcate("batch", "start", "status", "items.jsonl").lines) == {"i0": "w0"}


def test_too_many_failures_end_the_job(furcate: Command, configured: Command) -> None:
    """--max-failures begins no more, --fail-fast cancels what runs; --failed-status does not make either a success."""
    write("items.jsonl", *numbered(30))
    with StubProvider.in_thread(error(400, "no")) as stub:
        configured(stub.base_url, more=PROMPT)
        given = ("batch", "say", "items.jsonl", "--concurrency", "1", "--failed-status", "0")
        said = furcate(*given, "--max-failures", "2")
        assert (said.status, len(stub.requests)) == (1, 3)
        assert "27 items left, since more than 2 failed; the same command goes on" in said.err
        said = furcate(*given, "--fail-fast")
        assert said.status == 1
        assert len(stub.requests) <= 5
        assert "since one failed and --fail-fast is set" in said.err


def test_failed_items_are_tried_again_when_that_is_asked(furcate: Command, configured: Command) -> None:
    """A start leaves failed items alone; after a retry, of one kind or of all, the same command does them again."""
    write("items.jsonl", *numbered(3), {"id": "bare"})
    with StubProvider.in_thread(lambda request: error(500, "no") if len(stub.requests) <= 3 else echo(request)) as stub:
        configured(stub.base_url, more=PROMPT)
        assert furcate("batch", "say", "items.jsonl").status == 1
        again = furcate("batch", "say", "items.jsonl")
        assert (again.status, len(stub.requests), len(again.lines)) == (1, 3, 4)
        assert "4 failed before ('furcate batch retry items.journal' has them tried again)" in again.err
        for command in ("retry", "failures"):
            told = furcate("batch", command, "items.journal", "--kind", "timeout")
            assert told.err.startswith("furcate: no item failed with timeout; there are: provider, RenderError\n")
        told = furcate("batch", "retry", "items.journal", "--kind", "provider")
        assert told.status == 0
        assert "3 failed items are to be tried again" in told.err
        assert "furcate batch say items.jsonl --journal items.journal" in told.err
        said = furcate("batch", "say", "items.jsonl")
    assert by_id(said.lines) == {f"i{n}": f"w{n}" for n in range(3)}
    assert said.status == 1


def test_a_status_for_people_and_one_for_programs(furcate: Command, stub: StubProvider) -> None:
    """Both tell the same counts, and both work while the job runs."""
    write("items.jsonl", *numbered(3), "{")
    furcate("batch", "say", "items.jsonl", "--limit", "2")
    told = dict(line.split(None, 1) for line in furcate("batch", "status", "items.journal").out.splitlines())
    assert (told["finished"], told["failed"], told["state"]) == ("2", "1 (1 malformed)", "not running")
    [found] = furcate("batch", "status", "items.journal", "--json").lines
    assert {"items": 4, "finished": 2, "failed": 1, "pending": 1, "running": None}.items() <= found.items()
    assert found["usage"]["output_tokens"] == {"tokens": 4, "at_least": 0, "unknown": 0}


async def test_a_job_that_runs_elsewhere_is_told(stub: StubProvider, spawn: Command) -> None:
    """A second process is refused with the first one's number, and may look at the journal."""
    write("items.jsonl", *numbered(1))
    async with open_journal("items.journal"):
        process = spawn("batch", "say", "items.jsonl")
        _, err = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 2
        assert "items.journal: another process (pid " in err
        assert not stub.requests


def test_items_from_standard_input_need_a_journal(furcate: Command, stub: StubProvider, spawn: Command) -> None:
    """Named, it works, and resumes; unnamed, the sentence says what to give."""
    said = furcate("batch", "say", "-")
    assert said.status == 2
    assert "name the journal by --journal FILE" in said.err
    with Path("given.jsonl").open("w+") as given:
        given.write("".join(json.dumps(item) + "\n" for item in numbered(3)))
        given.seek(0)
        process = spawn("batch", "say", "-", "--journal", "job.journal", stdin=given)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert Counter(json.loads(line)["id"] for line in out.splitlines()) == {"i0": 1, "i1": 1, "i2": 1}


@pytest.mark.parametrize("option", ["--results", "--journal", "--receipts"])
@pytest.mark.parametrize("name", ["items.jsonl", "furcate.toml", "work.py"])
def test_nothing_that_is_read_is_written_over(furcate: Command, stub: StubProvider, option: str, name: str) -> None:
    """What the job reads is refused as a place to write to."""
    Path("work.py").write_text(FUNCTIONS)
    write("items.jsonl", *numbered(1))
    before = Path(name).read_bytes()
    said = furcate("batch", "work:nothing", "items.jsonl", option, name)
    assert said.status == 2
    assert said.err.startswith(f"furcate: {option} {name} is ")
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize("content", ["", "\n\n", None])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_input_without_items_is_told(
    furcate: Command, stub: StubProvider, content: str | None, more: tuple[str, ...]
) -> None:
    """It is no error, and perhaps not what was meant."""
    name = "items.csv" if content is None else "items.jsonl"
    Path(name).write_text("id,word\n" if content is None else content)
    said = furcate("batch", "say", name, *more)
    assert (said.status, said.out) == (0, "")
    assert said.err.startswith(f"furcate: there is no item in {name}\n")


def test_lines_that_cannot_be_read_are_to_be_mended(furcate: Command, stub: StubProvider) -> None:
    """Where nothing else failed, a retry is not what is advised, and would do nothing."""
    write("items.jsonl", *numbered(1), "{")
    said = furcate("batch", "say", "items.jsonl")
    assert "mend the lines, and the same command does them" in said.err
    assert "retry" not in said.err
    assert furcate("batch", "say", "items.jsonl").err.startswith(
        "furcate: items.journal has 1 finished item; 0 to do\n"
    )
    assert furcate("batch", "retry", "items.journal").err == (
        "no failed item is there to be tried again\n1 item cannot be read and stays failed until its line is mended\n"
    )


def test_a_second_retry_says_what_the_first_one_did(furcate: Command, stub: StubProvider) -> None:
    """The items wait for the next start, which is told again, such that a shell takes it."""
    write("my items.jsonl", {"id": "bare"}, {"id": "bare too"})
    furcate("batch", "say", "my items.jsonl")
    first = furcate("batch", "retry", "my items.journal").err.splitlines()
    second = furcate("batch", "retry", "my items.journal").err.splitlines()
    assert first[0] == "2 failed items are to be tried again"
    assert second[0] == "no failed item is there to be tried again; 2 items are waiting for the next start already"
    assert first[1] == second[1]
    assert first[1].endswith(": furcate batch say 'my items.jsonl' --journal 'my items.journal'")


@pytest.mark.parametrize("command", ["retry", "status", "results", "failures"])
def test_a_file_without_a_journal_is_left_as_it_is(furcate: Command, command: str) -> None:
    """Neither does an empty file become a journal, nor does anything stand beside it afterwards."""
    Path("empty").touch()
    said = furcate("batch", command, "empty")
    assert (said.status, said.out) == (2, "")
    assert said.err == "furcate: empty: there is no journal here, only an empty database\n"
    assert [(path.name, path.stat().st_size) for path in Path().iterdir()] == [("empty", 0)]


def test_a_status_claims_no_more_than_is_known(furcate: Command, stub: StubProvider) -> None:
    """Items that asked nothing have no tokens, which is known, and what was quick took less than a second."""
    Path("work.py").write_text(FUNCTIONS)
    write("items.jsonl", *numbered(1))
    furcate("batch", "work:nothing", "items.jsonl")
    told = dict(line.split(None, 1) for line in furcate("batch", "status", "items.journal").out.splitlines())
    assert told["tokens"] == "input 0, cache read 0, cache write 0, output 0, reasoning 0"
    assert told["times"].endswith("(less than 1 s between)")
