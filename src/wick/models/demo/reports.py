"""The sentences in which the demo model reports tool calls.

The flag `failed` of the result decides whether a call is reported as done, never the words of the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wick._internal.visible_text import format_count

_LINES, _CHARS, _ENTRIES = 10, 1_000, 20  # limits of a quoted result


@dataclass(frozen=True, slots=True)
class Wording:
    """The words for a tool: what it is used for, and how its result is reported."""

    purpose: str
    report: Callable[[Mapping[str, Any], str, Any], str]  # the arguments, the text, and its JSON object or list


def describe(tool: str, args: Mapping[str, Any]) -> str:
    """Return the purpose of a call, as in "read `notes.txt`"."""
    return _fill(WORDINGS[tool].purpose, args)


def _fill(template: str, args: Mapping[str, Any]) -> str:
    return template.format_map({name: _code(str(value)) for name, value in args.items()})


def report(tool: str, args: Mapping[str, Any], text: str, *, failed: bool) -> str:
    """Return a sentence about a result, and the beginning of its content."""
    if failed:
        return f"I could not {describe(tool, args)}: {_shorten(text)}"
    try:
        data = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        data = None
    return WORDINGS[tool].report(args, text, data)


# -- the tools ------------------------------------------------------------------------------------------------------


def _list_items(heading: str, nothing: str) -> Callable[[Mapping[str, Any], str, Any], str]:
    """Return a report of a list: the items of a JSON list, or the lines of a text."""

    def report(args: Mapping[str, Any], text: str, data: Any) -> str:
        if isinstance(data, dict):
            data = next((value for value in data.values() if isinstance(value, list)), None)
        items = data if isinstance(data, list) else [line for line in text.splitlines() if line.strip()]
        names = {name: _code(str(value)) for name, value in args.items()}
        if not items:
            return nothing.format_map(names)
        more = [f"- … and {len(items) - _ENTRIES:,} more"] if len(items) > _ENTRIES else []
        count = f"{'is' if len(items) == 1 else 'are'} {format_count(len(items), 'entry')}"
        shown = [f"- {_format_item(item)}" for item in items[:_ENTRIES]]
        return "\n".join([heading.format_map({**names, "count": count}), "", *shown, *more])

    return report


def _format_item(item: Any) -> str:
    match item:
        case {"type": "dir", "name": name}:
            return _code(f"{name}/")
        case {"name": name, "size": int(size)}:
            return f"{_code(str(name))} ({format_count(size, 'byte')})"
        case {"file": file, "line": line, "text": text}:
            return _code(f"{file}:{line}: {text}")
    return _code(str(item))


def _report_content(args: Mapping[str, Any], text: str, data: Any) -> str:
    path, lines = _code(str(args["path"])), text.splitlines()
    if not text.strip():
        return f"{path} is empty."
    count = format_count(len(lines), "line")
    begins = "" if len(lines) <= _LINES else f" and begins with these {_LINES}"
    return f"{path} has {count}{begins}:\n\n{_fence(text)}"


def _report_executed(args: Mapping[str, Any], text: str, data: Any) -> str:
    command, ended, output = _code(str(args["command"])), "ran", text
    if isinstance(data, dict) and "exit_code" in data:
        ended = f"ended with exit code {data['exit_code']}"
        output = f"{data.get('stdout', '')}{data.get('stderr', '')}"
    return f"{command} {ended}" + (f" and printed:\n\n{_fence(output)}" if output.strip() else ", with no output.")


def _report_task(args: Mapping[str, Any], text: str, data: Any) -> str:
    agent = f"The {args['agent']} agent" if args.get("agent") else "The subagent"
    quoted = "\n".join(f"> {line}" for line in _cut(text.strip()).splitlines())
    return f"{agent} answered:\n\n{quoted}" if quoted else f"{agent} gave no answer."


def _report_answer(args: Mapping[str, Any], text: str, data: Any) -> str:
    if not isinstance(data, dict) or "answer" not in data:
        return f"You answered: {_shorten(text)}"
    if data["answer"] is None:
        return f"You did not answer: {_shorten(str(data.get('reason', '')))}"
    return f"You answered: {_shorten(str(data['answer']))}"


WORDINGS = {
    "ls": Wording("list the files in {path}", _list_items("In {path} there {count}:", "There is nothing in {path}.")),
    "glob": Wording(
        "find files like {pattern}", _list_items("For {pattern} there {count}:", "No file matches {pattern}.")
    ),
    "grep": Wording("search for {pattern}", _list_items("For {pattern} there {count}:", "Nothing contains {pattern}.")),
    "read_file": Wording("read {path}", _report_content),
    "write_file": Wording(
        "write {path}",
        lambda args, *_: (
            f"I wrote {_code(str(args['path']))} ({format_count(len(str(args['content'])), 'character')})."
        ),
    ),
    "edit_file": Wording(
        "edit {path}", lambda args, *_: _fill("I replaced {old_text} with {new_text} in {path}.", args)
    ),
    "execute": Wording("run {command}", _report_executed),
    "write_todos": Wording(
        "write down the todos", lambda args, text, data: f"I wrote down {format_count(len(args['todos']), 'todo')}."
    ),
    "task": Wording("hand a task to a subagent", _report_task),
    "ask_user": Wording("ask you a question", _report_answer),
}


# -- parsing and formatting -----------------------------------------------------------------------------------------


def _shorten(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def _cut(text: str) -> str:
    lines = text.splitlines()
    shown = "\n".join(lines[:_LINES])[:_CHARS]
    return shown if len(lines) <= _LINES and len(shown) == len("\n".join(lines)) else f"{shown}\n…"


def _code(text: str) -> str:
    text = _shorten(text)
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _fence(text: str) -> str:
    """Return the beginning of a text in a code block. The fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{_cut(text)}\n{fence}"
