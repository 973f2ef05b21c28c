"""The log of a run: stored entries, their order, and one run of a thread at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kit import (
    ScriptedUser,
    collect_events,
    echo_agent,
    hello_agent,
    thread_entries,
    tool_call,
    tool_calls_reply,
    tool_results,
)
from wick import (
    Agent,
    Ask,
    Block,
    FunctionModel,
    ModelCall,
    Run,
    Scripted,
    Thread,
    ToolCall,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    tool,
    user,
    wrap,
)
from wick._internal.frozen import thaw
from wick.capabilities.fallback import Fallback
from wick.capabilities.sessions import Sessions
from wick.constants import CHARS_PER_TOKEN, UNHEARD_RUNS
from wick.errors import TEMPORARY, ConfigError, ModelError, StoreError
from wick.events import Event
from wick.hooks import Next
from wick.protocols import Delta, Request, TextDelta, Usage
from wick.stores.in_memory import InMemory


def copy(thread: Thread, until: int | None = None) -> Thread:
    """The thread as another process reads it, after its first entries."""
    data = json.loads(json.dumps(thread.to_json()))
    return Thread.from_json({**data, "entries": data["entries"][:until]})


def valid(thread: Thread) -> bool:
    thread.messages.validate()
    return not thread.pending and not thread.busy


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No hook fails in these tests by itself."""
    yield
    assert not [record for record in caplog.records if record.name == "wick.onion"]


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


async def test_threads_do_not_wait_for_each_other() -> None:
    agent = Agent(FunctionModel(lambda request: request.messages[-1].text.upper()))
    texts = await asyncio.gather(*(agent.run(str(number) + "x") for number in range(20)))
    assert [result.text for result in texts] == [f"{number}X" for number in range(20)]


# -- entries ----------------------------------------------------------------------------------------------------------


@guard(ToolUse)
def ask(use: ToolUse) -> Ask:
    return Ask("sure?")


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


async def test_a_recorded_value_is_logged() -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", name="notes", files=3)

    thread = Thread()
    await hello_agent(note).run("go", thread=thread)
    (event,) = thread_entries(thread, "event")
    assert (event["name"], event["data"]) == ("loaded", {"name": "notes", "files": 3})


# -- attempts ---------------------------------------------------------------------------------------------------------


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


# -- messages before a run, and released runs -------------------------------------------------------------------------


async def kept_store() -> InMemory:
    store = InMemory()
    await store.create("local", "th_1")
    return store


async def test_messages_before_a_run_are_its_input() -> None:
    """Hooks of a run see it, guards included; it is delivered once."""
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


async def test_that_a_run_failed_is_logged_with_why() -> None:
    thread = Thread("th_1")
    with pytest.raises(RuntimeError):
        await Agent(Scripted(RuntimeError("no tea"))).run("go", thread=thread)
    assert thaw(thread.entries[-1].data)["error"] == {"code": "runtime_error", "message": "no tea"}


class Halting:
    """A model that says two pieces of a reply, and then never ends it."""

    name = "halting"

    def __init__(self, *last: Usage) -> None:
        self.replied, self.last = asyncio.Event(), last

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        for piece in (TextDelta("Once upon "), TextDelta("a time"), *self.last):
            yield piece
        self.replied.set()
        await asyncio.Event().wait()


async def cancel_reply(model: Halting, *hooks: Any, emit: Any = lambda event: None) -> Thread:
    """Cancel a run while its model replies."""
    thread = Thread("th_1")
    task = asyncio.create_task(Agent(model, hooks=hooks).stream("Tell me.", thread=thread, emit=emit).finish())
    await model.replied.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return thread


async def test_a_cancelled_reply_is_kept_marked_as_cut_and_counted() -> None:
    thread = await cancel_reply(Halting(Usage(7, 3)))
    assert [message.text for message in thread.messages] == ["Tell me.", "Once upon a time"]
    (reply,) = [entry for entry in thread.entries if entry.about]
    assert reply.about is not None and reply.about["cut"] is True and reply.about["usage"]["output_tokens"] == 3
    assert thread.entries[-1].data["outcome"] == "cancelled"
    assert thread.entries[-1].data["usage"]["output_tokens"] == 3
    assert copy(thread).entries == thread.entries and copy(thread).to_json() == thread.to_json()


async def test_the_tokens_of_a_cancelled_reply_are_estimated_if_the_model_has_not_reported_them() -> None:
    thread = await cancel_reply(Halting())
    assert thread.entries[-1].data["usage"]["output_tokens"] == len("Once upon a time") // CHARS_PER_TOKEN


async def test_a_run_without_input_continues_after_a_cut_reply() -> None:
    thread = await cancel_reply(Halting())
    result = await Agent(Scripted(" there was tea.")).run(thread=thread)
    assert result.text == " there was tea." and result.outcome == "completed"


async def test_a_cancelled_reply_that_a_hook_could_have_changed_is_not_kept() -> None:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result = assistant("[redacted]")

    thread = await cancel_reply(Halting(), redact)
    assert [message.text for message in thread.messages] == ["Tell me."]


async def test_a_reply_that_timed_out_is_not_kept_when_its_run_is_cancelled_later() -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    class Impatient(Halting):
        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                async with asyncio.timeout(0.05):
                    async for delta in super().stream(request):
                        yield delta
            except TimeoutError:
                raise ModelError("the model is too slow", retryable=True) from None

    other = Scripted(tool_calls_reply(tool_call("wait", id="c1")))
    agent, thread = Agent(Impatient(), tools=[wait], hooks=[Fallback(other)]), Thread("th_1")
    task = asyncio.create_task(agent.stream("Tell me.", thread=thread, emit=lambda event: None).finish())
    await asyncio.wait({task, waiting := asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [message.role for message in thread.messages] == ["user", "assistant", "tool"]
    assert "Once upon a time" not in [message.text for message in thread.messages]


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
    assert (await Sessions(store).load("th_1")).current.runs.unheard == ()
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
