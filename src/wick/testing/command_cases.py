"""Test cases for the commands of a backend: output, exit codes, limits, jobs, a terminal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wick.protocols import Backend, Terminal
from wick.testing.workspace_cases import WorkspaceCases, WorkspaceFiles, assert_refused, needs


async def wait_for_end(backend: Backend, id: str) -> Any:
    """The job, once it has ended."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            (job,) = [job for job in await backend.jobs() if job["id"] == id]
            if not job["running"]:
                return job
            await asyncio.sleep(0.05)


async def read_until(terminal: Terminal, wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while wanted not in seen:
            data = await terminal.read()
            assert data, f"the terminal ended after {seen!r}"
            seen += data
    return seen


TIMEOUT_SECONDS = 60.0  # an event that did not happen by then does not happen


EXECUTED = {
    "stdout": str,
    "stderr": str,
    "exit_code": int,
    "error": str,
    "truncated": bool,
    "stdout_bytes": int,
    "stderr_bytes": int,
    "seconds": float,
    "moved": list,
}


COMMANDS = [  # a command, its output, and its exit code
    ("true", "", 0),
    ("false", "", 1),
    ("exit 7", "", 7),
    ("exit 255", "", 255),
    ("printf 'a b'", "a b", 0),
    ("echo a | tr a b", "b\n", 0),
    ("echo one\necho two", "one\ntwo\n", 0),
    ("for i in 1 2 3; do printf $i; done", "123", 0),
    ("X='a  b'; echo \"$X\"", "a  b\n", 0),
    ("echo 'ünï ✓'", "ünï ✓\n", 0),
    (r"printf '\377\n'", "\ufffd\n", 0),
    (r"printf 'a\000b'", "a\0b", 0),
    ("cat", "", 0),
    ("no-such-command-here 2>/dev/null", "", 127),
    ("false | true", "", 0),
    ("# only a comment", "", 0),
    ("echo $((6 * 7))", "42\n", 0),
    ("test -t 0 || echo no terminal", "no terminal\n", 0),
    ("exec sh -c 'echo replaced; exit 3'", "replaced\n", 3),
]


JOB = {"id": str, "command": str, "running": bool, "exit_code": int, "error": str, "started": float}


class CommandCases(WorkspaceCases):
    """Test cases for commands, jobs and a terminal."""

    @needs("execute")
    async def test_execute_returns_output_and_exit_code(self, backend: Backend) -> None:
        done = await backend.execute("echo out; echo err >&2")
        assert {key: type(value) for key, value in done.items()} == EXECUTED and [*done] == [*EXECUTED]
        assert done["seconds"] >= 0
        expected = {"stdout": "out\n", "stderr": "err\n", "exit_code": 0, "error": "", "truncated": False}
        assert done == expected | {"stdout_bytes": 4, "stderr_bytes": 4, "seconds": done["seconds"], "moved": []}

    @pytest.mark.parametrize(("command", "printed", "code"), COMMANDS)
    @needs("execute")
    async def test_commands(self, backend: Backend, command: str, printed: str, code: int) -> None:
        done = await backend.execute(command)
        assert (done["stdout"], done["exit_code"], done["error"]) == (printed, code, "")
        assert done["stderr"] == "" and not done["truncated"]

    @needs("execute")
    async def test_a_command_that_is_killed_by_a_signal(self, backend: Backend) -> None:
        done = await backend.execute("echo before; kill -9 $$")
        assert (done["stdout"], done["exit_code"]) == ("before\n", 137)
        done = await backend.execute("sh -c 'kill -9 $$'; echo $?")
        assert (done["stdout"], done["exit_code"]) == ("137\n", 0)

    @needs("execute")
    async def test_invalid_commands_are_refused(self, backend: Backend) -> None:
        for command in ("", "a\0b", "half a pair: \ud800"):
            await assert_refused("invalid", backend.execute(command))
            await assert_refused("invalid", backend.background(command))

    @needs("execute")
    async def test_a_very_long_command_runs(self, backend: Backend) -> None:
        done = await backend.execute("printf %s " + "x" * 100_000)
        assert done["stdout"] == "x" * 100_000

    @needs("execute")
    async def test_stdin(self, backend: Backend) -> None:
        done = await backend.execute("cat; echo end", stdin=b"a\nb\n")
        assert done["stdout"] == "a\nb\nend\n"

    @needs("execute")
    async def test_unread_stdin_does_not_block(self, backend: Backend) -> None:
        done = await backend.execute("echo done", stdin=b"x" * 1_000_000)
        assert (done["stdout"], done["exit_code"]) == ("done\n", 0)

    @needs("execute")
    async def test_the_environment(self, backend: Backend) -> None:
        values = {"GIVEN": "a 'quoted' value\nwith two lines", "SIGN": "✓"}
        done = await backend.execute("printf '%s|' \"$GIVEN\"; env", env=values)
        assert done["stdout"].startswith(values["GIVEN"] + "|") and "SIGN=✓\n" in done["stdout"]
        assert "PATH=/" in done["stdout"]

    @needs("execute")
    async def test_invalid_environments_are_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        for env in ({"": "x"}, {"A=B": "x"}, {"A": "x\0y"}, {"A\0": "x"}):
            await assert_refused("invalid", backend.execute("touch ran", env=env))
            assert await files.paths() == set(), env

    @needs("execute")
    async def test_output_is_streamed(self, backend: Backend) -> None:
        """The command waits for a file that is made only when its first words have come."""
        heard, came = list[tuple[str, bytes]](), asyncio.Event()

        def hear(stream: str, data: bytes) -> None:
            heard.append((stream, data))
            came.set()

        command = "echo one; while ! test -e go; do sleep 0.02; done; echo two; echo oops >&2"
        running = asyncio.create_task(backend.execute(command, on_output=hear))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await came.wait()
        assert not running.done() and heard == [("stdout", b"one\n")]
        await backend.write("go", "")
        done = await running
        assert b"".join(data for stream, data in heard if stream == "stdout") == b"one\ntwo\n"
        assert b"".join(data for stream, data in heard if stream == "stderr") == b"oops\n"
        assert (done["stdout"], done["stderr"]) == ("one\ntwo\n", "oops\n")

    @needs("execute")
    async def test_all_output_is_streamed_in_order(self, backend: Backend) -> None:
        heard = bytearray()
        done = await backend.execute("seq 1 200000", on_output=lambda stream, data: heard.extend(data))
        assert heard.decode() == "".join(f"{number}\n" for number in range(1, 200_001))
        assert done["stdout_bytes"] == len(heard) and done["truncated"]

    @needs("execute")
    async def test_an_exit_code_like_a_timeout_is_returned(self, backend: Backend) -> None:
        done = await backend.execute("sleep 0.1; exit 124", timeout=TIMEOUT_SECONDS)
        assert (done["exit_code"], done["error"]) == (124, "")

    @needs("execute")
    async def test_invalid_time_limits_are_refused(self, backend: Backend, files: WorkspaceFiles) -> None:
        for timeout in (0, -1, float("nan"), float("inf")):
            await assert_refused("invalid", backend.execute("touch ran", timeout=timeout))
            assert await files.paths() == set(), timeout

    @needs("execute")
    async def test_commands_and_files_see_each_other(self, backend: Backend, files: WorkspaceFiles) -> None:
        await backend.write("a.txt", "one\n")
        done = await backend.execute("cat a.txt; echo two >> a.txt; mkdir -p new/deep; echo x > new/deep/b.txt")
        assert (done["stdout"], done["exit_code"]) == ("one\n", 0)
        assert (await backend.read("a.txt"))["content"] == "one\ntwo\n"
        await backend.edit("new/deep/b.txt", "x", "y")
        assert (await backend.execute("cat new/deep/b.txt; rm -r new a.txt"))["stdout"] == "y\n"
        assert await files.paths() == set()

    @needs("execute")
    async def test_a_hanging_command_blocks_only_itself(self, backend: Backend) -> None:
        hanging = asyncio.create_task(backend.execute("sleep 60"))
        done = await asyncio.gather(*(backend.execute(f"echo {number}") for number in range(10)))
        assert [each["stdout"] for each in done] == [f"{number}\n" for number in range(10)]
        assert (await backend.write("a.txt", "a"))["bytes_written"] == 1
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging

    @needs("background")
    async def test_a_job_runs_in_the_background(self, backend: Backend) -> None:
        job = await backend.background("echo one; while ! test -e go; do sleep 0.02; done; echo two >&2; exit 3")
        assert {key: type(value) for key, value in job.items()} == JOB and [*job] == [*JOB]
        assert job["running"] and job["exit_code"] == -1 and job["error"] == "" and "go" in job["command"]
        assert job["id"] in [each["id"] for each in await backend.jobs()]

        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (first := await backend.job_output(job["id"]))["output"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [*first] == ["id", "output", "offset", "next_offset", "running", "exit_code"]
        assert (first["output"], first["offset"], first["next_offset"], first["running"]) == ("one\n", 0, 4, True)

        await backend.write("go", "")
        end = await wait_for_end(backend, job["id"])
        assert (end["running"], end["exit_code"]) == (False, 3)
        rest = await backend.job_output(job["id"], offset=first["next_offset"])
        assert (rest["output"], rest["offset"], rest["next_offset"]) == ("two\n", 4, 8)
        assert (rest["running"], rest["exit_code"]) == (False, 3)
        assert (await backend.job_output(job["id"]))["output"] == "one\ntwo\n"

    @needs("background")
    async def test_the_working_directory_of_a_job(self, backend: Backend, files: WorkspaceFiles) -> None:
        await files.put("sub/a.txt", "here")
        job = await backend.background("cat a.txt", workdir="sub")
        await wait_for_end(backend, job["id"])
        assert (await backend.job_output(job["id"]))["output"] == "here"

    @needs("terminal")
    async def test_a_terminal_runs_commands(self, backend: Backend) -> None:
        terminal = await backend.terminal(rows=30, columns=100)
        await terminal.write(b"test -t 0 && test -t 1 && echo is-a-$((1 + 1))-terminal\n")
        await read_until(terminal, b"is-a-2-terminal")
        await terminal.write(b"stty size; pwd; echo done-$((1 + 1))\n")
        seen = await read_until(terminal, b"done-2")
        assert b"30 100" in seen and backend.workdir.encode() in seen
        await terminal.resize(40, 120)
        await terminal.write(b"stty size; echo again-$((1 + 1))\n")
        assert b"40 120" in await read_until(terminal, b"again-2")
        await terminal.write(b"exit\n")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await terminal.read():
                pass
        assert await terminal.read() == b""
        await terminal.close()
