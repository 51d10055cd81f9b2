"""Jobs of many items, from the first line to the journal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import sniffio

import furcate
from furcate.batch import ItemJob, JobOptions, open_job, read_journal, write_rows
from furcate.primitives._errors import ItemsError, JournalError
from furcate.testing import PromptCache, StubProvider, answer, error

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
SAY = furcate.Prompt("say", [furcate.MessageTemplate("user", "Say {{ word }}.")], profile="p")


def engine_for(stub: StubProvider, *, prompts=(SAY,), model: str = "m", capacity: int = 8) -> furcate.Engine:
    return furcate.Engine(
        backends=[
            furcate.Backend(
                "stub",
                base_url=stub.base_url,
                capacity=capacity,
                retry=furcate.RetryPolicy(attempts=2, first_backoff_s=0.001, max_backoff_s=0.002),
            )
        ],
        profiles=[furcate.Profile("p", "stub", model)],
        prompts=prompts,
    )


def lines(path: Path, *items: object) -> Path:
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def numbered(path: Path, count: int) -> Path:
    return lines(path, *({"id": f"i{number}", "word": f"w{number}"} for number in range(count)))


def echo(request) -> object:
    """Answer with the last user message's own word."""
    said = request.body["messages"][-1]["content"]
    return answer(said.removeprefix("Say ").removesuffix("."), usage=USAGE)


async def journaled(path: Path) -> dict[str, tuple[str, object]]:
    states = ("pending", "finished", "failed")
    async with read_journal(path) as journal, journal.rows(states=states, gone=True) as rows:
        return {row.id or f"line {row.line}": (row.state, row.value) async for row in rows}


@pytest.mark.field(69)
async def test_bad_rows_fail_and_the_others_finish(tmp_path: Path) -> None:
    """A line that is no JSON, one without its variable and one that the server refuses: 97 results, 3 failures."""
    rows: list[object] = [{"id": f"i{number}", "word": f"w{number}"} for number in range(1, 101)]
    rows[36] = '{"id": "i37", '
    rows[51] = {"id": "i52"}
    items = lines(tmp_path / "items.jsonl", *rows)

    def script(request):
        return error(400, "no such thing") if "w70." in request.body["messages"][-1]["content"] else echo(request)

    async with StubProvider(script) as stub, engine_for(stub) as engine:
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            told = {outcome.id: outcome async for outcome in job}
        assert len(stub.requests) == 98
    assert job.progress.enrollment.malformed == 1
    assert (job.progress.finished, job.progress.failed, job.progress.ended) == (97, 2, "all")
    assert {name: outcome.error.kind for name, outcome in told.items() if outcome.error} == {
        "i52": "RenderError",
        "i70": "invalid_request",
    }
    kept = await journaled(tmp_path / "job.db")
    assert Counter(state for state, _ in kept.values()) == {"finished": 97, "failed": 3}
    async with read_journal(tmp_path / "job.db") as journal, journal.rows(states=("failed",)) as rows:
        failures = {row.line: row.error.kind async for row in rows}
    assert failures == {37: "malformed", 52: "RenderError", 70: "invalid_request"}


@pytest.mark.field(70)
async def test_a_job_goes_on_by_ids_and_not_by_places(tmp_path: Path) -> None:
    """After six of ten a line is deleted and two are swapped: only the unfinished are sent, and none is mispaired."""
    items = numbered(tmp_path / "items.jsonl", 10)
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            "say", items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(limit=6, concurrency=1)
        ) as job:
            await job.run()
        assert (job.progress.ended, len(stub.requests)) == ("limit", 6)
        given = [{"id": f"i{number}", "word": f"w{number}"} for number in range(10)]
        del given[1]
        given[6], given[8] = given[8], given[6]
        lines(items, *given)
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            await job.run()
        assert len(stub.requests) == 10
    kept = await journaled(tmp_path / "job.db")
    assert {name: value["text"] for name, (_, value) in kept.items()} == {f"i{n}": f"w{n}" for n in range(10)}
    assert job.progress.enrollment.gone == 1


@pytest.mark.field(71)
async def test_results_belong_to_their_rows_in_both_runs(tmp_path: Path) -> None:
    """Whatever is read together, each row has its own marker, when it is run and when it is resumed."""
    items = numbered(tmp_path / "items.jsonl", 25)
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        for limit in (13, None):
            path = tmp_path / "job.db"
            async with open_job(
                "say", items, engine=engine, journal=path, options=JobOptions(limit=limit, concurrency=10)
            ) as job:
                async for outcome in job:
                    assert outcome.result["text"] == outcome.id.replace("i", "w")
    kept = await journaled(tmp_path / "job.db")
    assert {name: value["text"] for name, (_, value) in kept.items()} == {f"i{n}": f"w{n}" for n in range(25)}


@pytest.mark.field(72)
async def test_equal_rows_are_not_one(tmp_path: Path) -> None:
    """Three rows with one text and three ids are three requests and three results, also after a resume."""
    items = lines(tmp_path / "items.jsonl", *({"id": name, "word": "same"} for name in "abc"))
    answers = iter(["one", "two", "three"])
    async with StubProvider(lambda request: answer(next(answers))) as stub, engine_for(stub) as engine:
        for limit in (2, None):
            path = tmp_path / "job.db"
            async with open_job(
                "say", items, engine=engine, journal=path, options=JobOptions(limit=limit, concurrency=1)
            ) as job:
                await job.run()
        assert len(stub.requests) == 3
    kept = await journaled(tmp_path / "job.db")
    assert {name: value["text"] for name, (_, value) in kept.items()} == {"a": "one", "b": "two", "c": "three"}


@pytest.mark.field(74)
async def test_results_come_as_they_end_and_are_kept_in_order(tmp_path: Path) -> None:
    """Answers in reverse order mix up nothing: outcomes carry their ids, and the journal has both orders."""
    items = numbered(tmp_path / "items.jsonl", 5)
    ended: list[anyio.Event] = [anyio.Event() for _ in range(6)]
    ended[5].set()

    async def script(request):
        number = int(request.body["messages"][-1]["content"].removeprefix("Say w").removesuffix("."))
        await ended[number + 1].wait()
        return answer(f"w{number}")

    told = []
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        async with open_job(
            "say", items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=5)
        ) as job:
            async for outcome in job:
                told.append((outcome.id, outcome.result["text"]))
                ended[int(outcome.id[1:])].set()
    assert told == [(f"i{number}", f"w{number}") for number in reversed(range(5))]
    async with read_journal(tmp_path / "job.db") as journal:
        async with journal.rows() as rows:
            assert [row.id async for row in rows] == [f"i{number}" for number in range(5)]
        async with journal.rows("ends") as rows:
            assert [row.id async for row in rows] == [f"i{number}" for number in reversed(range(5))]


@pytest.mark.field(75)
async def test_duplicate_ids_are_refused_at_the_start(tmp_path: Path) -> None:
    """Both lines are named, and nothing is sent."""
    items = lines(
        tmp_path / "items.jsonl", {"id": "a", "word": "x"}, {"id": "b", "word": "y"}, {"id": "a", "word": "z"}
    )
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        with pytest.raises(ItemsError, match=r"'a'.*lines? 1.*3"):
            async with open_job("say", items, engine=engine, journal=tmp_path / "job.db"):
                pass
        assert not stub.requests


@pytest.mark.field(77)
@pytest.mark.parametrize("what", ["prompt", "model", "code", "item"])
async def test_what_changed_since_is_refused_or_done_again(tmp_path: Path, what: str) -> None:
    """Another text, model, code version or item: refused with a clear word, done again where that is asked, or kept."""
    items = numbered(tmp_path / "items.jsonl", 3)
    path = tmp_path / "job.db"
    async with StubProvider(echo) as stub:
        async with engine_for(stub) as engine, open_job("say", items, engine=engine, journal=path) as job:
            await job.run()
        other = furcate.Prompt("say", [furcate.MessageTemplate("user", "Say {{ word }}!")], profile="p")
        given = {"prompts": (other,)} if what == "prompt" else {"model": "n"} if what == "model" else {}
        code = "2" if what == "code" else ""
        if what == "item":
            lines(items, {"id": "i0", "word": "new"}, {"id": "i1", "word": "w1"}, {"id": "i2", "word": "w2"})
        async with engine_for(stub, **given) as engine:
            with pytest.raises(JournalError) as caught:
                async with open_job("say", items, engine=engine, journal=path, options=JobOptions(code=code)):
                    pass
            assert caught.value.reason == "changed"
            assert len(stub.requests) == 3
            for on_changed in ("keep", "refuse"):
                options = JobOptions(code=code, on_changed=on_changed)
                async with open_job("say", items, engine=engine, journal=path, options=options) as job:
                    await job.run()
            assert len(stub.requests) == 3
            async with open_job(
                "say", items, engine=engine, journal=path, options=JobOptions(code=code, on_changed="redo")
            ) as job:
                await job.run()
    assert len(stub.requests) >= 4


async def test_ids_of_another_name_are_no_reason_to_do_it_all_again(tmp_path: Path) -> None:
    """A job that goes on with another field of ids is refused before anything is asked, and told both."""
    items = lines(tmp_path / "items.jsonl", *({"id": f"i{n}", "word": f"w{n}", "key": n} for n in range(3)))
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            await job.run()
        with pytest.raises(JournalError, match="known by their 'id', and would now be known by their 'key'"):
            options = JobOptions(id_field="key")
            async with open_job("say", items, engine=engine, journal=tmp_path / "job.db", options=options):
                pytest.fail("the job began")
        async with open_job(
            "say", items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(id_field="id")
        ) as job:
            await job.run()
        assert len(stub.requests) == 3


async def test_an_answer_of_another_form_is_a_result_with_its_text(tmp_path: Path) -> None:
    """Of five items under a schema the third is answered by half an object: five results, its own with the raw text."""
    contract = furcate.Contract({"type": "object", "required": ["a"]}, repairs=0)
    counted = furcate.Prompt(
        "say", [furcate.MessageTemplate("user", "Say {{ word }}.")], profile="p", contract=contract
    )
    items = numbered(tmp_path / "items.jsonl", 5)

    def script(request):
        return answer('{"a": 1' if "w2." in request.body["messages"][-1]["content"] else '{"a": 1}')

    async with StubProvider(script) as stub, engine_for(stub, prompts=(counted,)) as engine:
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            told = {outcome.id: outcome.result async for outcome in job}
    assert len(told) == 5
    bad = told.pop("i2")
    assert (bad["validation"], bad["text"], "value" in bad) == ("failed", '{"a": 1', False)
    assert len(bad["faults"]) >= 1
    assert [(good["validation"], good["value"]) for good in told.values()] == [("passed", {"a": 1})] * 4
    out = (tmp_path / "out.jsonl").open("wb")
    with out:
        async with read_journal(tmp_path / "job.db") as journal, journal.rows() as rows:
            await write_rows(rows, out.fileno())
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 5


async def test_a_function_does_what_it_likes_with_its_item(tmp_path: Path) -> None:
    """It runs, forks and coordinates with the item's engine; the item's group and the journal count all of that."""
    items = numbered(tmp_path / "items.jsonl", 4)
    groups = {}

    async def explore(item, job):
        first = await job.engine.run(furcate.Request("say", vars=item, capture=True))

        async def once(turn):
            if turn.result is not None:
                return furcate.Stop()
            return furcate.Continue(furcate.Request("say", vars={"word": "more"}))

        async with furcate.open_branches(job.engine, first.exchange) as branches:
            for _ in range(3):
                branches.start_soon(once, additional_turns=1)
        groups[job.item_id] = job.group
        return {"first": first.text, "line": job.line, "branches": len(list(branches))}

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(explore, items, engine=engine, journal=tmp_path / "job.db") as job:
            told = {outcome.id: outcome async for outcome in job}
    assert {name: outcome.result for name, outcome in told.items()} == {
        f"i{n}": {"first": f"w{n}", "line": n + 1, "branches": 3} for n in range(4)
    }
    assert {len(group.summary().runs) for group in groups.values()} == {4}
    assert {outcome.usage.output_tokens for outcome in told.values()} == {8}
    async with read_journal(tmp_path / "job.db") as journal:
        status = await journal.status()
    assert status.usage["output_tokens"].known == 32


async def test_what_was_paid_for_is_not_paid_twice(tmp_path: Path) -> None:
    """Items that are cancelled in their second call are done again with their first answered from the journal."""
    items = numbered(tmp_path / "items.jsonl", 3)
    path = tmp_path / "job.db"
    reached = anyio.Event()

    async def two_turns(item, job):
        first = await job.engine.run(furcate.Request("say", vars=item, capture=True))
        second = await job.engine.continue_from(first.exchange, furcate.Request("say", vars={"word": "again"}))
        return [first.text, first.run_id, second.text]

    asked = Counter()

    async def script(request):
        said = request.body["messages"][-1]["content"]
        asked[said] += 1
        if "again" in said and asked[said] <= 3:
            if asked[said] == 3:
                reached.set()
            await anyio.sleep_forever()
        return echo(request)

    async with StubProvider(script) as stub, engine_for(stub) as engine:
        async with open_job(two_turns, items, engine=engine, journal=path) as job:
            await reached.wait()
        async with open_job(two_turns, items, engine=engine, journal=path) as job:
            told = {outcome.id: outcome.result async for outcome in job}
    assert asked == {"Say w0.": 1, "Say w1.": 1, "Say w2.": 1, "Say again.": 6}
    assert {name: result[::2] for name, result in told.items()} == {f"i{n}": [f"w{n}", "again"] for n in range(3)}


async def test_replay_can_be_switched_off(tmp_path: Path) -> None:
    """Where every start is to sample afresh, nothing is answered from the journal."""
    items = numbered(tmp_path / "items.jsonl", 1)

    async def fails_once(item, job):
        result = await job.engine.run(furcate.Request("say", vars=item))
        if len(stub.requests) == 1:
            raise RuntimeError("not this time")
        return result.text

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        given = {"engine": engine, "journal": tmp_path / "job.db", "options": JobOptions(replay=False)}
        async with open_job(fails_once, items, **given) as job:
            await job.run()
            await job.journal.retry()
        async with open_job(fails_once, items, **given) as job:
            await job.run()
    assert len(stub.requests) == 2


@pytest.mark.field(82)
async def test_a_failed_item_that_is_retried_repeats_only_what_failed(tmp_path: Path) -> None:
    """Three turns, the third refused: a retry sends that turn alone, on the same exchanges."""
    items = numbered(tmp_path / "items.jsonl", 1)
    seen: list[list[str]] = []

    async def three_turns(item, job):
        exchange = (await job.engine.run(furcate.Request("say", vars=item, capture=True))).exchange
        mine = [f"{exchange.run_id} {exchange.digest}"]
        seen.append(mine)
        for word in ("two", "three"):
            exchange = (await job.engine.continue_from(exchange, furcate.Request("say", vars={"word": word}))).exchange
            mine.append(f"{exchange.run_id} {exchange.digest}")
        return len(mine)

    def script(request):
        return error(400, "no") if request.number == 3 else echo(request)

    async with StubProvider(script) as stub, engine_for(stub) as engine:
        for _ in range(2):
            async with open_job(three_turns, items, engine=engine, journal=tmp_path / "job.db") as job:
                await job.run()
                await job.journal.retry()
        assert len(stub.requests) == 4
    assert seen[0] == seen[1][:2]
    assert await journaled(tmp_path / "job.db") == {"i0": ("finished", 3)}


async def test_at_most_so_many_items_are_open(tmp_path: Path) -> None:
    """However many places a backend has, `concurrency` bounds the items, and each has but one task."""
    items = numbered(tmp_path / "items.jsonl", 30)
    open_now, most = 0, 0

    async def count(item, job):
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await anyio.sleep(0.001)
        open_now -= 1
        return None

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            count, items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=3)
        ) as job:
            await job.run()
    assert most == 3
    assert job.progress.finished == 30


async def test_items_that_have_begun_are_finished_first(tmp_path: Path) -> None:
    """With many items open and one place, an item's later requests go before another's first."""
    items = numbered(tmp_path / "items.jsonl", 6)
    order = []

    async def three(item, job):
        for _ in range(3):
            await job.engine.run(furcate.Request("say", vars=item))
        return None

    def script(request):
        order.append(request.body["messages"][-1]["content"])
        return echo(request)

    async with StubProvider(script) as stub, engine_for(stub, capacity=1) as engine:
        async with open_job(
            three, items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=6)
        ) as job:
            await job.run()
    # While one item keeps what it was told, another may begin: never more than two or three are under way.
    under_way = Counter()
    most = 0
    for said in order:
        under_way[said] += 1
        most = max(most, sum(1 for count in under_way.values() if count < 3))
    assert most <= 3


async def test_draining_finishes_what_has_begun(tmp_path: Path) -> None:
    """After a drain no item begins, those that have begun are finished, and the next start does the rest."""
    items = numbered(tmp_path / "items.jsonl", 10)
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            "say", items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=2)
        ) as job:
            told = []
            async for outcome in job:
                told.append(outcome.id)
                job.drain()
        assert job.progress.ended == "drained"
        assert 1 <= len(told) <= 5
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            rest = [outcome.id async for outcome in job]
    assert sorted(told + rest) == sorted(f"i{number}" for number in range(10))


async def test_cancelling_leaves_items_to_be_done_again(tmp_path: Path) -> None:
    """Cancelled items have no outcome, and nothing of them counts as failed."""
    items = numbered(tmp_path / "items.jsonl", 4)

    async def waits(item, job):
        if item["word"] != "w0":
            await anyio.sleep_forever()
        return item["word"]

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            waits, items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=4)
        ) as job:
            told = []
            async for outcome in job:
                told.append(outcome.id)
                job.cancel()
    assert (told, job.progress.ended, job.progress.failed, job.progress.running) == (["i0"], "cancelled", 0, 0)
    assert Counter(state for state, _ in (await journaled(tmp_path / "job.db")).values()) == {
        "finished": 1,
        "pending": 3,
    }


async def test_too_many_failures_end_a_job(tmp_path: Path) -> None:
    """Beyond the bound no more items begin."""
    items = numbered(tmp_path / "items.jsonl", 20)

    async def fails(item, job):
        raise RuntimeError("no")

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            fails, items, engine=engine, journal=tmp_path / "job.db", options=JobOptions(concurrency=1, max_failures=2)
        ) as job:
            await job.run()
    assert (job.progress.ended, job.progress.failed) == ("failures", 3)


async def test_what_a_target_returns_is_json(tmp_path: Path) -> None:
    """Anything else lets the item fail with a word on what it was."""
    items = numbered(tmp_path / "items.jsonl", 1)

    async def odd(item, job):
        return {"when": object()}

    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(odd, items, engine=engine, journal=tmp_path / "job.db") as job:
            (outcome,) = [outcome async for outcome in job]
    assert outcome.error.kind == "TypeError"
    assert "object" in outcome.error.message


async def test_errors_of_the_block_pass_unchanged(tmp_path: Path) -> None:
    """What the block raises comes out as it is, not in a group."""
    items = numbered(tmp_path / "items.jsonl", 1)
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        with pytest.raises(ZeroDivisionError):
            async with open_job("say", items, engine=engine, journal=tmp_path / "job.db"):
                raise ZeroDivisionError


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (lambda item, job: None, TypeError),
        (5, TypeError),
        ("shout", furcate.UnknownNameError),
        (furcate.Prompt("odd", [furcate.MessageTemplate("user", "x")], profile="none"), furcate.UnknownNameError),
    ],
)
async def test_targets_are_checked_before_anything_is_opened(tmp_path: Path, target, wrong) -> None:
    """A plain function, a number, and a prompt or its profile that are not there are refused; no journal is made."""
    items = numbered(tmp_path / "items.jsonl", 1)
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        with pytest.raises(wrong):
            async with open_job(target, items, engine=engine, journal=tmp_path / "job.db"):
                pass
    assert not (tmp_path / "job.db").exists()


async def _given(values):
    for value in values:
        yield value


@pytest.mark.parametrize("form", [list, iter, _given])
async def test_values_are_items_too(tmp_path: Path, form) -> None:
    """A list, an iterator and an async iterator of values are worked on like the lines of a file, and resumed."""
    values = [{"id": f"i{number}", "word": f"w{number}"} for number in range(5)]
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        for limit in (2, None):
            options = JobOptions(limit=limit, concurrency=1)
            async with open_job(
                "say", form(values), engine=engine, journal=tmp_path / "job.db", options=options
            ) as job:
                await job.run()
        assert len(stub.requests) == 5
    kept = await journaled(tmp_path / "job.db")
    assert {name: value["text"] for name, (_, value) in kept.items()} == {f"i{n}": f"w{n}" for n in range(5)}


async def test_values_that_json_has_no_form_for_are_refused(tmp_path: Path) -> None:
    """What a program gives by mistake is its own fault, and told with its number before anything is sent."""
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        with pytest.raises(TypeError, match="item 2 is no JSON value"):
            async with open_job("say", [{"id": 1}, {"id": object()}], engine=engine, journal=tmp_path / "job.db"):
                pass
        with pytest.raises(furcate.MisuseError, match="a format is for files"):
            async with open_job(
                "say", [1], engine=engine, journal=tmp_path / "job.db", options=JobOptions(format="csv")
            ):
                pass
        assert not stub.requests


async def test_a_prompt_need_not_be_configured(tmp_path: Path) -> None:
    """A prompt given as a value is a target, its changes are noticed, and whoever asks hears of its items' runs."""
    items = numbered(tmp_path / "items.jsonl", 2)
    heard = Counter()
    prompt = furcate.Prompt("shout", [furcate.MessageTemplate("user", "Say {{ word }}.")], profile="p")
    async with StubProvider(echo) as stub, engine_for(stub) as engine:
        async with open_job(
            prompt,
            items,
            engine=engine,
            journal=tmp_path / "job.db",
            on_event=lambda name, event: heard.update([(name, type(event).__name__)]),
        ) as job:
            told = {outcome.id: outcome.result["text"] async for outcome in job}
        other = furcate.Prompt("shout", [furcate.MessageTemplate("user", "Say {{ word }}!")], profile="p")
        with pytest.raises(JournalError, match="another setup"):
            async with open_job(other, items, engine=engine, journal=tmp_path / "job.db"):
                pass
    assert told == {"i0": "w0", "i1": "w1"}
    assert (heard["i0", "RunStarted"], heard["i1", "RunFinished"]) == (1, 1)


@pytest.mark.parametrize("hinted", [True, False])
async def test_items_that_begin_alike_share_the_price_of_it(tmp_path: Path, hinted: bool) -> None:
    """Up to a cache hint one item reads what all begin with, and the others find it; without a hint nobody waits."""
    hint = furcate.CacheHint() if hinted else None
    long = furcate.Prompt(
        "say",
        [furcate.MessageTemplate("system", "word " * 1500, hint), furcate.MessageTemplate("user", "Say {{ word }}.")],
        profile="p",
    )
    items = numbered(tmp_path / "items.jsonl", 8)
    cache = PromptCache(min_tokens=1024)
    async with StubProvider(cache.before(answer("ok"))) as stub:
        backend = furcate.Backend("stub", base_url=stub.base_url, dialect="anthropic-messages", capacity=8)
        async with furcate.Engine(
            backends=[backend], profiles=[furcate.Profile("p", "stub", "m")], prompts=[long]
        ) as engine:
            async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
                await job.run()
    assert job.progress.finished == 8
    if hinted:
        assert cache.tokens_read < 2 * 1500
    else:
        assert cache.tokens_read > 8 * 1500


async def test_what_cannot_be_kept_is_said_to_be_the_targets(tmp_path: Path) -> None:
    """A result that is no JSON, and branches that failed side by side: the failure says what to look for."""

    async def target(item: str, job: ItemJob) -> object:
        if item == "set":
            return {1, 2}
        raise ExceptionGroup("branches", [ValueError("no lamp"), ExceptionGroup("more", [KeyError("bulb")])])

    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(target, ["set", "group"], engine=engine, journal=tmp_path / "j") as job:
        said = {outcome.line: outcome.error.message async for outcome in job if outcome.error is not None}
    assert said[1].startswith("what the target returned cannot be kept as JSON")
    assert said[2] == "ValueError: no lamp; KeyError: 'bulb'"


async def test_a_function_that_lets_out_a_cancellation_of_its_own_fails_alone(tmp_path: Path) -> None:
    """As a native task that was cancelled does, or one that leaves the program, or an error that cannot be told."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def target(item: int, job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        if item == 3:
            raise anyio.get_cancelled_exc_class()() if stray else Mute
        if item == 5:
            raise SystemExit(3)
        if item == 7:
            raise Mute
        return item

    # Of trio's cancellation nobody can make one by hand.
    stray = sniffio.current_async_library() == "asyncio"
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(target, range(10), engine=engine, journal=tmp_path / "j") as job:
        told = {outcome.line - 1: outcome.error async for outcome in job}
    assert {number for number, error in told.items() if error is not None} == {3, 5, 7}
    assert told[5] is not None
    assert told[5].kind == "SystemExit"
    assert told[7] is not None
    assert told[7].message == "Mute"


async def test_an_input_that_has_become_empty_is_refused(tmp_path: Path) -> None:
    """A pipe that broke would else look like a finished job."""
    engine = furcate.Engine(backends=[furcate.Backend("none")])

    async def target(item: int, job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        return item

    async with engine:
        async with open_job(target, [1, 2], engine=engine, journal=tmp_path / "j") as job:
            await job.run()
        with pytest.raises(ItemsError, match="there are no items, and the journal has 2"):
            async with open_job(target, [], engine=engine, journal=tmp_path / "j"):
                pytest.fail("the job began")
    assert {state for state, _ in (await journaled(tmp_path / "j")).values()} == {"finished"}


async def test_a_journal_that_is_deleted_while_its_job_runs_ends_the_job(tmp_path: Path) -> None:
    """Nothing would be kept from then on, and nobody would know."""
    engine = furcate.Engine(backends=[furcate.Backend("none")])

    async def target(item: int, job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        if item == 20:
            (tmp_path / "j").unlink()
        return item

    with pytest.raises(JournalError, match="deleted or replaced"):
        async with engine, open_job(target, range(200), engine=engine, journal=tmp_path / "j") as job:
            await job.run()


@pytest.mark.parametrize("given", [b"[1, 2]", memoryview(b"[1]"), {"a": 1}, {}, 5, None])
async def test_what_would_be_iterated_by_mistake_is_refused(tmp_path: Path, given: object) -> None:
    """The numbers of bytes, or the keys of an object, are nobody's items; and a number has none."""
    engine = furcate.Engine(backends=[furcate.Backend("none")])

    async def target(item: int, job: ItemJob) -> int:
        return item

    async with engine:
        with pytest.raises(TypeError, match="the items are"):
            async with open_job(target, given, engine=engine, journal=tmp_path / "j"):
                pytest.fail("the job began")


async def test_who_asks_nothing_has_used_nothing(tmp_path: Path) -> None:
    """Its counts are 0, and so are those of a job in which nothing has ended: nobody has kept them back."""
    zero = dict.fromkeys(("input_tokens", "cache_read_tokens", "cache_write_tokens"), 0)
    zero |= {"output_tokens": 0, "reasoning_tokens": 0}

    async def target(item: int, job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        if item == 1:
            raise ValueError("no")
        return item

    engine = furcate.Engine(backends=[furcate.Backend("none")])
    for limit in (0, None):
        options = JobOptions(limit=limit)
        async with engine, open_job(target, range(3), engine=engine, journal=tmp_path / "j", options=options) as job:
            told = [outcome.usage async for outcome in job]
            status = await job.journal.status()
        assert told == ([] if limit == 0 else [furcate.Usage(**zero)] * 3)
        assert {name: (total.known, total.unknown) for name, total in status.usage.items()} == dict.fromkeys(
            zero, (0, 0)
        )


async def test_what_a_provider_did_not_report_is_unknown(tmp_path: Path) -> None:
    """A call was made, so that its tokens are not 0."""
    items = numbered(tmp_path / "items.jsonl", 1)
    async with StubProvider(answer("ok", usage=None)) as stub, engine_for(stub) as engine:
        async with open_job("say", items, engine=engine, journal=tmp_path / "job.db") as job:
            await job.run()
    async with read_journal(tmp_path / "job.db") as journal:
        status = await journal.status()
    assert (status.usage["output_tokens"].known, status.usage["output_tokens"].unknown) == (None, 1)
