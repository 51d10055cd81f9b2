"""What travels to a worker, what may not, and what a worker looks at before it takes it."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import furcate
from furcate.batch import Work
from furcate.batch.cluster._setup import Parcel, Setup, pack, without_keys
from furcate.primitives._errors import ConfigError, ExecutorError
from furcate.primitives._telemetry import OTelSettings

MARKER = "a-marker-that-is-secret"


def engine(otel: OTelSettings | None = None, **backend: Any) -> furcate.Engine:
    """Make an engine that is never opened."""
    made = furcate.Engine(
        backends=[furcate.Backend("b", base_url="http://127.0.0.1:1/v1", **backend)],
        profiles=[furcate.Profile("p", "b", "m")],
    )
    made._resources = evolve(made._resources, otel=otel)
    return made


async def nothing(item: object, job: object) -> None:
    """Do nothing."""


def packed(of: furcate.Engine, target: Any = nothing, dumps: Callable[[object], bytes] = pickle.dumps) -> Parcel:
    """Make a parcel."""
    resources = of._resources
    setup = Setup(
        backends=without_keys(of),
        profiles=tuple(resources.profiles.values()),
        prompts=(),
        transport=None,
        otel=resources.otel,
        target=target,
        observations=True,
        events=True,
    )
    return pack(setup, job="j", loop="trio", most_bytes=1000, dumps=dumps)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"api_key": MARKER}, "[backends.b] api_key"),
        ({"extra_headers": {"X-Api-Key": MARKER}}, "[backends.b] extra_headers"),
        ({"extra_headers": {"authorization": MARKER}}, "[backends.b] extra_headers"),
        ({"otel": OTelSettings(headers={"x-team": MARKER})}, "[otel] headers"),
    ],
)
def test_a_credential_in_the_configuration_is_refused(given: dict[str, Any], place: str) -> None:
    """The place is named, and what to do instead; the credential is not."""
    with pytest.raises(ConfigError) as caught:
        without_keys(engine(**given))
    assert place in str(caught.value)
    assert "where workers are started" in str(caught.value)
    assert MARKER not in str(caught.value)


def test_nothing_secret_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key in the environment only the variable's name is in the bytes, also where a key in the file stands by."""
    monkeypatch.setenv("THE_KEY", MARKER)
    monkeypatch.setenv("FURCATE_OTHER", MARKER)
    parcel = packed(engine(api_key_env="THE_KEY", api_key=MARKER, extra_headers={"x-team": "blue"}))
    travelling = pickle.dumps(parcel)
    assert MARKER.encode() not in travelling
    assert b"THE_KEY" in travelling
    assert MARKER not in repr(parcel)
    assert [backend.api_key for backend in pickle.loads(travelling).open().backends] == [None]


def test_a_worker_without_the_key_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, the parcel passes."""
    parcel = packed(engine(api_key_env="THE_KEY"))
    monkeypatch.delenv("THE_KEY", raising=False)
    with pytest.raises(ExecutorError, match=r"environment variable THE_KEY is not set on this worker; .*so set it"):
        parcel.check()
    monkeypatch.setenv("THE_KEY", MARKER)
    parcel.check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"furcate": "0.0.1"}, r"the driver has furcate 0\.0\.1, this worker .*; install the same on both"),
        ({"python": "3.1"}, r"the driver has Python 3\.1, this worker .*; install the same on both"),
        ({"modules": {"no_such_module": "0"}}, "module 'no_such_module' cannot be imported on this worker; bring"),
        ({"modules": {"furcate.batch": "0"}}, "module 'furcate.batch' is another version on this worker; bring"),
    ],
)
def test_what_differs_is_refused(change: dict[str, Any], said: str) -> None:
    """Another release, Python or version of the target's module: told with what would be right."""
    with pytest.raises(ExecutorError, match=said):
        evolve(packed(engine()), **change).check()


def test_the_targets_module_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same source passes, a changed one does not."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    file = tmp_path / "a_target_of_mine.py"
    file.write_text("async def work(item, job):\n    return 1\n")
    import a_target_of_mine  # type: ignore[import-not-found]  # noqa: PLC0415

    try:
        parcel = packed(engine(), a_target_of_mine.work)
        assert list(parcel.modules) == ["a_target_of_mine"]
        parcel.check()
        file.write_text("async def work(item, job):\n    return 2\n")
        with pytest.raises(ExecutorError, match="'a_target_of_mine' is another version"):
            parcel.check()
    finally:
        del sys.modules["a_target_of_mine"]


def test_a_target_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    """A function that holds an open file is told to hold plain data only."""
    cloudpickle = pytest.importorskip("cloudpickle", reason="comes with the extras dask and ray")
    with (tmp_path / "f").open("w") as held:

        async def target(item: object, job: object) -> bool:
            return held.closed

        with pytest.raises(ExecutorError, match=r"the target cannot be sent to workers .*let it hold plain data only"):
            packed(engine(), target, cloudpickle.dumps)


def test_work_says_nothing_of_its_engine() -> None:
    """What is done with items is shown without the engine, which knows keys."""
    assert MARKER not in repr(Work(engine=engine(api_key=MARKER), target=nothing))
