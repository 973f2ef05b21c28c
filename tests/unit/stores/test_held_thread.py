"""A held thread: its inbox is read again only after something has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from wick import Agent, FunctionModel, Thread, user
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.protocols import News, Queued
from wick.stores import held_thread
from wick.stores.held_thread import LeaseRenewals, hold
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


async def test_a_short_run_does_not_watch_its_inbox(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_thread, "WATCH_AFTER", 0.2)
    async with hold(store, "ada", Thread("t")) as held:
        await held.fetch_messages()
        await held.fetch_messages()
        assert not store._watchers
    await asyncio.sleep(0.3)
    assert not store._watchers
    async with hold(store, "ada", Thread("t")) as held:
        await held.fetch_messages()
        await until(lambda: store._watchers)


async def test_a_message_of_another_process_waits_until_the_watch_has_started(
    store: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_thread, "WATCH_AFTER", 0.1)
    other = Sqlite(tmp_path / "threads.db")
    async with hold(store, "ada", Thread("t")) as held:
        assert not await held.fetch_messages()
        await other.enqueue("ada", "t", user("early").to_json())  # nothing reports it yet
        await until(lambda: store._watchers)
        (early,) = await held.fetch_messages()
        assert early.text == "early"
    await other.close()


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


async def test_a_slow_read_does_not_replace_a_later_one(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question and a step may read the inbox at the same time."""
    inbox, slow, is_slow = store.inbox, asyncio.Event(), True

    async def read_slowly(owner: str, id: str) -> Any:
        nonlocal is_slow
        found, waits, is_slow = await inbox(owner, id), is_slow, False
        if waits:
            await slow.wait()
        return found

    async with hold(store, "ada", Thread("t")) as held:
        await held.fetch_messages()
        monkeypatch.setattr(store, "inbox", read_slowly)
        held.expect_inbox()
        first = asyncio.create_task(held.fetch_inbox())
        await until(lambda: not is_slow)
        await store.enqueue("ada", "t", user("one").to_json())
        held.expect_inbox()
        await held.fetch_inbox()
        slow.set()
        await first
        assert [message.text for message in await held.fetch_messages()] == ["one"]


@pytest.mark.parametrize("code", ["unavailable", "locked"])
async def test_an_append_is_retried(store: Counting, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    release, errors = store.release, [StoreError("busy", code)]

    async def fail_once(*place: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop()
        return await release(*place, **more)

    monkeypatch.setattr(store, "release", fail_once)
    async with hold(store, "ada", Thread("t")) as held:
        held.thread.append("event", {"name": "x"})
    assert (await store.head("ada", "t")).last == 1 and not errors


async def test_a_run_in_a_new_thread_reads_nothing(store: Counting) -> None:
    agent = Agent(FunctionModel(lambda request: "hello"), hooks=[Sessions(store)])
    assert (await agent.run("Hi", thread="t", user="ada")).text == "hello" and store.reads == 0


async def test_leases_that_are_due_together_are_renewed_in_one_call(store: Counting) -> None:
    calls: list[list[str]] = []
    renew_all = store.renew_all

    async def count(leases: Any, seconds: float) -> Any:
        calls.append(sorted(id for _, id, _ in leases))
        return await renew_all(leases, seconds)

    store.renew_all = count  # type: ignore[method-assign]
    async with AsyncExitStack() as holds:
        held = [await holds.enter_async_context(hold(store, "ada", Thread(id), seconds=6.0)) for id in "abc"]
        before = [one.lease.until for one in held]
        await until(lambda: calls)
        await until(lambda: all(one.lease.until > old for one, old in zip(held, before, strict=True)))
        assert calls == [["a", "b", "c"]]
    assert not LeaseRenewals.of(store)._held and LeaseRenewals.of(store)._timer is None


async def test_a_lost_lease_fails_only_the_writes_of_its_thread(store: Counting) -> None:
    lost, kept = Thread("lost"), Thread("kept")
    async with hold(store, "ada", kept, seconds=0.9) as good:
        with pytest.raises(StoreError, match="lost"):
            async with hold(store, "ada", lost, seconds=0.9) as bad:
                await store.delete("ada", "lost")
                await until(lambda: bad.failure)
                lost.append("event", {"name": "x"})
        until_before = good.lease.until
        await until(lambda: good.lease.until > until_before)
        kept.append("event", {"name": "x"})
        await kept.saved()


async def test_a_failed_renewal_is_repeated(store: Counting, caplog: pytest.LogCaptureFixture) -> None:
    renew_all, failures = store.renew_all, [StoreError("busy", "locked")]

    async def fail_once(leases: Any, seconds: float) -> Any:
        if failures:
            raise failures.pop()
        return await renew_all(leases, seconds)

    store.renew_all = fail_once  # type: ignore[method-assign]
    async with hold(store, "ada", Thread("t"), seconds=1.5) as held:
        before = held.lease.until
        await until(lambda: held.lease.until > before)
    assert not failures and "could not be renewed: busy" in caplog.text


async def test_a_long_wait_for_a_lease_is_logged_once(store: Counting, caplog: pytest.LogCaptureFixture) -> None:
    await store.create("ada", "t")
    await store.lease("ada", "t", "elsewhere", 3)
    async with hold(store, "ada", Thread("t")):
        (record,) = [record for record in caplog.records if record.message.startswith("waiting")]
        assert "thread t is held by elsewhere for another" in record.message and "lease=" in record.message
