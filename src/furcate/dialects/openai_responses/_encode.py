"""Calls as ``openai-responses`` request bodies.

The items that a node of a history adds are encoded once and kept with it, so the branches of one conversation share
the bytes of its beginning.
"""

from __future__ import annotations

from furcate.dialects._server_tools import spelled
from furcate.dialects.openai_responses._replay import message_items, write
from furcate.dialects.openai_responses._schema import response_format
from furcate.primitives._content import ToolCall
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._json import Plain, thaw, thaw_object
from furcate.primitives._message import Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ModelCall, WireRequest

_NAME = "openai-responses"
_MADE_HERE = ("input", "stream", "model")
_MERGED = ("reasoning", "text")


class _Chunk:
    """The bytes of a node's items; a comma leads where the nodes before it have some."""

    __slots__ = ("begun", "custom", "data")

    def __init__(self, data: bytes, begun: bool, custom: frozenset[str]) -> None:
        self.data = data
        self.begun = begun
        self.custom = custom


_NOTHING = _Chunk(b"", False, frozenset())
_CHUNKS: MemoKey[_Chunk] = MemoKey("openai-responses")
_CHUNKS_WITH_IDS: MemoKey[_Chunk] = MemoKey("openai-responses, with item ids")
_CACHE_KEYS: MemoKey[str | None] = MemoKey("openai-responses, cache key")


def encode_call(call: ModelCall) -> WireRequest:
    """Encode a call as a POST to ``/responses``.

    Raises:
        RequestError: a text holds half a character, or the tools do not fit together.
        UnsupportedError: a medium or a setting.
        PayloadError: a payload of this provider cannot be read.
    """
    members = _members(call)
    for key, extra in call.settings.extra_body.items():
        if key in _MADE_HERE:
            raise RequestError(f"extra_body holds {key!r}, which is made from the request itself; take it out")
        ours, theirs = members.get(key) if key in _MERGED else None, thaw(extra)
        members[key] = {**ours, **theirs} if isinstance(ours, dict) and isinstance(theirs, dict) else theirs
    head = b'{"model":' + write(call.model, "the model's name") + b',"input":['
    tail = b"".join(
        b"," + write(key, "a key of extra_body") + b":" + write(value, key) for key, value in members.items()
    )
    return WireRequest(
        "/responses",
        (head, *_conversation(call), b"]" + tail + b"}"),
        (
            ("content-type", "application/json"),
            ("accept", "text/event-stream" if call.stream else "application/json"),
        ),
        call.stream,
    )


def _conversation(call: ModelCall) -> list[bytes]:
    key, compute = (_CHUNKS_WITH_IDS, _chunk_with_ids) if call.replay_item_ids else (_CHUNKS, _chunk)
    chunks = (node.memo(key, compute).data for node in call.history.nodes())
    return [data for data in chunks if data]


def _chunk(node: History) -> _Chunk:
    # The oldest node is asked first, so the parent's chunk is always there and this never goes deeper than one.
    return _encoded(node, node.parent.memo(_CHUNKS, _chunk) if node.parent is not None else _NOTHING, ids=False)


def _chunk_with_ids(node: History) -> _Chunk:
    before = node.parent.memo(_CHUNKS_WITH_IDS, _chunk_with_ids) if node.parent is not None else _NOTHING
    return _encoded(node, before, ids=True)


def _encoded(node: History, before: _Chunk, *, ids: bool) -> _Chunk:
    first = len(node) - len(node.added) + 1
    items: list[bytes] = []
    custom = before.custom
    for number, message in enumerate(node.added, first):
        if number == 1 and message.role == "system":
            continue  # it is the instructions
        custom |= {part.id for part in message.parts if isinstance(part, ToolCall) and part.kind == "custom"}
        items.extend(message_items(message, number, ids=ids, custom=custom))
    data = b",".join(items)
    return _Chunk(b"," + data if before.begun and data else data, before.begun or bool(data), custom)


def _first(history: History) -> Message | None:
    return next(iter(history), None)


def _members(call: ModelCall) -> dict[str, Plain]:
    members: dict[str, Plain] = {}
    first = _first(call.history)
    if first is not None and first.role == "system":
        members["instructions"] = first.text
    members.update(_tools(call))
    members.update(_settings(call.settings))
    shape = response_format(*call.schema) if call.schema is not None else None
    if shape is not None:
        members["text"] = {"format": shape}
    cache_key = next((key for node in call.history.nodes() if (key := node.memo(_CACHE_KEYS, _cache_key))), None)
    if cache_key is None and call.beginning is not None:
        cache_key = call.beginning.digest.hex()[:32]
    if cache_key is not None:
        members["prompt_cache_key"] = cache_key
    members["store"] = False
    members["include"] = ["reasoning.encrypted_content"]
    members["stream"] = call.stream
    return members


def _cache_key(node: History) -> str | None:
    """Give a key for the beginning of a conversation up to the node's first hint, the same in all that share it."""
    for place, message in enumerate(node.added, 1):
        if message.cache is not None:
            return History(node.added[:place], node.parent).digest.hex()[:32]
    return None


def _settings(settings: Settings) -> dict[str, Plain]:
    for name, value, remedy in (
        ("seed", settings.seed, "leave it out"),
        ("stop", settings.stop or None, "leave it out, or cut the answer yourself"),
    ):
        if value is not None:
            raise UnsupportedError(f"the setting {name} is given, which openai-responses does not have; {remedy}")
    members: dict[str, Plain] = {
        "max_output_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning": {"effort": settings.reasoning_effort} if settings.reasoning_effort is not None else None,
    }
    return {key: value for key, value in members.items() if value is not None}


def _tools(call: ModelCall) -> dict[str, Plain]:
    names = [tool.name for tool in call.tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"the tool {twice!r} is declared twice; give each tool a name of its own")
    declared: list[Plain] = [_function(tool) for tool in call.tools]
    declared.extend(thaw_object(one.tool) for one in spelled(_NAME, call.server_tools) if one.tool is not None)
    members: dict[str, Plain] = {"tools": declared} if declared else {}
    choice = _choice(call, names)
    if choice is not None:
        members["tool_choice"] = choice
    return members


def _choice(call: ModelCall, names: list[str]) -> Plain:
    choice = call.tool_choice
    if choice is None:
        return "auto" if call.server_tools and not names else None
    if choice in ("auto", "none"):
        return choice if names or call.server_tools else None
    if not names:
        raise RequestError(
            f"tool_choice is {choice!r} but the request declares no function tools; declare some or leave it out"
        )
    if choice == "required":
        # Work that the provider runs would satisfy the plain word, and nobody would be called.
        functions: list[Plain] = [{"type": "function", "name": name} for name in names]
        return {"type": "allowed_tools", "mode": "required", "tools": functions} if call.server_tools else choice
    if choice not in names:
        raise RequestError(f"tool_choice names {choice!r}, which is not declared; there are: {', '.join(names)}")
    return {"type": "function", "name": choice}


def _function(tool: Tool) -> Plain:
    function: dict[str, Plain] = {"type": "function", "name": tool.name}
    if tool.description:
        function["description"] = tool.description
    # Servers take a missing word for True, and then refuse most schemas that were not written for it.
    return {**function, "parameters": thaw_object(tool.parameters), "strict": False}
