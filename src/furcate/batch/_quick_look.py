"""A quick look at the ids of a long input, so that its first items need not wait until all of them are known."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

FEWEST = 2_000
"""Inputs of fewer items are soon known altogether."""
MOST = 500_000
"""How many ids are kept in memory, for as long as the look lasts."""

_BLOCK = 2**20


def count_if_distinct(file: BinaryIO, name: str) -> int | None:
    """Count the items of JSON lines, where each has an id that no other has; runs in a worker thread.

    It gives up on whatever is not plain: few items or very many, an id that is missing or no text or whole number, one
    that stands twice, a line that cannot be read. Who reads the items as a whole tells then what is wrong, if anything.

    Arguments:
        file: the lines, from their beginning.
        name: the member that holds the ids.

    Returns:
        How many items there are; None where it gave up.
    """
    ids: set[str] = set()
    count = 0
    rest = b""
    named = msgspec.defstruct("Named", [("id", str | int)], rename={"id": name}, gc=False)
    decode = msgspec.json.Decoder(named).decode
    ended = False
    while not ended:
        block = file.read(_BLOCK)
        if not count and not rest:
            block = block.removeprefix(b"\xef\xbb\xbf")
        lines = (rest + block).split(b"\n")
        ended = not block
        # The last line need not have an end.
        rest = b"" if ended else lines.pop()
        try:
            found = [str(decode(line).id) for line in lines if line.strip(b" \t\r")]  # type: ignore[attr-defined]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        ids.update(found)
        count += len(found)
        if len(ids) < count or count > MOST or len(rest) > _BLOCK:
            return None
    return count if count >= FEWEST else None
