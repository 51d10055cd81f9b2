"""The command line as a whole, and the one place where errors become sentences and exit statuses."""

from __future__ import annotations

import errno
import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from furcate.cli._batch import batch
from furcate.cli._check import check
from furcate.cli._explore import explore
from furcate.cli._local import local
from furcate.cli._receipts import receipts
from furcate.cli._report import report
from furcate.cli._run import run
from furcate.cli._told import FAILED, INTERRUPTED, USAGE, WELL, complain, exit_status, leaves, say, sentence
from furcate.cli._trace import trace
from furcate.primitives._errors import FurcateError

_log = logging.getLogger("furcate")


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Look the version up only when it is asked for; a package that runs from its sources has none."""
    if not wanted or context.resilient_parsing:
        return
    try:
        version = importlib.metadata.version("furcate")
    except importlib.metadata.PackageNotFoundError:
        version = "(run from its sources)"
    click.echo(f"furcate {version}")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.option("--debug", is_flag=True, help="Show tracebacks and the library's log.")
def cli(debug: bool) -> None:
    """Run, capture, fork and direct conversations with language models.

    Results go to stdout, everything else to stderr. Exit status: 0 all ended well, 1 something failed,
    2 wrong use or configuration, 130 interrupted.
    """


for _command in (run, explore, batch, check, receipts, trace, report, local):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status.

    Arguments:
        arguments: what follows the program's name; by default those of this process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Looked up by hand, since the parser itself may be what fails.
    debug = "--debug" in given
    # Branch errors are logged with tracebacks; here they are told in sentences instead.
    silence = logging.NullHandler()
    if not debug:
        _log.addHandler(silence)
    try:
        _open_missing_streams()
        status = _run(given, debug=debug)
    finally:
        _log.removeHandler(silence)
    sys.exit(_flushed(status))


def _run(arguments: list[str], *, debug: bool) -> int:
    try:
        status = cli.main(arguments, prog_name="furcate", standalone_mode=False)
        return status if isinstance(status, int) else WELL
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see '{context.command_path} --help'" if context is not None else ""
        complain(error.format_message().rstrip(".") + hint)
        return USAGE
    except (KeyboardInterrupt, click.exceptions.Abort):
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        return _lost(error) if _is_of_stdout(error) else _told(error, debug=debug)
    except SystemExit:
        raise
    except BaseException as error:  # a user's function may raise what is no Exception, alone or in a group
        return _told(error, debug=debug)


def _told(error: BaseException, *, debug: bool) -> int:
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    if all(isinstance(leaf, FurcateError) for leaf in leaves(error)):
        complain(sentence(error))
    else:
        complain(f"unexpected {sentence(error)}; `furcate --debug ...` shows where")
    return exit_status(error)


def _is_of_stdout(error: OSError) -> bool:
    """Tell whether it was what a command said that could not be written: the commands say it by way of click."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def _lost(error: OSError) -> int:
    complain(f"stdout cannot be written ({error.strerror or error}); what was to be said there is lost")
    return FAILED


def _open_missing_streams() -> None:
    """Stand in for standard streams that are closed, so that no file takes their numbers and gets their output."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it lives as long as the process


def _flushed(status: int) -> int:
    """Flush what is left to write; where nobody reads any more, see that Python does not complain at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            _discard(stream)
            if stream is sys.stdout and status == WELL and isinstance(error, OSError) and error.errno != errno.EPIPE:
                status = _lost(error)
    return status


def _discard(stream: object) -> None:
    try:
        number = stream.fileno()  # type: ignore[attr-defined]  # whatever stands in for a stream may have none
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    except (OSError, ValueError, AttributeError):
        return
