"""Provider-run work that a conversation began and that has not ended."""

from __future__ import annotations

from furcate.primitives._content import HostedActivity
from furcate.primitives._history import History


def open_activities(history: History) -> tuple[HostedActivity, ...]:
    """Give the starts of provider-run work that the coming answer may end, in the order in which they were made.

    That is the work of the answers since the user's last message: of an answer that its provider set aside, and of one
    that asks for tools beside it. What was open before the user spoke again was given up.
    """
    found: dict[tuple[str, str], HostedActivity] = {}
    ended: set[tuple[str, str]] = set()
    node: History | None = history
    while node is not None:
        for message in reversed(node.added):
            if message.role == "user":
                return _in_order(found)
            for part in reversed(message.parts):
                if not isinstance(part, HostedActivity):
                    continue
                key = (part.scope, part.id)
                if part.state != "started":
                    ended.add(key)
                elif key not in ended:
                    found.pop(key, None)  # the first start counts, and this one is earlier
                    found[key] = part
        node = node.parent
    return _in_order(found)


def _in_order(found: dict[tuple[str, str], HostedActivity]) -> tuple[HostedActivity, ...]:
    return tuple(reversed(found.values()))
