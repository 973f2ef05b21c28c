"""Subagents: their tools, their guards, and the results of their work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kit import (
    ScriptedUser,
    collect_events,
    echo,
    execute,
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
    FunctionModel,
    Paused,
    Run,
    Scripted,
    Thread,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    constants,
    guard,
    tool,
)
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.budget import Budget
from wick.capabilities.limits import Limits
from wick.capabilities.sessions import Sessions
from wick.capabilities.structured_output import StructuredOutput
from wick.capabilities.subagents import Subagents
from wick.capabilities.todos import Todos
from wick.errors import ConfigError, ModelError, StoreError
from wick.models.scripted import Reply
from wick.protocols import Request, Store
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite

ran: list[str] = []


@tool
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(f"paid {amount}")
    return f"paid {amount}"


@tool(read_only=True)
async def look(at: str = "it") -> str:
    """Look at something."""
    ran.append(f"looked at {at}")
    return f"seen {at}"


@guard(ToolUse, match="execute")
def no_shell(use: ToolUse) -> Block:
    return Block(f"{use.run.agent} may not")


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def hand(agent: str = "helper", prompt: str = "help", id: str = "t1", name: str = "task") -> ToolCall:
    return ToolCall(id, name, {"agent": agent, "prompt": prompt})


def helper(*replies: Reply, name: str = "helper", **options: Any) -> Subagent:
    return Subagent(name, f"The {name}.", f"You are the {name}.", model=Scripted(*replies), **options)


def lead(*replies: Reply, agents: Any, hooks: Any = (), tools: Any = (echo,), **options: Any) -> Agent:
    model = Scripted(*replies)
    return Agent(model, name="lead", tools=tools, hooks=[*hooks, Subagents(agents)], **options)


def model_requests(agent: Agent | Subagent) -> list[Request]:
    model: Any = agent.model
    requests: list[Request] = model.requests
    return requests


# -- handing over -----------------------------------------------------------------------------------------------------


async def test_the_answer_of_the_other_agent_is_the_result() -> None:
    child = helper("42")
    result = await lead(hand(prompt="What is it?"), "It is 42.", agents=[child]).run("go")
    assert (result.text, tool_result(result)) == ("It is 42.", "42")
    (request,) = model_requests(child)
    assert request.system == "You are the helper."
    assert [message.text for message in request.messages] == ["What is it?"], (
        "it sees nothing of the conversation above"
    )


class Invoice(BaseModel):
    number: int


@pytest.mark.parametrize(
    "output_type",
    [Invoice, StructuredOutput(Invoice), {"type": "object", "properties": {"number": {"type": "integer"}}}],
)
async def test_the_structured_answer_of_a_child_is_the_data_of_the_result(output_type: Any) -> None:
    results: list[ToolResult] = []

    @after(ToolUse, match="task")
    def keep(use: ToolUse) -> None:
        results.append(use.result)

    child = helper(ToolCall("1", "final_answer", {"number": 7}), output_type=output_type, settings={"temperature": 0.5})
    await lead(hand(), "done", agents=[child], hooks=[keep], settings={"max_tokens": 9}).run("go")
    (result,) = results
    assert (result.output, result.data) == ('{"number": 7}', {"number": 7})
    assert model_requests(child)[0].settings == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"settings": {"temprature": 1}}, "there is no setting 'temprature'; the settings are temperature, max_tokens"),
        ({"settings": 1}, "the settings of the subagent 'helper' are a dict, not 1"),
        ({"output_type": "Invoice"}, "the output_type of the subagent 'helper' is a type, such as a pydantic"),
    ],
)
def test_wrong_settings_and_output_types_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Subagent("helper", "Helps.", **options)


async def test_the_tool_lists_available_agents() -> None:
    agent = lead("hi", agents=[Subagent("helper", "The helper."), Subagent("critic", "Finds\nfaults.")])
    await agent.run("go")
    task = next(tool for tool in model_requests(agent)[0].tools if tool.name == "task")
    assert task.description.endswith("The agents:\n- helper: The helper.\n- critic: Finds faults.")
    assert task.schema["parameters"]["properties"]["agent"]["enum"] == ["helper", "critic"]


async def test_the_demo_model_hands_over() -> None:
    agent = Agent("demo", hooks=[Subagents([Subagent("researcher", "Finds things.")])])
    result = await agent.run("Delegate writing a poem to the researcher")
    assert result.text.startswith("The researcher agent answered:")


async def test_several_work_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def answer(request: Request) -> str:
        async with asyncio.timeout(10):
            await both.wait()
        return request.messages[0].text.upper()

    child = Subagent("helper", "Helps.", model=FunctionModel(answer))
    result = await lead(
        tool_calls_reply(hand(prompt="a", id="1"), hand(prompt="b", id="2")), "done", agents=[child]
    ).run("go")
    assert tool_results(result) == ["A", "B"]


async def test_child_usage_counts_for_its_parent() -> None:
    child = helper("a long answer with several words")
    result = await lead(hand(), "done", agents=[child]).run("go")
    alone = await Agent(Scripted(hand(), "done"), tools=[tool(lambda agent, prompt: "x", name="task")]).run("go")
    assert result.usage.total_tokens > alone.usage.total_tokens
    assert len(result.charges) == 3


async def test_a_child_without_a_model_has_that_of_its_parent() -> None:
    model = Scripted(hand(), "from the child", "done")
    result = await Agent(model, hooks=[Subagents([Subagent("helper", "Helps.")])]).run("go")
    assert tool_result(result) == "from the child"


async def test_models_can_be_named() -> None:
    small = Scripted("small")
    agents = [Subagent("helper", "Helps.", model="haiku")]
    result = await Agent(Scripted(hand(), "done"), hooks=[Subagents(agents, models={"haiku": small})]).run("go")
    assert tool_result(result) == "small"


async def test_a_model_that_cannot_be_found_is_a_sentence() -> None:
    result = await lead(hand(), "done", agents=[Subagent("helper", "Helps.", model="nosuch:thing")]).run("go")
    assert tool_result(result).startswith("helper cannot be started: there is no model named 'nosuch:thing'")


async def test_a_child_that_fails_is_an_error_result() -> None:
    result = await lead(hand(), "sorry", agents=[helper(RuntimeError("out of order"))]).run("go")
    assert (tool_result(result), result.text) == ("helper failed: out of order", "sorry")


async def test_a_child_whose_error_has_no_message_is_named_by_its_type() -> None:
    result = await lead(hand(), "sorry", agents=[helper(TimeoutError())]).run("go")
    assert tool_result(result) == "helper failed: TimeoutError"


async def hang(request: Request) -> str:
    await asyncio.Event().wait()
    return ""


async def test_a_child_is_cancelled_at_its_time_limit() -> None:
    slow = Subagent("helper", "Helps.", model=FunctionModel(hang), timeout=0.05)
    result = await lead(hand(), "sorry", agents=[slow]).run("go")
    assert (tool_result(result), result.text) == ("helper was cancelled after 0.05 s, its time limit", "sorry")


async def test_a_task_is_cancelled_at_its_time_limit() -> None:
    slow = Subagent("helper", "Helps.", model=FunctionModel(hang), timeout=0.05)
    replies = (tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), "done")
    result = await lead(*replies, agents=[slow]).run("go")
    expected = '"status": "failed", "reason": "helper was cancelled after 0.05 s, its time limit"'
    assert expected in tool_results(result)[-1]


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan")])
def test_a_time_limit_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ConfigError, match="the timeout of the subagent 'helper' is a number of seconds above 0"):
        Subagent("helper", "Helps.", timeout=timeout)


async def test_a_stopped_child_reports_it() -> None:
    child = helper(tool_calls_reply(tool_call()), hooks=[Limits(steps=1)])
    result = await lead(hand(), "done", agents=[child]).run("go")
    assert tool_result(result) == "(helper: stopped, step limit)"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            {"agent": "helpr", "prompt": "x"},
            "task: agent should be 'helper' (got 'helpr')",
        ),
        ({"agent": "helper", "prompt": " "}, "a prompt is a text of up to 100,000 characters"),
        ({"agent": "helper", "prompt": "x" * 100_001}, "a prompt is a text of up to 100,000 characters"),
        ({"agent": "helper"}, "prompt"),
        ({"subagent_type": "helper", "prompt": "x"}, "fine"),
        ({"agent": "helper", "subagent": "helper", "prompt": "x"}, "give it once, as agent"),
    ],
)
async def test_task_input(args: dict[str, Any], words: str) -> None:
    child = helper("fine")
    child.model.spare = True
    result = await lead(ToolCall("1", "task", args), "done", agents=[child]).run("go")
    assert words in tool_result(result)


# -- tools and hooks --------------------------------------------------------------------------------------------------


def names(request: Request) -> list[str]:
    return [tool.name for tool in request.tools]


async def test_without_a_list_a_child_gets_every_tool() -> None:
    child = helper("ok")
    await lead(hand(), "done", agents=[child], tools=[echo, execute]).run("go")
    assert names(model_requests(child)[0])[:3] == ["echo", "execute", "task"]


@pytest.mark.parametrize("tools", [["Bash", "nobody_has_this"], "Bash, nobody_has_this", ["execute"]])
async def test_the_list_is_honoured_and_aliases_will_do(tools: Any) -> None:
    child = helper(tool_calls_reply(tool_call("echo")), "ok", tools=tools)
    await lead(hand(), "done", agents=[child], tools=[echo, execute]).run("go")
    assert names(model_requests(child)[0]) == ["execute"]
    assert model_requests(child)[1].messages[-1].text.startswith("there is no tool named 'echo'; the tools are execute")


async def test_some_can_be_taken_away() -> None:
    child = helper("ok", without=["Bash", "task", "start_task"])
    await lead(hand(), "done", agents=[child], tools=[echo, execute]).run("go")
    assert "execute" not in names(model_requests(child)[0]) and "task" not in names(model_requests(child)[0])
    assert "echo" in names(model_requests(child)[0])


async def test_a_renamed_tool_is_matched_by_origin() -> None:
    child = helper("ok", tools=["Bash"])
    await lead(hand(), "done", agents=[child], tools=[execute.renamed("box_execute")]).run("go")
    assert names(model_requests(child)[0]) == ["box_execute"]


async def test_a_child_may_have_its_own_tools_and_hooks() -> None:
    child = helper(tool_calls_reply(tool_call("look", at="x")), "ok", tools=[look])

    @guard(ToolUse, match="look")
    def guarded(use: ToolUse) -> Block:
        return Block("not there")

    agent = lead(hand(), "done", agents=[child], hooks=[guarded])  # a guard may name a tool that only a child has
    await agent.run("go")
    assert model_requests(child)[1].messages[-1].text == "not there" and ran == []


async def test_output_tools_of_the_parent_are_not_inherited() -> None:
    finish = tool(lambda text: text, name="finish", description="Give the answer.", kind="answer")
    child = helper("ok")
    await lead(hand(), "done", agents=[child], tools=[echo, finish]).run("go")
    assert "finish" not in names(model_requests(child)[0]) and "echo" in names(model_requests(child)[0])


async def test_a_childs_capability_replaces_its_parents() -> None:
    own = Todos()
    child = helper("ok", hooks=[own])
    await lead(hand(), "done", agents=[child], hooks=[Todos()]).run("go")
    (write,) = [item for item in model_requests(child)[0].tools if item.name == "write_todos"]
    assert write.fn.__self__ is own


async def test_hooks_of_a_tool_are_inherited_with_it() -> None:
    """A child that writes todos sees its own, and not those of its parent."""
    plan = ToolCall("1", "write_todos", {"todos": [{"id": "1", "title": "mine", "status": "in_progress"}]})
    done = ToolCall("1", "write_todos", {"todos": [{"id": "1", "title": "mine", "status": "done"}]})
    child = helper(tool_calls_reply(plan), tool_calls_reply(done), "ok", tools=["TodoWrite"])
    result = await lead(hand(), "done", agents=[child], hooks=[Todos()]).run("go")
    assert "mine" in model_requests(child)[1].messages[-1].text
    assert result.thread is not None and "todos" not in result.thread.values


async def test_three_levels_and_no_more() -> None:
    deep: list[tuple[int, bool]] = []

    async def answer(request: Request) -> Reply:
        level, more = int(request.messages[0].text), "task" in names(request)
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        deep.append((level, more))
        return tool_calls_reply(hand(prompt=str(level + 1))) if more else f"level {level}"

    agent = Agent(FunctionModel(answer), hooks=[Subagents([Subagent("helper", "Helps.")])])
    assert (await agent.run("0")).text == "level 3"
    assert deep == [(0, True), (1, True), (2, True), (3, False)]


# -- guards of children -----------------------------------------------------------------------------------------------


async def test_a_guard_of_the_parent_holds_in_child_grandchild_and_background() -> None:
    use = tool_calls_reply(tool_call("execute", command="rm"))
    grandchild = helper(use, "gc", name="grandchild")
    child = helper(use, tool_calls_reply(hand("grandchild")), "c", name="child")
    aside = helper(use, "bg", name="aside")
    agent = lead(
        tool_calls_reply(hand("child", id="1"), hand("aside", id="2", name="start_task")),
        ToolCall("3", "await_tasks", {}),
        "done",
        agents=[child, grandchild, aside],
        tools=[execute],
        hooks=[no_shell],
    )
    await agent.run("go")
    for one in (child, grandchild, aside):
        assert model_requests(one)[1].messages[-1].text == f"{one.name} may not"


async def test_a_budget_of_the_parent_holds_in_children() -> None:
    budget = Budget(tokens=100_000)
    child = helper("one two three")
    result = await lead(hand(), "done", agents=[child], hooks=[budget]).run("go")
    assert budget.spent.tokens == result.usage.total_tokens


async def test_a_question_of_a_child_reaches_the_user() -> None:
    user = ScriptedUser(True)
    child = helper(tool_calls_reply(tool_call("pay", amount=5)), "paid")
    await lead(hand(), "done", agents=[child], tools=[pay], hooks=[confirm], ask=user).run("go")
    assert user.question.question == "pay 5?" and ran == ["paid 5"]


async def test_the_events_of_a_child_are_in_the_stream() -> None:
    child = helper(tool_calls_reply(tool_call()), "ok")
    seen = await collect_events(lead(hand(), "done", agents=[child]))
    start = next(event for event in seen if event.event == "on_subagent_start").to_json()
    last = next(event for event in seen if event.event == "on_subagent_end").to_json()
    assert start["name"] == "helper" and start["data"]["parent_id"] == seen[-1].run_id != start["run_id"]
    assert start["data"]["call_id"] == "t1" and start["data"]["prompt"] == "help"
    assert last["run_id"] == start["run_id"]
    assert (last["data"]["outcome"], last["data"]["text"]) == ("completed", "ok")
    inside = [event.event for event in seen if event.run_id == start["run_id"]]
    assert inside[0] == "on_subagent_start" and inside[-1] == "on_subagent_end"
    assert {"on_chat_model_start", "on_tool_start", "on_tool_end"} <= {*inside}
    assert [event.event for event in seen if event.terminal] == ["done"]


async def test_to_cancel_the_parent_cancels_its_children() -> None:
    begun, ended = asyncio.Event(), list[str]()

    @tool
    async def hang() -> str:
        """Never ends."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("hang")
            raise
        return ""

    child = helper(ToolCall("c1", "hang", {}), tools=[hang])
    thread = Thread()
    work = asyncio.create_task(lead(hand(), agents=[child]).run("go", thread=thread))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == ["hang"]
    assert thread_entries(thread, "run_end")[-1]["outcome"] == "cancelled"


# -- in the background ------------------------------------------------------------------------------------------------


def start(prompt: str = "help", id: str = "s1", agent: str = "helper") -> ToolCall:
    return hand(agent, prompt, id, "start_task")


def on(name: str, id: str = "x1", **args: Any) -> ToolCall:
    return ToolCall(id, name, args)


class Gate:
    """A model that answers when it is let."""

    def __init__(self, answer: str = "late") -> None:
        self.started, self.open, self.answer = asyncio.Event(), asyncio.Event(), answer
        self.requests: list[Request] = []
        self.model = FunctionModel(self._answer)

    async def _answer(self, request: Request) -> Reply:
        self.requests.append(request)
        self.started.set()
        async with asyncio.timeout(20):
            await self.open.wait()
        return self.answer

    def agent(self, name: str = "helper") -> Subagent:
        return Subagent(name, "Helps.", model=self.model)


def opener(gate: Gate) -> Any:
    @tool
    async def let() -> str:
        """Open the gate of the other agent."""
        gate.open.set()
        return "let"

    @tool
    async def wait_for_start() -> str:
        """Wait until the other one has started."""
        async with asyncio.timeout(20):
            await gate.started.wait()
        return "started"

    return [let, wait_for_start]


async def test_a_task_in_the_background_is_awaited() -> None:
    gate = Gate()
    agent = lead(
        tool_calls_reply(start()),
        tool_calls_reply(on("let")),
        tool_calls_reply(on("await_tasks")),
        "done",
        agents=[gate.agent()],
        tools=opener(gate),
    )
    result = await agent.run("go")
    first, _, last = tool_results(result)
    assert first == '{"task": "task_1", "agent": "helper", "status": "running"}'
    assert last == '[{"task": "task_1", "agent": "helper", "status": "done", "answer": "late"}]'
    assert result.thread is not None and result.thread.values["tasks"]["task_1"]["answer"] == "late"


async def test_the_request_ends_with_the_status_of_tasks() -> None:
    gate = Gate()
    agent = lead(
        *(
            tool_calls_reply(start()),
            tool_calls_reply(on("wait_for_start")),
            tool_calls_reply(on("let")),
            tool_calls_reply(on("await_tasks")),
            "done",
        ),
        agents=[gate.agent()],
        tools=opener(gate),
    )
    result = await agent.run("go")
    tails = [request.messages[-1].text for request in model_requests(agent)]
    assert "task_1 (helper): running" in tails[1]
    assert "task_1 (helper): running, step 1, thinking" in tails[2]
    assert "task_1" in tails[3] and tails[4].startswith('[{"task"'), "what was read is not shown any more"
    assert not any("Tasks in the background" in message.text for message in result.messages), "only the request has it"


async def test_a_run_waits_for_its_tasks() -> None:
    gate = Gate()
    agent = lead(
        tool_calls_reply(start()),
        tool_calls_reply(on("let")),
        "early",
        "in the end",
        agents=[gate.agent()],
        tools=opener(gate),
    )
    result = await agent.run("go")
    told = result.messages[-2]
    assert result.text == "in the end"
    assert (told.name, told.text) == ("subagents.wait_for_tasks", "task_1 (helper) has ended:\nlate")


async def test_unfinished_tasks_may_be_cancelled() -> None:
    gate = Gate()
    hooks = [Subagents([gate.agent()], at_end="cancel")]
    agent = Agent(
        Scripted(tool_calls_reply(start()), tool_calls_reply(on("wait_for_start")), "early"),
        tools=opener(gate),
        hooks=hooks,
    )
    result = await agent.run("go")
    assert result.text == "early" and result.thread is not None
    assert result.thread.values["tasks"]["task_1"]["status"] == "cancelled"


async def test_a_limit_ends_the_tasks_too() -> None:
    gate = Gate()
    agent = lead(
        *(tool_calls_reply(start()), tool_calls_reply(on("wait_for_start"))),
        agents=[gate.agent()],
        tools=opener(gate),
        hooks=[Limits(steps=2)],
    )
    result = await agent.run("go")
    assert result.outcome == "stopped" and result.thread is not None
    assert result.thread.values["tasks"]["task_1"]["status"] == "cancelled"


async def test_to_cancel_the_run_cancels_its_tasks() -> None:
    gate, thread = Gate(), Thread()
    agent = lead(tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), agents=[gate.agent()])
    work = asyncio.create_task(agent.run("go", thread=thread))
    await gate.started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert thread.values["tasks"]["task_1"]["status"] == "cancelled"
    assert [task.get_name() for task in asyncio.all_tasks() if "task_1" in task.get_name()] == []


async def test_a_task_is_cancelled() -> None:
    gate = Gate()
    agent = lead(
        *(
            tool_calls_reply(start()),
            tool_calls_reply(on("wait_for_start")),
            tool_calls_reply(on("cancel_task", task="task_1")),
        ),
        *(
            tool_calls_reply(on("update_task", task="task_1", message="hello")),
            tool_calls_reply(on("cancel_task", task="task_1")),
            "done",
        ),
        agents=[gate.agent()],
        tools=opener(gate),
    )
    _, _, cancelled, told, again = tool_results(await agent.run("go"))
    assert cancelled == again == '{"task": "task_1", "agent": "helper", "status": "cancelled"}'
    assert told == "task_1 is cancelled; it gets no messages"


async def test_a_task_receives_a_message() -> None:
    gate = Gate()

    async def answer(request: Request) -> Reply:
        gate.started.set()
        if len(request.messages) == 1:
            async with asyncio.timeout(20):
                await gate.open.wait()
            return tool_calls_reply(tool_call("echo"))
        return " / ".join(message.text for message in request.messages if message.role == "user")

    child = Subagent("helper", "Helps.", model=FunctionModel(answer), tools=["echo"])
    agent = lead(
        *(
            tool_calls_reply(start("first")),
            tool_calls_reply(on("wait_for_start")),
            tool_calls_reply(on("update_task", task="task_1", message="second")),
        ),
        *(tool_calls_reply(on("let")), tool_calls_reply(on("await_tasks")), "done"),
        agents=[child],
        tools=[echo, *opener(gate)],
    )
    assert '"answer": "first / second"' in tool_results(await agent.run("go"))[-1]


async def test_a_task_receives_a_message_before_its_start() -> None:
    child = helper("ok")
    told = on("update_task", task="task_1", message="and hurry")
    await lead(tool_calls_reply(start("work"), told), tool_calls_reply(on("await_tasks")), "done", agents=[child]).run(
        "go"
    )
    assert model_requests(child)[0].messages[0].text == "work\n\nand hurry"


async def test_any_is_enough() -> None:
    slow, fast = Gate(), helper("quick", name="fast")
    agent = lead(
        *(
            tool_calls_reply(start(agent="slow", id="1"), start(agent="fast", id="2")),
            tool_calls_reply(on("await_tasks", wait_for="any")),
        ),
        *(tool_calls_reply(on("let")), "early", "done"),
        agents=[slow.agent("slow"), fast],
        tools=opener(slow),
    )
    answer = tool_results(await agent.run("go"))[2]
    assert '"agent": "slow", "status": "running"' in answer and '"answer": "quick"' in answer


async def test_waiting_has_a_limit() -> None:
    gate = Gate()
    agent = lead(
        *(
            tool_calls_reply(start()),
            tool_calls_reply(on("await_tasks", seconds=0.01)),
            tool_calls_reply(on("await_tasks", seconds=601)),
        ),
        *(tool_calls_reply(on("let")), tool_calls_reply(on("await_tasks", tasks=["task_1"])), "done"),
        agents=[gate.agent()],
        tools=opener(gate),
    )
    _, early, refused, _, late = tool_results(await agent.run("go"))
    assert '"status": "running"' in early and '"answer": "late"' in late
    assert refused == "seconds= goes from 0 to 600; wait again if that is not enough"


async def test_tasks_are_listed_also_those_of_earlier_runs() -> None:
    thread = Thread()
    agents = [helper("one", "two")]
    await lead(tool_calls_reply(start("a")), tool_calls_reply(on("await_tasks")), "done", agents=agents).run(
        "go", thread=thread
    )
    later = lead(
        *(
            tool_calls_reply(start("b")),
            tool_calls_reply(on("await_tasks")),
            tool_calls_reply(on("list_tasks", "1"), on("check_task", "2", task="task_1")),
        ),
        "done",
        agents=agents,
    )
    *_, listed, checked = tool_results(await later.run("again", thread=thread))
    assert listed == (
        '[{"task": "task_1", "agent": "helper", "status": "done"}, '
        '{"task": "task_2", "agent": "helper", "status": "done"}]'
    )
    assert '"answer": "one"' in checked


async def test_a_task_that_does_not_exist_is_a_sentence() -> None:
    result = await lead(
        tool_calls_reply(on("check_task", task="task_9")), "done", agents=[Subagent("helper", "Helps.")]
    ).run("go")
    assert tool_result(result) == "there is no task 'task_9'; the tasks are (none)"


async def test_a_failing_task_reports_it() -> None:
    child = helper(RuntimeError("out of order"))
    result = await lead(tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), "done", agents=[child]).run(
        "go"
    )
    assert '"status": "failed", "reason": "out of order"' in tool_results(result)[-1]


async def test_there_are_only_so_many_at_once() -> None:
    gate = Gate()
    hooks = [Subagents([gate.agent()], at_once=1)]
    model = Scripted(
        tool_calls_reply(start(id="1")), tool_calls_reply(start(id="2")), tool_calls_reply(on("let")), "early", "done"
    )
    result = await Agent(model, tools=opener(gate), hooks=hooks).run("go")
    assert tool_results(result)[1] == "1 tasks are open already; wait for one with await_tasks, or cancel one"


async def test_tasks_of_one_reply_wait_for_a_free_place() -> None:
    working, most = 0, 0

    async def work(request: Request) -> str:
        nonlocal working, most
        working += 1
        most = max(most, working)
        for _ in range(20):
            await asyncio.sleep(0)
        working -= 1
        return "ok"

    calls = [ToolCall(f"{n}", "task", {"agent": "worker", "prompt": "Work."}) for n in range(5)]
    calls += [ToolCall("5", "start_task", {"agent": "worker", "prompt": "Work."})]
    worker = Subagent("worker", "Works.", model=FunctionModel(work))
    model = Scripted(calls, "done", "done", spare=True)  # the last reply is used if the background task ends late
    result = await Agent(model, hooks=[Subagents([worker], at_once=2)]).run("go")
    assert [message.text for message in result.messages.tool_messages()][:5] == ["ok"] * 5
    assert (result.text, most) == ("done", 2)


async def test_a_paused_task_frees_its_place() -> None:
    calls = [ToolCall(f"{n}", "task", {"agent": "payer", "prompt": "Pay."}) for n in range(2)]
    payer = Subagent("payer", "Pays.", tools=[pay], model=FunctionModel(lambda request: tool_call("pay", amount=1)))
    user = ScriptedUser(Paused("away"), Paused("away"))
    agent = Agent(Scripted(calls), hooks=[Subagents([payer], at_once=1), confirm], ask=user)
    result = await agent.run("go")
    assert (result.outcome, len(user.questions)) == ("interrupted", 2)


@pytest.mark.parametrize(("error", "has_traceback"), [(ModelError("down"), False), (KeyError("code"), True)])
async def test_a_handled_failure_of_a_child_is_one_line_in_the_log(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    child = Subagent("child", "Works.", model=Scripted(error))
    model = Scripted(ToolCall("1", "task", {"agent": "child", "prompt": "Work."}), "done")
    result = await Agent(model, hooks=[Subagents([child])]).run("go")
    assert tool_result(result) == f"child failed: {error}"
    (record,) = [record for record in caplog.records if "of the agent child failed" in record.getMessage()]
    assert bool(record.exc_info) is has_traceback


async def test_the_events_of_a_task() -> None:
    seen = await collect_events(
        lead(tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), "done", agents=[helper("ok")])
    )
    told = [event.to_json() for event in seen if "task" in event.event]
    assert [event["event"] for event in told] == ["on_task_start", "on_task_end"]
    assert told[0]["data"] == {"task_id": "task_1", "call_id": "s1", "prompt": "help", "description": ""}
    assert told[1]["data"] | {"reason": ""} == {"task_id": "task_1", "status": "done", "text": "ok", "reason": ""}
    assert told[0]["run_id"] == told[1]["run_id"] == seen[-1].run_id
    assert "on_subagent_start" in [event.event for event in seen]


async def test_without_the_background_there_is_one_tool() -> None:
    agent = Agent(Scripted("hi"), hooks=[Subagents([Subagent("helper", "Helps.")], background=False)])
    await agent.run("go")
    assert names(model_requests(agent)[0]) == ["task"]


# -- pauses and crashes -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = InMemory() if request.param == "memory" else Sqlite(tmp_path / "threads.db")
    yield store
    await store.close()


def buyer(*replies: Reply) -> Subagent:
    return helper(*replies, tools=["look", "pay"])


def shop(store: Store | None, *replies: Reply, child: Subagent, **options: Any) -> Agent:
    hooks = [confirm] if store is None else [Sessions(store), confirm]
    return lead(*replies, agents=[child], tools=[look, pay], hooks=hooks, **options)


LOOK_THEN_PAY = (tool_calls_reply(tool_call("look", at="prices")), tool_calls_reply(tool_call("pay", amount=5)))


async def test_a_child_that_pauses_pauses_its_parent_and_is_resumed(store: Store) -> None:
    waits = await shop(store, hand(), child=buyer(*LOOK_THEN_PAY)).run("go", thread="th_1")
    assert (waits.outcome, waits.reason) == ("interrupted", "paused: waiting for an answer to: pay 5?")
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    child = buyer("bought")
    result = await shop(store, "all done", child=child).run(thread="th_1")
    assert (result.text, tool_result(result)) == ("all done", "bought")
    assert ran == ["looked at prices", "paid 5"], "what the child had done is not done again"
    assert [message.role for message in model_requests(child)[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert result.outcome == "completed" and await sessions.questions("th_1") == []


async def test_the_thread_of_a_child_is_stored(store: Store) -> None:
    await shop(store, hand(), "done", child=buyer("ok")).run("go", thread="th_1")
    threads = (await Sessions(store).threads()).threads
    child = next(thread for thread in threads if thread.id != "th_1")
    assert child.id.startswith("th_1.") and dict(child.meta) == {"parent": "th_1", "agent": "helper"}
    assert not child.run


async def test_without_a_store_the_parent_thread_contains_the_child() -> None:
    away = ScriptedUser(Paused("the user is away"))
    waits = await shop(None, hand(), child=buyer(*LOOK_THEN_PAY), ask=away).run("go")
    assert waits.outcome == "interrupted" and waits.thread is not None
    thread = Thread.from_json(waits.thread.to_json())  # as it would be read from a file
    result = await shop(None, "all done", child=buyer("bought"), ask=ScriptedUser(True)).run(thread=thread)
    assert (tool_result(result), ran) == ("bought", ["looked at prices", "paid 5"])


async def test_a_grandchild_pauses_the_whole_line(store: Store) -> None:
    def agents(grandchild: tuple[Reply, ...], child: tuple[Reply, ...]) -> list[Subagent]:
        return [helper(*grandchild, name="grandchild"), helper(*child, name="child")]

    def agent(*replies: Reply, agents: list[Subagent]) -> Agent:
        return lead(*replies, agents=agents, tools=[look, pay], hooks=[Sessions(store), confirm])

    waits = agents(LOOK_THEN_PAY, (hand("grandchild"),))
    assert (await agent(hand("child"), agents=waits).run("go", thread="th_1")).outcome == "interrupted"
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow", args={"amount": 3})
    result = await agent("done", agents=agents(("gc",), ("c",))).run(thread="th_1")
    assert (tool_result(result), ran) == ("c", ["looked at prices", "paid 3"])


async def test_a_waiting_task_pauses_the_waiting_run(store: Store) -> None:
    waits = await shop(
        store, tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), child=buyer(*LOOK_THEN_PAY)
    ).run("go", thread="th_1")
    assert (waits.outcome, waits.reason) == ("interrupted", "paused: waiting for an answer to: pay 5?")
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    result = await shop(store, "done", child=buyer("bought")).run(thread="th_1")
    assert '"answer": "bought"' in tool_results(result)[-1]
    assert ran == ["looked at prices", "paid 5"]


async def test_a_waiting_task_pauses_the_run_at_its_end(store: Store) -> None:
    waits = await shop(
        store,
        tool_calls_reply(start()),
        tool_calls_reply(tool_call("look", at="it")),
        "early",
        child=buyer(*LOOK_THEN_PAY),
    ).run("go", thread="th_1")
    assert waits.outcome == "interrupted"
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    result = await shop(store, "in the end", child=buyer("bought")).run(thread="th_1")
    assert result.text == "in the end" and ran.count("paid 5") == 1
    assert result.messages[-2].text == "task_1 (helper) has ended:\nbought"


async def test_without_a_store_a_task_is_resumed_too() -> None:
    away, there = ScriptedUser(Paused("the user is away")), ScriptedUser(True)
    waits = await shop(
        None, tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), child=buyer(*LOOK_THEN_PAY), ask=away
    ).run("go")
    assert waits.outcome == "interrupted" and waits.thread is not None
    thread = Thread.from_json(waits.thread.to_json())
    result = await shop(None, "done", child=buyer("bought"), ask=there).run(thread=thread)
    assert '"answer": "bought"' in tool_results(result)[-1] and ran == ["looked at prices", "paid 5"]


async def test_a_pausing_run_lets_its_tasks_finish(store: Store) -> None:
    gate = Gate()

    @guard(ToolUse, match="wait_for_start")
    async def later(use: ToolUse) -> Ask:
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
        return Ask("started?")

    hooks = [Sessions(store), later, Subagents([gate.agent()])]
    agent = Agent(
        Scripted(tool_calls_reply(start()), tool_calls_reply(on("wait_for_start"))), tools=opener(gate), hooks=hooks
    )
    waits = await agent.run("go", thread="th_1")
    assert waits.outcome == "interrupted" and waits.thread is not None
    assert waits.thread.values["tasks"]["task_1"]["answer"] == "late"


async def test_a_task_that_waits_is_shown_and_can_be_cancelled(store: Store) -> None:
    @tool
    async def until_asked(run: Run) -> str:
        """Wait until the task waits."""
        async with asyncio.timeout(20):
            while run.thread.values["tasks"]["task_1"]["status"] != "waiting":
                await asyncio.sleep(0.01)
        return "asked"

    replies = (
        tool_calls_reply(start()),
        tool_calls_reply(on("until_asked")),
        tool_calls_reply(on("cancel_task", task="task_1")),
        "done",
    )
    child = buyer(tool_calls_reply(tool_call("pay", amount=5)))
    agent = lead(*replies, agents=[child], tools=[pay, until_asked], hooks=[Sessions(store), confirm])
    seen = await collect_events(agent, thread="th_1")
    assert seen[-1].to_json()["data"]["outcome"] == "completed" and ran == []
    assert model_requests(agent)[2].messages[-1].text.endswith("- task_1 (helper): waiting")
    told = [(event.event, event.to_json()["data"].get("status")) for event in seen if "on_task" in event.event]
    assert told == [("on_task_start", None), ("on_task_update", "waiting"), ("on_task_end", "cancelled")]


async def test_a_question_passed_by_the_root_is_asked_again(store: Store) -> None:
    """A question belongs to the step it is put in; a run that pauses for it has it open."""

    @tool
    async def until_asked(run: Run) -> str:
        """Wait until there is a question."""
        async with asyncio.timeout(20):
            while not run.thread.questions:
                await asyncio.sleep(0)
        return "asked"

    child = buyer(tool_calls_reply(tool_call("pay", amount=5)))
    hooks = [Sessions(store), confirm, Subagents([child])]
    agent = Agent(
        Scripted(tool_calls_reply(start()), tool_calls_reply(on("until_asked")), "early"),
        tools=[pay, until_asked],
        hooks=hooks,
    )
    assert (await agent.run("go", thread="th_1")).outcome == "interrupted"
    (question,) = await Sessions(store).questions("th_1")
    assert question["question"] == "pay 5?"


async def test_a_task_of_a_child_pauses_the_whole_line(store: Store) -> None:
    def agent(*replies: Reply, grandchild: tuple[Reply, ...], child: tuple[Reply, ...]) -> Agent:
        agents = [helper(*grandchild, name="grandchild"), helper(*child, name="child")]
        return lead(*replies, agents=agents, tools=[look, pay], hooks=[Sessions(store), confirm])

    begun = (tool_calls_reply(start(agent="grandchild")), "early")
    waits = agent(tool_calls_reply(start(agent="child")), "early", grandchild=LOOK_THEN_PAY, child=begun)
    assert (await waits.run("go", thread="th_1")).outcome == "interrupted"
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    again = agent("in the end", grandchild=("bought",), child=("c",))
    result = await again.run(thread="th_1")
    assert (result.text, ran) == ("in the end", ["looked at prices", "paid 5"])
    assert result.messages[-2].text == "task_1 (child) has ended:\nc"


async def test_a_waiting_task_does_not_block_wait_any(store: Store) -> None:
    quick = helper("quick", name="quick")
    model = Scripted(
        tool_calls_reply(start(id="1"), start(id="2", agent="quick")),
        tool_calls_reply(on("await_tasks", wait_for="any")),
        "early",
    )
    agents = [buyer(tool_calls_reply(tool_call("pay", amount=5))), quick]
    agent = Agent(model, tools=[look, pay], hooks=[Sessions(store), confirm, Subagents(agents)])
    waits = await agent.run("go", thread="th_1")
    assert '"answer": "quick"' in tool_results(waits)[-1], "one was enough"
    assert waits.reason == "paused: waiting for an answer to: pay 5?", "and the end waits for the other"


async def test_user_messages_interrupt_a_wait() -> None:
    gate = Gate()
    agent = lead(tool_calls_reply(start()), "early", "I hear you", "in the end", agents=[gate.agent()])
    stream = agent.stream("go")
    async for event in stream:
        if event.event == "on_chat_model_end" and len(model_requests(agent)) == 2:
            stream.run.send("hello?")
        if event.event == "on_chat_model_end" and len(model_requests(agent)) == 3:
            gate.open.set()
    assert stream.result.text == "in the end"
    assert [message.text for message in stream.result.messages if message.role == "user"][1] == "hello?"


async def test_a_child_receives_messages_to_its_thread(store: Store) -> None:
    gate, sessions = Gate(), Sessions(store)
    agent = Agent(Scripted(hand(), "done"), hooks=[sessions, Subagents([gate.agent()])])
    work = asyncio.create_task(agent.run("go", thread="th_1"))
    await gate.started.wait()
    child = next(thread.id for thread in (await sessions.threads()).threads if thread.id != "th_1")
    await sessions.send(child, "and this")
    gate.open.set()
    await work
    assert gate.requests[-1].messages[-1].text == "and this"


class Breaking(InMemory):
    """A store whose disk is full from some moment on."""

    full = False

    async def append(self, *args: Any, **options: Any) -> int:
        if self.full:
            raise StoreError("the disk is full")
        return await super().append(*args, **options)


@pytest.mark.parametrize("last", [tool_calls_reply(on("await_tasks")), "early"], ids=["awaited", "at the end"])
async def test_a_store_that_breaks_fails_the_run_and_leaves_nothing_behind(last: Reply) -> None:
    store, gate = Breaking(), Gate()

    @tool
    async def fill() -> str:
        """Fill the disk."""
        store.full = True
        gate.open.set()
        return "full"

    agent = Agent(
        Scripted(
            tool_calls_reply(start()),
            tool_calls_reply(on("wait_for_start")),
            tool_calls_reply(on("fill")),
            last,
            spare=True,
        ),
        tools=[fill, *opener(gate)],
        hooks=[Sessions(store), Subagents([gate.agent()])],
    )
    with pytest.raises(StoreError, match="the disk is full"):
        await agent.run("go", thread="th_1")


async def test_a_long_answer_is_truncated() -> None:
    child = helper("x" * 100_010)
    result = await lead(tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), "done", agents=[child]).run(
        "go"
    )
    assert result.thread is not None
    kept = result.thread.values["tasks"]["task_1"]["answer"]
    assert kept == "x" * 100_000 + "\n\n... (truncated 10 characters) ..."


async def test_a_task_of_an_abandoned_run_is_lost() -> None:
    thread = Thread()
    await lead(tool_calls_reply(start()), tool_calls_reply(on("await_tasks")), "done", agents=[helper("ok")]).run(
        "go", thread=thread
    )
    record = {**thread.values["tasks"]["task_1"], "status": "running", "run": "run_gone", "answer": ""}
    thread.values.put("tasks", "task_1", record)
    agent = lead(tool_calls_reply(on("check_task", task="task_1")), "done", agents=[Subagent("helper", "Helps.")])
    assert tool_result(await agent.run("and?", thread=thread)) == (
        '{"task": "task_1", "agent": "helper", "status": "lost", "reason": "the run was interrupted"}'
    )


async def test_an_answer_that_was_lost_in_a_crash_is_not_worked_for_again(store: Store) -> None:
    """The child had ended, and its parent died before it could write that down."""
    first = await shop(store, hand(), "done", child=buyer("bought")).run("go", thread="th_1")
    assert first.thread is not None
    intent = next(entry.seq for entry in first.thread.entries if entry.kind == "intent")
    await Sessions(store).rewind("th_1", intent)
    result = await shop(store, "done again", child=buyer()).run(thread="th_1")
    assert (result.text, tool_result(result)) == ("done again", "bought")


# The child of a run, or its background task, reads something and then kills the program.
DIES = """
import asyncio, os, sys
from pathlib import Path
from wick import Agent, Scripted, ToolCall, tool
from wick.capabilities.sessions import Sessions
from wick.capabilities.subagents import Subagents
from wick.stores.sqlite import Sqlite
from wick.capabilities._child_agents.definitions import Subagent

folder, how = Path(sys.argv[1]), sys.argv[2]

@tool
async def look(at: str) -> str:
    "Look."
    (folder / "looked").open("a").write(at)
    return f"seen {at}"

@tool
async def die() -> str:
    "Die."
    os._exit(9)

child = Scripted(ToolCall("1", "look", {"at": "x"}), ToolCall("2", "die", {}))
helper = Subagent("helper", "Helps.", model=child)
lead = Scripted(ToolCall("1", how, {"agent": "helper", "prompt": "work"}), ToolCall("2", "await_tasks", {}))
hooks = [Sessions(Sqlite(folder / "threads.db"), lease=0.5), Subagents([helper])]
asyncio.run(Agent(lead, tools=[look, die], hooks=hooks).run("go", thread="th_1"))
"""


@pytest.mark.parametrize("how", ["task", "start_task"])
async def test_after_a_crash_children_are_resumed(how: str, tmp_path: Path) -> None:
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES, str(tmp_path), how], timeout=60, capture_output=True
    )
    assert died.returncode == 9, died.stderr.decode()

    @tool
    async def die() -> str:
        """Die."""
        ran.append("died")
        return "?"

    child = helper("survived")
    store = Sqlite(tmp_path / "threads.db")
    hooks = [Sessions(store, lease=0.5), Subagents([child])]
    result = await Agent(Scripted("done"), tools=[look, die], hooks=hooks).run(thread="th_1")
    await store.close()
    assert "survived" in tool_results(result)[-1] and result.text == "done"
    assert (tmp_path / "looked").read_text() == "x" and ran == [], "nothing was done a second time"
    assert model_requests(child)[0].messages[-1].text.startswith("die was started before")


# -- bad options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Subagents([]), "there is no subagent"),
        (lambda: Subagents([Subagent("a", "A."), Subagent("a", "B.")]), "two subagents are named 'a'"),
        (lambda: Subagents([Subagent("a", "A.")], depth=0), r"depth=0\): give a whole number"),
        (lambda: Subagents([Subagent("a", "A.")], at_once=True), "at_once=True"),
        (lambda: Subagents([Subagent("a", "A.")], at_end="never"), "at_end="),  # type: ignore[arg-type]
        (lambda: Subagents([Subagent("a", "A.")], background=1), "background="),  # type: ignore[arg-type]
        (lambda: Subagents([Subagent("a", "A.", hooks=[print])]), "among its hooks"),
        (lambda: Subagents([Subagent("a", "A.", hooks=[Sessions(InMemory())])]), "kept with its parent's"),
    ],
)
def test_bad_options_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize("tool_name", ["task", "start_task"])
async def test_a_description_is_for_the_user(tool_name: str) -> None:
    long = "look\nat it " * 50
    args = {"agent": "helper", "prompt": "help", "description": long}
    waits = [tool_calls_reply(on("await_tasks"))] if tool_name == "start_task" else []
    agent = lead(tool_calls_reply(on(tool_name, "c1", **args)), *waits, "done", agents=[helper("ok")])
    told = {event.event: event.to_json()["data"] for event in await collect_events(agent)}
    starts = ["on_subagent_start", *(["on_task_start"] if tool_name == "start_task" else [])]
    for event in starts:
        shown = told[event]["description"]
        assert shown.startswith("look at it") and "\n" not in shown and len(shown) <= constants.TASK_DESCRIPTION_CHARS
