"""Measure commands and file operations of backends: the time of one, and the throughput per second.

wick's backends are compared in the same rounds with `sh -c` by asyncio's subprocess, the `docker exec` command, and the
exec of the Engine's API. See bench/README.md.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import aiohttp
import pytest
from measure import Rows, groups, main, table

from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.backends.state import State
from wick.protocols import Backend

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
import engines

IN_FLIGHT = (1, 8, 64)
SIZES = {"1 kB": 1_000, "1 MB": 1_000_000}
COMMAND = "true"

SUBPROCESS, DOCKER_EXEC, ENGINE_EXEC = "sh -c by subprocess", "the docker exec command", "the Engine API's exec"
LOCAL, BUBBLEWRAP = "Local, no sandbox", "Local, bubblewrap"
BY_EXEC, BY_DAEMON = "Docker by exec", "Docker by daemon"
OPEN = "open() and os.replace()"

# Goals.
DAEMON_MS, DAEMON_TIMES, BUBBLEWRAP_MS = 2.0, 30.0, 6.0

Run = Callable[[], Awaitable[object]]


# -- the ways to run a command --------------------------------------------------------------------------------------


def program(*command: str) -> Run:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output = await process.communicate()
        assert process.returncode == 0, output

    return run


def by_engine(session: aiohttp.ClientSession, container: str) -> Run:
    """Return a function that creates an exec, starts it, reads its output to the end, and inspects its exit code."""
    base = "http://engine"
    wanted = {"Cmd": ["sh", "-c", COMMAND], "AttachStdout": True, "AttachStderr": True}

    async def run() -> None:
        async with session.post(f"{base}/containers/{container}/exec", json=wanted) as made:
            id = (await made.json())["Id"]
        async with session.post(f"{base}/exec/{id}/start", json={"Detach": False, "Tty": False}) as started:
            await started.read()
        async with session.get(f"{base}/exec/{id}/json") as ended:
            assert (await ended.json())["ExitCode"] == 0

    return run


def by_backend(backend: Backend) -> Run:
    async def run() -> None:
        done = await backend.execute(COMMAND)
        assert done["exit_code"] == 0, done

    return run


# -- the ways to a file ---------------------------------------------------------------------------------------------

Files = dict[str, Callable[[int], Run]]  # by operation; the argument is the size


def by_open(folder: Path) -> Files:
    def read(size: int) -> Run:
        (folder / str(size)).write_text("x" * size)

        async def run() -> object:
            return len((folder / str(size)).read_bytes().decode())

        return run

    def write(size: int) -> Run:
        async def run() -> None:
            (folder / "new").write_bytes(b"x" * size)
            os.replace(folder / "new", folder / "written")

        return run

    return {"read": read, "write": write}


def files_of(backend: Backend) -> Files:
    def read(size: int) -> Run:
        async def run() -> None:
            content = await backend.read(str(size))
            assert content["bytes"] == size

        return run

    def write(size: int) -> Run:
        return lambda: backend.write("written", "x" * size)

    return {"read": read, "write": write}


# -- the compared backends ------------------------------------------------------------------------------------------


@dataclass
class Ways:
    commands: dict[str, Run] = field(default_factory=dict)
    files: dict[str, Files] = field(default_factory=dict)

    async def add(self, name: str, backend: Backend) -> None:
        await backend.start()
        for size in SIZES.values():
            await backend.write(str(size), "x" * size)
        self.files[name] = files_of(backend)
        if not isinstance(backend, State):
            self.commands[name] = by_backend(backend)


@asynccontextmanager
async def ways() -> AsyncIterator[Ways]:
    found = Ways({SUBPROCESS: program("sh", "-c", COMMAND)})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wick-bench-")))
        found.files[OPEN] = by_open(folder)
        await _docker(found, stack)
        for name, sandbox in ((LOCAL, "none"), (BUBBLEWRAP, "bubblewrap")):
            backend = Local(folder / sandbox, sandbox=sandbox)  # type: ignore[arg-type]
            stack.push_async_callback(backend.stop)
            await found.add(name, backend)
        await found.add("State", State())
        yield found


async def _docker(found: Ways, stack: AsyncExitStack) -> None:
    try:
        engine = engines.find_engine()
    except pytest.skip.Exception as missing:
        print(f"Docker is not measured: {missing}")
        return
    for name, image in ((BY_DAEMON, "python"), (BY_EXEC, "plain")):
        backend = Docker(engine.image(image), engine=engine.url, id=f"bench-{os.getpid()}-{image}")
        stack.push_async_callback(backend.stop)
        await found.add(name, backend)
    container = f"wick-bench-{os.getpid()}-python"
    found.commands[DOCKER_EXEC] = program("docker", "-H", engine.url, "exec", container, "sh", "-c", COMMAND)
    connector = aiohttp.UnixConnector(engine.path, limit=0)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
    found.commands[ENGINE_EXEC] = by_engine(session, container)


# -- measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Times:
    """The milliseconds of each call, and the calls per second of each round."""

    ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)

    def p99(self) -> float:
        return quantiles(self.ms, n=100, method="inclusive")[98]


async def batch(run: Run, count: int, in_flight: int, times: Times) -> None:
    """Run a function `count` times, with `in_flight` concurrent calls."""
    todo = iter(range(count))

    async def work() -> None:
        for _ in todo:
            start = perf_counter()
            await run()
            times.ms.append((perf_counter() - start) * 1_000)

    start = perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    times.per_second.append(count / (perf_counter() - start))


async def _count(run: Run, in_flight: int, seconds: float) -> int:
    """Return the number of calls in a round: as many as take about this long, and at least one for each in flight."""
    warm = Times()
    await batch(run, 3, 1, warm)
    return max(in_flight, 5, min(500, int(seconds * 1_000 / median(warm.ms))))


Key = tuple[Any, ...]


async def measure(cases: dict[Key, tuple[Run, int]], rounds: int, seconds: float) -> dict[Key, Times]:
    """Measure all cases in each round, in a different order each time, so that noise affects all of them."""
    counts = {key: await _count(run, in_flight, seconds) for key, (run, in_flight) in cases.items()}
    times = {key: Times() for key in cases}
    for number in range(rounds):
        for key in Random(number).sample([*cases], len(cases)):
            run, in_flight = cases[key]
            await batch(run, counts[key], in_flight, times[key])
    return times


async def figures(quick: bool) -> Rows:
    rounds, seconds = (1, 0.1) if quick else (7, 0.8)
    async with ways() as found:
        commands: dict[Key, tuple[Run, int]] = {
            (name, n): (run, n) for name, run in found.commands.items() for n in IN_FLIGHT
        }
        files: dict[Key, tuple[Run, int]] = {
            (name, op, label): (make(size), 1)
            for name, made in found.files.items()
            for op, make in made.items()
            for label, size in SIZES.items()
        }
        rows = commands_rows(await measure(commands, rounds, seconds))
        rows += files_rows(await measure(files, rounds, seconds / 4))
    return rows + goals(rows)


def commands_rows(times: dict[Key, Times]) -> Rows:
    rows = []
    for (name, in_flight), one in times.items():
        against = times.get((DOCKER_EXEC, in_flight))
        rows.append(
            {
                "group": "command",
                "case": name,
                "in_flight": in_flight,
                "p50_ms": round(median(one.ms), 3),
                "p99_ms": round(one.p99(), 3),
                "per_second": round(median(one.per_second), 1),
                "ratio": round(median(against.ms) / median(one.ms), 2) if against else None,
            }
        )
    return rows


def files_rows(times: dict[Key, Times]) -> Rows:
    return [
        {
            "group": "file",
            "case": name,
            "operation": operation,
            "size": size,
            "p50_ms": round(median(one.ms), 3),
            "p99_ms": round(one.p99(), 3),
            "ratio": round(median(one.ms) / median(times[OPEN, operation, size].ms), 2),
        }
        for (name, operation, size), one in times.items()
    ]


def goals(rows: Rows) -> Rows:
    def of(case: str, in_flight: int, key: str) -> float:
        (found,) = [row[key] for row in rows if row["case"] == case and row.get("in_flight") == in_flight]
        return float(found)

    def goal(case: str, figure: float, aim: float, most: bool) -> dict[str, Any]:
        met = figure <= aim if most else figure >= aim
        return {"group": "goal", "case": case, "figure": round(figure, 2), "goal": aim, "most": most, "met": met}

    sandboxed = goal(f"{BUBBLEWRAP}: ms at one in flight", of(BUBBLEWRAP, 1, "p50_ms"), BUBBLEWRAP_MS, True)
    if not any(row["case"] == BY_DAEMON for row in rows):
        return [sandboxed]
    one, eight, many = (of(BY_DAEMON, count, "per_second") for count in IN_FLIGHT)
    return [
        goal(f"{BY_DAEMON}: ms at one in flight", of(BY_DAEMON, 1, "p50_ms"), DAEMON_MS, True),
        goal(f"{BY_DAEMON}: times as fast as docker exec", of(BY_DAEMON, 1, "ratio"), DAEMON_TIMES, False),
        goal(f"{BY_DAEMON}: throughput at 8 in flight, times that at one", eight / one, 1.0, False),
        goal(f"{BY_DAEMON}: throughput at 64 in flight, times that at one", many / one, 1.0, False),
        sandboxed,
    ]


# -- reporting ------------------------------------------------------------------------------------------------------


def tell(rows: Rows) -> None:
    group = groups(rows)
    for title, key in {
        "a command: median ms, by commands in flight": "p50_ms",
        "a command: p99 ms, by commands in flight": "p99_ms",
        "commands per second": "per_second",
        "times as fast as the docker exec command": "ratio",
    }.items():
        table(title, ("", *map(str, IN_FLIGHT)), _by(group["command"], key))
    columns = [f"{operation} {size}" for operation in ("read", "write") for size in SIZES]
    table("a file: median ms", ("", *columns), _by(group["file"], "p50_ms"))
    table("a file: p99 ms", ("", *columns), _by(group["file"], "p99_ms"))
    table(f"a file: times {OPEN}", ("", *columns), _by(group["file"], "ratio"))
    table("goals", ("", "figure", "goal", ""), map(_goal_line, group["goal"]))


def _by(rows: Rows, key: str) -> list[list[object]]:
    cases = dict.fromkeys(row["case"] for row in rows)
    return [[case, *(row[key] for row in rows if row["case"] == case)] for case in cases]


def _goal_line(row: dict[str, Any]) -> list[object]:
    sign = "≤" if row["most"] else "≥"
    return [row["case"], row["figure"], f"{sign} {row['goal']:g}", "met" if row["met"] else "MISSED"]


def run(quick: bool) -> Rows:
    return asyncio.run(figures(quick))


if __name__ == "__main__":
    main(__doc__, "backends", run, tell)
