"""A process that writes to a store, for tests that stop or kill it. It says on standard output what was acknowledged.

python writer.py KIND WHERE SCHEMA JOB …
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from wick.errors import StoreError
from wick.protocols import Store


def open_store(kind: str, where: str, schema: str) -> Store:
    if kind == "sqlite":
        from wick.stores.sqlite import Sqlite

        return Sqlite(where)
    from wick.stores.postgres import Postgres

    return Postgres(where, schema=schema)


def report(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # at once, in one piece


def group(first: int, size: int, **data: Any) -> list[dict[str, Any]]:
    """Return entries that are appended together: all or none must be stored."""
    return [
        {"seq": seq, "kind": "event", "at": 1.0 * seq, "data": {"first": first, "size": size, "text": "x" * seq} | data}
        for seq in range(first, first + size)
    ]


async def load(store: Store, threads: str) -> None:
    """Append to several threads at once, forever; each continues where it was left."""
    await asyncio.gather(*(_load(store, f"t{number}") for number in range(int(threads))))


async def _load(store: Store, id: str) -> None:
    try:
        await store.create("ada", id)
    except StoreError as error:
        if error.code != "conflict":
            raise
    lease = await store.lease("ada", id, "writer", 0.05)  # the next process need not wait after a crash
    last = (await store.head("ada", id)).last
    report("begun", id, last)
    while True:
        last = await store.append("ada", id, group(last + 1, last % 3 + 1), expect=last, fence=lease.fence)
        report("ack", id, last)


async def run(store: Store) -> None:
    """A short run to its end: every kind of write there is."""
    await store.create("ada", "t")
    lease = await store.lease("ada", "t", "writer", 60)
    report("ack created")
    last = 0
    for size in (1, 3, 2):
        last = await store.append("ada", "t", group(last + 1, size), expect=last, fence=lease.fence)
        report("ack appended", last)
    report("ack queued", await store.enqueue("ada", "t", {"n": 1}))
    last = await store.append("ada", "t", group(last + 1, 2), expect=last, fence=lease.fence, took=[1])
    report("ack took", last)
    report("ack blob", await store.put_blob("ada", "t", b"blob" * 3000))
    await store.fork("ada", "t", 4, "fork")
    report("ack forked")
    await store.close()
    report("ack closed")


async def append_on_signal(store: Store, seconds: str) -> None:
    """Acquire a lease, append, wait for a signal, and append again."""
    lease = await store.lease("ada", "t", "sleeper", float(seconds))
    await store.append("ada", "t", group(1, 1), expect=0, fence=lease.fence)
    report("ack", 1)
    sys.stdin.readline()  # it is stopped here, and wakes without knowing
    try:
        await store.append("ada", "t", group(2, 1), expect=1, fence=lease.fence)
        report("ack", 2)
    except StoreError as error:
        report(error.code)


async def contend_for_lease(store: Store, name: str, rounds: str) -> None:
    """Take the thread again and again, and append to it a few times while it is held."""
    done, end = 0, time.monotonic() + 90
    while done < int(rounds) and time.monotonic() < end:
        try:
            lease = await store.lease("ada", "t", name, 60)
        except StoreError as error:
            assert error.code == "conflict", error
            await asyncio.sleep(0.005)
            continue
        last = (await store.head("ada", "t")).last
        for size in (2, 1, 3):
            entries = group(last + 1, size, by=name, fence=lease.fence)
            last = await store.append("ada", "t", entries, expect=last, fence=lease.fence)
            await asyncio.sleep(0)
        await store.release("ada", "t", lease.fence)
        done += 1
    report("done", done)


async def main(kind: str, where: str, schema: str, job: str, *rest: str) -> None:
    store = open_store(kind, where, schema)
    await {"load": load, "run": run, "wake": append_on_signal, "contend": contend_for_lease}[job](store, *rest)  # type: ignore[operator]
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
