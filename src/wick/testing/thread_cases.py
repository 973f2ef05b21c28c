"""Test cases for the threads of a store: creating, naming, deleting, forking, expiry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wick.errors import StoreError
from wick.protocols import NewThread, Store
from wick.stores import rows
from wick.testing.leased_thread_cases import (
    HeldLease,
    LeasedThreadCases,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
    text_entry,
)


class ThreadCases(LeasedThreadCases):
    """Test cases for threads, forks and expiry."""

    # -- threads --------------------------------------------------------------------------------------------------

    async def test_a_new_thread_is_empty(self, store: Store) -> None:
        made = await store.create("ada", "t", title="Plans", meta={"agent": "a", "n": [1, None]})
        assert made == await store.head("ada", "t")
        assert (made.owner, made.id, made.title, made.meta) == ("ada", "t", "Plans", {"agent": "a", "n": [1, None]})
        assert (made.last, made.run, made.asking, made.queued, made.leased) == (0, "", 0, 0, False)
        assert made.created == made.updated > 1_600_000_000, (
            "times are seconds since 1970; those of a new thread are equal"
        )
        assert await read_entries(store) == []

    async def test_a_lease_creates_a_thread_with_messages_in_its_inbox(self, store: Store) -> None:
        new = NewThread({"agent": "a"}, [{"n": 1}, {"n": 2}])
        lease = await store.lease("ada", "t", "me", 60, new=new)
        head = await store.head("ada", "t")
        assert (head.meta, head.last, head.queued, head.leased) == ({"agent": "a"}, 0, 2, True)
        assert [(item.position, item.kind, item.data) for item in await store.inbox("ada", "t")] == [
            (1, "message", {"n": 1}),
            (2, "message", {"n": 2}),
        ]
        with self.assert_refused("conflict"):
            await store.lease("ada", "t", "other", 60, new=new)
        with self.assert_refused("invalid"):
            await store.lease("ada", "other", "me", 60, new=NewThread({}, [{"n": object()}]))
        with self.assert_refused("invalid"):
            await store.lease("ada", "a\0b", "me", 60, new=new)
        with self.assert_refused("not_found"):
            await store.head("ada", "other")
        assert await store.enqueue("ada", "t", {"n": 3}) == 3
        assert await store.append("ada", "t", [make_entry(1)], expect=0, fence=lease.fence, took=[1, 2]) == 1

    async def test_a_lease_comes_with_the_thread_and_its_inbox(self, store: Store) -> None:
        await store.create("ada", "t", meta={"agent": "a"})
        await store.enqueue("ada", "t", {"n": 1})
        lease = await store.lease("ada", "t", "me", 60)
        assert lease.head is None or lease.head == await store.head("ada", "t")
        assert lease.inbox is None or [*lease.inbox] == [*await store.inbox("ada", "t")]
        await store.enqueue("ada", "t", {"n": 2})
        released = await store.release("ada", "t", lease.fence)
        assert released == await store.head("ada", "t") and (released.queued, released.leased) == (2, False)

    async def test_a_thread_is_created_once(self, store: Store) -> None:
        await store.create("ada", "t")
        with self.assert_refused("conflict", "there is a thread 't' already"):
            await store.create("ada", "t")
        assert (await store.create("bob", "t")).owner == "bob"  # ids of other owners are private

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800", None, 5, []])
    async def test_invalid_names_are_refused(self, store: Store, name: Any) -> None:
        for owner, id in (("ada", name), (name, "t")):
            with self.assert_refused("invalid"):
                await store.create(owner, id)
            with self.assert_refused("not_found"):
                await store.head(owner, id)
            with self.assert_refused("not_found"):
                await store.enqueue(owner, id, {})
            with self.assert_refused("not_found"):
                await store.append(owner, id, [make_entry(1)], expect=0, fence=1)
            with self.assert_refused("not_found"):
                await store.lease(owner, id, "me", 1)
        assert [*(await store.list(name)).threads] == []

    @pytest.mark.parametrize("name", ["日本語", "a b/c:d%e_f'g\"h\\i", "x" * 200, "👩‍👩‍👧"])
    async def test_valid_names_are_stored(self, store: Store, name: str) -> None:
        mine = await hold_thread(store, name, owner=name)
        await mine.append(make_entry(1))
        assert (await store.list(name)).threads[0].id == name
        assert len(await read_entries(store, name, name)) == 1

    async def test_meta_is_json(self, store: Store) -> None:
        with self.assert_refused("invalid", "the meta of a thread is JSON data"):
            await store.create("ada", "t", meta={"x": object()})

    async def test_the_title_is_the_first_user_message(self, store: Store) -> None:
        mine = await hold_thread(store)
        await mine.append(
            text_entry(1, "system", "Be brief."), text_entry(2, "user", "  Plan\0 my\n trip. " + "x" * 100)
        )
        await mine.say("user", "Another thing.")
        title = (await store.head("ada", "t")).title
        assert title.startswith("Plan my trip. xxx") and len(title) == rows.TITLE_CHARS and title.endswith("…")
        named = await hold_thread(store, "named", title="Mine")
        await named.say("user", "Hello.")
        assert (await store.head("ada", "named")).title == "Mine"

    async def test_a_deleted_thread_is_not_found(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(*make_entries(1, 3))
        await store.put_blob("ada", "t", b"data")
        await store.delete("ada", "t")
        with self.assert_refused("not_found", "there is no thread 't'"):
            await store.head("ada", "t")
        with self.assert_refused("not_found"):
            await writer.append(make_entry(4))
        with self.assert_refused("not_found"):
            await store.delete("ada", "t")
        assert [*(await store.list("ada")).threads] == []

    async def test_the_lease_of_a_deleted_thread_cannot_write_to_its_successor(self, store: Store) -> None:
        writer = await hold_thread(store)
        await store.delete("ada", "t")
        again = await hold_thread(store)
        assert again.lease.fence > writer.lease.fence, "a fence increases with each lease, also of a recreated thread"
        with self.assert_refused("fenced"):
            await writer.append(make_entry(1))
        assert await read_entries(store) == []

    # -- forks ----------------------------------------------------------------------------------------------------

    async def test_a_fork_has_the_history_of_its_thread(self, store: Store) -> None:
        mine = await hold_thread(store, meta={"agent": "a"})
        await mine.append(*make_entries(1, 5))
        made = await store.fork("ada", "t", 3, "f")
        assert (made.id, made.last, made.meta, made.title, made.leased) == ("f", 3, {"agent": "a"}, "message 1", False)
        assert await read_entries(store, "f") == await read_entries(store, limit=3)
        its = HeldLease(store, await store.lease("ada", "f", "me", 60), "f", last=3)
        await its.append(text_entry(4, "user", "otherwise"))
        await mine.append(make_entry(6))
        assert len(await read_entries(store)) == 6 and len(await read_entries(store, "f")) == 4
        await store.delete("ada", "t")
        assert len(await read_entries(store, "f")) == 4

    async def test_a_fork_has_a_name_and_an_end(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(*make_entries(1, 2))
        for at in (-1, 3, None, 1.0, True):
            with self.assert_refused("invalid", "they go from 1 to 2"):
                await store.fork("ada", "t", at, "f")  # type: ignore[arg-type]
        with self.assert_refused("conflict"):
            await store.fork("ada", "t", 1, "t")
        with self.assert_refused("not_found"):
            await store.fork("ada", "nothing", 1, "f")
        with self.assert_refused("invalid"):
            await store.fork("ada", "t", 1, "")
        made = await store.fork("ada", "t", 0, "f", title="Anew", meta={"x": 1})
        assert (made.last, made.title, made.meta) == (0, "Anew", {"x": 1})

    async def test_a_fork_has_the_open_questions_of_its_thread(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("run_start", run="r")
        await writer.log("asked", id="q")
        await writer.log("answered", id="q", allowed=True)
        await writer.log("run_end", run="r", outcome="completed")
        await store.enqueue("ada", "t", {"n": 1})
        open_, over = await store.fork("ada", "t", 2, "open"), await store.fork("ada", "t", 4, "over")
        assert (open_.run, open_.asking, open_.queued) == ("r", 1, 0)
        assert (over.run, over.asking, over.queued) == ("", 0, 0)
        await store.answer("ada", "open", "q", {"allowed": False})
        with self.assert_refused("not_found"):
            await store.answer("ada", "over", "q", {})

    # -- expiry ---------------------------------------------------------------------------------------------------

    async def test_only_idle_threads_expire_the_longest_idle_first(self, store: Store) -> None:
        for name in ("old", "asking", "queued", "held", "running", "other", "old.1"):
            about = {"parent": "old"} if name == "old.1" else None
            await store.create("ada", name, meta=about)
            mine = HeldLease(store, await store.lease("ada", name, "me", 600), name)
            if name == "running":
                await mine.log("run_start", run="r", agent="a", guards=[], resumed=False, input=0)
            if name == "asking":
                await mine.log("asked", id="q", question="?", hash="h")
            if name != "held":
                await store.release("ada", name, mine.lease.fence)
        await store.enqueue("ada", "queued", {"n": 1})
        await store.create("bob", "old")
        assert [*await store.expire(3600.0)] == []  # nothing is that old
        assert [*await store.expire(0.0, owner="ada", limit=1)] == [("ada", "old")]
        assert [*await store.expire(0.0, owner="ada", limit=9)] == [
            ("ada", "other"),
            ("ada", "old.1"),
        ]  # now there is no parent
        assert [*await store.expire(0.0, owner="ada")] == []
        assert {head.id for head in (await store.list("ada")).threads} == {"asking", "queued", "held", "running"}
        assert [*await store.expire(0.0)] == [("bob", "old")]
        with self.assert_refused("not_found"):
            await store.head("bob", "old")

    async def test_a_message_to_an_expiring_thread_is_stored_or_refused(self, store: Store) -> None:
        """A race: each message is in an existing thread, or its sender got an error."""
        for number in range(20):
            await store.create("ada", f"t{number}")
        said: list[str] = []

        async def say(id: str) -> None:
            try:
                await store.enqueue("ada", id, {"n": 1})
                said.append(id)
            except StoreError as error:
                assert error.code == "not_found"

        expiring = asyncio.ensure_future(store.expire(0.0, limit=20))
        await asyncio.gather(*(say(f"t{number}") for number in range(20)))
        gone = await expiring
        there = {head.id for head in (await store.list("ada", limit=50)).threads}
        assert set(said) == there and not there & {id for _, id in gone}

    @pytest.mark.parametrize("idle", [-1.0, float("nan"), float("inf"), "1"])
    async def test_invalid_idle_times_are_refused(self, store: Store, idle: Any) -> None:
        await store.create("ada", "t")
        with self.assert_refused("invalid"):
            await store.expire(idle)
