"""What a google-generatecontent server refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from furcate.testing._framing import JsonObject
from furcate.testing._rules import Refused, dicts, member, text

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_Call = tuple[str, str]


class GoogleRules:
    """Refuse missing, changed and misplaced thought signatures, and results that do not match their calls."""

    def __init__(self) -> None:
        # Each signature with the calls that it stands for; none where it stands for text.
        self._signed: dict[str, tuple[_Call, ...]] = {}

    def remember(self, said: JsonObject, request: StubRequest) -> None:
        """Take note of the signatures of an answer."""
        for candidate in dicts(said.get("candidates")):
            parts = dicts(member(candidate.get("content"), "parts"))
            calls = tuple(_call(part) for part in parts if "functionCall" in part)
            for part in parts:
                signature = text(part, "thoughtSignature")
                if signature:
                    self._signed[signature] = calls if "functionCall" in part else ()

    def check(self, request: StubRequest) -> None:
        """Look at a request, and raise ``Refused`` where it breaks a rule."""
        contents = dicts(member(request.body, "contents"))
        if not contents:
            raise Refused("* GenerateContentRequest.contents: contents is not specified")
        asked = max((place for place, content in enumerate(contents) if _asks(content)), default=0)
        for place, content in enumerate(contents):
            parts = dicts(content.get("parts"))
            if not parts:
                raise Refused(f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty.")
            role = content.get("role", "user")
            if role not in ("user", "model", "function"):
                raise Refused("Please use a valid role: user, model.")
            for part in parts:
                self._check_signature(part, place)
            calls = [part for part in parts if "functionCall" in part]
            if calls:
                before = contents[place - 1] if place else None
                after = contents[place + 1] if place + 1 < len(contents) else None
                _check_turn(calls, before, after)
                # Only the turn that is still going on is looked at.
                if place > asked:
                    self._check_signed(calls, place)
            elif _results(content) and (place == 0 or not _calls(contents[place - 1])):
                raise Refused("Please ensure that function response turn comes immediately after a function call turn.")

    def _check_signature(self, part: JsonObject, place: int) -> None:
        signature = _plain(text(part, "thoughtSignature"))
        if not signature:
            return
        if signature not in self._signed:
            raise Refused(f"Thought signature is not valid (contents[{place}]).")
        calls = self._signed[signature]
        # Parts of text may be joined by the client, so only the place among calls is known.
        if ("functionCall" in part) != bool(calls) or (calls and _call(part) != calls[0]):
            raise Refused(f"Thought signature is not valid (contents[{place}]): it came with another part.")

    def _check_signed(self, calls: list[JsonObject], place: int) -> None:
        made = tuple(_call(part) for part in calls)
        came_signed = any(signed and signed[0] in made for signed in self._signed.values())
        if came_signed and not text(calls[0], "thoughtSignature"):
            name = made[0][0]
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. Additional data, function call "
                f"`{name}`, position {place + 1}."
            )


def _plain(signature: str) -> str:
    # Clients that decode the bytes encode them again in the other alphabet of Base64.
    return signature.replace("-", "+").replace("_", "/")


def _call(part: JsonObject) -> _Call:
    call = part["functionCall"]
    return text(call, "name"), json.dumps(member(call, "args") or {}, sort_keys=True)


def _calls(content: JsonObject) -> list[JsonObject]:
    return [part for part in dicts(content.get("parts")) if "functionCall" in part]


def _results(content: JsonObject) -> list[JsonObject]:
    return [part for part in dicts(content.get("parts")) if "functionResponse" in part]


def _asks(content: JsonObject) -> bool:
    return content.get("role", "user") == "user" and not _results(content)


def _check_turn(calls: list[JsonObject], before: JsonObject | None, after: JsonObject | None) -> None:
    if before is None or before.get("role", "user") == "model":
        raise Refused(
            "Please ensure that function call turn comes immediately after a user turn or after a function response "
            "turn."
        )
    results = _results(after) if after is not None else []
    if len(results) != len(calls):
        raise Refused(
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn."
        )
    asked = sorted(text(part["functionCall"], "name") for part in calls)
    if asked != sorted(text(part["functionResponse"], "name") for part in results):
        raise Refused("Please ensure that each function response part names the function of its function call part.")
