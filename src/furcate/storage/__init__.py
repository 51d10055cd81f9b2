"""Conversations and results as bytes, to be kept and to be read again by any later release."""

from __future__ import annotations

from furcate.storage._read import base_of, from_bytes
from furcate.storage._write import Storable, to_bytes

__all__ = ("Storable", "base_of", "from_bytes", "to_bytes")
