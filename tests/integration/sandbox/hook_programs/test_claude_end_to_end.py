"""Claude Code hooks with real tools, stored conversations and cancelled runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from executables.claude_kit import (
    agent,
    decision_output,
    event_hooks,
    last_prompt,
    read_input,
    read_inputs,
    recording_handler,
    write_settings,
)
from executables.worker_kit import wait_until_ended
from kit import ScriptedUser, tool_call, tool_calls_reply, tool_result, tool_results
from wick import Agent, Scripted
from wick.backends.local import Local
from wick.capabilities.executables import Executables
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.stores.in_memory import InMemory

FORMATTER = Path(__file__).parents[3] / "support" / "executables" / "programs" / "claude_formatter.py"


@pytest.mark.shows("claude", "PostToolUse", "tool_response", "tool_input", "additionalContext")
async def test_a_formatter_fixes_the_output_of_a_real_tool(tmp_path: Path) -> None:
    hooks = event_hooks("PostToolUse", {"type": "command", "command": f"python3 '{FORMATTER}'"}, matcher="Edit|Write")
    model = Scripted(
        tool_calls_reply(tool_call("write_file", path="notes/a.txt", content="one  \ntwo\n\n\n")),
        tool_calls_reply(tool_call("edit_file", "c2", path="notes/a.txt", old_text="two", new_text="three")),
        "done",
    )
    files = Filesystem(Local(tmp_path))
    result = await agent(tmp_path, hooks, model, files, tools=()).run("go")
    assert (tmp_path / "notes" / "a.txt").read_text() == "one\nthree\n"
    assert last_prompt(model).count("a.txt was formatted") == 1 and result.outcome == "completed"


@pytest.mark.shows("claude", "PostToolUse", "tool_response")
async def test_a_real_command_is_reported_with_its_output(tmp_path: Path) -> None:
    hooks = event_hooks("PostToolUse", recording_handler(), matcher="Bash")
    model = Scripted(tool_calls_reply(tool_call("execute", command="echo out; echo err >&2")), "done")
    await agent(tmp_path, hooks, model, Filesystem(Local(tmp_path)), tools=(), ask=ScriptedUser(True)).run("go")
    response = read_input(tmp_path)["tool_response"]
    assert (response["stdout"], response["stderr"], response["exit_code"]) == ("out\n", "err\n", 0)
    assert read_input(tmp_path)["tool_input"] == {"command": "echo out; echo err >&2"}


async def test_a_question_of_a_program_waits_in_a_stored_thread(tmp_path: Path) -> None:
    """Another program answers later; the one that asked is asked again, and the answer counts."""
    sessions = Sessions(InMemory())
    hooks = event_hooks("PreToolUse", recording_handler(decision_output("ask", "Really?")))
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    first = await agent(tmp_path, hooks, model, sessions).run("go", thread="t1")
    assert first.outcome == "interrupted"
    (question,) = await sessions.questions("t1")
    assert question["question"] == "Really?"
    await sessions.answer("t1", question["id"], "allow")
    again = await agent(tmp_path, hooks, model, sessions).run("", thread="t1")
    assert again.outcome == "completed" and tool_results(again)[-1:] == ["ran ls"]


async def test_a_refused_message_is_never_delivered(tmp_path: Path) -> None:
    sessions = Sessions(InMemory())
    refuses = "read -r p; case \"$p\" in *'a secret thing'*) exit 2;; esac"
    hooks = event_hooks("UserPromptSubmit", {"type": "command", "command": refuses})
    model = Scripted("one", "two", "three")
    talker = agent(tmp_path, hooks, model, sessions)
    await talker.run("hello", thread="t1")
    await sessions.send("t1", "a secret thing")
    await sessions.send("t1", "a plain thing")
    await talker.run("more", thread="t1")
    await talker.run("and more", thread="t1")
    assert "a plain thing" in last_prompt(model) and "a secret thing" not in last_prompt(model)


async def test_many_calls_at_once_are_each_asked_about(tmp_path: Path) -> None:
    """Each with the transcript as it is then, and none is let pass for another."""
    refuses = 'case "$p" in *\'"command":"c3"\'*) echo "not this one" >&2; exit 2;; esac; echo >> asked'
    hooks = event_hooks("PreToolUse", {"type": "command", "command": f"read -r p; {refuses}"})
    model = Scripted(tool_calls_reply(*(tool_call("execute", f"id{n}", command=f"c{n}") for n in range(12))), "done")
    result = await agent(tmp_path, hooks, model).run("go")
    assert tool_results(result) == [f"ran c{n}" if n != 3 else "not this one" for n in range(12)]
    assert len((tmp_path / "asked").read_text()) == 11


async def test_nothing_is_left_of_a_run_that_was_cancelled(tmp_path: Path) -> None:
    place = 'sed \'s/.*"transcript_path":"\\([^"]*\\)".*/\\1/\''
    command = f'read -r p; printf %s "$p" | {place} > where; echo $$ > pid; sleep 60'
    hooks = event_hooks("PreToolUse", {"type": "command", "command": command})
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)
    running = asyncio.create_task(agent(tmp_path, hooks, model).run("go"))
    async with asyncio.timeout(30):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.02)
    where, pid = (tmp_path / "where").read_text(), int((tmp_path / "pid").read_text())
    assert os.access(where, os.R_OK)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not os.access(os.path.dirname(where), os.F_OK)
    assert await wait_until_ended(pid)


async def test_the_guards_of_settings_hold_for_a_resumed_run(tmp_path: Path) -> None:
    """Resuming a run without its settings is refused."""
    sessions = Sessions(InMemory())
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)
    await agent(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("ask", "Really?"))), model, sessions
    ).run("go", thread="t1")
    with pytest.raises(Exception, match="PreToolUse@guard_tool_use"):
        await agent(tmp_path, {}, model, sessions).run("", thread="t1")


async def test_settings_and_permissions_in_one_agent(tmp_path: Path) -> None:
    """A program allows, a rule still asks, and other calls follow the mode."""
    hooks = event_hooks(
        "PreToolUse", recording_handler(decision_output("allow"), **{"if": "Bash(make *)"}), matcher="Bash"
    )
    user = ScriptedUser(True)
    model = Scripted(
        *(
            tool_calls_reply(tool_call("execute", f"c{n}", command=it))
            for n, it in enumerate(["make x", "make push", "ls"])
        ),
        "done",
    )
    rules = Permissions(ask=["Bash(make push)"])
    result = await Agent(
        model, tools=agent(tmp_path, {}, model).tools, hooks=[*write_settings(tmp_path, hooks).hooks(), rules], ask=user
    ).run("go")
    assert [question.op.args["command"] for question in user.questions] == ["make push", "ls"]
    assert tool_results(result) == ["ran make x", "ran make push", "ran ls"]


async def test_the_capability_takes_settings_from_the_config(tmp_path: Path) -> None:
    programs = Executables(
        folder=tmp_path,
        settings=event_hooks("PreToolUse", recording_handler(code=2, stderr="no")),
        trust=tmp_path / "trust",
    )
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    tools = agent(tmp_path, {}, model).tools
    assert tool_result(await Agent(model, tools=tools, hooks=[programs]).run("go")) == "no"
    await programs.close()
    assert len(read_inputs(tmp_path)) == 1
