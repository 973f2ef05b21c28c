"""The probe of the store: its errors are reported, and a result is reused for a second."""

from __future__ import annotations

import asyncio

import pytest

from wick.errors import StoreError
from wick.server.ops import readiness
from wick.server.ops.readiness import StoreProbe


class Store:
    """A store that counts queries; it fails with an error or does not respond."""

    def __init__(self) -> None:
        self.queries, self.error, self.hangs = 0, "", False

    async def query(self) -> None:
        self.queries += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error:
            raise StoreError("it is not there", self.error)


async def test_a_result_is_reused_for_a_second() -> None:
    store, now = Store(), [0.0]
    probe = StoreProbe(store.query, clock=lambda: now[0])
    assert [await probe.find_problem() for _ in range(3)] == ["", "", ""] and store.queries == 1
    store.error = "unavailable"
    assert await probe.find_problem() == ""
    now[0] = 1.0
    assert await probe.find_problem() == "unavailable" and store.queries == 2


async def test_concurrent_checks_share_one_query() -> None:
    store = Store()
    probe = StoreProbe(store.query)
    assert await asyncio.gather(*(probe.find_problem() for _ in range(50))) == [""] * 50
    assert store.queries == 1


async def test_a_store_that_does_not_respond_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PROBE_SECONDS", 0.01)
    store = Store()
    store.hangs = True
    assert await StoreProbe(store.query).find_problem() == "unavailable"
