"""Decide who may start on a backend, and when."""

from furcate.admission._gate import Gate, Lease
from furcate.admission._ledger import AdmissionStatistics, Ledger

__all__ = ("AdmissionStatistics", "Gate", "Lease", "Ledger")
