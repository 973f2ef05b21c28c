"""Programs and prompts: refused messages never reach the model."""

from __future__ import annotations

import asyncio

import pytest

from kit import hello_agent, thread_entries, tool_calls_reply
from programs import Programs
from wick import (
    Agent,
    FunctionModel,
    Run,
    Scripted,
    Step,
    ToolCall,
    after,
    before,
    tool,
    user,
)
from wick.capabilities.sessions import Sessions
from wick.stores.in_memory import InMemory


@pytest.mark.shows("kodelet", "user_message_send", "message")
@pytest.mark.shows("kodelet", "user_message_send", "blocked")
@pytest.mark.shows("kodelet", "user_message_send", "reason")
async def test_a_message_is_refused_and_never_reaches_the_model(programs: Programs) -> None:
    programs.recording(
        "filter",
        "user_message_send",
        'case "$told" in *password*) echo \'{"blocked": true, "reason": "keep it"}\';; esac',
    )
    asked: list[str] = []
    agent = Agent(
        FunctionModel(lambda request: asked.append(request.messages[-1].text) or "hello"),
        hooks=[programs.executables()],
    )
    result = await agent.run("my password is 1234")
    assert (result.outcome, result.reason, asked) == ("stopped", "blocked: keep it", [])
    assert result.thread is not None and not result.thread.messages
    assert (await agent.run("hello", thread=result.thread)).text == "hello" and asked == ["hello"]
    assert [told["message"] for told in programs.inputs("filter")] == ["my password is 1234", "hello"]


@pytest.mark.shows("kodelet", "user_message_send", "message")
async def test_a_message_changed_later_is_screened_again(programs: Programs) -> None:
    programs.recording(
        "filter",
        "user_message_send",
        'case "$told" in *password*) echo \'{"blocked": true, "reason": "keep it"}\';; esac',
    )

    @before(Run)
    def change(run: Run) -> None:
        run.input = [user("the password")]

    assert (await hello_agent(programs.executables(), change).run("hello")).reason == "blocked: keep it"


SECRETS = 'case "$told" in *password*) echo \'{"blocked": true, "reason": "keep it"}\';; esac'


@pytest.mark.shows("kodelet", "user_message_send", "blocked")
@pytest.mark.parametrize("event", ["user_message_send", "before_run", "guard_run"])
async def test_inbox_messages_are_screened_before_delivery(programs: Programs, event: str) -> None:
    blocks = (
        '{"blocked": true, "reason": "keep it"}'
        if event == "user_message_send"
        else '{"decision": "block", "reason": "keep it"}'
    )
    programs.recording("filter", event, f"case \"$told\" in *password*) echo '{blocks}';; esac")

    @tool
    async def wait(run: Run) -> str:
        """Wait while the user sends messages."""
        run.send("my password is 1234")
        run.send("and be quick")
        return "waited"

    model = Scripted(tool_calls_reply(ToolCall("c1", "wait")), "done", "again", spare=True)
    agent = Agent(model, tools=[wait], hooks=[programs.executables()])
    result = await agent.run("go")
    texts = [message.text for request in model.requests for message in request.messages]
    assert "and be quick" in texts and not any("1234" in text for text in texts)
    (refused,) = [row["data"] for row in thread_entries(result.thread, "event") if row["name"] == "message_refused"]
    assert refused["hook"].startswith("filter@") and refused["reason"] == "keep it"
    await agent.run("go on", thread=result.thread)  # not in a later run either
    assert not any("1234" in message.text for request in model.requests for message in request.messages)


@pytest.mark.shows("kodelet", "user_message_send", "blocked")
async def test_messages_to_a_stored_thread_are_screened_and_dequeued(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", SECRETS)
    store = InMemory()
    sessions = Sessions(store)
    spoken = asyncio.Event()

    @tool
    async def wait(run: Run) -> str:
        """Wait while the user goes on talking."""
        await sessions.send(run.thread.id, "my password is 1234")
        spoken.set()
        return "waited"

    model = Scripted(tool_calls_reply(ToolCall("c1", "wait")), "done", "again", spare=True)
    agent = Agent(model, tools=[wait], hooks=[sessions, programs.executables()])
    result = await agent.run("go", thread="t")
    assert spoken.is_set() and result.text == "done"
    assert not await store.inbox("local", "t")
    await agent.run("go on", thread="t")
    assert not any("1234" in message.text for request in model.requests for message in request.messages)


async def test_a_run_ends_if_all_last_messages_are_refused(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", SECRETS)

    @after(Step)
    def late(step: Step) -> None:
        step.run.send("the password is 1234")

    model = Scripted("done", spare=True)
    result = await Agent(model, hooks=[late, programs.executables()]).run("go")
    assert (result.text, result.outcome, len(model.requests)) == ("done", "completed", 1)


async def test_messages_after_the_end_are_not_delivered_unscreened(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", SECRETS)

    @after(Run)
    def late(run: Run) -> None:
        run.send("the password is 1234")

    result = await hello_agent(late, programs.executables()).run("go")
    assert result.thread is not None and not any("1234" in message.text for message in result.thread.messages)
    (unheard,) = [row["data"] for row in thread_entries(result.thread, "event") if row["name"] == "message_unheard"]
    assert unheard["message"]["content"] == "the password is 1234"


async def test_a_run_with_nothing_to_answer_reports_it(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", SECRETS)
    sessions = Sessions(InMemory())
    agent = Agent(Scripted("done", spare=True), hooks=[sessions, programs.executables()])
    await agent.run("hello", thread="t")
    await sessions.send("t", "my password is 1234")
    result = await agent.run(thread="t")
    assert (result.outcome, result.text) in (("completed", "done"), ("stopped", ""))
    assert result.thread is not None and not any("1234" in message.text for message in result.thread.messages)


async def test_a_failing_filter_refuses_inbox_messages(programs: Programs) -> None:
    programs.recording("filter", "user_message_send", 'case "$told" in *more*) exit 1;; esac')

    @tool
    async def wait(run: Run) -> str:
        """Wait while the user goes on talking."""
        run.send("and more")
        return "waited"

    model = Scripted(tool_calls_reply(ToolCall("c1", "wait")), "done")
    result = await Agent(model, tools=[wait], hooks=[programs.executables()]).run("go")
    (refused,) = [row["data"] for row in thread_entries(result.thread, "event") if row["name"] == "message_refused"]
    assert refused["reason"] == "the hook program filter ended with exit code 1, so it has not agreed"
