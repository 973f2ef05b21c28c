"""Run the conversation of three_turns.py in a separate process: run, kill, resume and inspect it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from wick import Thread
from wick.capabilities.sessions import Sessions

HERE = Path(__file__).parent
PROGRAM = HERE / "three_turns.py"
WRITES = "write,pwrite64,fsync,fdatasync"
PATIENCE = 600  # seconds: a machine that has no time for it breaks no promise


def strace(folder: Path, *options: str) -> list[str]:
    """Return the command that traces, and optionally faults, the writes to the database."""
    traced()
    (folder / "db").mkdir(exist_ok=True)
    files = [f"-P{folder / 'db' / name}" for name in ("threads.db", "threads.db-wal")]
    return ["strace", "-f", "-qq", f"-etrace={WRITES}", *files, f"-o{folder / 'trace'}", *options]


def traced() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is missing; install it with: apt-get install strace")


def command(folder: Path, fault: str = "") -> list[str]:
    """Return the command that runs the conversation, with an optional planted fault."""
    planted = [str(HERE / "planted_faults.py"), fault] if fault else []
    return [sys.executable, *planted, str(PROGRAM), str(folder)]


def converse(folder: Path, *before: str, fault: str = "") -> list[str]:
    """Run the program, possibly until it is killed; return its output."""
    done = subprocess.run(
        [*before, *command(folder, fault)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout.splitlines()


def killed_at(folder: Path, when: int, fault: str = "") -> tuple[list[str], bool]:
    """Kill the program at that write of any thread; return its output and True if it was killed."""
    killing = strace(folder, f"-einject={WRITES}:signal=SIGKILL:when={when}")
    done = subprocess.run(
        [*killing, *command(folder, fault)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout.splitlines(), done.returncode == -signal.SIGKILL


def writes(folder: Path) -> list[int]:
    """Return the number of writes of each thread: those that opened, wrote and closed the database, in this order."""
    lines = (folder / "trace").read_text().splitlines()
    return [*Counter(line.split()[0] for line in lines).values()]


def most_writes(folder: Path) -> int:
    """Return the largest number of writes of one thread."""
    return max(writes(folder))


def look(db: Path) -> Thread:
    """Return the thread from the database."""
    return asyncio.run(_load(db))


async def _load(db: Path) -> Thread:
    sessions = Sessions(db)
    try:
        return await sessions.load("th_1")
    finally:
        await sessions.close()


def announced(thread: Thread, told: Sequence[str]) -> None:
    """Check that announced entries are stored."""
    for line in told:
        if line.startswith("ack "):
            _, seq, kind = line.split()
            there = int(seq) <= len(thread.entries) and thread.entries[int(seq) - 1].kind == kind
            assert there, f"{line} was announced and is not there"


def effects(folder: Path) -> list[str]:
    """Return effects that must happen once."""
    path = folder / "effects"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith("write_file")]


def once(folder: Path) -> None:
    """No tool ran twice for one call."""
    done = effects(folder)
    assert len(done) == len(set(done)), "a tool ran twice"
    assert len({line.split()[0] + line.split(":")[-1] for line in done}) == len(done), "a call was made twice"


def check(folder: Path, told: Sequence[str]) -> None:
    """Check that the thread is finished, valid and complete, and that no effect happened twice."""
    thread = look(folder / "db")
    assert [m.text for m in thread.messages if m.role == "user"] == ["count", "write", "pay"]
    calls = [call.id for message in thread.messages for call in message.tool_calls]
    results = [message.tool_call_id for message in thread.messages if message.role == "tool"]
    assert calls == results == ["count1", "count2", "write1", "pay1"] and not thread.pending
    announced(thread, told)
    once(folder)
    ended = {entry.data["call"] for entry in thread.entries if entry.kind == "done" and entry.data["ended"] == "done"}
    did = {line.split(":")[-1] for line in effects(folder)}
    assert did >= ended - {"write1"}, "the log knows of an effect that was not"
