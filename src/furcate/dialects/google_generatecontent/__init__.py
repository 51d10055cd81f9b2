"""Google's GenerateContent."""

from __future__ import annotations

from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent

__all__ = ("GoogleGenerateContent",)
