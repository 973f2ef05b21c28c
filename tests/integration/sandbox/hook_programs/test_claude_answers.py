"""Answers of handlers at every event: JSON, exit codes, plain text, and several answers at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from executables.claude_kit import (
    TOOLS,
    Json,
    agent,
    decision_output,
    event_hooks,
    last_prompt,
    read_inputs,
    recording_handler,
    resolve_path,
    specific_output,
)
from kit import thread_entries, tool_call, tool_calls_reply, tool_result
from wick import Agent, FunctionModel, Message, Result, Scripted, Thread, constants, user
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.summarization import Summarization
from wick.hook_programs.answers import InvalidAnswer
from wick.hook_programs.claude.answers import validate_answer


async def used(folder: Path, hooks: Any, model: Scripted | None = None, **options: Any) -> Result:
    model = model or Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)
    return await agent(folder, hooks, model, **options).run("go")


def events(result: Result, name: str) -> list[Any]:
    return [data["data"] for data in thread_entries(result.thread, "event") if data["name"] == name]


# -- common fields of answers ---------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "*", "continue", "stopReason")
@pytest.mark.parametrize(
    "event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "Notification"]
)
async def test_continue_false_ends_the_run_with_its_reason(tmp_path: Path, event: str) -> None:
    hooks = event_hooks(event, recording_handler({"continue": False, "stopReason": "out of hours"}))
    result = await used(tmp_path, hooks)
    late = event == "Notification"  # the run had ended by itself
    assert result.reason == ("completed" if late else "stop requested: out of hours")
    assert result.outcome == ("completed" if late else "stopped")


@pytest.mark.shows("claude", "*", "continue")
async def test_continue_false_wins_over_every_denial(tmp_path: Path) -> None:
    hooks = event_hooks(
        "PreToolUse",
        recording_handler(decision_output("deny", "no")),
        recording_handler(code=2),
        recording_handler({"continue": False, "stopReason": "enough"}),
    )
    assert (await used(tmp_path, hooks)).reason == "stop requested: enough"


@pytest.mark.shows("claude", "*", "continue")
async def test_continue_false_at_summing_up_ends_the_run(tmp_path: Path) -> None:
    thread = Thread()
    for n in range(6):
        thread.add(user(f"question {n} " * 50), Message("assistant", f"answer {n} " * 50))
    for event in ("PreCompact", "PostCompact"):
        hooks = event_hooks(event, recording_handler({"continue": False, "stopReason": event}))
        model = Scripted("a summary", "an answer", spare=True)
        made = agent(tmp_path, hooks, model, Summarization(2_000, threshold=500))
        assert (await made.run("go", thread=thread.fork())).reason == f"stop requested: {event}"


@pytest.mark.shows("claude", "*", "systemMessage")
async def test_a_system_message_is_for_the_user_and_not_for_the_model(tmp_path: Path) -> None:
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    result = await used(
        tmp_path, event_hooks("PostToolUse", recording_handler({"systemMessage": "3 files are large"})), model
    )
    (event,) = events(result, "system_message")
    assert (event["event"], event["message"]) == ("PostToolUse", "3 files are large")
    assert "3 files are large" not in last_prompt(model)


@pytest.mark.shows("claude", "*", "suppressOutput")
@pytest.mark.parametrize("hidden", [False, True])
async def test_output_of_a_program_is_logged_unless_suppressed(tmp_path: Path, hidden: bool) -> None:
    answer = {"suppressOutput": hidden, "systemMessage": "x"}
    result = await used(tmp_path, event_hooks("PostToolUse", recording_handler(answer)))
    shown = [json.loads(event["output"]) for event in events(result, "hook_output")]
    assert shown == ([] if hidden else [answer])


@pytest.mark.shows("claude", "*", "hookEventName")
async def test_an_answer_for_another_event_is_a_failure(tmp_path: Path) -> None:
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(specific_output("PostToolUse", additionalContext="x")))
    )
    assert "answered for 'PostToolUse', and it was asked about PreToolUse" in tool_result(result)


@pytest.mark.parametrize(
    "answer",
    [
        {"continue": "no"},
        {"decision": "maybe"},
        {"reason": 5},
        {"systemMessage": ["a"]},
        {"hookSpecificOutput": {}},
        {"hookSpecificOutput": "PreToolUse"},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "yes"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "decision": {"behavior": "perhaps"}}},
    ],
)
def test_an_answer_that_violates_the_schema_is_invalid(answer: Json) -> None:
    with pytest.raises(InvalidAnswer, match="answered with JSON that does not fit"):
        validate_answer(answer, "PreToolUse")


def test_null_and_unknown_fields_are_ignored() -> None:
    answer = validate_answer(
        {"reason": None, "decision": None, "somethingNew": [1], "hookSpecificOutput": None}, "Stop"
    )
    assert answer.reason is None and answer.continues


# -- exit codes and text --------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "*", "exit-0-text")
async def test_plain_text_is_no_context_after_a_tool(tmp_path: Path) -> None:
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    result = await used(tmp_path, event_hooks("PostToolUse", recording_handler("all is well")), model)
    assert "all is well" not in last_prompt(model)
    assert [event["output"] for event in events(result, "hook_output")] == ["all is well"]


@pytest.mark.shows("claude", "*", "exit-other")
async def test_other_exit_codes_deny_in_a_deciding_program_unless_fail_open(tmp_path: Path) -> None:
    closed = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("allow"), code=1, stderr="oops"))
    )
    assert "ended with exit code 1: oops, so it has not agreed" in tool_result(closed)
    assert (
        tool_result(await used(tmp_path, event_hooks("PreToolUse", recording_handler(code=1, fail="open")))) == "ran ls"
    )
    denies = recording_handler(decision_output("deny", "all the same"), code=1, fail="open")
    assert tool_result(await used(tmp_path, event_hooks("PreToolUse", denies))) == "all the same"


@pytest.mark.shows("claude", "*", "exit-other")
async def test_json_is_honoured_with_any_exit_code_of_an_observer(tmp_path: Path) -> None:
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    await used(
        tmp_path,
        event_hooks("PostToolUse", recording_handler(specific_output("PostToolUse", additionalContext="hm"), code=7)),
        model,
    )
    assert "hm" in last_prompt(model)


@pytest.mark.shows("claude", "*", "invalid-json")
@pytest.mark.parametrize("text", ['{"continue": tru', '{"continue": 1}', '{"a": 1}{"a": 2}', '{"a": 1, "a": 2}'])
async def test_invalid_json_denies_and_2_still_blocks(tmp_path: Path, text: str) -> None:
    assert "so it has not agreed" in tool_result(
        await used(tmp_path, event_hooks("PreToolUse", recording_handler(text)))
    )
    assert (
        tool_result(await used(tmp_path, event_hooks("PreToolUse", recording_handler(text, code=2, stderr="no"))))
        == "no"
    )
    assert (
        tool_result(await used(tmp_path, event_hooks("PreToolUse", recording_handler(text, fail="open")))) == "ran ls"
    )
    assert tool_result(await used(tmp_path, event_hooks("PostToolUse", recording_handler(text)))) == "ran ls"


# -- several answers ------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "*", "parallel")
async def test_handlers_run_side_by_side_and_count_in_the_order_of_the_settings(tmp_path: Path) -> None:
    """The first waits for the second, and still speaks first."""
    waits = "for i in $(seq 400); do [ -e there ] && break; sleep 0.05; done; [ -e there ] || exit 1; printf %s 'one'"
    first = {"type": "command", "command": waits}
    model = Scripted("done")
    await agent(
        tmp_path, event_hooks("UserPromptSubmit", first, {"type": "command", "command": "touch there; echo two"}), model
    ).run("go")
    said = [message.text for message in model.requests[0].messages if message.name]
    assert [text.splitlines()[1] for text in said] == ["one", "two"]


@pytest.mark.shows("claude", "settings", "identical-handler")
async def test_an_identical_handler_runs_once(tmp_path: Path) -> None:
    hooks = {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [recording_handler(), recording_handler()]},
            {"matcher": "", "hooks": [recording_handler()]},
        ]
    }
    await used(tmp_path, hooks)
    assert len(read_inputs(tmp_path)) == 1
    hooks["PreToolUse"][1]["hooks"][0]["timeout"] = 7
    await used(tmp_path, hooks)
    assert len(read_inputs(tmp_path)) == 3


@pytest.mark.shows("claude", "settings", "once")
async def test_a_handler_that_runs_once_runs_once_in_a_conversation(tmp_path: Path) -> None:
    model = Scripted(
        tool_calls_reply(tool_call("execute", command="a")),
        tool_calls_reply(tool_call("execute", "c2", command="b")),
        "done",
        spare=True,
    )
    made = agent(tmp_path, event_hooks("PreToolUse", recording_handler(once=True)), model)
    await made.run("go")
    assert [row["tool_input"]["command"] for row in read_inputs(tmp_path)] == ["a"]
    model.requests.clear()
    await made.run("go")
    assert [row["tool_input"]["command"] for row in read_inputs(tmp_path)] == ["a", "a"]


@pytest.mark.shows("claude", "settings", "once")
async def test_a_handler_that_could_not_look_has_not_had_its_turn(tmp_path: Path) -> None:
    model = Scripted(
        tool_calls_reply(tool_call("execute", command="a")),
        tool_calls_reply(tool_call("execute", "c2", command="b")),
        "done",
    )
    handler = {"type": "command", "command": "test -e up || { touch up; exit 9; }; echo no >&2; exit 2", "once": True}
    result = await agent(tmp_path, event_hooks("PreToolUse", handler), model).run("go")
    first, second = (message.text for message in result.messages if message.role == "tool")
    assert first.endswith("ended with exit code 9, so it has not agreed") and second == "no"


@pytest.mark.shows("claude", "*", "long-strings")
async def test_a_long_text_is_written_to_a_file_with_a_preview(tmp_path: Path) -> None:
    lines = "".join(f"line {n}\n" for n in range(3_000))
    (tmp_path / "long.txt").write_text(lines)
    model = Scripted("done")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    hooks = event_hooks("UserPromptSubmit", {"type": "command", "command": "cat long.txt"})
    own = agent(tmp_path, hooks, model, tools=TOOLS)
    result = await own.run("go")
    (told,) = [message.text for message in result.messages if message.name == "UserPromptSubmit"]
    assert len(told) < 3_000 and "line 0\n" in told and "line 2999" not in told
    path = told.partition("whole text is in ")[2].partition(";")[0]
    reader = Scripted(tool_calls_reply(tool_call("read_file", "c2", path=path, offset=2_990)), "done")
    files = Agent(reader, hooks=[Filesystem(Local(workspace))])
    again = await files.run("read it", thread=result.thread)
    assert "line 2999" in again.messages[-2].text


async def test_a_long_reason_is_cut_too(tmp_path: Path) -> None:
    result = await used(tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("deny", "no " * 5_000))))
    assert tool_result(result).startswith("no no no") and len(tool_result(result)) < 3_000


async def test_of_very_many_conversations_the_oldest_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HOOK_SESSIONS", 2)
    talker = agent(tmp_path, event_hooks("SessionEnd", recording_handler()), FunctionModel(lambda request: "hello"))
    threads = [Thread() for _ in range(3)]
    for thread in (threads[0], threads[1], threads[0], threads[2]):
        await talker.run("go", thread=thread)
    assert [row["session_id"] for row in read_inputs(tmp_path)] == [threads[1].id]


@pytest.mark.shows("claude", "*", "CLAUDE_PROJECT_DIR")
async def test_a_program_gets_the_folder_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    await used(
        tmp_path,
        event_hooks(
            "PreToolUse", {"type": "command", "command": 'env > "$CLAUDE_PROJECT_DIR/env.txt"; pwd >> env.txt'}
        ),
    )
    text = (tmp_path / "env.txt").read_text()
    assert f"CLAUDE_PROJECT_DIR={resolve_path(tmp_path)}" in text and text.splitlines()[-1] == resolve_path(tmp_path)
    assert "secret" not in text
