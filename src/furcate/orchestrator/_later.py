"""What a request may ask for and most do not, loaded when one first does: templates and contracts.

The libraries behind them take as long to load as an HTTP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from furcate.orchestrator._prompts import Rendered
    from furcate.primitives._contract import Contract
    from furcate.primitives._json import FrozenMap
    from furcate.primitives._request import Request
    from furcate.primitives._resources import Prompt
    from furcate.validation import Checker


def render(prompt: Prompt, request: Request) -> Rendered:
    """Render a prompt's templates; see `furcate.orchestrator._prompts`."""
    from furcate.orchestrator import _prompts  # noqa: PLC0415

    return _prompts.render(prompt, request)


def template_fault(source: str) -> str | None:
    """Say what is wrong with a template, or give None; see `furcate.orchestrator._prompts`."""
    from furcate.orchestrator import _prompts  # noqa: PLC0415

    return _prompts.template_fault(source)


def compile_contract(contract: Contract) -> Checker:
    """Compile a contract; see `furcate.validation`."""
    from furcate.validation import _checker  # noqa: PLC0415

    return _checker.compile_contract(contract)


def check_schema(schema: FrozenMap) -> None:
    """Check that a JSON Schema can be compiled; see `furcate.validation`."""
    from furcate.validation import _schema  # noqa: PLC0415

    _schema.compile_schema(schema)
