"""Batch jobs: many items, each worked on once, and a journal that survives whatever ends the process."""

from __future__ import annotations

from furcate.batch._enroll import OnChanged
from furcate.batch._executor import Executor, Hearing, ItemEnd, ItemTask, Work, Workers
from furcate.batch._export import line_of, write_rows
from furcate.batch._formats import Format
from furcate.batch._in_process import InProcess
from furcate.batch._items import BadItem, Item, Source, open_source
from furcate.batch._job import Job, open_job
from furcate.batch._job_values import ItemOutcome, JobOptions, JobProgress
from furcate.batch._journal import Journal, open_journal
from furcate.batch._reading import JournalReader, Order, read_journal
from furcate.batch._rows import (
    About,
    Enrollment,
    Holder,
    ItemFailure,
    ItemState,
    JournalRow,
    KeptCall,
    Status,
    encode,
)
from furcate.batch._target import ItemJob, Target

__all__ = (
    "About",
    "BadItem",
    "Enrollment",
    "Executor",
    "Format",
    "Hearing",
    "Holder",
    "InProcess",
    "Item",
    "ItemEnd",
    "ItemFailure",
    "ItemJob",
    "ItemOutcome",
    "ItemState",
    "ItemTask",
    "Job",
    "JobOptions",
    "JobProgress",
    "Journal",
    "JournalReader",
    "JournalRow",
    "KeptCall",
    "OnChanged",
    "Order",
    "Source",
    "Status",
    "Target",
    "Work",
    "Workers",
    "encode",
    "line_of",
    "open_job",
    "open_journal",
    "open_source",
    "read_journal",
    "write_rows",
)
