"""Templates rendered to messages: what they are given, what they cannot do, and what each failure is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from furcate.orchestrator._prompts import Rendered, render, template_fault
from furcate.primitives._errors import RenderError
from furcate.primitives._json import Json
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._request import Request
from furcate.primitives._resources import MessageTemplate, Prompt


def made(source: str, **variables: Json) -> str:
    prompt = Prompt("p", [MessageTemplate("user", source)])
    return render(prompt, Request(prompt, vars=variables)).messages[0].text


def problem(source: str, **variables: Json) -> str:
    with pytest.raises(RenderError) as caught:
        made(source, **variables)
    assert str(caught.value).startswith("prompt 'p', message 1 (user): ")
    return caught.value.problem


def test_messages_come_in_order_with_role_and_cache_hint() -> None:
    """Each template becomes one message of its role, with its cache hint."""
    prompt = Prompt(
        "p", [MessageTemplate("system", "Be {{ how }}.", CacheHint(60)), MessageTemplate("user", "{{ what }}?")]
    )
    assert render(prompt, Request(prompt, vars={"how": "short", "what": "why"})) == Rendered(
        (Message.system("Be short.", cache=CacheHint(60)), Message.user("why?"))
    )


def test_content_is_data() -> None:
    """A variable that looks like a template or like markup stays as it is, whatever the prompt is called."""
    prompt = Prompt("page.html", [MessageTemplate("user", "{{ x }}")])
    text = "{{ y }} {% raw %} <b>&'\""
    assert render(prompt, Request(prompt, vars={"x": text})).messages[0].text == text


def test_the_text_stays_as_written() -> None:
    """White space and line ends around and at the end of a template are kept."""
    assert made(" a\r\n{{ x }}\n\n", x="b\n") == " a\r\nb\n\n\n"


def test_json_is_written_for_models() -> None:
    """``tojson`` writes what the value holds, without escapes meant for web pages."""
    assert made("{{ x | tojson }}", x={"a": ["<é", None, True]}) == '{"a": ["<é", null, true]}'
    assert made("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"
    assert made("{{ x | tojson }}", x=None) == "null"


@pytest.mark.parametrize(
    "source",
    [
        "{{ wrods }}",
        "{{ wrods | upper }}",
        "{{ wrods | tojson }}",
        "{{ item.wrods | tojson }}",
        "{{ wrods | truncate(length=10) }}",
        "{{ wrods | length }}",
        "{{ wrods | indent(2) }}",
        "{% for w in wrods %}{{ w }}{% endfor %}",
        "{% if wrods %}a{% endif %}",
        "{{ item.wrods }}",
    ],
)
def test_an_undefined_variable_is_an_error_that_lists_the_given_ones(source: str) -> None:
    """A misspelt name never becomes an empty text, a zero or null, also not through a filter."""
    assert problem(source, words=3, item={}).endswith("; given are: item, words")


def test_the_undefined_name_is_told_with_its_line() -> None:
    """The error says which name, and on which line of the template."""
    assert problem("a\n{{ q.r }}", q={}) == "line 2: `q.r` is undefined; given are: q"
    assert problem("{{ q }}") == "line 1: `q` is undefined; given are: no variables"


def test_a_template_may_ask_whether_a_variable_is_there() -> None:
    """``is defined`` and ``default`` are the ways to do without a variable."""
    assert made("{% if x is defined %}{{ x }}{% else %}none{% endif %} {{ y | default('z') }}") == "none z"


def test_filters_take_their_arguments() -> None:
    """The filters that are guarded against undefined values do what they did."""
    assert made("{{ x | truncate(length=5, end='!', leeway=0) }} {{ x | length }}", x="abcdefgh") == "abcd! 8"
    assert made("{{ x | indent(2) }}", x="a\nb") == "a\n  b"


@pytest.mark.parametrize(
    "source",
    ["{{ x.__class__ }}", "{{ x['__class__'] }}", "{{ x | attr('__class__') }}", "{{ ''.__class__ }}"],
)
@pytest.mark.parametrize("value", [{}, [], "a", 1])
def test_python_is_out_of_reach(source: str, value: Json) -> None:
    """A template cannot get at the classes of the values it is given."""
    assert "undefined" in problem(source, x=value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9000) %}{% for j in range(9000) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
    ],
)
def test_a_template_that_works_too_long_is_stopped(source: str) -> None:
    """Neither endless loops nor huge texts keep a template working."""
    assert "works too long" in problem(source)


@pytest.mark.parametrize("source", ["{% include 'p' %}", "{% import '/etc/passwd' as x %}", "{% extends 'p' %}"])
def test_templates_do_not_reach_each_other_or_files(source: str) -> None:
    """There is nothing to include."""
    assert "cannot include, import or extend" in problem(source)


def test_templates_do_not_change_what_others_get() -> None:
    """A template that changes a list changes its own copy."""
    prompt = Prompt("p", [MessageTemplate("user", "{{ x.pop() }}{{ x }}"), MessageTemplate("user", "{{ x }}")])
    request = Request(prompt, vars={"x": [1, 2]})
    assert [message.text for message in render(prompt, request).messages] == ["2[1]", "[1, 2]"]
    assert request.vars == {"x": (1, 2)}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ x ", "line 1: unexpected end of input"),
        ("{{ x | nope }}", "line 1: filter nope is unknown"),
        ("{{ x() }}", "line 1: value of type string is not callable"),
        ("{{ [].remove(1) }}", ""),
        ("{{ [1].nope() }}", ""),
    ],
)
def test_what_a_template_does_wrong_is_one_error(source: str, said: str) -> None:
    """Whatever goes wrong inside a template is a RenderError with the reason."""
    assert said in problem(source, x="a")


def test_an_empty_text_is_an_error() -> None:
    """A message that says nothing is refused before it is sent, and named."""
    prompt = Prompt("p", [MessageTemplate("system", "x"), MessageTemplate("user", " {{ x }}\n")])
    with pytest.raises(RenderError, match=r"prompt 'p', message 2 \(user\): the rendered text is empty"):
        render(prompt, Request(prompt, vars={"x": ""}))


def test_an_inline_prompt_of_a_wrong_role_is_named() -> None:
    """A role that takes no text is refused with the message's number."""
    prompt = Prompt("", [MessageTemplate("tool", "x")])
    with pytest.raises(RenderError, match=r"prompt '\(inline\)', message 1 \(tool\): a tool message takes ToolResult"):
        render(prompt, Request(prompt))


@pytest.mark.req("S4-038")
def test_the_session_is_the_requests_own_or_the_templates() -> None:
    """A given session id wins, and the template is then not even rendered; without both there is none."""
    prompt = Prompt("p", [MessageTemplate("user", "x")], session="job-{{ id }}")
    assert render(prompt, Request(prompt, vars={"id": 7})).session_id == "job-7"
    assert render(prompt, Request(prompt, session_id="mine")).session_id == "mine"
    with pytest.raises(RenderError, match="session template: line 1: `id` is undefined"):
        render(prompt, Request(prompt))
    assert render(Prompt("p", prompt.messages), Request(prompt)).session_id is None


def with_input(path: Path | None) -> Prompt:
    return Prompt("p", [MessageTemplate("user", "{{ inputs.text }}")], inputs={"text": path})


def test_input_files_are_read_at_each_rendering(tmp_path: Path) -> None:
    """A declared file is read when the prompt is rendered, every time anew, and its text is data."""
    path = tmp_path / "in.txt"
    prompt = with_input(path)
    for text in ("{{ one }}\n", "zwei é"):
        path.write_text(text, encoding="utf-8")
        assert render(prompt, Request(prompt)).messages[0].text == text


def test_a_request_may_give_the_input_s_path(tmp_path: Path) -> None:
    """The request's path wins over the prompt's; an input without a path needs one."""
    (tmp_path / "a").write_text("A", encoding="utf-8")
    (tmp_path / "b").write_text("\ufeffB", encoding="utf-8")
    request = Request("p", inputs={"text": tmp_path / "b"})
    assert render(with_input(tmp_path / "a"), request).messages[0].text == "B"
    assert render(with_input(None), request).messages[0].text == "B"
    with pytest.raises(RenderError, match=r"prompt 'p', input 'text': .* give one with the request"):
        render(with_input(None), Request("p"))


def test_an_undeclared_input_is_refused(tmp_path: Path) -> None:
    """An input that the prompt does not declare is named beside those that it does."""
    with pytest.raises(RenderError, match="input 'txt': the prompt declares no such input; it declares: text"):
        render(with_input(None), Request("p", inputs={"txt": tmp_path}))


def test_an_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A file that is gone, a directory and a file that is no UTF-8 each say so with the path."""
    with pytest.raises(RenderError, match=r"input 'text': .*gone\.txt cannot be read: No such file"):
        render(with_input(tmp_path / "gone.txt"), Request("p"))
    with pytest.raises(RenderError, match="cannot be read: Is a directory"):
        render(with_input(tmp_path), Request("p"))
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9")
    with pytest.raises(RenderError, match=r"latin\.txt is no UTF-8 text \(byte 3\); convert it to UTF-8"):
        render(with_input(latin), Request("p"))


def test_no_variable_may_hide_the_inputs() -> None:
    """A variable called ``inputs`` would stand where the input files stand."""
    with pytest.raises(RenderError, match="prompt 'p', vars: a variable may not be called 'inputs'"):
        made("{{ inputs }}", inputs="x")


def test_a_template_s_syntax_is_checked_without_rendering() -> None:
    """The check before any request finds what cannot be compiled, with its line."""
    assert template_fault("{{ anything }}") is None
    assert template_fault("a\n{% for x %}") == "line 2: unexpected end of block, expected in"
