"""Work that a provider of ``anthropic-messages`` runs on its own side, and blocks that nobody knows.

A call and its result are two blocks, mostly of one answer: the call is told as started when its input is whole, the
result as completed or failed. Where an answer pauses in between, the result opens the next one; the ids of this
dialect are unique beyond an answer, so activities with an id of the provider carry no scope and are found again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, read_plain
from furcate.dialects._open_work import OpenWork
from furcate.dialects.anthropic_messages._wire import (
    BLOCK_FORMAT,
    CALL_FORMAT,
    CONTAINER_FORMAT,
    PIECES_FORMAT,
    RESULT_FORMAT,
    UNKNOWN_FORMAT,
    VERSION,
    CallBlock,
    Container,
    Members,
    ResultBlock,
    compact,
    payload,
)
from furcate.primitives._content import ActivityState, HostedActivity, Origin, ProviderPayload
from furcate.primitives._json import FrozenMap, Plain
from furcate.primitives._stream import HostedTransition, Noticed, StreamEvent

_CALLS = msgspec.json.Decoder(CallBlock)
_RESULTS = msgspec.json.Decoder(ResultBlock)
_CONTAINERS = msgspec.json.Decoder(Container)

# The provider's tools by its names, in our words. One capability has several tools.
TOOLS: Mapping[str, str] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_execution",
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
    "advisor": "advisor",
}

# The results by the type of their block, for those whose call was in an earlier answer.
RESULTS: Mapping[str, str] = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
    "bash_code_execution_tool_result": "code_execution",
    "text_editor_code_execution_tool_result": "code_execution",
    "tool_search_tool_result": "tool_search",
    "advisor_tool_result": "advisor",
    "mcp_tool_result": "mcp_call",
}

CALLS = frozenset({"server_tool_use", "mcp_tool_use"})

# Blocks that stand for themselves: a summary in the place of what came before, the point where another model took
# over, and a file that the provider keeps.
SINGLES = frozenset({"compaction", "fallback", "container_upload"})


class HostedBook:
    """Follow what a provider ran in one answer.

    Attributes:
        scope: the id of the answer, for ids that are made here.
    """

    def __init__(self, origin: Origin, open_work: OpenWork) -> None:
        self.scope = ""
        self._origin = origin
        self._open = open_work
        self._begun: dict[str, HostedActivity] = {}
        self._ended: set[str] = set()
        self._kept = 0

    @property
    def pending(self) -> bool:
        """Whether something was started, here or in an earlier answer, and has no result yet."""
        begun = (*self._begun, *(one.id for one in self._open.starts))
        return any(one not in self._ended for one in begun)

    def knows(self, members: Members, kind: str) -> bool:
        """Tell whether the tool that a call block names is one of ours; servers of the protocol MCP bring their own.

        Raises:
            msgspec.DecodeError: the block has another shape.
        """
        return kind == "mcp_tool_use" or _CALLS.decode(msgspec.json.encode(members)).name in TOOLS

    def start(self, members: Members, kind: str, position: int) -> StreamEvent:
        """Take a call whose input is whole.

        Raises:
            msgspec.DecodeError: the block has another shape.
            ValueError: it has no id.
        """
        native = compact(members)
        call = _CALLS.decode(native)
        if not call.id:
            raise ValueError("a call without an id")
        if call.id in self._begun:
            return Noticed("duplicate.started")
        arguments = read_plain(call.input)
        given = arguments if isinstance(arguments, dict) else {}
        if kind == "mcp_tool_use":
            name = "mcp_call"
            told = FrozenMap({"server": call.server_name or "", "tool": call.name, "arguments": given})
        else:
            name, told = TOOLS[call.name], _input(call.name, given)
        activity = HostedActivity(
            call.id, name, "started", input=told, payload=self._payload(CALL_FORMAT, native, call.id), position=position
        )
        self._begun[call.id] = activity
        return HostedTransition(activity)

    def finish(self, members: Members, kind: str, position: int) -> StreamEvent:
        """Take a result; where its call is in no answer that is known, the type of the block says what ran.

        Raises:
            msgspec.DecodeError: the block has another shape.
            ValueError: it does not say of which call.
        """
        native = compact(members)
        result = _RESULTS.decode(native)
        its_id = result.tool_use_id
        if not its_id:
            raise ValueError("a result without the id of its call")
        if its_id in self._ended:
            return Noticed("duplicate.finished")
        self._ended.add(its_id)
        content = read_plain(result.content)
        failed = bool(result.is_error) or (isinstance(content, dict) and _is_error(content))
        state: ActivityState = "failed" if failed else "completed"
        begun = self._begun.get(its_id) or self._open.find(its_id)
        told = begun.input if begun is not None else FrozenMap()
        return HostedTransition(
            HostedActivity(
                its_id,
                begun.name if begun is not None else RESULTS[kind],
                state,
                input=told,
                summary=_summary(told),
                payload=self._payload(RESULT_FORMAT, native, its_id),
                position=position,
            )
        )

    def single(self, members: Members, kind: str, position: int) -> HostedTransition:
        """Take a block that stands for itself."""
        file_id = read_plain(members["file_id"]) if "file_id" in members else None
        told = FrozenMap({"file_id": file_id}) if isinstance(file_id, str) else FrozenMap()
        kept = self._payload(BLOCK_FORMAT, compact(members))
        return self._own(f"{kind}_{position}", kind, kept, position=position, told=told)

    def keep(self, kind: str, members: Members, position: int, *, deltas: list[Raw] | None) -> HostedTransition:
        """Take content of an unknown kind: a block, with the pieces in which it streamed, or None for what is no block.

        Nobody can join such pieces, so only a block that came without any can go back.
        """
        if deltas:
            block = Raw(msgspec.json.encode(members))
            pieces = Raw(msgspec.json.encode(deltas))
            members = {"content_block": block, "deltas": pieces}
        form = UNKNOWN_FORMAT if deltas == [] else PIECES_FORMAT
        self._kept += 1
        kept = self._payload(form, compact(members))
        return self._own(f"unknown_{self._kept}", kind, kept, position=position)

    def contain(self, raw: Raw) -> HostedTransition | None:
        """Take the container that unfinished work of this answer runs in; None where it cannot be read."""
        try:
            container = _CONTAINERS.decode(raw)
        except UNREADABLE:
            return None
        told = FrozenMap({"expires_at": container.expires_at}) if container.expires_at else FrozenMap()
        kept = self._payload(CONTAINER_FORMAT, container.id.encode())
        return HostedTransition(
            HostedActivity("container", "container", "completed", input=told, payload=kept, scope=self.scope)
        )

    def _own(
        self, its_id: str, name: str, kept: ProviderPayload, *, position: int, told: FrozenMap | None = None
    ) -> HostedTransition:
        return HostedTransition(
            HostedActivity(
                its_id,
                name,
                "completed",
                input=told if told is not None else FrozenMap(),
                payload=kept,
                position=position,
                scope=self.scope,
            )
        )

    def _payload(self, form: str, value: bytes, its_id: str = "") -> ProviderPayload:
        return payload(self._origin, form, value, version=self._open.version(its_id, VERSION))


def _is_error(content: dict[str, Plain]) -> bool:
    kind = content.get("type")
    return "error_code" in content or (isinstance(kind, str) and kind.endswith("_error"))


def _input(tool: str, given: dict[str, Plain]) -> FrozenMap:
    if tool == "web_search" or tool.startswith("tool_search"):
        query = given.get("query", given.get("pattern"))
        return FrozenMap({"type": "search", "queries": [query] if isinstance(query, str) and query else []})
    if tool == "web_fetch":
        url = given.get("url")
        return FrozenMap({"type": "open_page", "url": url if isinstance(url, str) else ""})
    return FrozenMap(given)


def _summary(told: FrozenMap) -> str:
    kind = told.get("type")
    if kind == "search":
        queries = told.get("queries")
        return "; ".join(str(query) for query in queries) if isinstance(queries, tuple) else ""
    if kind == "open_page":
        return f"opened {told.get('url', '')}".rstrip()
    return ""
