"""The in-memory store: for tests, and for servers without persistence."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from math import inf
from threading import RLock
from typing import Any, Literal
from weakref import ref

from wick._internal.frozen import digest
from wick.errors import StoreError
from wick.protocols import Hit, Lease, News, NewThread, Page, Queued, Summary
from wick.stores import rows
from wick.stores.rows import Row
from wick.stores.watchers import ThreadWatchers, follow_thread

TTL_SECONDS = 3600.0
SWEEP_SECONDS = 300.0


@dataclass(slots=True)
class _StoredThread:
    """A thread with its log, inbox and lease."""

    key: int
    owner: str
    id: str
    title: str
    meta: str
    created: float
    updated: float
    used: float
    log: list[Row] = field(default_factory=list)
    run: str = ""
    questions: dict[str, str] = field(default_factory=dict)  # open, answered, over
    expires: dict[str, float] = field(default_factory=dict)  # when questions expire
    inbox: int = 0
    queue: dict[int, Queued] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)  # inbox position of a question's answer
    keyed_positions: dict[str, int] = field(default_factory=dict)  # inbox position by idempotency key
    blobs: dict[str, bytes] = field(default_factory=dict)
    fence: int = 0
    holder: str = ""
    until: float = 0.0

    @property
    def asking(self) -> int:
        return sum(state == "open" for state in self.questions.values())

    def count_unlapsed(self, now: float) -> int:
        """Return the number of open questions that have not expired."""
        return sum(state == "open" and self.expires.get(name, inf) > now for name, state in self.questions.items())

    @property
    def first_expiry(self) -> float:
        open_ones = (name for name, state in self.questions.items() if state == "open")
        return min((self.expires.get(name, inf) for name in open_ones), default=inf)

    @property
    def news(self) -> News:
        return News(len(self.log), self.inbox)


class InMemory:
    """A store that deletes threads after an hour without use, and does not outlive the process.

    A thread that runs, waits for an answer or has inbox items is not deleted.
    """

    def __init__(
        self, *, ttl: float = TTL_SECONDS, sweep: float = SWEEP_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._ttl, self._sweep_interval, self._clock = ttl, sweep, clock
        self._threads: dict[tuple[str, str], _StoredThread] = {}
        self._keys, self._fences = count(1), count(1)
        self._watchers = ThreadWatchers()
        self._lock = RLock()  # an agent may run in another event loop, in another OS thread
        self._swept_at = clock()
        self._timer: tuple[ref[asyncio.AbstractEventLoop], asyncio.TimerHandle] | None = None

    # -- threads ----------------------------------------------------------------------------------------------------

    async def create(self, owner: str, id: str, *, title: str = "", meta: Mapping[str, Any] | None = None) -> Summary:
        rows.check_name("an owner", owner)
        with self._lock:
            return self._summarize(self._create_thread(owner, id, title, rows.encode_meta(meta)))

    def _create_thread(self, owner: str, id: str, title: str, meta: str) -> _StoredThread:
        key = owner, rows.check_thread_id(id)
        self._sweep_if_due()
        if key in self._threads:
            raise rows.exists_error(id)
        now = self._clock()
        stored = _StoredThread(next(self._keys), owner, id, rows.shorten_title(title), meta, now, now, now)
        self._threads[key] = stored
        return stored

    def _find_thread(self, owner: str, id: str) -> _StoredThread:
        self._sweep_if_due()
        found = self._threads.get((owner, id)) if rows.is_valid_name(owner) and rows.is_valid_name(id) else None
        if found is None:
            raise rows.not_found_error(id)
        found.used = self._clock()
        return found

    async def head(self, owner: str, id: str) -> Summary:
        with self._lock:
            return self._summarize(self._find_thread(owner, id))

    def _summarize(self, stored: _StoredThread) -> Summary:
        return Summary(
            owner=stored.owner,
            id=stored.id,
            title=stored.title,
            meta=rows.decode_json(stored.meta.encode()),
            created=stored.created,
            updated=stored.updated,
            last=len(stored.log),
            run=stored.run,
            asking=stored.count_unlapsed(self._clock()),
            queued=len(stored.queue),
            leased=self._is_leased(stored),
        )

    def _is_leased(self, stored: _StoredThread) -> bool:
        return bool(stored.holder) and stored.until > self._clock()

    async def list(
        self,
        owner: str,
        *,
        running: bool | None = None,
        asking: bool | None = None,
        queued: bool | None = None,
        prefix: str = "",
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page:
        now = self._clock()

        def wanted(stored: _StoredThread) -> bool:
            flags = ((running, stored.run), (asking, stored.count_unlapsed(now)), (queued, stored.queue))
            mine = stored.owner == owner and stored.id.startswith(prefix)
            return mine and all(want is None or want == bool(flag) for want, flag in flags)

        return self._list_page(wanted, order, oldest_first, cursor, limit)

    async def count(self, owner: str) -> int:
        with self._lock:
            self._sweep_if_due()
            return sum(stored.owner == owner for stored in self._threads.values())

    async def unfinished(self, *, cursor: str = "", limit: int = 50, skip_holder: str = "") -> Page:
        def wanted(stored: _StoredThread) -> bool:
            if not (stored.run or stored.queue):
                return False
            return not (skip_holder and stored.holder.startswith(skip_holder) and stored.until > self._clock())

        return self._list_page(wanted, "created", True, cursor, limit)

    def _list_page(
        self, wanted: Callable[[_StoredThread], bool], order: str, oldest_first: bool, cursor: str, limit: int
    ) -> Page:
        mark, limit = rows.decode_cursor(cursor, order, oldest_first), rows.clamp_limit(limit)

        def place(stored: _StoredThread) -> rows.PageMark:
            return getattr(stored, order), stored.key

        def follows(stored: _StoredThread) -> bool:
            return mark is None or (place(stored) > mark if oldest_first else place(stored) < mark)

        with self._lock:
            self._sweep_if_due()
            found = [stored for stored in self._threads.values() if wanted(stored) and follows(stored)]
            found.sort(key=place, reverse=not oldest_first)
            more = rows.encode_cursor(order, oldest_first, place(found[limit - 1])) if len(found) > limit else ""
            return Page(tuple(self._summarize(stored) for stored in found[:limit]), more)

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        about = None if meta is None else rows.encode_meta(meta)
        with self._lock:
            stored = self._find_thread(owner, id)
            stored.title = stored.title if title is None else rows.shorten_title(title)
            stored.meta = stored.meta if about is None else about
            return self._summarize(stored)

    async def delete(self, owner: str, id: str) -> None:
        with self._lock:
            self._remove_thread(self._find_thread(owner, id))

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> builtins.list[tuple[str, str]]:
        with self._lock:
            since = self._clock() - rows.check_idle_seconds(idle)
            found = [
                stored for stored in self._threads.values() if stored.used <= since and owner in ("", stored.owner)
            ]
            found = sorted((stored for stored in found if self._is_idle(stored)), key=lambda stored: stored.used)[
                :limit
            ]
            for stored in found:
                self._remove_thread(stored)
            return [(stored.owner, stored.id) for stored in found]

    def _is_idle(self, stored: _StoredThread) -> bool:
        if stored.run or stored.asking or stored.queue or self._is_leased(stored):
            return False
        above = rows.decode_json(stored.meta.encode()).get("parent") if '"parent"' in stored.meta else None
        return above is None or (stored.owner, above) not in self._threads

    def _remove_thread(self, stored: _StoredThread) -> None:
        del self._threads[stored.owner, stored.id]
        self._watchers.notify((stored.owner, stored.id), None)

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        with self._lock:
            stored = self._find_thread(owner, id)
            if type(at) is not int or not 0 <= at <= len(stored.log):
                raise rows.no_entry_error(id, at, len(stored.log))
            history = rows.PreparedAppend()
            for _, kind, _, body, _ in stored.log[:at]:
                rows.note_entry(history, kind, rows.decode_json(body))
            about = stored.meta if meta is None else rows.encode_meta(meta)
            fork = self._create_thread(owner, new_id, title or stored.title or history.title, about)
            fork.log, fork.blobs, fork.run = stored.log[:at], dict(stored.blobs), history.run or ""
            fork.questions = dict.fromkeys(rows.find_open_questions(history.questions), "open")
            fork.expires = history.expires
            return self._summarize(fork)

    # -- the log ----------------------------------------------------------------------------------------------------

    async def append(
        self,
        owner: str,
        id: str,
        entries: Sequence[Mapping[str, Any]],
        *,
        expect: int,
        fence: int,
        took: Sequence[int] = (),
    ) -> int:
        prepared = rows.prepare_append(id, entries, rows.check_number("the expected entry", expect))
        with self._lock:
            self._append(self._find_thread(owner, id), prepared, expect, fence, rows.check_positions(took))
            return prepared.last

    def _append(
        self,
        stored: _StoredThread,
        prepared: rows.PreparedAppend,
        expect: int,
        fence: int,
        took: Sequence[int],
        released: bool = False,
    ) -> None:
        """Append entries, unless they are stored. With `released`, a retry may find the lease released."""
        is_retry = len(stored.log) != expect and stored.log[expect:] == prepared.rows
        if stored.fence != fence or not (stored.holder or (released and is_retry)):
            raise rows.fenced_error(stored.id)
        if is_retry:
            return
        if len(stored.log) != expect:
            raise rows.conflict_error(stored.id, expect, len(stored.log))
        self._update_inbox_and_questions(stored, prepared, took)
        stored.log += prepared.rows
        stored.updated = self._clock()
        stored.run = stored.run if prepared.run is None else prepared.run
        stored.title = stored.title or prepared.title
        self._watchers.notify((stored.owner, stored.id), stored.news)

    def _update_inbox_and_questions(
        self, stored: _StoredThread, prepared: rows.PreparedAppend, took: Sequence[int]
    ) -> None:
        """Consume inbox items and update question states; change nothing on an error."""
        states, answers = dict(stored.questions), dict(stored.answers)
        for position in took:
            if position not in stored.queue:
                raise rows.not_queued_error(stored.id, position)
        for step, question in prepared.questions:
            if step == "asked":
                if answers.get(question) not in stored.queue or answers[question] in took:
                    states[question] = "open"  # reopened, unless its answer is queued
            elif step == "over":
                states = {name: "over" if state == "open" else state for name, state in states.items()}
            elif question in states:
                if states[question] == "answered" and answers.get(question) not in took:
                    raise rows.answered_error(stored.id, question)
                states[question] = "answered"
                answers.pop(question, None)
        stored.questions, stored.answers = states, answers
        stored.expires |= prepared.expires
        for position in took:
            del stored.queue[position]

    async def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncGenerator[builtins.list[dict[str, Any]], None]:
        done, left = rows.check_number("where to begin", after), limit
        while left is None or left > 0:
            most = rows.BATCH_ROWS if left is None else min(left, rows.BATCH_ROWS)
            with self._lock:
                some = self._find_thread(owner, id).log[done : done + most]
            sizes = accumulate(len(row[3]) for row in some)
            some = some[: 1 + sum(size < rows.BATCH_BYTES for size in sizes)]  # slow readers hold little memory
            if not some:
                return
            yield [rows.entry_from_row(id, done + number, row) for number, row in enumerate(some, 1)]
            done, left = done + len(some), None if left is None else left - len(some)

    async def search(self, owner: str, text: str, *, limit: int = 20) -> builtins.list[Hit]:
        wanted, limit = rows.split_words(text), rows.clamp_limit(limit)
        hits: builtins.list[Hit] = []
        with self._lock:
            self._sweep_if_due()
            threads = [stored for stored in self._threads.values() if stored.owner == owner]
            messages = [(stored, row) for stored in threads for row in stored.log if row[1] == "message"]
            for stored, (seq, _, at, body, _) in messages:
                message = rows.message_text(rows.decode_json(body))
                if all(word in rows.fold_text(message) for word in wanted):
                    hits.append(Hit(stored.id, stored.title, seq, at, rows.make_excerpt(message, wanted[0])))
        return sorted(hits, key=lambda hit: (hit.at, hit.seq), reverse=True)[:limit]

    # -- leases -----------------------------------------------------------------------------------------------------

    async def lease(self, owner: str, id: str, holder: str, seconds: float, *, new: NewThread | None = None) -> Lease:
        rows.check_name("a holder", holder)
        seconds = rows.check_lease_seconds(seconds)
        about, bodies = rows.encode_new_thread(owner, id, new)
        with self._lock:
            if new is not None:
                created = self._create_thread(owner, id, "", about)
                for body in bodies:
                    self._enqueue(created, "message", body)
            stored, now = self._find_thread(owner, id), self._clock()
            if self._is_leased(stored):
                raise rows.held_error(id, stored.holder, stored.until - now)
            stored.fence, stored.holder, stored.until = next(self._fences), holder, now + seconds
            inbox = _decode_inbox(stored.queue.values())
            return Lease(stored.fence, holder, stored.until, self._summarize(stored), inbox)

    async def claim(
        self, holder: str, capacity: int, *, seconds: float = rows.LEASE_SECONDS, skip: Sequence[Summary] = ()
    ) -> builtins.list[Lease]:
        seconds, unchanged = rows.check_claim(holder, capacity, seconds), rows.unchanged_states(skip)
        with self._lock:
            now = self._clock()

            def can_resume(stored: _StoredThread) -> bool:
                if self._is_leased(stored) or not (stored.run or stored.queue):
                    return False
                is_answered = any(item.kind == "answer" for item in stored.queue.values())
                return not stored.asking or is_answered or stored.first_expiry <= now

            leases = builtins.list[Lease]()
            for stored in filter(can_resume, sorted(self._threads.values(), key=lambda stored: stored.created)):
                head = self._summarize(stored)
                if len(leases) < capacity and rows.can_claim(head, unchanged):
                    stored.fence, stored.holder, stored.until = next(self._fences), holder, now + seconds
                    inbox = _decode_inbox(stored.queue.values())
                    leases.append(Lease(stored.fence, holder, stored.until, self._summarize(stored), inbox))
            return leases

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        seconds = rows.check_lease_seconds(seconds)
        with self._lock:
            stored = self._find_thread(owner, id)
            if stored.fence != fence or not stored.holder:
                raise rows.fenced_error(id)
            stored.until = self._clock() + seconds
            return Lease(fence, stored.holder, stored.until)

    async def renew_all(self, leases: Sequence[tuple[str, str, int]], seconds: float) -> builtins.list[Lease | None]:
        renewed: builtins.list[Lease | None] = []
        for owner, id, fence in leases:
            try:
                renewed.append(await self.renew(owner, id, fence, seconds))
            except StoreError as error:
                if error.code not in ("fenced", "not_found"):
                    raise
                renewed.append(None)
        return renewed

    async def release(
        self,
        owner: str,
        id: str,
        fence: int,
        *,
        entries: Sequence[Mapping[str, Any]] = (),
        expect: int = 0,
        took: Sequence[int] = (),
    ) -> Summary:
        prepared = (
            rows.prepare_append(id, entries, rows.check_number("the expected entry", expect)) if entries else None
        )
        with self._lock:
            stored = self._find_thread(owner, id)
            if prepared is not None:
                self._append(stored, prepared, expect, fence, rows.check_positions(took), released=True)
            if stored.fence == fence:
                stored.holder, stored.until = "", 0.0
            return self._summarize(stored)

    # -- the inbox --------------------------------------------------------------------------------------------------

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        bodies = rows.encode_messages(messages, key)
        with self._lock:
            stored = self._find_thread(owner, id)
            if key in stored.keyed_positions:
                return stored.keyed_positions[key]
            position = [self._enqueue(stored, "message", body) for body in bodies][-1]
            if key:
                stored.keyed_positions[key] = position
            return position

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        body = rows.encode_inbox_item("an answer", data, id=question)
        with self._lock:
            stored = self._find_thread(owner, id)
            if question not in stored.questions:
                raise rows.no_question_error(id, question)
            if stored.questions[question] != "open":
                raise rows.answered_error(id, question)
            stored.questions[question] = "answered"
            stored.answers[question] = position = self._enqueue(stored, "answer", body)
            return position

    def _enqueue(self, stored: _StoredThread, kind: Literal["message", "answer"], body: bytes) -> int:
        stored.inbox += 1
        stored.updated = self._clock()
        stored.queue[stored.inbox] = Queued(stored.inbox, kind, body, stored.updated)
        self._watchers.notify((stored.owner, stored.id), stored.news)
        return stored.inbox

    async def inbox(self, owner: str, id: str) -> builtins.list[Queued]:
        with self._lock:
            queue = [*self._find_thread(owner, id).queue.values()]
        return _decode_inbox(queue)

    def watch(self, owner: str, id: str) -> AsyncGenerator[News, None]:
        async def now() -> News:
            with self._lock:
                return self._find_thread(owner, id).news

        return follow_thread(self._watchers, (owner, id), now)

    # -- blobs ------------------------------------------------------------------------------------------------------

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        name = digest(data)
        with self._lock:
            stored = self._find_thread(owner, id)
            if name not in stored.blobs:
                rows.check_blob_size(id, data, sum(map(len, stored.blobs.values())))
                stored.blobs[name] = bytes(data)
        return name

    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes:
        with self._lock:
            found = self._find_thread(owner, id).blobs.get(sha256)
        if found is None:
            raise rows.no_blob_error(id, sha256)
        return found

    # -- expiry -----------------------------------------------------------------------------------------------------

    def _sweep_if_due(self) -> None:
        """Delete unused threads every five minutes: by a timer on the event loop, or on the next call."""
        if self._clock() - self._swept_at >= self._sweep_interval:
            self.sweep()
        self._schedule_sweep()

    def _schedule_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer[0]() is loop:
            return
        store = ref(self)  # the timer must not keep the store alive

        def sweep() -> None:
            found = store()
            if found is not None:
                found._timer = None
                found.sweep()
                if found._threads:
                    found._schedule_sweep()

        self._timer = ref(loop), loop.call_later(self._sweep_interval, sweep)

    def sweep(self) -> None:
        """Delete expired threads."""
        with self._lock:
            now = self._swept_at = self._clock()
            for stored in [*self._threads.values()]:
                if now - stored.used >= self._ttl and self._is_idle(stored):
                    self._remove_thread(stored)

    async def close(self) -> None:
        """Stop the timer and end the watches; the threads stay."""
        self._watchers.close()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None


def _decode_inbox(queue: Iterable[Queued]) -> list[Queued]:
    return [Queued(item.position, item.kind, rows.decode_json(item.data), item.at) for item in queue]
