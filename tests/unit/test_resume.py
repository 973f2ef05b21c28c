"""Resuming a run: after a pause or a crash it continues exactly where it stood, and nothing happens twice."""

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
    assistant,
    before,
    guard,
    tool,
    tool_message,
    user,
    wrap,
)
from wick._internal.frozen import thaw
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError, StoreError
from wick.events import Done, Event, Failed
from wick.hooks import Next
from wick.operations import Operation
from wick.protocols import Request
from wick.resume import end_abandoned_run
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


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No hook fails in these tests by itself."""
    yield
    assert not [record for record in caplog.records if record.name == "wick.onion"]


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


async def test_a_paused_run_resumes_at_its_position() -> None:
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


@pytest.mark.parametrize(
    ("choice", "args", "result"),
    [("deny", None, "the user said no to: Pay?"), ("allow", {"amount": 1}, "paid 1"), ("allow", None, "paid 15")],
)
@pytest.mark.parametrize("is_logged", [False, True])
async def test_an_answer_counts_even_if_no_guard_asks_any_more(
    choice: Any, args: dict[str, Any] | None, result: str, is_logged: bool
) -> None:
    """A standing rule was added after a person had answered. The answer is in the inbox, or in the log already."""
    rules = list[str]()

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask | None:
        return None if rules else Ask("Pay?")

    sessions = Sessions(InMemory())
    agent = Agent(Scripted(ToolCall("1", "pay", {"amount": 15}), "Done."), tools=[pay], hooks=[sessions, confirm])
    thread = (await agent.run("Pay.", thread="th_1")).thread
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], choice, args=args, by="ada")
    rules.append("payments up to 20")
    if is_logged:
        row = {"id": question["id"], "hash": question["hash"], "allowed": choice == "allow", "reason": result}
        thread = copy(thread)
        thread.append("answered", {**row, **({"args": args} if args else {})})
        resumed = await agent.without_hooks("sessions").run(thread=thread)
    else:
        resumed = await agent.run(thread="th_1")
    assert resumed.messages.tool_messages()[0].text == result
    assert [entry["allowed"] for entry in thread_entries(resumed.thread, "answered")] == [choice == "allow"]


async def test_a_question_without_an_answer_lapses_if_no_guard_asks_any_more() -> None:
    rules = list[str]()

    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask | None:
        return None if rules else Ask("sure?")

    sessions = Sessions(InMemory())
    agent = Agent(Scripted(ToolCall("1", "echo", {"text": "x"}), "Done."), tools=[echo], hooks=[sessions, confirm])
    await agent.run("go", thread="th_1")
    rules.append("echo")
    resumed = await agent.run(thread="th_1")
    assert (tool_results(resumed), thread_entries(resumed.thread, "answered")) == (["x"], [])


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


async def test_a_paused_run_resumes_only_under_its_guards() -> None:
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
        *("go", "", "worked on a", "the user sent another message before work ran", "worked on c"),
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
        "the user sent another message before work ran",
        "the user sent another message while work ran; whether it took effect is unknown",
        "work ran, and the user sent another message before its result was known",
        "work failed, and the user sent another message",
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
    """Effects of tools, in any process."""

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
    """An agent that continues the script in any process."""

    def answer(request: Request) -> Message:
        return SCRIPT[sum(message.role == "assistant" for message in request.messages)]

    return Agent(FunctionModel(answer), tools=world.tools())


async def whole_run() -> Thread:
    thread = Thread()
    await worker(World()).run("go", thread=thread)
    return thread


def began(thread: Thread, name: str) -> bool:
    """Return True if the log contains the start of a tool."""
    step = int(name[0])
    replies = [entry.seq for entry in thread.entries if entry.kind == "message" and entry.data.role == "assistant"]
    return any(
        entry.data["call"] == WANTED[name].id and sum(seq < entry.seq for seq in replies) == step
        for entry in thread.entries
        if entry.kind == "intent"
    )


async def test_a_run_resumes_after_a_crash_at_any_entry_and_nothing_happens_twice_silently() -> None:
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


async def test_the_usage_of_a_resumed_run_is_that_of_both_parts() -> None:
    desk, thread = Desk(), Thread()
    agent = desk.agent(Paused("later"), True)
    first = await agent.run("go", thread=thread)
    assert first.usage.total_tokens
    last = await agent.run(thread=copy(thread))
    assert last.usage.input_tokens > first.usage.input_tokens
    assert last.usage.output_tokens == first.usage.output_tokens + len("all done") // 4


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


# -- runs that are released, shelved or given up -----------------------------------------------------------------------


async def kept_store() -> InMemory:
    store = InMemory()
    await store.create("local", "th_1")
    return store


async def test_a_released_run_is_resumed() -> None:
    """Cancelled by a stopping program, not by its user: no call is answered, and it continues elsewhere."""
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
    stream.run.progress.resumption.released = True
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.result is not None and (stream.result.outcome, stream.result.reason) == ("interrupted", "interrupted")
    assert (await store.head("local", "th_1")).run == stream.run.id
    tries.append(2)
    again = await Agent(Scripted("Done."), tools=[wait], hooks=[Sessions(store)]).run(thread="th_1")
    assert again.text == "Done." and again.messages.tool_messages()[0].text == "waited"
    await store.close()


async def test_an_unknown_thread_is_reported_with_the_owner_that_was_searched() -> None:
    sessions = Sessions(InMemory())
    await hello_agent(sessions).run("hi", thread="th_1", user="ada")
    for call in (sessions.questions("th_1"), sessions.load("th_1"), sessions.answer("th_1", "ask_1", "allow")):
        with pytest.raises(StoreError, match="no thread 'th_1' of the owner 'local'; pass owner=") as raised:
            await call
        assert (raised.value.code, raised.value.public) == ("not_found", "there is no thread 'th_1'")
    assert await sessions.questions("th_1", owner="ada") == []


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


async def test_questions_of_all_owners_are_listed() -> None:
    store = InMemory()

    @before(Run)
    def may_i(run: Run) -> Ask:
        return Ask(f"begin for {run.user}?")

    sessions = Sessions(store)
    agent = Agent(Scripted(), hooks=[sessions, may_i])
    for owner in ("ada", "bob"):
        await agent.run("hello", thread="th_1", user=owner)
    found = [(head.owner, head.id, question["question"]) async for head, question in sessions.iter_questions()]
    assert sorted(found) == [("ada", "th_1", "begin for ada?"), ("bob", "th_1", "begin for bob?")]
    async for head, question in sessions.iter_questions():
        await sessions.answer(head.id, question["id"], "allow", owner=head.owner)
    assert [question async for _, question in sessions.iter_questions()] == []
    await store.close()


def test_an_abandoned_run_is_ended() -> None:
    thread = Thread("th_1")
    end_abandoned_run(thread, "r1", [user("hello")], "cancelled", "user requested")
    assert [entry.kind for entry in thread.entries] == ["message", "run_start", "run_end"] and thread.open_run is None
    thread.add(user("go"))
    thread.append("run_start", {"run": "r2", "agent": "a", "guards": [], "resumed": False, "input": 1})
    thread.add(tool_calls_reply(tool_call()))
    end_abandoned_run(thread, "r2", [], "failed", "error", ("model_error", "it is down"))
    assert thread.messages[-1].text == "the run failed before echo ran" and thread.messages[-1].failed
    assert thaw(thread.entries[-1].data)["error"] == {"code": "model_error", "message": "it is down"}
    thread.add(user("and now?"))  # the next message works


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


async def test_guard_that_a_hook_adds_is_checked_after_the_hook_has_run() -> None:
    """The hook adds its guard again when the run is resumed. Without the hook, resuming is refused."""
    asked: list[str] = []

    @guard(ToolUse, name="added")
    def confirm(use: ToolUse) -> Ask:
        asked.append(use.call.id)
        return Ask("May it?")

    @before(Run)
    def add_confirm(run: Run) -> None:
        run.add_guard(confirm)

    def later(question: Any) -> Allow:
        raise Paused("ask me later")

    used: list[str] = []

    @tool
    def use_it(text: str) -> str:
        """Use it."""
        used.append(text)
        return text

    model = Scripted(assistant("", ToolCall("c1", "use_it", {"text": "a"})), "done")
    thread = Thread()
    paused = await Agent(model, tools=[use_it], hooks=[add_confirm], ask=later).run("go", thread=thread)
    assert paused.outcome == "interrupted" and not used
    before_refusal = len(thread.entries)
    with pytest.raises(ConfigError, match="was started under the guards added, which are missing now"):
        await Agent(model, tools=[use_it], ask=lambda question: Allow()).run(thread=thread)
    assert len(thread.entries) == before_refusal and not thread.busy
    resumed = await Agent(model, tools=[use_it], hooks=[add_confirm], ask=lambda question: Allow()).run(thread=thread)
    assert (resumed.outcome, resumed.text, used, asked) == ("completed", "done", ["a"], ["c1", "c1"])


async def test_missing_added_guard_can_be_waived() -> None:
    @guard(ToolUse, name="added")
    def confirm(use: ToolUse) -> Ask:
        return Ask("May it?")

    @before(Run)
    def add_confirm(run: Run) -> None:
        run.add_guard(confirm)

    def later(question: Any) -> Allow:
        raise Paused("ask me later")

    model = Scripted(assistant("", ToolCall("c1", "echo", {"text": "a"})), "done")
    thread = Thread()
    await Agent(model, tools=[echo], hooks=[add_confirm], ask=later).run("go", thread=thread)
    assert (await Agent(model, tools=[echo]).run(thread=thread, without=["added"])).outcome == "completed"


@pytest.mark.parametrize("operation", [Run, Step, ToolUse])
async def test_wrap_cannot_swallow_a_pause(operation: type[Any]) -> None:
    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("May it?")

    @wrap(operation)
    async def swallow(op: Any, next: Any) -> Any:
        try:
            return await next(op)
        except BaseException:
            return "swallowed"

    def later(question: Any) -> Allow:
        raise Paused("ask me later")

    model = Scripted(assistant("", ToolCall("c1", "echo", {"text": "a"})), "done")
    thread = Thread()
    result = await Agent(model, tools=[echo], hooks=[confirm, swallow], ask=later).run("go", thread=thread)
    assert result.outcome == "interrupted" and len(thread.pending) == 1
    resumed = await Agent(model, tools=[echo], hooks=[confirm, swallow], ask=lambda question: Allow()).run(
        thread=thread
    )
    assert (resumed.outcome, resumed.text) == ("completed", "done")


async def test_an_approval_of_a_model_call_without_the_address_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of versions whose hash did not cover the address of the model still resume."""

    class Served(Scripted):
        base_url = "https://a.test/v1"

    @guard(ModelCall)
    def confirm(call: ModelCall) -> Ask:
        return Ask("Send it?")

    sessions = Sessions(InMemory())
    with monkeypatch.context() as older:
        older.setattr("wick.operations._address", lambda model: "")
        waits = await Agent(Served(spare=True), hooks=[sessions, confirm]).run("Hello.", thread="th_1")
    assert waits.outcome == "interrupted"
    for outcome in ("interrupted", "completed"):
        for question in await sessions.questions("th_1"):
            await sessions.answer("th_1", question["id"], "allow")
        again = await Agent(Served("Done.", spare=True), hooks=[sessions, confirm]).run(thread="th_1")
        assert again.outcome == outcome
    assert again.text == "Done."
