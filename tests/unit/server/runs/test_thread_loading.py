"""Loading whole threads: one at a time, fair between users, and none for disconnected clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request

from wick.server.errors import ApiError
from wick.server.runs.thread_loading import ThreadLoader
from wick.stores.in_memory import InMemory


@pytest.fixture
async def loading() -> AsyncIterator[ThreadLoader]:
    store = InMemory()
    for owner in ("ada", "bob"):
        for id in ("one", "two", "three"):
            await store.create(owner, f"{owner}-{id}")
    yield ThreadLoader(store)


def make_request(*, gone: bool = False) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"} if gone else await asyncio.sleep(60, {})

    return Request({"type": "http"}, receive)


async def test_many_requests_of_one_user_do_not_block_others(loading: ThreadLoader) -> None:
    order, inside, most = [], 0, 0

    async def look(owner: str, id: str) -> None:
        nonlocal inside, most
        async with loading.load(owner, f"{owner}-{id}", make_request()) as thread:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1
            order.append(thread.id)

    wanted = [("ada", "one"), ("ada", "two"), ("ada", "three"), ("bob", "one")]
    await asyncio.gather(*(look(owner, id) for owner, id in wanted))
    assert most == 1, "more than one was in memory"
    assert order.index("bob-one") == 1, order
    assert not loading._of, "a client without pending reads is remembered"


async def test_disconnected_clients_cause_no_reads(loading: ThreadLoader) -> None:
    with pytest.raises(ApiError, match="closed the connection"):
        async with loading.load("ada", "ada-one", make_request(gone=True)):
            pytest.fail("it was read")
