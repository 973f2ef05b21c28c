"""Alias tables: names that other agent tools use for hook points, tools and arguments.

Config, matches, rules and hook programs accept every alias in these tables.
"""

from __future__ import annotations

from wick.errors import ConfigError

OPERATIONS = ("run", "step", "model_call", "tool_use")
POSITIONS = ("before", "wrap", "after", "guard")
POINT_NAMES = tuple(f"{position}_{operation}" for operation in OPERATIONS for position in POSITIONS)

POINTS = {
    "before_agent": "before_run",
    "execution_start": "before_run",
    "pre_generation": "before_run",
    "user_message_send": "before_run",
    "PreGeneration": "before_run",
    "SessionStart": "before_run",
    "SubagentStart": "before_run",
    "UserPromptSubmit": "before_run",
    "after_agent": "after_run",
    "execution_end": "after_run",
    "on_error": "after_run",
    "post_generation": "after_run",
    "PostGeneration": "after_run",
    "SessionEnd": "after_run",
    "agent_stop": "after_step",
    "should_continue": "after_step",
    "turn_end": "after_step",
    "Stop": "after_step",
    "SubagentStop": "after_step",
    "before_inference": "before_model_call",
    "modify_request": "before_model_call",
    "after_inference": "after_model_call",
    "before_tool_call": "before_tool_use",
    "pre_tool_use": "before_tool_use",
    "PreToolUse": "before_tool_use",
    "wrap_tool_call": "wrap_tool_use",
    "after_tool_call": "after_tool_use",
    "post_tool_use": "after_tool_use",
    "PostToolUse": "after_tool_use",
    "PostToolUseFailure": "after_tool_use",
    "PermissionRequest": "guard_tool_use",
}

TOOLS = {
    "Bash": "execute",
    "bash": "execute",
    "LS": "ls",
    "Read": "read_file",
    "file_read": "read_file",
    "Write": "write_file",
    "file_write": "write_file",
    "Edit": "edit_file",
    "file_edit": "edit_file",
    "Glob": "glob",
    "glob_tool": "glob",
    "Grep": "grep",
    "grep_tool": "grep",
    "Task": "task",
    "subagent": "task",
    "spawn_subagent": "task",
    "AskUserQuestion": "ask_user",
    "ask_user_question": "ask_user",
    "WebFetch": "http_request",
    "WebSearch": "web_search",
    "TodoWrite": "write_todos",
    "todo_write": "write_todos",
    "Skill": "load_skill",
    "use_skill": "load_skill",
}

ARGUMENTS = {
    "task": {"subagent_type": "agent", "subagent": "agent", "question": "prompt"},
    "execute": {"cmd": "command", "cwd": "workdir"},
    "ls": {"directory": "path", "dir": "path", "file_path": "path"},
    "read_file": {"file_path": "path", "line_limit": "limit"},
    "write_file": {"file_path": "path", "text": "content"},
    "edit_file": {"file_path": "path", "old_string": "old_text", "new_string": "new_text"},
    "glob": {"ignore_gitignore": "everything"},
    "grep": {"include": "glob", "-i": "ignore_case"},
    "load_skill": {"skill": "name", "skill_name": "name"},
}

STATUSES = {
    "todo": "pending",
    "open": "pending",
    "not_started": "pending",
    "doing": "in_progress",
    "in-progress": "in_progress",
    "started": "in_progress",
    "complete": "done",
    "completed": "done",
    "finished": "done",
}

_ALIASES = {name: frozenset(alias for alias in TOOLS if TOOLS[alias] == name) for name in TOOLS.values()}


def resolve_point(name: str) -> str:
    """Return wick's name of a hook point; raise ConfigError if it is unknown."""
    name = POINTS.get(name, name)
    if name not in POINT_NAMES:
        raise ConfigError(f"there is no hook point named {name!r}; the points are {', '.join(POINT_NAMES)}")
    return name


def resolve_status(name: str) -> str:
    """Return wick's name of a todo's status. A name without an alias is only normalized."""
    known = name.strip().lower().replace(" ", "_")
    return STATUSES.get(known, known)


def resolve_tool_name(name: str) -> str:
    """Return wick's name of a tool. A name without an alias is returned unchanged."""
    return TOOLS.get(name, name)


def list_tool_aliases(name: str) -> frozenset[str]:
    """Return all other names of a tool."""
    known = resolve_tool_name(name)
    return (_ALIASES.get(known, frozenset()) | {known}) - {name}


TOOL_NAMES = frozenset((
    *(*TOOLS, *TOOLS.values(), *ARGUMENTS),
    *("ls", "execute", "write_todos", "update_todo", "load_skill", "task", "ask_user"),
    *("calculate", "datetime", "http_request", "web_search", "final_answer"),
))  # fmt: skip
"""Names of wick's own tools; not every agent has all of them."""

TOOL_KINDS = ("agent", "answer", "mcp", "network", "read", "shell", "write")
