"""The cost of one run over HTTP: transactions, reads, hops and system calls, and CPU beside a server written by hand.

    python bench/run_cost.py            # about 3 minutes
    python bench/run_cost.py --quick    # half a minute, without the long thread

With WICK_BENCH_STORE=postgresql://… wick uses that database. Its round trips are the calls of `sendto`.

Counts do not depend on the load of the machine. CPU is that of the server process with all its threads; wick and the
server written by hand take turns, and ratios are taken within a round. Needs `strace` for the system calls.
See docs/costs.md.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, RemoteDisconnected
from pathlib import Path
from statistics import median
from threading import local
from time import sleep
from typing import IO, cast

import measure
from measure import Rows, groups, main
from run_served import TOKEN
from server import Served, _port

HERE = Path(__file__).parent
ROUTES = ("invoke", "stream")
QUESTION = "What is 2 + 3?"
AT_ONCE = 10
PLACES = (200, 2_000)  # the messages of a long thread that are measured
WINDOW = 20  # messages around such a place

# The goals.
COUNTS = {"transactions": 5.0, "reads": 5.0, "hops": 10.0, "system calls": 400.0}
RATIOS = {"invoke": 2.5, "stream": 2.0}
GROWTH = {200: 1.2, 2_000: 1.3}
CORES = 1.1  # times the CPU of one core


@contextmanager
def served(kind: str, folder: Path, *more: str) -> Iterator[Served]:
    data = Path(tempfile.mkdtemp(prefix=kind, dir=folder))
    command = [sys.executable, str(HERE / "run_served.py"), kind, str(data), *more]
    with (folder / f"{kind}.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    said, heard = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
    try:
        yield Served(kind, process, _port(heard))
    finally:
        said.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        heard.close()


class Client:
    """Sends messages to one server, several at once, over one connection for each thread of its pool."""

    def __init__(self, server: Served) -> None:
        self.server, self._of, self._pool = server, local(), ThreadPoolExecutor(AT_ONCE)

    def send(self, route: str, thread: str = "") -> str:
        """Send a message in a new or an existing thread, and return the id of the thread."""
        if not hasattr(self._of, "link"):
            self._of.link = HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        path, body, headers = self.create_request(route, thread)
        try:
            self._of.link.request("POST", path, body, headers)
            response = self._of.link.getresponse()
        except (BrokenPipeError, RemoteDisconnected):  # an idle connection, which the server has closed
            self._of.link.close()
            return self.send(route, thread)
        text = response.read().decode()
        if response.status != 200 or not self.is_complete(route, text):
            raise RuntimeError(f"{self.server.kind} returned {response.status}: {text[:300]}")
        return str(response.headers.get("X-Thread-Id") or "")

    def create_request(self, route: str, thread: str) -> tuple[str, str, dict[str, str]]:
        """Return the path, the body and the headers of a request."""
        body = {"messages": [{"role": "user", "content": QUESTION}]} | ({"thread_id": thread} if thread else {})
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        return f"/agents/bench/{route}", json.dumps(body), headers

    def is_complete(self, route: str, text: str) -> bool:
        """Return True if a response is that of a run that has ended."""
        return "some words" in text if route == "invoke" else "event: done" in text

    def send_many(self, route: str, count: int) -> None:
        for _ in self._pool.map(lambda _: self.send(route), range(count)):
            pass

    def cpu_ms(self, route: str, count: int, thread: str = "") -> float:
        """Return the CPU of the server for one run: of several at once in new threads, or one by one in a thread."""
        before = self.server.cpu
        if thread:
            for _ in range(count):
                self.send(route, thread)
        else:
            self.send_many(route, count)
        sleep(0.05)  # for the last callbacks
        return (self.server.cpu - before) * 1000 / count


# -- counts ---------------------------------------------------------------------------------------------------------


def count_work(folder: Path, runs: int) -> Rows:
    """Count transactions, reads and hops of one run after the other, each in a new thread, and in an existing one."""
    rows: Rows = []
    with served("wick", folder, "count") as server:
        client = Client(server)
        for route in ROUTES:
            for thread in ("", "th_known"):
                for _ in range(5):  # all that is loaded on first use
                    client.send(route, thread)
                sleep(2)  # for deferred work
                before = _read_counts(server)
                for _ in range(runs):
                    client.send(route, thread)
                after = _read_counts(server)
                case = f"{route}, {'existing' if thread else 'new'} thread"
                rows += [
                    {"group": "counts", "case": case, "what": what, "figure": (after[what] - before[what]) / runs}
                    for what in ("transactions", "reads", "hops", "statements")
                ]
    return rows


def _read_counts(server: Served) -> dict[str, int]:
    said, heard = cast(IO[str], server.process.stdin), cast(IO[str], server.process.stdout)
    said.write("\n")
    said.flush()
    found: dict[str, int] = {"transactions": 0, "reads": 0, "hops": 0, "statements": 0}
    line = next(line for line in heard if line.startswith("{"))  # after those of the start
    return found | json.loads(line)


def count_system_calls(kind: str, folder: Path, runs: int) -> Rows:
    rows: Rows = []
    with served(kind, folder) as server:
        client = Client(server)
        for route in ROUTES:
            for _ in range(5):
                client.send(route)
            sleep(1)
            output = folder / "strace.txt"
            tracer = subprocess.Popen(["strace", "-c", "-f", "-p", str(server.process.pid), "-o", str(output)],
                                      stderr=subprocess.PIPE, text=True)  # fmt: skip
            cast(IO[str], tracer.stderr).readline()  # attached
            sleep(0.2)
            for _ in range(runs):
                client.send(route)
            tracer.terminate()
            tracer.wait()
            cast(IO[str], tracer.stderr).close()
            calls = dict[str, int]()
            for line in output.read_text().splitlines():
                if found := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line):
                    calls[found[2]] = int(found[1])
            calls.pop("total", None)
            most = {name: round(count / runs, 1) for name, count in sorted(calls.items(), key=lambda one: -one[1])[:8]}
            figure, sent = sum(calls.values()) / runs, calls.get("sendto", 0) / runs
            rows.append(
                {"group": "system calls", "case": f"{kind}, {route}", "figure": figure, "most": most, "sendto": sent}
            )
    return rows


# -- CPU ------------------------------------------------------------------------------------------------------------


def compare_cpu(folder: Path, rounds: int, runs: int) -> Rows:
    """Measure the CPU of a run, 10 at once, of both servers in turn, and of wick on one core and on all."""
    found: dict[tuple[str, str], list[float]] = {}
    with served("wick", folder) as wick, served("hand", folder) as hand:
        clients = [Client(wick), Client(hand)]
        for number in range(-1, rounds):
            for route in ROUTES:
                for client in clients:
                    cost = client.cpu_ms(route, runs)
                    if number >= 0:
                        found.setdefault((client.server.kind, route), []).append(cost)
            one = _pinned_cpu_ms(clients[0], runs)
            if number >= 0:
                found.setdefault(("one core", "invoke"), []).append(one)
    rows: Rows = []
    for route in ROUTES:
        ratio = median(a / b for a, b in zip(found["wick", route], found["hand", route], strict=True))
        rows.append({"group": "cpu", "case": route, "ms": median(found["wick", route]),
                     "hand_ms": median(found["hand", route]), "ratio": ratio, "goal": RATIOS[route]})  # fmt: skip
    ratio = median(a / b for a, b in zip(found["wick", "invoke"], found["one core", "invoke"], strict=True))
    rows.append({"group": "cpu", "case": "invoke, beside wick on one core", "ms": median(found["wick", "invoke"]),
                 "hand_ms": median(found["one core", "invoke"]), "ratio": ratio, "goal": CORES})  # fmt: skip
    return rows


def _pinned_cpu_ms(client: Client, runs: int) -> float:
    """Return the CPU of an invoke while all threads of the server share one core."""
    pid = str(client.server.process.pid)
    _set_cores(pid, "0")
    try:
        return client.cpu_ms("invoke", runs)
    finally:
        _set_cores(pid, "0-1023")


def _set_cores(pid: str, cores: str) -> None:
    subprocess.run(["taskset", "-a", "-c", "-p", cores, pid], check=True, stdout=subprocess.DEVNULL)


def measure_growth(folder: Path, places: tuple[int, ...]) -> Rows:
    """Measure the CPU of messages late in a thread, times that of the first messages of new threads, in turn."""
    rows: Rows = []
    for kind in ("wick", "hand"):
        with served(kind, folder) as server:
            client, sent, thread = Client(server), 0, "th_long"
            client.send_many("stream", 100)
            for place in places:
                while sent < place - WINDOW // 2:
                    client.send("stream", thread)
                    sent += 1
                late, first = [], []
                for _ in range(WINDOW):
                    late.append(client.cpu_ms("stream", 1, thread))
                    before = server.cpu
                    client.send("stream")
                    sleep(0.05)
                    first.append((server.cpu - before) * 1000)
                sent += WINDOW
                ratio, goal = sum(late) / sum(first), GROWTH[place] if kind == "wick" else None
                rows.append({"group": "growth", "case": f"{kind}, message {place:,}", "ms": median(late),
                             "first_ms": median(first), "ratio": ratio, "goal": goal})  # fmt: skip
    return rows


# -- output ---------------------------------------------------------------------------------------------------------


def tell(rows: Rows) -> None:
    found = groups(rows)
    cases = dict.fromkeys(row["case"] for row in found["counts"])
    by = {(row["case"], row["what"]): row["figure"] for row in found["counts"]}
    whats = ("transactions", "reads", "hops", "statements")
    lines = [[case, *(by[case, what] for what in whats)] for case in cases]
    measure.table("counts of a run (goals: 5, 5, 10)", ("", *whats), lines)
    calls = [[row["case"], row["figure"], row["sendto"], str(row["most"])] for row in found.get("system calls", ())]
    measure.table("system calls of a run (goal: 400)", ("", "each", "sendto", "most"), calls)
    heads = ("", "ms", "other", "ratio", "goal")
    measure.table("CPU of a run, 10 at once", heads, measure.pick(found["cpu"], "ms", "hand_ms", "ratio", "goal"))
    if "growth" in found:
        rows = found["growth"]
        measure.table("CPU late in a thread", ("", "ms", "first", "ratio", "goal"),
                      measure.pick(rows, "ms", "first_ms", "ratio", "goal"))  # fmt: skip


def run(quick: bool) -> Rows:
    folder = Path(tempfile.mkdtemp(prefix="wick-bench-"))
    try:
        rows = count_work(folder, 10 if quick else 30)
        if shutil.which("strace"):
            for kind in ("hand", "wick"):
                rows += count_system_calls(kind, folder, 10 if quick else 30)
        rows += compare_cpu(folder, 3 if quick else 9, 50 if quick else 100)
        return rows if quick else rows + measure_growth(folder, PLACES)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(__doc__, "run_cost", run, tell)
