"""A conversation that is killed at any of its writes, and taken up, loses nothing and does nothing twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from wick import Thread
from wick.capabilities.sessions import Sessions

PROGRAM = Path(__file__).with_name("three_turns.py")
FULL = bool(os.environ.get("WICK_FULL"))
WRITES = "write,pwrite64,fsync,fdatasync"
LEAST = 100  # a clean run writes at least this often


def strace(folder: Path, *options: str) -> list[str]:
    """The command that traces the writes to the database, and does something about them."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing; install it with: apt-get install strace")
    (folder / "db").mkdir(exist_ok=True)
    files = [f"-P{folder / 'db' / name}" for name in ("threads.db", "threads.db-wal")]
    return ["strace", "-f", "-qq", f"-etrace={WRITES}", *files, f"-o{folder / 'trace'}", *options]


def converse(folder: Path, *before: str) -> list[str]:
    """Run the program, perhaps to its death; what it has printed."""
    done = subprocess.run(
        [*before, sys.executable, str(PROGRAM), str(folder)], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return done.stdout.splitlines()


def most_writes(folder: Path) -> int:
    """How often the thread that wrote most wrote."""
    lines = (folder / "trace").read_text().splitlines()
    return max(Counter(line.split()[0] for line in lines).values())


async def load(folder: Path) -> Thread:
    sessions = Sessions(folder / "db")
    try:
        return await sessions.load("th_1")
    finally:
        await sessions.close()


def check(folder: Path, told: list[str]) -> None:
    """After everything: finished, valid, what was announced is there, and nothing was done twice."""
    thread = asyncio.run(load(folder))
    assert [m.text for m in thread.messages if m.role == "user"] == ["count", "write", "pay"]
    calls = [call.id for message in thread.messages for call in message.tool_calls]
    results = [message.tool_call_id for message in thread.messages if message.role == "tool"]
    assert calls == results == ["count1", "count2", "write1", "pay1"] and not thread.pending
    for line in told:
        if line.startswith("ack "):
            _, seq, kind = line.split()
            assert thread.entries[int(seq) - 1].kind == kind, f"{line} was announced and is not there"
    once = [line for line in (folder / "effects").read_text().splitlines() if not line.startswith("write_file")]
    assert len(once) == len(set(once)), "a tool ran twice"
    assert len({line.split()[0] + line.split(":")[-1] for line in once}) == len(once)
    ended = {entry.data["call"] for entry in thread.entries if entry.kind == "done" and entry.data["ended"] == "done"}
    assert {line.split(":")[-1] for line in once} >= ended - {"write1"}, "the log knows of an effect that was not"


def test_a_clean_run_finishes(tmp_path: Path) -> None:
    assert converse(tmp_path, *strace(tmp_path))[-1] == "finished"
    assert most_writes(tmp_path) > LEAST
    check(tmp_path, [])


def points() -> list[int]:
    every = range(1, 260)
    return [*every] if FULL else sorted(random.Random(5).sample(every[:200], 8))


@pytest.mark.parametrize("when", points())
def test_killed_at_a_write_it_goes_on_where_it_was(tmp_path: Path, when: int) -> None:
    told = converse(tmp_path, *strace(tmp_path, f"-einject={WRITES}:signal=SIGKILL:when={when}"))
    if "finished" in told:  # there are not always that many writes, for what comes together is written together
        assert when > LEAST
    assert converse(tmp_path)[-1] == "finished"
    check(tmp_path, told)


@pytest.mark.parametrize("number", range(500 if FULL else 3))
def test_killed_at_any_moment_again_and_again(tmp_path: Path, number: int) -> None:
    """Several deaths on the way, wherever they come."""
    told: list[str] = []
    chance = random.Random(number)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            process.communicate(timeout=chance.uniform(0.25, 0.7))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        told += (process.communicate()[0] or "").splitlines()
        time.sleep(0.01)
    assert converse(tmp_path)[-1] == "finished"
    check(tmp_path, told)
