"""Which coordinator's callback this is called from, as far as the running task knows."""

from __future__ import annotations

from contextvars import ContextVar

current_scope: ContextVar[str | None] = ContextVar("furcate_scope", default=None)
"""Id of the coordinator that is running here; tasks that are started below inherit it."""
