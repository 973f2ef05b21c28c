"""Records in the file of a SQLite store, written by its thread; a write is durable when it returns."""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

from wick._internal.worker_threads import run_in_thread
from wick.server.records import VERSION, VERSIONED_KINDS, Record, RecordSum, add_numbers, compute_draw
from wick.stores.sqlite import Sqlite
from wick.stores.sqlite_file import SQLITE_ERRORS, to_store_error
from wick.stores.sqlite_writer import Transaction

T = TypeVar("T")

SWEEP_SECONDS = 60.0
NEW_VERSION = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, json_quote(hex(randomblob(16))), 0)"
PUT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)"
ALIVE = "(until = 0 OR until > ?)"


class SqliteRecords:
    """Records in the file of a SQLite store. With `joins_store`, that store has the threads of the server."""

    def __init__(self, store: Sqlite, *, joins_store: bool = False, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self.joins_lease = self.joins_release = joins_store
        self._swept_at = 0.0  # when expired records were deleted

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
            if new and _get(do.db, kind, owner, id, self._clock()) is not None:
                return False
            self._put(do, kind, owner, id, text, until, sums)
            return True

        return await self._write(work, kind)

    def put_in(
        self,
        do: Transaction,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        sums: Sequence[RecordSum] = (),
        *,
        new: bool = False,
    ) -> bool:
        if new and _get(do.db, kind, owner, id, self._clock()) is not None:
            return False
        self._put(do, kind, owner, id, _encode(data), 0.0, sums)
        return True

    def _put(
        self, do: Transaction, kind: str, owner: str, id: str, text: str, until: float, sums: Sequence[RecordSum]
    ) -> None:
        if sums and _get(do.db, kind, owner, id, self._clock()) != orjson.loads(text):
            for one in sums:
                self._add(do, one)
        do.db.execute(PUT, (kind, owner, id, text, until))

    async def get(self, kind: str, owner: str, id: str) -> dict[str, Any] | None:
        return await self._store.query_row(lambda db: _get(db, kind, owner, id, self._clock()))

    async def find(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        return await self._store.query(lambda db: _find(db, kind, id, self._clock()))

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
        rows = await self._store.query(lambda db: db.execute(query, given).fetchall())
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
        do.db.execute(PUT, (given.kind, given.owner, given.id, text, 0))

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
        found = await self._store.query_row(lambda db: db.execute(query, VERSION).fetchone())
        return "" if found is None else str(found[0])

    async def check(self) -> None:
        """Raise a StoreError if the file is damaged, of a newer version, or of another program."""
        await self._store.check()

    async def close(self) -> None:
        """Finish pending writes and release the file. A later call opens it again."""
        await self._store.close()

    async def _write(self, work: Callable[[Transaction], T], kind: str = "") -> T:
        def write(do: Transaction) -> T:
            result = work(do)
            if kind in VERSIONED_KINDS:
                do.db.execute(NEW_VERSION, VERSION)
            if (now := self._clock()) >= self._swept_at + SWEEP_SECONDS:
                self._swept_at = now
                do.db.execute("DELETE FROM records WHERE until > 0 AND until <= ?", (now,))
            return result

        return await self._store.write(write)

    async def import_file(self, path: Path) -> None:
        """Import the records of an earlier version, which had a file of their own. It is renamed then."""

        def work(do: Transaction) -> None:
            if not path.exists():  # another process has imported it
                return
            try:
                with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as old:
                    do.db.executemany(
                        "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?)",
                        old.execute("SELECT kind, owner, id, data, until FROM records"),
                    )
            except SQLITE_ERRORS as error:
                raise to_store_error(error, path) from error

        if await run_in_thread(path.exists, "finding a database"):
            await self._store.write(work)
            with suppress(FileNotFoundError):
                os.replace(path, path.with_name(f"{path.name}.imported"))


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
