"""The service behind the routes: stores, users, agents and runs, with their start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, cast

from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.backends.sandbox.selection import explain_unavailable
from wick.backends.state import State
from wick.errors import StoreError, WickError
from wick.prices import price
from wick.protocols import Protection, Store, Usage
from wick.server.agents.builder import import_http_client
from wick.server.agents.default_agent import EMBEDDED
from wick.server.agents.locality import find_snapshots
from wick.server.agents.registry import AgentRegistry
from wick.server.agents.terminal_sessions import TerminalSessions
from wick.server.auth.browser_sessions import BrowserSessions
from wick.server.auth.forwards import ForwardSigner
from wick.server.auth.identity import LOCAL_USER, User
from wick.server.auth.issued_tokens import IssuedTokens
from wick.server.auth.middleware import Authenticator
from wick.server.auth.shares import Shares
from wick.server.auth.tickets import Tickets
from wick.server.auth.tokens import TokenVerifier
from wick.server.auth.users import Users
from wick.server.errors import ApiError
from wick.server.live.selection import open_live
from wick.server.ops.event_bus import EventBus
from wick.server.ops.file_changes import FileChanges
from wick.server.ops.metrics import Metrics
from wick.server.ops.process_stats import LoopMonitor
from wick.server.ops.publishing_store import PublishingStore
from wick.server.ops.quotas import QuotaLimiter
from wick.server.ops.readiness import StoreProbe
from wick.server.ops.redaction import RedactingStore, Secrets, known_secrets
from wick.server.ops.shared_rate import RateRecords
from wick.server.ops.worker_metrics import WorkerMetrics
from wick.server.records import Records
from wick.server.records.sqlite import SqliteRecords
from wick.server.runs import Runs
from wick.server.runs.record import KIND
from wick.server.runs.recovery import RunRecovery
from wick.server.runs.thread_loading import ThreadLoader
from wick.server.runs.thread_retention import ThreadExpiry
from wick.server.runs.usage import UsageLedger
from wick.server.settings import MEMORY, Settings, url_host
from wick.server.static_files import page_folder
from wick.stores.in_memory import TTL_SECONDS, InMemory
from wick.stores.registry import find_scheme, open_plugin_store
from wick.stores.sqlite import Sqlite
from wick.tools import Tool

logger = logging.getLogger("wick.server")

CLUSTER = "cluster"  # kind of records
DATABASE, OLD_RECORDS = "threads.db", "server.db"  # in the data folder; earlier versions had a file of records
PROBED_ADDRESS = "192.0.2.1"  # of a network for documentation: nothing is there
SAVE_SECONDS = 1.0  # after a change by a user, before the snapshot of a workspace


class ClosableSession(Protocol):
    """An HTTP client with open connections."""

    async def close(self) -> None: ...


class Service:
    """All components of a server. It belongs to one event loop, and is used from `start` to `stop`."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings, self.clock = settings, clock
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = store or open_store(settings)
        self.records: Records = open_records(settings, opened)
        self.metrics = Metrics()
        rates = self.records if settings.on_postgres else None
        self.limits = QuotaLimiter(settings.quotas, records=cast(RateRecords | None, rates))
        self.terminals = TerminalSessions()
        self.files = asyncio.Lock()  # allows one large file in memory at a time
        self.users = Users(self.records)
        self.tickets = Tickets(self.records, clock)
        self.issued_tokens = IssuedTokens(self.records)
        self.shares = Shares(self.records, clock)
        verifier = TokenVerifier(settings, self.users, self.issued_tokens)
        self.secrets = Secrets(known_secrets(settings, verifier.local_token))
        self.bus = EventBus()
        self.file_changes = FileChanges(self.bus)
        redacting = cast(Store, RedactingStore(opened, self.secrets))
        self.store = cast(Store, PublishingStore(redacting, self.bus))
        self.thread_loader = ThreadLoader(self.store)
        self.authenticator = Authenticator(verifier, BrowserSessions(self.records, clock), self.tickets)
        self.forwards = ForwardSigner(clock)
        self.forward_session: ClosableSession | None = None
        self.live = open_live(settings)
        self.usage = UsageLedger(self.records)
        self.registry = AgentRegistry(settings, self.records, self.store, self.bus, self.secrets)
        for tool in tools:
            self.registry.register_tool(tool)
        for id, agent in (agents or ({} if settings.config else EMBEDDED)).items():
            self.registry.register_agent(id, agent)
        self._saves: dict[tuple[str, str], asyncio.Task[None]] = {}  # snapshots of workspaces that users have changed
        self.runs = Runs(self.store, self.records, self.registry, self.usage, self.limits, self.metrics, self.live)
        self.runs.executor.capacity = settings.capacity
        self._recovery = RunRecovery(self.runs)
        self._expiry = ThreadExpiry(self.runs.threads, settings.retention.threads)
        self.loop_monitor = LoopMonitor(self.metrics)
        self._probe = StoreProbe(lambda: self.records.get(KIND, "", "probe"))
        self._started = False
        self.workers: tuple[str, int] | None = None  # the name and the number of the worker processes, if it is one
        self._worker_metrics: WorkerMetrics | None = None
        self._drain: asyncio.Task[None] | None = None
        self.metrics.agents.set_function(self.agent_count)
        self.metrics.live_connected.set_function(lambda: float(not self.live.problem))
        self.limits.count_servers = lambda: int(getattr(self.store, "servers_alive", 1))
        self.metrics.servers_alive.set_function(self.limits.count_servers)
        self.metrics.instances.set_function(self.registry.count_instances)
        self.metrics.terminals_open.set_function(lambda: self.limits.count_all("terminals"))

    @property
    def static(self) -> Path:
        """The folder of the web interface."""
        return page_folder(self.settings.static)

    def agent_count(self) -> int:
        return len(self.registry)

    async def describe(self) -> list[tuple[str, str]]:
        """Return the labeled lines of the startup message: agents, data folder, model, protection, problems."""
        ids = await self.registry.list_ids(LOCAL_USER)
        lines = [("agents", ", ".join(ids)), ("data", str(self.settings.data.absolute()))]
        if "default" in ids or len(ids) == 1:
            shown = "default" if "default" in ids else ids[0]
            try:
                instance = await self.registry.get_agent(LOCAL_USER, shown)
                model = await run_in_thread(lambda: instance.agent.model, "finding a model")
            except Exception as error:  # requests to this agent get the same error; other agents work
                lines.append(("trouble", f"the agent {shown!r} cannot be created: {error}"))
            else:
                lines.append(("model", getattr(model, "why", "") or str(getattr(model, "name", shown))))
                if (backend := instance.backend) is not None:
                    kind = type(backend)
                    lines += await run_in_thread(
                        lambda: describe_protection(backend.protection, kind), "finding a sandbox"
                    )
        elif any(template.has_auto_model for template in await self.registry.list_templates(LOCAL_USER)):
            lines.append(("model", await run_in_thread(describe_auto, "finding a model")))
        if self.live.is_shared:
            lines.append(("live", f"{self.live.name}: {self.live.problem or 'connected'}"))
        problems = await self.registry.find_problems(LOCAL_USER)
        return lines + [
            ("trouble", f"the agent {id!r} cannot be used: {problem}")
            for id, problem in problems.items()
            if not any(about == "trouble" and repr(id) in what for about, what in lines)
        ]

    def check_health(self) -> None:
        """Raise a 503 if the store is damaged or cannot be read."""
        if problem := self.runs.executor.damage or self._recovery.problem:
            raise ApiError(503, problem, "the server's database does not work; its log has more", {"Retry-After": "5"})

    async def render_metrics(self) -> str:
        """Return the metrics of this server, or of all worker processes if it is one of them."""
        return self.metrics.render() if self._worker_metrics is None else await self._worker_metrics.render()

    @property
    def draining(self) -> bool:
        """Return True once the server drains: it takes no new runs, and load balancers should leave it out."""
        return self._drain is not None

    async def check_ready(self) -> None:
        """Raise a 503 if load balancers should send requests elsewhere: draining, not started, or no store."""
        if self.draining:
            raise ApiError(503, "draining", "the server drains; send requests to another one", {"Retry-After": "5"})
        self.check_health()
        problem = "starting" if not self._started else await self._probe.find_problem()
        if problem:
            raise ApiError(503, problem, "the server is not ready; its log has more", {"Retry-After": "1"})

    async def start(self, port: int = 0) -> None:
        """Check the stores, start all components, and resume the runs that were open when the server stopped.

        Raise a StoreError if a database cannot be used. The server waits for one that is only locked. `port` is the one
        that the server listens on, if the settings do not name it.
        """
        for place in (self.store, self.records):
            await check_store(place)
        if isinstance(self.records, SqliteRecords):
            await self.records.import_file(self.settings.data / OLD_RECORDS)
        if self.live.is_shared:
            await self.live.start(self.settings.live_cluster or await load_cluster_name(self.records))
            self.bus.connect(self.live)
            if self.workers is not None:
                self._worker_metrics = WorkerMetrics(self.metrics, self.live, *self.workers)
        await self.registry.start()
        if (join := getattr(self.store, "join", None)) is not None:
            await run_in_thread(load_run_modules, "loading modules")
            await join(
                version("wick-agent"),
                self.settings.capacity,
                lambda: len(self.runs.executor.running),
                lambda: self.runs.stopping or not self._recovery.is_claiming,
                place=self.registry.locality.place,
                address=self.settings.advertise or find_address(self.settings.host, self.settings.port or port),
            )
            secret = self.settings.cluster_secret or self.settings.token or await load_secret(self.records)
            self.forwards.start(secret, self.registry.locality.place)
        self._recovery.start()
        self._expiry.start()
        self.loop_monitor.start()
        self._started = True

    def start_drain(self) -> asyncio.Task[None]:
        """Start to drain, and return the task that ends when no run is left here. It cannot be undone."""
        if self._drain is None:
            self._drain = asyncio.create_task(self._drain_runs(), name="draining")
        return self._drain

    async def _drain_runs(self) -> None:
        """Refuse new runs and wait for the others to end. After the grace period, release them to be resumed.

        Before that the server is not ready for `drain_delay` seconds, and still takes runs: a load balancer notices
        in that time.
        """
        if self._started and self.settings.drain_delay:
            await asyncio.sleep(self.settings.drain_delay)
        await asyncio.gather(*self._saves.values())  # before others learn that workspaces may move
        self.bus.close()
        await self._recovery.stop()
        await self._expiry.stop()
        await self.runs.stop(self.settings.grace)

    def save_workspace(self, user: User, agent: str) -> None:
        """Take a snapshot of a workspace that a user has changed, soon: further changes of that time share it."""

        async def save() -> None:
            await asyncio.sleep(0 if self.draining else SAVE_SECONDS)
            del self._saves[user.id, agent]
            try:
                await self.save_workspace_now(user, agent)
            except (ApiError, WickError) as error:
                logger.warning("the workspace of %s has no snapshot of the last changes: %s", agent, error)

        if (user.id, agent) not in self._saves:
            self._saves[user.id, agent] = asyncio.create_task(save(), name="saving a workspace")

    async def save_workspace_now(self, user: User, agent: str) -> bool:
        """Take a snapshot of a workspace if its agent does so; return False if the workspace is at another place."""
        locality, instance = self.registry.locality, await self.registry.get_agent(user, agent)
        with instance.hold():
            if (snapshots := find_snapshots(instance.agent.hooks)) is not None:
                return await locality.record_snapshot(user.id, agent, snapshots)
        return await locality.record_change(user.id, agent)

    async def drain(self) -> None:
        """Drain, and wait until no run is left here."""
        await self.start_drain()

    async def stop(self) -> None:
        """Drain, and close all components."""
        await self.drain()
        self.loop_monitor.stop()
        await self.terminals.close_all()
        await asyncio.gather(*self._saves.values(), return_exceptions=True)
        if self.forward_session is not None:
            await self.forward_session.close()
        await self.registry.stop()
        await self.live.close()
        await self.authenticator.verifier.close()
        if (leave := getattr(self.store, "leave", None)) is not None:
            await leave()
        await self.store.close()
        await self.records.close()


def load_run_modules() -> None:
    """Import the modules and the price list of runs: the first claim may bring a hundred runs of a dead server."""
    import_http_client()
    price("openai:gpt-4o", Usage(input_tokens=1))


def describe_auto() -> str:
    """Return the model that `auto` selects with the reason, or why no model is available."""
    try:
        return f"auto: {getattr(Agent('auto').model, 'why', '')}"
    except WickError as error:
        return f"auto: {error}"


def describe_protection(protection: Protection, kind: type = State) -> list[tuple[str, str]]:
    """Return the lines on the sandbox of commands, with a note about a stronger one, or about a class of a plugin."""
    lines = [("protection", protection.says)]
    if not kind.__module__.startswith("wick."):
        name = f"{kind.__module__}.{kind.__qualname__}"
        lines.append(("note", f"this is the statement of {name}, which is not part of wick; wick does not check it"))
    if protection.by == "landlock" and (reason := explain_unavailable("bubblewrap")):
        lines.append(("note", f"bubblewrap confines commands better: {reason}"))
    return lines


async def check_store(place: Any) -> None:
    """Raise a StoreError if a database cannot be used; log a temporary problem."""
    check = getattr(place, "check", None)  # an in-memory store has nothing to check
    try:
        if check is not None:
            await check()
    except StoreError as error:
        if error.code not in ("locked", "full", "read_only"):
            raise
        logger.warning("the server starts, and waits for its database: %s", error)


async def load_secret(records: Records) -> str:
    """Return the secret of the servers of one database. The first server creates it."""
    await records.put(CLUSTER, "", "secret", {"secret": token_hex(32)}, new=True)
    return str((await records.get(CLUSTER, "", "secret") or {}).get("secret", ""))


def find_address(host: str, port: int) -> str:
    """Return the address at which other servers reach this one: the one it listens on, or that of its network."""
    if host in ("0.0.0.0", "::", ""):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((PROBED_ADDRESS, 9))  # selects the interface, and sends nothing
                host = probe.getsockname()[0]
        except OSError:  # without a route to other networks
            host = socket.gethostname()
    return f"http://{url_host(host)}:{port}"


async def load_cluster_name(records: Records) -> str:
    """Return the name that the servers of one database share. The first server creates it."""
    await records.put(CLUSTER, "", "name", {"name": token_hex(8)}, new=True)
    return str((await records.get(CLUSTER, "", "name") or {}).get("name", ""))


def open_records(settings: Settings, store: Store) -> Records:
    """Return the records of these settings: in the database of the threads, or in a file in the data folder."""
    if settings.on_postgres:
        from wick.server.records.postgres import PostgresRecords

        return PostgresRecords(settings.store, schema=settings.store_schema, joins_store=True)
    if isinstance(store, Sqlite):
        joins = all("also" in signature(method).parameters for method in (store.lease, store.release))
        return SqliteRecords(store, joins_store=joins)
    return SqliteRecords(Sqlite(settings.data / DATABASE))


def open_store(settings: Settings) -> Store:
    if settings.on_postgres:
        from wick.stores.postgres import Postgres

        return Postgres(settings.store, schema=settings.store_schema)
    if settings.store == MEMORY:
        return InMemory(ttl=settings.retention.threads or TTL_SECONDS)
    if find_scheme(settings.store):
        return open_plugin_store(settings.store)
    return Sqlite(settings.data / DATABASE)
