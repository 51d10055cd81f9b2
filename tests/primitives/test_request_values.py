"""Requests, settings and resources copy what they are given and show no secrets."""

import copy
import functools
from pathlib import Path
from typing import Any

import pytest

from furcate.primitives._json import thaw_object
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._observations import Observation
from furcate.primitives._request import Request
from furcate.primitives._resources import Backend, MessageTemplate, Profile, Prompt, RetryPolicy, TimeLimits
from furcate.primitives._settings import Settings, Tool


class _Hears:
    def on_event(self, event: Observation, /) -> None:
        """Hear nothing."""


class _Awaits:
    async def on_event(self, event: Observation, /) -> None:
        """Hear nothing, later."""


class _AwaitsWhenCalled:
    async def __call__(self, event: Observation) -> None:
        """Hear nothing, later."""


async def _coroutine_function(event: Observation) -> None:
    """Hear nothing, later."""


def _function(event: Observation) -> None:
    """Hear nothing."""


def test_later_changes_of_what_was_given_change_nothing() -> None:
    """Variables, messages, tools, inputs and observers are copied at every depth, and stay the caller's own."""
    variables: dict[str, Any] = {"items": [{"a": [1]}], "text": "t"}
    messages = [Message.user("one")]
    parameters: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}
    tools = [Tool("find", "finds", parameters)]
    inputs: dict[str, str | Path] = {"paper": "paper.txt"}
    observers = [_Hears()]
    given = copy.deepcopy((variables, parameters))
    request = Request("p", vars=variables, messages=messages, tools=tools, inputs=inputs, observers=observers)
    assert (variables, parameters) == given
    variables["items"][0]["a"].append(2)
    variables["text"] = "changed"
    parameters["properties"].clear()
    for changing in (messages, tools, inputs, observers):
        changing.clear()
    assert thaw_object(request.vars) == {"items": [{"a": [1]}], "text": "t"}
    assert request.messages == (Message.user("one"),)
    assert thaw_object(request.tools[0].parameters)["properties"] == {"q": {"type": "string"}}
    assert request.inputs == (("paper", Path("paper.txt")),)
    assert len(request.observers) == 1


def test_messages_are_given_in_short_ways() -> None:
    """A text is one user message, a message is one message, and a list is a list."""
    assert Request(messages="hello").messages == (Message.user("hello"),)
    assert Request(messages=Message.system("s")).messages == (Message.system("s"),)
    assert Request(messages=iter([Message.user("a"), Message.user("b")])).messages[1].text == "b"


@pytest.mark.parametrize(
    ("wrong", "kind", "sentence"),
    [
        ({"prompt": 3}, TypeError, "prompt is of type int; give a prompt's name or a furcate.Prompt"),
        ({"messages": [{"role": "user"}]}, TypeError, "messages holds a dict; give furcate.Message values"),
        (
            {"vars": {"a": [{"b": object()}]}},
            TypeError,
            "vars: $.a[0].b is of type object; only JSON-like data is taken",
        ),
        ({"vars": {"a": float("nan")}}, ValueError, "vars: $.a is nan; JSON numbers are finite"),
        ({"vars": ["a"]}, TypeError, "vars: $ is of type list; a JSON object is taken here, such as a dict"),
        ({"tools": [{"name": "find"}]}, TypeError, "tools holds a dict; give furcate.Tool values"),
        ({"tools": Tool("find")}, TypeError, "tools is a single furcate.Tool; give a list or tuple of them"),
        ({"observers": _Hears()}, TypeError, "observers and groups are given as a list or tuple, even a single one"),
        ({"groups": _function}, TypeError, "observers and groups are given as a list or tuple, even a single one"),
        ({"observers": [3]}, TypeError, "int has no on_event(event) and is not callable"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(wrong: Any, kind: type[Exception], sentence: str) -> None:
    """The error names the field, what it was given and what would be right."""
    with pytest.raises(kind) as caught:
        Request(**wrong)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("field", ["observers", "groups"])
@pytest.mark.parametrize(
    "listener",
    [_coroutine_function, _Awaits(), _AwaitsWhenCalled(), _Awaits().on_event, functools.partial(_coroutine_function)],
    ids=["function", "on_event", "call", "method", "partial"],
)
def test_an_observer_that_nobody_would_await_is_refused(field: str, listener: Any) -> None:
    """A coroutine function, however it is wrapped, is refused when it is given."""
    wrong: Any = {field: [listener]}
    with pytest.raises(TypeError, match="is a coroutine function; observers are synchronous"):
        Request("p", **wrong)


def test_observers_are_objects_or_callables() -> None:
    """An object with on_event and a plain callable serve alike, in the order in which they were given."""
    hears = _Hears()
    assert Request("p", observers=[hears, _function], groups=[hears]).observers == (hears, _function)


def test_nothing_secret_or_said_is_shown() -> None:
    """The text form of a request or backend has no key, header, variable or message in it."""
    request = Request("p", vars={"v": "said-1"}, messages="said-2", credential="secret-1")
    backend = Backend("b", api_key="secret-2", credential="secret-3", extra_headers={"x-key": "secret-4"})
    for shown in (repr(request), repr(backend), str(request), str(backend)):
        assert "said" not in shown
        assert "secret" not in shown


@pytest.mark.req("S4-040")
def test_a_request_inherits_nothing_and_cannot_ask_to() -> None:
    """A bare request sets nothing, and there is no option to take over earlier settings."""
    bare = Request("p")
    assert (bare.profile, bare.contract, bare.session_id, bare.credential, bare.settings) == (None,) * 5
    assert (bare.capture, bare.tools, bare.messages, dict(bare.vars)) == (False, (), (), {})
    with pytest.raises(TypeError, match="inherit"):
        Request("p", inherit=True)  # type: ignore[call-arg]


def test_settings_are_laid_over_one_another() -> None:
    """What the upper one sets wins, zero included; the rest shows through; extra members are merged by key."""
    lower = Settings(max_output_tokens=10, temperature=0.7, stop=["a"], extra_body={"x": 1, "y": {"deep": [1]}})
    upper = Settings(temperature=0.0, stop="b", extra_body={"y": 2, "z": 3})
    both = lower.overlaid(upper)
    assert both == Settings(max_output_tokens=10, temperature=0.0, stop=("b",), extra_body={"x": 1, "y": 2, "z": 3})
    assert lower.overlaid(None) is lower
    assert lower.overlaid(Settings()) == lower


def test_resources_copy_what_they_are_given() -> None:
    """Profiles, prompts and backends keep tuples of what was in a list or a mapping."""
    templates, tools = [MessageTemplate("user", "{{ x }}", CacheHint())], [Tool("find")]
    names: list[Any] = ["paper", ("notes", Path("n.txt"))]
    headers = {"x-team": "a"}
    prompt = Prompt("p", templates, inputs=names, tools=tools)
    profile = Profile("f", "b", "m", tools=tools)
    backend = Backend("b", extra_headers=headers)
    for changing in (templates, tools, names, headers):
        changing.clear()
    assert prompt.messages == (MessageTemplate("user", "{{ x }}", CacheHint()),)
    assert prompt.inputs == (("paper", None), ("notes", Path("n.txt")))
    assert prompt.tools == profile.tools == (Tool("find"),)
    assert backend.extra_headers == (("x-team", "a"),)
    assert (backend.provider, Backend("b", provider="team").provider) == ("b", "team")
    single: Any = "paper"
    with pytest.raises(TypeError, match="inputs is a str; give a list of names"):
        Prompt("p", templates, inputs=single)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TimeLimits(connect_s=0), "connect_s is 0; give more than 0 seconds"),
        (lambda: TimeLimits(idle_s=float("nan")), "idle_s is nan; give more than 0 seconds"),
        (lambda: RetryPolicy(attempts=0), "attempts is 0; give 1 or more"),
        (lambda: Backend("b", capacity=0), "capacity is 0; give 1 or more"),
        (lambda: Settings(max_output_tokens=0), "max_output_tokens is 0; give 1 or more"),
    ],
)
def test_a_number_out_of_range_is_refused_in_one_sentence(make: Any, sentence: str) -> None:
    """The error names the field, its value and the least that is right."""
    with pytest.raises(ValueError, match="give") as caught:
        make()
    assert str(caught.value) == sentence
