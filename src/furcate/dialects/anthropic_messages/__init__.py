"""Anthropic's Messages."""

from __future__ import annotations

from furcate.dialects.anthropic_messages._codec import AnthropicMessages

__all__ = ("AnthropicMessages",)
