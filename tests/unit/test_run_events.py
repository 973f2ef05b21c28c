"""The events of a run: emitted by the outermost ring, after their content is saved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit import collect_events, echo_agent, hello_agent, text_deltas, tool_calls_reply
from wick import (
    Agent,
    Block,
    Continue,
    Message,
    ModelCall,
    Run,
    Scripted,
    Step,
    Stop,
    Thread,
    ToolCall,
    ToolUse,
    after,
    assistant,
    before,
    tool,
    user,
    wrap,
)
from wick.errors import ConfigError, ModelError
from wick.events import ChatModelRestart, Done, Event, Failed, ToolEnd
from wick.hooks import Next
from wick.protocols import Request


def copy(thread: Thread, until: int | None = None) -> Thread:
    """The thread as another process reads it, after its first entries."""
    data = json.loads(json.dumps(thread.to_json()))
    return Thread.from_json({**data, "entries": data["entries"][:until]})


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No hook fails in these tests by itself."""
    yield
    assert not [record for record in caplog.records if record.name == "wick.onion"]


# -- order ------------------------------------------------------------------------------------------------------------


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


async def test_the_recorder_and_the_announcer_have_the_last_word_after_every_hook() -> None:
    """Neither a hook nor a subscriber sees a result that is replaced further out."""
    order: list[str] = []

    @after(ToolUse)
    def redact(use: ToolUse) -> None:
        order.append(f"hook {len(use.run.thread.messages)}")
        use.result.output = "***"

    def emit(event: Event) -> None:
        if isinstance(event, ToolEnd):
            order.append(f"event {event.output} {thread.messages[-1].text}")

    thread = Thread()
    await echo_agent(redact).run("go", thread=thread, emit=emit)
    assert order == ["hook 2", "event *** ***"]


async def test_a_tool_use_whose_hook_fails_is_announced_as_it_is_saved(caplog: pytest.LogCaptureFixture) -> None:
    @wrap(ToolUse)
    async def broken(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        raise ValueError("its result must not be seen: hi")

    thread, seen = Thread(), list[Event]()
    with pytest.raises(ValueError, match="must not be seen"):
        await echo_agent(broken).run("go", thread=thread, emit=seen.append)
    (end,) = [event for event in seen if isinstance(event, ToolEnd)]
    assert (end.output, end.error) == ("", "echo ran, and its result is lost: ValueError")
    assert thread.messages[-1].text == end.error
    assert isinstance(seen[-1], Failed)
    caplog.clear()


async def test_a_tool_use_that_is_cancelled_in_a_hook_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    @after(ToolUse)
    async def redact(use: ToolUse) -> None:
        use.run.halt(Stop("stop requested"))
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(0)

    seen: list[Event] = []
    with pytest.raises(asyncio.CancelledError):
        await echo_agent(redact).run("go", emit=seen.append)
    assert not [event for event in seen if isinstance(event, ToolEnd)]
    assert isinstance(seen[-1], Done) and seen[-1].outcome == "cancelled"


async def test_a_reply_of_a_hook_is_no_model_call() -> None:
    @wrap(ModelCall)
    async def reply_from_cache(call: ModelCall, next: Next[Message]) -> Message:
        assert not call.is_sent
        return assistant("as before") if call.run.progress.step == 2 else await next(call)

    @after(Step)
    def repeat(step: Step) -> Continue | None:
        return Continue("again") if step.number == 1 else None

    seen = list[Event]()
    await Agent(Scripted("first"), hooks=[reply_from_cache, repeat]).run("go", emit=seen.append)
    assert [event.event for event in seen if not event.event.endswith("stream")] == [
        *("on_chat_model_start", "on_chat_model_end"),
        *("on_chat_model_restart", "on_chat_model_end", "done"),
    ]


async def test_a_model_call_that_a_hook_blocks_has_no_events() -> None:
    seen = list[Event]()
    await hello_agent(before(ModelCall)(lambda call: Block("not now"))).run("go", emit=seen.append)
    assert [event.event for event in seen] == ["done"]


async def test_a_model_call_of_a_capability_is_neither_announced_nor_logged() -> None:
    @after(Step)
    async def judge(step: Step) -> None:
        assert (await step.run.call_model([user("Is it good?")], purpose="critique")).text == "It is."

    thread, seen = Thread(), list[Event]()
    await Agent(Scripted("Here you are.", "It is."), hooks=[judge]).run("go", thread=thread, emit=seen.append)
    assert [event.event for event in seen if not event.event.endswith("stream")] == [
        "on_chat_model_start", "on_chat_model_end", "done",
    ]  # fmt: skip
    assert text_deltas(seen) == "Here you are."
    assert [message.text for message in thread.messages] == ["go", "Here you are."]


async def test_a_model_call_of_a_capability_names_its_purpose() -> None:
    with pytest.raises(ConfigError, match="purpose= is missing"):
        await Run().call_model([user("Is it good?")], purpose="")


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


def final_text(events: list[Event]) -> str:
    """Return the text that a reader finally sees: deltas add up, a restart clears."""
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
    assert final_text(seen) == "the whole thing "
    assert text_deltas(seen) == "half a half the whole thing "
    assert count(seen, "on_chat_model_restart") == 2
    assert count(seen, "on_chat_model_start") == count(seen, "on_chat_model_end") == 1


async def test_a_retry_before_anything_was_shown_does_not_restart() -> None:
    seen = await collect_events(Agent(Scripted(ModelError("no"), "yes"), hooks=[retry]))
    assert count(seen, "on_chat_model_restart") == 0
    assert final_text(seen) == "yes"


async def test_a_replaced_reply_restarts_with_its_replacement() -> None:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result = assistant(call.result.text.replace("hunter2", "***"))

    seen = await collect_events(Agent(Scripted("it is hunter2"), hooks=[redact]))
    (restart,) = (event for event in seen if isinstance(event, ChatModelRestart))
    assert restart.content == "it is ***" == final_text(seen)


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
    assert final_text(seen) == "from the cache"


async def test_a_reply_blocked_after_streaming_is_retracted() -> None:
    @after(ModelCall)
    def refuse(call: ModelCall) -> Block:
        return Block("not fit to print")

    thread = Thread()
    seen = await collect_events(Agent(Scripted("rude words"), hooks=[refuse]), thread=thread)
    assert text_deltas(seen) == "rude words" and final_text(seen) == ""
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
    assert text_deltas(seen) == "" and final_text(seen) == "it is ***"
    assert "hunter2" not in str([event.to_json() for event in seen])


async def test_held_deltas_of_a_reply_that_broke_off_are_never_shown() -> None:
    seen = await collect_events(Agent(Flaky("it is hunter2…"), hooks=[hold]))
    assert text_deltas(seen) == "" and isinstance(seen[-1], Failed)


async def test_held_deltas_of_an_attempt_that_failed_are_never_shown() -> None:
    seen = await collect_events(Agent(Flaky("it is hunter2…", "I will not say"), hooks=[hold, retry]))
    assert text_deltas(seen) == final_text(seen) == "I will not say "


async def test_held_deltas_of_a_reply_that_an_inner_hook_replaced_are_never_shown() -> None:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result = assistant(call.result.text.replace("swordfish", "***"))

    seen = await collect_events(Agent(Scripted("it is swordfish"), hooks=[hold, redact]))
    assert text_deltas(seen) == "" and final_text(seen) == "it is ***"


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
