"""What became of a tool call, in words: each tool's result is read, never guessed at.

A model reads only a result's text. So what does not clearly say that it worked is quoted, not called a success.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

LINES, CHARS, ENTRIES = 10, 1_000, 20  # how much of a result is shown

Outcome = Literal["done", "refused", "failed", "unclear"]

_REFUSED = re.compile(
    r"not allowed|not permitted|permission (?:denied|to)|denied|forbidden|refused|blocked|said no to|say yes to"
    r"|no user is there|not agreed|could not be asked|not an answer to|lapsed",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"(?:[\w.]*(?:Error|Exception)\b|error|cannot|could not|no such|there is no|invalid|unable|unknown|failed"
    r"|the run (?:failed|was)|the user went on)|.*(?:no such file|does not exist|not found|not found in file"
    r"|is unknown|was withheld.*)\W*$",
    re.IGNORECASE,
)
_WORKED = re.compile(r"\b(?:wrote|written|saved|created|edited|replaced|updated|stored|ok|done|success)", re.IGNORECASE)
_MATCH = re.compile(r"\S+:\d+:")  # a line that was found, as grep prints it


@dataclass(frozen=True, slots=True)
class Wording:
    """How to speak of a tool: what it is used for, and what came of it."""

    doing: str
    tell: Callable[[Mapping[str, Any], str, Any], str]  # its arguments, its result, and that as data
    is_deed: bool = False  # its result says that it worked, and is nothing to look at


def doing(tool: str, args: Mapping[str, Any]) -> str:
    """What a call is for, as in: I will …, I was not allowed to …"""
    shown = {name: code(value) if isinstance(value, str) else value for name, value in args.items()}
    return WORDINGS[tool].doing.format_map(_Known(shown))


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "it"


def outcome(tool: str, text: str, *, failed: bool = False) -> Outcome:
    """How a call ended: one that `failed` or was blocked did not run, whatever its text says."""
    line, data = text.strip(), _data(text)
    if failed:
        return "refused" if _REFUSED.search(line) else "failed"
    if isinstance(data, dict) and data.get("error"):
        line = str(data["error"])
        return "refused" if _REFUSED.search(line) else "failed"
    speaks = tool == "task" and line.startswith(("I ", "Offline demo model"))  # a subagent's own words
    if data is not None or "\n" in line or _MATCH.match(line) or speaks:
        return "done"
    if _REFUSED.search(line):
        return "refused"
    if line.startswith(f"{tool}: ") or _FAILED.match(line):
        return "failed"
    is_listing = tool in ("ls", "glob") and line.count(" ") > 1
    return "unclear" if is_listing or (WORDINGS[tool].is_deed and line and not _WORKED.search(line)) else "done"


def report(tool: str, args: Mapping[str, Any], text: str, *, failed: bool = False) -> str:
    """What became of a call, in a sentence, with the beginning of what it brought."""
    data = _data(text)
    said = str(data["error"]) if isinstance(data, dict) and data.get("error") else text.strip()
    match outcome(tool, text, failed=failed):
        case "refused":
            return f"I was not allowed to {doing(tool, args)}: {_short(said)}"
        case "failed":
            return f"I could not {doing(tool, args)}: {_short(said)}"
        case "unclear":
            return f"I tried to {doing(tool, args)}, and {tool} answered: {_short(said)}"
    return WORDINGS[tool].tell(args, text, data)


# -- the tools ------------------------------------------------------------------------------------------------------


def _listed(args: Mapping[str, Any], text: str, data: Any) -> str:
    where = code(str(args.get("path", ".")))
    names = [_entry(item) for item in _items(data, text, "entries", "files")]
    return f"There is nothing in {where}." if not names else f"In {where} there {_count(names)}:\n\n{_bullets(names)}"


def _entry(item: Any) -> str:
    if not isinstance(item, dict):
        return code(str(item))
    name, kind, size = str(item.get("name") or item.get("path") or item), str(item.get("type", "")), item.get("size")
    if kind.startswith(("dir", "folder")):
        return code(name.rstrip("/") + "/")
    return code(name) + (f" ({size:,} bytes)" if isinstance(size, int) else "")


def _matched(args: Mapping[str, Any], text: str, data: Any) -> str:
    pattern = code(str(args.get("pattern", "")))
    names = [_entry(item) for item in _items(data, text, "files", "matches", "paths")]
    return f"No file matches {pattern}." if not names else f"For {pattern} there {_count(names)}:\n\n{_bullets(names)}"


def _found(args: Mapping[str, Any], text: str, data: Any) -> str:
    pattern = code(str(args.get("pattern", "")))
    lines = [_hit(item) for item in _items(data, text, "matches", "results")]
    if not lines or text.strip().lower() in ("no matches", "no matches found"):
        return f"Nothing contains {pattern}."
    return f"I searched for {pattern}, and there {_count(lines, 'match', 'matches')}:\n\n{_bullets(lines)}"


def _hit(item: Any) -> str:
    if not isinstance(item, dict):
        return code(_short(str(item)))
    path = item.get("path") or item.get("file") or ""
    line = item.get("line_number") or item.get("line") or ""
    said = item.get("text") or item.get("content") or item.get("match") or ""
    if isinstance(line, str) and not said:
        line, said = "", line
    return code(_short(": ".join(filter(None, (":".join(map(str, filter(None, (path, line)))), str(said).strip())))))


def _read(args: Mapping[str, Any], text: str, data: Any) -> str:
    content = _text(data, text, "content", "text")
    path, lines = code(str(args.get("path", ""))), content.splitlines()
    if not content.strip():
        return f"{path} is empty."
    count = "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
    begins = "" if len(lines) <= LINES else f" and begins with these {LINES}"
    return f"{path} has {count}{begins}:\n\n{fenced(content)}"


def _wrote(args: Mapping[str, Any], text: str, data: Any) -> str:
    return f"I wrote {code(str(args.get('path', '')))} ({len(str(args.get('content', ''))):,} characters)."


def _edited(args: Mapping[str, Any], text: str, data: Any) -> str:
    old, new, path = (code(_short(str(args.get(name, "")))) for name in ("old_text", "new_text", "path"))
    return f"I replaced {old} with {new} in {path}."


def _ran(args: Mapping[str, Any], text: str, data: Any) -> str:
    command, exit_code = code(str(args.get("command", ""))), None
    if isinstance(data, dict):
        exit_code = next((data[key] for key in ("exit_code", "returncode", "code") if key in data), None)
    output = _text(data, text, "output", "stdout") + (_text(data, "", "stderr") if isinstance(data, dict) else "")
    ended = "ran" if exit_code is None else f"ended with exit code {exit_code}"
    return f"{command} {ended}" + (f" and printed:\n\n{fenced(output)}" if output.strip() else ", with no output.")


def _noted(args: Mapping[str, Any], text: str, data: Any) -> str:
    todos = args.get("todos")
    return f"I wrote down {len(todos) if isinstance(todos, list) else 'the'} todos."


def _delegated(args: Mapping[str, Any], text: str, data: Any) -> str:
    who = f"The {args['agent']} agent" if args.get("agent") else "The subagent"
    answer = _text(data, text, "answer", "result", "output", "text").strip()
    quoted = "\n".join(f"> {line}" for line in _cut(answer).splitlines())
    return f"{who} answered:\n\n{quoted}" if answer else f"{who} had nothing to say."


def _asked(args: Mapping[str, Any], text: str, data: Any) -> str:
    return f"You answered: {_short(_text(data, text, 'answer', 'value', 'text'))}"


WORDINGS = {
    "ls": Wording("list the files in {path}", _listed),
    "glob": Wording("find files like {pattern}", _matched),
    "grep": Wording("search for {pattern}", _found),
    "read_file": Wording("read {path}", _read),
    "write_file": Wording("write {path}", _wrote, is_deed=True),
    "edit_file": Wording("edit {path}", _edited, is_deed=True),
    "execute": Wording("run {command}", _ran),
    "write_todos": Wording("write down the todos", _noted, is_deed=True),
    "task": Wording("hand a task to a subagent", _delegated),
    "ask_user": Wording("ask you a question", _asked),
}


# -- reading results ------------------------------------------------------------------------------------------------


def _data(text: str) -> Any:
    """The objects and lists that a result spells as JSON; None if it is just a text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _items(data: Any, text: str, *keys: str) -> list[Any]:
    if isinstance(data, dict):
        data = next((data[key] for key in keys if isinstance(data.get(key), list)), [data])
    return data if isinstance(data, list) else [line for line in text.splitlines() if line.strip()]


def _text(data: Any, text: str, *keys: str) -> str:
    if not isinstance(data, dict):
        return text
    return next((str(data[key]) for key in keys if data.get(key) is not None), text)


def _count(items: list[str], one: str = "entry", many: str = "entries") -> str:
    return f"is 1 {one}" if len(items) == 1 else f"are {len(items):,} {many}"


def _bullets(items: list[str]) -> str:
    more = [f"… and {len(items) - ENTRIES:,} more"] if len(items) > ENTRIES else []
    return "\n".join(f"- {item}" for item in [*items[:ENTRIES], *more])


def _short(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def _cut(text: str) -> str:
    lines = text.splitlines()
    shown = "\n".join(lines[:LINES])[:CHARS]
    return shown if len(lines) <= LINES and len(shown) == len("\n".join(lines)) else f"{shown}\n…"


def code(text: str) -> str:
    """A name or a command as Markdown shows it."""
    text = _short(text)
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def fenced(text: str) -> str:
    """The beginning of a text as a block that nothing in it can end."""
    ticks = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{_cut(text)}\n{fence}"
