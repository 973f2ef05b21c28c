"""The agent: its parts, its input, and its three equivalent run methods."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from kit import (
    ScriptedUser,
    collect_events,
    echo,
    echo_agent,
    execute,
    hello_agent,
    text_deltas,
    thread_entries,
    tool_call,
    tool_calls_reply,
    tool_result,
)
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    Capability,
    FunctionModel,
    Hook,
    Limits,
    Message,
    Messages,
    ModelCall,
    Paused,
    Run,
    Scripted,
    Thread,
    ToolCall,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    system,
    tool,
    user,
)
from wick.errors import ConfigError, HookError, MessageError, ModelError
from wick.events import ChatModelStart, Done, Event, Failed
from wick.messages import ImagePart, TextPart
from wick.protocols import Request, Usage


@guard(ToolUse, match="echo")
def no_echo(use: ToolUse) -> Block:
    return Block("no echo here")


@tool
async def wait_for_ever() -> str:
    """Wait for ever."""
    await asyncio.sleep(3600)
    return "never"


def waiter(**options: Any) -> Agent:
    return Agent(Scripted(assistant("wait", ToolCall("c", "wait_for_ever"))), tools=[wait_for_ever], **options)


# -- input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("input", "said"),
    [
        ("hi", [user("hi")]),
        ("  ", [user("  ")]),
        (user("hi"), [user("hi")]),
        (Message("user", (TextPart("look"), ImagePart(url="http://x/y.png"))), None),
        ([user("one"), user("two")], [user("one"), user("two")]),
        ((user("one"),), [user("one")]),
        (Messages().system("be brief").user("hi"), [system("be brief"), user("hi")]),
        (
            [user("1"), assistant("", tool_call()), Message("tool", "hi", tool_call_id="c1", name="echo"), user("2")],
            None,
        ),
    ],
)
async def test_a_run_takes_a_text_a_message_or_messages(input: Any, said: list[Message] | None) -> None:
    model = Scripted("hello")
    result = await Agent(model).run(input)
    assert result.text == "hello"
    expected = said or ([input] if isinstance(input, Message) else input)
    assert [*model.requests[0].messages] == expected
    assert [*result.messages] == [*expected, assistant("hello")]


@pytest.mark.parametrize(
    ("input", "error"),
    [
        (user(""), "it needs content"),
        ([user("hi"), "hello"], "message 1 is not a Message"),
        ({"messages": []}, r"the list of messages itself, .*run\(state"),
        ([{"role": "user", "content": ""}], "it needs content"),
        ([Message("tool", "5", tool_call_id="c", name="add")], "no call 'c' waits"),
        ([assistant("", tool_call()), user("well?")], "first answer the calls c1"),
        ([assistant("")], "needs content or tool calls"),
        (5, "a text, a message or a list of messages"),
        (b"hi", "a text, a message or a list of messages"),
    ],
)
async def test_invalid_input_is_refused(input: Any, error: str) -> None:
    with pytest.raises(MessageError, match=error):
        await hello_agent().run(input)
    with pytest.raises(MessageError, match=error):
        hello_agent().stream(input)


@pytest.mark.parametrize("nothing", [None, "", [], Messages()])
async def test_empty_input_resumes_the_thread(nothing: Any) -> None:
    thread = Thread()
    thread.add(user("hi"))
    assert (await hello_agent().run(nothing, thread=thread)).text == "hello"
    with pytest.raises(ConfigError, match="there is nothing to answer"):
        await hello_agent().run(nothing)


async def test_calls_given_as_input_are_executed() -> None:
    result = await Agent(Scripted("done"), tools=[echo]).run([user("say hi"), assistant("", tool_call())])
    assert tool_result(result) == "hi"
    assert result.text == "done"


async def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="tread"):
        await hello_agent().run("hi", tread=Thread())  # type: ignore[call-arg]


async def test_a_conversation_continues_in_its_thread() -> None:
    thread, model = Thread(), Scripted("one", "two")
    agent = Agent(model)
    first = await agent.run("a", thread=thread)
    second = await agent.run("b", thread=thread)
    assert [message.text for message in model.requests[1].messages] == ["a", "one", "b"]
    assert [message.text for message in first.messages] == ["a", "one"]
    assert [message.text for message in second.messages] == ["b", "two"]
    assert second.thread is thread


async def test_without_a_thread_every_run_has_its_own() -> None:
    agent = Agent(FunctionModel(lambda request: str(len(request.messages))))
    assert [(await agent.run("hi")).text for _ in range(3)] == ["1", "1", "1"]


# -- requests and hooks -----------------------------------------------------------------------------------------------

SETTINGS = {
    "temperature": 0.2,
    "max_tokens": 100,
    "top_p": 0.9,
    "stop": ["END"],
    "tool_choice": "auto",
    "extra": {"logprobs": True},
}


async def test_system_tools_and_settings_reach_the_model() -> None:
    model = Scripted("hello")
    await Agent(model, system="Be brief.", tools=[echo, execute], settings=SETTINGS).run("hi")
    (request,) = model.requests
    assert request.system == "Be brief."
    assert [made.schema["name"] for made in request.tools] == ["echo", "execute"]
    assert request.settings == SETTINGS


@pytest.mark.parametrize("name", ["temprature", "model", "n", "stream"])
def test_a_setting_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no setting '{name}'; the settings are temperature, max_tokens"):
        Agent(Scripted(), settings={name: 1})


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x"])
def test_a_setting_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="the settings must be JSON data"):
        Agent(Scripted(), settings={"extra": {"x": value}})


async def test_a_hook_changes_settings_for_one_call_only() -> None:
    @before(ModelCall)
    def warmer(call: ModelCall) -> None:
        call.settings["temperature"] += 1
        call.settings["extra"]["calls"] = call.settings["extra"].get("calls", 0) + 1

    given: dict[str, Any] = {"temperature": 0, "extra": {}}
    model = Scripted(tool_calls_reply(tool_call()), "done", "again")
    agent = Agent(model, tools=[echo], hooks=[warmer], settings=given)
    await agent.run("go")
    await agent.run("go")
    assert [request.settings for request in model.requests] == [{"temperature": 1, "extra": {"calls": 1}}] * 3
    assert agent.settings == given == {"temperature": 0, "extra": {}}


async def test_a_hook_changes_the_run_for_that_run_only() -> None:
    @before(Run)
    def prepare(run: Run) -> None:
        run.system += " And kind."
        run.settings["temperature"] = 1
        run.tools["execute"] = execute
        run.input.append(user("please"))

    model = Scripted("one", "two")
    agent = Agent(model, hooks=[prepare], system="Be brief.", tools=[echo])
    for _ in range(2):
        await agent.run("go")
        request = model.requests[-1]
        assert request.system == "Be brief. And kind."
        assert request.settings == {"temperature": 1}
        assert [made.name for made in request.tools] == ["echo", "execute"]
        assert [message.text for message in request.messages] == ["go", "please"]
    assert (agent.system, agent.settings, [made.name for made in agent.tools]) == ("Be brief.", {}, ["echo"])


async def test_run_attributes() -> None:
    seen: list[Any] = []

    @before(ModelCall)
    def look(call: ModelCall) -> None:
        run = call.run
        seen.append((run.id, run.user, run.agent, run.depth, run.resumed, [message.text for message in run.output]))

    thread = Thread()
    thread.add(user("earlier"), assistant("yes"))
    await hello_agent(look, name="greeter").run("hi", thread=thread, user="ada")
    ((id, *rest),) = seen
    assert id.startswith("run_")
    assert rest == ["ada", "greeter", 0, False, ["hi"]]


# -- how it is made ---------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A function that is not a tool yet."""
    return text


def test_a_plain_function_becomes_a_tool() -> None:
    (made,) = Agent(Scripted(), tools=[plain]).tools
    assert (made.name, made.description) == ("plain", "A function that is not a tool yet.")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'echo'"):
        Agent(Scripted(), tools=[echo, execute.renamed("echo")])


def test_two_hooks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two hooks are named 'no_echo'"):
        Agent(Scripted(), tools=[echo], hooks=[no_echo, no_echo])
    with pytest.raises(ConfigError, match="two hooks are named 'limits'"):
        Agent(Scripted(), hooks=[Limits(), Limits()])


def test_an_invalid_hook_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a hook: decorate it with @before"):
        Agent(Scripted(), hooks=[plain])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"or give an instance: Limits\(\)"):
        Agent(Scripted(), hooks=[Limits])  # type: ignore[list-item]


def test_a_guard_for_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="the guard 'no_echo' is for 'echo', but there is no such tool"):
        Agent(Scripted(), tools=[execute], hooks=[no_echo])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("no such model at all", "there is no model named 'no such model at all'"),
        ("banana:x", "there is no model named 'banana:x'"),
        ("my_models:Echo", "a model of your own is given as an object"),
        ("antropic:claude", "did you mean anthropic:claude?"),
        ({"provider": "banana"}, "there is no provider 'banana'"),
        ({"provider": "opnai", "model": "x"}, "there is no provider 'opnai'.* did you mean openai?"),
        ({"provider": "openai", "model": "x", "base_ulr": "y"}, "no key 'base_ulr' .* did you mean 'base_url'?"),
        ({"provider": "anthropic", "model": "x", "zzz": 1}, "no key 'zzz' for a model of anthropic; the keys are"),
        ({"model": "demo", "api_key": "x"}, "'demo' says it all"),
        ({"model": 7}, "must be a string"),
    ],
)
def test_a_model_that_is_not_there_is_refused_when_the_agent_is_made(model: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        Agent(model)


def test_an_unchecked_model_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.agent.check_model", lambda spec: None)
    agent = Agent("banana:x")
    with pytest.raises(ConfigError, match="no model named"):
        agent.run_sync("hi")


def test_a_tool_that_cannot_be_described_is_refused_when_the_agent_is_made() -> None:
    class Thing:
        """Nothing that JSON knows."""

    def odd(thing: Thing) -> str:
        return str(thing)

    odd.__annotations__["thing"] = Thing
    with pytest.raises(ConfigError, match="odd"):
        Agent(Scripted(), tools=[odd])


class Shouting(Capability):
    """Brings a tool and a hook."""

    @tool
    async def shout(self, text: str) -> str:
        """Say it louder."""
        return text.upper()

    @after(ToolUse)
    def exclaim(self, use: ToolUse) -> None:
        use.result.output += "!"


async def test_a_capability_brings_its_tools_and_hooks() -> None:
    agent = Agent(Scripted(tool_calls_reply(tool_call("shout")), "done"), hooks=[Shouting()])
    assert tool_result(await agent.run("go")) == "HI!"


async def test_copies_have_more_and_the_original_is_left_alone() -> None:
    model = Scripted(
        tool_calls_reply(tool_call()),
        "done",
        tool_calls_reply(tool_call()),
        "done",
        tool_calls_reply(tool_call()),
        "done",
    )
    agent = Agent(model, name="a", system="s", tools=[echo], ask=ScriptedUser(True), settings={"temperature": 1})
    guarded = agent.with_hooks(no_echo)
    armed = guarded.with_tools(execute, plain)
    assert tool_result(await agent.run("go")) == "hi"
    assert tool_result(await guarded.run("go")) == "no echo here"
    assert tool_result(await armed.run("go")) == "no echo here"
    assert [made.name for made in agent.tools] == [made.name for made in guarded.tools] == ["echo"]
    assert [made.name for made in armed.tools] == ["echo", "execute", "plain"]
    assert "no_echo" not in [hook.name for hook in agent.hooks]
    for copy in (guarded, armed):
        assert (copy.model, copy.name, copy.system, copy.ask) == (model, "a", "s", agent.ask)
        assert copy.settings == {"temperature": 1}


def test_hooks_of_a_copy_are_inside_existing_ones() -> None:
    def named(name: str) -> Hook:
        return before(ToolUse, name=name)(lambda use: None)

    agent = Agent(Scripted(), hooks=[named("one")]).with_hooks(named("two")).with_hooks(named("three"))
    assert [hook.name for hook in agent.hooks][-3:] == ["one", "two", "three"]


def test_a_copy_is_checked_like_any_agent() -> None:
    with pytest.raises(ConfigError, match="two tools"):
        Agent(Scripted(), tools=[echo]).with_tools(echo)
    with pytest.raises(ConfigError, match="no such tool"):
        Agent(Scripted()).with_hooks(no_echo)


def test_options_of_a_copy_cannot_replace_hooks_or_tools() -> None:
    agent = Agent(Scripted(), tools=[echo], hooks=[no_echo])
    for options in ({"hooks": []}, {"tools": []}, {"modle": "demo"}):
        with pytest.raises(ConfigError, match="with_options cannot change"):
            agent.with_options(**options)  # type: ignore[arg-type]


async def test_runs_at_the_same_time_do_not_disturb_each_other() -> None:
    @before(Run)
    def mark(run: Run) -> None:
        run.scratch["mark"] = run.user

    seen: dict[str, str] = {}

    @tool
    async def who(run: Run) -> str:
        """Say who asks."""
        await asyncio.sleep(0)
        seen[run.id] = run.scratch["mark"]
        return run.user

    model = FunctionModel(
        lambda request: (
            request.messages[-1].text if request.messages[-1].role == "tool" else assistant("", ToolCall("c", "who"))
        )
    )
    agent = Agent(model, tools=[who], hooks=[mark])
    results = await asyncio.gather(*(agent.run("who am I?", user=str(number)) for number in range(20)))
    assert [result.text for result in results] == [str(number) for number in range(20)]
    assert sorted(seen.values(), key=int) == [str(number) for number in range(20)]


# -- three ways to run it ---------------------------------------------------------------------------------------------


def test_run_sync_answers() -> None:
    assert echo_agent().run_sync("go").text == "done"


async def test_run_sync_inside_an_event_loop_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"use `await agent.run\(…\)` there"):
        hello_agent().run_sync("hi")


async def test_the_three_run_methods_agree() -> None:
    def make_agent() -> Agent:
        return echo_agent(name="same")

    stream = make_agent().stream("go")
    seen = [event async for event in stream]
    ran = await make_agent().run("go")
    synced = await asyncio.to_thread(make_agent().run_sync, "go")
    assert stream.result == ran == synced
    assert isinstance(seen[-1], Done)
    assert (seen[-1].text, seen[-1].outcome) == (ran.text, ran.outcome)


async def test_a_stream_has_its_run_and_result() -> None:
    stream = hello_agent().stream("hi")
    with pytest.raises(ConfigError, match="no result yet; read the stream to its end .* `await stream.finish"):
        stream.result  # noqa: B018
    seen = [event async for event in stream]
    assert stream.result.text == "hello"
    assert {event.run_id for event in seen} == {stream.run.id}
    assert text_deltas(seen) == "hello"


async def test_a_stream_accepts_messages_while_running() -> None:
    async def answer(request: Request) -> str:
        await asyncio.sleep(0.001)
        return {"2 + 3?": "five", "times two?": "ten"}[request.messages[-1].text]

    stream = Agent(FunctionModel(answer)).stream("2 + 3?")
    async for event in stream:
        if isinstance(event, ChatModelStart) and event.step == 1:
            stream.run.send("times two?")
    assert stream.result.text == "ten"


async def test_a_stream_of_a_run_that_fails_ends_with_the_error_and_does_not_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = ModelError("overloaded")
    stream = Agent(Scripted(error)).stream("hi")
    seen = [event async for event in stream]
    assert isinstance(seen[-1], Failed)
    assert seen[-1].to_json()["data"] == {"error": {"code": "model_error", "message": "overloaded"}}
    assert (stream.result.outcome, stream.result.reason, stream.result.error) == ("failed", "error", error)
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "wick.agent")
    assert record.getMessage() == f"run {stream.run.id} of the agent agent failed: overloaded"
    assert record.exc_info is not None and record.exc_info[1] is error


async def test_a_stream_can_be_read_once() -> None:
    stream = hello_agent().stream("hi")
    assert [event async for event in stream]
    with pytest.raises(ConfigError, match="a stream can be read once"):
        [event async for event in stream]


async def test_a_stream_that_is_not_read_does_nothing() -> None:
    thread = Thread()
    hello_agent().stream("hi", thread=thread)
    await asyncio.sleep(0)
    assert not thread.entries


async def test_an_abandoned_stream_cancels_the_run_and_leaves_no_task() -> None:
    thread = Thread()
    tasks = asyncio.all_tasks()
    stream = waiter().stream("go", thread=thread)
    async for event in stream:
        if event.event == "on_tool_start":
            break
    gc.collect()
    while asyncio.all_tasks() - tasks:
        await asyncio.sleep(0)
    assert [end["outcome"] for end in thread_entries(thread, "run_end")] == ["cancelled"]
    assert not thread.busy and not thread.pending
    thread.messages.validate()
    assert stream.result.outcome == "cancelled"


async def test_a_cancelled_reader_cancels_the_run() -> None:
    thread, seen = Thread(), list[Event]()

    async def read() -> None:
        async for event in waiter().stream("go", thread=thread):
            seen.append(event)

    task = asyncio.create_task(read())
    while not any(event.event == "on_tool_start" for event in seen):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [end["outcome"] for end in thread_entries(thread, "run_end")] == ["cancelled"]


async def test_a_failing_reader_cancels_the_run() -> None:
    thread = Thread()
    tasks = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        async for _ in waiter().stream("go", thread=thread):
            raise ZeroDivisionError
    gc.collect()
    while asyncio.all_tasks() - tasks:
        await asyncio.sleep(0)
    assert not thread.busy


async def test_a_slow_reader_gets_every_event() -> None:
    seen = []
    async for event in echo_agent().stream("go"):
        await asyncio.sleep(0.001)
        seen.append(event.event)
    fast = [event.event for event in await collect_events(echo_agent())]
    assert seen == fast


async def test_events_are_sent_to_a_callback() -> None:
    seen: list[Event] = []
    await echo_agent().run("go", emit=seen.append)
    streamed = await collect_events(echo_agent())
    assert [event.event for event in seen] == [event.event for event in streamed]


async def test_a_stream_may_have_a_callback() -> None:
    seen: list[Event] = []
    streamed = await collect_events(echo_agent(), emit=seen.append)
    assert seen == streamed


# -- children ---------------------------------------------------------------------------------------------------------


def parent_of(child: Agent, *hooks: Any, **options: Any) -> Agent:
    """An agent with a tool that lets another do it."""

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        return (await child.run("do it", parent=run)).text

    return Agent(
        Scripted(tool_calls_reply(ToolCall("c", "delegate")), "done"), tools=[delegate], hooks=hooks, **options
    )


async def test_a_childs_events_are_in_its_parents_stream_and_there_is_one_end() -> None:
    child = Agent(Scripted(tool_calls_reply(tool_call()), "from below"), tools=[echo], name="child")
    seen = await collect_events(parent_of(child))
    assert [event.event for event in seen if event.terminal] == ["done"] and seen[-1].terminal
    top = seen[-1].run_id
    below = [event for event in seen if event.run_id != top]
    assert len({event.run_id for event in below}) == 1
    assert [event.event for event in below if "stream" not in event.event] == [
        *("on_chat_model_start", "on_chat_model_end", "on_tool_start", "on_tool_end"),
        *("on_chat_model_start", "on_chat_model_end"),
    ]
    inside = [event.event for event in seen[seen.index(below[0]) - 1 : seen.index(below[-1]) + 2]]
    assert (inside[0], inside[-1]) == ("on_tool_start", "on_tool_end")


async def test_a_child_may_be_streamed_under_its_parent() -> None:
    child = Agent(Scripted("from below"), name="child")
    read: list[Event] = []

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        stream = child.stream("do it", parent=run)
        read.extend([event async for event in stream])
        return stream.result.text

    seen = await collect_events(Agent(Scripted(tool_calls_reply(ToolCall("c", "delegate")), "done"), tools=[delegate]))
    assert [event.event for event in read][-2:] == ["on_chat_model_end", "done"]
    assert [event for event in seen if event in read] == read[:-1]


async def test_child_events_may_go_to_another_callback() -> None:
    elsewhere: list[Event] = []
    child = Agent(Scripted("from below"), name="child")

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        return (await child.run("do it", parent=run, emit=elsewhere.append)).text

    seen = await collect_events(Agent(Scripted(tool_calls_reply(ToolCall("c", "delegate")), "done"), tools=[delegate]))
    assert [event.event for event in elsewhere] == [
        *("on_chat_model_start", "on_chat_model_stream", "on_chat_model_stream", "on_chat_model_end", "done"),
    ]
    assert len({event.run_id for event in seen}) == 1


async def test_a_child_is_under_its_parents_guards_and_asks_its_parents_user() -> None:
    child = Agent(Scripted(tool_calls_reply(tool_call()), "from below"), tools=[echo], ask=ScriptedUser(False))

    @guard(ToolUse)
    def careful(use: ToolUse) -> Ask | None:
        return Ask("may it?") if use.run.depth else None

    asked = ScriptedUser(Allow({"text": "asked above"}))
    seen: list[str] = []

    @after(ToolUse, inherit=True)
    def look(use: ToolUse) -> None:
        seen.append(f"{use.run.agent} {use.call.name}: {use.result.output}")

    parent = parent_of(child, careful, look, ask=asked, name="parent")
    await parent.run("go", user="ada")
    assert [question.question for question in asked.questions] == ["may it?"]
    assert seen == ["agent echo: asked above", "parent delegate: from below"]


async def test_a_child_has_its_parents_user_and_a_depth() -> None:
    seen: list[tuple[str, int]] = []

    @before(Run)
    def look(run: Run) -> None:
        seen.append((run.user, run.depth))

    await parent_of(hello_agent(look)).run("go", user="ada")
    assert seen == [("ada", 1)]


async def test_a_child_that_waits_for_the_user_pauses_its_parent() -> None:
    @guard(ToolUse, match="echo")
    def careful(use: ToolUse) -> Ask:
        return Ask("may it?")

    child = Agent(Scripted(tool_calls_reply(tool_call())), tools=[echo], hooks=[careful])
    parent = parent_of(child, ask=ScriptedUser(Paused("later")), name="parent")
    assert isinstance(parent.model, Scripted)
    parent.model.spare = True
    result = await parent.run("go")
    assert (result.outcome, result.reason) == ("interrupted", "paused: later")


async def test_a_child_that_fails_is_a_tool_that_fails() -> None:
    result = await parent_of(Agent(Scripted(ModelError("overloaded")))).run("go")
    assert "overloaded" in tool_result(result)
    assert result.outcome == "completed"


async def test_usage_of_a_child_counts_for_its_parent() -> None:
    child = Agent(Scripted("x" * 400))
    result = await parent_of(child).run("go")
    assert result.usage.output_tokens >= 100
    assert result.usage == sum((Usage(**end["usage"]) for end in thread_entries(result.thread, "run_end")), Usage())


async def test_only_a_guard_can_be_added_to_a_running_run() -> None:
    @before(Run)
    def strict(run: Run) -> None:
        run.add_guard(no_echo)
        with pytest.raises(HookError, match="only a guard can be added"):
            run.add_guard(strict)

    assert tool_result(await echo_agent(strict).run("go")) == "no echo here"


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_failing_callback_ends_a_stream(terminal: bool) -> None:
    def watch(event: Event) -> None:
        if event.terminal or not terminal:
            raise OSError("not reported")

    async with asyncio.timeout(5):
        seen = [event.event async for event in hello_agent().stream("hi", emit=watch)]
    assert seen[-1] == ("done" if terminal else "error")
    assert sum(name in ("done", "error") for name in seen) == 1


async def test_a_stream_ends_when_a_hook_takes_its_events_away() -> None:
    @before(Run)
    def silence(run: Run) -> None:
        run.emitter = None

    stream = hello_agent(silence).stream("hi")
    async with asyncio.timeout(60):
        assert [event async for event in stream] == []
    assert stream.result.text == "hello"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": echo}, "tools= takes a list"),
        ({"hooks": guard(ToolUse, name="g")(lambda use: None)}, "hooks= takes a list"),
        ({"hooks": [lambda use: None]}, r"as in @guard\(ToolUse\)"),
        ({"tools": ["add"]}, "a tool is a function, not 'add'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Agent("demo", **options)


async def test_a_thread_id_needs_a_store() -> None:
    with pytest.raises(ConfigError, match=r"Sessions"):
        await hello_agent().run("hi", thread="abc")
    with pytest.raises(ConfigError, match=r"takes a Thread"):
        await hello_agent().run("hi", thread=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("sync", [False, True])
async def test_an_agent_run_by_a_tool_is_a_child(sync: bool) -> None:
    ran: list[str] = []

    @tool
    def execute(command: str) -> str:
        ran.append(command)
        return "done"

    @guard(ToolUse, match="execute")
    def no_force(use: ToolUse) -> Block | None:
        return Block("no force") if "--force" in use.args["command"] else None

    child = Agent(Scripted(ToolCall("1", "execute", {"command": "push --force"}), "child"), tools=[execute])

    @tool
    async def delegate() -> str:
        return (await child.run("go")).text

    @tool
    def delegate_sync() -> str:
        return child.run_sync("go").text

    call = ToolCall("1", "delegate_sync" if sync else "delegate", {})
    result = await Agent(Scripted(call, "parent"), tools=[execute, delegate, delegate_sync], hooks=[no_force]).run("go")
    assert ran == [] and result.text == "parent"
    assert child.model.requests[1].messages[-1].text == "no force"  # type: ignore[attr-defined]


async def test_a_run_after_a_tool_has_no_parent() -> None:
    seen: list[object] = []

    @after(ToolUse)
    async def look(use: ToolUse) -> None:
        seen.append((await Agent(FunctionModel(lambda request: "free")).run("go")).text)

    @guard(ToolUse)
    def fine(use: ToolUse) -> None: ...

    @tool
    def echo() -> str:
        return "x"

    await Agent(Scripted(ToolCall("1", "echo", {}), "ok"), tools=[echo], hooks=[look, fine]).run("go")
    assert seen == ["free"]
