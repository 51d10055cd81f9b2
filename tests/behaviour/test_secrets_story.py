"""Keys stay where they were put: in no representation, error, traceback, observation, receipt, log or file."""

from __future__ import annotations

import io
import json
import logging
import traceback

import pytest
from rich.console import Console
from rich.traceback import Traceback

import furcate
from furcate.testing import StubProvider, answer, error, html_error, no_head, raw, refusing

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

ONCE = furcate.RetryPolicy(attempts=1)

# No local variable of a test: tracebacks with local variables show those of the test as well.
KEY = "hidden-0123456789-do-not-show"
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")


def _given_in_configuration() -> dict[str, object]:
    return {"api_key": KEY}


def _given_in_environment() -> dict[str, object]:
    return {"api_key_env": "TEAM_API_KEY"}


def _given_by_callable() -> dict[str, object]:
    return {"credential": lambda: KEY}


async def _later() -> str:
    return KEY


def _given_later() -> dict[str, object]:
    return {"credential": _later}


def _given_in_a_header() -> dict[str, object]:
    return {"extra_headers": {"x-team-key": KEY}}


WAYS = [_given_in_configuration, _given_in_environment, _given_by_callable, _given_later, _given_in_a_header]


def everything_of(error: BaseException) -> str:
    """Render an error in all the ways in which people and tools see it, our frames with their local variables."""
    seen: list[str] = []
    link: BaseException | None = error
    while link is not None:
        seen += [str(link), repr(link), repr(vars(link))]
        for frame, _line in traceback.walk_tb(link.__traceback__):
            if frame.f_globals["__name__"].startswith("furcate."):
                seen += [repr(value) for value in frame.f_locals.values()]
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n".join([*seen, *traceback.format_exception(error)])


def as_rich_shows_it(error: BaseException) -> str:
    """Render an error as a terminal shows it, with all local variables of all frames, taken apart."""
    shown = io.StringIO()
    trace = Traceback.from_exception(
        type(error), error, error.__traceback__, show_locals=True, locals_max_length=None, locals_max_string=None
    )
    Console(file=shown, width=400).print(trace)
    return shown.getvalue()


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Hear all loggers, those of the HTTP libraries too."""
    caplog.set_level(logging.DEBUG)
    for name in ("furcate", "httpx2", "httpcore2", "aiohttp", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_key_is_seen_by_the_server_alone(
    engine_for, ask, monkeypatch, tmp_path, everything_logged, dialect, way
) -> None:
    """It goes out in a header, and into nothing that a run leaves behind, be it a success or a failure."""
    monkeypatch.setenv("TEAM_API_KEY", KEY)
    recorder = furcate.Recorder()
    script = [answer("Hello."), error(401, f"the key {KEY} is wrong"), error(404, "no such thing"), no_head()]
    async with StubProvider(script) as stub:
        engine = engine_for(stub, dialect=dialect, observers=[recorder], retry=ONCE, **way())
        async with engine:
            prepared = engine.prepare(ask())
            details = [prepared.details(), repr(prepared)]
            prepared.discard()
            result = await engine.run(ask(capture=True))
            seen = [everything_of(caught) for caught in [await _failure(engine, ask()) for _ in range(3)]]
        for request in stub.requests:
            assert KEY in str(request.headers)
            assert KEY not in request.path
    seen += [
        repr(engine),
        repr(engine.inspect_backend("stub")),
        repr(result),
        repr(result.exchange),
        repr(result.attempts),
        json.dumps([receipt.to_dict() for receipt in result.receipts], default=str),
        repr(recorder.events),
        repr(details),
        logged(everything_logged),
    ]
    assert not [text for text in seen if KEY in text]


async def _failure(engine: furcate.Engine, request: furcate.Request) -> furcate.ProviderError:
    with pytest.raises(furcate.ProviderError) as caught:
        await engine.run(request)
    return caught.value


@pytest.mark.parametrize("way", WAYS)
async def test_failures_of_every_kind_show_no_key(engine_for, ask, monkeypatch, everything_logged, way) -> None:
    """Refused, broken, no JSON, a page, an unusable environment: the frames of the traceback hold no key either."""
    monkeypatch.setenv("TEAM_API_KEY", KEY)
    seen = []
    with refusing() as nowhere:
        async with engine_for(nowhere, retry=ONCE, **way()) as engine:
            seen.append(everything_of(await _failure(engine, ask())))
    async with StubProvider([html_error(200), raw("{"), answer("x", disconnect_after=2)]) as stub:
        async with engine_for(stub, retry=ONCE, **way()) as engine:
            seen += [everything_of(await _failure(engine, ask())) for _ in range(3)]
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    async with engine_for("http://127.0.0.1:9/v1", **way()) as engine:
        seen.append(everything_of(await _failure(engine, ask())))
    assert not [text for text in [*seen, logged(everything_logged)] if KEY in text]


async def test_a_traceback_with_local_variables_shows_no_key(engine_for, ask) -> None:
    """Tools that take every local variable of every frame apart, down to the HTTP library's, find none."""
    async with StubProvider(no_head()) as stub:
        async with engine_for(stub, retry=ONCE, **_given_in_configuration()) as engine:
            shown = as_rich_shows_it(await _failure(engine, ask()))
    assert "no_answer" in shown
    assert KEY not in shown


@pytest.mark.parametrize("bad", [f" {KEY}", f"{KEY}\n", f"{KEY}é"])
async def test_a_key_that_cannot_be_sent_is_not_shown(engine_for, ask, bad) -> None:
    """The error says what is wrong with it, and not what it is."""
    async with StubProvider(answer("Hello.")) as stub:
        async with engine_for(stub, credential=lambda: bad) as engine:
            try:
                await engine.run(ask())
            except furcate.RequestError as caught:
                shown = [str(caught), repr(caught), *traceback.format_exception(caught)]
        assert stub.requests == ()
    assert not [text for text in shown if KEY in text]


def test_an_address_with_a_key_in_it_is_refused_unseen() -> None:
    """A query or a password in base_url is a fault, and the fault does not repeat it."""
    for url in (f"https://models.example/v1?key={KEY}", f"https://me:{KEY}@models.example/v1"):
        with pytest.raises(furcate.ConfigError) as caught:
            furcate.Engine(backends=[furcate.Backend("b", base_url=url)], profiles=[furcate.Profile("p", "b", "m")])
        assert KEY not in str(caught.value)
        assert "base_url" in str(caught.value)


@pytest.mark.parametrize("before", range(270, 300, 4))
async def test_a_message_cut_within_a_key_shows_no_part_of_it(engine_for, ask, before) -> None:
    """Messages are bounded; where the bound falls into a key that the server repeats, its beginning goes as well."""
    words = ("word " * 80)[:before]
    async with StubProvider(error(401, f"{words} {KEY} is wrong")) as stub:
        async with engine_for(stub, retry=ONCE, **_given_in_configuration()) as engine:
            failure = await _failure(engine, ask())
    assert KEY[:8] not in str(failure)
    assert len(str(failure)) < 400
