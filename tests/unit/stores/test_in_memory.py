"""Eviction from memory: an hour after the last use, but never active threads."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from store_fixtures import HeldLease, assert_refused, hold_thread, make_entry, read_entries
from wick.stores.in_memory import SWEEP_SECONDS, TTL_SECONDS, InMemory


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> InMemory:
    return InMemory(clock=clock)


def test_an_hour_and_five_minutes() -> None:
    assert (TTL_SECONDS, SWEEP_SECONDS) == (3600, 300)


async def ids(store: InMemory) -> set[str]:
    return {thread.id for thread in (await store.list("ada")).threads}


async def test_unused_threads_are_evicted(store: InMemory, clock: Clock) -> None:
    await store.create("ada", "t")
    clock.now += TTL_SECONDS - 1
    assert await ids(store) == {"t"}  # listing is not using
    clock.now += SWEEP_SECONDS + 1
    with assert_refused("not_found"):
        await store.head("ada", "t")
    await store.create("ada", "t")


async def test_use_prevents_eviction(store: InMemory, clock: Clock) -> None:
    for name in ("read", "written", "unused"):
        await hold_thread(store, name, seconds=1)
    fence = (await store.head("ada", "written")).last
    for _ in range(5):
        clock.now += TTL_SECONDS * 0.7
        await read_entries(store, "read")
        mine = HeldLease(store, await store.lease("ada", "written", "me", 1), "written", last=fence)
        fence = await mine.append(make_entry(fence + 1))
    assert await ids(store) == {"read", "written"}


async def test_active_or_waiting_threads_are_never_evicted(store: InMemory, clock: Clock) -> None:
    asking = await hold_thread(store, "asking", seconds=1)
    await asking.log("asked", id="q")
    await hold_thread(store, "running", seconds=10 * TTL_SECONDS)
    await hold_thread(store, "queued", seconds=1)
    await store.enqueue("ada", "queued", {"n": 1})
    await hold_thread(store, "idle", seconds=1)
    for _ in range(5):
        clock.now += TTL_SECONDS
        assert await ids(store) == {"asking", "running", "queued"}
    await store.answer("ada", "asking", "q", {"allowed": True})
    assert len(await store.inbox("ada", "asking")) == 1
    clock.now += 20 * TTL_SECONDS
    assert await ids(store) == {"asking", "queued"}  # the lease has expired; queued messages are still unread


async def test_a_watcher_of_an_evicted_thread_is_notified(store: InMemory, clock: Clock) -> None:
    await store.create("ada", "t")
    news = store.watch("ada", "t")
    await anext(news)
    clock.now += TTL_SECONDS + SWEEP_SECONDS
    assert await ids(store) == set()
    with assert_refused("not_found"):
        await anext(news)


async def test_a_timer_evicts_while_idle(clock: Clock) -> None:
    store = InMemory(sweep=0.01, clock=clock)
    await store.create("ada", "t")
    clock.now += TTL_SECONDS
    for _ in range(3_000):
        if not store._threads:
            break
        await asyncio.sleep(0.01)
    assert not store._threads
    assert store._timer is None  # nothing is left to watch over


async def test_the_timer_holds_no_references() -> None:
    store = InMemory()
    await store.create("ada", "t")
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None


def test_an_event_loop_may_be_replaced() -> None:
    """The timer does not keep a loop from ending, and the next loop has its own."""
    store = InMemory()
    for number in range(3):
        asyncio.run(store.create("ada", f"t{number}"))
        assert asyncio.run(store.head("ada", f"t{number}")).last == 0


async def test_closing_stops_the_timer() -> None:
    store = InMemory()
    await store.create("ada", "t")
    assert store._timer is not None
    timer = store._timer[1]
    await store.close()
    assert timer.cancelled() and store._timer is None
    assert await ids(store) == {"t"}


async def test_entries_are_copied(store: InMemory) -> None:
    mine = await hold_thread(store, meta={"list": [1]})
    data = {"list": [1]}
    await mine.append(make_entry(1, "event", data))
    data["list"].append(2)
    (row,) = await read_entries(store)
    row["data"]["list"].append(3)
    assert (await read_entries(store))[0]["data"] == {"list": [1]}
