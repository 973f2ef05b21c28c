"""R2 on a server: it is killed with active runs, terminals, jobs and hook programs, and no process is left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from faults.cancellation import SLEEPERS, STUCK
from faults.hostile_commands import HOOKS, LONG
from faults.leaks import Watch, watching
from faults.tally import FULL, Tally, Violated
from programs import Programs
from server_process import ServerProcess, open_client, run_server

KILLS = 20 if FULL else 1
RUNS = 4 if FULL else 1  # of each kind, active when it is killed
WITHIN = 1.0 if FULL else 30.0  # on a machine that is busy with other tests the promise has more time

SERVER = f"""
import os
from wick import Agent, FunctionModel, ToolCall, assistant, tool
from wick.backends.local import Local
from wick.capabilities.executables import Executables
from wick.capabilities.filesystem import Filesystem
from wick.server.server import Server

folder, backend = os.environ["WICK_DATA"], Local(os.environ["WICK_DATA"] + "/work")

@tool
async def job() -> str:
    "Start a background process."
    return (await backend.background({STUCK!r}))["id"]

def calling(name, **args):
    def answer(request):
        return "done" if request.messages[-1].role == "tool" else assistant("", ToolCall("c1", name, args))
    return FunctionModel(answer)

hooks = Executables(dirs=[folder + "/../hooks"], trust=folder + "/../trust.json", timeout=600)
server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("stuck", Agent(calling("execute", command={STUCK!r}), hooks=[Filesystem(backend)]))
server.register_agent("starting", Agent(calling("job"), tools=[job]))
server.register_agent("hooked", Agent(calling("job"), tools=[job], hooks=[hooks]))
server.start()
"""
PLANTED = "import pytest; from faults.hostile import plant_group_only; plant_group_only(pytest.MonkeyPatch())\n"
PLANTED += SERVER.replace('"/work")', '"/work", sandbox="none")')  # a sandbox would end all that is in it

pytestmark = pytest.mark.timeout(1_800 if FULL else 300)


@contextmanager
def _serving(folder: Path, script: str = SERVER) -> Iterator[ServerProcess]:
    Programs(folder).sh("check", "before_tool_call", HOOKS["deaf and stuck"])
    path = os.pathsep.join(path for path in sys.path if path)
    quotas = {"runs": 0, "terminals": 0, "requests_per_second": 0}
    with run_server(folder, script=script, environment={"PYTHONPATH": path}, quotas=quotas) as server:
        yield server


async def busy(server: ServerProcess, watch: Watch, number: int) -> None:
    """Have everything started, see that it runs, and kill the server while it does."""
    async with open_client(server, "root") as client, AsyncExitStack() as begun:
        for agent in ("stuck", "starting", "hooked"):
            for one in range(RUNS):
                body = _words(f"th_{agent}{number}-{one}")
                begun.callback((await client.post(f"/agents/{agent}/stream", json=body)).close)
        for _ in range(RUNS):
            terminal = await client.ws_connect("/agents/stuck/terminal")
            await terminal.send_bytes(f"{STUCK}\n".encode())
            begun.push_async_callback(terminal.close)
        await _runs(watch, 3 * RUNS * SLEEPERS + RUNS)
        server.kill()


def _words(thread: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Go."}], "thread_id": thread}


async def _runs(watch: Watch, sleepers: int) -> None:
    async with asyncio.timeout(120):
        while sum(LONG in line and "trap" not in line for line in watch.running().values()) < sleepers:
            await asyncio.sleep(0.02)


def killed(tally: Tally, watch: Watch, server: ServerProcess, kills: int, within: float = WITHIN) -> None:
    """Kill the server, look for processes, and restart it; interrupted runs are resumed meanwhile."""
    for number in range(kills):
        with tally.trying(f"kill {number}"):
            if number:
                server.start()
            asyncio.run(busy(server, watch, number))
            tally.note(slowest=round(max(_gone(watch, within), tally.figures.get("slowest", 0.0)), 3))


def _gone(watch: Watch, within: float) -> float:
    began = time.monotonic()
    while left := watch.running(over=True):
        if time.monotonic() - began > within:
            raise Violated(f"after {within} s {len(left)} are left: {list(left.items())[:5]}")
        time.sleep(0.005)
    return time.monotonic() - began


def test_nothing_is_left_of_a_server_that_was_killed(tmp_path: Path) -> None:
    with Tally("R2", "kills of a server") as tally, watching() as watch, _serving(tmp_path) as server:
        killed(tally, watch, server, KILLS)


@pytest.mark.long
def test_leftover_processes_of_a_server_are_detected(tmp_path: Path) -> None:
    tally = Tally("R2", "kills of a server, planted", planted=True)
    with ExitStack() as stack:
        watch = stack.enter_context(watching())
        stack.callback(watch.kill)
        server = stack.enter_context(_serving(tmp_path, PLANTED))
        with pytest.raises(Violated, match=LONG), tally:
            killed(tally, watch, server, 1, 0.5)
