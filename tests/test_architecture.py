"""The house rules that neither ruff nor import-linter can check."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "furcate"

FILE_LINES = 600
TEST_FILE_LINES = 800
FUNCTION_LINES = 60
CLASS_LINES = 300
PARAMETERS = 8
PARAMETERS_BY_PLACE = 3

# An optional extra is imported where it is used, so that nobody else needs it.
IMPORTS_INSIDE = {
    "orchestrator/_embedded.py",
    "observers/_otel_setup.py",
    "transport/_choice.py",
    "transport/_place.py",
    # What a program may never use, and what takes long to load: dialects that it does not speak, telemetry.
    "dialects/_table.py",
    "observers/__init__.py",
    "batch/cluster/_executors.py",
    "_observing.py",
    "__init__.py",
    # The libraries of contracts, templates and configuration files, which take longer to load than all of ours.
    "orchestrator/_later.py",
    "validation/__init__.py",
    "orchestrator/_config.py",
    "orchestrator/_config_read.py",
}
# The child process tells its parent where its library is missing; a plan file names callables of its user.
IMPORTS_BY_NAME = {"local/_child.py", "cli/_callables.py"}
NO_DUTY = {"utils", "helpers", "common", "manager", "misc"}

# What a package may use besides the standard library and furcate itself; what is not listed may use anything.
THIRD_PARTIES = {
    "primitives": {"attrs", "msgspec"},
    "dialects": {"attrs", "msgspec", "cattrs"},
    "transport": {"aiohttp", "attrs", "anyio", "httpcore2", "idna", "msgspec", "truststore"},
    "storage": {"attrs", "msgspec"},
    "admission": {"attrs", "anyio"},
    "validation": {"attrs", "cattrs", "msgspec", "jsonschema_rs"},
    "observers": {"attrs", "opentelemetry"},
    "groups": {"attrs"},
    "orchestrator": {"attrs", "anyio", "cattrs", "jsonschema_rs", "minijinja", "msgspec", "xllamacpp"},
}

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef

SOURCES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in SOURCES if path.name == "__init__.py")
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def _place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _functions() -> Iterator[tuple[str, _Function]]:
    for path in SOURCES:
        for node in _nodes(path):
            if isinstance(node, _FUNCTIONS):
                yield f"{_place(path)}:{node.lineno} {node.name}", node


def _imports() -> Iterator[tuple[str, str]]:
    """Give each place and the module that it imports, wherever in the file that is."""
    for path in SOURCES:
        for node in _nodes(path):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield _place(path), alias.name
            elif isinstance(node, ast.ImportFrom):
                yield _place(path), "." * node.level + (node.module or "")


def _lines(node: _Function | ast.ClassDef) -> int:
    """Count a definition's lines without its decorators, its docstring and those of what it contains."""
    return _span(node) - sum(
        _span(inner.body[0])
        for inner in ast.walk(node)
        if isinstance(inner, (*_FUNCTIONS, ast.ClassDef)) and ast.get_docstring(inner) is not None
    )


def _span(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _parameters(node: _Function) -> tuple[int, int]:
    """Count a function's parameters, all of them and those given by place, without self or cls."""
    by_place = [*node.args.posonlyargs, *node.args.args]
    if by_place and by_place[0].arg in ("self", "cls"):
        by_place = by_place[1:]
    return len(by_place) + len(node.args.kwonlyargs), len(by_place)


def test_only_the_command_line_prints() -> None:
    """A library that prints spoils its user's output."""
    found = [
        f"{_place(path)}:{node.lineno}"
        for path in SOURCES
        for node in _nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not [place for place in found if not place.startswith("cli/")]


def test_imports_stand_at_the_top() -> None:
    """An import inside a function hides what a file depends on."""
    found = [
        place
        for place, function in _functions()
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(function))
    ]
    assert not [place for place in found if place.split(":")[0] not in IMPORTS_INSIDE]


def test_imports_are_not_computed() -> None:
    """An import by a computed name would pass every other check here."""
    found = {
        _place(path)
        for path in SOURCES
        for node in _nodes(path)
        if (isinstance(node, ast.Attribute) and node.attr == "import_module")
        or (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
    }
    assert found <= IMPORTS_BY_NAME


def test_imports_name_the_defining_module() -> None:
    """No file imports relatively or from the package's root, so each import tells what it needs."""
    assert not [
        f"{place}: {name or '.'}" for place, name in _imports() if not name or name.startswith(".") or name == "furcate"
    ]


def test_layers_see_their_own_libraries_only() -> None:
    """Each package uses the third parties that its duty needs and no others."""
    found = []
    for place, name in _imports():
        top = name.partition(".")[0]
        allowed = THIRD_PARTIES.get(place.split("/")[0])
        if allowed is not None and top not in {"furcate", *allowed, *sys.stdlib_module_names}:
            found.append(f"{place}: {name}")
    assert not found


def test_opentelemetry_is_imported_by_one_observer() -> None:
    """Traces are one observer's business, and nobody else's."""
    places = {place for place, name in _imports() if name.partition(".")[0] == "opentelemetry"}
    assert all(place.startswith("observers/_otel") for place in places)


def test_nothing_stands_on_the_test_tools() -> None:
    """The test tools are there for users; the package itself works without them."""
    places = [place for place, name in _imports() if name.startswith("furcate.testing")]
    assert not [place for place in places if not place.startswith("testing/")]


def test_implementation_files_are_private() -> None:
    """A file's name tells whether to import it; dialects are called what configurations call them."""
    public = [_place(path) for path in SOURCES if not path.stem.startswith("_")]
    assert not [place for place in public if not place.startswith("dialects/")]


def test_file_names_say_a_duty() -> None:
    """A file called after no duty collects what belongs elsewhere."""
    assert not [_place(path) for path in SOURCES if NO_DUTY & set(path.stem.split("_"))]


def test_files_stay_short() -> None:
    """A file fits in a reader's head; tests are read as well."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (*SOURCES, *TESTS)}
    limits = {path: FILE_LINES if path in SOURCES else TEST_FILE_LINES for path in lengths}
    assert not [f"{path.name}: {length}" for path, length in lengths.items() if length > limits[path]]


def test_functions_stay_short() -> None:
    """A function fits on a screen; docstrings do not count."""
    found = [f"{place}: {_lines(node)} lines" for place, node in _functions() if _lines(node) > FUNCTION_LINES]
    assert not found


def test_classes_stay_short() -> None:
    """A class has one duty; docstrings do not count."""
    classes = ((path, node) for path in SOURCES for node in _nodes(path) if isinstance(node, ast.ClassDef))
    assert not [f"{_place(path)}: {node.name}" for path, node in classes if _lines(node) > CLASS_LINES]


def test_functions_take_few_parameters() -> None:
    """Nobody remembers the order of many parameters, so all after the third are given by name."""
    counted = [(place, *_parameters(node)) for place, node in _functions()]
    assert not [place for place, total, _ in counted if total > PARAMETERS]
    assert not [place for place, _, by_place in counted if by_place > PARAMETERS_BY_PLACE]


@pytest.mark.parametrize("folder", PACKAGES, ids=_place)
def test_packages_export_by_name(folder: Path) -> None:
    """What a package's __init__ imports or defines is exactly what its __all__, a tuple, names."""
    body = ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body
    names: list[str] = []
    exported: list[ast.expr] = []
    # What is loaded later is imported for the type checker's eyes.
    later = [inner for node in body if isinstance(node, ast.If) for inner in node.body]
    for node in (*body, *later):
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "typing"):
            names.extend(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            exported.append(node.value)
    if not names:
        assert not exported
        return
    [value] = exported
    assert isinstance(value, ast.Tuple), "__all__ is a tuple, which nobody can append to"
    assert sorted(ast.literal_eval(value)) == sorted(name for name in names if not name.startswith("_"))


def test_every_package_has_a_layer() -> None:
    """A new package does not escape the contract that imports go down only."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [inside] = [contract["source_modules"] for contract in contracts if contract["type"] == "forbidden"]
    packages = {f"furcate.{folder.name}" for folder in PACKAGES if folder.parent == PACKAGE}
    assert packages <= {name.strip() for row in layers for name in row.split("|")}
    assert packages <= set(inside)
