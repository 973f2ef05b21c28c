"""The records of the server in SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.record_cases import *  # noqa: F403
from wick.errors import StoreError
from wick.server.records import Records
from wick.server.records.sqlite import SqliteRecords


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    opened = SqliteRecords(tmp_path / "server.db")
    yield opened
    await opened.close()


async def test_sqlite_deletes_expired_rows(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "server.db", clock=lambda: 100.0)
    await records.put("k", "ada", "1", {}, until=50.0)
    await records.put("k", "ada", "2", {}, until=150.0)
    await records._write(records._sweep)
    left = await records._readers.read(lambda db: db.execute("SELECT id FROM records").fetchall())
    assert left == [("2",)]
    await records.close()


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.db").write_bytes(b"not a database at all" * 100)
    records = SqliteRecords(tmp_path / "server.db")
    with pytest.raises(StoreError):
        await records.get("k", "ada", "1")
    await records.close()
