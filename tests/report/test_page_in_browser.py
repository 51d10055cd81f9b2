"""The page in a real browser: what it does with keys and pointers, and what hostile content cannot do to it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
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
    NurseryFinished,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
)
from furcate.primitives._receipt import Completed, ReceiptUsage, TransportReceipt
from furcate.primitives._usage import Usage
from furcate.report import Recording, page

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, which drives the browser")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which Debian has in the package of that name")

HOSTILE = (
    "</script><script>document.title = 'ran'</script><img src=http://127.0.0.1:9/x onerror=\"document.title='ran'\">"
    "<svg onload=\"document.title='ran'\"></svg>'\"--><style>*{display:none}</style>\u202egnp.exe"
)


class Told:
    """Makes up what a recording tells, a moment after the other."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.at_s = 1_800_000_000.0

    def tell(self, *events: Observation | ContentObservation) -> None:
        for event in events:
            self.at_s += 0.1
            self.lines.append(line_of(event, self.at_s))

    def run(self, run_id: str, *, parent: str | None = None, scope: str | None = None, said: str = "") -> None:
        receipt = TransportReceipt(
            request_id=f"{run_id}-1", caller_runtime_id="here", native_request_sha256=bytes(32),
            provider_request_sha256=bytes(range(32)), model="m", provider="lab", foreign_reasoning_dropped=0,
            outcome=Completed(
                stop_reason="end_turn",
                usage=ReceiptUsage(input_tokens=1, cache_read_tokens=0, cache_write_tokens=0, output_tokens=2),
            ),
        )  # fmt: skip
        usage = Usage(input_tokens=10, cache_read_tokens=30, output_tokens=2)
        self.tell(
            RunStarted(
                run_id=run_id, parent_run_id=parent, prompt=said or None, profile="p", backend="b", model="large",
                dialect="openai-chat", scope_id=scope,
            ),
            AttemptStarted(run_id=run_id, number=1, purpose="generate", request_id=f"{run_id}-1", waited_s=0.05),
        )  # fmt: skip
        if said:
            self.tell(
                ContentSent(run_id=run_id, number=1, inherited=0, messages=(Message.user(said),)),
                ContentReceived(run_id=run_id, number=1, message=Message.assistant(said)),
            )
        self.tell(
            AttemptFinished(
                run_id=run_id, number=1, purpose="generate", request_id=f"{run_id}-1", status="succeeded",
                duration_s=0.2, first_event_s=0.1, body_sha256="ab", usage=usage, receipt=receipt,
            ),
            RunFinished(
                run_id=run_id, status="succeeded", duration_s=0.3, usage=usage, attempts=1, repairs=0,
                validation="not_requested",
            ),
        )  # fmt: skip

    def forest(self, branches: int, *, name: str = "angle") -> None:
        self.run("root")
        self.tell(NurseryStarted(scope_id="n", parent_run_id="root", name=f"{name}s"))
        for number in range(branches):
            scope = f"c{number}"
            self.tell(
                CoordinatorStarted(
                    scope_id=scope,
                    parent_scope_id="n",
                    parent_run_id="root",
                    name=f"{name} {number}",
                    additional_turns=2,
                )
            )
            self.run(f"{scope}-one", parent="root", scope=scope)
            self.run(f"{scope}-two", parent=f"{scope}-one", scope=scope)
            if number == 1:
                self.tell(CoordinatorFinished(scope_id=scope, status="failed", outcome=None, error_type="ValueError"))
            else:
                self.tell(CoordinatorFinished(scope_id=scope, status="succeeded", outcome="exhausted"))
        self.tell(NurseryFinished(scope_id="n", status="succeeded", branches=branches))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start the browser once; nothing of it outlives this file's tests."""
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
            # Scrollbars that take room are what most people without a Mac have.
            ignore_default_args=["--hide-scrollbars"],
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open the page of a recording; whatever it complains of or asks the network for fails the test."""
    contexts, trouble = [], []

    def open_page(told: Told, *, scheme: str = "light", width: int = 1400) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page(Recording(told.lines), "told.jsonl"), encoding="utf-8")
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: trouble.append(message.text))
        found.on("pageerror", lambda error: trouble.append(str(error)))
        found.on("dialog", lambda dialog: trouble.append("a dialog"))
        found.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
        found.goto(path.as_uri())
        found.wait_for_selector("html[data-ready=yes]")
        return found

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def names(found: Any) -> list[str]:
    shown: list[str] = found.eval_on_selector_all(".space .row b", "all => all.map(one => one.textContent)")
    return shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_forest_is_drawn(opened: Callable[..., Any], scheme: str) -> None:
    """Opening, nursery and branches are rows of a tree, in the colours of day and night, readable in both."""
    told = Told()
    told.forest(3)
    found = opened(told, scheme=scheme)
    assert names(found) == ["messages", "3 branches", "angle 0", "angle 1", "angle 2"]
    levels = found.eval_on_selector_all(".space .row", "all => all.map(one => one.getAttribute('aria-level'))")
    assert levels == ["1", "2", "3", "3", "3"]
    assert found.locator(".space .row").nth(3).locator(".state").text_content() == "failed 2/2"
    assert found.locator(".space .row").nth(2).locator("rect.flow").count() == 2
    ink, paper = (
        found.evaluate(f"getComputedStyle(document.documentElement).{name}.match(/[0-9]+/g).map(Number)")
        for name in ("color", "backgroundColor")
    )
    assert (sum(ink) < sum(paper)) == (scheme == "light")
    assert abs(sum(ink) - sum(paper)) > 500


def test_everything_works_by_keyboard(opened: Callable[..., Any]) -> None:
    """Arrows move and fold, Enter shows details and takes the focus there, Escape gives it back."""
    told = Told()
    told.forest(3)
    found = opened(told)
    found.focus("[role=treegrid]")
    active = (
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
        ".querySelector('b').textContent"
    )
    for key, where in (
        ("ArrowDown", "3 branches"),
        ("ArrowDown", "angle 0"),
        ("ArrowRight", "angle 0"),
        ("ArrowRight", "turn 1"),
    ):
        found.keyboard.press(key)
        assert found.evaluate(active) == where
    assert names(found)[2:5] == ["angle 0", "turn 1", "turn 2"]
    found.keyboard.press("ArrowLeft")
    found.keyboard.press("ArrowLeft")
    assert names(found)[2:4] == ["angle 0", "angle 1"]
    found.keyboard.press("Enter")
    assert found.evaluate("document.activeElement.className") == "card"
    assert "2 of at most 2" in found.locator(".card").text_content()
    found.keyboard.press("Escape")
    assert found.evaluate("document.activeElement.getAttribute('role')") == "treegrid"
    assert found.locator(".card").is_hidden()
    found.keyboard.press("End")
    assert found.evaluate(active) == "angle 2"


def test_every_control_has_a_name(opened: Callable[..., Any]) -> None:
    """Who cannot see the page is told what each button, field and region is."""
    told = Told()
    told.forest(2)
    found = opened(told)
    found.locator(".space .row").nth(2).click()
    nameless = found.evaluate(
        "[...document.querySelectorAll('button, input, [role=treegrid], aside, section')].filter(one => !("
        "one.textContent.trim() || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby'))).length"
    )
    assert nameless == 0
    tree = found.locator("[role=treegrid]")
    assert int(tree.get_attribute("aria-rowcount")) == found.locator(".space .row").count() + 2
    assert found.locator(".row.chosen").get_attribute("aria-selected") == "true"


def test_hostile_content_is_shown_and_does_nothing(opened: Callable[..., Any]) -> None:
    """Markup in names and content is letters: no script runs, nothing is loaded, and the reading direction stays."""
    told = Told()
    told.run("r", said=HOSTILE)
    found = opened(told)
    found.locator(".space .row").first.click()
    said = found.locator(".card pre.said")
    assert said.count() == 2
    assert said.first.text_content() == HOSTILE.replace("\u202e", "\\u202e")
    assert found.title() == "told.jsonl: furcate report"
    assert found.locator("img, iframe, object, embed, link").count() == 0


def test_nothing_can_be_injected_afterwards(browser: Any) -> None:
    """Even a script or image that somehow came into the page would not be run or loaded by the browser."""
    told = Told()
    told.run("r")
    made = page(Recording(told.lines), "told.jsonl")
    foreign = "<script>document.title = 'ran'</script><img src='http://127.0.0.1:9/x'>"
    refused: list[str] = []
    with browser.new_context() as context:
        found = context.new_page()
        found.on("console", lambda message: refused.append(message.text))
        found.set_content(made.replace("</main>", f"</main>{foreign}"))
        found.wait_for_selector("html[data-ready=yes]")
        assert found.title() != "ran"
    assert len([text for text in refused if "Content Security Policy" in text]) == 2


def test_thousands_of_branches_are_folded(opened: Callable[..., Any]) -> None:
    """Of 2,000 branches, the failed and slowest come first, few elements are drawn, and every branch can be reached."""
    told = Told()
    told.forest(2000)
    found = opened(told)
    shown = names(found)
    assert shown[:3] == ["messages", "2,000 branches", "angle 1"]
    assert found.locator("*").count() < 3000
    tree = found.locator("[role=treegrid]")
    assert int(tree.get_attribute("aria-rowcount")) < 40
    found.focus("[role=treegrid]")
    found.keyboard.press("End")
    assert names(found)[-1] == "1,987 more"
    found.keyboard.press("Enter")
    assert int(tree.get_attribute("aria-rowcount")) > 2000
    found.keyboard.press("End")
    assert names(found)[-1].startswith("angle ")
    assert found.locator("*").count() < 3000
    found.fill("input[type=search]", "angle 1234")
    assert names(found) == ["angle 1234"]


def test_tables_lead_to_their_runs(opened: Callable[..., Any]) -> None:
    """A run named in a table is shown where it stands, though its branch was folded away."""
    told = Told()
    told.forest(100)
    found = opened(told)
    found.locator("#receipt-list button", has_text="more").click()
    found.locator("#receipt-list button.id", has_text="c44-two-1").click()
    assert found.locator(".row.chosen b").text_content() == "angle 44"
    assert "c44-two" in found.locator(".card").text_content()


def test_a_narrow_window_keeps_the_figure(opened: Callable[..., Any]) -> None:
    """On a small screen the page does not grow wider than the screen."""
    told = Told()
    told.forest(3)
    found = opened(told, width=480)
    assert names(found)[:2] == ["messages", "3 branches"]
    assert found.evaluate("document.documentElement.scrollWidth <= innerWidth")


CELLS = """[...document.querySelectorAll('.grid .row')].flatMap(row => [...row.children]
    .filter(cell => cell.getClientRects().length)
    .map((cell, n) => [n, cell.getBoundingClientRect().left, cell.getBoundingClientRect().right]))"""


@pytest.mark.parametrize("details", [False, True])
def test_no_cell_passes_the_table(opened: Callable[..., Any], details: bool) -> None:
    """At every width of a window, with details or without, all cells end within the table, and columns are straight."""
    told = Told()
    told.forest(55)
    found = opened(told)
    if details:
        found.locator(".space .row").nth(2).click()
    for width in (480, 800, 821, 1000, 1101, 1200, 1280, 1440, 1920):
        found.set_viewport_size({"width": width, "height": 900})
        edge = found.evaluate("document.querySelector('.grid').getBoundingClientRect().right")
        columns: dict[int, set[tuple[float, float]]] = {}
        for column, left, right in found.evaluate(CELLS):
            columns.setdefault(column, set()).add((round(left), round(right)))
        assert max(right for edges in columns.values() for _, right in edges) <= edge + 0.5
        assert [len(edges) for edges in columns.values()] == [1] * len(columns)
        if details and width > 1100:
            assert found.evaluate("document.querySelector('.card').getBoundingClientRect().left") >= edge
        assert found.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [821, 1400])
def test_the_words_of_the_axis_are_whole(opened: Callable[..., Any], width: int) -> None:
    """No label of the axis of time is cut off or lies over another."""
    told = Told()
    told.forest(3)
    told.at_s += 3000
    told.run("late")
    found = opened(told, width=width)
    edge = found.evaluate("document.querySelector('.head svg').getBoundingClientRect().right")
    labels = found.evaluate(
        "[...document.querySelectorAll('.head svg text')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.left, box.right])"
    )
    assert len(labels) >= 2
    assert max(right for _, right in labels) <= edge + 0.5
    assert all(before[1] < after[0] for before, after in itertools.pairwise(labels))


def test_openings_are_told_apart(opened: Callable[..., Any]) -> None:
    """An opening's row has the name that its branches have together, and a result of a search says where it stands."""
    told = Told()
    told.forest(3)
    found = opened(told)
    assert found.locator(".space .row").first.locator("i").text_content() == "angles"
    count = found.locator(".space .row").nth(1).locator("b")
    assert count.text_content() == "3 branches"
    assert count.evaluate("one => one.scrollWidth <= one.clientWidth")
    found.fill("input[type=search]", "angle 2")
    assert found.locator(".space .row").first.locator("i.path").text_content() == "in messages angles"
    found.locator(".space .row").first.click()
    assert "messages angles" in found.locator(".card").text_content()


def test_deep_nesting_leaves_room_for_names(opened: Callable[..., Any]) -> None:
    """Of forks within forks within forks, each row's name is still to be seen."""
    told = Told()
    told.run("fork-0")
    for depth in range(1, 13):
        told.run(f"side-{depth}", parent=f"fork-{depth - 1}")
        told.run(f"fork-{depth}", parent=f"fork-{depth - 1}")
    found = opened(told, width=1000)
    found.focus("[role=treegrid]")
    for _ in range(28):
        found.keyboard.press("ArrowRight")
        found.keyboard.press("ArrowDown")
    last = found.locator(".row.active")
    assert int(last.get_attribute("aria-level")) == 13
    assert last.locator("b").bounding_box()["width"] > 20
