"""Test cases for the leases of threads: one writer at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from wick.protocols import Store
from wick.testing.leased_thread_cases import (
    HeldLease,
    LeasedThreadCases,
    append_outcome,
    entry_numbers,
    hold_thread,
    make_entry,
    read_entries,
)


class LeaseCases(LeasedThreadCases):
    """Test cases for leases."""

    async def test_one_holder_at_a_time(self, store: Store) -> None:
        writer = await hold_thread(store)
        assert (await store.head("ada", "t")).leased, "`leased` is true while a lease has not expired"
        with self.assert_refused("conflict", "held by me for another"):
            await store.lease("ada", "t", "other", 60)
        with self.assert_refused("conflict"):
            await store.lease("ada", "t", "me", 60)
        await store.release("ada", "t", writer.lease.fence)
        assert not (await store.head("ada", "t")).leased, "a released lease ends at once"
        other = await store.lease("ada", "t", "other", 60)
        assert (other.holder, other.fence > writer.lease.fence) == ("other", True), "a fence increases with each lease"

    async def test_a_released_lease_cannot_write(self, store: Store) -> None:
        writer = await hold_thread(store)
        await store.release("ada", "t", writer.lease.fence)
        with self.assert_refused("fenced", "cannot be written: its lease has expired"):
            await writer.append(make_entry(1))
        with self.assert_refused("fenced"):
            await store.renew("ada", "t", writer.lease.fence, 60)
        await store.release("ada", "t", writer.lease.fence)  # nothing to release
        assert await read_entries(store) == []

    async def test_the_last_entries_are_appended_with_the_release(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await store.enqueue("ada", "t", {"n": 1})
        await own_rows.append(make_entry(1))
        last: Any = {"entries": [make_entry(2)], "expect": 1, "took": [1]}
        with self.assert_refused("fenced"):
            await store.release("ada", "t", own_rows.lease.fence + 1, **last)
        with self.assert_refused("conflict"):
            await store.release("ada", "t", own_rows.lease.fence, entries=[make_entry(1)], expect=0)
        assert (await store.head("ada", "t")).leased
        for _ in range(2):  # a retry after a lost connection
            await store.release("ada", "t", own_rows.lease.fence, **last)
            head = await store.head("ada", "t")
            assert (head.last, head.queued, head.leased) == (2, 0, False)
        with self.assert_refused("fenced"):
            await store.release("ada", "t", own_rows.lease.fence, entries=[make_entry(3)], expect=2)

    async def test_writing_needs_a_lease(self, store: Store) -> None:
        await store.create("ada", "t")
        for fence in (0, 1, 2**40):
            with self.assert_refused("fenced"):
                await store.append("ada", "t", [make_entry(1)], expect=0, fence=fence)

    async def test_an_expired_lease_is_taken_over(self, store: Store) -> None:
        mine = await hold_thread(store, seconds=0.2)
        await mine.append(make_entry(1))
        await asyncio.sleep(0.3)
        assert not (await store.head("ada", "t")).leased, "an expired lease does not count as leased"
        await mine.append(make_entry(2))  # no other writer is possible
        other = HeldLease(store, await store.lease("ada", "t", "other", 60), last=2)
        assert other.lease.fence > mine.lease.fence, "a fence increases with each lease"
        with self.assert_refused("fenced"):
            await mine.append(make_entry(3))
        with self.assert_refused("fenced"):
            await store.renew("ada", "t", mine.lease.fence, 60)
        await store.release("ada", "t", mine.lease.fence)  # not the holder, so not allowed to release
        await other.append(make_entry(3))
        assert entry_numbers(await read_entries(store)) == [1, 2, 3]

    async def test_a_lease_is_renewed(self, store: Store) -> None:
        mine = await hold_thread(store, seconds=0.3)
        again = await store.renew("ada", "t", mine.lease.fence, 60)
        assert (again.fence, again.holder) == (mine.lease.fence, "me"), "a renewed lease has the same fence and holder"
        assert again.until > mine.lease.until + 30, f"`until` counts from now on: {again.until} is too early"
        await asyncio.sleep(0.4)
        with self.assert_refused("conflict"):
            await store.lease("ada", "t", "other", 60)

    async def test_several_leases_are_renewed_at_once(self, store: Store) -> None:
        held = {id: await hold_thread(store, id, seconds=0.5) for id in ("a", "b", "c")}
        leases = [("ada", id, thread.lease.fence) for id, thread in held.items()]
        await store.release("ada", "b", held["b"].lease.fence)
        await store.delete("ada", "c")
        first, *others = await store.renew_all(
            [*leases, ("bob", "a", leases[0][2]), ("ada", "a", leases[0][2] + 1_000)], 60
        )
        assert others == [None] * 4, "only the lease of the thread a can be renewed"
        assert first is not None and first.until > held["a"].lease.until + 30, (
            f"the lease of a was not renewed: {first}"
        )
        assert (first.fence, first.holder) == (held["a"].lease.fence, "me")
        await asyncio.sleep(0.6)
        with self.assert_refused("conflict"):
            await store.lease("ada", "a", "other", 60)
        await store.lease("ada", "b", "other", 60)
        with self.assert_refused("invalid", "the seconds of a lease"):
            await store.renew_all(leases, 0)

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), None, "1", True])
    async def test_invalid_lease_durations_are_refused(self, store: Store, seconds: Any) -> None:
        await store.create("ada", "t")
        with self.assert_refused("invalid", "the seconds of a lease"):
            await store.lease("ada", "t", "me", seconds)

    async def test_one_of_many_contenders_gets_the_lease(self, store: Store) -> None:
        await store.create("ada", "t")
        wants = [lambda name=f"h{n}": store.lease("ada", "t", name, 60) for n in range(20)]
        outcomes = await asyncio.gather(*map(append_outcome, wants))
        assert sorted(outcomes) == ["conflict"] * 19 + ["ok"]

    async def test_concurrent_appends_never_interleave(self, store: Store) -> None:
        """Concurrent appends of one holder are a bug of the caller; the log stays consistent."""
        writer = await hold_thread(store)

        def append(n: int) -> Any:
            pair = [make_entry(1, "event", n=n), make_entry(2, "event", n=n)]
            return store.append("ada", "t", pair, expect=0, fence=writer.lease.fence)

        tries = [partial(append, n) for n in range(10)]
        outcomes = await asyncio.gather(*map(append_outcome, tries))
        assert sorted(outcomes) == ["conflict"] * 9 + ["ok"]
        first, second = await read_entries(store)
        assert first["data"] == second["data"]

    async def test_many_threads_are_written_concurrently(self, store: Store) -> None:
        async def write(number: int) -> None:
            mine = await hold_thread(store, f"t{number}")
            for seq in range(1, 11):
                await mine.append(make_entry(seq))

        await asyncio.gather(*map(write, range(20)))
        for number in range(20):
            assert entry_numbers(await read_entries(store, f"t{number}")) == [*range(1, 11)]
