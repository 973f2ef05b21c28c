"""Test cases for finding threads: lists, filters and the search in messages."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from wick.protocols import Store, Summary
from wick.testing.leased_thread_cases import (
    LeasedThreadCases,
    hold_thread,
    make_entry,
)


class ListCases(LeasedThreadCases):
    """Test cases for lists and searches."""

    async def test_threads_are_listed_newest_first(self, store: Store) -> None:
        threads = [await hold_thread(store, f"t{n}") for n in range(5)]
        await threads[1].append(make_entry(1))
        await store.create("bob", "his")

        async def ids(**options: Any) -> list[str]:
            return [thread.id for thread in (await store.list("ada", **options)).threads]

        assert await ids() == ["t1", "t4", "t3", "t2", "t0"]
        assert await ids(oldest_first=True) == ["t0", "t2", "t3", "t4", "t1"]
        assert await ids(order="created") == ["t4", "t3", "t2", "t1", "t0"]
        assert await ids(limit=2) == ["t1", "t4"]

    async def test_count_includes_the_threads_of_one_owner(self, store: Store) -> None:
        for n in range(3):
            await store.create("ada", f"t{n}")
        await store.create("bob", "his")
        assert [await store.count(owner) for owner in ("ada", "bob", "eve", "")] == [3, 1, 0, 0]
        await store.delete("ada", "t1")
        assert await store.count("ada") == 2

    async def test_list_by_prefix_returns_exactly_the_ids_that_start_with_it(self, store: Store) -> None:
        ids = [
            "a",
            "a.",
            "a.1",
            "a.1.2",
            "a.ü",
            "a.\U0010ffff",
            "a.\ud7ff",
            "a/",
            "a-1",
            "A.1",
            "b.1",
            "a\ud7ff",
            "%",
            "a_1",
        ]
        for id in ids:
            await store.create("ada", id)
        await store.create("bob", "a.his")
        for prefix in ("", *ids, "a.1.", "x", "\ud800", "\0"):
            found = [thread.id for thread in (await store.list("ada", prefix=prefix, limit=100)).threads]
            assert sorted(found) == sorted(id for id in ids if id.startswith(prefix)), prefix
        first = await store.list("ada", prefix="a.", order="created", limit=2)
        rest = await store.list("ada", prefix="a.", order="created", limit=100, cursor=first.next)
        assert len(first.threads) + len(rest.threads) == sum(id.startswith("a.") for id in ids)

    @pytest.mark.parametrize("order", ["updated", "created"])
    @pytest.mark.parametrize("oldest_first", [False, True])
    async def test_pages_make_up_the_list(self, store: Store, order: Any, oldest_first: bool) -> None:
        await asyncio.gather(*(store.create("ada", f"t{n}") for n in range(13)))
        whole = await store.list("ada", order=order, oldest_first=oldest_first)
        assert len(whole.threads) == 13 and whole.next == ""
        found: list[Summary] = []
        cursor, pages = "", 0
        while not pages or cursor:
            page = await store.list("ada", order=order, oldest_first=oldest_first, cursor=cursor, limit=4)
            found, cursor, pages = [*found, *page.threads], page.next, pages + 1
        assert found == [*whole.threads] and pages == 4

    @pytest.mark.parametrize("cursor", ["x", "!!!", "W10", "bnVsbA", "a" * 1000, "é"])
    async def test_invalid_cursors_are_refused(self, store: Store, cursor: str) -> None:
        with self.assert_refused("invalid", "request the first page without a cursor"):
            await store.list("ada", cursor=cursor)

    async def test_a_cursor_belongs_to_its_order(self, store: Store) -> None:
        for n in range(3):
            await store.create("ada", f"t{n}")
        cursor = (await store.list("ada", limit=1)).next
        with self.assert_refused("invalid"):
            await store.list("ada", limit=1, cursor=cursor, order="created")
        with self.assert_refused("invalid"):
            await store.list("ada", limit=1, cursor=cursor, oldest_first=True)
        odd: dict[str, Any]
        for odd in ({"limit": 0}, {"limit": -1}, {"limit": "2"}, {"order": "title"}):
            with self.assert_refused("invalid"):
                await store.list("ada", **odd)

    async def test_threads_are_filtered_by_pending_state(self, store: Store) -> None:
        for name in ("idle", "running", "asking", "queued"):
            mine = await hold_thread(store, name)
            if name in ("running", "asking"):
                await mine.log("run_start", run="r")
            if name == "asking":
                await mine.log("asked", id="q")
        await store.enqueue("ada", "queued", {"n": 1})

        async def ids(**options: Any) -> set[str]:
            return {thread.id for thread in (await store.list("ada", **options)).threads}

        assert await ids(running=True) == {"running", "asking"}
        assert await ids(running=False) == {"idle", "queued"}
        assert await ids(asking=True) == {"asking"}
        assert await ids(running=True, asking=False) == {"running"}
        assert await ids(queued=True) == {"queued"}
        page = await store.unfinished(limit=2)
        rest = await store.unfinished(limit=2, cursor=page.next)
        assert [thread.id for thread in (*page.threads, *rest.threads)] == ["running", "asking", "queued"]

    async def test_unfinished_runs_of_every_owner_are_found(self, store: Store) -> None:
        for owner in ("ada", "bob"):
            await (await hold_thread(store, "t", owner)).log("run_start", run="r")
        assert {thread.owner for thread in (await store.unfinished()).threads} == {"ada", "bob"}

    async def test_unfinished_threads_of_a_holder_are_skipped(self, store: Store) -> None:
        for id in ("held", "released", "expired"):
            mine = await hold_thread(store, id, seconds=0.3 if id == "expired" else 60)
            await mine.log("run_start", run="r")
            if id == "released":
                await store.release("ada", id, mine.lease.fence)
        await asyncio.sleep(0.4)

        async def ids(holder: str) -> list[str]:
            return [thread.id for thread in (await store.unfinished(skip_holder=holder)).threads]

        assert await ids("m") == await ids("me") == ["released", "expired"]
        assert await ids("") == await ids("me!") == await ids("%") == ["held", "released", "expired"]

    async def test_search_finds_messages(self, store: Store) -> None:
        mine = await hold_thread(store, title="Trip")
        await mine.say("user", "Book a FLIGHT to Zürich, ß or 日本語のテスト.")
        await mine.say("assistant", "The flight is booked: 50% off_now 'quoted' \"double\" c:\\dir")
        await mine.log("event", name="flight")
        parts = [
            {"type": "text", "text": "a picture of a"},
            {"type": "image", "url": "x"},
            {"type": "text", "text": "boat"},
        ]
        await mine.append(make_entry(4, data={"role": "user", "content": parts}))

        async def seqs(text: str, owner: str = "ada", **options: Any) -> list[int]:
            return [hit.seq for hit in await store.search(owner, text, **options)]

        assert await seqs("flight") == [2, 1]
        assert await seqs("flight", limit=1) == [2]
        assert await seqs("FLIGHT zürich") == [1]
        assert await seqs("light") == [2, 1]  # a part of a word, too
        assert await seqs("SS") == [1] and await seqs("本語の") == [1] and await seqs("語") == [1]
        assert await seqs("50%") == [2] and await seqs("off_now") == [2] and await seqs("c:\\dir") == [2]
        assert await seqs("50_") == [] and await seqs("offxnow") == []
        assert await seqs('"double"') == [2] and await seqs("'quoted'") == [2]
        assert await seqs("boat picture") == [4]
        assert await seqs("flight AND NOT booked") == [] and await seqs("flight", "bob") == []
        assert await seqs("NEAR(") == [] and await seqs("\0boat\0") == [4]
        (hit,) = await store.search("ada", "booked")
        assert (hit.thread, hit.title) == ("t", "Trip") and "flight is booked" in hit.text
        with self.assert_refused("invalid", "at least one word"):
            await store.search("ada", " \n")

    async def test_messages_since_the_last_search_are_found(self, store: Store) -> None:
        writer = await hold_thread(store)
        for number in range(3):
            await writer.say("user", f"needle {number}")
            assert len(await store.search("ada", "needle")) == number + 1
        await store.fork("ada", "t", 2, "fork")
        assert len(await store.search("ada", "needle")) == 5
        await store.delete("ada", "t")
        assert {hit.thread for hit in await store.search("ada", "needle")} == {"fork"}

    async def test_a_long_message_is_found_with_a_snippet(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.say("user", "x " * 5000 + "needle" + " y" * 5000)
        (hit,) = await store.search("ada", "needle")
        assert "x needle y" in hit.text and len(hit.text) < 200 and hit.text[0] == hit.text[-1] == "…"

    async def test_an_expired_question_is_not_pending(self, store: Store) -> None:
        lapsed, mixed = await hold_thread(store, "lapsed"), await hold_thread(store, "mixed")
        await (await hold_thread(store, "open")).log("asked", id="q")
        for thread in (lapsed, mixed):
            await thread.log("asked", id="first", expires=1.0)
        await mixed.log("asked", id="second", expires=time.time() + 1000)

        async def ids(asking: bool) -> set[str]:
            return {thread.id for thread in (await store.list("ada", asking=asking)).threads}

        assert (await ids(asking=True), await ids(asking=False)) == ({"open", "mixed"}, {"lapsed"})
        assert [(await store.head("ada", id)).asking for id in ("lapsed", "mixed", "open")] == [0, 1, 1]
