"""An agent that describes itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import echo, tool_calls_reply, tool_results
from wick import Agent, Block, Limits, ModelCall, Scripted, ToolCall, ToolUse, guard, tool, wrap
from wick.capabilities.permissions import Permissions
from wick.capabilities.self_description import SelfDescription
from wick.errors import ConfigError
from wick.hooks import Next
from wick.messages import Message


@guard(ToolUse, match="echo")
def quiet(use: ToolUse) -> Block:
    return Block("hush")


@wrap(ModelCall)
async def pass_on(call: ModelCall, next: Next[Message]) -> Message:
    return await next(call)


def asking() -> Scripted:
    return Scripted(tool_calls_reply(ToolCall("1", "describe_self", {})), "done")


async def test_the_prompt_ends_with_the_description() -> None:
    model = asking()
    hook = SelfDescription("You look after the library.")
    await Agent(model, name="librarian", system="Be brief.", hooks=[hook]).run("go")
    assert model.requests[0].system == (
        "Be brief.\n\nYou are the agent 'librarian'. You look after the library. "
        "One answer may take 25 steps. Call describe_self for more about yourself."
    )
    assert model.requests[1].system == model.requests[0].system


async def test_the_tool_returns_the_description() -> None:
    agent = Agent(
        asking(),
        name="librarian",
        tools=[echo],
        hooks=[Limits(5, tokens=1_000, cost=0.5, tool_calls=3), SelfDescription("About books."), pass_on, quiet],
    )
    told = json.loads(tool_results(await agent.run("go"))[0])
    assert (told["agent"], told["description"], told["model"]) == ("librarian", "About books.", "scripted")
    assert told["tools"]["echo"] == "Say it again."
    assert set(told["tools"]) == {"echo", "describe_self"}
    assert told["limits"] == {"steps": "5", "tokens": "1000", "tool calls": "3", "dollars": "0.5"}
    assert {"limits", "retry", "tracing", "self_description"} <= set(told["capabilities"])
    assert told["capabilities"]["limits"].startswith("Limits the steps, tokens, seconds, dollars and tool calls")
    assert {"quiet at guard_tool_use", "pass_on at wrap_model_call", "limits.check at before_step"} <= set(
        told["hooks"]
    )


async def test_every_hook_of_the_agent_is_described() -> None:
    agent = Agent(asking(), hooks=[SelfDescription(), Permissions(allow=["describe_self"]), pass_on])
    told = json.loads(tool_results(await agent.run("go"))[0])
    assert sorted(told["hooks"]) == sorted(f"{hook.name} at {hook.point}" for hook in agent.hooks)


async def test_a_child_includes_the_guards_of_its_parents() -> None:
    child = Agent(asking(), name="child", tools=[echo], hooks=[SelfDescription()])

    @tool
    async def delegate() -> str:
        return tool_results(await child.run("go"))[0]

    parent = Agent(
        Scripted(tool_calls_reply(ToolCall("1", "delegate", {})), "done"), tools=[delegate, echo], hooks=[quiet]
    )
    told = json.loads(tool_results(await parent.run("go"))[0])
    assert told["agent"] == "child"
    assert "quiet at guard_tool_use" in told["hooks"]


async def test_one_of_both() -> None:
    model = Scripted("done", "done")
    await Agent(model, hooks=[SelfDescription(tool=False)]).run("go")
    assert not model.requests[0].tools
    assert model.requests[0].system == "You are the agent 'agent'. One answer may take 25 steps."
    await Agent(model, hooks=[SelfDescription(system=False)]).run("go")
    assert [tool.name for tool in model.requests[1].tools] == ["describe_self"]
    assert model.requests[1].system == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"text": 7}, "describe the agent in a text"),
        ({"system": False, "tool": False}, "one of them is true"),
        ({"system": "yes"}, "true or false"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SelfDescription(**options)
