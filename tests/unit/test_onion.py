"""The dispatch of an operation: rings, the gate inside them, and the way back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from kit import (
    OperationLog,
    ScriptedUser,
    agent_for,
    collect_events,
    echo,
    echo_agent,
    entry_kinds,
    hello_agent,
    hook_at,
    text_deltas,
    thread_entries,
    tool_agent,
    tool_call,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import (  # fmt: skip  # fmt: skip
    Agent,
    Ask,
    Block,
    Continue,
    FunctionModel,
    Message,
    ModelCall,
    Operation,
    Paused,
    Result,
    Run,
    Scripted,
    Step,
    Stop,
    Thread,
    ToolCall,
    ToolError,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    user,
    wrap,
)
from wick.constants import MAX_CONTINUES
from wick.decisions import DECISIONS
from wick.errors import HookError, ModelError
from wick.hook_checks import POSITIONS, Position, allowed_decisions
from wick.hooks import Next
from wick.messages import ImagePart
from wick.operations import OPERATIONS

Kind = type[Operation[Any]]
POINTS = [(position, operation) for position in POSITIONS for operation in OPERATIONS]


def counted(**options: Any) -> tuple[list[str], Any]:
    """A tool named echo, and the texts it was really used with."""
    ran: list[str] = []

    @tool(name="echo", **options)
    async def fn(text: str, times: int = 1) -> str:
        ran.append(text)
        return text * times

    return ran, fn


# rule 2: a decision ends the operation there; outer rings still see the result


@pytest.mark.parametrize("decision", [Block("no"), Stop("enough")])
async def test_a_before_that_decides_ends_the_operation_there(decision: Block | Stop) -> None:
    seen: list[str] = []
    ran, tool = counted()
    hooks = [
        after(ToolUse, name="outside")(lambda use: seen.append(f"outside {use.result.error}")),
        before(ToolUse, name="outer")(lambda use: seen.append("outer")),
        before(ToolUse, name="decide")(lambda use: decision),
        after(ToolUse, name="inside")(lambda use: seen.append("inside")),
        before(ToolUse, name="inner")(lambda use: seen.append("inner")),
        guard(ToolUse, name="gate")(lambda use: seen.append("gate")),
    ]
    await echo_agent(*hooks, tools=[tool]).run("go")
    assert seen == ["outer", f"outside {decision.reason}"]
    assert ran == []


async def test_the_outer_ring_has_the_last_word_about_a_result() -> None:
    @after(ToolUse)
    async def outer(use: ToolUse) -> None:
        use.result.output = f"<{use.result.output}>"

    @wrap(ToolUse)
    async def middle(use: ToolUse, next: Next[Any]) -> str:
        return f"[{(await next(use)).output}]"

    @after(ToolUse)
    async def inner(use: ToolUse) -> None:
        use.result = ToolResult(f"({use.result.output})")

    assert tool_result(await echo_agent(outer, middle, inner).run("go")) == "<[(hi)]>"


async def test_an_outer_ring_may_replace_an_inner_block() -> None:
    @after(ToolUse)
    async def soften(use: ToolUse) -> None:
        use.result = ToolResult(f"sorry: {use.result.error}")

    assert (
        tool_result(await echo_agent(soften, before(ToolUse, name="no")(lambda use: Block("no"))).run("go"))
        == "sorry: no"
    )


# rule 3: visibility of changes


async def test_a_before_changes_the_operation_for_inner_rings() -> None:
    seen: dict[str, Any] = {}

    @before(ToolUse)
    async def change(use: ToolUse) -> None:
        use.args["text"] = "changed"

    def look(name: str) -> Callable[[Any], None]:
        return lambda use: seen.__setitem__(name, use.args["text"])

    hooks = [
        before(ToolUse, name="outer")(look("outer")),
        change,
        before(ToolUse, name="inner")(look("inner")),
        guard(ToolUse, name="gate")(look("gate")),
    ]
    result = await echo_agent(*hooks).run("go")
    assert seen == {"outer": "hi", "inner": "changed", "gate": "changed"}
    assert tool_result(result) == "changed"
    assert result.messages[1].tool_calls[0].args == {"text": "hi"}  # the model's message is unchanged


async def test_a_changed_copy_of_a_wrap_reaches_inner_rings_only() -> None:
    seen: dict[str, Any] = {}

    @wrap(ToolUse)
    async def change(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use.fork(args={"text": "changed"}))
        seen["own"] = use.args["text"]
        return result

    @before(ToolUse)
    async def inner(use: ToolUse) -> None:
        seen["inner"] = use.args["text"]
        use.args["text"] += " again"

    @after(ToolUse)
    async def outer(use: ToolUse) -> None:
        seen["outer"] = use.args["text"]

    result = await echo_agent(outer, change, inner).run("go")
    assert seen == {"inner": "changed", "own": "hi", "outer": "hi"}
    assert tool_result(result) == "changed again"


@pytest.mark.parametrize(
    "copy", [lambda use: replace(use, args={"text": "x"}), lambda use: use.fork(args={"text": "x"})]
)
async def test_a_copy_may_be_made_in_any_way(copy: Callable[[ToolUse], ToolUse]) -> None:
    @wrap(ToolUse)
    async def change(use: ToolUse, next: Next[Any]) -> Any:
        return await next(copy(use))

    assert tool_result(await echo_agent(change).run("go")) == "x"


async def test_a_changed_copy_of_a_run_reaches_its_steps() -> None:
    @wrap(Run)
    async def change(run: Run, next: Next[Any]) -> Any:
        return await next(run.fork(system="be brief", tools={}, settings={"temperature": 0}))

    model = Scripted("ok")
    await Agent(model, system="be kind", tools=[echo], hooks=[change]).run("hi")
    request = model.requests[0]
    assert (request.system, request.tools, request.settings) == ("be brief", (), {"temperature": 0})


async def test_a_changed_copy_of_a_model_call_reaches_the_model_alone() -> None:
    other = Scripted("from the other", name="other")

    @wrap(ModelCall)
    async def change(call: ModelCall, next: Next[Any]) -> Any:
        return await next(call.fork(model=other, messages=[user("something else")]))

    result = await hello_agent(change).run("hi")
    assert [message.text for message in other.requests[0].messages] == ["something else"]
    assert [message.text for message in result.messages] == ["hi", "from the other"]


async def test_hooks_see_plain_json_and_the_tool_gets_its_types() -> None:
    got: list[Any] = []
    watch = OperationLog()

    @tool
    async def book(day: date, guests: set[int]) -> str:
        got.append((day, guests))
        return "booked"

    args = {"day": "2024-05-01", "guests": [1, 2]}
    await tool_agent(book, before(ToolUse, name="watch")(watch), args=args).run("go")
    assert watch.op.args == args
    assert got == [(date(2024, 5, 1), {1, 2})]


# rule 4: which decision where, when the annotation does not show it


async def _decided(
    position: Position, operation: Kind, decision: Any
) -> tuple[Result | None, Exception | None, ScriptedUser]:
    user = ScriptedUser(True)
    agent = agent_for(operation, hook_at(position, operation, decision), ask=user)
    try:
        return await agent.run("go"), None, user
    except HookError as error:
        return None, error, user


@pytest.mark.parametrize(("position", "operation"), POINTS)
async def test_block_is_possible_at_any_point(position: Position, operation: Kind) -> None:
    result, _, _ = await _decided(position, operation, Block("no"))
    assert result is not None
    if operation is ToolUse:
        assert (result.outcome, tool_result(result), result.text) == ("completed", "no", "done")
    else:
        assert (result.outcome, result.reason) == ("stopped", "blocked: no")


@pytest.mark.parametrize(("position", "operation"), POINTS)
async def test_ask_is_possible_before_around_and_at_the_gate(position: Position, operation: Kind) -> None:
    result, error, user = await _decided(position, operation, Ask("sure?"))
    if position == "after":
        _refused(result, error, operation, position)
        assert user.questions == []
    else:
        assert result is not None and result.outcome == "completed"
        assert user.question.op.name == operation.name


@pytest.mark.parametrize(("position", "operation"), POINTS)
async def test_stop_is_possible_anywhere_but_after_a_run(position: Position, operation: Kind) -> None:
    result, error, _ = await _decided(position, operation, Stop("enough"))
    if (position, operation) == ("after", Run):
        _refused(result, error, operation, position)
    else:
        assert result is not None
        assert (result.outcome, result.reason) == ("stopped", "stop requested: enough")


@pytest.mark.parametrize(("position", "operation"), POINTS)
async def test_continue_is_possible_after_a_step_only(position: Position, operation: Kind) -> None:
    result, error, _ = await _decided(position, operation, Continue("more"))
    if (position, operation) == ("after", Step):
        assert result is not None and result.outcome == "completed"
        assert [message.text for message in result.messages] == ["go", *["hello", "more"] * MAX_CONTINUES, "hello"]
    else:
        _refused(result, error, operation, position)


def _refused(result: Result | None, error: Exception | None, operation: Kind, position: str) -> None:
    """An invalid return value is a failure of the hook; its effect depends on the position."""
    if position == "guard":
        assert result is not None
        said = tool_result(result) if operation is ToolUse else result.reason
        assert "failed, so it has not agreed: HookError" in said
    elif position == "after" and operation is Run:
        assert result is not None and result.outcome == "completed"
        assert thread_entries(result.thread, "decision")[-1]["verdict"] == "failed"
    elif position == "after" and operation is ToolUse:
        assert result is not None
        assert tool_result(result) == "the result was withheld: the hook 'the_hook' failed: HookError"
    else:
        assert result is None
        assert isinstance(error, HookError)


@pytest.mark.parametrize("answer", ["text", 3, False, {}, ToolResult("x"), Block])
@pytest.mark.parametrize("position", ["before", "guard"])
async def test_an_answer_that_is_no_decision_is_refused(position: Position, answer: Any) -> None:
    result, error, _ = await _decided(position, ToolUse, answer)
    if position == "before":
        assert error is not None
        assert str(error).endswith("at before_tool_use; return None to continue, or Block(…) or Ask(…) or Stop(…)")
    else:
        _refused(result, error, ToolUse, position)


@pytest.mark.parametrize(("position", "operation"), [point for point in POINTS if point[1] is not ToolUse])
async def test_a_block_of_anything_but_a_tool_use_adds_no_assistant_message(
    position: Position, operation: Kind
) -> None:
    result, _, _ = await _decided(position, operation, Block("no"))
    assert result is not None and result.thread is not None
    said = [message for message in result.thread.messages if message.role == "assistant"]
    too_late = (operation is Run or operation is Step) and position == "after"
    assert [message.text for message in said] == (["hello"] if too_late else [])


def test_the_matrix_is_complete() -> None:
    assert len(POINTS) * len(DECISIONS) == 64
    assert sum(len(allowed_decisions(position, operation.name)) for position, operation in POINTS) == 16 + 12 + 15 + 1


# rule 6: arguments are validated before the first hook, and again when sealed


async def test_arguments_are_coerced_completed_and_renamed_before_the_first_hook() -> None:
    watch = OperationLog()

    @tool(name="read_file")
    async def read(path: str, lines: int = 10) -> str:
        return path

    args = {"file_path": "a.txt", "lines": "3"}
    await tool_agent(read, before(ToolUse, name="watch")(watch), args=args).run("go")
    assert watch.op.args == {"path": "a.txt", "lines": 3}


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (tool_call("gone"), "there is no tool named 'gone'; the tools are echo"),
        (tool_call(text=3.5), "echo: text"),
        (tool_call(nonsense=1), "echo: "),
        (ToolCall("c1", "echo", {}, invalid="the arguments are not valid JSON"), "the arguments are not valid JSON"),
    ],
)
async def test_an_invalid_call_skips_to_after(bad: ToolCall, error: str) -> None:
    inside, outside = OperationLog(), OperationLog()

    @wrap(ToolUse)
    async def around(use: ToolUse, next: Next[Any]) -> Any:
        inside(use)
        return await next(use)

    hooks = [
        after(ToolUse, name="after")(outside),
        before(ToolUse, name="before")(inside),
        around,
        guard(ToolUse, name="guard")(inside),
    ]
    ran, tool = counted()
    thread = Thread()
    thread.add(user("go"), tool_calls_reply(bad))
    await Agent(Scripted("done"), tools=[tool], hooks=hooks).run(thread=thread)
    assert (inside.ops, ran) == ([], [])
    assert outside.op.result.error.startswith(error)
    assert thread.messages[2].text.startswith(error)
    assert entry_kinds(thread, "intent", "done") == []


async def test_arguments_that_a_hook_made_invalid_are_refused_when_sealed() -> None:
    outside, gate = OperationLog(), OperationLog()

    @before(ToolUse)
    async def spoil(use: ToolUse) -> None:
        use.args["text"] = object()

    ran, tool = counted()
    hooks = [after(ToolUse, name="out")(outside), spoil, guard(ToolUse, name="gate")(gate)]
    result = await echo_agent(*hooks, tools=[tool]).run("go")
    assert (ran, gate.ops, result.text) == ([], [], "done")
    assert outside.op.result.error == tool_result(result)
    assert tool_result(result).startswith("echo: ")


async def test_arguments_that_a_hook_changed_are_coerced_when_sealed() -> None:
    gate = OperationLog()

    @before(ToolUse)
    async def change(use: ToolUse) -> None:
        use.args["times"] = "2"

    assert tool_result(await echo_agent(change, guard(ToolUse, name="gate")(gate)).run("go")) == "hihi"
    assert gate.op.args["times"] == 2


# rule 8: every guard sees the sealed operation


async def test_every_guard_sees_the_same_sealed_operation() -> None:
    watch = OperationLog()

    @wrap(ToolUse)
    async def change(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use.fork(args={"text": "final"}))

    hooks = [
        guard(ToolUse, name="one")(watch),
        guard(ToolUse, name="two")(watch),
        change,
        guard(Operation, match=lambda op: isinstance(op, ToolUse), name="three")(watch),
    ]
    await echo_agent(*hooks).run("go")
    one, two, three = watch.ops
    assert one.hash == two.hash == three.hash and one.args == two.args == three.args
    assert one.args is not two.args is not three.args  # a guard that writes past the lock changes its own view alone
    assert one.args == {"text": "final", "times": 1}


async def test_every_guard_is_consulted_even_after_a_block() -> None:
    watch = OperationLog()
    deny = guard(ToolUse, name="deny")(lambda use: Block("no"))
    await echo_agent(deny, guard(ToolUse, name="late")(watch)).run("go")
    assert len(watch.ops) == 1


async def test_of_two_blocks_the_first_reason_wins() -> None:
    hooks = [guard(ToolUse, name=name)(lambda use, name=name: Block(name)) for name in ("one", "two")]
    assert tool_result(await echo_agent(*hooks).run("go")) == "one"


@pytest.mark.parametrize("order", [1, -1])
async def test_a_stop_is_kept_beside_a_block(order: int) -> None:
    ran, tool = counted()
    hooks = [
        guard(ToolUse, name="block")(lambda use: Block("no")),
        guard(ToolUse, name="stop")(lambda use: Stop("enough")),
    ]
    result = await echo_agent(*hooks[::order], tools=[tool]).run("go")
    assert (result.reason, ran) == ("stop requested: enough", [])


# rule 9: a guard that does not agree


async def test_a_guard_that_raises_has_not_agreed() -> None:
    @guard(ToolUse)
    async def broken(use: ToolUse) -> None:
        raise KeyError("table")

    ran, tool = counted()
    text = tool_result(await echo_agent(broken, tools=[tool]).run("go"))
    assert text == "the guard 'broken' failed, so it has not agreed: KeyError: 'table'"
    assert ran == []


async def test_a_guard_that_does_not_answer_in_time_has_not_agreed() -> None:
    @guard(ToolUse, timeout=0.01)
    async def asleep(use: ToolUse) -> None:
        await asyncio.Event().wait()

    text = tool_result(await echo_agent(asleep).run("go"))
    assert "TimeoutError: the hook 'asleep' did not finish within 0.01 s" in text


async def test_a_guard_that_cancels_itself_has_not_agreed() -> None:
    @guard(ToolUse)
    async def cancel(use: ToolUse) -> None:
        raise asyncio.CancelledError

    assert "was cancelled from within" in tool_result(await echo_agent(cancel).run("go"))


@pytest.mark.parametrize("operation", [Run, Step, ModelCall])
async def test_a_guard_that_fails_blocks_every_kind_of_operation(operation: Kind) -> None:
    def broken(op: Any) -> None:
        raise RuntimeError("oh")

    result = await hello_agent(guard(operation)(broken)).run("go")
    assert result.reason == "blocked: the guard 'broken' failed, so it has not agreed: RuntimeError: oh"


@pytest.mark.parametrize("said", [Block("no"), Stop("no"), Ask("no?"), "nonsense", RuntimeError("no")])
async def test_a_shadow_guard_is_recorded_and_does_not_count(said: Any) -> None:
    watch, user = OperationLog(), ScriptedUser(False)

    def speak(use: ToolUse) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    shadow = guard(ToolUse, name="shadow", shadow=True)(speak)
    result = await echo_agent(after(ToolUse, name="watch")(watch), shadow, ask=user).run("go")
    assert (result.outcome, tool_result(result), user.questions) == ("completed", "hi", [])
    (row,) = [why for why in watch.op.why if why.hook == "shadow"]
    assert row.shadow and row.verdict in ("block", "stop", "ask", "failed")


# rule 10: hooks above children


def _delegate(child: Agent, **options: Any) -> Any:
    @tool(name="delegate", **options)
    async def delegate(text: str, run: Run) -> str:
        return (await child.run(text, parent=run)).text

    return delegate


def _family(parents: list[Any], childs: list[Any] | None = None, **options: Any) -> tuple[Agent, Any]:
    """An agent with a child that echoes; and the texts that the child's tool was used with."""
    ran, tool = counted()
    child = Agent(
        Scripted(tool_calls_reply(tool_call(text="deep")), "child done", spare=True),
        name="child",
        tools=[tool],
        hooks=childs or [],
    )
    parent = Agent(
        Scripted(tool_calls_reply(tool_call("delegate")), "done", spare=True),
        tools=[_delegate(child)],
        hooks=parents,
        **options,
    )
    return parent, ran


async def test_a_child_is_under_every_guard_of_its_ancestors() -> None:
    deny = guard(ToolUse, name="deny")(lambda use: Block("no") if use.call.name == "echo" else None)
    parent, ran = _family([deny])
    assert tool_results(await parent.run("go")) == ["child done"]
    assert ran == []
    grand = Agent(
        Scripted(tool_calls_reply(tool_call("delegate")), "done"), tools=[_delegate(_family([])[0])], hooks=[deny]
    )
    assert tool_results(await grand.run("go")) == ["done"]


@pytest.mark.parametrize("operation", [Run, Step, ModelCall])
async def test_a_childs_run_steps_and_model_calls_are_guarded_from_above(operation: Kind) -> None:
    @guard(operation)
    async def deny(op: Operation[Any]) -> Block | None:
        return Block("not below") if op.run.depth else None

    parent, ran = _family([deny])
    assert tool_results(await parent.run("go")) == [""]
    assert ran == []


async def test_a_child_may_be_stricter_never_looser() -> None:
    above = guard(ToolUse, name="above")(lambda use: Block("above") if use.args.get("text") == "deep" else None)
    below = guard(ToolUse, name="below")(lambda use: Block("below"))
    for parents, childs in ([above], []), ([], [below]), ([above], [below]):
        parent, ran = _family(parents, childs)
        await parent.run("go")
        assert ran == []


async def test_a_child_with_a_guard_of_the_same_name_does_not_replace_the_one_above() -> None:
    deny = guard(ToolUse, name="policy")(lambda use: Block("no") if use.call.name == "echo" else None)
    allow = guard(ToolUse, name="policy")(lambda use: None)
    parent, ran = _family([deny], [allow])
    await parent.run("go")
    assert ran == []


@pytest.mark.parametrize("inherit", [True, False])
async def test_inherited_before_and_after_reach_children(inherit: bool) -> None:
    seen: list[str] = []

    @before(ToolUse, inherit=inherit)
    async def look(use: ToolUse) -> None:
        seen.append(f"in {use.call.name}")

    @after(ToolUse, inherit=inherit)
    async def redact(use: ToolUse) -> None:
        seen.append(f"out {use.call.name}")

    await _family([look, redact])[0].run("go")
    inner = ["in echo", "out echo"] if inherit else []
    assert seen == ["in delegate", *inner, "out delegate"]


async def test_inherited_hooks_are_outside_of_the_childs_own_and_reach_grandchildren() -> None:
    seen: list[str] = []
    above = after(ToolUse, inherit=True, name="above")(lambda use: seen.append(f"above {use.call.name}"))
    own = after(ToolUse, name="own")(lambda use: seen.append(f"own {use.call.name}"))
    parent, _ = _family([], [own])
    root = Agent(Scripted(tool_calls_reply(tool_call("delegate")), "done"), tools=[_delegate(parent)], hooks=[above])
    await root.run("go")
    assert seen == ["own echo", "above echo", "above delegate", "above delegate"]


async def test_a_child_has_the_user_and_the_budget_of_its_parent() -> None:
    watch = OperationLog()
    parent, _ = _family([guard(Run, name="watch")(watch)])
    result = await parent.run("go", user="ada")
    above, below = watch.ops
    assert (below.user, below.depth, above.depth) == ("ada", 1, 0)
    assert below.parent.id == above.id
    assert result.usage.output_tokens >= below.usage.output_tokens > 0


async def test_a_resumed_run_is_under_its_guards() -> None:
    thread = Thread()
    deny = guard(ToolUse, name="deny")(lambda use: Block("no"))
    await echo_agent(hook_at("guard", ToolUse, Ask("?")), ask=ScriptedUser(Paused("later"))).run("go", thread=thread)
    await echo_agent(deny, hook_at("guard", ToolUse, None)).run(thread=thread)
    assert thread.messages[2].text == "no"


# rule 12: each `next` is an attempt


async def test_each_next_is_sealed_guarded_and_logged_with_its_own_intent() -> None:
    gate = OperationLog()

    @wrap(ToolUse)
    async def thrice(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        await next(use.fork(args={"text": "b"}))
        return await next(use)

    result = await echo_agent(thrice, guard(ToolUse, name="gate")(gate)).run("go")
    assert [op.args["text"] for op in gate.ops] == ["hi", "b", "hi"]
    intents = thread_entries(result.thread, "intent")
    assert [(row["call"], row["attempt"]) for row in intents] == [("c1", 1), ("c1", 2), ("c1", 3)]
    assert [row["hash"] for row in intents] == [op.hash for op in gate.ops]
    assert len({row["key"] for row in intents}) == 1
    ends = thread_entries(result.thread, "done")
    assert [(row["attempt"], row["ended"]) for row in ends] == [(1, "done"), (2, "done"), (3, "done")]


async def test_a_wrap_may_call_next_not_at_all() -> None:
    @wrap(ToolUse)
    async def cached(use: ToolUse, next: Next[Any]) -> str:
        return "from the cache"

    ran, tool = counted()
    result = await echo_agent(cached, tools=[tool]).run("go")
    assert (tool_result(result), ran) == ("from the cache", [])
    assert thread_entries(result.thread, "intent") == []


async def test_next_without_an_argument_passes_the_operation() -> None:
    @wrap(ToolUse)
    async def plain(use: ToolUse, next: Any) -> Any:
        use.args["text"] = "mine"
        return await next()

    assert tool_result(await echo_agent(plain).run("go")) == "mine"


@pytest.mark.parametrize("wrong", ["text", None.__class__, Thread(), 3])
async def test_next_with_something_else_is_refused(wrong: Any) -> None:
    @wrap(ToolUse)
    async def bad(use: ToolUse, next: Next[Any]) -> Any:
        return await next(wrong)

    ran, tool = counted()
    with pytest.raises(HookError, match="next takes the tool_use that the hook was given, or a copy of it, not"):
        await echo_agent(bad, tools=[tool]).run("go")
    assert ran == []


async def test_next_with_another_kind_of_operation_is_refused() -> None:
    @wrap(ToolUse)
    async def bad(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use.run)

    with pytest.raises(HookError, match="next takes the tool_use"):
        await echo_agent(bad).run("go")


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_wrap_that_returns_nothing_is_refused(operation: Kind) -> None:
    @wrap(operation)
    async def forget(op: Operation[Any], next: Next[Any]) -> None:
        await next(op)

    with pytest.raises(HookError, match=r"result (must be|is)"):
        await agent_for(operation, forget).run("go")


@pytest.mark.parametrize(
    ("operation", "made"),
    [(Run, "made up"), (Run, Result("made up")), (ModelCall, "made up"), (ModelCall, Message("assistant", "made up"))],
)
async def test_a_wrap_may_make_a_result_of_its_own(operation: Kind, made: Any) -> None:
    assert (await hello_agent(hook_at("wrap", operation, made)).run("hi")).text == "made up"


@pytest.mark.parametrize(
    ("operation", "made"),
    [(Run, 3), (Step, "text"), (ModelCall, user("hi")), (ModelCall, 3), (ToolUse, 3), (ToolUse, {"output": "x"})],
)
async def test_a_result_that_cannot_be_one_is_refused(operation: Kind, made: Any) -> None:
    with pytest.raises(HookError, match="result"):
        await agent_for(operation, hook_at("wrap", operation, made)).run("hi")


async def test_the_result_of_an_earlier_attempt_may_be_returned() -> None:
    picture = ImagePart(data="aGk=")

    @tool(idempotent=True)
    async def photo(text: str, use: ToolUse) -> ToolResult:
        return ToolResult(f"photo {use.attempt}", data={"same": 1}, parts=(picture,))

    @wrap(ToolUse)
    async def first(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use)
        await next(use)
        return result

    @wrap(Step)
    async def two(step: Step, next: Next[Any]) -> Any:
        result = await next(step)
        return result if isinstance(result, Continue) else await next(step) and result

    watch = OperationLog()
    model = Scripted(tool_calls_reply(tool_call("photo")), "a", "b")
    result = await Agent(model, tools=[photo], hooks=[two, after(ToolUse, name="w")(watch), first]).run("go")
    assert result.outcome == "completed"
    given = watch.op.result
    assert (given.output, given.data, given.parts) == ("photo 1", {"same": 1}, (picture,))


@pytest.mark.parametrize(
    ("options", "attempts"),
    [({}, 1), ({"idempotent": True}, 2), ({"read_only": True}, 2)],
)
async def test_a_tool_that_is_not_idempotent_refuses_a_second_attempt_after_a_success(
    options: dict[str, bool], attempts: int
) -> None:
    @wrap(ToolUse)
    async def twice(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        return await next(use)

    ran, tool = counted(**options)
    result = await echo_agent(twice, tools=[tool]).run("go")
    assert len(ran) == len(thread_entries(result.thread, "intent")) == attempts
    if attempts == 1:
        assert (
            tool_result(result) == "echo has already run for this call; it is not idempotent, so it does not run again"
        )


@pytest.mark.parametrize("idempotent", [True, False])
async def test_after_a_failure_there_may_be_another_attempt(idempotent: bool) -> None:
    tries: list[int] = []

    @tool(idempotent=idempotent)
    async def flaky(text: str, use: ToolUse) -> str:
        tries.append(use.attempt)
        if len(tries) == 1:
            raise ToolError("not yet")
        return "there"

    @wrap(ToolUse)
    async def retry(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use)
        return await next(use) if result.error else result

    assert tool_result(await tool_agent(flaky, retry).run("go")) == "there"
    assert tries == [1, 2]


async def test_after_an_unknown_a_tool_that_is_not_idempotent_refuses_another_attempt() -> None:
    tries: list[int] = []

    @tool(timeout=0.01)
    async def slow(text: str, use: ToolUse) -> str:
        tries.append(use.attempt)
        await asyncio.Event().wait()
        return "never"

    @wrap(ToolUse)
    async def retry(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        return await next(use)

    text = tool_result(await tool_agent(slow, retry).run("go"))
    assert text.startswith("slow was started before, and may have taken effect for this call; it is not idempotent")
    assert tries == [1]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_hedged_attempts_run_side_by_side_if_that_is_safe(idempotent: bool) -> None:
    started: list[int] = []
    both = asyncio.Event()

    @tool(idempotent=idempotent)
    async def race(text: str, use: ToolUse) -> str:
        started.append(use.attempt)
        if idempotent and len(started) < 2:
            await both.wait()
        both.set()
        return "done"

    @wrap(ToolUse)
    async def hedge(use: ToolUse, next: Next[Any]) -> Any:
        one, other = await asyncio.gather(next(use), next(use))
        return one if not one.error else other

    result = await tool_agent(race, hedge).run("go")
    assert tool_result(result) == "done"
    assert started == ([1, 2] if idempotent else [1])
    attempts = [row["attempt"] for row in thread_entries(result.thread, "intent")]
    assert attempts == started
    assert sorted(row["attempt"] for row in thread_entries(result.thread, "done")) == started


async def test_a_model_call_may_be_tried_again() -> None:
    @wrap(ModelCall)
    async def retry(call: ModelCall, next: Next[Any]) -> Any:
        try:
            return await next(call)
        except ModelError:
            return await next(call)

    assert (await Agent(Scripted(ModelError("busy"), "hello"), hooks=[retry]).run("hi")).text == "hello"


# rule 14: hooks that fail


@pytest.mark.parametrize("position", ["before", "wrap"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_failing_before_or_wrap_fails_its_operation(operation: Kind, position: Position) -> None:
    async def boom(*args: Any) -> None:
        raise LookupError("lost")

    hook = hook_at(position, operation, None)
    agent = agent_for(operation, replace(hook, fn=boom))
    seen = await collect_events(agent)
    assert [event.event for event in seen if event.terminal] == ["error"]
    with pytest.raises(LookupError, match="lost"):
        await agent_for(operation, replace(hook, fn=boom)).run("go")


async def test_a_failing_before_can_be_replaced_by_an_outer_ring() -> None:
    @after(ToolUse)
    async def heal(use: ToolUse) -> None:
        use.result = ToolResult(f"healed {type(use.error).__name__}")

    @before(ToolUse)
    async def boom(use: ToolUse) -> None:
        raise LookupError("lost")

    assert tool_result(await echo_agent(heal, boom).run("go")) == "healed LookupError"


async def test_a_failing_after_withholds_a_tools_result() -> None:
    @after(ToolUse)
    async def redact(use: ToolUse) -> None:
        raise LookupError(f"cannot redact {use.result.output}")

    thread = Thread()
    result = await echo_agent(redact).run("the secret", thread=thread)
    assert tool_result(result) == "the result was withheld: the hook 'redact' failed: LookupError"
    assert result.text == "done"
    rows = [str(entry.to_json()) for entry in thread.entries if entry.kind in ("decision", "done")]
    assert rows and not any("hi" in row.replace("which", "") for row in rows)


@pytest.mark.parametrize("operation", [ModelCall, Step])
async def test_a_failing_after_withholds_a_reply_and_fails_the_run(operation: Any) -> None:
    def redact(op: Any) -> None:
        raise LookupError("the secret")

    thread = Thread()
    with pytest.raises(HookError, match="^the result was withheld: the hook 'redact' failed: LookupError$"):
        await hello_agent(after(operation)(redact)).run("hi", thread=thread)
    if operation is ModelCall:
        assert [message.role for message in thread.messages] == ["user"]


async def test_a_failing_after_a_run_is_only_logged() -> None:
    def boom(run: Any) -> None:
        raise LookupError("lost")

    result = await hello_agent(after(Run)(boom)).run("hi")
    assert (result.outcome, result.text) == ("completed", "hello")
    assert thread_entries(result.thread, "decision")[0]["verdict"] == "failed"


async def test_a_failing_after_a_failed_run_leaves_its_error() -> None:
    def boom(run: Any) -> None:
        raise LookupError("lost")

    with pytest.raises(ModelError, match="down"):
        await Agent(Scripted(ModelError("down")), hooks=[after(Run)(boom)]).run("hi")


async def test_a_hook_that_takes_too_long_fails() -> None:
    @before(ToolUse, timeout=0.01)
    async def asleep(use: ToolUse) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="the hook 'asleep' did not finish within 0.01 s"):
        await echo_agent(asleep).run("go")


# rule 14: with on_error="log" the edits of a failed hook are undone


async def test_the_edits_of_a_failed_before_are_undone() -> None:
    @before(ToolUse, on_error="log")
    async def change(use: ToolUse) -> None:
        use.args["text"] = "half done"
        use.args["new"] = True
        raise LookupError

    @before(ToolUse, on_error="log")
    async def replace_all(use: ToolUse) -> None:
        use.args = {"text": "other"}
        raise LookupError

    assert tool_result(await echo_agent(change, replace_all).run("go")) == "hi"


@pytest.mark.parametrize("operation", [Run, ModelCall])
async def test_the_edits_of_a_failed_before_are_undone_at_every_field(operation: Any) -> None:
    @before(operation, on_error="log")
    async def change(op: Any) -> None:
        op.system = "half done"
        op.settings["extra"]["deep"].append(1)
        op.settings["temperature"] = 1
        op.model = Scripted("other", spare=True)
        op.tools.clear()
        if operation is Run:
            op.input.append(user("more"))
            op.user = "eve"
        else:
            op.messages.append(user("more"))
        raise LookupError

    model = Scripted("ok")
    agent = Agent(model, system="be kind", tools=[echo], settings={"extra": {"deep": []}}, hooks=[change])
    watch = OperationLog()
    result = await agent.with_hooks(guard(Run, name="watch")(watch)).run("hi", user="ada")
    (request,) = model.requests
    assert (request.system, request.settings, request.tools) == ("be kind", {"extra": {"deep": []}}, (echo,))
    assert [message.text for message in request.messages] == ["hi"]
    assert (watch.op.user, result.text) == ("ada", "ok")


async def test_a_tool_that_a_failed_before_swapped_is_swapped_back() -> None:
    @before(ToolUse, on_error="log")
    async def swap(use: ToolUse) -> None:
        use.tool = echo.renamed("other")
        raise LookupError

    gate = OperationLog()
    await echo_agent(swap, guard(ToolUse, name="gate")(gate)).run("go")
    assert gate.op.tool is echo


async def test_a_discarded_decision_of_a_before_is_ignored() -> None:
    @before(ToolUse, on_error="log")
    async def wrong(use: ToolUse) -> Any:
        use.args["text"] = "half done"
        return "nonsense"

    assert tool_result(await echo_agent(wrong).run("go")) == "hi"


async def test_the_edits_of_a_wrap_that_fails_before_next_are_undone() -> None:
    @wrap(ToolUse, on_error="log")
    async def boom(use: ToolUse, next: Next[Any]) -> Any:
        use.args["text"] = "half done"
        use.asks = ()
        raise LookupError

    user = ScriptedUser(True)
    result = await echo_agent(hook_at("before", ToolUse, Ask("?")), boom, ask=user).run("go")
    assert (tool_result(result), len(user.questions)) == ("hi", 1)


async def test_the_edits_of_a_wrap_that_fails_after_next_are_undone_and_nothing_is_done_twice() -> None:
    @wrap(ToolUse, on_error="log")
    async def boom(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use)
        result.output = "half done"
        raise LookupError

    ran, tool = counted(idempotent=True)
    assert tool_result(await echo_agent(boom, tools=[tool]).run("go")) == "hi"
    assert ran == ["hi"]


async def test_an_error_of_the_operation_itself_is_not_the_wraps_failure() -> None:
    @wrap(ToolUse, on_error="log")
    async def around(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use)

    @before(ToolUse)
    async def boom(use: ToolUse) -> None:
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        await echo_agent(around, boom).run("go")


async def test_the_edits_of_a_failed_after_are_undone() -> None:
    @tool(name="echo")
    async def rich(text: str) -> ToolResult:
        return ToolResult(text, data={"rows": [1]})

    @after(ToolUse, on_error="log")
    async def boom(use: ToolUse) -> None:
        use.result.output = "half done"
        use.result.error = "half done"
        use.result.data["rows"].append(2)
        raise LookupError

    @after(ToolUse, on_error="log")
    async def boom_too(use: ToolUse) -> None:
        use.result = ToolResult("half done")
        use.error = ValueError()
        raise LookupError

    watch = OperationLog()
    result = await echo_agent(after(ToolUse, name="watch")(watch), boom_too, boom, tools=[rich]).run("go")
    assert (tool_result(result), watch.op.result.data, watch.op.error) == ("hi", {"rows": [1]}, None)


async def test_a_failed_log_only_after_keeps_the_error() -> None:
    @after(ModelCall, on_error="log")
    async def boom(call: ModelCall) -> None:
        call.result = Message("assistant", "half healed")
        raise LookupError

    with pytest.raises(ModelError, match="down"):
        await Agent(Scripted(ModelError("down")), hooks=[boom]).run("hi")


async def test_a_failed_hook_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @before(ToolUse, on_error="log")
    async def boom(use: ToolUse) -> None:
        raise LookupError("lost")

    with caplog.at_level(logging.WARNING, "wick"):
        await echo_agent(boom).run("go")
    assert "the hook boom failed at before_tool_use" in caplog.text


# rule 15: after runs for results and for errors


async def test_after_sees_an_error_and_may_replace_it() -> None:
    seen: list[Any] = []

    @after(ModelCall)
    async def heal(call: ModelCall) -> None:
        seen.append((call.result, str(call.error)))
        call.result = "healed"  # type: ignore[assignment]

    result = await Agent(Scripted(ModelError("down")), hooks=[heal]).run("hi")
    assert seen == [(None, "down")]
    assert (result.outcome, result.text) == ("completed", "healed")


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_after_runs_for_a_result_and_for_an_error(operation: Kind) -> None:
    watch = OperationLog()

    def boom(op: Any) -> None:
        raise LookupError("lost")

    await agent_for(operation, after(operation, name="watch")(watch)).run("go")
    assert watch.ops[0].result is not None and watch.ops[0].error is None
    seen: list[Any] = []

    def look(op: Any) -> None:
        seen.append((op.result, type(op.error)))

    with pytest.raises(LookupError):
        hooks = [after(operation, name="watch")(look), before(operation, name="boom")(boom)]
        await agent_for(operation, *hooks).run("go")
    assert seen == [(None, LookupError)]


async def test_a_failed_run_may_be_healed_with_a_text() -> None:
    @after(Run)
    async def heal(run: Run) -> None:
        run.result = "all is well"  # type: ignore[assignment]

    result = await Agent(Scripted(ModelError("down")), hooks=[heal]).run("hi")
    assert (result.text, result.outcome) == ("all is well", "completed")


@pytest.mark.parametrize("verdict", [Continue("again"), Stop("enough")])
async def test_a_failed_step_is_healed_by_another_or_by_the_end(verdict: Stop | Continue) -> None:
    @after(Step)
    async def heal(step: Step) -> None:
        if step.error is not None:
            step.result = verdict

    result = await Agent(Scripted(ModelError("down"), "hello", spare=True), hooks=[heal]).run("hi")
    if isinstance(verdict, Continue):
        assert (result.outcome, result.text) == ("completed", "hello")
    else:
        assert result.reason == "stop requested: enough"


async def test_after_may_clear_a_replaced_error() -> None:
    @after(ToolUse)
    async def heal(use: ToolUse) -> None:
        use.result, use.error = "healed", None  # type: ignore[assignment]

    def boom(use: Any) -> None:
        raise LookupError

    assert tool_result(await echo_agent(heal, before(ToolUse)(boom)).run("go")) == "healed"


async def test_after_may_turn_a_result_into_an_error() -> None:
    @after(ModelCall)
    async def refuse(call: ModelCall) -> None:
        call.error = ModelError("that was no answer")

    with pytest.raises(ModelError, match="that was no answer"):
        await hello_agent(refuse).run("hi")


async def test_after_cannot_leave_nothing_behind() -> None:
    @after(ToolUse)
    async def take(use: ToolUse) -> None:
        use.result = None  # type: ignore[assignment]

    text = tool_result(await echo_agent(take).run("go"))
    assert text == "the result was withheld: the hook 'take' failed: HookError"


async def test_after_cannot_put_nonsense_in_place_of_a_result() -> None:
    @after(ToolUse)
    async def spoil(use: ToolUse) -> None:
        use.result = 42  # type: ignore[assignment]

    text = tool_result(await echo_agent(spoil).run("go"))
    assert text == "the result was withheld: the hook 'spoil' failed: HookError"


def _fail(use: ToolUse, failure: Exception) -> None:
    raise failure


@pytest.mark.parametrize(
    ("hook", "logged"),
    [
        (lambda use: setattr(use.result, "text", "x"), "AttributeError: the text of a ToolResult is its error, or else"
         " its output; set result.output instead"),
        (lambda use: use.result.content, "AttributeError: 'ToolResult' object has no attribute 'content'; the text for"
         " the model is result.output"),
        (lambda use: undefined, "NameError: name 'undefined' is not defined"),  # type: ignore[name-defined]  # noqa: F821
        (lambda use: len(5), "TypeError: object of type 'int' has no len()"),  # type: ignore[arg-type]
        (lambda use: use.result.output, "HookError: the hook 'h' answered a value of type str at after_tool_use; return"
         " None to continue, or Block(…) or Stop(…); to replace the result, set it: use.result = …"),
        (lambda use: _fail(use, ValueError(use.result.output)), "ValueError"),
        (lambda use: _fail(use, HookError(use.result.output)), "HookError"),
    ],
)  # fmt: skip
async def test_the_log_has_the_message_of_an_error_in_code_and_the_model_has_not(
    hook: Any, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await echo_agent(after(ToolUse, name="h")(hook)).run("go")
    failed = logged.partition(":")[0]
    assert tool_result(result) == f"the result was withheld: the hook 'h' failed: {failed}"
    assert thread_entries(result.thread, "decision")[-1]["reason"] == failed
    assert caplog.messages[0].startswith(f"the hook h failed at after_tool_use: {logged}")
    assert len(caplog.messages[0]) < 300


@pytest.mark.parametrize(
    ("operation", "hint"), [(ModelCall, "call.result ="), (Run, "run.result = dataclasses.replace")]
)
async def test_the_log_says_how_to_replace_an_immutable_result(
    operation: Kind, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    @after(operation)
    def edit(op: Operation[Any]) -> None:
        op.result.text = "edited"

    with suppress(HookError):
        await hello_agent(edit).run("hi")
    assert "FrozenInstanceError: cannot set text: a" in caplog.text and hint in caplog.text


async def test_a_result_of_a_hook_gets_the_call_id() -> None:
    @after(ToolUse)
    async def mix(use: ToolUse) -> None:
        use.result = ToolResult("mine", tool_call_id="another", name="other")

    result = await echo_agent(mix).run("go")
    (message,) = [message for message in result.messages if message.role == "tool"]
    assert (message.tool_call_id, message.name, message.text) == ("c1", "echo", "mine")


# rule 15: pauses and cancellation


def test_paused_is_not_an_exception() -> None:
    assert issubclass(Paused, BaseException) and not issubclass(Paused, Exception)


async def test_paused_passes_through_every_ring_untouched() -> None:
    watch = OperationLog()

    @wrap(Operation)
    async def careless(op: Operation[Any], next: Next[Any]) -> Any:
        try:
            return await next(op)
        except Exception:
            return "swallowed"

    @before(ToolUse)
    async def pause(use: ToolUse) -> None:
        raise Paused("for the night")

    result = await echo_agent(after(Operation, name="watch")(watch), careless, pause).run("go")
    assert (result.outcome, result.reason) == ("interrupted", "paused: for the night")
    assert [op.name for op in watch.ops] == ["model_call"]


async def test_a_guard_may_pause() -> None:
    def pause(use: Any) -> None:
        raise Paused("for the night")

    thread = Thread()
    result = await echo_agent(guard(ToolUse)(pause)).run("go", thread=thread)
    assert (result.outcome, thread.pending) == ("interrupted", (tool_call(),))


async def test_after_does_not_run_for_a_cancellation() -> None:
    watch, begun = OperationLog(), asyncio.Event()

    @tool(name="echo")
    async def hang(text: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return text

    task = asyncio.create_task(echo_agent(after(Operation, name="watch")(watch), tools=[hang]).run("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [op.name for op in watch.ops] == ["model_call"]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("timeout", [None, 30])
async def test_a_cancellation_that_a_hook_swallows_is_raised_again(position: Position, timeout: float | None) -> None:
    begun = asyncio.Event()

    async def swallow(*args: Any) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    hook = replace(
        hook_at(position, ModelCall, None, timeout=timeout or (30 if position == "guard" else None)), fn=swallow
    )
    thread = Thread()
    task = asyncio.create_task(hello_agent(hook).run("go", thread=thread))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert thread_entries(thread, "run_end")[0]["outcome"] == "cancelled"


# rule 17: siblings


async def _siblings(hook: Any, **options: Any) -> tuple[list[str], Thread, Any]:
    """Two tool uses, of which the first meets a hook and the second takes longer."""
    ran: list[str] = []

    @tool(name="echo")
    async def slow(text: str) -> str:
        await asyncio.sleep(0.005)
        ran.append(text)
        return text

    thread = Thread()
    model = Scripted(tool_calls_reply(tool_call(id="a", text="a"), tool_call(id="b", text="b")), "done", spare=True)
    agent = Agent(model, tools=[slow], hooks=[hook], **options)
    try:
        return ran, thread, await agent.run("go", thread=thread)
    except Exception as error:
        return ran, thread, error


def _first(answer: Any) -> Any:
    @before(ToolUse)
    async def hook(use: ToolUse) -> Any:
        if use.call.id != "a":
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return hook


@pytest.mark.parametrize(
    ("answer", "outcome", "told"),
    [
        (Stop("enough"), "stopped", ["enough", "b"]),
        (Paused("later"), "interrupted", ["b"]),
        (LookupError("lost"), "failed", ["echo was not used", "b"]),
    ],
)
async def test_a_stop_pause_or_failure_of_one_tool_use_never_cancels_its_siblings(
    answer: Any, outcome: str, told: list[str]
) -> None:
    ran, thread, came = await _siblings(_first(answer))
    assert ran == ["b"]
    assert [message.text.partition(":")[0] for message in thread.messages if message.role == "tool"] == told
    assert thread_entries(thread, "run_end")[0]["outcome"] == outcome
    assert came is answer if outcome == "failed" else came.outcome == outcome


async def test_a_failure_outranks_a_stop_of_a_sibling() -> None:
    @before(ToolUse)
    async def hook(use: ToolUse) -> Stop | None:
        if use.call.id == "a":
            return Stop("enough")
        raise LookupError("lost")

    model = Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")))
    with pytest.raises(LookupError, match="lost"):
        await Agent(model, tools=[echo], hooks=[hook, after(Step, name="look")(lambda step: None)]).run("go")


# rule 18: deltas and holding


async def test_run_and_stream_are_the_same_loop() -> None:
    quiet, heard = echo_agent(), echo_agent()
    result = await quiet.run("go")
    stream = heard.stream("go")
    seen = [event async for event in stream]
    assert stream.result.messages == result.messages
    assert [event.terminal for event in seen].count(True) == 1 and seen[-1].terminal


def test_run_sync_is_the_same_loop_too() -> None:
    assert echo_agent().run_sync("go").messages[1:] == Agent(
        Scripted(tool_calls_reply(tool_call()), "done"), tools=[echo]
    ).run_sync("go").messages[1:]  # fmt: skip


async def test_a_replaced_reply_restarts_the_message() -> None:
    @after(ModelCall)
    async def replace_it(call: ModelCall) -> None:
        call.result = Message("assistant", "another")

    seen = await collect_events(hello_agent(replace_it))
    names = [event.event for event in seen]
    assert names == [
        "on_chat_model_start",
        "on_chat_model_stream",
        "on_chat_model_restart",
        "on_chat_model_end",
        "done",
    ]
    assert seen[2].to_json()["data"] == {"content": "another"}


async def test_another_attempt_restarts_the_message() -> None:
    @wrap(ModelCall)
    async def twice(call: ModelCall, next: Next[Any]) -> Any:
        await next(call)
        return await next(call)

    names = [event.event for event in await collect_events(Agent(Scripted("one", "two"), hooks=[twice]))]
    assert names == [
        *("on_chat_model_start", "on_chat_model_stream", "on_chat_model_restart", "on_chat_model_stream"),
        *("on_chat_model_end", "done"),
    ]


async def test_held_deltas_wait_until_the_hook_has_answered() -> None:
    order: list[str] = []

    @after(ModelCall, hold=True)
    async def look(call: ModelCall) -> None:
        order.append("looked")

    def emit(event: Any) -> None:
        order.append(event.event)

    await Agent(Scripted("two words"), hooks=[look]).run("hi", emit=emit)
    assert order == [
        *("on_chat_model_start", "looked", "on_chat_model_stream", "on_chat_model_stream", "on_chat_model_end"),
        "done",
    ]


@pytest.mark.parametrize("verdict", [None, Block("no"), Stop("enough")])
async def test_held_deltas_of_a_reply_that_was_replaced_are_never_shown(verdict: Any) -> None:
    @after(ModelCall, hold=True)
    async def redact(call: ModelCall) -> Any:
        call.result = Message("assistant", "***")
        return verdict

    seen = await collect_events(Agent(Scripted("the secret"), hooks=[redact]))
    assert "secret" not in str([event.to_json() for event in seen])


async def test_held_deltas_of_a_failed_reply_are_never_sent() -> None:
    @after(ModelCall, hold=True)
    async def redact(call: ModelCall) -> None:
        raise LookupError

    seen = await collect_events(Agent(Scripted("the secret"), hooks=[redact]))
    assert "secret" not in str([event.to_json() for event in seen])


async def test_held_deltas_of_a_reply_that_broke_off_are_never_shown() -> None:
    async def stream(request: Any) -> Any:
        from wick.protocols import TextDelta

        yield TextDelta("the secret")
        raise ModelError("broke off")

    model = FunctionModel(lambda request: "", name="breaks")
    model.stream = stream  # type: ignore[method-assign]
    seen = await collect_events(Agent(model, hooks=[after(ModelCall, hold=True, name="redact")(lambda call: None)]))
    assert "secret" not in str([event.to_json() for event in seen])
    assert seen[-1].event == "error"


async def test_held_deltas_of_an_attempt_that_was_made_again_are_never_shown() -> None:
    @wrap(ModelCall)
    async def twice(call: ModelCall, next: Next[Any]) -> Any:
        await next(call)
        return await next(call)

    look = after(ModelCall, hold=True, name="look")(lambda call: None)
    seen = await collect_events(Agent(Scripted("the secret", "fine"), hooks=[look, twice]))
    assert text_deltas(seen) == "fine"


async def test_only_the_calls_that_match_are_held() -> None:
    order: list[str] = []
    look = after(ModelCall, hold=True, match="other", name="look")(lambda call: None)
    watch = after(ModelCall, name="watch")(lambda call: order.append("ended"))
    await Agent(Scripted("hi"), hooks=[watch, look]).run("hi", emit=lambda event: order.append(event.event))
    assert order[:3] == ["on_chat_model_start", "on_chat_model_stream", "ended"]


def _live() -> Any:
    @tool(name="echo")
    async def live(text: str, use: ToolUse) -> str:
        for letter in text:
            use.stream(letter)
        return text

    return live


async def test_live_tool_output_is_streamed() -> None:
    seen = await collect_events(echo_agent(tools=[_live()]))
    assert text_deltas(seen, "on_tool_stream") == "hi"


@pytest.mark.parametrize("change", [False, True])
async def test_held_live_output_waits_until_the_hook_has_answered(change: bool) -> None:
    order: list[str] = []

    @after(ToolUse, hold=True)
    async def redact(use: ToolUse) -> None:
        order.append("looked")
        if change:
            use.result.output = "***"

    await echo_agent(redact, tools=[_live()]).run("go", emit=lambda event: order.append(event.event))
    shown = order[order.index("on_tool_start") : order.index("on_tool_end")]
    assert shown == ["on_tool_start", "looked", *([] if change else ["on_tool_stream"] * 2)]


async def test_two_holding_hooks_both_have_to_answer() -> None:
    order: list[str] = []
    hooks = [after(ToolUse, hold=True, name=name)(lambda use, name=name: order.append(name)) for name in ("out", "in")]
    await echo_agent(*hooks, tools=[_live()]).run("go", emit=lambda event: order.append(event.event))
    assert order[order.index("in") :][:4] == ["in", "out", "on_tool_stream", "on_tool_stream"]


# parts of a ToolResult


async def _changed(change: Callable[[ToolUse], None]) -> ToolResult:
    picture = ImagePart(data="aGk=")

    @tool(name="echo")
    async def rich(text: str) -> ToolResult:
        return ToolResult(text, data={"secret": 1}, parts=(picture,))

    watch = OperationLog()
    hooks = [after(ToolUse, name="watch")(watch), after(ToolUse, name="change")(change)]
    await echo_agent(*hooks, tools=[rich]).run("go")
    result = watch.op.result
    assert isinstance(result, ToolResult)
    return result


async def test_setting_the_output_drops_data_and_parts() -> None:
    result = await _changed(lambda use: setattr(use.result, "output", "***"))
    assert (result.output, result.data, result.parts) == ("***", None, ())


async def test_a_new_output_drops_passed_data() -> None:
    result = await _changed(lambda use: setattr(use, "result", replace(use.result, output="***")))
    assert (result.output, result.data, result.parts) == ("***", None, ())


async def test_explicit_data_and_parts_are_kept() -> None:
    other = ImagePart(data="aG8=")

    def change(use: ToolUse) -> None:
        use.result.output, use.result.data, use.result.parts = "***", {"clean": 1}, (other,)

    result = await _changed(change)
    assert (result.output, result.data, result.parts) == ("***", {"clean": 1}, (other,))


async def test_an_unchanged_output_keeps_data_and_parts() -> None:
    def change(use: ToolUse) -> None:
        use.result.data = {"other": 1}

    result = await _changed(change)
    assert (result.output, result.data, len(result.parts)) == ("hi", {"other": 1}, 1)


@pytest.mark.parametrize("answer", [lambda result: int(result.output), lambda result: {"said": result.output}])
async def test_a_failed_wrap_does_not_reveal_the_result(
    answer: Callable[[ToolResult], Any], caplog: pytest.LogCaptureFixture
) -> None:
    @wrap(ToolUse)
    async def read(use: ToolUse, next: Next[Any]) -> Any:
        return answer(await next(use))

    @after(ToolUse)
    def redact(use: ToolUse) -> None:
        use.result = ToolResult("(redacted)")

    thread, seen = Thread(), list[Any]()
    agent = Agent(
        Scripted(tool_calls_reply(tool_call("execute", command="x")), "done"), tools=[_leaky], hooks=[redact, read]
    )
    result = await agent.run("go", thread=thread, emit=seen.append)
    assert tool_result(result) == "(redacted)"
    for told in (thread.to_json(), [event.to_json() for event in seen], caplog.text):
        assert "s3cret" not in str(told)


@tool(name="execute")
def _leaky(command: str) -> str:
    return "s3cret"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (before(Run, name="h")(lambda run: setattr(run, "input", "hello")), "the input"),
        (before(Run, name="h")(lambda run: run.input.append("hello")), "the input"),
        (before(Run, name="h")(lambda run: run.tools.update(x=len)), "the tools"),
        (before(ModelCall, name="h")(lambda call: call.messages.append("hello")), "the messages"),
        (before(ModelCall, name="h")(lambda call: call.tools.append(len)), "the tools"),
        (before(ToolUse, name="h")(lambda use: setattr(use, "args", "hello")), "the arguments"),
    ],
)
async def test_a_misplaced_return_value_is_named(change: Any, words: str) -> None:
    with pytest.raises(HookError, match=words):
        await echo_agent(change).run("go")


@pytest.mark.parametrize("forgotten", ["return", "await"])
async def test_a_wrap_that_does_not_return_the_result_is_reported(forgotten: str) -> None:
    @wrap(ToolUse)
    async def forgetful(use: ToolUse, next: Next[Any]) -> Any:
        if forgotten == "await":
            pending = next(use)
            pending.close()  # type: ignore[attr-defined]
            return pending
        await next(use)

    with pytest.raises(HookError, match="'forgetful' .*`return await next"):
        await echo_agent(forgetful).run("go")
