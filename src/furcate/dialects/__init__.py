"""Wire languages as pure codecs: a call becomes bytes, bytes become stream events, events become a message."""

from __future__ import annotations

from furcate.dialects._assemble import Assembler
from furcate.dialects._base import Dialect, StreamDecoder
from furcate.dialects._table import DIALECTS, dialect_named

__all__ = ("DIALECTS", "Assembler", "Dialect", "StreamDecoder", "dialect_named")
