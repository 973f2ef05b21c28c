"""Names from elsewhere become wick's own."""

from __future__ import annotations

import pytest

from wick._internal import aliases
from wick.errors import ConfigError


def test_there_are_sixteen_points() -> None:
    assert len(set(aliases.POINT_NAMES)) == 16
    assert all(aliases.resolve_point(name) == name for name in aliases.POINT_NAMES)


@pytest.mark.parametrize(
    ("other", "own"),
    [
        ("before_agent", "before_run"),
        ("modify_request", "before_model_call"),
        ("wrap_tool_call", "wrap_tool_use"),
        ("execution_start", "before_run"),
        ("execution_end", "after_run"),
        ("before_inference", "before_model_call"),
        ("should_continue", "after_step"),
        ("on_error", "after_run"),
        ("pre_tool_use", "before_tool_use"),
        ("PreToolUse", "before_tool_use"),
        ("PostToolUse", "after_tool_use"),
        ("before_tool_call", "before_tool_use"),
        ("user_message_send", "before_run"),
        ("turn_end", "after_step"),
        ("agent_stop", "after_step"),
    ],
)
def test_points_that_other_tools_name(other: str, own: str) -> None:
    assert aliases.resolve_point(other) == own


def test_every_alias_leads_to_a_point_and_hides_none() -> None:
    assert set(aliases.POINTS.values()) <= set(aliases.POINT_NAMES)
    assert not set(aliases.POINTS) & set(aliases.POINT_NAMES)


@pytest.mark.parametrize("name", ["", "before", "before_tool", "BEFORE_RUN", "guard_everything"])
def test_an_unknown_point_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the points are before_run, wrap_run, .*guard_tool_use") as caught:
        aliases.resolve_point(name)
    assert repr(name) in str(caught.value)


def test_tools_that_other_tools_name() -> None:
    assert aliases.resolve_tool_name("Bash") == aliases.resolve_tool_name("bash") == "execute"
    assert aliases.resolve_tool_name("TodoWrite") == aliases.resolve_tool_name("todo_write") == "write_todos"
    assert aliases.resolve_tool_name("spawn_subagent") == "task"
    assert aliases.resolve_tool_name("execute") == "execute"
    assert aliases.resolve_tool_name("something_else") == "something_else"


def test_the_aliases_of_a_tool() -> None:
    assert aliases.list_tool_aliases("read_file") == {"Read", "file_read"}
    assert aliases.list_tool_aliases("Read") == {"read_file", "file_read"}
    assert aliases.list_tool_aliases("something_else") == frozenset()


def test_no_tool_is_an_alias_of_another() -> None:
    assert not set(aliases.TOOLS) & set(aliases.TOOLS.values())


def test_arguments_are_renamed_for_tools_that_exist() -> None:
    assert set(aliases.ARGUMENTS) <= set(aliases.TOOLS.values())
    assert aliases.ARGUMENTS["edit_file"]["old_string"] == "old_text"
