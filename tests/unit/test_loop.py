"""The loop: the sequence of operations, the end of a run, and misbehaving models and tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kit import (
    ScriptedUser,
    collect_events,
    echo,
    echo_agent,
    hello_agent,
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
    Capability,
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
    ToolError,
    ToolResult,
    ToolUse,
    after,
    assistant,
    before,
    constants,
    guard,
    tool,
    user,
    wrap,
)
from wick._internal.worker_threads import list_abandoned
from wick.capabilities.retry import Retry
from wick.errors import HookError, MessageError, ModelError
from wick.events import Done, Event, Failed
from wick.hooks import Next
from wick.models import reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage


class Raw:
    """A model that streams exactly these deltas, one list a question; an exception among them is raised."""

    name = "raw"

    def __init__(self, *streams: list[Any]) -> None:
        self.streams = list(streams)
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        try:
            for delta in self.streams.pop(0):
                await asyncio.sleep(0)
                if isinstance(delta, BaseException):
                    raise delta
                yield delta
        finally:
            self.closed += 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandon work that ignores cancellation sooner."""
    monkeypatch.setattr(constants, "CANCEL_GRACE_SECONDS", 0.02)


def valid(thread: Thread) -> bool:
    """Return True if a thread is valid: every call answered, in order, and ready for the next message."""
    thread.messages.validate()
    return not thread.pending and not thread.busy


def named(tool: str, name: str) -> ToolCall:
    """Return a call whose id is its argument."""
    return ToolCall(name, tool, {"name": name})


def terminal(events: list[Event]) -> list[Event]:
    return [event for event in events if event.terminal]


# -- order ------------------------------------------------------------------------------------------------------------


async def test_a_run_takes_steps_and_each_asks_the_model_and_uses_its_tools() -> None:
    log: list[str] = []

    class Log(Capability):
        @wrap(Operation)
        async def note(self, op: Operation[Any], next: Next[Any]) -> Any:
            log.append(f"+{op.operation_name}")
            result = await next(op)
            log.append(f"-{op.operation_name}")
            return result

    result = await echo_agent(Log()).run("go")
    step = "+step +model_call -model_call +tool_use -tool_use -step +step +model_call -model_call -step"
    assert log == f"+run {step} -run".split()
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert (result.text, result.outcome, result.reason) == ("done", "completed", "completed")


async def test_a_run_stops_without_tool_calls() -> None:
    result = await hello_agent().run("hi")
    assert (result.text, result.outcome, result.reason, result.error) == ("hello", "completed", "completed", None)
    assert [message.text for message in result.messages] == ["hi", "hello"]


async def test_a_reply_with_text_and_calls_continues() -> None:
    model = Scripted(assistant("let me see", tool_call()), "done")
    assert (await Agent(model, tools=[echo]).run("go")).text == "done"


async def test_an_empty_reply_is_not_stored() -> None:
    result = await Agent(Scripted("")).run("go")
    assert (result.text, result.outcome) == ("", "completed")
    assert [message.role for message in result.messages] == ["user"]


@pytest.mark.parametrize("order", ["abc", "cba", "bac", "cab"])
async def test_results_follow_the_order_of_the_calls(order: str) -> None:
    gates = {name: asyncio.Event() for name in "abc"}
    finished: list[str] = []
    gates[order[0]].set()

    @tool
    async def work(name: str) -> str:
        """Finish when it is time."""
        await gates[name].wait()
        finished.append(name)
        if following := order[order.index(name) + 1 :]:
            gates[following[0]].set()
        return f"result of {name}"

    model = Scripted(tool_calls_reply(*(named("work", name) for name in "abc")), "done")
    result = await Agent(model, tools=[work]).run("go")
    assert "".join(finished) == order
    assert tool_results(result) == ["result of a", "result of b", "result of c"]
    asked = model.requests[1].messages
    assert [message.tool_call_id for message in asked if message.role == "tool"] == ["a", "b", "c"]
    assert result.thread is not None
    logged = [entry for entry in thread_entries(result.thread, "message") if entry.role == "tool"]
    assert [message.tool_call_id for message in logged] == list(order)


async def test_tools_run_side_by_side() -> None:
    together = asyncio.Barrier(3)

    @tool
    async def meet(name: str) -> str:
        """Wait for the others."""
        await together.wait()
        return name

    model = Scripted(tool_calls_reply(*(named("meet", name) for name in "abc")), "done")
    assert tool_results(await Agent(model, tools=[meet]).run("go")) == ["a", "b", "c"]


async def test_sync_tools_run_side_by_side_too() -> None:
    together = threading.Barrier(3, timeout=20)

    @tool
    def meet(name: str) -> str:
        """Wait for the others."""
        together.wait()
        return name

    model = Scripted(tool_calls_reply(*(named("meet", name) for name in "abc")), "done")
    assert tool_results(await Agent(model, tools=[meet]).run("go")) == ["a", "b", "c"]


@pytest.mark.parametrize("order", ["P!P", "!PP", "PP!", "!!!", "P!!P", "PP!PP"])
async def test_an_exclusive_tool_runs_alone_and_the_order_is_kept(order: str) -> None:
    running: set[int] = set()
    began: list[int] = []
    beside: list[tuple[str, int]] = []

    async def work(number: int, kind: str) -> str:
        running.add(number)
        began.append(number)
        for _ in range(20):
            await asyncio.sleep(0)
            beside.append((kind, len(running)))
        running.discard(number)
        return str(number)

    @tool(alone=True)
    async def one(number: int) -> str:
        """Work alone."""
        return await work(number, "!")

    @tool
    async def many(number: int) -> str:
        """Work with others."""
        return await work(number, "P")

    wanted = [tool_call("one" if kind == "!" else "many", id=str(at), number=at) for at, kind in enumerate(order)]
    result = await Agent(Scripted(tool_calls_reply(*wanted), "done"), tools=[one, many]).run("go")
    assert began == list(range(len(order)))
    assert all(count == 1 for kind, count in beside if kind == "!")
    assert ("PP" not in order) or max(count for _, count in beside) == 2
    assert tool_results(result) == [str(at) for at in range(len(order))]


# -- how a run ends ---------------------------------------------------------------------------------------------------


def stop_at(step: int, reason: str) -> Any:
    @after(Step)
    def halt(at: Step) -> Stop | None:
        return Stop(reason) if at.number == step else None

    return halt


@before(Run)
def block_the_run(run: Run) -> Block:
    return Block("no")


@before(ModelCall)
def block_the_call(call: ModelCall) -> Block:
    return Block("no")


@guard(Step)
def block_the_step(step: Step) -> Block:
    return Block("no")


@guard(ToolUse)
def ask(use: ToolUse) -> Ask:
    return Ask("sure?")


@guard(ToolUse)
def stop_there(use: ToolUse) -> Stop:
    return Stop("enough")


@pytest.mark.parametrize(
    ("hooks", "outcome", "reason"),
    [
        ([], "completed", "completed"),
        ([block_the_run], "stopped", "blocked: no"),
        ([block_the_step], "stopped", "blocked: no"),
        ([block_the_call], "stopped", "blocked: no"),
        ([stop_there], "stopped", "stop requested: enough"),
        ([stop_at(1, "enough")], "stopped", "stop requested: enough"),
        ([stop_at(1, "")], "stopped", "stop requested"),
        ([stop_at(1, "budget: $2 of $1")], "stopped", "budget: $2 of $1"),
        ([stop_at(1, "retry limit")], "stopped", "retry limit"),
        ([Limits(steps=1)], "stopped", "step limit"),
        ([Limits(tokens=1)], "stopped", "token limit"),
        ([Limits(seconds=1e-9)], "stopped", "time limit"),
        ([ask], "interrupted", "paused: later"),
    ],
)
async def test_outcomes_and_reasons(hooks: list[Any], outcome: str, reason: str) -> None:
    agent, thread = echo_agent(*hooks, ask=ScriptedUser(Paused("later"))), Thread()
    seen = await collect_events(agent, thread=thread)
    (last,) = terminal(seen)
    assert seen[-1] is last and isinstance(last, Done)
    assert (last.outcome, last.reason) == (outcome, reason)
    result = await echo_agent(*hooks, ask=ScriptedUser(Paused("later"))).run("go")
    assert (result.outcome, result.reason) == (outcome, reason)
    assert outcome == "interrupted" or valid(thread)
    ended = thread_entries(thread, "run_end")
    assert [(end["outcome"], end["reason"]) for end in ended] == [(outcome, reason)] * len(ended)
    assert len(ended) == (block_the_run not in hooks)


async def test_a_failed_run_raises_after_its_terminal_event() -> None:
    error = ModelError("overloaded")
    seen: list[Event] = []
    thread = Thread()
    with pytest.raises(ModelError) as caught:
        await Agent(Scripted(error)).run("go", thread=thread, emit=seen.append)
    assert caught.value is error
    assert isinstance(seen[-1], Failed) and len(terminal(seen)) == 1
    assert (seen[-1].code, seen[-1].message) == ("model_error", "overloaded")
    assert thread_entries(thread, "run_end")[0]["outcome"] == "failed"
    assert thread_entries(thread, "run_end")[0]["reason"] == "error"
    assert valid(thread)


async def test_an_error_without_words_is_named() -> None:
    (*_, last) = await collect_events(Agent(Scripted(KeyError())))
    assert isinstance(last, Failed)
    assert (last.code, last.message) == ("key_error", "KeyError()")


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal"])
async def test_an_unusual_finish_completes_with_its_reason(finish: str) -> None:
    result = await Agent(Raw([TextDelta("half of"), Finish(finish)])).run("go")
    assert (result.outcome, result.reason, result.text) == ("completed", f"finish reason: {finish}", "half of")


@pytest.mark.parametrize("finish", ["stop", "end_turn", "tool_calls"])
async def test_a_usual_finish_is_not_worth_mentioning(finish: str) -> None:
    assert (await Agent(Raw([TextDelta("all"), Finish(finish)])).run("go")).reason == "completed"


@pytest.mark.parametrize(
    ("stops", "kept"),
    [
        (["retry limit", "time limit", "budget: all"], "budget: all"),
        (["enough", "budget"], "stop requested: enough"),
        (["time limit", "token limit", "step limit"], "step limit"),
        (["first", "second"], "stop requested: first"),
    ],
)
async def test_of_several_reasons_the_most_authoritative_wins(stops: list[str], kept: str) -> None:
    asked = tool_calls_reply(*(tool_call(id=str(number)) for number in range(len(stops))))

    @guard(ToolUse)
    def halt(use: ToolUse) -> Stop:
        return Stop(stops[int(use.call.id)])

    result = await Agent(Scripted(asked), tools=[echo], hooks=[halt]).run("go")
    assert (result.outcome, result.reason) == ("stopped", kept)


async def test_a_failure_outranks_a_wait() -> None:
    @before(ToolUse)
    def look(use: ToolUse) -> Ask | None:
        if use.call.id == "b":
            raise ValueError("broken")
        return Ask("sure?")

    thread = Thread()
    agent = Agent(
        Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b"))),
        tools=[echo],
        hooks=[look],
        ask=ScriptedUser(Paused("later")),
    )
    with pytest.raises(ValueError, match="broken"):
        await agent.run("go", thread=thread)
    assert valid(thread)


async def test_continue_takes_another_step_with_the_hooks_words() -> None:
    @after(Step)
    def more(step: Step) -> Continue | None:
        return Continue("are you sure?") if step.number == 1 else None

    model = Scripted("five", "yes, five")
    result = await Agent(model, hooks=[more]).run("2 + 3?")
    assert result.text == "yes, five"
    said = model.requests[1].messages[-1]
    assert (said.role, said.text, said.name) == ("user", "are you sure?", "more")


async def test_continue_stops_after_eight_in_a_row() -> None:
    @after(Step)
    def more(step: Step) -> Continue:
        return Continue("again")

    model = FunctionModel(lambda request: "no")
    result = await Agent(model, hooks=[more]).run("go")
    assert (result.outcome, len(model.requests)) == ("completed", 9)


async def test_a_stop_does_not_stop_the_siblings() -> None:
    ran = []

    @tool
    async def work(name: str) -> str:
        """Work for a while."""
        for _ in range(5):
            await asyncio.sleep(0)
        ran.append(name)
        return name

    @guard(ToolUse)
    def halt(use: ToolUse) -> Stop | None:
        return Stop("enough") if use.args["name"] == "a" else None

    model = Scripted(tool_calls_reply(named("work", "a"), named("work", "b")))
    result = await Agent(model, tools=[work], hooks=[halt]).run("go")
    assert ran == ["b"]
    assert tool_results(result) == ["enough", "b"]
    assert result.reason == "stop requested: enough"


# -- tools that fail --------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], str]:
    def fail() -> str:
        """Fail."""
        raise error

    return fail


async def sleepy() -> str:
    """Sleep."""
    await asyncio.sleep(60)
    return "awake"


@pytest.mark.parametrize(
    ("fn", "options", "said"),
    [
        (raising(ToolError("the disk is full")), {}, "the disk is full"),
        (raising(ValueError("bad")), {}, "fail: ValueError: bad"),
        (raising(SystemExit(1)), {}, "fail: SystemExit: 1"),
        (lambda: object(), {"name": "odd"}, "odd returned a object, which is not JSON data"),
        (lambda: ToolResult(error="no luck"), {"name": "unlucky"}, "no luck"),
        (sleepy, {"timeout": 0.01}, "sleepy did not finish within 0.01 s; whether it took effect is unknown"),
    ],
)
async def test_a_tool_failure_is_sent_to_the_model_and_the_run_continues(
    fn: Any, options: dict[str, Any], said: str
) -> None:
    made = tool(fn, **options)
    result = await Agent(Scripted(tool_calls_reply(ToolCall("c", made.name)), "done"), tools=[made]).run("go")
    assert said in tool_result(result)
    assert (result.text, result.outcome) == ("done", "completed")


async def test_a_tool_that_is_not_there_is_answered_with_those_that_are() -> None:
    result = await Agent(Scripted(tool_calls_reply(tool_call("ecko")), "done"), tools=[echo]).run("go")
    assert tool_result(result) == "there is no tool named 'ecko'; the tools are echo; did you mean echo?"


async def test_an_agent_without_tools_reports_it() -> None:
    result = await Agent(Scripted(tool_calls_reply(tool_call("anything")), "done")).run("go")
    assert "this agent has no tools" in tool_result(result)


async def test_invalid_arguments_are_reported_to_the_model() -> None:
    used = []

    @before(ToolUse)
    def look(use: ToolUse) -> None:
        used.append(use)

    model = Scripted(tool_calls_reply(tool_call(times="many"), tool_call(id="c2", text="x", colour="red")), "done")
    result = await Agent(model, tools=[echo], hooks=[look]).run("go")
    assert all("echo" in text for text in tool_results(result))
    assert not used and not thread_entries(result.thread, "intent")


async def test_a_hook_failing_around_a_tool_fails_the_run_and_the_thread_is_valid() -> None:
    ran = []

    @tool
    def effect() -> str:
        """Have an effect."""
        ran.append(True)
        return "done"

    @wrap(ToolUse)
    async def clumsy(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        raise ValueError("oops")

    thread = Thread()
    with pytest.raises(ValueError, match="oops"):
        await Agent(Scripted(tool_calls_reply(ToolCall("c", "effect"))), tools=[effect], hooks=[clumsy]).run(
            "go", thread=thread
        )
    assert ran == [True]
    assert "was not used" not in thread.messages[-1].text
    assert "effect ran" in thread.messages[-1].text
    assert valid(thread)


async def test_a_hook_failing_before_a_tool_skips_it_and_siblings_finish() -> None:
    @before(ToolUse)
    async def clumsy(use: ToolUse) -> None:
        if use.call.id == "a":
            raise ValueError("secret detail")

    thread = Thread()
    with pytest.raises(ValueError):
        await Agent(Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b"))), tools=[echo], hooks=[clumsy]).run(
            "go", thread=thread
        )
    assert [message.text for message in thread.messages[2:]] == ["echo was not used: ValueError", "hi"]
    assert valid(thread)


async def test_after_a_failed_run_the_thread_is_usable() -> None:
    thread = Thread()
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded"))).run("one", thread=thread)
    model = Scripted("two it is")
    assert (await Agent(model).run("two", thread=thread)).text == "two it is"
    assert [message.text for message in model.requests[0].messages] == ["one", "two"]


async def test_a_failed_run_can_be_retried_without_new_input() -> None:
    thread = Thread()
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded"))).run("one", thread=thread)
    result = await Agent(Scripted("here you are")).run(thread=thread)
    assert result.text == "here you are"
    assert [message.text for message in thread.messages] == ["one", "here you are"]


# -- models that misbehave --------------------------------------------------------------------------------------------


def effect() -> tuple[Any, list[str]]:
    ran: list[str] = []

    @tool
    def write(path: str = "default") -> str:
        """Write to a file."""
        ran.append(path)
        return "written"

    return write, ran


START, ARGS, DONE = CallStart(0, "c", "write"), CallArgs(0, '{"path": "a"}'), Finish("tool_calls")


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [TextDelta("half a sen")],
        [START, ARGS],
        [START, CallArgs(0, '{"pa'), ModelError("connection lost")],
        [START, ARGS, ConnectionResetError("by peer")],
        [CallArgs(0, "{}"), DONE],
        [START, ARGS, CallArgs(1, "{}"), DONE],
        [START, ARGS, CallStart(0, "d", "write"), DONE],
        [START, ARGS, CallStart(1, "c", "write"), DONE],
        [START, ARGS, "text", DONE],
        [START, ARGS, None, DONE],
        [START, ARGS, TextDelta("x" * 2000), DONE],
    ],
)
async def test_a_broken_stream_fails_the_run_and_no_tool_runs(
    stream: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "REPLY_CHARS", 1000)
    write, ran = effect()
    thread, model = Thread(), Raw(stream, [TextDelta("better"), Finish()])
    agent = Agent(model, tools=[write], hooks=[Retry(1)])
    seen = await collect_events(agent, thread=thread)
    assert isinstance(seen[-1], Failed) and len(terminal(seen)) == 1
    assert not ran and not thread_entries(thread, "intent")
    assert [message.role for message in thread.messages] == ["user"]
    assert model.closed == 1
    assert (await agent.run(thread=thread)).text == "better"
    assert valid(thread)


@pytest.mark.parametrize(
    ("deltas", "said"),
    [
        ([START, CallArgs(0, '{"path": "/et'), Finish("length")], "not valid JSON"),
        ([START, Finish("length")], "cut off"),
        ([START, CallArgs(0, '{"path": "a", "path": "b"}'), DONE], "'path' is there twice"),
        ([START, CallArgs(0, '{"path": NaN}'), DONE], "NaN is not a JSON number"),
        ([START, CallArgs(0, '["a"]'), DONE], "must be a JSON object"),
        ([CallStart(0, "c", ""), CallArgs(0, '{"path": "a"}'), DONE], "unnamed"),
        ([START, CallArgs(0, '{"path": 7, "mode": "w"}'), DONE], "write"),
    ],
)
async def test_unparsable_arguments_are_reported_to_the_model(deltas: list[Any], said: str) -> None:
    write, ran = effect()
    result = await Agent(Raw(deltas, [TextDelta("sorry"), Finish()]), tools=[write]).run("go")
    assert said in tool_result(result)
    assert (result.text, ran) == ("sorry", [])


async def test_a_call_without_an_id_is_made_and_answered() -> None:
    write, ran = effect()
    stream = [CallStart(0, "", "write"), CallStart(1, "", "write"), CallArgs(1, '{"path": "b"}'), DONE]
    result = await Agent(Raw(stream, [Finish()]), tools=[write]).run("go")
    assert sorted(ran) == ["b", "default"]
    assert result.thread is not None and valid(result.thread)


async def test_an_endless_stream_is_cut_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "REPLY_CHARS", 10_000)
    closed = []

    class Endless:
        name = "endless"

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                while True:
                    yield TextDelta("again and again ")
            finally:
                closed.append(True)

    with pytest.raises(ModelError, match="longer than 10,000 characters"):
        await Agent(Endless()).run("go")
    assert closed == [True]


async def test_a_model_that_is_no_model_fails_the_run() -> None:
    class Broken:
        name = "broken"

        def stream(self, request: Request) -> Any:
            return ["not", "async"]

    thread = Thread()
    with pytest.raises(TypeError):
        await Agent(Broken()).run("go", thread=thread)
    assert valid(thread)


async def test_usage_of_a_broken_stream_counts() -> None:
    seen: list[Usage] = []

    @after(Run)
    def look(run: Run) -> None:
        seen.append(run.usage)

    with pytest.raises(ModelError):
        await Agent(Raw([Usage(10, 3), TextDelta("half")]), hooks=[look, Retry(1)]).run("go")
    assert seen == [Usage(10, 3)]


async def test_a_reply_with_duplicate_call_ids_fails_the_run_and_not_the_thread() -> None:
    @after(ModelCall)
    def double(call_: ModelCall) -> None:
        call_.result = tool_calls_reply(tool_call(id="a"), tool_call(id="a"))

    thread = Thread()
    with pytest.raises(MessageError, match="same id"):
        await Agent(Scripted("hi"), tools=[echo], hooks=[double]).run("go", thread=thread)
    assert valid(thread)
    assert (await hello_agent().run("again", thread=thread)).text == "hello"


async def test_a_model_may_use_the_same_id_in_every_step() -> None:
    write, ran = effect()
    model = Scripted(*(tool_calls_reply(tool_call("write", path=path)) for path in "abc"), "done")
    result = await Agent(model, tools=[write]).run("go")
    assert ran == ["a", "b", "c"]
    assert tool_results(result) == ["written"] * 3


# -- usage ------------------------------------------------------------------------------------------------------------


async def test_usage_adds_up_over_steps() -> None:
    model = Raw([Usage(10, 1, 5, 1), START, DONE], [Usage(20, 2, 10, 0), TextDelta("done"), Finish()])
    write, _ = effect()
    result = await Agent(model, tools=[write]).run("go")
    assert result.usage == Usage(30, 3, 15, 1)
    assert thread_entries(result.thread, "run_end")[0]["usage"] == result.usage.to_json()


async def test_usage_counts_children_and_calls_with_a_purpose() -> None:
    child = Agent(Raw([Usage(100, 10), TextDelta("below"), Finish()]))

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        await run.call_model([user("think")], purpose="plan")
        result = await child.run("do it", parent=run)
        assert result.usage == Usage(100, 10)
        return result.text

    model = Raw(
        [Usage(1, 1), CallStart(0, "c", "delegate"), DONE],
        [Usage(2, 2), TextDelta("a plan"), Finish()],
        [Usage(4, 4), TextDelta("done"), Finish()],
    )
    assert (await Agent(model, tools=[delegate]).run("go")).usage == Usage(107, 17)


# -- inbox messages ---------------------------------------------------------------------------------------------------


def sending(text: str | Message, at: type[Operation[Any]] = ToolUse) -> Any:
    """A hook that sends a message, as a user would during the run."""

    @before(at)
    def send(op: Operation[Any]) -> None:
        if not op.run.scratch.get("sent"):
            op.run.scratch["sent"] = True
            op.run.send(text)

    return send


async def test_a_message_sent_while_tools_run_joins_at_the_next_step() -> None:
    agent = echo_agent(sending("and hurry"))
    result = await agent.run("go")
    assert [message.text for message in result.messages] == ["go", "", "hi", "and hurry", "done"]
    assert isinstance(agent.model, Scripted)
    assert agent.model.requests[1].messages[-1] == user("and hurry")


async def test_a_message_sent_before_the_end_turns_completed_into_another_step() -> None:
    model = Scripted("five", "ten")
    result = await Agent(model, hooks=[sending("times two?", ModelCall)]).run("2 + 3?")
    assert (result.text, result.reason) == ("ten", "completed")
    assert [message.text for message in result.messages] == ["2 + 3?", "five", "times two?", "ten"]


async def test_inbox_messages_are_appended_in_order() -> None:
    @before(ToolUse)
    def send(use: ToolUse) -> None:
        for number in range(3):
            use.run.send(str(number))

    result = await echo_agent(send).run("go")
    assert [message.text for message in result.messages][3:6] == ["0", "1", "2"]


async def test_a_tool_may_send_too() -> None:
    @tool
    def remind(run: Run) -> str:
        """Send a reminder."""
        run.send(Message("user", "remember the milk", name="remind"))
        return "sent"

    result = await Agent(Scripted(tool_calls_reply(ToolCall("c", "remind")), "done"), tools=[remind]).run("go")
    assert result.messages[3] == Message("user", "remember the milk", name="remind")


async def test_a_message_sent_to_a_run_that_is_stopped_waits_in_the_thread() -> None:
    thread = Thread()
    agent = echo_agent(sending("one more thing"), stop_at(1, "enough"))
    assert (await agent.run("go", thread=thread)).reason == "stop requested: enough"
    assert thread.messages[-1] == user("one more thing")
    assert (await hello_agent().run(thread=thread)).text == "hello"
    assert valid(thread)


async def test_a_message_sent_to_a_run_that_fails_waits_in_the_thread() -> None:
    thread = Thread()
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("no")), hooks=[sending("hello?", ModelCall)]).run("go", thread=thread)
    assert [message.text for message in thread.messages] == ["go", "hello?"]


async def test_a_message_to_a_run_that_is_over_is_refused() -> None:
    runs: list[Run] = []

    @before(Run)
    def keep(run: Run) -> None:
        runs.append(run)

    await hello_agent(keep).run("go")
    with pytest.raises(Exception, match="the run is over"):
        runs[0].send("too late")


@pytest.mark.parametrize("nothing", ["", Message("user", "")])
async def test_nothing_cannot_be_sent(nothing: Any) -> None:
    with pytest.raises(MessageError, match="it needs content"):
        await hello_agent(sending(nothing, ModelCall)).run("go")


# -- cancelling -------------------------------------------------------------------------------------------------------


@tool
async def slow(name: str) -> str:
    """Take a few turns of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)
    return name


@tool(alone=True)
async def slow_alone(name: str) -> str:
    """Take a turn of the loop, alone."""
    await asyncio.sleep(0)
    return name


class Busy(Capability):
    """Hooks everywhere, so that there are many places to be cancelled at."""

    @before(Operation)
    async def in_(self, op: Operation[Any]) -> None:
        await asyncio.sleep(0)

    @wrap(Operation)
    async def around(self, op: Operation[Any], next: Next[Any]) -> Any:
        await asyncio.sleep(0)
        return await next(op)

    @after(Operation)
    async def out(self, op: Operation[Any]) -> None:
        await asyncio.sleep(0)

    @guard(Operation, timeout=5)
    async def gate(self, op: Operation[Any]) -> None:
        await asyncio.sleep(0)


def busy_agent() -> Agent:
    wanted = [named("slow", "a"), named("slow_alone", "b"), named("slow", "c")]
    model = Scripted(assistant("working", *wanted), tool_calls_reply(named("slow", "d")), "all done", spare=True)
    return Agent(model, tools=[slow, slow_alone], hooks=[Busy()])


async def turns_of(agent: Agent) -> int:
    """Return the number of event-loop iterations of a run."""
    task = asyncio.create_task(agent.run("go"))
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return count


async def test_cancelling_at_any_await_leaves_a_valid_thread_and_one_terminal_event() -> None:
    total = await turns_of(busy_agent())
    assert total > 50
    outcomes = set()
    for turn in range(total + 1):
        thread, seen = Thread(), list[Event]()
        task = asyncio.create_task(busy_agent().run("go", thread=thread, emit=seen.append))
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        (raised,) = await asyncio.gather(task, return_exceptions=True)
        if turn == 0:
            continue  # it has not started, so it has nothing to end
        assert valid(thread), turn
        (last,) = terminal(seen)
        assert seen[-1] is last and isinstance(last, Done)
        cancelled = isinstance(raised, asyncio.CancelledError)
        assert (last.outcome, last.reason) == (("cancelled", "user requested") if cancelled else ("completed",) * 2)
        assert len(thread_entries(thread, "run_start")) == len(thread_entries(thread, "run_end"))
        assert (await hello_agent().run("and now?", thread=thread)).text == "hello"
        outcomes.add(last.outcome)
    assert outcomes == {"cancelled", "completed"}


async def cancelled_while(agent: Agent, begun: asyncio.Event, **options: Any) -> Thread:
    """Return the thread of a run that is cancelled once its tool has started."""
    thread = Thread()
    task = asyncio.create_task(agent.run("go", thread=thread, **options))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return thread


async def test_interrupted_calls_are_answered_with_their_known_state() -> None:
    begun = asyncio.Event()

    @tool
    async def quick() -> str:
        """Be done at once."""
        return "quick result"

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.sleep(60)
        return "never"

    @tool(alone=True)
    async def later() -> str:
        """Wait for the others."""
        return "never"

    wanted = tool_calls_reply(ToolCall("a", "hang"), ToolCall("b", "quick"), ToolCall("c", "later"))
    agent = Agent(Scripted(wanted), tools=[quick, hang, later])
    thread = await cancelled_while(agent, begun)
    assert [message.text for message in thread.messages[2:]] == [
        "the run was cancelled while hang ran; whether it took effect is unknown",
        "quick result",
        "the run was cancelled before later ran",
    ]
    assert valid(thread)


async def test_a_tool_that_swallows_its_cancellation_is_abandoned(
    hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go, seen = asyncio.Event(), asyncio.Event(), list[Event]()

    @tool
    async def mule(use: ToolUse) -> str:
        """Do not listen."""
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        use.stream("still here")
        return "too late"

    agent = Agent(Scripted(tool_calls_reply(ToolCall("a", "mule"))), tools=[mule])
    thread = await cancelled_while(agent, begun, emit=seen.append)
    assert "mule was cancelled and did not end" in caplog.text
    assert valid(thread)
    logged = len(thread.entries)
    assert (await hello_agent().run("and now?", thread=thread)).text == "hello"
    go.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert "too late" not in str(thread.to_json())
    assert not [entry for entry in thread.entries[logged:] if entry.kind in ("intent", "done")]
    assert isinstance(seen[-1], Done) and len(terminal(seen)) == 1


async def test_a_tool_does_not_start_after_the_end_of_its_run(hasty: None) -> None:
    begun, go, ran = asyncio.Event(), asyncio.Event(), list[str]()

    @tool
    async def effect() -> str:
        """Have an effect."""
        ran.append("effect")
        return "done"

    @wrap(ToolUse)
    async def mule(use: ToolUse, next: Next[Any]) -> Any:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return await next(use)

    agent = Agent(Scripted(tool_calls_reply(ToolCall("a", "effect"))), tools=[effect], hooks=[mule])
    thread = await cancelled_while(agent, begun)
    logged = len(thread.entries)
    go.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ran
    assert len(thread.entries) == logged


async def test_a_sync_tool_that_hangs_does_not_hold_up_the_cancellation() -> None:
    while list_abandoned():  # by tests before this one
        await asyncio.sleep(0.001)
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def hang() -> str:
        """Hang."""
        loop.call_soon_threadsafe(begun.set)
        go.wait(20)
        return "never"

    thread = await cancelled_while(Agent(Scripted(tool_calls_reply(ToolCall("a", "hang"))), tools=[hang]), begun)
    assert list_abandoned() == ["hang"]
    assert valid(thread)
    go.set()
    while list_abandoned():
        await asyncio.sleep(0.001)


async def test_a_hook_cannot_suppress_a_cancellation() -> None:
    begun = asyncio.Event()

    @before(ModelCall)
    async def deaf(call: ModelCall) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    model = Scripted("never", spare=True)
    thread = await cancelled_while(Agent(model, hooks=[deaf]), begun)
    assert not model.requests
    assert valid(thread)


async def test_a_child_is_cancelled_with_its_parent() -> None:
    begun, below = asyncio.Event(), Thread()

    @tool
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.sleep(60)
        return "never"

    child = Agent(Scripted(tool_calls_reply(ToolCall("x", "hang"))), tools=[hang])

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        return (await child.run("do it", thread=below, parent=run)).text

    thread = await cancelled_while(
        Agent(Scripted(tool_calls_reply(ToolCall("a", "delegate"))), tools=[delegate]), begun
    )
    assert valid(thread) and valid(below)
    assert thread_entries(below, "run_end")[0]["outcome"] == "cancelled"


async def test_a_stream_of_a_model_is_closed_when_the_run_is_cancelled() -> None:
    begun, closed = asyncio.Event(), []

    class Slow:
        name = "slow"

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                yield TextDelta("well")
                begun.set()
                await asyncio.sleep(60)
            finally:
                closed.append(True)

    thread = await cancelled_while(Agent(Slow()), begun)
    assert closed == [True]
    assert [message.role for message in thread.messages] == ["user"]


async def test_results_are_typed() -> None:
    result = await hello_agent().run("go")
    assert isinstance(result, Result)
    with pytest.raises(HookError, match="only a guard can be added"):
        Run().add_guard(block_the_run)


@tool
def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@pytest.mark.parametrize("name", ["bash", "Bash"])
async def test_a_tool_that_is_asked_for_by_an_alias_is_used_under_its_guards(name: str) -> None:
    seen = list[str]()

    @guard(ToolUse, match="execute")
    def look(use: ToolUse) -> Block | None:
        seen.append(use.bound.name)
        return Block("no") if "rm" in use.args["command"] else None

    calls = [ToolCall("1", name, {"cmd": "ls"}), ToolCall("2", name, {"command": "rm x"})]
    result = await Agent(Scripted(calls, "Done."), tools=[execute], hooks=[look]).run("go")
    told = [message.text for message in result.thread.messages.tool_messages()]
    assert told[0] == "ran ls" and "no" in told[1] and "ran" not in told[1]
    assert seen == ["execute", "execute"]


async def test_an_ambiguous_or_unknown_alias_is_reported() -> None:
    both = [replace(execute, name=name, aliases=("sh",)) for name in ("one", "two")]
    for tools, name in ((both, "sh"), ([execute], "Read")):
        result = await Agent(Scripted(ToolCall("1", name, {}), "Done."), tools=tools).run("go")
        (told,) = result.thread.messages.tool_messages()
        assert told.failed and told.text.startswith(f"there is no tool named '{name}'; the tools are ")


async def test_a_guard_that_matches_only_the_model_name_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToolUse, "names", property(lambda use: frozenset((use.call.name,))))
    with pytest.raises(AssertionError):
        await test_a_tool_that_is_asked_for_by_an_alias_is_used_under_its_guards("bash")
