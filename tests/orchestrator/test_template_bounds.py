"""Templates that ask for too much: refused before they are read, or stopped in their work."""

from __future__ import annotations

import pytest

import furcate
from furcate.orchestrator._prompts import render, template_fault
from furcate.primitives._errors import RenderError


def rendered(source: str, **variables: object) -> str:
    prompt = furcate.Prompt("p", [furcate.MessageTemplate("user", source)])
    return render(prompt, furcate.Request("p", vars=variables)).messages[0].text


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "not " * 100_000 + "true }}",
        "{{ " + "-" * 100_000 + "1 }}",
        "{{ 1" + " + 1" * 100_000 + " }}",
        "{{ 'x'" + " | upper" * 100_000 + " }}",
        "{{ x" + ".a" * 100_000,
        "{% if " + "not " * 100_000 + "true %}x{% endif %}",
        '{{ "}}" ~ ' + "not " * 100_000 + "1 }}",
        "{% if false %}" + "{% elif false %}" * 100_000 + "{% endif %}x",
        "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
        "{% if true %}" * 100_000 + "x" + "{% endif %}" * 100_000,
    ],
)
def test_code_without_end_is_a_fault(source) -> None:
    """Operators, filters and branches in a row by the ten thousand are told, and end no process."""
    assert template_fault(source) is not None
    with pytest.raises(RenderError):
        rendered(source, x="text")


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 'x' | indent(1000000000) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ range(100000) | join('x' * 100000) }}",
        "{% set n = namespace(a='x' * 999) %}{% for i in range(40) %}{% set n.a = n.a ~ n.a %}{% endfor %}{{ n.a }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 10 ** 1000000000 }}",
    ],
)
def test_work_without_end_is_stopped(source) -> None:
    """Loops, repetitions and recursion end in an error of one sentence."""
    with pytest.raises(RenderError) as caught:
        rendered(source)
    assert len(str(caught.value)) < 300


def test_long_texts_are_no_code() -> None:
    """Only what stands between braces counts, and of that not what stands in quotes."""
    assert len(rendered("text " * 100_000 + "{{ x }}", x="!")) == 500_001
    assert len(rendered("{{ '" + "x" * 100_000 + "' }}")) == 100_000
    assert rendered("{{ x }}" * 5_000, x="y") == "y" * 5_000
