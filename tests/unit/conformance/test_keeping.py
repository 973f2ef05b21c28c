"""Threads in memory and in SQLite, and in stores that are slow or fail."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from conformance.held_thread_cases import *  # noqa: F403
from conformance.held_thread_cases import check_settled
from wick import Agent, Scripted, Thread, ToolCall, assistant, tool, user
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.protocols import Queued
from wick.server.ops.redaction import RedactingStore, Secrets
from wick.stores.held_thread import hold, release_leases
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite


class Slow(InMemory):
    """A store with stale answers."""

    async def inbox(self, owner: str, id: str) -> list[Queued]:
        found = await super().inbox(owner, id)
        await asyncio.sleep(0.02)
        return found


async def test_a_message_is_delivered_once() -> None:
    store = Slow()
    sessions = Sessions(store)
    await store.create("local", "th_1")
    await sessions.send("th_1", "hello")
    result = await Agent(Scripted("hi", spare=True), hooks=[sessions]).run(thread="th_1")
    assert [message.text for message in result.messages] == ["hello", "hi"]
    await check_settled(store)


async def test_after_the_store_had_trouble_the_next_run_need_not_wait_for_the_lease(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db", busy_seconds=0.1)
    other = sqlite3.connect(tmp_path / "threads.db", isolation_level=None)

    @tool
    async def lock() -> str:
        """Lock the file, as another program might."""
        other.execute("BEGIN IMMEDIATE")
        return "locked"

    worker = Agent(
        Scripted(assistant("", ToolCall("l1", "lock", {})), spare=True), tools=[lock], hooks=[Sessions(store)]
    )
    with pytest.raises(StoreError) as caught:
        await worker.run("go", thread="th_1")
    assert caught.value.code == "locked"
    other.execute("ROLLBACK")
    other.close()
    later = Agent(Scripted("here"), hooks=[Sessions(store, busy="refuse")])
    assert (await later.run("next", thread="th_1")).text == "here"
    thread = await Sessions(store).load("th_1")
    assert "whether it took effect is unknown" in thread.messages.tool_messages()[0].text
    await check_settled(store)
    await store.close()


class Lossy(InMemory):
    """A store that loses the connection of some calls, before or after they took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self.takes_effect = True
        self.releases = True

    async def append(self, *given: Any, **options: Any) -> int:
        if self.lost:
            self.lost -= 1
            if self.takes_effect:
                await super().append(*given, **options)
            raise StoreError("the connection was closed", "unavailable")
        return await super().append(*given, **options)

    async def release(self, *given: Any, **options: Any) -> Any:
        if not self.releases:
            raise StoreError("the connection was closed", "unavailable")
        if self.lost:
            self.lost -= 1
            if self.takes_effect:
                await super().release(*given, **options)
            raise StoreError("the connection was closed", "unavailable")
        return await super().release(*given, **options)


class Audited(InMemory):
    """A store that lists what is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.audit: list[str] = []

    async def append(self, owner: str, id: str, entries: Any, **options: Any) -> int:
        last = await super().append(owner, id, entries, **options)
        self.audit.extend(entry["kind"] for entry in entries)
        return last


class AuditedOlder(Audited):
    """The same, with a release that takes no entries."""

    async def release(self, owner: str, id: str, fence: int) -> Any:  # type: ignore[override]
        return await super().release(owner, id, fence)


class AuditedAround:
    """The same, around any store."""

    def __init__(self) -> None:
        self._store, self.audit = InMemory(), list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, owner: str, id: str, entries: Any, **options: Any) -> int:
        last = await self._store.append(owner, id, entries, **options)
        self.audit.extend(entry["kind"] for entry in entries)
        return last


@pytest.mark.parametrize("kind", [Audited, AuditedOlder, AuditedAround])
@pytest.mark.parametrize("is_redacted", [False, True])
async def test_a_store_that_only_changes_append_gets_the_last_entries_by_it(kind: Any, is_redacted: bool) -> None:
    audited = kind()
    store: Any = RedactingStore(audited, Secrets()) if is_redacted else audited
    thread = Thread("th_1")
    async with hold(store, "ada", thread) as held:
        thread.add(user("hello"))
    assert audited.audit == ["message"]
    assert held.released_head is not None and not held.released_head.leased and held.released_head.last == 1
    await store.close()


@pytest.mark.parametrize("takes_effect", [True, False])
async def test_the_last_entries_are_released_once_although_the_connection_is_lost(takes_effect: bool) -> None:
    store = Lossy()
    async with hold(store, "ada", thread := Thread("th_1")) as held:
        store.lost, store.takes_effect = 2, takes_effect
        thread.add(user("hello"))
    assert held.released_head is not None and not held.released_head.leased
    assert [row["data"]["content"] async for batch in store.read("ada", "th_1") for row in batch] == ["hello"]
    await store.close()


async def test_entries_that_cannot_be_saved_with_the_release_fail_the_session() -> None:
    store = Lossy()
    with pytest.raises(StoreError, match="its lease has expired"):
        async with hold(store, "ada", thread := Thread("th_1")) as held:
            await store.release("ada", "th_1", held.lease.fence)
            thread.add(user("hello"))
    assert held.failure is not None and thread.writer is None
    await store.close()


@pytest.mark.parametrize("takes_effect", [True, False])
async def test_an_append_with_a_lost_connection_is_repeated(takes_effect: bool) -> None:
    store = Lossy()
    async with hold(store, "ada", thread := Thread("th_1")):
        store.lost, store.takes_effect = 2, takes_effect
        thread.add(user("hello"))
        await thread.saved()
    assert [row["data"]["content"] async for batch in store.read("ada", "th_1") for row in batch] == ["hello"]
    await store.close()


async def test_a_lease_that_could_not_be_released_is_released_later() -> None:
    store = Lossy()
    async with hold(store, "ada", Thread("th_1")):
        store.releases = False
    assert (await store.head("ada", "th_1")).leased
    await release_leases(store)
    assert (await store.head("ada", "th_1")).leased
    store.releases = True
    await release_leases(store)
    assert not (await store.head("ada", "th_1")).leased
    await store.close()
