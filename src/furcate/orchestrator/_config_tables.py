"""The tables of a configuration file, each to the value it describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from furcate.orchestrator._config_check import CACHES, KINDS, TEXT_ROLES, UNKNOWN_CONTENT
from furcate.orchestrator._config_read import (
    Reader,
    Table,
    Wrong,
    any_text,
    anything,
    described,
    flag,
    guess,
    json_table,
    limit,
    number,
    one_of,
    seconds,
    some_texts,
    table,
    text,
    text_or_texts,
    text_table,
    texts,
    whole,
    wire_name,
)
from furcate.orchestrator._later import template_fault
from furcate.primitives._contract import Contract
from furcate.primitives._errors import SchemaError
from furcate.primitives._message import CacheHint
from furcate.primitives._resources import Backend, MessageTemplate, Profile, Prompt, RetryPolicy, TimeLimits
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ChatSwitches

_LIMITS: dict[str, Reader] = {"connect_s": limit, "first_event_s": limit, "idle_s": limit, "total_s": limit}
_RETRY: dict[str, Reader] = {
    "attempts": whole(1),
    "first_backoff_s": seconds,
    "max_backoff_s": seconds,
    "resumes": whole(0),
    "retry_for_s": limit,
}
_SWITCHES: dict[str, Reader] = {
    "max_tokens_field": one_of("max_tokens", "max_completion_tokens"),
    "stream_usage": flag,
    "system_role": one_of("system", "developer"),
    "structured_output": one_of("json_schema", "json_object", "none"),
    "function_tools": flag,
}
_BACKEND: dict[str, Reader] = {
    "kind": one_of(*KINDS),
    "dialect": text,
    "base_url": text,
    "api_key": text,
    "api_key_env": text,
    "provider": text,
    "capacity": whole(1),
    "adaptive": flag,
    "requests_per_minute": whole(1),
    "tokens_per_minute": whole(1),
    "extra_headers": text_table,
    "unknown_content": one_of(*UNKNOWN_CONTENT),
    "replay_item_ids": flag,
    "max_result_bytes": whole(1),
    "retry_stale_connection": flag,
    "cache": one_of(*CACHES),
}
_NOT_EMBEDDED = ("dialect", "base_url", "api_key", "api_key_env", *_SWITCHES)
_SETTINGS: dict[str, Reader] = {
    "max_output_tokens": whole(1),
    "temperature": number(0),
    "top_p": number(0, 1),
    "seed": whole(),
    "stop": text_or_texts,
    "reasoning_effort": text,
    "extra_body": json_table,
}
_PROFILE: dict[str, Reader] = {
    "backend": text,
    "model": text,
    "tools": texts,
    "server_tools": some_texts,
    "reasoning_efforts": some_texts,
    "tool_choice": text,
    "repeat_safe": flag,
    "stream": flag,
}
_CONTRACT: dict[str, Reader] = {"schema": anything, "repairs": whole(0), "name": wire_name}


@frozen
class Surroundings:
    """Hold what a table may refer to.

    Attributes:
        folder: what relative paths are relative to.
        tools: the declared tools by name; None for one that is itself wrong.
    """

    folder: Path
    tools: Mapping[str, Tool | None]


def _taken(found: dict[str, Any], keys: Mapping[str, Reader]) -> dict[str, Any]:
    """Take the values of some keys out of what was found."""
    return {key: found.pop(key) for key in keys if key in found}


def read_backend(place: Table, name: str) -> Backend | None:
    """Read ``[backends.NAME]``; None where something is wrong with it."""
    found = place.read({**_BACKEND, **_LIMITS, **_RETRY, **_SWITCHES})
    if found.get("kind") == "embedded":
        for key in [key for key in _NOT_EMBEDDED if key in found]:
            place.wrong(key, "an embedded backend takes none: furcate starts its server itself", "leave it out")
    elif place.sound and not found.keys() & {"kind", "dialect", "base_url"}:
        place.wrong("", "it is not said where this backend is", 'give dialect and base_url, or kind = "embedded"')
    if not place.sound:
        return None
    limits, retry, switches = (_taken(found, keys) for keys in (_LIMITS, _RETRY, _SWITCHES))
    return Backend(
        name,
        limits=TimeLimits(**limits),
        retry=RetryPolicy(**retry),
        switches=ChatSwitches(**switches),
        **found,
    )


def read_tool(place: Table, name: str) -> Tool | None:
    """Read ``[tools.NAME]``; None where something is wrong with it."""
    found = place.read({"description": any_text, "parameters": json_table})
    return Tool(name, **found) if place.sound else None


def read_profile(place: Table, name: str, around: Surroundings) -> Profile | None:
    """Read ``[profiles.NAME]``; None where something is wrong with it."""
    found = place.read({**_PROFILE, **_SETTINGS}, ("backend",))
    found["tools"] = _tools(place, found.get("tools", ()), around)
    if not place.sound:
        return None
    settings = Settings(**_taken(found, _SETTINGS))
    return Profile(name, settings=settings, **found)


def read_prompt(place: Table, name: str, around: Surroundings) -> Prompt | None:
    """Read ``[prompts.NAME]`` with the template and schema files that it names; None where something is wrong."""
    readers: dict[str, Reader] = {
        "profile": text,
        "session": text,
        "messages": anything,
        "contract": table,
        "inputs": lambda value: _inputs(value, around.folder),
        "tools": texts,
        "tool_choice": text,
    }
    found = place.read(readers, ("messages",))
    if "messages" in found:
        found["messages"] = _messages(place, found["messages"], around.folder)
    if "contract" in found:
        found["contract"] = _contract(place.part("contract", found["contract"]), around.folder, place)
    found["tools"] = _tools(place, found.get("tools", ()), around)
    return Prompt(name, **found) if place.sound else None


def _tools(place: Table, names: tuple[str, ...], around: Surroundings) -> tuple[Tool, ...]:
    for name in names:
        if name not in around.tools:
            place.wrong("tools", f"no tool named {name!r}", guess(name, around.tools, "tools"))
    return tuple(tool for name in names if (tool := around.tools.get(name)) is not None)


def _messages(place: Table, value: object, folder: Path) -> list[MessageTemplate]:
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else described(value)
        place.wrong("messages", f"found {what}", 'give a list such as [{ role = "user", template = "..." }]')
        return []
    return [_message_template(place, item, number, folder=folder) for number, item in enumerate(value)]


def _message_template(place: Table, value: object, number: int, *, folder: Path) -> MessageTemplate:
    key = f"messages[{number}]"
    empty = MessageTemplate("user", "")
    if not isinstance(value, dict):
        place.wrong(key, f"found {described(value)}", 'give a table such as { role = "user", template = "..." }')
        return empty
    part = place.part(key, value)
    readers: dict[str, Reader] = {"role": one_of(*TEXT_ROLES), "template": text, "file": text, "cache": _cache}
    found = part.read(readers, ("role",))
    if ("template" in value) == ("file" in value):
        part.wrong("", "a message has either template or file", "give one of the two")
    if "file" in found:
        try:
            found["template"] = read_text(folder / found["file"])
            fault = template_fault(found["template"])
            if fault:
                part.wrong("file", f"template {folder / found['file']}: {fault}", "mend the template there")
        except Wrong as wrong:
            part.wrong("file", wrong.problem, wrong.remedy)
    if not part.sound:
        place.sound = False
        return empty
    return MessageTemplate(found["role"], found["template"], found.get("cache"))


def _cache(value: object) -> CacheHint | None:
    if isinstance(value, bool):
        return CacheHint() if value else None
    if not isinstance(value, int) or value < 1:
        raise Wrong(f"found {described(value)}", "give true, or a lifetime in whole seconds")
    return CacheHint(value)


def _inputs(value: object, folder: Path) -> dict[str, Path | None]:
    if isinstance(value, list):
        return dict.fromkeys(texts(value))
    if not isinstance(value, dict):
        raise Wrong(f"found {described(value)}", 'give a table such as { text = "in.txt" }, or a list of names')
    return {name: folder / text(path) for name, path in text_table(value).items()}


def _contract(part: Table, folder: Path, place: Table) -> Contract | None:
    found = part.read(_CONTRACT, ("schema",))
    schema = found.pop("schema", None)
    made: Contract | None = None
    try:
        if isinstance(schema, str):
            made = Contract.from_file(folder / text(schema))
        elif schema is not None:
            made = Contract(json_table(schema))
    except Wrong as wrong:
        part.wrong("schema", wrong.problem, wrong.remedy or "give a path in quotes, or a table")
    except (SchemaError, TypeError, ValueError) as error:
        part.wrong("schema", str(error), "give the path of a JSON file that holds a JSON Schema")
    if not part.sound:
        place.sound = False
    return attrs.evolve(made, **found) if made is not None else None


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        Wrong: it is not there, no file, or no UTF-8.
    """
    try:
        # Some are read more than once, which pipes and devices do not let one do.
        if path.exists() and not path.is_file() and not path.is_dir():
            raise Wrong(f"{path} is no regular file", "save it first")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Wrong(f"{path} is no UTF-8 text (byte {error.start})", "convert it to UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Wrong(f"{path} cannot be read: {reason}", "name a file that is there") from error
