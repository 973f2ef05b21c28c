"""Conformance cases for every backend: name, life from start to stop, confinement, and unsupported operations."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from conformance.backends import (
    CANNOT,
    HostFolder,
    WorkspaceAccess,
    assert_refused,
    on_every_host,
    on_every_kind,
    still,
    supports,
)
from wick.protocols import Backend, Protection, Terminal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), on_every_kind]

OPERATIONS = {name: fn for name, fn in vars(Backend).items() if inspect.isfunction(fn) and not name.startswith("_")}


async def test_every_operation_follows_the_protocol(place: WorkspaceAccess) -> None:
    """The same names in the same order with the same defaults; a backend may know more options, each with a default."""
    assert len(OPERATIONS) > 15
    for operation, function in OPERATIONS.items():
        there = inspect.signature(getattr(type(place.backend), operation)).parameters
        asked = inspect.signature(function).parameters
        found = [(name, part.kind, part.default) for name, part in there.items() if name in asked]
        assert found == [(name, part.kind, part.default) for name, part in asked.items()], operation
        assert all(part.default is not part.empty for name, part in there.items() if name not in asked), operation


async def test_a_backend_describes_itself(place: WorkspaceAccess) -> None:
    backend: Backend = place.backend
    assert backend.name
    assert backend.workdir.startswith("/")
    assert backend.status.state == "launched"
    assert isinstance(backend.protection, Protection) and backend.protection.says.count(" ") > 2


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


async def test_starting_twice_is_starting_once(place: WorkspaceAccess) -> None:
    await asyncio.gather(*(place.backend.start() for _ in range(3)))
    await place.backend.write("a.txt", "a")
    await place.backend.start()
    assert place.backend.status.state == "launched" and place.get("a.txt") == b"a"


async def test_stopping_and_starting_again(place: WorkspaceAccess) -> None:
    backend = place.backend
    await backend.write("a.txt", "a")
    await backend.stop()
    assert backend.status.state == "idle"
    await backend.stop()
    await backend.start()
    assert backend.status.state == "launched"
    assert (await backend.read("a.txt"))["content"] == "a"


async def test_operations_start_the_backend(place: WorkspaceAccess) -> None:
    await place.backend.stop()
    await place.backend.write("a.txt", "a")
    assert place.backend.status.state == "launched" and place.get("a.txt") == b"a"


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


# -- unsupported operations -----------------------------------------------------------------------------------------

TRIES: dict[str, Any] = {
    "execute": lambda backend: backend.execute("true"),
    "background": lambda backend: backend.background("true"),
    "terminal": lambda backend: backend.terminal(),
    "glob": lambda backend: backend.glob("*"),
    "grep": lambda backend: backend.grep("a"),
}


async def test_unsupported_operations_are_refused(place: WorkspaceAccess) -> None:
    for operation, attempt in TRIES.items():
        code = CANNOT.get(place.kind, {}).get(operation)
        if code:
            await assert_refused(code, attempt(place.backend))
            continue
        answer = await attempt(place.backend)
        if operation == "terminal":
            await answer.close()
        if operation == "background":
            await place.backend.end_job(answer["id"])


async def test_jobs_that_are_not_there(place: WorkspaceAccess) -> None:
    await assert_refused("not_found", place.backend.job_output("nothing"))
    await assert_refused("not_found", place.backend.end_job("nothing"))
    assert [job for job in await place.backend.jobs() if job["running"]] == []
