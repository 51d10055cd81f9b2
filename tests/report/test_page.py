"""The page of a recording: what it holds, and that nothing in it comes to life."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

import pytest

from furcate.observers._lines import line_of
from furcate.primitives._message import Message
from furcate.primitives._observations import (
    AttemptFinished,
    AttemptStarted,
    ContentObservation,
    ContentReceived,
    ContentSent,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
)
from furcate.primitives._usage import Usage
from furcate.report import Recording, page
from furcate.report._page import embedded

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "{{ totals }}{% raw %}",
    "\u202egnp.exe\u2066\u200f",
    "]]>&lt;&amp;",
    "\u2028\x85\x00\x1b[2J",
    "javascript:alert(1)",
)


def started(run_id: str, *, parent: str | None = None, scope: str | None = None, name: str = "m") -> RunStarted:
    return RunStarted(
        run_id=run_id, parent_run_id=parent, prompt=name, profile=name, backend=name, model=name, dialect=name,
        scope_id=scope, session_id=name, base_url=name,
    )  # fmt: skip


def finished(run_id: str) -> RunFinished:
    return RunFinished(
        run_id=run_id, status="succeeded", duration_s=1, usage=Usage(input_tokens=1), attempts=1, repairs=0,
        validation="passed",
    )  # fmt: skip


def coordinator(scope_id: str, *, nursery: str | None = None, parent: str = "r") -> CoordinatorStarted:
    return CoordinatorStarted(
        scope_id=scope_id, parent_scope_id=nursery, parent_run_id=parent, name=None, additional_turns=2
    )


def page_of(events: Iterable[Observation | ContentObservation], name: str = "r.jsonl") -> str:
    return page(Recording([line_of(event, 1_800_000_000.0 + number) for number, event in enumerate(events)]), name)


class Seen(HTMLParser):
    """Collects the elements of a page, and what stands in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "title"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside.setdefault(self._open[-1], []).append(data)


def data_of(text: str) -> Any:
    return json.loads(Seen(text).inside["script"][0])


def test_the_policy_lets_its_own_style_and_script_run_and_nothing_else() -> None:
    """The policy begins from nothing and names one style and one script by their digests, which are right."""
    seen = Seen(page_of([started("r"), finished("r")]))
    [policy] = [a["content"] for tag, a in seen.elements if tag == "meta" and a.get("http-equiv")]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    [style], [_, script] = seen.inside["style"], seen.inside["script"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{hashes[0]}'",
        "script-src": f"'sha256-{hashes[1]}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_is_loaded() -> None:
    """No element names anything outside the page, and none has a style or a handler of its own."""
    for _, attributes in Seen(page_of([started("r"), finished("r")])).elements:
        assert not {"src", "srcset", "style", "action", "data", "poster"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


@pytest.mark.field(58)
def test_hostile_text_stays_text() -> None:
    """Whatever names and content hold, the page has the same elements as one of harmless text."""
    whole = " ".join(HOSTILE)

    def story(name: str) -> list[Observation | ContentObservation]:
        failed = AttemptFinished(
            run_id="r", number=1, purpose="generate", request_id=name, status="failed", duration_s=1,
            first_event_s=None, body_sha256=name, failure_kind="timeout", failure_reason=name, response_id=name,
            model=name,
        )  # fmt: skip
        return [
            started("r", name=name),
            ContentSent(run_id="r", number=1, inherited=0, messages=(Message.user(name),)),
            ContentReceived(run_id="r", number=1, message=Message.assistant(name)),
            failed,
            NurseryStarted(scope_id=name, parent_run_id="r", name=name),
            finished("r"),
        ]

    plain, hostile = Seen(page_of(story("harmless"), "harmless")), Seen(page_of(story(whole), whole))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert hostile.inside["script"][1] == plain.inside["script"][1]
    shown = page_of(story(whole), whole)
    assert not re.search("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\x80-\x9f\x1b]", shown)
    # The words themselves are there, turned directions spelled out.
    [run] = data_of(shown)["runs"]
    assert "\\u202egnp.exe\\u2066\\u200f" in run["content"][0]["messages"][0]["parts"][0]["text"]
    assert HOSTILE[0] in run["prompt"]


@pytest.mark.parametrize("text", HOSTILE)
def test_embedded_data_holds_no_markup(text: str) -> None:
    """JSON in a page has none of the characters that HTML could take for markup, and says the same."""
    found = embedded({"key": [text], text: None})
    assert not set("<>&\u2028\u202e") & set(found)
    if not re.search("[\u200f\u2028\u202e\u2066\x85]", text):
        assert json.loads(found) == {"key": [text], text: None}


def test_runs_that_follow_one_another_are_one_row() -> None:
    """Continuations by hand stand in their parent's row until somebody forks."""
    events = [started("a"), started("b", parent="a"), started("c", parent="b"), started("d", parent="b")]
    rows = data_of(page_of(events))["rows"]
    assert [(row["kind"], row["runs"], row.get("up")) for row in rows] == [
        ("line", [0, 1], None),
        ("line", [2], 0),
        ("line", [3], 0),
    ]


def test_branches_stand_under_their_nursery() -> None:
    """A nursery stands under the run it forked from, its branches under it, and a branch's runs in the branch."""
    events = [
        started("r"),
        finished("r"),
        NurseryStarted(scope_id="n", parent_run_id="r", name="angles"),
        coordinator("c1", nursery="n"),
        coordinator("c2", nursery="n"),
        started("x", parent="r", scope="c1"),
        started("y", parent="x", scope="c1"),
        NurseryStarted(scope_id="inner", parent_run_id="y", parent_scope_id="c1"),
        CoordinatorFinished(scope_id="c2", status="failed", outcome=None, error_type="ValueError"),
        coordinator("alone", parent="y"),
    ]
    rows = data_of(page_of(events))["rows"]
    place = {row.get("id", "line"): number for number, row in enumerate(rows)}
    above = {row.get("id", "line"): row.get("up") for row in rows}
    assert above == {
        "line": None,
        "n": place["line"],
        "c1": place["n"],
        "c2": place["n"],
        "inner": place["c1"],
        "alone": place["c1"],
    }
    assert rows[place["c1"]]["runs"] == [1, 2]
    assert (rows[place["c2"]]["state"], rows[place["c2"]]["error_type"]) == ("failed", "ValueError")


def test_circles_are_cut() -> None:
    """A recording that says that things stand under each other still gives rows that all hang from the top."""
    events = [
        NurseryStarted(scope_id="n", parent_run_id="r", parent_scope_id="c"),
        coordinator("c", nursery="n"),
        started("r", parent="r"),
        started("s", parent="t"),
        started("t", parent="s"),
    ]
    rows = data_of(page_of(events))["rows"]
    for row in rows:
        at, steps = row, 0
        while "up" in at:
            at, steps = rows[at["up"]], steps + 1
            assert steps < len(rows)


def test_a_recording_that_begins_in_the_middle_has_a_page() -> None:
    """Ends without their beginnings, and an empty recording, are shown as far as they go."""
    attempt = AttemptStarted(run_id="r", number=2, purpose="repair", request_id="r-2", waited_s=0.5)
    data = data_of(
        page_of([attempt, finished("r"), CoordinatorFinished(scope_id="c", status="cancelled", outcome=None)])
    )
    assert [run["id"] for run in data["runs"]] == ["r"]
    assert {row["kind"] for row in data["rows"]} == {"line", "branch"}
    assert data_of(page_of([]))["runs"] == []
    assert "0 observations" in page_of([])


def test_errors_of_branches_are_listed() -> None:
    """What callbacks raised is counted by its class beside what providers failed with."""
    ended = CoordinatorFinished(scope_id="c", status="failed", outcome=None, error_type="<b>ValueError")
    text = page_of([coordinator("c"), ended])
    assert "&lt;b&gt;ValueError</th>" in text
    assert "<b>" not in text


def test_what_cannot_be_seen_is_spelled_out() -> None:
    """Control and zero-width characters are shown as what they are; backslashes of the text itself stay."""
    text = "a\x1b[2Jb\x07\x00\x08c\u200bd\ufeff\u00ad e\u2060\\u001b \\\x1b\n\tf\rg\r\nh\u200di\U000e0041"
    shown = json.loads(embedded(text))
    assert shown == (
        "a\\u001b[2Jb\\u0007\\u0000\\u0008c\\u200bd\\ufeff\\u00ad e\\u2060\\u001b \\\\u001b\n\tf\\u000dg\r\nh"
        "\\u200di\\ue0041"
    )


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f4bb",
        "\u2764\ufe0f\u200d\U0001f525",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ],
)
def test_joiners_of_pictures_and_scripts_stay(text: str) -> None:
    """A family, a flag and a Persian or Hindi word are made of characters that cannot be seen, and stay whole."""
    assert json.loads(embedded(text)) == text
    assert text in page_of([started("r", name=text)])


def test_nothing_unseen_is_left_in_the_tables() -> None:
    """Names in tables hold no raw control or zero-width character either."""
    made = page_of([started("r", name="a\x1b[2J\x07\u200b\u2060b"), finished("r")], name="x\u200by")
    assert not re.search("[\x00-\x08\x0b-\x1f\u200b\u2060]", made)
    assert "x\\u200by" in made


def test_an_endless_name_does_not_make_an_endless_page() -> None:
    """A name of megabytes is cut where it stands, and the page says how long it was."""
    small = len(page_of([started("r"), finished("r")]))
    made = page_of([started("r", name="n" * 5_000_000), finished("r")])
    assert len(made) < small + 20_000
    assert "(5,000,000 characters)" in made


def test_one_is_one() -> None:
    """A single observation is no plural, and what is unknown has no unit."""
    made = page_of([started("r")])
    assert "1 observation." in made
    assert "\N{EN DASH} s" not in made


def test_runs_told_twice_are_mentioned() -> None:
    """The page says that lines are there more than once."""
    assert "1 run is told more than once" in page_of([started("r"), finished("r"), started("r"), finished("r")])
