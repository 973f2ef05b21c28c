"""The file of a SQLite store: opening, schema migration, read connections and error mapping."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from traceback import clear_frames
from typing import TypeVar
from weakref import WeakKeyDictionary

from wick._internal.worker_threads import run_in_thread
from wick.errors import StoreError

APPLICATION = 0x7769636B  # "wick", in the header of the file
FENCE_BITS = 24  # a thread's first fence is its key shifted by these, so a recreated thread has higher fences
BUSY_PAUSE = 0.02
CHECKED_BYTES = 32_000_000  # a larger file is not checked completely at server start
WAL_BYTES = 64_000_000  # a larger write-ahead log is truncated after a checkpoint

# Each step migrates the schema by one version. A released step is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE threads (
            key INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, id TEXT NOT NULL,
            title TEXT NOT NULL, meta TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
            last INTEGER NOT NULL DEFAULT 0, run TEXT NOT NULL DEFAULT '', asking INTEGER NOT NULL DEFAULT 0,
            inbox INTEGER NOT NULL DEFAULT 0, queued INTEGER NOT NULL DEFAULT 0,
            fence INTEGER NOT NULL DEFAULT 0, holder TEXT NOT NULL DEFAULT '', until REAL NOT NULL DEFAULT 0,
            indexed INTEGER NOT NULL DEFAULT 0, UNIQUE (owner, id))""",
        "CREATE INDEX unfinished ON threads (created, key) WHERE run != '' OR queued > 0",
        """CREATE TABLE entries (
            thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE, seq INTEGER NOT NULL, kind TEXT NOT NULL,
            at REAL NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (thread, seq))""",
        """CREATE TABLE questions (
            thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE, id TEXT NOT NULL, state TEXT NOT NULL,
            position INTEGER, PRIMARY KEY (thread, id)) WITHOUT ROWID""",
        """CREATE TABLE inbox (
            thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE, position INTEGER NOT NULL,
            kind TEXT NOT NULL, at REAL NOT NULL, data BLOB NOT NULL, sum INTEGER NOT NULL,
            PRIMARY KEY (thread, position)) WITHOUT ROWID""",
        """CREATE TABLE blobs (
            thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE, sha256 TEXT NOT NULL, data BLOB NOT NULL,
            UNIQUE (thread, sha256))""",
    ),
    (
        """CREATE TABLE keyed (
            thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE, key TEXT NOT NULL, position INTEGER NOT NULL,
            PRIMARY KEY (thread, key)) WITHOUT ROWID""",
    ),
    (  # one index for each order of a list of threads, and for the lists that are usually short
        "CREATE INDEX by_updated ON threads (owner, updated, key)",
        "CREATE INDEX by_created ON threads (owner, created, key)",
        "CREATE INDEX running ON threads (owner, updated, key) WHERE run <> ''",
        "CREATE INDEX asking ON threads (owner, updated, key) WHERE asking > 0",
        "CREATE INDEX unindexed ON threads (owner, key) WHERE indexed < last",  # for the search index
    ),
    (  # when the first open question of a thread expires; threads that a server may have to resume
        "ALTER TABLE questions ADD COLUMN expires REAL NOT NULL DEFAULT 9e999",
        "ALTER TABLE threads ADD COLUMN expires REAL NOT NULL DEFAULT 9e999",
        """UPDATE questions SET expires = coalesce((
            SELECT json_extract(CAST(data AS TEXT), '$.expires') FROM entries e
            WHERE e.thread = questions.thread AND e.kind = 'asked' AND json_valid(CAST(data AS TEXT))
                AND json_extract(CAST(data AS TEXT), '$.id') = questions.id
                AND json_type(CAST(data AS TEXT), '$.expires') IN ('integer', 'real')
            ORDER BY seq DESC LIMIT 1), 9e999) WHERE state = 'open'""",
        """UPDATE threads SET expires = coalesce((
            SELECT min(q.expires) FROM questions q WHERE q.thread = key AND q.state = 'open'), 9e999)
            WHERE asking > 0""",
        """CREATE INDEX claimable ON threads (created, key)
            WHERE holder != '' OR queued > 0 OR (run != '' AND asking = 0)""",
        "CREATE INDEX lapsing ON threads (expires) WHERE asking > 0",
    ),
    (  # of a server that has its threads here
        """CREATE TABLE records (
            kind TEXT NOT NULL, owner TEXT NOT NULL, id TEXT NOT NULL, data TEXT NOT NULL,
            until REAL NOT NULL, PRIMARY KEY (kind, owner, id)) WITHOUT ROWID""",
        "CREATE INDEX records_by_id ON records (kind, id)",
        "CREATE INDEX records_ending ON records (until) WHERE until > 0",
    ),
)


FileIdentity = tuple[int, int]  # device and inode

_open_lock = Lock()  # serializes the migrations of one file


def reset_open_lock() -> None:
    """Replace the lock after a fork: the thread that held it does not exist in the child."""
    global _open_lock
    _open_lock = Lock()


def check_content(db: sqlite3.Connection, path: Path) -> None:
    """Raise if a database is damaged: each table can be read, and the pages of a small file are consistent."""
    tables = [found[1] for step in STEPS for statement in step if (found := re.match(r"CREATE TABLE (\w+)", statement))]
    for table in tables:
        if db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone() is None:
            problem = f"is damaged: its table {table} is missing; restore it from a backup"
            raise StoreError(f"the database {path} {problem}", "corrupt", "the database is damaged")
        db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
    if path.stat().st_size > CHECKED_BYTES:
        return
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        error = f"the database {path} is damaged ({' '.join(found.split())}); restore it from a backup"
        raise StoreError(error, "corrupt", "the database is damaged")


@dataclass(slots=True)
class SqliteConnection:
    """A connection, with the identity of the files that it has open."""

    db: sqlite3.Connection
    path: str
    files: tuple[FileIdentity | None, FileIdentity | None]
    generation: int  # of the file when this was opened

    def check(self) -> None:
        """Raise if the file or its log was replaced at its path: writes to it would be lost."""
        file, log = self.files
        try:
            found = os.stat(self.path)
            is_same = (found.st_dev, found.st_ino) == file
            if is_same and log is not None:
                found = os.stat(f"{self.path}-wal")
                is_same = (found.st_dev, found.st_ino) == log
        except OSError:
            is_same = False
        if not is_same:
            raise StoreError(
                f"the database {self.path} was removed or replaced while it was open; the last writes may be "
                f"lost: put the file back, or start again with another one",
                "unavailable",
                "the server's database was removed or replaced; its operator must put it back",
            )

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.db.close()


@dataclass(slots=True)
class SqliteFile:
    """A SQLite file. It is created on the first open, and never recreated after it was removed."""

    path: Path
    busy_seconds: float
    is_created: bool = False
    generation: int = 0  # incremented when the writer reopens it; readers of an earlier generation are closed

    def open(self, *, writes: bool) -> SqliteConnection:
        """Open a connection; retry while another process has the file locked."""
        patience = time.monotonic() + self.busy_seconds
        while True:
            try:
                with _open_lock:
                    return self._open(writes)
            except StoreError as error:
                if error.code != "locked" or time.monotonic() >= patience:
                    raise
            time.sleep(BUSY_PAUSE)

    def check(self) -> None:
        """Open the file and check its content, so that a server does not start on one that it cannot use."""
        link = self.open(writes=False)
        try:
            check_content(link.db, self.path)
        except SQLITE_ERRORS as error:
            raise to_store_error(error, self.path) from error
        finally:
            link.close()

    def _open(self, writes: bool) -> SqliteConnection:
        if not self.is_created:
            _create_file(self.path)
        with suppress(OSError):  # the file may belong to another user
            mode = self.path.stat().st_mode & 0o700  # a log created while the file was read-only is made writable
            for path in (self.path, _sibling_path(self.path, "-wal"), _sibling_path(self.path, "-shm")):
                if path.exists() and path.stat().st_mode & 0o777 != mode:
                    path.chmod(mode)
        db = None
        try:
            db = _connect(self.path, self.busy_seconds)
            _migrate_schema(db, self.path)
            db.execute("SELECT 1 FROM threads LIMIT 1").fetchone()  # opens the write-ahead log
            db.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        except BaseException as error:
            if db is not None:
                db.close()
            if isinstance(error, SQLITE_ERRORS):
                raise to_store_error(error, self.path) from error
            raise
        self.is_created = True
        name = str(self.path)
        return SqliteConnection(db, name, _file_identities(name), self.generation)


def _create_file(path: Path) -> None:
    """Create an empty file with mode 0600; SQLite gives its log the same mode."""
    if path.exists():
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise StoreError(f"the database {path} {problem}", "unavailable", f"the database {problem}") from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        db.text_factory = partial(str, encoding="utf-8", errors="replace")  # the checksum detects damage
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    except BaseException:
        db.close()
        raise
    return db


def _migrate_schema(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN")  # a consistent snapshot: another process may be creating the schema
    try:
        version = _schema_version(db, path)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if version == len(STEPS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[_schema_version(db, path) :]:  # reread under the lock
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {len(STEPS)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _schema_version(db: sqlite3.Connection, path: Path) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        if version or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise StoreError(
                f"{path} is a database of another program; name another file", "incompatible", INCOMPATIBLE
            )
        return 0
    if version > len(STEPS):
        raise StoreError(
            f"{path} was written by a newer wick (schema {version}; this one knows {len(STEPS)}); update wick",
            "incompatible",
            INCOMPATIBLE,
        )
    return version


def _sibling_path(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _file_identities(path: str) -> tuple[FileIdentity | None, FileIdentity | None]:
    """Return the device and inode of a database and of its log."""
    identities: list[FileIdentity | None] = []
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)
            identities.append((found.st_dev, found.st_ino))
        except OSError:
            identities.append(None)
    return identities[0], identities[1]


INCOMPATIBLE = "the server's database cannot be used by this version; its operator must update wick or restore it"

SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter if a SQLite message quotes damaged data

_ERROR_MEANINGS = {
    sqlite3.SQLITE_BUSY: ("locked", "is locked by another process; try again when that has finished"),
    sqlite3.SQLITE_LOCKED: ("locked", "is locked by another process; try again when that has finished"),
    sqlite3.SQLITE_FULL: ("full", "cannot grow: the disk is full; free some space, and retry"),
    sqlite3.SQLITE_READONLY: ("read_only", "cannot be written: it is read-only; make it writable, and retry"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "is damaged; restore it from a backup"),
    sqlite3.SQLITE_NOTADB: ("corrupt", "is not a SQLite database, or is damaged; name another, or restore it"),
    sqlite3.SQLITE_CONSTRAINT: ("corrupt", "has inconsistent data; restore it from a backup"),
    sqlite3.SQLITE_CANTOPEN: (
        "unavailable",
        "cannot be opened; check that its folder exists and that this user may read and write both",
    ),
    sqlite3.SQLITE_IOERR: ("unavailable", "cannot be read or written: the disk failed"),
    sqlite3.SQLITE_TOOBIG: ("invalid", "cannot store a value of this size"),
}


def to_store_error(error: Exception, path: Path) -> StoreError:
    """Return the StoreError for an error of SQLite."""
    damaged = sqlite3.SQLITE_CORRUPT if isinstance(error, UnicodeDecodeError) else 0
    code = getattr(error, "sqlite_errorcode", damaged)
    meaning = _ERROR_MEANINGS.get(code & 0xFF)
    if path.is_dir():
        meaning = ("invalid", f"is a folder; give the path of a file in it, such as {path / 'threads.db'}")
    if meaning is None:
        return StoreError(f"the database {path} could not do it: {error}", "failed", "the database could not do it")
    return StoreError(
        f"the database {path} {meaning[1]} ({error})",
        meaning[0],
        "the database is a folder" if path.is_dir() else f"the database {meaning[1]}",
    )


T = TypeVar("T")

READERS = 4  # concurrent reads, each with a pooled connection


class SqliteReaders:
    """A pool of read connections. `idle` has the unused ones, which do not wait for locks: `read_row` must not."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.idle: deque[SqliteConnection] = deque()
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read in a worker thread; a semaphore limits the number of connections."""
        loop = asyncio.get_running_loop()
        async with self._semaphores.setdefault(loop, asyncio.Semaphore(READERS)):
            return await run_in_thread(lambda: self.read_sync(work), "sqlite reader")

    async def read_row(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run one short query on the event loop, which takes less time than to hand it to a thread.

        A thread does it if there is no idle connection, or if the query fails or would have to wait for a lock.
        """
        try:
            link = self.idle.pop()
        except IndexError:
            return await self.read(work)
        try:
            link.check()
        except StoreError:  # the file was replaced
            link.close()
            return await self.read(work)
        try:
            found = work(link.db)
        except StoreError as error:  # such as `not_found`
            clear_frames(error.__traceback__)
            self._keep_connection(link)
            raise
        except BaseException as error:
            clear_frames(error.__traceback__)
            link.close()
            if isinstance(error, SQLITE_ERRORS):
                return await self.read(work)  # reports the error
            raise
        self._keep_connection(link)
        return found

    def read_sync(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read in one transaction, for a consistent snapshot."""
        link = None
        while link is None:
            try:
                link = self.idle.pop()
                link.check()
            except IndexError:
                link = self._file.open(writes=False)
            except StoreError:  # the file was replaced
                if link is not None:
                    link.close()
                link = None
        try:
            link.db.execute(f"PRAGMA busy_timeout = {int(self._file.busy_seconds * 1000)}")
            link.db.execute("BEGIN")
            found = work(link.db)
            self._return_connection(link)
        except StoreError as error:
            # A stored error would keep its frames and cursors alive, and the file open.
            clear_frames(error.__traceback__)
            self._return_connection(link)
            raise
        except BaseException as error:
            clear_frames(error.__traceback__)
            link.close()
            if isinstance(error, SQLITE_ERRORS):
                raise to_store_error(error, self._file.path) from error
            raise
        return found

    def close(self) -> None:
        """Close the idle connections; those in use close when their read ends."""
        self._file.generation += 1
        while self.idle:
            self.idle.pop().close()

    def _return_connection(self, link: SqliteConnection) -> None:
        link.db.execute("ROLLBACK")  # nothing was written
        link.db.execute("PRAGMA busy_timeout = 0")
        self._keep_connection(link)

    def _keep_connection(self, link: SqliteConnection) -> None:
        if len(self.idle) < READERS and link.generation == self._file.generation:
            self.idle.append(link)
        else:
            link.close()
