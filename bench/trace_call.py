"""Count the work behind one tool call over HTTP: files, Python calls, store and records calls, SQL statements.

    python bench/trace_call.py              invoke and stream, with the most called functions
    python bench/trace_call.py --functions 40 --files --json FILE

A server with the SQLite store runs in this process. Its agent has a local backend, the shell policy and the recorder of
the default agent; `--default` measures that agent itself, also with skills and memory. The model is scripted: it
requests one tool call, `execute` with `echo hi`, and then replies with a text. After runs that warm up, each route is
called several times, each time in a new thread. The figures are those of the run with the median number of calls.

A profile function counts in all threads of the process. A resumed coroutine or generator counts as a call, as does a
comprehension. Counting starts before the request is sent, and ends when the response is complete and the run is over.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from types import CodeType, FrameType
from typing import Any

import uvloop

import wick
from wick.messages import ToolCall
from wick.models.scripted import FunctionModel
from wick.protocols import Request
from wick.server.agents.default_agent import EMBEDDED
from wick.server.records.sqlite import SqliteRecords
from wick.server.server import Server
from wick.stores.sqlite import Sqlite

TOKEN = "a-token-for-the-benchmark-0123456789"
SOURCE = f"{Path(wick.__file__).parent}/"
LEAN = (
    "name",
    "system_prompt",
    "backend",
    "permissions",
    "recorder",
)  # options of the default agent that the measured one has
WARM_UPS, RUNS = 3, 7
NOT_COUNTED = ("close", "check")  # methods of the stores that no run calls


@dataclass(slots=True)
class Counts:
    """The calls, files and statements of one run."""

    calls: Counter[CodeType] = field(default_factory=Counter)
    store: Counter[str] = field(default_factory=Counter)
    sql: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    def files(self) -> list[str]:
        return sorted({_path(code) for code in self.calls})

    def by_package(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for code, count in self.calls.items():
            found["/".join(_path(code).split("/")[:-1]) or "wick (heart)"] += count
        return found

    def by_function(self) -> Counter[str]:
        return Counter({f"{_path(code)}:{code.co_qualname}": count for code, count in self.calls.items()})

    def to_json(self) -> dict[str, Any]:
        return {
            "files": len(self.files()),
            "calls": self.total,
            "store_and_records": sum(self.store.values()),
            "by_package": dict(self.by_package().most_common()),
            "by_method": dict(self.store.most_common()),
            "sql": dict(self.sql.most_common()),
        }


current: Counts | None = None  # where the profile function counts, while a run is measured


def _path(code: CodeType) -> str:
    return code.co_filename.removeprefix(SOURCE)


def profile(frame: FrameType, event: str, arg: object) -> None:
    if event == "call" and current is not None and frame.f_code.co_filename.startswith(SOURCE):
        current.calls[frame.f_code] += 1


def count_methods(kind: type, label: str) -> None:
    """Count the calls of the public methods of a store."""
    for name, method in [*vars(kind).items()]:
        if callable(method) and not name.startswith("_") and name not in NOT_COUNTED:
            setattr(kind, name, _counting(method, f"{label}.{name}"))


def _counting(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(method)
    def counted(*args: Any, **options: Any) -> Any:
        if current is not None:
            current.store[name] += 1
        return method(*args, **options)

    return counted


def count_statements() -> None:
    """Count the SQL statements of all connections that are opened from now on."""
    connect = sqlite3.connect

    def trace(statement: str) -> None:
        if current is not None and not statement.startswith("--"):
            current.sql[statement.split(None, 1)[0].upper()] += 1

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


def reply(request: Request) -> ToolCall | str:
    """Request one tool call, and reply with a text to its result."""
    if request.messages[-1].role == "tool":
        return "It printed hi."
    return ToolCall("call_1", "execute", {"command": "echo hi"})


@contextmanager
def serving(folder: str, agent: dict[str, Any]) -> Any:
    """Serve in a thread of this process; yield the service and the port."""
    server = Server(port=0, data=folder, token=TOKEN, grace=1.0, static=None)
    server.register_agent("default", {**agent, "model": FunctionModel(reply)})
    lines: list[str] = []
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(tell=lines.append)))
    thread.start()
    try:
        while server._running is None or not server._running.started or not lines:
            if not thread.is_alive():
                raise SystemExit("the server did not start")
            sleep(0.05)
        yield server.service, server._running.servers[0].sockets[0].getsockname()[1]
    finally:
        server.shutdown()
        thread.join()
        loop.close()


def request(service: Any, port: int, route: str) -> Counts:
    """Send one message to the agent in a new thread, and count until its run is over."""
    global current
    connection = HTTPConnection("127.0.0.1", port)
    connection.connect()
    body = json.dumps({"messages": [{"role": "user", "content": "Say hi."}]})
    counts = current = Counts()
    try:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", f"/agents/default/{route}", body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        deadline = monotonic() + 10
        while service.runs.executor.running and monotonic() < deadline:
            sleep(0.001)
        sleep(0.01)  # for the last callbacks of the run
    finally:
        current = None
        connection.close()
    if response.status != 200 or "It printed hi" not in text:
        raise SystemExit(f"{route} returned {response.status}: {text[:500]}")
    return counts


def measure(agent: dict[str, Any]) -> dict[str, tuple[Counts, list[int]]]:
    """Return the counts of each route, and the numbers of calls of all its runs."""
    found: dict[str, tuple[Counts, list[int]]] = {}
    with TemporaryDirectory() as folder, serving(folder, agent) as (service, port):
        for route in ("invoke", "stream"):
            for _ in range(WARM_UPS):
                request(service, port, route)
            runs = sorted((request(service, port, route) for _ in range(RUNS)), key=lambda one: one.total)
            found[route] = runs[len(runs) // 2], [one.total for one in runs]
    return found


def report(route: str, counts: Counts, totals: list[int], functions: int) -> None:
    print(f"\n== {route}: {len(counts.files())} files, {counts.total:,} calls inside wick ({totals[0]:,} to "
          f"{totals[-1]:,}), {sum(counts.store.values())} calls to store and records, "
          f"{sum(counts.sql.values())} SQL statements")  # fmt: skip
    print("  packages:  " + ", ".join(f"{name} {count:,}" for name, count in counts.by_package().most_common()))
    print("  store:     " + ", ".join(f"{name} {count}" for name, count in counts.store.most_common()))
    print("  SQL:       " + ", ".join(f"{name} {count}" for name, count in counts.sql.most_common()))
    for name, count in counts.by_function().most_common(functions):
        print(f"  {count:6,}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--functions", type=int, default=15, help="number of functions to print")
    parser.add_argument("--files", action="store_true", help="print the files too")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--default", action="store_true", help="measure the default agent with all its capabilities")
    options = parser.parse_args()
    agent = {key: value for key, value in EMBEDDED["default"].items() if options.default or key in LEAN}
    count_methods(Sqlite, "store")
    count_methods(SqliteRecords, "records")
    count_statements()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        found = measure(agent)
    finally:
        sys.setprofile(None)
    for route, (counts, totals) in found.items():
        report(route, counts, totals, options.functions)
        if options.files:
            print("\n".join(f"  {name}" for name in counts.files()))
    if options.json is not None:
        options.json.write_text(
            json.dumps({route: one.to_json() for route, (one, _) in found.items()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
