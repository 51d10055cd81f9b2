"""What Dask says of a loss that furcate tells itself, and what it says otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from furcate.batch.cluster._dask_noise import be_silent, hush, is_silent, unhush

GONE = "Removing worker 'tcp://127.0.0.1:1' caused the cluster to lose"
EXPECTED = [
    ("distributed.scheduler", "broadcast to tcp://127.0.0.1:1 failed: CommClosedError: closed"),
    ("distributed.scheduler", f"{GONE} already computed task(s), which will be recomputed elsewhere"),
    ("distributed.client", "Couldn't gather 2 keys, rescheduling ('a', 'b')"),
    ("distributed.nanny", "Restarting worker (status=Status.running)"),
    ("distributed.worker.state_machine", "Async instruction for <Task cancelled> ended with CancelledError"),
]
NEWS = [
    ("distributed.scheduler", f"{GONE} scattered data, which can't be recovered"),
    ("distributed.nanny", "Worker failed to connect"),
    ("distributed.nanny.memory", "Restarting worker: it exceeded 95% of its memory"),
]


class Kept(logging.Handler):
    """Keep what is logged; Dask's loggers tell it to nobody else once Dask has been imported."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.said.append((record.name, record.getMessage()))


@pytest.fixture
def log() -> Iterator[Kept]:
    """Listen to the loggers."""
    kept = Kept()
    names = {name for name, _ in EXPECTED}
    for name in names:
        logging.getLogger(name).addHandler(kept)
    yield kept
    for name in names:
        logging.getLogger(name).removeHandler(kept)


def say(sayings: list[tuple[str, str]]) -> None:
    """Log them."""
    for name, text in sayings:
        logging.getLogger(name).error(text)


def test_only_what_is_expected_is_not_logged(log: Kept) -> None:
    """A lost worker is passed over; lost data, a worker that does not start, and one out of memory are not."""
    hush()
    say(EXPECTED + NEWS)
    unhush()
    assert log.said == NEWS


def test_what_dask_says_after_the_job_is_logged(log: Kept) -> None:
    """The program may have a cluster of its own, of which furcate tells nothing."""
    hush()
    unhush()
    say(EXPECTED)
    assert log.said == EXPECTED


def test_a_worker_is_as_silent_as_the_driver() -> None:
    """Furcate's log is nowhere to be seen once it has been silenced, and can be asked whether it is."""
    ours = logging.getLogger("furcate")
    before = list(ours.handlers)
    ours.handlers.clear()
    try:
        assert not is_silent()
        be_silent()
        assert is_silent()
    finally:
        ours.handlers[:] = before
