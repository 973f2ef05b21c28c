"""A program with pipes: lines in both directions, and no process or waiter is left."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from wick import constants
from wick.backends.daemon_client import get_host_daemon
from wick.errors import BackendError
from wick.hook_programs.pipe import Pipe

ECHO = 'while read -r line; do echo "$line"; done'


class Opened:
    """A pipe, its output lines, and its end."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.problem: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.pipe: Pipe

    async def line(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.lines.get()

    async def wait_for_problem(self) -> str:
        async with asyncio.timeout(20):
            return await self.problem


Open = Callable[..., Awaitable[Opened]]


@pytest.fixture
async def sh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens a pipe to a shell script; its folder for temporary files is empty afterwards."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    there: list[Opened] = []

    async def open(script: str, *argv: str) -> Opened:
        opened = Opened()
        opened.pipe = await Pipe.open(
            argv or ["/bin/sh", "-c", script],
            take=opened.lines.put_nowait,
            lost=lambda pipe, problem: opened.problem.set_result(problem),
            workdir=str(tmp_path),
            env={"PATH": os.environ["PATH"]},
        )
        there.append(opened)
        return opened

    yield open
    for opened in there:
        await opened.pipe.close()
        assert opened.problem.done()
    assert os.listdir(tmp_path / "tmp") == []


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_lines_are_exchanged_in_both_directions(sh: Open) -> None:
    opened = await sh(ECHO)
    for word in (b"one", b"two", "drei ü".encode()):
        opened.pipe.send(word)
        assert await opened.line() == word


async def test_a_line_may_be_longer_than_a_pipe_is(sh: Open) -> None:
    opened = await sh("", "/bin/cat")
    opened.pipe.send(b"x" * 900_000)
    assert await opened.line() == b"x" * 900_000


async def test_its_folder_is_removed_at_start(sh: Open, tmp_path: Path) -> None:
    opened = await sh(ECHO)
    assert os.listdir(tmp_path / "tmp") == []
    opened.pipe.send(b"still there")
    assert await opened.line() == b"still there"


async def test_the_end_of_a_program_has_its_exit_code_and_last_output(sh: Open) -> None:
    opened = await sh("echo oh no >&2; exit 3")
    assert await opened.wait_for_problem() == "ended with exit code 3: oh no"
    assert not opened.pipe.is_alive


async def test_output_before_exit_is_read(sh: Open) -> None:
    opened = await sh("read -r line; echo last; exit 0")
    opened.pipe.send(b"go")
    assert await opened.line() == b"last"
    assert await opened.wait_for_problem() == "ended with exit code 0"


async def test_a_signal_is_named(sh: Open) -> None:
    assert "SIGSEGV" in await (await sh("kill -SEGV $$")).wait_for_problem()


async def test_child_processes_end_with_the_program(sh: Open) -> None:
    opened = await sh(f"sleep 1000 & echo $!; {ECHO}")
    child = int(await opened.line())
    assert runs(child)
    await opened.pipe.close()
    assert not runs(child)
    assert await opened.wait_for_problem() == "was stopped"


async def test_one_that_forks_and_exits_has_ended_though_its_child_holds_the_pipes(sh: Open) -> None:
    opened = await sh("sleep 1000 & echo $!; exit 0")
    child = int(await opened.line())
    assert await opened.wait_for_problem() == "ended with exit code 0"
    assert not runs(child)


async def test_an_overlong_line_ends_the_program(sh: Open) -> None:
    opened = await sh("head -c 3000000 /dev/zero | tr '\\0' x; sleep 1000")
    assert await opened.wait_for_problem() == "printed a line of more than 1 MB"


async def test_one_that_prints_without_end_is_ended(sh: Open) -> None:
    opened = await sh("cat /dev/zero")
    assert await opened.wait_for_problem() == "printed a line of more than 1 MB"


async def test_unread_output_is_buffered_up_to_a_limit(sh: Open) -> None:
    opened = await sh("exec sleep 1000")
    with pytest.raises(BackendError, match="has 8 MB waiting that it does not read"):
        for _ in range(constants.WARM_QUEUE_BYTES // 100_000 + 10):
            opened.pipe.send(b"x" * 100_000)
    assert opened.pipe.is_alive


async def test_one_that_closes_its_input_is_ended(sh: Open) -> None:
    opened = await sh("exec <&-; exec sleep 1000")
    assert await opened.wait_for_problem() == "closed its input"


async def test_one_that_closes_its_output_is_ended(sh: Open) -> None:
    opened = await sh("exec >&-; exec sleep 1000")
    assert await opened.wait_for_problem() == "closed its output"


async def test_a_program_that_is_not_there(sh: Open) -> None:
    opened = await sh("", "/nowhere/program", "serve")
    assert (await opened.wait_for_problem()).startswith("ended with exit code 127: ")


async def test_the_program_ends_with_its_parent(sh: Open) -> None:
    opened = await sh(f"echo $$; {ECHO}")
    program = int(await opened.line())
    os.kill((await (await get_host_daemon()).ping())["pid"], signal.SIGKILL)
    assert await opened.wait_for_problem() == "ended with the process that ran it"
    async with asyncio.timeout(20):
        while runs(program):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("turns", [1, 2, 4, 8, 16])
async def test_cancelling_its_start_leaves_nothing(sh: Open, tmp_path: Path, turns: int) -> None:
    await get_host_daemon()
    starting = asyncio.ensure_future(sh(f"echo $$ >pid; {ECHO}"))
    for _ in range(turns):
        await asyncio.sleep(0)
    if starting.done():  # it was faster
        await starting.result().pipe.close()
    else:
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
    async with asyncio.timeout(20):
        while any(job["running"] for job in await (await get_host_daemon()).jobs()):
            await asyncio.sleep(0.02)
    assert os.listdir(tmp_path / "tmp") == []
