"""Input fields of tools by the names of kodelet and Claude Code: each tool, both directions, and the real schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit import tool_call
from programs import Programs
from wick import Agent, Scripted
from wick.backends.state import State
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.skills import Skills
from wick.capabilities.subagents import Subagents
from wick.capabilities.todos import Todos
from wick.hook_programs import kodelet, tool_fields
from wick.hook_programs.claude.names import ToolView
from wick.hook_programs.tool_fields import CLAUDE, KODELET, KODELET_VALUES, convert, restore, translate
from wick.tools import Tool, tool

Json = dict[str, Any]
HELPER = {"name": "helper", "description": "helps", "prompt": "Help."}
TODOS = [{"id": "1", "title": "Parse", "status": "done"}]

# wick's call, the input of a kodelet program, the input of a Claude Code program
CALLS: list[tuple[str, Json, Json | None, Json]] = [
    (
        "execute",
        {"command": "ls", "timeout": 30},
        {"command": "ls", "timeout": 30},
        {"command": "ls", "timeout": 30_000},
    ),
    (
        "read_file",
        {"path": "/a", "offset": 3, "limit": 9},
        {"file_path": "/a", "offset": 3, "line_limit": 9},
        {"file_path": "/a", "offset": 3, "limit": 9},
    ),
    (
        "write_file",
        {"path": "/a", "content": "key"},
        {"file_path": "/a", "text": "key"},
        {"file_path": "/a", "content": "key"},
    ),
    (
        "edit_file",
        {"path": "/a", "old_text": "x", "new_text": "y", "replace_all": True},
        {"file_path": "/a", "old_text": "x", "new_text": "y", "replace_all": True},
        {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True},
    ),
    (
        "glob",
        {"pattern": "*.py", "path": "/a", "everything": True},
        {"pattern": "*.py", "path": "/a", "ignore_gitignore": True},
        {"pattern": "*.py", "path": "/a", "everything": True},
    ),
    (
        "grep",
        {"pattern": "x", "path": "/a", "glob": "*.py", "ignore_case": True},
        {"pattern": "x", "path": "/a", "include": "*.py", "ignore_case": True},
        {"pattern": "x", "path": "/a", "glob": "*.py", "-i": True},
    ),
    ("ls", {"path": "/a"}, None, {"path": "/a"}),
    (
        "task",
        {"agent": "helper", "prompt": "go", "description": "a look"},
        {"agent": "helper", "question": "go", "description": "a look"},
        {"subagent_type": "helper", "prompt": "go", "description": "a look"},
    ),
    (
        "write_todos",
        {"todos": TODOS},
        {"todos": [{"id": "1", "content": "Parse", "status": "completed"}]},
        {"todos": [{"id": "1", "content": "Parse", "status": "completed", "activeForm": "Parse"}]},
    ),
    ("load_skill", {"name": "slides"}, None, {"skill": "slides"}),
]


def _tools() -> dict[str, Tool]:
    folder = Path(tool_fields.__file__).parents[1] / "skills"
    parts = (_Files(State()), Todos(), Subagents([HELPER]), Skills(str(folder)))
    return {item.name: item for part in parts for item in part.tools()}


class _Files(Filesystem):
    def tools(self) -> list[Tool]:
        return [getattr(self, name) for name in self.foreign_tools()]


@pytest.mark.parametrize(("name", "args", "told"), [(name, args, told) for name, args, told, _ in CALLS if told])
def test_each_tool_has_kodelets_fields_in_both_directions(name: str, args: Json, told: Json) -> None:
    item = _tools()[name]
    own = item.parameters["properties"]
    assert translate(name, convert(name, args, KODELET_VALUES), KODELET, own) == told
    taken = convert(name, restore(name, told, KODELET, own), KODELET_VALUES, back=True)
    assert item.bind(taken).form == item.bind(args).form
    assert item.bind(told).form == item.bind(args).form  # a model that knows these names is served, too


@pytest.mark.parametrize(("name", "args", "told"), [(name, args, told) for name, args, _, told in CALLS])
def test_each_tool_has_claudes_fields_in_both_directions(name: str, args: Json, told: Json) -> None:
    item = _tools()[name]
    place = ToolView(item, "/w")
    assert place.to_claude_args(args) == told
    assert item.bind(place.from_claude_args(told, args)).form == item.bind(args).form


def test_every_tool_that_kodelet_has_is_in_the_table() -> None:
    assert {name for name, _, told, _ in CALLS if told} == set(kodelet.TOOLS)
    for fields in (KODELET, CLAUDE):
        for name, names in fields.items():
            assert set(names) <= set(_tools()[name].parameters["properties"]), name  # no name of another tool's


def test_a_field_that_the_tool_has_itself_is_left_alone() -> None:
    @tool(name="write_file")
    async def other(path: str, text: str, content: str = "") -> str:
        """Write a file."""
        return text

    own = other.parameters["properties"]
    told = translate("write_file", {"path": "a", "text": "t", "content": "c"}, KODELET, own)
    assert told == {"file_path": "a", "text": "t", "content": "c"}
    assert restore("write_file", told, KODELET, own) == {"path": "a", "text": "t", "content": "c"}


SCANNER = """
if 'SECRET' in told['tool_input'].get('text', ''):
    answer = {'blocked': True, 'reason': 'a secret'}
"""


async def _write(programs: Programs, content: str) -> str:
    programs.python("scan", "before_tool_call", SCANNER)
    hooks = [Filesystem(State()), programs.executables()]
    agent = Agent(Scripted(tool_call("write_file", path="a.txt", content=content), "done"), hooks=hooks)
    result = await agent.run("go")
    return next(message.text for message in result.thread.messages if message.role == "tool")


@pytest.mark.shows("kodelet", "before_tool_call", "tool_input")
async def test_a_scanner_of_secrets_reads_the_file_that_is_written(programs: Programs) -> None:
    assert await _write(programs, "key = SECRET") == "a secret"


async def test_an_unread_scanner_is_detected(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KODELET, "write_file", {"path": "file_path"})  # type: ignore[arg-type]
    assert await _write(programs, "key = SECRET") != "a secret"
