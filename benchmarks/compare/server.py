"""Answer as a model's server of the openai-chat dialect would, at next to no cost: every answer is made beforehand.

    python benchmarks/compare/server.py --core 1

Prints the port that it took on the loopback, and ends when its standard input does. The last message of a request says
how to answer ``POST /v1/chat/completions``: "... Answer in 50 pieces, 25 ms apart, after 20 ms."

The text comes whole, or as a stream where the request asks for one. A stream whose pieces are 0 ms apart is written at
once, one HTTP chunk an event, as servers do that have the text already; otherwise each piece waits its turn.
``GET /seen`` tells what the server has seen since that was last asked.
"""

from __future__ import annotations

import argparse
import asyncio  # noqa: TID251 - a protocol's callbacks cost a part of what streams and tasks do
import json
import os
import re
import resource
import sys
import time  # noqa: TID251 - the server's own use of a processor is told
from functools import cache
from typing import NamedTuple

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ASKED = b"Answer in "
_HOW = re.compile(rb"Answer in (\d+) pieces, (\d+) ms apart, after (\d+) ms\.")
_STREAMED = re.compile(rb'"stream": ?true')
_OF_ALL = {"id": "chatcmpl-compare", "created": 1_750_000_000, "model": "gpt-4o", "service_tier": "default"}


class Answer(NamedTuple):
    """Hold an answer's bytes: whole, and as a stream's head and chunks."""

    whole: bytes
    head: bytes
    chunks: tuple[bytes, ...]
    stream: bytes


def piece(number: int) -> str:
    """Give a piece of text: six characters, none of which anybody would trim or read as markup."""
    return f"{number:05d},"


@cache
def answer(pieces: int) -> Answer:
    """Make an answer of so many pieces."""
    texts = [piece(number) for number in range(pieces)]
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": pieces,
        "total_tokens": 20 + pieces,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    message: dict[str, object] = {"role": "assistant", "content": "".join(texts), "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = _json({**_OF_ALL, "object": "chat.completion", "choices": [choice], "usage": usage})
    events = [_event([_delta({"role": "assistant", "content": "", "refusal": None})])]
    events += [_event([_delta({"content": text})]) for text in texts]
    events += [_event([_delta({}, "stop")]), _event([], usage), b"data: [DONE]\n\n"]
    chunks = (*(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n")
    head = _head("200 OK", "text/event-stream; charset=utf-8", "transfer-encoding: chunked")
    return Answer(_whole("200 OK", body), head, chunks, head + b"".join(chunks))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _delta(delta: dict[str, str | None], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _event(choices: list[dict[str, object]], usage: object = None) -> bytes:
    chunk = {**_OF_ALL, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
    return b"data: " + _json(chunk) + b"\n\n"


def _head(status: str, kind: str, length: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}\r\nx-request-id: compare\r\n\r\n".encode()


def _whole(status: str, body: bytes) -> bytes:
    return _head(status, "application/json", f"content-length: {len(body)}") + body


class Seen:
    """Count what the server sees, and what it spends of a processor."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._begin()

    def _begin(self) -> None:
        self.requests = 0
        self.most = self.in_flight
        self._since = time.perf_counter(), time.process_time()

    def came(self) -> None:
        """Count a request that came."""
        self.requests += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)

    def report(self) -> dict[str, float]:
        """Give what was seen, and begin anew."""
        wall_s, cpu_s = time.perf_counter() - self._since[0], time.process_time() - self._since[1]
        found = {"requests": self.requests, "most_in_flight": self.most, "busy": cpu_s / wall_s}
        self._begin()
        return found


class Connection(asyncio.Protocol):
    """Read requests of a connection one after the other, and answer them."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect until a request is whole."""
        received = self._received
        received += data
        while (end := received.find(_HEAD_END)) >= 0:
            length = _LENGTH.search(received, 0, end)
            ends = end + len(_HEAD_END) + (int(length[1]) if length else 0)
            if len(received) < ends:
                return
            request = bytes(received[:ends])
            del received[:ends]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"GET /seen "):
            self._transport.write(_whole("200 OK", _json(self._seen.report())))
            return
        # From the end: what comes before it may be long, and says the same of earlier turns.
        how = _HOW.match(request, max(0, request.rfind(_ASKED)))
        if how is None or not request.startswith(b"POST /v1/chat/completions "):
            self._transport.write(_whole("404 Not Found", b'{"error":{"message":"there is nothing here"}}'))
            return
        pieces, pace_ms, latency_ms = map(int, how.groups())
        self._seen.came()
        streamed = _STREAMED.search(request) is not None
        if latency_ms:
            self._loop.call_later(latency_ms / 1000, self._send, pieces, pace_ms, streamed)
        else:
            self._send(pieces, pace_ms, streamed)

    def _send(self, pieces: int, pace_ms: int, streamed: bool) -> None:
        made = answer(pieces)
        if streamed and pace_ms:
            self._transport.write(made.head)
            self._send_chunk(made.chunks, 0, self._loop.time(), pace_ms / 1000)
            return
        self._seen.in_flight -= 1
        self._transport.write(made.stream if streamed else made.whole)

    def _send_chunk(self, chunks: tuple[bytes, ...], number: int, due_s: float, pace_s: float) -> None:
        """Write a chunk, and see to the next one: those that bring no text follow the last piece at once."""
        last = number >= len(chunks) - 5 or self._transport.is_closing()
        if last:
            self._seen.in_flight -= 1
            self._transport.write(b"".join(chunks[number:]))
            return
        self._transport.write(chunks[number])
        # Times are counted from the first chunk, so that lateness does not add up.
        self._loop.call_at(due_s + pace_s, self._send_chunk, chunks, number + 1, due_s + pace_s, pace_s)


async def serve() -> None:
    """Serve until standard input ends: so the server goes with whoever started it, whatever became of them."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    seen = Seen()
    async with await loop.create_server(lambda: Connection(seen), "127.0.0.1", 0, backlog=1024) as server:
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
        await ended.wait()


def main() -> None:
    """Serve on the core that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, help="the only core to use, where the system can be told")
    core = parser.parse_args().core
    if core is not None:
        os.sched_setaffinity(0, {core})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096) if most > 0 else 4096, most))
    asyncio.run(serve())


if __name__ == "__main__":
    main()
