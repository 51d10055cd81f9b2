"""What people see of the work that providers run on their own side: rows, folded from its transitions.

Transitions are the record; a row is only how they look. Nothing here goes back into the record: a row of work that
never ended is shown as failed once the answer it belongs to is over, and the record still says that it was started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs
from attrs import frozen

from furcate.primitives._content import HostedActivity
from furcate.primitives._json import FrozenMap, Plain, thaw_object
from furcate.primitives._message import Message
from furcate.report._clean import clean_line

RowState: TypeAlias = Literal["running", "completed", "failed"]
RowKey: TypeAlias = tuple[int, str, str]


@frozen
class Row:
    """Show one piece of provider-run work.

    Attributes:
        first: the transition that fixed its place.
        latest: the transition that tells where it stands.
        step: in which answer it began, counted from 0.
        revision: how often what is shown has changed; 0 all over in a conversation that was opened again.
        given_up: whether its answer ended before it did.
    """

    first: HostedActivity
    latest: HostedActivity
    step: int = 0
    revision: int = 0
    given_up: bool = False

    @property
    def key(self) -> RowKey:
        """What tells the row apart from all others of a view."""
        return self.step, self.first.scope, self.first.id

    @property
    def finished(self) -> bool:
        """Whether its provider told how it ended."""
        return self.latest.state != "started"

    @property
    def state(self) -> RowState:
        """How it is shown: running, completed or failed."""
        if self.latest.state == "started":
            return "failed" if self.given_up else "running"
        return self.latest.state

    @property
    def name(self) -> str:
        """The capability."""
        return self.first.name

    @property
    def input(self) -> FrozenMap:
        """What was asked of it, as far as its provider told."""
        return self.latest.input or self.first.input

    def described(self) -> dict[str, Plain]:
        """Give the facts of the row as plain data; nothing of a payload is among them."""
        return {
            "id": self.first.id,
            "scope": self.first.scope,
            "name": self.name,
            "state": self.state,
            "finished": self.finished,
            "input": thaw_object(self.input),
            "summary": self.latest.summary,
        }


@frozen
class Activities:
    """Hold the rows of answers that arrive one after the other; every change gives a new value.

    Attributes:
        rows: in their places: that of the first transition, or where its provider's output index puts it.
        notices: one sentence for each transition that was not taken, since it cannot follow what came before.
        step: how many answers have ended.
    """

    rows: tuple[Row, ...] = ()
    notices: tuple[str, ...] = ()
    step: int = 0

    def after(self, transition: HostedActivity) -> Activities:
        """Take the next transition.

        A start gives a running row of revision 0, an end its next revision in the same place. An end without a start
        is a row of its own. A second start, and a second end, change nothing and leave a notice.
        """
        place = self._place(transition)
        if place is None:
            return self._with_new(transition)
        row = self.rows[place]
        if transition.state == "started" or row.finished:
            what = "started" if transition.state == "started" else "finished"
            said = f"{clean_line(row.name)} {clean_line(row.first.id)} was {what} a second time; that is passed over"
            return attrs.evolve(self, notices=(*self.notices, said))
        return self._with(place, attrs.evolve(row, latest=transition, revision=row.revision + 1))

    def step_ended(self) -> Activities:
        """Take the end of an answer: what still runs in it is given up, and shown as failed."""
        rows = tuple(
            attrs.evolve(row, given_up=True, revision=row.revision + 1) if row.state == "running" else row
            for row in self.rows
        )
        return attrs.evolve(self, rows=rows, step=self.step + 1)

    def _place(self, transition: HostedActivity) -> int | None:
        """Find the row of a transition; None where it begins one."""
        for place in range(len(self.rows) - 1, -1, -1):
            row = self.rows[place]
            if (row.first.scope, row.first.id) != (transition.scope, transition.id):
                continue
            # Ids without a scope may come again in a later answer. There they mean the same work only where that is
            # still open and now ends.
            ends = transition.state != "started" and not row.finished
            return place if transition.scope or row.step == self.step or ends else None
        return None

    def _with_new(self, transition: HostedActivity) -> Activities:
        row = Row(transition, transition, self.step)
        at = len(self.rows)
        # Only an end that comes alone may be told late. Starts come in order, and where an answer goes on after a
        # pause its positions count from the beginning again.
        if transition.position is not None and transition.state != "started":
            for place, other in enumerate(self.rows):
                near = (other.step, other.first.scope) == (self.step, transition.scope)
                if near and other.first.position is not None and other.first.position > transition.position:
                    at = place
                    break
        return attrs.evolve(self, rows=(*self.rows[:at], row, *self.rows[at:]))

    def _with(self, place: int, row: Row) -> Activities:
        return attrs.evolve(self, rows=(*self.rows[:place], row, *self.rows[place + 1 :]))


def reopened(messages: Iterable[Message]) -> Activities:
    """Give the rows of a stored conversation: as they stood in the end, and all of revision 0.

    Arguments:
        messages: the conversation, or an answer of it; each message of the assistant is an answer that has ended.
    """
    view = _folded(messages)
    return attrs.evolve(view, rows=tuple(attrs.evolve(row, revision=0) for row in view.rows))


def unfinished(items: Iterable[Message | HostedActivity]) -> tuple[str, ...]:
    """Give the ids of the work that was started and whose end was never told, in order.

    Arguments:
        items: messages, or transitions in the order of their stream.
    """
    return tuple(row.first.id for row in _folded(items).rows if not row.finished)


def tool_counts(messages: Iterable[Message]) -> Mapping[str, int]:
    """Count the tools that were used, by name: those that providers ran as well as calls to the application.

    Of searches this is how many there were, which only comes near to how many are billed: whether a provider bills
    one that failed is for its price list to say.
    """
    listed = tuple(messages)
    called = (call.name for message in listed for call in message.tool_calls)
    return Counter((*(row.name for row in reopened(listed).rows), *called))


def _folded(items: Iterable[Message | HostedActivity]) -> Activities:
    view = Activities()
    for item in items:
        if isinstance(item, HostedActivity):
            view = view.after(item)
            continue
        if item.role != "assistant":
            continue
        for part in item.parts:
            if isinstance(part, HostedActivity):
                view = view.after(part)
        view = view.step_ended()
    return view
