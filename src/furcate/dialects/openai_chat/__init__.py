"""OpenAI's Chat Completions, and its many accents."""

from __future__ import annotations

from furcate.dialects.openai_chat._codec import OpenAIChat

__all__ = ("OpenAIChat",)
