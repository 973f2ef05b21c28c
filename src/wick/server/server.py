"""The server as an object of a program: register agents and tools, then start it.

    Server(port=8000).register_agent("default", {"model": "sonnet"}).register_tool(add).start()

`start` blocks until the server stops; `app()` returns the ASGI app for another server.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Literal, TypedDict, Unpack, cast

import uvicorn
from starlette.types import ASGIApp

from wick.agent import Agent
from wick.constants import SECRET_CHARS
from wick.errors import ConfigError
from wick.protocols import Store
from wick.server.app import create_app
from wick.server.auth.identity import User
from wick.server.ops.files_limit import raise_files_limit
from wick.server.ops.redaction import named_secrets, redact_logs, weak_names
from wick.server.service import Service
from wick.server.settings import Settings, load_settings
from wick.server.startup_message import hide_auto_choices, startup_lines
from wick.server.uvicorn_protocol import DatedServerState, HttpProtocol, WebSocketProtocol
from wick.tools import Tool, tool

CLOSE_SECONDS = 5  # for connections to close when the server stops
BACKLOG = 4096
LINGER_SECONDS = 1.0  # for requests on connections that a worker has accepted before it drains
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of mallopt, in malloc.h
LARGE_BLOCK, ARENAS = 262_144, 2  # larger blocks get their own pages; number of heaps for the rest
GC_THRESHOLDS = (5_000, 5, 100)  # of the three generations of the garbage collector
SWITCH_SECONDS = 0.0002  # after which a busy Python thread gives the GIL to the event loop


_print_line = partial(print, flush=True)  # a user may read the sign-in link from a file


class ServerOptions(TypedDict, total=False):
    """The settings of a server as keyword arguments."""

    host: str
    port: int
    data: str | os.PathLike[str]
    config: str | os.PathLike[str] | None
    token: str
    tokens: Sequence[Mapping[str, str]]
    gateway: str
    jwt: Mapping[str, Any]
    cors_origins: Sequence[str]
    hosts: Sequence[str]
    allow_system_messages: bool
    store: str | Store
    store_schema: str
    capacity: int
    live: str
    live_credentials: str | os.PathLike[str] | None
    live_ca: str | os.PathLike[str] | None
    live_cluster: str
    advertise: str
    cluster_secret: str
    quotas: Mapping[str, float]
    retention: Mapping[str, str]
    snapshots: str | os.PathLike[str] | None
    encryption_key: str
    models: Sequence[str]
    agent_editors: Literal["user", "operator", "admin"]
    shares: bool
    titles: bool
    enforced: Mapping[str, Any]
    static: str | os.PathLike[str] | None
    answer_within: float
    grace: float
    drain_delay: float


class Server:
    """wick's server. Other settings come from the environment and from `server.yaml` in the data folder."""

    def __init__(
        self, settings: Settings | str | os.PathLike[str] | None = None, **options: Unpack[ServerOptions]
    ) -> None:
        store = options.get("store")
        self._store = None if store is None or isinstance(store, str) else _check_store(store)
        if isinstance(settings, Settings):
            self.settings = settings
        else:
            named = {key: value for key, value in options.items() if key != "store" or self._store is None}
            self.settings = load_settings(named, file=None if settings is None else Path(settings))
        self._agents: dict[str, Any] = {}
        self._tools: list[Tool] = []
        self._running: _Uvicorn | None = None
        self._app: ASGIApp | None = None

    def register_agent(self, id: str, agent: Mapping[str, Any] | Agent | Callable[[User], Agent]) -> Server:
        """Register an agent: options as in agents.yaml, an Agent, or a function that creates one for a user."""
        self._check_not_started()
        self._agents[id] = agent
        return self

    def register_tool(self, given: Tool | Callable[..., object]) -> Server:
        """Register a tool, which agents can name in their `tools`."""
        self._check_not_started()
        self._tools.append(given if isinstance(given, Tool) else tool(given))
        return self

    def app(self) -> ASGIApp:
        """Return the server as an ASGI app. Its lifespan starts and stops the service."""
        if self._app is None:
            self._app = create_app(self.service)
        return self._app

    @cached_property
    def service(self) -> Service:
        """The service behind the app, for programs that start and stop it themselves."""
        return Service(self.settings, agents=self._agents, tools=self._tools, store=self._store)

    def start(self, *, tell: Callable[[str], None] | None = _print_line, listener: socket.socket | None = None) -> None:
        """Serve until a signal or `shutdown`. Call `tell` with each line of the startup message.

        `listener` is a listening socket that other processes serve, too.
        """
        with suppress(OSError, AttributeError):  # another C library has no mallopt
            library = ctypes.CDLL(None)
            library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)  # return freed large blocks to the system at once
            library.mallopt(M_ARENA_MAX, ARENAS)
        self.app()
        factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        with suppress(ImportError):  # uvloop is not on Windows
            import uvloop

            factory = uvloop.new_event_loop
        with (
            asyncio.Runner(loop_factory=factory) as runner,
            _rare_garbage_collection(),
            _short_switch_interval(),
        ):
            runner.run(self.serve(tell=tell, listener=listener))

    async def serve(self, *, tell: Callable[[str], None] | None = None, listener: socket.socket | None = None) -> None:
        """Serve in the running event loop."""
        notes, app = raise_files_limit(), self.app()
        if weak := weak_names(named_secrets(self.settings)):  # not redacted, since redaction would help to guess them
            names = ", ".join(weak)
            notes.append(f"weak secrets, shown if a tool prints them: {names}; use {SECRET_CHARS} characters or more")
        bound = listener or bind_socket(self.settings.host, self.settings.port)
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws=WebSocketProtocol,
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            ws_max_size=1_000_000,
            ws_per_message_deflate=False,
        )
        redact_logs(self.service.secrets)  # after uvicorn has created its log handlers
        self._running = _Uvicorn(config, self.service, tell, notes, is_worker=listener is not None)
        try:
            await self.service.start(bound.getsockname()[1])
            with nullcontext() if tell is None else hide_auto_choices():
                await self._running.serve(sockets=[bound])
        finally:
            self._running = None
            bound.close()
            await self.service.stop()

    def shutdown(self) -> None:
        """Stop a running server, as a signal would. This method is thread-safe."""
        if self._running is not None:
            self._running.should_exit = True

    def _check_not_started(self) -> None:
        if self._app is not None:
            raise ConfigError("register agents and tools before the server is started")


def _check_store(given: object) -> Store:
    """Return a store object; raise a ConfigError if it is not a store, or if servers share it by its address."""
    methods = ("create", "append", "read", "lease", "enqueue", "answer", "watch")
    if not all(callable(getattr(given, method, None)) for method in methods):
        known = "'sqlite', 'memory', an address such as 'postgresql://…', or a Store"
        raise ConfigError(f"store= takes {known}, not {given!r}")
    if type(given).__module__ == "wick.stores.postgres":
        raise ConfigError(
            "a server on Postgres also has its users and records there: give it the address, "
            "store='postgresql://…', and store_schema=… in place of a Postgres object"
        )
    return cast(Store, given)


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that prints the startup message, and drains runs before it closes connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        tell: Callable[[str], None] | None,
        notes: list[str],
        *,
        is_worker: bool,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # before `should_exit` is set
        self._exit = asyncio.Event()
        super().__init__(config)
        self.server_state: DatedServerState = DatedServerState()
        self._service, self._tell, self._notes, self._is_worker = service, tell, notes, is_worker

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        """Stop the server. Signal handlers and other threads set this, too."""
        self._should_exit = value
        if value and self._loop is not None:
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._exit.set)

    async def main_loop(self) -> None:
        """Wait until the server stops. uvicorn's own loop wakes the process ten times a second."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._exit.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM without raising the signal again, so that the exit code is 0."""
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._tell is not None:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            for line in await startup_lines(self._service, host, port, self._notes):
                self._tell(line)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.is_draining = True
        if self._is_worker:  # the other workers accept new connections
            for server in self.servers:
                server.close()
            await asyncio.sleep(LINGER_SECONDS)
            for connection in [*self.server_state.connections]:
                if isinstance(connection, HttpProtocol):  # a terminal stays open until the server ends
                    connection.shutdown()
        await self._service.drain()
        await super().shutdown(sockets)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise a ConfigError if the address is in use or unknown."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"there is no address {host!r} on this machine: {error.strerror or error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        taken = error.errno == errno.EADDRINUSE
        why = "another program listens there; choose another --port" if taken else error.strerror or str(error)
        raise ConfigError(f"the server cannot listen on {host}:{port}: {why}") from None
    bound.setblocking(False)
    return bound


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector less often: with thousands of runs, a full collection blocks the event loop.

    Objects from before the first request are frozen, so that they are never scanned.
    """
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Shorten the GIL switch interval, so that worker threads delay the event loop less."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
