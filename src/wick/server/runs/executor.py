"""Execution of runs: each is an asyncio task with a hub for its events; its outcome is recorded at the end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, time
from typing import Any, TypeGuard, TypeVar

from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.constants import MODEL_CRASHES, RUN_CRASHES
from wick.errors import TEMPORARY, RunCrashed, StoreError, clear_tracebacks, public_text
from wick.events import Done, Failed
from wick.messages import Message
from wick.operations import Result, Run
from wick.protocols import ServerInfo, Store
from wick.resume import end_abandoned_run
from wick.server.agents.builder import AgentInstance
from wick.server.agents.registry import AgentRegistry
from wick.server.agents.templates import EVERYONE
from wick.server.auth.identity import User
from wick.server.errors import DAMAGED
from wick.server.live import LivePlane
from wick.server.ops.metrics import OTHER, Metrics
from wick.server.ops.redaction import RedactingEmitter, redact_entry
from wick.server.records import Records
from wick.server.runs.followers import HubDirectory
from wick.server.runs.hub import HubEnd, RunHub
from wick.server.runs.live_outlet import LiveOutlet
from wick.server.runs.record import KIND, RunInfo, derive_run_id, error_code
from wick.server.runs.thread_cache import CachedThread, ThreadCache
from wick.server.runs.titles import ThreadTitles
from wick.server.runs.usage import UsageAmount, UsageLedger, compute_prices
from wick.stores.held_thread import HeldThread, hold, release_lease
from wick.stores.process_identity import has_ended, holder_name, server_id
from wick.stores.rows import LEASE_SECONDS
from wick.threads import Thread

logger = logging.getLogger("wick.server")
run_logger = logging.getLogger("wick.server.runs")

START_PREFIX = "start:"  # prefix of the keys of starts in a run's record
RETRY_PAUSES = (0.1, 0.3, 1.0)  # seconds between retries after a temporary store error

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """Reads of a run after its thread was claimed. The lease is held since, so nothing of them changes."""

    row: Mapping[str, Any]  # the record of the run
    last: int  # entry of its thread
    alive: Collection[str] | None  # the live servers, if the store has a cluster


@dataclass(eq=False, slots=True)
class ActiveRun:
    """A run that this server performs."""

    user: User
    info: RunInfo
    hub: RunHub
    cached: CachedThread
    task: asyncio.Task[None] | None = None
    run: Run | None = None
    agent: Agent | None = None  # that performs it
    cancelled: bool = False  # by its user
    finished: bool = False  # it has ended, and its outcome is being recorded
    ended_in_log: bool = False  # it never started, and its end was written to the log
    lease_held: bool = False  # this server holds the lease of its thread
    stalled: bool = False  # temporary store error: the run stays open and is resumed later
    start: str = ""  # the key of this start in the run's record
    prepared: tuple[RunInfo, Mapping[str, UsageAmount]] | None = None  # its outcome and usage, to be saved with its end
    claimed: ClaimedRun | None = None  # if recovery has claimed its thread
    instance: AgentInstance | None = None  # the agent, if the request that started the run has looked it up
    requested_again: bool = False  # another request wanted to start a run of the thread meanwhile
    is_shared: bool = False  # its agent is one that everyone has, so that metrics may name it


@dataclass(frozen=True, slots=True)
class Stall:
    """A run that waits for its store to recover."""

    run: str
    since: float  # monotonic time
    reason: str


class RunExecutor:
    """Performs runs, at most one per thread at a time."""

    def __init__(
        self,
        store: Store,
        records: Records,
        registry: AgentRegistry,
        usage: UsageLedger,
        metrics: Metrics,
        board: HubDirectory,
        live: LivePlane | None = None,
    ) -> None:
        self.store, self.records, self.registry, self.usage = store, records, registry, usage
        self.metrics, self.board, self.live = metrics, board, live
        self.running: dict[tuple[str, str], ActiveRun] = {}
        self.thread_cache = ThreadCache()
        self.started = asyncio.Event()  # set when a run starts here
        self.stalls: dict[tuple[str, str], Stall] = {}  # by owner and thread
        self.capacity = 0  # runs at once; 0 for no limit
        self._is_stopping = False
        self.damage = ""  # error code of a damaged store
        self.titles = ThreadTitles(store, registry.secrets, usage, enabled=registry.settings.titles)
        self.cancelling: set[tuple[str, str]] = set()  # (owner, run id) of cancelled runs whose end is not written yet
        registry.sessions.on_held = self._on_lease_held
        metrics.runs_running.set_function(lambda: len(self.running))

    def record_damage(self, error: BaseException | None) -> None:
        """Record that the store is damaged, for `/health`, until the server restarts."""
        if isinstance(error, StoreError) and error.code in DAMAGED:
            self.damage = error.code

    def find(self, owner: str, thread: str) -> ActiveRun | None:
        """Return the run of a thread that this server performs."""
        return self.running.get((owner, thread))

    def count_free(self) -> int:
        """Return the number of runs that this server can still start."""
        return max(0, self.capacity - len(self.running)) if self.capacity else sys.maxsize

    def count_runs(self, owner: str) -> int:
        """Return the number of a user's runs that this server performs."""
        return sum(whose == owner for whose, _ in self.running)

    def start(
        self,
        user: User,
        info: RunInfo,
        then: Callable[[ActiveRun], Awaitable[None]],
        instance: AgentInstance | None = None,
        start: str = "",
        claimed: ClaimedRun | None = None,
    ) -> None:
        """Start or resume a run, unless its thread has one in progress; call `then` when it has ended.

        `start` is the key of this start, if the run's record was created with it. `claimed` is given by recovery.
        """
        key = info.owner, info.thread
        if key in self.running:
            self.running[key].requested_again = True
            return
        lease = self.registry.sessions.leases.get(key)
        cached = self.thread_cache.take(*key, lease)
        hub = RunHub(cached.thread, info.id, info.begin, partial(redact_entry, self.registry.secrets))
        running = ActiveRun(user, info, hub, cached, start=start, claimed=claimed, instance=instance)
        self.running[key] = running
        self.started.set()
        self.board.expect(info.owner, hub, is_leased=lease is not None)
        running.task = asyncio.create_task(self._execute(running, then), name=info.id)

    def _on_lease_held(self, run: Run) -> None:
        """Switch readers to the hub of a run whose lease is held: until then another server may perform it."""
        running = self.running.get((run.user, run.thread.id))
        if running is not None and running.run is run:
            running.lease_held = True
            self.board.publish(run.user, running.hub)
            held = run.thread.writer
            if isinstance(held, HeldThread):
                held.on_saved = running.hub.flush
                if self.records.joins_release:
                    held.prepare_release = partial(self._prepare_outcome, running)
            if self.live is not None and isinstance(held, HeldThread):
                running.hub.outlet = LiveOutlet(
                    self.live,
                    running.hub,
                    run.user,
                    held.lease.fence,
                    cancel=partial(self.cancel, running),
                    read_inbox=held.expect_inbox,
                )

    async def _execute(self, running: ActiveRun, then: Callable[[ActiveRun], Awaitable[None]]) -> None:
        """Perform a run to its end. The outcome is recorded first, then sent to readers once."""
        end: HubEnd = "ended"
        problem: Exception | None = None
        began = monotonic()
        try:
            await self._run(running)
            result = running.run.progress.result if running.run is not None else None
            if self._is_stopping and result is not None and result.outcome == "interrupted":
                end = "stopped"  # its readers get no end: another server, or this one after its restart, resumes it
        except asyncio.CancelledError:
            end = "ended" if running.cancelled else "stopped"
        except Exception as error:
            problem, end = error, "elsewhere" if self._is_elsewhere(running, error) else "ended"
        running.finished = True  # it can no longer be cancelled
        await self.release_unused_lease(running.info.owner, running.info.thread)
        if running.run is not None:
            running.hub.set_keeper(running.run.scratch.get(self.registry.sessions))
        if end == "ended":
            await self._record_outcome(running, problem)
            if run_logger.isEnabledFor(logging.INFO):
                _log_run(running, monotonic() - began)
        else:
            await self._clear_start(running)
        key = running.info.owner, running.info.thread
        before = self.stalls.pop(key, None)
        if running.stalled:
            since = before.since if before is not None and before.run == running.info.id else monotonic()
            self.stalls[key] = Stall(running.info.id, since, str(problem or running.info.reason))
        if end == "ended" and running.hub.thread.saved_log:  # else the store may have other entries
            self.thread_cache.put(running.cached)
        del self.running[running.info.owner, running.info.thread]
        running.hub.finish("elsewhere" if running.ended_in_log or running.stalled else end)
        self.board.remove(running.info.owner, running.hub)
        result = running.run.progress.result if running.run is not None else None
        if result is not None and running.agent is not None:
            self.titles.start(running.user, running.info, running.agent.model, result)
        clear_tracebacks(problem, *([result.error, *result.crashes] if result is not None else []))
        started = problem is None or running.ended_in_log or running.hub.has_started
        if not running.stalled and (end == "elsewhere" or (end == "ended" and started)):
            await then(running)

    def _is_elsewhere(self, running: ActiveRun, error: Exception) -> bool:
        """Return True if another process holds the thread or has ended the run. A hook may raise the same error."""
        if not isinstance(error, StoreError) or error.code not in ("conflict", "fenced", "over"):
            return False
        held = running.run.scratch.get(self.registry.sessions) if running.run is not None else None
        return not running.lease_held or error.code == "over" or (held is not None and held.failure is error)

    async def _run(self, running: ActiveRun) -> None:
        info, hub = running.info, running.hub
        if not running.start:
            await self._record_start(running)
        instance = running.instance or await self.registry.get_agent(running.user, info.agent)
        running.is_shared = instance.template.owner == EVERYONE
        emit = RedactingEmitter(self.registry.secrets, hub.emit, audience=hub)
        agent = await run_in_thread(lambda: instance.with_model(info.model), "agent") if info.model else instance.agent
        stream = agent.stream("", thread=hub.thread, user=info.owner, emit=emit, recipe=info.recipe)
        stream.run.id, running.run, running.agent = info.id, stream.run, agent
        await stream.finish()

    async def _record_start(self, running: ActiveRun) -> None:
        """Record that a run starts in this process; refuse one that crashed its server repeatedly at the same step.

        The start stays in the record until the run has ended, paused or been released. A crash leaves it there.
        Crashes count only while the run makes no progress, so that a server that is killed repeatedly from outside
        still completes its runs.
        """
        info, key, claimed = running.info, start_key(self.store), running.claimed
        if claimed is not None:
            row, alive = claimed.row, claimed.alive
        else:
            row = await self.records.get(KIND, info.owner, info.id) or {}
            alive = await self.find_live_servers() if row else None
        starts = {name.removeprefix(START_PREFIX): at for name, at in row.items() if name.startswith(START_PREFIX)}
        crashed = [at[1] for holder, at in starts.items() if at and _is_crash(holder, float(at[0]), alive)]
        reached, in_tool = 0, False  # the last message, finished tool or answer; whether a tool was started since
        if crashed:
            # with their number, no second read finds that there are no more
            limit = claimed.last - info.begin if claimed is not None else None
            async for batch in self.store.read(info.owner, info.thread, after=info.begin, limit=limit):
                for entry in batch:
                    if entry["kind"] in ("message", "done", "answered"):
                        reached, in_tool = entry["seq"], False
                    elif entry["kind"] == "intent":
                        in_tool = True
        deaths = crashed.count(reached) + any(place < reached for place in crashed)  # those before count as one
        if deaths >= (RUN_CRASHES if in_tool else MODEL_CRASHES):
            raise RunCrashed(
                f"the server ended {deaths} times at the same step of this run, so the run is not resumed; "
                "send another message to continue the thread"
            )
        start = {key: [time(), reached]}
        if not row or not await self.records.replace(KIND, info.owner, info.id, row, {**row, **start}):
            await self.records.add(KIND, info.owner, info.id, {}, {**({} if row else info.to_json()), **start})
        running.start = key

    async def find_live_servers(self) -> Collection[str] | None:
        """Return the ids of the live servers, or None if the store has no cluster."""
        if not hasattr(self.store, "servers"):
            return None
        servers: Sequence[ServerInfo] = await self.store.servers(alive_only=True)
        return {server.id for server in servers}

    async def _clear_start(self, running: ActiveRun) -> None:
        """Remove the start of this process from the record: it did not crash."""
        if running.start:
            try:
                await self.records.add(KIND, running.info.owner, running.info.id, {}, {running.start: 0})
            except Exception as error:  # the run is resumed elsewhere nevertheless
                logger.warning("the start of run %s could not be cleared: %s", running.info.id, error)

    async def _prepare_outcome(self, running: ActiveRun) -> Callable[[Any], Any] | None:
        """Return the write of the outcome of a run for the transaction that saves its end; None if it has failed."""
        result = running.run.progress.result if running.run is not None else None
        if result is None or result.outcome not in ("completed", "stopped"):
            return None
        try:
            info = await self._describe_outcome(running, result)
            spent, sums = await self.usage.prepare(running.user, info.agent, result, run=info.id, begin=info.begin)
        except Exception:  # it is tried again after the end of the run
            logger.exception("the outcome of run %s could not be prepared", running.info.id)
            return None
        running.prepared = info, spent
        return lambda transaction: self.records.put_in(transaction, KIND, info.owner, info.id, info.to_json(), sums)

    async def _describe_outcome(self, running: ActiveRun, result: Result) -> RunInfo:
        """Return the record of a run with this result."""
        price = await compute_prices(lambda: result.price, result.charges) if result.charges else None
        return running.info.with_result(
            result, None if price is None else float(price), self.registry.secrets.redact_json
        )

    async def _record_outcome(self, running: ActiveRun, problem: Exception | None) -> None:
        """Record the outcome of a run. A failure is logged, and readers still get the end."""
        keeper = running.hub.keeper
        is_recorded = keeper is not None and keeper.has_also_written
        try:
            result = await self._resolve_result(running, problem)
            if is_recorded and problem is None and running.prepared is not None:
                running.info, spent = running.prepared
                running.hub.outcome = running.info
                self._count_usage(running, result, spent)
                return
            noted = running.info = await self._describe_outcome(running, result)
            if result.outcome == "interrupted":  # keeps the earlier crashes for its resume
                fields = {**noted.to_json(), **({running.start: 0} if running.start else {})}
                await retry_store(lambda: self.records.add(KIND, noted.owner, noted.id, {}, fields))
                spent = await self.usage.record(
                    running.user, noted.agent, result, run=noted.id, begin=noted.begin, ended=not running.stalled
                )
            else:
                spent, sums = await self.usage.prepare(
                    running.user, noted.agent, result, run=noted.id, begin=noted.begin
                )
                row, sums = noted.to_json(), [] if is_recorded else sums
                await retry_store(lambda: self.records.put(KIND, noted.owner, noted.id, row, sums=sums))
                running.hub.outcome = noted
            self._count_usage(running, result, spent)
        except Exception:
            logger.exception("the outcome of run %s could not be recorded", running.info.id)

    def _count_usage(self, running: ActiveRun, result: Result, spent: Mapping[str, UsageAmount]) -> None:
        for model, used in spent.items():
            if used.questions:  # else the run has no model call
                tokens = {"input": used.input_tokens, "output": used.output_tokens}
                names = (running.info.agent, model) if running.is_shared else (OTHER, OTHER)
                self.metrics.count_usage(*names, tokens, used.cost)
        if not running.stalled:
            self.metrics.runs.labels(result.outcome).inc()

    async def _resolve_result(self, running: ActiveRun, problem: Exception | None) -> Result:
        """Return the result of a run. Write the end of one that failed or was cancelled before it started."""
        result = running.run.progress.result if running.run is not None else None
        if result is None:
            result = CANCELLED if problem is None else Result(outcome="failed", reason="error", error=problem)
        if problem is not None:
            logger.warning("run %s failed: %s", running.info.id, problem)
            self.record_damage(problem)
            if _is_temporary(problem) and (running.hub.is_open or not running.hub.has_started):
                return self._mark_stalled(running, result, problem)
            code, message = error_code(problem), public_text(problem)
            failed = Failed(running.info.id, thread_id=running.info.thread, code=code, message=message)
            RedactingEmitter(self.registry.secrets, running.hub.emit)(failed)
            if running.hub.is_open:  # it may be resumed
                return _report_left_open(running, result, problem)
        unended = not running.hub.has_started or (running.cancelled and running.hub.is_open)  # according to the log
        if unended and (running.cancelled or problem is not None):
            try:
                running.ended_in_log = await self.end_abandoned(running.info, result)
            except StoreError as error:  # the messages are still in the inbox
                if _is_temporary(error) or error.code in ("conflict", "fenced"):
                    return self._mark_stalled(running, result, error)
                self.record_damage(error)
        return result

    def _mark_stalled(self, running: ActiveRun, result: Result, problem: StoreError) -> Result:
        """Leave a run open after a temporary store error. Readers get no end, since it has none."""
        running.stalled = True
        if running.cancelled:
            self.cancelling.add((running.info.owner, running.info.id))
        return replace(result, outcome="interrupted", reason=STALLED, error=None)

    async def end_abandoned(self, info: RunInfo, result: Result) -> bool:
        """Write the end of a run that no server performs; return False if there was nothing to end."""
        thread, lease = Thread(info.thread), self.registry.sessions.leases.pop((info.owner, info.thread), None)
        async with hold(self.store, info.owner, thread, wait=False, lease=lease) as held:
            messages: Sequence[Message] = ()
            if thread.open_run is None:  # if the first pending message is for this run, the run has not ended
                head = held.lease.head or await self.store.head(info.owner, info.thread)
                first = next((row.position for row in await held.fetch_inbox() if row.kind == "message"), None)
                if first is not None and derive_run_id(head, first) == info.id:
                    messages = await held.fetch_messages()
            is_open = thread.open_run is not None and thread.open_run["run"] == info.id
            if is_open or messages:
                error = None if result.error is None else (error_code(result.error), public_text(result.error))
                end_abandoned_run(thread, info.id, messages, result.outcome, result.reason, error)
                await thread.saved()
            return is_open or bool(messages)

    async def release_unused_lease(self, owner: str, thread: str) -> None:
        """Release the lease of a new thread, if its run did not take it."""
        lease = self.registry.sessions.leases.pop((owner, thread), None)
        if lease is not None:
            await release_lease(self.store, owner, thread, lease.fence)

    def cancel(self, running: ActiveRun) -> None:
        """Cancel a run for its user."""
        if not running.finished and running.task is not None:
            running.cancelled = True
            running.task.cancel()

    async def stop(self, grace: float) -> None:
        """Wait `grace` seconds for runs to end, then release the others so that they can be resumed.

        A run that only waits for an answer pauses at once.
        """
        self._is_stopping, self.registry.sessions.patience = True, 0.0
        for running in self.running.values():
            held = running.run.thread.writer if running.run is not None else None
            if isinstance(held, HeldThread):
                held.stop_waiting()
        if (tasks := self._tasks()) and grace:
            await asyncio.wait(tasks, timeout=grace)
        for running in self.running.values():
            if not running.finished and running.task is not None:
                if running.run is not None:
                    running.run.progress.resumption.released = True
                running.task.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks)
        await self.titles.stop()

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [running.task for running in self.running.values() if running.task is not None]


def _log_run(running: ActiveRun, seconds: float) -> None:
    """Log the outcome of a run, without texts of the user or of the model."""
    info = running.info
    steps = running.run.progress.step if running.run is not None else 0
    tokens = sum((info.usage or {}).get(name, 0) for name in ("input_tokens", "output_tokens"))
    counts = f"{steps} step{'' if steps == 1 else 's'}, {tokens} tokens, {seconds * 1000:.0f} ms"
    run_logger.info("%s of thread %s, agent %s: %s, %s", info.id, info.thread, info.agent, info.outcome, counts)


def start_key(store: Store) -> str:
    """Return the key of the starts of this process in the record of a run."""
    return f"{START_PREFIX}{holder_name(getattr(store, 'server_id', ''))}"


def _is_crash(holder: str, started: float, alive: Collection[str] | None) -> bool:
    """Return True if a start belongs to a crashed process.

    On another machine, a missing heartbeat of its server shows that. Without a cluster, the lapse of its lease does.
    """
    if has_ended(holder):
        return True
    server = server_id(holder)
    return server not in alive if server and alive is not None else time() - started > LEASE_SECONDS


CANCELLED = Result(outcome="cancelled", reason="user requested")
STALLED = "the store cannot be written now; the run continues when it can"


async def retry_store(work: Callable[[], Awaitable[T]]) -> T:
    """Run work on the store, and retry it a few times after temporary errors."""
    for pause in RETRY_PAUSES:
        try:
            return await work()
        except StoreError as error:
            if error.code not in TEMPORARY:
                raise
        await asyncio.sleep(pause)
    return await work()


def _is_temporary(error: Exception) -> TypeGuard[StoreError]:
    """Return True for a temporary store error: the stored data is unchanged."""
    return isinstance(error, StoreError) and error.code in TEMPORARY


def _report_left_open(running: ActiveRun, result: Result, problem: Exception) -> Result:
    """Send `done` with the outcome `interrupted` for a run that may be resumed: it has no final end yet."""
    words = public_text(problem)
    running.hub.emit(Done(running.info.id, thread_id=running.info.thread, outcome="interrupted", reason=words))
    return replace(result, outcome="interrupted", reason=words, error=None)
