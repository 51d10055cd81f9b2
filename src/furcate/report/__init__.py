"""What people see: provider-run work in rows, answers with their sources, text that is safe to show."""

from __future__ import annotations

from furcate.report._activities import Activities, Row, RowKey, reopened, tool_counts, unfinished
from furcate.report._clean import Cleaner, clean, clean_line
from furcate.report._rows import row_role, row_text
from furcate.report._sources import ListedSource, cited_in, list_sources, source_line, sources_text
from furcate.report._written import entries, written

__all__ = (
    "Activities",
    "Cleaner",
    "ListedSource",
    "Row",
    "RowKey",
    "cited_in",
    "clean",
    "clean_line",
    "entries",
    "list_sources",
    "reopened",
    "row_role",
    "row_text",
    "source_line",
    "sources_text",
    "tool_counts",
    "unfinished",
    "written",
)
