"""Measure a user with many threads: lists, searches, deletes and new threads over HTTP, compared with a new user.

    python bench/many_threads.py            # 100,000 threads: about 3 minutes
    python bench/many_threads.py --quick    # 5,000 threads

The threads are written by SQL into the database of a server that is not running. The server then indexes them for
searches; the time of that is also measured. See bench/README.md.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter, sleep, time
from typing import Any

import aiohttp
import measure
from measure import Rows, groups, main
from server import Served, _port

from wick.agent import Agent
from wick.models.scripted import FunctionModel
from wick.server.server import Server
from wick.stores import rows
from wick.stores.sqlite_file import FENCE_BITS

THREADS, NEW, AT_ONCE = 100_000, 10_000, 500
TOKENS = {"many": "a-token-of-a-user-with-many-threads", "few": "a-token-of-a-user-with-few-threads"}
WORDS = "The quick brown fox jumps over the lazy dog, and then it thinks about what it has done."

# Goals: milliseconds, times and megabytes.
LIST_MS, SEARCH_MS, DELETE_MS, FIRST_SEARCH_MS, TIMES_NEW, MORE_MB = 5.0, 20.0, 5.0, 100.0, 1.2, 64.0


def serve(folder: str) -> None:
    tokens = [{"name": name, "sha256": sha256(token.encode()).hexdigest()} for name, token in TOKENS.items()]
    quotas = {"runs": 0, "threads": 10_000_000, "streams": 0, "requests_per_second": 0}
    server = Server(port=0, data=folder, tokens=tokens, quotas=quotas, grace=1.0)
    server.register_agent("brief", Agent(FunctionModel(lambda request: "done"), name="brief"))
    Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.start(tell=lambda line: print(line, flush=True))


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    command = [sys.executable, __file__, "serve", str(folder)]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Served("wick", process, _port(process.stdout))
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def add_threads(path: Path, owner: str, count: int, word: str) -> None:
    """Add threads of one message each. Every message has `word`, and one of them `needle`."""
    db, now = sqlite3.connect(path, isolation_level=None, timeout=60), time()
    db.execute("BEGIN IMMEDIATE")
    (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'threads'").fetchone()
    for key in range(last + 1, last + count + 1):
        text = f"{word} {key}: {WORDS}{' needle' if key == last + 1 else ''}"
        body, at = rows.encode_json({"role": "user", "content": text}), now - (last + count - key) / 1000
        db.execute(
            "INSERT INTO threads (key, owner, id, title, meta, created, updated, last, fence) VALUES "
            "(?, ?, ?, ?, ?, ?, ?, 1, ?)",
            (key, owner, f"th_{key}", f"{word} {key}", '{"agent":"brief"}', at, at, key << FENCE_BITS),
        )
        sum = rows.checksum(1, "message", at, body)
        db.execute("INSERT INTO entries VALUES (?, 1, 'message', ?, ?, ?)", (key, at, body, sum))
    db.execute("COMMIT")
    db.close()


def wait_indexed(path: Path) -> None:
    """Wait until the server has indexed all messages."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        while db.execute("SELECT 1 FROM threads WHERE indexed < last LIMIT 1").fetchone():
            sleep(0.1)
    finally:
        db.close()


class Caller:
    """The requests of one user."""

    def __init__(self, port: int, name: str) -> None:
        self.name, self._url = name, f"http://127.0.0.1:{port}"
        pool = aiohttp.TCPConnector(limit=0, keepalive_timeout=1)  # shorter than that of the server
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKENS[name]}"}, connector=pool)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[float, Any]:
        """Return the milliseconds of a request, and its response."""
        began = perf_counter()
        async with self._session.request(method, self._url + path, **options) as answer:
            body = await answer.read()
            took = (perf_counter() - began) * 1000
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {body[:500]!r}")
            return took, await answer.json() if body else None

    async def start_thread(self) -> None:
        await self.ask("POST", "/agents/brief/invoke", json={"messages": [{"role": "user", "content": "hello"}]})

    async def start_threads(self, count: int) -> float:
        """Run concurrent requests in new threads, and return the seconds until all have ended."""
        began = perf_counter()
        await asyncio.gather(*(self.start_thread() for _ in range(count)))
        return perf_counter() - began

    async def close(self) -> None:
        await self._session.close()


async def repeat(caller: Caller, times: int, path: str) -> list[float]:
    return [(await caller.ask("GET", path))[0] for _ in range(times)]


async def measure_requests(folder: Path, owner: str, server: Served, threads: int, new: int, at_once: int) -> Rows:
    path, found = folder / "threads.db", Rows()

    def note(case: str, samples: list[float], goal: float | None) -> None:
        found.append({"group": "requests", "case": case, "ms": median(samples), "worst_ms": max(samples), "goal": goal})

    many, few = Caller(server.port, "many"), Caller(server.port, "few")
    try:
        for user in (many, few):
            await user.start_thread()
        began = perf_counter()
        await many.ask("GET", "/threads/search?q=anything")  # the server starts indexing
        await asyncio.to_thread(wait_indexed, path)
        found.append({"group": "index", "case": f"{threads:,} threads", "seconds": perf_counter() - began})
        for user in (few, many):
            goal = LIST_MS if user is many else None
            note(f"list, {user.name}", await repeat(user, 50, "/threads?limit=50"), goal)
        _, page = await many.ask("GET", "/threads?limit=200")
        note("list, the second page", await repeat(many, 50, f"/threads?limit=50&cursor={page['next']}"), LIST_MS)
        note("list of running threads", await repeat(many, 50, "/threads?running=true"), LIST_MS)
        for about, word in (("one hit", "needle"), ("no hit", "absent"), ("a hit in each thread", "fox")):
            note(f"search, {about}", await repeat(many, 10, f"/threads/search?q={word}"), SEARCH_MS)
        note("search, two letters", await repeat(many, 3, "/threads/search?q=qu"), None)
        ids = [thread["id"] for thread in page["threads"][:100]]
        note("delete", [(await many.ask("DELETE", f"/threads/{id}"))[0] for id in ids[:50]], DELETE_MS)
        add_threads(path, owner, new, "later")
        took, hits = await many.ask("GET", "/threads/search?q=later")
        if len(hits["hits"]) != 20:
            raise RuntimeError(f"the new threads are not found: {hits}")
        note(f"first search after {new:,} new threads", [took], FIRST_SEARCH_MS)
        await asyncio.to_thread(wait_indexed, path)
        await few.start_threads(at_once)  # warm up
        before, seconds = server.megabytes, {"few": list[float](), "many": list[float]()}
        for number in range(4):
            for user in (few, many) if number % 2 else (many, few):  # the writer indexes the previous user's threads
                seconds[user.name].append(await user.start_threads(at_once))
        for name, samples in seconds.items():
            note(f"{at_once} new threads at once, {name}", [one * 1000 for one in samples], None)
        times = median(seconds["many"]) / median(seconds["few"])
        found.append({"group": "growth", "case": "new threads at once, times a new user", "figure": times,
                      "goal": TIMES_NEW})  # fmt: skip
        found.append({"group": "growth", "case": "additional MB", "figure": server.megabytes - before,
                      "goal": MORE_MB})  # fmt: skip
    finally:
        await many.close()
        await few.close()
    return found


def tell(rows: Rows) -> None:
    found = groups(rows)
    measure.table("the search index", ("", "seconds"), measure.pick(found["index"], "seconds"))
    heads = ("requests", "p50 ms", "slowest", "goal")
    measure.table("", heads, measure.pick(found["requests"], "ms", "worst_ms", "goal"))
    measure.table("growth", ("", "figure", "goal"), measure.pick(found["growth"], "figure", "goal"))


def run(quick: bool) -> Rows:
    folder = Path(tempfile.mkdtemp(prefix="wick-bench-"))
    try:
        with served(folder) as server:  # creates the databases and the users
            asyncio.run(prepare(server))
        owner = find_owner(folder / "threads.db")
        add_threads(folder / "threads.db", owner, 5_000 if quick else THREADS, "early")
        with served(folder) as server:
            sizes = (5_000, 500, 50) if quick else (THREADS, NEW, AT_ONCE)
            return asyncio.run(measure_requests(folder, owner, server, *sizes))
    finally:
        shutil.rmtree(folder)


async def prepare(server: Served) -> None:
    many = Caller(server.port, "many")
    await many.start_thread()
    await many.close()


def find_owner(path: Path) -> str:
    db = sqlite3.connect(path)
    try:
        return str(db.execute("SELECT owner FROM threads").fetchone()[0])
    finally:
        db.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main(__doc__, "many_threads", run, tell)
