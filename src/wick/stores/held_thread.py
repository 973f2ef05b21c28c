"""Threads held under the write lease of their store.

    async with hold(store, owner, thread):     acquires the lease and loads the thread
        thread.add(user("hello"))              queues an entry
        await thread.saved()                   waits until it is persisted

One task writes the entries in the order they were appended, in batches. A write error fails all later appends, as
the thread in memory would otherwise be ahead of its store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from wick._internal.frozen import FrozenDict, freeze
from wick._internal.tasks import cancel_and_wait, closing_stream, wait_done
from wick.errors import StoreError, ThreadBusy
from wick.messages import Message
from wick.protocols import Lease, Queued, Store, Summary
from wick.stores.last_entries import can_append_on_release
from wick.stores.process_identity import holder_name
from wick.stores.rows import LEASE_SECONDS
from wick.threads import Thread
from wick.threads.state import Entry

logger = logging.getLogger(__name__)

T = TypeVar("T")

EARLY_SHARE = 0.1  # of its seconds: a lease is renewed so much earlier together with others
SHORTEST_WAIT, LONGEST_WAIT = 0.02, 0.5  # between two attempts to acquire a held lease
NOTICE_SECONDS = 1.0  # a longer wait for a held lease is logged
PAGE = 100  # threads
WATCH_AFTER = 0.2  # seconds of a run before it watches its inbox: most runs of a server have ended by then
WATCH_SECONDS = 1.0  # for the watch of an inbox to start
APPEND_SECONDS, APPEND_PAUSES = 2.0, (0.05, 0.2, 0.5)  # an append is retried after a lost connection


async def load(store: Store, owner: str, id: str, into: Thread | None = None, *, limit: int | None = None) -> Thread:
    """Load a thread from its store, batch by batch. With the number of entries as `limit`, the last read is saved."""
    thread = into if into is not None else Thread(id)
    async for batch in store.read(owner, id, after=len(thread.entries), limit=limit):
        for row in batch:
            thread.replay(row)
    return thread


async def iter_threads(
    store: Store,
    owner: str,
    ids: Iterable[str] | None = None,
    *,
    asking: bool | None = None,
    running: bool | None = None,
) -> AsyncIterator[Summary]:
    """Yield the threads of an owner: those with the given ids, or all that match, page by page."""
    if ids is not None:
        for id in ids:
            yield await store.head(owner, id)
        return
    cursor: str | None = None
    while cursor != "":
        page = await store.list(owner, asking=asking, running=running, cursor=cursor or "", limit=PAGE)
        for head in page.threads:
            yield head
        cursor = page.next


async def iter_unfinished(store: Store, *, skip_holder: str = "", limit: int = PAGE) -> AsyncIterator[Summary]:
    """Yield the threads of all owners with an open run or queued messages, page by page; see `Store.unfinished`."""
    cursor: str | None = None
    while cursor != "":
        page = await store.unfinished(cursor=cursor or "", limit=limit, skip_holder=skip_holder)
        for head in page.threads:
            yield head
        cursor = page.next


@asynccontextmanager
async def hold(
    store: Store,
    owner: str,
    thread: Thread,
    *,
    patience: float = 0.0,
    wait: bool = True,
    seconds: float = LEASE_SECONDS,
    lease: Lease | None = None,
    meta: Mapping[str, Any] | None = None,
) -> AsyncIterator[HeldThread]:
    """Acquire the write lease of a thread; create or load it, and persist appended entries.

    If the thread is held, wait in a FIFO queue; with `wait=False`, raise a `conflict`.
    `patience` is how long a question of a run waits for its answer before the run pauses. `lease` is one that the
    caller has acquired. A thread that is created gets the `meta`.
    """
    async with _wait_in_queue(store, owner, thread.id, wait):
        lease = lease or await acquire_lease(store, owner, thread.id, seconds, wait, meta)
        held = HeldThread(store, owner, thread, lease, seconds, patience)
        try:
            await held.catch_up()
            yield held
        finally:
            if thread.writer is held:
                thread.writer = None
            # set at once, so that no other write takes the last entries
            releasing = held.release_task = asyncio.create_task(held.release(), name=f"releasing {thread.id}")
            try:
                await asyncio.shield(releasing)
            except asyncio.CancelledError:
                await asyncio.wait((releasing,))  # the store may be closed after a cancelled run
                releasing.exception()
                raise


async def acquire_lease(
    store: Store, owner: str, id: str, seconds: float, wait: bool, meta: Mapping[str, Any] | None = None, **options: Any
) -> Lease:
    """Acquire the lease of a thread; create the thread if it does not exist. The options are for `Store.lease`."""
    holder, pause = holder_name(getattr(store, "server_id", "")), SHORTEST_WAIT
    notice_at = monotonic() + NOTICE_SECONDS
    unreleased = _unreleased.get(store, {})
    if (owner, id) in unreleased:  # this process failed to release it earlier; it would block until it expires
        try:
            await store.release(owner, id, unreleased[owner, id])
        except StoreError as error:
            if error.code != "not_found":  # else it was deleted since
                raise
        unreleased.pop((owner, id), None)

    async def release_unwanted(taking: asyncio.Task[Lease]) -> None:
        """Release the lease that a cancelled caller no longer waits for."""
        with suppress(StoreError):  # the lease expires
            await store.release(owner, id, (await taking).fence)

    while True:
        taking = asyncio.create_task(store.lease(owner, id, holder, seconds, **options), name=f"taking {id}")
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:  # the lease may have been acquired
            await asyncio.shield(release_unwanted(taking))
            raise
        except StoreError as error:
            if error.code == "not_found":
                try:
                    await store.create(owner, id, meta=meta)
                except StoreError as refusal:
                    if refusal.code != "conflict":  # else it was created concurrently
                        raise
                continue
            if error.code != "conflict":
                raise
            if not wait:
                raise ThreadBusy(str(error)) from None
            if monotonic() >= notice_at:
                notice_at = inf
                logger.warning(
                    "waiting: %s; a lease is renewed as long as its process runs. If that process was killed, the wait "
                    'ends with the lease: `lease=` of Sessions sets its seconds, and busy="refuse" does not wait',
                    error,
                )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_WAIT)


_unreleased: WeakKeyDictionary[Store, dict[tuple[str, str], int]] = WeakKeyDictionary()  # fences, by owner and thread


async def release_lease(store: Store, owner: str, id: str, fence: int) -> Summary | None:
    """Release a lease, and return the thread. If that fails, `release_leases` or the next run tries again."""
    try:
        return await store.release(owner, id, fence)
    except Exception as error:  # also of a store of a plugin: the run has ended, and the lease expires
        _unreleased.setdefault(store, {})[owner, id] = fence
        logger.warning("the lease of %s could not be released: %s", id, error)
        return None


async def release_leases(store: Store) -> None:
    """Release the leases that could not be released when their runs ended, so that no run waits until they expire."""
    for (owner, id), fence in [*_unreleased.get(store, {}).items()]:
        with suppress(StoreError):
            await store.release(owner, id, fence)
            left = _unreleased.get(store, {})
            if left.get((owner, id)) == fence:
                del left[owner, id]


class HeldInbox:
    """The inbox of a held thread. It is read again only after the store's watch has reported a new item.

    A short run does not watch it: its process reports what it sends itself. What another process sends meanwhile stays
    in the inbox, for the next step or the next run.
    """

    def __init__(self, store: Store, owner: str, id: str, items: Sequence[Queued] | None) -> None:
        self._store, self._owner, self._id = store, owner, id
        self._items = items or ()
        self._known = max((item.position for item in self._items), default=0)
        self.is_stale = items is None
        self._reads = self._newest = 0  # the number of reads, and the number of the one that returned the items
        self._timer: asyncio.TimerHandle | None = None  # starts the watch
        self._watch_task: asyncio.Task[None] | None = None
        self._reported: asyncio.Future[None] | None = None  # done when the watch has reported the inbox, or ended

    async def fetch(self) -> Sequence[Queued]:
        """Return the items. The watch starts some time after the first call; then a call waits until it has started."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._start_watch)
        elif self._reported is not None and not self._reported.done():
            await asyncio.wait((self._reported,), timeout=WATCH_SECONDS)
            self.is_stale = self.is_stale or not self._reported.done()
        if self.is_stale or (self._watch_task is not None and self._watch_task.done()):  # without one, every call reads
            self.is_stale = False  # before the read: an item that arrives meanwhile may not be in it
            number = self._reads = self._reads + 1
            try:
                items = await self._store.inbox(self._owner, self._id)
            except BaseException:
                self.is_stale = True
                raise
            if number > self._newest:  # else a read that started later has returned earlier
                self._newest, self._items = number, items
        return self._items

    def _start_watch(self) -> None:
        self._reported = reported = asyncio.get_running_loop().create_future()
        self._watch_task = asyncio.create_task(self._watch(reported), name=f"inbox of {self._id}")

    async def _watch(self, reported: asyncio.Future[None]) -> None:
        try:
            async with closing_stream(self._store.watch(self._owner, self._id)) as all_news:
                async for news in all_news:
                    if news.inbox > self._known:
                        self._known, self.is_stale = news.inbox, True
                    if not reported.done():
                        reported.set_result(None)
        except StoreError:
            pass  # every call reads
        finally:
            if not reported.done():
                reported.set_result(None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._watch_task = self._watch_task, None  # break the cycle task → traceback → frame → self
        await cancel_and_wait(() if task is None else (task,))


class LeaseRenewals:
    """Renews the leases that one event loop holds in a store. Those that are due soon share one transaction."""

    def __init__(self) -> None:
        self._held: set[HeldThread] = set()
        self._holders: WeakValueDictionary[tuple[str, str], HeldThread] = WeakValueDictionary()  # by owner and thread
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, store: Store) -> LeaseRenewals:
        """Return the renewals of a store in the running event loop."""
        by_store = _renewals.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
        return by_store.setdefault(store, cls())

    def add(self, held: HeldThread) -> None:
        """Renew the lease of a thread from now on."""
        self._held.add(held)
        self._holders[held.owner, held.thread.id] = held
        if self._timer is None or held.renew_at < self._timer.when():
            self._schedule(held.renew_at)

    def find_holder(self, owner: str, id: str) -> HeldThread | None:
        """Return the newest holder of a thread in this event loop."""
        return self._holders.get((owner, id))

    async def remove(self, held: HeldThread) -> None:
        """Stop to renew a lease. A renewal in progress has no effect after the lease is released."""
        self._held.discard(held)
        if not self._held:
            self._schedule(inf)
            await cancel_and_wait([*self._tasks])

    def _schedule(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._start_renewal) if at < inf else None

    def _start_renewal(self) -> None:
        loop = asyncio.get_running_loop()
        now, due = loop.time(), dict[float, list[HeldThread]]()
        for held in self._held:
            if held.renew_at <= now + held.seconds * EARLY_SHARE:
                held.renew_at = now + held.seconds / 3
                due.setdefault(held.seconds, []).append(held)
        self._schedule(min((held.renew_at for held in self._held), default=inf))
        for seconds, several in due.items():
            task = loop.create_task(self._renew(several, seconds), name="renewal of leases")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _renew(self, due: Sequence[HeldThread], seconds: float) -> None:
        try:
            leases = [(held.owner, held.thread.id, held.lease.fence) for held in due]
            renewed = await due[0].store.renew_all(leases, seconds)
        except Exception as error:  # the next renewal is before the leases expire
            logger.warning("%s leases could not be renewed: %s", len(due), error)
            return
        for held, lease in zip(due, renewed, strict=True):
            held.lease = lease or held.lease
        lost = [held for held, lease in zip(due, renewed, strict=True) if lease is None and held in self._held]
        await asyncio.gather(*(held.renew() for held in lost))


_renewals: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Store, LeaseRenewals]] = WeakKeyDictionary()


async def send_messages(store: Store, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
    """Queue messages for a thread. A holder in this event loop reads them without waiting for the store's watch."""
    position = await store.enqueue(owner, id, *messages, key=key)
    if (holder := LeaseRenewals.of(store).find_holder(owner, id)) is not None:
        holder.expect_inbox()
    return position


class HeldThread:
    """A thread with a write lease of this process; see `hold`."""

    def __init__(self, store: Store, owner: str, thread: Thread, lease: Lease, seconds: float, patience: float) -> None:
        self.store, self.owner, self.thread, self.lease = store, owner, thread, lease
        self.patience, self.seconds = patience, seconds
        self._loop = asyncio.get_running_loop()
        self._unwritten: list[Entry] = []
        self.last_written = 0  # sequence number of the last entry in the store
        self._write_task: asyncio.Task[None] | None = None
        self._fetched: dict[int, Message] = {}  # inbox messages that are not in the log yet, by position
        self._rejected: list[Message] = []  # of these, messages that will not be logged
        self._queued_answers: dict[int, str] = {}  # questions that queued answers refer to, by position
        self._consumed: set[int] = set()  # positions of inbox items that are in the log
        self._answered_questions: set[str] = set()  # questions with an answer that is about to be logged
        self._error: StoreError | None = None
        self._waits: set[asyncio.Timeout] = set()  # of questions that wait for their answers
        self.release_task: asyncio.Task[None] | None = None  # it writes the last entries and releases the lease
        self.saves_on_release = False  # the end of a run is saved with the release, before it is announced
        self.on_saved: Callable[[], None] | None = None  # called after each write
        # returns what the store's transaction that releases the lease shall also write, if anything
        self.prepare_release: Callable[[], Awaitable[Callable[..., Any] | None]] | None = None
        self._release_options: dict[str, Any] = {}
        self.has_also_written = False
        self.released_head: Summary | None = None  # the thread when its lease was released
        self._inbox = HeldInbox(store, owner, thread.id, lease.inbox)
        self.renew_at = self._loop.time() + seconds / 3
        LeaseRenewals.of(store).add(self)

    def expect_inbox(self) -> None:
        """Read the inbox at the next step, although the watch of the store has not reported an item."""
        self._inbox.is_stale = True

    def has_consumed(self, position: int) -> bool:
        """Return True if the inbox item at a position is in the log."""
        return position in self._consumed

    @property
    def failure(self) -> StoreError | None:
        """The error that stopped writing, if any."""
        return self._error

    async def catch_up(self) -> None:
        """Load new entries from the store, and write those that it lacks."""
        thread = self.thread
        self._check_not_held()
        head = self.lease.head or await self.store.head(self.owner, thread.id)
        # A log is append-only: with the same creation time and length it has no entry of another process. A fence
        # does not show that: in Postgres all threads share one sequence, and a claim may have taken the next one.
        is_known = (head.created, head.last) == thread.saved_log
        if thread.entries and head.last and not is_known:
            place = min(head.last, len(thread.entries))  # the last entry of the common part
            batches = self.store.read(self.owner, thread.id, after=place - 1, limit=1)
            rows = [row async for batch in batches for row in batch]
            if not rows or rows[0] != thread.entries[place - 1].to_json():
                raise StoreError(
                    f"thread {thread.id} is another one here than in the store; load it from there", "conflict"
                )
        self.last_written = min(head.last, len(thread.entries))
        if head.last > len(thread.entries):
            await load(self.store, self.owner, thread.id, thread, limit=head.last - len(thread.entries))
        self.last_written = max(self.last_written, head.last)
        if head.queued:
            await self.fetch_inbox()
        self._unwritten.extend(thread.entries[self.last_written :])
        await self.saved()
        self._check_not_held()
        thread.writer = self

    def _check_not_held(self) -> None:
        """Raise a `conflict` if another holder writes this thread object."""
        other = self.thread.writer
        if isinstance(other, HeldThread) and not other._loop.is_closed():
            raise StoreError(
                f"thread {self.thread.id} is held by {other.owner} now; pass another Thread to this run", "conflict"
            )

    def write(self, entry: Entry) -> None:
        """Queue an entry for writing; may be called from any Python thread."""
        if self._error is not None:
            raise self._error
        is_first = not self._unwritten
        self._unwritten.append(entry)
        # The task starts one iteration of the event loop after this call: entries of one moment share a transaction.
        if not self._on_own_loop():
            self._loop.call_soon_threadsafe(self._start_writing)
        elif is_first:  # else a task writes the queue, or is about to start
            self._loop.call_soon(self._start_writing)

    async def saved(self) -> None:
        """Wait until all queued entries are persisted."""
        if not self._unwritten and self._error is None:
            return  # an entry stays in the queue until it is persisted
        if not self._on_own_loop():
            return await self._run_on_own_loop(self.saved())
        while self._unwritten and self._error is None and self.release_task is None:
            self._start_writing()
            if self._write_task is not None:
                await wait_done(self._write_task)  # the write is not cancelled with its waiter
        if self.release_task is not None:  # it writes the rest
            await wait_done(self.release_task)
        if self._error is not None:
            raise self._error
        if self._unwritten:
            raise StoreError(f"the lease of thread {self.thread.id} was released", "fenced")

    def _on_own_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _run_on_own_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the holding event loop: an agent in a tool's Python thread has its own loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def fetch_messages(self) -> Sequence[Message]:
        """Fetch new inbox messages, each once; appending one consumes it."""
        fresh = [row for row in await self.fetch_inbox() if row.kind == "message" and row.position not in self._fetched]
        self._fetched |= {row.position: Message.from_json(row.data) for row in fresh}
        return [self._fetched[row.position] for row in fresh]

    def discard_message(self, message: Message) -> None:
        """Discard an inbox message; the next write consumes it."""
        self._rejected.append(message)

    async def answer(self, question: str, most: float = inf) -> FrozenDict | None:
        """Wait for the first answer to a question; return None at the timeout."""
        if not self._on_own_loop():
            return await self._run_on_own_loop(self.answer(question, most))
        answer, seconds = await self._find_answer(question), min(self.patience, most)
        if answer is not None or seconds <= 0:
            return answer
        wait = asyncio.timeout(seconds)
        self._waits.add(wait)
        try:
            async with wait, closing_stream(self.store.watch(self.owner, self.thread.id)) as news:
                async for _ in news:
                    if answer := await self._find_answer(question):
                        return answer
        except TimeoutError:
            pass
        finally:
            self._waits.discard(wait)
        return None

    def stop_waiting(self) -> None:
        """Let questions wait no longer, now and from now on: their run pauses."""
        self.patience = 0.0
        for wait in self._waits:
            wait.reschedule(self._loop.time())

    async def _find_answer(self, question: str) -> FrozenDict | None:
        self._inbox.is_stale = True  # the first answer counts, also one that the watch has not reported yet
        answers = (row.data for row in await self.fetch_inbox() if row.kind == "answer" and row.data["id"] == question)
        if (first := next(answers, None)) is None:
            return None
        self._answered_questions.add(question)
        return FrozenDict(freeze(first))

    async def fetch_inbox(self) -> Sequence[Queued]:
        """Return the inbox items that are not in the log."""
        on_own_loop = self._on_own_loop()
        rows = await (self._inbox.fetch() if on_own_loop else self.store.inbox(self.owner, self.thread.id))
        queued = [row for row in rows if row.position not in self._consumed]  # read while they were being consumed
        self._queued_answers |= {row.position: row.data["id"] for row in queued if row.kind == "answer"}
        return queued

    def _start_writing(self) -> None:
        can_write = self._unwritten and self._error is None and self.release_task is None
        if can_write and (self._write_task is None or self._write_task.done()):
            self._write_task = self._loop.create_task(self._write_entries(), name=f"writing {self.thread.id}")

    async def _write_entries(self) -> None:
        while self._unwritten and self._error is None and self.release_task is None:
            await self._write_batch(self._append)

    async def _write_batch(self, write: Callable[[Sequence[dict[str, Any]], Sequence[int]], Awaitable[None]]) -> None:
        """Write the queued entries, together with the inbox items that they consume."""
        batch = list(self._unwritten)
        try:
            took = self._find_consumed(batch) if self._fetched or self._queued_answers else []
            # Frozen data is JSON data already: a store encodes it without a copy.
            rows = [
                {**(row := entry.to_json()), "data": FrozenDict(row["data"])}
                if isinstance(entry.data, Message)
                else {"seq": entry.seq, "kind": entry.kind, "at": entry.at, "data": entry.data}
                for entry in batch
            ]
            await self._retry(lambda: write(rows, took))
        except StoreError as error:
            self._error = error
            return
        except Exception as error:
            self._error = StoreError(f"thread {self.thread.id} cannot be written: {error}")
            raise
        self.last_written = batch[-1].seq
        del self._unwritten[: len(batch)]  # others may have been added meanwhile
        self._consumed.update(took)
        for position in took:
            self._fetched.pop(position, None)
            self._queued_answers.pop(position, None)
        if self.on_saved is not None:
            self.on_saved()

    def _find_consumed(self, batch: Sequence[Entry]) -> list[int]:
        """Return the positions of the inbox items that entries consume."""
        queued = {id(message): position for position, message in self._fetched.items()}
        messages = [*self._rejected, *(entry.data for entry in batch if entry.kind == "message")]
        took = [queued[id(message)] for message in messages if id(message) in queued]
        logged = {entry.data["id"] for entry in batch if entry.kind == "answered"}
        awaited = {*self.thread.questions, *self._answered_questions} - logged
        answers = self._queued_answers.items()
        return took + [position for position, question in answers if question not in awaited]  # obsolete answers

    async def _append(self, rows: Sequence[dict[str, Any]], took: Sequence[int]) -> None:
        place, fence = (self.owner, self.thread.id), self.lease.fence
        await self.store.append(*place, rows, expect=self.last_written, fence=fence, took=took)

    async def _append_and_release(self, rows: Sequence[dict[str, Any]], took: Sequence[int]) -> None:
        place, fence = (self.owner, self.thread.id), self.lease.fence
        given: Any = {"entries": rows, "expect": self.last_written, "took": took, **self._release_options}
        self.released_head = await self.store.release(*place, fence, **given)
        self.has_also_written = "also" in given

    async def _retry(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write; after a lost connection or lock, write the same entries again, which `Store.append` allows."""
        give_up, pauses = monotonic() + APPEND_SECONDS, iter(APPEND_PAUSES)
        while True:
            try:
                return await write()
            except StoreError as error:
                pause = next(pauses, None)
                if error.code not in ("unavailable", "locked") or pause is None or monotonic() >= give_up:
                    raise
            await asyncio.sleep(pause)

    async def renew(self) -> None:
        """Renew the lease. If another process has acquired it, later writes fail."""
        try:
            self.lease = await self.store.renew(self.owner, self.thread.id, self.lease.fence, self.seconds)
        except StoreError as error:
            if error.code in ("fenced", "not_found"):
                self._error, self.renew_at = error, inf
            else:
                logger.warning("the lease of %s could not be renewed: %s", self.thread.id, error)

    async def release(self) -> None:
        """Write the remaining entries and release the lease, in one transaction. Raise the error of a failed write."""
        if self._write_task is not None:
            await wait_done(self._write_task)
        await LeaseRenewals.of(self.store).remove(self)
        await self._inbox.close()
        if self._unwritten and self._error is None:
            if can_append_on_release(self.store):
                also = None if self.prepare_release is None else await self.prepare_release()
                self._release_options = {} if also is None else {"also": also}
                await self._write_batch(self._append_and_release)
            else:
                await self._write_batch(self._append)
        if self.released_head is None:
            self.released_head = await release_lease(self.store, self.owner, self.thread.id, self.lease.fence)
        head, is_saved = self.released_head, not self._unwritten and self._error is None
        is_same = is_saved and head is not None and head.last == self.last_written
        self.thread.saved_log = (head.created, head.last) if is_same and head is not None else None
        self.on_saved = self.prepare_release = None  # break the cycle listener → thread → listener
        self._release_options = {}
        if self._unwritten and self._error is not None:
            raise self._error


# -- a FIFO queue per thread within one process -----------------------------------------------------------------------

_Queues = dict[tuple[int, str, str], list["asyncio.Future[None]"]]
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()


@asynccontextmanager
async def _wait_in_queue(store: Store, owner: str, thread: str, wait: bool) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    queues, key = _queues.setdefault(loop, {}), (id(store), owner, thread)
    queue, turn = queues.setdefault(key, []), loop.create_future()
    if queue and not wait:
        raise ThreadBusy(f"a run of thread {thread} is in progress; wait for it, or send it the message")
    queue.append(turn)
    try:
        if queue[0] is not turn:
            await turn
        yield
    finally:
        queue.remove(turn)
        if not queue:
            queues.pop(key, None)
        elif not queue[0].done():
            queue[0].set_result(None)
