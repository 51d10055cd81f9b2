"""Checks of the checks: with a branch taken out or changed, the test that is there for it fails."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from furcate.dialects import _server_tools
from furcate.dialects._server_tools import Spelling
from furcate.dialects.anthropic_messages import _hosted as messages_hosted
from furcate.dialects.anthropic_messages import _parts as messages_parts
from furcate.dialects.google_generatecontent import _hosted as google_hosted
from furcate.dialects.openai_chat import _hosted as chat_hosted
from furcate.dialects.openai_responses import _answer as responses_answer
from furcate.dialects.openai_responses import _hosted as responses_hosted
from furcate.dialects.openai_responses import _items as responses_items
from furcate.dialects.openai_responses import _replay as responses_replay
from furcate.primitives._json import FrozenMap

HERE = Path(__file__).parent


def _module(name: str) -> ModuleType:
    """Load another file of tests, to call what is in it."""
    found = importlib.util.spec_from_file_location(f"checked_{name}", HERE / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


MODULES = {
    name: _module(name)
    for name in (
        "test_server_tools",
        "test_responses_hosted",
        "test_responses_replay",
        "test_messages_decode",
        "test_google_decode",
        "test_chat_hosted",
    )
}


def _run(check: str) -> None:
    """Call a test, ``module.function``, with all that it is parametrised with.

    Raises:
        AssertionError: it fails; whatever it was that failed is the cause.
    """
    module, _, function = check.partition(".")
    test = getattr(MODULES[module], function)
    try:
        for arguments in _arguments(test):
            test(*arguments)
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{check} fails: {error!r}") from error


def _arguments(test: Callable[..., None]) -> Iterator[tuple[Any, ...]]:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    if not marks:
        yield ()
        return
    (mark,) = marks
    names, rows = mark.args
    single = isinstance(names, str) and "," not in names
    for row in rows:
        yield (row,) if single else tuple(row)


def _fails(*checks: str) -> None:
    """Demand that one of some checks fails."""
    passed = []
    for check in checks:
        try:
            _run(check)
        except AssertionError:
            return
        passed.append(check)
    pytest.fail(f"nothing noticed: {', '.join(passed)}")


SPELLED = {
    "openai-responses": "test_responses_lists_the_search_as_a_tool",
    "openai-chat": "test_chat_sets_a_member_for_the_search",
    "anthropic-messages": "test_messages_lists_the_search_as_a_tool",
    "google-generatecontent": "test_google_lists_the_search_as_a_tool",
}


@pytest.mark.req("S1-66")
@pytest.mark.parametrize("dialect", SPELLED)
def test_another_spelling_is_noticed(monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    """Each cell of the search's row has a test that fails where the cell is empty or says something else."""
    check = f"test_server_tools.{SPELLED[dialect]}"
    _run(check)
    row: dict[str, Spelling] = _server_tools._TABLE["web_search"]  # type: ignore[assignment]
    with monkeypatch.context() as broken:
        broken.setitem(row, dialect, Spelling(tool=FrozenMap({"type": "search_the_web"})))
        _fails(check)
    monkeypatch.delitem(row, dialect)
    _fails(check)


HOSTED_ITEMS = (
    "test_responses_hosted.test_a_search_is_two_transitions_in_one_place",
    "test_responses_hosted.test_every_kind_of_work_has_a_name_of_ours",
    "test_responses_hosted.test_a_shell_in_a_container_is_hosted",
    "test_responses_hosted.test_what_waits_for_the_client_is_only_started",
    "test_responses_hosted.test_a_made_image_is_media_too",
)


@pytest.mark.req("S1-66")
def test_the_checks_of_items_pass_as_things_are() -> None:
    """What fails below does so because of what was broken there."""
    for check in HOSTED_ITEMS:
        _run(check)


@pytest.mark.req("S1-66")
@pytest.mark.parametrize("kind", responses_hosted.KINDS)
def test_a_missing_item_is_noticed(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each kind of hosted item has a test that fails where the decoder has no arm for it, or calls it otherwise."""
    kinds: dict[str, responses_hosted.Kind] = responses_hosted.KINDS  # type: ignore[assignment]
    with monkeypatch.context() as broken:
        broken.setitem(kinds, kind, attrs.evolve(kinds[kind], name="something_else"))
        _fails(*HOSTED_ITEMS)
    monkeypatch.delitem(kinds, kind)
    _fails(*HOSTED_ITEMS)


Break = Callable[[pytest.MonkeyPatch], None]


def _always_with_ids(self: Any, opaque: Any, formats: set[str]) -> Any:
    return self._read(opaque, formats)


def _never_with_ids(self: Any, opaque: Any, formats: set[str]) -> Any:
    members = self._read(opaque, formats)
    members.pop("id", None)
    return members


BROKEN: dict[str, tuple[Break, str]] = {
    "ids always go back": (
        lambda m: m.setattr(responses_replay._Answer, "_members", _always_with_ids),
        "test_responses_replay.test_ids_go_back_only_where_that_is_wanted",
    ),
    "ids never go back": (
        lambda m: m.setattr(responses_replay._Answer, "_members", _never_with_ids),
        "test_responses_replay.test_ids_go_back_only_where_that_is_wanted",
    ),
    "actions are not rebuilt": (
        lambda m: m.setattr(responses_replay, "_action", lambda activity: {"type": activity.input["type"]}),
        "test_responses_replay.test_searches_are_rebuilt_from_the_record",
    ),
    "progress is not known": (
        lambda m: m.setattr(responses_answer, "PROGRESS", frozenset()),
        "test_responses_hosted.test_progress_tells_nothing",
    ),
    "what is not final does not count": (
        lambda m: m.setattr(responses_hosted, "NOT_FINAL", frozenset()),
        "test_responses_hosted.test_a_status_becomes_a_state",
    ),
    "incomplete counts as completed": (
        lambda m: m.setitem(responses_hosted._ENDED, "incomplete", "completed"),  # type: ignore[call-overload]
        "test_responses_hosted.test_a_status_becomes_a_state",
    ),
    "unknown words pass": (
        lambda m: m.setattr(responses_items, "read_state", lambda kind, members: ("completed", None)),
        "test_responses_hosted.test_what_nobody_decided_about_breaks_the_answer",
    ),
    "a search of messages has no name": (
        lambda m: m.delitem(messages_hosted.TOOLS, "web_search"),  # type: ignore[call-overload]
        "test_messages_decode.test_a_search_is_two_transitions",
    ),
    "a result of messages is not known": (
        lambda m: m.setattr(
            messages_parts, "_KNOWN", frozenset(messages_parts._KNOWN - {"web_search_tool_result"}), raising=True
        ),
        "test_messages_decode.test_a_search_is_two_transitions",
    ),
    "an error of messages is no failure": (
        lambda m: m.setattr(messages_hosted, "_is_error", lambda content: False),
        "test_messages_decode.test_kinds_of_hosted_work",
    ),
    "grounding is no search": (
        lambda m: m.setattr(google_hosted.HostedBook, "grounding", lambda self, members, raw: []),
        "test_google_decode.test_a_search_is_one_activity_that_is_over",
    ),
    "executed tools are passed over": (
        lambda m: m.setattr(chat_hosted.HostedBook, "execute", lambda self, raw: []),
        "test_chat_hosted.test_executed_tools_start_and_end_in_place",
    ),
}


@pytest.mark.req("S1-66")
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_branch_is_noticed(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The test that a branch has passes with it and fails without."""
    breaks, check = BROKEN[what]
    _run(check)
    breaks(monkeypatch)
    _fails(check)
