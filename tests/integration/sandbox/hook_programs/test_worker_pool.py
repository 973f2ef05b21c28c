"""Worker programs in an agent: every point and every answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from executables.worker_kit import Make
from kit import (
    ScriptedUser,
    echo,
    echo_agent,
    execute,
    hello_agent,
    tool_call,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import Agent, Scripted, Thread, ToolUse, before, tool
from wick.errors import ModelError

# -- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "*", "event")
@pytest.mark.shows("lines", "*", "run")
@pytest.mark.shows("lines", "*", "thread")
@pytest.mark.shows("lines", "*", "agent")
@pytest.mark.shows("lines", "*", "user")
@pytest.mark.shows("lines", "*", "cwd")
@pytest.mark.shows("lines", "*", "decision")
@pytest.mark.shows("lines", "*", "reason")
async def test_a_program_can_match_any_event_field(program: Make, tmp_path: Path) -> None:
    """It returns its input as the reason, so each field changes the result."""
    body = "def answer(call): return {'decision': 'block', 'reason': json.dumps(call)}"
    hooks = program(body, points=["guard_tool_use"]).in_agent(folder=tmp_path, home=tmp_path / "home")
    thread, folder = Thread(), str(tmp_path.resolve())  # noqa: ASYNC240
    result = await echo_agent(hooks, name="bob").run("go", thread=thread, user="eve")
    told = json.loads(tool_result(result))
    assert told["event"] == "guard_tool_use"
    assert told["run"].startswith("run_") and told["thread"] == thread.id
    assert (told["agent"], told["user"], told["cwd"]) == ("bob", "eve", folder)


@pytest.mark.shows("lines", "hook", "points")
@pytest.mark.shows("lines", "hook", "protocol")
async def test_a_worker_is_called_at_its_points(program: Make) -> None:
    kept = program(points=["before_tool_use", "after_run"])
    await echo_agent(kept.in_agent()).run("go")
    assert [call["event"] for call in kept.calls] == ["before_tool_use", "after_run"]
    assert len(kept.starts) == 1


@pytest.mark.shows("lines", "hook", "match")
async def test_matchers_apply_to_tools_only(program: Make) -> None:
    kept = program("def answer(call): return {}", points=["guard_tool_use", "before_run"], match="Bash")
    model = Scripted(
        tool_calls_reply(tool_call("execute", "1", command="ls"), tool_call("echo", "2", text="hi")), "done"
    )
    await Agent(model, tools=[execute, echo], hooks=[kept.in_agent()]).run("go")
    assert [(seen["event"], seen.get("tool")) for seen in kept.calls] == [
        ("before_run", None),
        ("guard_tool_use", "execute"),
    ]


@pytest.mark.shows("lines", "guard_tool_use", "tool")
@pytest.mark.shows("lines", "guard_tool_use", "args")
async def test_a_guard_denies(program: Make) -> None:
    body = """
def answer(call):
    if call["tool"] == "execute" and "--force" in call["args"]["command"]:
        return {"decision": "block", "reason": "force is not allowed"}
    return {}
"""
    hooks = program(body, points=["guard_tool_use"]).in_agent()
    model = Scripted(
        tool_calls_reply(
            tool_call("execute", "1", command="git push --force"), tool_call("execute", "2", command="ls")
        ),
        "ok",
    )
    result = await Agent(model, tools=[execute], hooks=[hooks]).run("go")
    assert tool_results(result) == ["force is not allowed", "ran ls"]


@pytest.mark.shows("lines", "guard_tool_use", "question")
@pytest.mark.parametrize("agrees", [True, False])
async def test_a_guard_has_the_user_asked(program: Make, agrees: bool) -> None:
    body = "def answer(call): return {'decision': 'ask', 'question': 'Really?'}"
    user = ScriptedUser(agrees)
    result = await echo_agent(program(body, points=["guard_tool_use"]).in_agent(), ask=user).run("go")
    assert user.question.question == "Really?"
    assert (tool_result(result) == "hi") is agrees


@pytest.mark.shows("lines", "before_tool_use", "tool")
@pytest.mark.shows("lines", "before_tool_use", "args")
async def test_before_a_tool_a_worker_changes_arguments(program: Make) -> None:
    body = "def answer(call): return {'args': {'text': call['tool'] + call['args']['text']}}"
    result = await echo_agent(program(body, points=["before_tool_use"]).in_agent()).run("go")
    assert tool_result(result) == "echohi"


@pytest.mark.shows("lines", "before_tool_use", "question")
async def test_before_a_tool_a_worker_asks_the_user(program: Make) -> None:
    body = "def answer(call): return {'decision': 'ask', 'question': 'Echo?'}"
    user = ScriptedUser(False)
    result = await echo_agent(program(body, points=["before_tool_use"]).in_agent(), ask=user).run("go")
    assert user.question.question == "Echo?"
    assert tool_result(result) != "hi"


async def test_a_worker_is_called_again_after_later_changes(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'bad'} if call['args']['text'] == 'evil' else {}"
    kept = program(body, points=["before_tool_use"])

    @before(ToolUse)
    def turn_evil(use: ToolUse) -> None:
        use.args["text"] = "evil"

    assert tool_result(await echo_agent(kept.in_agent(), turn_evil).run("go")) == "bad"
    assert [seen["args"]["text"] for seen in kept.calls] == ["hi", "evil"]


async def test_the_answers_of_before_and_guard_are_separate(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'no'} if call['event'][0] == 'g' else {}"
    hooks = program(body, points=["before_tool_use", "guard_tool_use"]).in_agent()
    assert tool_result(await echo_agent(hooks).run("go")) == "no"


@pytest.mark.shows("lines", "after_tool_use", "tool")
@pytest.mark.shows("lines", "after_tool_use", "args")
@pytest.mark.shows("lines", "after_tool_use", "result")
async def test_after_a_tool_a_worker_changes_the_result(program: Make) -> None:
    body = (
        "def answer(call): return {'result': ' '.join((call['tool'], call['args']['text'], call['result']['output']))}"
    )
    assert tool_result(await echo_agent(program(body, points=["after_tool_use"]).in_agent()).run("go")) == "echo hi hi"


@pytest.mark.shows("lines", "after_tool_use", "error")
async def test_after_a_tool_a_worker_sees_the_error(program: Make) -> None:
    @tool
    def fails() -> str:
        """Fails."""
        raise ValueError("no luck")

    body = "def answer(call): return {'result': {'error': 'it says: ' + call['result']['error']}}"
    hooks = program(body, points=["after_tool_use"]).in_agent()
    model = Scripted(tool_calls_reply(tool_call("fails", x=1)), "done")
    result = await Agent(model, tools=[tool(fails.fn, parameters={"type": "object"})], hooks=[hooks]).run("go")
    assert tool_result(result).startswith("it says: ") and "x" in tool_result(result)


# -- runs, steps and model calls ------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "before_run", "input")
@pytest.mark.shows("lines", "before_run", "system")
async def test_before_a_run_a_worker_changes_input_and_system_prompt(program: Make) -> None:
    body = """
def answer(call):
    return {"input": call["input"][0]["content"] + "!", "system": call["system"] + " Be kind."}
"""
    model = Scripted("hello")
    await Agent(model, system="You are Bob.", hooks=[program(body, points=["before_run"]).in_agent()]).run("hi")
    (request,) = model.requests
    assert request.messages[0].text == "hi!"
    assert request.system == "You are Bob. Be kind."


@pytest.mark.shows("lines", "guard_run", "input")
@pytest.mark.shows("lines", "guard_run", "system")
async def test_a_run_guard_refuses_a_run(program: Make) -> None:
    body = """
def answer(call):
    bad = "secret" in call["input"][0]["content"]
    return {"decision": "block", "reason": "not for " + call["system"]} if bad else {}
"""
    hooks = program(body, points=["guard_run"]).in_agent()
    agent = hello_agent(hooks, system="Bob")
    assert (await agent.run("tell me a secret")).reason == "blocked: not for Bob"
    assert (await agent.run("hi")).text == "hello"


@pytest.mark.shows("lines", "after_run", "result")
async def test_after_a_run_a_worker_sees_the_result(program: Make) -> None:
    body = "def answer(call): return {'result': call['result']['text'] + ', ' + call['result']['outcome']}"
    assert (await hello_agent(program(body, points=["after_run"]).in_agent()).run("hi")).text == "hello, completed"


@pytest.mark.shows("lines", "before_step", "number")
async def test_before_a_step_a_worker_stops_the_run(program: Make) -> None:
    body = "def answer(call): return {'decision': 'stop', 'reason': 'enough'} if call['number'] > 1 else {}"
    result = await echo_agent(program(body, points=["before_step"]).in_agent()).run("go")
    assert result.reason == "stop requested: enough"
    assert tool_results(result) == ["hi"]


@pytest.mark.shows("lines", "guard_step", "number")
async def test_a_guard_of_steps_ends_the_run(program: Make) -> None:
    body = "def answer(call): return {'decision': 'block', 'reason': 'enough'} if call['number'] > 1 else {}"
    assert (await echo_agent(program(body, points=["guard_step"]).in_agent()).run("go")).reason == "blocked: enough"


@pytest.mark.shows("lines", "after_step", "number")
@pytest.mark.shows("lines", "after_step", "result")
@pytest.mark.shows("lines", "after_step", "message")
async def test_after_a_step_a_worker_continues_the_run(program: Make) -> None:
    body = """
def answer(call):
    again = call["result"]["decision"] == "stop" and call["number"] < 2
    return {"decision": "continue", "message": "not yet"} if again else {}
"""
    model = Scripted("one", "two")
    result = await Agent(model, hooks=[program(body, points=["after_step"]).in_agent()]).run("go")
    assert result.text == "two"
    assert model.requests[1].messages[-1].text == "not yet"


@pytest.mark.shows("lines", "before_model_call", "system")
@pytest.mark.shows("lines", "before_model_call", "messages")
async def test_before_a_model_call_a_worker_changes_the_system_prompt(program: Make) -> None:
    body = "def answer(call): return {'system': call['system'] + call['messages'][0]['content']}"
    model = Scripted("hello")
    await Agent(model, system="Bob", hooks=[program(body, points=["before_model_call"]).in_agent()]).run("hi")
    assert model.requests[0].system == "Bobhi"


@pytest.mark.shows("lines", "guard_model_call", "system")
@pytest.mark.shows("lines", "guard_model_call", "messages")
async def test_a_model_call_guard_limits_the_request(program: Make) -> None:
    body = """
def answer(call):
    bad = call["system"] == "Bob" and "secret" in call["messages"][-1]["content"]
    return {"decision": "block", "reason": "not to this model"} if bad else {}
"""
    agent = hello_agent(program(body, points=["guard_model_call"]).in_agent(), system="Bob")
    assert (await agent.run("a secret")).reason == "blocked: not to this model"
    assert (await agent.run("hi")).text == "hello"


@pytest.mark.shows("lines", "after_model_call", "result")
async def test_after_a_model_call_a_worker_changes_the_reply(program: Make) -> None:
    body = "def answer(call): return {'result': call['result']['text'].upper()}"
    assert (await hello_agent(program(body, points=["after_model_call"]).in_agent()).run("hi")).text == "HELLO"


@pytest.mark.shows("lines", "after_model_call", "error")
async def test_after_a_model_call_a_worker_replaces_an_error(program: Make) -> None:
    body = "def answer(call): return {'result': 'sorry: ' + call['error']}"
    model = Scripted(ModelError("no network"))
    result = await Agent(model, hooks=[program(body, points=["after_model_call"]).in_agent()]).run("hi")
    assert result.text == "sorry: no network"


@pytest.mark.shows("lines", "after_run", "error")
async def test_after_a_run_a_worker_sees_the_error(program: Make) -> None:
    kept = program("def answer(call): return {'result': 'sorry: ' + call['error']}", points=["after_run"])
    model = Scripted(ModelError("no network"))
    result = await Agent(model, hooks=[kept.in_agent()]).run("hi")
    assert result.text == "sorry: no network"


@pytest.mark.shows("lines", "wrap_run", "phase", "result")
@pytest.mark.shows("lines", "wrap_model_call", "phase", "result")
@pytest.mark.shows("lines", "wrap_tool_use", "phase")
@pytest.mark.parametrize("point", ["wrap_run", "wrap_model_call", "wrap_tool_use"])
async def test_a_wrap_worker_is_called_before_and_after(program: Make, point: str) -> None:
    kept = program(points=[point])
    await echo_agent(kept.in_agent()).run("go")
    assert [call["phase"] for call in kept.calls][:2] == ["before", "after"]
    assert ["result" in call for call in kept.calls][:2] == [False, True]


@pytest.mark.shows("lines", "wrap_tool_use", "result")
async def test_a_wrap_worker_replaces_a_tool(program: Make) -> None:
    hooks = program("def answer(call): return {'result': 'from a cache'}", points=["wrap_tool_use"]).in_agent()
    assert tool_result(await echo_agent(hooks).run("go")) == "from a cache"
