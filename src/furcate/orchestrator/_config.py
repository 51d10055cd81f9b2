"""A configuration, from a file or from Python, checked as a whole before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
from attrs import field, frozen

from furcate.dialects import DIALECTS
from furcate.orchestrator._config_check import (
    Place,
    check_backend,
    check_profile,
    check_prompt,
    check_tool,
    table_name,
)
from furcate.orchestrator._config_otel import OTEL, read_otel
from furcate.orchestrator._config_read import Report, Table, Wrong, described, guess
from furcate.orchestrator._config_tables import (
    Surroundings,
    read_backend,
    read_profile,
    read_prompt,
    read_text,
    read_tool,
)
from furcate.orchestrator._config_transport import TRANSPORT, read_transport
from furcate.primitives._errors import ConfigError
from furcate.primitives._resources import Backend, Profile, Prompt
from furcate.primitives._settings import Tool
from furcate.primitives._telemetry import OTelSettings
from furcate.transport import TransportName

_TABLES = ("backends", "profiles", "prompts", "tools")
_Thing = TypeVar("_Thing", Backend, Profile, Prompt, Tool)


def _read_only(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value))


@frozen(kw_only=True)
class Resources:
    """Hold what an engine is made of, checked.

    Attributes:
        backends: the backends by name.
        profiles: the profiles by name; each names a backend that is there.
        prompts: the prompts by name; each names no profile, or one that is there.
        otel: where telemetry goes; None where the file has no table ``[otel]``. Whoever makes the engine sees to it.
        transport: the HTTP library to send with; None leaves the choice to the event loop.
        where: the file, or ``Engine(...)``.
        warnings: what is allowed but better done otherwise, one sentence each; never a credential.
    """

    backends: Mapping[str, Backend] = field(converter=_read_only)
    profiles: Mapping[str, Profile] = field(converter=_read_only)
    prompts: Mapping[str, Prompt] = field(converter=_read_only)
    where: str
    otel: OTelSettings | None = None
    transport: TransportName | None = None
    warnings: tuple[str, ...] = ()


def load_config(path: str | Path, *, beside: Collection[str] = (), dialects: Collection[str] = DIALECTS) -> Resources:
    """Read and check a configuration file with the template and schema files that it names.

    Relative paths in it are relative to it. Input files are not looked at: they are read when a prompt is rendered.

    Args:
        path: a TOML file in UTF-8.
        beside: top-level keys that belong to the application and are passed over.
        dialects: names of the dialects there are.

    Raises:
        ConfigError: the first thing that is wrong, with what else is wrong in its `others`.
    """
    resources, report = _load(Path(path), beside, dialects)
    report.raise_first()
    return resources


def find_faults(path: str | Path, *, dialects: Collection[str] = DIALECTS) -> tuple[ConfigError, ...]:
    """Find all that is wrong with a configuration file, in the order of its tables.

    Args:
        path: the file.
        dialects: names of the dialects there are.
    """
    return tuple(_load(Path(path), (), dialects)[1].faults)


def check_resources(
    backends: Iterable[Backend],
    profiles: Iterable[Profile],
    prompts: Iterable[Prompt],
    *,
    where: str,
    dialects: Collection[str] = DIALECTS,
    transport: TransportName | None = None,
) -> Resources:
    """Check resources that were made in Python.

    Args:
        backends: in any order, like the others; the names of each kind must differ.
        profiles: may name these backends only.
        prompts: may name these profiles only.
        where: how to call the place in errors.
        dialects: names of the dialects there are.
        transport: the HTTP library to send with, if it is chosen.

    Raises:
        ConfigError: the first thing that is wrong, with what else is wrong in its `others`.
    """
    report = Report(where)
    made_backends = _by_name(report, "backends", backends, wanted=Backend)
    made_profiles = _by_name(report, "profiles", profiles, wanted=Profile)
    made_prompts = _by_name(report, "prompts", prompts, wanted=Prompt)
    resources = _checked(report, made_backends, made_profiles, prompts=made_prompts, dialects=dialects)
    chosen = read_transport(report, transport)
    report.raise_first()
    return attrs.evolve(resources, transport=chosen)


def _by_name(report: Report, kind: str, things: Iterable[_Thing], *, wanted: type[_Thing]) -> dict[str, _Thing | None]:
    named: dict[str, _Thing | None] = {}
    for thing in things:
        if not isinstance(thing, wanted):
            report.add("", kind, f"found a {type(thing).__name__}", remedy=f"give {wanted.__name__} values")
        elif thing.name in named:
            report.add(table_name(kind, thing.name), "", "there are two of this name", remedy="name them differently")
        else:
            named[thing.name] = thing
    return named


def _load(path: Path, beside: Collection[str], dialects: Collection[str]) -> tuple[Resources, Report]:
    report = Report(str(path))
    content = read_toml(report, path)
    tables = _tables(report, content, beside)
    otel = read_otel(report, content.get(OTEL)) if content is not None and OTEL not in beside else None
    given = content.get(TRANSPORT) if content is not None and TRANSPORT not in beside else None
    transport = read_transport(report, given)
    tools = _read(report, "tools", tables, reader=read_tool)
    for name, tool in tools.items():
        if tool is not None:
            check_tool(Place(report, table_name("tools", name)), tool)
    around = Surroundings(path.parent, tools)
    backends = _read(report, "backends", tables, reader=read_backend)
    profiles = _read(report, "profiles", tables, reader=lambda t, name: read_profile(t, name, around))
    prompts = _read(report, "prompts", tables, reader=lambda t, name: read_prompt(t, name, around))
    resources = _checked(report, backends, profiles, prompts=prompts, dialects=dialects)
    warnings = _warnings(report.where, backends)
    return attrs.evolve(resources, otel=otel, transport=transport, warnings=warnings), report


def read_toml(report: Report, path: Path) -> dict[str, Any] | None:
    """Read a TOML file; None where it cannot be read, and what is wrong with it goes to the report."""
    # Engines that are made without a file do not wait for it.
    import tomllib  # noqa: PLC0415

    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        report.add("", "", f"no TOML: {error}", remedy="mend the file there")
    except RecursionError:
        report.add("", "", "no TOML that can be read: it nests too deeply", remedy="mend the file")
    except Wrong as wrong:
        # The file itself is the place of the fault, so its name need not be said twice.
        report.add("", "", wrong.problem.removeprefix(f"{path} "), remedy=wrong.remedy)
    return None


def _tables(report: Report, content: dict[str, Any] | None, beside: Collection[str]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {kind: {} for kind in _TABLES}
    if content is None:
        return tables
    for kind, named in content.items():
        if kind in beside or kind in (OTEL, TRANSPORT):
            continue
        if kind not in tables:
            report.add("", kind, "unknown table", remedy=guess(kind, (*_TABLES, OTEL, TRANSPORT), "known"))
        elif not isinstance(named, dict):
            report.add("", kind, f"found {described(named)}", remedy=f"give tables such as [{kind}.NAME]")
        else:
            tables[kind] = named
    if "backends" not in content:
        report.add("", "", "there is no backend", remedy="add a table such as [backends.NAME]")
    return tables


def _read(
    report: Report,
    kind: str,
    tables: Mapping[str, Mapping[str, Any]],
    *,
    reader: Callable[[Table, str], _Thing | None],
) -> dict[str, _Thing | None]:
    made: dict[str, _Thing | None] = {}
    for name, content in tables[kind].items():
        made[name] = None
        if isinstance(content, dict):
            made[name] = reader(Table(report, table_name(kind, name), content), name)
        else:
            report.add(kind, name, f"found {described(content)}", remedy=f"give a table such as [{kind}.{name}]")
    return made


def _checked(
    report: Report,
    backends: Mapping[str, Backend | None],
    profiles: Mapping[str, Profile | None],
    *,
    prompts: Mapping[str, Prompt | None],
    dialects: Collection[str],
) -> Resources:
    """Check everything against everything; what is None was wrong before and is not complained of again."""

    def place(kind: str, name: str) -> Place:
        return Place(report, table_name(kind, name))

    if not backends and not report.faults:
        report.add("", "backends", "there is no backend", remedy="give at least one")
    sound = {name: check_backend(place("backends", name), b, dialects) for name, b in backends.items() if b}
    able = {n: check_profile(place("profiles", n), p, {**backends, **sound}) for n, p in profiles.items() if p}
    for name, prompt in prompts.items():
        if prompt is not None:
            check_prompt(place("prompts", name), prompt, profiles, backends={**backends, **sound})
    return Resources(
        backends=sound,
        profiles=able,
        prompts={name: prompt for name, prompt in prompts.items() if prompt},
        where=report.where,
    )


def _warnings(where: str, backends: Mapping[str, Backend | None]) -> tuple[str, ...]:
    said = []
    for name, backend in backends.items():
        if backend is not None and backend.api_key is not None:
            variable = backend.api_key_env or "".join(c if c.isalnum() else "_" for c in name).upper() + "_API_KEY"
            said.append(
                f"{where}: [{table_name('backends', name)}] api_key: the key stands in the file, where others may "
                f'read it; put it into the environment variable {variable} and write api_key_env = "{variable}"'
            )
    return tuple(said)
