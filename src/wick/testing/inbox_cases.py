"""Test cases for the inbox of a thread: messages, answers and open questions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wick.protocols import Store
from wick.testing.leased_thread_cases import (
    LeasedThreadCases,
    append_outcome,
    entry_numbers,
    hold_thread,
    make_entry,
    read_entries,
    text_entry,
)

ENDS: list[dict[str, Any]] = [
    {"kind": "run_end", "data": {"run": "r", "outcome": "completed"}},
    {"kind": "message", "data": {"role": "assistant", "content": "Well."}},
    {"kind": "rewind", "data": {"to": 0}},
]


class InboxCases(LeasedThreadCases):
    """Test cases for inbox messages and questions."""

    async def test_messages_are_queued_in_order(self, store: Store) -> None:
        writer = await hold_thread(store)
        said = [{"role": "user", "content": f"{n}\0"} for n in range(5)]
        assert [await store.enqueue("ada", "t", message) for message in said] == [1, 2, 3, 4, 5]
        queue = await store.inbox("ada", "t")
        assert [item.data for item in queue] == said
        assert {item.kind for item in queue} == {"message"} and all(item.at > 1_600_000_000 for item in queue), (
            f"`at` is the time in seconds since 1970, and `kind` is 'message': {queue}"
        )
        await writer.append(text_entry(1, "user", "0"), text_entry(2, "user", "2"), took=[1, 3])
        assert [item.position for item in await store.inbox("ada", "t")] == [2, 4, 5]
        assert (await store.head("ada", "t")).queued == 3
        assert await store.enqueue("ada", "t", said[0]) == 6  # a position is never used twice

    async def test_concurrent_messages_all_arrive(self, store: Store) -> None:
        await hold_thread(store)
        places = await asyncio.gather(*(store.enqueue("ada", "t", {"n": n}) for n in range(30)))
        assert sorted(places) == [*range(1, 31)]
        found = {item.position: item.data["n"] for item in await store.inbox("ada", "t")}
        assert found == {position: n for n, position in enumerate(places)}

    async def test_several_messages_are_queued_together_or_not_at_all(self, store: Store) -> None:
        await hold_thread(store)
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, {"n": 3}) == 3
        assert [(item.position, item.data["n"]) for item in await store.inbox("ada", "t")] == [(1, 1), (2, 2), (3, 3)]
        with self.assert_refused("invalid", "JSON data"):
            await store.enqueue("ada", "t", {"n": 4}, {"n": object()})
        with self.assert_refused("invalid", "nothing to send"):
            await store.enqueue("ada", "t")
        assert (await store.head("ada", "t")).queued == 3

    async def test_an_idempotency_key_queues_once(self, store: Store) -> None:
        writer = await hold_thread(store)
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, key="k") == 2
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, key="k") == 2
        assert await store.enqueue("ada", "t", {"n": 3}, key="other") == 3
        assert await store.enqueue("ada", "t", {"n": 4}) == 4
        await writer.append(make_entry(1), took=[1, 2, 3, 4])
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, key="k") == 2  # also when it was delivered
        assert (await store.head("ada", "t")).queued == 0 and list(await store.inbox("ada", "t")) == []
        await store.create("ada", "another")
        assert await store.enqueue("ada", "another", {"n": 1}, key="k") == 1
        for key in ("x" * 201, "a\0b"):
            with self.assert_refused("invalid", "the key of a message"):
                await store.enqueue("ada", "t", {"n": 1}, key=key)

    async def test_a_concurrent_idempotency_key_queues_once(self, store: Store) -> None:
        await hold_thread(store)
        places = await asyncio.gather(*(store.enqueue("ada", "t", {"n": 1}, key="k") for _ in range(20)))
        assert set(places) == {1} and (await store.head("ada", "t")).queued == 1

    async def test_an_idempotency_key_is_deleted_with_its_thread(self, store: Store) -> None:
        await hold_thread(store)
        await store.enqueue("ada", "t", {"n": 1}, key="k")
        await store.delete("ada", "t")
        await store.create("ada", "t")
        assert await store.enqueue("ada", "t", {"n": 2}, key="k") == 1
        assert [item.data for item in await store.inbox("ada", "t")] == [{"n": 2}]

    async def test_a_thread_is_renamed(self, store: Store) -> None:
        made = await store.create("ada", "t", title="First", meta={"agent": "a"})
        assert (await store.describe("ada", "t", title="  Second  title ")).title == "Second title"
        changed = await store.describe("ada", "t", meta={"agent": "b", "n": [1]})
        assert changed == await store.head("ada", "t")
        assert (changed.title, changed.meta, changed.updated) == (
            "Second title",
            {"agent": "b", "n": [1]},
            made.updated,
        )
        with self.assert_refused("invalid", "JSON data"):
            await store.describe("ada", "t", meta={"x": object()})

    async def test_a_dequeued_message_cannot_be_dequeued_again(self, store: Store) -> None:
        writer = await hold_thread(store)
        await store.enqueue("ada", "t", {"role": "user", "content": "Hi."})
        await writer.append(make_entry(1), took=[1, 1])
        for position in (1, 2):
            with self.assert_refused("conflict", f"nothing is queued at {position}"):
                await writer.append(make_entry(2), took=[position])
        with self.assert_refused("invalid"):
            await writer.append(make_entry(2), took=[-1])
        assert entry_numbers(await read_entries(store)) == [1]

    async def test_a_message_stays_queued_if_the_append_is_refused(self, store: Store) -> None:
        writer = await hold_thread(store)
        await store.enqueue("ada", "t", {"n": 1})
        with self.assert_refused("conflict"):
            await writer.append(make_entry(6), took=[1], expect=5)
        with self.assert_refused("fenced"):
            await writer.append(make_entry(1), took=[1], fence=writer.lease.fence + 1)
        assert len(await store.inbox("ada", "t")) == 1

    @pytest.mark.parametrize("said", [5, "text", {"x": object()}, {"x": float("nan")}, {1: 2}])
    async def test_queued_messages_are_json(self, store: Store, said: Any) -> None:
        writer = await hold_thread(store)
        with self.assert_refused("invalid", "JSON data"):
            await store.enqueue("ada", "t", said)
        await writer.log("asked", id="q")
        with self.assert_refused("invalid", "JSON data"):
            await store.answer("ada", "t", "q", said)
        assert (await store.head("ada", "t")).asking == 1

    async def test_the_first_answer_counts(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q", question="May I?")
        assert (await store.head("ada", "t")).asking == 1
        position = await store.answer("ada", "t", "q", {"allowed": True})
        with self.assert_refused("conflict", "has been answered"):
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).asking == 0
        (item,) = await store.inbox("ada", "t")
        assert (item.position, item.kind, item.data) == (position, "answer", {"allowed": True, "id": "q"})
        await writer.append(make_entry(2, "answered", id="q", allowed=True), took=[position])
        with self.assert_refused("conflict"):
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).queued == 0

    async def test_one_of_two_concurrent_answers_counts(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q")
        tries = [lambda n=n: store.answer("ada", "t", "q", {"n": n}) for n in range(10)]
        assert sorted(await asyncio.gather(*map(append_outcome, tries))) == ["conflict"] * 9 + ["ok"]
        assert len(await store.inbox("ada", "t")) == 1

    async def test_an_answer_needs_a_question(self, store: Store) -> None:
        await hold_thread(store)
        for question in ("q", "", "a\0b"):
            with self.assert_refused("not_found", "has no question"):
                await store.answer("ada", "t", question, {})
        assert [*await store.inbox("ada", "t")] == []

    async def test_the_holders_answer_counts_if_first(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q")
        await writer.log("answered", id="q", allowed=False)
        with self.assert_refused("conflict"):
            await store.answer("ada", "t", "q", {"allowed": True})
        assert (await store.head("ada", "t")).asking == 0

    async def test_the_holders_answer_is_refused_if_second(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q")
        await store.answer("ada", "t", "q", {"allowed": True})
        with self.assert_refused("conflict", "has been answered"):
            await writer.append(make_entry(2), make_entry(3, "answered", id="q", allowed=False))
        assert entry_numbers(await read_entries(store)) == [1]

    async def test_an_answer_is_dequeued_before_an_earlier_message(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q")
        await store.enqueue("ada", "t", {"role": "user", "content": "By the way."})
        await store.answer("ada", "t", "q", {"allowed": True})
        await writer.append(make_entry(2, "answered", id="q", allowed=True), took=[2])
        assert [item.kind for item in await store.inbox("ada", "t")] == ["message"]

    @pytest.mark.parametrize("end", ENDS, ids=lambda end: end["kind"])
    async def test_a_closed_question_cannot_be_answered(self, store: Store, end: dict[str, Any]) -> None:
        writer = await hold_thread(store)
        await writer.log("run_start", run="r")
        await writer.log("asked", id="q")
        await writer.append(make_entry(3, **end))
        assert (await store.head("ada", "t")).asking == 0
        with self.assert_refused("conflict", "no longer asked"):
            await store.answer("ada", "t", "q", {"allowed": True})

    @pytest.mark.parametrize("end", ENDS, ids=lambda end: end["kind"])
    async def test_a_repeated_question_is_open_again(self, store: Store, end: dict[str, Any]) -> None:
        writer = await hold_thread(store)
        await writer.log("asked", id="q")
        await writer.append(make_entry(2, **end), make_entry(3, "asked", id="q"))
        assert (await store.head("ada", "t")).asking == 1
        position = await store.answer("ada", "t", "q", {"allowed": True})
        await writer.append(make_entry(4, **end), make_entry(5, "asked", id="q"))
        with self.assert_refused("conflict", "has been answered"):  # the first one still counts
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).asking == 0
        await writer.append(
            make_entry(6, "answered", id="q", allowed=True), make_entry(7, "asked", id="q"), took=[position]
        )
        head = await store.head("ada", "t")
        assert (head.asking, head.queued) == (1, 0)

    async def test_a_question_outlives_an_interruption(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("run_start", run="r")
        await writer.append(make_entry(2, "asked", id="q"), make_entry(3, "run_end", run="r", outcome="interrupted"))
        head = await store.head("ada", "t")
        assert (head.run, head.asking) == ("r", 1)
        await store.answer("ada", "t", "q", {"allowed": True})

    async def test_head_has_the_open_run(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.log("run_start", run="r1")
        assert (await store.head("ada", "t")).run == "r1"
        await writer.append(
            make_entry(2, "run_end", run="r1", outcome="completed"), make_entry(3, "run_start", run="r2")
        )
        assert (await store.head("ada", "t")).run == "r2"
        await writer.log("run_end", run="r2", outcome="failed")
        assert (await store.head("ada", "t")).run == ""
