"""Digests of what results depend on, so that work which goes on later can tell what has changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import attrs

from furcate.orchestrator._config import Resources
from furcate.primitives._json import FrozenMap, Plain, canonical, thaw
from furcate.primitives._resources import Backend, Prompt

_OF_A_BACKEND = ("dialect", "kind", "base_url", "provider", "unknown_content", "replay_item_ids", "switches")
"""What of a backend shows in its answers; how much of it may be used, and by whom, does not."""
_NOT_OF_A_PROFILE = ("name", "stream", "repeat_safe")


def configuration_digests(resources: Resources, prompt: Prompt | str | None = None) -> dict[str, str]:
    """Give digests, in hex, by names such as ``prompt shorten`` and ``profile careful``.

    Credentials, capacities, rates and time limits are no part of them, nor is what declared input files hold.

    Arguments:
        resources: the configuration.
        prompt: the one prompt that matters, with its profile, which need not be a configured one; None for all prompts
            and profiles.
    """
    if isinstance(prompt, str):
        prompt = resources.prompts[prompt]
    prompts = resources.prompts if prompt is None else {prompt.name: prompt}
    chosen = prompt.profile if prompt is not None else None
    profiles = resources.profiles if chosen is None else {chosen: resources.profiles[chosen]}
    found = {f"prompt {name}": _digest(one) for name, one in prompts.items()}
    for name, profile in profiles.items():
        told = {key: _plain(value) for key, value in _fields(profile).items() if key not in _NOT_OF_A_PROFILE}
        told["backend"] = _of_backend(resources.backends[profile.backend])
        found[f"profile {name}"] = hashlib.sha256(canonical(told)).hexdigest()
    return found


def _of_backend(backend: Backend) -> Plain:
    return {key: _plain(getattr(backend, key)) for key in _OF_A_BACKEND}


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(_plain(value))).hexdigest()


def _fields(value: attrs.AttrsInstance) -> Mapping[str, object]:
    return {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}


def _plain(value: object) -> Plain:
    """Give a configured value as plain data; code counts by its name, since its text is nowhere."""
    if isinstance(value, FrozenMap):
        return thaw(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return str(value.value)
    if attrs.has(type(value)) and not isinstance(value, type):
        return {name: _plain(one) for name, one in _fields(value).items()}  # type: ignore[arg-type]
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
