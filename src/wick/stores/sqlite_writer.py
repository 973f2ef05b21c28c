"""Group commit: one OS thread performs all writes to a SQLite file.

Queued jobs share one transaction and are acknowledged after its commit, so they share one wait for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from traceback import clear_frames
from typing import Any, TypeVar

from wick.errors import StoreError
from wick.protocols import News
from wick.stores.sqlite_file import SQLITE_ERRORS, SqliteConnection, SqliteFile, to_store_error
from wick.stores.watchers import ThreadKey, ThreadWatchers

T = TypeVar("T")

MAX_BATCH_JOBS = 512
POLL_SECONDS = 0.2  # interval of polling for writes of other processes, while there are watches
DEFERRED_SECONDS = 0.5  # after a write, deferred work waits this long for more writes


@dataclass(slots=True)
class Transaction:
    """The connection that a job writes to, and the notifications to send after the commit."""

    db: sqlite3.Connection
    news: list[tuple[ThreadKey, News | None]] = field(default_factory=list)

    def notify(self, key: ThreadKey, news: News | None) -> None:
        self.news.append((key, news))


Work = Callable[[Transaction], Any]


@dataclass(slots=True, eq=False)
class _WriteJob:
    work: Work
    future: asyncio.Future[Any] | None = None  # of the waiting caller
    value: Any = None
    error: Exception | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.future is not None and self.future.cancelled()

    def deliver(self) -> None:
        answer, self.future = self.future, None  # break the cycle error → traceback → frame → job → error
        error, self.error = self.error, None
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(self.value)


class SqliteWriter:
    """The writer thread with its connection and its job queue."""

    def __init__(
        self,
        file: SqliteFile,
        watchers: ThreadWatchers,
        readers: deque[SqliteConnection],
        chore: Work | None = None,
        every: float = 0.0,
        deferred: Callable[[Transaction], bool] | None = None,
    ) -> None:
        self._file, self._watchers, self._readers = file, watchers, readers
        self._periodic_work, self._period, self._periodic_work_at = chore, every, 0.0
        self._deferred_work = deferred  # one portion of work that writes leave behind; True if more is left
        self._deferred_at: float | None = 0.0 if deferred else None  # when its next portion is due
        self._jobs: SimpleQueue[_WriteJob | None] = SimpleQueue()
        self._connection: SqliteConnection | None = None
        self._seen_version = 0  # the data_version that watchers know of
        self._polled_at = 0.0
        self._stopping = self._has_ended = False
        self._thread = Thread(target=self._run_jobs, name="wick sqlite writer", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a job and wait until it is committed."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_WriteJob(work, answer))
        if self._has_ended:  # closed by another OS thread
            self._fail_jobs()
        try:
            return await answer
        finally:  # break the cycle error → traceback → frame → future → error
            del answer

    def wake(self) -> None:
        """Start polling for writes of other processes."""
        self._jobs.put(None)

    def request_deferred_work(self) -> None:
        """Run the deferred work soon, also if nothing was written."""
        self._jobs.put(_WriteJob(lambda transaction: None))

    def stop(self) -> None:
        """Finish the queued jobs, and end the thread."""
        self._stopping = True
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _run_jobs(self) -> None:
        while not (self._stopping and self._jobs.empty()):
            jobs = self._collect_jobs()
            if jobs:
                self._write_jobs(jobs)
                _deliver_results(jobs)
                if self._deferred_work is not None and self._deferred_at is None:
                    self._deferred_at = time.monotonic() + DEFERRED_SECONDS
            jobs.clear()  # a waiting thread must not keep jobs alive
            self._run_periodic_work()
            self._run_deferred_work()
        self._has_ended = True
        self._fail_jobs()
        self._drop_connection()

    def _fail_jobs(self) -> None:
        """Fail the jobs that were queued after the thread had finished its last batch."""
        jobs = list[_WriteJob]()
        with suppress(Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    job.error = StoreError("the store was closed before the write", "unavailable")
                    jobs.append(job)
        _deliver_results(jobs)

    def _collect_jobs(self) -> list[_WriteJob]:
        jobs: list[_WriteJob] = []
        timeout = self._period if self._periodic_work is not None else None
        timeout = POLL_SECONDS if self._watchers else timeout
        if self._deferred_at is not None:
            left = max(0.0, self._deferred_at - time.monotonic())
            timeout = left if timeout is None else min(left, timeout)
        with suppress(Empty):
            job = self._jobs.get(timeout=timeout) if timeout != 0 else self._jobs.get_nowait()
            while True:
                if job is not None and not job.is_cancelled:
                    jobs.append(job)
                if len(jobs) >= MAX_BATCH_JOBS:
                    break  # before another job is taken
                job = self._jobs.get_nowait()
        return jobs

    def _write_jobs(self, jobs: list[_WriteJob]) -> None:
        """Write all jobs in one transaction; if that fails, each in its own."""
        try:
            for key, news in self._run_transaction(jobs):
                self._watchers.notify(key, news)
        except Exception as error:  # reported to the waiting callers; the thread continues
            self._drop_connection()
            if len(jobs) == 1 or getattr(error, "code", "") in ("locked", "unavailable", "read_only"):
                for job in jobs:
                    job.error = error
                return
            for job in jobs:
                self._write_jobs([job])

    def _run_transaction(self, jobs: list[_WriteJob]) -> list[tuple[ThreadKey, News | None]]:
        """Write jobs in one transaction. It is repeated with savepoints if one of several jobs fails, which is rare."""
        news = self._try_transaction(jobs, savepoints=False)
        return (self._try_transaction(jobs, savepoints=True) or []) if news is None else news

    def _try_transaction(self, jobs: list[_WriteJob], savepoints: bool) -> list[tuple[ThreadKey, News | None]] | None:
        """Write jobs, and return the notifications. Without savepoints, return None if one of several jobs fails."""
        link, alone = self._ensure_connection(), len(jobs) == 1
        for job in jobs:
            job.value = job.error = None
        try:
            link.check()  # nothing is written to a file that was removed or replaced
            transaction = Transaction(link.db)
            link.db.execute("BEGIN IMMEDIATE")
            for job in jobs:
                news_count = len(transaction.news)
                if savepoints:
                    link.db.execute("SAVEPOINT work")  # an error rolls back only this job
                try:
                    job.value = job.work(transaction)
                except SQLITE_ERRORS:
                    raise
                except Exception as error:
                    clear_frames(error.__traceback__)  # a stored error would keep cursors alive, and the file open
                    job.error = error
                    del transaction.news[news_count:]
                    link.db.execute("ROLLBACK TO work" if savepoints else "ROLLBACK")
                    if not savepoints and not alone:
                        return None
                if savepoints:
                    link.db.execute("RELEASE work")
            if link.db.in_transaction:
                link.db.execute("COMMIT")
        except SQLITE_ERRORS as error:
            clear_frames(error.__traceback__)
            raise to_store_error(error, self._file.path) from error
        link.check()  # before the write is acknowledged
        return transaction.news

    def _run_periodic_work(self) -> None:
        """Poll for writes of other processes, and run the periodic work if it is due."""
        now = time.monotonic()
        if now - self._polled_at >= POLL_SECONDS and self._watchers:
            self._polled_at = now
            with suppress(StoreError, *SQLITE_ERRORS):  # the next write reports it
                link = self._ensure_connection()
                version = link.db.execute("PRAGMA data_version").fetchone()[0]  # unchanged by this connection's writes
                changed = self._watchers.watched_keys() if version != self._seen_version else []
                self._seen_version = version
                for key in changed:
                    query = "SELECT last, inbox FROM threads WHERE owner = ? AND id = ?"
                    found = link.db.execute(query, key).fetchone()
                    self._watchers.notify(key, News(*found) if found else None)
        if self._periodic_work is not None and now - self._periodic_work_at >= self._period:
            self._periodic_work_at = now
            self._write_jobs([_WriteJob(self._periodic_work)])

    def _run_deferred_work(self) -> None:
        """Run a portion of the deferred work if it is due. The next one is due at once, after the queued jobs."""
        if self._deferred_work is None or self._deferred_at is None or time.monotonic() < self._deferred_at:
            return
        job = _WriteJob(self._deferred_work)
        self._write_jobs([job])
        more = job.error is None and job.value  # after an error, the next write tries again
        self._deferred_at = time.monotonic() if more and not self._stopping else None

    def _ensure_connection(self) -> SqliteConnection:
        """Return the connection; open it if needed, after closing those of the readers.

        It is reopened after each error. Connections of one process share SQLite's state of a file, such as that it
        is read-only, so none from before the error may stay open.
        """
        if self._connection is None:
            self._file.generation += 1
            with suppress(IndexError):
                while True:
                    self._readers.pop().close()
            self._connection = self._file.open(writes=True)
        return self._connection

    def _drop_connection(self) -> None:
        link, self._connection, self._seen_version = self._connection, None, 0
        if link is not None:
            if link.db.in_transaction:
                with suppress(sqlite3.Error):
                    link.db.execute("ROLLBACK")
            link.close()


def _deliver_results(jobs: list[_WriteJob]) -> None:
    """Deliver results, waking each event loop once."""

    def deliver(jobs: list[_WriteJob]) -> None:
        for job in jobs:
            job.deliver()

    by_loop: dict[asyncio.AbstractEventLoop, list[_WriteJob]] = {}
    for job in jobs:
        if job.future is not None:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, loop_jobs in by_loop.items():
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(deliver, loop_jobs)
