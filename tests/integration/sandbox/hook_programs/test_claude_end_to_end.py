"""Claude Code's hooks around real tools, real conversations that are kept, and runs that are cancelled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from executables.claude_kit import agent, asked, decides, made, on, says, seen, told
from executables.worker_kit import gone
from kit import User, call, calls, result_of, results
from wick import Agent, Scripted
from wick.backends.local import Local
from wick.capabilities.executables import Executables
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.stores.in_memory import InMemory

FORMATTER = Path(__file__).parents[3] / "support" / "executables" / "programs" / "claude_formatter.py"


@pytest.mark.shows("claude", "PostToolUse", "tool_response", "tool_input", "additionalContext")
async def test_a_formatter_mends_what_a_real_tool_wrote(tmp_path: Path) -> None:
    hooks = on("PostToolUse", {"type": "command", "command": f"python3 '{FORMATTER}'"}, matcher="Edit|Write")
    model = Scripted(
        calls(call("write_file", path="notes/a.txt", content="one  \ntwo\n\n\n")),
        calls(call("edit_file", "c2", path="notes/a.txt", old_text="two", new_text="three")),
        "done",
    )
    files = Filesystem(Local(tmp_path))
    result = await agent(tmp_path, hooks, model, files, tools=()).run("go")
    assert (tmp_path / "notes" / "a.txt").read_text() == "one\nthree\n"
    assert asked(model).count("a.txt was formatted") == 1 and result.outcome == "completed"


@pytest.mark.shows("claude", "PostToolUse", "tool_response")
async def test_a_real_command_is_told_with_its_output(tmp_path: Path) -> None:
    hooks = on("PostToolUse", says(), matcher="Bash")
    model = Scripted(calls(call("execute", command="echo out; echo err >&2")), "done")
    await agent(tmp_path, hooks, model, Filesystem(Local(tmp_path)), tools=(), ask=User(True)).run("go")
    response = told(tmp_path)["tool_response"]
    assert (response["stdout"], response["stderr"], response["exit_code"]) == ("out\n", "err\n", 0)
    assert told(tmp_path)["tool_input"] == {"command": "echo out; echo err >&2"}


async def test_a_question_of_a_program_waits_in_a_kept_thread(tmp_path: Path) -> None:
    """Another program answers later; the one that asked is asked again, and the answer counts."""
    sessions = Sessions(InMemory())
    hooks = on("PreToolUse", says(decides("ask", "Really?")))
    model = Scripted(calls(call("execute", command="ls")), "done")
    first = await agent(tmp_path, hooks, model, sessions).run("go", thread="t1")
    assert first.outcome == "interrupted"
    (question,) = await sessions.questions("t1")
    assert question["question"] == "Really?"
    await sessions.answer("t1", question["id"], "allow")
    again = await agent(tmp_path, hooks, model, sessions).run("", thread="t1")
    assert again.outcome == "completed" and results(again)[-1:] == ["ran ls"]


async def test_a_refused_message_is_not_heard_later_either(tmp_path: Path) -> None:
    sessions = Sessions(InMemory())
    refuses = "read -r p; case \"$p\" in *'a secret thing'*) exit 2;; esac"
    hooks = on("UserPromptSubmit", {"type": "command", "command": refuses})
    model = Scripted("one", "two", "three")
    talker = agent(tmp_path, hooks, model, sessions)
    await talker.run("hello", thread="t1")
    await sessions.send("t1", "a secret thing")
    await sessions.send("t1", "a plain thing")
    await talker.run("more", thread="t1")
    await talker.run("and more", thread="t1")
    assert "a plain thing" in asked(model) and "a secret thing" not in asked(model)


async def test_many_calls_at_once_are_each_asked_about(tmp_path: Path) -> None:
    """Each with the transcript as it is then, and none is let pass for another."""
    refuses = 'case "$p" in *\'"command":"c3"\'*) echo "not this one" >&2; exit 2;; esac; echo >> asked'
    hooks = on("PreToolUse", {"type": "command", "command": f"read -r p; {refuses}"})
    model = Scripted(calls(*(call("execute", f"id{n}", command=f"c{n}") for n in range(12))), "done")
    result = await agent(tmp_path, hooks, model).run("go")
    assert results(result) == [f"ran c{n}" if n != 3 else "not this one" for n in range(12)]
    assert len((tmp_path / "asked").read_text()) == 11


async def test_nothing_is_left_of_a_run_that_was_cancelled(tmp_path: Path) -> None:
    place = 'sed \'s/.*"transcript_path":"\\([^"]*\\)".*/\\1/\''
    command = f'read -r p; printf %s "$p" | {place} > where; echo $$ > pid; sleep 60'
    hooks = on("PreToolUse", {"type": "command", "command": command})
    model = Scripted(calls(call("execute", command="ls")), "done", spare=True)
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
    assert await gone(pid)


async def test_the_guards_of_settings_hold_for_a_run_that_is_taken_up(tmp_path: Path) -> None:
    """Who takes up a run without the settings that it was under is refused."""
    sessions = Sessions(InMemory())
    model = Scripted(calls(call("execute", command="ls")), "done", spare=True)
    await agent(tmp_path, on("PreToolUse", says(decides("ask", "Really?"))), model, sessions).run("go", thread="t1")
    with pytest.raises(Exception, match="PreToolUse@guard_tool_use"):
        await agent(tmp_path, {}, model, sessions).run("", thread="t1")


async def test_settings_and_permissions_in_one_agent(tmp_path: Path) -> None:
    """A program allows, a rule still asks, and what neither knows is the mode's to ask."""
    hooks = on("PreToolUse", says(decides("allow"), **{"if": "Bash(make *)"}), matcher="Bash")
    user = User(True)
    model = Scripted(
        *(calls(call("execute", f"c{n}", command=it)) for n, it in enumerate(["make x", "make push", "ls"])), "done"
    )
    rules = Permissions(ask=["Bash(make push)"])
    result = await Agent(
        model, tools=agent(tmp_path, {}, model).tools, hooks=[*made(tmp_path, hooks).hooks(), rules], ask=user
    ).run("go")
    assert [question.op.args["command"] for question in user.questions] == ["make push", "ls"]
    assert results(result) == ["ran make x", "ran make push", "ran ls"]


async def test_the_capability_takes_settings_from_the_config(tmp_path: Path) -> None:
    programs = Executables(
        folder=tmp_path, settings=on("PreToolUse", says(code=2, stderr="no")), trust=tmp_path / "trust"
    )
    model = Scripted(calls(call("execute", command="ls")), "done")
    tools = agent(tmp_path, {}, model).tools
    assert result_of(await Agent(model, tools=tools, hooks=[programs]).run("go")) == "no"
    await programs.close()
    assert len(seen(tmp_path)) == 1
