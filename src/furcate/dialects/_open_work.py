"""Provider-run work that earlier answers of a conversation began, for the answer that ends it.

A provider may set an answer aside, or wait for the application's tools, while work of its own is open; the work's end
then opens the next answer. That end belongs to the activity that was begun: it has its id, its scope, what was asked of
it, and the version of the native form that its start recorded, whatever version a fresh activity would get by now.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from furcate.primitives._content import HostedActivity


@frozen
class OpenWork:
    """Hold the starts of open work.

    Attributes:
        starts: in the order in which they were made.
    """

    starts: tuple[HostedActivity, ...] = ()
    _by_id: Mapping[str, HostedActivity] = field(init=False, repr=False, eq=False)

    @_by_id.default
    def _indexed(self) -> Mapping[str, HostedActivity]:
        return {one.id: one for one in reversed(self.starts)}

    def find(self, its_id: str) -> HostedActivity | None:
        """Give the start of the activity with an id of the provider, or None where it was not begun earlier."""
        return self._by_id.get(its_id) if its_id else None

    def version(self, its_id: str, fresh: str) -> str:
        """Give the version for a native form of an activity: the recorded one, or `fresh` where none is."""
        return recorded_version(self.find(its_id), fresh)


def recorded_version(start: HostedActivity | None, fresh: str) -> str:
    """Give the version that the start of an activity recorded, or `fresh` where it recorded none."""
    return fresh if start is None or start.payload is None else start.payload.version
