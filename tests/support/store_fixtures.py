"""Shared by the store tests: entries, stores and leased threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postgres import shared_server
from wick.errors import StoreError
from wick.protocols import Lease, Store
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite

SHARED = ("sqlite", "postgres")  # several stores, in several processes, can be one


@dataclass
class StoreLocation:
    """A location of threads; stores opened here share it."""

    kind: str
    folder: Path
    schema: str = ""

    def open(self, **options: Any) -> Store:
        if self.kind == "in_memory":
            return InMemory(**options)
        if self.kind == "sqlite":
            return Sqlite(self.folder / "threads.db", **options)
        from wick.stores.postgres import Postgres

        options.pop("clock", None)  # it has its own
        return Postgres(shared_server().conninfo, schema=self.schema, **{"connections": 4, **options})


def place(kind: str, folder: Path) -> StoreLocation:
    return StoreLocation(kind, folder, shared_server().schema() if kind == "postgres" else "")


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


async def read_entries(store: Store, id: str = "t", owner: str = "ada", **options: Any) -> list[dict[str, Any]]:
    return [row async for batch in store.read(owner, id, **options) for row in batch]


@contextmanager
def assert_refused(code: str, match: str = "") -> Iterator[None]:
    """Check that the store refuses with a code and a message."""
    with pytest.raises(StoreError, match=match or None) as caught:
        yield
    assert caught.value.code == code, caught.value
    sentence = str(caught.value)
    assert len(sentence.split()) > 3 and not sentence[-1].isspace()


async def append_outcome(work: Callable[[], Any]) -> str:
    """Return "ok" or the error code of the store."""
    try:
        await work()
    except StoreError as error:
        return error.code
    return "ok"


def entry_numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


# -- processes ------------------------------------------------------------------------------------------------------

WRITER = Path(__file__).parent / "stores" / "writer.py"


@contextmanager
def run_writer(place: StoreLocation, *job: str, under: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """Run a process that writes to the location; kill it at the end."""
    where = shared_server().conninfo if place.kind == "postgres" else str(place.folder / "threads.db")
    command = [*under, sys.executable, str(WRITER), place.kind, where, place.schema or "-", *job]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def complete_groups(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The last number of each group of entries that were appended together; none of them is there in part."""
    ends, done = [], 0
    while done < len(rows):
        data = rows[done]["data"]
        some = rows[done : done + data["size"]]
        assert [row["seq"] for row in some] == [*range(done + 1, done + data["size"] + 1)], some
        assert all(row["data"]["first"] == done + 1 for row in some), some
        assert all(row["data"]["text"] == "x" * row["seq"] for row in some), some
        done += data["size"]
        ends.append(done)
    return ends
