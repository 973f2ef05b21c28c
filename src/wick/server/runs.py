"""The runs of a server. A run belongs to the server, not to the request that began it.

    turn = await runs.start(user, "coder", [user("Hello.")], "th_1")
    async for frames in turn.frames():
        ...

What is said is queued in the store before anything else, so it is not lost, and the run that answers it has an id that
every server comes to by itself. A thread that is busy hears it at its next step. Who reads may go, and come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Literal

from wick import journal
from wick.capabilities.sessions import Choice, Sessions
from wick.errors import StoreError
from wick.events import Failed
from wick.frozen import canonical, digest
from wick.keeping import hold
from wick.messages import Message
from wick.operations import Result, Run
from wick.protocols import Store, Summary
from wick.server.errors import ApiError, as_api_error, not_found
from wick.server.following import Batches, Following
from wick.server.frames import START, Place
from wick.server.hub import End, Hub
from wick.server.identity import User
from wick.server.ledger import Ledger
from wick.server.limits import Limits
from wick.server.metrics import Metrics
from wick.server.records import Records
from wick.server.registry import Registry
from wick.server.run_info import KIND, RunInfo, code_of, run_id
from wick.threads import Thread
from wick.workers import in_thread

logger = logging.getLogger("wick.server")

KEY, CANCEL = "key", "cancel"  # kinds of records
KEY_SECONDS = 7 * 86_400.0  # for which a request with the same key is the same request
CANCEL_SECONDS = 60.0  # for which another server may notice that a run is to be cancelled
WENT_ON = "the user went on"

State = Literal["queued", "running", "waiting", "interrupted", "ended"]


@dataclass(eq=False, slots=True)
class Running:
    """A run that goes on here."""

    user: User
    info: RunInfo
    hub: Hub
    task: asyncio.Task[None] | None = None
    run: Run | None = None
    cancelled: bool = False  # by its user
    over: bool = False  # it has ended, and is being written down


@dataclass(slots=True)
class Turn:
    """What somebody said, and the run that answers it."""

    runs: Runs
    info: RunInfo
    position: int
    after: Place = START
    joined: bool = False  # the run was there before
    thread: Thread | None = field(default=None, repr=False)  # as the run left it, if it went on here

    @property
    def thread_id(self) -> str:
        return self.info.thread

    @property
    def run_id(self) -> str:
        return self.info.id

    async def frames(self) -> Batches:
        """The frames of the run; if it ends before it has heard what was said, those of the one that does so too."""
        while True:
            unheard = False
            async for frames in self.runs.follow(self.info, self.after):
                if frames and frames[-1].terminal and self.joined:
                    unheard = await self.runs.waits(self.info, self.position)
                told = frames[:-1] if unheard else frames
                self.after = max((frame.place for frame in told if frame.place is not None), default=self.after)
                yield told
            if not unheard:
                return
            self.info = await self.runs.answering(self.info.user, self.info, self.position)

    async def ended(self) -> RunInfo:
        """Wait until the run is over, or over for now, and say what it came to."""
        hub = self.runs.following.board.of(self.info)
        async for frames in self.frames():
            hub = self.runs.following.board.of(self.info) or hub
            if frames and frames[-1].terminal:
                self.thread = hub.thread if hub is not None and hub.run == self.info.id else None
                return await self.runs.settled(self.info)
        raise ApiError(503, "stopping", "the server stops; the run goes on when it is back", {"Retry-After": "5"})


class Runs:
    """Everything that runs on a server, and everything that ran."""

    def __init__(
        self,
        store: Store,
        records: Records,
        registry: Registry,
        usage: Ledger,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self.store, self.records, self.registry, self.usage = store, records, registry, usage
        self.limits, self.metrics = limits, metrics
        self.sessions, self.following = Sessions(store), Following(store, records)
        self.running: dict[tuple[str, str], Running] = {}
        self.stopping = False
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._threads: Counter[str] = Counter()
        self._counted: set[str] = set()
        metrics.gauge("wick_runs_running", lambda: len(self.running))

    # -- saying something ---------------------------------------------------------------------------------------------

    async def start(
        self,
        user: User,
        agent: str,
        messages: Sequence[Message],
        thread_id: str = "",
        *,
        key: str = "",
        recipe: str = "",
    ) -> Turn:
        """Say something to an agent, in a new thread or in one that is there; a question that waits is thereby denied.

        The same under the same `key` is the same request, also after a restart; something else is a 409.
        """
        self._check_open()
        await self.registry.agent(user, agent)  # what cannot be built is refused before anything is kept
        thread = thread_id or Thread().id
        if key:
            said = [agent, thread_id, [message.to_json() for message in messages], recipe]
            thread = await self._keyed(user, key, said, thread)
        head = await self._thread(user, agent, thread)
        if head.asking:
            await self._deny_all(user, thread)
        return await self._say(user, head, agent, messages, key, recipe)

    async def send(self, user: User, thread: str, messages: Sequence[Message], *, key: str = "") -> Turn:
        """Say something to a thread: the run that goes on hears it at its next step, else one begins."""
        self._check_open()
        head = await self.store.head(user.id, thread)
        agent = _agent_of(head)
        await self.registry.agent(user, agent)
        if key:
            await self._keyed(user, key, [thread, [message.to_json() for message in messages]], thread)
        return await self._say(user, head, agent, messages, key, "")

    def _check_open(self) -> None:
        if self.stopping:
            raise ApiError(503, "stopping", "the server is about to stop; try again", {"Retry-After": "5"})

    async def _keyed(self, user: User, key: str, said: Any, thread: str) -> str:
        """Remember a request under its key; one that came before says which thread it was about."""
        asked = {"hash": digest(canonical(said)), "thread": thread}
        if await self.records.put(KEY, user.id, key, asked, new=True, until=time() + KEY_SECONDS):
            return thread
        before = await self.records.get(KEY, user.id, key) or asked
        if before["hash"] != asked["hash"]:
            raise ApiError(409, "conflict", "this Idempotency-Key was used for another request; take a new one")
        return str(before["thread"])

    async def _thread(self, user: User, agent: str, id: str) -> Summary:
        """The thread with that id, made if there is none; one of another agent, or of a subagent, is refused."""
        try:
            head = await self.store.head(user.id, id)
        except StoreError as error:
            if error.code != "not_found":
                raise
            return await self._make(user, agent, id)
        if _agent_of(head) != agent:
            raise ApiError(409, "conflict", f"thread {id} is one of the agent {_agent_of(head)!r}; take another thread")
        return head

    async def _make(self, user: User, agent: str, id: str) -> Summary:
        self.limits.room("threads", await self._count(user.id))
        try:
            made = await self.store.create(user.id, id, meta={"agent": agent})
        except StoreError as error:  # somebody else was faster
            if error.code != "conflict":
                raise
            return await self._thread(user, agent, id)
        self._threads[user.id] += 1
        return made

    async def _count(self, owner: str) -> int:
        """How many threads somebody has, counted once."""
        if owner not in self._counted:
            page, found = await self.store.list(owner, limit=500), 0
            while page.threads:
                found += len(page.threads)
                page = (
                    await self.store.list(owner, limit=500, cursor=page.next)
                    if page.next
                    else replace(page, threads=())
                )
            self._threads[owner] = found
            self._counted.add(owner)
        return self._threads[owner]

    async def _say(
        self, user: User, head: Summary, agent: str, messages: Sequence[Message], key: str, recipe: str
    ) -> Turn:
        busy = (user.id, head.id) in self.running
        if not busy and not head.run:
            self._check_room(user)
        said = [message.to_json() for message in messages]
        position = await self.store.enqueue(user.id, head.id, *said, key=key)
        wanted = RunInfo("", user.id, head.id, agent, head.last, name=user.name, role=user.role, recipe=recipe)
        info = await self.answering(user, wanted, position)
        after: Place = START if info.begin == head.last else (head.last, float("inf"))
        return Turn(self, info, position, after, joined=info.begin != head.last)

    def _check_room(self, user: User) -> None:
        """Refuse a user who has as many runs going on as they may."""
        mine = sum(owner == user.id for owner, _ in self.running)
        self.limits.room("runs", mine)

    async def _deny_all(self, user: User, thread: str) -> None:
        """Who says something else instead of answering has not agreed."""
        for question in await self.sessions.questions(thread, owner=user.id):
            with suppress(StoreError):  # somebody answers it at this moment, or it has lapsed
                await self.sessions.answer(thread, question["id"], "deny", owner=user.id, words=WENT_ON, by=user.name)

    # -- which run answers --------------------------------------------------------------------------------------------

    async def answering(self, user: User, wanted: RunInfo, position: int) -> RunInfo:
        """The run that answers what is queued at a position, begun if need be."""
        if (mine := self.running.get((user.id, wanted.thread))) is not None and mine.hub.end == "":
            return mine.info
        head = await self.store.head(user.id, wanted.thread)
        waiting = [row for row in await self.store.inbox(user.id, wanted.thread) if row.kind == "message"]
        if not head.run and not any(row.position == position for row in waiting):
            return await self._heard(user, head, wanted.begin)
        id = head.run or run_id(head, waiting[0].position)
        info = await self._noted(replace(wanted, id=id, begin=0 if head.run else head.last, started=time()))
        await self.ensure(user, info, head)
        return info

    async def _noted(self, info: RunInfo) -> RunInfo:
        """A run with its record; if it has one already, as it stands there."""
        if await self.records.put(KIND, info.owner, info.id, info.to_json(), new=True):
            return info
        row = await self.records.get(KIND, info.owner, info.id)
        return info if row is None else RunInfo.from_json(info.owner, info.id, row)

    async def _heard(self, user: User, head: Summary, after: int) -> RunInfo:
        """The run that has heard what was queued, which was when the thread had `after` entries."""
        async for batch in self.store.read(user.id, head.id, after=after):
            for row in batch:
                if row["kind"] in ("run_start", "run_end"):
                    return await self.info(user, row["data"]["run"])
        raise ApiError(409, "conflict", "what was said was heard, and the run that heard it is gone from the log")

    async def ensure(self, user: User, info: RunInfo, head: Summary) -> None:
        """See that a run goes on, unless it does so elsewhere, or waits for an answer that nobody has given."""
        if head.leased or self.stopping or (head.asking and not await self._answered(info)):
            return
        if (info.owner, info.thread) in self.running:
            return
        hub = Hub(Thread(info.thread), info.id, info.begin)
        running = Running(user, info, hub)
        self.running[info.owner, info.thread] = running
        self.following.board.put(info.owner, hub)
        running.task = asyncio.create_task(self._perform(running), name=info.id)

    async def _answered(self, info: RunInfo) -> bool:
        return any(row.kind == "answer" for row in await self.store.inbox(info.owner, info.thread))

    # -- running ------------------------------------------------------------------------------------------------------

    async def _perform(self, running: Running) -> None:
        """See a run through; whatever happens, its end is told once."""
        end: End = "told"
        problem: Exception | None = None
        try:
            await self._run(running)
        except asyncio.CancelledError:
            end = "told" if running.cancelled else "stopped"
        except Exception as error:
            problem, end = error, "elsewhere" if _is_elsewhere(error) else "told"
        running.over = True  # from here on nobody cancels it
        if end == "told":
            await self._settle(running, problem)
        del self.running[running.info.owner, running.info.thread]
        running.hub.finish(end)
        self.following.board.take(running.info.owner, running.hub)
        if end == "told" and problem is None:
            await self._go_on(running)

    async def _run(self, running: Running) -> None:
        info, hub = running.info, running.hub
        instance = await self.registry.agent(running.user, info.agent)
        stream = instance.agent.stream("", thread=hub.thread, user=info.owner, emit=hub.emit, recipe=info.recipe)
        stream.run.id, running.run = info.id, stream.run
        await stream.finish()

    async def _settle(self, running: Running, problem: Exception | None) -> None:
        """Note what a run came to, before anybody is told."""
        try:
            result = await self._result(running, problem)
            price = await in_thread(lambda: result.price, "a price") if result.charges else None
            running.info = running.info.came_to(result, None if price is None else float(price))
            await self.records.put(KIND, running.info.owner, running.info.id, running.info.to_json())
            await self.usage.count(running.user, running.info.agent, result, run=running.info.id)
            self.metrics.add("wick_runs_total", outcome=result.outcome)
        except Exception:
            logger.exception("what run %s came to could not be noted", running.info.id)

    async def _result(self, running: Running, problem: Exception | None) -> Result:
        """What a run came to. One that could not even begin, or was cancelled before that, is ended in its log."""
        result = running.run.progress.result if running.run is not None else None
        if result is None:
            outcome = {"outcome": "cancelled", "reason": "user requested"} if problem is None else _failure(problem)
            result = Result(**outcome)
        begun = running.hub.thread.open_run is not None
        if problem is not None:
            running.hub.emit(_last_words(running, result))
            logger.warning("run %s failed: %s", running.info.id, problem)
            if begun:  # it was to be taken up, and may be yet
                return replace(result, outcome="interrupted", reason=str(problem))
        if running.cancelled or problem is not None:
            await self._give_up(running.info, result)
        return result

    async def _give_up(self, info: RunInfo, result: Result) -> bool:
        """Write the end of a run that nobody performs now, if the log does not know of it yet."""
        thread = Thread(info.thread)
        async with hold(self.store, info.owner, thread, wait=False) as kept:
            said = [*await kept.said()] if thread.open_run is None else []
            is_open = thread.open_run is not None and thread.open_run["run"] == info.id
            if is_open or said:
                error = None if result.error is None else (code_of(result.error), str(result.error))
                journal.give_up(thread, info.id, said, result.outcome, result.reason, error)
                await thread.saved()
            return is_open or bool(said)

    async def _go_on(self, running: Running) -> None:
        """What was said too late for this run is answered by the next."""
        info = running.info
        try:
            head = await self.store.head(info.owner, info.thread)
            if head.queued and not head.run and not self.stopping:
                await self.take_up(running.user, head)
        except StoreError as error:
            logger.warning("what is queued for thread %s is left for later: %s", info.thread, error)

    async def take_up(self, user: User, head: Summary, *, lapsed: bool = False) -> RunInfo | None:
        """Begin or resume what a thread waits for; if that is an answer, only once it is there, or has lapsed."""
        waiting = [row for row in await self.store.inbox(head.owner, head.id) if row.kind == "message"]
        if not head.run and not waiting:
            return None
        id = head.run or run_id(head, waiting[0].position)
        begin = 0 if head.run else head.last
        info = RunInfo(id, head.owner, head.id, _agent_of(head), begin, time(), name=user.name, role=user.role)
        info = await self._noted(info)
        await self.ensure(user, info, replace(head, asking=0) if lapsed else head)
        return info

    # -- looking, stopping, answering ---------------------------------------------------------------------------------

    async def info(self, user: User, id: str) -> RunInfo:
        """A run of this user, as it was last noted."""
        row = await self.records.get(KIND, user.id, id)
        if row is None:
            raise not_found(f"run {id!r}")
        return RunInfo.from_json(user.id, id, row)

    async def state(self, user: User, id: str) -> tuple[RunInfo, State]:
        """A run of this user, and how it is."""
        info = await self.info(user, id)
        head = await self.store.head(user.id, info.thread)
        if info.ended:
            return info, "ended"
        if head.run == id:
            going = "running" if head.leased else "interrupted"
            return info, "waiting" if head.asking else going  # type: ignore[return-value]
        if (user.id, info.thread) in self.running or await self._is_queued(head, id):
            return info, "queued"
        return await self.settled(info), "ended"

    async def _is_queued(self, head: Summary, id: str) -> bool:
        waiting = await self.store.inbox(head.owner, head.id) if head.queued else ()
        return any(run_id(head, row.position) == id for row in waiting if row.kind == "message")

    async def settled(self, info: RunInfo) -> RunInfo:
        """What a run came to that is over: as it was noted, or as the log says."""
        noted = await self.info(info.user, info.id)
        if noted.ended:
            return noted
        last: Mapping[str, Any] = {"outcome": "cancelled", "reason": "the thread was rewound"}
        async for batch in self.store.read(info.owner, info.thread, after=noted.begin):
            for row in batch:
                if row["kind"] == "run_end" and row["data"]["run"] == info.id:
                    last = row["data"] | {"at": row["at"]}
        ended = float(last.get("at", time())) if last["outcome"] != "interrupted" else 0.0
        usage, error = last.get("usage"), last.get("error")
        return replace(noted, ended=ended, outcome=last["outcome"], reason=last["reason"], usage=usage, error=error)

    def follow(self, info: RunInfo, after: Place) -> Batches:
        """The frames of a run after a place."""
        return self.following.follow(info, after)

    async def waits(self, info: RunInfo, position: int) -> bool:
        """Whether what was said at a position still waits to be heard, by a run that can begin now."""
        head = await self.store.head(info.owner, info.thread)
        if not head.queued or head.asking:
            return False
        return any(row.position == position for row in await self.store.inbox(info.owner, info.thread))

    async def cancel(self, user: User, id: str) -> RunInfo:
        """Cancel a run, wherever it goes on. One that is over stays as it is."""
        info, state = await self.state(user, id)
        if state == "ended":
            return info
        running = self.running.get((user.id, info.thread))
        if running is not None and running.info.id == id:
            self.cancel_here(running)
            await asyncio.wait((running.task,)) if running.task is not None else None
            return running.info
        if not await self._cancel_waiting(info):
            await self.records.put(CANCEL, user.id, id, {}, until=time() + CANCEL_SECONDS)
        return await self.settled(info)

    def cancel_here(self, running: Running) -> None:
        if not running.over and running.task is not None:
            running.cancelled = True
            running.task.cancel()

    async def _cancel_waiting(self, info: RunInfo) -> bool:
        """Cancel a run that nobody performs now; False if somebody does."""
        result = Result(outcome="cancelled", reason="user requested")
        try:
            done = await self._give_up(info, result)
        except StoreError as error:
            if error.code != "conflict":
                raise
            return False
        if done:
            await self.records.put(KIND, info.owner, info.id, info.came_to(result, info.cost).to_json())
        return True

    async def answer(
        self,
        user: User,
        thread: str,
        question: str,
        choice: Choice,
        words: str = "",
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer a question of a thread, and let its run go on; the first answer counts."""
        self._check_open()
        asked = {row["id"]: row for row in await self.sessions.questions(thread, owner=user.id)}.get(question)
        await self.sessions.answer(thread, question, choice, owner=user.id, words=words, args=args, by=user.name)
        head = await self.store.head(user.id, thread)
        if choice == "allow_always" and asked is not None:
            rule = {key: asked[key] for key in ("operation", "tool", "args") if key in asked}
            await self.registry.grant(user, _agent_of(head), rule)
        await self.take_up(user, head)

    async def fork(self, user: User, thread: str, at: int | None, title: str) -> Summary:
        """Another thread that begins as this one was after an entry; a run that was open there is not taken along."""
        head = await self.store.head(user.id, thread)
        agent, place = _agent_of(head), head.last if at is None else at
        self.limits.room("threads", await self._count(user.id))
        new, about = Thread().id, {"forked_from": thread, "forked_at": place}
        made = await self.store.fork(user.id, thread, place, new, title=title, meta=about)
        if made.run:  # nobody takes it up as long as the thread is no agent's
            result = Result(outcome="cancelled", reason="the thread was forked")
            await self._give_up(RunInfo(made.run, user.id, new, agent), result)
        self._threads[user.id] += 1
        return await self.store.describe(user.id, new, meta=about | {"agent": agent})

    async def forget(self, user: User, thread: str) -> None:
        """Delete a thread, with those of its subagents; one that is busy is cancelled first."""
        head = await self.store.head(user.id, thread)
        if head.run:
            with suppress(ApiError):
                await self.cancel(user, head.run)
        for child in await self._children(user.id, thread):
            with suppress(StoreError):
                await self.store.delete(user.id, child)
        await self.store.delete(user.id, thread)
        if user.id in self._counted:
            self._threads[user.id] -= 1

    async def _children(self, owner: str, thread: str) -> list[str]:
        found, cursor = list[str](), None
        while cursor != "":
            page = await self.store.list(owner, cursor=cursor or "", limit=500)
            found += [head.id for head in page.threads if head.id.startswith(f"{thread}.") and "parent" in head.meta]
            cursor = page.next
        return found

    # -- the end of the server ----------------------------------------------------------------------------------------

    async def stop(self, grace: float) -> None:
        """Take nothing new, give what runs that many seconds, and let go of the rest: it can be taken up again."""
        self.stopping = True
        tasks = [running.task for running in self.running.values() if running.task is not None]
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for running in [*self.running.values()]:
            if not running.over and running.task is not None:
                if running.run is not None:
                    running.run.progress.released = True
                running.task.cancel()
        left = [running.task for running in self.running.values() if running.task is not None]
        if left:
            await asyncio.wait(left)
        self.following.board.close()


def _agent_of(head: Summary) -> str:
    """The agent that a thread is one of; a subagent's has none of its own."""
    agent = head.meta.get("agent")
    if "parent" in head.meta or not isinstance(agent, str):
        raise ApiError(409, "conflict", f"thread {head.id} is that of a subagent; speak to the thread above it")
    return agent


def _is_elsewhere(error: Exception) -> bool:
    """Whether a run could not go on here because somebody else has its thread."""
    return isinstance(error, StoreError) and error.code in ("conflict", "fenced")


def _failure(problem: Exception) -> dict[str, Any]:
    known = as_api_error(problem)
    return {"outcome": "failed", "reason": "error", "error": problem if known is None else known}


def _last_words(running: Running, result: Result) -> Failed:
    error = result.error or RuntimeError("the run failed")
    id, thread = running.info.id, running.info.thread
    return Failed(id, thread_id=thread, code=code_of(error), message=str(error))
