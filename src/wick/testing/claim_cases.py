"""Test cases for claims: a server acquires the leases of threads that can be resumed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from wick.protocols import ClaimingStore, Store
from wick.testing.leased_thread_cases import HeldLease, LeasedThreadCases, hold_thread


def find_claiming_store(store: Store) -> ClaimingStore:
    """Return the store if it has claims; skip the case if it leaves them to wick."""
    if not isinstance(store, ClaimingStore):
        pytest.skip("this store has no claims of its own")
    return store


class ClaimCases(LeasedThreadCases):
    """Test cases for claims."""

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
