"""What messages are made of: activities, opaque values, citations, calls, media."""

import typing
from typing import Any

import attrs
import pytest

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._message import Message

_SECRET = b"c2VhbGVk-opaque"
_PAYLOAD = ProviderPayload("anthropic-team-a", "web_search_result", "2025-03", _SECRET)


@pytest.mark.req("S0-08", "S0-09")
def test_hosted_activity_is_a_kind_of_its_own() -> None:
    """It stands beside calls and results in a message, and is neither of them."""
    assert HostedActivity in typing.get_args(Part)
    assert not issubclass(HostedActivity, (ToolCall, ToolResult, Text))
    assert not Message.assistant(HostedActivity("a", "web_search", "started")).tool_calls


@pytest.mark.req("S0-10", "S0-28")
def test_hosted_activity_holds_what_people_and_its_provider_need() -> None:
    """It has an id, a name, a state, an input, a summary, and a payload that may be absent."""
    plain = HostedActivity("a", "web_search", "started")
    assert (plain.id, plain.name, plain.state) == ("a", "web_search", "started")
    assert (dict(plain.input), plain.summary, plain.payload) == ({}, "", None)
    full = attrs.evolve(plain, input={"query": "q"}, summary="searched for q", payload=_PAYLOAD)
    assert (full.input["query"], full.summary, full.payload) == ("q", "searched for q", _PAYLOAD)


@pytest.mark.req("S0-11")
@pytest.mark.parametrize("state", ["in_progress", "searching", "Started", "", None, 1, ["started"]])
def test_hosted_activity_has_three_states(state: Any) -> None:
    """Any state but started, completed and failed is refused, and the error names the three."""
    for known in ("started", "completed", "failed"):
        assert HostedActivity("a", "n", typing.cast("Any", known)).state == known
    with pytest.raises(ValueError, match="is none of started, completed, failed"):
        HostedActivity("a", "n", state)


def test_hosted_activity_copies_its_input() -> None:
    """Changing what was given as input, at any depth, leaves the activity as it was."""
    given: dict[str, Any] = {"action": {"queries": ["one"]}}
    activity = HostedActivity("a", "web_search", "started", input=given)
    given["action"]["queries"].append("two")
    assert activity.input == HostedActivity("a", "n", "failed", input={"action": {"queries": ["one"]}}).input


@pytest.mark.req("S0-20")
def test_a_payload_keeps_its_value_byte_for_byte() -> None:
    """It names provider, format and version, and offers no way to another value."""
    payload = ProviderPayload("p", "f", "1", b"\x00\xff{ }")
    assert (payload.provider, payload.format, payload.version, payload.value) == ("p", "f", "1", b"\x00\xff{ }")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        payload.value = b""  # type: ignore[misc]


@pytest.mark.parametrize(
    "holder",
    [
        _PAYLOAD,
        HostedActivity("a", "web_search", "completed", payload=_PAYLOAD),
        Text("t", (Attribution(Source("u"), replay=_PAYLOAD),)),
        Reasoning("shown", ReasoningState(Origin("p", "d", "m"), "signature", _SECRET)),
        Media("image/png", _SECRET),
        Message.assistant(
            HostedActivity("a", "web_search", "completed", payload=_PAYLOAD),
            Reasoning("shown", ReasoningState(Origin("p", "d", "m"), "signature", _SECRET)),
        ),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_opaque_values_are_never_shown(holder: object) -> None:
    """Neither the text form of an opaque value nor that of anything holding it contains its bytes."""
    for shown in (repr(holder), str(holder), f"{holder}"):
        assert "opaque" not in shown
        assert "c2VhbGVk" not in shown


@pytest.mark.req("S0-33")
def test_a_citation_holds_source_and_optional_excerpt_range_and_replay() -> None:
    """Only the source is needed."""
    bare = Attribution(Source("https://e.example/", "Example"))
    assert (bare.source.url, bare.source.title) == ("https://e.example/", "Example")
    assert (bare.excerpt, bare.range, bare.replay) == (None, None, None)
    full = Attribution(Source("u"), excerpt="quoted", range=(2, 5), replay=_PAYLOAD)
    assert (full.excerpt, full.range, full.replay) == ("quoted", (2, 5), _PAYLOAD)


@pytest.mark.parametrize("bad", [(3, 2), (-1, 2)])
def test_a_citation_s_range_runs_forward_from_zero(bad: tuple[int, int]) -> None:
    """A range that is no span of text is refused."""
    with pytest.raises(ValueError, match="is not start <= end from 0 on"):
        Attribution(Source("u"), range=bad)


@pytest.mark.req("S0-41")
def test_text_without_citations_has_an_empty_tuple_of_them() -> None:
    """Text stands for itself, complete and uncited."""
    assert Text("t").attributions == ()
    assert Text("t").attribution_complete


def test_arguments_are_parsed_afresh() -> None:
    """Each parse gives a new object, none where there are no arguments, and an error where they were cut off."""
    call = ToolCall("c", "f", '{"a": [1]}')
    first: Any = call.parsed()
    first["a"].append(2)
    assert call.parsed() == {"a": [1]}
    assert ToolCall("c", "f", " ").parsed() == {}
    with pytest.raises(ValueError, match=r"line 1 column"):
        ToolCall("c", "f", '{"a": ').parsed()


@pytest.mark.parametrize("place", [{}, {"data": b"x", "url": "https://e.example/"}])
def test_media_lies_in_one_place(place: dict[str, Any]) -> None:
    """Media has data or an address, never both or neither."""
    with pytest.raises(ValueError, match="media has either data or a url"):
        Media("image/png", **place)
    assert Media("image/png", url="https://e.example/").data is None
    assert Media("image/png", b"").data == b""
