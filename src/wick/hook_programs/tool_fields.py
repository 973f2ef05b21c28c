"""Input fields of tools by the names that kodelet and Claude Code give them, in both directions.

A hook program that was written for one of these reads its own names. A name that it does not find reads as "nothing
there": a scanner of `file_write.text` would agree to every file. So each tool that both sides have is in these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Fields = Mapping[str, Mapping[str, str]]  # wick's name of a tool: wick's names of its fields, and the other ones

KODELET: Fields = {
    "read_file": {"path": "file_path", "limit": "line_limit"},
    "write_file": {"path": "file_path", "content": "text"},
    "edit_file": {"path": "file_path"},
    "glob": {"everything": "ignore_gitignore"},
    "grep": {"glob": "include"},
    "task": {"prompt": "question"},
}
CLAUDE: Fields = {
    "read_file": {"path": "file_path"},
    "write_file": {"path": "file_path"},
    "edit_file": {"path": "file_path", "old_text": "old_string", "new_text": "new_string"},
    "grep": {"ignore_case": "-i"},
    "task": {"agent": "subagent_type"},
    "load_skill": {"name": "skill"},
}


@dataclass(frozen=True, slots=True)
class FieldConversion:
    """Conversion of one field whose values differ as well as its name."""

    to_program: Callable[[Any], Any]
    from_program: Callable[[Any], Any]


def translate(tool: str, args: Mapping[str, Any], fields: Fields, own: Mapping[str, Any]) -> Json:
    """Return arguments by their other names; `own` are the properties of the tool's schema."""
    names, translated = fields.get(tool, {}), dict[str, Any]()
    for name, value in args.items():
        other = names.get(name, name)
        translated[name if other in own else other] = value  # the tool may have a parameter of the other name
    return translated


def restore(tool: str, given: Mapping[str, Any], fields: Fields, own: Mapping[str, Any]) -> Json:
    """Return arguments by wick's names. Where both names are given, the tool refuses the second."""
    names = {theirs: ours for ours, theirs in fields.get(tool, {}).items() if ours in own and theirs not in own}
    return {names[name] if name in names and names[name] not in given else name: given[name] for name in given}


def convert(tool: str, args: Json, values: Mapping[tuple[str, str], FieldConversion], *, back: bool = False) -> Json:
    """Return arguments with the values that differ converted."""
    converted = {**args}
    for name in args:
        if conversion := values.get((tool, name)):
            converted[name] = (conversion.from_program if back else conversion.to_program)(args[name])
    return converted


# -- values that differ -----------------------------------------------------------------------------------------------


def _convert_todos(given: Any, *, active: bool = False) -> Any:
    """Return wick's todos as the other tools write them: a content, and a status that ends in completed."""
    if not isinstance(given, list):
        return given
    todos = []
    for todo in given:
        if isinstance(todo, dict):
            todo = {"content" if name == "title" else name: value for name, value in todo.items()}
            if todo.get("status") == "done":
                todo["status"] = "completed"
            if active:
                todo["activeForm"] = todo.get("content", "")
        todos.append(todo)
    return todos


def _scale_by(factor: float) -> Callable[[Any], Any]:
    def scale(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        scaled = value * factor
        return int(scaled) if scaled == int(scaled) else scaled

    return scale


def _identity(value: Any) -> Any:
    return value  # write_todos reads both forms


KODELET_VALUES = {("write_todos", "todos"): FieldConversion(_convert_todos, _identity)}
CLAUDE_VALUES = {
    ("write_todos", "todos"): FieldConversion(lambda given: _convert_todos(given, active=True), _identity),
    ("execute", "timeout"): FieldConversion(_scale_by(1000), _scale_by(0.001)),  # seconds here, milliseconds there
}
