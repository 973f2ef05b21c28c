"""What a run writes down: after a pause or a crash it is taken up exactly where it stood, and nothing happens twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kit import (
    ScriptedUser,
    collect_events,
    echo,
    echo_agent,
    hello_agent,
    text_deltas,
    thread_entries,
    tool_call,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    FunctionModel,
    Message,
    ModelCall,
    Paused,
    Run,
    Scripted,
    Step,
    Thread,
    Tool,
    ToolCall,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    run_log,
    tool,
    tool_message,
    user,
    wrap,
)
from wick._internal.frozen import thaw
from wick.capabilities.sessions import Sessions
from wick.constants import UNHEARD_RUNS
from wick.errors import TEMPORARY, ConfigError, ModelError, StoreError
from wick.events import ChatModelRestart, Done, Event, Failed
from wick.hooks import Next
from wick.operations import Operation
from wick.protocols import Request
from wick.stores.in_memory import InMemory


def copy(thread: Thread, until: int | None = None) -> Thread:
    """The thread as another process reads it, after its first entries."""
    data = json.loads(json.dumps(thread.to_json()))
    return Thread.from_json({**data, "entries": data["entries"][:until]})


def valid(thread: Thread) -> bool:
    thread.messages.validate()
    return not thread.pending and not thread.busy


@guard(ToolUse)
def ask(use: ToolUse) -> Ask:
    return Ask("sure?")


# -- pausing ----------------------------------------------------------------------------------------------------------


class Desk:
    """Tools that count how often they ran, and a model that uses three of them at once."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.runs: list[Run] = []
        model = Scripted(tool_calls_reply(*(ToolCall(id, "work", {"name": id}) for id in "abc")), "all done")
        self.model = model

    def agent(self, *answers: Any) -> Agent:
        @tool
        async def work(name: str, run: Run) -> str:
            """Do some work."""
            self.ran.append(name)
            self.runs.append(run)
            return f"worked on {name}"

        @guard(ToolUse)
        def careful(use: ToolUse) -> Ask | None:
            return Ask("b, too?") if use.args["name"] == "b" else None

        return Agent(self.model, tools=[work], hooks=[careful], ask=ScriptedUser(*answers))


async def test_a_paused_run_is_taken_up_exactly_there() -> None:
    desk, thread = Desk(), Thread()
    paused = await desk.agent(Paused("ask me later")).run("go", thread=thread)
    assert (paused.outcome, paused.reason) == ("interrupted", "paused: ask me later")
    assert sorted(desk.ran) == ["a", "c"]
    assert [call.id for call in thread.pending] == ["b"]
    assert not thread.busy

    thread = copy(thread)  # another process, another day
    result = await desk.agent(True).run(thread=thread)
    assert (result.text, result.outcome) == ("all done", "completed")
    assert sorted(desk.ran) == ["a", "b", "c"]
    assert tool_results(result) == ["worked on a", "worked on b", "worked on c"]
    assert [message.role for message in thread.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert len({run.id for run in desk.runs}) == 1
    assert [run.resumed for run in desk.runs] == [False, False, True]
    assert [start["resumed"] for start in thread_entries(thread, "run_start")] == [False, True]
    assert [end["outcome"] for end in thread_entries(thread, "run_end")] == ["interrupted", "completed"]
    assert len(desk.model.requests) == 2
    assert valid(thread)


async def test_a_run_may_pause_again_and_again() -> None:
    desk, thread = Desk(), Thread()
    agent = desk.agent(Paused("1"), Paused("2"), Paused("3"), True)
    for number in "123":
        assert (await agent.run("go" if number == "1" else "", thread=thread)).reason == f"paused: {number}"
    assert (await agent.run(thread=thread)).outcome == "completed"
    assert sorted(desk.ran) == ["a", "b", "c"]


async def test_a_paused_run_has_a_terminal_event() -> None:
    *_, last = await collect_events(echo_agent(ask, ask=ScriptedUser(Paused("later"))))
    assert isinstance(last, Done)
    assert (last.outcome, last.reason) == ("interrupted", "paused: later")


async def test_an_answer_during_a_pause_is_read_from_the_log() -> None:
    thread, nobody = Thread(), ScriptedUser(Paused("later"))
    agent = echo_agent(ask, ask=nobody)
    await agent.run("go", thread=thread)
    (asked,) = thread_entries(thread, "asked")
    thread.append("answered", {"id": asked["id"], "hash": asked["hash"], "allowed": True, "reason": ""})
    result = await agent.run(thread=copy(thread))
    assert tool_result(result) == "hi"
    assert len(nobody.questions) == 1


async def test_a_refusal_during_a_pause_is_honoured() -> None:
    thread = Thread()
    agent = echo_agent(ask, ask=ScriptedUser(Paused("later")))
    await agent.run("go", thread=thread)
    (asked,) = thread_entries(thread, "asked")
    thread.append("answered", {"id": asked["id"], "hash": asked["hash"], "allowed": False, "reason": "not now"})
    assert tool_result(await agent.run(thread=thread)) == "not now"


async def test_an_answer_with_other_arguments_during_a_pause_counts() -> None:
    thread = Thread()
    agent = echo_agent(ask, ask=ScriptedUser(Paused("later"), Allow({"text": "ho"})))
    await agent.run("go", thread=thread)
    assert tool_result(await agent.run(thread=copy(thread))) == "ho"


@pytest.mark.parametrize("operation", [Run, Step, ModelCall])
async def test_any_question_may_wait(operation: type[Operation[Any]]) -> None:
    @guard(operation)
    def careful(op: Operation[Any]) -> Ask | None:
        seen.append(op)
        return Ask("really?") if len(seen) < 3 else None

    seen: list[Any] = []
    thread, model = Thread(), Scripted("hello")
    agent = Agent(model, hooks=[careful], ask=ScriptedUser(Paused("later"), True))
    paused = await agent.run("hi", thread=thread)
    assert (paused.outcome, model.requests) == ("interrupted", [])
    thread = copy(thread)
    result = await agent.run(thread=thread)
    assert result.text == "hello"
    assert [message.text for message in thread.messages] == ["hi", "hello"]
    assert [message.text for message in result.messages] == ["hi", "hello"]
    assert len({op.hash for op in seen[:2]}) == 1
    assert valid(thread)


async def test_the_input_of_a_run_paused_before_its_start_is_screened_again() -> None:
    seen: list[list[str]] = []

    @before(Run)
    def add(run: Run) -> None:
        run.input.append(user("please"))

    @guard(Run)
    def careful(run: Run) -> Ask | Block | None:
        seen.append([message.text for message in run.input])
        return Ask("really?") if len(seen) == 1 else Block("no, after all")

    thread = Thread()
    agent = hello_agent(add, careful, ask=ScriptedUser(Paused("later")))
    await agent.run("hi", thread=thread)
    result = await agent.run(thread=thread)
    assert seen == [["hi", "please"], ["hi", "please"]]
    assert result.reason == "blocked: no, after all"
    assert not thread.messages


async def test_a_paused_run_is_taken_up_only_under_its_guards() -> None:
    thread = Thread()
    await echo_agent(ask, ask=ScriptedUser(Paused("later"))).run("go", thread=thread)
    with pytest.raises(ConfigError, match="started under the guards ask, which are missing now"):
        await echo_agent().run(thread=thread)
    result = await Agent(Scripted("done"), tools=[echo]).run(thread=thread, without=["ask"])
    assert tool_result(result) == "hi"


async def test_continuing_answers_pending_calls_and_starts_a_new_run() -> None:
    desk, thread = Desk(), Thread()
    await desk.agent(Paused("later")).run("go", thread=thread)
    model = Scripted("as you like")
    result = await Agent(model).run("never mind", thread=thread)
    assert result.text == "as you like"
    assert [message.text for message in thread.messages] == [
        *("go", "", "worked on a", "the user went on before work ran", "worked on c"),
        *("never mind", "as you like"),
    ]
    assert [message.text for message in result.messages] == ["never mind", "as you like"]
    one, two = thread_entries(thread, "run_start")
    assert one["run"] != two["run"] and not two["resumed"]
    assert thread.open_run is None and valid(thread)
    desk.model.spare = True


async def test_continuing_after_a_crash_reports_unknown_calls() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", *(ToolCall(id, "work", {}) for id in "abcd")))
    for id in "bcd":
        thread.append("intent", {"call": id, "attempt": 1})
    thread.append("done", {"call": "c", "attempt": 1, "ended": "done"})
    thread.append("done", {"call": "d", "attempt": 1, "ended": "failed"})
    await hello_agent().run("hello?", thread=thread)
    assert [message.text for message in thread.messages[2:6]] == [
        "the user went on before work ran",
        "the user went on while work ran; whether it took effect is unknown",
        "work ran, and the user went on before its result was known",
        "work failed, and the user went on",
    ]


async def test_a_result_may_be_supplied_externally() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", tool_call(id="a"), tool_call(id="b")))
    thread.add(tool_message("b", "echo", "from outside"))
    model = Scripted("done")
    result = await Agent(model, tools=[echo]).run(thread=thread)
    assert result.text == "done"
    assert [message.text for message in model.requests[0].messages[2:]] == ["hi", "from outside"]


async def test_a_run_that_had_all_but_ended_is_done_at_once() -> None:
    thread = Thread()
    thread.add(user("hi"), assistant("hello"))
    model = Scripted()
    result = await Agent(model).run(thread=thread)
    assert (result.outcome, result.reason, len(model.requests)) == ("completed", "completed", 0)


async def test_there_must_be_something_to_answer() -> None:
    with pytest.raises(ConfigError, match="there is nothing to answer"):
        await hello_agent().run()


# -- crashes ----------------------------------------------------------------------------------------------------------


class World:
    """What tools did, in whatever process."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def tools(self) -> list[Tool]:
        async def act(name: str) -> str:
            """Change the world."""
            await asyncio.sleep(0)
            self.done[name] += 1
            return f"did {name}"

        once = tool(act, name="once")
        safe = tool(act, name="safe", idempotent=True)
        look = tool(act, name="look", read_only=True)
        alone = tool(act, name="alone", alone=True)
        return [once, safe, look, alone]


SCRIPT = [
    assistant("first", *(ToolCall(name, name, {"name": f"1 {name}"}) for name in ("once", "safe", "alone"))),
    assistant("second", *(ToolCall(name, name, {"name": f"2 {name}"}) for name in ("look", "once"))),
    assistant("all done"),
]
WANTED = {call.args["name"]: call for reply in SCRIPT for call in reply.tool_calls}


def worker(world: World) -> Agent:
    """An agent that does the next thing of the script, whatever process it is in."""

    def answer(request: Request) -> Message:
        return SCRIPT[sum(message.role == "assistant" for message in request.messages)]

    return Agent(FunctionModel(answer), tools=world.tools())


async def whole_run() -> Thread:
    thread = Thread()
    await worker(World()).run("go", thread=thread)
    return thread


def began(thread: Thread, name: str) -> bool:
    """Whether the log says that a tool's work was begun."""
    step = int(name[0])
    replies = [entry.seq for entry in thread.entries if entry.kind == "message" and entry.data.role == "assistant"]
    return any(
        entry.data["call"] == WANTED[name].id and sum(seq < entry.seq for seq in replies) == step
        for entry in thread.entries
        if entry.kind == "intent"
    )


async def test_a_run_is_taken_up_after_a_crash_at_any_entry_and_nothing_happens_twice_silently() -> None:
    whole = await whole_run()
    assert len(whole.entries) > 20
    for cut in range(1, len(whole.entries)):
        thread, world, seen = copy(whole, cut), World(), list[Event]()
        opened = thread.open_run
        before_ = {name for name in WANTED if began(thread, name)}
        result = await worker(world).run(thread=thread, emit=seen.append)

        assert (result.outcome, result.text) == ("completed", "all done"), cut
        assert valid(thread)
        assert [message.role for message in thread.messages] == [message.role for message in whole.messages]
        assert [event.event for event in seen if event.terminal] == ["done"] and seen[-1].terminal
        for name in WANTED:
            again = name.endswith(("safe", "look"))
            assert world.done[name] <= 1
            assert again or not (name in before_ and world.done[name]), (cut, name)
            assert name in before_ or world.done[name], (cut, name)
        if opened is not None:
            (run,) = {start["run"] for start in thread_entries(thread, "run_start")}
            assert run == opened["run"] == seen[-1].run_id
        assert copy(thread).messages == thread.messages


async def test_after_a_crash_the_model_gets_unknown_results() -> None:
    whole = await whole_run()
    intents = [entry.seq for entry in whole.entries if entry.kind == "intent" and entry.data["tool"] == "once"]
    thread = copy(whole, intents[0])
    await worker(World()).run(thread=thread)
    assert thread.messages[2].text == (
        "once was started before, and may have taken effect for this call; it is not idempotent, "
        "so it does not run again"
    )


async def test_after_a_crash_between_its_end_and_its_result_a_tool_does_not_run_again() -> None:
    whole = await whole_run()
    ends = [entry.seq for entry in whole.entries if entry.kind == "done" and entry.data["call"] == "once"]
    thread = copy(whole, ends[0])
    assert thread.attempt_status("once") == "done" and "did 1 once" not in str(thread.to_json())
    await worker(World()).run(thread=thread)
    assert thread.messages[2].text.startswith("once has already run for this call")


async def test_a_second_crash_is_survived_like_the_first() -> None:
    whole = await whole_run()
    for cut in range(1, len(whole.entries), 3):
        thread = copy(whole, cut)
        await worker(World()).run(thread=thread)
        for again in range(cut, len(thread.entries), 2):
            twice, world = copy(thread, again), World()
            result = await worker(world).run(thread=twice)
            assert result.text in ("all done", "") and valid(twice)
            assert all(count == 1 for count in world.done.values())


async def test_a_tool_that_ran_into_its_time_limit_is_unknown_and_not_tried_again() -> None:
    tries = []

    @tool(timeout=0.01)
    async def hang() -> str:
        """Hang."""
        tries.append(True)
        await asyncio.sleep(60)
        return "never"

    @wrap(ToolUse)
    async def insist(use: ToolUse, next: Next[Any]) -> Any:
        first = await next(use)
        return await next(use) if first.error else first

    result = await Agent(Scripted(tool_calls_reply(ToolCall("c", "hang")), "done"), tools=[hang], hooks=[insist]).run(
        "go"
    )
    assert len(tries) == 1
    assert "may have taken effect" in tool_result(result)


async def test_a_reused_id_is_another_call() -> None:
    """A model may give every call the same id, and must not get an approval or an effect for nothing by it."""
    keys, thread = [], Thread()

    @tool
    def pay(amount: int, use: ToolUse) -> str:
        """Pay."""
        keys.append(use.key)
        return "paid"

    someone = ScriptedUser(True)
    same = ToolCall("c", "pay", {"amount": 100})
    await Agent(Scripted(same, same, "done"), tools=[pay], hooks=[ask], ask=someone).run("go", thread=thread)
    assert len(someone.questions) == 2
    assert len(set(keys)) == 2
    assert [intent["key"] for intent in thread_entries(thread, "intent")] == keys


async def test_the_key_of_a_call_is_the_same_for_every_attempt() -> None:
    whole = await whole_run()
    intent = next(entry for entry in whole.entries if entry.kind == "intent" and entry.data["tool"] == "safe")
    thread = copy(whole, intent.seq)
    await worker(World()).run(thread=thread)
    again = [entry["key"] for entry in thread_entries(thread, "intent") if entry["tool"] == "safe"]
    assert again == [intent.data["key"]] * 2


async def test_the_usage_of_a_run_that_was_taken_up_is_that_of_both_parts() -> None:
    desk, thread = Desk(), Thread()
    agent = desk.agent(Paused("later"), True)
    first = await agent.run("go", thread=thread)
    assert first.usage.total_tokens
    last = await agent.run(thread=copy(thread))
    assert last.usage.input_tokens > first.usage.input_tokens
    assert last.usage.output_tokens == first.usage.output_tokens + len("all done") // 4


# -- one run at a time ------------------------------------------------------------------------------------------------


async def test_a_second_run_of_a_busy_thread_is_refused_and_does_not_disturb_the_first() -> None:
    thread, go, begun = Thread(), asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go.wait()
        return "waited"

    agent = Agent(Scripted(tool_calls_reply(ToolCall("c", "wait")), "done"), tools=[wait])
    first = asyncio.create_task(agent.run("go", thread=thread))
    await begun.wait()
    for text in ("me too", ""):
        with pytest.raises(ConfigError, match=r"is already running; send it the message with run\.send"):
            await hello_agent().run(text, thread=thread)
    go.set()
    assert (await first).text == "done"
    assert [message.text for message in thread.messages] == ["go", "", "waited", "done"]
    assert len(thread_entries(thread, "run_start")) == len(thread_entries(thread, "run_end")) == 1


async def test_a_run_is_resumed_once() -> None:
    desk, thread = Desk(), Thread()
    agent = desk.agent(Paused("later"), True)
    await agent.run("go", thread=thread)
    one, two = await asyncio.gather(agent.run(thread=thread), agent.run(thread=thread), return_exceptions=True)
    assert not isinstance(one, BaseException) and one.text == "all done"
    assert isinstance(two, ConfigError)
    assert sorted(desk.ran) == ["a", "b", "c"]
    assert [end["outcome"] for end in thread_entries(thread, "run_end")] == ["interrupted", "completed"]
    assert valid(thread)


async def test_threads_do_not_wait_for_each_other() -> None:
    agent = Agent(FunctionModel(lambda request: request.messages[-1].text.upper()))
    texts = await asyncio.gather(*(agent.run(str(number) + "x") for number in range(20)))
    assert [result.text for result in texts] == [f"{number}X" for number in range(20)]


# -- what is logged ---------------------------------------------------------------------------------------------------


async def test_the_entries_of_a_run() -> None:
    thread = Thread()
    await echo_agent(ask, ask=ScriptedUser(True)).run("go", thread=thread)
    assert [entry.kind for entry in thread.entries] == [
        *("message", "run_start", "message"),
        *("decision", "asked", "answered", "intent", "done", "message"),
        *("message", "run_end"),
    ]
    (intent,) = thread_entries(thread, "intent")
    (done,) = thread_entries(thread, "done")
    (start,) = thread_entries(thread, "run_start")
    assert (intent["call"], intent["tool"], intent["attempt"]) == ("c1", "echo", 1)
    assert intent["key"].startswith(f"{thread.id}:{start['run']}:")
    assert intent["hash"] == thread_entries(thread, "asked")[0]["hash"] == thread_entries(thread, "answered")[0]["hash"]
    assert (done["call"], done["attempt"], done["ended"]) == ("c1", 1, "done")
    assert "hi" not in str(done)
    assert (start["agent"], start["guards"], start["resumed"], start["input"]) == ("agent", ["ask"], False, 1)


async def test_a_result_is_logged_after_every_after() -> None:
    @after(ToolUse)
    async def redact(use: ToolUse) -> None:
        assert "hunter2" not in str(use.run.thread.to_json())
        use.result.output = "***"

    @tool
    def secret() -> str:
        """Tell a secret."""
        return "hunter2"

    thread = Thread()
    agent = Agent(Scripted(tool_calls_reply(ToolCall("c", "secret")), "done"), tools=[secret], hooks=[redact])
    seen = await collect_events(agent, thread=thread)
    assert thread.messages[2].text == "***"
    assert "hunter2" not in str([event.to_json() for event in seen]) + str(thread.to_json())


async def test_content_events_follow_their_log_entry() -> None:
    thread = Thread()
    logged: list[tuple[str, int]] = []
    await echo_agent().run("go", thread=thread, emit=lambda event: logged.append((event.event, len(thread.messages))))
    assert [row for row in logged if row[0].endswith("_end")] == [
        ("on_chat_model_end", 2),
        ("on_tool_end", 3),
        ("on_chat_model_end", 4),
    ]
    assert logged[-1] == ("done", 4)


async def test_a_recorded_value_is_logged() -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", name="notes", files=3)

    thread = Thread()
    await hello_agent(note).run("go", thread=thread)
    (event,) = thread_entries(thread, "event")
    assert (event["name"], event["data"]) == ("loaded", {"name": "notes", "files": 3})


class Full(Thread):
    """A thread that cannot be written to from some entry on."""

    __slots__ = ("room",)

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, kind: Any, data: Any, about: Any = None) -> Any:
        if len(self.entries) >= self.room:
            raise StoreError("the disk is full")
        return super().append(kind, data, about)


async def test_an_append_that_fails_fails_the_run_with_one_terminal_event() -> None:
    needed = len((await whole_run()).entries)
    for room in range(needed):
        world, seen = World(), list[Event]()
        with pytest.raises(StoreError, match="the disk is full"):
            await worker(world).run("go", thread=Full(room), emit=seen.append)
        (last,) = (event for event in seen if event.terminal)
        assert isinstance(last, Failed) and last is seen[-1], room
        assert (last.code, last.message) == ("store_error", "the disk is full")


async def test_a_stream_of_a_run_that_cannot_be_logged_ends() -> None:
    for room in range(4):
        stream = hello_agent().stream("go", thread=Full(room))
        *_, last = [event async for event in stream]
        assert isinstance(last, Failed)
        assert stream.result is not None and isinstance(stream.result.error, StoreError)


# -- deltas are provisional -------------------------------------------------------------------------------------------


class Flaky:
    """A model that breaks off in the middle of some replies."""

    name = "flaky"

    def __init__(self, *replies: str) -> None:
        self.replies = iter(replies)

    async def stream(self, request: Request) -> Any:
        from wick.protocols import Finish, TextDelta

        reply = next(self.replies)
        for word in reply.removesuffix("…").split(" "):
            yield TextDelta(word + " ")
        if reply.endswith("…"):
            raise ModelError("connection lost")
        yield Finish()


@wrap(ModelCall)
async def retry(call: ModelCall, next: Next[Any]) -> Any:
    for _ in range(3):
        try:
            return await next(call)
        except ModelError:
            pass
    return await next(call)


def shown(events: list[Event]) -> str:
    """What a reader sees in the end: deltas add up, a restart begins anew."""
    text = ""
    for event in events:
        if isinstance(event, ChatModelRestart):
            text = event.content
        elif event.event == "on_chat_model_stream":
            text += event.delta  # type: ignore[attr-defined]
    return text


def count(events: list[Event], name: str) -> int:
    return sum(event.event == name for event in events)


async def test_a_retry_after_deltas_were_shown_restarts() -> None:
    seen = await collect_events(Agent(Flaky("half a…", "half…", "the whole thing"), hooks=[retry]))
    assert shown(seen) == "the whole thing "
    assert text_deltas(seen) == "half a half the whole thing "
    assert count(seen, "on_chat_model_restart") == 2
    assert count(seen, "on_chat_model_start") == count(seen, "on_chat_model_end") == 1


async def test_a_retry_before_anything_was_shown_does_not_restart() -> None:
    seen = await collect_events(Agent(Scripted(ModelError("no"), "yes"), hooks=[retry]))
    assert count(seen, "on_chat_model_restart") == 0
    assert shown(seen) == "yes"


async def test_a_replaced_reply_restarts_with_its_replacement() -> None:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result = assistant(call.result.text.replace("hunter2", "***"))

    seen = await collect_events(Agent(Scripted("it is hunter2"), hooks=[redact]))
    (restart,) = (event for event in seen if isinstance(event, ChatModelRestart))
    assert restart.content == "it is ***" == shown(seen)


async def test_a_reply_that_is_the_same_does_not_restart() -> None:
    @after(ModelCall)
    def look(call: ModelCall) -> None:
        assert call.result.text == "hello"

    assert count(await collect_events(hello_agent(look)), "on_chat_model_restart") == 0


async def test_a_reply_supplied_by_a_wrap_is_sent_whole() -> None:
    @wrap(ModelCall)
    async def cached(call: ModelCall, next: Next[Any]) -> str:
        return "from the cache"

    seen = await collect_events(Agent(Scripted(), hooks=[cached]))
    assert shown(seen) == "from the cache"


async def test_a_reply_blocked_after_streaming_is_retracted() -> None:
    @after(ModelCall)
    def refuse(call: ModelCall) -> Block:
        return Block("not fit to print")

    thread = Thread()
    seen = await collect_events(Agent(Scripted("rude words"), hooks=[refuse]), thread=thread)
    assert text_deltas(seen) == "rude words" and shown(seen) == ""
    assert [message.role for message in thread.messages] == ["user"]
    assert count(seen, "on_chat_model_end") == 0


# -- holding ----------------------------------------------------------------------------------------------------------


@after(ModelCall, hold=True)
def hold(call: ModelCall) -> None:
    if call.error is None and "hunter2" in call.result.text:
        call.result = assistant(call.result.text.replace("hunter2", "***"))


async def test_held_deltas_wait_for_the_hook() -> None:
    order: list[str] = []

    @after(ModelCall, hold=True)
    async def look(call: ModelCall) -> None:
        await asyncio.sleep(0)
        order.append("looked")

    await Agent(Scripted("two words"), hooks=[look]).run("go", emit=lambda event: order.append(event.event))
    assert order == [
        *("on_chat_model_start", "looked", "on_chat_model_stream", "on_chat_model_stream", "on_chat_model_end", "done"),
    ]


async def test_held_deltas_of_a_reply_that_was_changed_are_never_shown() -> None:
    seen = await collect_events(Agent(Scripted("it is hunter2"), hooks=[hold]))
    assert text_deltas(seen) == "" and shown(seen) == "it is ***"
    assert "hunter2" not in str([event.to_json() for event in seen])


async def test_held_deltas_of_a_reply_that_broke_off_are_never_shown() -> None:
    seen = await collect_events(Agent(Flaky("it is hunter2…"), hooks=[hold]))
    assert text_deltas(seen) == "" and isinstance(seen[-1], Failed)


async def test_held_deltas_of_an_attempt_that_failed_are_never_shown() -> None:
    seen = await collect_events(Agent(Flaky("it is hunter2…", "I will not say"), hooks=[hold, retry]))
    assert text_deltas(seen) == shown(seen) == "I will not say "


async def test_held_deltas_of_a_reply_that_an_inner_hook_replaced_are_never_shown() -> None:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result = assistant(call.result.text.replace("swordfish", "***"))

    seen = await collect_events(Agent(Scripted("it is swordfish"), hooks=[hold, redact]))
    assert text_deltas(seen) == "" and shown(seen) == "it is ***"


async def test_held_output_of_a_tool_waits_for_the_hook() -> None:
    @tool
    async def leak(text: str, use: ToolUse) -> str:
        """Say it while it runs, and again at the end."""
        use.stream(text)
        return text

    @after(ToolUse, hold=True)
    def redact(use: ToolUse) -> None:
        use.result.output = use.result.output.replace("hunter2", "***")

    model = Scripted(
        tool_calls_reply(ToolCall("a", "leak", {"text": "hunter2"}), ToolCall("b", "leak", {"text": "fine"})), "done"
    )
    seen = await collect_events(Agent(model, tools=[leak], hooks=[redact]))
    live = [event.to_json()["data"] for event in seen if event.event == "on_tool_stream"]
    assert live == [{"call_id": "b", "delta": "fine"}]


async def test_output_that_one_of_two_holding_hooks_changed_is_never_shown() -> None:
    @tool
    async def leak(use: ToolUse) -> str:
        """Say it while it runs, and again at the end."""
        use.stream("hunter2")
        return "hunter2"

    @after(ToolUse, hold=True)
    def look(use: ToolUse) -> None:
        assert use.result.output == "***"

    @after(ToolUse, hold=True)
    def redact(use: ToolUse) -> None:
        use.result.output = "***"

    seen = await collect_events(
        Agent(Scripted(tool_calls_reply(ToolCall("a", "leak")), "done"), tools=[leak], hooks=[look, redact])
    )
    assert "hunter2" not in str([event.to_json() for event in seen])


# -- values -----------------------------------------------------------------------------------------------------------


def states(events: list[Event]) -> list[dict[str, Any]]:
    return [event.data() for event in events if event.event == "on_state"]


async def test_values_that_are_set_are_announced_once() -> None:
    @tool
    def plan(step: str, run: Run) -> str:
        """Note a step."""
        run.thread.values["todos"] = [*run.thread.values.get("todos", []), step]
        return "noted"

    @after(Run)
    def count_(run: Run) -> None:
        run.thread.values["count"] = len(run.thread.values["todos"])

    thread = Thread()
    model = Scripted(
        tool_calls_reply(ToolCall("a", "plan", {"step": "one"})),
        tool_calls_reply(ToolCall("b", "plan", {"step": "two"})),
        "ok",
    )
    seen = await collect_events(Agent(model, tools=[plan], hooks=[count_]), thread=thread)
    assert states(seen) == [{"todos": ["one"]}, {"todos": ["one", "two"]}, {"count": 2}]
    assert seen[-1].terminal


async def test_a_value_that_is_taken_away_is_announced_as_none() -> None:
    @before(Run)
    def forget(run: Run) -> None:
        del run.thread.values["todos"]

    thread = Thread()
    thread.values["todos"] = ["one"]
    assert {"todos": None} in states(await collect_events(hello_agent(forget), thread=thread))


async def test_values_of_a_thread_that_was_read_are_old_news() -> None:
    thread = Thread()
    thread.values["todos"] = ["one"]
    assert states(await collect_events(hello_agent(), thread=copy(thread))) == []


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No hook fails in these tests by itself."""
    yield
    assert not [record for record in caplog.records if record.name == "wick.onion"]


async def test_a_run_stays_in_its_thread() -> None:
    mine, other = Thread(), Thread()

    @wrap(Run)
    async def around(run: Run, next: Next[Any]) -> Any:
        return await next(run.fork(thread=other))

    @before(Run)
    def move(run: Run) -> None:
        run.thread = other

    for hooks in ([around], [move], [around, move]):
        assert (await hello_agent(*hooks).run("hi", thread=mine)).thread is mine
    assert valid(mine) and other.entries == [] and not other.busy


async def test_another_attempt_continues_where_the_first_ended() -> None:
    @wrap(Run)
    async def again(run: Run, next: Next[Any]) -> Any:
        try:
            return await next(run)
        except ModelError:
            return await next(run)

    thread, seen = Thread(), list[Event]()
    model = Scripted(ModelError("down"), "hello")
    result = await Agent(model, hooks=[again]).run("hi", thread=thread, emit=seen.append)
    assert (result.outcome, [message.text for message in thread.messages]) == ("completed", ["hi", "hello"])
    assert [entry.kind for entry in thread.entries].count("run_start") == 1
    assert [event for event in seen if event.terminal] == seen[-1:]
    assert valid(copy(thread))


async def test_another_attempt_may_add_messages() -> None:
    @wrap(Run)
    async def twice(run: Run, next: Next[Any]) -> Any:
        await next(run)
        return await next(run.fork(input=[*run.input, user("better")]))

    thread = Thread()
    result = await Agent(Scripted("so", "so so"), hooks=[twice]).run("hi", thread=thread)
    assert [message.text for message in thread.messages] == ["hi", "so", "better", "so so"]
    assert result.text == "so so" and valid(copy(thread))


async def test_a_step_that_takes_up_calls_can_be_tried_again() -> None:
    @wrap(Step)
    async def twice(step: Step, next: Next[Any]) -> Any:
        await next(step)
        return await next(step)

    thread = Thread()
    thread.add(user("go"), tool_calls_reply(tool_call()))
    result = await Agent(Scripted("done", spare=True), tools=[echo], hooks=[twice]).run(thread=thread)
    assert (result.text, tool_results(result)) == ("done", ["hi"])
    assert valid(copy(thread))


async def test_a_late_approval_of_an_answered_call_is_ignored() -> None:
    ran: list[str] = []
    late: list[asyncio.Task[Any]] = []
    answered = asyncio.Event()

    @tool
    async def send(text: str) -> str:
        ran.append(text)
        return "sent"

    @wrap(ToolUse)
    async def straggle(use: ToolUse, next: Next[Any]) -> Any:
        async def wait() -> Any:
            await answered.wait()
            return await next(use)

        if not late:
            late.append(asyncio.create_task(wait()))
            return "later"
        answered.set()
        refused = await late[0]
        assert refused.error == "send does not run any more: its call has been answered"
        return await next(use)

    model = Scripted(
        tool_calls_reply(tool_call("send", text="one")), tool_calls_reply(tool_call("send", text="two")), "done"
    )
    result = await Agent(model, tools=[send], hooks=[straggle]).run("go")
    assert (ran, tool_results(result)) == (["two"], ["later", "sent"])


async def test_a_tool_that_ends_after_its_call_was_answered_is_not_taken_for_a_later_one() -> None:
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    @tool
    async def send(text: str) -> str:
        if text == "one":
            await go.wait()
        else:
            go.set()
            await asyncio.wait(late)
            thread = use_thread[0]
            assert thread.attempt_status("c1") == "unknown"
        return "sent"

    @wrap(ToolUse)
    async def straggle(use: ToolUse, next: Next[Any]) -> Any:
        use_thread.append(use.run.thread)
        if late:
            return await next(use)
        late.append(asyncio.ensure_future(next(use)))
        await asyncio.sleep(0)
        return "later"

    use_thread: list[Thread] = []
    model = Scripted(
        tool_calls_reply(tool_call("send", text="one")), tool_calls_reply(tool_call("send", text="two")), "done"
    )
    result = await Agent(model, tools=[send], hooks=[straggle]).run("go")
    assert tool_results(result) == ["later", "sent"]


# -- what was queued before a run, and runs that are let go of --------------------------------------------------------


async def kept_store() -> InMemory:
    store = InMemory()
    await store.create("local", "th_1")
    return store


async def test_messages_before_a_run_are_its_input() -> None:
    """Hooks of a run see it, guards among them; nobody hears it twice."""
    store, seen = await kept_store(), list[str]()

    @before(Run)
    def look(run: Run) -> None:
        seen.extend(message.text for message in run.input)

    await store.enqueue("local", "th_1", user("One.").to_json(), user("Two.").to_json())
    result = await Agent(Scripted("Both."), hooks=[Sessions(store), look]).run(thread="th_1")
    assert seen == ["One.", "Two."] and [message.text for message in result.messages] == ["One.", "Two.", "Both."]
    assert (await store.head("local", "th_1")).queued == 0
    await store.close()


async def test_input_changed_by_hooks_replaces_the_original() -> None:
    store = await kept_store()

    @before(Run)
    def shout(run: Run) -> None:
        run.input = [user(message.text.upper()) for message in run.input]

    await store.enqueue("local", "th_1", user("hello").to_json())
    result = await Agent(Scripted("Yes."), hooks=[Sessions(store), shout]).run(thread="th_1")
    assert [message.text for message in result.messages] == ["HELLO", "Yes."]
    assert (await store.head("local", "th_1")).queued == 0
    await store.close()


async def test_messages_refused_by_a_run_do_not_wait_for_another() -> None:
    store = await kept_store()

    @guard(Run)
    def closed(run: Run) -> Block:
        return Block("closed today")

    await store.enqueue("local", "th_1", user("hello").to_json())
    result = await Agent(Scripted(), hooks=[Sessions(store), closed]).run(thread="th_1")
    assert result.reason == "blocked: closed today" and (await store.head("local", "th_1")).queued == 0
    log = [row async for batch in store.read("local", "th_1") for row in batch]
    assert [row["kind"] for row in log] == ["decision", "run_start", "event", "run_end"]
    refused = log[2]["data"]
    assert refused["name"] == "message_refused" and refused["data"]["message"]["content"] == "hello"
    assert (log[-1]["data"]["outcome"], log[-1]["data"]["reason"]) == ("stopped", "blocked: closed today")
    await store.close()


async def test_messages_cancelled_before_a_decision_are_stored_but_not_delivered() -> None:
    store, asked = await kept_store(), asyncio.Event()

    @guard(Run)
    async def slow(run: Run) -> None:
        asked.set()
        await asyncio.sleep(60)

    await store.enqueue("local", "th_1", user("hello").to_json())
    running = asyncio.create_task(Agent(Scripted(), hooks=[Sessions(store), slow]).run(thread="th_1"))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await store.head("local", "th_1")).queued == 0
    log = [row async for batch in store.read("local", "th_1") for row in batch]
    (unheard,) = [row["data"] for row in log if row["kind"] == "event"]
    assert unheard["name"] == "message_unheard" and unheard["data"]["message"]["content"] == "hello"
    result = await Agent(Scripted("Yes."), hooks=[Sessions(store)]).run("And now?", thread="th_1")
    assert [message.text for message in result.messages] == ["And now?", "Yes."]
    await store.close()


async def test_a_run_paused_before_its_start_keeps_its_input() -> None:
    store = await kept_store()

    @before(Run)
    def may_i(run: Run) -> Ask:
        return Ask("begin?")

    sessions = Sessions(store)
    await store.enqueue("local", "th_1", user("hello").to_json())
    waits = await Agent(Scripted(), hooks=[sessions, may_i]).run(thread="th_1")
    assert waits.outcome == "interrupted" and (await store.head("local", "th_1")).queued == 0
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    result = await Agent(Scripted("Hi."), hooks=[sessions, may_i]).run(thread="th_1")
    assert [message.text for message in result.messages] == ["hello", "Hi."]
    await store.close()


async def test_a_released_run_is_resumed() -> None:
    """Cancelled by a program that stops, not by its user: no call is answered for it, and it goes on elsewhere."""
    store, begun = await kept_store(), asyncio.Event()

    @tool(idempotent=True)
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.sleep(0 if len(tries) > 1 else 60)
        return "waited"

    tries = [1]
    agent = Agent(Scripted(tool_calls_reply(ToolCall("c1", "wait"))), tools=[wait], hooks=[Sessions(store)])
    stream = agent.stream("go", thread="th_1")
    task = asyncio.create_task(stream.finish())
    await begun.wait()
    stream.run.progress.released = True
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.result is not None and (stream.result.outcome, stream.result.reason) == ("interrupted", "interrupted")
    assert (await store.head("local", "th_1")).run == stream.run.id
    tries.append(2)
    again = await Agent(Scripted("Done."), tools=[wait], hooks=[Sessions(store)]).run(thread="th_1")
    assert again.text == "Done." and again.messages.tool_messages()[0].text == "waited"
    await store.close()


async def test_that_a_run_failed_is_logged_with_why() -> None:
    thread = Thread("th_1")
    with pytest.raises(RuntimeError):
        await Agent(Scripted(RuntimeError("no tea"))).run("go", thread=thread)
    assert thaw(thread.entries[-1].data)["error"] == {"code": "runtime_error", "message": "no tea"}


def test_an_abandoned_run_is_ended() -> None:
    thread = Thread("th_1")
    run_log.end_abandoned_run(thread, "r1", [user("hello")], "cancelled", "user requested")
    assert [entry.kind for entry in thread.entries] == ["message", "run_start", "run_end"] and thread.open_run is None
    thread.add(user("go"))
    thread.append("run_start", {"run": "r2", "agent": "a", "guards": [], "resumed": False, "input": 1})
    thread.add(tool_calls_reply(tool_call()))
    run_log.end_abandoned_run(thread, "r2", [], "failed", "error", ("model_error", "it is down"))
    assert thread.messages[-1].text == "the run failed before echo ran" and thread.messages[-1].failed
    assert thaw(thread.entries[-1].data)["error"] == {"code": "model_error", "message": "it is down"}
    thread.add(user("and now?"))  # the next message works


async def test_a_stream_that_is_seen_through_is_not_read() -> None:
    seen: list[Event] = []
    stream = Agent(Scripted("hello")).stream("go", emit=seen.append)
    assert (await stream.finish()).text == "hello" and seen[-1].terminal
    with pytest.raises(ConfigError, match="being read"):
        await stream.finish()
    with pytest.raises(ConfigError, match="read once"):
        async for _ in stream:
            pass


# -- messages of runs that end before they begin ---------------------------------------------------------------------


async def log_of(store: InMemory) -> list[dict[str, Any]]:
    return [row async for batch in store.read("local", "th_1") for row in batch]


async def test_messages_of_a_run_that_failed_before_its_start_are_input_of_the_next() -> None:
    """Every hook sees them then; the hook that failed may be one that changes them."""
    store, down, seen = await kept_store(), [True], list[list[str]]()

    @before(Run)
    def policy(run: Run) -> None:
        if down[0]:
            raise ConnectionError("the policy service is down")
        seen.append([message.text for message in run.input])
        run.input = [user(message.text.replace("1234", "****")) for message in run.input]

    agent = Agent(Scripted("Done."), hooks=[Sessions(store), policy])
    await store.enqueue("local", "th_1", user("the number is 1234").to_json())
    with pytest.raises(ConnectionError):
        await agent.run(thread="th_1")
    assert (await store.head("local", "th_1")).queued == 0
    last = (await log_of(store))[-1]
    assert (last["kind"], last["data"]["outcome"]) == ("run_end", "failed")
    assert last["data"]["unheard"][0]["message"]["content"] == "the number is 1234"
    down[0] = False
    await store.enqueue("local", "th_1", user("well?").to_json())
    result = await agent.run(thread="th_1")
    assert seen == [["the number is 1234", "well?"]]
    assert [message.text for message in result.messages] == ["the number is ****", "well?", "Done."]
    assert (await Sessions(store).load("th_1")).unheard == ()
    await store.close()


async def test_a_message_on_which_a_hook_always_fails_does_not_block_its_thread() -> None:
    store = await kept_store()

    @before(Run)
    def fragile(run: Run) -> None:
        if any(message.text == "poison" for message in run.input):
            raise ValueError("I cannot read this")

    agent = Agent(Scripted("Fine."), hooks=[Sessions(store), fragile])
    failures = 0
    for number in range(10):
        await store.enqueue("local", "th_1", user("poison" if not number else f"hello {number}").to_json())
        try:
            result = await agent.run(thread="th_1")
            break
        except ValueError:
            failures += 1
    assert failures == UNHEARD_RUNS
    texts = [message.text for message in result.messages]
    assert "hello 1" in texts and "hello 3" in texts and "poison" not in texts
    unheard = [row["data"] for row in await log_of(store) if row["kind"] == "event"]
    assert [row["data"]["message"]["content"] for row in unheard] == ["poison"]
    await store.close()


@pytest.mark.parametrize("code", TEMPORARY)
async def test_messages_stay_in_the_inbox_while_the_store_fails(code: str) -> None:
    store = await kept_store()
    fails = [True]

    @before(Run)
    async def read(run: Run) -> None:
        if fails[0]:
            raise StoreError("not now", code)

    agent = Agent(Scripted("Done."), hooks=[Sessions(store), read])
    await store.enqueue("local", "th_1", user("hello").to_json())
    with pytest.raises(StoreError):
        await agent.run(thread="th_1")
    assert (await store.head("local", "th_1")).queued == 1
    fails[0] = False
    result = await agent.run(thread="th_1")
    assert [message.text for message in result.messages] == ["hello", "Done."]
    await store.close()


async def test_messages_of_a_failed_run_join_a_run_that_has_an_input() -> None:
    store, down = await kept_store(), [True]

    @before(Run)
    def policy(run: Run) -> None:
        if down[0]:
            raise ConnectionError("the policy service is down")

    agent = Agent(Scripted("Done."), hooks=[Sessions(store), policy])
    await store.enqueue("local", "th_1", user("first").to_json())
    with pytest.raises(ConnectionError):
        await agent.run(thread="th_1")
    down[0] = False
    result = await agent.run("second", thread="th_1")
    assert [message.text for message in result.messages] == ["first", "second", "Done."]
    await store.close()
