"""The history of a conversation from its log, from real runs."""

from __future__ import annotations

from typing import Any

import pytest

from wick import Agent, Ask, Block, Run, Scripted, Thread, ToolCall, ToolUse, assistant, before, guard, tool, user
from wick.api.types import ThreadContent
from wick.capabilities.information_flow import InformationFlow
from wick.capabilities.subagents import Subagents
from wick.server.schemas import thread_content


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@guard(ToolUse)
def small(use: ToolUse) -> Block | None:
    return Block("too large") if use.args.get("a", 0) > 100 else None


def load_content(thread: Thread) -> ThreadContent:
    again = Thread.from_json(thread.to_json())
    return ThreadContent.model_validate(thread_content(again))


async def ran(thread: Thread, *replies: Any, words: str = "go") -> str:
    """The id of a run that has ended, however it did."""
    await Agent(Scripted(*replies), tools=[add], hooks=[small]).run(words, thread=thread)
    return str(thread.entries[-1].data["run"])


async def test_messages_have_their_run_and_tools_their_duration() -> None:
    thread = Thread()
    first = await ran(thread, assistant("", ToolCall("c1", "add", {"a": 1, "b": 2})), "3")
    second = await ran(thread, assistant("", ToolCall("c1", "add", {"a": 500, "b": 2})), "no")
    found = load_content(thread)
    assert [(one.role, one.run) for one in found.messages] == [
        (role, run) for run in (first, second) for role in ("user", "assistant", "tool", "assistant")
    ]
    used, blocked = (one for one in found.messages if one.role == "tool")
    assert used.ms is not None and used.ms >= 0 and blocked.ms is None, "what was blocked did not run"
    assert all(one.at > 0 and one.seq for one in found.messages)
    assert [(end.run, end.outcome, end.error) for end in found.ends] == [
        (first, "completed", None),
        (second, "completed", None),
    ]


async def test_a_failed_run_has_its_error() -> None:
    thread = Thread()
    with pytest.raises(ValueError, match="it broke"):
        await ran(thread, ValueError("it broke"))
    (end,) = load_content(thread).ends
    assert (end.run, end.outcome) == (thread.entries[-1].data["run"], "failed")
    assert end.error is not None and "it broke" in end.error.message


async def test_rewound_entries_are_omitted() -> None:
    thread = Thread()
    await ran(thread, "one")
    after_first = len(thread.entries)
    await ran(thread, "two")
    thread.rewind(after_first)
    third = await ran(thread, "three", words="again")
    found = load_content(thread)
    assert [one.content for one in found.messages] == ["go", "one", "again", "three"]
    assert [one.run for one in found.messages][2:] == [third, third] and len(found.ends) == 2
    left, now = [entry.seq for entry in thread.entries if entry.kind == "message" and entry.data.role == "user"][1:]
    assert [one.branches for one in found.messages] == [[], [], [left, now], []]


async def test_messages_during_a_run_belong_to_the_next() -> None:
    thread = Thread()
    await ran(thread, "one")
    thread.rewind(next(entry.seq for entry in thread.entries if entry.kind == "run_start"))
    thread.add(user("more"))
    second = await ran(thread, "two", words="now")
    assert [one.run for one in load_content(thread).messages][-3:] == [second] * 3


async def test_a_call_has_the_thread_of_its_subagent() -> None:
    parent, seen = Thread("parent"), []

    @before(Run, inherit=True)
    def note(run: Run) -> None:
        seen.append(run.thread.id)

    call = ToolCall("c1", "task", {"agent": "helper", "prompt": "Help."})
    model = Scripted(assistant("", call), "helped", "done")
    helpers = Subagents({"helper": {"description": "Helps.", "prompt": "Be helpful."}})
    agent = Agent(model, hooks=[note, helpers])
    await agent.run("go", thread=parent)
    (asked,) = (one for one in load_content(parent).messages if one.tool_calls)
    (made,) = asked.tool_calls
    assert seen == ["parent", made.child]


async def test_a_denied_call_names_the_hook_or_the_user_that_denied_it() -> None:
    @guard(ToolUse)
    def ask_first(use: ToolUse) -> Ask | None:
        return Ask("Add them?") if use.args.get("a") == 7 else None

    thread, calls = Thread(), [ToolCall(f"c{a}", "add", {"a": a, "b": 2}) for a in (1, 7, 500)]
    model, hooks = Scripted(assistant("", *calls), "done"), [small, ask_first]
    await Agent(model, tools=[add], hooks=hooks, ask=lambda question: Block("not now")).run("go", thread=thread)
    results = [message for message in load_content(thread).messages if message.role == "tool"]
    assert [(message.failed, message.denied_by) for message in results] == [
        (False, ""),
        (True, "user"),
        (True, "small"),
    ]


async def test_messages_have_the_label_of_information_flow() -> None:
    thread = Thread()
    replies = [assistant("", ToolCall("c1", "add", {"a": 1, "b": 2})), "3"]
    await Agent(Scripted(*replies), tools=[add], hooks=[InformationFlow()]).run("go", thread=thread)
    asked, first, used, last = load_content(thread).messages
    assert asked.label is not None and (asked.label.trusted, asked.label.sources) == (True, [])
    assert first.label is not None and (first.label.trusted, first.label.sources) == (True, [asked.seq])
    assert used.label is not None and (used.label.trusted, used.label.private) == (False, [])
    assert used.label.sources == [first.seq]
    assert last.label is not None and (last.label.trusted, last.label.sources) == (False, [first.seq, used.seq])
