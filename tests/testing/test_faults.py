"""The faulty script: what it does by its seed, and what each fault is to a client."""

from __future__ import annotations

import json

import httpx2
import pytest

import furcate
from furcate.testing import FAULTS, Faults, Send, StubProvider, answer, refusing, wait_hints

pytestmark = pytest.mark.anyio

HELLO = answer("Hello there, how are you?", usage=furcate.Usage(input_tokens=3, output_tokens=5))
BODY = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}}


async def post(client: httpx2.AsyncClient, url: str) -> bytes:
    """Give the raw body of one answer."""
    response = await client.post(f"{url}/chat/completions", json=BODY)
    return response.content


def test_the_seed_decides(asking) -> None:
    """The same seed chooses the same faults, another one others, and no share means none."""
    one, same, other = (Faults(seed, script=HELLO, share=0.5) for seed in (1, 1, 2))
    chosen = [one.fault_of(number) for number in range(200)]
    assert chosen == [same.fault_of(number) for number in range(200)]
    assert chosen != [other.fault_of(number) for number in range(200)]
    assert 60 < sum(fault is not None for fault in chosen) < 140
    assert {Faults(1, script=HELLO, share=0).fault_of(number) for number in range(50)} == {None}


def test_every_fault_comes_up() -> None:
    """With all answers spoiled, each kind is chosen sooner or later."""
    faults = Faults(3, script=HELLO, share=1)
    assert {faults.fault_of(number) for number in range(500)} == set(FAULTS)


@pytest.mark.parametrize("wrong", [{"kinds": ()}, {"kinds": ("fire",)}, {"share": 1.5}])
def test_what_makes_no_script_is_refused(wrong) -> None:
    """No kinds, unknown kinds and a share beyond one are told at once."""
    with pytest.raises(ValueError, match=r"give (some of|a number)"):
        Faults(1, script=HELLO, **wrong)


@pytest.mark.parametrize("fault", ["drip", "wrong_type"])
async def test_a_whole_answer_stays_whole(fault) -> None:
    """However it is sent, the body is the one of the proper answer, and the record says so."""
    faults = Faults(1, script=HELLO, share=1, kinds=[fault])
    async with StubProvider(faults) as stub, httpx2.AsyncClient() as client:
        body = await post(client, stub.base_url)
        [request] = stub.requests
    assert body == b"".join(step.data for step in HELLO.steps_for(request) if isinstance(step, Send))
    assert [(record.fault, record.whole, record.body_sent) for record in faults.records] == [(fault, True, len(body))]
    assert faults.count(fault) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset_before", httpx2.ReadError),
        ("reset_after", httpx2.ReadError),
        ("close_before", httpx2.RemoteProtocolError),
        ("cut", httpx2.RemoteProtocolError),
        ("garbage_http", httpx2.RemoteProtocolError),
        ("long_length", httpx2.RemoteProtocolError),
        ("stall", httpx2.ReadTimeout),
        ("never_close", httpx2.ReadTimeout),
    ],
)
async def test_a_broken_answer_is_broken(fault, error) -> None:
    """What a plain client meets is what the fault is called after."""
    faults = Faults(1, script=HELLO, share=1, kinds=[fault])
    async with StubProvider(faults) as stub, httpx2.AsyncClient(timeout=0.2) as client:
        with pytest.raises(error):
            await post(client, stub.base_url)
    assert faults.count(fault) == 1


async def test_a_shortened_answer_misses_its_end() -> None:
    """The announced length is kept to by whoever reads, who so gets the beginning."""
    faults = Faults(1, script=HELLO, share=1, kinds=["short_length"])
    async with StubProvider(faults) as stub, httpx2.AsyncClient() as client:
        body = await post(client, stub.base_url)
    assert len(body) == faults.records[0].body_sent
    assert not faults.records[0].whole


@pytest.mark.parametrize("fault", ["duplicate", "out_of_order"])
async def test_the_events_are_the_same_and_their_order_is_not(fault) -> None:
    """One event comes twice, or two change places; the record names them."""
    faults = Faults(4, script=HELLO, share=1, kinds=[fault])
    async with StubProvider(faults) as stub, httpx2.AsyncClient() as client:
        body = await post(client, stub.base_url)
        [request] = stub.requests
    proper = [step.data for step in HELLO.steps_for(request) if isinstance(step, Send)]
    came = [piece + b"\n\n" for piece in body.split(b"\n\n")[:-1]]
    assert set(came) == set(proper)
    assert came != proper
    assert len(came) - len(proper) == (fault == "duplicate")
    assert faults.records[0].detail.startswith("event")


@pytest.mark.field(62)
async def test_statuses_come_with_every_hint() -> None:
    """Each form in which servers ask to wait is sent with some error status."""
    faults = Faults(1, script=HELLO, share=1, kinds=["status"], wait_s=2)
    async with StubProvider(faults) as stub, httpx2.AsyncClient() as client:
        for _ in range(60):
            response = await client.post(f"{stub.base_url}/chat/completions", json=BODY)
            assert response.status_code >= 400
            assert "error" in json.loads(response.content)
    names = {record.detail.partition(", ")[2] for record in faults.records}
    assert names == {name for name, _ in wait_hints(2)}


async def test_a_refused_connection_is_refused() -> None:
    """Nobody listens there, and nobody else can come to."""
    with refusing() as url:
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ConnectError):
                await post(client, url)


async def test_a_stub_that_remembers_nothing_counts() -> None:
    """For long runs: the requests are numbered and not kept."""
    async with StubProvider(HELLO, remember=False) as stub, httpx2.AsyncClient() as client:
        for _ in range(3):
            await post(client, stub.base_url)
    assert stub.requests_read == 3
    assert stub.requests == ()
