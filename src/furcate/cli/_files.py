"""Files that a command reads, and files that it writes: the two must not be the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from furcate.orchestrator._config import read_toml
from furcate.orchestrator._config_read import Report
from furcate.primitives._errors import RequestError

_NAMES_A_FILE = ("config", "file", "schema")
_INPUTS = "inputs"


def is_special(path: Path) -> bool:
    """Tell whether a path is there but neither a file nor a folder: a pipe or a device, which is read only once."""
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:
        return False


def check_target(option: str, path: Path, read: Mapping[Path, str]) -> None:
    """Check that a file may be written to.

    Arguments:
        option: how people named it.
        path: the file.
        read: files that are read, each with what it is to people.

    Raises:
        RequestError: its folder is not there, it is a folder, or it is one of the files that are read.
    """
    if not path.parent.is_dir():
        raise RequestError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise RequestError(f"{option} {path} is a folder; name a file")
    for other, what in read.items():
        if is_same(path, other):
            raise RequestError(f"{option} {path} is {what}; name another file")


def is_same(one: Path, other: Path) -> bool:
    """Tell whether two paths lead to one file, by links too."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, ValueError):
        return False


def files_of(path: Path | None, what: str) -> dict[Path, str]:
    """List a plan or a configuration and the files that it names: templates, schemas, inputs, another configuration.

    Arguments:
        path: the file; None lists nothing.
        what: what it is to people.
    """
    if path is None:
        return {}
    content = read_toml(Report(str(path)), path)
    return {**{path.parent / name: f"a file that {path} names" for name in _named(content)}, path: what}


def _named(content: object) -> Iterator[str]:
    if isinstance(content, list):
        for item in content:
            yield from _named(item)
    elif isinstance(content, dict):
        for key, value in content.items():
            if isinstance(value, str):
                if key in _NAMES_A_FILE:
                    yield value
            elif key == _INPUTS and isinstance(value, dict):
                yield from (path for path in value.values() if isinstance(path, str))
            else:
                yield from _named(value)


def module_file(function: Callable[..., object]) -> Path | None:
    """Give the file in which a function's module stands; None where it has none."""
    name = getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None)
    return Path(name) if name is not None else None
