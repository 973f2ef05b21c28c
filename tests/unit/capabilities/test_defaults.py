"""The hooks every agent has, and how to have others."""

from __future__ import annotations

from wick import Agent, Limits, Scripted
from wick.capabilities._defaults import DEFAULTS
from wick.capabilities.retry import Retry
from wick.capabilities.tracing import Tracing


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


def test_a_copy_has_defaults_once() -> None:
    agent = Agent(Scripted()).with_hooks(Limits(steps=3)).with_tools()
    assert [hook.name for hook in agent.hooks].count("limits.check") == 1


def test_the_default_limit_is_25_steps_and_nothing_else() -> None:
    (limits,) = (part for part in DEFAULTS if isinstance(part, Limits))
    assert (limits.steps, limits.tokens, limits.seconds) == (25, None, None)
