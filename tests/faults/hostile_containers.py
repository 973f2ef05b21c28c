"""Hostile commands in containers, their processes on the host, and planted faults that would let them survive."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

import engines
from faults.hostile_commands import COMMANDS, GROUP_ONLY, LONG
from faults.leaks import _running
from faults.tally import Violated
from wick.backends.containers import daemon_launch
from wick.backends.containers.spec import IDLE_COMMAND
from wick.backends.docker import Docker
from wick.errors import BackendError

PIDS = 150  # that a container may have
IMAGES = ("python", "plain")  # by wickd; by the engine's exec, for there is no Python

HOSTILE = {
    **COMMANDS,
    "nohup": f"nohup setsid {LONG} >/dev/null 2>&1 & exit 0",
    "forked without end": "f() { f | f & }; f; sleep 0.2; exit 0",
    "forked without end, in vain": "f() { f | f & }; f; trap '' TERM; sleep 600",
}


# The fallback without wickd does not promise to end these: see docs/decisions/0032.
MAY_OUTLIVE_EXEC = {"no environment", "forked without end", "forked without end, in vain"}


class Container:
    """A container as the host kernel sees it: all processes in the PID namespace of its first process."""

    def __init__(self, id: str) -> None:
        self.name = f"wick-{id}"

    def first(self) -> int:
        """Return the pid of its first process, or 0."""
        status, found = engines.request_engine(engines.find_engine().path, "GET", f"/containers/{self.name}/json")
        return int(found["State"]["Pid"]) if status == 200 else 0

    def running(self, over: bool = False) -> dict[int, str]:
        """Return the processes in it, without those of the container and, unless `over`, its wickd."""
        first = self.first()
        found = {pid: line for pid, line in _neighbours(first).items() if pid != first and not _is_its_own(line)}
        return {pid: line for pid, line in found.items() if over or not is_wickd(line)}

    def execs(self) -> list[str]:
        """Return running processes that the engine started in it."""
        status, found = engines.request_engine(engines.find_engine().path, "GET", f"/containers/{self.name}/json")
        return list(found["ExecIDs"] or []) if status == 200 else []

    def kill(self) -> None:
        """Kill processes that a planted fault has left."""
        while there := self.running():
            for pid in there:
                with suppress(OSError):
                    os.kill(pid, 9)
            time.sleep(0.01)

    def clean(self, seconds: float, *, over: bool = False) -> float:
        """Wait until nothing is left, and for how long that was."""
        began = time.monotonic()
        while left := self.running(over):
            if time.monotonic() - began > seconds:
                raise Violated(f"after {seconds} s {len(left)} are left in {self.name}: {list(left.items())[:5]}")
            time.sleep(0.005)
        return time.monotonic() - began


def _neighbours(first: int) -> dict[int, str]:
    """Return every process in a PID namespace, with its command line."""
    found: dict[int, str] = {}
    with suppress(OSError):
        space = os.readlink(f"/proc/{first}/ns/pid") if first else ""
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and space):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == space and (line := _running(pid)) is not None:
                    found[pid] = line
    return found


def _is_its_own(line: str) -> bool:
    """Return True if this is a process of the container itself."""
    return line == " ".join(IDLE_COMMAND) or line == "sleep 86400"


def is_wickd(line: str) -> bool:
    """Return True if this is wickd or its supervisor; they run until the end of the program."""
    return daemon_launch.FILE in line or "wick-lifeline" in line


class Contained:
    """Runs hostile commands in a container, in turn."""

    def __init__(self, server: str, image: str) -> None:
        here = engines.find_engine()
        self.backend = Docker(here.image(image), engine=here.url, server=server, limits={"pids": PIDS})
        self.container = Container(self.backend.id)
        names = [name for name in HOSTILE if image == "python" or name not in MAY_OUTLIVE_EXEC]
        self.all, self.lost = itertools.cycle(names), 0

    async def run(self) -> str:
        """The next one, to its end or its time limit; it may kill all that runs there, and so the way to it."""
        name = next(self.all)
        try:
            async with asyncio.timeout(60):
                await self.backend.execute(HOSTILE[name], timeout=0.4)
        except BackendError:
            self.lost += 1
        return name


@contextmanager
def labelled() -> Iterator[str]:
    """Yield a label for containers, which are removed at the end."""
    server = f"test-{uuid4().hex[:12]}"
    try:
        yield server
    finally:
        engines.find_engine().remove(f"wick.server={server}")


def plant_group_only(patch: pytest.MonkeyPatch) -> None:
    """Every wickd that is started in a container from here on ends process groups, and not families."""
    line = "from wick.wickd.__main__ import main"
    planted: Any = daemon_launch.LAUNCH.replace(line, f"{GROUP_ONLY}plant()\n{line}", 1)
    assert "plant()" in planted
    patch.setattr(daemon_launch, "LAUNCH", planted)
