"""A thread in a store, for as long as somebody writes it.

    async with hold(store, owner, thread):     the thread is loaded, and nobody else writes it
        thread.add(user("hello"))              is on its way
        await thread.saved()                   has arrived

Entries are written in the order they were appended, by one task, as many at a time as there are. What cannot be
written fails everything after it: a thread in memory that is ahead of its store is not gone on with.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from wick._internal.frozen import FrozenDict, freeze
from wick._internal.tasks import cancel_and_wait, closing
from wick.errors import StoreError
from wick.messages import Message
from wick.protocols import Lease, Queued, Store
from wick.stores.process_identity import holder_name
from wick.threads import Entry, Thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_SECONDS = 30.0  # how long the thread of a program that died stays locked
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 0.5  # between two tries to get a thread that another program holds
APPEND_SECONDS, APPEND_PAUSES = 2.0, (0.05, 0.2, 0.5)  # in which an append is repeated whose connection was lost


async def load(store: Store, owner: str, id: str, into: Thread | None = None) -> Thread:
    """A thread as it is in its store, read batch by batch."""
    thread = into if into is not None else Thread(id)
    async for batch in store.read(owner, id, after=len(thread.entries)):
        for row in batch:
            thread.replay(row)
    return thread


@asynccontextmanager
async def hold(
    store: Store,
    owner: str,
    thread: Thread,
    *,
    patience: float = 0.0,
    wait: bool = True,
    seconds: float = LEASE_SECONDS,
) -> AsyncIterator[HeldThread]:
    """Be the one who writes a thread: it is made if there is none, read if there is, and kept up to date.

    Who comes while somebody else holds it waits in line; with `wait=False` that is a `conflict`.
    `patience` is how long a question of a run waits for its answer before the run pauses.
    """
    async with _wait_in_queue(store, owner, thread.id, wait):
        await _ensure_thread(store, owner, thread.id)
        lease = await _acquire_lease(store, owner, thread.id, seconds, wait)
        kept = HeldThread(store, owner, thread, lease, seconds, patience)
        try:
            await kept.catch_up()
            yield kept
        finally:
            if thread.keeper is kept:
                thread.keeper = None
            await asyncio.shield(kept.release())


async def _acquire_lease(store: Store, owner: str, id: str, seconds: float, wait: bool) -> Lease:
    holder, pause = holder_name(), SHORTEST_WAIT
    await _release_leftover(store, owner, id)
    while True:
        taking = asyncio.create_task(store.lease(owner, id, holder, seconds), name=f"taking {id}")
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:  # it may be taken all the same
            await asyncio.shield(_release_unwanted(taking, store, owner, id))
            raise
        except StoreError as error:
            if error.code != "conflict" or not wait:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_WAIT)


async def _release_unwanted(taking: asyncio.Task[Lease], store: Store, owner: str, id: str) -> None:
    """Give back the lease of somebody who no longer waits for it."""
    with suppress(StoreError):  # it lapses by itself
        await store.release(owner, id, (await taking).fence)


_unreleased: WeakKeyDictionary[Store, dict[tuple[str, str], int]] = WeakKeyDictionary()  # fences, by owner and thread


async def _release_leftover(store: Store, owner: str, id: str) -> None:
    """Give back a lease that this program could not give back when it was done, so that nobody waits for its end."""
    left = _unreleased.get(store, {})
    if (owner, id) in left:
        await store.release(owner, id, left[owner, id])
        left.pop((owner, id), None)


async def release_leases(store: Store) -> None:
    """Release the leases that could not be released when their runs ended, so that no run waits until they expire."""
    for (owner, id), fence in [*_unreleased.get(store, {}).items()]:
        with suppress(StoreError):
            await store.release(owner, id, fence)
            left = _unreleased.get(store, {})
            if left.get((owner, id)) == fence:
                del left[owner, id]


async def _ensure_thread(store: Store, owner: str, id: str) -> None:
    """Create a thread, unless it exists; one that exists may have a name that new threads cannot have."""
    try:
        await store.create(owner, id)
    except StoreError as error:
        if error.code == "invalid":
            try:
                await store.head(owner, id)
            except StoreError:
                raise error from None
        elif error.code != "conflict":
            raise


class HeldThread:
    """A thread that this program holds in a store: see `hold`."""

    def __init__(self, store: Store, owner: str, thread: Thread, lease: Lease, seconds: float, patience: float) -> None:
        self.store, self.owner, self.thread, self.lease = store, owner, thread, lease
        self.patience, self.seconds = patience, seconds
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[Entry] = deque()
        self._last = 0  # the number of the last entry that is written
        self._write_task: asyncio.Task[None] | None = None
        self._fetched: dict[int, Message] = {}  # messages that were queued and are not in the log yet, by position
        self._rejected: list[Message] = []  # of these, what is not going to be
        self._queued_answers: dict[int, str] = {}  # likewise, the questions that they are about
        self._consumed: set[int] = set()  # the positions of what is in the log by now
        self._answered_questions: set[str] = set()  # the questions whose answer somebody is about to log
        self._error: StoreError | None = None
        self._renewal_task: asyncio.Task[None] | None = self._loop.create_task(
            self._renew_lease(), name=f"lease of {thread.id}"
        )

    @property
    def last_written(self) -> int:
        """The number of the last entry that is in the store."""
        return self._last

    @property
    def failure(self) -> StoreError | None:
        """The error that ended writing, if one did."""
        return self._error

    async def catch_up(self) -> None:
        """Read what the store has; a thread that has more is written there."""
        thread = self.thread
        self._check_not_held()
        head = await self.store.head(self.owner, thread.id)
        if thread.entries and head.last:
            await self._check_same_thread(head.last)
        self._last = min(head.last, len(thread.entries))
        await load(self.store, self.owner, thread.id, thread)
        self._last = max(self._last, head.last)
        if head.queued:
            await self._fetch_inbox()
        self._unwritten.extend(thread.entries[self._last :])
        await self.saved()
        self._check_not_held()
        thread.keeper = self

    def _check_not_held(self) -> None:
        """What is appended to a thread goes to one place."""
        other = self.thread.keeper
        if isinstance(other, HeldThread) and not other._loop.is_closed():
            raise StoreError(
                f"thread {self.thread.id} is being kept for {other.owner} now; give this run another Thread", "conflict"
            )

    async def _check_same_thread(self, last: int) -> None:
        """What is here must be what is there, as far as both go."""
        place = min(last, len(self.thread.entries))
        rows = [
            row
            async for batch in self.store.read(self.owner, self.thread.id, after=place - 1, limit=1)
            for row in batch
        ]
        if not rows or rows[0] != self.thread.entries[place - 1].to_json():
            raise StoreError(
                f"thread {self.thread.id} is another one here than in the store; load it from there", "conflict"
            )

    def keep(self, entry: Entry) -> None:
        """Take an entry, from whatever Python thread, and see that it is written."""
        if self._error is not None:
            raise self._error
        self._unwritten.append(entry)
        self._start_writing() if self._on_own_loop() else self._loop.call_soon_threadsafe(self._start_writing)

    async def saved(self) -> None:
        """Return when all that was taken is in the store."""
        if not self._on_own_loop():
            return await self._run_on_own_loop(self.saved())
        while self._unwritten and self._error is None:
            self._start_writing()
            if self._write_task is not None:
                await asyncio.wait((self._write_task,))  # not cancelled if this is
        if self._error is not None:
            raise self._error

    def _on_own_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _run_on_own_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it where the thread is held: an agent that a tool runs in a Python thread has an event loop of its own."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def said(self) -> Sequence[Message]:
        """What was queued for this thread, each message once; the log takes it when it is appended."""
        fresh = [
            row for row in await self._fetch_inbox() if row.kind == "message" and row.position not in self._fetched
        ]
        self._fetched |= {row.position: Message.from_json(row.data) for row in fresh}
        return [self._fetched[row.position] for row in fresh]

    def refuse(self, message: Message) -> None:
        """A message that was queued is not going to be said; it is taken with whatever is written next."""
        self._rejected.append(message)

    async def answer(self, question: str, most: float = inf) -> FrozenDict | None:
        """The first answer to a question, if somebody gives one in time."""
        if not self._on_own_loop():
            return await self._run_on_own_loop(self.answer(question, most))
        found, seconds = await self._find_answer(question), min(self.patience, most)
        if found is not None or seconds <= 0:
            return found
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), closing(self.store.watch(self.owner, self.thread.id)) as news:
                async for _ in news:
                    if found := await self._find_answer(question):
                        return found
        return None

    async def _find_answer(self, question: str) -> FrozenDict | None:
        found = (row.data for row in await self._fetch_inbox() if row.kind == "answer" and row.data["id"] == question)
        if (first := next(found, None)) is None:
            return None
        self._answered_questions.add(question)
        return FrozenDict(freeze(first))

    async def _fetch_inbox(self) -> Sequence[Queued]:
        found = await self.store.inbox(self.owner, self.thread.id)
        queued = [
            row for row in found if row.position not in self._consumed
        ]  # it may have been read before it was taken
        self._queued_answers |= {row.position: row.data["id"] for row in queued if row.kind == "answer"}
        return queued

    def _start_writing(self) -> None:
        if self._unwritten and self._error is None and (self._write_task is None or self._write_task.done()):
            self._write_task = self._loop.create_task(self._write_entries(), name=f"writing {self.thread.id}")

    async def _write_entries(self) -> None:
        while self._unwritten:
            batch = list(self._unwritten)
            try:
                rows, took = [entry.to_json() for entry in batch], self._consumed_positions(batch)
                self._last = await self._append_with_retry(rows, took)
            except StoreError as error:
                self._error = error
                return
            except Exception as error:
                self._error = StoreError(f"thread {self.thread.id} cannot be written: {error}")
                raise
            for _ in batch:
                self._unwritten.popleft()
            self._consumed.update(took)
            for position in took:
                self._fetched.pop(position, None)
                self._queued_answers.pop(position, None)

    async def _append_with_retry(self, rows: Sequence[dict[str, Any]], took: Sequence[int]) -> int:
        """Append entries; if the connection is lost, append the same entries again, which `Store.append` allows."""
        give_up, pauses = monotonic() + APPEND_SECONDS, iter(APPEND_PAUSES)
        while True:
            try:
                return await self.store.append(
                    self.owner, self.thread.id, rows, expect=self._last, fence=self.lease.fence, took=took
                )
            except StoreError as error:
                pause = next(pauses, None)
                if error.code != "unavailable" or pause is None or monotonic() >= give_up:
                    raise
            await asyncio.sleep(pause)

    def _consumed_positions(self, batch: Sequence[Entry]) -> list[int]:
        """The positions of what was queued and is among these entries, or is an answer nobody waits for any more."""
        queued = {id(message): position for position, message in self._fetched.items()}
        said = [*self._rejected, *(entry.data for entry in batch if entry.kind == "message")]
        took = [queued[id(message)] for message in said if id(message) in queued]
        logged = {entry.data["id"] for entry in batch if entry.kind == "answered"}
        awaited = {*self.thread.questions, *self._answered_questions} - logged
        return took + [position for position, question in self._queued_answers.items() if question not in awaited]

    async def _renew_lease(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / 3)
            try:
                self.lease = await self.store.renew(self.owner, self.thread.id, self.lease.fence, self.seconds)
            except StoreError as error:
                if error.code in ("fenced", "not_found"):
                    self._error = error
                    return
                logger.warning("the lease of %s could not be renewed: %s", self.thread.id, error)

    async def release(self) -> None:
        """Write what is left and let the next one write."""
        with suppress(StoreError):
            await self.saved()
        renewing, self._renewal_task = (
            self._renewal_task,
            None,
        )  # which would keep this alive, as it was cancelled in here
        await cancel_and_wait(() if renewing is None else (renewing,))
        try:
            await self.store.release(self.owner, self.thread.id, self.lease.fence)
        except StoreError as error:  # it lapses by itself
            _unreleased.setdefault(self.store, {})[self.owner, self.thread.id] = self.lease.fence
            logger.warning("the lease of %s could not be given back: %s", self.thread.id, error)


# -- in one program, who comes first is served first ------------------------------------------------------------------

_Queues = dict[tuple[int, str, str], deque["asyncio.Future[None]"]]
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()


@asynccontextmanager
async def _wait_in_queue(store: Store, owner: str, thread: str, wait: bool) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    lines, key = _queues.setdefault(loop, {}), (id(store), owner, thread)
    line, mine = lines.setdefault(key, deque()), loop.create_future()
    if line and not wait:
        raise StoreError(f"a run of thread {thread} is going on; wait for it, or send it the message", "conflict")
    line.append(mine)
    try:
        if line[0] is not mine:
            await mine
        yield
    finally:
        line.remove(mine)
        if not line:
            lines.pop(key, None)
        elif not line[0].done():
            line[0].set_result(None)
