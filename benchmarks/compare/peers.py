"""Name the clients that are compared, what each needs to run, and what of it is told."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_CHECKOUT = Path(__file__).resolve().parents[2]


class Peer(NamedTuple):
    """Say how a client is run.

    Attributes:
        file: its file in clients/.
        variant: which of the ways that the file knows.
        env: the name of its environment; the packages are in ENVIRONMENTS.
        versions: the packages whose versions are told.
        ready: what is imported and touched for a first request to be possible.
    """

    file: str
    variant: str
    env: str
    versions: tuple[str, ...]
    ready: str


_FURCATE = "import furcate, furcate.dialects.openai_chat, "
PEERS = {
    "bare_aiohttp": Peer("bare_aiohttp", "", "raw", ("aiohttp", "orjson"), "import aiohttp, orjson"),
    "bare_httpx2": Peer("bare_httpx2", "", "raw", ("httpx2", "httpcore2"), "import httpx2; httpx2.AsyncClient"),
    "openai": Peer(
        "openai_sdk",
        "",
        "openai",
        ("openai", "pydantic", "httpx2"),
        "import openai; openai.AsyncOpenAI(api_key='x').chat.completions",
    ),
    "pydantic_ai": Peer(
        "pydantic_ai_agent",
        "",
        "pydantic_ai",
        ("pydantic-ai-slim", "openai"),
        "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel",
    ),
    "langgraph": Peer(
        "langgraph_graph",
        "",
        "langgraph",
        ("langgraph", "langgraph-checkpoint", "langchain-core", "langchain-openai", "openai"),
        "from langchain_openai import ChatOpenAI; from langgraph.graph import StateGraph",
    ),
    "inspect_ai": Peer(
        "inspect_model",
        "",
        "inspect_ai",
        ("inspect-ai", "openai"),
        "from inspect_ai.model import get_model; import inspect_ai.model._providers.openai",
    ),
    "furcate_httpx2": Peer(
        "furcate_engine",
        "httpx2",
        "furcate",
        ("furcate", "anyio", "httpx2"),
        _FURCATE + "httpx2; httpx2.AsyncClient",
    ),
    "furcate_aiohttp": Peer(
        "furcate_engine",
        "aiohttp",
        "furcate",
        ("furcate", "anyio", "aiohttp"),
        _FURCATE + "aiohttp",
    ),
    "furcate_trio": Peer(
        "furcate_engine",
        "trio",
        "furcate",
        ("furcate", "trio", "httpx2"),
        _FURCATE + "trio, httpx2; httpx2.AsyncClient",
    ),
}
ENVIRONMENTS = {
    "raw": ("aiohttp", "orjson", "httpx2"),
    "openai": ("openai",),
    "pydantic_ai": ("pydantic-ai-slim[openai]",),
    "langgraph": ("langgraph", "langchain-openai"),
    "inspect_ai": ("inspect-ai", "openai"),
    "furcate": (f"furcate[quick] @ {_CHECKOUT.as_uri()}",),
}
