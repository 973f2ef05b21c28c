"""The SQLite store: for one machine, and the default.

One OS thread writes (`sqlite_writer`); reads use separate connections. A write returns once it is on disk: the file
has a write-ahead log with `synchronous = FULL`.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar
from weakref import WeakSet, finalize

from wick._internal.frozen import digest
from wick._internal.worker_threads import run_in_thread
from wick.errors import StoreError
from wick.protocols import Hit, Lease, News, NewThread, Page, Queued, Summary
from wick.stores import rows, sqlite_file
from wick.stores.sqlite_file import SqliteFile, SqliteReaders
from wick.stores.sqlite_queries import (
    FENCED,
    HAS_UNLAPSED,
    SUMMARY,
    acquire_lease,
    answer_question,
    append_entries,
    copy_thread,
    create_thread,
    delete_idle,
    delete_thread,
    describe_thread,
    enqueue_messages,
    find_thread,
    idle_threads,
    list_inbox,
    list_resumable,
    put_blob,
    read_batch,
    read_fork_source,
    release_lease,
    start_thread,
    summary_from_row,
)
from wick.stores.sqlite_search import search_messages, update_index
from wick.stores.sqlite_writer import SqliteWriter, Transaction
from wick.stores.watchers import ThreadWatchers, follow_thread

T = TypeVar("T")

BUSY_SECONDS = 5.0  # for which another process may lock the file
SWEEP_SECONDS = 300.0


class Sqlite:
    """A store in one file, created on first use. Several processes may share it.

    With `retention`, threads without a write for so many seconds are deleted, unless they run, wait for an answer or
    have inbox items.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        retention: float | None = None,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise StoreError("a SQLite store needs a file; to keep threads in memory, use InMemory", "invalid")
        self._file = SqliteFile(Path(path).absolute(), busy_seconds)
        self._retention = None if retention is None else rows.check_lease_seconds(retention)
        self._clock = clock
        self._reset_connections()
        _stores.add(self)

    def __repr__(self) -> str:
        return f"Sqlite({str(self._file.path)!r})"

    def _reset_connections(self) -> None:
        self._watchers = ThreadWatchers()
        self._readers = SqliteReaders(self._file)
        self._writer: SqliteWriter | None = None
        self._writer_lock = Lock()  # event loops of several OS threads may use one store

    # -- reading and writing ----------------------------------------------------------------------------------------

    def write(self, work: Callable[[Transaction], T]) -> Coroutine[Any, Any, T]:
        """Run work in a transaction, and return its result once it is on disk."""
        return self._ensure_writer().run(work)

    def _ensure_writer(self) -> SqliteWriter:
        with self._writer_lock:
            if self._writer is None:
                clock, retention = self._clock, self._retention or 0.0

                def delete_expired(do: Transaction) -> None:
                    """Delete expired threads, in small batches. The writer must not keep the store alive by it."""
                    now = clock()
                    delete_idle(do, idle_threads(do.db, now, retention, "", 100), now, retention)

                chore = None if self._retention is None else delete_expired
                pause = min(SWEEP_SECONDS, max(1.0, (self._retention or 0) / 10))
                self._writer = SqliteWriter(
                    self._file, self._watchers, self._readers.idle, chore, pause, lambda do: update_index(do.db)
                )
                finalize(self, self._writer.stop)
            return self._writer

    def query(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Read in another OS thread, from one snapshot."""
        return self._readers.read(work)

    def query_row(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run one short query on the event loop."""
        return self._readers.read_row(work)

    # -- threads ----------------------------------------------------------------------------------------------------

    async def create(self, owner: str, id: str, *, title: str = "", meta: Mapping[str, Any] | None = None) -> Summary:
        rows.check_name("an owner", owner)
        rows.check_thread_id(id)
        about = rows.encode_meta(meta)
        return await self.write(
            lambda do: create_thread(do, owner, id, rows.shorten_title(title), about, self._clock())
        )

    async def head(self, owner: str, id: str) -> Summary:
        return await self._readers.read_row(lambda db: self._read_summary(db, owner, id))

    def _read_summary(self, db: sqlite3.Connection, owner: str, id: str) -> Summary:
        return summary_from_row(find_thread(db, owner, id, SUMMARY, self._clock()))

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
        if not rows.is_valid_name(owner) or not rows.is_valid_prefix(prefix):
            return Page(())
        unlapsed = HAS_UNLAPSED, (self._clock(),) * 2
        where, values = rows.build_list_filter(owner, prefix, running, asking, queued, "?", unlapsed)
        return await self._list_page(where, values, order, oldest_first, cursor, limit)

    async def count(self, owner: str) -> int:
        if not rows.is_valid_name(owner):
            return 0
        query = "SELECT count(*) FROM threads WHERE owner = ?"
        (number,) = await self.query(lambda db: db.execute(query, (owner,)).fetchone())
        return int(number)

    async def unfinished(self, *, cursor: str = "", limit: int = 50, skip_holder: str = "") -> Page:
        where, values = ["(run != '' OR queued > 0)"], tuple[Any, ...]()
        if skip_holder:
            where.append("NOT (until > ? AND substr(holder, 1, length(?)) = ?)")
            values = (self._clock(), skip_holder, skip_holder)
        return await self._list_page(where, values, "created", True, cursor, limit)

    async def _list_page(
        self, where: Sequence[str], values: tuple[Any, ...], order: str, oldest_first: bool, cursor: str, limit: int
    ) -> Page:
        mark, limit = rows.decode_cursor(cursor, order, oldest_first), rows.clamp_limit(limit)
        query = rows.build_page_query(SUMMARY, where, order, oldest_first, mark, "?")
        given = (self._clock(), *values, *(mark or ()), limit + 1)
        found = await self.query(lambda db: db.execute(query, given).fetchall())
        return rows.build_page(found, limit, order, oldest_first, summary_from_row)

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        named = None if title is None else rows.shorten_title(title)
        about = None if meta is None else rows.encode_meta(meta)

        def work(do: Transaction) -> Summary:
            describe_thread(do, owner, id, named, about)
            return self._read_summary(do.db, owner, id)

        return await self.write(work)

    async def delete(self, owner: str, id: str) -> None:
        await self.write(lambda do: delete_thread(do, owner, id))

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> builtins.list[tuple[str, str]]:
        seconds = rows.check_idle_seconds(idle)
        found = await self.query(lambda db: idle_threads(db, self._clock(), seconds, owner, limit))
        if not found:
            return []
        return await self.write(lambda do: delete_idle(do, found, self._clock(), seconds))

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        rows.check_thread_id(new_id)
        about = None if meta is None else rows.encode_meta(meta)
        key, named, kept, history = await self.query(
            lambda db: read_fork_source(db, owner, id, at)
        )  # the log is append-only
        title = rows.shorten_title(title) or named or history.title

        def work(do: Transaction) -> Summary:
            if find_thread(do.db, owner, id, "key") != (key,):  # deleted by now, and created again
                raise rows.not_found_error(id)
            create_thread(do, owner, new_id, title, kept if about is None else about, self._clock())
            (new_key,) = find_thread(do.db, owner, new_id, "key")
            copy_thread(do.db, key, new_key, at, history)
            return self._read_summary(do.db, owner, new_id)

        return await self.write(work)

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
        fence, taken = rows.check_number("a fence", fence), rows.check_positions(took)
        if not rows.are_valid_names(owner, id):
            raise rows.not_found_error(id)
        return await self.write(
            lambda do: append_entries(
                do, owner, id, prepared, expect=expect, fence=fence, took=taken, now=self._clock()
            )
        )

    async def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncGenerator[builtins.list[dict[str, Any]], None]:
        done, left = rows.check_number("where to begin", after), limit
        (key,) = await self._readers.read_row(lambda db: find_thread(db, owner, id, "key"))
        while left is None or left > 0:
            start, most = done, rows.BATCH_ROWS if left is None else min(left, rows.BATCH_ROWS)
            found = await self.query(lambda db: read_batch(db, id, key, start, most))  # noqa: B023  # awaited in this iteration
            if not found:
                return
            yield found
            done, left = done + len(found), None if left is None else left - len(found)

    async def search(self, owner: str, text: str, *, limit: int = 20) -> builtins.list[Hit]:
        wanted, limit = rows.split_words(text), rows.clamp_limit(limit)
        self._ensure_writer().request_deferred_work()  # another process may have left messages that are not indexed
        return await self.query(lambda db: search_messages(db, owner, wanted, limit))

    # -- leases -----------------------------------------------------------------------------------------------------

    async def lease(
        self,
        owner: str,
        id: str,
        holder: str,
        seconds: float,
        *,
        new: NewThread | None = None,
        also: Callable[[Transaction, Lease], None] | None = None,
    ) -> Lease:
        """Acquire a lease; see `Store.lease`. `also` is called in its transaction, and may write other tables."""
        rows.check_name("a holder", holder)
        seconds = rows.check_lease_seconds(seconds)
        about, bodies = rows.encode_new_thread(owner, id, new)

        def work(do: Transaction) -> Lease:
            if new is not None:
                lease = start_thread(do, owner, id, about, bodies, holder, seconds, self._clock())
            else:
                lease = acquire_lease(do.db, owner, id, holder, seconds, self._clock())
                head = self._read_summary(do.db, owner, id)
                lease = replace(lease, head=head, inbox=list_inbox(do.db, owner, id) if head.queued else ())
            if also is not None:
                also(do, lease)
            return lease

        return await self.write(work)

    async def claim(
        self, holder: str, capacity: int, *, seconds: float = rows.LEASE_SECONDS, skip: Sequence[Summary] = ()
    ) -> builtins.list[Lease]:
        seconds = rows.check_claim(holder, capacity, seconds)

        def work(do: Transaction) -> builtins.list[Lease]:
            leases = builtins.list[Lease]()
            for head in list_resumable(do.db, self._clock(), capacity, skip):
                lease = acquire_lease(do.db, head.owner, head.id, holder, seconds, self._clock())
                leases.append(replace(lease, head=replace(head, leased=True), inbox=None if head.queued else ()))
            return leases

        if not await self.query(lambda db: list_resumable(db, self._clock(), min(capacity, 1), skip)):
            return []  # without a write: a server asks every few seconds
        return await self.write(work)

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        seconds = rows.check_lease_seconds(seconds)

        def work(do: Transaction) -> Lease:
            held_by, mine = find_thread(do.db, owner, id, "holder, fence")
            if mine != fence or not held_by:
                raise rows.fenced_error(id)
            until = self._clock() + seconds
            do.db.execute("UPDATE threads SET until = ? WHERE owner = ? AND id = ?", (until, owner, id))
            return Lease(fence, held_by, until)

        return await self.write(work)

    async def renew_all(self, leases: Sequence[tuple[str, str, int]], seconds: float) -> builtins.list[Lease | None]:
        seconds = rows.check_lease_seconds(seconds)

        def work(do: Transaction) -> builtins.list[Lease | None]:
            until, renewed = self._clock() + seconds, builtins.list[Lease | None]()
            for owner, id, fence in leases:
                query = f"SELECT key, holder FROM threads WHERE {FENCED}"
                found = do.db.execute(query, (owner, id, fence)).fetchone()
                if found is not None:
                    do.db.execute("UPDATE threads SET until = ? WHERE key = ?", (until, found[0]))
                renewed.append(None if found is None else Lease(fence, found[1], until))
            return renewed

        return await self.write(work)

    async def release(
        self,
        owner: str,
        id: str,
        fence: int,
        *,
        entries: Sequence[Mapping[str, Any]] = (),
        expect: int = 0,
        took: Sequence[int] = (),
        also: Callable[[Transaction], None] | None = None,
    ) -> Summary:
        """Release a lease; see `Store.release`. `also` is called in its transaction, and may write other tables."""
        rows.check_number("a fence", fence)
        prepared = (
            rows.prepare_append(id, entries, rows.check_number("the expected entry", expect)) if entries else None
        )
        taken = rows.check_positions(took)

        def work(do: Transaction) -> Summary:
            if prepared is not None:
                given: Any = {"expect": expect, "fence": fence, "took": taken, "now": self._clock()}
                append_entries(do, owner, id, prepared, **given, released=True)
            else:
                release_lease(do.db, owner, id, fence)
            if also is not None:
                also(do)
            return self._read_summary(do.db, owner, id)

        return await self.write(work)

    # -- the inbox --------------------------------------------------------------------------------------------------

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        bodies = rows.encode_messages(messages, key)
        return await self.write(lambda do: enqueue_messages(do, owner, id, bodies, key, self._clock()))

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        body = rows.encode_inbox_item("an answer", data, id=question)
        return await self.write(lambda do: answer_question(do, owner, id, question, body, self._clock()))

    async def inbox(self, owner: str, id: str) -> builtins.list[Queued]:
        return await self.query(lambda db: list_inbox(db, owner, id))

    def watch(self, owner: str, id: str) -> AsyncGenerator[News, None]:
        async def now() -> News:
            self._ensure_writer().wake()
            return News(*await self._readers.read_row(lambda db: find_thread(db, owner, id, "last, inbox")))

        return follow_thread(self._watchers, (owner, id), now)

    # -- blobs ------------------------------------------------------------------------------------------------------

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        name = digest(data)
        await self.write(lambda do: put_blob(do.db, owner, id, name, bytes(data)))
        return name

    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes:
        def work(db: sqlite3.Connection) -> Any:
            (key,) = find_thread(db, owner, id, "key")
            query = "SELECT data FROM blobs WHERE thread = ? AND sha256 = ?"
            return db.execute(query, (key, sha256)).fetchone() if rows.is_valid_name(sha256) else None

        found = await self.query(work)
        if found is None:
            raise rows.no_blob_error(id, sha256)
        return rows.verify_blob(id, sha256, found[0])

    # -- expiry and closing -----------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Open the file, or raise a StoreError: it is damaged, of a newer version, or of another program."""
        await run_in_thread(self._file.check, "checking a database")

    async def close(self) -> None:
        """Finish pending writes and close the file; a later call opens it again."""
        writer, self._writer = self._writer, None
        self._watchers.close()
        if writer is not None:
            writer.stop()
            await run_in_thread(lambda: writer.join(2 * self._file.busy_seconds + 5), "sqlite closing")
        self._readers.close()


_stores: WeakSet[Sqlite] = WeakSet()
_parent_connections: list[Any] = []  # referenced, so that a forked child never closes the parent's connections


def _reset_after_fork() -> None:
    sqlite_file.reset_open_lock()
    for store in [*_stores]:
        _parent_connections.append((store._writer, [*store._readers.idle]))
        store._reset_connections()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
