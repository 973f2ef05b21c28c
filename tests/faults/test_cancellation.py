"""R7: cancellation works. One second after a cancel or a time limit, no process is left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from faults.cancellation import KINDS, OF_NO_SANDBOX, STUCK, Scene, ended, stop_at_once
from faults.hostile_commands import LONG, plant_group_only
from faults.leaks import Watch, watching
from faults.tally import FULL, Tally, Violated
from server_process import open_client, run_server
from wick.backends.local import Local

ROUNDS = 20 if FULL else 1

pytestmark = pytest.mark.timeout(1_800 if FULL else 300)


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "none"])
def test_processes_end_after_cancel_or_time_limit(tmp_path: Path, sandbox: Any) -> None:
    kinds = [kind for kind in KINDS if sandbox == "none" or kind not in OF_NO_SANDBOX]
    with Tally("R7", f"commands stopped, sandbox {sandbox}") as tally, watching() as watch:
        backend = Local(tmp_path / sandbox, sandbox=sandbox)
        asyncio.run(stop_at_once(tally, Scene(watch, tmp_path, backend), kinds, ROUNDS))


def test_killing_only_the_process_group_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_group_only(monkeypatch)
    with watching() as watch:
        with pytest.raises(Violated, match=LONG), Tally("R7", "stopped, planted", planted=True) as tally:
            scene = Scene(watch, tmp_path, Local(tmp_path / "none", sandbox="none"))
            asyncio.run(stop_at_once(tally, scene, ["a command, cancelled"], 1, 1.0))
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


def test_processes_of_a_cancelled_server_run_end(tmp_path: Path) -> None:
    with (
        Tally("R7", "runs of a server cancelled") as tally,
        watching() as watch,
        run_server(tmp_path, script=SERVED, fresh=True) as server,
    ):
        watch.processes |= {server.process.pid} if server.process else set()
        asyncio.run(_cancel_each(tally, watch, tmp_path, server))


async def _cancel_each(tally: Tally, watch: Watch, folder: Path, server: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Go."}]}
    scene = Scene(watch, folder, None)
    async with open_client(server) as client:
        for number in range(ROUNDS):
            with tally.trying(f"run {number}"):
                response = await client.post("/agents/stuck/stream", json=body)
                await scene.runs()
                url, moment = f"/runs/{response.headers['X-Run-Id']}/cancel", time.monotonic()
                await ended(tally, watch, (moment, asyncio.create_task(_post(client, url))))
                response.close()


async def _post(client: Any, url: str) -> None:
    async with client.post(url) as response:
        assert (await response.json())["outcome"] == "cancelled"
