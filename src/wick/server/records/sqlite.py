"""Records in a SQLite file. One thread writes it, as for threads; a write is durable when it returns."""

from __future__ import annotations

import builtins
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import orjson

from wick._internal.worker_threads import run_in_thread
from wick.server.records import VERSION, VERSIONED_KINDS, Record, RecordSum, add_numbers, compute_draw
from wick.stores.sqlite_file import SqliteFile, SqliteReaders, SqliteSchema
from wick.stores.sqlite_writer import SqliteWriter, Transaction
from wick.stores.watchers import ThreadWatchers

T = TypeVar("T")

BUSY_SECONDS = 5.0
SWEEP_SECONDS = 60.0
SCHEMA = SqliteSchema(
    application=0x7769636D,
    table="records",
    steps=(
        (
            """CREATE TABLE records (
                kind TEXT NOT NULL, owner TEXT NOT NULL, id TEXT NOT NULL, data TEXT NOT NULL,
                until REAL NOT NULL, PRIMARY KEY (kind, owner, id)) WITHOUT ROWID""",
            "CREATE INDEX by_id ON records (kind, id)",
            "CREATE INDEX ending ON records (until) WHERE until > 0",
        ),
    ),
)
NEW_VERSION = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, json_quote(hex(randomblob(16))), 0)"
ALIVE = "(until = 0 OR until > ?)"


class SqliteRecords:
    """Records in one SQLite file, which is created on first use."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file = SqliteFile(path.absolute(), BUSY_SECONDS, SCHEMA)
        self._clock = clock
        self._readers = SqliteReaders(self._file)
        self._writer: SqliteWriter | None = None
        self._starting = Lock()

    async def put(
        self,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        *,
        new: bool = False,
        until: float = 0.0,
        sums: Sequence[RecordSum] = (),
    ) -> bool:
        text = _encode(data)

        def work(do: Transaction) -> bool:
            if sums and _get(do.db, kind, owner, id, self._clock()) != orjson.loads(text):
                for one in sums:
                    self._add(do, one)
            if new and _get(do.db, kind, owner, id, self._clock()) is not None:
                return False
            do.db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", (kind, owner, id, text, until))
            return True

        return await self._write(work, kind)

    async def get(self, kind: str, owner: str, id: str) -> dict[str, Any] | None:
        return await self._readers.read_row(lambda db: _get(db, kind, owner, id, self._clock()))

    async def find(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        return await self._readers.read(lambda db: _find(db, kind, id, self._clock()))

    async def list(
        self, kind: str, owner: str | None = None, *, after: str = "", limit: int = 1000
    ) -> builtins.list[Record]:
        first = (owner, after) if owner is not None else tuple(after.split("/", 1)) if after else ("", "")
        mine = "" if owner is None else "AND owner = ? "
        query = (
            f"SELECT owner, id, data FROM records WHERE kind = ? {mine}AND (owner, id) > (?, ?) AND {ALIVE} "
            "ORDER BY owner, id LIMIT ?"
        )
        given = (kind, *(() if owner is None else (owner,)), *first, self._clock(), limit)
        rows = await self._readers.read(lambda db: db.execute(query, given).fetchall())
        return [Record(owner, id, orjson.loads(data)) for owner, id, data in rows]

    async def delete(self, kind: str, owner: str, id: str) -> bool:
        query = f"DELETE FROM records WHERE kind = ? AND owner = ? AND id = ? AND {ALIVE}"
        return await self._write(lambda do: do.db.execute(query, (kind, owner, id, self._clock())).rowcount > 0, kind)

    async def add(
        self, kind: str, owner: str, id: str, numbers: Mapping[str, float], facts: Mapping[str, Any] | None = None
    ) -> None:
        await self._write(lambda do: self._add(do, RecordSum(kind, owner, id, numbers, facts or {})), kind)

    def _add(self, do: Transaction, given: RecordSum) -> None:
        row = _get(do.db, given.kind, given.owner, given.id, self._clock()) or {}
        text = _encode(add_numbers(row, given.numbers, given.facts))
        place = given.kind, given.owner, given.id
        do.db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, 0)", (*place, text))

    async def replace(self, kind: str, owner: str, id: str, before: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        query = f"UPDATE records SET data = ? WHERE kind = ? AND owner = ? AND id = ? AND data = ? AND {ALIVE}"
        given = (_encode(data), kind, owner, id, _encode(before))
        return await self._write(lambda do: do.db.execute(query, (*given, self._clock())).rowcount > 0, kind)

    async def draw(self, kind: str, owner: str, id: str, least: int, most: int, limit: int) -> int:
        def work(do: Transaction) -> int:
            known = _get(do.db, kind, owner, id, self._clock()) or {}
            if drawn := compute_draw(known.get("used", 0), least, most, limit):
                self._add(do, RecordSum(kind, owner, id, {"used": drawn}, {}))
            return drawn

        return await self._write(work, kind)

    async def take(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        def work(do: Transaction) -> tuple[str, dict[str, Any]] | None:
            found = _find(do.db, kind, id, self._clock())
            if found is not None:
                do.db.execute("DELETE FROM records WHERE kind = ? AND owner = ? AND id = ?", (kind, found[0], id))
            return found

        return await self._write(work, kind)

    async def version(self) -> str:
        query = "SELECT data FROM records WHERE kind = ? AND owner = ? AND id = ?"
        found = await self._readers.read_row(lambda db: db.execute(query, VERSION).fetchone())
        return "" if found is None else str(found[0])

    async def check(self) -> None:
        """Raise a StoreError if the file is damaged, of a newer version, or of another program."""
        await run_in_thread(self._file.check, "checking a database")

    async def close(self) -> None:
        """Finish pending writes and release the file. A later call opens it again."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
            await run_in_thread(lambda: writer.join(2 * BUSY_SECONDS + 5), "records closing")
        self._readers.close()

    async def _write(self, work: Callable[[Transaction], T], kind: str = "") -> T:
        with self._starting:
            if self._writer is None:
                self._writer = SqliteWriter(
                    self._file, ThreadWatchers(), self._readers.idle, self._sweep, SWEEP_SECONDS
                )
            writer = self._writer

        def work_with_version(do: Transaction) -> T:
            result = work(do)
            do.db.execute(NEW_VERSION, VERSION)
            return result

        return await writer.run(work_with_version if kind in VERSIONED_KINDS else work)

    def _sweep(self, do: Transaction) -> None:
        do.db.execute("DELETE FROM records WHERE until > 0 AND until <= ?", (self._clock(),))


def _get(db: sqlite3.Connection, kind: str, owner: str, id: str, now: float) -> dict[str, Any] | None:
    query = f"SELECT data FROM records WHERE kind = ? AND owner = ? AND id = ? AND {ALIVE}"
    found = db.execute(query, (kind, owner, id, now)).fetchone()
    return None if found is None else orjson.loads(found[0])


def _find(db: sqlite3.Connection, kind: str, id: str, now: float) -> tuple[str, dict[str, Any]] | None:
    query = f"SELECT owner, data FROM records WHERE kind = ? AND id = ? AND {ALIVE} ORDER BY owner LIMIT 1"
    found = db.execute(query, (kind, id, now)).fetchone()
    return None if found is None else (found[0], orjson.loads(found[1]))


def _encode(data: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(data)).decode()
