"""What people see: provider-run work in rows, answers with their sources, recordings, text that is safe to show."""

from __future__ import annotations

from furcate.report._activities import Activities, Row, RowKey, reopened, tool_counts, unfinished
from furcate.report._clean import Cleaner, clean, clean_line
from furcate.report._live import LiveView
from furcate.report._page import page
from furcate.report._recording import ContentRecorded, LineFault, Recorded, RecordedEvent, Recording, read_recording
from furcate.report._rows import row_role, row_text
from furcate.report._sources import ListedSource, cited_in, list_sources, source_line, sources_text
from furcate.report._trace_text import trace_data, trace_text
from furcate.report._trace_totals import TraceTotals
from furcate.report._written import entries, written

__all__ = (
    "Activities",
    "Cleaner",
    "ContentRecorded",
    "LineFault",
    "ListedSource",
    "LiveView",
    "Recorded",
    "RecordedEvent",
    "Recording",
    "Row",
    "RowKey",
    "TraceTotals",
    "cited_in",
    "clean",
    "clean_line",
    "entries",
    "list_sources",
    "page",
    "read_recording",
    "reopened",
    "row_role",
    "row_text",
    "source_line",
    "sources_text",
    "tool_counts",
    "trace_data",
    "trace_text",
    "unfinished",
    "written",
)
