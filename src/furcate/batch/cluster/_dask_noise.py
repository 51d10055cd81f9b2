"""What is logged when a worker is lost or let go of, of which furcate tells in a sentence of its own."""

from __future__ import annotations

import logging
import re

_log = logging.getLogger("furcate")

_EXPECTED = {
    "distributed.scheduler": re.compile(
        r"broadcast to \S+ failed|Couldn't gather keys|Removing worker \S+ caused the cluster to lose already computed"
    ),
    "distributed.client": re.compile(r"Couldn't gather \d+ keys, rescheduling"),
    "distributed.nanny": re.compile(r"Restarting worker |Worker process still alive after"),
    "distributed.worker.state_machine": re.compile(r"Async instruction for .* ended with CancelledError"),
}


def hush() -> None:
    """Keep this process from logging what is expected; anything else that Dask says goes on to be logged."""
    for name in _EXPECTED:
        logging.getLogger(name).addFilter(_is_news)


def unhush() -> None:
    """Have everything logged again."""
    for name in _EXPECTED:
        logging.getLogger(name).removeFilter(_is_news)


def is_silent() -> bool:
    """Tell whether this process keeps furcate's log to itself, as the command line does, which has sentences."""
    return any(isinstance(one, logging.NullHandler) for one in _log.handlers)


def be_silent() -> None:
    """Keep furcate's log to itself here too."""
    _log.addHandler(logging.NullHandler())


def _is_news(record: logging.LogRecord) -> bool:
    return _EXPECTED[record.name].match(record.getMessage()) is None
