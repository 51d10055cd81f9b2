"""Decide who may start on a backend, and when."""

from furcate.admission._budget import Budget
from furcate.admission._gate import Gate, Lease
from furcate.admission._ledger import AdmissionStatistics, Ledger
from furcate.admission._limit import AdaptiveLimit
from furcate.admission._portion import Need, Portion
from furcate.admission._queue import Share
from furcate.admission._rate import Allowance
from furcate.admission._share_out import ShareOut

__all__ = (
    "AdaptiveLimit",
    "AdmissionStatistics",
    "Allowance",
    "Budget",
    "Gate",
    "Lease",
    "Ledger",
    "Need",
    "Portion",
    "Share",
    "ShareOut",
)
