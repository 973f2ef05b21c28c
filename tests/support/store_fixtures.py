"""Shared by the store tests: entries, stores and leased threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postgres import shared_server
from wick.errors import StoreError
from wick.protocols import Store
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite
from wick.testing.leased_thread_cases import (
    HeldLease,
    append_outcome,
    entry_numbers,
    hold_thread,
    make_entries,
    make_entry,
    read_entries,
    text_entry,
)

__all__ = [
    "HeldLease",
    "append_outcome",
    "entry_numbers",
    "hold_thread",
    "make_entries",
    "make_entry",
    "read_entries",
    "text_entry",
]

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


@contextmanager
def assert_refused(code: str, match: str = "") -> Iterator[None]:
    """Check that the store refuses with a code and a message."""
    with pytest.raises(StoreError, match=match or None) as caught:
        yield
    assert caught.value.code == code, caught.value
    sentence = str(caught.value)
    assert len(sentence.split()) > 3 and not sentence[-1].isspace()


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
