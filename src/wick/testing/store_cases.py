"""Test cases that every store passes. Subclass `StoreCases` with a fixture `store`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest

from wick.agent import Agent
from wick.errors import StoreError
from wick.messages import ToolCall, assistant
from wick.models.scripted import Scripted
from wick.protocols import ClaimingStore, Lease, News, NewThread, Store, Summary
from wick.stores import rows
from wick.testing.async_cases import AsyncCases
from wick.threads import Thread


def make_entry(seq: int, kind: str = "message", data: Any = None, **more: Any) -> dict[str, Any]:
    if kind == "message" and data is None:
        data = {"role": "user", "content": f"message {seq}"}
    return {"seq": seq, "kind": kind, "at": time.time(), "data": more if data is None else data}


def text_entry(seq: int, role: str, text: str) -> dict[str, Any]:
    return make_entry(seq, data={"role": role, "content": text})


def make_entries(first: int, last: int) -> list[dict[str, Any]]:
    return [make_entry(seq) for seq in range(first, last + 1)]


@dataclass
class HeldLease:
    """A leased thread with appends."""

    store: Store
    lease: Lease
    id: str = "t"
    owner: str = "ada"
    last: int = 0
    took: list[int] = field(default_factory=list)

    async def append(self, *rows: dict[str, Any], **options: Any) -> int:
        given = {"expect": self.last, "fence": self.lease.fence} | options
        self.last = await self.store.append(self.owner, self.id, rows, **given)
        return self.last

    async def log(self, kind: str, **data: Any) -> int:
        return await self.append(make_entry(self.last + 1, kind, data))

    async def say(self, role: str, text: str) -> int:
        return await self.append(text_entry(self.last + 1, role, text))


async def hold_thread(
    store: Store, id: str = "t", owner: str = "ada", seconds: float = 600, **options: Any
) -> HeldLease:
    """A new thread, and the lease of it."""
    await store.create(owner, id, **options)
    return HeldLease(store, await store.lease(owner, id, "me", seconds), id, owner)


def find_claiming_store(store: Store) -> ClaimingStore:
    """Return the store if it has claims; skip the case if it leaves them to wick."""
    if not isinstance(store, ClaimingStore):
        pytest.skip("this store has no claims of its own")
    return store


async def read_entries(store: Store, id: str = "t", owner: str = "ada", **options: Any) -> list[dict[str, Any]]:
    return [row async for batch in store.read(owner, id, **options) for row in batch]


async def append_outcome(work: Callable[[], Any]) -> str:
    """Return "ok" or the error code of the store."""
    try:
        await work()
    except StoreError as error:
        return error.code
    return "ok"


def entry_numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


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


ENDS: list[dict[str, Any]] = [
    {"kind": "run_end", "data": {"run": "r", "outcome": "completed"}},
    {"kind": "message", "data": {"role": "assistant", "content": "Well."}},
    {"kind": "rewind", "data": {"to": 0}},
]


# Attempts with another owner's id; every method of a store with an owner must be listed here.
TRIES: dict[str, Any] = {
    "append": lambda store, fence: store.append("eve", "t", [make_entry(2)], expect=1, fence=fence),
    "read": lambda store, fence: read_entries(store, "t", "eve"),
    "head": lambda store, fence: store.head("eve", "t"),
    "describe": lambda store, fence: store.describe("eve", "t", title="Mine"),
    "delete": lambda store, fence: store.delete("eve", "t"),
    "fork": lambda store, fence: store.fork("eve", "t", 1, "mine"),
    "lease": lambda store, fence: store.lease("eve", "t", "eve", 60),
    "renew": lambda store, fence: store.renew("eve", "t", fence, 60),
    "release": lambda store, fence: store.release("eve", "t", fence),
    "enqueue": lambda store, fence: store.enqueue("eve", "t", {"role": "user", "content": "Hi."}),
    "answer": lambda store, fence: store.answer("eve", "t", "q", {"allowed": True}),
    "inbox": lambda store, fence: store.inbox("eve", "t"),
    "watch": lambda store, fence: anext(store.watch("eve", "t")),
    "put_blob": lambda store, fence: store.put_blob("eve", "t", b"x"),
    "get_blob": lambda store, fence: store.get_blob("eve", "t", "x"),
    "list": None,
    "count": None,
    "search": None,
    "create": None,
    "expire": None,
}


class StoreCases(AsyncCases):
    """Test cases for a store: threads, logs, leases, inboxes, lists, forks, watchers, blobs, owners, expiry.

        class TestAcmeStore(StoreCases):
            @pytest.fixture
            def store(self, tmp_path):
                return AcmeStore(tmp_path / "threads.acme")

    The store is empty at the start of each case. Errors are compared by their code. `checks_sentences` also compares
    them with the sentences of wick's own stores.
    """

    checks_sentences: ClassVar[bool] = False

    @contextmanager
    def assert_refused(self, code: str, sentence: str = "") -> Iterator[None]:
        """Assert that the store refuses with a code and a sentence."""
        with pytest.raises(StoreError, match=(self.checks_sentences and sentence) or None) as caught:
            yield
        assert caught.value.code == code, caught.value
        text = str(caught.value)
        assert len(text.split()) > 3 and not text[-1].isspace()

    # -- threads ----------------------------------------------------------------------------------------------------

    async def test_a_new_thread_is_empty(self, store: Store) -> None:
        made = await store.create("ada", "t", title="Plans", meta={"agent": "a", "n": [1, None]})
        assert made == await store.head("ada", "t")
        assert (made.owner, made.id, made.title, made.meta) == ("ada", "t", "Plans", {"agent": "a", "n": [1, None]})
        assert (made.last, made.run, made.asking, made.queued, made.leased) == (0, "", 0, 0, False)
        assert made.created == made.updated > 1_600_000_000
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

    async def test_a_thread_is_made_once(self, store: Store) -> None:
        await store.create("ada", "t")
        with self.assert_refused("conflict", "there is a thread 't' already"):
            await store.create("ada", "t")
        assert (await store.create("bob", "t")).owner == "bob"  # ids of other owners are private

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800", None, 5, []])
    async def test_a_name_that_is_none(self, store: Store, name: Any) -> None:
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
        assert (await store.list(name)).threads == ()

    @pytest.mark.parametrize("name", ["日本語", "a b/c:d%e_f'g\"h\\i", "x" * 200, "👩‍👩‍👧"])
    async def test_any_other_name(self, store: Store, name: str) -> None:
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
        own_rows = await hold_thread(store)
        await own_rows.append(*make_entries(1, 3))
        await store.put_blob("ada", "t", b"data")
        await store.delete("ada", "t")
        with self.assert_refused("not_found", "there is no thread 't'"):
            await store.head("ada", "t")
        with self.assert_refused("not_found"):
            await own_rows.append(make_entry(4))
        with self.assert_refused("not_found"):
            await store.delete("ada", "t")
        assert (await store.list("ada")).threads == ()

    async def test_the_lease_of_a_deleted_thread_cannot_write_to_its_successor(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await store.delete("ada", "t")
        again = await hold_thread(store)
        assert again.lease.fence > own_rows.lease.fence
        with self.assert_refused("fenced"):
            await own_rows.append(make_entry(1))
        assert await read_entries(store) == []

    # -- the log ----------------------------------------------------------------------------------------------------

    async def test_read_returns_written_entries(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        wanted = [make_entry(number, "event", [data]) for number, data in enumerate(DATA, 1)]
        assert await own_rows.append(*wanted) == len(DATA)
        found = await read_entries(store)
        assert found == wanted
        assert [repr(row) for row in found] == [repr(row) for row in wanted]  # 1.0 is not 1, -0.0 is not 0.0

    async def test_a_real_thread_round_trips(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        thread = Thread("t")
        agent = Agent(Scripted(assistant("", ToolCall("1", "len", {"obj": "x"})), "Done.", "Bye."), tools=[])
        await agent.run("Go on.", thread=thread)
        await agent.run("And now?", thread=thread)
        thread.values["todos"] = ["tea"]
        for logged in thread.entries:
            await own_rows.append(logged.to_json())
        again = Thread.from_json({"schema": 1, "id": "t", "entries": await read_entries(store)})
        assert again.messages == thread.messages and again.entries == thread.entries
        assert again.values["todos"] == ["tea"]
        assert (await store.head("ada", "t")).run == ""

    @pytest.mark.parametrize("bad", BAD, ids=repr)
    async def test_all_or_none(self, store: Store, bad: Any) -> None:
        own_rows = await hold_thread(store)
        with self.assert_refused("invalid", "thread t: entry 2 cannot be stored"):
            await own_rows.append(make_entry(1), bad)
        with self.assert_refused("invalid", "nothing to append"):
            await own_rows.append()
        assert await read_entries(store) == []
        assert await own_rows.append(make_entry(1)) == 1

    async def test_a_writer_with_a_gap_is_refused(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.append(*make_entries(1, 3))
        for expect in (0, 2, 4, 1000):
            with self.assert_refused("conflict", f"thread t is at entry 3, not at {expect}"):
                await own_rows.append(make_entry(expect + 1), expect=expect)
        for odd in (-1, None, 2.0, 2**70):
            with self.assert_refused("invalid"):
                await own_rows.append(make_entry(1), expect=odd)
        assert len(await read_entries(store)) == 3

    async def test_to_append_the_same_again_changes_nothing(self, store: Store) -> None:
        """After an unknown outcome a writer can safely append again."""
        own_rows = await hold_thread(store)
        some = make_entries(1, 3)
        assert await own_rows.append(*some) == 3
        assert await own_rows.append(*some, expect=0) == 3
        with self.assert_refused("conflict"):
            await own_rows.append(*some[:2], expect=0)
        with self.assert_refused("conflict"):
            await own_rows.append(*some[:2], {**some[2], "data": {"role": "user", "content": "other"}}, expect=0)
        assert await read_entries(store) == some

    async def test_to_take_and_append_the_same_again(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        position = await store.enqueue("ada", "t", {"role": "user", "content": "Hi."})
        row = text_entry(1, "user", "Hi.")
        assert await own_rows.append(row, took=[position]) == 1
        assert await own_rows.append(row, took=[position], expect=0) == 1
        assert await store.inbox("ada", "t") == [] and (await store.head("ada", "t")).queued == 0

    async def test_reading_from_somewhere(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.append(*make_entries(1, 10))
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
        own_rows = await hold_thread(store)
        await own_rows.append(*make_entries(1, 2 * rows.BATCH_ROWS + 1))
        sizes = [len(batch) async for batch in store.read("ada", "t")]
        assert sum(sizes) == 2 * rows.BATCH_ROWS + 1 and max(sizes) <= rows.BATCH_ROWS

    async def test_large_entries_are_read_a_few_at_a_time(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        for seq in range(1, 8):
            await own_rows.append(make_entry(seq, "event", {"x": "y" * (rows.BATCH_BYTES // 2)}))
        sizes = [len(batch) async for batch in store.read("ada", "t")]
        assert sum(sizes) == 7 and max(sizes) <= 2

    # -- leases -----------------------------------------------------------------------------------------------------

    async def test_one_holder_at_a_time(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        assert (await store.head("ada", "t")).leased
        with self.assert_refused("conflict", "held by me for another"):
            await store.lease("ada", "t", "other", 60)
        with self.assert_refused("conflict"):
            await store.lease("ada", "t", "me", 60)
        await store.release("ada", "t", own_rows.lease.fence)
        assert not (await store.head("ada", "t")).leased
        other = await store.lease("ada", "t", "other", 60)
        assert other.holder == "other" and other.fence > own_rows.lease.fence

    async def test_a_released_lease_cannot_write(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await store.release("ada", "t", own_rows.lease.fence)
        with self.assert_refused("fenced", "cannot be written: its lease has expired"):
            await own_rows.append(make_entry(1))
        with self.assert_refused("fenced"):
            await store.renew("ada", "t", own_rows.lease.fence, 60)
        await store.release("ada", "t", own_rows.lease.fence)  # nothing to release
        assert await read_entries(store) == []

    async def test_writing_needs_a_lease(self, store: Store) -> None:
        await store.create("ada", "t")
        for fence in (0, 1, 2**40):
            with self.assert_refused("fenced"):
                await store.append("ada", "t", [make_entry(1)], expect=0, fence=fence)

    async def test_a_lease_that_has_run_out_is_taken_over(self, store: Store) -> None:
        mine = await hold_thread(store, seconds=0.2)
        await mine.append(make_entry(1))
        await asyncio.sleep(0.3)
        assert not (await store.head("ada", "t")).leased
        await mine.append(make_entry(2))  # no other writer is possible
        other = HeldLease(store, await store.lease("ada", "t", "other", 60), last=2)
        assert other.lease.fence > mine.lease.fence
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
        assert again.fence == mine.lease.fence and again.holder == "me" and again.until > mine.lease.until + 30
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
        assert first is not None and first.until > held["a"].lease.until + 30 and others == [None] * 4
        assert (first.fence, first.holder) == (held["a"].lease.fence, "me")
        await asyncio.sleep(0.6)
        with self.assert_refused("conflict"):
            await store.lease("ada", "a", "other", 60)
        await store.lease("ada", "b", "other", 60)
        with self.assert_refused("invalid", "a lease lasts for some seconds"):
            await store.renew_all(leases, 0)

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), None, "1", True])
    async def test_a_lease_lasts_for_some_seconds(self, store: Store, seconds: Any) -> None:
        await store.create("ada", "t")
        with self.assert_refused("invalid", "a lease lasts for some seconds"):
            await store.lease("ada", "t", "me", seconds)

    async def test_one_of_many_contenders_gets_the_lease(self, store: Store) -> None:
        await store.create("ada", "t")
        wants = [lambda name=f"h{n}": store.lease("ada", "t", name, 60) for n in range(20)]
        outcomes = await asyncio.gather(*map(append_outcome, wants))
        assert sorted(outcomes) == ["conflict"] * 19 + ["ok"]

    async def test_appends_at_once_never_interleave(self, store: Store) -> None:
        """Concurrent appends of one holder are a bug of the caller; the log stays consistent."""
        own_rows = await hold_thread(store)

        def append(n: int) -> Any:
            pair = [make_entry(1, "event", n=n), make_entry(2, "event", n=n)]
            return store.append("ada", "t", pair, expect=0, fence=own_rows.lease.fence)

        tries = [partial(append, n) for n in range(10)]
        outcomes = await asyncio.gather(*map(append_outcome, tries))
        assert sorted(outcomes) == ["conflict"] * 9 + ["ok"]
        first, second = await read_entries(store)
        assert first["data"] == second["data"]

    async def test_many_threads_at_once(self, store: Store) -> None:
        async def write(number: int) -> None:
            mine = await hold_thread(store, f"t{number}")
            for seq in range(1, 11):
                await mine.append(make_entry(seq))

        await asyncio.gather(*map(write, range(20)))
        for number in range(20):
            assert entry_numbers(await read_entries(store, f"t{number}")) == [*range(1, 11)]

    # -- inbox messages ---------------------------------------------------------------------------------------------

    async def test_messages_are_queued_in_order(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        said = [{"role": "user", "content": f"{n}\0"} for n in range(5)]
        assert [await store.enqueue("ada", "t", message) for message in said] == [1, 2, 3, 4, 5]
        queue = await store.inbox("ada", "t")
        assert [item.data for item in queue] == said
        assert {item.kind for item in queue} == {"message"} and all(item.at > 1_600_000_000 for item in queue)
        await own_rows.append(text_entry(1, "user", "0"), text_entry(2, "user", "2"), took=[1, 3])
        assert [item.position for item in await store.inbox("ada", "t")] == [2, 4, 5]
        assert (await store.head("ada", "t")).queued == 3
        assert await store.enqueue("ada", "t", said[0]) == 6  # a position is never used twice

    async def test_messages_at_once_all_arrive(self, store: Store) -> None:
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
        own_rows = await hold_thread(store)
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, key="k") == 2
        assert await store.enqueue("ada", "t", {"n": 1}, {"n": 2}, key="k") == 2
        assert await store.enqueue("ada", "t", {"n": 3}, key="other") == 3
        assert await store.enqueue("ada", "t", {"n": 4}) == 4
        await own_rows.append(make_entry(1), took=[1, 2, 3, 4])
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
        own_rows = await hold_thread(store)
        await store.enqueue("ada", "t", {"role": "user", "content": "Hi."})
        await own_rows.append(make_entry(1), took=[1, 1])
        for position in (1, 2):
            with self.assert_refused("conflict", f"nothing is queued at {position}"):
                await own_rows.append(make_entry(2), took=[position])
        with self.assert_refused("invalid"):
            await own_rows.append(make_entry(2), took=[-1])
        assert entry_numbers(await read_entries(store)) == [1]

    async def test_a_message_stays_queued_if_the_append_is_refused(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await store.enqueue("ada", "t", {"n": 1})
        with self.assert_refused("conflict"):
            await own_rows.append(make_entry(6), took=[1], expect=5)
        with self.assert_refused("fenced"):
            await own_rows.append(make_entry(1), took=[1], fence=own_rows.lease.fence + 1)
        assert len(await store.inbox("ada", "t")) == 1

    @pytest.mark.parametrize("said", [5, "text", {"x": object()}, {"x": float("nan")}, {1: 2}])
    async def test_queued_messages_are_json(self, store: Store, said: Any) -> None:
        own_rows = await hold_thread(store)
        with self.assert_refused("invalid", "JSON data"):
            await store.enqueue("ada", "t", said)
        await own_rows.log("asked", id="q")
        with self.assert_refused("invalid", "JSON data"):
            await store.answer("ada", "t", "q", said)
        assert (await store.head("ada", "t")).asking == 1

    async def test_the_first_answer_counts(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q", question="May I?")
        assert (await store.head("ada", "t")).asking == 1
        position = await store.answer("ada", "t", "q", {"allowed": True})
        with self.assert_refused("conflict", "has been answered"):
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).asking == 0
        (item,) = await store.inbox("ada", "t")
        assert (item.position, item.kind, item.data) == (position, "answer", {"allowed": True, "id": "q"})
        await own_rows.append(make_entry(2, "answered", id="q", allowed=True), took=[position])
        with self.assert_refused("conflict"):
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).queued == 0

    async def test_of_two_answers_at_once_one_counts(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q")
        tries = [lambda n=n: store.answer("ada", "t", "q", {"n": n}) for n in range(10)]
        assert sorted(await asyncio.gather(*map(append_outcome, tries))) == ["conflict"] * 9 + ["ok"]
        assert len(await store.inbox("ada", "t")) == 1

    async def test_an_answer_needs_a_question(self, store: Store) -> None:
        await hold_thread(store)
        for question in ("q", "", "a\0b"):
            with self.assert_refused("not_found", "has no question"):
                await store.answer("ada", "t", question, {})
        assert await store.inbox("ada", "t") == []

    async def test_the_holders_answer_counts_if_first(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q")
        await own_rows.log("answered", id="q", allowed=False)
        with self.assert_refused("conflict"):
            await store.answer("ada", "t", "q", {"allowed": True})
        assert (await store.head("ada", "t")).asking == 0

    async def test_the_holders_answer_is_refused_if_second(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q")
        await store.answer("ada", "t", "q", {"allowed": True})
        with self.assert_refused("conflict", "has been answered"):
            await own_rows.append(make_entry(2), make_entry(3, "answered", id="q", allowed=False))
        assert entry_numbers(await read_entries(store)) == [1]

    async def test_a_message_may_wait_while_an_answer_is_taken(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q")
        await store.enqueue("ada", "t", {"role": "user", "content": "By the way."})
        await store.answer("ada", "t", "q", {"allowed": True})
        await own_rows.append(make_entry(2, "answered", id="q", allowed=True), took=[2])
        assert [item.kind for item in await store.inbox("ada", "t")] == ["message"]

    @pytest.mark.parametrize("end", ENDS, ids=lambda end: end["kind"])
    async def test_a_question_that_is_no_longer_asked(self, store: Store, end: dict[str, Any]) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("run_start", run="r")
        await own_rows.log("asked", id="q")
        await own_rows.append(make_entry(3, **end))
        assert (await store.head("ada", "t")).asking == 0
        with self.assert_refused("conflict", "no longer asked"):
            await store.answer("ada", "t", "q", {"allowed": True})

    @pytest.mark.parametrize("end", ENDS, ids=lambda end: end["kind"])
    async def test_a_question_that_is_asked_again_waits_again(self, store: Store, end: dict[str, Any]) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("asked", id="q")
        await own_rows.append(make_entry(2, **end), make_entry(3, "asked", id="q"))
        assert (await store.head("ada", "t")).asking == 1
        position = await store.answer("ada", "t", "q", {"allowed": True})
        await own_rows.append(make_entry(4, **end), make_entry(5, "asked", id="q"))
        with self.assert_refused("conflict", "has been answered"):  # the first one still counts
            await store.answer("ada", "t", "q", {"allowed": False})
        assert (await store.head("ada", "t")).asking == 0
        await own_rows.append(
            make_entry(6, "answered", id="q", allowed=True), make_entry(7, "asked", id="q"), took=[position]
        )
        head = await store.head("ada", "t")
        assert (head.asking, head.queued) == (1, 0)

    async def test_a_question_outlives_an_interruption(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("run_start", run="r")
        await own_rows.append(make_entry(2, "asked", id="q"), make_entry(3, "run_end", run="r", outcome="interrupted"))
        head = await store.head("ada", "t")
        assert (head.run, head.asking) == ("r", 1)
        await store.answer("ada", "t", "q", {"allowed": True})

    async def test_the_run_that_is_open(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.log("run_start", run="r1")
        assert (await store.head("ada", "t")).run == "r1"
        await own_rows.append(
            make_entry(2, "run_end", run="r1", outcome="completed"), make_entry(3, "run_start", run="r2")
        )
        assert (await store.head("ada", "t")).run == "r2"
        await own_rows.log("run_end", run="r2", outcome="failed")
        assert (await store.head("ada", "t")).run == ""

    # -- listing and searching --------------------------------------------------------------------------------------

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
        assert tuple(found) == whole.threads and pages == 4

    @pytest.mark.parametrize("cursor", ["x", "!!!", "W10", "bnVsbA", "a" * 1000, "é"])
    async def test_a_cursor_that_is_none(self, store: Store, cursor: str) -> None:
        with self.assert_refused("invalid", "begin again without one"):
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

    # -- claims -----------------------------------------------------------------------------------------------------

    async def test_only_threads_that_can_be_resumed_are_claimed(self, store: Store) -> None:
        claiming = find_claiming_store(store)
        about: dict[str, Any] = {"agent": "a"}
        for id in ("crashed", "held", "waiting", "lapsed", "answered", "ended", "message", "child", "local"):
            meta = {"child": {**about, "parent": "held"}, "local": {}}.get(id, about)
            mine = await hold_thread(store, id, meta=meta)
            await mine.log("run_start", run="r")
            if id in ("waiting", "lapsed", "answered"):
                await mine.log("asked", id="q", expires=1.0 if id == "lapsed" else time.time() + 1000)
            if id == "answered":
                await mine.log("asked", id="other")
                await store.answer("ada", id, "q", {"allowed": True})
            if id in ("ended", "message"):
                await mine.log("run_end", run="r", outcome="completed")
            if id in ("message", "waiting"):
                await store.enqueue("ada", id, {"n": 1})
            if id != "held":
                await store.release("ada", id, mine.lease.fence)
        leases = await claiming.claim("me", 99)
        found = {lease.head.id: lease for lease in leases if lease.head is not None}
        assert [*found] == ["crashed", "lapsed", "answered", "message"]
        for id, lease in found.items():
            assert (lease.holder, lease.head) == ("me", await store.head("ada", id))
            assert lease.inbox is None or [*lease.inbox] == [*await store.inbox("ada", id)]
        again = HeldLease(store, found["crashed"], "crashed", last=1)
        assert await again.log("event", name="resumed") == 2
        with self.assert_refused("conflict"):
            await store.lease("ada", "lapsed", "other", 60)
        assert [*await claiming.claim("other", 99)] == []

    async def test_a_claim_has_a_limit_and_skips_unchanged_threads(self, store: Store) -> None:
        claiming = find_claiming_store(store)
        for id in ("a", "b", "c"):
            await store.create("ada", id, meta={"agent": "a"})
            await store.enqueue("ada", id, {"n": 1})
        head = await store.head("ada", "b")
        assert [*await claiming.claim("me", 0)] == []

        async def claim(capacity: int, **options: Any) -> list[str]:
            return [lease.head.id for lease in await claiming.claim("me", capacity, **options) if lease.head]

        assert await claim(1, skip=[head]) == ["a"] and await claim(9, skip=[head], seconds=0.2) == ["c"]
        assert await claim(9, skip=[head]) == []
        await store.enqueue("ada", "b", {"n": 2})
        assert await claim(9, skip=[head]) == ["b"]
        await asyncio.sleep(0.3)
        assert await claim(9) == ["c"]  # its lease has expired
        odd: dict[str, Any]
        for odd in ({"holder": ""}, {"capacity": -1}, {"capacity": "1"}, {"seconds": 0.0}):
            with self.assert_refused("invalid"):
                await claiming.claim(**({"holder": "me", "capacity": 1} | odd))  # type: ignore[arg-type]

    async def test_a_thread_is_claimed_once(self, store: Store) -> None:
        claiming = find_claiming_store(store)
        for number in range(30):
            await store.create("ada", f"t{number}", meta={"agent": "a"})
            await store.enqueue("ada", f"t{number}", {"n": 1})
        claims = await asyncio.gather(*(claiming.claim(f"server {number}", 7) for number in range(6)))
        rest = await claiming.claim("last", 30)
        claimed = [lease.head.id for leases in (*claims, rest) for lease in leases if lease.head is not None]
        assert sorted(claimed) == sorted(f"t{number}" for number in range(30))

    async def test_when_a_question_expires_is_known_after_a_fork_and_an_answer(self, store: Store) -> None:
        claiming = find_claiming_store(store)
        mine = await hold_thread(store, meta={"agent": "a"})
        await mine.log("run_start", run="r")
        await mine.log("asked", id="first", expires=1.0)
        await mine.log("asked", id="second", expires=time.time() + 1000)
        await store.fork("ada", "t", 3, "fork")
        await mine.log("answered", id="first", allowed=True)
        await store.release("ada", "t", mine.lease.fence)
        assert [lease.head.id for lease in await claiming.claim("me", 9) if lease.head] == ["fork"]

    async def test_searching(self, store: Store) -> None:
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
        own_rows = await hold_thread(store)
        for number in range(3):
            await own_rows.say("user", f"needle {number}")
            assert len(await store.search("ada", "needle")) == number + 1
        await store.fork("ada", "t", 2, "fork")
        assert len(await store.search("ada", "needle")) == 5
        await store.delete("ada", "t")
        assert {hit.thread for hit in await store.search("ada", "needle")} == {"fork"}

    async def test_a_long_message_is_found_with_a_snippet(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.say("user", "x " * 5000 + "needle" + " y" * 5000)
        (hit,) = await store.search("ada", "needle")
        assert "x needle y" in hit.text and len(hit.text) < 200 and hit.text[0] == hit.text[-1] == "…"

    # -- forks ------------------------------------------------------------------------------------------------------

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
        own_rows = await hold_thread(store)
        await own_rows.append(*make_entries(1, 2))
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
        own_rows = await hold_thread(store)
        await own_rows.log("run_start", run="r")
        await own_rows.log("asked", id="q")
        await own_rows.log("answered", id="q", allowed=True)
        await own_rows.log("run_end", run="r", outcome="completed")
        await store.enqueue("ada", "t", {"n": 1})
        open_, over = await store.fork("ada", "t", 2, "open"), await store.fork("ada", "t", 4, "over")
        assert (open_.run, open_.asking, open_.queued) == ("r", 1, 0)
        assert (over.run, over.asking, over.queued) == ("", 0, 0)
        await store.answer("ada", "open", "q", {"allowed": False})
        with self.assert_refused("not_found"):
            await store.answer("ada", "over", "q", {})

    # -- watching ---------------------------------------------------------------------------------------------------

    async def test_watching(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            assert await anext(news) == News(0, 0)
            await own_rows.append(*make_entries(1, 2))
            assert await anext(news) == News(2, 0)
            await store.enqueue("ada", "t", {"n": 1})
            await store.enqueue("ada", "t", {"n": 2})
            seen = await anext(news)
            while seen != News(2, 2):  # it may skip some, never the last
                seen = await anext(news)
            await store.delete("ada", "t")
            with self.assert_refused("not_found"):
                await anext(news)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            with self.assert_refused("not_found"):
                await anext(news)

    async def test_a_watcher_gets_only_changes_of_its_thread(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        other = await hold_thread(store, "other")
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            await anext(news)
            waiting = asyncio.ensure_future(anext(news))
            await other.append(make_entry(1))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await own_rows.append(make_entry(1))
            assert await waiting == News(1, 0)

    async def test_closing_ends_watchers(self, store: Store) -> None:
        await hold_thread(store)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            await anext(news)
            await store.close()
            assert await anext(news, None) is None

    async def test_many_watch_one_thread(self, store: Store) -> None:
        own_rows = await hold_thread(store)

        async def last() -> int:
            async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
                async for found in news:
                    if found.last == 20:
                        return 20
            return 0

        watching = [asyncio.ensure_future(last()) for _ in range(20)]
        for seq in range(1, 21):
            await own_rows.append(make_entry(seq))
        assert await asyncio.gather(*watching) == [20] * 20

    # -- blobs ------------------------------------------------------------------------------------------------------

    async def test_blobs(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        data = bytes(range(256)) * 10
        name = await store.put_blob("ada", "t", data)
        assert len(name) == 64 and name == await store.put_blob("ada", "t", data)
        assert await store.get_blob("ada", "t", name) == data
        assert await store.get_blob("ada", "t", await store.put_blob("ada", "t", b"")) == b""
        await own_rows.append(make_entry(1))
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

    # -- owners -----------------------------------------------------------------------------------------------------

    async def test_every_method_with_an_owner_is_tried(self) -> None:
        methods = {name for name, method in vars(Store).items() if inspect.isfunction(method) and name[0] != "_"}
        owned = {name for name in methods if "owner" in inspect.signature(getattr(Store, name)).parameters}
        assert owned == set(TRIES) and methods - owned == {"unfinished", "renew_all", "close"}

    async def test_threads_of_other_owners_are_not_found(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        await own_rows.append(make_entry(1, "asked", id="q"))
        before = await store.head("ada", "t")
        for attempt in TRIES.values():
            if attempt is not None:
                with self.assert_refused("not_found", "there is no thread 't'"):
                    await attempt(store, own_rows.lease.fence)
        assert (await store.list("eve")).threads == () and list(await store.search("eve", "message")) == []
        assert list(await store.expire(0, owner="eve")) == [] and await store.count("eve") == 0
        assert await store.head("ada", "t") == before
        await store.create("eve", "t")
        assert (await store.head("ada", "t")).last == 1 and (await store.head("eve", "t")).last == 0

    # -- loops, cancelling, closing ---------------------------------------------------------------------------------

    async def test_an_append_that_is_cancelled_is_there_or_not(self, store: Store) -> None:
        own_rows = await hold_thread(store)
        for round in range(10):
            row = make_entry(own_rows.last + 1)
            task = asyncio.ensure_future(
                store.append("ada", "t", [row], expect=own_rows.last, fence=own_rows.lease.fence)
            )
            await asyncio.sleep(0.0005 * round)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await own_rows.append(row) == round + 1  # a retry is safe after any outcome
        assert entry_numbers(await read_entries(store)) == [*range(1, 11)]

    async def test_a_closed_store_opens_again(self, store: Store) -> None:
        mine = await hold_thread(store)
        await mine.append(make_entry(1))
        await store.close()
        await store.close()
        await mine.append(make_entry(2))
        assert entry_numbers(await read_entries(store)) == [1, 2]
        await store.close()

    # -- expiry -------------------------------------------------------------------------------------------------------

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
        assert await store.expire(3600.0) == []  # nothing is that old
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
    async def test_a_time_that_is_none_expires_nothing(self, store: Store, idle: Any) -> None:
        await store.create("ada", "t")
        with self.assert_refused("invalid"):
            await store.expire(idle)
