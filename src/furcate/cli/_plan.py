"""A plan file for ``furcate explore``, read into frozen values and checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from furcate.orchestrator._config_check import Place, check_prompt
from furcate.orchestrator._config_read import (
    Reader,
    Report,
    Table,
    anything,
    described,
    guess,
    json_table,
    table,
    text,
    whole,
)
from furcate.orchestrator._config_tables import Surroundings, read_prompt
from furcate.primitives._contract import Contract
from furcate.primitives._errors import SchemaError
from furcate.primitives._json import FrozenMap
from furcate.primitives._resources import MessageTemplate, Prompt
from furcate.validation import compile_contract

CONFIG_TABLES = ("backends", "profiles", "prompts", "tools")
"""The tables of a configuration, which a plan may carry itself."""

_DEFAULT_INPUT = "input"
_TOP: dict[str, Reader] = {"config": text, "profile": text, "vars": json_table, "opening": table, "branches": anything}
_OPENING: dict[str, Reader] = {
    "prompt": text,
    "messages": anything,
    "input": text,
    "contract": table,
    "profile": text,
    "vars": json_table,
}
_BRANCH: dict[str, Reader] = {"name": text, "turns": whole(0), "follow_ups": anything, "callable": text}
_FOLLOW_UP: dict[str, Reader] = {"prompt": text, "template": text, "vars": json_table, "profile": text}


@frozen
class Ask:
    """Say what is asked in one place of a plan.

    Attributes:
        prompt: a configured prompt's name, or a prompt that the plan holds itself.
        vars: variables laid over the plan's own.
        profile: its profile; None takes the prompt's, else the plan's.
        contract: replaces the prompt's contract.
    """

    prompt: str | Prompt
    vars: FrozenMap
    profile: str | None = None
    contract: Contract | None = None


@frozen
class BranchPlan:
    """Describe one branch: either what is asked one after the other, or a callable that says what is next.

    Attributes:
        name: unique in the plan.
        turns: how many turns it may take.
        follow_ups: what is asked.
        callable: ``module:function`` in their place.
    """

    name: str
    turns: int
    follow_ups: tuple[Ask, ...] = ()
    callable: str | None = None


@frozen(kw_only=True)
class ExplorePlan:
    """Hold a plan.

    Attributes:
        path: the file.
        config: the configuration file that it names, as a path of its own.
        profile: the profile of what names none.
        opening: what is asked first, once for each input.
        input: the name under which templates see an input's text, as ``inputs.<name>``.
        branches: what is forked from the opening's answer; at least one.
    """

    path: Path
    config: Path | None
    profile: str | None
    vars: FrozenMap
    opening: Ask
    input: str
    branches: tuple[BranchPlan, ...]


def is_plan(content: Mapping[str, object]) -> bool:
    """Tell whether a TOML document is a plan and not only a configuration."""
    return "opening" in content or "branches" in content


def read_plan(path: Path, content: Mapping[str, object], report: Report) -> ExplorePlan | None:
    """Read a plan from its TOML content.

    Names of prompts and profiles are not looked up here; `check_names` does that once the configuration is known.

    Arguments:
        path: the file; relative paths in it are relative to it.
        content: the whole document; the tables of a configuration are passed over.
        report: takes the faults.

    Returns:
        The plan, or None where something is wrong.
    """
    before = len(report.faults)
    top = Table(report, "", {key: value for key, value in content.items() if key not in CONFIG_TABLES})
    found = top.read(_TOP, ("opening", "branches"))
    if "config" in found and any(kind in content for kind in CONFIG_TABLES):
        top.wrong("config", "the plan carries a configuration itself", "leave out either this key or those tables")
    variables = found.get("vars", FrozenMap())
    opening = _opening(report, found["opening"], path.parent, variables=variables) if "opening" in found else None
    branches = _branches(report, found["branches"], variables) if "branches" in found else ()
    if len(report.faults) > before or opening is None:
        return None
    asked, name = opening
    return ExplorePlan(
        path=path,
        config=path.parent / found["config"] if "config" in found else None,
        profile=found.get("profile"),
        vars=variables,
        opening=asked,
        input=name,
        branches=branches,
    )


def _opening(
    report: Report, content: Mapping[str, Any], folder: Path, *, variables: FrozenMap
) -> tuple[Ask, str] | None:
    place = Table(report, "opening", content)
    found = place.read(_OPENING)
    if ("prompt" in content) == ("messages" in content):
        place.wrong("", "an opening has either a prompt or messages of its own", "give one of the two")
    name = found.get("input", _DEFAULT_INPUT)
    if not name.isidentifier():
        place.wrong("input", f"{name!r} cannot be written as inputs.<name>", "use letters, digits and _")
    if not place.sound:
        return None
    # A prompt's reader knows all there is to know about messages and contracts, so that they are written alike.
    parts = {key: content[key] for key in ("messages", "contract") if key in content}
    parts.setdefault("messages", [{"role": "user", "template": "-"}])
    inline = read_prompt(Table(report, "opening", parts), "opening", Surroundings(folder, {}))
    if inline is None:
        return None
    given = _merged(variables, found.get("vars"))
    if "prompt" in found:
        return Ask(found["prompt"], given, found.get("profile"), inline.contract), name
    return Ask(inline, given, found.get("profile")), name


def _branches(report: Report, value: object, variables: FrozenMap) -> tuple[BranchPlan, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        what = "an empty list" if value == [] else described(value)
        report.add("", "branches", f"found {what}", remedy="give at least one table [[branches]] with a name")
        return ()
    made: list[BranchPlan] = []
    for number, content in enumerate(value):
        place = Table(report, f"branches[{number}]", content)
        branch = _branch(place, content, number, variables=variables)
        if branch is None:
            continue
        if any(other.name == branch.name for other in made):
            place.wrong("name", f"there are two branches named {branch.name!r}", "name them differently")
        made.append(branch)
    return tuple(made)


def _branch(place: Table, content: Mapping[str, object], number: int, *, variables: FrozenMap) -> BranchPlan | None:
    found = place.read(_BRANCH, ("name",))
    if ("follow_ups" in content) == ("callable" in content):
        place.wrong("", "a branch has either follow_ups or a callable", "give one of the two")
        return None
    asks: tuple[Ask, ...] = ()
    if "follow_ups" in found:
        asks = _follow_ups(place, found["follow_ups"], f"branches[{number}]", variables=variables)
    elif "turns" not in content:
        place.wrong("turns", "missing", "say how many turns the callable may take")
    if "callable" in found and not _is_dotted(found["callable"]):
        place.wrong("callable", f"{found['callable']!r} names no function", 'write it as "module:function"')
    if not place.sound:
        return None
    return BranchPlan(found["name"], found.get("turns", len(asks)), asks, found.get("callable"))


def _is_dotted(value: str) -> bool:
    module, colon, function = value.partition(":")
    return colon == ":" and all(step.isidentifier() for step in (*module.split("."), *function.split(".")))


def _follow_ups(place: Table, value: object, branch: str, *, variables: FrozenMap) -> tuple[Ask, ...]:
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else described(value)
        place.wrong("follow_ups", f"found {what}", 'give a list such as ["Say it shorter.", { prompt = "name" }]')
        return ()
    asks = []
    for number, item in enumerate(value):
        key = f"follow_ups[{number}]"
        if isinstance(item, str):
            item = {"template": item}
        if not isinstance(item, dict):
            place.wrong(
                key, f"found {described(item)}", 'give a text in quotes, or a table such as { prompt = "name" }'
            )
            continue
        part = place.part(key, item)
        found = part.read(_FOLLOW_UP)
        if ("prompt" in item) == ("template" in item):
            part.wrong("", "a follow-up has either a prompt or a template", "give one of the two")
        if not part.sound:
            place.sound = False
            continue
        asked: str | Prompt = found.get("prompt", "")
        if "template" in found:
            asked = Prompt(f"{branch}.{key}", (MessageTemplate("user", found["template"]),))
        asks.append(Ask(asked, _merged(variables, found.get("vars")), found.get("profile")))
    return tuple(asks)


def _merged(variables: FrozenMap, more: FrozenMap | None) -> FrozenMap:
    return FrozenMap({**variables, **more}) if more else variables


def check_names(
    plan: ExplorePlan, report: Report, prompts: Mapping[str, Prompt], *, profiles: Mapping[str, object]
) -> None:
    """Look up what a plan names in its configuration, and compile the templates and contracts that it holds.

    Arguments:
        plan: the plan.
        report: takes the faults.
        prompts: the configured prompts by name.
        profiles: the configured profiles by name.
    """
    _check_profile(report, "", plan.profile, profiles=profiles)
    if plan.profile is None and len(profiles) != 1 and _needs_default(plan, prompts):
        known = ", ".join(profiles) or "none"
        report.add("", "profile", "missing", remedy=f"name the profile of what has none of its own; profiles: {known}")
    _check_ask(report, "opening", "", ask=plan.opening, prompts=prompts, profiles=profiles)
    for number, branch in enumerate(plan.branches):
        for place, ask in enumerate(branch.follow_ups):
            _check_ask(
                report, f"branches[{number}]", f"follow_ups[{place}]", ask=ask, prompts=prompts, profiles=profiles
            )


def _needs_default(plan: ExplorePlan, prompts: Mapping[str, Prompt]) -> bool:
    asks = (plan.opening, *(ask for branch in plan.branches for ask in branch.follow_ups))
    return any(ask.profile is None and default_profile(ask, prompts) is None for ask in asks)


def default_profile(ask: Ask, prompts: Mapping[str, Prompt]) -> str | None:
    """Give the profile that a configured prompt brings along; None where it brings none."""
    prompt = prompts.get(ask.prompt) if isinstance(ask.prompt, str) else ask.prompt
    return prompt.profile if prompt is not None else None


def _check_ask(
    report: Report,
    at: str,
    key: str,
    *,
    ask: Ask,
    prompts: Mapping[str, Prompt],
    profiles: Mapping[str, object],
) -> None:
    prefix = f"{key}." if key else ""
    _check_profile(report, at, ask.profile, profiles=profiles, key=f"{prefix}profile")
    if isinstance(ask.prompt, str):
        if ask.prompt not in prompts:
            remedy = guess(ask.prompt, prompts, "prompts")
            report.add(at, f"{prefix}prompt", f"no prompt named {ask.prompt!r}", remedy=remedy)
        if ask.contract is not None:
            try:
                compile_contract(ask.contract)
            except SchemaError as error:
                report.add(at, f"{prefix}contract.schema", str(error))
    else:
        checked = Report(report.where)
        check_prompt(Place(checked, at), ask.prompt, {}, backends={})
        for fault in checked.faults:
            # A follow-up's one message has no number of its own in the plan.
            inner = key if key else fault.key
            report.add(at, inner, fault.problem, remedy=fault.remedy)


def _check_profile(
    report: Report, at: str, name: str | None, *, profiles: Mapping[str, object], key: str = "profile"
) -> None:
    if name is not None and name not in profiles:
        report.add(at, key, f"no profile named {name!r}", remedy=guess(name, profiles, "profiles"))
