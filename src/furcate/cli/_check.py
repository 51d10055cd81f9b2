"""``furcate check``: everything that is wrong with a configuration or a plan, at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from furcate.cli._plan import is_plan
from furcate.cli._plan_check import load_plan
from furcate.cli._setup import DEFAULT_CONFIG
from furcate.cli._told import USAGE, WELL, one_line, say
from furcate.orchestrator._config import Resources, find_faults, load_config, read_toml
from furcate.orchestrator._config_read import Report
from furcate.primitives._errors import ConfigError


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT_CONFIG)
def check(file: Path) -> int:
    """Check a configuration FILE, or a plan with the configuration that it uses. [default: furcate.toml]

    Every fault has a line of its own on stderr.
    """
    if is_plan(read_toml(Report(str(file)), file) or {}):
        return _check_plan(file)
    faults = find_faults(file)
    if faults:
        return _tell(faults)
    resources = load_config(file)
    _warn(resources)
    click.echo(f"{file}: ok: {_counts(resources)}")
    return WELL


def _check_plan(file: Path) -> int:
    report = Report(str(file))
    loaded = load_plan(file, None, report)
    if loaded is None:
        return _tell(report.faults)
    _warn(loaded.setup.resources)
    branches = len(loaded.plan.branches)
    click.echo(
        f"{file}: ok: a plan of {branches} {'branch' if branches == 1 else 'branches'}; "
        f"{loaded.setup.resources.where}: {_counts(loaded.setup.resources)}"
    )
    return WELL


def _tell(faults: Iterable[ConfigError]) -> int:
    for fault in faults:
        say(one_line(str(fault)))
    return USAGE


def _warn(resources: Resources) -> None:
    for warning in resources.warnings:
        say(one_line(f"warning: {warning}"))


def _counts(resources: Resources) -> str:
    counts = (
        ("backend", len(resources.backends)),
        ("profile", len(resources.profiles)),
        ("prompt", len(resources.prompts)),
    )
    return ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counts)
