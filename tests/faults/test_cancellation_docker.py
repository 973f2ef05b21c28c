"""R7, in containers: a second after a cancel or a time limit, the kernel knows no process of it any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import engines
from faults.cancellation import KINDS, OF_NO_SANDBOX, WITHIN, Scene, stop_at_once
from faults.hostile_commands import LONG
from faults.hostile_containers import IMAGES, Container, labelled, plant_group_only
from faults.tally import FULL, Tally, Violated
from wick import constants
from wick.backends.docker import Docker

ROUNDS = 15 if FULL else 1
ALL = [kind for kind in KINDS if kind not in OF_NO_SANDBOX]
OF_WICKD = ("a job, ended", "a terminal, closed")
SAMPLED = ["a command, cancelled", "a command, by its time limit", "a backend, stopped"]

pytestmark = pytest.mark.timeout(1_800 if FULL else 300)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a daemon may have no processor for seconds; without it a container is another one."""
    if not FULL:
        monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)


async def stop(tally: Tally, folder: Path, server: str, image: str, kinds: Any, rounds: int, within: float) -> None:
    here = engines.find_engine()
    backend = Docker(here.image(image), engine=here.url, server=server)
    for _ in range(rounds):
        await backend.start()  # the last of them has stopped it
        await stop_at_once(tally, Scene(Container(backend.id), folder, backend), kinds, 1, within)


@pytest.mark.parametrize("image", IMAGES)
def test_container_processes_end_after_cancel_or_time_limit(tmp_path: Path, image: str) -> None:
    with Tally("R7", f"commands stopped, container {image}") as tally, labelled() as server:
        kinds = [kind for kind in (ALL if FULL else SAMPLED) if image == "python" or kind not in OF_WICKD]
        asyncio.run(stop(tally, tmp_path, server, image, kinds, ROUNDS, WITHIN))


@pytest.mark.long
def test_killing_only_the_process_group_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_group_only(monkeypatch)
    tally = Tally("R7", "commands stopped, container, planted", planted=True)
    with labelled() as server, pytest.raises(Violated, match=LONG), tally:
        asyncio.run(stop(tally, tmp_path, server, "python", SAMPLED[:1], 1, 1.0))
