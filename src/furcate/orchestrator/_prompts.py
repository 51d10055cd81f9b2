"""From a prompt's templates to messages.

Templates are Jinja as minijinja has it: of Python they reach the methods of plain lists and objects and nothing else,
an undefined variable is an error, and `_FUEL` bounds how long one may work. What they are given is plain data, copied
for each template. Content is data: it is neither rendered again nor escaped, and the text stays as the template wrote
it, line ends at its end included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen
from minijinja import Environment, TemplateError, pass_state
from minijinja._lowlevel import State

from furcate.primitives._errors import RenderError
from furcate.primitives._json import thaw_object
from furcate.primitives._message import Message
from furcate.primitives._request import Request
from furcate.primitives._resources import MessageTemplate, Prompt

_FUEL = 1_000_000
"""Most steps of one template: about 0.1 s of work, and loops of a hundred thousand turns."""

_MOST_CODE = 4_000
"""Most characters between the braces of one tag, texts in quotes not counted."""

_MOST_ELIFS = 500

# The library reads operators and branches in a row by recursion of its own, and a few ten thousand of them overflow
# the stack and end the process. So a tag's length is looked at before the library sees it.
_TEXT = r""" "(?:\\.|[^"\\])*+" | '(?:\\.|[^'\\])*+' """
_TAG = re.compile(rf"\{{[{{%] (?: {_TEXT} | (?! [}}%]\}} ) . )*+", re.DOTALL | re.VERBOSE)
_QUOTED = re.compile(_TEXT, re.DOTALL | re.VERBOSE)
_ELIF = re.compile(r"\{%[-+]?\s*elif\b")

_INPUTS = "inputs"
_INLINE = "(inline)"


@frozen
class Rendered:
    """Hold what a prompt became.

    Attributes:
        messages: the prompt's messages, in order.
        session_id: the request's own, else the rendered session template's; None without either.
    """

    messages: tuple[Message, ...] = field(repr=False)
    session_id: str | None = None


class _Undefined(ValueError):
    """Raised when a filter is given an undefined variable."""


def _guarded(name: str) -> Callable[..., object]:
    """Wrap a filter of the library that takes an undefined variable for an empty text, however strict it is set."""

    def call(value: object, *args: object, **options: object) -> object:
        if value is None:
            raise _Undefined(f"the filter {name!r} is given something undefined, or null")
        given = ", ".join(word for word, there in (("*args", args), ("**options", options)) if there)
        return _LIBRARY.eval_expr(f"value | {name}({given})", value=value, args=args, options=options)

    return call


@pass_state
def _as_json(state: State, value: object, indent: int | None = None) -> str:
    # The library's own filter writes `<` as an escape, for web pages; a model is to see what the variable holds.
    # It also takes an undefined variable for null, which only looking at the template's names tells apart.
    if value is None and (missing := state.lookup(_MISSING)):
        raise _Undefined(f"the filter 'tojson' is given something undefined, probably {' or '.join(missing)}")
    return json.dumps(value, ensure_ascii=False, indent=indent)


_MISSING = "\x00missing"  # no name that a template could write
_LIBRARY = Environment(auto_escape_callback=lambda _name: False, fuel=_FUEL)
_LENIENT = ("count", "e", "escape", "indent", "length", "pprint", "truncate", "urlencode", "wordwrap")

# Nothing is ever added to it: without templates by name and without a loader, no template reaches another. Compiling
# one anew takes some twenty microseconds, which no model call notices.
_ENVIRONMENT = Environment(
    undefined_behavior="strict",
    fuel=_FUEL,
    auto_escape_callback=lambda _name: False,
    keep_trailing_newline=True,
    filters={"tojson": _as_json, **{name: _guarded(name) for name in _LENIENT}},
)


def template_fault(source: str) -> str | None:
    """Say what is wrong with a template's syntax, with its line; None if nothing is.

    Args:
        source: the template's text.
    """
    fault = _overlong(source)
    if fault is not None:
        return fault
    try:
        _ENVIRONMENT.undeclared_variables_in_str(source)
    except TemplateError as error:
        return _reason(error)
    return None


def _overlong(source: str) -> str | None:
    """Say which tag is too long to be read safely; None if none is."""
    for tag in _TAG.finditer(source) if len(source) > _MOST_CODE else ():
        if len(_QUOTED.sub("", tag.group())) > _MOST_CODE:
            line = source.count("\n", 0, tag.start()) + 1
            return f"line {line}: a tag holds more than {_MOST_CODE:,} characters of code; split it up"
    if len(_ELIF.findall(source)) > _MOST_ELIFS:
        return f"the template has more than {_MOST_ELIFS} elif tags; look the value up in a table instead"
    return None


def render(prompt: Prompt, request: Request) -> Rendered:
    """Render a prompt's messages and its session id for a request.

    Declared input files are read now, as UTF-8, and stand as ``inputs.<name>`` beside the request's variables. A
    request with its own session id leaves the session template alone.

    Args:
        prompt: the configured or inline prompt.
        request: gives the variables, the paths of input files, and perhaps the session id.

    Raises:
        RenderError: a template fails or gives no text, or an input file cannot be had; the message says which.
    """
    name = prompt.name or _INLINE
    if _INPUTS in request.vars:
        raise RenderError(
            f"a variable may not be called {_INPUTS!r}, the name under which declared input files stand; rename it",
            prompt=name,
            place="vars",
        )
    inputs = {key: _read(path, key, name) for key, path in _paths(prompt, request, name).items()}
    messages = tuple(
        _message(template, f"message {number} ({template.role})", request, inputs=inputs, name=name)
        for number, template in enumerate(prompt.messages, start=1)
    )
    session_id = request.session_id
    if session_id is None and prompt.session is not None:
        session_id = _text(prompt.session, "session template", request, inputs=inputs, name=name)
    return Rendered(messages, session_id)


def _paths(prompt: Prompt, request: Request, name: str) -> dict[str, Path]:
    declared = dict(prompt.inputs)
    given = dict(request.inputs)
    for key in given:
        if key not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise RenderError(
                f"the prompt declares no such input; it declares: {known}", prompt=name, place=_input(key)
            )
    paths: dict[str, Path] = {}
    for key, default in declared.items():
        path = given.get(key, default)
        if path is None:
            raise RenderError(
                f"the prompt declares it without a path; give one with the request: inputs={{{key!r}: ...}}",
                prompt=name,
                place=_input(key),
            )
        paths[key] = path
    return paths


def _input(key: str) -> str:
    return f"input {key!r}"


def _read(path: Path, key: str, name: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"{path} is no UTF-8 text (byte {error.start}); convert it to UTF-8"
        raise RenderError(problem, prompt=name, place=_input(key)) from error
    except (OSError, ValueError) as error:
        problem = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise RenderError(problem, prompt=name, place=_input(key)) from error


def _message(
    template: MessageTemplate, place: str, request: Request, *, inputs: Mapping[str, str], name: str
) -> Message:
    text = _text(template.template, place, request, inputs=inputs, name=name)
    try:
        return Message(template.role, text, template.cache)
    except (TypeError, ValueError) as error:
        raise RenderError(str(error), prompt=name, place=place) from error


def _text(source: str, place: str, request: Request, *, inputs: Mapping[str, str], name: str) -> str:
    fault = _overlong(source)
    if fault is not None:
        raise RenderError(fault, prompt=name, place=place)
    # Copied for each template, since methods such as `pop` change the lists and objects that a template is given.
    variables: dict[str, object] = {**thaw_object(request.vars), _INPUTS: dict(inputs)}
    try:
        text = _ENVIRONMENT.render_str(source, None, **{**variables, _MISSING: _missing(source, variables)})
    except (TemplateError, _Undefined) as error:
        problem = _reason(error) if isinstance(error, TemplateError) else str(error)
        if isinstance(error, _Undefined) or error.kind == "UndefinedError":
            problem += f"; given are: {_given(request, inputs)}"
        raise RenderError(problem, prompt=name, place=place) from error
    except Exception as error:
        # Methods of lists and objects raise Python's own errors through the library.
        raise RenderError(f"{type(error).__name__}: {error}", prompt=name, place=place) from error
    if not text.strip():
        raise RenderError("the rendered text is empty; there must be something to say", prompt=name, place=place)
    return text


def _missing(source: str, variables: Mapping[str, object]) -> tuple[str, ...]:
    """Find the names in a template, such as ``a.b``, for which there is no variable."""
    names = _ENVIRONMENT.undeclared_variables_in_str(source, nested=True)
    return tuple(sorted(name for name in names if not _is_there(name.split("."), variables)))


def _is_there(steps: list[str], variables: Mapping[str, object]) -> bool:
    value: object = {**_ENVIRONMENT.globals, **variables}
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return hasattr(value, step)
    return True


def _given(request: Request, inputs: Mapping[str, str]) -> str:
    names = [*sorted(request.vars), *(f"{_INPUTS}.{key}" for key in sorted(inputs))]
    return ", ".join(names) or "no variables"


def _reason(error: TemplateError) -> str:
    line = f"line {error.line}: " if error.line else ""
    if error.kind == "OutOfFuel":
        return f"{line}the template works too long; give it less to loop over"
    if error.kind == "TemplateNotFound":
        return f"{line}a template cannot include, import or extend another; write its text out"
    return line + (error.detail or error.message.partition(" (in <")[0])
