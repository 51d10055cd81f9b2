"""What an openai-responses server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.testing._framing import JsonObject
from furcate.testing._rules import Refused, dicts, member, text

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}


class ResponsesRules:
    """Refuse reasoning without what followed it, foreign and repeated items, changed state and unpaired calls."""

    def __init__(self) -> None:
        self._items: dict[str, JsonObject] = {}
        self._followed: dict[str, JsonObject | None] = {}
        self._needs: dict[str, str] = {}
        self._sealed: dict[str, str] = {}
        self._stored: set[str] = set()
        self._chains: dict[str, list[JsonObject]] = {}

    def remember(self, said: JsonObject, request: StubRequest) -> None:
        """Take note of the output items of an answer."""
        output = dicts(said.get("output"))
        stored = request.body.get("store") is not False
        if stored:
            before = self._chains.get(text(request.body, "previous_response_id"), [])
            self._chains[text(said, "id")] = [*before, *dicts(request.body.get("input")), *output]
        for place, item in enumerate(output):
            its_id = text(item, "id")
            self._items[its_id] = item
            if stored:
                self._stored.add(its_id)
            if item["type"] == "reasoning":
                follower = output[place + 1] if place + 1 < len(output) else None
                self._followed[its_id] = follower
                if follower is not None:
                    self._needs[text(follower, "id")] = its_id
                if "encrypted_content" in item:
                    self._sealed[text(item, "encrypted_content")] = its_id

    def check(self, request: StubRequest) -> None:
        """Look at a request, and raise ``Refused`` where it breaks a rule."""
        given = member(request.body, "input")
        items = dicts(given)
        earlier = self._chain(request)
        if not items and not (isinstance(given, str) and given) and not earlier:
            raise Refused("Missing required parameter: 'input'.", "missing_required_parameter")
        self._check_ids(items, earlier)
        for place, item in enumerate(items):
            if item.get("type") == "reasoning":
                follower = items[place + 1] if place + 1 < len(items) else None
                self._check_reasoning(item, follower, place)
            else:
                self._check_leader(item, items[place - 1] if place else None)
        _check_calls([*earlier, *items])

    def _chain(self, request: StubRequest) -> list[JsonObject]:
        previous = text(request.body, "previous_response_id")
        if not previous:
            return []
        if previous not in self._chains:
            raise Refused(f"Previous response with id '{previous}' not found.", "previous_response_not_found")
        return self._chains[previous]

    def _check_ids(self, items: list[JsonObject], earlier: list[JsonObject]) -> None:
        seen = {mark for item in earlier for mark in _marks(item)}
        for place, item in enumerate(items):
            its_id = text(item, "id")
            if its_id and its_id not in self._items:
                raise Refused(f"Item with id '{its_id}' not found (input[{place}]).", "item_not_found")
            if its_id and item.get("type", "message") != self._items[its_id]["type"]:
                raise Refused(f"input[{place}] has the id '{its_id}' of an item of another type.", "invalid_value")
            for mark in _marks(item):
                if mark in seen:
                    raise Refused(
                        f"Duplicate item found with id {mark[1]} (input[{place}]). Remove duplicate items from your "
                        "input and try again.",
                        "duplicate_item",
                    )
                seen.add(mark)

    def _check_reasoning(self, item: JsonObject, follower: JsonObject | None, place: int) -> None:
        its_id, state = text(item, "id"), text(item, "encrypted_content")
        if state:
            if state not in self._sealed or its_id not in ("", self._sealed[state]):
                raise Refused(
                    f"The encrypted content of input[{place}] could not be verified.", "invalid_encrypted_content"
                )
            its_id = self._sealed[state]
        elif its_id not in self._stored:
            raise Refused(
                f"Item with id '{its_id}' not found (input[{place}]). Items are not persisted when `store` is set to "
                "false.",
                "item_not_found",
            )
        if not isinstance(item.get("summary"), list):
            raise Refused(f"Missing required parameter: 'input[{place}].summary'.", "missing_required_parameter")
        required = self._followed[its_id]
        if required is not None and (follower is None or not _same(follower, required)):
            raise Refused(
                f"Item '{its_id}' of type 'reasoning' was provided without its required following item: "
                f"'{required['id']}' of type '{required['type']}'."
            )

    def _check_leader(self, item: JsonObject, leader: JsonObject | None) -> None:
        # Without its id nobody can tell that an item came with reasoning.
        needed = self._needs.get(text(item, "id"))
        if needed is None:
            return
        led = text(leader, "id") == needed or self._sealed.get(text(leader, "encrypted_content")) == needed
        if not led:
            raise Refused(
                f"Item '{item['id']}' of type '{item.get('type')}' was provided without its required 'reasoning' item: "
                f"'{needed}'."
            )


def _marks(item: JsonObject) -> list[tuple[str, str]]:
    """Return what no two items of one conversation share."""
    marks = [("id", text(item, "id")), ("state", text(item, "encrypted_content"))]
    marks.append((text(item, "type"), text(item, "call_id")))
    return [mark for mark in marks if mark[1]]


def _same(item: JsonObject, sent: JsonObject) -> bool:
    """Tell whether an input item is an output item that was sent; most clients leave out the ids."""
    kind = item.get("type", "message")
    if kind != sent["type"] or text(item, "id") not in ("", sent["id"]):
        return False
    if kind == "function_call":
        return (item.get("call_id"), item.get("name"), item.get("arguments")) == (
            sent["call_id"],
            sent["name"],
            sent["arguments"],
        )
    if kind == "message":
        return item.get("role") == "assistant" and _said(item) == _said(sent)
    return kind != "web_search_call" or item.get("action") == sent["action"]


def _said(item: JsonObject) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(text(part, "text") + text(part, "refusal") for part in dicts(content))


def _check_calls(items: list[JsonObject]) -> None:
    open_calls: dict[str, str] = {}
    for item in items:
        kind, its_id = text(item, "type"), text(item, "call_id")
        if kind in _OUTPUTS.values():
            open_calls[its_id] = kind
        elif kind in _OUTPUTS and open_calls.pop(its_id, "") != _OUTPUTS[kind]:
            raise Refused(f"No tool call found for function call output with call_id {its_id}.")
    if open_calls:
        raise Refused(f"No tool output found for function call {next(iter(open_calls))}.")
