"""The four operations, and the API of a run for hooks and tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kit import (
    OperationLog,
    ScriptedUser,
    collect_events,
    echo,
    echo_agent,
    hello_agent,
    hook_at,
    text_deltas,
    thread_entries,
    tool_call,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import (
    Agent,
    Ask,
    Block,
    Continue,
    FunctionModel,
    Limits,
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
    ToolUse,
    after,
    before,
    guard,
    tool,
    user,
    wrap,
)
from wick.constants import MAX_CONTINUES
from wick.errors import ConfigError, HookError, ModelError
from wick.hooks import Next
from wick.operations import OPERATIONS
from wick.protocols import Delta, Finish, Request, TextDelta

# operations


def test_the_four_operations_in_nesting_order() -> None:
    assert (Run, Step, ModelCall, ToolUse) == OPERATIONS
    assert [operation.operation_name for operation in OPERATIONS] == ["run", "step", "model_call", "tool_use"]


async def test_each_operation_has_its_run() -> None:
    watch = OperationLog()
    await echo_agent(guard(Operation, name="watch")(watch)).run("go")
    assert {op.run.id for op in watch.ops} == {watch.ops[0].id}


async def test_every_attempt_at_a_call_has_the_same_key_for_services_and_its_own_number() -> None:
    seen: list[tuple[str, int]] = []

    @tool(name="echo", idempotent=True)
    async def keyed(text: str, use: ToolUse) -> str:
        seen.append((use.key, use.attempt))
        return text

    @wrap(ToolUse)
    async def twice(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        return await next(use)

    thread, watch = Thread(), OperationLog()
    await echo_agent(guard(Run, name="w")(watch), twice, tools=[keyed]).run("go", thread=thread)
    assert seen == [(f"{thread.id}:{watch.op.id}:1:c1", 1), (f"{thread.id}:{watch.op.id}:1:c1", 2)]


def test_of_several_stop_reasons_the_most_authoritative_wins() -> None:
    run = Run()
    for reason, kept in [
        ("token limit", "token limit"),
        ("time limit", "token limit"),
        ("enough", "stop requested: enough"),
        ("more than enough", "stop requested: enough"),
        ("blocked: no", "blocked: no"),
        ("enough", "blocked: no"),
    ]:
        run.halt(Stop(reason))
        assert run.stopping == Stop(kept)


# rule 16: Stop is final


@pytest.mark.parametrize("order", [1, -1])
async def test_a_stop_of_a_hook_cannot_be_overridden(order: int) -> None:
    hooks = [after(Step, name="stop")(lambda step: Stop("enough")), after(Step, name="on")(lambda step: Continue("on"))]
    result = await hello_agent(*hooks[::order]).run("hi")
    assert (result.reason, [message.text for message in result.messages]) == ("stop requested: enough", ["hi", "hello"])


@pytest.mark.parametrize("operation", [ModelCall, Step])
@pytest.mark.parametrize("decision", [Stop("budget: spent"), Block("no")])
async def test_a_stopped_or_blocked_step_is_not_continued(operation: Any, decision: Any) -> None:
    hooks = [after(Step, name="on")(lambda step: Continue("on")), hook_at("before", operation, decision)]
    result = await hello_agent(*hooks).run("hi")
    assert result.reason == ("budget: spent" if isinstance(decision, Stop) else "blocked: no")


async def test_a_stop_by_a_tool_use_is_not_continued() -> None:
    hooks = [after(Step, name="on")(lambda step: Continue("on")), hook_at("guard", ToolUse, Stop("enough"))]
    result = await echo_agent(*hooks).run("go")
    assert result.reason == "stop requested: enough"


# rule 16: Continue


class Ends:
    """A model that always ends for the same reason."""

    name = "ends"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("so far")
        yield Finish(self.reason)


def once(decision: Continue) -> Any:
    """An `after` that continues after the first step only."""

    @after(Step)
    async def go_on(step: Step) -> Continue | None:
        return decision if step.number == 1 else None

    return go_on


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "completed"), ("end_turn", "completed"), ("length", "finish reason: length")],
)
async def test_continue_overrides_completed_and_finish_reason(finish: str, reason: str) -> None:
    plain = await Agent(Ends(finish)).run("hi")
    assert (plain.reason, len(plain.messages)) == (reason, 2)
    result = await Agent(Ends(finish), hooks=[once(Continue("go on"))]).run("hi")
    assert [message.text for message in result.messages] == ["hi", "so far", "go on", "so far"]
    assert (result.outcome, result.reason) == ("completed", reason)


async def test_the_message_of_a_continue_has_its_hooks_name_and_is_not_the_users() -> None:
    result = await hello_agent(once(Continue("check it"))).run("hi")
    said = [(message.role, message.name, message.text) for message in result.messages]
    assert said[0] == ("user", "", "hi")
    assert said[2] == ("user", "go_on", "check it")


async def test_a_continue_without_a_message_asks_to_continue() -> None:
    result = await hello_agent(once(Continue())).run("hi")
    assert [message.text for message in result.messages] == ["hi", "hello", "Continue.", "hello"]


async def test_every_continue_of_a_step_adds_its_message() -> None:
    other = after(Step, name="other")(lambda step: Continue("two") if step.number == 1 else None)
    result = await hello_agent(other, once(Continue("one"))).run("hi")
    assert [message.text for message in result.messages] == ["hi", "hello", "one", "two", "hello"]


async def test_a_step_with_tools_may_continue_with_a_message() -> None:
    result = await echo_agent(once(Continue("by the way"))).run("go")
    assert [message.text for message in result.messages] == ["go", "", "hi", "by the way", "done"]


async def test_setting_the_result_of_a_step_is_the_same_decision() -> None:
    @after(Step)
    async def replace_it(step: Step) -> None:
        step.result = Continue("go on") if step.number == 1 else Stop("enough")

    result = await hello_agent(replace_it).run("hi")
    assert [message.text for message in result.messages] == ["hi", "hello", "go on", "hello"]
    assert result.reason == "stop requested: enough"


async def test_a_continue_counts_as_a_step_and_checks_limits() -> None:
    numbers: list[int] = []
    hooks = [
        Limits(steps=3),
        after(Step, name="on")(lambda step: Continue("on")),
        before(ModelCall, name="count")(lambda call: numbers.append(len(numbers) + 1)),
    ]
    result = await hello_agent(*hooks).run("hi")
    assert (result.reason, numbers) == ("step limit", [1, 2, 3])


async def test_at_most_eight_in_a_row() -> None:
    result = await hello_agent(after(Step, name="on")(lambda step: Continue("on"))).run("hi")
    said = [message.text for message in result.messages]
    assert MAX_CONTINUES == 8
    assert (said.count("on"), said.count("hello"), result.reason) == (8, 9, "completed")


async def test_using_a_tool_ends_the_row() -> None:
    turns = iter([*["text"] * 8, "tool", *["text"] * 9])

    def reply(request: Request) -> Any:
        return tool_calls_reply(tool_call(id=f"c{len(request.messages)}")) if next(turns) == "tool" else "text"

    hook = after(Step, name="on")(lambda step: Continue("on"))
    result = await Agent(FunctionModel(reply), tools=[echo], hooks=[hook]).run("hi")
    assert (result.reason, list(turns)) == ("completed", [])
    assert [message.text for message in result.messages].count("on") == 17


# rule 19: a model call of a capability's own


def _summary(**options: Any) -> Callable[[Run], Any]:
    async def summarise(run: Run) -> None:
        reply = await run.call_model([user("summarise this")], purpose="summary", **options)
        run.notes["summary"] = reply.text

    return summarise


async def test_a_capability_model_call_passes_the_rings_and_the_gate() -> None:
    seen: list[tuple[str, str]] = []

    @wrap(ModelCall)
    async def around(call: ModelCall, next: Next[Any]) -> Any:
        seen.append(("wrap", call.purpose))
        return await next(call)

    hooks = [
        before(Run, name="summarise")(_summary()),
        after(ModelCall, name="after")(lambda call: seen.append(("after", call.purpose))),
        around,
        before(ModelCall, name="before")(lambda call: seen.append(("before", call.purpose))),
        guard(ModelCall, name="guard")(lambda call: seen.append(("guard", call.purpose))),
    ]
    await Agent(Scripted("a summary", "hello"), hooks=hooks).run("hi")
    order = ["wrap", "before", "guard", "after"]
    assert seen == [*((place, "summary") for place in order), *((place, "") for place in order)]


async def test_a_capabilitys_own_model_call_is_in_the_budget_and_not_in_the_conversation() -> None:
    watch = OperationLog()
    hooks = [before(Run, name="summarise")(_summary(system="be brief")), after(Run, name="watch")(watch)]
    model = Scripted("a summary of some length", "hello")
    agent = Agent(model, system="be kind", tools=[echo], settings={"temperature": 0}, hooks=hooks)
    seen: list[Any] = []
    result = await agent.run("hi", emit=seen.append)
    assert [message.text for message in result.messages] == ["hi", "hello"]
    assert watch.op.notes["summary"] == "a summary of some length"
    assert (text_deltas(seen), [event.event for event in seen].count("on_chat_model_end")) == ("hello", 1)
    assert result.usage.output_tokens == sum(
        Message("assistant", text).tokens for text in ("a summary of some length", "hello")
    )
    own, main = model.requests
    assert (own.system, own.tools, own.settings) == ("be brief", (), {"temperature": 0})
    assert (main.system, main.tools) == ("be kind", (echo,))


async def test_a_capability_may_ask_another_model() -> None:
    judge = Scripted("fine", name="judge")
    await hello_agent(before(Run, name="judge")(_summary(model=judge, settings={}))).run("hi")
    assert [message.text for message in judge.requests[0].messages] == ["summarise this"]


async def test_a_blocked_capability_model_call_raises_and_the_run_ends() -> None:
    @before(Run)
    async def get_over_it(run: Run) -> None:
        with pytest.raises(ModelError, match="the model was not asked for its summary: no"):
            await _summary()(run)

    deny = guard(ModelCall, name="deny")(lambda call: Block("no") if call.purpose else None)
    result = await hello_agent(get_over_it, deny).run("hi")
    assert result.reason == "blocked: no"
    with pytest.raises(ModelError, match="the model was not asked for its summary: no"):
        await hello_agent(before(Run, name="summarise")(_summary()), deny).run("hi")


# rule 20: a run keeps its onion; guards can be added


async def test_a_run_keeps_its_initial_onion() -> None:
    copies: list[Agent] = []

    @before(ToolUse)
    async def change(use: ToolUse) -> None:
        copies.append(agent.with_hooks(hook_at("guard", ToolUse, Block("no"))))

    agent = Agent(
        Scripted(tool_calls_reply(tool_call()), "done", tool_calls_reply(tool_call(id="c2")), "done"),
        tools=[echo],
        hooks=[change],
    )
    assert tool_result(await agent.run("go")) == "hi"
    assert tool_result(await copies[0].run("go")) == "no"


async def test_a_guard_added_above_applies_from_the_next_operation() -> None:
    deny = guard(ToolUse, name="deny")(lambda use: Block("no more"))

    @after(ToolUse)
    async def enough(use: ToolUse) -> None:
        if not use.result.error:
            use.run.add_guard(deny)

    model = Scripted(tool_calls_reply(tool_call(id="a")), tool_calls_reply(tool_call(id="b")), "done")
    assert tool_results(await Agent(model, tools=[echo], hooks=[enough]).run("go")) == ["hi", "no more"]


async def test_a_guard_added_above_applies_to_children_that_run_already() -> None:
    @tool
    async def delegate(text: str, run: Run) -> str:
        child = Agent(
            Scripted(tool_calls_reply(tool_call(id="x")), tool_calls_reply(tool_call(id="y")), "done"), tools=[echo]
        )
        result = await child.run(text, parent=run)
        return ", ".join(tool_results(result))

    def lock(use: Any) -> None:
        use.run.parent.add_guard(guard(ToolUse, name="deny")(lambda use: Block("no more")))

    hook = after(ToolUse, inherit=True, name="lock", match=lambda use: use.call.id == "x")(lock)
    result = await Agent(Scripted(tool_calls_reply(tool_call("delegate")), "done"), tools=[delegate], hooks=[hook]).run(
        "go"
    )
    assert tool_results(result) == ["hi, no more"]


async def test_an_added_guard_counts_for_one_run_and_for_its_operation_alone() -> None:
    watch = OperationLog()

    @before(Run)
    async def add(run: Run) -> None:
        if run.input[0].text == "first":
            run.add_guard(guard(ModelCall, name="watch")(watch))

    agent = hello_agent(add)
    await agent.run("first")
    await agent.run("second")
    assert [op.operation_name for op in watch.ops] == ["model_call"]


@pytest.mark.parametrize("wrong", [before(ToolUse)(lambda use: None), lambda use: None, None])
def test_only_a_guard_can_be_added(wrong: Any) -> None:
    with pytest.raises(HookError, match="only a guard can be added to a started run"):
        Run().add_guard(wrong)


async def test_guards_are_those_above_then_ones_own_then_those_added() -> None:
    above, own, added = (guard(ToolUse, name=name)(lambda use: None) for name in ("above", "own", "added"))
    parents, childs = OperationLog(), OperationLog()
    await hello_agent(above, before(Run, name="watch")(parents)).run("hi")
    await hello_agent(own, before(Run, name="watch")(childs)).run("hi", parent=parents.op)
    childs.op.add_guard(added)
    assert [hook.name for hook in childs.op.guards(ToolUse)] == ["above", "own", "added"]
    assert childs.op.guards(Run) == ()


# rule 20: resuming without a guard


def _paused_run(*hooks: Any) -> Agent:
    pause = guard(ToolUse, name="ask")(lambda use: Ask("sure?"))
    return echo_agent(*hooks, pause, ask=ScriptedUser(Paused("later"), True))


async def test_resuming_without_a_guard_that_was_there_is_refused_until_an_operator_agrees() -> None:
    thread = Thread()
    await _paused_run(guard(Run, name="policy")(lambda run: None)).run("go", thread=thread)
    agent = echo_agent(guard(ToolUse, name="ask")(lambda use: None))
    with pytest.raises(ConfigError, match=r"started under the guards policy, .* or with without=\['policy'\]"):
        await agent.run(thread=thread)
    result = await agent.run(thread=thread, without=["policy"])
    assert result.outcome == "completed"


async def test_resuming_with_the_guards_that_were_there_or_more_is_fine() -> None:
    thread = Thread()
    agent = _paused_run(guard(Run, name="policy")(lambda run: None))
    await agent.run("go", thread=thread)
    first = thread.open_run
    result = await agent.with_hooks(guard(Step, name="more")(lambda step: None)).run(thread=thread)
    starts = thread_entries(thread, "run_start")
    assert first is not None and result.outcome == "completed"
    assert {row["run"] for row in starts} == {first["run"]}
    assert [row["resumed"] for row in starts] == [False, True]


# rule 20: values of a run, and values of a thread


async def test_scratch_is_per_run_and_shared_by_copies() -> None:
    seen: list[Any] = []

    @wrap(Run)
    async def copy(run: Run, next: Next[Any]) -> Any:
        run.scratch["outer"] = 1
        result: Result = await next(run.fork(system="x"))
        seen.append(dict(run.scratch))
        return result

    inner = before(Step, name="inner")(lambda step: step.run.scratch.update(inner=step.run.scratch.get("inner", 0) + 1))
    agent = hello_agent(copy, inner)
    await agent.run("a")
    await agent.run("b")
    assert [{key: row[key] for key in ("outer", "inner")} for row in seen] == [{"outer": 1, "inner": 1}] * 2


async def test_values_are_stored_with_the_thread() -> None:
    @before(Run)
    async def count(run: Run) -> None:
        run.thread.values["runs"] = run.thread.values.get("runs", 0) + 1

    thread, agent = Thread(), hello_agent(count)
    await agent.run("a", thread=thread)
    await agent.run("b", thread=thread)
    assert thread.values["runs"] == 2
    assert Thread.from_json(thread.to_json()).values["runs"] == 2


# the API of a run for hooks and tools


async def test_a_recorded_value_is_logged() -> None:
    result = await hello_agent(before(Run, name="r")(lambda run: run.record("greeted", name="ada", times=2))).run("hi")
    (row,) = thread_entries(result.thread, "event")
    assert (row["name"], row["data"]) == ("greeted", {"name": "ada", "times": 2})


async def test_tools_added_at_run_start_are_usable() -> None:
    @before(Run)
    async def bring(run: Run) -> None:
        run.tools["late"] = echo.renamed("late")

    model = Scripted(tool_calls_reply(tool_call("late")), "done")
    agent = Agent(model, hooks=[bring])
    assert tool_results(await agent.run("go")) == ["hi"]
    assert agent.tools == ()


async def test_changes_before_a_run_reach_the_model() -> None:
    @before(Run)
    async def change(run: Run) -> None:
        run.input = [user(f"{run.input[0].text}, please")]
        run.system = "be brief"
        run.settings["temperature"] = 0

    model = Scripted("ok")
    result = await Agent(model, system="be kind", hooks=[change]).run("hi")
    (request,) = model.requests
    assert (request.system, request.settings, request.messages[0].text) == (
        "be brief",
        {"temperature": 0},
        "hi, please",
    )
    assert result.messages[0].text == "hi, please"


async def test_changes_before_a_model_call_reach_the_model_and_not_the_thread() -> None:
    @before(ModelCall)
    async def change(call: ModelCall) -> None:
        call.messages.append(user("remember the date"))
        call.tools.clear()

    model = Scripted("ok")
    result = await Agent(model, tools=[echo], hooks=[change]).run("hi")
    (request,) = model.requests
    assert [message.text for message in request.messages] == ["hi", "remember the date"]
    assert request.tools == ()
    assert [message.text for message in result.messages] == ["hi", "ok"]


async def test_a_runs_output_is_its_own_messages() -> None:
    outputs: list[list[str]] = []
    agent = hello_agent(after(Run, name="look")(lambda run: outputs.append([message.text for message in run.output])))
    thread = Thread()
    await agent.run("a", thread=thread)
    await agent.run("b", thread=thread)
    assert outputs == [["a", "hello"], ["b", "hello"]]


async def test_a_tool_streams_only_to_watchers() -> None:
    @tool(name="echo")
    async def live(text: str, use: ToolUse) -> str:
        use.stream(text)
        return text

    assert tool_results(await echo_agent(tools=[live]).run("go")) == ["hi"]
    assert text_deltas(await collect_events(echo_agent(tools=[live])), "on_tool_stream") == "hi"


async def test_a_guard_reads_the_name_of_a_tool() -> None:
    @tool
    def wipe() -> str:
        """Delete everything."""
        raise AssertionError("it ran")

    @guard(ToolUse)
    def refuse(use: ToolUse) -> Block | None:
        return Block("never") if use.name == "wipe" else None

    result = await Agent(Scripted(ToolCall("a", "wipe", {}), "Done."), tools=[wipe], hooks=[refuse]).run("Go.")
    assert "never" in result.messages[2].text
