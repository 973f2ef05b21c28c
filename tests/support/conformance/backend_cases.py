"""Conformance cases for every backend: name, life from start to stop, confinement, and unsupported operations."""

from __future__ import annotations

import asyncio

from conformance.backends import (
    HostFolder,
    OnPlaces,
    WorkspaceAccess,
    in_module_loop,
    on_every_host,
    on_every_kind,
    still,
    supports,
)
from wick.protocols import Terminal
from wick.testing.backend_cases import LifecycleCases

pytestmark = [in_module_loop, on_every_kind]


class TestLifecycle(OnPlaces, LifecycleCases):
    pytestmark = in_module_loop


CONFINED = {  # strength, mechanism, and True if each command needs approval
    "local-bubblewrap": ("strong", "bubblewrap", False),
    "local-landlock": ("weak", "landlock", False),
    "local-unsandboxed": ("none", "nothing", False),
    "docker-daemon": ("strong", "docker", False),
    "docker-exec": ("strong", "docker", False),
    "docker-tcp-engine": ("strong", "docker", False),
    "state": ("strong", "state", False),
}
BY_DAEMON = {"docker-daemon": True, "docker-exec": False, "docker-tcp-engine": True}


async def test_the_sandbox_is_effective(place: WorkspaceAccess) -> None:
    """In CI too: Local has run under bubblewrap, and Docker by its daemon."""
    protection = place.backend.protection
    assert (protection.level, protection.by, protection.asks) == CONFINED[place.kind]
    if place.kind in BY_DAEMON:
        await place.backend.ls()
        assert getattr(place.backend, "uses_daemon") is BY_DAEMON[place.kind], place.backend.status  # noqa: B009


# -- its life -------------------------------------------------------------------------------------------------------


@on_every_host
async def test_a_command_starts_the_backend_by_itself(place: HostFolder) -> None:
    await place.backend.stop()
    assert (await place.backend.execute("echo well"))["stdout"] == "well\n"
    assert place.backend.status.state == "launched"


@on_every_host
async def test_stopping_kills_running_commands(place: HostFolder) -> None:
    """A job, a terminal and a command: all are killed."""
    backend = place.backend
    words, terminal = [b"command"], None
    if supports(place, "background"):
        words.append(b"job")
        await backend.background("while :; do echo job >> beats; sleep 0.05; done")
    if supports(place, "terminal"):
        words.append(b"terminal")
        terminal = await backend.terminal()
        await terminal.write(b"while :; do echo terminal >> beats; sleep 0.05; done\n")
    running = asyncio.create_task(backend.execute("while :; do echo command >> beats; sleep 0.05; done"))
    await _read_output(place, *words)
    async with asyncio.timeout(60):
        await backend.stop()
        assert terminal is None or await _wait_for_end(terminal)
        result = (await asyncio.gather(running, return_exceptions=True))[0]
    assert isinstance(result, Exception) or result["exit_code"] != 0
    await still(place, "beats")
    await backend.start()
    assert [job for job in await backend.jobs() if job["running"]] == []


async def _read_output(place: HostFolder, *words: bytes) -> None:
    async with asyncio.timeout(60):
        while "beats" not in place.paths() or not all(word in place.get("beats") for word in words):
            await asyncio.sleep(0.02)


async def _wait_for_end(terminal: Terminal) -> bool:
    while await terminal.read():
        pass
    return True
