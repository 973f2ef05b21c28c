"""Conformance cases for backends that run commands: output, exit codes, limits, cancelling, jobs, a terminal."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from conformance.backends import (
    SECRET,
    HostFolder,
    OnPlaces,
    assert_refused,
    in_module_loop,
    needs,
    on_every_host,
    refusal,
    still,
)
from wick import constants
from wick.testing.command_cases import TIMEOUT_SECONDS, CommandCases, read_until, wait_for_end

# Killing and separating processes differs with the sandbox: those cases are marked `on_every_host`.
pytestmark = [in_module_loop, pytest.mark.kinds("local-bubblewrap", "docker-daemon", "docker-exec")]


class TestCommands(OnPlaces, CommandCases):
    pytestmark = in_module_loop


async def until(true: Any) -> None:
    """Wait for something to be so."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not true():
            await asyncio.sleep(0.02)


BEATS = "while :; do echo beat >> beat; sleep 0.05; done"


# -- input ----------------------------------------------------------------------------------------------------------


async def test_much_stdin(place: HostFolder) -> None:
    data = bytes(range(256)) * 4_000
    done = await place.backend.execute("cat > copy; wc -c < copy", stdin=data)
    assert done["stdout"].strip() == "1024000" and place.get("copy") == data


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
    for workdir in ("..", "/", "/etc"):
        await assert_refused("escapes", place.backend.execute("touch ran", workdir=workdir))
    await assert_refused(refusal(place, "links", "escapes"), place.backend.execute("touch ran", workdir="out"))
    assert place.paths() == {"a.txt", "out"}


@on_every_host
async def test_the_environment_of_wick_is_not_the_commands(place: HostFolder) -> None:
    done = await place.backend.execute("env; cat /proc/self/environ | tr '\\000' '\\n'")
    assert "PATH=" in done["stdout"] and SECRET not in done["stdout"] + done["stderr"]


# -- output ---------------------------------------------------------------------------------------------------------


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
    assert time.monotonic() - start < TIMEOUT_SECONDS
    assert (done["exit_code"], done["stdout"]) == (124, "so far\n")
    assert done["error"].startswith("the command was stopped after 4.5 s, its time limit")
    await still(place)


@on_every_host
async def test_a_command_that_does_not_want_to_end(place: HostFolder) -> None:
    done = await place.backend.execute(f"trap '' TERM INT HUP; {BEATS}", timeout=0.3)
    assert done["exit_code"] == 124
    await still(place)


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
    done = await asyncio.wait_for(place.backend.execute(f"({BEATS}) & echo done"), TIMEOUT_SECONDS)
    assert (done["stdout"], done["exit_code"]) == ("done\n", 0)
    await still(place)


@on_every_host
async def test_a_detached_child_ends_with_the_command(place: HostFolder) -> None:
    command = f"setsid sh -c '{BEATS}' >/dev/null 2>&1 </dev/null & sleep 0.2; echo done"
    done = await asyncio.wait_for(place.backend.execute(command), TIMEOUT_SECONDS)
    assert done["stdout"] == "done\n"
    await still(place)


# -- commands and files ---------------------------------------------------------------------------------------------


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


# -- jobs -----------------------------------------------------------------------------------------------------------


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


# -- a terminal -----------------------------------------------------------------------------------------------------


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
    async with asyncio.timeout(TIMEOUT_SECONDS):
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
