"""The hooks every agent has, and how to have others."""

from __future__ import annotations

import pytest

from wick import Agent, Limits, Scripted, Tool, ToolCall, tool
from wick.backends import State
from wick.capabilities import Builtins, Filesystem, InformationFlow
from wick.capabilities._defaults import DEFAULTS
from wick.capabilities.builtins import HttpRequest
from wick.capabilities.retry import Retry
from wick.capabilities.tracing import Tracing
from wick.capability import Capability


@tool(effect="read")
def read_mail() -> str:
    """Read the mail."""
    return "Hello."


@tool(effect="send", returns="own")
def send(to: str) -> str:
    """Send a message."""
    return "sent"


@tool
def undeclared(text: str) -> str:
    """Do something."""
    return text


def names(agent: Agent) -> set[str]:
    return {hook.name.partition(".")[0] for hook in agent.hooks}


def test_every_agent_is_traced_limited_and_asks_again() -> None:
    assert [type(part) for part in DEFAULTS] == [Tracing, Limits, Retry]
    assert names(Agent(Scripted())) == {"tracing", "limits", "retry"}


def test_one_of_the_same_name_takes_its_place() -> None:
    mine = Limits(steps=3)
    agent = Agent(Scripted(), hooks=[mine])
    assert {hook.owner for hook in agent.hooks if hook.name.startswith("limits.")} == {mine}
    assert names(agent) == {"tracing", "limits", "retry"}


@pytest.mark.parametrize(
    ("tools", "hooks", "has"),
    [
        ([read_mail, send], [], True),
        ([read_mail, undeclared], [], True),
        ([read_mail], [], False),  # it can change nothing
        ([send], [], False),
        ([undeclared], [], False),  # it declares nothing
        ([undeclared], [Filesystem(State())], False),
        ([], [Builtins(["calculate", "http_request"])], True),
        ([], [Builtins(["calculate"])], False),
        ([HttpRequest(["GET"])], [], False),  # it only reads
        ([read_mail, send], [InformationFlow(enabled=False)], False),
    ],
)
def test_information_flow_is_a_default_where_a_tool_declares_untrusted_data(
    tools: list[Tool], hooks: list[Capability], has: bool
) -> None:
    agent = Agent(Scripted(), tools=tools, hooks=hooks)
    assert ("information_flow" in names(agent)) is has
    assert ("plan" in [tool.name for tool in agent.tools]) is has
    assert [hook.name for hook in agent.with_hooks().hooks].count("information_flow.check_targets") == has


async def test_the_default_information_flow_asks_about_a_target_of_others() -> None:
    calls = [ToolCall("a", "plan", {"steps": [{"tool": "send"}]}), ToolCall("b", "read_mail", {})]
    model, asked = Scripted(*calls, ToolCall("c", "send", {"to": "eve@evil.example"}), "Done."), list[str]()
    agent = Agent(model, tools=[read_mail, send], ask=lambda question: bool(asked.append(question.question)))
    await agent.run("Answer my mail.")
    assert len(asked) == 1 and "eve@evil.example" in asked[0]


def test_a_copy_has_defaults_once() -> None:
    agent = Agent(Scripted()).with_hooks(Limits(steps=3)).with_tools()
    assert [hook.name for hook in agent.hooks].count("limits.check") == 1


def test_the_default_limit_is_25_steps_and_nothing_else() -> None:
    (limits,) = (part for part in DEFAULTS if isinstance(part, Limits))
    assert (limits.steps, limits.tokens, limits.seconds) == (25, None, None)
