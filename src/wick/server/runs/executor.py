"""The runs that go on here: each is a task of the server, with a hub that tells what it says; its end is noted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import Any, TypeGuard, TypeVar

from wick import run_log
from wick._internal.worker_threads import in_thread
from wick.constants import MODEL_CRASHES, RUN_CRASHES
from wick.errors import TEMPORARY, RunCrashed, StoreError, forget, public_text
from wick.events import Done, Failed
from wick.operations import Result, Run
from wick.protocols import Store
from wick.server.agents.registry import AgentRegistry
from wick.server.auth.identity import User
from wick.server.errors import DAMAGED
from wick.server.ops.metrics import Metrics
from wick.server.ops.redaction import RedactingEmitter
from wick.server.records import Records
from wick.server.runs.followers import HubDirectory
from wick.server.runs.hub import HubEnd, RunHub
from wick.server.runs.record import KIND, RunInfo, derive_run_id, error_code
from wick.server.runs.usage import UsageLedger
from wick.stores.held_thread import LEASE_SECONDS, hold
from wick.stores.process_identity import has_ended, holder_name
from wick.threads import Thread

logger = logging.getLogger("wick.server")

START_PREFIX = "start:"  # begins the keys of starts in a run's record
RETRY_PAUSES = (0.1, 0.3, 1.0)  # seconds between tries of work on a store that failed for now

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class ActiveRun:
    """A run that goes on here."""

    user: User
    info: RunInfo
    hub: RunHub
    task: asyncio.Task[None] | None = None
    run: Run | None = None
    cancelled: bool = False  # by its user
    finished: bool = False  # it has ended, and is being written down
    ended_in_log: bool = False  # it never began, and its end was written for it: the log tells of that
    lease_held: bool = False  # the lease of its thread is held here
    stalled: bool = False  # the store failed for now: the run is open, and is resumed later
    start: str = ""  # the key of this start in the run's record


@dataclass(frozen=True, slots=True)
class Stall:
    """A run that waits for its store to work again."""

    run: str
    since: float  # by the monotonic clock
    reason: str


class RunExecutor:
    """Performs runs, at most one of a thread at a time."""

    def __init__(
        self,
        store: Store,
        records: Records,
        registry: AgentRegistry,
        usage: UsageLedger,
        metrics: Metrics,
        board: HubDirectory,
    ) -> None:
        self.store, self.records, self.registry, self.usage = store, records, registry, usage
        self.metrics, self.board = metrics, board
        self.running: dict[tuple[str, str], ActiveRun] = {}
        self.stalls: dict[tuple[str, str], Stall] = {}  # by owner and thread
        self.damage = ""  # the code of an error that says that the store is damaged
        self.cancelling: set[tuple[str, str]] = set()  # runs, by owner and id, whose cancellation is not written yet
        registry.sessions.on_held = self._on_lease_held
        metrics.gauge("wick_runs_running", lambda: len(self.running))

    def record_damage(self, error: BaseException | None) -> None:
        """Remember that the store is damaged, for `/health`, until the server is started again."""
        if isinstance(error, StoreError) and error.code in DAMAGED:
            self.damage = error.code

    def find(self, owner: str, thread: str) -> ActiveRun | None:
        """The run of a thread that goes on here."""
        return self.running.get((owner, thread))

    def count_runs(self, owner: str) -> int:
        """How many runs of a user go on here."""
        return sum(whose == owner for whose, _ in self.running)

    def start(self, user: User, info: RunInfo, then: Callable[[ActiveRun], Awaitable[None]]) -> None:
        """Begin a run, or take it up, unless one of its thread goes on; `then` is done once it has ended."""
        key = info.owner, info.thread
        if key in self.running:
            return
        running = self.running[key] = ActiveRun(user, info, self._create_hub(info))
        self.board.expect(info.owner, running.hub)
        running.task = asyncio.create_task(self._execute(running, then), name=info.id)

    def _on_lease_held(self, run: Run) -> None:
        """Switch readers to the hub of a run whose lease is held: until then another server may perform it."""
        running = self.running.get((run.user, run.thread.id))
        if running is not None and running.run is run:
            running.lease_held = True
            self.board.publish(run.user, running.hub)

    async def _execute(self, running: ActiveRun, then: Callable[[ActiveRun], Awaitable[None]]) -> None:
        """See a run through; whatever happens, its end is told once, and noted before."""
        end: HubEnd = "told"
        problem: Exception | None = None
        try:
            await self._run(running)
        except asyncio.CancelledError:
            end = "told" if running.cancelled else "stopped"
        except Exception as error:
            problem, end = error, "elsewhere" if self._is_elsewhere(running, error) else "told"
        running.finished = True  # from here on nobody cancels it
        if running.run is not None:
            running.hub.set_keeper(running.run.scratch.get(self.registry.sessions))
        if end == "told":
            await self._record_outcome(running, problem)
        else:
            await self._clear_start(running)
        self._update_stall(running, problem)
        del self.running[running.info.owner, running.info.thread]
        running.hub.finish("elsewhere" if running.ended_in_log or running.stalled else end)
        self.board.remove(running.info.owner, running.hub)
        result = running.run.progress.result if running.run is not None else None
        forget(problem, result.error if result is not None else None)
        begun = problem is None or running.ended_in_log or running.hub.has_started
        if not running.stalled and (end == "elsewhere" or (end == "told" and begun)):
            await then(running)

    def _is_elsewhere(self, running: ActiveRun, error: Exception) -> bool:
        """Return True if another process has the thread, or has ended the run; a hook may fail with such an error."""
        if not isinstance(error, StoreError) or error.code not in ("conflict", "fenced", "over"):
            return False
        kept = running.run.scratch.get(self.registry.sessions) if running.run is not None else None
        return not running.lease_held or error.code == "over" or (kept is not None and kept.failure is error)

    def _update_stall(self, running: ActiveRun, problem: Exception | None) -> None:
        """Remember since when a run waits for its store; one that ended waits no more."""
        key = running.info.owner, running.info.thread
        before = self.stalls.pop(key, None)
        if running.stalled:
            since = before.since if before is not None and before.run == running.info.id else monotonic()
            self.stalls[key] = Stall(running.info.id, since, str(problem or running.info.reason))

    async def _run(self, running: ActiveRun) -> None:
        info, hub = running.info, running.hub
        await self._record_start(running)
        instance = await self.registry.get_agent(running.user, info.agent)
        emit = RedactingEmitter(self.registry.secrets, hub.emit)
        stream = instance.agent.stream("", thread=hub.thread, user=info.owner, emit=emit, recipe=info.recipe)
        stream.run.id, running.run = info.id, stream.run
        await stream.finish()

    async def _record_start(self, running: ActiveRun) -> None:
        """Record that a run starts in this process; refuse one that ended its server twice at the same place.

        The start stays in the record until the run has ended, paused or been released. A process that dies leaves it.
        Deaths count only while the run makes no progress: a server that is killed from outside again and again still
        completes its runs.
        """
        info, key = running.info, f"{START_PREFIX}{holder_name()}"
        row = await self.records.get(KIND, info.owner, info.id)
        crashed = [at[1] for name, at in (row or {}).items() if _is_crash(name, at)]
        reached, in_tool = await self._read_progress(info) if crashed else (0, False)
        if (deaths := _deaths_at(reached, crashed)) >= (RUN_CRASHES if in_tool else MODEL_CRASHES):
            raise RunCrashed(
                f"the server ended {deaths} times at the same step of this run, so the run is not resumed; "
                "send another message to continue the thread"
            )
        start = {key: [time(), reached]}
        await self.records.add(KIND, info.owner, info.id, {}, {**({} if row else info.to_json()), **start})
        running.start = key

    async def _read_progress(self, info: RunInfo) -> tuple[int, bool]:
        """Return the last entry of a run that is a message or a finished tool, and whether a tool was started since."""
        reached, in_tool = 0, False
        async for batch in self.store.read(info.owner, info.thread, after=info.begin):
            for row in batch:
                if row["kind"] in ("message", "done"):
                    reached, in_tool = row["seq"], False
                elif row["kind"] == "intent":
                    in_tool = True
        return reached, in_tool

    async def _clear_start(self, running: ActiveRun) -> None:
        """Record that a start has ended without a crash."""
        if running.start:
            try:
                await self.records.add(KIND, running.info.owner, running.info.id, {}, {running.start: 0})
            except Exception as error:  # the run is resumed elsewhere all the same
                logger.warning("the start of run %s could not be cleared: %s", running.info.id, error)

    async def _record_outcome(self, running: ActiveRun, problem: Exception | None) -> None:
        """Note what a run came to; that it cannot be noted keeps nobody from being told."""
        try:
            result = await self._resolve_result(running, problem)
            price = await in_thread(lambda: result.price, "a price") if result.charges else None
            running.info = self._redact_info(running.info.with_result(result, None if price is None else float(price)))
            noted = running.info
            if result.outcome == "interrupted":  # earlier crashes still count when it is resumed
                fields = {**noted.to_json(), **({running.start: 0} if running.start else {})}
                await retry_store(lambda: self.records.add(KIND, noted.owner, noted.id, {}, fields))
            else:
                await retry_store(lambda: self.records.put(KIND, noted.owner, noted.id, noted.to_json()))
            await self.usage.record(
                running.user, running.info.agent, result, run=running.info.id, ended=not running.stalled
            )
            if not running.stalled:
                self.metrics.add("wick_runs_total", outcome=result.outcome)
        except Exception:
            logger.exception("what run %s came to could not be noted", running.info.id)

    def _create_hub(self, info: RunInfo) -> RunHub:
        return RunHub(Thread(info.thread), info.id, info.begin, self.registry.secrets.redact_entry)

    def _redact_info(self, info: RunInfo) -> RunInfo:
        """What is noted of a run, without secrets."""
        hide = self.registry.secrets.redact_json
        return replace(info, reason=hide(info.reason), error=hide(info.error))

    async def _resolve_result(self, running: ActiveRun, problem: Exception | None) -> Result:
        """What a run came to. One that could not even begin, or was cancelled before that, is ended in its log."""
        result = running.run.progress.result if running.run is not None else None
        if result is None:
            result = CANCELLED if problem is None else Result(outcome="failed", reason="error", error=problem)
        if problem is not None:
            logger.warning("run %s failed: %s", running.info.id, problem)
            self.record_damage(problem)
            if _is_temporary(problem) and (running.hub.is_open or not running.hub.has_started):
                return self._mark_stalled(running, result, problem)
            RedactingEmitter(self.registry.secrets, running.hub.emit)(_failed_event(running, problem))
            if running.hub.is_open:  # it may be resumed yet
                return _report_left_open(running, result, problem)
        unended = not running.hub.has_started or (running.cancelled and running.hub.is_open)  # as far as the log says
        if unended and (running.cancelled or problem is not None):
            try:
                running.ended_in_log = await self.end_abandoned(running.info, result)
            except StoreError as error:  # the messages are still in the inbox
                if _is_temporary(error) or error.code in ("conflict", "fenced"):
                    return self._mark_stalled(running, result, error)
                self.record_damage(error)
        return result

    def _mark_stalled(self, running: ActiveRun, result: Result, problem: StoreError) -> Result:
        """Leave a run open that the store cannot write: it has no end yet, so readers are not sent one."""
        running.stalled = True
        if running.cancelled:
            self.cancelling.add((running.info.owner, running.info.id))
        return replace(result, outcome="interrupted", reason=STALLED, error=None)

    async def end_abandoned(self, info: RunInfo, result: Result) -> bool:
        """Write the end of a run that nobody performs now; False if there was nothing to end."""
        thread = Thread(info.thread)
        async with hold(self.store, info.owner, thread, wait=False) as kept:
            said = [*await kept.said()] if thread.open_run is None and await self._is_next(info) else []
            goes_on = thread.open_run is not None and thread.open_run["run"] == info.id
            if goes_on or said:
                error = None if result.error is None else (error_code(result.error), public_text(result.error))
                run_log.end_abandoned_run(thread, info.id, said, result.outcome, result.reason, error)
                await thread.saved()
            return goes_on or bool(said)

    async def _is_next(self, info: RunInfo) -> bool:
        """Whether what waits to be heard was said to this run; if it is over by now, it was said to another."""
        head = await self.store.head(info.owner, info.thread)
        rows = await self.store.inbox(info.owner, info.thread)
        first = next((row.position for row in rows if row.kind == "message"), None)
        return first is not None and derive_run_id(head, first) == info.id

    def cancel(self, running: ActiveRun) -> None:
        """Cancel a run for its user."""
        if not running.finished and running.task is not None:
            running.cancelled = True
            running.task.cancel()

    async def stop(self, grace: float) -> None:
        """Give what runs that many seconds, and let go of the rest: it can be taken up again."""
        if (tasks := self._tasks()) and grace:
            await asyncio.wait(tasks, timeout=grace)
        for running in self.running.values():
            if not running.finished and running.task is not None:
                if running.run is not None:
                    running.run.progress.released = True
                running.task.cancel()
        if tasks := self._tasks():
            await asyncio.wait(tasks)

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [running.task for running in self.running.values() if running.task is not None]


def _is_crash(key: str, start: Any) -> bool:
    """Return True if a start belongs to a process that died. One of another machine is known by its lapsed lease."""
    if not key.startswith(START_PREFIX) or not start:
        return False
    return has_ended(key.removeprefix(START_PREFIX)) or time() - float(start[0]) > LEASE_SECONDS


def _deaths_at(reached: int, crashed: Sequence[int]) -> int:
    """Return how many starts died at this place of the log, given the places at which all that died had started."""
    return crashed.count(reached) + any(place < reached for place in crashed)


CANCELLED = Result(outcome="cancelled", reason="user requested")


STALLED = "the store cannot be written now; the run continues when it can"


async def retry_store(work: Callable[[], Awaitable[T]]) -> T:
    """Do work on the store, and repeat it a few times while the store fails for now."""
    for pause in RETRY_PAUSES:
        try:
            return await work()
        except StoreError as error:
            if error.code not in TEMPORARY:
                raise
        await asyncio.sleep(pause)
    return await work()


def _is_temporary(error: Exception) -> TypeGuard[StoreError]:
    """Return True if the store failed for now; its content is as it was."""
    return isinstance(error, StoreError) and error.code in TEMPORARY


def _failed_event(running: ActiveRun, problem: Exception) -> Failed:
    words = public_text(problem)
    return Failed(running.info.id, thread_id=running.info.thread, code=error_code(problem), message=words)


def _report_left_open(running: ActiveRun, result: Result, problem: Exception) -> Result:
    """A run that is not over for good has not failed: its readers are told that it waits, for it has one end only."""
    words = public_text(problem)
    running.hub.emit(Done(running.info.id, thread_id=running.info.thread, outcome="interrupted", reason=words))
    return replace(result, outcome="interrupted", reason=words, error=None)
