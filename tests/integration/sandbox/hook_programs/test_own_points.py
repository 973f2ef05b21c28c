"""Programs at wick's own points, with real programs."""

from __future__ import annotations

import json
from typing import Any

from kit import OperationLog, ScriptedUser, execute, hello_agent, tool_agent, tool_call, tool_result, tool_results
from programs import Programs, needs_node
from wick import (
    Agent,
    ModelCall,
    Result,
    Scripted,
    Thread,
    ToolUse,
    after,
    assistant,
    user,
)


async def use(programs: Programs, command: str = "ls", **options: Any) -> Result:
    return await tool_agent(execute, programs.executables(), args={"command": command}, **options).run("go")


async def test_a_program_guards_by_wicks_own_point(programs: Programs) -> None:
    programs.replying("check", "guard_tool_use", {"decision": "block", "reason": "the gate is closed"})
    assert tool_result(await use(programs)) == "the gate is closed"
    (told,) = programs.inputs("check")
    assert (told["event"], told["tool"], told["args"], told["call_id"]) == (
        "guard_tool_use",
        "execute",
        {"command": "ls"},
        "c1",
    )


async def test_a_program_asks_the_user(programs: Programs) -> None:
    programs.replying("check", "before_tool_use", {"decision": "ask", "question": "May it?"})
    ask = ScriptedUser(True)
    assert tool_result(await use(programs, ask=ask)) == "ran ls"
    assert ask.question.question == "May it?" and len(programs.inputs("check")) == 1


async def test_a_wrap_program_replaces_a_tool_or_changes_its_result(programs: Programs) -> None:
    body = """answer = {'args': {'command': 'pwd'}}
if told['phase'] == 'after':
    answer = {'result': told['result']['output'] + '!'}"""
    programs.python("check", "wrap_tool_use", body)
    assert tool_result(await use(programs)) == "ran pwd!"
    programs.python("check", "wrap_tool_use", "answer = {'result': 'from a cache'}")
    assert tool_result(await use(programs)) == "from a cache"


@needs_node
async def test_a_program_for_node_changes_the_prompt(programs: Programs) -> None:
    programs.node("polite", "before_run", 'answer = {input: told.input[0].content + ", please", system: "Be kind."}')
    model = Scripted("done", spare=True)
    await Agent(model, hooks=[programs.executables()]).run("go")
    assert (model.requests[0].messages[0].text, model.requests[0].system) == ("go, please", "Be kind.")


async def test_a_program_with_several_points_is_called_at_each(programs: Programs) -> None:
    points = [
        "agent_stop",
        "turn_end",
        "before_tool_call",
        "guard_tool_use",
        "before_tool_use",
        "guard_run",
        "before_run",
    ]
    programs.recording("all", json.dumps({"points": points}))
    executables = programs.executables()
    names = [hook.name for hook in executables.hooks()]
    assert len(set(names)) == len(names) == 11
    assert tool_result(await use(programs)) == "ran ls"
    assert {told["event"] for told in programs.inputs("all")} == set(points)


async def test_decisions_of_a_program_are_recorded(programs: Programs) -> None:
    watch = OperationLog()
    programs.python("check", "before_tool_call", "answer = {'input': {'command': 'pwd'}}")
    await tool_agent(execute, after(ToolUse)(watch.__call__), programs.executables(), args={"command": "ls"}).run("go")
    (why,) = [row for row in watch.op.why if row.hook == "check@before_tool_use"]
    assert why.changed == {"command": ["ls", "pwd"]} and why.ms > 0
    assert [row.verdict for row in watch.op.why if row.hook == "check@guard_tool_use"] == ["pass"]


async def test_a_resumed_run_is_under_the_same_programs(programs: Programs) -> None:
    programs.recording("check", "before_tool_call")
    thread = Thread()
    thread.add(user("go"), assistant("", tool_call("execute", command="ls")))
    thread.append("run_start", {"run": "run_1", "agent": "agent", "guards": ["check@guard_tool_use"], "input": 1})
    agent = Agent(Scripted("done"), tools=[execute], hooks=[programs.executables()])
    result = await agent.run(thread=thread)
    assert tool_results(result)[-1:] == ["ran ls"] and len(programs.inputs("check")) == 1


async def test_other_points_receive_their_input(programs: Programs) -> None:
    for point in ("before_step", "after_step", "before_model_call", "after_model_call", "after_run"):
        programs.recording(point, point)
    await hello_agent(programs.executables(), system="Be kind.").run("go")
    told = {
        point: programs.inputs(point)[0]
        for point in ("before_step", "after_step", "before_model_call", "after_model_call", "after_run")
    }
    assert told["before_step"]["number"] == 1 and told["after_step"]["result"] == {
        "decision": "stop",
        "reason": "completed",
    }
    assert told["before_model_call"]["messages"] == [{"role": "user", "content": "go"}]
    assert told["before_model_call"]["system"] == "Be kind."
    assert told["after_model_call"]["result"] == {"text": "hello", "tool_calls": []}
    assert told["after_run"]["result"] == {"text": "hello", "outcome": "completed", "reason": "completed"}


async def test_programs_change_a_model_call_and_its_reply(programs: Programs) -> None:
    programs.replying("1-system", "before_model_call", {"system": "Be brief."})
    programs.replying("2-reply", "after_model_call", {"result": "hi"})
    seen = OperationLog()
    result = await hello_agent(after(ModelCall)(seen.__call__), programs.executables()).run("go")
    assert result.text == "hi" and seen.op.last_sealed("system") == "Be brief."
