"""The servers of `run_cost.py`: wick, and one written by hand in Starlette with SQLite.

    python bench/run_served.py wick FOLDER            with the SQLite store, or the store of WICK_BENCH_STORE
    python bench/run_served.py wick FOLDER count      counts its transactions, reads and hops
    python bench/run_served.py hand FOLDER

A server prints its port, and ends with its input. After a line on its input, one that counts prints what it has counted
as JSON. A run is two model calls, one tool call and 100 text deltas. The server written by hand writes one transaction
for each step. It has no users, hooks, leases, resumption or redaction.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import Thread
from typing import Any

import orjson
import uvicorn
import uvloop
from served import TOKEN, Bare
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from wick._internal import worker_threads
from wick.agent import Agent
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage
from wick.server.server import Server
from wick.stores.sqlite_file import SqliteReaders
from wick.stores.sqlite_writer import SqliteWriter
from wick.tools import tool

DELTAS = 50  # of each reply


class Script:
    """A model that requests one tool call, and replies with a text to its result."""

    name = "script"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        for _ in range(DELTAS):
            yield TextDelta("some words ")
        is_last = request.messages[-1].role == "tool"
        if not is_last:
            yield CallStart(0, "call_1", "add")
            yield CallArgs(0, '{"a": 2, "b": 3}')
        yield Usage(100, 50)
        yield Finish("stop" if is_last else "tool_calls")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- wick -----------------------------------------------------------------------------------------------------------

counts: Counter[str] = Counter()


def count_work() -> None:
    """Count transactions, reads and hops: work that is handed to another OS thread."""
    connect = sqlite3.connect

    def trace(statement: str) -> None:
        counts["statements"] += not statement.startswith("--")
        counts["transactions"] += statement == "COMMIT"

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    _count_calls(SqliteReaders, "read_sync", "reads")
    _count_calls(SqliteReaders, "read_row", "reads")
    _count_calls(SqliteWriter, "run", "hops")
    _count_calls(worker_threads, "_dispatch", "hops")
    _count_calls(ThreadPoolExecutor, "submit", "hops")


def _count_calls(owner: Any, name: str, what: str) -> None:
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def counted(*args: Any, **options: Any) -> Any:
        counts[what] += 1
        return function(*args, **options)

    setattr(owner, name, counted)


def serve_wick(folder: str) -> None:
    quotas = {"runs": 0, "threads": 0, "streams": 0, "requests_per_second": 0}
    store = {"store": os.environ["WICK_BENCH_STORE"]} if "WICK_BENCH_STORE" in os.environ else {}
    server = Server(port=0, data=folder, token=TOKEN, quotas=quotas, grace=1.0, **store)  # type: ignore[arg-type]
    server.register_agent("bench", Agent(Script(), name="bench", tools=[add]))

    def read_input() -> None:
        for _ in sys.stdin:
            print(json.dumps(counts), flush=True)
        server.shutdown()

    Thread(target=read_input, daemon=True).start()
    server.start(tell=lambda line: print(line, flush=True))


# -- written by hand ------------------------------------------------------------------------------------------------

Messages = list[dict[str, Any]]
database = ThreadPoolExecutor(1)
db: sqlite3.Connection


def open_database(folder: str) -> None:
    global db
    os.makedirs(folder, exist_ok=True)
    db = sqlite3.connect(f"{folder}/hand.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages (thread TEXT, seq INTEGER, data BLOB, PRIMARY KEY (thread, seq)) WITHOUT ROWID")


def load(thread: str) -> Messages:
    found = db.execute("SELECT data FROM messages WHERE thread = ? ORDER BY seq", (thread,))
    return [orjson.loads(data) for (data,) in found]


def save(thread: str, at: int, messages: Messages) -> None:
    db.execute("BEGIN IMMEDIATE")
    rows = [(thread, at + number, orjson.dumps(message)) for number, message in enumerate(messages)]
    db.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
    db.execute("COMMIT")


async def ask(messages: Messages) -> AsyncIterator[tuple[str, Any]]:
    """Yield the deltas of a scripted reply, and then the reply."""
    text = []
    for _ in range(DELTAS):
        text.append("some words ")
        yield "delta", "some words "
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
    if messages[-1]["role"] != "tool":
        message["tool_calls"] = [{"id": "call_1", "name": "add", "args": '{"a": 2, "b": 3}'}]
    yield "message", message


async def run(thread: str, new: Messages) -> AsyncIterator[tuple[str, Any]]:
    """Yield the events of a run. Each step is saved before its message is yielded."""
    loop = asyncio.get_running_loop()
    messages = await loop.run_in_executor(database, load, thread) if thread else []
    thread = thread or uuid.uuid4().hex
    yield "start", thread
    while True:
        messages += new
        await loop.run_in_executor(database, save, thread, len(messages) - len(new), new)
        async for kind, data in ask(messages):
            if kind == "delta":
                yield kind, data
            else:
                new = [data]
        yield "message", new[0]
        calls = new[0].get("tool_calls", ())
        for call in calls:
            args = orjson.loads(call["args"])
            new.append({"role": "tool", "call_id": call["id"], "content": str(args["a"] + args["b"])})
            yield "tool", new[-1]
        if not calls:
            await loop.run_in_executor(database, save, thread, len(messages), new)
            yield "done", messages + new
            return


async def parse(request: HttpRequest) -> tuple[str, Messages] | None:
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        return None
    body = orjson.loads(await request.body())
    return body.get("thread_id") or "", body["messages"]


async def invoke(request: HttpRequest) -> Response:
    if (asked := await parse(request)) is None:
        return Response(status_code=401)
    thread = ""
    async for kind, data in run(*asked):
        if kind == "start":
            thread = data
        elif kind == "done":
            answer = {"thread_id": thread, "response": data[-1]["content"], "messages": data}
    return Response(orjson.dumps(answer), media_type="application/json")


async def stream(request: HttpRequest) -> Response:
    if (asked := await parse(request)) is None:
        return Response(status_code=401)

    async def frames() -> AsyncIterator[bytes]:
        async for kind, data in run(*asked):
            data = {} if kind == "done" else data
            yield b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps({"event": kind, "data": data}))

    return StreamingResponse(frames(), media_type="text/event-stream")


async def serve_by_hand() -> None:
    routes = [
        Route("/agents/bench/invoke", invoke, methods=["POST"]),
        Route("/agents/bench/stream", stream, methods=["POST"]),
    ]
    app = Starlette(routes=routes)
    server = Bare(uvicorn.Config(app, port=0, http="httptools", log_level="warning", access_log=False))
    Thread(target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True).start()
    await server.serve()


if __name__ == "__main__":
    if sys.argv[1] == "hand":
        open_database(sys.argv[2])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_by_hand())
    else:
        if sys.argv[3:] == ["count"]:
            count_work()
        serve_wick(sys.argv[2])
