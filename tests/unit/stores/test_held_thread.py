"""A held thread: its inbox is read again only after something has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from wick import Agent, FunctionModel, Thread, user
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.protocols import News, Queued
from wick.stores.held_thread import hold
from wick.stores.sqlite import Sqlite


class Counting(Sqlite):
    """A store that counts the reads of inboxes, heads and logs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = 0

    async def inbox(self, owner: str, id: str) -> list[Queued]:
        self.reads += 1
        return await super().inbox(owner, id)

    async def head(self, owner: str, id: str) -> Any:
        self.reads += 1
        return await super().head(owner, id)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Counting]:
    made = Counting(tmp_path / "threads.db")
    yield made
    await made.close()


async def test_a_message_of_another_process_is_seen_after_the_next_append(store: Counting, tmp_path: Path) -> None:
    other, thread = Sqlite(tmp_path / "threads.db"), Thread("t")
    await store.create("ada", "t")
    await store.enqueue("ada", "t", user("one").to_json())
    async with hold(store, "ada", thread) as held:
        (one,) = await held.fetch_messages()
        await until(lambda: store._watchers)
        thread.add(one)
        await thread.saved()
        assert not await held.fetch_messages() and store.reads == 0
        await other.enqueue("ada", "t", user("two").to_json())
        thread.append("event", {"name": "x"})
        await thread.saved()  # it reports the position of the inbox, too
        (two,) = await held.fetch_messages()
        assert two.text == "two" and store.reads == 1
        assert not await held.fetch_messages() and store.reads == 1
        thread.add(two)
    assert held.released_head == await other.head("ada", "t") and held.released_head is not None
    assert (held.released_head.queued, held.released_head.leased) == (0, False)
    await other.close()


async def test_a_message_of_this_process_is_seen_at_once(store: Counting) -> None:
    thread = Thread("t")
    await store.create("ada", "t")
    await store.enqueue("ada", "t", user("one").to_json())
    async with hold(store, "ada", thread) as held:
        await held.fetch_messages()
        await until(lambda: store._watchers)
        for number in range(20):
            await store.enqueue("ada", "t", user(str(number)).to_json())
            assert [message.text for message in await held.fetch_messages()] == [str(number)]


async def test_without_a_watch_every_call_reads(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(owner: str, id: str) -> AsyncIterator[News]:
        raise StoreError("no connection", "unavailable")
        yield News(0, 0)

    monkeypatch.setattr(store, "watch", broken)
    thread = Thread("t")
    async with hold(store, "ada", thread) as held:
        assert not await held.fetch_messages()
        await until(lambda: held._inbox._watch_task is not None and held._inbox._watch_task.done())
        await store.enqueue("ada", "t", user("one").to_json())
        assert [message.text for message in await held.fetch_messages()] == ["one"]
        reads = store.reads
        assert not await held.fetch_messages() and store.reads == reads + 1


async def test_a_run_in_a_new_thread_reads_nothing(store: Counting) -> None:
    agent = Agent(FunctionModel(lambda request: "hello"), hooks=[Sessions(store)])
    assert (await agent.run("Hi", thread="t", user="ada")).text == "hello" and store.reads == 0
