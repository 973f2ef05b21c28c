"""Measure the cost of serving: concurrent streams, CPU per event, memory per stream and thread, and the lag of events.

    python bench/server.py            # about 4 minutes
    python bench/server.py --quick    # some seconds, with few streams

wick is compared with a bare Starlette StreamingResponse that sends the same bytes. The readers are a separate process,
whose CPU is reported separately. See bench/README.md.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import clock_gettime, perf_counter, sleep
from typing import IO, Any, cast

import measure
from measure import Rows, groups, main
from served import TOKEN

HERE = Path(__file__).parent
PACE = 0.5  # seconds between two events of a stream
SCHEDULED = 2  # CPUCLOCK_SCHED: the clock of the CPU time of a process

# Goals.
STREAMS, LATE_MS, TIMES_BARE, HELD_MB, HEALTH_MS = 2_000, 100.0, 3.0, 250.0, 100.0
IDLE_MS, WAITING_MS = 2.0, 5.0


# -- a server and its readers ---------------------------------------------------------------------------------------


class Served:
    """A server in a separate process."""

    def __init__(self, kind: str, process: subprocess.Popen[str], port: int) -> None:
        self.kind, self.process, self.port = kind, process, port

    @property
    def cpu(self) -> float:
        """Return the CPU seconds of all its threads so far. Linux has a clock for every process."""
        return clock_gettime((~self.process.pid << 3) | SCHEDULED)

    @property
    def megabytes(self) -> float:
        """Return its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextmanager
def served(kind: str, folder: Path) -> Iterator[Served]:
    command = [sys.executable, str(HERE / "served.py"), kind, str(folder / "data")]
    with (folder / f"{kind}.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield Served(kind, process, _port(cast(IO[str], process.stdout)))
    finally:
        cast(IO[str], process.stdin).close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        cast(IO[str], process.stdout).close()


def _port(output: IO[str]) -> int:
    for line in output:
        if found := re.search(r"^(\d+)$|http://[\w.]+:(\d+)", line):
            return int(found[1] or found[2])
    raise RuntimeError("the server did not start; see its log in the temporary folder")


def readers(server: Served, **asked: Any) -> dict[str, Any]:
    """Run readers, and return their measurements with the CPU and memory of the server."""
    process = subprocess.Popen([sys.executable, str(HERE / "readers.py")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    said, heard = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
    with process:
        said.write(json.dumps({"port": server.port, "token": TOKEN, **asked}) + "\n")
        said.flush()
        _expect(heard, "steady")
        cpu, began = server.cpu, perf_counter()
        _expect(heard, "over")
        spent, took, memory = server.cpu - cpu, perf_counter() - began, server.megabytes
        said.close()
        seen: dict[str, Any] = json.loads(heard.readline())
    return seen | {"server_cpu": spent, "busy": spent / took, "megabytes": memory}


def _expect(heard: IO[str], word: str) -> None:
    line = heard.readline().strip()
    if line != word:
        raise RuntimeError(f"the readers sent {line!r} instead of {word!r}")


# -- the measured cases ---------------------------------------------------------------------------------------------


def streams(server: Served, count: int, seconds: float) -> dict[str, Any]:
    """Measure concurrent streams of two events a second."""
    ramp = max(1.0, count / 60)  # the cost of starting runs is measured by the burst
    pieces = int((ramp + seconds + 10) / PACE)
    seen = readers(server, streams=count, words=f"{pieces} {PACE}", ramp=ramp, seconds=seconds, settle=2.0)
    return _row("streams", server.kind, seen, streams=count, expected=round(count * seen["seconds"] / PACE))


def burst(server: Served, count: int, pieces: int) -> dict[str, Any]:
    """Measure concurrent streams without pauses."""
    seen = readers(server, streams=count, words=f"{pieces} 0", seconds=0)
    return _row("burst", server.kind, seen, streams=count, expected=count * pieces)


def first(server: Served, count: int) -> dict[str, Any]:
    """Measure the time to the first event, one stream after the other."""
    took = [readers_once(server) for _ in range(count)]
    return {"group": "first event", "case": server.kind, "p50_ms": _part(took, 0.5), "p99_ms": _part(took, 0.99)}


def readers_once(server: Served) -> float:
    """Return the milliseconds from a request to the first event of a stream whose model does not wait."""
    import socket

    from readers import question

    asked = question({"words": "1 0", "token": TOKEN})
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        began, heard = perf_counter(), b""
        link.sendall(asked)
        while b"event: on_chat_model_stream" not in heard:
            more = link.recv(65_536)
            if not more:
                raise RuntimeError(f"{server.kind} ended the stream: {heard!r}")
            heard += more
        return (perf_counter() - began) * 1000


def idle(server: Served, threads: int, streams: int) -> Rows:
    """Measure the memory of a server with idle threads and idle streams."""
    rows: Rows = []
    readers(server, streams=20, words="1 0", seconds=0)  # load everything that is loaded on first use
    before = server.megabytes
    readers(server, streams=threads, words="1 0", seconds=0, at_once=20)  # idle threads, not runs, are measured
    rested = server.megabytes
    rows.append(_memory("an idle thread", threads, before, rested))
    seen = readers(server, streams=streams, words="1 30", ramp=streams / 500, seconds=2, settle=2.0)
    rows.append(_memory("an idle stream", streams, rested, seen["megabytes"]))
    both = f"{threads:,} threads and {streams:,} streams"
    return [*rows, {"group": "memory", "case": both, "count": 1, "megabytes": seen["megabytes"], "kb_each": None}]


def waiting(server: Served, runs: int, seconds: float) -> Rows:
    """Measure the CPU of an idle server, and of one with runs that wait for their model."""
    readers(server, streams=20, words="1 0", seconds=0)  # load everything that is loaded on first use
    sleep(5)
    rows = [_busy("nothing", 0, server, seconds)]
    words = f"1 {int(runs / 100 + 3 * seconds + 30)}"  # the seconds until the model answers
    seen = readers(server, streams=runs, words=words, ramp=runs / 100, seconds=seconds, settle=10.0, health=False)
    cost = seen["server_cpu"] * 1000 / seen["seconds"]
    rows.append({"group": "idle", "case": "waiting runs, each with a reader", "count": runs, "ms_per_second": cost})
    sleep(2)  # the readers disconnect
    return [*rows, _busy("waiting runs", runs, server, seconds)]


def _busy(case: str, count: int, server: Served, seconds: float) -> dict[str, Any]:
    cpu, began = server.cpu, perf_counter()
    sleep(seconds)
    cost = (server.cpu - cpu) * 1000 / (perf_counter() - began)
    return {"group": "idle", "case": case, "count": count, "ms_per_second": cost}


def _memory(case: str, count: int, before: float, after: float) -> dict[str, Any]:
    return {"group": "memory", "case": case, "count": count, "megabytes": after,
            "kb_each": (after - before) * 1024 / count}  # fmt: skip


def _row(group: str, case: str, seen: dict[str, Any], **more: Any) -> dict[str, Any]:
    events = max(1, seen["events"])
    cost = {"us": seen["server_cpu"] * 1e6 / events, "reader_us": seen["reader_cpu"] * 1e6 / events}
    per_core = events / seen["server_cpu"] if seen["server_cpu"] else 0.0
    return {"group": group, "case": case, **more, **seen, **cost, "per_core_second": per_core}


def _part(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# -- reporting ------------------------------------------------------------------------------------------------------


def goals(rows: Rows) -> Rows:
    found = groups(rows)
    most = max(row["streams"] for row in found["streams"])
    wick = next(row for row in found["streams"] if row["case"] == "wick" and row["streams"] == most)
    bare = next(row for row in found["streams"] if row["case"] == "bare" and row["streams"] == most)
    held = wick["events"] / max(1, wick["expected"])
    return [
        _goal(f"{most:,} streams: share of the expected events", held, 0.98, least=True),
        _goal(f"{most:,} streams: p99 of the lag of events, ms", wick["late_p99_ms"], LATE_MS),
        _goal(f"{most:,} streams: p99 of /health, ms", wick["health_p99_ms"], HEALTH_MS),
        _goal("CPU per event, times the bare response", wick["us"] / bare["us"] if bare["us"] else 0.0, TIMES_BARE),
        _goal(f"MB with {found['memory'][-1]['case']}", found["memory"][-1]["megabytes"], HELD_MB),
        _goal("idle: ms of CPU per second", found["idle"][0]["ms_per_second"], IDLE_MS),
        _goal("waiting runs: additional ms of CPU per second", _more(found["idle"]), WAITING_MS),
    ]


def _more(idle: Rows) -> float:
    return float(idle[-1]["ms_per_second"] - idle[0]["ms_per_second"])


def _goal(case: str, figure: float, goal: float, *, least: bool = False) -> dict[str, Any]:
    met = figure >= goal if least else figure <= goal
    return {"group": "goal", "case": case, "figure": round(figure, 3), "goal": goal, "least": least, "met": met}


def tell(rows: Rows) -> None:
    found = groups(rows)
    heads = ("", "streams", "events", "of", "busy", "µs", "readers' µs", "lag p50", "p99 ms", "health p99", "MB")
    keys = (
        "streams",
        "events",
        "expected",
        "busy",
        "us",
        "reader_us",
        "late_p50_ms",
        "late_p99_ms",
        "health_p99_ms",
        "megabytes",
    )
    measure.table("two events a second on each stream", heads, measure.pick(found["streams"], *keys))
    keys = ("streams", "events", "per_core_second", "us", "reader_us", "health_p99_ms")
    heads = ("", "streams", "events", "events per core second", "µs", "readers' µs", "health p99 ms")
    measure.table("streams without pauses", heads, measure.pick(found["burst"], *keys))
    measure.table("the first event", ("", "p50 ms", "p99 ms"), measure.pick(found["first event"], "p50_ms", "p99_ms"))
    measure.table(
        "memory", ("", "count", "MB", "kB each"), measure.pick(found["memory"], "count", "megabytes", "kb_each")
    )
    heads = ("", "count", "ms of CPU per second")
    measure.table("idle", heads, measure.pick(found["idle"], "count", "ms_per_second"))
    said = [[row["case"], row["figure"], row["goal"], "met" if row["met"] else "MISSED"] for row in found["goal"]]
    measure.table("goals", ("", "figure", "goal", ""), said)


def measure_servers(folder: Path, quick: bool) -> Rows:
    rows: Rows = []
    for kind in ("bare", "wick"):
        with served(kind, folder) as server:
            rows.append(first(server, 20 if quick else 200))
            rows += [streams(server, count, 2 if quick else 15) for count in ((40,) if quick else (500, STREAMS))]
            rows.append(burst(server, 4 if quick else 50, 100 if quick else 1_000))
    with served("wick", folder) as server:
        rows += idle(server, 40 if quick else 10_000, 40 if quick else 1_000)
    with served("wick", folder) as server:
        rows += waiting(server, 40 if quick else 1_000, 3 if quick else 20)
    return rows + goals(rows)


def run(quick: bool) -> Rows:
    folder = Path(tempfile.mkdtemp(prefix="wick-bench-"))
    try:
        return measure_servers(folder, quick)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(__doc__, "server", run, tell)
