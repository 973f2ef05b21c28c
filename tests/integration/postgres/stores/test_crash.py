"""Acknowledged data survives a crash at any moment, and no append is stored in part.

The process that writes is really killed: at random while it is busy, and before each of its writes and syncs. In CI a
sample of these; all of them with WICK_FULL.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from store_fixtures import StoreLocation, complete_groups, place, read_entries, run_writer
from wick.errors import StoreError
from wick.protocols import Store

FULL = bool(os.environ.get("WICK_FULL"))
KILLS = 2_000 if FULL else 8
THREADS = 6
CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "?unlink", "unlinkat")  # not all have the old one


def sound(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "threads.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.timeout(7200 if FULL else 300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_killed_at_random_under_load(kind: str, tmp_path: Path) -> None:
    """Each process continues with the threads that its killed predecessor left."""
    there = place(kind, tmp_path)
    acknowledged: Counter[str] = Counter()
    chance = random.Random(7)
    for number in range(KILLS if kind == "sqlite" else max(KILLS // 10, 5)):
        _kill_one(there, acknowledged, 0.001 + chance.expovariate(1 / 0.04), until="begun" if number else "ack")
    store = there.open()
    for id, last in acknowledged.items():
        ends = [0, *complete_groups(await read_entries(store, id))]
        assert last in ends and ends[-1] == (await store.head("ada", id)).last
    assert acknowledged.total() > 0
    await store.close()
    if kind == "sqlite":
        sound(tmp_path)


def _kill_one(there: StoreLocation, acknowledged: Counter[str], seconds: float, until: str) -> None:
    """Kill a process that many seconds after its first report."""
    with run_writer(there, "load", str(THREADS)) as writer:
        assert writer.stdout is not None
        for line in iter(writer.stdout.readline, ""):
            _note(line, acknowledged)
            if line.startswith(until):
                break
        time.sleep(seconds)
        os.kill(writer.pid, signal.SIGKILL)
        for line in writer.stdout:
            _note(line, acknowledged)
        assert writer.wait(30) == -signal.SIGKILL


def _note(line: str, acknowledged: Counter[str]) -> None:
    what, id, last = line.split()
    if what == "begun":
        assert int(last) >= acknowledged[id], f"{id} had {acknowledged[id]} entries, and now has {last}"
    acknowledged[id] = int(last)


# -- at each write --------------------------------------------------------------------------------------------------


def works() -> bool:
    return shutil.which("strace") is not None and not subprocess.run(["strace", "-qq", "true"], check=False).returncode


def strace(*options: str) -> list[str]:
    return ["strace", "-f", "-qq", "-e", f"trace={','.join(CALLS)}", "-e", "signal=none", *options]


def calls(folder: Path) -> list[tuple[str, int]]:
    """Return every write and sync of an undisturbed run, by name and number."""
    log = folder / "strace"
    with run_writer(StoreLocation("sqlite", folder), "run", under=strace("-o", str(log), "-y")) as writer:
        said, _ = writer.communicate(timeout=60)
    assert said.endswith("ack closed\n")
    points, seen = [], Counter[tuple[str, str]]()
    for line in log.read_text().splitlines():
        found = re.match(r"(\d+) +(\w+)\((.*)", line)
        if found is not None:
            thread, name, rest = found.groups()
            seen[thread, name] += 1
            if "threads.db" in rest:
                points.append((name, seen[thread, name]))
    return points


@pytest.mark.timeout(3600 if FULL else 300)
async def test_killed_before_each_write(tmp_path: Path) -> None:
    if not works():
        pytest.skip("strace does not work here; install it with: apt-get install strace")
    (tmp_path / "whole").mkdir()
    points = sorted({*calls(tmp_path / "whole")})
    assert len(points) > 40 and {name.removesuffix("at") for name, _ in points} >= {
        "pwrite64",
        "fdatasync",
        "unlink",
    }, points
    for name, number in points if FULL else random.Random(3).sample(points, 16):
        folder = tmp_path / f"{name}{number}"
        folder.mkdir()
        under = strace("-o", "/dev/null", "-e", f"inject={name}:signal=SIGKILL:when={number}")
        with run_writer(StoreLocation("sqlite", folder), "run", under=under) as writer:
            said, _ = writer.communicate(timeout=60)
        assert "ack closed" not in said, f"nothing was killed at {name} {number}"
        await _check_run(folder, said.splitlines())


async def _check_run(folder: Path, said: list[str]) -> None:
    """Check that everything acknowledged is stored and complete, and that the next process can continue."""
    store = StoreLocation("sqlite", folder).open()
    if "ack created" not in said:
        await _begin_anew(store)
    last = max([0, *(int(line.split()[-1]) for line in said if line.startswith(("ack appended", "ack took")))])
    ends = complete_groups(await read_entries(store))
    assert last in (0, *ends)
    head = await store.head("ada", "t")
    assert head.last == (ends[-1] if ends else 0)
    assert head.queued in ({0} if 8 in ends else {1} if "ack queued 1" in said else {0, 1})
    for line in said:
        if line.startswith("ack blob"):
            assert await store.get_blob("ada", "t", line.split()[-1]) == b"blob" * 3000
        if line == "ack forked":
            assert complete_groups(await read_entries(store, "fork")) == [1, 4]
    await store.enqueue("ada", "t", {"next": True})
    await store.close()
    sound(folder)


async def _begin_anew(store: Store) -> None:
    try:
        await store.create("ada", "t")
    except StoreError as error:
        assert error.code == "conflict"  # it was created but not acknowledged
