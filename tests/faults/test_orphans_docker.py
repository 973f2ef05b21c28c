"""R2 in containers: one second after any command or kill, no process is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

import engines
from faults.hostile_containers import IMAGES, Contained, Container, labelled, plant_group_only
from faults.tally import FULL, Tally, Violated
from wick import constants
from wick.backends.containers.container import Container as Made

RUNS, KILLS = (100, 20) if FULL else (4, 1)  # of each image
AT_ONCE = 5 if FULL else 2
WITHIN = 1.0 if FULL else 30.0  # on a machine that is busy with other tests the promise has more time
BUSY = Path(__file__).parent / "busy_container.py"

pytestmark = pytest.mark.timeout(3_600 if FULL else 300)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a daemon may have no processor for seconds; without it a container is another one."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)


async def leave_nothing(tally: Tally, hostile: Contained, runs: int, within: float = WITHIN) -> None:
    """Run hostile commands, some at once; after each batch nothing of them is left, and in the end no container."""
    await hostile.backend.start()
    for start in range(0, runs, AT_ONCE):
        names = await asyncio.gather(*(hostile.run() for _ in range(min(AT_ONCE, runs - start))))
        tally.tried += len(names)
        await asyncio.to_thread(_count, tally, hostile.container, names, within)  # the cleanup needs this loop
    await hostile.backend.stop()
    tally.check(not hostile.container.first(), f"the container {hostile.container.name} outlived its backend")
    tally.note(lost=hostile.lost)


def _count(tally: Tally, container: Container, names: list[str], within: float) -> None:
    """Those of a batch were tried; if something is left, one of them is to blame."""
    try:
        took = container.clean(within)
    except Violated as left:
        tally.violations.append(f"{left}, after {names}")
        container.kill()
    else:
        tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))


@pytest.mark.parametrize("image", IMAGES)
def test_hostile_commands_leave_nothing_in_a_container(image: str) -> None:
    with Tally("R2", f"hostile commands, container {image}") as tally, labelled() as server:
        asyncio.run(leave_nothing(tally, Contained(server, image), RUNS))
        left = engines.find_engine().containers(f"wick.server={server}")
        tally.check(not left, f"{len(left)} containers are left")


@pytest.mark.long
def test_killing_only_the_process_group_in_a_container_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_group_only(monkeypatch)
    tally = Tally("R2", "hostile commands, container, planted", planted=True)
    with labelled() as server, pytest.raises(Violated, match="sleep 600"), tally:
        for _ in range(20):  # a process killed before it left its group is found, too
            if not tally.violations:
                asyncio.run(leave_nothing(tally, Contained(server, "python"), 2, 0.5))


@pytest.mark.long
def test_a_container_that_outlives_its_backend_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def remove(self: Made) -> None:
        return None

    monkeypatch.setattr(Made, "remove", remove)
    tally = Tally("R2", "containers, planted", planted=True)
    with labelled() as server, pytest.raises(Violated, match="outlived its backend"), tally:
        asyncio.run(leave_nothing(tally, Contained(server, "python"), 0))


# -- killed ---------------------------------------------------------------------------------------------------------


def killed(tally: Tally, server: str, image: str, kills: int, fault: str = "", within: float = WITHIN) -> None:
    """Kill a program that is busy in a container. The container stays, without processes."""
    for number in range(kills):
        with tally.trying(f"kill {number}, {image}"):
            container = Container(id := f"killed-{uuid4().hex[:12]}")
            process = _busy(image, id, server, fault)
            try:
                process.kill()
                took = container.clean(within, over=True)
                assert container.first(), "the container is gone, with its files"
                tally.note(slowest=round(max(took, tally.figures.get("slowest", 0.0)), 3))
            finally:
                process.communicate()
                engines.find_engine().remove(f"wick.id={id}")


def _busy(*words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, str(BUSY), *filter(None, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    assert process.stdout and process.stdout.readline() == "busy\n"
    return process


@pytest.mark.parametrize("image", IMAGES)
def test_nothing_is_left_in_a_container_after_a_kill(image: str) -> None:
    with Tally("R2", f"kills, container {image}") as tally, labelled() as server:
        killed(tally, server, image, KILLS)


@pytest.mark.long
def test_leftover_processes_of_a_container_wickd_are_detected() -> None:
    tally = Tally("R2", "kills, container, planted", planted=True)
    with labelled() as server, pytest.raises(Violated, match="are left"), tally:
        killed(tally, server, "python", 1, "group only", 0.5)
