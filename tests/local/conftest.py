"""The weights of the embedded model, fetched once for all tests that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from furcate.local import OfflineError, fetch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def model() -> Path:
    """Fetch the weights into the user's cache folder, or skip where no network leads to them."""
    try:
        return anyio.run(fetch)
    except OfflineError as error:
        pytest.skip(str(error))
