"""Runs a program with a fault planted into wick, to see that the tests notice it.

    python planted.py FAULT PROGRAM ARGUMENTS…

A fault is planted from outside, into the classes of this one process: nothing in wick can be switched to be wrong.
"""

from __future__ import annotations

import runpy
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any


def unsynced() -> None:
    """Commits are not synced to the disk."""
    from wick.stores import sqlite_file

    real = sqlite_file._connect

    def connect(*given: Any) -> sqlite3.Connection:
        db = real(*given)
        db.execute("PRAGMA synchronous = OFF")
        return db

    sqlite_file._connect = connect


def unsaved() -> None:
    """Things are told before they are written, and writing takes its time."""
    from wick.keeping import Kept
    from wick.stores.group_commit import Writer

    real = Writer._transact

    async def saved(self: Kept) -> None:
        return None

    def slow(self: Writer, jobs: Any) -> Any:
        time.sleep(0.02)
        return real(self, jobs)

    Kept.saved = saved  # type: ignore[method-assign]
    Writer._transact = slow  # type: ignore[method-assign]


def forgetful() -> None:
    """A server writes nothing down."""
    from wick.server import service
    from wick.stores.in_memory import InMemory

    service.Sqlite = lambda path: InMemory()  # type: ignore[attr-defined]


FAULTS: dict[str, Callable[[], None]] = {"unsynced": unsynced, "unsaved": unsaved, "forgetful": forgetful}


if __name__ == "__main__":
    fault, program, *rest = sys.argv[1:]
    FAULTS[fault]()
    sys.argv = [program, *rest]
    runpy.run_path(program, run_name="__main__")
