"""Count together the runs that an application chooses to count together."""

from furcate.groups._group import Group
from furcate.groups._summary import GroupSummary, RunEntry, UsageTotals

__all__ = ("Group", "GroupSummary", "RunEntry", "UsageTotals")
