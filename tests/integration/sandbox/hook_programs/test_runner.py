"""One call of a program: its input, its captured output, and no leftover process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from local_sandbox import needs_bubblewrap
from programs import Programs
from wick import constants
from wick.errors import ConfigError
from wick.hook_programs.runner import ProgramResult, Runner, run_blocking
from wickd_process import MARK, becomes_true, marked_processes


@pytest.fixture
def runner(programs: Programs) -> Runner:
    return Runner(cwd=programs.folder, timeout=20, env={MARK: programs.mark})


async def test_a_program_gets_input_and_its_output_is_read(runner: Runner) -> None:
    ran = await runner.run(["/bin/sh", "-c", "tr a-z A-Z; echo aside >&2; exit 3"], stdin=b"hello")
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.problem, ran.unread) == (3, b"HELLO", "aside\n", "", False)
    assert ran.milliseconds > 0


async def test_bytes_are_passed_unchanged(runner: Runner) -> None:
    assert (await runner.run(shell="printf '\\000\\377\\n'")).stdout == b"\0\xff\n"


async def test_a_program_runs_in_its_folder_or_in_another(runner: Runner, programs: Programs) -> None:
    assert (await runner.run(shell="pwd")).stdout.decode().strip() == runner.cwd
    assert (await runner.run(shell="pwd", cwd="/")).stdout == b"/\n"


async def test_a_program_sees_no_secret(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "sesame")
    seen = (await runner.run(shell="env", env={"MORE": "yes"})).stdout.decode()
    assert "sesame" not in seen and "MORE=yes" in seen and f"{MARK}=" in seen and "PATH=" in seen


async def test_the_whole_tree_ends_at_the_time_limit(runner: Runner, programs: Programs) -> None:
    ran = await runner.run(shell="(setsid sleep 600 &) ; sleep 600 & sleep 600", timeout=0.5)
    assert ran.problem == "did not answer within 0.5 s" and ran.exit_code == 124
    assert becomes_true(lambda: not marked_processes(programs.mark))


async def test_the_exit_code_of_a_timeout_is_not_taken_for_one(runner: Runner) -> None:
    ran = await runner.run(shell="exit 124")
    assert (ran.exit_code, ran.problem) == (124, "")


@pytest.mark.parametrize("stream", ["", " >&2"])
async def test_output_has_a_cap(runner: Runner, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HOOK_OUTPUT_BYTES", 1_000)
    within = await runner.run(shell=f"head -c 1000 /dev/zero{stream}")
    assert within.problem == "" and len(within.stdout or within.stderr) == 1_000
    beyond = await runner.run(shell=f"yes{stream}")
    assert beyond.problem == "printed more than 0.001 MB"


async def test_a_start_failure_is_reported(runner: Runner, programs: Programs) -> None:
    assert (await runner.run(["/no/such", "run"])).problem.startswith("could not be started: there is no program")
    plain = programs.folder / "plain"
    plain.write_text("no program")
    assert (await runner.run([str(plain)])).problem.startswith("could not be started: ")
    gone = await runner.run(shell="pwd", cwd=programs.folder / "gone")
    assert "gone" in gone.problem


async def test_a_killing_signal_is_reported(runner: Runner) -> None:
    assert (await runner.run(shell="kill -9 $$")).problem == "was ended by SIGKILL"
    assert (await runner.run(shell="kill -SEGV $$")).problem == "was ended by SIGSEGV"


async def test_leftover_children_with_open_output_are_reported(runner: Runner) -> None:
    ran = await runner.run(shell="(sleep 600; echo late) & echo early")
    assert ran.problem == "ended, and something that it started still had its output open"


async def test_leftover_children_without_output_are_allowed(runner: Runner, programs: Programs) -> None:
    ran = await runner.run(shell="sleep 600 >/dev/null 2>&1 & echo early")
    assert (ran.stdout, ran.problem) == (b"early\n", "")
    assert becomes_true(lambda: not marked_processes(programs.mark))


@pytest.mark.parametrize("size", [10, 500_000])
async def test_unread_input_is_reported(runner: Runner, size: int) -> None:
    """For any size of input; a program that closes its input blocks nothing."""
    ran = await runner.run(shell="exec <&-; echo done", stdin=b"x" * size)
    assert (ran.stdout, ran.problem, ran.unread) == (b"done\n", "", True)
    ran = await runner.run(shell="wc -c", stdin=b"x" * size)
    assert (int(ran.stdout), ran.unread) == (size, False)


async def test_a_cancelled_call_ends_its_program(runner: Runner, programs: Programs) -> None:
    task = asyncio.create_task(runner.run(shell="sleep 600"))
    await asyncio.to_thread(becomes_true, lambda: marked_processes(programs.mark))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert becomes_true(lambda: not marked_processes(programs.mark))


async def test_many_run_side_by_side(runner: Runner) -> None:
    ran = await asyncio.gather(*(runner.run(shell=f"sleep 0.0{number % 5}; echo {number}") for number in range(24)))
    assert [int(one.stdout) for one in ran] == [*range(24)]


def test_outside_of_a_loop_it_blocks(runner: Runner) -> None:
    assert runner.run_blocking(shell="echo hi").stdout == b"hi\n"


async def test_inside_of_a_loop_it_blocks(runner: Runner) -> None:
    assert runner.run_blocking(["/bin/echo", "hi"]).stdout == b"hi\n"

    async def wrong() -> None:
        raise LookupError("nobody")

    with pytest.raises(LookupError, match="nobody"):
        run_blocking(wrong)


@needs_bubblewrap
async def test_in_the_sandbox_a_program_sees_its_folder_and_little_else(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "beside").write_text("secret")
    runner = Runner(cwd=folder, sandbox=True, env={MARK: programs.mark})
    look = f"cat {tmp_path}/beside; cat {folder}/here; echo made > {folder}/made; cat /etc/shadow; pwd"
    (folder / "here").write_text("here\n")
    ran = await runner.run(shell=look)
    assert ran.stdout.decode().splitlines() == ["here", str(folder)] and (folder / "made").read_text() == "made\n"


@needs_bubblewrap
async def test_a_program_outside_the_sandbox_runs_read_only(programs: Programs) -> None:
    folder = programs.folder / "project"
    folder.mkdir()
    program = programs.sh("check", "turn_end", 'cat; echo >> "$0" || echo " untouched"')
    runner = Runner(cwd=folder, sandbox=True)
    ran = await runner.run([str(program), "run"], stdin=json.dumps({"a": 1}).encode())
    assert ran.stdout == b'{"a": 1} untouched\n' and "Read-only" in ran.stderr


@needs_bubblewrap
async def test_in_the_sandbox_failures_are_the_same(programs: Programs) -> None:
    runner = Runner(cwd=programs.folder, sandbox=True)
    assert (await runner.run(shell="exit 3")).exit_code == 3
    assert (await runner.run(shell="kill -9 $$")).problem == "was ended by SIGKILL"
    assert (await runner.run(shell="sleep 600 & exit 0", timeout=1)).problem == "did not answer within 1 s"
    assert (await runner.run(shell="exec <&-; echo {}", stdin=b"x")).unread
    assert (await runner.run(["/no/such"])).problem.startswith("could not be started: ")


def test_a_required_sandbox_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.backends.sandbox.selection.SANDBOXES", {})
    with pytest.raises(ConfigError, match="sandbox=True needs a sandbox"):
        Runner(cwd=tmp_path, sandbox=True)


def test_a_noop_reports_nothing() -> None:
    assert ProgramResult() == ProgramResult(0, b"", "", "", 0.0, False)
