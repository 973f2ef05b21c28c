"""R7: stops when told. A second after a cancel or a time limit, the kernel knows no process of it any more."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from faults.hostile import HOOKS, LONG, plant_group_only
from faults.leaks import Watch, watching
from faults.tally import FULL, Tally, Violated
from kit import calls, execute, user_of
from programs import Programs
from serving import serving, talking
from wick import Agent, Scripted, ToolCall
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem

WITHIN = 1.0 if FULL else 5.0  # on a machine that is busy with other tests the promise has more time
ROUNDS = 20 if FULL else 1
LIMIT = 1.0  # of those that have one; by then they run
BACKGROUND = f"(setsid sh -c 'trap \"\" TERM HUP INT; {LONG}' &); setsid {LONG} & {LONG} & kill -STOP $!"
STUCK = f"trap '' TERM HUP INT; {BACKGROUND}; {LONG}"
SLEEPERS = 3  # of that command for sure; the fourth may have been stopped before it slept

pytestmark = pytest.mark.timeout(1_800 if FULL else 120)
Told = tuple[float, Awaitable[Any]]  # when it was told to stop, and what waits for its end


class Scene:
    """Where something is started, seen to run, and told to stop."""

    def __init__(self, watch: Watch, folder: Path, sandbox: Any) -> None:
        self.watch, self.folder, self.sandbox = watch, folder, sandbox
        self.backend = Local(folder / sandbox, sandbox=sandbox)

    async def runs(self, sleepers: int = SLEEPERS) -> None:
        """Wait until all of it runs."""
        async with asyncio.timeout(30):
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
        called = calls(ToolCall("c1", "execute", {"command": STUCK}))
        return Agent(Scripted(called, "done", spare=True), hooks=[Filesystem(self.backend)])

    def hooked(self, timeout: float) -> Agent:
        programs = Programs(self.folder / f"hooks-{timeout}")
        programs.sh("check", "before_tool_call", HOOKS["deaf and stuck"])
        return user_of(execute, programs.executables(timeout=timeout), args={"command": "ls"})


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


async def stop_at_once(tally: Tally, watch: Watch, folder: Path, sandbox: str, kinds: Any, rounds: int) -> None:
    """Start each, tell it to stop, and look how long the last process of it lives."""
    scene = Scene(watch, folder, sandbox)
    for number in range(rounds):
        for kind in kinds:
            with tally.trying(f"{kind}, in {sandbox}, round {number}"):
                await _one(tally, watch, await KINDS[kind](scene))
    await scene.backend.stop()


async def _one(tally: Tally, watch: Watch, told: Told) -> None:
    moment, end = told
    try:
        while (left := watch.running() or watch.running()) and time.monotonic() < moment + WITHIN:
            await asyncio.sleep(0.002)
        took = time.monotonic() - moment
        tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))
        if left:
            raise Violated(f"{took:.2f} s after it was told to stop there are {list(left.items())[:5]}")
    finally:
        if watch.running():
            watch.kill()
        await asyncio.wait([asyncio.ensure_future(end)], timeout=30)


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "none"])
def test_what_is_told_to_stop_is_gone(tmp_path: Path, sandbox: str) -> None:
    kinds = [kind for kind in KINDS if sandbox == "none" or kind not in OF_NO_SANDBOX]
    with Tally("R7", f"stopped in {sandbox}") as tally, watching() as watch:
        asyncio.run(stop_at_once(tally, watch, tmp_path, sandbox, kinds, ROUNDS))


def test_ending_process_groups_alone_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_group_only(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "WITHIN", 1.0)
    with watching() as watch:
        with pytest.raises(Violated, match=LONG), Tally("R7", "stopped, planted", planted=True) as tally:
            asyncio.run(stop_at_once(tally, watch, tmp_path, "none", ["a command, cancelled"], 1))
        watch.kill()


# -- by a server ----------------------------------------------------------------------------------------------------

SERVED = f"""
import os
from wick import Agent, FunctionModel, ToolCall, assistant
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.server.server import Server

def answer(request):
    if request.messages[-1].role == "tool":
        return "done"
    return assistant("", ToolCall("c1", "execute", {{"command": {STUCK!r}}}))

agent = Agent(FunctionModel(answer), hooks=[Filesystem(Local(os.environ["WICK_DATA"] + "/work"))])
Server(settings=os.environ["WICK_SETTINGS"]).register_agent("stuck", agent).start()
"""


def test_a_run_of_a_server_that_is_cancelled_is_gone(tmp_path: Path) -> None:
    with Tally("R7", "cancelled at a server") as tally, watching() as watch, serving(tmp_path, script=SERVED) as served:
        watch.processes |= {served.process.pid} if served.process else set()
        asyncio.run(_cancel_each(tally, watch, tmp_path, served))


async def _cancel_each(tally: Tally, watch: Watch, folder: Path, served: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Go."}]}
    scene = Scene(watch, folder, "none")
    async with talking(served) as client:
        for number in range(ROUNDS):
            with tally.trying(f"run {number}"):
                response = await client.post("/agents/stuck/stream", json=body)
                await scene.runs()
                url, moment = f"/runs/{response.headers['X-Run-Id']}/cancel", time.monotonic()
                await _one(tally, watch, (moment, asyncio.create_task(_post(client, url))))
                response.close()


async def _post(client: Any, url: str) -> None:
    async with client.post(url) as response:
        assert (await response.json())["outcome"] == "cancelled"
