"""Test cases for the log of a thread: appending and reading entries, and the bytes beside it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wick.agent import Agent
from wick.messages import ToolCall, assistant
from wick.models.scripted import Scripted
from wick.protocols import Store
from wick.stores import rows
from wick.testing.leased_thread_cases import (
    LeasedThreadCases,
    entry_numbers,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
    text_entry,
)
from wick.threads import Thread

DATA = [
    {"text": 'a\0b \u2028 🙂 \\ " é'},
    {"int": 2**200, "negative": -(2**63) - 1, "edge": [2**63 - 1, 2**64]},
    {"float": [0.1, 1e300, -0.0, 5e-324, 1.0]},
    {"nested": [[[{"x": []}]]], "": None, "true": True},
    {"long": "x" * 300_000},
    [],
    "just a text",
    None,
]


BAD = [
    {"seq": 3, "kind": "event", "at": 1.0, "data": {}},
    {"seq": 2, "kind": "", "at": 1.0, "data": {}},
    {"seq": 2, "kind": "a\0b", "at": 1.0, "data": {}},
    {"seq": 2, "kind": "event", "at": float("nan"), "data": {}},
    {"seq": 2, "kind": "event", "at": "now", "data": {}},
    {"seq": 2, "kind": "event", "at": 1.0, "data": {"x": float("inf")}},
    {"seq": 2, "kind": "event", "at": 1.0, "data": {1: "x"}},
    {"seq": 2, "kind": "event", "at": 1.0, "data": {"x": b"bytes"}},
    {"seq": 2, "kind": "event", "at": 1.0, "data": {"x": "\ud800"}},
    {"seq": 2, "kind": "message", "at": 1.0, "data": {}},
    {"seq": 2, "kind": "asked", "at": 1.0, "data": {"id": "a\0b"}},
    {"seq": 2, "kind": "event", "at": 1.0},
]


class LogCases(LeasedThreadCases):
    """Test cases for entries and blobs, also after cancelled appends and a closed store."""

    # -- the log --------------------------------------------------------------------------------------------------

    async def test_read_returns_written_entries(self, store: Store) -> None:
        writer = await hold_thread(store)
        wanted = [make_entry(number, "event", [data]) for number, data in enumerate(DATA, 1)]
        assert await writer.append(*wanted) == len(DATA)
        found = await read_entries(store)
        assert found == wanted
        assert [repr(row) for row in found] == [repr(row) for row in wanted]  # 1.0 is not 1, -0.0 is not 0.0

    async def test_a_real_thread_round_trips(self, store: Store) -> None:
        writer = await hold_thread(store)
        thread = Thread("t")
        agent = Agent(Scripted(assistant("", ToolCall("1", "len", {"obj": "x"})), "Done.", "Bye."), tools=[])
        await agent.run("Go on.", thread=thread)
        await agent.run("And now?", thread=thread)
        thread.values["todos"] = ["tea"]
        for logged in thread.entries:
            await writer.append(logged.to_json())
        again = Thread.from_json({"schema": 1, "id": "t", "entries": await read_entries(store)})
        assert again.messages == thread.messages and again.entries == thread.entries
        assert again.values["todos"] == ["tea"]
        assert (await store.head("ada", "t")).run == ""

    @pytest.mark.parametrize("bad", BAD, ids=repr)
    async def test_an_append_stores_all_entries_or_none(self, store: Store, bad: Any) -> None:
        writer = await hold_thread(store)
        with self.assert_refused("invalid", "thread t: entry 2 cannot be stored"):
            await writer.append(make_entry(1), bad)
        with self.assert_refused("invalid", "nothing to append"):
            await writer.append()
        assert await read_entries(store) == []
        assert await writer.append(make_entry(1)) == 1

    async def test_a_writer_with_a_gap_is_refused(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(*make_entries(1, 3))
        for expect in (0, 2, 4, 1000):
            with self.assert_refused("conflict", f"thread t is at entry 3, not at {expect}"):
                await writer.append(make_entry(expect + 1), expect=expect)
        for odd in (-1, None, 2.0, 2**70):
            with self.assert_refused("invalid"):
                await writer.append(make_entry(1), expect=odd)
        assert len(await read_entries(store)) == 3

    async def test_a_repeated_append_changes_nothing(self, store: Store) -> None:
        """After an unknown outcome a writer can safely append again."""
        writer = await hold_thread(store)
        some = make_entries(1, 3)
        assert await writer.append(*some) == 3
        assert await writer.append(*some, expect=0) == 3
        with self.assert_refused("conflict"):
            await writer.append(*some[:2], expect=0)
        with self.assert_refused("conflict"):
            await writer.append(*some[:2], {**some[2], "data": {"role": "user", "content": "other"}}, expect=0)
        assert await read_entries(store) == some

    async def test_a_repeated_append_dequeues_once(self, store: Store) -> None:
        writer = await hold_thread(store)
        position = await store.enqueue("ada", "t", {"role": "user", "content": "Hi."})
        row = text_entry(1, "user", "Hi.")
        assert await writer.append(row, took=[position]) == 1
        assert await writer.append(row, took=[position], expect=0) == 1
        assert [*await store.inbox("ada", "t")] == [] and (await store.head("ada", "t")).queued == 0

    async def test_read_returns_a_range(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(*make_entries(1, 10))
        assert entry_numbers(await read_entries(store, after=7)) == [8, 9, 10]
        assert entry_numbers(await read_entries(store, after=2, limit=3)) == [3, 4, 5]
        assert (
            await read_entries(store, after=10)
            == await read_entries(store, after=99)
            == await read_entries(store, limit=0)
            == []
        )
        with self.assert_refused("invalid"):
            await read_entries(store, after=-1)

    async def test_a_long_thread_is_read_in_batches(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(*make_entries(1, 2 * rows.BATCH_ROWS + 1))
        sizes = [len(batch) async for batch in store.read("ada", "t")]
        assert sum(sizes) == 2 * rows.BATCH_ROWS + 1 and max(sizes) <= rows.BATCH_ROWS

    async def test_large_entries_are_read_a_few_at_a_time(self, store: Store) -> None:
        writer = await hold_thread(store)
        for seq in range(1, 8):
            await writer.append(make_entry(seq, "event", {"x": "y" * (rows.BATCH_BYTES // 2)}))
        sizes = [len(batch) async for batch in store.read("ada", "t")]
        assert sum(sizes) == 7 and max(sizes) <= 2

    # -- blobs ----------------------------------------------------------------------------------------------------

    async def test_blobs_are_stored_once_and_forked(self, store: Store) -> None:
        writer = await hold_thread(store)
        data = bytes(range(256)) * 10
        name = await store.put_blob("ada", "t", data)
        assert len(name) == 64 and name == await store.put_blob("ada", "t", data)
        assert await store.get_blob("ada", "t", name) == data
        assert await store.get_blob("ada", "t", await store.put_blob("ada", "t", b"")) == b""
        await writer.append(make_entry(1))
        await store.fork("ada", "t", 1, "f")
        await store.delete("ada", "t")
        assert await store.get_blob("ada", "f", name) == data
        for odd in ("0" * 64, "", "\0"):
            with self.assert_refused("not_found", "keeps no bytes"):
                await store.get_blob("ada", "f", odd)

    async def test_blobs_are_limited(self, store: Store) -> None:
        await hold_thread(store)
        with self.assert_refused("full"):
            await store.put_blob("ada", "t", bytes(rows.BLOB_BYTES + 1))
        for number in range(rows.BLOBS_BYTES // rows.BLOB_BYTES):
            await store.put_blob("ada", "t", number.to_bytes(2, "big") * (rows.BLOB_BYTES // 2))
        with self.assert_refused("full"):
            await store.put_blob("ada", "t", b"one more")
        await store.put_blob("ada", "t", bytes(rows.BLOB_BYTES))  # that is there already

    # -- loops, cancelling, closing -------------------------------------------------------------------------------

    async def test_a_cancelled_append_can_be_repeated(self, store: Store) -> None:
        writer = await hold_thread(store)
        for round in range(10):
            row = make_entry(writer.last + 1)
            task = asyncio.ensure_future(store.append("ada", "t", [row], expect=writer.last, fence=writer.lease.fence))
            await asyncio.sleep(0.0005 * round)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await writer.append(row) == round + 1  # a retry is safe after any outcome
        assert entry_numbers(await read_entries(store)) == [*range(1, 11)]

    async def test_a_closed_store_opens_again(self, store: Store) -> None:
        mine = await hold_thread(store)
        await mine.append(make_entry(1))
        await store.close()
        await store.close()
        await mine.append(make_entry(2))
        assert entry_numbers(await read_entries(store)) == [1, 2]
        await store.close()
