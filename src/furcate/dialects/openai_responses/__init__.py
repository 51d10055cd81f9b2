"""OpenAI's Responses, stateless."""

from __future__ import annotations

from furcate.dialects.openai_responses._codec import OpenAIResponses

__all__ = ("OpenAIResponses",)
