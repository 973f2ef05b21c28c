"""Every store is a Store for mypy --strict."""

from __future__ import annotations

from typing import assert_type

from wick.protocols import Lease, News, Page, Store, Summary
from wick.stores.in_memory import InMemory
from wick.stores.postgres import Postgres
from wick.stores.sqlite import Sqlite

memory: Store = InMemory()
file: Store = Sqlite("threads.db", retention=86_400)
server: Store = Postgres("postgresql://localhost/wick", schema="wick")


async def use(store: Store) -> None:
    assert_type(await store.create("ada", "t", meta={"agent": "a"}), Summary)
    assert_type(await store.lease("ada", "t", "me", 30), Lease)
    assert_type(await store.list("ada", running=True), Page)
    async for news in store.watch("ada", "t"):
        assert_type(news, News)
    async for batch in store.read("ada", "t", after=3):
        for row in batch:
            row["seq"]
