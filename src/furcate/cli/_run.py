"""``furcate run``: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from furcate.cli._files import files_of, is_special
from furcate.cli._kept import Keeping, Kept, keeping_options
from furcate.cli._lines import json_line, usage_fields, validation_fields
from furcate.cli._loop import Interruption, run_on
from furcate.cli._output import Output, Screen, stdout_is_closed
from furcate.cli._setup import Setup, choose, config_option, loop_option, make_ready
from furcate.cli._told import FAILED, WELL, complain, ending, one_line, say, tools_line, unmet, usage_line
from furcate.cli._watching import Watching, list_under
from furcate.orchestrator._engine import Engine
from furcate.primitives._contract import Contract
from furcate.primitives._errors import RequestError, UnknownNameError
from furcate.primitives._json import FrozenMap, Json, Plain
from furcate.primitives._message import Message
from furcate.primitives._observations import AttemptsPaused, Observation
from furcate.primitives._request import Request
from furcate.primitives._result import Result
from furcate.primitives._settings import Settings
from furcate.report import cited_in, list_sources, reopened, sources_text

_LONG_S = 2.0


@frozen(kw_only=True)
class Asked:
    """Hold what the command line says about the request.

    Attributes:
        prompt: a configured prompt's name.
        messages: texts of user messages.
        system: text of a system message before them.
        pairs: variables as ``name=text``.
        vars_file: a JSON object of variables.
        inputs: input files as ``name=path``.
        profile: wins over the prompt's.
        schema: a file with the JSON Schema of the answer.
        repairs: how many are allowed under it.
        max_output_tokens: most tokens of the answer.
    """

    prompt: str | None
    messages: tuple[str, ...]
    system: str | None
    pairs: tuple[str, ...]
    vars_file: Path | None
    inputs: tuple[str, ...]
    profile: str | None
    schema: Path | None
    repairs: int | None
    max_output_tokens: int | None


@click.command()
@click.argument("prompt", required=False)
@click.option("-m", "--message", "messages", multiple=True, metavar="TEXT", help="A user message; - reads stdin.")
@click.option("--system", metavar="TEXT", help="A system message before the others.")
@click.option("--var", "pairs", multiple=True, metavar="NAME=TEXT", help="A variable of the prompt's templates.")
@click.option(
    "--vars", "vars_file", type=click.Path(path_type=Path), metavar="FILE", help="Variables as a JSON object."
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE", help="A declared input file of the prompt.")
@click.option("--profile", metavar="NAME", help="Profile to use instead of the prompt's.")
@click.option(
    "--schema", type=click.Path(path_type=Path), metavar="FILE", help="JSON Schema that the answer must meet."
)
@click.option("--repairs", type=click.IntRange(min=0), metavar="N", help="Repairs allowed under --schema. [default: 0]")
@click.option("--max-output-tokens", type=click.IntRange(min=1), metavar="N", help="Most tokens of the answer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end instead of the text.")
@config_option
@keeping_options
@loop_option
def run(
    prompt: str | None,
    config: Path | None,
    loop: str,
    *,
    as_json: bool,
    receipts: Path | None,
    record: Path | None,
    record_content: bool,
    **options: Any,
) -> int:
    """Run the configured PROMPT, or messages given with -m, and print the answer.

    On a terminal the text appears as it arrives, with a row for each tool that the provider runs; into a pipe goes the
    final answer alone. The sources of a text that cites any are listed under it.
    """
    setup = choose(config)
    asked = Asked(prompt=prompt, **options)
    request = _request(asked, setup)
    if as_json and stdout_is_closed():
        raise RequestError("stdout is closed, so that the answer would be lost; leave it open, or leave out --json")
    keeping = Keeping(receipts=receipts, record=record, record_content=record_content)
    _check_files(asked, setup, keeping)
    kept = Kept(keeping, setup.resources.otel)
    engine = setup.engine([*kept.observers, _tell_pause])
    try:
        backend = engine.inspect_backend(str(engine.prepare(request).details()["backend"]))
    except UnknownNameError as error:
        hint = "; a message of your own goes after -m" if error.what == "prompt" else ""
        raise RequestError(f"{error}{hint}") from error

    async def command(interruption: Interruption) -> int:
        with interruption.scope():
            await make_ready(setup, [backend])
            async with engine:
                return await _answer(engine, request, as_json=as_json)
        complain("interrupted; the answer is not complete")
        return FAILED

    with kept:
        status = run_on(loop, command)
    return kept.conclude(status)


def _check_files(asked: Asked, setup: Setup, keeping: Keeping) -> None:
    """Check that inputs can be read twice, and that nothing is kept in what is read."""
    given = [Path(_pair(text, "--input", "NAME=FILE")[1]) for text in asked.inputs]
    for path in given:
        if is_special(path):
            raise RequestError(f"input {path} is no regular file; save it first")
    # A configuration may be a pipe, which is read only once.
    read = {} if keeping.nothing else files_of(setup.path, "the configuration")
    read |= {path: "a file that this run reads" for path in (*given, asked.vars_file, asked.schema) if path is not None}
    keeping.check(read)


def _tell_pause(event: Observation) -> None:
    """Tell of a pause that people would take for a standstill."""
    if isinstance(event, AttemptsPaused) and event.wait_s >= _LONG_S:
        complain(
            f"waiting {event.wait_s:,.0f} s before the next attempt, since the last one failed: {event.failure_kind}"
        )


async def _answer(engine: Engine, request: Request, *, as_json: bool) -> int:
    screen = Screen() if not as_json and sys.stdout.isatty() else None
    watching = Watching(screen)
    try:
        async with engine.stream(request) as stream:
            await watching.follow(stream)
            result = stream.result
    finally:
        watching.end()
    output = Output()
    if as_json:
        output.put_bytes(json_line(_described(result)))
    elif screen is None:
        _put_whole(output, result)
    status = _conclude(result)
    if output.problem is not None:
        reason = output.problem.strerror or output.problem
        complain(f"the answer cannot be written to stdout ({reason}) and is lost")
        return FAILED
    return status


def _put_whole(output: Output, result: Result) -> None:
    """Write an answer to where no terminal is: as it came, and its sources under it."""
    output.put(result.text)
    output.end_line()
    cited = cited_in(result.message)
    if result.validation.status == "not_requested":
        list_under(output, cited)
        return
    # Whoever asked for a form is going to parse it.
    for line in sources_text(cited).splitlines():
        say(line)


def _request(asked: Asked, setup: Setup) -> Request:
    """Make the request that the command line describes.

    Raises:
        RequestError: something on the command line is not as it should be.
    """
    if asked.prompt is None and not asked.messages:
        raise RequestError("nothing to say: name a configured prompt, or give a message with -m")
    if asked.repairs is not None and asked.schema is None:
        raise RequestError("--repairs goes with --schema: there is nothing to repair without one")
    texts = [_from_stdin() if text == "-" else text for text in asked.messages]
    if not all(text.strip() for text in texts):
        raise RequestError("a message is empty; give -m some text")
    system = (Message.system(asked.system),) if asked.system else ()
    limit = asked.max_output_tokens
    return Request(
        asked.prompt,
        vars=_variables(asked),
        messages=(*system, *map(Message.user, texts)),
        profile=asked.profile or _default_profile(asked.prompt, setup),
        contract=Contract.from_file(asked.schema, asked.repairs or 0) if asked.schema is not None else None,
        inputs=dict(_pair(text, "--input", "NAME=FILE") for text in asked.inputs),
        settings=Settings(max_output_tokens=limit) if limit is not None else None,
        capture=True,
    )


def _from_stdin() -> str:
    try:
        # Python would read what is no text as half characters where the locale says nothing of UTF-8.
        return sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"-m -: stdin holds no UTF-8 text (byte {error.start}); convert it to UTF-8") from error


def _default_profile(prompt: str | None, setup: Setup) -> str | None:
    """Give the only profile there is where nothing names one."""
    known = setup.resources.prompts.get(prompt) if prompt is not None else None
    return None if known is not None and known.profile is not None else setup.only_profile


def _variables(asked: Asked) -> FrozenMap:
    variables: dict[str, Json] = {}
    if asked.vars_file is not None:
        variables.update(_json_object(asked.vars_file))
    variables.update(_pair(text, "--var", "NAME=TEXT") for text in asked.pairs)
    return FrozenMap(variables)


def _json_object(path: Path) -> dict[str, Json]:
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
        FrozenMap(found)  # refuses what is no object and numbers that are not finite
    except OSError as error:
        raise RequestError(f"--vars {path} cannot be read: {error.strerror or error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"--vars {path} holds no JSON object: {error}") from error
    variables: dict[str, Json] = found
    return variables


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise RequestError(f"{option} {text!r} is not of the form {form}")
    return name.strip(), value


def _described(result: Result) -> dict[str, Plain]:
    calls: list[Plain] = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in result.message.tool_calls
    ]
    bounds: list[Plain] = [*sorted(result.usage.lower_bounds)]
    activities: list[Plain] = [row.described() for row in reopened((result.message,)).rows]
    sources: list[Plain] = [source.described() for source in list_sources(cited_in(result.message))]
    return {
        "text": result.text,
        "stop_reason": result.stop_reason,
        "stop_detail": result.stop_detail,
        "refusal": result.message.refusal,
        "tool_calls": calls,
        "activities": activities,
        "sources": sources,
        "validation": validation_fields(result.validation),
        "usage": usage_fields(result.usage),
        "usage_at_least": bounds,
        "run_id": result.run_id,
        "digest": result.exchange.digest,
    }


def _conclude(result: Result) -> int:
    """Tell on stderr what is notable about the answer, and give the exit status."""
    notable = ending(result)
    if notable is not None:
        complain(notable)
    if result.validation.status == "failed":
        complain("the answer does not meet its contract:")
        for fault in result.validation.faults:
            say(f"  {one_line(str(fault))}")
    elif unmet(result):
        complain("the answer was not checked against its contract")
    tools = tools_line(result.message)
    if tools:
        say(tools)
    say(usage_line(result.usage))
    return FAILED if unmet(result) else WELL
