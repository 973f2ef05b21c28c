"""Measure calls of hook programs: started for each call, or long-running with requests over pipes.

The floor, in the same rounds, is a line to a process and a line back over two bare pipes. See bench/README.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from measure import Rows, groups, main, table

import wick.program
from backends import Key, Run, measure
from wick.hook_programs.runner import Runner
from wick.hook_programs.worker import ProgramWorker

IN_FLIGHT = (1, 32)
CALL = {
    "event": "guard_tool_use",
    "run": "run_0123456789ab",
    "thread": "thread",
    "agent": "agent",
    "user": "",
    "cwd": "/srv/app",
    "invoked_by": "main",
    "tool": "execute",
    "names": ["execute"],
    "kind": "shell",
    "call_id": "call_1",
    "args": {"command": "git status --short"},
}

BARE = "a bare pipe"
SH, PYTHON, PYTHON_WICK = "sh, started each time", "Python, started each time", "wick.program, started each time"
KEPT, KEPT_WICK = "Python, long-running", "wick.program, long-running"
GOAL_MS = 0.3

ANSWER = """
import json, sys
if sys.argv[1:] == ["run"]:
    json.load(sys.stdin)
    print("{}")
else:
    for line in sys.stdin:
        print(json.dumps({"id": json.loads(line)["id"]}), flush=True)
"""
ECHO = """
import os
while data := os.read(0, 65536):
    os.write(1, data)
"""
PROGRAM = """
from program import program
hook = program()

@hook.on("guard_tool_use", "before_tool_call")
def no_force(call):
    if "--force" in call["args"]["command"]:
        return hook.block("force is not allowed")

hook.main()
"""


# -- the programs ---------------------------------------------------------------------------------------------------


def write_program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def programs(folder: Path) -> dict[str, str]:
    python = f"#!{sys.executable} -IS\n"
    shutil.copy(wick.program.__file__, folder / "program.py")
    return {
        SH: write_program(folder, "sh", "#!/bin/sh\nread -r call\necho '{}'\n"),
        PYTHON: write_program(folder, "python", python + ANSWER),
        PYTHON_WICK: write_program(folder, "wick", f"#!{sys.executable} -S\n{PROGRAM}"),
    }


def start_each_time(runner: Runner, path: str) -> Run:
    stdin = json.dumps({**CALL, "event": "before_tool_call", "tool_name": "bash", "tool_input": CALL["args"]}).encode()

    async def run() -> None:
        ran = await runner.run([path, "run"], stdin=stdin)
        assert not ran.problem and ran.exit_code == 0, ran

    return run


def ask_worker(serving: ProgramWorker) -> Run:
    async def run() -> None:
        assert await serving.ask(CALL, timeout=60) == {}

    return run


class Pipes:
    """The floor: a process returns each line in order, and the lines are not parsed."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._line = json.dumps({"id": "1", **CALL}).encode() + b"\n"
        command = [sys.executable, "-IS", "-c", ECHO]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._from, False)
        asyncio.get_running_loop().add_reader(self._from, self._take)

    def _take(self) -> None:
        for _ in range(os.read(self._from, 262_144).count(b"\n")):
            self._waiting.popleft().set_result(None)

    async def run(self) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        os.write(self._to, self._line)
        await answer

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._from)
        self._process.kill()
        self._process.communicate()


@asynccontextmanager
async def ways() -> AsyncIterator[dict[str, Run]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wick-bench-")))
        runner, bare = Runner(cwd=folder), Pipes()
        stack.callback(bare.close)
        found: dict[str, Run] = {BARE: bare.run}
        paths = programs(folder)
        found |= {name: start_each_time(runner, path) for name, path in paths.items()}
        for name, path in {KEPT: paths[PYTHON], KEPT_WICK: paths[PYTHON_WICK]}.items():
            serving = ProgramWorker([path, "serve"], runner)
            stack.push_async_callback(serving.close)
            found[name] = ask_worker(serving)
        yield found


# -- measuring and reporting ----------------------------------------------------------------------------------------


async def figures(quick: bool) -> Rows:
    rounds, seconds = (1, 0.1) if quick else (7, 0.5)
    async with ways() as found:
        cases: dict[Key, tuple[Run, int]] = {(name, n): (run, n) for name, run in found.items() for n in IN_FLIGHT}
        times = await measure(cases, rounds, seconds)
    rows: Rows = [
        {
            "group": "call",
            "case": name,
            "in_flight": in_flight,
            "p50_ms": round(median(one.ms), 4),
            "p99_ms": round(one.p99(), 4),
            "per_second": round(median(one.per_second), 1),
            "ratio": round(median(one.ms) / median(times[BARE, in_flight].ms), 2),
        }
        for (name, in_flight), one in times.items()
    ]
    return rows + [goal(rows, name) for name in (KEPT, KEPT_WICK)]


def goal(rows: Rows, name: str) -> dict[str, Any]:
    (figure,) = [row["p50_ms"] for row in rows if row["case"] == name and row["in_flight"] == 1]
    return {"group": "goal", "case": name, "figure": figure, "goal": GOAL_MS, "met": figure <= GOAL_MS}


def tell(rows: Rows) -> None:
    group = groups(rows)
    for title, key in {
        "a call: median ms, by calls in flight": "p50_ms",
        "a call: p99 ms, by calls in flight": "p99_ms",
        "calls per second": "per_second",
        "a call: times the bare pipe": "ratio",
    }.items():
        cases = dict.fromkeys(row["case"] for row in group["call"])
        lines = [[case, *(row[key] for row in group["call"] if row["case"] == case)] for case in cases]
        table(title, ("", *map(str, IN_FLIGHT)), lines)
    goals = [[f"{row['case']}: ms", row["figure"], f"≤ {row['goal']:g}", _met(row)] for row in group["goal"]]
    table("goals, at one in flight", ("", "figure", "goal", ""), goals)


def _met(row: dict[str, Any]) -> str:
    return "met" if row["met"] else "MISSED"


def run(quick: bool) -> Rows:
    return asyncio.run(figures(quick))


if __name__ == "__main__":
    main(__doc__, "executables", run, tell)
