"""What a configuration says of a backend's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

import furcate
from furcate.orchestrator._config import load_config


def read(folder: Path, lines: str) -> furcate.Backend:
    path = folder / "furcate.toml"
    path.write_text(f"[backends.b]\n{lines}\n", encoding="utf-8")
    return load_config(path).backends["b"]


def test_the_cache_has_a_default_by_kind(tmp_path: Path) -> None:
    """A remote backend shares what it has read, the embedded one's server keeps it by slot, and a word overrides."""
    assert read(tmp_path, 'dialect = "anthropic-messages"').cache == "shared"
    assert read(tmp_path, 'kind = "embedded"').cache == "per-slot"
    assert read(tmp_path, 'base_url = "http://127.0.0.1:8080/v1"\ncache = "per-slot"').cache == "per-slot"
    assert furcate.Backend("b").cache == "shared"


def test_another_word_is_refused(tmp_path: Path) -> None:
    """A word that means nothing is a fault in the file and in Python."""
    with pytest.raises(furcate.ConfigError, match=r"cache.*per-slot"):
        read(tmp_path, 'dialect = "openai-chat"\ncache = "slots"')
    with pytest.raises(furcate.ConfigError, match=r"cache.*'slots' is not possible here"):
        furcate.Engine(backends=[furcate.Backend("b", cache="slots")])
