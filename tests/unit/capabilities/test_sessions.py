"""Sessions: the order of messages, requests after an interruption, and answers to wrong calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wick import Agent, Ask, Continue, Scripted, Step, ToolCall, ToolUse, after, assistant, guard, tool
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError, MessageError, StoreError
from wick.protocols import Delta, Request, TextDelta
from wick.stores.in_memory import InMemory
from wick.testing import lapse_questions


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


class Endless:
    """A model whose reply never ends."""

    name = "endless"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("Once upon a time")
        await asyncio.Event().wait()


async def test_a_sent_message_comes_before_the_input_of_the_next_run() -> None:
    sessions = Sessions(InMemory())
    model = Scripted(assistant("", ToolCall("c1", "pay", {"amount": 5})), "both are here")
    agent = Agent(model, tools=[pay], hooks=[sessions, confirm])
    paused = await agent.run("Pay 5.", thread="th_1")
    await sessions.send("th_1", "A")
    result = await agent.run("B", thread="th_1")
    assert (paused.outcome, result.outcome) == ("interrupted", "completed")
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "tool", "user", "user"]
    assert [message.text for message in model.requests[-1].messages][-2:] == ["A", "B"]
    assert (await sessions.store.head("local", "th_1")).queued == 0


async def test_a_cancelled_reply_is_continued_after_a_prompt() -> None:
    sessions = Sessions(InMemory())
    stream = Agent(Endless(), hooks=[sessions]).stream("A story.", thread="th_1")
    async for event in stream:
        if event.event == "on_chat_model_stream":
            break
    model = Scripted("there was a wick.")
    result = await Agent(model, hooks=[sessions]).run(thread="th_1")
    sent = model.requests[0].messages
    assert [message.role for message in sent] == ["user", "assistant", "user"]
    assert (sent[1].text, sent[2].text) == ("Once upon a time", "Your reply was interrupted before its end. "
                                            "Continue where it stopped.")  # fmt: skip
    assert sent[2].name == "continue", "it is marked as a message that no user wrote"
    assert result.text == "there was a wick."


async def test_another_step_without_a_message_does_not_end_with_a_reply() -> None:
    left = [Continue()]

    @after(Step)
    def once_more(step: Step) -> Continue | None:
        return left.pop() if left else None

    model = Scripted("one", "two")
    result = await Agent(model, hooks=[once_more]).run("Count.")
    assert [message.text for message in model.requests[1].messages] == ["Count.", "one", "Continue."]
    assert result.text == "two"


async def test_the_id_of_a_run_without_input_is_known_from_the_first_event_on() -> None:
    sessions = Sessions(InMemory())
    model = Scripted(assistant("", ToolCall("c1", "pay", {"amount": 5})), "Paid.", "Again.")
    agent = Agent(model, tools=[pay], hooks=[sessions, confirm])
    started = agent.stream("Pay 5.", thread="th_1")
    id = started.run.id
    assert id.startswith("run_") and {event.run_id async for event in started} == {id}
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow")
    resumed = agent.stream(thread="th_1")
    assert resumed.run.id == "", "the store has the id"
    assert {event.run_id async for event in resumed} == {id} == {resumed.run.id}
    await sessions.send("th_1", "Once more.")
    following = agent.stream(thread="th_1")
    assert {event.run_id async for event in following} == {following.run.id} != {id}
    assert following.result.text == "Again."


async def test_a_run_whose_thread_cannot_be_opened_has_an_id() -> None:
    store = InMemory()
    await store.create("local", "th_1")
    await store.lease("local", "th_1", "another program", 30)
    stream = Agent(Scripted(), hooks=[Sessions(store, busy="refuse")]).stream(thread="th_1")
    (failed,) = [event async for event in stream]
    assert failed.run_id == stream.run.id != ""


# -- wrong calls are answered by a sentence ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"asking": "yes"}, "asking= takes True, False, or None for both, not 'yes'"),
        ({"running": 1}, "running= takes True"),
        ({"prefix": 7}, "prefix= takes a text, not 7"),
        ({"order": "title"}, "ordered by updated or created"),
        ({"limit": 0}, "a limit is at least 1"),
        ({"owner": ""}, "owner= takes the name of a user"),
    ],
)
async def test_options_of_a_list_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence) as caught:
        await Sessions(InMemory()).threads(**options)
    assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("threads", {"askng": True}, r"Sessions.threads\(\) has no option askng=; did you mean asking="),
        ("threads", {"user": "eve"}, "did you mean owner=, the same as user= of the run"),
        ("load", {"id": "th_1", "user": "eve"}, "did you mean owner="),
        ("questions", {"thread_id": "th_1"}, "the thread's id is the first argument"),
    ],
)
async def test_unknown_options_are_answered(method: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        await getattr(Sessions(InMemory()), method)(**options)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("get", "await sessions.load"),
        ("create", "a run creates its thread"),
        ("delete", "sessions.store.delete"),
        ("approve", "sessions.answer"),
        ("thred", "has no attribute 'thred'"),
    ],
)
def test_unknown_methods_are_answered(name: str, sentence: str) -> None:
    with pytest.raises(AttributeError, match=sentence):
        getattr(Sessions(InMemory()), name)


@pytest.mark.parametrize("user", ["", None, 7])
async def test_a_run_needs_a_user_with_a_name(user: Any) -> None:
    agent = Agent(Scripted("not sent", spare=True), hooks=[Sessions(InMemory())])
    with pytest.raises(ConfigError, match='leave it out for the owner "local"'):
        await agent.run("Hi.", thread="th_1", user=user)


async def test_a_sent_message_may_be_a_dict_and_is_queued_once_under_its_key() -> None:
    sessions, model = Sessions(InMemory()), Scripted("Hello.")
    await sessions.store.create("local", "th_1")
    sent: Any = {"role": "user", "content": [{"type": "text", "text": "I am Ada."}]}
    first = await sessions.send("th_1", sent, key="m1")
    assert await sessions.send("th_1", sent, key="m1") == first
    await Agent(model, hooks=[sessions]).run(thread="th_1")
    assert [message.text for message in model.requests[0].messages] == ["I am Ada."]
    with pytest.raises(MessageError, match=r"write user\(…\)"):
        await sessions.send("th_1", 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="only a message of the user"):
        await sessions.send("th_1", {"role": "assistant", "content": "Hi."})


@pytest.mark.parametrize("seconds", [0, -1, "1h", True])
def test_the_lifetime_of_questions_is_checked(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="answer_within= takes seconds"):
        Sessions(InMemory(), answer_within=seconds)


async def test_questions_live_as_long_as_the_option_says() -> None:
    sessions = Sessions(InMemory(), answer_within=90.0)
    agent = Agent(Scripted(assistant("", ToolCall("c1", "pay", {"amount": 5}))), tools=[pay], hooks=[sessions, confirm])
    result = await agent.run("Pay 5.", thread="th_1")
    asked = next(entry for entry in result.thread.entries if entry.kind == "asked")  # type: ignore[union-attr]
    assert 89 < asked.data["expires"] - asked.at <= 90


async def test_only_open_questions_of_a_paused_thread_can_lapse() -> None:
    sessions = Sessions(InMemory())
    await Agent(Scripted("Hi."), hooks=[sessions]).run("Hello.", thread="th_1")
    for thread in ("th_1", "th_2"):
        with pytest.raises(StoreError) as caught:
            await lapse_questions(sessions, thread)
        assert caught.value.code == "not_found"


# -- an orderly restart ------------------------------------------------------------------------------------------------


async def test_a_released_run_that_waits_for_an_answer_pauses_at_once() -> None:
    sessions = Sessions(InMemory(), patience=3600)
    model = Scripted(assistant("", ToolCall("c1", "pay", {"amount": 5})), "Paid.")
    agent = Agent(model, tools=[pay], hooks=[sessions, confirm])
    asking = asyncio.create_task(agent.run("Pay 5.", thread="th_1"))
    while not (await sessions.threads(asking=True)).threads:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        await sessions.release(grace=3600)
    assert (await asking).reason == "paused: waiting for an answer to: pay 5?"
    ((_, question),) = [found async for found in sessions.iter_questions()]
    await sessions.answer("th_1", question["id"], "allow")
    assert (await agent.run(thread="th_1")).text == "Paid."


async def test_a_released_run_is_resumed() -> None:
    sessions, events = Sessions(InMemory()), list[str]()
    stream = Agent(Endless(), hooks=[sessions]).stream("A story.", thread="th_1")

    async def follow() -> None:
        async for event in stream:
            events.append(event.event)

    following = asyncio.create_task(follow())
    while "on_chat_model_stream" not in events:
        await asyncio.sleep(0.01)
    await sessions.release()
    await following
    assert (stream.result.outcome, events[-1]) == ("interrupted", "done")
    (head,) = [head async for head in sessions.iter_unfinished()]
    assert (head.id, head.leased, head.run) == ("th_1", False, stream.run.id)
    result = await Agent(Scripted("The end."), hooks=[sessions]).run(thread="th_1")
    assert (result.text, result.outcome) == ("The end.", "completed")
    assert [message.text for message in result.messages] == ["A story.", "The end."], "the part is written again"


async def test_a_released_run_has_time_to_end() -> None:
    go = asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        await go.wait()
        return "seen"

    sessions = Sessions(InMemory())
    model = Scripted(assistant("", ToolCall("c1", "look", {})), "I have seen it.")
    running = asyncio.create_task(Agent(model, tools=[look], hooks=[sessions]).run("Look.", thread="th_1"))
    while not model.requests:
        await asyncio.sleep(0.01)
    releasing = asyncio.create_task(sessions.release(grace=3600))
    await asyncio.sleep(0.05)
    assert not releasing.done()
    go.set()
    await releasing
    assert (await running).outcome == "completed"


async def test_the_input_of_a_released_run_that_waits_for_its_thread_is_stored() -> None:
    sessions = Sessions(InMemory())
    first, second = (
        asyncio.create_task(Agent(Endless(), hooks=[sessions]).run(text, thread="th_1")) for text in ("one", "two")
    )
    while not (await sessions.threads(running=True)).threads:
        await asyncio.sleep(0.01)
    await sessions.release()
    for task in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await task
    model = Scripted("both")
    await Agent(model, hooks=[sessions]).run(thread="th_1")
    assert [message.text for message in model.requests[0].messages] == ["one", "two"]


async def test_a_run_may_release_the_others_and_a_wrong_time_is_refused() -> None:
    sessions = Sessions(InMemory())

    @tool
    async def restart() -> str:
        """Restart."""
        await sessions.release()
        return "restarting"

    model = Scripted(assistant("", ToolCall("c1", "restart", {})), "Done.")
    assert (await Agent(model, tools=[restart], hooks=[sessions]).run("Restart.")).text == "Done."
    for grace in (-1, "soon", None):
        with pytest.raises(ConfigError, match="release takes the seconds"):
            await sessions.release(grace)  # type: ignore[arg-type]
