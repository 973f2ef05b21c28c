"""Hooks, their positions, and the order of their rings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf
from typing import Any

import pytest

from kit import agent_for, echo, echo_agent, hello_agent, tool_call, tool_calls_reply
from wick import (  # fmt: skip
    Agent,
    Block,
    Capability,
    Hook,
    ModelCall,
    Operation,
    Run,
    Scripted,
    Step,
    ToolUse,
    after,
    before,
    guard,
    wrap,
)
from wick._internal.aliases import POINT_NAMES
from wick.errors import ConfigError
from wick.hook_checks import POSITIONS
from wick.hooks import Next, order_rings
from wick.operations import OPERATIONS


class Trace:
    """Hooks that write down when they are reached."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def before(self, name: str, operation: Any = ToolUse, **options: Any) -> Hook:
        return before(operation, name=name, **options)(lambda op: self.log.append(f"{name} in"))

    def after(self, name: str, operation: Any = ToolUse, **options: Any) -> Hook:
        return after(operation, name=name, **options)(lambda op: self.log.append(f"{name} out"))

    def guard(self, name: str, operation: Any = ToolUse, **options: Any) -> Hook:
        return guard(operation, name=name, **options)(lambda op: self.log.append(f"{name} gate"))

    def wrap(self, name: str, operation: Any = ToolUse, **options: Any) -> Hook:
        async def around(op: Any, next: Next[Any]) -> Any:
            self.log.append(f"{name} in")
            result = await next(op)
            self.log.append(f"{name} out")
            return result

        return wrap(operation, name=name, **options)(around)


# points


def test_a_points_name_is_derived() -> None:
    hooks = [
        Hook(lambda *args: None, operation, position, timeout=1) if position != "wrap" else wrap(operation)(_around)
        for operation in OPERATIONS
        for position in POSITIONS
    ]
    assert tuple(hook.point for hook in hooks) == POINT_NAMES


async def _around(op: Any, next: Next[Any]) -> Any: ...


def test_a_hook_has_the_name_of_its_function_or_the_given_one() -> None:
    @before(Run)
    async def look(run: Run) -> None: ...

    assert look.name == "look"
    assert before(Run, name="other")(look.fn).name == "other"


def test_hook_repr() -> None:
    @guard(ToolUse, match="execute")
    async def deny(use: ToolUse) -> None: ...

    assert "position='guard', name='deny', match='execute'" in repr(deny)


def test_a_hook_cannot_be_changed() -> None:
    hook = before(Run)(lambda run: None)
    with pytest.raises(AttributeError):
        hook.priority = 3  # type: ignore[misc]


# rule 1: hooks nest; the first in the list is outermost


async def test_the_first_hook_is_outermost_and_has_the_last_word() -> None:
    trace = Trace()
    hooks = [trace.wrap("a"), trace.after("b"), trace.before("c"), trace.wrap("d"), trace.guard("e"), trace.before("f")]
    await echo_agent(*hooks).run("go")
    assert trace.log == ["a in", "c in", "d in", "f in", "e gate", "d out", "b out", "a out"]


async def test_guards_are_innermost_in_any_list_order() -> None:
    trace = Trace()
    await echo_agent(trace.guard("g", priority=inf), trace.before("a"), trace.wrap("b"), trace.guard("h")).run("go")
    assert trace.log == ["a in", "b in", "g gate", "h gate", "b out"]


async def test_priority_moves_a_hook_outward_and_ties_keep_list_order() -> None:
    trace = Trace()
    hooks = [
        trace.before("a"),
        trace.before("b", priority=1),
        trace.before("c", priority=-1),
        trace.before("d", priority=1),
        trace.before("e", priority=2.5),
        trace.before("f"),
    ]
    await echo_agent(*hooks).run("go")
    assert trace.log == [f"{name} in" for name in "ebdafc"]


async def test_priority_moves_a_guard_among_the_guards() -> None:
    trace = Trace()
    await echo_agent(trace.guard("a"), trace.guard("b", priority=1), trace.guard("c")).run("go")
    assert trace.log == ["b gate", "a gate", "c gate"]


def _capability(trace: Trace, name: str, order: Sequence[str] = ("before", "wrap", "after")) -> Any:
    """Return a capability with hooks in that source order."""

    @before(ToolUse)
    async def enter(self: Any, use: ToolUse) -> None:
        trace.log.append(f"{name}.before")

    @after(ToolUse)
    async def leave(self: Any, use: ToolUse) -> None:
        trace.log.append(f"{name}.after")

    @guard(ToolUse)
    async def look(self: Any, use: ToolUse) -> None:
        trace.log.append(f"{name}.guard")

    @wrap(ToolUse)
    async def around(self: Any, use: ToolUse, next: Next[Any]) -> Any:
        trace.log.append(f"{name}.wrap in")
        result = await next(use)
        trace.log.append(f"{name}.wrap out")
        return result

    hooks = {"before": enter, "after": leave, "guard": look, "wrap": around}
    return type(name, (Capability,), {"name": name, **{position: hooks[position] for position in order}})()


@pytest.mark.parametrize("order", [*permutations(("before", "wrap", "after", "guard"))])
async def test_one_capability_is_one_ring_in_any_source_order(order: tuple[str, ...]) -> None:
    trace = Trace()
    hooks = [trace.wrap("outer"), _capability(trace, "cap", order), trace.wrap("inner")]
    await echo_agent(*hooks).run("go")
    assert trace.log == [
        "outer in",
        "cap.wrap in",
        "cap.before",
        "inner in",
        "cap.guard",
        "inner out",
        "cap.wrap out",
        "cap.after",
        "outer out",
    ]


async def test_two_capabilities_are_two_rings() -> None:
    trace = Trace()
    await echo_agent(_capability(trace, "one"), _capability(trace, "two")).run("go")
    assert trace.log == [
        *("one.wrap in", "one.before", "two.wrap in", "two.before"),
        *("two.wrap out", "two.after", "one.wrap out", "one.after"),
    ]


async def test_priority_moves_one_hook_of_a_capability_over_all_capabilities() -> None:
    trace = Trace()

    class Late(Capability):
        @before(ToolUse, priority=1)
        async def first(self, use: ToolUse) -> None:
            trace.log.append("first")

        @before(ToolUse)
        async def last(self, use: ToolUse) -> None:
            trace.log.append("last")

    await echo_agent(_capability(trace, "cap", ("before",)), Late()).run("go")
    assert trace.log == ["first", "cap.before", "last"]


def test_rings_are_those_of_one_operation() -> None:
    one, other, every = (before(kind)(lambda op: None) for kind in (ToolUse, ModelCall, Operation))
    assert order_rings([one, other, every], ToolUse) == [one, every]
    assert order_rings([one, other, every], ModelCall) == [other, every]
    assert order_rings([one, other, every], Run) == [every]


# rule 5: hooks at all four


@pytest.mark.parametrize("decorate", ["before", "wrap", "after", "guard"])
async def test_an_operation_hook_is_at_all_four(decorate: str) -> None:
    seen: list[str] = []

    async def look(op: Operation[Any]) -> None:
        seen.append(op.operation_name)

    async def around(op: Operation[Any], next: Next[Any]) -> Any:
        seen.append(op.operation_name)
        return await next(op)

    make: dict[str, Any] = {"before": before, "wrap": wrap, "after": after, "guard": guard}
    hook = make[decorate](Operation)(around if decorate == "wrap" else look)
    model = Scripted(tool_calls_reply(tool_call()), "done")
    await Agent(model, tools=[echo], hooks=[hook]).run("go")
    if decorate == "after":
        assert seen == ["model_call", "tool_use", "step", "model_call", "step", "run"]
    else:
        assert seen == ["run", "step", "model_call", "tool_use", "step", "model_call"]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_operation_guard_can_block_each_operation(operation: type[Operation[Any]]) -> None:
    @guard(Operation)
    async def deny(op: Operation[Any]) -> Block | None:
        return Block("no") if op.operation_name == operation.operation_name else None

    result = await agent_for(operation, deny).run("go")
    assert result.reason == ("completed" if operation is ToolUse else "blocked: no")


# rule 5: names are unique


def test_two_hooks_with_the_same_name_are_refused() -> None:
    hooks = [before(Run, name="look")(lambda run: None), guard(ToolUse, name="look")(lambda use: None)]
    with pytest.raises(ConfigError, match="two hooks are named 'look'; give one of them another name="):
        Agent(Scripted(spare=True), hooks=hooks)


def test_a_duplicate_hook_is_refused_also_later() -> None:
    hook = before(Run, name="look")(lambda run: None)
    with pytest.raises(ConfigError, match="two hooks are named 'look'"):
        hello_agent(hook).with_hooks(hook)


def test_an_invalid_hook_is_refused() -> None:
    async def look(run: Run) -> None: ...

    with pytest.raises(
        ConfigError, match="look at .* is not a hook: decorate it with @before, @wrap, @after or @guard"
    ):
        Agent(Scripted(spare=True), hooks=[look])  # type: ignore[list-item]


# binding


def test_a_method_is_bound_and_named_after_its_object() -> None:
    class Greets(Capability):
        @before(Run)
        def greet(self, run: Run) -> Any:
            return self

    one = Greets()
    bound = one.greet
    assert (bound.name, bound.owner, bound.fn(None)) == ("greets.greet", one, one)
    assert Greets.greet.name == "greet"


@pytest.mark.parametrize("operation", [Run, Step, ModelCall, ToolUse])
async def test_a_hook_may_be_a_plain_function(operation: Any) -> None:
    seen: list[str] = []

    def look(op):  # type: ignore[no-untyped-def]
        seen.append(op.operation_name)

    make: tuple[Any, ...] = (before, after, guard)
    hooks = [decorate(operation, name=decorate.__name__)(look) for decorate in make]
    await agent_for(operation, *hooks).run("go")
    assert seen[:3] == [operation.operation_name] * 3
