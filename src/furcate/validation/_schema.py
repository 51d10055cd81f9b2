"""JSON Schema: compiled once, with every fault named by its path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NoReturn

import jsonschema_rs
from attrs import frozen

from furcate.primitives._errors import SchemaError
from furcate.primitives._json import FrozenMap, Plain, thaw_object
from furcate.primitives._result import Fault
from furcate.validation._bounds import MOST_APPLIED, Weight, weigh
from furcate.validation._paths import MOST_FAULTS, bounded, path_of, shown

# Stands for the checked value in the library's messages, which would otherwise hold all of it.
_MASK = "\x00"


@frozen(eq=False)
class _Same:
    """Key a schema by identity: equality would take ``{"const": 1}`` for ``{"const": true}``."""

    schema: FrozenMap

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.schema is self.schema

    def __hash__(self) -> int:
        return id(self.schema)


@frozen
class Compiled:
    """Hold a compiled schema, and how much work it makes."""

    validator: jsonschema_rs.Validator
    weight: Weight


def compile_schema(schema: FrozenMap) -> Compiled:
    """Compile a schema; the same frozen object is compiled once while it is in use.

    ``format`` is checked. References beyond the schema itself are never followed.

    Raises:
        SchemaError: it is no JSON Schema, refers to another document, or stands for too large a one.
    """
    return _compiled(_Same(schema))


# Lookarounds and back references are possible, and given up where they go back too often; all other patterns take a
# time in proportion to the text.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)


@lru_cache(maxsize=128)
def _compiled(same: _Same) -> Compiled:
    weight = weigh(same.schema)
    if weight.applied > MOST_APPLIED:
        raise SchemaError(
            f"the schema unfolds to more than {MOST_APPLIED:,} alternatives for one place; name each part less often"
        )
    try:
        validator = jsonschema_rs.validator_for(
            thaw_object(same.schema),
            retriever=_refuse,
            mask=_MASK,
            validate_formats=True,
            pattern_options=_PATTERNS,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(_why_no_schema(error)) from error
    except ValueError as error:
        raise SchemaError(f"no JSON Schema that can be read: {bounded(str(error))}") from error
    return Compiled(validator, weight)


def _refuse(uri: str) -> NoReturn:
    raise LookupError(f"{uri} is another document")


def _why_no_schema(error: jsonschema_rs.ValidationError) -> str:
    # The library has one error type for a schema that breaks the meta-schema and for a reference without target.
    message = bounded(error.message.replace(_MASK, shown(error.instance)))
    if message.startswith("Resource "):
        target = message.split("'")[1] if message.count("'") > 1 else "another document"
        return f"the schema refers to {target!r}, which is not followed; put what it refers to under $defs"
    if error.instance is None and not list(error.instance_path):
        return f"no JSON Schema: {message}"
    return f"no JSON Schema: {path_of(error.instance_path)}: {message}"


def schema_faults(compiled: Compiled, value: Plain) -> tuple[Fault, ...]:
    """Find in what a value fails a schema, at most a few dozen faults.

    Where the schema has so many alternatives for the value that following each would take too long, there is one fault
    for the whole, be it that the value does not fit or that nobody can tell in time.

    Args:
        compiled: the compiled schema.
        value: plain JSON data.
    """
    try:
        work = compiled.weight.work(value, _MOST_CHECKED)
        if work > _MOST_CHECKED:
            return (_UNCHECKED,)
        if work > _MOST_EXPLAINED:
            return () if compiled.validator.is_valid(value) else (_SOMEWHERE,)
        found = list(islice(_each(compiled.validator.iter_errors(value)), MOST_FAULTS + 1))
    except UnicodeEncodeError:
        return (Fault("$", "a string holds one half of a surrogate pair, which is no character"),)
    except ValueError as error:
        return (Fault("$", f"cannot be checked: {bounded(str(error))}"),)
    if len(found) > MOST_FAULTS:
        return (*found[:MOST_FAULTS], Fault("$", "and further faults"))
    return tuple(found)


_MOST_EXPLAINED = 20_000
_MOST_CHECKED = 1_000_000
"""How often subschemas may apply in finding all faults, and in finding out whether there are any: a second of work."""

_SOMEWHERE = Fault("$", "does not fit the schema, which has too many alternatives for it to say where")
_UNCHECKED = Fault("$", "cannot be checked: the schema has too many alternatives for a value that nests as far")


def _each(errors: Iterator[jsonschema_rs.ValidationError]) -> Iterator[Fault]:
    for error in errors:
        yield from _faults(error)


def _faults(error: jsonschema_rs.ValidationError) -> Iterator[Fault]:
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", None) or ()
    if branches and all(branches):
        # "Absent or an object" is the common union: the branch of the right type says what is really wrong.
        meant = [branch for branch in branches if not _misses_type(branch, error)]
        if len(meant) == 1:
            yield from _each(iter(meant[0]))
            return
        reasons = "; or ".join(_sentence(branch[0]) for branch in branches)
        message = f"fits none of {len(branches)} alternatives: {reasons}"
    else:
        message = _sentence(error)
    yield Fault(path_of(error.instance_path), bounded(message))


def _misses_type(branch: Sequence[jsonschema_rs.ValidationError], whole: jsonschema_rs.ValidationError) -> bool:
    return any(error.kind.name == "type" and list(error.instance_path) == list(whole.instance_path) for error in branch)


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    if error.kind.name == "falseSchema":
        return "holds a value where the schema allows none"
    return error.message.replace(_MASK, shown(error.instance))
