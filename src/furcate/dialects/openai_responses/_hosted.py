"""Provider-run work of ``openai-responses``: which item is which capability, and what was asked of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from attrs import frozen

from furcate.dialects._failures import read_plain
from furcate.dialects.openai_responses._wire import (
    NULL,
    Members,
    clean_kind,
    given,
    read_members,
    read_text,
    text_of,
    texts_of,
)
from furcate.primitives._content import ActivityState, Media
from furcate.primitives._json import Json

Input = dict[str, Json]

_ENDED: Mapping[str, ActivityState] = {"completed": "completed", "failed": "failed", "incomplete": "failed"}

# Words of work that goes on; where one comes with the end of its item, that ended the work.
NOT_FINAL = frozenset({"in_progress", "searching", "generating", "interpreting", "calling", "queued"})


class UnknownWord(Exception):
    """Raised when an item of a known kind says something that nobody decided about.

    Attributes:
        place: where and what, such as ``web_search_call.action:telepathy``.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(place)


def _web_search(members: Members) -> Input:
    raw = members.get("action", NULL)
    if not given(raw):  # a recorded route ends its searches without saying what they did
        return {}
    action = read_members(raw)
    kind = text_of(action, "type")
    if kind == "search":
        queries = (text_of(action, "query"), *texts_of(action, "queries"))
        return {"type": "search", "queries": list(dict.fromkeys(query for query in queries if query))}
    if kind == "open_page":
        return {"type": "open_page", "url": text_of(action, "url")}
    if kind == "find_in_page":
        return {"type": "find_in_page", "url": text_of(action, "url"), "pattern": text_of(action, "pattern")}
    raise UnknownWord(f"web_search_call.action:{clean_kind(kind)}")


def _file_search(members: Members) -> Input:
    return {"queries": texts_of(members, "queries")}


def _texts(**names: str) -> Callable[[Members], Input]:
    """Give a reader that takes texts over, under names of ours where they are not empty."""

    def read(members: Members) -> Input:
        found = {ours: text_of(members, theirs) for ours, theirs in names.items()}
        return {ours: text for ours, text in found.items() if text}

    return read


def _member(name: str) -> Callable[[Members], Input]:
    """Give a reader that takes one member over as it is, if it is there."""

    def read(members: Members) -> Input:
        value = read_plain(members[name]) if name in members else None
        return {name: value} if value is not None else {}

    return read


def _shell(members: Members) -> Input:
    action = read_plain(members["action"]) if "action" in members else None
    commands = action.get("commands") if isinstance(action, dict) else None
    return {"commands": [str(one) for one in commands]} if isinstance(commands, list) else {}


def _hosted(_members: Members) -> bool:
    return False


def _waits(_members: Members) -> bool:
    return True


def _without_container(members: Members) -> bool:
    environment = read_plain(members["environment"]) if "environment" in members else None
    return not isinstance(environment, dict) or environment.get("type") != "container_reference"


def _by_client(members: Members) -> bool:
    return text_of(members, "execution") == "client"


@frozen
class Kind:
    """Say what an item of one type is.

    Attributes:
        name: our name of the capability.
        read: gives the normalised input of a finished item.
        waits: tells whether an item waits for the client, which has to run it or to agree to it.
    """

    name: str
    read: Callable[[Members], Input]
    waits: Callable[[Members], bool] = _hosted


KINDS: Mapping[str, Kind] = {
    "web_search_call": Kind("web_search", _web_search),
    "file_search_call": Kind("file_search", _file_search),
    "code_interpreter_call": Kind("code_execution", _texts(code="code")),
    "image_generation_call": Kind("image_generation", _texts(prompt="revised_prompt")),
    "mcp_call": Kind("mcp_call", _texts(server="server_label", tool="name", arguments="arguments")),
    "mcp_list_tools": Kind("mcp_list_tools", _texts(server="server_label")),
    "mcp_approval_request": Kind(
        "mcp_approval_request", _texts(server="server_label", tool="name", arguments="arguments"), _waits
    ),
    "computer_call": Kind("computer_use", _member("action"), _waits),
    "computer_call_output": Kind("computer_use_output", _texts(call_id="call_id")),
    "local_shell_call": Kind("local_shell", _member("action"), _waits),
    "shell_call": Kind("shell", _shell, _without_container),
    "shell_call_output": Kind("shell_output", _texts(call_id="call_id")),
    "apply_patch_call": Kind("apply_patch", _member("operation"), _waits),
    "apply_patch_call_output": Kind("apply_patch_output", _texts(call_id="call_id")),
    "tool_search_call": Kind("tool_search", _member("arguments"), _by_client),
    "tool_search_output": Kind("tool_search_output", _texts(call_id="call_id")),
    "compaction": Kind("compaction", _texts()),
}
"""The items of provider-run work, and those that a client would have to run, by their type."""


def read_state(kind: str, members: Members) -> tuple[ActivityState, str | None]:
    """Give the state in which an item ended, and its status where that was not final.

    Raises:
        UnknownWord: the status is none that we know.
    """
    status = text_of(members, "status")
    if status in _ENDED:
        return _ENDED[status], None
    if status in NOT_FINAL:
        return "completed", status
    if status:
        raise UnknownWord(f"{kind}.status:{clean_kind(status)}")
    return ("failed" if given(members.get("error", NULL)) else "completed"), None


def summary_of(name: str, asked: Input) -> str:
    """Give the line that people see of finished work; empty where there is nothing to say beside its name."""
    queries = asked.get("queries")
    if isinstance(queries, list):
        return "; ".join(str(query) for query in queries)
    if name != "web_search":
        return ""
    url = str(asked.get("url", ""))
    if asked.get("type") == "find_in_page":
        return f"{asked.get('pattern', '')} in {url}" if url else str(asked.get("pattern", ""))
    return f"opened {url}".strip() if asked.get("type") == "open_page" else ""


def picture_of(members: Members) -> Media | None:
    """Give the image that an item of image generation holds, or None."""
    result = read_text(members.get("result"))
    if not result:
        return None
    try:
        data = base64.b64decode(result, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Media(f"image/{text_of(members, 'output_format') or 'png'}", data)
