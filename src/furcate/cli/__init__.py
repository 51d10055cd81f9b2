"""The command line: ``furcate run``, ``furcate explore``, ``furcate check``, ``furcate local``."""

from furcate.cli._main import main

__all__ = ("main",)
