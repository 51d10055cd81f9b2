"""An answer checked against its contract: JSON, schema, structure, and the application's own check, in this order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from attrs import field, frozen
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    IterableValidationError,
    IterableValidationNote,
    StructureHandlerNotFoundError,
)

from furcate.primitives._contract import Contract
from furcate.primitives._errors import SchemaError
from furcate.primitives._json import freeze
from furcate.primitives._result import Fault
from furcate.validation._parse import NoJson, parse
from furcate.validation._paths import MOST_FAULTS, bounded, path_of
from furcate.validation._schema import Compiled, compile_schema, schema_faults
from furcate.validation._structure import strict_converter


@frozen
class Checked:
    """Hold what a check found.

    Attributes:
        value: the frozen JSON value, or an instance of the contract's class; None where there are faults.
        faults: in what the answer fails; empty where it passed.
    """

    value: object = field(default=None, repr=False)
    faults: tuple[Fault, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the answer fits the contract."""
        return not self.faults


@frozen
class Checker:
    """Check answers against one contract, as often as wanted.

    Attributes:
        contract: what is checked.
    """

    contract: Contract
    _validator: Compiled = field(repr=False)
    _structure: Callable[[object], object] | None = field(default=None, repr=False)

    def check(self, text: str) -> Checked:
        """Check an answer's text.

        The contract's own check is called with the instance, or with fresh plain data where the contract has no
        class; what it returns is not looked at.

        Args:
            text: the whole answer; white space and one code fence around it do not matter.
        """
        try:
            plain = parse(text)
        except NoJson as error:
            return Checked(faults=(Fault("$", str(error)),))
        faults = schema_faults(self._validator, plain)
        if faults:
            return Checked(faults=faults)
        try:
            value: object = freeze(plain) if self._structure is None else self._structure(plain)
        except RecursionError:
            return Checked(faults=(Fault("$", "no JSON that can be read: it nests too deeply"),))
        except Exception as error:
            return Checked(faults=_few(_misfits(error, "$")))
        if self.contract.check is not None:
            try:
                self.contract.check(plain if self._structure is None else value)
            except Exception as error:
                return Checked(faults=_few(_objections(error)))
        return Checked(value)


def compile_contract(contract: Contract) -> Checker:
    """Compile a contract into its checker; contracts that share one frozen schema share its compiled form.

    Raises:
        SchemaError: the schema is no JSON Schema or refers to another document, the class has a field whose type has
            no JSON form, or the contract's check is a coroutine function.
    """
    try:
        validator = compile_schema(contract.schema)
    except SchemaError as error:
        raise SchemaError(f"contract {contract.name!r}: {error}") from error
    if inspect.iscoroutinefunction(contract.check):
        raise SchemaError(f"contract {contract.name!r}: check is a coroutine function; give a plain function")
    if contract.structure is None:
        return Checker(contract, validator)
    return Checker(contract, validator, _structure_of(contract.structure, contract.name))


def _structure_of(wanted: type, name: str) -> Callable[[object], object]:
    converter = strict_converter()
    try:
        hook = converter.get_structure_hook(wanted)
    except StructureHandlerNotFoundError as error:
        unknown = getattr(error.type_, "__name__", str(error.type_))
        raise SchemaError(
            f"contract {name!r}: {wanted.__name__} cannot be made from JSON, as {unknown} has no JSON form; "
            "give an attrs class or a dataclass of JSON types"
        ) from error
    except (NameError, TypeError) as error:
        raise SchemaError(f"contract {name!r}: {wanted.__name__} cannot be made from JSON: {error}") from error
    return lambda plain: hook(plain, wanted)


def _few(faults: Iterator[Fault]) -> tuple[Fault, ...]:
    return tuple(fault for _, fault in zip(range(MOST_FAULTS), faults, strict=False))


def _misfits(error: BaseException, path: str) -> Iterator[Fault]:
    """Flatten what cattrs raises; its notes say which field or item an error belongs to."""
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _misfits(inner, _deeper(inner, path, error))
    elif isinstance(error, KeyError) and hasattr(error, "__notes__"):
        yield Fault(path, "is required, but missing")
    else:
        yield Fault(path, _said(error))


def _deeper(inner: BaseException, path: str, outer: BaseException) -> str:
    for note in getattr(inner, "__notes__", ()):
        if isinstance(outer, ClassValidationError) and isinstance(note, AttributeValidationNote):
            return path_of([note.name], path)
        if isinstance(outer, IterableValidationError) and isinstance(note, IterableValidationNote):
            return path_of([note.index], path)
    return path


def _objections(error: BaseException) -> Iterator[Fault]:
    """Make faults of what the application's check raised: one each, where it raised a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _objections(inner)
    else:
        yield Fault(_place_of(error), _said(error))


def _place_of(error: BaseException) -> str:
    place = getattr(error, "path", None)
    if isinstance(place, str) and place:
        return place if place.startswith("$") else f"${place}" if place.startswith("[") else f"$.{place}"
    if isinstance(place, (list, tuple)) and all(isinstance(step, (str, int)) for step in place):
        return path_of(place)
    return "$"


def _said(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, KeyError) and text:
        text = f"{type(error).__name__}: {text}"
    return bounded(text or type(error).__name__)
