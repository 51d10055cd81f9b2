"""What MLflow makes of our spans, read back through its own API."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def experiment(mlflow_server: httpx2.Client) -> str:
    """Make an experiment of the test's own and give its id."""
    made = mlflow_server.post("/api/2.0/mlflow/experiments/create", json={"name": uuid4().hex})
    return str(made.raise_for_status().json()["experiment_id"])


class Stored:
    """Read the traces of an experiment."""

    def __init__(self, client: httpx2.Client, experiment: str) -> None:
        self._client = client
        self._place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}

    def traces(self) -> list[dict[str, Any]]:
        """Give all traces of the experiment, each with its spans."""
        wanted = {"locations": [self._place], "max_results": 100}
        found = self._client.post("/api/3.0/mlflow/traces/search", json=wanted).raise_for_status().json()
        ids = [trace["trace_id"] for trace in found.get("traces", [])]
        answers = [self._client.get("/api/3.0/mlflow/traces/get", params={"trace_id": one}) for one in ids]
        return [answer.raise_for_status().json()["trace"] for answer in answers]


@pytest.fixture
def stored(mlflow_server: httpx2.Client, experiment: str) -> Stored:
    """Give the reader of the test's experiment."""
    return Stored(mlflow_server, experiment)


def spans_of(traces: list[dict[str, Any]], make) -> list[Any]:
    """Give the spans of traces, made from the form in which MLflow's API gives them: that of OTLP."""
    return [
        make(
            name=span["name"],
            trace_id=_hex(span["trace_id"]),
            span_id=_hex(span["span_id"]),
            parent_id=_hex(span["parent_span_id"]) if span.get("parent_span_id") else None,
            status=span.get("status", {}).get("code", "STATUS_CODE_UNSET").removeprefix("STATUS_CODE_"),
            message=span.get("status", {}).get("message", ""),
            attributes=_attributes(span),
            events=tuple(event["name"] for event in span.get("events", [])),
            links=tuple((_hex(link["trace_id"]), _hex(link["span_id"])) for link in span.get("links", [])),
        )
        for trace in traces
        for span in trace["spans"]
    ]


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in span.get("attributes", [])}


def _value(value: Mapping[str, Any]) -> Any:
    [(kind, held)] = value.items()
    match kind:
        case "int_value":
            return int(held)
        case "array_value":
            return [_value(one) for one in held.get("values", [])]
        case "kvlist_value":
            return _attributes({"attributes": held["values"]})
        case _:
            return held


async def test_mlflow_keeps_parents_links_status_and_sums_as_the_group(
    story, exporting, stored, mlflow_server, experiment, make_span, until_stored
) -> None:
    """A nursery's traces lie in MLflow as they happened, linked to where they came from, each token counted once."""
    with exporting(mlflow_server, f"x-mlflow-experiment-id={experiment}") as observer:
        await story.run(observer)
    story.check_ends()
    traces = await anyio.to_thread.run_sync(until_stored, stored.traces)
    spans = spans_of(traces, make_span)
    story.check_spans(spans)
    story.check_links(spans)
    usages = [json.loads(trace["trace_info"]["trace_metadata"]["mlflow.trace.tokenUsage"]) for trace in traces]
    summed = {name: sum(usage.get(name, 0) for usage in usages) for name in usages[0]}
    usage = story.group.summary().usage
    assert (summed["input_tokens"], summed["output_tokens"]) == story.tokens
    assert summed["total_tokens"] == sum(story.tokens)
    assert summed["cache_read_input_tokens"] == usage.cache_read_tokens.known
    assert summed["cache_creation_input_tokens"] == usage.cache_write_tokens.known
    assert {trace["trace_info"]["state"] for trace in traces} == {"OK"}, "an isolated failure fails no trace"


async def test_mlflow_knows_models_chains_and_conversations(
    story, exporting, stored, mlflow_server, experiment, make_span, until_stored
) -> None:
    """Runs are calls of a chat model with their model and provider, everything around and below them is a chain."""
    with exporting(mlflow_server, f"x-mlflow-experiment-id={experiment}") as observer:
        await story.run(observer)
    spans = spans_of(await anyio.to_thread.run_sync(until_stored, stored.traces), make_span)
    types = {(span.name.split()[0], span.attributes.get("mlflow.spanType")) for span in spans}
    assert types == {("chat", "CHAT_MODEL"), ("attempt", "CHAIN"), ("invoke_workflow", "CHAIN")}
    runs = [span for span in spans if span.name.startswith("chat")]
    assert {span.attributes["mlflow.llm.model"] for span in runs} == {"some-model"}
    assert {span.attributes["mlflow.llm.provider"] for span in runs} == {"openai"}
    assert sorted(event for span in runs for event in span.events) == [
        "furcate.pause",
        "furcate.repair",
        "furcate.retry",
    ]


def test_four_documented_commands_lead_to_linked_branches(
    mlflow_server, documented, variables, make_span, until_stored
) -> None:
    """What the page says to install, start, export and run shows the branches in the default experiment, linked."""
    default = Stored(mlflow_server, "0")
    said = documented(variables("mlflow", mlflow_server.base_url))
    assert said[0] == "group sides: 7 runs (7 succeeded)"
    spans = spans_of(until_stored(lambda: len(default.traces()) == 2 and default.traces()), make_span)
    by_id = {span.span_id: span for span in spans}
    branches = [span for span in spans if span.attributes.get("furcate.scope.kind") == "coordinator"]
    assert sorted(span.attributes["gen_ai.agent.name"] for span in branches) == ["a gull", "a painter", "a sailor"]
    [draft] = [span for span in spans if span.name.startswith("chat") and span.parent_id is None]
    for branch in branches:
        first, second = sorted(
            (span for span in spans if span.parent_id == branch.span_id),
            key=lambda span: span.attributes["gen_ai.prompt.name"],
        )
        assert first.links == branch.links == ((draft.trace_id, draft.span_id),)
        assert by_id[second.links[0][1]] is first
