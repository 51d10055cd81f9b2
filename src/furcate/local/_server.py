"""The embedded model's server: a child process that is started when needed and again when it died."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import frozen

from furcate.local._fetch import fetch
from furcate.local._process import ChildProcess, Launch, new_api_key
from furcate.local._weights import present_and_right, weights_path
from furcate.primitives._errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from furcate.primitives._wire import Address


@frozen(kw_only=True)
class ServerStatistics:
    """Tell about a server without touching it.

    Attributes:
        pid: the child's process id; None while none runs.
        port: the port it listens on; None while none does.
        log_path: the log of the present or the last child; None before the first.
        starts: how many children were ready so far.
    """

    pid: int | None
    port: int | None
    log_path: Path | None
    starts: int


class _Start:
    """One start that is under way, which others may wait for."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self.failure: LocalModelError | None = None


class EmbeddedServer:
    """Run the embedded model behind llama.cpp's own HTTP server in a child process.

    Nothing happens before the first `address`. The child ends with `aclose`, and at the latest when this
    process ends. One object serves one event loop at a time; after `aclose` it may be used again, in another
    loop as well. A forked copy of this process starts a child of its own.

    Args:
        model: a file with weights in GGUF form; None takes the embedded model's and fetches them if missing.
        host: the address to listen on.
        port: the port to listen on; 0 lets the system choose one.
        api_key: the key that requests have to carry; None makes a new one for each child.
        output_tokens: the bound on answers whose request names none, in tokens.
        start_s: how long a child may take to get ready, in seconds; fetching does not count.
        stop_s: how long a child has for ending before it is killed, in seconds.
        progress: is told in sentences how fetching goes.
    """

    def __init__(
        self,
        *,
        model: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        output_tokens: int = 1024,
        start_s: float = 60.0,
        stop_s: float = 5.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._model = model
        self._host = host
        self._port = port
        self._api_key = api_key
        self._output_tokens = output_tokens
        self._start_s = start_s
        self._stop_s = stop_s
        self._progress = progress
        self._child: ChildProcess | None = None
        self._start: _Start | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None while none runs."""
        return self._child.pid if self._child is not None and self._child.alive() else None

    @property
    def log_path(self) -> Path | None:
        """The log of the present or the last child; None before the first."""
        return None if self._child is None else self._child.log_path

    def statistics(self) -> ServerStatistics:
        """Return what is known of the server at this moment."""
        pid = self.pid
        port = self._child.port if self._child is not None and pid is not None else None
        return ServerStatistics(pid=pid, port=port, log_path=self.log_path, starts=self._starts)

    async def address(self) -> Address:
        """Return where the server answers now; start it if there is none or the last one died.

        Ask before each attempt: a child that was started anew has another port and another key. Of several
        callers at once one starts the child and the others wait for it. Cancellation of the one who starts ends
        the child, and the next one starts another.

        Raises:
            OfflineError: the weights are missing and cannot be fetched.
            LocalModelError: the child could not be started; the sentence says why and where its log is.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            if (start := self._start) is not None:
                await start.over.wait()
                if start.failure is not None:
                    raise type(start.failure)(str(start.failure)) from start.failure
                continue
            child = self._child
            if child is not None and child.address is not None and await child.answers():
                return child.address
            # While that was asked, another caller may have come here first.
            if self._start is None and self._child is child:
                return await self._lead()

    async def ended(self) -> str:
        """Wait until the present child is gone and say how it went; return at once where there is none."""
        if self._child is None:
            return "was never started"
        await self._child.ended()
        return self._child.how_it_ended()

    async def aclose(self) -> None:
        """End the child; bounded in seconds, and not interrupted by cancellation.

        A start that is under way fails with LocalModelError. The object may be used again afterwards.
        """
        with anyio.CancelScope(shield=True):
            if self._start is not None:
                self._start.scope.cancel()
                await self._start.over.wait()
            if self._child is not None:
                await self._child.stop(self._stop_s)
        await anyio.lowlevel.checkpoint()

    async def __aenter__(self) -> EmbeddedServer:
        """Give the server itself; the child is started by the first `address`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        await self.aclose()

    async def _lead(self) -> Address:
        """Start a child on behalf of everybody who waits."""
        self._start = start = _Start()
        try:
            with start.scope:
                return await self._start_child()
            raise LocalModelError("the embedded model's server was closed while it was starting")
        except LocalModelError as error:
            start.failure = error
            raise
        finally:
            self._start = None
            start.over.set()

    async def _start_child(self) -> Address:
        if os.name == "nt":
            raise LocalModelError("the embedded model's server runs on Linux and macOS only")
        if self._child is not None:
            await self._child.stop(0)
        child = self._child = ChildProcess(
            Launch(
                model=await self._find_model(),
                host=self._host,
                port=self._port,
                api_key=self._api_key or new_api_key(),
                output_tokens=self._output_tokens,
            )
        )
        address: Address | None = None
        try:
            with anyio.move_on_after(self._start_s):
                address = await child.ready()
        finally:
            if address is None:
                await child.stop(0)
        if address is None:
            raise LocalModelError(
                f"the embedded model's server was not ready within {self._start_s:g} s; its log is {child.log_path}"
            )
        self._starts += 1
        return address

    async def _find_model(self) -> Path:
        if self._model is not None:
            return self._model
        if await anyio.to_thread.run_sync(present_and_right):
            return weights_path()
        return await fetch(self._progress)


async def serve(
    on_ready: Callable[[Address], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Serve the embedded model on a port of the caller's choice until cancelled.

    Cancellation ends the child.

    Args:
        on_ready: is told the address and the key once the server answers.
        host: the address to listen on.
        port: the port to listen on; 0 lets the system choose one.
        api_key: the key that requests have to carry; None makes one.
        progress: is told in sentences how fetching the weights goes.

    Raises:
        LocalModelError: the port is in use, the weights are not to be had, or the server ended by itself.
    """
    server = EmbeddedServer(host=host, port=port, api_key=api_key, progress=progress)
    async with server:
        on_ready(await server.address())
        how = await server.ended()
        raise LocalModelError(f"the embedded model's server {how}; its log is {server.log_path}")
