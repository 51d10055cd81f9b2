"""One child process and the two pipes to it, independent of any event loop."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from attrs import frozen

from furcate.local._weights import MODEL_NAME, cache_folder
from furcate.primitives._errors import LocalModelError
from furcate.primitives._wire import Address

_PROGRAM = Path(__file__).with_name("_child.py")
_LOGS_KEPT = 10
_LOG_TAIL_BYTES = 64 * 1024
_POLL_S = 0.01
_AFTER_KILL_S = 2.0
_ANSWER_S = 2.0


@frozen(kw_only=True)
class Launch:
    """Say how a child is started.

    Attributes:
        model: the file with the weights.
        host: the address to listen on.
        port: the port; 0 lets the system choose one.
        api_key: the key that every request has to carry.
        output_tokens: the bound on an answer whose request names none.
    """

    model: Path
    host: str
    port: int
    api_key: str
    output_tokens: int


class ChildProcess:
    """Hold one child process of the embedded server.

    The life pipe's writing end is held here alone: when this process ends in whatever way, the child reads
    end-of-file and ends too. The report pipe brings the child's address, and its end-of-file the child's end.
    """

    def __init__(self, launch: Launch) -> None:
        self._api_key = launch.api_key
        self._launch = launch
        self.log_path = _new_log()
        self.address: Address | None = None
        self.port: int | None = None
        life_end, self._life = os.pipe()
        self._report, report_end = os.pipe()
        os.set_blocking(self._report, False)
        self._owned = True
        _owned_children.add(self)
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_PROGRAM)],
                    stdin=life_end,
                    stdout=report_end,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._close_pipes()
            raise LocalModelError(
                f"the embedded model's server cannot be started with {sys.executable!r}: {error.strerror or error}"
            ) from error
        finally:
            os.close(life_end)
            os.close(report_end)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def ready(self) -> Address:
        """Hand the child its parameters and wait for its address.

        Raises:
            LocalModelError: the child ended or reported a problem instead.
        """
        asked = {
            "model": str(self._launch.model),
            "name": MODEL_NAME,
            "host": self._launch.host,
            "port": self._launch.port,
            "api_key": self._api_key,
            "output_tokens": self._launch.output_tokens,
        }
        try:
            # Far below what a pipe holds, hence never blocking.
            os.write(self._life, json.dumps(asked).encode() + b"\n")
        except BrokenPipeError:
            raise await self._ended_early() from None
        line = await self._read_report()
        if not line:
            raise await self._ended_early()
        report: dict[str, str] = json.loads(line)
        if "address" not in report:
            # The server's own word is in its log, which is whole only once the child has left.
            await self._collect(_AFTER_KILL_S)
            raise self._explain(report["problem"], report["detail"])
        self.port = urlsplit(report["address"]).port
        self.address = Address(report["address"] + "/v1", self._api_key, keep_alive=False, direct=True)
        return self.address

    async def ended(self) -> None:
        """Wait until a child that was ready is gone."""
        while self._reports_on():
            await anyio.wait_readable(self._report)
        await self._collect(_AFTER_KILL_S)

    def alive(self) -> bool:
        """Tell whether the child seems to run; of one that was just killed this is not known yet."""
        if not self._owned or self._process.poll() is not None:
            return False
        # Before the address has come, a look into the pipe would take a byte of it away.
        return self.address is None or self._reports_on()

    async def answers(self) -> bool:
        """Find out whether the child runs by asking it, which takes about a millisecond.

        A killed process closes its connections in no certain order, and is there for its parent to collect only
        afterwards. But when the first connection breaks none of its threads runs any more: whoever saw that
        happen gets no answer here.
        """
        if not self.alive() or self.address is None or self.port is None:
            return False
        host = urlsplit(self.address.base_url).hostname or self._launch.host
        with anyio.move_on_after(_ANSWER_S):
            try:
                async with await anyio.connect_tcp(host, self.port) as stream:
                    await stream.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    await stream.receive()
                    return True
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                return False
        # Slow, but not gone: the machine is busy.
        return self.alive()

    async def stop(self, grace_s: float) -> None:
        """End the child and collect it; cancellation does not interrupt it.

        Args:
            grace_s: how many seconds the child has before it is killed; 0 kills at once.
        """
        if not self._owned:
            return
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
        with anyio.CancelScope(shield=True):
            if grace_s > 0:
                self._process.terminate()
                await self._collect(grace_s)
            if self._process.poll() is None:
                self._process.kill()
                await self._collect(_AFTER_KILL_S)
        self._close_pipes()

    def disown(self) -> None:
        """Let go of the child in a forked copy of this process, to whom it does not belong."""
        if self._owned:
            self._owned = False
            self._close_pipes()
            # The copy has no such child; without this, Popen complains of one left running.
            if (process := getattr(self, "_process", None)) is not None:
                process.returncode = 0

    def how_it_ended(self) -> str:
        """Say how the child ended, in some words."""
        code = self._process.poll()
        if code is None:
            return "ended"
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with status {code}"

    def _reports_on(self) -> bool:
        """Tell whether the child still holds its end of the report pipe."""
        if self._report < 0:
            return False
        try:
            return os.read(self._report, 1) != b""
        except BlockingIOError:
            return True

    async def _read_report(self) -> bytes:
        """Read the report's line; end-of-file gives nothing."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                got = os.read(self._report, 4096)
            except BlockingIOError:
                await anyio.wait_readable(self._report)
                continue
            if not got:
                return b""
            line += got
        return line

    async def _collect(self, within_s: float) -> None:
        with anyio.move_on_after(within_s):
            # Both loops could tell of a child's end by themselves, but then it would belong to one of them.
            while self._process.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(_POLL_S)

    async def _ended_early(self) -> LocalModelError:
        await self._collect(_AFTER_KILL_S)
        cause = _first_error(self.log_path)
        return LocalModelError(
            f"the embedded model's server {self.how_it_ended()} before it was ready"
            f"{f': {cause}' if cause else ''}; its log is {self.log_path}"
        )

    def _explain(self, problem: str, detail: str) -> LocalModelError:
        """Put a problem that the child reported into one sentence."""
        launch = self._launch
        if problem == "import":
            return LocalModelError(
                f"the embedded model needs xllamacpp, which cannot be imported ({detail}); install "
                '"furcate[local]" into this environment'
            )
        if problem == "bind":
            return LocalModelError(
                f"the embedded model's server cannot listen on {launch.host} port {launch.port}: {detail}; choose "
                "another port, or 0 for any free one"
            )
        cause = _first_error(self.log_path) or detail
        return LocalModelError(
            f"the embedded model's server could not load {launch.model}: {cause}; run `furcate local fetch` to "
            f"check the file; the server's log is {self.log_path}"
        )

    def _close_pipes(self) -> None:
        for end in (self._life, self._report):
            if end >= 0:
                os.close(end)
        self._life = self._report = -1
        _owned_children.discard(self)

    def __del__(self) -> None:
        # Whoever forgets to close the server at least does not keep the child alive by it.
        if getattr(self, "_report", -1) >= 0:
            self._close_pipes()


# The one thing of this package that is global, because forks are: a copy of this process that held the life pipe
# open would keep the child alive after this process has ended.
_owned_children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _disown_all() -> None:
    for child in list(_owned_children):
        child.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def new_api_key() -> str:
    """Make a key that nobody can guess."""
    return secrets.token_urlsafe(32)


def _new_log() -> Path:
    """Make an empty log file in the cache folder, readable by the user only, and remove all but the last ones.

    Raises:
        LocalModelError: the folder cannot be written.
    """
    folder = cache_folder() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="server-", suffix=".log", dir=folder)
    except OSError as error:
        raise LocalModelError(
            f"the embedded model's log cannot be written to {folder}: {error.strerror or error}; name another "
            "cache folder in FURCATE_CACHE"
        ) from error
    os.close(handle)
    _remove_old_logs(folder)
    return Path(name)


def _remove_old_logs(folder: Path) -> None:
    """Keep the newest logs; another process may be doing the same at this moment."""
    aged: list[tuple[float, Path]] = []
    for log in folder.glob("server-*.log"):
        try:
            aged.append((log.stat().st_mtime, log))
        except FileNotFoundError:
            continue
    for _, log in sorted(aged)[:-_LOGS_KEPT]:
        log.unlink(missing_ok=True)


def _first_error(log: Path) -> str:
    """Return the first error in the log, without its time and origin: the later ones are its consequences.

    llama.cpp writes lines such as ``0.01.308.422 E gguf_init_from_file: failed to open ...``; a traceback of
    the child's own ends in the line that counts.
    """
    try:
        with log.open("rb") as file:
            lines = file.read(_LOG_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        _, mark, text = line.partition(" E ")
        if mark:
            return text.partition(": ")[2].strip()[:300] or text.strip()[:300]
    # Warnings of llama.cpp begin with their time and are no cause.
    return "" if not lines or lines[-1][:1].isdigit() else lines[-1].strip()[:300]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
