"""Several processes use one store: they never interleave, and an expired holder cannot write."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from store_fixtures import SHARED, HeldLease, StoreLocation, complete_groups, place, read_entries, run_writer
from wick.errors import StoreError
from wick.protocols import Lease, Store


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    return place(request.param, tmp_path)


async def test_processes_never_interleave(shared: StoreLocation) -> None:
    store = shared.open()
    await store.create("ada", "t")
    with ExitStack() as stack:
        writers = [stack.enter_context(run_writer(shared, "contend", f"w{n}", "15")) for n in range(3)]
        said = [(await asyncio.to_thread(writer.stdout.readline)).strip() for writer in writers]  # type: ignore[union-attr]
        assert said == ["done 15"] * 3
        assert [writer.wait(60) for writer in writers] == [0] * 3
    log = await read_entries(store)
    assert len(complete_groups(log)) == 3 * 15 * 3
    fences = [row["data"]["fence"] for row in log]
    assert fences == sorted(fences)
    holders = {row["data"]["fence"]: row["data"]["by"] for row in log}
    assert len(holders) == 45 and {*holders.values()} == {"w0", "w1", "w2"}
    turns = [row["data"]["by"] for row in log]
    assert sum(a != b for a, b in pairwise(turns)) > 1  # they did take turns
    await store.close()


async def wait_for_lease(store: Store) -> Lease:
    """The lease, as soon as the other one has run out."""
    for _ in range(600):
        try:
            return await store.lease("ada", "t", "other", 60)
        except StoreError as error:
            assert error.code == "conflict", error
            await asyncio.sleep(0.1)
    raise AssertionError("the lease never ran out")


async def test_a_stopped_process_cannot_write_after_its_lease_expired(shared: StoreLocation) -> None:
    store = shared.open()
    await store.create("ada", "t")
    with run_writer(shared, "wake", "1.0") as sleeper:
        assert sleeper.stdin is not None and sleeper.stdout is not None
        assert await asyncio.to_thread(sleeper.stdout.readline) == "ack 1\n"
        os.kill(sleeper.pid, signal.SIGSTOP)
        other = HeldLease(store, await wait_for_lease(store), last=1)
        sleeper.stdin.write("go\n")
        sleeper.stdin.flush()
        os.kill(sleeper.pid, signal.SIGCONT)
        assert await asyncio.to_thread(sleeper.stdout.readline) == "fenced\n"
        await other.log("event", by="other")
    assert [row["data"].get("by") for row in await read_entries(store)] == [None, "other"]
    await store.close()
