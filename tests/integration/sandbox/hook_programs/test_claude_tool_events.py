"""Claude Code's events about tools: PreToolUse, PermissionRequest, PostToolUse, PostToolUseFailure."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from executables.claude_kit import (
    Json,
    agent,
    decision_output,
    event_hooks,
    last_prompt,
    read_input,
    read_inputs,
    recording_handler,
    resolve_path,
    specific_output,
)
from kit import ScriptedUser, thread_entries, tool_call, tool_calls_reply, tool_result
from wick import Result, Scripted, ToolUse, before
from wick.capabilities.permissions import Permissions
from wick.errors import HookError


def once(name: str = "execute", **args: Any) -> Scripted:
    """A model that uses one tool once."""
    return Scripted(tool_calls_reply(tool_call(name, **(args or {"command": "ls"}))), "done", spare=True)


async def used(folder: Path, hooks: Any, *more: Any, model: Scripted | None = None, **options: Any) -> Result:
    return await agent(folder, hooks, model or once(), *more, **options).run("go")


# -- input of a program ---------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "PreToolUse", "tool_name", "tool_input", "tool_use_id")
@pytest.mark.shows("claude", "PreToolUse", "session_id", "cwd", "permission_mode", "hook_event_name")
async def test_pre_tool_use_has_claude_code_tool_names(tmp_path: Path) -> None:
    result = await used(tmp_path, event_hooks("PreToolUse", recording_handler()), Permissions(mode="bypassPermissions"))
    payload = read_input(tmp_path)
    assert payload.pop("transcript_path")
    assert result.thread is not None
    assert payload == {
        "session_id": result.thread.id,
        "cwd": resolve_path(tmp_path),
        "permission_mode": "bypassPermissions",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "c1",
    }


@pytest.mark.shows("claude", "PreToolUse", "tool_input")
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("write_file", {"path": "a/b.txt", "content": "x"}, ("Write", {"file_path": "{}/a/b.txt", "content": "x"})),
        (
            "edit_file",
            {"path": "/etc/x", "old_text": "a", "new_text": ""},
            ("Edit", {"file_path": "/etc/x", "old_string": "a", "new_string": "", "replace_all": False}),
        ),
    ],
)
async def test_paths_are_absolute_and_fields_are_translated(
    tmp_path: Path, name: str, args: Json, expected: tuple[str, Json]
) -> None:
    await used(tmp_path, event_hooks("PreToolUse", recording_handler()), model=once(name, **args))
    place = resolve_path(tmp_path)
    payload = read_input(tmp_path)
    fields = {key: value.format(place) if isinstance(value, str) else value for key, value in expected[1].items()}
    assert (payload["tool_name"], payload["tool_input"]) == (expected[0], fields)


@pytest.mark.shows("claude", "settings", "matcher")
@pytest.mark.parametrize(
    ("matcher", "meant"),
    [
        *[("", True), ("*", True), ("Bash", True), ("execute", True), ("Edit|Bash", True), ("Write, Bash", True)],
        *[("Edit|Write", False), ("Bas", False), ("B.*h", True), ("^Ba", True), ("^as", False), ("mcp__.*", False)],
    ],
)
async def test_a_matcher_is_all_names_or_a_pattern(tmp_path: Path, matcher: str, meant: bool) -> None:
    await used(tmp_path, event_hooks("PreToolUse", recording_handler(), matcher=matcher))
    assert len(read_inputs(tmp_path)) == meant


@pytest.mark.shows("claude", "settings", "matcher")
async def test_a_pattern_that_re2_refuses_denies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = await used(tmp_path, event_hooks("PreToolUse", recording_handler(), matcher="(?!Read).*"))
    assert "has a matcher that cannot be used" in tool_result(result) and "has not agreed" in tool_result(result)
    assert "has a matcher that cannot be used" in caplog.text
    assert read_inputs(tmp_path) == []


@pytest.mark.shows("claude", "settings", "if")
@pytest.mark.parametrize(("command", "meant"), [("git push origin", True), ("cd x && git push", True), ("ls", False)])
async def test_an_if_is_one_permission_rule(tmp_path: Path, command: str, meant: bool) -> None:
    hooks = event_hooks(
        "PreToolUse", recording_handler(decision_output("deny", "no pushing"), **{"if": "Bash(git push *)"})
    )
    result = await used(tmp_path, hooks, model=once(command=command))
    assert (tool_result(result) == "no pushing") == meant == bool(read_inputs(tmp_path))


async def test_an_undecidable_if_calls_the_program(tmp_path: Path) -> None:
    hooks = event_hooks("PreToolUse", recording_handler(decision_output("deny", "no"), **{"if": "broken(x)"}))
    assert tool_result(await used(tmp_path, hooks, model=once("broken", text="x"))) == "no"


# -- answers before a tool ------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "PreToolUse", "permissionDecision", "permissionDecisionReason")
async def test_a_deny_is_read_by_the_model(tmp_path: Path) -> None:
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("deny", "not on a Friday")))
    )
    assert tool_result(result) == "not on a Friday"


@pytest.mark.shows("claude", "PreToolUse", "exit-2")
@pytest.mark.shows("claude", "*", "exit-2")
async def test_exit_code_2_denies_even_over_a_json_allow(tmp_path: Path) -> None:
    result = await used(
        tmp_path,
        event_hooks("PreToolUse", recording_handler(decision_output("allow"), code=2, stderr="no, says stderr")),
    )
    assert tool_result(result) == "no, says stderr"


@pytest.mark.shows("claude", "PreToolUse", "exit-2")
async def test_the_json_reason_precedes_stderr(tmp_path: Path) -> None:
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler({"reason": "says JSON"}, code=2, stderr="says stderr"))
    )
    assert tool_result(result) == "says JSON"


@pytest.mark.shows("claude", "PreToolUse", "decision", "reason")
@pytest.mark.parametrize(("decision", "denied"), [("block", True), ("approve", False)])
async def test_the_deprecated_decisions_mean_deny_and_allow(tmp_path: Path, decision: str, denied: bool) -> None:
    user = ScriptedUser(False)
    hooks = event_hooks("PreToolUse", recording_handler({"decision": decision, "reason": "as it was once said"}))
    result = await used(tmp_path, hooks, Permissions(), ask=user)
    assert tool_result(result) == ("as it was once said" if denied else "ran ls")
    assert user.questions == []


@pytest.mark.shows("claude", "PreToolUse", "permissionDecision")
async def test_an_allow_silences_the_question_of_the_mode(tmp_path: Path) -> None:
    user = ScriptedUser(False)
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("allow"))), Permissions(), ask=user
    )
    assert tool_result(result) == "ran ls" and user.questions == []


@pytest.mark.shows("claude", "PreToolUse", "permissionDecision")
async def test_an_allow_silences_no_rule(tmp_path: Path) -> None:
    user, hooks = ScriptedUser(False), event_hooks("PreToolUse", recording_handler(decision_output("allow")))
    assert "the user said no" in tool_result(await used(tmp_path, hooks, Permissions(ask=["Bash(ls)"]), ask=user))
    assert len(user.questions) == 1
    assert "denies this" in tool_result(await used(tmp_path, hooks, Permissions(deny=["Bash(ls)"]), ask=user))


@pytest.mark.shows("claude", "PreToolUse", "permissionDecision")
async def test_an_allow_is_for_exactly_the_call_that_was_seen(tmp_path: Path) -> None:
    @before(ToolUse)
    def sneak(use: ToolUse) -> None:
        use.args["command"] = "rm -rf /"

    user = ScriptedUser(False)
    hooks = event_hooks("PreToolUse", recording_handler("{}"))
    allows = {"PreToolUse": [{"hooks": [recording_handler(decision_output("allow"), **{"if": "Bash(ls)"})]}]}
    assert "said no" in tool_result(await used(tmp_path, allows, sneak, Permissions(), ask=user))
    assert [row["tool_input"]["command"] for row in read_inputs(tmp_path)] == ["ls"]
    await used(tmp_path, hooks, sneak)
    assert [row["tool_input"]["command"] for row in read_inputs(tmp_path)] == ["ls", "ls", "rm -rf /"]


@pytest.mark.shows("claude", "PreToolUse", "permissionDecision", "permissionDecisionReason")
@pytest.mark.parametrize("word", ["ask", "defer"])
async def test_ask_and_defer_ask_the_user(tmp_path: Path, word: str) -> None:
    user = ScriptedUser(True)
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output(word, "Really?"))), ask=user
    )
    assert user.question.question == "Really?" and tool_result(result) == "ran ls"
    refused = await used(
        tmp_path,
        event_hooks("PreToolUse", recording_handler(decision_output(word, "Really?"))),
        ask=ScriptedUser(False),
    )
    assert "said no" in tool_result(refused)


@pytest.mark.shows("claude", "PreToolUse", "precedence")
@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("allow", "deny"), "deny"),
        (("deny", "ask"), "deny"),
        (("ask", "defer", "deny"), "deny"),
        (("ask", "defer"), "defer?"),
        (("allow", "ask"), "ask?"),
    ],
)
async def test_deny_wins_over_defer_over_ask_over_allow(tmp_path: Path, words: tuple[str, ...], outcome: str) -> None:
    user = ScriptedUser(True)
    handlers = [recording_handler(decision_output(word, word if word == "deny" else f"{word}?")) for word in words]
    result = await used(tmp_path, event_hooks("PreToolUse", *handlers), ask=user)
    said = [question.question for question in user.questions] or [tool_result(result)]
    assert said == [outcome]


@pytest.mark.shows("claude", "PreToolUse", "updatedInput")
async def test_an_updated_input_replaces_the_whole_input(tmp_path: Path) -> None:
    answer = decision_output("allow", updatedInput={"command": "ls -l"})
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(answer)), model=once(command="ls", timeout=5)
    )
    assert tool_result(result) == "ran ls -l"
    assert len(read_inputs(tmp_path)) == 1  # the author of the input need not be asked again


@pytest.mark.shows("claude", "PreToolUse", "updatedInput")
async def test_an_updated_input_is_translated_back(tmp_path: Path) -> None:
    changed = {"file_path": f"{resolve_path(tmp_path)}/a.txt", "content": "safe"}
    model = once("write_file", path="a.txt", content="secret")
    result = await used(
        tmp_path,
        event_hooks("PreToolUse", recording_handler(decision_output("allow", updatedInput=changed))),
        model=model,
    )
    assert tool_result(result) == "wrote safe to a.txt"
    changed["file_path"] = f"{resolve_path(tmp_path)}/sub/b.txt"
    model = once("write_file", path="a.txt", content="secret")
    result = await used(
        tmp_path,
        event_hooks("PreToolUse", recording_handler(decision_output("allow", updatedInput=changed))),
        model=model,
    )
    assert tool_result(result) == "wrote safe to sub/b.txt"


async def test_an_input_that_the_tool_does_not_take_denies(tmp_path: Path) -> None:
    result = await used(
        tmp_path, event_hooks("PreToolUse", recording_handler(decision_output("allow", updatedInput={"cmmand": "ls"})))
    )
    assert "gave an input that the tool does not take" in tool_result(result)


async def test_of_two_inputs_the_last_counts_and_the_first_program_is_asked_again(tmp_path: Path) -> None:
    answer = json.dumps(specific_output("PreToolUse", updatedInput={"command": "one"}))
    refuses = 'case "$p" in *\'"command":"two"\'*) exit 2;; esac'
    first = f'read -r p; echo "$p" >> seen.jsonl; {refuses}; printf %s {quote(answer)}'
    second = recording_handler(decision_output("allow", updatedInput={"command": "two"}))
    result = await used(tmp_path, event_hooks("PreToolUse", {"type": "command", "command": first}, second))
    assert "refused it" in tool_result(result)
    assert sorted(row["tool_input"]["command"] for row in read_inputs(tmp_path)) == ["ls", "ls", "two"]


async def test_at_the_gate_nothing_can_be_changed_any_more(tmp_path: Path) -> None:
    @before(ToolUse)
    def sneak(use: ToolUse) -> None:
        use.args["command"] += " -a"

    command = (
        'read -r p; c=$(printf %s "$p" | sed \'s/.*"command":"\\([^"]*\\)".*/\\1/\'); '
        'printf \'{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"command":"safe %s"}}}\' "$c"'
    )
    result = await used(tmp_path, event_hooks("PreToolUse", {"type": "command", "command": command}), sneak)
    assert "wants to change what was changed after it had looked" in tool_result(result)


@pytest.mark.shows("claude", "PreToolUse", "additionalContext")
async def test_context_from_before_a_tool_reaches_the_model_after_its_result(tmp_path: Path) -> None:
    model = once()
    result = await used(
        tmp_path,
        event_hooks("PreToolUse", recording_handler(specific_output("PreToolUse", additionalContext="mind the gap"))),
        model=model,
    )
    assert "mind the gap" in last_prompt(model)
    roles = [(message.role, message.name) for message in result.messages]
    assert roles == [("user", ""), ("assistant", ""), ("tool", "execute"), ("user", "PreToolUse"), ("assistant", "")]


# -- in place of the user -------------------------------------------------------------------------------------------


def answers(**decision: Any) -> Json:
    return specific_output("PermissionRequest", decision=decision)


@pytest.mark.shows("claude", "PermissionRequest", "tool_name", "tool_input", "permission_suggestions")
@pytest.mark.shows("claude", "PermissionRequest", "decision.behavior")
async def test_a_program_answers_questions_of_the_mode(tmp_path: Path) -> None:
    user = ScriptedUser(False)
    result = await used(
        tmp_path,
        event_hooks("PermissionRequest", recording_handler(answers(behavior="allow"))),
        Permissions(),
        ask=user,
    )
    assert tool_result(result) == "ran ls" and user.questions == []
    payload = read_input(tmp_path)
    assert (payload["tool_name"], payload["tool_input"]) == ("Bash", {"command": "ls"})
    assert payload["permission_suggestions"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "ls"}]
    (said,) = thread_entries(result.thread, "answered")
    assert said["allowed"] and "printf" in said["deputy"]


@pytest.mark.shows("claude", "PermissionRequest", "decision.behavior")
async def test_a_program_cannot_agree_where_a_rule_asks(tmp_path: Path) -> None:
    user = ScriptedUser(False)
    hooks = event_hooks("PermissionRequest", recording_handler(answers(behavior="allow")))
    result = await used(tmp_path, hooks, Permissions(ask=["Bash"]), ask=user)
    assert "said no" in tool_result(result) and len(user.questions) == 1


@pytest.mark.shows("claude", "PermissionRequest", "decision.behavior", "decision.message")
async def test_a_program_can_deny_any_question(tmp_path: Path) -> None:
    user = ScriptedUser(True)
    hooks = event_hooks("PermissionRequest", recording_handler(answers(behavior="deny", message="not today")))
    result = await used(tmp_path, hooks, Permissions(ask=["Bash"]), ask=user)
    assert tool_result(result) == "not today" and user.questions == []


@pytest.mark.shows("claude", "PermissionRequest", "decision.interrupt")
async def test_a_no_that_interrupts_ends_the_run(tmp_path: Path) -> None:
    hooks = event_hooks(
        "PermissionRequest", recording_handler(answers(behavior="deny", message="enough", interrupt=True))
    )
    result = await used(tmp_path, hooks, Permissions(), ask=ScriptedUser(True))
    assert (result.outcome, result.reason) == ("stopped", "stop requested: enough")


@pytest.mark.shows("claude", "PermissionRequest", "decision.updatedInput")
async def test_a_yes_may_change_the_input(tmp_path: Path) -> None:
    hooks = event_hooks(
        "PermissionRequest", recording_handler(answers(behavior="allow", updatedInput={"command": "ls -l"}))
    )
    assert tool_result(await used(tmp_path, hooks, Permissions(), ask=ScriptedUser(False))) == "ran ls -l"


@pytest.mark.parametrize(
    "handler",
    [recording_handler("garbage"), recording_handler(code=2), recording_handler(code=1), recording_handler("{broken")],
)
async def test_without_a_program_answer_the_user_is_asked(tmp_path: Path, handler: Json) -> None:
    user = ScriptedUser(True)
    result = await used(tmp_path, event_hooks("PermissionRequest", handler), Permissions(), ask=user)
    assert tool_result(result) == "ran ls" and len(user.questions) == 1


async def test_a_failing_permission_program_denies(tmp_path: Path) -> None:
    user = ScriptedUser(True)
    result = await used(
        tmp_path, event_hooks("PermissionRequest", recording_handler(code=1, fail="closed")), Permissions(), ask=user
    )
    assert "ended with exit code 1" in tool_result(result) and user.questions == []


@pytest.mark.shows("claude", "Notification", "message", "title", "notification_type")
async def test_a_notification_precedes_the_question(tmp_path: Path) -> None:
    await used(
        tmp_path,
        event_hooks("Notification", recording_handler(), matcher="permission_prompt"),
        Permissions(),
        ask=ScriptedUser(True),
    )
    payload = read_input(tmp_path)
    assert payload["message"] == "May execute be used: ls"
    assert (payload["title"], payload["notification_type"]) == ("wick", "permission_prompt")


@pytest.mark.shows("claude", "Notification", "notification_type")
async def test_a_notification_is_sent_when_idle(tmp_path: Path) -> None:
    await used(tmp_path, event_hooks("Notification", recording_handler(code=2), matcher="idle_prompt"))
    assert read_input(tmp_path)["notification_type"] == "idle_prompt"


# -- after ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "PostToolUse", "tool_name", "tool_input", "tool_response", "tool_use_id", "duration_ms")
async def test_post_tool_use_has_the_result(tmp_path: Path) -> None:
    await used(
        tmp_path, event_hooks("PostToolUse", recording_handler()), model=once("write_file", path="a.txt", content="x")
    )
    payload, path = read_input(tmp_path), f"{resolve_path(tmp_path)}/a.txt"
    assert payload["tool_name"] == "Write" and payload["tool_use_id"] == "c1"
    assert payload["tool_input"] == {"file_path": path, "content": "x"}
    assert payload["tool_response"] == {"filePath": path, "success": True}
    assert isinstance(payload["duration_ms"], int) and 0 <= payload["duration_ms"] < 60_000


@pytest.mark.shows("claude", "PostToolUse", "decision", "reason")
@pytest.mark.shows("claude", "PostToolUse", "exit-2")
@pytest.mark.parametrize(
    "handler",
    [
        recording_handler({"decision": "block", "reason": "unformatted"}),
        recording_handler(code=2, stderr="unformatted"),
    ],
)
async def test_a_block_after_a_tool_sends_its_reason_to_the_model(tmp_path: Path, handler: Json) -> None:
    model = once()
    result = await used(tmp_path, event_hooks("PostToolUse", handler), model=model)
    assert tool_result(result) == "ran ls" and "unformatted" in last_prompt(model)


@pytest.mark.shows("claude", "PostToolUse", "additionalContext")
async def test_context_from_after_a_tool_reaches_the_model(tmp_path: Path) -> None:
    model = once()
    await used(
        tmp_path,
        event_hooks("PostToolUse", recording_handler(specific_output("PostToolUse", additionalContext="12 files"))),
        model=model,
    )
    assert "12 files" in last_prompt(model)


@pytest.mark.shows("claude", "PostToolUse", "updatedToolOutput")
@pytest.mark.parametrize(("output", "text"), [("redacted", "redacted"), ({"a": 1}, '{"a": 1}')])
async def test_an_updated_output_replaces_the_result(tmp_path: Path, output: Any, text: str) -> None:
    model = once()
    hooks = event_hooks("PostToolUse", recording_handler(specific_output("PostToolUse", updatedToolOutput=output)))
    assert tool_result(await used(tmp_path, hooks, model=model)) == text
    assert "ran ls" not in last_prompt(model)


@pytest.mark.shows("claude", "PostToolUseFailure", "tool_name", "tool_input", "error", "tool_use_id", "duration_ms")
@pytest.mark.shows("claude", "PostToolUseFailure", "additionalContext")
async def test_post_tool_use_failure_has_the_error(tmp_path: Path) -> None:
    model = once("broken", text="x")
    context = recording_handler(specific_output("PostToolUseFailure", additionalContext="try the other one"))
    await used(
        tmp_path,
        event_hooks("PostToolUseFailure", context) | event_hooks("PostToolUse", recording_handler()),
        model=model,
    )
    payload = read_input(tmp_path)
    assert payload["hook_event_name"] == "PostToolUseFailure" and "it broke" in payload["error"]
    assert (payload["tool_name"], payload["tool_input"], payload["tool_use_id"]) == ("broken", {"text": "x"}, "c1")
    assert payload["is_interrupt"] is False and payload["duration_ms"] >= 0
    assert "try the other one" in last_prompt(model)


@pytest.mark.shows("claude", "PostToolUseFailure", "decision", "reason", "exit-2")
@pytest.mark.parametrize(
    "handler", [recording_handler({"decision": "block", "reason": "why"}), recording_handler(code=2, stderr="why")]
)
async def test_a_block_after_a_failure_sends_its_reason_to_the_model(tmp_path: Path, handler: Json) -> None:
    model = once("broken", text="x")
    await used(tmp_path, event_hooks("PostToolUseFailure", handler), model=model)
    assert "why\n</hook>" in last_prompt(model)


async def test_a_tool_that_was_not_used_has_no_after(tmp_path: Path) -> None:
    hooks = (
        event_hooks("PreToolUse", recording_handler(decision_output("deny")))
        | event_hooks("PostToolUse", recording_handler())
        | event_hooks("PostToolUseFailure", recording_handler())
    )
    await used(tmp_path, hooks)
    assert [row["hook_event_name"] for row in read_inputs(tmp_path)] == ["PreToolUse"]


async def test_a_failing_observer_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = await used(tmp_path, event_hooks("PostToolUse", recording_handler(code=1, stderr="oh")))
    assert tool_result(result) == "ran ls" and "ended with exit code 1: oh; the run continues" in caplog.text
    (event,) = [data for data in thread_entries(result.thread, "event") if data["name"] == "hook_failed"]
    assert "ended with exit code 1" in event["data"]["problem"]


async def test_an_observer_that_must_not_fail_withholds(tmp_path: Path) -> None:
    result = await used(tmp_path, event_hooks("PostToolUse", recording_handler(code=1, fail="closed")))
    assert "withheld" in tool_result(result)
    assert HookError.__name__ in tool_result(result)
