"""Failure policy: by event, and as configured."""

from __future__ import annotations

import pytest

from kit import thread_entries
from wick import Block, Run
from wick.errors import HookError
from wick.hook_programs.failure_policy import Fail, decides, describe_failure, handle_failure, one_line

DECIDING = ("before_tool_call", "user_message_send", "PreToolUse", "UserPromptSubmit", "before_step", "guard_run")
WATCHING = (
    *("after_tool_call", "agent_stop", "turn_end", "after_run"),
    *("PostToolUse", "Stop", "SessionStart", "PermissionRequest", "PreCompact"),
)


def test_the_event_determines_deciders() -> None:
    assert all(map(decides, DECIDING)) and not any(map(decides, WATCHING))


@pytest.mark.parametrize(
    ("event", "fail", "counts"),
    [
        ("PreToolUse", None, "closed"),
        ("PreToolUse", "open", "open"),
        ("PostToolUse", None, ""),
        ("PostToolUse", "closed", "closed"),
    ],
)
def test_the_default_failure_policy_depends_on_the_event(event: str, fail: Fail | None, counts: str) -> None:
    assert describe_failure(event, fail) == counts


def test_a_failing_decider_denies() -> None:
    run = Run()
    for fail in (None, "closed"):
        assert handle_failure(run, "check", "hangs", fail, True) == Block(
            "the hook program check hangs, so it has not agreed"
        )
    assert thread_entries(run.thread, "event") == []


@pytest.mark.parametrize(("fail", "deciding"), [("open", True), ("open", False), (None, False)])
def test_a_failing_observer_is_logged(fail: Fail | None, deciding: bool, caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    assert handle_failure(run, "watch", "hangs", fail, deciding) is None
    (entry,) = thread_entries(run.thread, "event")
    assert (entry["name"], entry["data"]) == ("hook_failed", {"hook": "watch", "problem": "hangs"})
    assert "the hook program watch hangs; the run continues" in caplog.text


def test_a_failing_fail_closed_observer_raises() -> None:
    with pytest.raises(HookError, match="the hook program watch hangs"):
        handle_failure(Run(), "watch", "hangs", "closed", False)


def test_foreign_text_is_shortened_to_one_line() -> None:
    assert one_line("  a\n\tb  ") == "a b" and one_line("x" * 400) == "x" * 299 + "…"
