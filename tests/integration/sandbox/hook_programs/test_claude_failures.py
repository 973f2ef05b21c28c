"""Any failure of a deciding handler denies; an observer's is logged and the run continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from executables.claude_kit import Json, agent, event_hooks, recording_handler
from kit import thread_entries, tool_call, tool_calls_reply, tool_result
from wick import Scripted, Thread

# The behaviour of a handler and its message.
FAILURES: dict[str, tuple[Json, str]] = {
    "crashes": (recording_handler(code=1, stderr="Traceback: boom"), "ended with exit code 1: Traceback: boom"),
    "is killed": ({"command": "kill -9 $$"}, "was ended by SIGKILL"),
    "hangs": ({"command": "sleep 60", "timeout": 0.2}, "did not answer within 0.2 s"),
    "hangs, whatever signal": ({"command": "trap '' TERM; sleep 60 & wait", "timeout": 0.2}, "did not answer within"),
    "is missing": ({"command": "./not-there.sh"}, "exit code 127|could not be started"),
    "cannot be executed": ({"command": "./plain.txt"}, "exit code 126|could not be started"),
    "is missing, without a shell": ({"args": ["./not-there", "x"]}, "could not be"),
    "prints garbage": ({"command": "printf '{\\377\\376'"}, "answered with"),
    "prints half of it": ({"command": "printf '{\"decision\": \"app'"}, "answered with"),
    "prints 100 MB": ({"command": "yes '{' | head -c 100000000"}, "printed more than 1 MB"),
    "answers twice": ({"command": "echo '{}'; echo '{}'"}, "answered"),
    "answers for another call": (
        recording_handler('{"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}}'),
        "answered for 'Stop'",
    ),
    "answers too late": ({"command": "sleep 20; echo '{}'", "timeout": 0.2}, "did not answer within"),
}  # fmt: skip
FINE: dict[str, Json] = {
    "closes stdin early": {"command": "exec <&-; echo '{}'"},
    "never reads": {"command": "echo '{}'"},
    "forks and exits": {"command": "(sleep 60 >/dev/null 2>&1 &) ; echo '{}'"},
    "says nothing": {"command": "true"},
}
EVERY = [pytest.param(*row, id=name) for name, row in FAILURES.items()]


def handler(given: Json, **more: str) -> Json:
    return {"type": "command", **given, **more}


def prepare(folder: Path) -> None:
    (folder / "plain.txt").write_text("echo hello")


def user_of_a_tool() -> Scripted:
    return Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)


@pytest.mark.shows("claude", "*", "exit-other", "invalid-json")
@pytest.mark.parametrize(("given", "problem"), EVERY)
async def test_a_failure_before_a_tool_denies(tmp_path: Path, given: Json, problem: str) -> None:
    prepare(tmp_path)
    said = tool_result(await agent(tmp_path, event_hooks("PreToolUse", handler(given)), user_of_a_tool()).run("go"))
    assert said.startswith("the hook program ") and said.endswith(", so it has not agreed")
    assert any(part in said for part in problem.split("|")), said
    opened = event_hooks("PreToolUse", handler(given, fail="open"))
    assert tool_result(await agent(tmp_path, opened, user_of_a_tool()).run("go")) == "ran ls"


@pytest.mark.shows("claude", "*", "exit-other", "invalid-json")
@pytest.mark.parametrize(("given", "problem"), EVERY)
async def test_a_failing_prompt_program_refuses_the_prompt(tmp_path: Path, given: Json, problem: str) -> None:
    prepare(tmp_path)
    thread = Thread()
    model = Scripted("never", spare=True)
    result = await agent(tmp_path, event_hooks("UserPromptSubmit", handler(given)), model).run("go", thread=thread)
    assert result.outcome == "stopped" and result.reason.endswith(", so it has not agreed")
    assert any(part in result.reason for part in problem.split("|")), result.reason
    assert len(thread.messages) == 0 and model.requests == []


@pytest.mark.parametrize("event", ["SessionStart", "PostToolUse", "Stop", "Notification"])
async def test_a_failing_observer_is_logged(tmp_path: Path, event: str, caplog: pytest.LogCaptureFixture) -> None:
    result = await agent(tmp_path, event_hooks(event, handler({"command": "kill -9 $$"})), user_of_a_tool()).run("go")
    assert result.outcome == "completed" and tool_result(result) == "ran ls"
    assert "the run continues" in caplog.text
    (failed,) = [data["data"] for data in thread_entries(result.thread, "event") if data["name"] == "hook_failed"]
    assert failed["hook"] == "kill -9 $$" and failed["problem"] == "was ended by SIGKILL"


@pytest.mark.parametrize("given", [pytest.param(row, id=name) for name, row in FINE.items()])
async def test_unusual_valid_answers_pass(tmp_path: Path, given: Json) -> None:
    big = "x" * 300_000  # more than a pipe holds
    model = Scripted(tool_calls_reply(tool_call("execute", command=big)), "done")
    result = await agent(tmp_path, event_hooks("PreToolUse", handler(given)), model).run("go")
    assert tool_result(result).startswith("ran xxx")


async def test_one_failure_among_several_denies(tmp_path: Path) -> None:
    hooks = event_hooks(
        "PreToolUse", recording_handler("{}"), handler({"command": "exit 3"}), recording_handler("{}", timeout=5)
    )
    said = tool_result(await agent(tmp_path, hooks, user_of_a_tool()).run("go"))
    assert said == "the hook program exit 3 ended with exit code 3, so it has not agreed"
