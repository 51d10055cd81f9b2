"""Write `version-1.journal`, which later releases must be able to open. Run it once; the file never changes again."""

from __future__ import annotations

import io
from pathlib import Path

import anyio

from furcate.batch import About, ItemFailure, KeptCall, encode, open_journal, open_source
from furcate.primitives._usage import Usage

FILE = Path(__file__).with_name("version-1.journal")
BEFORE = b'{"id":"gone"}\n'
ITEMS = b'{"id":"a","text":"one"}\n{"id":"b"}\n{"id":"c"}\n{not JSON\n{"text":"no id"}\n'


async def main() -> None:
    FILE.unlink(missing_ok=True)
    about = About(target="jobs:work", source="items.jsonl", digests={"configuration": "0f" * 32, "code": "1"})
    async with open_journal(FILE) as journal:
        for content in (BEFORE, ITEMS):
            async with open_source(io.BytesIO(content)) as source:
                await journal.enroll(source, about=about)
        await journal.begin("b")
        await journal.observe("b", encode({"event": "run_started"}))
        call = KeptCall(run_id="run-1", number=1, key=bytes(range(32)), data=b"\x00answer")
        await journal.keep_call("b", call)
        await journal.fail("b", ItemFailure("provider", "it was busy"), usage=Usage(input_tokens=5))
        await journal.begin("a")
        await journal.finish(
            "a", encode({"said": "wörd"}), usage=Usage(input_tokens=7, output_tokens=2).as_lower_bound()
        )
        await journal.keep_call("c", call)
    FILE.with_suffix(".journal.lock").unlink()


if __name__ == "__main__":
    anyio.run(main)
