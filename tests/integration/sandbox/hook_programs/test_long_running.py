"""Timeouts of a program by position, and its calls when a run is resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from executables.claude_kit import event_hooks, write_settings
from kit import execute, tool_call, tool_calls_reply, tool_result
from programs import Programs
from wick import Agent, Paused, Scripted, Thread
from wick.decisions import Question

ASKS = 'echo \'{"decision": "ask", "question": "May it?"}\''
BLOCKS = 'echo \'{"decision": "block", "reason": "not any more"}\''


def test_a_program_may_exceed_the_gate_timeout(programs: Programs) -> None:
    programs.sh("check", "guard_tool_use")
    slow = programs.executables(timeout=600)
    assert [hook.timeout > 600 for hook in slow.hooks() if hook.position == "guard"] == [True]
    settings = event_hooks("PreToolUse", {"command": "a", "timeout": 900}, {"command": "b"}) | event_hooks(
        "UserPromptSubmit", {"command": "c"}
    )
    guards = {
        hook.name: hook.timeout
        for hook in write_settings(programs.folder, settings).hooks()
        if hook.position == "guard"
    }
    assert guards["PreToolUse@guard_tool_use"] > 900 and guards["UserPromptSubmit@guard_run"] > 30


async def test_a_guard_that_takes_longer_than_other_guards_may_is_waited_for(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wick.hooks.GUARD_SECONDS", 0.01)
    programs.sh("check", "guard_tool_use", "cat >/dev/null; sleep 0.3")
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    result = await Agent(model, tools=[execute], hooks=[programs.executables()]).run("go")
    assert tool_result(result) == "ran ls"


@pytest.mark.parametrize(("now", "came"), [(ASKS, "ran ls"), (BLOCKS, "not any more")])
async def test_a_resumed_run_is_checked_again(programs: Programs, now: str, came: str) -> None:
    programs.recording("check", "before_tool_use", ASKS)
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)
    answers: list[Any] = [Paused("later"), True]

    async def ask(question: Question) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Paused):
            raise answer
        return bool(answer)

    thread = Thread()
    agent = Agent(model, tools=[execute], hooks=[programs.executables()], ask=ask)
    assert (await agent.run("go", thread=thread)).outcome == "interrupted"
    programs.recording("check", "before_tool_use", now)
    result = await agent.run(thread=thread)
    assert (result.outcome, tool_result(result)) == ("completed", came)
    assert len(programs.inputs("check")) == 2


async def test_many_calls_of_one_step_have_a_verdict_each(programs: Programs) -> None:
    refuses = '{"blocked": true, "reason": "not this one"}'
    programs.recording("check", "before_tool_call", f'case "$told" in *\'"command":"b"\'*) echo \'{refuses}\';; esac')
    wanted = [
        tool_call("execute", id, command=command) for id, command in (("1", "a"), ("2", "b"), ("3", "b"), ("4", "a"))
    ]
    agent = Agent(Scripted(tool_calls_reply(*wanted), "done"), tools=[execute], hooks=[programs.executables()])
    async with asyncio.timeout(60):
        result = await agent.run("go")
    said = [message.text for message in result.messages if message.role == "tool"]
    assert said == ["ran a", "not this one", "not this one", "ran a"]
