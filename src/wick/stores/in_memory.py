"""The in-memory store: for tests, and for servers without persistence."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import Any, Literal
from weakref import ref

from wick._internal.frozen import digest
from wick.protocols import Hit, Lease, News, Page, Queued, Summary
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
        made = _StoredThread(next(self._keys), owner, id, rows.shorten_title(title), meta, now, now, now)
        self._threads[key] = made
        return made

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

    def _summarize(self, kept: _StoredThread) -> Summary:
        return Summary(
            owner=kept.owner,
            id=kept.id,
            title=kept.title,
            meta=rows.decode_json(kept.meta.encode()),
            created=kept.created,
            updated=kept.updated,
            last=len(kept.log),
            run=kept.run,
            asking=kept.asking,
            queued=len(kept.queue),
            leased=self._is_leased(kept),
        )

    def _is_leased(self, kept: _StoredThread) -> bool:
        return bool(kept.holder) and kept.until > self._clock()

    async def list(
        self,
        owner: str,
        *,
        running: bool | None = None,
        asking: bool | None = None,
        queued: bool | None = None,
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page:
        def wanted(kept: _StoredThread) -> bool:
            flags = ((running, kept.run), (asking, kept.asking), (queued, kept.queue))
            return kept.owner == owner and all(want is None or want == bool(flag) for want, flag in flags)

        return self._list_page(wanted, order, oldest_first, cursor, limit)

    async def unfinished(self, *, cursor: str = "", limit: int = 50) -> Page:
        return self._list_page(lambda kept: bool(kept.run or kept.queue), "created", True, cursor, limit)

    def _list_page(
        self, wanted: Callable[[_StoredThread], bool], order: str, oldest_first: bool, cursor: str, limit: int
    ) -> Page:
        mark, limit = rows.decode_cursor(cursor, order, oldest_first), rows.clamp_limit(limit)

        def place(kept: _StoredThread) -> rows.PageMark:
            return getattr(kept, order), kept.key

        def follows(kept: _StoredThread) -> bool:
            return mark is None or (place(kept) > mark if oldest_first else place(kept) < mark)

        with self._lock:
            self._sweep_if_due()
            found = [kept for kept in self._threads.values() if wanted(kept) and follows(kept)]
            found.sort(key=place, reverse=not oldest_first)
            more = rows.encode_cursor(order, oldest_first, place(found[limit - 1])) if len(found) > limit else ""
            return Page(tuple(self._summarize(kept) for kept in found[:limit]), more)

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        about = None if meta is None else rows.encode_meta(meta)
        with self._lock:
            kept = self._find_thread(owner, id)
            kept.title = kept.title if title is None else rows.shorten_title(title)
            kept.meta = kept.meta if about is None else about
            return self._summarize(kept)

    async def delete(self, owner: str, id: str) -> None:
        with self._lock:
            self._remove_thread(self._find_thread(owner, id))

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> builtins.list[tuple[str, str]]:
        with self._lock:
            since = self._clock() - rows.check_idle_seconds(idle)
            found = [kept for kept in self._threads.values() if kept.used <= since and owner in ("", kept.owner)]
            found = sorted((kept for kept in found if self._is_idle(kept)), key=lambda kept: kept.used)[:limit]
            for kept in found:
                self._remove_thread(kept)
            return [(kept.owner, kept.id) for kept in found]

    def _is_idle(self, kept: _StoredThread) -> bool:
        if kept.run or kept.asking or kept.queue or self._is_leased(kept):
            return False
        above = rows.decode_json(kept.meta.encode()).get("parent") if '"parent"' in kept.meta else None
        return above is None or (kept.owner, above) not in self._threads

    def _remove_thread(self, kept: _StoredThread) -> None:
        del self._threads[kept.owner, kept.id]
        self._watchers.notify((kept.owner, kept.id), None)

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        with self._lock:
            kept = self._find_thread(owner, id)
            if type(at) is not int or not 0 <= at <= len(kept.log):
                raise rows.no_entry_error(id, at, len(kept.log))
            said = rows.PreparedAppend()
            for _, kind, _, body, _ in kept.log[:at]:
                rows.note_entry(said, kind, rows.decode_json(body))
            about = kept.meta if meta is None else rows.encode_meta(meta)
            made = self._create_thread(owner, new_id, title or kept.title or said.title, about)
            made.log, made.blobs, made.run = kept.log[:at], dict(kept.blobs), said.run or ""
            made.questions = dict.fromkeys(rows.find_open_questions(said.questions), "open")
            return self._summarize(made)

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
        made = rows.prepare_append(id, entries, rows.check_number("what is expected", expect))
        took = rows.check_positions(took)
        with self._lock:
            kept = self._find_thread(owner, id)
            if kept.fence != fence or not kept.holder:
                raise rows.fenced_error(id)
            if len(kept.log) != expect:
                if kept.log[expect:] == made.rows:
                    return made.last
                raise rows.conflict_error(id, expect, len(kept.log))
            self._update_inbox_and_questions(kept, made, took)
            kept.log += made.rows
            kept.updated = self._clock()
            kept.run = kept.run if made.run is None else made.run
            kept.title = kept.title or made.title
            self._watchers.notify((owner, id), kept.news)
            return made.last

    def _update_inbox_and_questions(self, kept: _StoredThread, made: rows.PreparedAppend, took: Sequence[int]) -> None:
        """Consume inbox items and update question states; change nothing on an error."""
        states, answers = dict(kept.questions), dict(kept.answers)
        for position in took:
            if position not in kept.queue:
                raise rows.not_queued_error(kept.id, position)
        for step, question in made.questions:
            if step == "asked":
                if answers.get(question) not in kept.queue or answers[question] in took:
                    states[question] = "open"  # reopened, unless its answer is queued
            elif step == "over":
                states = {name: "over" if state == "open" else state for name, state in states.items()}
            elif question in states:
                if states[question] == "answered" and answers.get(question) not in took:
                    raise rows.answered_error(kept.id, question)
                states[question] = "answered"
                answers.pop(question, None)
        kept.questions, kept.answers = states, answers
        for position in took:
            del kept.queue[position]

    async def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncGenerator[builtins.list[dict[str, Any]], None]:
        done, left = rows.check_number("where to begin", after), limit
        while left is None or left > 0:
            most = rows.BATCH_ROWS if left is None else min(left, rows.BATCH_ROWS)
            with self._lock:
                some = _limit_batch(self._find_thread(owner, id).log[done : done + most])
            if not some:
                return
            yield [rows.entry_from_row(id, done + number, row) for number, row in enumerate(some, 1)]
            done, left = done + len(some), None if left is None else left - len(some)

    async def search(self, owner: str, text: str, *, limit: int = 20) -> builtins.list[Hit]:
        wanted, limit = rows.split_words(text), rows.clamp_limit(limit)
        with self._lock:
            self._sweep_if_due()
            hits = [hit for kept in self._threads.values() if kept.owner == owner for hit in _find_hits(kept, wanted)]
        return sorted(hits, key=lambda hit: (hit.at, hit.seq), reverse=True)[:limit]

    # -- leases -----------------------------------------------------------------------------------------------------

    async def lease(self, owner: str, id: str, holder: str, seconds: float) -> Lease:
        rows.check_name("a holder", holder)
        seconds = rows.check_lease_seconds(seconds)
        with self._lock:
            kept, now = self._find_thread(owner, id), self._clock()
            if self._is_leased(kept):
                raise rows.held_error(id, kept.holder, kept.until - now)
            kept.fence, kept.holder, kept.until = next(self._fences), holder, now + seconds
            return Lease(kept.fence, holder, kept.until)

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        seconds = rows.check_lease_seconds(seconds)
        with self._lock:
            kept = self._find_thread(owner, id)
            if kept.fence != fence or not kept.holder:
                raise rows.fenced_error(id)
            kept.until = self._clock() + seconds
            return Lease(fence, kept.holder, kept.until)

    async def release(self, owner: str, id: str, fence: int) -> None:
        with self._lock:
            kept = self._find_thread(owner, id)
            if kept.fence == fence:
                kept.holder, kept.until = "", 0.0

    # -- the inbox --------------------------------------------------------------------------------------------------

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        bodies = rows.encode_messages(messages, key)
        with self._lock:
            kept = self._find_thread(owner, id)
            if key in kept.keyed_positions:
                return kept.keyed_positions[key]
            position = [self._enqueue(kept, "message", body) for body in bodies][-1]
            if key:
                kept.keyed_positions[key] = position
            return position

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        body = rows.encode_inbox_item("an answer", data, id=question)
        with self._lock:
            kept = self._find_thread(owner, id)
            if question not in kept.questions:
                raise rows.no_question_error(id, question)
            if kept.questions[question] != "open":
                raise rows.answered_error(id, question)
            kept.questions[question] = "answered"
            kept.answers[question] = position = self._enqueue(kept, "answer", body)
            return position

    def _enqueue(self, kept: _StoredThread, kind: Literal["message", "answer"], body: bytes) -> int:
        kept.inbox += 1
        kept.updated = self._clock()
        kept.queue[kept.inbox] = Queued(kept.inbox, kind, body, kept.updated)
        self._watchers.notify((kept.owner, kept.id), kept.news)
        return kept.inbox

    async def inbox(self, owner: str, id: str) -> builtins.list[Queued]:
        with self._lock:
            queue = [*self._find_thread(owner, id).queue.values()]
        return [Queued(item.position, item.kind, rows.decode_json(item.data), item.at) for item in queue]

    def watch(self, owner: str, id: str) -> AsyncGenerator[News, None]:
        async def now() -> News:
            with self._lock:
                return self._find_thread(owner, id).news

        return follow_thread(self._watchers, (owner, id), now)

    # -- blobs ------------------------------------------------------------------------------------------------------

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        name = digest(data)
        with self._lock:
            kept = self._find_thread(owner, id)
            if name not in kept.blobs:
                rows.check_blob_size(id, data, sum(map(len, kept.blobs.values())))
                kept.blobs[name] = bytes(data)
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
        if self._timer is None or self._timer[0]() is not loop:
            self._timer = ref(loop), loop.call_later(self._sweep_interval, _sweep_by_timer, ref(self))

    def sweep(self) -> None:
        """Delete the threads whose time to live has passed."""
        with self._lock:
            now = self._swept_at = self._clock()
            for kept in [*self._threads.values()]:
                if now - kept.used >= self._ttl and self._is_idle(kept):
                    self._remove_thread(kept)

    async def close(self) -> None:
        """Stop the timer and end the watches; the threads stay."""
        self._watchers.close()
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None


def _sweep_by_timer(store: ref[InMemory]) -> None:
    """Sweep a store from its timer, which holds only a weak reference."""
    kept = store()
    if kept is not None:
        kept._timer = None
        kept.sweep()
        if kept._threads:
            kept._schedule_sweep()


def _limit_batch(log: list[Row]) -> list[Row]:
    """Return the rows that fit into one batch, so that slow readers hold little memory."""
    size = 0
    for number, row in enumerate(log, 1):
        size += len(row[3])
        if size >= rows.BATCH_BYTES:
            return log[:number]
    return log


def _find_hits(kept: _StoredThread, wanted: Sequence[str]) -> list[Hit]:
    hits = []
    for seq, kind, at, body, _ in kept.log:
        if kind == "message":
            text = rows.message_text(rows.decode_json(body))
            if all(word in rows.fold_text(text) for word in wanted):
                hits.append(Hit(kept.id, kept.title, seq, at, rows.make_excerpt(text, wanted[0])))
    return hits
