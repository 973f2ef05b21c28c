"""Conformance cases for backends that run commands: output, exit codes, limits, cancelling, jobs, a terminal."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from conformance.backends import (
    SECRET,
    HostFolder,
    assert_refused,
    needs,
    on_every_host,
    rows_on_host_in_turn,
    still,
)
from wick import constants
from wick.protocols import Backend, Terminal

# Killing and separating processes differs with the sandbox: those cases are marked `on_every_host`.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.kinds("local-bubblewrap", "docker-daemon", "docker-exec"),
]

SOON = 60.0  # seconds: an event that did not happen by then does not happen

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


async def until(true: Any) -> None:
    """Wait for something to be so."""
    async with asyncio.timeout(SOON):
        while not true():
            await asyncio.sleep(0.02)


BEATS = "while :; do echo beat >> beat; sleep 0.05; done"


# -- how a command ends ---------------------------------------------------------------------------------------------


async def test_a_command(place: HostFolder) -> None:
    done = await place.backend.execute("echo out; echo err >&2")
    assert {key: type(value) for key, value in done.items()} == EXECUTED and [*done] == [*EXECUTED]
    assert done["seconds"] >= 0
    expected = {"stdout": "out\n", "stderr": "err\n", "exit_code": 0, "error": "", "truncated": False}
    assert done == expected | {"stdout_bytes": 4, "stderr_bytes": 4, "seconds": done["seconds"], "moved": []}


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


@rows_on_host_in_turn
@pytest.mark.parametrize(("command", "printed", "code"), COMMANDS)
async def test_commands(place: HostFolder, command: str, printed: str, code: int) -> None:
    done = await place.backend.execute(command)
    assert (done["stdout"], done["exit_code"], done["error"]) == (printed, code, "")
    assert done["stderr"] == "" and not done["truncated"]


async def test_a_command_that_is_killed_by_a_signal(place: HostFolder) -> None:
    done = await place.backend.execute("echo before; kill -9 $$")
    assert (done["stdout"], done["exit_code"]) == ("before\n", 137)
    done = await place.backend.execute("sh -c 'kill -9 $$'; echo $?")
    assert (done["stdout"], done["exit_code"]) == ("137\n", 0)


async def test_invalid_commands_are_refused(place: HostFolder) -> None:
    for command in ("", "a\0b", "half a pair: \ud800"):
        await assert_refused("invalid", place.backend.execute(command))
        await assert_refused("invalid", place.backend.background(command))


async def test_a_command_that_is_very_long(place: HostFolder) -> None:
    done = await place.backend.execute("printf %s " + "x" * 100_000)
    assert done["stdout"] == "x" * 100_000


# -- input ----------------------------------------------------------------------------------------------------------


async def test_stdin(place: HostFolder) -> None:
    done = await place.backend.execute("cat; echo end", stdin=b"a\nb\n")
    assert done["stdout"] == "a\nb\nend\n"


async def test_much_stdin(place: HostFolder) -> None:
    data = bytes(range(256)) * 4_000
    done = await place.backend.execute("cat > copy; wc -c < copy", stdin=data)
    assert done["stdout"].strip() == "1024000" and place.get("copy") == data


async def test_unread_stdin(place: HostFolder) -> None:
    done = await place.backend.execute("echo done", stdin=b"x" * 1_000_000)
    assert (done["stdout"], done["exit_code"]) == ("done\n", 0)


async def test_the_working_directory(place: HostFolder) -> None:
    place.put("sub/a.txt", "here")
    backend = place.backend
    assert (await backend.execute("pwd"))["stdout"] == f"{backend.workdir}\n"
    for workdir in ("sub", "./sub", f"{backend.workdir}/sub"):
        assert (await backend.execute("cat a.txt", workdir=workdir))["stdout"] == "here"


async def test_a_working_directory_that_cannot_be(place: HostFolder) -> None:
    place.put("a.txt")
    place.link("out", "/etc")
    for code, workdir in {"not_found": "nowhere", "not_directory": "a.txt", "invalid": "a\0b"}.items():
        await assert_refused(code, place.backend.execute("touch ran", workdir=workdir))
    for workdir in ("..", "/", "/etc", "out"):
        await assert_refused("escapes", place.backend.execute("touch ran", workdir=workdir))
    assert place.paths() == {"a.txt", "out"}


async def test_the_environment(place: HostFolder) -> None:
    values = {"GIVEN": "a 'quoted' value\nwith two lines", "SIGN": "✓"}
    done = await place.backend.execute("printf '%s|' \"$GIVEN\"; env", env=values)
    assert done["stdout"].startswith(values["GIVEN"] + "|") and "SIGN=✓\n" in done["stdout"]
    assert "PATH=/" in done["stdout"]


@on_every_host
async def test_the_environment_of_wick_is_not_the_commands(place: HostFolder) -> None:
    done = await place.backend.execute("env; cat /proc/self/environ | tr '\\000' '\\n'")
    assert "PATH=" in done["stdout"] and SECRET not in done["stdout"] + done["stderr"]


async def test_an_environment_that_cannot_be(place: HostFolder) -> None:
    for env in ({"": "x"}, {"A=B": "x"}, {"A": "x\0y"}, {"A\0": "x"}):
        await assert_refused("invalid", place.backend.execute("touch ran", env=env))
        assert place.paths() == set(), env


# -- output ---------------------------------------------------------------------------------------------------------


async def test_output_is_streamed(place: HostFolder) -> None:
    """The command waits for a file that is made only when its first words have come."""
    heard, came = list[tuple[str, bytes]](), asyncio.Event()

    def hear(stream: str, data: bytes) -> None:
        heard.append((stream, data))
        came.set()

    command = "echo one; while ! test -e go; do sleep 0.02; done; echo two; echo oops >&2"
    running = asyncio.create_task(place.backend.execute(command, on_output=hear))
    async with asyncio.timeout(SOON):
        await came.wait()
    assert not running.done() and heard == [("stdout", b"one\n")]
    await place.backend.write("go", "")
    done = await running
    assert b"".join(data for stream, data in heard if stream == "stdout") == b"one\ntwo\n"
    assert b"".join(data for stream, data in heard if stream == "stderr") == b"oops\n"
    assert (done["stdout"], done["stderr"]) == ("one\ntwo\n", "oops\n")


async def test_all_output_is_streamed_in_order(place: HostFolder) -> None:
    heard = bytearray()
    done = await place.backend.execute("seq 1 200000", on_output=lambda stream, data: heard.extend(data))
    assert heard.decode() == "".join(f"{number}\n" for number in range(1, 200_001))
    assert done["stdout_bytes"] == len(heard) and done["truncated"]


async def test_large_output_keeps_head_and_tail(place: HostFolder) -> None:
    done = await place.backend.execute("echo first; yes 0123456789 | head -c 30000000; echo last; echo err >&2")
    assert done["truncated"] and done["stdout_bytes"] == 30_000_011
    assert done["stdout"].startswith("first\n0123456789\n") and done["stdout"].endswith("last\n")
    assert len(done["stdout"]) < constants.OUTPUT_HEAD_BYTES + constants.OUTPUT_TAIL_BYTES + 1_000
    left_out = done["stdout_bytes"] - constants.OUTPUT_HEAD_BYTES - constants.OUTPUT_TAIL_BYTES
    assert str(left_out) in done["stdout"].replace(",", "")
    assert (done["stderr"], done["stderr_bytes"], done["exit_code"]) == ("err\n", 4, 0)


async def test_output_that_just_fits_is_whole(place: HostFolder) -> None:
    size = constants.OUTPUT_HEAD_BYTES + constants.OUTPUT_TAIL_BYTES
    done = await place.backend.execute(f"yes | head -c {size}")
    assert not done["truncated"] and done["stdout"] == "y\n" * (size // 2)


# -- when it ends ---------------------------------------------------------------------------------------------------


async def test_the_time_limit(place: HostFolder) -> None:
    start = time.monotonic()
    done = await place.backend.execute(f"echo so far; {BEATS}", timeout=4.5)
    assert time.monotonic() - start < SOON
    assert (done["exit_code"], done["stdout"]) == (124, "so far\n")
    assert done["error"].startswith("the command was stopped after 4.5 s, its time limit")
    await still(place)


@on_every_host
async def test_a_command_that_does_not_want_to_end(place: HostFolder) -> None:
    done = await place.backend.execute(f"trap '' TERM INT HUP; {BEATS}", timeout=0.3)
    assert done["exit_code"] == 124
    await still(place)


async def test_a_command_that_ends_in_time(place: HostFolder) -> None:
    done = await place.backend.execute("sleep 0.1; exit 124", timeout=SOON)
    assert (done["exit_code"], done["error"]) == (124, "")


async def test_a_time_limit_that_makes_no_sense(place: HostFolder) -> None:
    for timeout in (0, -1, float("nan"), float("inf")):
        await assert_refused("invalid", place.backend.execute("touch ran", timeout=timeout))
        assert place.paths() == set(), timeout


@on_every_host
async def test_cancelling_ends_the_command(place: HostFolder) -> None:
    running = asyncio.create_task(place.backend.execute(f"({BEATS}) & {BEATS}"))
    await until(lambda: "beat" in place.paths())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await still(place)
    assert (await place.backend.execute("echo well"))["stdout"] == "well\n"


@on_every_host
async def test_a_child_in_the_background_ends_with_the_command(place: HostFolder) -> None:
    done = await asyncio.wait_for(place.backend.execute(f"({BEATS}) & echo done"), SOON)
    assert (done["stdout"], done["exit_code"]) == ("done\n", 0)
    await still(place)


@on_every_host
async def test_a_detached_child_ends_with_the_command(place: HostFolder) -> None:
    command = f"setsid sh -c '{BEATS}' >/dev/null 2>&1 </dev/null & sleep 0.2; echo done"
    done = await asyncio.wait_for(place.backend.execute(command), SOON)
    assert done["stdout"] == "done\n"
    await still(place)


# -- commands and files ---------------------------------------------------------------------------------------------


async def test_commands_and_files_see_each_other(place: HostFolder) -> None:
    backend = place.backend
    await backend.write("a.txt", "one\n")
    done = await backend.execute("cat a.txt; echo two >> a.txt; mkdir -p new/deep; echo x > new/deep/b.txt")
    assert (done["stdout"], done["exit_code"]) == ("one\n", 0)
    assert (await backend.read("a.txt"))["content"] == "one\ntwo\n"
    await backend.edit("new/deep/b.txt", "x", "y")
    assert (await backend.execute("cat new/deep/b.txt; rm -r new a.txt"))["stdout"] == "y\n"
    assert place.paths() == set()


async def test_commands_leave_nothing_else_in_the_workspace(place: HostFolder) -> None:
    place.put("a.txt", "a")
    await place.backend.execute("true")
    await place.backend.execute("sleep 5", timeout=0.2)
    assert place.paths() == {"a.txt"} and [path.name for path in place.root.iterdir()] == ["a.txt"]


MOVES = {  # the part that is moved aside where commands share the host with trusted files
    "local-bubblewrap": [".env", ".git/hooks", ".wick"],
    "local-landlock": [".env", ".git/hooks", ".wick"],
    "local-unsandboxed": [".env", ".git/hooks", ".wick"],
    "docker-daemon": [".env", ".git/hooks", ".wick"],
    "docker-exec": [".env", ".git/hooks", ".wick"],
    "docker-tcp-engine": [".env", ".git/hooks", ".wick"],
}


@on_every_host
async def test_protected_files_created_by_a_command(place: HostFolder) -> None:
    """It is moved aside and named, or else the file tools still do not touch it."""
    command = "mkdir -p .git/hooks .wick; echo a=1 > .env; echo x > .git/hooks/pre-commit; echo y > ok.txt"
    done = await place.backend.execute(command)
    assert (done["exit_code"], sorted(done["moved"])) == (0, MOVES[place.kind])
    there = {path for path in (".env", ".git/hooks", ".wick") if (place.root / path).exists()}
    assert there == {".env", ".git/hooks", ".wick"} - {*done["moved"]} and place.get("ok.txt") == b"y\n"
    await assert_refused("protected", place.backend.write(".env", "b=2"))
    assert (await place.backend.execute("true"))["moved"] == []


# -- many at a time -------------------------------------------------------------------------------------------------


async def test_twenty_commands_at_a_time(place: HostFolder) -> None:
    """Each waits until all have started, and outputs are not mixed."""
    command = "echo $0 > $0.began; while test $(ls *.began | wc -l) -lt 20; do sleep 0.05; done; cat; echo $0"

    async def run(number: int) -> str:
        told = f"sh -c '{command}' n{number}"
        return (await place.backend.execute(told, stdin=f"in{number}\n".encode(), timeout=60))["stdout"]

    assert await asyncio.gather(*map(run, range(20))) == [f"in{number}\nn{number}\n" for number in range(20)]


async def test_a_hanging_command_blocks_only_itself(place: HostFolder) -> None:
    hanging = asyncio.create_task(place.backend.execute("sleep 60"))
    done = await asyncio.gather(*(place.backend.execute(f"echo {number}") for number in range(10)))
    assert [each["stdout"] for each in done] == [f"{number}\n" for number in range(10)]
    assert (await place.backend.write("a.txt", "a"))["bytes_written"] == 1
    assert not hanging.done()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


# -- jobs -----------------------------------------------------------------------------------------------------------

JOB = {"id": str, "command": str, "running": bool, "exit_code": int, "error": str, "started": float}


async def wait_for_end(backend: Backend, id: str) -> Any:
    """The job, once it has ended."""
    async with asyncio.timeout(SOON):
        while True:
            (job,) = [job for job in await backend.jobs() if job["id"] == id]
            if not job["running"]:
                return job
            await asyncio.sleep(0.05)


@needs("background")
async def test_a_job(place: HostFolder) -> None:
    backend = place.backend
    job = await backend.background("echo one; while ! test -e go; do sleep 0.02; done; echo two >&2; exit 3")
    assert {key: type(value) for key, value in job.items()} == JOB and [*job] == [*JOB]
    assert job["running"] and job["exit_code"] == -1 and job["error"] == "" and "go" in job["command"]
    assert job["id"] in [each["id"] for each in await backend.jobs()]

    async with asyncio.timeout(SOON):
        while not (first := await backend.job_output(job["id"]))["output"]:
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


@on_every_host
@needs("background")
async def test_a_job_is_ended(place: HostFolder) -> None:
    job = await place.backend.background(f"({BEATS}) & {BEATS}")
    await until(lambda: "beat" in place.paths())
    end = await place.backend.end_job(job["id"])
    assert end["id"] == job["id"] and not end["running"] and end["exit_code"] != 0
    await still(place)
    again = await place.backend.end_job(job["id"])  # it has ended, as requested
    assert not again["running"]


@needs("background")
async def test_jobs_do_not_end_with_a_command(place: HostFolder) -> None:
    job = await place.backend.background(BEATS)
    await until(lambda: "beat" in place.paths())
    await place.backend.execute("true")
    size = len(place.get("beat"))
    await until(lambda: len(place.get("beat")) > size)
    await place.backend.end_job(job["id"])


@needs("background")
async def test_much_output_of_a_job(place: HostFolder) -> None:
    job = await place.backend.background("yes 0123456789 | head -c 20000000; echo last")
    await wait_for_end(place.backend, job["id"])
    output, offset = "", 0
    while True:
        found = await place.backend.job_output(job["id"], offset=offset)
        if found["next_offset"] == found["offset"]:
            break
        assert found["offset"] >= offset and found["next_offset"] > found["offset"]
        output, offset = output + found["output"], found["next_offset"]
    assert offset == 20_000_005 and output.endswith("last\n")


async def test_jobs_that_are_not_there(place: HostFolder) -> None:
    await assert_refused("not_found", place.backend.job_output("nothing"))
    await assert_refused("not_found", place.backend.end_job("nothing"))
    await assert_refused("not_found", place.backend.background("touch ran", workdir="nowhere"))
    await assert_refused("escapes", place.backend.background("touch ran", workdir=".."))


@needs("background")
async def test_the_working_directory_of_a_job(place: HostFolder) -> None:
    place.put("sub/a.txt", "here")
    job = await place.backend.background("cat a.txt", workdir="sub")
    await wait_for_end(place.backend, job["id"])
    assert (await place.backend.job_output(job["id"]))["output"] == "here"


# -- a terminal -----------------------------------------------------------------------------------------------------


async def read_until(terminal: Terminal, wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(SOON):
        while wanted not in seen:
            data = await terminal.read()
            assert data, f"the terminal ended after {seen!r}"
            seen += data
    return seen


@needs("terminal")
async def test_a_terminal(place: HostFolder) -> None:
    terminal = await place.backend.terminal(rows=30, columns=100)
    await terminal.write(b"test -t 0 && test -t 1 && echo is-a-$((1 + 1))-terminal\n")
    await read_until(terminal, b"is-a-2-terminal")
    await terminal.write(b"stty size; pwd; echo done-$((1 + 1))\n")
    seen = await read_until(terminal, b"done-2")
    assert b"30 100" in seen and place.backend.workdir.encode() in seen
    await terminal.resize(40, 120)
    await terminal.write(b"stty size; echo again-$((1 + 1))\n")
    assert b"40 120" in await read_until(terminal, b"again-2")
    await terminal.write(b"exit\n")
    async with asyncio.timeout(SOON):
        while await terminal.read():
            pass
    assert await terminal.read() == b""
    await terminal.close()


@needs("terminal")
async def test_a_terminal_interrupts(place: HostFolder) -> None:
    terminal = await place.backend.terminal()
    await terminal.write(b"echo ready-$((1 + 1)); sleep 60; echo status-$?\n")
    await read_until(terminal, b"ready-2")
    await asyncio.sleep(0.2)
    await terminal.write(b"\x03")
    await terminal.write(b"\necho well-$((1 + 1))\n")
    await read_until(terminal, b"well-2")
    await terminal.close()


@on_every_host
@needs("terminal")
async def test_closing_a_terminal_kills_its_processes(place: HostFolder) -> None:
    terminal = await place.backend.terminal()
    await terminal.write(f"{BEATS}\n".encode())
    await until(lambda: "beat" in place.paths())
    await terminal.close()
    await terminal.close()
    await still(place)
    async with asyncio.timeout(SOON):
        while await terminal.read():
            pass


@on_every_host
@needs("terminal")
async def test_the_environment_of_wick_is_not_the_terminals(place: HostFolder) -> None:
    terminal = await place.backend.terminal()
    await terminal.write(b"env; echo done-$((1 + 1))\n")
    seen = await read_until(terminal, b"done-2")
    assert b"PATH=" in seen and SECRET.encode() not in seen
    await terminal.close()
