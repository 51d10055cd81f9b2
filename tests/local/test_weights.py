"""The place and the state of the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from furcate.local import Weights, cache_folder, status, weights_path
from furcate.local._weights import present_at_a_glance
from furcate.primitives._errors import LocalModelError

CONTENT = b"tiny weights"
TINY = Weights(
    package="tiny-weights",
    version="1.0",
    file="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="MIT",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    path = weights_path(TINY)
    path.parent.mkdir(parents=True)
    return path


def test_the_cache_folder_is_the_one_that_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """FURCATE_CACHE is the folder itself, XDG_CACHE_HOME its parent, and a relative XDG_CACHE_HOME is ignored."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("FURCATE_CACHE", "~/mine")
    assert cache_folder() == Path("/home/someone/mine")
    monkeypatch.delenv("FURCATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/shared")
    assert cache_folder() == Path("/var/shared/furcate")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder().is_relative_to("/home/someone")


def test_status_tells_missing_present_and_wrong(place: Path) -> None:
    """The state follows from size and digest, and both are told."""
    assert (status(TINY).state, status(TINY).sha256) == ("missing", None)
    place.write_bytes(CONTENT)
    assert (status(TINY).state, status(TINY).sha256) == ("present", TINY.sha256)
    place.write_bytes(b"TINY weights")
    wrong = status(TINY)
    assert (wrong.state, wrong.size_bytes) == ("wrong", len(CONTENT))
    assert wrong.sha256 != TINY.sha256


def test_what_cannot_be_read_is_said_in_a_sentence(place: Path) -> None:
    """A folder in the weights' place is an error with path and remedy."""
    place.mkdir()
    with pytest.raises(LocalModelError, match=r"tiny\.gguf cannot be read: .*; make the file readable or"):
        status(TINY)


def test_a_glance_finds_a_file_of_another_size(place: Path) -> None:
    """A start looks at the size only and says how to replace a file that cannot be right."""
    assert not present_at_a_glance(TINY)
    place.write_bytes(CONTENT)
    assert present_at_a_glance(TINY)
    place.write_bytes(CONTENT[:-1])
    with pytest.raises(LocalModelError, match="have 11 bytes instead of 12; run `furcate local fetch`"):
        present_at_a_glance(TINY)
