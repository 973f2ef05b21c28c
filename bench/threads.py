"""Measure the cost of storing threads: appending and loading as a thread grows, concurrent writers, other libraries.

    python bench/threads.py            # about 3 minutes; the first time it also installs the other libraries
    python bench/threads.py --quick    # a few seconds, without other libraries

Times are wall time, since most of it is waiting for the disk. Bytes are those that the process wrote, to all files.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import orjson
from measure import Rows, groups, main, table

from wick.stores.sqlite import Sqlite

PEERS = Path(__file__).parent / "thread_peers.py"
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "openai-agents")
TEXT = "The quick brown fox jumps over the lazy dog, and then it thinks about what it has done. " * 3
FLAT, FLOOR, LESS = 1.5, 2.0, 10.0  # goals: growth with length, times the bare loop, times fewer bytes than LangGraph


def message(seq: int) -> dict[str, Any]:
    role = "user" if seq % 2 else "assistant"
    return {"seq": seq, "kind": "message", "at": 1.7e9 + seq, "data": {"role": role, "content": f"{seq}: {TEXT}"}}


def count_written_bytes() -> int:
    """Return the bytes that this process has written so far; 0 if the system does not count them."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


# -- two ways to store a thread -------------------------------------------------------------------------------------


class Bare:
    """A hand-written loop with the same durability: one INSERT per transaction, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        columns = "thread TEXT, seq INTEGER, kind TEXT, at REAL, data BLOB, PRIMARY KEY (thread, seq)"
        self.db.execute(f"CREATE TABLE entries ({columns})")
        self.last: dict[str, int] = {}

    async def fill(self, id: str, length: int) -> None:
        self.db.execute("BEGIN")
        self._insert(id, length - self.last.get(id, 0))
        self.db.execute("COMMIT")

    async def append(self, id: str, count: int) -> None:
        for _ in range(count):
            self.db.execute("BEGIN IMMEDIATE")
            self._insert(id, 1)
            self.db.execute("COMMIT")

    def _insert(self, id: str, count: int) -> None:
        first = self.last.get(id, 0) + 1
        rows = (message(seq) for seq in range(first, first + count))
        query = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
        self.db.executemany(query, ((id, r["seq"], r["kind"], r["at"], orjson.dumps(r["data"])) for r in rows))
        self.last[id] = first + count - 1

    async def load(self, id: str) -> int:
        query = "SELECT seq, kind, at, data FROM entries WHERE thread = ? ORDER BY seq"
        return sum(1 for row in self.db.execute(query, (id,)) if orjson.loads(row[3]))

    async def close(self) -> None:
        self.db.close()


class Wick:
    """A store of wick."""

    def __init__(self, folder: Path) -> None:
        self.store = Sqlite(folder / "wick.db")
        self.last: dict[str, int] = {}
        self.fences: dict[str, int] = {}

    async def fill(self, id: str, length: int) -> None:
        if id not in self.fences:
            await self.store.create("ada", id)
            self.fences[id] = (await self.store.lease("ada", id, "bench", 86_400)).fence
        while self.last.get(id, 0) < length:
            await self._append(id, min(1_000, length - self.last.get(id, 0)))

    async def append(self, id: str, count: int) -> None:
        for _ in range(count):
            await self._append(id, 1)

    async def _append(self, id: str, count: int) -> None:
        last = self.last.get(id, 0)
        rows = [message(seq) for seq in range(last + 1, last + count + 1)]
        self.last[id] = await self.store.append("ada", id, rows, expect=last, fence=self.fences[id])

    async def load(self, id: str) -> int:
        return sum([len(batch) async for batch in self.store.read("ada", id)])

    async def close(self) -> None:
        await self.store.close()


Way = Bare | Wick


# -- measuring ------------------------------------------------------------------------------------------------------


async def taking_turns(cases: dict[Any, Callable[[], Awaitable[object]]], rounds: int) -> dict[Any, list[Any]]:
    """Return the seconds and bytes of each case in each round. The order of the cases differs between rounds."""
    samples: dict[Any, list[Any]] = {key: [] for key in cases}
    for number in range(rounds):
        for key in Random(number).sample([*cases], len(cases)):
            before, start = count_written_bytes(), perf_counter()
            await cases[key]()
            samples[key].append((perf_counter() - start, count_written_bytes() - before))
    return samples


def middle(samples: list[Any], which: int) -> float:
    return median(sample[which] for sample in samples)


async def by_length(ways: dict[str, Way], lengths: list[int], appends: int, rounds: int) -> Rows:
    """Measure an append and a load in threads of these lengths."""
    for way in ways.values():
        for length in lengths:
            await way.fill(f"long {length}", length)
    both = [(name, way, length) for name, way in ways.items() for length in lengths]
    append = {(name, n): lambda way=way, n=n: way.append(f"long {n}", appends) for name, way, n in both}
    load = {(name, n): lambda way=way, n=n: way.load(f"long {n}") for name, way, n in both}
    rows: Rows = []
    for group, cases, count in (("append", append, lambda n: appends), ("load", load, lambda n: n)):
        cost = await taking_turns(cases, rounds)
        for (name, length), samples in cost.items():
            floor = cost["bare sqlite3", length]
            ratio = median(a[0] / b[0] for a, b in zip(samples, floor, strict=True))
            figures = {"us": middle(samples, 0) * 1e6 / count(length), "bytes": middle(samples, 1) / count(length)}
            rows.append({"group": group, "case": name, "entries": length, "ratio": ratio, **figures})
    return rows


async def by_writers(ways: dict[str, Way], appends: int, rounds: int) -> Rows:
    """Measure appends on disk per second, with one writer and with 64 writers of 64 threads."""

    async def together(way: Way, writers: int) -> None:
        await asyncio.gather(*(way.append(f"busy {n}", appends // writers) for n in range(writers)))

    for way in ways.values():
        for number in range(64):
            await way.fill(f"busy {number}", 1)
    cases = {(name, n): lambda way=way, n=n: together(way, n) for name, way in ways.items() for n in (1, 64)}
    cost = await taking_turns(cases, rounds)
    done = {1: appends, 64: appends // 64 * 64}
    return [
        {
            "group": "writers",
            "case": name,
            "writers": n,
            "per_second": done[n] / middle(samples, 0),
            "bytes": middle(samples, 1) / done[n],
            "ratio": median(b[0] / a[0] for a, b in zip(samples, cost["bare sqlite3", n], strict=True)),
        }
        for (name, n), samples in cost.items()
    ]


async def conversation(folder: Path, turns: int) -> Rows:
    """Measure a conversation with two messages per turn. Each turn is on disk before the next starts."""
    way = Wick(folder)
    await way.fill("talk", 0)
    before, start = count_written_bytes(), perf_counter()
    for _ in range(turns):
        await way._append("talk", 2)
    row = _conversation("wick", turns, perf_counter() - start, count_written_bytes() - before)
    await way.close()
    return [row]


def _conversation(case: str, turns: int, seconds: float, size: int) -> dict[str, Any]:
    return {"group": "conversation", "case": case, "messages": 2 * turns, "seconds": seconds, "megabytes": size / 1e6}


# -- other libraries ------------------------------------------------------------------------------------------------


def peers(folder: Path, turns: int) -> Rows:
    """Measure the same conversation with other libraries, in their own environment."""
    try:
        python = _environment()
        command = [python, str(PEERS), str(folder), str(turns), TEXT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "stderr", None) or error
        print(f"the other libraries are not measured: {str(why).strip().splitlines()[-1]}", file=sys.stderr)
        return []
    return [_conversation(turns=turns, **row) for row in json.loads(done.stdout)]


def _environment() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "wick-bench" / f"peers-{sys.version_info.major}.{sys.version_info.minor}"
    python = str(folder / "bin" / "python")
    if not (folder / "ready").exists():
        print(f"installing {', '.join(PACKAGES)} into {folder} …", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, capture_output=True, text=True, timeout=900, check=True)
        (folder / "ready").touch()
    return python


# -- reporting ------------------------------------------------------------------------------------------------------


def tell(rows: Rows) -> None:
    found = groups(rows)
    for group, title in (("append", "an append: µs, bytes written"), ("load", "a load: µs per entry")):
        lines = [
            [f"{row['case']}, {row['entries']:,} entries", row["us"], row["bytes"], row["ratio"]]
            for row in found[group]
        ]
        table(f"{title}, and times the bare loop (goal {FLOOR:g})", ("", "µs", "bytes", "×"), lines)
    growth = [[group, _growth(found[group])] for group in ("append", "load")]
    table(f"growth from the second length to the longest: times the µs (goal {FLAT:g})", ("", "×"), growth)
    writers = [
        [f"{row['case']}, {row['writers']} writers", row["per_second"], row["bytes"], row["ratio"]]
        for row in found["writers"]
    ]
    table("appends on disk per second, and times the bare loop", ("", "/s", "bytes", "×"), writers)
    ours = found["conversation"][0]["megabytes"] or 1.0
    talk = [
        [r["case"], r["messages"], r["seconds"], r["megabytes"], r["megabytes"] / ours] for r in found["conversation"]
    ]
    table(f"one conversation (goal: LangGraph writes {LESS:g} times as much)", ("", "messages", "s", "MB", "×"), talk)


def _growth(rows: Rows) -> float:
    ours = [row["us"] for row in rows if row["case"] == "wick"]
    return float(ours[-1] / ours[-2])


async def measure_stores(folder: Path, quick: bool) -> Rows:
    ways: dict[str, Way] = {"bare sqlite3": Bare(folder), "wick": Wick(folder)}
    lengths = [10, 100, 1_000] if quick else [10, 1_000, 100_000]
    rows = await by_length(ways, lengths, 20 if quick else 100, 3 if quick else 11)
    rows += await by_writers(ways, 128 if quick else 1_280, 3 if quick else 7)
    for way in ways.values():
        await way.close()
    (folder / "talk").mkdir()
    return rows + await conversation(folder / "talk", 50 if quick else 500)


def run(quick: bool) -> Rows:
    results = Path(__file__).parent / "results"  # on a real disk, unlike some folders for temporary files
    results.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=results))
    try:
        rows = asyncio.run(measure_stores(folder, quick))
        return rows if quick else rows + peers(folder, 500)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(__doc__, "threads", run, tell)
