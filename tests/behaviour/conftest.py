"""Engines that talk to a scripted provider."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import furcate
from furcate.testing import StubProvider

EngineFor = Callable[..., furcate.Engine]


@pytest.fixture
def engine_for() -> EngineFor:
    """Make an engine with the backend ``stub``, the profile ``p`` on it, and waits that no test notices."""

    def make(stub: StubProvider | str, *, observers=(), prompts=(), profile=None, profiles=(), **backend):
        given = {
            "base_url": stub if isinstance(stub, str) else stub.base_url,
            "capacity": 1,
            "retry": furcate.RetryPolicy(attempts=3, first_backoff_s=0.001, max_backoff_s=0.002),
            **backend,
        }
        return furcate.Engine(
            backends=[furcate.Backend("stub", **given)],
            profiles=[furcate.Profile("p", "stub", "m", **(profile or {})), *profiles],
            prompts=prompts,
            observers=observers,
        )

    return make


@pytest.fixture
def ask() -> Callable[..., furcate.Request]:
    """Make a request of one user message on the profile ``p``."""

    def make(text: str = "Hello?", **given) -> furcate.Request:
        return furcate.Request(**{"messages": text, "profile": "p", **given})

    return make
