"""A failing program: a decider denies, an observer is logged, and no process is left."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from kit import execute, hello_agent, thread_entries, tool_agent, tool_result
from programs import Programs
from wick import Result
from wick.capabilities.executables import Executables

READ = "cat >/dev/null\n"
SCHEMA = '{"blocked": "no", "decision": 5, "output": 7, "follow_up_messages": 1}'
DEEP = "yes '[' | head -n 100000 | tr -d '\\n'"

# The behaviour of a program and its message.
FAILURES = {
    "crashes": (f"{READ}echo broken >&2; exit 1", "ended with exit code 1: broken"),
    "exits with 2": (f"{READ}exit 2", "ended with exit code 2"),
    "hangs": ("sleep 600", "did not answer within 1 s"),
    "answers too late": (f"{READ}sleep 600; echo '{{}}'", "did not answer within 1 s"),
    "ignores that it is to end": ("trap '' TERM; sleep 600 & wait; sleep 600", "did not answer within 1 s"),
    "prints garbage": (f"{READ}echo no", "answered with something that is not JSON: 'no'"),
    "prints a list": (f"{READ}echo '[]'", "answered with a JSON list, and not with an object"),
    "prints bytes": (f"{READ}printf '\\377\\376'", "answered with bytes that are not UTF-8"),
    "prints 100 MB": (f"{READ}head -c 100000000 /dev/zero", "printed more than 1 MB"),
    "complains 100 MB": (f"{READ}head -c 100000000 /dev/zero >&2", "printed more than 1 MB"),
    "forks and exits": (f"{READ}(sleep 600; echo '{{}}') & exit 0", "ended, and something that it started still had"),
    "closes stdin early": ("exec <&-; echo '{}'", "exited before it had read its input"),
    "answers twice": (f"{READ}echo '{{}}'; echo '{{}}'", "answered twice, or with more than one JSON document"),
    "says a thing twice": (f"""{READ}echo '{{"reason": "a", "reason": "b"}}'""", "'reason' is there twice"),
    "answers for another call": (f"""{READ}echo '{{"conv_id": "th_other"}}'""", "answered for another call"),
    "is killed": ("kill -9 $$", "was ended by SIGKILL"),
    "breaks the schema": (f"""{READ}echo '{SCHEMA}'""", "answered with"),
    "nests without an end": (f"""{READ}printf '{{"reason": '; {DEEP}""", "answered with JSON that is nested too deep"),
    "has no interpreter": ("", "could not be started"),
}
DECIDING = ("before_tool_call", "user_message_send", "guard_tool_use", "before_tool_use", "guard_run")
WATCHING = ("after_tool_call", "turn_end", "agent_stop", "after_model_call")

SLOW = ("hangs", "answers too late", "ignores that it is to end")


def deciding(failure: str) -> tuple[str, ...]:
    """All deciders; a sample of three without WICK_FULL, and one of each for slow failures."""
    if os.environ.get("WICK_FULL"):
        return DECIDING
    return DECIDING[SLOW.index(failure) :][:1] if failure in SLOW else DECIDING[:3]


def watching(failure: str) -> tuple[str, ...]:
    """Events where it is a failure: observers need not read, and the end of a turn has no answer."""
    if failure == "closes stdin early":
        return ()
    events = tuple(event for event in WATCHING if failure != "breaks the schema" or event != "turn_end")
    return events if os.environ.get("WICK_FULL") else events[: 1 if failure in SLOW else 2]


def make_failing(programs: Programs, event: str, failure: str, **options: Any) -> Executables:
    """A program that declares its hooks and fails when called."""
    path = programs.folder / event
    program = programs.sh("check", event, FAILURES[failure][0] or READ, path)
    executables = programs.executables(dirs=[path], **options)
    if failure in SLOW:
        executables.runner.timeout = 1  # from now on: it had the time to declare its hooks
    if failure == "has no interpreter":
        program.write_text(program.read_text().replace("#!/bin/sh", "#!/bin/no-such-shell"))
    return executables


async def outcome(event: str, executables: Executables) -> tuple[str, Result]:
    """Return the message to the model or the user, and the outcome of the run."""
    if "tool" in event:
        result = await tool_agent(execute, executables, args={"command": "ls"}).run("go")
        return tool_result(result), result
    result = await hello_agent(executables).run("go")
    return result.reason.removeprefix("blocked: "), result


@pytest.mark.shows("kodelet", "*", "exit-code")
@pytest.mark.shows("kodelet", "*", "timeout")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failing_decider_denies(programs: Programs, failure: str) -> None:
    for event in deciding(failure):
        told, result = await outcome(event, make_failing(programs, event, failure))
        assert told.startswith("the hook program check "), (event, told)
        assert FAILURES[failure][1] in told and told.endswith(", so it has not agreed"), (event, told)
        assert result.text == ("done" if "tool" in event else ""), event


@pytest.mark.parametrize("failure", [failure for failure in FAILURES if watching(failure)])
async def test_a_failing_observer_is_logged_and_the_run_continues(
    programs: Programs, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    for event in watching(failure):
        caplog.clear()
        told, result = await outcome(event, make_failing(programs, event, failure))
        assert (result.outcome, told) == ("completed", "ran ls" if "tool" in event else "completed"), event
        logged = [data["data"] for data in thread_entries(result.thread, "event") if data["name"] == "hook_failed"]
        assert logged and all(row["hook"] == "check" and FAILURES[failure][1] in row["problem"] for row in logged)
        assert "the hook program check" in caplog.text and FAILURES[failure][1] in caplog.text


@pytest.mark.parametrize("failure", ["crashes", "hangs", "prints garbage"])
async def test_a_fail_open_program_passes_and_is_listed(programs: Programs, failure: str) -> None:
    for event in deciding(failure):
        executables = make_failing(programs, event, failure, fail={"check": "open"})
        told, result = await outcome(event, executables)
        assert told == ("ran ls" if "tool" in event else "completed"), event
        problems = [data["data"]["problem"] for data in thread_entries(result.thread, "event")]
        assert len(problems) == 1 and FAILURES[failure][1] in problems[0]
        assert [row.fail for row in executables.listed()] == ["open"]


async def test_a_failing_fail_closed_observer_withholds_the_result(programs: Programs) -> None:
    executables = make_failing(programs, "after_tool_call", "crashes", fail={"check": "closed"})
    told, _ = await outcome("after_tool_call", executables)
    assert told == "the result was withheld: the hook 'check@after_tool_use' failed: HookError"
    assert [row.fail for row in executables.listed()] == ["closed"]


def test_how_failures_count_is_listed(programs: Programs) -> None:
    rows = [row for event in (*DECIDING, *WATCHING) for row in make_failing(programs, event, "crashes").listed()]
    assert [row.fail for row in rows] == ["closed"] * len(DECIDING) + [""] * len(WATCHING)


@pytest.mark.parametrize("gone", ["vanished", "not executable", "a folder", "a broken link"])
async def test_a_replaced_program_denies(programs: Programs, gone: str) -> None:
    for event in DECIDING:
        path = programs.folder / event
        program = programs.sh("check", event, READ, path)
        executables = programs.executables(dirs=[path])
        _take_away(program, gone)
        told, _ = await outcome(event, executables)
        words = "no longer exists" if gone in ("vanished", "a broken link") else "is not executable any more"
        assert told == f"the hook program check {words}, so it has not agreed"


def _take_away(program: Path, gone: str) -> None:
    if gone == "not executable":
        return program.chmod(0o644)
    program.unlink()
    if gone == "a folder":
        program.mkdir()
    if gone == "a broken link":
        program.symlink_to("nowhere")
    return None


async def test_a_program_changed_after_trust_denies(programs: Programs) -> None:
    folder = programs.folder / "project"
    program = programs.sh("check", "before_tool_call", READ, folder / ".wick" / "hooks")
    home = programs.folder / "home"
    trusting = programs.executables(dirs=(), folder=folder, home=home)
    trusting.trust.trust([program])
    executables = programs.executables(dirs=(), folder=folder, home=home)
    assert (await outcome("tool", executables))[0] == "ran ls"
    program.write_text(program.read_text() + "# just a remark\n")
    told, _ = await outcome("tool", executables)
    assert told == "the hook program check was changed after it was trusted, so it has not agreed"
    again = programs.executables(dirs=(), folder=folder, home=home)
    assert [row.trust for row in again.listed()] == ["changed"]
    assert (await outcome("tool", again))[0] == told


async def test_a_failure_is_in_the_record_of_the_operation(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    _, result = await outcome("before_tool_call", make_failing(programs, "before_tool_call", "crashes"))
    (decision,) = thread_entries(result.thread, "decision")
    assert (decision["hook"], decision["verdict"]) == ("check@before_tool_use", "block")


async def test_a_huge_call_is_sent_whole_or_denied(programs: Programs) -> None:
    programs.python(
        "count", "before_tool_call", "answer = {'blocked': True, 'reason': str(len(told['tool_input']['command']))}"
    )
    told = tool_result(await tool_agent(execute, programs.executables(), args={"command": "x" * 3_000_000}).run("go"))
    assert told == "3000000"
