"""Start commands, runs, hooks, jobs, terminals and backends, stop them, and look for their processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from faults.hostile_commands import HOOKS, LONG
from faults.tally import FULL, Tally, Violated
from kit import execute, tool_agent, tool_calls_reply
from programs import Programs
from wick import Agent, Scripted, ToolCall
from wick.capabilities.filesystem import Filesystem

WITHIN = 1.0 if FULL else 30.0  # on a machine that is busy with other tests the promise has more time
LIMIT = 1.0 if FULL else 5.0  # of those that have one; by then they run
BACKGROUND = f"(setsid sh -c 'trap \"\" TERM HUP INT; {LONG}' &); setsid {LONG} & {LONG} & kill -STOP $!"
STUCK = f"trap '' TERM HUP INT; {BACKGROUND}; {LONG}"
SLEEPERS = 3  # of that command for sure; the fourth may have been stopped before it slept

Told = tuple[float, Awaitable[Any]]  # the time of the stop request, and the task that waits for the end


class Watching(Protocol):
    """Lists running processes and can kill them."""

    def running(self) -> dict[int, str]: ...

    def kill(self) -> None: ...


class Scene:
    """A place to start something, see it run, and stop it."""

    def __init__(self, watch: Watching, folder: Path, backend: Any) -> None:
        self.watch, self.folder, self.backend = watch, folder, backend

    async def runs(self, sleepers: int = SLEEPERS) -> None:
        """Wait until all of it runs."""
        async with asyncio.timeout(60):
            while sum(LONG in line and "trap" not in line for line in self.watch.running().values()) < sleepers:
                await asyncio.sleep(0.005)

    async def cancelled(self, work: Any, sleepers: int = SLEEPERS) -> Told:
        task = asyncio.ensure_future(work)
        await self.runs(sleepers)
        task.cancel()
        return time.monotonic(), task

    async def limited(self, work: Any, sleepers: int = SLEEPERS) -> Told:
        """Its time runs from when it was asked for."""
        began, task = time.monotonic(), asyncio.ensure_future(work)
        await self.runs(sleepers)
        return began + LIMIT, task

    def agent(self) -> Agent:
        called = tool_calls_reply(ToolCall("c1", "execute", {"command": STUCK}))
        return Agent(Scripted(called, "done", spare=True), hooks=[Filesystem(self.backend)])

    def hooked(self, timeout: float) -> Agent:
        programs = Programs(self.folder / f"hooks-{timeout}")
        programs.sh("check", "before_tool_call", HOOKS["deaf and stuck"])
        return tool_agent(execute, programs.executables(timeout=timeout), args={"command": "ls"})


async def job_ended(scene: Scene) -> Told:
    job = await scene.backend.background(STUCK)
    await scene.runs()
    return time.monotonic(), asyncio.ensure_future(scene.backend.end_job(job["id"]))


async def terminal_closed(scene: Scene) -> Told:
    terminal = await scene.backend.terminal()
    await terminal.write(f"{STUCK}\n".encode())
    await scene.runs()
    return time.monotonic(), asyncio.ensure_future(terminal.close())


async def backend_stopped(scene: Scene) -> Told:
    running = asyncio.ensure_future(scene.backend.execute(STUCK))
    await scene.runs()
    told, stopping = time.monotonic(), asyncio.ensure_future(scene.backend.stop())
    return told, asyncio.gather(running, stopping, return_exceptions=True)


KINDS: dict[str, Callable[[Scene], Awaitable[Told]]] = {
    "a command, cancelled": lambda scene: scene.cancelled(scene.backend.execute(STUCK)),
    "a command, by its time limit": lambda scene: scene.limited(scene.backend.execute(STUCK, timeout=LIMIT)),
    "a run with a tool, cancelled": lambda scene: scene.cancelled(scene.agent().run("go")),
    "a run with a hook, cancelled": lambda scene: scene.cancelled(scene.hooked(600).run("go"), 1),
    "a hook, by its time limit": lambda scene: scene.limited(scene.hooked(LIMIT).run("go"), 1),
    "a job, ended": job_ended,
    "a terminal, closed": terminal_closed,
    "a backend, stopped": backend_stopped,
}
OF_NO_SANDBOX = ("a run with a hook, cancelled", "a hook, by its time limit")


async def stop_at_once(tally: Tally, scene: Scene, kinds: Any, rounds: int, within: float = WITHIN) -> None:
    """Start each, stop it, and measure how long its last process lives."""
    for number in range(rounds):
        for kind in kinds:
            with tally.trying(f"{kind}, round {number}"):
                await ended(tally, scene.watch, await KINDS[kind](scene), within)
    await scene.backend.stop()


async def ended(tally: Tally, watch: Watching, told: Told, within: float = WITHIN) -> None:
    """Check that no process is left by then."""
    moment, end = told
    try:
        while (left := watch.running() or watch.running()) and time.monotonic() < moment + within:
            await asyncio.sleep(0.002)
        took = time.monotonic() - moment
        tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))
        if left:
            raise Violated(f"{took:.2f} s after it was told to stop there are {list(left.items())[:5]}")
    finally:
        if watch.running():
            watch.kill()
        await asyncio.wait([asyncio.ensure_future(end)], timeout=30)
