"""Work that ``openai-chat`` servers ran themselves, and content of kinds that nobody knows.

Groq alone tells of such work in its answers (``executed_tools``); others show only what came of it, as citations or
as counts in the usage. No server of this dialect takes any of it back, so these activities have no native form.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import read_plain
from furcate.dialects.openai_chat._citations import clean_kind
from furcate.dialects.openai_chat._wire import ExecutedTool, given
from furcate.primitives._content import ActivityState, HostedActivity, Origin, ProviderPayload
from furcate.primitives._json import FrozenMap, Plain
from furcate.primitives._stream import HostedTransition

UNKNOWN_FORMAT = "openai-chat.unknown"

_NOTHING = FrozenMap()
_EXECUTED = msgspec.json.Decoder(list[ExecutedTool])

# What Groq calls its tools, by type or by name, in our words; what is not here keeps its own name.
_NAMES: Mapping[str, str] = {
    "search": "web_search",
    "web_search": "web_search",
    "browser_search": "web_search",
    "browser.search": "web_search",
    "browser.open": "web_search",
    "browser.find": "web_search",
    "visit": "web_fetch",
    "visit_website": "web_fetch",
    "python": "code_execution",
    "code_interpreter": "code_execution",
    "code_execution": "code_execution",
    "mcp": "mcp_call",
}


@define
class _Executed:
    id: str
    tool: ExecutedTool
    name: str
    input: FrozenMap
    done: bool = False

    def is_told_by(self, tool: ExecutedTool) -> bool:
        mine = self.tool
        if (mine.index, mine.type, mine.name) != (tool.index, tool.type, tool.name):
            return False
        if mine.arguments == tool.arguments:
            return True
        return not self.done and not (given(mine.arguments) and given(tool.arguments))


@define
class _Kept:
    id: str
    kind: str
    pieces: list[bytes] = field(factory=list)


class HostedBook:
    """Follow what a provider ran itself in one answer, and what came that nobody knows.

    Attributes:
        scope: the id of the response, which the activities' ids belong to.
    """

    def __init__(self, origin: Origin) -> None:
        self.scope = ""
        self._origin = origin
        self._executed: list[_Executed] = []
        self._kept: dict[str, _Kept] = {}
        self._kinds = 0

    def execute(self, raw: Raw) -> list[HostedTransition]:
        """Take the executed tools of a delta or a message; each is told once when it starts and once when it is done.

        Raises:
            msgspec.ValidationError: they have another shape.
        """
        told: list[HostedTransition] = []
        for tool in _EXECUTED.decode(raw):
            # A tool is told of again soon, so not all are looked at: an answer of very many would take very long.
            one = next((known for known in self._executed[-100:] if known.is_told_by(tool)), None)
            if one is None:
                one = self._open(tool)
                told.append(self._tell(one.id, one.name, "started", its_input=one.input))
            elif given(tool.arguments) and not given(one.tool.arguments):
                one.tool, one.input = tool, _input(one.name, tool)
            if not one.done and _has_output(tool):
                told.append(self._complete(one))
        return told

    def keep(self, kind: str | None, raw: Raw, key: str | None = None) -> list[HostedTransition]:
        """Take content of an unknown kind; pieces under one `key` are one, and are told when the answer is whole."""
        name = clean_kind(kind)
        if key is not None and key in self._kept:
            self._kept[key].pieces.append(bytes(raw))
            return []
        self._kinds += 1
        its_id = f"unknown_{self._kinds}"
        if key is None:
            return [self._tell(its_id, name, "completed", payload=self._payload([bytes(raw)]))]
        self._kept[key] = _Kept(its_id, name, [bytes(raw)])
        return [self._tell(its_id, name, "started")]

    def keeps(self, key: str) -> bool:
        """Tell whether pieces under `key` are kept already."""
        return key in self._kept

    def close(self) -> list[HostedTransition]:
        """Take the end of an answer that is whole: what was executed for it is done, whatever it put out."""
        told = [self._complete(one) for one in self._executed if not one.done]
        for kept in self._kept.values():
            payload = self._payload(kept.pieces)
            told.append(self._tell(kept.id, kept.kind, "completed", payload=payload))
        return told

    def _open(self, tool: ExecutedTool) -> _Executed:
        words = ((tool.name or "").lower(), (tool.type or "").lower())
        name = next((_NAMES[word] for word in words if word in _NAMES), clean_kind(tool.type or tool.name))
        one = _Executed(f"executed_{len(self._executed)}", tool, name, _input(name, tool))
        self._executed.append(one)
        return one

    def _complete(self, one: _Executed) -> HostedTransition:
        one.done = True
        return self._tell(one.id, one.name, "completed", its_input=one.input, summary=_summary(one.input))

    def _payload(self, pieces: list[bytes]) -> ProviderPayload:
        value = pieces[0] if len(pieces) == 1 else b"[" + b",".join(pieces) + b"]"
        return ProviderPayload(self._origin.provider, UNKNOWN_FORMAT, "1", value)

    def _tell(
        self,
        its_id: str,
        name: str,
        state: ActivityState,
        *,
        its_input: FrozenMap = _NOTHING,
        summary: str = "",
        payload: ProviderPayload | None = None,
    ) -> HostedTransition:
        return HostedTransition(
            HostedActivity(its_id, name, state, input=its_input, summary=summary, payload=payload, scope=self.scope)
        )


def _has_output(tool: ExecutedTool) -> bool:
    # A search that has only begun carries an empty list of results.
    results = read_plain(tool.search_results)
    found = results.get("results") if isinstance(results, dict) else results
    return bool(read_plain(tool.output)) or bool(found) or given(tool.code_results) or given(tool.browser_results)


def _input(name: str, tool: ExecutedTool) -> FrozenMap:
    written = read_plain(tool.arguments)
    if isinstance(written, str):
        text, written = written, read_plain(written.encode("utf-8", "replace"))
    else:
        text = ""
    arguments: dict[str, Plain] = written if isinstance(written, dict) else {}
    word = (tool.name or tool.type or "").lower()
    if name == "code_execution":
        return FrozenMap({"code": _string(arguments, "code") or text})
    if name == "web_fetch":
        return FrozenMap({"url": _string(arguments, "url")})
    if name != "web_search":
        return FrozenMap(arguments)
    if word.endswith(".open"):
        return FrozenMap({"type": "open_page", "url": _string(arguments, "url") or _string(arguments, "id")})
    if word.endswith(".find"):
        url, pattern = _string(arguments, "url"), _string(arguments, "pattern")
        return FrozenMap({"type": "find_in_page", "url": url, "pattern": pattern})
    query = _string(arguments, "query")
    return FrozenMap({"type": "search", "queries": [query] if query else []})


def _summary(its_input: FrozenMap) -> str:
    kind = its_input.get("type")
    if kind == "search":
        queries = its_input.get("queries")
        return "; ".join(str(query) for query in queries) if isinstance(queries, tuple) else ""
    if kind == "open_page":
        return f"opened {its_input['url']}".rstrip()
    if kind == "find_in_page":
        return f"{its_input['pattern']} in {its_input['url']}".removesuffix(" in ")
    return ""


def _string(arguments: dict[str, Plain], key: str) -> str:
    value = arguments.get(key)
    return value if isinstance(value, str) else ""
