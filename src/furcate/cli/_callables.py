"""The callables that a plan names, found and imported."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from furcate.cli._plan import ExplorePlan
from furcate.cli._told import one_line
from furcate.orchestrator._config_read import Report
from furcate.orchestrator._coordinator import Action, Turn
from furcate.primitives._errors import FurcateError

Function: TypeAlias = Callable[[Turn], Awaitable[Action]]
"""A branch's callable, as the application wrote it."""


class CallableError(FurcateError):
    """Raised when a branch's callable does what would end the whole program."""


def load_callables(plan: ExplorePlan, report: Report) -> dict[str, Function]:
    """Import the callables of a plan's branches, by branch name; what cannot be had goes to the report.

    Modules are looked for in the plan's folder, then in the current one, then wherever Python looks.
    """
    wanted = [(number, branch) for number, branch in enumerate(plan.branches) if branch.callable is not None]
    if not wanted:
        return {}
    folders = (plan.path.parent.absolute(), Path.cwd())
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    loaded: dict[str, Function] = {}
    for number, branch in wanted:
        assert branch.callable is not None
        found = _load(branch.callable, folders)
        if isinstance(found, str):
            report.add(
                f"branches[{number}]", "callable", found, remedy='name an "async def function(turn)" of a module'
            )
        else:
            loaded[branch.name] = found
    return loaded


def find_object(name: str) -> object:
    """Import what a command line names as ``module:name``, a file of the current folder before whatever else.

    Returns:
        What it is; a sentence on why it is not to be had.
    """
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return _found(name, (folder,), "in this folder or among the installed ones")


def _found(name: str, folders: tuple[Path, ...], where: str) -> object:
    """Import an object, or say why it is not to be had."""
    module, _, path = name.partition(":")
    try:
        found: object = _imported(module, folders)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return f"there is no module {module!r} {where}"
        return f"module {module!r} cannot be imported: {one_line(str(error))}"
    except (Exception, SystemExit) as error:
        return f"module {module!r} cannot be imported: {type(error).__name__}: {one_line(str(error))}"
    for step in path.split("."):
        found = getattr(found, step, None)
        if found is None:
            return f"module {module!r} has no {path!r}"
    return found if not isinstance(found, str) else f"{name!r} is not callable"


def _load(name: str, folders: tuple[Path, ...]) -> Function | str:
    found = _found(name, folders, "beside the plan or in this folder")
    if isinstance(found, str):
        return found
    if not (inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(getattr(found, "__call__", None))):  # noqa: B004
        return f"{name!r} is {'no async function' if callable(found) else 'not callable'}"
    try:
        inspect.signature(found).bind(None)  # type: ignore[arg-type]  # one of the two above is callable
    except TypeError:
        return f"{name!r} does not take one argument, the turn"
    function: Function = found  # type: ignore[assignment]  # what it returns shows when it is called
    return function


def _imported(module: str, folders: tuple[Path, ...]) -> ModuleType:
    """Import a module, a file beside the plan before whatever else has its name."""
    for folder in folders:
        file = folder / f"{module}.py"
        if "." not in module and file.is_file():
            return _imported_from(module, file)
    return importlib.import_module(module)


def _imported_from(module: str, file: Path) -> ModuleType:
    # A module that Python or a library may want under this name is not to be hidden from it.
    for name in (module, f"furcate_plan_{module}"):
        there = sys.modules.get(name)
        if there is not None and _is_from(there, file):
            return there
    taken = module in sys.modules or module in sys.stdlib_module_names
    name = f"furcate_plan_{module}" if taken else module
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    try:
        spec.loader.exec_module(made)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return made


def _is_from(module: ModuleType, file: Path) -> bool:
    name = getattr(module, "__file__", None)
    return name is not None and Path(name).exists() and file.samefile(name)
