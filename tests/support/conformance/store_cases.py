"""Conformance cases for wick's stores: memory, a SQLite file and Postgres.

The cases of `wick.testing.StoreCases` run here with their sentences. The others need several stores on one database, or
details of wick's stores.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from store_fixtures import (
    StoreLocation,
    append_outcome,
    assert_refused,
    entry_numbers,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
)
from wick.protocols import News, Store
from wick.stores import rows
from wick.testing import StoreCases


class TestStore(StoreCases):
    checks_sentences = True


async def test_writes_during_a_read(store: Store) -> None:
    writer = await hold_thread(store)
    await writer.append(*make_entries(1, rows.BATCH_ROWS))
    async with aclosing(store.read("ada", "t")) as batches:  # type: ignore[type-var]
        assert len(await anext(batches)) == rows.BATCH_ROWS
        await writer.append(*make_entries(rows.BATCH_ROWS + 1, rows.BATCH_ROWS + 2))
        assert len(await anext(batches)) == 2
        await writer.append(make_entry(rows.BATCH_ROWS + 3))
        await store.delete("ada", "t")
        await store.create("ada", "t")
        if await append_outcome(lambda: anext(batches, None)) != "not_found":
            assert await anext(batches, None) is None


async def test_stores_on_one_database_notify_each_other(shared: StoreLocation) -> None:
    one, other = shared.open(), shared.open()
    mine = await hold_thread(one)
    async with aclosing(other.watch("ada", "t")) as news:  # type: ignore[type-var]
        assert await anext(news) == News(0, 0)
        await mine.append(make_entry(1))
        assert await anext(news) == News(1, 0)
    async with aclosing(one.watch("ada", "t")) as news:  # type: ignore[type-var]
        assert await anext(news) == News(1, 0)
        await mine.log("asked", id="q")
        assert await anext(news) == News(2, 0)
        await other.answer("ada", "t", "q", {"allowed": True})
        assert await anext(news) == News(2, 1)
        await other.delete("ada", "t")
        with assert_refused("not_found"):
            await anext(news)
    await one.close()
    await other.close()


def test_one_event_loop_after_another(somewhere: StoreLocation) -> None:
    store = somewhere.open()

    async def first() -> int:
        return (await hold_thread(store)).lease.fence

    fence = asyncio.run(first())
    for seq in range(1, 4):
        assert asyncio.run(store.append("ada", "t", [make_entry(seq)], expect=seq - 1, fence=fence)) == seq  # type: ignore[arg-type]
    assert entry_numbers(asyncio.run(read_entries(store))) == [1, 2, 3]
    asyncio.run(store.close())


async def test_written_entries_survive_reopening(shared: StoreLocation) -> None:
    store = shared.open()
    mine = await hold_thread(store)
    await mine.log("asked", id="q")
    await store.enqueue("ada", "t", {"n": 1})
    name = await store.put_blob("ada", "t", b"data")
    before, log = await store.head("ada", "t"), await read_entries(store)
    await store.close()
    again = shared.open()
    assert await again.head("ada", "t") == before and await read_entries(again) == log
    assert len(await again.inbox("ada", "t")) == 1 and await again.get_blob("ada", "t", name) == b"data"
    await again.close()
