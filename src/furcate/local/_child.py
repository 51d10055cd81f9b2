"""The program that runs in the child process: llama.cpp's own HTTP server, for as long as its parent lives.

It is run as a file and imports nothing of ours, so that it starts in tenths of a second. What it is handed:

- standard input, the life pipe: one JSON line with the parameters, and end-of-file when the parent ends;
- standard output, the report pipe: one JSON line back, ``{"address": ...}`` or ``{"problem": ...}``, and then
  held open, so that its end-of-file tells the parent of this process's end;
- standard error, the log file.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import traceback
from typing import Any

_CONTEXT_TOKENS = 8192
_HOST_CACHE_MIB = 2048
_HTTP_THREADS = 8
_WARNINGS_AND_ERRORS = 2


def main() -> None:
    """Serve until the life pipe ends; leave without tidying up, which takes half a minute in an answer."""
    code = 0
    try:
        life, report = _claim_pipes()
        asked = json.loads(_read_line(life))
        answer = _start(asked)
        os.write(report, json.dumps(answer).encode() + b"\n")
        if "address" in answer:
            while os.read(life, 4096):
                pass
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        os._exit(code)


def _claim_pipes() -> tuple[int, int]:
    """Move both pipes away from the standard streams, which the C++ side may write to; they go to the log."""
    life, report = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return life, report


def _read_line(pipe: int) -> bytes:
    """Read up to the first line break; at end-of-file before it the parent is gone, and so is this process."""
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(pipe, 4096)
        if not got:
            os._exit(0)
        line += got
    return line


# The server object has to live as long as the process does: its destructor stops it.
_kept: list[object] = []


def _start(asked: dict[str, Any]) -> dict[str, str]:
    """Start the server; say where it listens, or what is wrong."""
    try:
        # Not at the top of the file, so that its absence can be told to the parent.
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        return {"problem": "import", "detail": str(error)}
    params = xllamacpp.CommonParams()
    params.model.path = asked["model"]
    params.model_alias = {asked["name"]}
    params.hostnames = [asked["host"]]
    params.port = asked["port"]
    params.api_keys = [asked["api_key"]]
    params.n_predict = asked["output_tokens"]
    params.n_ctx = _CONTEXT_TOKENS
    # One slot: with more, each of them reads the beginning that branches share again. One thread: two wait for
    # each other as soon as anything else wants a core.
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = _HOST_CACHE_MIB
    params.n_threads_http = _HTTP_THREADS
    params.fit_params = False
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = ""
    params.cors_methods = ""
    params.cors_headers = ""
    params.cors_credentials = False
    params.verbosity = _WARNINGS_AND_ERRORS
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        blocked = _why_not_bound(asked["host"], asked["port"])
        return {"problem": "bind", "detail": blocked} if blocked else {"problem": "start", "detail": str(error)}
    _kept.append(server)
    return {"address": server.listening_address}


def _why_not_bound(host: str, port: int) -> str:
    """Say why the address cannot be listened on, or nothing; the server's own message leaves that out."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[:1]:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    main()
