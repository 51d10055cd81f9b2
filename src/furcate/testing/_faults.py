"""A script by which a stub misbehaves: per request and by seed, so that the same seed gives the same trouble."""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, get_args

import attrs

from furcate.testing._answer import Answer, error, steps
from furcate.testing._steps import Disconnect, Head, Hold, Reset, Send, Silence, Step, Wait, Wire

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

Fault = Literal[
    "reset_before",
    "reset_after",
    "close_before",
    "stall",
    "drip",
    "cut",
    "garbage_http",
    "garbage_body",
    "long_length",
    "short_length",
    "wrong_type",
    "duplicate",
    "out_of_order",
    "status",
    "never_close",
]
"""What can go wrong with a request.

============== ======================================================================================
fault          what the server does
============== ======================================================================================
reset_before   reads the request and answers with a TCP reset
reset_after    sends the whole body, announces one byte more, and resets the connection
close_before   reads the request and closes without a byte
stall          falls silent at some byte of the answer, the first one included, until the client leaves
drip           sends the whole answer in small pieces
cut            closes at some byte of the body
garbage_http   answers with bytes that are no HTTP
garbage_body   answers with status 200 and noise
long_length    announces more than it sends, and closes
short_length   announces less than it sends
wrong_type     sends the whole answer under another content type
duplicate      sends one of the answer's events twice
out_of_order   swaps two events
status         answers with an error status, and one of the ways to say how long to wait
never_close    sends the whole answer, announces no length, and keeps the connection open
============== ======================================================================================
"""

FAULTS: tuple[Fault, ...] = get_args(Fault)
"""All faults, in the order in which they are described."""

_WHOLE: frozenset[Fault] = frozenset({"drip", "wrong_type", "never_close", "reset_after", "long_length"})

_STATUSES = (408, 409, 429, 500, 502, 503, 504, 529)
_TYPES = ("text/plain", "application/octet-stream", "text/html; charset=utf-8", "")


@attrs.frozen(kw_only=True)
class FaultRecord:
    """Hold what was done to one request.

    Attributes:
        number: the request's number at its stub, from 1.
        fault: what went wrong; None for a proper answer.
        detail: where or how, in a few words.
        whole: whether every byte of the answer's body goes out, in order.
        body_sent: how many bytes of the body go out before the fault.
    """

    number: int
    fault: Fault | None
    detail: str = ""
    whole: bool
    body_sent: int


class Faults:
    """Answer by another script, but spoil a share of the answers.

    ::

        faults = Faults(7, script=answer("Hello."), share=0.1)
        async with StubProvider(faults) as stub:
            ...
        assert faults.count("cut") == 3

    What happens to a request depends on the seed and on the request's number alone, so a run can be repeated, and a
    test can recount from ``records`` what the server really said.

    A connection that is refused and a TLS handshake that fails happen before there is a request: see ``refusing`` for
    the one, and ``StubProvider(tls=...)`` for the other.

    Arguments:
        seed: two scripts with the same seed do the same.
        script: what the proper answer is: an ``Answer``, or a callable, plain or async, from ``StubRequest`` to one.
        share: the part of the requests that are spoiled, from 0 to 1.
        kinds: the faults to choose from.
        wait_s: the wait that error statuses ask for, in seconds; a date can only ask for whole ones and asks for none.
        drip_s: seconds between two pieces of an answer that drips.

    Attributes:
        records: what was done, in the order in which the requests were answered.
    """

    def __init__(
        self,
        seed: int,
        *,
        script: Answer | Callable[[StubRequest], Answer | Awaitable[Answer]],
        share: float = 0.1,
        kinds: Iterable[Fault] = FAULTS,
        wait_s: float = 0.01,
        drip_s: float = 0.0,
    ) -> None:
        self._seed = seed
        self._script = script
        self._share = share
        self._kinds = tuple(kinds)
        unknown = [kind for kind in self._kinds if kind not in FAULTS]
        if unknown or not self._kinds:
            raise ValueError(f"kinds holds {unknown or 'nothing'}; give some of {', '.join(FAULTS)}")
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}; give a number from 0 to 1")
        self._wait_s = wait_s
        self._drip_s = drip_s
        self.records: list[FaultRecord] = []

    def count(self, fault: Fault | None) -> int:
        """Count the requests to which one thing was done; None counts the proper answers."""
        return sum(record.fault == fault for record in self.records)

    def fault_of(self, number: int) -> Fault | None:
        """Tell what happens to the request of that number, before or after it came."""
        dice = self._dice(number)
        return dice.choice(self._kinds) if dice.random() < self._share else None

    async def __call__(self, request: StubRequest) -> Answer:
        """Answer a request, or spoil its answer."""
        chosen = self._script if isinstance(self._script, Answer) else self._script(request)
        proper = await chosen if isawaitable(chosen) else chosen
        fault = self.fault_of(request.number)
        body = b"".join(step.data for step in proper.steps_for(request) if isinstance(step, Send))
        if fault is None:
            self.records.append(FaultRecord(number=request.number, fault=None, whole=True, body_sent=len(body)))
            return proper
        spoiled = _Spoiled(proper.steps_for(request), self._dice(request.number, fault), wait_s=self._wait_s)
        made, detail, sent = spoiled.make(fault, self._drip_s)
        self.records.append(
            FaultRecord(
                number=request.number, fault=fault, detail=detail, whole=fault in _WHOLE, body_sent=min(sent, len(body))
            )
        )
        return made

    def _dice(self, *names: object) -> random.Random:
        # Seeded by text: numbers close to each other would give sequences close to each other.
        return random.Random(":".join(map(str, (self._seed, *names))))


class _Spoiled:
    """One proper answer, and the ways to spoil it; each gives the answer, a word on it, and the body bytes sent."""

    def __init__(self, proper: Sequence[Step], dice: random.Random, *, wait_s: float) -> None:
        self._dice = dice
        self._wait_s = wait_s
        self._before = tuple(step for step in proper if isinstance(step, Wait | Hold))
        self._head = next((step for step in proper if isinstance(step, Head)), Head())
        self._events = tuple(step.data for step in proper if isinstance(step, Send))
        self._body = b"".join(self._events)

    def make(self, fault: Fault, drip_s: float) -> tuple[Answer, str, int]:
        size = len(self._body)
        place = self._dice.randrange(size) if size else 0
        match fault:
            case "reset_before":
                return self._steps(Reset()), "", 0
            case "close_before":
                return self._steps(Disconnect()), "", 0
            case "reset_after":
                # Held back by a moment, or the reset could overtake what was sent.
                sized = self._sized(size + 1)
                return self._steps(sized, Send(self._body), Wait(0.01), Reset()), "", size
            case "stall":
                return self._stall(place)
            case "drip":
                return self._drip(drip_s), "", size
            case "cut":
                return self._steps(self._chunked(), Send(self._body[:place]), Disconnect()), f"byte {place}", place
            case "garbage_http":
                return self._steps(Wire(self._noise() + b"\r\n\r\n")), "", 0
            case "garbage_body":
                noise = self._noise()
                return self._steps(self._sized(len(noise)), Send(noise)), "", 0
            case "long_length":
                more = self._dice.randrange(1, 1000)
                return self._steps(self._sized(size + more), Send(self._body), Disconnect()), f"{more} more", size
            case "short_length":
                return self._short(place)
            case "status":
                return self._status()
            case _:
                return self._whole(fault)

    def _whole(self, fault: Fault) -> tuple[Answer, str, int]:
        """Make the answers in which every event is there."""
        size, events, detail = len(self._body), list(self._events), ""
        if fault == "wrong_type":
            kind = self._dice.choice(_TYPES)
            head = self._with(self._head, ("content-type", kind) if kind else None)
            return self._steps(head, *map(Send, events)), kind or "none", size
        if fault == "never_close":
            wire = [Wire(_plain_head(self._head)), Wire(self._body)]
            return self._steps(*wire, Silence()), "", size
        at = self._dice.randrange(len(events)) if events else 0
        if fault == "duplicate" and events:
            events.insert(at, events[at])
            detail = f"event {at + 1}"
        elif len(events) > 1:
            at = self._dice.randrange(len(events) - 1)
            events[at], events[at + 1] = events[at + 1], events[at]
            detail = f"events {at + 1} and {at + 2}"
        return self._steps(self._chunked(), *map(Send, events)), detail, size

    def _stall(self, place: int) -> tuple[Answer, str, int]:
        if self._dice.random() < 0.2:
            return self._steps(Silence()), "before the head", 0
        begun = (Send(self._body[:place]),) if place else ()
        return self._steps(self._chunked(), *begun, Silence()), f"byte {place}", place

    def _drip(self, drip_s: float) -> Answer:
        dripping: list[Step] = [self._chunked()]
        at = 0
        while at < len(self._body):
            size = self._dice.randrange(1, 60)
            dripping += [Send(self._body[at : at + size]), Wait(drip_s)]
            at += size
        return self._steps(*dripping)

    def _short(self, place: int) -> tuple[Answer, str, int]:
        head = self._with(self._head, ("content-length", str(place)))
        wire = Wire(_plain_head(head, sized=True) + self._body)
        return self._steps(wire), f"{len(self._body) - place} fewer", place

    def _status(self) -> tuple[Answer, str, int]:
        status = self._dice.choice(_STATUSES)
        name, headers = self._dice.choice(wait_hints(self._wait_s))
        made = error(status, "out of order for a moment", headers=headers)
        return made, f"{status}, {name}", 0

    def _noise(self) -> bytes:
        return self._dice.randbytes(self._dice.randrange(1, 400))

    def _steps(self, *made: Step) -> Answer:
        return steps(*self._before, *made)

    def _sized(self, size: int) -> Head:
        return self._with(self._head, ("content-length", str(size)))

    def _chunked(self) -> Head:
        return self._with(self._head, ("transfer-encoding", "chunked"))

    def _with(self, head: Head, header: tuple[str, str] | None) -> Head:
        """Replace a header; a framing replaces any other framing, and None takes the content type away."""
        framing = ("content-length", "transfer-encoding")
        name = header[0] if header is not None else "content-type"
        gone = framing if name in framing else (name,)
        kept = tuple(pair for pair in head.headers if pair[0] not in gone)
        return Head(head.status, (*kept, header) if header is not None else kept)


def wait_hints(wait_s: float) -> tuple[tuple[str, dict[str, str]], ...]:
    """Give every header form in which servers ask to wait, each with a name; the last two say nothing usable.

    Arguments:
        wait_s: how long, in seconds.
    """
    date = "Fri, 02 Jan 2026 10:00:00 GMT"
    millis = f"{wait_s * 1000:g}"
    return (
        ("seconds", {"retry-after": f"{wait_s:g}"}),
        ("milliseconds", {"retry-after-ms": millis}),
        ("a date", {"retry-after": date, "date": date}),
        ("requests", {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{millis}ms"}),
        ("tokens", {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": f"{wait_s:g}s"}),
        ("garbage", {"retry-after": "soon"}),
        ("nothing", {}),
    )


@contextmanager
def refusing() -> Iterator[str]:
    """Give a base URL at which every connection is refused, as by a server that is down.

    The port is kept from everybody else until the block ends.
    """
    with socket.socket() as kept:
        # Bound and not listening: nobody else can get the port, and the system refuses whoever comes.
        kept.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{kept.getsockname()[1]}/v1"


def _plain_head(head: Head, *, sized: bool = False) -> bytes:
    """Write a head by hand, without any framing unless it is `sized`."""
    kept = [pair for pair in head.headers if pair[0] != "transfer-encoding" and (sized or pair[0] != "content-length")]
    lines = [f"HTTP/1.1 {head.status} OK", *(f"{name}: {value}" for name, value in kept), "connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
