"""What must hold of backends, profiles and prompts, wherever they come from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import get_args, get_type_hints
from urllib.parse import urlsplit

import attrs
from attrs import frozen

from furcate.dialects._server_tools import CAPABILITIES, spelling
from furcate.orchestrator._config_read import Report, guess
from furcate.orchestrator._later import check_schema, compile_contract, template_fault
from furcate.primitives._checks import WIRE_NAME
from furcate.primitives._errors import SchemaError
from furcate.primitives._resources import Backend, Cache, Profile, Prompt
from furcate.primitives._settings import Tool
from furcate.primitives._wire import ChatSwitches, UnknownContent

TEXT_ROLES = ("system", "developer", "user", "assistant")
KINDS = ("remote", "embedded")
UNKNOWN_CONTENT: tuple[str, ...] = get_args(UnknownContent)
CACHES: tuple[str, ...] = get_args(Cache)
_MADE_HERE: Mapping[str, tuple[str, ...]] = {
    "anthropic-messages": ("messages", "stream", "system"),
    "google-generatecontent": ("contents",),
    "openai-chat": ("messages", "stream"),
    "openai-responses": ("input", "stream", "model"),
}
"""Members of a request's body that a dialect's encoder refuses to take from anybody else."""

_EMBEDDED_MODEL = "embedded"
_CHOICES = ("auto", "none", "required")
_OUR_HEADERS = ("connection", "content-length", "content-type", "host", "transfer-encoding")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NO_TOOLS = "the embedded model's chat template ignores tools; use a remote backend for tools"


def table_name(*steps: str) -> str:
    """Write a table's dotted path as TOML does, quoting what needs it."""
    return ".".join(step if _BARE_KEY.fullmatch(step) else '"' + step.replace('"', '\\"') + '"' for step in steps)


@frozen
class Place:
    """Name the table that is checked, and take its faults."""

    report: Report
    table: str

    def wrong(self, key: str, problem: str, remedy: str = "") -> None:
        """Note a fault at a key of the table."""
        self.report.add(self.table, key, problem, remedy=remedy)


def check_name(place: Place, name: str) -> None:
    """Check that a thing has a name that can be written in a list."""
    if not name.strip():
        place.wrong("", "the name is empty", "give it a name")
    elif name != name.strip() or not name.isprintable():
        place.wrong("", f"the name {name!r} has white space around it or control characters", "take them out")


def check_backend(place: Place, backend: Backend, dialects: Collection[str]) -> Backend:
    """Check a backend and give it as the engine uses it.

    Args:
        place: where the faults are told.
        backend: what is checked.
        dialects: names of the dialects there are.
    """
    check_name(place, backend.name)
    if backend.kind not in KINDS:
        place.wrong("kind", f"{backend.kind!r} is not possible here", guess(backend.kind, KINDS, "possible"))
    if backend.dialect not in dialects:
        place.wrong("dialect", f"no dialect {backend.dialect!r}", guess(backend.dialect, sorted(dialects), "dialects"))
    if not backend.provider.strip():
        place.wrong("provider", "empty", "leave it out to take the backend's name")
    _check_credential(place, backend)
    for header, value in backend.extra_headers:
        if not _HEADER_NAME.fullmatch(header):
            place.wrong("extra_headers", f"{header!r} is no header name", "use letters, digits and hyphens")
        if header.lower() in _OUR_HEADERS:
            place.wrong("extra_headers", f"{header!r} is written by furcate itself", "leave it out")
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            said = f"the value of {header!r} has spaces around it or holds more than printable ASCII"
            place.wrong("extra_headers", said, "give it without spaces around it, encoded if need be")
    _check_words(place, backend)
    _check_switches(place, backend.switches)
    if backend.kind == "embedded":
        return _check_embedded(place, backend)
    if backend.base_url is None:
        return backend
    problem = _url_problem(backend.base_url)
    if problem:
        place.wrong("base_url", problem, 'give an address such as "https://api.example.com/v1"')
    return attrs.evolve(backend, base_url=backend.base_url.rstrip("/"))


def _check_words(place: Place, backend: Backend) -> None:
    for key, words in (("unknown_content", UNKNOWN_CONTENT), ("cache", CACHES)):
        word = getattr(backend, key)
        if word not in words:
            place.wrong(key, f"{word!r} is not possible here", guess(str(word), words, "possible"))


def _check_credential(place: Place, backend: Backend) -> None:
    if backend.api_key is not None and not (
        backend.api_key.strip() and backend.api_key.isascii() and backend.api_key.isprintable()
    ):
        place.wrong("api_key", "empty, or holds more than printable ASCII", "give the key as the provider shows it")
    if backend.api_key_env is not None and (not backend.api_key_env.strip() or "=" in backend.api_key_env):
        place.wrong("api_key_env", "no name of an environment variable", "name the variable that holds the key")


def _check_switches(place: Place, switches: ChatSwitches) -> None:
    for name, hint in get_type_hints(ChatSwitches).items():
        words = get_args(hint) or (True, False)
        if getattr(switches, name) not in words:
            listing = ", ".join(map(str, words))
            place.wrong(name, f"{getattr(switches, name)!r} is not possible here", f"possible: {listing}")


def _check_embedded(place: Place, backend: Backend) -> Backend:
    for key in ("base_url", "api_key", "api_key_env", "credential"):
        if getattr(backend, key) is not None:
            place.wrong(key, "an embedded backend takes none: furcate starts its server itself", "leave it out")
    if backend.capacity != 1:
        place.wrong(
            "capacity",
            f"{backend.capacity} is too large for an embedded backend: its server has one slot, and one request at "
            "a time is the quickest it can do",
            "leave it out, or give 1",
        )
    return attrs.evolve(backend, switches=attrs.evolve(backend.switches, function_tools=False))


def _url_problem(url: str) -> str | None:
    """Say what is wrong with a base URL, without showing it: people put keys there."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "no URL: its host or port cannot be read"
    if parts.scheme not in ("http", "https"):
        return "the URL begins with neither http:// nor https://"
    if not host or any(character.isspace() for character in url):
        return "the URL names no host, or holds white space"
    if parts.username is not None or parts.password is not None:
        return "the URL holds a user name or password; credentials go to api_key_env"
    if parts.query or parts.fragment:
        return "the URL has a query or a fragment, to which no path can be appended"
    return None


def check_tool(place: Place, tool: Tool) -> None:
    """Check a function tool's name and the schema of its arguments."""
    if not WIRE_NAME.fullmatch(tool.name):
        place.wrong("", f"{tool.name!r} is no tool name", "use 1 to 64 letters, digits, _ and -")
    try:
        check_schema(tool.parameters)
    except SchemaError as error:
        place.wrong("parameters", str(error), "describe the arguments with a JSON Schema")


def check_profile(place: Place, profile: Profile, backends: Mapping[str, Backend | None]) -> Profile:
    """Check a profile against the backends and give it as the engine uses it.

    The model of an embedded backend need not be named, since it has but one.

    Args:
        place: where the faults are told.
        profile: what is checked.
        backends: the backends by name; None for one that is itself wrong.
    """
    check_name(place, profile.name)
    if profile.backend not in backends:
        place.wrong("backend", f"no backend named {profile.backend!r}", guess(profile.backend, backends, "backends"))
    backend = backends.get(profile.backend)
    embedded = backend is not None and backend.kind == "embedded"
    model = profile.model.strip() and profile.model
    if not model and embedded:
        model = _EMBEDDED_MODEL
    elif not model and backend is not None:
        place.wrong("model", "missing", "name the model as the backend calls it")
    if profile.tools and embedded:
        place.wrong("tools", f"backend {profile.backend!r} is embedded: {_NO_TOOLS}")
    for key in _MADE_HERE.get(backend.dialect, ()) if backend is not None else ():
        if key in profile.settings.extra_body:
            place.wrong("extra_body", f"{key!r} is made from the request itself", "take it out")
    _check_server_tools(place, profile, backend)
    _check_efforts(place, profile)
    _check_tools(place, profile.tools, profile.tool_choice, profile=profile)
    return attrs.evolve(profile, model=model)


def _check_server_tools(place: Place, profile: Profile, backend: Backend | None) -> None:
    names = profile.server_tools
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            place.wrong("server_tools", f"{name!r} is there twice", "name each capability once")
        if name not in CAPABILITIES:
            place.wrong("server_tools", f"no capability {name!r}", guess(str(name), CAPABILITIES, "capabilities"))
        elif backend is not None and backend.kind == "remote" and spelling(backend.dialect, name) is None:
            able = [known for known in CAPABILITIES if spelling(backend.dialect, known) is not None]
            place.wrong(
                "server_tools",
                f"dialect {backend.dialect!r} cannot ask for {name!r}",
                f"capabilities of {backend.dialect}: {', '.join(able) or 'none'}",
            )
    if names and backend is not None and backend.kind == "embedded":
        place.wrong(
            "server_tools",
            f"backend {backend.name!r} is embedded: a model on this machine has no provider that runs tools for it",
            "leave it out, or use a remote backend",
        )


def _check_efforts(place: Place, profile: Profile) -> None:
    allowed = profile.reasoning_efforts
    for name in dict.fromkeys(allowed):
        if allowed.count(name) > 1:
            place.wrong("reasoning_efforts", f"{name!r} is there twice", "name each effort once")
    effort = profile.settings.reasoning_effort
    if effort is not None and allowed and effort not in allowed:
        place.wrong(
            "reasoning_effort", f"{effort!r} is not in reasoning_efforts", guess(effort, allowed, "allowed efforts")
        )


def check_prompt(
    place: Place,
    prompt: Prompt,
    profiles: Mapping[str, Profile | None],
    *,
    backends: Mapping[str, Backend | None],
) -> None:
    """Check a prompt against the profiles and backends, and compile its templates and its contract.

    Args:
        place: where the faults are told.
        prompt: what is checked.
        profiles: the profiles by name; None for one that is itself wrong.
        backends: the backends by name, likewise.
    """
    check_name(place, prompt.name)
    if prompt.profile is not None and prompt.profile not in profiles:
        place.wrong("profile", f"no profile named {prompt.profile!r}", guess(prompt.profile, profiles, "profiles"))
    profile = profiles.get(prompt.profile or "")
    backend = backends.get(profile.backend) if profile is not None else None
    if prompt.tools and backend is not None and backend.kind == "embedded":
        place.wrong("tools", f"its profile's backend {backend.name!r} is embedded: {_NO_TOOLS}")
    # Without a sound profile nobody knows yet which tools there will be to choose from.
    _check_tools(place, prompt.tools, prompt.tool_choice if profile is not None else None, profile=profile)
    _check_templates(place, prompt)
    for name, _path in prompt.inputs:
        if not name.isidentifier():
            place.wrong("inputs", f"{name!r} cannot be written as inputs.<name>", "use letters, digits and _")
    if prompt.contract is None:
        return
    try:
        compile_contract(prompt.contract)
    except SchemaError as error:
        place.wrong("contract.schema", str(error))


def _check_templates(place: Place, prompt: Prompt) -> None:
    if not prompt.messages:
        place.wrong("messages", "empty", "a prompt has at least one message")
    for number, message in enumerate(prompt.messages):
        key = f"messages[{number}]"
        if message.role not in TEXT_ROLES:
            problem = f"{message.role!r} is not possible here"
            place.wrong(f"{key}.role", problem, guess(message.role, TEXT_ROLES, "possible"))
        fault = template_fault(message.template)
        if fault:
            place.wrong(f"{key}.template", fault, "mend the template there")
    fault = template_fault(prompt.session) if prompt.session is not None else None
    if fault:
        place.wrong("session", fault, "mend the template there")


def _check_tools(place: Place, tools: tuple[Tool, ...], choice: str | None, *, profile: Profile | None) -> None:
    names = [tool.name for tool in tools]
    for name in sorted({name for name in names if names.count(name) > 1}):
        place.wrong("tools", f"{name!r} is there twice", "name each tool once")
    offered = {tool.name for tool in (*(profile.tools if profile is not None else ()), *tools)}
    possible = (*_CHOICES, *sorted(offered))
    if choice is not None and choice not in possible:
        place.wrong("tool_choice", f"{choice!r} is not possible here", guess(choice, possible, "possible"))
