"""An observer that writes to the standard library's log: a line for people, and fields for programs."""

from __future__ import annotations

import logging

import attrs

from furcate.observers._console import line_for
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptStarted,
    CoordinatorFinished,
    NurseryFinished,
    Observation,
    RunFinished,
    TurnDelivered,
)
from furcate.primitives._printable import printable
from furcate.primitives._usage import Usage

_PREFIX = "furcate_"
_ENDS = (AttemptFinished, CoordinatorFinished, NurseryFinished, RunFinished)
_STEPS = (ActivityChanged, AttemptFinished, AttemptStarted, TurnDelivered)


class LogObserver:
    """Log each observation: failures as warnings, steps inside a run or branch for debugging, the rest as information.

    A record's message is one printable line. Its attributes hold the observation's fields, each under its name with
    ``furcate_`` before it, `furcate_event` being the name of the observation's class: formatters that write JSON find
    them there. Token counts stand by themselves (`furcate_input_tokens`), unknown ones as None; of a receipt there is
    none, since `furcate_request_id` names it. No record holds content or credentials.

    Arguments:
        logger: where to log, or its name.
    """

    def __init__(self, logger: logging.Logger | str = "furcate.observations") -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger

    def on_event(self, event: Observation, /) -> None:
        """Log one observation."""
        level = _level(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", line_for(event) or _step(event), extra=_fields(event))


def _level(event: Observation) -> int:
    if isinstance(event, _ENDS) and event.status == "failed":
        return logging.WARNING
    return logging.DEBUG if isinstance(event, _STEPS) else logging.INFO


def _step(event: Observation) -> str:
    """Describe what is not worth a line to those who watch."""
    match event:
        case AttemptStarted():
            return f"run {event.run_id[-8:]} attempt {event.number} sent after waiting {event.waited_s:.1f} s"
        case AttemptFinished():
            return f"run {event.run_id[-8:]} attempt {event.number} {event.status} after {event.duration_s:.1f} s"
        case ActivityChanged():
            return f"run {event.run_id[-8:]} attempt {event.number} {printable(event.name)} {event.state}"
        case _:
            return type(event).__name__


def _fields(event: Observation) -> dict[str, object]:
    """Give what a log can search for: words and numbers."""
    told: dict[str, object] = {f"{_PREFIX}event": type(event).__name__}
    for field in attrs.fields(type(event)):
        value = getattr(event, field.name)
        if value is None or isinstance(value, (bool, int, float, str)):
            told[_PREFIX + field.name] = value
        elif isinstance(value, Usage):
            told |= {_PREFIX + name: count for name, count in attrs.asdict(value, recurse=False).items()}
            told[f"{_PREFIX}lower_bounds"] = sorted(value.lower_bounds)
    # An absent receipt is a None like others, and a present one is left out.
    told.pop(f"{_PREFIX}receipt", None)
    return told
