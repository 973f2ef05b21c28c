"""Every change of a thread is published while a window of its owner is open, and nothing otherwise."""

from __future__ import annotations

from typing import Any, cast

from wick.protocols import Store
from wick.server.ops.event_bus import BusSubscription, EventBus
from wick.server.ops.publishing_store import PublishingStore
from wick.stores.in_memory import InMemory

ASKED = {"seq": 2, "kind": "asked", "at": 1.0, "data": {"id": "q", "question": "?", "hash": "h", "call_id": "c"}}
EVENT = {"seq": 1, "kind": "event", "at": 1.0, "data": {"name": "x", "data": {}}}


async def changes(window: BusSubscription) -> list[tuple[str, ...]]:
    found = []
    for event in await window.receive():
        flags = [name for name in ("approvals", "files") if event.data[name]]
        found.append((event.data["thread_id"], *flags))
    return found


async def test_each_change_is_published_with_what_it_may_concern() -> None:
    bus = EventBus()
    store = cast(Store, PublishingStore(cast(Store, InMemory()), bus))
    await store.create("ada", "early")
    with bus.subscribe("ada", window=True) as window:
        await store.create("ada", "t1")
        assert await changes(window) == [("t1",)]
        lease = await store.lease("ada", "t1", "me", 30.0)
        assert await changes(window) == [("t1",)]
        await store.append("ada", "t1", [EVENT], expect=0, fence=lease.fence)
        await store.append("ada", "t1", [ASKED], expect=1, fence=lease.fence)
        assert await changes(window) == [("t1",), ("t1", "approvals")]
        await store.enqueue("ada", "t1", {"role": "user", "content": "Hello."})
        await store.describe("ada", "t1", title="Tea")
        await store.fork("ada", "t1", 1, "t2")
        await store.release("ada", "t1", lease.fence)
        await store.delete("ada", "t2")
        assert await changes(window) == [("t1",), ("t1",), ("t2", "approvals"), ("t1",), ("t2", "approvals")]
        await store.create("bob", "t1")
        await store.create("ada", "last")
        assert await changes(window) == [("last",)]


async def test_a_failed_change_is_not_published_and_other_methods_are_those_of_the_store() -> None:
    bus, inner = EventBus(), InMemory()
    store: Any = PublishingStore(cast(Store, inner), bus)
    await store.create("ada", "t1")
    with bus.subscribe("ada", window=True) as window:
        try:
            await store.create("ada", "t1")
        except Exception:
            await store.create("ada", "t2")
        assert await changes(window) == [("t2",)]
    assert [head.id for head in (await store.list("ada")).threads] == ["t2", "t1"]
