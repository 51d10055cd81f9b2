"""Observers that are ready to use."""

from furcate.observers._console import ConsoleObserver
from furcate.observers._recorder import Recorder

__all__ = ("ConsoleObserver", "Recorder")
