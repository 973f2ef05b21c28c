"""wick.program: one file, three protocols, and no failure that a caller takes for agreement."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wick.program
from kit import echo_agent, execute, tool_call, tool_calls_reply, tool_result, tool_results
from wick import Agent, Scripted
from wick._internal import aliases
from wick.capabilities.executables import Executables
from wick.program import CLAUDE_EVENTS, EQUIVALENT_EVENTS, POINTS, SINGLE_EVENTS, Program, program

SOURCE = Path(wick.program.__file__)
FORCE = """
@hook.{decorator}
def no_force(call):
    if "--force" in call["args"]["command"]:
        return hook.block("force is not allowed")
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a program that has wick.program beside it, and nothing else of wick."""

    def write(body: str, *, name: str = "check", threads: int = 1) -> Path:
        folder = tmp_path / "hooks"
        folder.mkdir(exist_ok=True)
        shutil.copy(SOURCE, folder / "program.py")
        path = folder / name
        start = f"#!{sys.executable} -S\nfrom program import program\nhook = program(threads={threads})\n"
        path.write_text(f"{start}{body}\nhook.main()\n")
        path.chmod(0o755)
        return path

    return write


def ran(path: Path, *args: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
    text = "" if stdin is None else json.dumps(stdin)
    return subprocess.run([str(path), *args], input=text, capture_output=True, text=True, timeout=60)


def run_program(path: Path, *args: str, stdin: Any) -> Any:
    done = ran(path, *args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else {}


# -- output of `hook` -----------------------------------------------------------------------------------------------


def look(call: dict[str, Any]) -> None:
    """Observes."""


def test_points_of_wick_make_a_worker_program() -> None:
    hook = program()
    hook.guard_tool_use(match="execute")(look)
    hook.before_run(look)
    assert json.loads(hook.describe()) == {"points": ["guard_tool_use", "before_run"], "protocol": "lines"}


def test_common_matchers_are_reported() -> None:
    hook = program()
    hook.guard_tool_use(match="execute")(look)
    hook.after_tool_use(match="write_*|ls")(look)
    assert json.loads(hook.describe())["match"] == "execute|write_*|ls"


@pytest.mark.parametrize("event", SINGLE_EVENTS)
def test_one_event_of_one_program_per_hook_is_its_type(event: str) -> None:
    hook = program()
    hook.on(event)(look)
    assert hook.describe() == event


def test_claude_code_events_map_to_equivalent_points() -> None:
    hook = program()
    for event in ("PreToolUse", "Stop", "SessionStart", "UserPromptSubmit"):
        hook.on(event)(look)
    assert json.loads(hook.describe())["points"] == ["before_tool_use", "after_step", "before_run"]


def test_a_tool_is_described_by_its_function() -> None:
    hook = program()

    @hook.tool
    def add(a: int, b: float = 2, note: str = "") -> float:
        """Add two numbers."""
        return a + b

    (tool,) = json.loads(hook.describe())["tools"]
    assert (tool["name"], tool["description"]) == ("add", "Add two numbers.")
    assert tool["parameters"]["properties"]["b"] == {"type": "number"}
    assert tool["parameters"]["required"] == ["a"]
    assert hook.answer({"event": "tool", "tool": "add", "args": {"a": 1}}) == {"output": 3}
    assert "there is no tool 'sub'; the tools are add" in hook.answer({"event": "tool", "tool": "sub"})["error"]


def test_every_point_is_a_decorator_and_nothing_else_is() -> None:
    hook = program()
    for point in POINTS:
        getattr(hook, point)(look)
    assert json.loads(hook.describe())["points"] == [*aliases.POINT_NAMES]
    with pytest.raises(AttributeError, match="there is no 'guard_tool'; the points are before_run"):
        hook.guard_tool  # noqa: B018
    with pytest.raises(ValueError, match="there is no event Stopp"):
        hook.on("Stopp")


# -- the same function for every caller -----------------------------------------------------------------------------

LINES = {"event": "guard_tool_use", "tool": "execute", "names": ["Bash", "bash", "execute"], "args": {"command": "x"}}
SINGLE_CALL = {"event": "before_tool_call", "tool_name": "bash", "tool_input": {"command": "x"}, "tool_user_id": "1"}
CLAUDE_CALL = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "x"}}
CALLS = [LINES, SINGLE_CALL, CLAUDE_CALL]


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def deny(word: str, reason: str) -> dict[str, Any]:
    return specific("PreToolUse", permissionDecision=word, permissionDecisionReason=reason)


SAID: list[tuple[Any, list[Any]]] = [
    (None, [{}, {}, {}]),
    (Program.block("no"), [
        {"decision": "block", "reason": "no"}, {"blocked": True, "reason": "no"}, deny("deny", "no")]),
    (Program.ask("sure?"), [
        {"decision": "ask", "question": "sure?"}, {"blocked": True, "reason": "sure?"}, deny("ask", "sure?")]),
    (Program.stop("enough"), [
        {"decision": "stop", "reason": "enough"}, {"blocked": True, "reason": "enough"},
        {"continue": False, "stopReason": "enough"}]),
    (Program.change(args={"command": "y"}), [
        {"args": {"command": "y"}}, {"blocked": False, "input": {"command": "y"}},
        specific("PreToolUse", updatedInput={"command": "y"})]),
    (Program.context("note"), [{}, {}, specific("PreToolUse", additionalContext="note")]),
    ({"anything": 1}, [{"anything": 1}] * 3),
]  # fmt: skip


@pytest.mark.parametrize(("said", "answers"), SAID)
def test_a_decision_is_translated_for_each_caller(said: Any, answers: list[Any]) -> None:
    hook, seen = program(), []

    @hook.on("guard_tool_use", match="execute")
    def check(call: dict[str, Any]) -> Any:
        seen.append((call["tool"], call["args"]))
        return said

    assert [hook.answer(call) for call in CALLS] == answers
    assert seen == [("execute", {"command": "x"})] * 3


def test_arguments_are_translated_to_wick_names_and_back() -> None:
    hook = program()

    @hook.before_tool_use(match="edit_file")
    def shout(call: dict[str, Any]) -> Any:
        return hook.change(args={**call["args"], "new_text": call["args"]["new_text"].upper()})

    given = {"file_path": "/a", "old_string": "a", "new_string": "b"}
    told = hook.answer({"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": given})
    assert told["hookSpecificOutput"]["updatedInput"] == {**given, "new_string": "B"}


RESULTS = [
    {"event": "after_tool_use", "tool": "execute", "args": {}, "result": {"output": "old", "error": ""}},
    {"event": "after_tool_call", "tool_name": "bash", "tool_output": {"success": True, "metadata": {"output": "old"}}},
    {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}, "tool_response": "old"},
]


def test_a_result_is_seen_and_changed() -> None:
    hook = program()

    @hook.after_tool_use
    def redact(call: dict[str, Any]) -> Any:
        return hook.change(result=call["result"]["output"].replace("old", "new"))

    lines, single, claude = (hook.answer(call) for call in RESULTS)
    assert lines == {"result": "new"}
    assert single == {"output": {"success": True, "error": "", "metadata": {"output": "new"}}}
    assert claude == specific("PostToolUse", updatedToolOutput="new")


PROMPTS = [
    {"event": "before_run", "input": [{"role": "user", "content": "a secret"}]},
    {"event": "user_message_send", "message": "a secret"},
    {"hook_event_name": "UserPromptSubmit", "prompt": "a secret"},
]


def test_a_prompt_is_refused() -> None:
    hook = program()

    @hook.before_run
    def check(call: dict[str, Any]) -> Any:
        return hook.block("no secrets") if "secret" in call["prompt"] else None

    assert [hook.answer(call) for call in PROMPTS] == [
        {"decision": "block", "reason": "no secrets"},
        {"blocked": True, "reason": "no secrets"},
        {"decision": "block", "reason": "no secrets"},
    ]


STOPS = [
    {"event": "after_step", "number": 1, "result": {"decision": "stop", "reason": "completed"}},
    {"event": "agent_stop", "messages": []},
    {"hook_event_name": "Stop", "stop_hook_active": False},
]


@pytest.mark.parametrize("event", ["after_step", "agent_stop", "Stop"])
def test_an_agent_is_sent_back_to_work(event: str) -> None:
    hook = program()
    hook.on(event)(lambda call: hook.go_on("run the tests"))
    assert [hook.answer(call) for call in STOPS] == [
        {"decision": "continue", "message": "run the tests"},
        {"follow_up_messages": ["run the tests"]},
        {"decision": "block", "reason": "run the tests"},
    ]


def test_a_step_that_is_not_the_last_is_no_stop() -> None:
    hook = program()
    hook.on("Stop")(lambda call: hook.go_on("more"))
    assert hook.answer({"event": "after_step", "result": {"decision": "continue", "message": ""}}) == {}


def test_the_first_denying_function_ends_the_chain_and_changes_reach_the_next() -> None:
    hook, seen = program(), []

    @hook.before_tool_use
    def change(call: dict[str, Any]) -> Any:
        return hook.change(args={"command": "y"})

    @hook.before_tool_use
    def refuse(call: dict[str, Any]) -> Any:
        seen.append(call["args"]["command"])
        return hook.block("no")

    hook.before_tool_use(lambda call: seen.append("too much"))
    assert hook.answer({**LINES, "event": "before_tool_use"})["decision"] == "block"
    assert seen == ["y"]


def test_a_function_at_two_names_of_an_event_is_called_once() -> None:
    hook, seen = program(), []
    hook.on("guard_tool_use", "before_tool_call", "PreToolUse")(lambda call: seen.append(call["tool"]))
    for event in CALLS:
        hook.answer(event)
    assert seen == ["execute"] * 3


def test_questions_and_messages_of_several_functions_add_up() -> None:
    hook = program()
    for word in ("one", "two"):
        hook.after_step(lambda call, word=word: hook.go_on(word))
        hook.guard_tool_use(lambda call, word=word: hook.ask(word))
    assert hook.answer(STOPS[0])["message"] == "one\ntwo"
    assert hook.answer(LINES)["question"] == "one\ntwo"


def test_a_function_is_called_only_for_its_matches() -> None:
    hook, seen = program(), []
    hook.guard_tool_use(match="write_*|Bash|kind:network")(lambda call: seen.append(call["tool"]))
    for tool, names, kind in (("ls", [], ""), ("run", ["execute", "Bash"], "shell"), ("get", [], "network")):
        hook.answer({"event": "guard_tool_use", "tool": tool, "names": names, "kind": kind, "args": {}})
    assert seen == ["run", "get"]


def test_a_tool_kind_is_known_or_asked_for_any_caller() -> None:
    hook, seen = program(), []
    hook.guard_tool_use(match="kind:shell")(lambda call: seen.append(call["tool"]))
    for name in ("Bash", "Read", "mcp__server__run"):
        hook.answer({"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": {}})
    for name in ("bash", "file_read"):
        hook.answer({"event": "before_tool_call", "tool_name": name, "tool_input": {}})
    assert seen == ["execute", "mcp__server__run", "execute"]  # unknown tools are checked


def test_the_names_match_those_of_wick() -> None:
    assert POINTS == aliases.POINT_NAMES
    assert all(aliases.TOOLS[name] == tool for name, tool in wick.program.TOOLS.items())
    for tool, names in wick.program.ARGUMENTS.items():
        assert names.items() <= aliases.ARGUMENTS[tool].items()
    assert all(
        aliases.POINTS[name] == kin[0]
        for kin in EQUIVALENT_EVENTS[:4]
        for name in kin
        if name in (*SINGLE_EVENTS, *CLAUDE_EVENTS)
    )


# -- programs that really run ---------------------------------------------------------------------------------------


def asks_for(*commands: str) -> Scripted:
    return Scripted(
        tool_calls_reply(*(tool_call("execute", str(n), command=one) for n, one in enumerate(commands))), "done"
    )


@pytest.mark.parametrize("decorator", ["guard_tool_use(match='execute')", "on('before_tool_call')", "on('PreToolUse')"])
async def test_one_file_in_wick(write: Any, decorator: str) -> None:
    path = write(FORCE.format(decorator=decorator))
    hooks = Executables([{"dir": str(path.parent)}])
    result = await Agent(asks_for("git push --force", "ls"), tools=[execute], hooks=[hooks]).run("go")
    assert tool_results(result) == ["force is not allowed", "ran ls"]
    await hooks.close()


async def test_one_file_in_settings(write: Any) -> None:
    path = write(FORCE.format(decorator="guard_tool_use(match='execute')"))
    handlers = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": str(path)}]}]}
    hooks = Executables(settings=handlers)
    result = await Agent(asks_for("git push --force", "ls"), tools=[execute], hooks=[hooks]).run("go")
    assert ["force is not allowed" in text for text in tool_results(result)] == [True, False]
    await hooks.close()


@pytest.mark.parametrize("decorator", ["guard_tool_use(match='execute')", "on('before_tool_call')", "on('PreToolUse')"])
def test_one_file_for_every_caller(write: Any, decorator: str) -> None:
    path = write(FORCE.format(decorator=decorator))
    bad = {"command": "git push --force"}
    assert run_program(path, "run", stdin={**SINGLE_CALL, "tool_input": bad})["blocked"] is True
    told = run_program(path, stdin={**CLAUDE_CALL, "tool_input": bad})
    assert told == deny("deny", "force is not allowed")
    assert run_program(path, "run", stdin=SINGLE_CALL) == run_program(path, stdin=CLAUDE_CALL) == {}


async def test_the_program_of_the_docstring_runs(tmp_path: Path) -> None:
    text = wick.program.__doc__ or ""
    lines = text.partition("#!/usr/bin/env python3\n")[2].partition("\nThe program supports")[0].splitlines()
    code = "\n".join(line[4:] for line in lines)
    assert len([line for line in lines if line.strip()]) <= 10
    path = tmp_path / "no_force"
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    hooks = Executables([{"dir": str(tmp_path)}], timeout=60)
    result = await Agent(asks_for("git push --force"), tools=[execute], hooks=[hooks]).run("go")
    assert tool_result(result) == "force is not allowed"
    await hooks.close()


async def test_printed_output_is_not_an_answer(write: Any) -> None:
    body = """
import os
@hook.guard_tool_use
def check(call):
    print("looking", flush=True)
    os.system("echo listening")
    return hook.block("no")
"""
    path = write(body)
    hooks = Executables([{"dir": str(path.parent)}])
    assert tool_result(await echo_agent(hooks).run("go")) == "no"
    await hooks.close()
    done = ran(path, "run", stdin=SINGLE_CALL)
    assert json.loads(done.stdout) == {"blocked": True, "reason": "no"}
    assert done.stderr.split() == ["looking", "listening"]


FAILS = "@hook.guard_tool_use\ndef check(call):\n    raise OSError('no disk')\n"


async def test_a_function_that_fails_has_not_agreed(write: Any) -> None:
    path = write(FAILS)
    hooks = Executables([{"dir": str(path.parent)}])
    told = tool_result(await echo_agent(hooks).run("go"))
    assert told == "the hook program check failed: OSError: no disk, so it has not agreed"
    await hooks.close()
    assert run_program(path, "run", stdin=SINGLE_CALL) == {
        "blocked": True,
        "reason": "the hook failed: OSError: no disk",
    }
    done = ran(path, stdin=CLAUDE_CALL)
    assert done.returncode == 2 and "OSError: no disk" in done.stderr


def test_a_failing_observer_function_exits_with_1(write: Any) -> None:
    path = write("@hook.after_tool_use\ndef check(call):\n    raise OSError('no disk')\n")
    assert [ran(path, stdin=call).returncode for call in RESULTS[1:]] == [1, 1]


async def test_with_threads_a_slow_call_holds_up_no_other(write: Any) -> None:
    body = """
import threading
both = threading.Barrier(2)
@hook.guard_tool_use
def check(call):
    both.wait(20)
"""
    path = write(body, threads=2)
    hooks = Executables([{"dir": str(path.parent)}])
    one, two = await asyncio.gather(echo_agent(hooks).run("go"), echo_agent(hooks).run("go"))
    assert tool_result(one) == tool_result(two) == "hi"
    await hooks.close()


@pytest.mark.parametrize("text", ["", "no JSON", "7", '"text"', "null"])
def test_an_event_that_cannot_be_read_is_refused(write: Any, text: str) -> None:
    path = write(FAILS)
    done = subprocess.run([str(path)], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the standard input is not an event" in done.stderr


def test_another_argument_is_refused_with_a_sentence(write: Any) -> None:
    done = ran(write(""), "sever")
    assert done.returncode == 1 and "hook | serve | run" in done.stderr


def test_the_program_module_needs_only_the_standard_library(tmp_path: Path) -> None:
    shutil.copy(SOURCE, tmp_path)
    code = "import sys, program; print(sorted(name for name in sys.modules if name.split('.')[0] == 'wick'))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
