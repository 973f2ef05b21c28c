"""The records of the server in SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.record_cases import *  # noqa: F403
from wick.errors import StoreError
from wick.server.records import Records
from wick.server.records.sqlite import SqliteRecords
from wick.stores.sqlite import Sqlite


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    opened = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    yield opened
    await opened.close()


async def test_sqlite_deletes_expired_rows(tmp_path: Path) -> None:
    now, store = 100.0, Sqlite(tmp_path / "threads.db")
    records = SqliteRecords(store, clock=lambda: now)
    await records.put("k", "ada", "1", {}, until=150.0)
    now = 200.0
    await records.put("k", "ada", "2", {}, until=250.0)
    left = await store.query(lambda db: db.execute("SELECT id FROM records").fetchall())
    assert left == [("2",)]
    await records.close()


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "threads.db").write_bytes(b"not a database at all" * 100)
    records = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    with pytest.raises(StoreError):
        await records.get("k", "ada", "1")
    await records.close()


async def test_the_file_of_an_earlier_version_is_imported_once(tmp_path: Path) -> None:
    old, store = tmp_path / "server.db", Sqlite(tmp_path / "threads.db")
    with closing(sqlite3.connect(old)) as db, db:
        db.execute("CREATE TABLE records (kind TEXT, owner TEXT, id TEXT, data TEXT, until REAL)")
        db.execute("""INSERT INTO records VALUES ('user', '', 'ada', '{"name": "Ada"}', 0)""")
    records = SqliteRecords(store)
    await records.import_file(old)
    assert await records.get("user", "", "ada") == {"name": "Ada"}
    assert sorted(name for name in os.listdir(tmp_path) if "server" in name) == ["server.db.imported"]
    await records.delete("user", "", "ada")
    await records.import_file(old)
    assert await records.get("user", "", "ada") is None
    await records.close()


async def test_a_damaged_file_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_bytes(b"not a database at all" * 100)
    records = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    with pytest.raises(StoreError, match=r"server\.db is not a SQLite database"):
        await records.import_file(tmp_path / "server.db")
    await records.close()
