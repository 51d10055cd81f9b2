"""What is around what: coordinators and nurseries as OpenTelemetry contexts, over tasks and event loops."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from furcate.primitives._observations import CoordinatorStarted, NurseryStarted


class Scope:
    """Hold what a coordinator or nursery that has not ended is to those that begin inside it.

    Attributes:
        begun: what was told when it began.
        span: its span.
        context: its own context, with its span in it.
        outside: the context that was current when it began.
        outer: the scope around it.
        turns: how many executions a coordinator has started.
    """

    __slots__ = ("begun", "context", "outer", "outside", "span", "turns")

    def __init__(self, begun: CoordinatorStarted | NurseryStarted, span: Span, outside: Context) -> None:
        self.begun = begun
        self.span = span
        self.context = outside
        self.outside = outside
        self.outer: Scope | None = None
        self.turns = 0


class Scopes:
    """Keep scopes current while they last, and find the context that something begins in.

    That is the current one, which knows of the application's own spans too. Only where that lies outside the scope that
    an observation names, such as in a task that was started elsewhere, is it the scope's own.
    """

    def __init__(self) -> None:
        self._key = contexts.create_key("furcate-scope")
        self._open: dict[str, Scope] = {}

    def __getitem__(self, scope_id: str) -> Scope | None:
        return self._open.get(scope_id)

    def enter(self, begun: CoordinatorStarted | NurseryStarted, span: Span, parent: Context) -> None:
        """Make a scope the current one, in the task that this is called in and in those that start below it."""
        scope = Scope(begun, span, contexts.get_current())
        scope.outer = self._innermost(parent)
        scope.context = contexts.set_value(self._key, scope, trace.set_span_in_context(span, parent))
        self._open[begun.scope_id] = scope
        contexts.attach(scope.context)

    def leave(self, scope_id: str) -> Scope | None:
        """Make what was current before a scope current again, and give the scope; None where it never began."""
        scope = self._open.pop(scope_id, None)
        if scope is not None and self._is_inside(contexts.get_current(), scope):
            # Not by a token: one from another context than this, as of a coroutine that was closed from afar, would
            # be complained of. And not where the scope is not current: that context is somebody else's.
            contexts.attach(scope.outside)
        return scope

    def context_of_run(self, scope_id: str | None) -> Context:
        """Give the context that a run begins in, which may belong to a coordinator."""
        return self._inside(self._open.get(scope_id) if scope_id is not None else None)

    def context_of_scope(self, parent_scope_id: str | None) -> Context:
        """Give the context that a coordinator or nursery begins in, which may belong to another such.

        A nursery's branch that was started from another branch's callback is none of that one's.
        """
        scope = self._open.get(parent_scope_id) if parent_scope_id is not None else None
        if scope is not None and isinstance(scope.begun, NurseryStarted):
            current = contexts.get_current()
            return current if self._innermost(current) is scope else scope.context
        return self._inside(scope)

    def _inside(self, scope: Scope | None) -> Context:
        current = contexts.get_current()
        return current if scope is None or self._is_inside(current, scope) else scope.context

    def _is_inside(self, context: Context, scope: Scope) -> bool:
        return any(found is scope for found in self._around(context))

    def _around(self, context: Context) -> Iterator[Scope]:
        scope = self._innermost(context)
        while scope is not None:
            yield scope
            scope = scope.outer

    def _innermost(self, context: Context) -> Scope | None:
        found = context.get(self._key)
        return found if isinstance(found, Scope) else None
