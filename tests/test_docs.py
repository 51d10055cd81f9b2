"""The documentation: its code compiles and runs, its configurations are right, its links lead somewhere.

What a fenced block is follows from the words after its language:

- ``python``: compiles, and every ``furcate.name`` in it exists;
- ``python run``: is executed as well, on both loops, in one namespace with the earlier ones of its page and in a folder
  with the page's files, the embedded model being replaced by a stub; functions called ``test_...`` are run too;
- ``toml``: parses; ``toml config``: is a configuration without faults, and is ``furcate.toml`` for the programs;
- ``toml plan``: is a plan without faults;
- any language with ``file=NAME``: is that file for the page's programs and configurations.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import attrs
import pytest
from attrs import frozen

import furcate
from furcate.cli._plan import read_plan
from furcate.dialects._server_tools import CAPABILITIES, spelling
from furcate.orchestrator._config import find_faults
from furcate.orchestrator._config_read import Report
from furcate.primitives._wire import Address
from furcate.testing import Answer, StubProvider, StubRequest, answer

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@frozen
class Block:
    """A fenced block of a page, with the line on which its code begins."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    code: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is for its page's programs."""
        if self.words and self.words[0] == "config":
            return "furcate.toml"
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, words, code = found.groups()
        yield Block(page, text.count("\n", 0, found.start(3)) + 1, language, tuple(words.split()), code)


BLOCKS = [block for page in PAGES for block in _blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PROGRAMS = [page for page in PAGES if any("run" in block.words for block in PYTHON if block.page == page)]
CONFIGURATIONS = [block for block in BLOCKS if block.words[:1] == ("config",)]


def _examples(path: Path) -> Iterator[tuple[str, str]]:
    """Give the literal blocks of a file's docstrings: what stands indented after a paragraph that ends in ``::``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        parts = (ast.get_docstring(node) or "").split("::\n\n")
        for after in parts[1:]:
            lines = after.splitlines()
            end = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
            yield f"{path.name} {getattr(node, 'name', '')}", inspect.cleandoc("\n" + "\n".join(lines[:end]))


def _check_python(code: str, place: str) -> None:
    tree = ast.parse(code, place)
    compile(tree, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "furcate":
            assert hasattr(furcate, node.attr), f"{place} uses furcate.{node.attr}, which does not exist"


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_compile(block: Block) -> None:
    """Every Python block is Python, and what it uses of furcate exists."""
    _check_python(block.code, str(block))


def _documented(section: str) -> dict[str, str]:
    """Give the keys that a section of the configuration page explains, with the defaults that it names."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    [body] = re.findall(rf"^#+ {re.escape(section)}.*?\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [row.split("|")[1:3] for row in body.splitlines() if row.startswith("| `")]
    return {key: default.strip() for keys, default in rows for key in re.findall(r"`(\w+)`", keys)}


SECTIONS = {
    "backends": ("`[backends.NAME]`", "Time limits", "Trying again", "Switches of `openai-chat`"),
    "profiles": ("`[profiles.NAME]`",),
    "prompts": ("`[prompts.NAME]`",),
    "tools": ("`[tools.NAME]`",),
}


@pytest.mark.parametrize("table", SECTIONS)
def test_every_key_is_documented(table: str, tmp_path: Path) -> None:
    """The configuration page explains every key of every table, and no other."""
    path = tmp_path / "furcate.toml"
    path.write_text(f"[{table}.x]\nno_such_key = 1\n", encoding="utf-8")
    [fault] = [fault for fault in find_faults(path) if fault.key == "no_such_key"]
    known = set(fault.remedy.removeprefix("known keys: ").split(", "))
    if table == "prompts":
        known |= {"schema", "repairs", "name"}  # of its contract
    assert {key for section in SECTIONS[table] for key in _documented(section)} == known


@pytest.mark.parametrize("value", [furcate.TimeLimits, furcate.RetryPolicy, furcate.ChatSwitches])
def test_defaults_are_documented_as_they_are(value: type[Any]) -> None:
    """Every time limit, retry setting and switch that the configuration page explains has the default given there."""
    real = {field.name: field.default for field in attrs.fields(value)}
    written = {key: default for section in SECTIONS["backends"] for key, default in _documented(section).items()}
    shared = real.keys() & written.keys()
    assert shared
    for key in shared:
        shown = "none" if real[key] is None else f"`{json.dumps(real[key]).removesuffix('.0')}`"
        assert written[key] == shown, key


def test_capabilities_are_documented_as_they_are() -> None:
    """The table of provider-side tools says of each dialect what the encoders can ask for."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    [body] = re.findall(r"^### Tools on the provider's side.*?\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    head, _rule, *rows = (
        [cell.strip(" `") for cell in row.split("|")[1:-1]] for row in body.splitlines() if "|" in row
    )
    assert [row[0] for row in rows] == list(CAPABILITIES)
    for name, *cells in rows:
        assert cells == ["yes" if spelling(dialect, name) else "no" for dialect in head[1:]], name


def test_docstring_examples_compile() -> None:
    """Every example in a docstring is Python, and what it uses of furcate exists."""
    examples = [example for path in SOURCES for example in _examples(path)]
    assert examples
    for place, code in examples:
        _check_python(code, place)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_toml_blocks_parse(block: Block) -> None:
    """Every TOML block is TOML."""
    tomllib.loads(block.code)


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=str)
def test_configurations_are_right(block: Block, tmp_path: Path) -> None:
    """Every configuration shown passes its own check, with the files shown beside it."""
    _lay_out(block.page, tmp_path)
    path = tmp_path / "furcate.toml"
    path.write_text(block.code, encoding="utf-8")
    assert not find_faults(path)


@pytest.mark.parametrize("block", [block for block in BLOCKS if "plan" in block.words], ids=str)
def test_plans_are_right(block: Block, tmp_path: Path) -> None:
    """Every plan shown can be read."""
    report = Report("plan.toml")
    assert read_plan(tmp_path / "plan.toml", tomllib.loads(block.code), report)
    assert not report.faults


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_programs_run(page: Path, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of a page run one after the other, on both event loops."""
    monkeypatch.chdir(tmp_path)
    run = partial(anyio.run, backend=loop)
    monkeypatch.setattr(anyio, "run", run)
    # A registered module, since classes look theirs up.
    program = ModuleType("program_of_the_documentation")
    monkeypatch.setitem(sys.modules, program.__name__, program)
    namespace = vars(program)
    with StubProvider.in_thread(_say_something) as stub:
        monkeypatch.setattr("furcate.orchestrator._engine.embedded_server", partial(StandIn, stub.base_url))
        _lay_out(page, tmp_path)
        for block in (block for block in PYTHON if block.page == page and "run" in block.words):
            before = dict(namespace)
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
            for name, value in namespace.items():
                if name.startswith("test_") and value is not before.get(name):
                    run(value)


@frozen
class StandIn:
    """Stand in for the embedded model's server, which is somewhere else here."""

    base_url: str

    async def address(self) -> Address:
        """Give the stub's address."""
        return Address(self.base_url)

    async def aclose(self) -> None:
        """Leave the stub to the test."""


def _lay_out(page: Path, folder: Path) -> None:
    for block in BLOCKS:
        if block.page == page and block.file is not None:
            (folder / block.file).write_text(block.code, encoding="utf-8")


def _say_something(request: StubRequest) -> Answer:
    wanted = request.body.get("response_format")
    if wanted is None:
        return answer("The lamp turns above the dark water, and the keeper writes down each ship that passes by.")
    return answer(_json(wanted["json_schema"]["schema"]))


def _json(schema: Mapping[str, Any]) -> str:
    """Write the plainest JSON that has a schema's form."""
    match schema.get("type"):
        case "object":
            members = schema.get("properties", {}).items()
            return "{" + ", ".join(f'"{name}": {_json(member)}' for name, member in members) + "}"
        case "array":
            return f"[{_json(schema.get('items', {}))}]"
        case "integer" | "number":
            return str(schema.get("minimum", 1))
        case "boolean":
            return "true"
        case _:
            return '"words"'


def test_the_gate_installs_as_the_readme_says() -> None:
    """What the README tells people to install for the tests is what the gate installs."""
    install = "pip install -q -e '.[test]'"
    assert install in (ROOT / "README.md").read_text(encoding="utf-8")
    assert install in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the repository leads to one."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    inside = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert not [link for link in inside if not (page.parent / link).exists()]
