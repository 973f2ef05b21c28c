"""Shared by the tests of Claude Code's settings: handlers as shell commands, and their recorded input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from wick import Agent, Hook, Scripted, Tool, tool
from wick.hook_programs.claude import SettingsHooks
from wick.hook_programs.claude.settings import HookSettings, parse_settings
from wick.hook_programs.runner import Runner
from wick.protocols import Model

Json = dict[str, Any]
SEEN = "seen.jsonl"


@tool(kind="shell")
async def execute(command: str, timeout: float | None = None) -> str:
    """Run a command."""
    return f"ran {command}"


@tool(kind="write")
async def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"wrote {content} to {path}"


@tool(kind="write")
async def edit_file(path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
    """Edit a file."""
    return f"{old_text} is {new_text} in {path}"


@tool
async def broken(text: str = "") -> str:
    """Always fails."""
    raise ValueError("it broke")


TOOLS: tuple[Tool, ...] = (execute, write_file, edit_file, broken)


def recording_handler(answer: Json | str = "", code: int = 0, stderr: str = "", **more: Any) -> Json:
    """A handler that records its input in a file, and answers."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    lines = [
        f"p=$(cat); printf '%s\\n' \"$p\" >> {SEEN}",  # in one piece, for others may do it at the same time
        f"printf %s {quote(text)}",
        f"printf %s {quote(stderr)} >&2",
        f"exit {code}",
    ]
    return {"type": "command", "command": "; ".join(lines), **more}


def specific_output(event: str, **fields: Any) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def decision_output(permission: str, reason: str = "", **fields: Any) -> Json:
    told = {"permissionDecisionReason": reason} if reason else {}
    return specific_output("PreToolUse", permissionDecision=permission, **told, **fields)


def event_hooks(event: str, *handlers: Json, matcher: str = "") -> Json:
    """The hooks of one event."""
    return {event: [{"matcher": matcher, "hooks": list(handlers)}]}


def write_settings(folder: Path, hooks: Mapping[str, Any] | HookSettings, **options: Any) -> SettingsHooks:
    settings = hooks if isinstance(hooks, HookSettings) else parse_settings(hooks)
    return SettingsHooks(settings, Runner(cwd=folder, **options))


def agent(
    folder: Path,
    hooks: Mapping[str, Any] | HookSettings,
    model: Model,
    *more: Any,
    tools: Sequence[Tool] = TOOLS,
    **options: Any,
) -> Agent:
    """An agent under some settings."""
    own: list[Hook] = write_settings(folder, hooks).hooks()
    return Agent(model, tools=tools, hooks=[*own, *more], **options)


def read_inputs(folder: Path) -> list[Json]:
    """Return the inputs of the handlers, in call order."""
    file = folder / SEEN
    return [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []


def read_input(folder: Path) -> Json:
    """Return the input of the one handler."""
    (payload,) = read_inputs(folder)
    return payload


def last_prompt(model: Scripted) -> str:
    """Return the whole text of the last model request."""
    return "\n".join(message.text for message in model.requests[-1].messages)


def resolve_path(folder: Path) -> str:
    """Return the real path of a folder, as programs get it."""
    return os.path.realpath(folder)
