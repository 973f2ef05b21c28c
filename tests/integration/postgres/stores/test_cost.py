"""A thread does not get slower as it gets longer: bytes are counted, not seconds."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from postgres import shared_server
from store_fixtures import SHARED, HeldLease, StoreLocation, hold_thread, make_entries, make_entry, place

APPENDS = 200


def written() -> int:
    """Return the bytes that this process has written so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar: "):
            return int(line.split()[1])
    raise AssertionError("this system does not count what is written")


async def written_by_postgres() -> int:
    async with await psycopg.AsyncConnection.connect(shared_server().conninfo, autocommit=True) as connection:
        row = await (await connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).fetchone()
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def at_rest(kind: str) -> AsyncIterator[None]:
    """Postgres cleans up by itself now and then, and writes a lot: not while it is counted."""
    if kind != "postgres":
        yield
        return
    async with await psycopg.AsyncConnection.connect(shared_server().conninfo, autocommit=True) as connection:
        await connection.execute("ALTER SYSTEM SET autovacuum = off")
        await connection.execute("SELECT pg_reload_conf()")
        try:
            cleaning = "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
            while await (await connection.execute(cleaning)).fetchone():
                await asyncio.sleep(0.02)
            yield
        finally:
            await connection.execute("ALTER SYSTEM RESET autovacuum")
            await connection.execute("SELECT pg_reload_conf()")


async def bytes_for_appends(place: StoreLocation, mine: HeldLease) -> float:
    if place.kind == "postgres":
        async with await psycopg.AsyncConnection.connect(shared_server().conninfo, autocommit=True) as connection:
            await connection.execute("CHECKPOINT")
    before = await written_by_postgres() if place.kind == "postgres" else written()
    for _ in range(APPENDS):
        await mine.append(make_entry(mine.last + 1))
    after = await written_by_postgres() if place.kind == "postgres" else written()
    return (after - before) / APPENDS


@pytest.mark.parametrize("kind", SHARED)
async def test_an_append_writes_as_much_after_ten_entries_as_after_ten_thousand(kind: str, tmp_path: Path) -> None:
    there = place(kind, tmp_path)
    store = there.open()
    short, long = await hold_thread(store, "short"), await hold_thread(store, "long")
    await short.append(*make_entries(1, 10))
    while long.last < 10_000:
        await long.append(*make_entries(long.last + 1, long.last + 500))
    async with at_rest(kind):
        few, many = await bytes_for_appends(there, short), await bytes_for_appends(there, long)
    assert 100 < many <= 2 * few, (few, many)
    await store.close()


@pytest.mark.parametrize("kind", SHARED)
async def test_reading_a_long_thread_uses_bounded_memory(kind: str, tmp_path: Path) -> None:
    store = place(kind, tmp_path).open()
    mine = await hold_thread(store)
    for _ in range(100):
        await mine.append(make_entry(mine.last + 1, "event", text="x" * 300_000))
    seen = 0
    tracemalloc.start()
    async for batch in store.read("ada", "t"):
        seen += sum(len(row["data"]["text"]) for row in batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == 30_000_000 and peak < 12_000_000, peak
    await store.close()
