"""A verdict holds for exactly its operation, in every copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kit import echo, execute, tool_call, tool_calls_reply
from programs import Programs
from wick import Agent, Run, Scripted, Step, Tool, ToolCall, ToolUse, before, tool, user
from wick.capabilities.executables import Executables
from wick.capabilities.subagents import Subagents
from wick.hook_programs.agreements import fingerprint, has_agreed, record_agreement


def use(**args: str) -> ToolUse:
    made = ToolUse(Run(), tool_call("execute", **args), execute, dict(args))
    made.validate()
    return made


def test_an_agreement_covers_every_copy() -> None:
    op = use(command="ls")
    record_agreement(op, "check")
    assert has_agreed(op, "check") and has_agreed(op.fork(), "check") and has_agreed(op.seal(), "check")


def test_an_agreement_does_not_cover_changes() -> None:
    op = use(command="ls")
    record_agreement(op, "check")
    assert not has_agreed(op, "other") and not has_agreed(op.fork(args={"command": "rm"}), "check")
    assert not has_agreed(op.fork(tool=echo), "check") and not has_agreed(use(command="ls"), "check")


def test_both_of_two_agreements_hold() -> None:
    op = use(command="ls")
    record_agreement(op, "check")
    changed = op.fork(args={"command": "pwd"})
    record_agreement(changed, "check")
    assert has_agreed(op, "check") and has_agreed(changed, "check")


def test_a_run_is_identified_by_its_input() -> None:
    run = Run(input=[user("hello")])
    record_agreement(run, "filter")
    assert has_agreed(run.seal(), "filter") and not has_agreed(run.fork(input=[user("other")]), "filter")
    assert fingerprint(run) == fingerprint(run.fork(system="Be kind."))


def test_other_operations_are_identified_by_their_json() -> None:
    run = Run()
    step = Step(run, 1)
    assert fingerprint(step) == step.hash != fingerprint(Step(run, 2))


def test_a_tool_of_the_same_name_that_is_another_one_was_not_agreed_to() -> None:
    op = use(command="ls")
    record_agreement(op, "check")
    assert not has_agreed(op.fork(tool=echo.renamed("execute")), "check")


# -- two programs of one name do not speak for each other -----------------------------------------------------------

NO_RM = 'case "$told" in *"rm "*) echo \'{"blocked": true, "reason": "no rm"}\';; esac'
NO_SECRETS = 'case "$told" in *1234*) echo \'{"blocked": true, "reason": "keep it"}\';; esac'


@before(ToolUse, match="execute")
def change(op: ToolUse) -> None:
    op.args["command"] = "rm all"


def with_a_child(above: Executables, *below: Any, tools: Sequence[Tool] = (execute,)) -> tuple[Agent, Scripted]:
    """An agent under programs of its own that has a child use a tool, and the child's model."""
    wanted = ToolCall("c1", tools[0].name, {"command": "ls"} if tools[0] is execute else {})
    model = Scripted(tool_calls_reply(wanted), "done", spare=True)
    child = {"name": "helper", "description": "Helps.", "prompt": "Help.", "model": model}
    child |= {"tools": [*tools], "hooks": [*below]}
    task = tool_call("task", agent="helper", prompt="help")
    return Agent(Scripted(tool_calls_reply(task), "over", spare=True), hooks=[above, Subagents([child])]), model


async def test_a_program_of_a_child_does_not_agree_for_one_of_the_same_name_above(programs: Programs) -> None:
    programs.recording("check", "before_tool_call", NO_RM, path=programs.folder / "strict")
    programs.recording("check", "before_tool_call", path=programs.folder / "lax")
    strict, lax = (programs.executables(dirs=[programs.folder / name]) for name in ("strict", "lax"))
    agent, below = with_a_child(strict, change, lax)
    await agent.run("go")
    assert below.requests[-1].messages[-1].text == "no rm"


async def test_settings_of_a_child_do_not_agree_for_the_same_settings_above(programs: Programs) -> None:
    for name, refuses in (("lax", "never"), ("strict", "rm ")):
        text = f'#!/bin/sh\ngrep -q "{refuses}" && echo "no rm" >&2 && exit 2; exit 0'
        programs.write("check.sh", text, programs.folder / name)
    entries = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}]}
    strict, lax = (
        programs.executables(dirs=(), cwd=programs.folder / name, settings=entries) for name in ("strict", "lax")
    )
    agent, below = with_a_child(strict, change, lax)
    await agent.run("go")
    assert below.requests[-1].messages[-1].text == "no rm"


async def test_two_filters_of_one_name_both_screen_inbox_messages(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", NO_SECRETS, path=programs.folder / "strict")
    programs.recording("filter", "user_message_send", path=programs.folder / "lax")
    strict, lax = (programs.executables(dirs=[programs.folder / name]) for name in ("strict", "lax"))
    said: list[str] = []

    @tool
    async def wait(run: Run) -> str:
        """Wait while the user sends messages."""
        run.send("my password is 1234")
        said.extend(run.progress.inbox.screens)
        return "waited"

    agent, below = with_a_child(strict, lax, tools=[wait])
    await agent.run("go")
    assert said == ["filter@user_message_send", "filter@user_message_send'"]
    assert not any("1234" in message.text for request in below.requests for message in request.messages)
