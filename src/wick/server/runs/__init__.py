"""Runs of a server: starting, following, cancelling. A run belongs to the server, not to the request that started it.

    turn = await runs.start(user, "coder", [user("Hello.")], "th_1")
    async for frames in turn.frames():
        ...

A message is first queued in the store, so it is not lost. The id of the run that answers it is derived from its
position, so all servers compute the same id. A running thread takes queued messages at its next step. Clients may
disconnect and reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, time
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick._internal.tasks import closing_stream
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent
from wick.api.types import RunStatus
from wick.capabilities.sessions import Choice, Sessions, check_changed_args
from wick.constants import LIVE_REPLY_SECONDS, STALLED_SECONDS
from wick.errors import TEMPORARY, InvalidArgs, StoreError
from wick.messages import Message
from wick.operations import Result
from wick.protocols import Lease, Store, Summary, refused_part
from wick.server.agents.builder import AgentInstance
from wick.server.agents.registry import AgentRegistry
from wick.server.auth.identity import User
from wick.server.errors import ApiError, not_found
from wick.server.live import LiveConnection
from wick.server.media import check_media
from wick.server.ops.metrics import Metrics
from wick.server.ops.quotas import QuotaLimiter
from wick.server.records import Records
from wick.server.runs.admission import RunAdmission
from wick.server.runs.executor import (
    CANCELLED,
    STALLED,
    ActiveRun,
    ClaimedRun,
    RunExecutor,
    Stall,
    retry_store,
    start_key,
)
from wick.server.runs.followers import FOLLOW_PAUSE, Batches, RunFollowers
from wick.server.runs.frames import START, StreamPosition
from wick.server.runs.hub import RunHub
from wick.server.runs.live_messages import HolderRequest, encode_message, holder_subject
from wick.server.runs.record import KIND, RunInfo, derive_run_id
from wick.server.runs.threads import UserThreads, thread_agent
from wick.server.runs.usage import UsageLedger
from wick.stores.held_thread import send_messages
from wick.threads import Thread

logger = logging.getLogger("wick.server")

KEY, CANCEL = "key", "cancel"  # kinds of records
KEY_SECONDS = 7 * 86_400.0  # how long an Idempotency-Key is remembered
CANCEL_SECONDS = 60.0  # how long a cancellation waits for the server that performs the run
NOTICE_SECONDS = 2.0  # how long a cancelling request waits for another server
DENIED_BY_MESSAGE = "the user sent another message"


@dataclass(slots=True)
class QueuedRun:
    """A queued message and the run that answers it."""

    runs: Runs
    info: RunInfo
    position: int
    after: StreamPosition = START
    thread: Thread | None = field(default=None, repr=False)  # at the end of the run, if it was performed here

    @property
    def thread_id(self) -> str:
        return self.info.thread

    @property
    def run_id(self) -> str:
        return self.info.id

    async def frames(self) -> Batches:
        """Yield the frames of the run. If it ends before it took the message, continue with the run that does."""
        while True:
            next_one: RunInfo | None = None
            hub: RunHub | None = None
            async for frames in self.runs.follow(self.info, self.after):
                hub = hub or self.runs.followers.board.find(self.info)
                if frames and frames[-1].terminal and not (hub is not None and hub.has_taken(self.position)):
                    next_one = await self.runs.next_run_for(self.info, self.position)
                sent = frames if next_one is None else frames[:-1]
                self.after = max((frame.position for frame in sent if frame.position is not None), default=self.after)
                yield sent
                if self.runs.find_stall(self.info) is not None:
                    return  # without a terminal frame: the run is still open
            if next_one is None:
                return
            self.info = next_one

    async def wait_end(self) -> RunInfo:
        """Wait until the run has ended or paused, and return it with its outcome from the log.

        Raise a 503 if the log has no end of the run.
        """
        board = self.runs.followers.board
        while (hub := await board.wait_published(self.info, FOLLOW_PAUSE)) is not None:
            if await hub.wait_end() != "ended":
                break  # it is performed elsewhere, or the server stops
            took = hub.has_taken(self.position)
            next_one = None if took else await self.runs.next_run_for(self.info, self.position)
            if next_one is None:
                self.thread = hub.thread
                return hub.outcome if took and hub.outcome is not None else await self._load_outcome()
            self.info = next_one
        async with aclosing(self.frames()) as batches:
            async for frames in batches:
                hub = board.find(self.info) or hub
                if frames and frames[-1].terminal:
                    mine = hub is not None and hub.run == self.run_id and hub.end == "ended"
                    self.thread = hub.thread if mine and hub is not None else None
                    return await self._load_outcome()
        raise self.unfinished_error()

    async def _load_outcome(self) -> RunInfo:
        info = await retry_store(lambda: self.runs.load_outcome(self.info))
        if not info.outcome:
            raise still_open_error(info, info.reason)
        return info

    def unfinished_error(self) -> ApiError:
        """Return the error for a client that waited for a run that has not ended."""
        if self.runs.stopping:
            return still_open_error(self.info, "this server stops, and another one or the next start resumes it")
        stall = self.runs.find_stall(self.info)
        return still_open_error(self.info, STALLED if stall is not None else OPEN)


async def _check_parts(agent: Agent, messages: Sequence[Message]) -> None:
    """Raise a 400, before messages are stored, for parts with private addresses or that the model does not support."""
    if all(isinstance(message.content, str) for message in messages):
        return
    if why := await run_in_thread(
        lambda: check_media(messages) or refused_part(agent.model, messages), "checking parts"
    ):
        raise ApiError(400, "invalid", why)


class Runs:
    """Starts, finds, follows and cancels the runs of a server."""

    def __init__(
        self,
        store: Store,
        records: Records,
        registry: AgentRegistry,
        usage: UsageLedger,
        limits: QuotaLimiter,
        metrics: Metrics,
        live: LiveConnection | None = None,
    ) -> None:
        self.store, self.records, self.registry, self.limits = store, records, registry, limits
        self.live = live if live is not None and live.is_shared else None  # None if there are no other servers
        self.sessions, self.followers = Sessions(store), RunFollowers(store, records, metrics, self.live)
        self.threads = UserThreads(store, limits)
        self.executor = RunExecutor(store, records, registry, usage, metrics, self.followers.board, self.live)
        self.admission = RunAdmission(store, registry, limits, self.executor)

    @property
    def stopping(self) -> bool:
        """Return True if this server stops: it starts no runs."""
        return self.admission.stopping

    # -- sending messages ---------------------------------------------------------------------------------------------

    async def start(
        self,
        user: User,
        agent: str,
        messages: Sequence[Message],
        thread_id: str = "",
        *,
        key: str = "",
        recipe: str = "",
        model: str = "",
    ) -> QueuedRun:
        """Send messages to an agent, in a new or an existing thread. Pending questions of the thread are denied.

        `model` answers in place of the agent's own, if the server allows it. A run in progress keeps its model. A
        repeated request with the same `key` gets the same run, also after a restart. Another request is a 409.
        """
        self.admission.check_open()
        # refuses an agent that cannot be built before anything is stored
        instance = await self.registry.get_agent(user, agent)
        if model:
            await self.registry.check_model_choice(model)
        await _check_parts(instance.with_model(model), messages)
        if recipe and not any(getattr(hook.owner, "name", "") == "recipes" for hook in instance.agent.hooks):
            raise ApiError(400, "invalid", f"the agent {agent!r} has no recipes; switch them on with `recipes: true`")
        rows = [message.to_json() for message in messages]
        if not thread_id and not key:
            return await self._enqueue(user, None, rows, key, recipe, None, instance, model)
        request = [agent, thread_id, rows, recipe, *([model] if model else ())]
        thread, after, is_repeat = await self._remember_request(user, key, request, thread_id or Thread().id)
        head = await self.threads.open(user, agent, thread)
        if recipe and head.run and not is_repeat:
            raise ApiError(409, "conflict", "a run is in progress, and a recipe can only start one; wait for its end")
        if head.asking and after in (None, head.last):  # a repeated request does not deny questions of its own run
            for question in await self.sessions.questions(thread, owner=user.id):
                try:
                    await self.sessions.answer(
                        thread, question["id"], "deny", owner=user.id, words=DENIED_BY_MESSAGE, by=user.name
                    )
                except StoreError as error:
                    if error.code not in ("conflict", "not_found"):  # answered concurrently, or expired
                        raise
        return await self._enqueue(user, head, rows, key, recipe, after, instance, model)

    async def send(self, user: User, thread: str, messages: Sequence[Message], *, key: str = "") -> QueuedRun:
        """Send messages to a thread. A run in progress takes them at its next step; otherwise a run starts."""
        self.admission.check_open()
        head = await self.store.head(user.id, thread)
        instance = await self.registry.get_agent(user, thread_agent(head))
        await _check_parts(instance.agent, messages)
        rows = [message.to_json() for message in messages]
        _, after, _ = await self._remember_request(user, key, [thread, rows], thread)
        return await self._enqueue(user, head, rows, key, "", after, instance)

    async def _remember_request(self, user: User, key: str, request: Any, thread: str) -> tuple[str, int | None, bool]:
        """Store a request under its idempotency key.

        Return its thread, the number of entries at the first request, and True if this one is a repetition.
        """
        if not key:
            return thread, None, False
        try:
            last = (await self.store.head(user.id, thread)).last
        except StoreError as error:
            if error.code != "not_found":
                raise
            last = 0
        asked: dict[str, Any] = {"hash": digest(canonical_json(request)), "thread": thread, "after": last}
        is_repeat = not await self.records.put(KEY, user.id, key, asked, new=True, until=time() + KEY_SECONDS)
        if is_repeat:
            before = await self.records.get(KEY, user.id, key) or asked
            if before["hash"] != asked["hash"]:
                raise ApiError(409, "conflict", "this Idempotency-Key was used for another request; take a new one")
            asked = before
        return str(asked["thread"]), int(asked["after"]), is_repeat

    async def _enqueue(
        self,
        user: User,
        head: Summary | None,
        rows: Sequence[Mapping[str, Any]],
        key: str,
        recipe: str,
        after: int | None,
        instance: AgentInstance,
        model: str = "",
    ) -> QueuedRun:
        """Queue messages in a thread, or in a new one if `head` is None, and find or start the run for them."""
        # running and starting runs count against the quota
        is_new = head is None or not head.run
        async with self.admission.reserve_run(user.id) if is_new else nullcontext():
            lease: Lease | None = None
            info: RunInfo | None = None
            about: dict[str, Any] = {"name": user.name, "role": user.role, "recipe": recipe, "model": model}
            if head is None and self.records.joins_lease:
                return await self._start_thread(user, instance, rows, about)
            if head is None:
                head, lease = await self.threads.start(user, instance.id, rows)
                position = head.queued
            else:
                position = await send_messages(self.store, user.id, head.id, *rows, key=key)
                self._notify_inbox(head)
            last = head.last if after is None else after
            wanted = RunInfo("", user.id, head.id, thread_agent(head), last, **about)
            if lease is None and self.records.joins_lease:
                lease, info = await self._start_in_idle_thread(user, head, wanted, position, instance)
            elif lease is None:
                lease = await self.admission.lease_idle_thread(head)
            if lease is not None and info is None:
                self.registry.sessions.leases[user.id, head.id] = lease
            try:
                if info is None:
                    info = await retry_store(lambda: self.run_for_message(user, wanted, position, instance, lease))
            except StoreError as error:
                raise ApiError(
                    503,
                    error.code if error.code in TEMPORARY else "unavailable",
                    f"the message is stored in thread {head.id} and will be answered, but its run cannot be followed "
                    "now; read the thread later, or repeat the request with the same Idempotency-Key",
                    {"X-Thread-Id": head.id, "Retry-After": "5"},
                ) from error
            finally:
                if self.executor.find(user.id, head.id) is None:  # the run was not started
                    await self.executor.release_unused_lease(user.id, head.id)
        return QueuedRun(self, info, position, START if info.begin >= last else (last, inf))

    async def _start_thread(
        self, user: User, instance: AgentInstance, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]
    ) -> QueuedRun:
        """Start the run of a new thread. The thread, its messages, its lease and the record are one transaction."""
        planned = RunInfo("", user.id, "", instance.id, 0, time(), **about)
        can_start = await self.admission.can_start(user, planned)
        start = start_key(self.store) if can_start else ""

        info = planned

        def record(transaction: Any, lease: Lease) -> Any:
            nonlocal info
            assert lease.head is not None
            info = replace(planned, id=derive_run_id(lease.head, 1), thread=lease.head.id)
            row = info.to_json() | ({start: [info.started, 0]} if start else {})
            return self.records.put_in(transaction, KIND, info.owner, info.id, row)

        head, lease = await self.threads.start(user, instance.id, rows, also=record)
        self.registry.sessions.leases[user.id, head.id] = lease
        if can_start and not self.stopping:
            self.executor.start(user, info, self._start_next_run, instance, start)
        else:
            await self.executor.release_unused_lease(user.id, head.id)
        return QueuedRun(self, info, head.queued)

    async def _start_in_idle_thread(
        self, user: User, head: Summary, wanted: RunInfo, position: int, instance: AgentInstance
    ) -> tuple[Lease | None, RunInfo | None]:
        """Acquire the lease of an idle thread, and start the run for its messages. The lease and the record are saved
        in one transaction.

        Without a run, `run_for_message` finds or starts it: the thread is in use, the run was recorded before, or
        another server has to perform it.
        """
        can_start = await self.admission.can_start(user, wanted)
        start, info = start_key(self.store), None

        def record(transaction: Any, lease: Lease) -> None:
            nonlocal info
            info = None
            waiting = [item.position for item in lease.inbox or () if item.kind == "message"]
            if lease.head is None or lease.head.run or lease.head.asking or position not in waiting:
                return
            pending = _pending_run(user, lease.head, waiting, wanted)
            row = pending.to_json() | {start: [time(), 0]}
            if self.records.put_in(transaction, KIND, pending.owner, pending.id, row, new=True) is True:
                info = pending

        lease = await self.admission.lease_idle_thread(head, **({"also": record} if can_start else {}))
        if lease is None or info is None:
            return lease, None
        self.registry.sessions.leases[head.owner, head.id] = lease
        if not self.stopping:
            self.executor.start(user, info, self._start_next_run, instance, start)
        return lease, info

    def _notify_inbox(self, head: Summary) -> None:
        """Tell the server that performs the run of a thread to read its inbox."""
        if self.live is not None and head.run and self.executor.find(head.owner, head.id) is None:
            request = HolderRequest(action="read_inbox", owner=head.owner)
            self.live.publish(holder_subject(head.run), encode_message(request))

    # -- finding the run of a message ---------------------------------------------------------------------------------

    async def run_for_message(
        self,
        user: User,
        wanted: RunInfo,
        position: int,
        instance: AgentInstance | None = None,
        lease: Lease | None = None,
    ) -> RunInfo:
        """Return the run that answers the message at a position; start it if needed.

        `lease` is the lease of the thread if this server has acquired it for the run.
        """
        if lease is not None and lease.head is not None and lease.inbox is not None:
            head = replace(lease.head, leased=False)  # by another server
            waiting = [item.position for item in lease.inbox if item.kind == "message"]
        else:
            head, waiting = await self._load_pending(user.id, wanted.thread)
        if not head.run and position not in waiting:  # a run has taken the message since it was queued
            async for batch in self.store.read(user.id, head.id, after=wanted.begin):
                for row in batch:
                    if row["kind"] in ("run_start", "run_end"):
                        return await self.load_info(user, row["data"]["run"])
            raise ApiError(409, "conflict", "the message was answered, but the log no longer has its run")
        return await self._start_pending(user, head, _pending_run(user, head, waiting, wanted), instance)

    async def resume_thread(self, user: User, head: Summary, *, lapsed: bool = False) -> None:
        """Start or resume the pending run of a thread, unless it waits for an answer that has not `lapsed`."""
        found, waiting = await self._load_pending(head.owner, head.id)
        head = replace(found, leased=head.leased)  # recovery has claimed the lease for this server
        if head.run or waiting:
            info = _pending_run(user, head, waiting)
            if (info.owner, info.id) in self.executor.cancelling:
                await self._cancel_pending(await self._load_record(info))
                return
            await self._start_pending(user, replace(head, asking=0) if lapsed else head, info)

    async def resume_run(
        self, head: Summary, info: RunInfo, claimed: ClaimedRun | None = None, *, lapsed: bool = False
    ) -> None:
        """Resume the open run of a claimed thread: its lease is held, so its head and its record do not change."""
        if (info.owner, info.id) in self.executor.cancelling:
            await self._cancel_pending(info)
        elif await self._can_start(info.user, replace(head, asking=0) if lapsed else head, info) and not self.stopping:
            self.executor.start(info.user, info, self._start_next_run, claimed=claimed)

    async def _load_pending(self, owner: str, thread: str) -> tuple[Summary, list[int]]:
        """Return a thread and, if it has no open run, the positions of its pending messages.

        The thread is read again after the inbox: a run that started between the two reads takes the messages, and a
        run id derived from the remaining ones would belong to a run that never starts.
        """
        head = await self.store.head(owner, thread)
        while not head.run and head.queued:
            waiting, before = await self._pending_positions(head), head.last
            head = await self.store.head(owner, thread)
            if head.last == before:
                return head, waiting
        return head, []

    async def _pending_positions(self, head: Summary) -> list[int]:
        """Return the positions of pending messages in the inbox."""
        rows = await self.store.inbox(head.owner, head.id) if head.queued else ()
        return [row.position for row in rows if row.kind == "message"]

    async def _start_pending(
        self, user: User, head: Summary, info: RunInfo, instance: AgentInstance | None = None
    ) -> RunInfo:
        """Start a pending run, unless another server performs it or it waits for an answer; return its record."""
        can_start = await self._can_start(user, head, info)
        start = start_key(self.store) if can_start and self.executor.find(info.owner, info.thread) is None else ""
        row = info.to_json() | ({start: [time(), 0]} if start else {})
        if not await self.records.put(KIND, info.owner, info.id, row, new=True):
            info, start = await self._load_record(info), ""
        if can_start and not self.stopping:
            self.executor.start(user, info, self._start_next_run, instance, start)
        return info

    async def _can_start(self, user: User, head: Summary, info: RunInfo) -> bool:
        """Return False if another server performs a run, if it waits for an answer, or if this server is full.

        A server that is full leaves the run to the next one that claims it.
        """
        if head.leased:
            return False
        waits = head.asking and not any(row.kind == "answer" for row in await self.store.inbox(info.owner, info.thread))
        return not waits and await self.admission.can_start(user, info)

    async def _load_record(self, info: RunInfo) -> RunInfo:
        row = await self.records.get(KIND, info.owner, info.id)
        return info if row is None else RunInfo.from_json(info.owner, info.id, row)

    async def _start_next_run(self, running: ActiveRun) -> None:
        """Start the next run of a thread if messages arrived too late for the last one."""
        info, keeper = running.info, running.hub.keeper
        released = keeper.released_head if keeper is not None and not running.requested_again else None
        if released is not None and not released.queued and not running.ended_in_log:
            return  # a message that was queued since then has started its run
        try:
            head = await self.store.head(info.owner, info.thread)
            if head.queued and not head.run and not self.stopping:
                await self.resume_thread(running.user, head)
        except StoreError as error:
            if error.code != "not_found":
                logger.warning("queued messages of thread %s are answered later: %s", info.thread, error)

    # -- state --------------------------------------------------------------------------------------------------------

    async def load_info(self, user: User, id: str) -> RunInfo:
        """Return the record of a user's run; raise a 404 if it does not exist."""
        row = await self.records.get(KIND, user.id, id)
        if row is None:
            raise not_found(f"run {id!r}")
        return RunInfo.from_json(user.id, id, row)

    async def load_state(self, user: User, id: str) -> tuple[RunInfo, RunStatus]:
        """Return the record and the current state of a user's run."""
        info = await self.load_info(user, id)
        head = await self.store.head(user.id, info.thread)
        if info.ended:
            return info, "ended"
        if head.run == id:
            return info, "waiting" if head.asking else "running" if head.leased else "interrupted"
        mine = self.executor.find(user.id, info.thread)
        if mine is not None and mine.info.id == id:
            return info, "queued"
        if any(derive_run_id(head, position) == id for position in await self._pending_positions(head)):
            return info, "queued"
        settled = await self.load_outcome(info)
        return settled, "ended" if settled.ended else "interrupted"

    async def load_outcome(self, info: RunInfo) -> RunInfo:
        """Return a run with its outcome from the record or the log. A run that has not ended has no outcome."""
        noted = await self.load_info(info.user, info.id)
        if noted.ended:
            return noted
        last: Mapping[str, Any] | None = None
        async for batch in self.store.read(info.owner, info.thread, after=noted.begin):
            for row in batch:
                if row["kind"] == "run_start" and row["data"]["run"] == info.id:
                    last = STARTED
                elif row["kind"] == "run_end" and row["data"]["run"] == info.id:
                    last = {**row["data"], "at": row["at"]}
                elif row["kind"] == "rewind" and last is not None and last["outcome"] in ("", "interrupted"):
                    last = {**REWOUND, "at": row["at"]}  # a rewind ends an open run
        if last is None or last is STARTED:
            return replace(noted, outcome="", reason=noted.reason or OPEN)
        ended = float(last.get("at", time())) if last["outcome"] != "interrupted" else 0.0
        usage, error = last.get("usage"), last.get("error")
        return replace(noted, ended=ended, outcome=last["outcome"], reason=last["reason"], usage=usage, error=error)

    def find_stall(self, info: RunInfo) -> Stall | None:
        """Return the stall of a run whose store has failed for longer than a client should wait."""
        key = info.owner, info.thread
        stall = self.executor.stalls.get(key)
        if stall is None or stall.run != info.id or key in self.executor.running:
            return None
        return stall if monotonic() - stall.since >= STALLED_SECONDS else None

    def follow(self, info: RunInfo, after: StreamPosition) -> Batches:
        """Return the frames of a run after a position."""
        return self.followers.follow(info, after)

    async def next_run_for(self, over: RunInfo, position: int) -> RunInfo | None:
        """Return the run that takes the message at a position, or None if that is this run or the thread is deleted."""
        try:
            head, waiting = await self._load_pending(over.owner, over.thread)
        except StoreError as error:
            if error.code != "not_found":
                raise
            return None
        if position in waiting:
            if derive_run_id(head, waiting[0]) == over.id:
                return None
            return await self.run_for_message(over.user, over, position)
        other = derive_run_id(head, position)
        row = None if other == over.id else await self.records.get(KIND, over.owner, other)
        return None if row is None else RunInfo.from_json(over.owner, other, row)

    # -- cancelling and answering -------------------------------------------------------------------------------------

    async def cancel(self, user: User, id: str) -> None:
        """Cancel a run, on whichever server it is performed. A finished run is unchanged."""
        info, state = await self.load_state(user, id)
        if state == "ended":
            return
        mine = self.executor.find(user.id, info.thread)
        if mine is not None and mine.info.id == id and mine.task is not None:
            self.executor.cancel(mine)
            await asyncio.wait((mine.task,))
            if mine.lease_held and not mine.stalled:
                return
        self.executor.cancelling.add((user.id, id))  # prevents a resume if the next step fails
        if not await self._cancel_pending(info):
            self.executor.cancelling.discard((user.id, id))
            await self._request_cancel(user.id, id)
            watching = self.store.watch(info.owner, info.thread)
            with suppress(TimeoutError):  # wait briefly until another server has cancelled it
                async with asyncio.timeout(NOTICE_SECONDS), closing_stream(watching) as news:
                    async for _ in news:
                        if (await self.store.head(info.owner, info.thread)).run != info.id:
                            await self.records.delete(CANCEL, user.id, id)
                            return

    async def _request_cancel(self, owner: str, run: str) -> None:
        """Ask another server to cancel a run: by a record, which a server that resumes the run finds, and a message."""
        await self.records.put(CANCEL, owner, run, {}, until=time() + CANCEL_SECONDS)
        if self.live is not None:
            request = encode_message(HolderRequest(action="cancel", owner=owner))
            await self.live.request(holder_subject(run), request, LIVE_REPLY_SECONDS)

    async def _cancel_pending(self, info: RunInfo) -> bool:
        """Cancel a run that no server performs; return False if one does."""
        try:
            done = await self.executor.end_abandoned(info, CANCELLED)
        except StoreError as error:
            if error.code != "conflict":
                raise
            return False
        self.executor.cancelling.discard((info.owner, info.id))
        self.executor.stalls.pop((info.owner, info.thread), None)
        if done:
            await self.records.put(KIND, info.owner, info.id, info.with_result(CANCELLED, info.cost).to_json())
        return True

    async def answer_question(
        self,
        user: User,
        thread: str,
        question: str,
        choice: Choice,
        words: str = "",
        args: Mapping[str, Any] | None = None,
        rules: Sequence[str] = (),
    ) -> None:
        """Answer a question of a thread and resume its run. The first answer counts."""
        self.admission.check_open()
        asked = (await self.sessions.load(thread, owner=user.id)).questions.get(question)
        head = await self.store.head(user.id, thread)
        if args is not None and asked is not None and choice != "deny":
            await self._check_args(user, head, asked, args)
        await self.sessions.answer(
            thread, question, choice, owner=user.id, words=words, args=args, rules=rules, by=user.name
        )
        self._notify_inbox(head)
        if "agent" not in head.meta:
            return  # a thread of the command line: its lease holder resumes it
        if choice == "allow_always" and asked is not None and asked.get("lasting"):  # no grant answers other questions
            rule = {key: asked[key] for key in ("operation", "tool", "args") if key in asked}
            changed = {} if args is None else {"args": args}  # grant the arguments that the user approved
            await self.registry.grant(user, thread_agent(head), rule | changed)
        try:
            await retry_store(lambda: self.resume_thread(user, head))
        except StoreError as error:  # the answer is stored: the run is resumed later
            logger.warning("the answered run of thread %s is resumed later: %s", thread, error)

    async def _check_args(self, user: User, head: Summary, asked: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse changed arguments that do not fit the tool, so that the question stays open. The gate checks others.

        The tools of subagents, and those that are found while a run is running, are not known here.
        """
        if "agent" not in head.meta or asked.get("run") != head.run:
            return
        agent = (await self.registry.get_agent(user, thread_agent(head))).agent
        try:
            await check_changed_args(agent.tools, str(asked.get("tool", "")), args)
        except InvalidArgs as problem:
            raise ApiError(422, "invalid_args", f"{problem}; the question is still open") from None

    async def fork(self, user: User, thread: str, at: int | None, title: str, new_agent: str = "") -> Summary:
        """Fork a thread after an entry. A run that was open there is ended as cancelled in the fork."""
        forked, agent = await self.threads.fork(user, thread, at, title)
        if forked.run:
            result = Result(outcome="cancelled", reason="the thread was forked")
            await self.executor.end_abandoned(RunInfo(forked.run, user.id, forked.id, agent), result)
        return await self.threads.assign_agent(forked, new_agent or agent)

    async def delete_thread(self, user: User, thread: str) -> None:
        """Delete a thread and those of its subagents. A run in progress is cancelled first."""
        head = await self.store.head(user.id, thread)
        mine = self.executor.find(user.id, thread)
        if mine is not None and mine.task is not None:
            self.executor.cancel(mine)
            await asyncio.wait((mine.task,))
        elif head.run and head.leased:
            await self._request_cancel(user.id, head.run)
        await self.threads.delete(user, thread)
        self.executor.thread_cache.discard(user.id, thread)

    async def stop(self, grace: float) -> None:
        """Refuse new runs, wait `grace` seconds for the others, then release them so that they can be resumed."""
        self.admission.stopping = True
        await self.executor.stop(grace)
        self.followers.board.close()
        await self.followers.feeds.close()


def _pending_run(user: User, head: Summary, waiting: Sequence[int], wanted: RunInfo | None = None) -> RunInfo:
    """Return the pending run of a thread: the open one, or the one that answers the first queued message."""
    id, begin = (head.run, 0) if head.run else (derive_run_id(head, waiting[0]), head.last)
    about: dict[str, Any] = {"name": user.name, "role": user.role}
    if wanted is not None:
        about |= {"recipe": wanted.recipe, "model": wanted.model}
    return RunInfo(id, head.owner, head.id, thread_agent(head), begin, time(), **about)


OPEN = "the run has not ended"
STARTED: Mapping[str, Any] = {"outcome": "", "reason": ""}
REWOUND = {"outcome": "cancelled", "reason": "the thread was rewound"}


def still_open_error(info: RunInfo, reason: str) -> ApiError:
    """Return the error for a client whose run has not ended."""
    headers = {"X-Run-Id": info.id, "X-Thread-Id": info.thread, "Retry-After": "5"}
    return ApiError(
        503,
        "still_open",
        f"run {info.id} is still open: {reason}; follow it at /runs/{info.id}/events, or repeat the request with the "
        "same Idempotency-Key: without one it would be a second request",
        headers,
    )
