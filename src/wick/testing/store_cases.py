"""Conformance tests for stores. Subclass `StoreCases` with a fixture `store`."""

from __future__ import annotations

import inspect
from typing import Any

from wick.protocols import Store
from wick.testing.claim_cases import ClaimCases
from wick.testing.inbox_cases import InboxCases
from wick.testing.lease_cases import LeaseCases
from wick.testing.leased_thread_cases import (
    LeasedThreadCases,
    hold_thread,
    make_entry,
    read_entries,
)
from wick.testing.list_cases import ListCases
from wick.testing.log_cases import LogCases
from wick.testing.thread_cases import ThreadCases
from wick.testing.watch_cases import WatchCases

# Attempts with another owner's id; every method of a store with an owner must be listed here.
ATTEMPTS: dict[str, Any] = {
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


class OwnerCases(LeasedThreadCases):
    """Test cases for the isolation of owners."""

    async def test_every_method_with_an_owner_is_tried(self) -> None:
        methods = {name for name, method in vars(Store).items() if inspect.isfunction(method) and name[0] != "_"}
        owned = {name for name in methods if "owner" in inspect.signature(getattr(Store, name)).parameters}
        assert owned == set(ATTEMPTS) and methods - owned == {"unfinished", "renew_all", "close"}

    async def test_threads_of_other_owners_are_not_found(self, store: Store) -> None:
        writer = await hold_thread(store)
        await writer.append(make_entry(1, "asked", id="q"))
        before = await store.head("ada", "t")
        for attempt in ATTEMPTS.values():
            if attempt is not None:
                with self.assert_refused("not_found", "there is no thread 't'"):
                    await attempt(store, writer.lease.fence)
        assert [*(await store.list("eve")).threads] == [] and list(await store.search("eve", "message")) == []
        assert list(await store.expire(0, owner="eve")) == [] and await store.count("eve") == 0
        assert await store.head("ada", "t") == before
        await store.create("eve", "t")
        assert (await store.head("ada", "t")).last == 1 and (await store.head("eve", "t")).last == 0


class StoreCases(ThreadCases, LogCases, LeaseCases, InboxCases, ListCases, ClaimCases, WatchCases, OwnerCases):
    """Test cases for a store: threads, logs, leases, inboxes, lists, forks, watchers, blobs, owners, expiry.

        class TestAcmeStore(StoreCases):
            @pytest.fixture
            def store(self, tmp_path):
                return AcmeStore(tmp_path / "threads.acme")

    The store is empty at the start of each case. Errors are compared by their code. `checks_sentences` also compares
    them with the sentences of wick's own stores.
    """
