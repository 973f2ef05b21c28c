"""A process in which a SQLite store meets trouble; run by test_sqlite_faults, as some of it cannot be done elsewhere.

python faults.py TROUBLE FOLDER …
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from wick.errors import StoreError
from wick.stores.sqlite import Sqlite

NOBODY = 65534


def row(seq: int, size: int = 2_000) -> dict[str, object]:
    return {"seq": seq, "kind": "event", "at": 1.0, "data": {"text": "x" * size}}


async def append_until_full(store: Sqlite, fence: int, over: Callable[[], None]) -> None:
    """Append until refused, several times; then remove the fault and continue."""
    last, refusals = (await store.head("ada", "t")).last, 0
    for _ in range(2_000):
        try:
            last = await store.append("ada", "t", [row(last + 1)], expect=last, fence=fence)
        except StoreError as error:
            print("refused", error.code, str(error).replace("\n", " "), flush=True)
            refusals += 1
            if refusals == 3:
                break
    print("last", last, (await store.head("ada", "t")).last, flush=True)
    over()
    for _ in range(3):  # the refused entry is accepted now
        last = await store.append("ada", "t", [row(last + 1)], expect=last, fence=fence)
    found = [entry["seq"] async for batch in store.read("ada", "t") for entry in batch]
    print("recovered", last, found == [*range(1, last + 1)], flush=True)


async def create_thread(folder: Path) -> tuple[Sqlite, int]:
    store = Sqlite(folder / "threads.db")
    await store.create("ada", "t")
    return store, (await store.lease("ada", "t", "me", 600)).fence


async def limit_file_size(folder: Path, size: str) -> None:
    """Files cannot grow beyond a size, as on a disk that is full."""
    store, fence = await create_thread(folder)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), unlimited[1]))
    await append_until_full(store, fence, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, unlimited))
    await store.close()


async def fill_disk(folder: Path) -> None:
    """Fill the disk; then free space."""
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    store, fence = await create_thread(folder)
    await append_until_full(store, fence, ballast.unlink)
    await store.close()


async def make_read_only(folder: Path) -> None:
    """Make the file read-only while it is closed."""
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    store, fence = await create_thread(folder)
    await store.append("ada", "t", [row(1)], expect=0, fence=fence)
    await store.close()
    path = folder / "threads.db"
    path.chmod(0o400)
    await append_until_full(store, fence, lambda: path.chmod(0o600))
    await store.close()


async def fork_process(folder: Path) -> None:
    """Fork while the store is open; both processes continue to use it."""
    store, fence = await create_thread(folder)
    await store.append("ada", "t", [row(1)], expect=0, fence=fence)
    child = os.fork()
    if child == 0:
        os._exit(_in_child(store, fence))
    print("child", os.waitpid(child, 0)[1], flush=True)  # noqa: ASYNC222  # there is nothing else to do
    last = await store.append("ada", "t", [row(3)], expect=2, fence=fence)
    print("parent", last, [entry["seq"] async for batch in store.read("ada", "t") for entry in batch], flush=True)
    await store.close()


def _in_child(store: Sqlite, fence: int) -> int:
    async def go_on() -> bool:
        head = await store.head("ada", "t")
        return head.last == 1 and await store.append("ada", "t", [row(2)], expect=1, fence=fence) == 2

    asyncio._set_running_loop(None)  # the parent's runs there, not here
    done = asyncio.run(go_on())
    return 0 if done else 1


TROUBLES = {"file_size": limit_file_size, "disk": fill_disk, "read_only": make_read_only, "forked": fork_process}

if __name__ == "__main__":
    trouble, where, *rest = sys.argv[1:]
    asyncio.run(TROUBLES[trouble](Path(where), *rest))  # type: ignore[operator]
