"""A plan together with its configuration and its callables: all that can be wrong before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from furcate.cli._callables import Function, load_callables
from furcate.cli._plan import CONFIG_TABLES, ExplorePlan, check_names, is_plan, read_plan
from furcate.cli._setup import Setup, choose
from furcate.orchestrator._config import load_config, read_toml
from furcate.orchestrator._config_read import Report
from furcate.primitives._errors import ConfigError


@frozen
class Loaded:
    """Hold a plan that can be run.

    Attributes:
        plan: the plan.
        setup: its configuration.
        functions: its branches' callables by branch name.
    """

    plan: ExplorePlan
    setup: Setup
    functions: dict[str, Function]


def load_plan(path: Path, config: Path | None, report: Report) -> Loaded | None:
    """Read a plan with its configuration and its callables, and check them against each other.

    Arguments:
        path: the plan file.
        config: a configuration file that goes before the one that the plan names, and before its own tables.
        report: takes the faults.

    Returns:
        None where something is wrong.
    """
    content = read_toml(report, path)
    if content is None:
        return None
    if not is_plan(content):
        report.add("opening", "", "missing", remedy="a plan has a table [opening] and tables [[branches]]")
        return None
    plan = read_plan(path, content, report)
    setup = _setup_for(plan, path, content, config=config, report=report)
    if plan is None or setup is None:
        return None
    check_names(plan, report, setup.resources.prompts, profiles=setup.resources.profiles)
    functions = load_callables(plan, report)
    return None if report.faults else Loaded(plan, setup, functions)


def _setup_for(
    plan: ExplorePlan | None, path: Path, content: Mapping[str, object], *, config: Path | None, report: Report
) -> Setup | None:
    own = [kind for kind in CONFIG_TABLES if kind in content]
    try:
        if config is not None:
            # It wins over all that the plan says itself, so that a plan can be tried on another server as it is.
            return choose(config)
        if own:
            beside = tuple(key for key in content if key not in CONFIG_TABLES)
            return Setup(load_config(path, beside=beside), path, beside)
        if plan is not None:
            # Without a plan it is not known which configuration it names; its own faults come first then.
            return choose(plan.config)
    except ConfigError as error:
        report.faults.extend(separated(error))
    return None


def separated(error: ConfigError) -> tuple[ConfigError, ...]:
    """Give an error and those that it holds, each by itself."""
    alone = ConfigError(error.problem, where=error.where, table=error.table, key=error.key, remedy=error.remedy)
    return (alone, *(one for other in error.others for one in separated(other)))
