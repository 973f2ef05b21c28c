"""One program per hook: kodelet's five events and wick's own points, with real programs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kit import (
    ScriptedUser,
    echo,
    execute,
    hello_agent,
    thread_entries,
    tool_agent,
    tool_call,
    tool_calls_reply,
    tool_result,
)
from programs import Programs, needs_node
from wick import (
    Agent,
    FunctionModel,
    Result,
    Run,
    Scripted,
    ToolUse,
    before,
    guard,
    tool,
)
from wick.capabilities.subagents import Subagents


@tool
async def write_file(path: str, content: str = "") -> str:
    """Write a file."""
    return f"wrote {path}: {content}"


async def use(programs: Programs, command: str = "ls", **options: Any) -> Result:
    return await tool_agent(execute, programs.executables(), args={"command": command}, **options).run("go")


# -- common fields of payloads --------------------------------------------------------------------------------------


@pytest.mark.shows("kodelet", "*", "event")
@pytest.mark.shows("kodelet", "*", "conv_id")
@pytest.mark.shows("kodelet", "*", "cwd")
@pytest.mark.shows("kodelet", "*", "invoked_by")
@pytest.mark.shows("kodelet", "*", "hook")
@pytest.mark.shows("kodelet", "*", "run")
async def test_every_event_has_common_fields(programs: Programs) -> None:
    for event in ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end"):
        programs.recording(event, event)
    result = await use(programs)
    assert result.thread is not None
    for event in ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end"):
        (told,) = programs.inputs(event)
        about = {name: told[name] for name in ("event", "conv_id", "cwd", "invoked_by")}
        assert about == {"event": event, "conv_id": result.thread.id, "cwd": str(Path.cwd()), "invoked_by": "main"}
        assert "recipe_name" not in told


@pytest.mark.shows("kodelet", "*", "invoked_by")
async def test_children_are_under_the_programs_of_their_parents(programs: Programs) -> None:
    programs.recording("prompts", "user_message_send")
    programs.recording(
        "calls", "before_tool_call", 'case "$told" in *secret*) echo \'{"blocked": true, "reason": "no"}\';; esac'
    )
    programs.recording("watch", "after_tool_call")
    worker = Scripted(tool_calls_reply(tool_call("execute", command="cat secret")), "done below", spare=True)
    subagents = Subagents({"worker": {"description": "Works.", "model": worker, "tools": ["execute"]}})
    model = Scripted(tool_calls_reply(tool_call("task", agent="worker", prompt="Look into it.")), "done", spare=True)
    result = await Agent(model, tools=[execute], hooks=[programs.executables(), subagents]).run("go")
    assert result.text == "done"
    said = [(told["invoked_by"], told["message"]) for told in programs.inputs("prompts")]
    assert said[0] == ("main", "go") and said[1][0] == "subagent" and "Look into it." in said[1][1]
    assert [(told["invoked_by"], told["tool_name"]) for told in programs.inputs("calls")] == [
        ("main", "subagent"),
        ("subagent", "bash"),
    ]
    blocked = programs.inputs("watch")[0]
    assert blocked["invoked_by"] == "subagent" and blocked["tool_output"]["error"] == "no"


@pytest.mark.shows("kodelet", "*", "recipe_name")
async def test_the_recipe_is_named(programs: Programs) -> None:
    programs.recording("turns", "turn_end")

    @before(Run)
    def choose(run: Run) -> None:
        run.scratch["recipe"] = "review"

    await hello_agent(choose, programs.executables()).run("go")
    assert programs.inputs("turns")[0]["recipe_name"] == "review"


# -- before_tool_call -----------------------------------------------------------------------------------------------


@pytest.mark.shows("kodelet", "before_tool_call", "blocked")
@pytest.mark.shows("kodelet", "before_tool_call", "reason")
async def test_a_call_is_blocked_and_the_model_reads_why(programs: Programs) -> None:
    programs.replying("check", "before_tool_call", {"blocked": True, "reason": "not today"})
    assert tool_result(await use(programs)) == "not today"


@pytest.mark.shows("kodelet", "before_tool_call", "blocked")
async def test_a_block_without_reason_has_a_default_reason(programs: Programs) -> None:
    programs.replying("check", "before_tool_call", {"blocked": True})
    assert tool_result(await use(programs)) == "a hook program refused it and gave no reason"


@pytest.mark.shows("kodelet", "*", "empty-stdout")
@pytest.mark.parametrize("answer", ["", "echo", "echo '{}'", 'echo \'{"blocked": false, "reason": null, "new": 1}\''])
async def test_an_empty_answer_changes_nothing(programs: Programs, answer: str) -> None:
    programs.recording("check", "before_tool_call", answer)
    assert tool_result(await use(programs)) == "ran ls"
    assert len(programs.inputs("check")) == 1  # the gate did not ask again


@pytest.mark.shows("kodelet", "before_tool_call", "tool_name")
@pytest.mark.shows("kodelet", "before_tool_call", "tool_input")
@pytest.mark.shows("kodelet", "before_tool_call", "tool_user_id")
async def test_a_call_has_kodelet_names(programs: Programs) -> None:
    programs.recording("check", "before_tool_call")
    wanted = tool_calls_reply(
        tool_call("write_file", "c1", file_path="a.txt", content="hi"),
        tool_call("execute", "c2", command="ls"),
        tool_call("echo", "c3"),
    )
    agent = Agent(Scripted(wanted, "done"), tools=[write_file, execute, echo], hooks=[programs.executables()])
    await agent.run("go")
    told = {row["tool_user_id"]: (row["tool_name"], row["tool_input"]) for row in programs.inputs("check")}
    assert told == {
        "c1": ("file_write", {"file_path": "a.txt", "text": "hi"}),
        "c2": ("bash", {"command": "ls"}),
        "c3": ("echo", {"text": "hi", "times": 1}),
    }


@pytest.mark.shows("kodelet", "before_tool_call", "input")
async def test_a_call_is_changed_by_kodelets_names(programs: Programs) -> None:
    programs.replying("check", "before_tool_call", {"blocked": False, "input": {"file_path": "b.txt", "text": "safe"}})
    agent = tool_agent(write_file, programs.executables(), args={"path": "a.txt", "content": "hi"})
    assert tool_result(await agent.run("go")) == "wrote b.txt: safe"
    assert len(programs.inputs("check")) == 1  # it approves its own change


@pytest.mark.shows("kodelet", "before_tool_call", "input")
async def test_arguments_that_the_tool_does_not_take_are_the_models_to_read(programs: Programs) -> None:
    programs.replying("check", "before_tool_call", {"input": {"kommand": "ls"}})
    assert "command" in tool_result(await use(programs))


@pytest.mark.shows("kodelet", "*", "chain")
async def test_changes_chain_and_the_first_block_ends_the_chain(programs: Programs) -> None:
    programs.python(
        "1-add", "before_tool_call", "answer = {'input': {'command': told['tool_input']['command'] + ' -l'}}"
    )
    programs.recording("2-see", "before_tool_call")
    programs.replying("3-block", "before_tool_call", {"blocked": True, "reason": "three"})
    programs.replying("4-never", "before_tool_call", {"blocked": True, "reason": "four"})
    assert tool_result(await use(programs)) == "three"
    assert [told["tool_input"]["command"] for told in programs.inputs("2-see")] == ["ls -l"]
    assert programs.inputs("4-never") == []


@pytest.mark.shows("kodelet", "before_tool_call", "blocked")
async def test_a_verdict_holds_only_for_its_call(programs: Programs) -> None:
    programs.recording(
        "check", "before_tool_call", 'case "$told" in *"rm "*) echo \'{"blocked": true, "reason": "no rm"}\';; esac'
    )

    @before(ToolUse)
    def change(use: ToolUse) -> None:
        use.args["command"] = "rm -rf /"

    result = await tool_agent(execute, programs.executables(), change, args={"command": "ls"}).run("go")
    assert tool_result(result) == "no rm"
    assert [told["tool_input"]["command"] for told in programs.inputs("check")] == ["ls", "rm -rf /"]
    assert [row["hook"] for row in thread_entries(result.thread, "decision")] == ["check@guard_tool_use"]


@pytest.mark.shows("kodelet", "before_tool_call", "input")
async def test_a_program_that_changes_arguments_again_denies(programs: Programs) -> None:
    programs.python(
        "check", "before_tool_call", "answer = {'input': {'command': 'nice ' + told['tool_input']['command']}}"
    )

    @before(ToolUse)
    def change(use: ToolUse) -> None:
        use.args["command"] += " -l"

    told = tool_result(await tool_agent(execute, programs.executables(), change, args={"command": "ls"}).run("go"))
    assert told.startswith("the hook program check wants to change what was changed after it had looked")


async def test_a_corrected_call_is_checked_again_and_approved(programs: Programs) -> None:
    """Its answer about the changed call is that call itself, so it changes nothing."""
    programs.python("check", "before_tool_call", "answer = {'input': told['tool_input']}")

    @before(ToolUse)
    def change(use: ToolUse) -> None:
        use.args["command"] = "ls -l"

    assert (
        tool_result(await tool_agent(execute, programs.executables(), change, args={"command": "ls"}).run("go"))
        == "ran ls -l"
    )


async def test_arguments_edited_by_the_user_are_checked(programs: Programs) -> None:
    from wick import Allow, Ask

    programs.recording(
        "check", "before_tool_call", 'case "$told" in *"rm "*) echo \'{"blocked": true, "reason": "no rm"}\';; esac'
    )

    @guard(ToolUse)
    def really(use: ToolUse) -> Ask:
        return Ask("really?")

    ask = ScriptedUser(Allow({"command": "rm -rf /"}))
    agent = tool_agent(execute, programs.executables(), really, args={"command": "ls"}, ask=ask)
    assert tool_result(await agent.run("go")) == "no rm"


# -- after_tool_call ------------------------------------------------------------------------------------------------


@pytest.mark.shows("kodelet", "after_tool_call", "tool_name")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_input")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_user_id")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.toolName")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.success")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.metadata")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.timestamp")
async def test_a_result_is_sent_to_programs(programs: Programs) -> None:
    programs.recording("watch", "after_tool_call")
    await use(programs)
    (told,) = programs.inputs("watch")
    assert (told["tool_name"], told["tool_input"], told["tool_user_id"]) == ("bash", {"command": "ls"}, "c1")
    output = told["tool_output"]
    assert datetime.fromisoformat(output.pop("timestamp")).tzinfo is not None
    assert output == {"toolName": "bash", "success": True, "metadata": {"output": "ran ls"}}


@pytest.mark.shows("kodelet", "after_tool_call", "after-a-block")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.success")
@pytest.mark.shows("kodelet", "after_tool_call", "tool_output.error")
async def test_a_blocked_call_is_sent_with_its_refusal(programs: Programs) -> None:
    programs.replying("check", "before_tool_call", {"blocked": True, "reason": "not today"})
    programs.recording("watch", "after_tool_call")
    await use(programs)
    output = programs.inputs("watch")[0]["tool_output"]
    assert (output["success"], output["error"]) == (False, "not today")


@pytest.mark.shows("kodelet", "after_tool_call", "after-a-block")
async def test_a_guards_refusal_is_sent_to_programs(programs: Programs) -> None:
    from wick import Block

    @guard(ToolUse)
    def never(use: ToolUse) -> Block:
        return Block("never")

    programs.recording("watch", "after_tool_call")
    await tool_agent(execute, never, programs.executables(), args={"command": "ls"}).run("go")
    assert programs.inputs("watch")[0]["tool_output"]["error"] == "never"


@pytest.mark.shows("kodelet", "after_tool_call", "output")
async def test_a_result_is_changed(programs: Programs) -> None:
    programs.python("1-upper", "after_tool_call", UPPER)
    programs.recording("2-see", "after_tool_call")
    assert tool_result(await use(programs)) == "RAN LS"
    assert programs.inputs("2-see")[0]["tool_output"]["metadata"] == {"output": "RAN LS"}


@pytest.mark.shows("kodelet", "after_tool_call", "output")
async def test_a_result_becomes_an_error_and_an_error_a_result(programs: Programs) -> None:
    programs.replying("worse", "after_tool_call", {"output": {"toolName": "bash", "success": False, "error": "bad"}})
    assert tool_result(await use(programs)) == "bad"
    programs.path.joinpath("worse").unlink()
    programs.replying("block", "before_tool_call", {"blocked": True})
    programs.replying("better", "after_tool_call", {"output": {"success": True, "metadata": {"output": "fine"}}})
    assert tool_result(await use(programs)) == "fine"


# -- turn_end and agent_stop ----------------------------------------------------------------------------------------


@pytest.mark.shows("kodelet", "turn_end", "response")
@pytest.mark.shows("kodelet", "turn_end", "turn_number")
async def test_the_end_of_a_turn_is_sent_with_its_count(programs: Programs) -> None:
    programs.recording("turns", "turn_end")
    agent = Agent(
        Scripted(tool_calls_reply(tool_call("echo")), "one", "two"), tools=[echo], hooks=[programs.executables()]
    )
    first = await agent.run("go")
    await agent.run("go on", thread=first.thread)
    assert [(told["response"], told["turn_number"]) for told in programs.inputs("turns")] == [("one", 1), ("two", 2)]


@pytest.mark.shows("kodelet", "turn_end", "not-for-an-empty-response")
async def test_an_empty_answer_is_no_turn_but_a_stop(programs: Programs) -> None:
    programs.recording("turns", "turn_end")
    programs.recording("stops", "agent_stop")
    await Agent(FunctionModel(lambda request: ""), hooks=[programs.executables()]).run("go")
    assert programs.inputs("turns") == [] and len(programs.inputs("stops")) == 1


@pytest.mark.shows("kodelet", "agent_stop", "messages")
@pytest.mark.shows("kodelet", "agent_stop", "messages.role")
@pytest.mark.shows("kodelet", "agent_stop", "messages.content")
async def test_agent_stop_is_sent_with_the_messages(programs: Programs) -> None:
    programs.recording("stops", "agent_stop")
    await use(programs)
    (told,) = programs.inputs("stops")
    assert told["messages"] == [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]


@pytest.mark.shows("kodelet", "agent_stop", "follow_up_messages")
@pytest.mark.shows("kodelet", "agent_stop", "accumulate")
async def test_messages_at_agent_stop_accumulate_and_the_agent_continues(programs: Programs) -> None:
    once = 'case "$told" in *tests*) ;; *) echo \'{"follow_up_messages": [%s]}\';; esac'
    programs.recording("1-gate", "agent_stop", once % '"run the tests", "all of them"')
    programs.recording("2-gate", "agent_stop", once % '"and be quick"')
    model = Scripted("done", "they pass", spare=True)
    result = await Agent(model, hooks=[programs.executables()]).run("go")
    assert result.text == "they pass"
    said = [(message.name, message.text) for message in result.messages if message.role == "user"]
    assert said[1:] == [("1-gate@after_step", "run the tests\n\nall of them"), ("2-gate@after_step", "and be quick")]
    assert len(model.requests) == 2


@pytest.mark.shows("kodelet", "agent_stop", "cap")
async def test_a_gate_that_never_opens_is_abandoned(programs: Programs) -> None:
    programs.replying("gate", "agent_stop", {"follow_up_messages": ["again"]})
    model = FunctionModel(lambda request: "done")
    result = await Agent(model, hooks=[programs.executables()]).run("go")
    assert result.outcome == "completed"
    assert len([message for message in result.messages if message.text == "again"]) == 8


async def test_turns_end_before_the_agent_stops(programs: Programs) -> None:
    log = programs.folder / "order"
    programs.sh("1-stop", "agent_stop", f"cat >/dev/null; echo stop >> {log}")
    programs.sh("2-turn", "turn_end", f"cat >/dev/null; echo turn >> {log}")
    programs.sh("3-turn", "turn_end", f"cat >/dev/null; echo turn3 >> {log}")
    await hello_agent(programs.executables()).run("go")
    assert log.read_text().split() == ["turn", "turn3", "stop"]


# -- in every language ----------------------------------------------------------------------------------------------


def five_in_shell(programs: Programs) -> None:
    programs.recording(
        "send", "user_message_send", 'case "$told" in *bad*) echo \'{"blocked": true, "reason": "bad"}\';; esac'
    )
    programs.replying("before", "before_tool_call", {"input": {"command": "pwd"}})
    programs.replying("after", "after_tool_call", {"output": {"success": True, "metadata": {"output": "RAN PWD"}}})
    programs.recording("turn", "turn_end")
    programs.recording(
        "stop", "agent_stop", 'case "$told" in *more*) ;; *) echo \'{"follow_up_messages": ["more"]}\';; esac'
    )


def five_in_python(programs: Programs) -> None:
    log = f"open('{programs.folder}/turn.told', 'a').write(json.dumps(told) + '\\n')"
    programs.python("send", "user_message_send", "answer = {'blocked': 'bad' in told['message'], 'reason': 'bad'}")
    programs.python("before", "before_tool_call", "answer = {'blocked': False, 'input': {'command': 'pwd'}}")
    programs.python("after", "after_tool_call", UPPER)
    programs.python("turn", "turn_end", log)
    more = "answer = {'follow_up_messages': [] if 'more' in json.dumps(told) else ['more']}"
    programs.python("stop", "agent_stop", more)


def five_in_node(programs: Programs) -> None:
    log = f"require('fs').appendFileSync('{programs.folder}/turn.told', JSON.stringify(told) + '\\n')"
    programs.node("send", "user_message_send", "answer = {blocked: told.message.includes('bad'), reason: 'bad'}")
    programs.node("before", "before_tool_call", "answer = {blocked: false, input: {command: 'pwd'}}")
    upper = "told.tool_output.metadata.output = told.tool_output.metadata.output.toUpperCase()"
    programs.node("after", "after_tool_call", f"{upper}; answer = {{output: told.tool_output}}")
    programs.node("turn", "turn_end", log)
    more = "answer = {follow_up_messages: JSON.stringify(told).includes('more') ? [] : ['more']}"
    programs.node("stop", "agent_stop", more)


UPPER = "o = told['tool_output']; o['metadata']['output'] = o['metadata']['output'].upper(); answer = {'output': o}"


@pytest.mark.parametrize(
    "write", [five_in_shell, five_in_python, pytest.param(five_in_node, marks=needs_node)], ids=["sh", "python", "node"]
)
async def test_all_five_events_in_every_language(programs: Programs, write: Callable[[Programs], None]) -> None:
    write(programs)
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "one", "two")
    agent = Agent(model, tools=[execute], hooks=[programs.executables()])
    result = await agent.run("go")
    assert tool_result(result) == "RAN PWD" and result.text == "two"
    assert [told["response"] for told in programs.inputs("turn")] == ["one", "two"]
    assert [message.text for message in result.messages if message.role == "user"] == ["go", "more"]
    assert (await agent.run("something bad")).reason == "blocked: bad"
