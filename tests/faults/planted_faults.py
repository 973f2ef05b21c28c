"""Runs a program with a fault planted into wick, to see that the tests notice it.

    python planted_faults.py FAULT PROGRAM ARGUMENTS…

A fault is planted from outside, into the classes of this one process: nothing in wick can be switched to be wrong.
"""

from __future__ import annotations

import asyncio
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
    """Send events before they are written, and delay the write."""
    from wick.stores.held_thread import HeldThread
    from wick.stores.sqlite_writer import SqliteWriter

    real = SqliteWriter._run_transaction

    async def saved(self: HeldThread) -> None:
        return None

    def slow(self: SqliteWriter, jobs: Any) -> Any:
        time.sleep(0.02)
        return real(self, jobs)

    HeldThread.saved = saved  # type: ignore[method-assign]
    SqliteWriter._run_transaction = slow  # type: ignore[method-assign]


def forgetful() -> None:
    """A server writes nothing down."""
    from wick.server import service
    from wick.stores.in_memory import InMemory

    service.open_store = lambda settings: InMemory()


def blocking() -> None:
    """Block the event loop for each authenticated request."""
    from wick.server.auth.tokens import TokenVerifier

    real = TokenVerifier.authenticate

    async def slow(self: TokenVerifier, bearer: str) -> Any:
        time.sleep(0.3)  # noqa: ASYNC251
        return await real(self, bearer)

    TokenVerifier.authenticate = slow  # type: ignore[method-assign]


def late() -> None:
    """A server takes its time until it is ready."""
    from wick.server.agents.registry import AgentRegistry

    real = AgentRegistry.start

    async def start(self: AgentRegistry) -> None:
        await asyncio.sleep(2.5)
        await real(self)

    AgentRegistry.start = start  # type: ignore[method-assign]


def idle() -> None:
    """Start a server without recovery of interrupted runs."""
    from wick.server.runs.recovery import RunRecovery

    async def nothing(self: RunRecovery) -> None:
        return None

    RunRecovery.resume_all = nothing  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    "unsynced": unsynced,
    "unsaved": unsaved,
    "forgetful": forgetful,
    "blocking": blocking,
    "late": late,
    "idle": idle,
}


if __name__ == "__main__":
    fault, program, *rest = sys.argv[1:]
    FAULTS[fault]()
    sys.argv = [program, *rest]
    runpy.run_path(program, run_name="__main__")
