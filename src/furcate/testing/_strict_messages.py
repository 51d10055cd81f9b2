"""What an anthropic-messages server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.testing._framing import JsonObject
from furcate.testing._rules import Refused, dicts, member, text

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_THOUGHT = ("thinking", "redacted_thinking")
_SEARCHED = "web_search_tool_result"

_Turn = tuple[str, list[JsonObject]]


class MessagesRules:
    """Refuse unpaired calls, changed or missing signed thought, changed opaque values, and empty blocks."""

    def __init__(self) -> None:
        # Everything opaque that was sent, with the block that it was part of.
        self._sealed: dict[str, JsonObject] = {}
        self._answers: dict[str, list[JsonObject]] = {}
        self._finished: set[str] = set()

    def remember(self, said: JsonObject, request: StubRequest) -> None:
        """Take note of the blocks of an answer."""
        blocks = dicts(said.get("content"))
        for block in blocks:
            for name in ("signature", "data"):
                if text(block, name):
                    self._sealed[text(block, name)] = block
            for citation in dicts(block.get("citations")):
                self._sealed[text(citation, "encrypted_index")] = citation
            for result in dicts(block.get("content")):
                self._sealed[text(result, "encrypted_content")] = result
            if block["type"] == _SEARCHED:
                self._finished.add(text(block, "tool_use_id"))
            if block["type"] == "tool_use":
                self._answers[text(block, "id")] = blocks

    def check(self, request: StubRequest) -> None:
        """Look at a request, and raise ``Refused`` where it breaks a rule."""
        for name in ("model", "max_tokens", "messages"):
            if not member(request.body, name):
                raise Refused(f"{name}: Field required")
        if "anthropic-version" not in request.headers:
            raise Refused("anthropic-version: header is required")
        turns = _turns(dicts(request.body["messages"]))
        if turns[0][0] != "user":
            raise Refused('messages: first message must use the "user" role')
        self._check_blocks(turns)
        _check_hosted(turns, self._finished)
        _check_calls(turns)
        if member(request.body.get("thinking"), "type") != "disabled":
            self._check_going_on(turns)

    def _check_blocks(self, turns: list[_Turn]) -> None:
        for place, (role, blocks) in enumerate(turns):
            if not blocks and (role == "user" or place < len(turns) - 1):
                raise Refused(
                    f"messages.{place}: all messages must have non-empty content except for the optional final "
                    "assistant message"
                )
            for number, block in enumerate(blocks):
                where = f"messages.{place}.content.{number}"
                if block.get("type") == "text":
                    _check_text(block, where)
                    self._check_citations(block, where)
                elif block.get("type") in _THOUGHT:
                    self._check_thought(block, where)
                elif block.get("type") == _SEARCHED:
                    self._check_pages(block, where)
        role, blocks = turns[-1]
        if role == "assistant" and blocks and text(blocks[-1], "text") != text(blocks[-1], "text").rstrip():
            raise Refused("messages: final assistant content cannot end with trailing whitespace")

    def _check_thought(self, block: JsonObject, where: str) -> None:
        name = "signature" if block["type"] == "thinking" else "data"
        sent = self._sealed.get(text(block, name))
        if sent is None or sent["type"] != block["type"] or sent.get("thinking") != block.get("thinking"):
            raise Refused(f"{where}: Invalid `{name}` in `{block['type']}` block")

    def _check_citations(self, block: JsonObject, where: str) -> None:
        for number, citation in enumerate(dicts(block.get("citations"))):
            if citation.get("type") == "web_search_result_location":
                index = text(citation, "encrypted_index")
                if self._sealed.get(index) != citation:
                    raise Refused(f"{where}.citations.{number}: Invalid `encrypted_index` in citation")

    def _check_pages(self, block: JsonObject, where: str) -> None:
        for number, page in enumerate(dicts(block.get("content"))):
            if self._sealed.get(text(page, "encrypted_content")) != page:
                raise Refused(f"{where}.content.{number}: Invalid `encrypted_content` in search result block")

    def _check_going_on(self, turns: list[_Turn]) -> None:
        """Look at the turn whose calls are answered now: its thought must be all there, unchanged and in its place."""
        if turns[-1][0] != "user" or not any(block.get("type") == "tool_result" for block in turns[-1][1]):
            return
        blocks = turns[-2][1] if len(turns) > 1 else []
        ids = [text(block, "id") for block in blocks if block.get("type") == "tool_use"]
        sent = next((self._answers[one] for one in ids if one in self._answers), None)
        if sent is None:
            return
        wanted, given = _order(sent), _order(blocks)
        # Blocks of a paused answer may stand ahead of those that were sent last.
        if given[len(given) - len(wanted) :] != wanted:
            if not any(kind in _THOUGHT for kind, _ in given):
                raise Refused(
                    f"messages.{len(turns) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                    f"`{blocks[0].get('type')}`. When `thinking` is enabled, a final `assistant` message must start "
                    "with a thinking block"
                )
            raise Refused(
                f"messages.{len(turns) - 2}: `thinking` or `redacted_thinking` blocks in the latest assistant message "
                "cannot be modified. These blocks must remain as they were in the original response."
            )


def _turns(messages: list[JsonObject]) -> list[_Turn]:
    """Give the messages with their blocks; messages of one role that follow each other are one turn."""
    turns: list[_Turn] = []
    for place, message in enumerate(messages):
        role, content = text(message, "role"), message.get("content")
        if role not in ("user", "assistant"):
            raise Refused(f'messages.{place}: Unexpected role {role!r}. Allowed roles are "user" or "assistant"')
        said: JsonObject = {"type": "text", "text": content}
        blocks = ([said] if content else []) if isinstance(content, str) else dicts(content)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, list(blocks)))
    return turns


def _order(blocks: list[JsonObject]) -> list[tuple[str, str]]:
    """Give what has to stay in its order around thought."""
    if not any(block.get("type") in _THOUGHT for block in blocks):
        return []
    marks = [
        (text(block, "type"), text(block, "signature") or text(block, "data") or text(block, "id")) for block in blocks
    ]
    return [mark for mark in marks if mark[0] in (*_THOUGHT, "tool_use", "server_tool_use")]


def _check_text(block: JsonObject, where: str) -> None:
    if not text(block, "text"):
        raise Refused(f"{where}: text content blocks must be non-empty")
    if not text(block, "text").strip():
        raise Refused(f"{where}: text content blocks must contain non-whitespace text")


def _check_hosted(turns: list[_Turn], finished: set[str]) -> None:
    """Look at the provider's own work; `finished` holds the ids of the calls whose results were sent."""
    running: list[str] = []
    paused = False
    for place, (role, blocks) in enumerate(turns):
        if role == "user":
            continue
        for block in blocks:
            kind, its_id = text(block, "type"), text(block, "tool_use_id")
            if kind == "server_tool_use":
                running.append(text(block, "id"))
            elif kind.endswith("_tool_result") and its_id not in running:
                raise Refused(
                    f"messages.{place}: unexpected `tool_use_id` found in `{kind}` blocks: {its_id}. Each must have a "
                    "`server_tool_use` block before it"
                )
            elif kind.endswith("_tool_result"):
                running.remove(its_id)
        paused = place == len(turns) - 1 and running == [text(blocks[-1], "id")]
        # Beside calls of the application, the provider's own work may go on until they are answered.
        if not any(block.get("type") == "tool_use" for block in blocks) and not paused:
            _check_running(running, place)
    if not paused:
        _check_running([one for one in running if one in finished], len(turns) - 1)


def _check_running(running: list[str], place: int) -> None:
    if running:
        raise Refused(
            f"messages.{place}: `web_search` tool use with id `{running[0]}` was found without a corresponding "
            f"`{_SEARCHED}` block"
        )


def _check_calls(turns: list[_Turn]) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for place, (role, blocks) in enumerate(turns):
        if role == "assistant":
            waiting = [text(block, "id") for block in blocks if block.get("type") == "tool_use"]
            if len(set(waiting)) < len(waiting) or seen & set(waiting):
                raise Refused(f"messages.{place}: `tool_use` ids must be unique")
            seen.update(waiting)
            continue
        for number, block in enumerate(blocks):
            if block.get("type") == "tool_result":
                its_id = text(block, "tool_use_id")
                if its_id not in waiting:
                    raise Refused(
                        f"messages.{place}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{its_id}. Each `tool_result` block must have a corresponding `tool_use` block in the "
                        "previous message"
                    )
                waiting.remove(its_id)
            elif waiting:
                break
        _check_waiting(waiting, place - 1)
    _check_waiting(waiting, len(turns) - 1)


def _check_waiting(waiting: list[str], place: int) -> None:
    if waiting:
        raise Refused(
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(waiting)}"
        )
