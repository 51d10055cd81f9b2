"""Write the committed bytes of a version of the form that no release has written yet.

    python tests/storage/commit_bytes.py

Never for a version that was released: its bytes are read for ever as they are.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from furcate.storage import to_bytes

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "storage"


def _loaded(name: str) -> ModuleType:
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Write all files."""
    values, fixed = _loaded("conftest"), _loaded("test_form_is_fixed")
    for name, (value, base) in values.every_kept().items():
        (DATA / f"{name}.v1.bin").write_bytes(to_bytes(value, base=base))
    (DATA / "digest.txt").write_text(values.every_exchange().digest + "\n", encoding="utf-8")
    (DATA / "form.v1.txt").write_text(fixed.described(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
