"""What passes between the engine, a dialect and the transport."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Literal, TypeAlias

from attrs import field, frozen

from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._settings import Settings, Tool

StopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "max_output_tokens", "stop_sequence", "refusal", "context_window"
]
FailureKind: TypeAlias = Literal[
    "result_size", "invalid_request", "authentication", "rate_limited", "unavailable", "timeout", "provider"
]


@frozen(kw_only=True)
class Failure:
    """Say why an attempt gave no completed answer.

    Attributes:
        kind: one of the seven kinds that receipts know.
        reason: a finer word of ours, such as ``overloaded``, ``connection_refused``, ``no_answer``, ``idle``.
        message: one bounded sentence without prompt, output or secrets.
        retryable: whether the same attempt may succeed later.
        sent: whether the request may have reached the server.
        wait_s: how long the server asked to wait, in seconds.
        status: the HTTP status, where there was one.
    """

    kind: FailureKind
    reason: str
    message: str
    retryable: bool = False
    sent: bool = True
    wait_s: float | None = None
    status: int | None = None


class AttemptFailed(Exception):
    """Raised when the transport or a decoder ends an attempt; the engine turns it into a ProviderError.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


UnknownContent: TypeAlias = Literal["fail", "carry"]
"""What becomes of content of a kind that a dialect does not know: a typed failure, or an opaque part of its origin."""


@frozen
class Address:
    """Say where a backend answers right now.

    Attributes:
        base_url: the URL that a dialect's paths are appended to, without a trailing slash.
        api_key: the credential that goes with this address, if it has one of its own.
        keep_alive: whether connections to it may be used again.
        direct: whether the environment's proxies are passed by, as for a server on this machine.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    keep_alive: bool = True
    direct: bool = False


@frozen(kw_only=True)
class ChatSwitches:
    """Say in what a server of the ``openai-chat`` dialect differs from its relatives.

    Attributes:
        max_tokens_field: which key carries the output token limit.
        stream_usage: whether ``stream_options`` with ``include_usage`` is sent.
        system_role: the role under which system messages are sent.
        structured_output: how a contract's schema is sent: as ``json_schema``, as ``json_object`` (JSON without
            a schema), or not at all.
        function_tools: whether the server honours function tools; where not, requests with tools are refused.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    system_role: Literal["system", "developer"] = "system"
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    function_tools: bool = True


@frozen(kw_only=True)
class ModelCall:
    """Hold everything that a dialect needs to encode one call.

    Attributes:
        model: the model's name on the wire.
        history: the whole conversation to send.
        settings: sampling and limits.
        tools: function tools, in declared order.
        tool_choice: ``auto``, ``none``, ``required``, a declared tool's name, or None to leave it out.
        schema: name and JSON Schema of a structured answer, or None.
        server_tools: capabilities that the provider runs on its own side, by our names, in declared order.
        stream: whether the answer is asked for as a stream.
        replay_item_ids: whether ids of earlier output items go back with them (``openai-responses``).
        switches: what the server differs in.
        shared: how many messages the call has in common with others that are about to be sent; the provider is asked to
            cache that beginning. 0 asks for nothing.
    """

    model: str
    history: History
    settings: Settings = field(factory=Settings)
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    schema: tuple[str, FrozenMap] | None = None
    server_tools: tuple[str, ...] = ()
    stream: bool = True
    replay_item_ids: bool = False
    switches: ChatSwitches = field(factory=ChatSwitches)
    shared: int = 0

    @property
    def beginning(self) -> History | None:
        """The node of the history with which the shared messages end."""
        if not self.shared:
            return None
        return next((node for node in self.history.nodes() if len(node) == self.shared), None)


@frozen
class WireRequest:
    """Hold an encoded request: everything but the address and the credential.

    Attributes:
        path: appended to the base URL, beginning with a slash.
        body: the body as byte chunks, in order; shared history is shared here too.
        headers: name and value pairs; no credential is among them.
        stream: whether the answer will come as server-sent events.
    """

    path: str
    body: tuple[bytes, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    stream: bool = True

    @cached_property
    def body_sha256(self) -> str:
        """The digest of the exact body, in hex."""
        digest = hashlib.sha256()
        for chunk in self.body:
            digest.update(chunk)
        return digest.hexdigest()


@frozen
class SecretHeaders:
    """Hold headers that no `repr` may show, be it in a traceback with the values of local variables.

    Attributes:
        pairs: name and value pairs, the credential among them.
    """

    pairs: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@frozen
class ResponseHead:
    """Hold the head of an HTTP response.

    Attributes:
        status: the HTTP status code.
        headers: name (lower case) and value pairs.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """Give the first header of that lower-case name."""
        return next((value for key, value in self.headers if key == name), None)
