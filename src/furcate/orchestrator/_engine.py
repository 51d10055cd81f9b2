"""The engine: what applications run requests with."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from uuid import uuid4

import anyio
import anyio.lowlevel
from attrs import define

from furcate.admission import AdmissionStatistics, Gate, Share
from furcate.dialects import dialect_named
from furcate.orchestrator._config import Resources, check_resources, load_config
from furcate.orchestrator._embedded import Server, embedded_server
from furcate.orchestrator._encoding import encode_ahead
from furcate.orchestrator._execute import Means, Run
from furcate.orchestrator._health import Health
from furcate.orchestrator._plan import Plan, make_plan, named
from furcate.orchestrator._prepared import Prepared
from furcate.orchestrator._priming import Primer, marked
from furcate.orchestrator._streaming import Stream
from furcate.orchestrator._telling import Listeners
from furcate.primitives._calls import CallLog
from furcate.primitives._checks import check_instance
from furcate.primitives._errors import MisuseError
from furcate.primitives._exchange import Exchange
from furcate.primitives._observations import Listener, checked_listeners
from furcate.primitives._request import Request
from furcate.primitives._resources import Backend, Profile, Prompt
from furcate.primitives._result import Result
from furcate.primitives._wire import Address
from furcate.transport import Transport, TransportName, make_transport


@define
class _State:
    """Hold what an engine sends with while it is open, and on which event loop that is."""

    transport: Transport | None = None
    loop: anyio.lowlevel.EventLoopToken | None = None


class Engine:
    """Run requests on configured backends, while its ``async with`` block lasts.

    An engine may be entered again after its block, on another event loop too. It keeps no conversation: whatever it
    captured is in the caller's hands.

    Arguments:
        backends: the endpoints.
        profiles: models on them.
        prompts: message templates.
        observers: told of every run of this engine.
        transport: the HTTP library to send with; None takes ``aiohttp`` on asyncio where the extra ``quick`` is
            installed, and ``httpx2`` elsewhere.

    Raises:
        ConfigError: something is wrong or names something that is not there; nothing was opened.
        TypeError: an observer is none.
    """

    def __init__(
        self,
        *,
        backends: Iterable[Backend],
        profiles: Iterable[Profile] = (),
        prompts: Iterable[Prompt] = (),
        observers: Iterable[Listener] = (),
        transport: TransportName | None = None,
    ) -> None:
        resources = check_resources(backends, profiles, prompts, where="Engine(...)", transport=transport)
        self._set_up(resources, observers)

    @classmethod
    def from_config(
        cls, path: str | Path, *, observers: Iterable[Listener] = (), beside: Collection[str] = ()
    ) -> Engine:
        """Make an engine from a TOML file, which is checked as a whole.

        Arguments:
            path: the file; relative paths in it are relative to it.
            observers: told of every run of this engine.
            beside: top-level keys of the file that belong to the application and are passed over.

        Raises:
            ConfigError: names file, table and key, what is wrong and what would be right.
        """
        engine = cls.__new__(cls)
        engine._set_up(load_config(path, beside=beside), observers)
        return engine

    def _set_up(self, resources: Resources, observers: Iterable[Listener]) -> None:
        self._resources = resources
        self._listeners = Listeners(checked_listeners(observers))
        self._health = {name: Health(backend, self._listeners) for name, backend in resources.backends.items()}
        self._servers: dict[str, Server] = {}
        self._addresses: dict[str, Callable[[], Awaitable[Address]]] = {}
        self._runtime_id = uuid4().hex
        self._share: Share | None = None
        self._calls: CallLog | None = None
        self._primer = Primer()
        # Shared with the engines that work with this one's means.
        self._state = _State()

    def _for_work(self, share: Share, calls: CallLog | None, observers: Iterable[Listener]) -> Engine:
        """Give an engine for one piece of work, which uses the means of this one as long as this one is open.

        Arguments:
            share: under which its requests wait.
            calls: where its answers are kept, and had again.
            observers: told of its runs, beside those of this engine.
        """
        engine = copy.copy(self)
        engine._listeners = self._listeners.with_ranks((), checked_listeners(observers))
        engine._share, engine._calls = share, calls
        return engine

    async def __aenter__(self) -> Engine:
        if self._state.transport is not None:
            raise MisuseError("this engine is open already; enter it once and share it between tasks")
        transport = make_transport(self._resources.transport)
        await transport.__aenter__()
        self._primer.forget()
        if any(_speaks_tls(backend) for backend in self._resources.backends.values()):
            transport.warm_up()
        self._state.loop = anyio.lowlevel.current_token()
        self._state.transport = transport
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transport, self._state.transport = self._state.transport, None
        servers = tuple(self._servers.values())
        self._servers.clear()
        try:
            if transport is not None:
                await transport.__aexit__(kind, error, trace)
        finally:
            with anyio.CancelScope(shield=True):
                for server in servers:
                    await server.aclose()

    async def run(self, request: Request) -> Result:
        """Execute a request and give its result; an answer that fails its contract is an ordinary result.

        Raises:
            RequestError: the request is wrong; nobody was called.
            BudgetExceededError: one of its budgets is used up; nothing was sent.
            ProviderError: no attempt gave a completed answer.

        Cancellation closes the connection and gives the place back; nothing of the answer is kept.
        """
        return await self._primer.complete(self._start(request, None))

    async def continue_from(self, exchange: Exchange, request: Request) -> Result:
        """Execute a request on top of a captured conversation; the result is captured.

        History goes first, then the request's own messages. No setting of the earlier execution is taken over.

        Raises:
            RequestError: the request is wrong, or leaves a tool call of the conversation unanswered.
            TypeError: the exchange is none.
            BudgetExceededError: one of its budgets is used up; nothing was sent.
            ProviderError: no attempt gave a completed answer; the exchange given still works.
        """
        check_instance("exchange", exchange, Exchange)
        return await self._primer.complete(self._start(request, exchange))

    def stream(self, request: Request, *, exchange: Exchange | None = None) -> Stream:
        """Execute a request and watch its answer: ``async with engine.stream(request) as stream``.

        Arguments:
            request: what to execute.
            exchange: the conversation to continue, if any.

        Raises:
            RequestError: the request is wrong; nobody was called.
        """
        return Stream(self._start(request, exchange, streamed=True))

    def prepare(self, request: Request, *, exchange: Exchange | None = None) -> Prepared:
        """Render and encode a request without calling anyone; run it later, once.

        Arguments:
            request: what to prepare.
            exchange: the conversation to continue, if any.

        Raises:
            RequestError: the request is wrong.
        """
        plan = make_plan(self._resources, request, exchange)
        encode_ahead(plan.call, plan, dialect_named(plan.backend.dialect))
        return Prepared(plan, lambda prepared: self._run_of(prepared).complete())

    def _start(
        self, request: Request, exchange: Exchange | None, *, scope_id: str | None = None, streamed: bool = False
    ) -> Run:
        plan = marked(make_plan(self._resources, request, exchange))
        return self._run_of(plan, scope_id=scope_id, streamed=streamed)

    def _run_of(self, plan: Plan, *, scope_id: str | None = None, streamed: bool = False) -> Run:
        transport = self._state.transport
        if transport is None:
            raise MisuseError("the engine is not open; use it inside 'async with engine:'")
        if anyio.lowlevel.current_token() != self._state.loop:
            raise MisuseError("the engine is open on another event loop; give each loop an engine of its own")
        means = Means(
            dialect=dialect_named(plan.backend.dialect),
            health=self._health[plan.backend.name],
            transport=transport,
            address=self._address_of(plan.backend),
            listeners=self._listeners.with_ranks(plan.request.groups, plan.request.observers),
            runtime_id=self._runtime_id,
            share=self._share,
            calls=self._calls,
        )
        return Run(plan, means, scope_id=scope_id, streamed=streamed)

    def _address_of(self, backend: Backend) -> Callable[[], Awaitable[Address]]:
        if backend.kind == "embedded":
            if backend.name not in self._servers:
                self._servers[backend.name] = embedded_server()
            return self._servers[backend.name].address
        if backend.name not in self._addresses:
            self._addresses[backend.name] = _fixed(
                Address(backend.base_url or dialect_named(backend.dialect).default_base_url)
            )
        return self._addresses[backend.name]

    def statistics(self) -> Mapping[str, AdmissionStatistics]:
        """Count places and waiters of every backend, and tell what holds them up, by the backend's name."""
        return {name: health.gate.statistics() for name, health in self._health.items()}

    @property
    def _is_heard(self) -> bool:
        """Whether anybody listens to the runs of this engine."""
        return self._listeners.heard

    def _gates(self) -> Mapping[str, Gate]:
        """Give the gates of those backends that other processes may use too, by the backend's name."""
        remote = (name for name, backend in self._resources.backends.items() if backend.kind == "remote")
        return {name: self._health[name].gate for name in remote}

    def inspect_prompt(self, name: str) -> Prompt:
        """Give a configured prompt.

        Raises:
            UnknownNameError: there is none of that name.
        """
        return named(self._resources.prompts, "prompt", name)

    def inspect_profile(self, name: str) -> Profile:
        """Give a configured profile.

        Raises:
            UnknownNameError: there is none of that name.
        """
        return named(self._resources.profiles, "profile", name)

    def inspect_backend(self, name: str) -> Backend:
        """Give a configured backend; its `repr` shows no key.

        Raises:
            UnknownNameError: there is none of that name.
        """
        return named(self._resources.backends, "backend", name)


def _fixed(address: Address) -> Callable[[], Awaitable[Address]]:
    async def look_up() -> Address:
        return address

    return look_up


def _speaks_tls(backend: Backend) -> bool:
    # The dialects' own addresses do; loading certificates for a server that needs none takes hundredths of a second.
    return backend.kind == "remote" and (backend.base_url is None or backend.base_url.lower().startswith("https:"))
