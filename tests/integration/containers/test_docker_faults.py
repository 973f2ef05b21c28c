"""Faults around a container: the engine, the container or the daemon is killed, hangs, or restarts.

Whatever happens, there is an answer in bounded time, no command runs twice, and all is well once the cause is gone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import engines
from wick import constants
from wick.backends.docker import Docker
from wick.errors import BackendError

Make = Callable[..., Docker]
IMAGES = ["python", pytest.param("plain", marks=pytest.mark.long)]  # with the same outcome

WORKS = "echo ran >> ran.txt; sleep 100"  # reports its start and continues


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.PrivateEngine]:
    """An engine that may be killed and stopped."""
    with engines.start_private(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    made = list[Docker]()
    monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)  # on a busy machine it may have no processor for a while

    def docker(image: str = "python", engine: engines.RunningEngine | None = None, **options: Any) -> Docker:
        there = engine or engines.find_engine()
        made.append(Docker(there.image(image), engine=there.url, server=f"test-{uuid4().hex[:12]}", **options))
        return made[-1]

    yield docker
    for one in made:
        await one.stop()


def kill(backend: Docker, what: str = "kill?signal=KILL", engine: engines.RunningEngine | None = None) -> None:
    """Do something to the container behind the backend's back."""
    (engine or engines.find_engine()).ask("POST", f"/containers/wick-{backend.id}/{what}")


def impatient(*backends: Docker) -> None:
    """From here on they wait for an engine for two seconds, so that a test need not wait as long as people."""
    for backend in backends:
        backend._lifecycle.engine.seconds = 2.0


def patient(*backends: Docker) -> None:
    """The engine is there again; a busy machine may take its time."""
    for backend in backends:
        backend._lifecycle.engine.seconds = constants.ENGINE_SECONDS


async def start_command(backend: Docker, command: str = WORKS, **options: Any) -> asyncio.Task[Any]:
    """Start a command and wait until it runs."""
    task = asyncio.create_task(backend.execute(command, **options))
    async with asyncio.timeout(60):
        while not any(entry["name"] == "ran.txt" for entry in (await backend.ls())["entries"]):
            await asyncio.sleep(0.05)
    return task


async def fails(code: str, doing: Awaitable[Any], match: str | None = None) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(BackendError, match=match) as caught:
            await doing
    assert caught.value.code == code, str(caught.value)


async def noticed(backend: Docker) -> None:
    """Wait until the backend has noticed the end of its daemon; earlier requests may have arrived."""
    async with asyncio.timeout(60):
        while backend.uses_daemon:
            await asyncio.sleep(0.01)


async def works(backend: Docker) -> None:
    async with asyncio.timeout(60):
        assert (await backend.execute("echo fine"))["stdout"] == "fine\n"


async def runs(backend: Docker) -> int:
    """Count the runs of the command."""
    return (await backend.read("ran.txt"))["content"].count("ran")


# -- the daemon -----------------------------------------------------------------------------------------------------


async def signal_daemon(backend: Docker, name: str) -> None:
    """Send a signal to the processes of wickd, not to its commands."""
    script = "for f in /proc/[0-9]*; do tr '\\0' ' ' <$f/cmdline | grep -q '^python3 -I -S' && "
    script += f"kill -{name} ${{f#/proc/}}; done; true"
    process = await backend._lifecycle.engine.exec(f"wick-{backend.id}", ["sh", "-c", script])
    while await process.read():
        pass
    assert await process.exit_code() == 0
    process.close()


async def test_the_daemon_is_killed_while_a_command_runs(make: Make) -> None:
    backend = make()
    task = await start_command(backend)
    await signal_daemon(backend, "KILL")
    await fails("unknown", task, "the command may have run, wholly or in part")
    await works(backend)
    assert backend.uses_daemon
    assert await runs(backend) == 1


async def test_the_daemon_is_killed_while_nothing_runs(make: Make) -> None:
    backend = make()
    await backend.write("a.txt", "a")
    for _ in range(3):
        await signal_daemon(backend, "KILL")
        await noticed(backend)
        async with asyncio.timeout(60):
            done = await asyncio.gather(*(backend.execute("cat a.txt") for _ in range(5)))
        assert [one["stdout"] for one in done] == ["a"] * 5
        assert backend.uses_daemon


async def test_the_daemon_hangs(make: Make) -> None:
    backend = make()
    await backend.start()
    await signal_daemon(backend, "STOP")
    await fails("unknown", backend.execute("echo ran >> ran.txt", timeout=0.5), "did not answer within")
    await works(backend)
    assert backend.uses_daemon


async def test_a_daemon_that_is_not_one_of_ours_is_left_alone(make: Make) -> None:
    """The peer sends something other than replies: it is ignored."""
    backend = make()
    await backend.start()
    link = backend._lifecycle.link
    assert link is not None and link.daemon is not None
    link.daemon.data_received(b"this is no reply\n")
    assert not backend.uses_daemon
    await works(backend)
    assert backend.uses_daemon


async def test_jobs_end_with_their_daemon(make: Make) -> None:
    backend = make()
    await backend.background("while :; do echo beat >> beats; sleep 0.05; done")
    async with asyncio.timeout(60):
        while not any(entry["name"] == "beats" for entry in (await backend.ls())["entries"]):
            await asyncio.sleep(0.05)
    await signal_daemon(backend, "KILL")
    await noticed(backend)
    await works(backend)
    async with asyncio.timeout(60):
        size = -1
        while size != (size := (await backend.stat("beats"))["size"]):
            await asyncio.sleep(0.5)
    assert [job for job in await backend.jobs() if job["running"]] == []


# -- the container --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", ["python", "plain"])
async def test_the_container_is_killed_while_a_command_runs(make: Make, image: str) -> None:
    backend = make(image)
    task = await start_command(backend)
    kill(backend)
    if image == "python":
        await fails("unknown", task, "may have run")
    else:  # the engine saw how it ended
        async with asyncio.timeout(60):
            result = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(result, BackendError) or result["exit_code"] == 137
    await works(backend)
    assert await runs(backend) == 1


@pytest.mark.parametrize("image", IMAGES)
async def test_the_container_is_removed(make: Make, image: str) -> None:
    backend = make(image)
    await backend.write("a.txt", "a")
    engines.request_engine(engines.find_engine().path, "DELETE", f"/containers/wick-{backend.id}?force=true")
    await noticed(backend)
    await works(backend)
    await fails("not_found", backend.read("a.txt"))
    assert backend.uses_daemon == (image == "python")


@pytest.mark.parametrize("image", ["python", "plain"])
async def test_the_container_is_paused(make: Make, image: str) -> None:
    backend = make(image)
    task = await start_command(backend, timeout=8)  # it is paused before that
    kill(backend, "pause")
    try:
        async with asyncio.timeout(60):
            result = (await asyncio.gather(task, return_exceptions=True))[0]
        if image == "python":
            assert isinstance(result, BackendError) and result.code == "unknown"
        else:
            assert result["exit_code"] == 124
            assert "not everything that it started could be ended" in result["error"]
        await fails("not_running", backend.execute("true"), "docker unpause wick-")
        assert backend.status.state == "error"
    finally:
        kill(backend, "unpause")
    await works(backend)
    assert (backend.status.state, await runs(backend)) == ("launched", 1)


# -- the engine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", IMAGES)
async def test_the_engine_is_killed_and_restarted(make: Make, private: engines.PrivateEngine, image: str) -> None:
    backend = make(image, private)
    task = await start_command(backend)
    private.kill()
    try:
        await fails("unknown", task)
        await fails("unavailable", backend.execute("true"), "no engine answers.*start Docker")
        await fails("unavailable", backend.ls(), "no engine answers")
        assert backend.status.state == "error"
    finally:
        private.start()
    await works(backend)
    assert (backend.status.state, await runs(backend)) == ("launched", 1)


async def test_the_engine_is_restarted(make: Make, private: engines.PrivateEngine) -> None:
    backend = make(engine=private)
    await backend.write("a.txt", "a")
    private.restart()
    await noticed(backend)
    async with asyncio.timeout(60):
        assert (await backend.read("a.txt"))["content"] == "a"
    assert backend.uses_daemon


@pytest.mark.parametrize("image", IMAGES)
async def test_the_engine_hangs(make: Make, private: engines.PrivateEngine, image: str) -> None:
    backend = make(image, private)
    await backend.start()
    private.signal(signal.SIGSTOP)
    impatient(backend)
    try:
        await fails("unknown" if image == "python" else "unavailable", backend.execute("true", timeout=0.5))
        await fails("unavailable", backend.execute("true"), "did not answer within 2 s")
        await fails("unavailable", backend.ls(), "did not answer within 2 s")
    finally:
        private.signal(signal.SIGCONT)
        patient(backend)
    await works(backend)


async def test_a_hung_engine_can_be_cancelled(make: Make, private: engines.PrivateEngine) -> None:
    backend, other = make(engine=private), make("plain", private)
    await backend.start()
    private.signal(signal.SIGSTOP)
    impatient(backend, other)
    try:
        for doing in (backend.execute("sleep 9"), other.start(), other.ls(), other.restart()):
            task = asyncio.create_task(doing)
            await asyncio.sleep(0.2)
            task.cancel()
            async with asyncio.timeout(60):
                with pytest.raises(asyncio.CancelledError):
                    await task
    finally:
        private.signal(signal.SIGCONT)
        patient(backend, other)
    await works(backend)
    await works(other)


async def test_launching_can_be_cancelled_at_any_moment(make: Make) -> None:
    """Nothing half made is in the way afterwards."""
    backend = make(id=f"cancelled-{uuid4().hex[:8]}")
    for pause in (0.0, 0.01, 0.03, 0.1, 0.2, 0.3):
        task = asyncio.create_task(backend.start())
        await asyncio.sleep(pause)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await works(backend)
    assert len(engines.find_engine().containers(f"wick.id={backend.id}")) == 1


async def test_stopping_where_no_engine_answers(make: Make, private: engines.PrivateEngine) -> None:
    backend = make(engine=private)
    await backend.start()
    private.kill()
    try:
        await fails("unavailable", backend.stop(), "no engine answers")
        assert backend.status.state == "error"
    finally:
        private.start()
    await backend.stop()
    assert private.containers(f"wick.id={backend.id}") == []
