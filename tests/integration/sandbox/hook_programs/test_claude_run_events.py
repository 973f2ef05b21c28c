"""Claude Code's events about conversations, prompts, subagents, the end of a run, and summing up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from executables.claude_kit import (
    Json,
    agent,
    decision_output,
    event_hooks,
    execute,
    last_prompt,
    read_input,
    read_inputs,
    recording_handler,
    specific_output,
    write_settings,
)
from kit import thread_entries, tool_call, tool_calls_reply, tool_result
from wick import Agent, Message, Run, Scripted, Thread, before, user
from wick.capabilities.subagents import Subagents
from wick.capabilities.summarization import Summarization


def reads(path: str) -> Json:
    """A handler that keeps a copy of the transcript."""
    command = 'read -r p; t=$(printf %s "$p" | sed \'s/.*"transcript_path":"\\([^"]*\\)".*/\\1/\'); '
    return {"type": "command", "command": f'{command} cp "$t" {path}; printf %s "$t" > {path}.where'}


def sources(folder: Path) -> list[str]:
    return [row["source"] for row in read_inputs(folder) if row["hook_event_name"] == "SessionStart"]


# -- conversations --------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "SessionStart", "source")
async def test_a_conversation_starts_once_and_is_resumed_by_another_agent(tmp_path: Path) -> None:
    hooks, thread = event_hooks("SessionStart", recording_handler()), Thread()
    first = agent(tmp_path, hooks, Scripted("a", "b"))
    await first.run("one", thread=thread)
    await first.run("two", thread=thread)
    assert sources(tmp_path) == ["startup"]
    await agent(tmp_path, hooks, Scripted("c")).run("three", thread=thread)
    assert sources(tmp_path) == ["startup", "resume"]
    await agent(tmp_path, hooks, Scripted("d")).run("four", thread=thread.fork())
    assert sources(tmp_path) == ["startup", "resume", "fork"]
    thread.rewind(0)
    await agent(tmp_path, hooks, Scripted("e")).run("five", thread=thread)
    assert sources(tmp_path) == ["startup", "resume", "fork", "clear"]


@pytest.mark.shows("claude", "settings", "matcher")
async def test_the_matcher_of_a_start_is_its_source(tmp_path: Path) -> None:
    await agent(tmp_path, event_hooks("SessionStart", recording_handler(), matcher="resume"), Scripted("a")).run("one")
    assert sources(tmp_path) == []


@pytest.mark.shows("claude", "SessionStart", "additionalContext", "plain-text")
@pytest.mark.shows("claude", "*", "exit-0-text")
@pytest.mark.parametrize(
    "handler",
    [
        recording_handler("the branch is main"),
        recording_handler(specific_output("SessionStart", additionalContext="the branch is main")),
    ],
)
async def test_output_of_session_start_is_context(tmp_path: Path, handler: Json) -> None:
    model = Scripted("a", "b")
    talker, thread = agent(tmp_path, event_hooks("SessionStart", handler), model), Thread()
    result = await talker.run("hello", thread=thread)
    assert "the branch is main" in last_prompt(model)
    assert [message.name for message in result.messages] == ["", "SessionStart", ""]
    await talker.run("again", thread=thread)
    assert last_prompt(model).count("the branch is main") == 1


@pytest.mark.shows("claude", "SessionStart", "initialUserMessage")
async def test_session_start_may_add_a_message(tmp_path: Path) -> None:
    model = Scripted("a")
    hooks = event_hooks(
        "SessionStart", recording_handler(specific_output("SessionStart", initialUserMessage="read the plan"))
    )
    await agent(tmp_path, hooks, model).run("hello")
    assert [message.text for message in model.requests[0].messages] == ["read the plan", "hello"]


@pytest.mark.shows("claude", "SessionStart", "exit-2")
async def test_session_start_with_exit_2_notifies_the_user(tmp_path: Path) -> None:
    result = await agent(
        tmp_path, event_hooks("SessionStart", recording_handler(code=2, stderr="no network")), Scripted("a")
    ).run("hello")
    (event,) = [data for data in thread_entries(result.thread, "event") if data["name"] == "system_message"]
    assert event["data"]["message"] == "no network" and result.text == "a"


@pytest.mark.shows("claude", "SessionEnd", "reason", "session_id")
async def test_every_conversation_ends_when_the_hooks_are_closed(tmp_path: Path) -> None:
    programs = write_settings(tmp_path, event_hooks("SessionEnd", recording_handler()))
    talker = Agent(Scripted("a", "b"), hooks=programs.hooks())
    threads = [Thread(), Thread()]
    for thread in threads:
        await talker.run("hello", thread=thread)
    assert read_inputs(tmp_path) == []
    await programs.close()
    assert [(row["session_id"], row["reason"]) for row in read_inputs(tmp_path)] == [
        (one.id, "other") for one in threads
    ]
    await programs.close()
    assert len(read_inputs(tmp_path)) == 2


async def test_an_end_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    programs = write_settings(
        tmp_path, event_hooks("SessionEnd", recording_handler(code=3), {"type": "prompt", "prompt": "was it good?"})
    )
    await Agent(Scripted("a"), hooks=programs.hooks()).run("hello")
    await programs.close()
    assert "ended with exit code 3" in caplog.text and "outside of a run" in caplog.text


@pytest.mark.shows("claude", "*", "transcript_path")
async def test_the_transcript_is_a_file_during_the_run(tmp_path: Path) -> None:
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    await agent(tmp_path, event_hooks("Stop", reads("copy")), model, tools=[execute]).run("go")
    lines = [json.loads(line) for line in (tmp_path / "copy").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "assistant"]
    asks, uses, gives, ends = (line["message"] for line in lines)
    assert asks == {"role": "user", "content": "go"}
    assert uses["content"] == [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]
    assert gives["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "ran ls"}]
    assert ends["content"] == [{"type": "text", "text": "done"}]
    assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
    where = (tmp_path / "copy.where").read_text()
    assert where.startswith("/") and not os.access(where, os.F_OK) and not os.access(os.path.dirname(where), os.F_OK)


# -- user messages --------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "UserPromptSubmit", "prompt")
async def test_a_prompt_is_sent_to_programs(tmp_path: Path) -> None:
    await agent(tmp_path, event_hooks("UserPromptSubmit", recording_handler()), Scripted("a")).run("what is new?")
    assert read_input(tmp_path)["prompt"] == "what is new?"


@pytest.mark.shows("claude", "UserPromptSubmit", "decision", "reason", "exit-2")
@pytest.mark.parametrize(
    "handler", [recording_handler({"decision": "block", "reason": "rude"}), recording_handler(code=2, stderr="rude")]
)
async def test_a_refused_prompt_is_not_delivered(tmp_path: Path, handler: Json) -> None:
    thread = Thread()
    model = Scripted("never", spare=True)
    result = await agent(tmp_path, event_hooks("UserPromptSubmit", handler), model).run("you fool", thread=thread)
    assert (result.outcome, result.reason) == ("stopped", "blocked: rude")
    assert len(thread.messages) == 0 and model.requests == []


@pytest.mark.shows("claude", "UserPromptSubmit", "additionalContext", "plain-text")
@pytest.mark.parametrize(
    "handler",
    [
        recording_handler("it is Monday"),
        recording_handler(specific_output("UserPromptSubmit", additionalContext="it is Monday")),
    ],
)
async def test_output_about_a_prompt_is_context(tmp_path: Path, handler: Json) -> None:
    model = Scripted("a")
    await agent(tmp_path, event_hooks("UserPromptSubmit", handler), model).run("hello")
    assert [message.name for message in model.requests[0].messages] == ["", "UserPromptSubmit"]
    assert "it is Monday" in last_prompt(model)


async def test_a_changed_prompt_is_screened_again(tmp_path: Path) -> None:
    @before(Run)
    def rewrite(run: Run) -> None:
        run.input = [user("something else")]

    await agent(tmp_path, event_hooks("UserPromptSubmit", recording_handler()), Scripted("a"), rewrite).run("hello")
    assert [row["prompt"] for row in read_inputs(tmp_path)] == ["hello", "something else"]


async def test_inbox_messages_are_screened_during_a_run(tmp_path: Path) -> None:
    refuses = "read -r p; case \"$p\" in *secret*) echo 'no secrets' >&2; exit 2;; esac"
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    hooks = event_hooks("UserPromptSubmit", {"type": "command", "command": refuses})
    stream = agent(tmp_path, hooks, model, tools=[execute]).stream("go")
    stream.run.send("a secret thing")
    stream.run.send("a plain thing")
    _ = [event async for event in stream]
    assert stream.result.outcome == "completed"
    said = [message.text for request in model.requests for message in request.messages]
    assert "a plain thing" in said and "a secret thing" not in said


# -- the end of a run -----------------------------------------------------------------------------------------------


def gate(words: str, answer: str = "") -> Json:
    """A handler that sends a run back once."""
    command = f"{{ cat; echo; }} >> seen.jsonl; [ -e passed ] && exit 0; touch passed; printf %s '{answer}'"
    return {"type": "command", "command": f"{command}; echo {words} >&2; exit {0 if answer else 2}"}


@pytest.mark.shows("claude", "Stop", "stop_hook_active", "last_assistant_message", "exit-2")
async def test_a_run_continues_with_stderr_as_instruction(tmp_path: Path) -> None:
    model = Scripted("first", "second")
    result = await agent(tmp_path, event_hooks("Stop", gate("run the tests")), model).run("go")
    assert result.text == "second" and "run the tests" in last_prompt(model)
    rows = [(row["stop_hook_active"], row["last_assistant_message"]) for row in read_inputs(tmp_path)]
    assert rows == [(False, "first"), (True, "second")]
    assert [message.name for message in result.messages] == ["", "", "Stop@after_step", ""]


@pytest.mark.shows("claude", "Stop", "decision", "reason")
async def test_a_run_continues_with_the_reason_of_a_block(tmp_path: Path) -> None:
    model = Scripted("first", "second")
    await agent(tmp_path, event_hooks("Stop", gate("", '{"decision": "block", "reason": "not yet"}')), model).run("go")
    assert "not yet" in last_prompt(model)


@pytest.mark.shows("claude", "Stop", "additionalContext")
async def test_context_at_stop_continues_the_run(tmp_path: Path) -> None:
    model = Scripted("first", "second")
    answer = json.dumps(specific_output("Stop", additionalContext="one thing more"))
    await agent(tmp_path, event_hooks("Stop", gate("", answer)), model).run("go")
    assert "one thing more" in last_prompt(model)


@pytest.mark.shows("claude", "Stop", "cap")
async def test_after_eight_blocks_a_run_may_stop(tmp_path: Path) -> None:
    model = Scripted(*(f"answer {n}" for n in range(20)), spare=True)
    result = await agent(tmp_path, event_hooks("Stop", recording_handler(code=2, stderr="more")), model).run("go")
    assert result.outcome == "completed" and len(model.requests) == 9


async def test_tools_between_two_blocks_do_not_start_the_count_again(tmp_path: Path) -> None:
    replies: list[Any] = []
    for n in range(20):
        replies += [tool_calls_reply(tool_call("execute", f"c{n}", command="ls")), f"answer {n}"]
    model = Scripted(*replies, spare=True)
    result = await agent(
        tmp_path, event_hooks("Stop", recording_handler(code=2, stderr="more")), model, tools=[execute]
    ).run("go")
    assert result.outcome == "completed" and len(model.requests) == 18


# -- subagents ------------------------------------------------------------------------------------------------------


def delegating(folder: Path, hooks: Json, *child: Any) -> tuple[Agent, Scripted]:
    model = Scripted(tool_calls_reply(tool_call("task", agent="helper", prompt="look around")), "done", spare=True)
    below = Scripted(*child, spare=True)
    helper = {"name": "helper", "description": "helps", "prompt": "You help.", "model": below, "tools": ["execute"]}
    return agent(folder, hooks, model, Subagents([helper]), tools=[execute]), below


@pytest.mark.shows("claude", "SubagentStart", "agent_id", "agent_type", "additionalContext")
async def test_an_agent_below_starts(tmp_path: Path) -> None:
    hooks = event_hooks(
        "SubagentStart",
        recording_handler(specific_output("SubagentStart", additionalContext="be brief")),
        matcher="helper",
    )
    hooks |= event_hooks("SessionStart", recording_handler()) | event_hooks("UserPromptSubmit", recording_handler())
    above, below = delegating(tmp_path, hooks, "found it")
    await above.run("go")
    assert [row["hook_event_name"] for row in read_inputs(tmp_path)] == [
        "SessionStart",
        "UserPromptSubmit",
        "SubagentStart",
    ]
    payload = read_inputs(tmp_path)[-1]
    assert payload["agent_type"] == "helper" and payload["agent_id"].startswith("run_")
    assert "be brief" in last_prompt(below)


@pytest.mark.shows("claude", "SubagentStart", "exit-2")
async def test_subagent_start_with_exit_2_notifies_the_user(tmp_path: Path) -> None:
    above, below = delegating(
        tmp_path, event_hooks("SubagentStart", recording_handler(code=2, stderr="slow today")), "found it"
    )
    result = await above.run("go")
    assert tool_result(result) == "found it" and len(below.requests) == 1


@pytest.mark.shows("claude", "SubagentStop", "agent_id", "agent_type", "stop_hook_active", "last_assistant_message")
@pytest.mark.shows("claude", "SubagentStop", "exit-2")
async def test_an_agent_below_is_sent_back(tmp_path: Path) -> None:
    above, below = delegating(
        tmp_path, event_hooks("SubagentStop", gate("look again")) | event_hooks("Stop", recording_handler()), "a", "b"
    )
    result = await above.run("go")
    assert tool_result(result) == "b" and "look again" in last_prompt(below)
    rows = [row for row in read_inputs(tmp_path) if row["hook_event_name"] == "SubagentStop"]
    assert [(row["stop_hook_active"], row["last_assistant_message"]) for row in rows] == [(False, "a"), (True, "b")]
    assert {row["agent_type"] for row in rows} == {"helper"} and len({row["agent_id"] for row in rows}) == 1
    assert len([row for row in read_inputs(tmp_path) if row["hook_event_name"] == "Stop"]) == 1


@pytest.mark.shows("claude", "SubagentStop", "decision", "reason")
async def test_a_block_sends_an_agent_below_back(tmp_path: Path) -> None:
    answer = '{"decision": "block", "reason": "not yet"}'
    above, below = delegating(tmp_path, event_hooks("SubagentStop", gate("", answer)), "a", "b")
    await above.run("go")
    assert "not yet" in last_prompt(below)


@pytest.mark.shows("claude", "*", "agent_id", "agent_type")
async def test_the_tools_of_an_agent_below_are_under_the_same_programs(tmp_path: Path) -> None:
    hooks = event_hooks("PreToolUse", recording_handler(decision_output("deny", "not below")), matcher="Bash")
    above, below = delegating(tmp_path, hooks, tool_calls_reply(tool_call("execute", command="ls")), "found nothing")
    result = await above.run("go")
    payload = read_input(tmp_path)
    assert payload["agent_type"] == "helper" and result.thread is not None
    assert payload["session_id"] == result.thread.id
    assert "not below" in last_prompt(below)


# -- summing up -----------------------------------------------------------------------------------------------------


def long_thread() -> Thread:
    thread = Thread()
    for n in range(6):
        thread.add(user(f"question {n} " * 50), Message("assistant", f"answer {n} " * 50))
    return thread


@pytest.mark.shows("claude", "PreCompact", "trigger", "custom_instructions")
@pytest.mark.shows("claude", "PostCompact", "trigger", "compact_summary")
async def test_programs_are_called_before_and_after_compaction(tmp_path: Path) -> None:
    hooks = event_hooks("PreCompact", recording_handler(), matcher="manual") | event_hooks(
        "PostCompact", recording_handler(), matcher="manual"
    )
    model = Scripted("all of it was about numbers")
    result = await agent(tmp_path, hooks, model, Summarization()).run("/compact keep names", thread=long_thread())
    assert "was summed up" in result.text
    first, second = read_inputs(tmp_path)
    assert (first["trigger"], first["custom_instructions"]) == ("manual", "keep names")
    assert (second["trigger"], second["compact_summary"]) == ("manual", "all of it was about numbers")


@pytest.mark.shows("claude", "PreCompact", "decision", "reason", "exit-2")
@pytest.mark.parametrize(
    "handler",
    [recording_handler({"decision": "block", "reason": "keep all"}), recording_handler(code=2, stderr="keep all")],
)
async def test_a_program_can_prevent_compaction(tmp_path: Path, handler: Json) -> None:
    thread, model = long_thread(), Scripted("an answer")
    hooks = event_hooks("PreCompact", handler, matcher="auto")
    result = await agent(tmp_path, hooks, model, Summarization(2_000, threshold=500)).run("go", thread=thread)
    assert (result.outcome, result.text) == ("completed", "an answer") and thread.compacted is None
    assert read_input(tmp_path)["trigger"] == "auto"
    (event,) = [data for data in thread_entries(thread, "event") if data["name"] == "compaction_failed"]
    assert event["data"]["reason"] == "keep all"


@pytest.mark.shows("claude", "SessionStart", "source", "additionalContext")
async def test_session_start_is_sent_after_compaction(tmp_path: Path) -> None:
    model = Scripted("a summary", "an answer")
    hooks = event_hooks("SessionStart", recording_handler("the rules of the house"), matcher="compact")
    agent_ = agent(tmp_path, hooks, model, Summarization(2_000, threshold=500))
    await agent_.run("go", thread=long_thread())
    assert sources(tmp_path) == ["compact"]
    assert "a summary" in last_prompt(model) and "the rules of the house" in last_prompt(model)
