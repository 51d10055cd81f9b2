"""What Phoenix makes of our spans, read back through its own API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest

pytestmark = pytest.mark.anyio

_TOTALS = """
query ($name: String!) {
  getProjectByName(name: $name) {
    traceCount recordCount tokenCountTotal tokenCountPrompt tokenCountCompletion
  }
}
"""


@pytest.fixture
def project() -> str:
    """Name a project of the test's own; Phoenix makes it with the first span."""
    return uuid4().hex


@pytest.fixture
def stored(phoenix_server: httpx2.Client, project: str) -> Callable[[], list[dict[str, Any]]]:
    """Read the spans of the test's project; none where it does not exist yet."""

    def read() -> list[dict[str, Any]]:
        answer = phoenix_server.get(f"/v1/projects/{project}/spans", params={"limit": 1000})
        return [] if answer.status_code == 404 else list(answer.raise_for_status().json()["data"])

    return read


@pytest.fixture
def all_stored(stored, until_stored):
    """Read the spans of the test's project when so many have come, since they are stored in the background."""

    async def read(number: int) -> list[dict[str, Any]]:
        found = await anyio.to_thread.run_sync(until_stored, lambda: len(stored()) >= number and stored())
        assert len(found) == number
        return found

    return read


def made(span: dict[str, Any], make) -> Any:
    """Give a span made from the form in which Phoenix's API gives it."""
    return make(
        name=span["name"],
        trace_id=span["context"]["trace_id"],
        span_id=span["context"]["span_id"],
        parent_id=span["parent_id"],
        status=span["status_code"],
        message=span["status_message"],
        attributes=span["attributes"],
        events=tuple(event["name"] for event in span["events"]),
    )


async def test_phoenix_keeps_parents_status_and_sums_as_the_group(
    story, exporting, all_stored, phoenix_server, project, make_span
) -> None:
    """A nursery's traces lie in Phoenix as they happened, each run naming its source, each token counted once."""
    with exporting(phoenix_server, f"x-project-name={project}") as observer:
        await story.run(observer)
    story.check_ends()
    found = await all_stored(story.spans)
    story.check_spans([made(span, make_span) for span in found])
    asked = {"query": _TOTALS, "variables": {"name": project}}
    told = phoenix_server.post("/graphql", json=asked).raise_for_status().json()
    totals = told["data"]["getProjectByName"]
    assert totals["recordCount"] == story.spans
    assert totals["traceCount"] == 3, "the first run, the nursery, and the one that went on elsewhere"
    assert (totals["tokenCountPrompt"], totals["tokenCountCompletion"]) == story.tokens
    assert totals["tokenCountTotal"] == sum(story.tokens)


async def test_phoenix_drops_links_but_not_what_says_the_same(
    story, exporting, all_stored, phoenix_server, project, make_span
) -> None:
    """Phoenix has no place for span links, which is why a continuation's source stands in its attributes as well."""
    with exporting(phoenix_server, f"x-project-name={project}") as observer:
        await story.run(observer)
    found = await all_stored(story.spans)
    assert not any("links" in span for span in found)
    spans = {span.span_id: span for span in (made(one, make_span) for one in found)}
    continuing = [span for span in spans.values() if "furcate.parent.run.id" in span.attributes]
    assert len(continuing) == 1 + 5 + 7, "a nursery, its branches, and all runs but the first"
    for span in continuing:
        source = spans[span.attributes["furcate.parent.span_id"]]
        assert source.attributes["furcate.run.id"] == span.attributes["furcate.parent.run.id"]
        assert source.trace_id == span.attributes["furcate.parent.trace_id"]


async def test_phoenix_shows_runs_as_calls_of_a_model(
    story, exporting, all_stored, phoenix_server, project, make_span
) -> None:
    """Runs are LLM spans with model and tokens, what is around and below them is a chain."""
    with exporting(phoenix_server, f"x-project-name={project}") as observer:
        await story.run(observer)
    found = await all_stored(story.spans)
    kinds = {(span["name"].split()[0], span["span_kind"]) for span in found}
    assert kinds == {("chat", "LLM"), ("attempt", "CHAIN"), ("invoke_workflow", "CHAIN")}
    runs = [span["attributes"] for span in found if span["span_kind"] == "LLM"]
    assert {run["llm.model_name"] for run in runs} == {"some-model"}
    counted = [run for run in runs if "llm.token_count.total" in run]
    assert sum(run["llm.token_count.prompt_details.cache_read"] for run in counted) == 7 * 50
    assert sum(run["llm.token_count.prompt_details.cache_write"] for run in counted) == 7 * 1


async def test_phoenix_shows_what_was_said_where_that_is_captured(
    story, exporting, all_stored, phoenix_server, project
) -> None:
    """With content capture on, each LLM span holds its messages in the form that Phoenix shows; without, none does."""
    with exporting(phoenix_server, f"x-project-name={project}", capture_content=True) as observer:
        await story.run(observer)
    found = [span["attributes"] for span in await all_stored(story.spans)]
    said = {
        one["llm.input_messages.0.message.content"]: one.get("llm.output_messages.0.message.content")
        for one in found
        if "llm.input_messages.0.message.content" in one
    }
    assert said["clear 1"] == '{"n": 1}'
    assert said.keys() >= {"begin", "clear 2", "busy", "repaired", "broken", "left", "elsewhere"}
    assert said["broken"] is said["left"] is None


async def test_phoenix_holds_no_content_by_default(story, exporting, all_stored, phoenix_server, project) -> None:
    """Nothing that was asked or answered lies in Phoenix unless that was asked for."""
    with exporting(phoenix_server, f"x-project-name={project}") as observer:
        await story.run(observer)
    held = json.dumps(await all_stored(story.spans))
    assert not [text for text in ("clear 1", "elsewhere", '\\"n\\"', "no such thing") if text in held]


def test_four_documented_commands_lead_to_the_branches(phoenix_server, documented, variables, until_stored) -> None:
    """What the page says to install, start, export and run shows the branches in the default project, with messages."""

    def read() -> list[dict[str, Any]]:
        answer = phoenix_server.get("/v1/projects/default/spans", params={"limit": 1000})
        return list(answer.raise_for_status().json()["data"])

    said = documented(variables("phoenix", phoenix_server.base_url))
    assert said[0] == "group sides: 7 runs (7 succeeded)"
    found = until_stored(lambda: len(read()) == 1 + 3 + 7 + 7 and read())
    branches = [span["name"] for span in found if span["attributes"].get("furcate.scope.kind") == "coordinator"]
    assert sorted(branches) == [f"invoke_workflow {viewer}" for viewer in ("a gull", "a painter", "a sailor")]
    answers = [
        span["attributes"]["llm.output_messages.0.message.content"] for span in found if span["span_kind"] == "LLM"
    ]
    assert answers == ["It stands."] * 7
