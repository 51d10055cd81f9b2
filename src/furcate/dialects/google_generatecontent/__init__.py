"""Google's GenerateContent."""

from __future__ import annotations

from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent, GoogleStream

__all__ = ("GoogleGenerateContent", "GoogleStream")
