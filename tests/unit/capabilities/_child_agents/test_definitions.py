"""Definitions of subagents: in code, as dicts, and as Markdown files from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import echo, execute
from wick import tool
from wick.capabilities._child_agents.definitions import Subagent, load_definitions
from wick.constants import SUBAGENT_BYTES
from wick.errors import ConfigError

REVIEWER = """---
name: code-reviewer
description: Expert code review specialist. Use proactively after writing code.
tools: Read, Grep, Glob, Bash
model: haiku
color: cyan
permissionMode: default
---

You are a senior code reviewer.

When invoked:
1. Look at the diff.
"""

# Not YAML, for the description has a colon and no quotes; such files are common.
UNQUOTED = """---
name: planner
description: Plans work. Examples: <example>user: "plan it" assistant: "I will"</example>
tools: Read
---
You plan.
"""


def read(tmp_path: Path, text: str, name: str = "agent.md") -> Subagent:
    (tmp_path / name).write_text(text, encoding="utf-8")
    (found,) = load_definitions([tmp_path / name]).values()
    return found


def test_a_foreign_definition_loads_unchanged(tmp_path: Path) -> None:
    found = read(tmp_path, REVIEWER)
    assert (found.name, found.model) == ("code-reviewer", "haiku")
    assert found.description.startswith("Expert code review specialist.")
    assert found.prompt.startswith("You are a senior") and found.prompt.endswith("1. Look at the diff.")
    assert found.wanted == {"read_file", "grep", "glob", "execute"}


def test_a_description_with_a_colon_will_do(tmp_path: Path) -> None:
    found = read(tmp_path, UNQUOTED)
    assert found.description.endswith('assistant: "I will"</example>') and found.prompt == "You plan."
    assert found.wanted == {"read_file"}


def test_so_will_a_star_for_every_tool(tmp_path: Path) -> None:
    assert read(tmp_path, "---\ndescription: D.\ntools: *\n---\nP.").wanted is None


def test_windows_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbf" + REVIEWER.replace("\n", "\r\n").encode())
    (found,) = load_definitions(tmp_path / "a.md").values()
    assert found.name == "code-reviewer" and found.wanted == {"read_file", "grep", "glob", "execute"}


def test_tools_may_be_a_list_or_taken_away(tmp_path: Path) -> None:
    text = "---\ndescription: D.\ntools: [Read, Bash]\ndisallowedTools: Bash\n---\nP."
    found = read(tmp_path, text, "worker.md")
    assert found.name == "worker", "the name of the file, where it has no other"
    assert found.wanted == {"read_file", "execute"} and not found.can_use(execute)


def test_a_folder_is_all_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text(UNQUOTED, encoding="utf-8")
    (tmp_path / "a.md").write_text(REVIEWER, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    assert [*load_definitions(str(tmp_path))] == ["code-reviewer", "planner"]


def test_dicts_and_maps() -> None:
    data = {"description": "D.", "system_prompt": "P.", "tools": "Read", "model": None}
    (one,) = load_definitions([{"name": "a", **data}]).values()
    (other,) = load_definitions({"a": data}).values()
    assert (one.name, one.prompt, one.wanted, one.model) == ("a", "P.", {"read_file"}, None)
    assert (other.name, other.prompt) == ("a", "P.")


def test_the_tools_of_a_definition() -> None:
    assert Subagent("a", "A.").can_use(echo)
    assert Subagent("a", "A.", tools="*").can_use(echo)
    assert not Subagent("a", "A.", tools=[]).can_use(echo)
    assert Subagent("a", "A.", tools=["Bash"]).can_use(execute.renamed("run"))
    assert not Subagent("a", "A.", tools=["Bash"]).can_use(echo)
    assert not Subagent("a", "A.", without=["bash"]).can_use(execute)
    own = tool(lambda: "", name="own", description="Mine.")
    assert Subagent("a", "A.", tools=["echo", own]).own == (own,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Subagent("", "A."), "a subagent needs a name"),
        (lambda: Subagent("a", " "), "a subagent needs a description"),
        (lambda: Subagent("a", "A.", prompt=7), "the prompt of the subagent 'a' is a text"),  # type: ignore[arg-type]
        (lambda: Subagent("a", "A.", tools=7), "the tools of the subagent 'a' are a list"),  # type: ignore[arg-type]
        (lambda: Subagent("a", "A.", tools=["Bash(git *)"]), "give only its name"),
        (lambda: Subagent("a", "A.", without=[echo]), "give only its name"),  # type: ignore[list-item]
        (lambda: Subagent("a", "A.", tools=[7]), "a tool is a function"),
        (lambda: load_definitions([7]), "a Subagent, a dict or the path"),
        (lambda: load_definitions({"a": "text"}), "is defined by a dict"),
        (lambda: load_definitions([{"description": "D."}]), "has no name"),
        (lambda: load_definitions([{"name": "a"}]), "the subagent 'a' has no description"),
        (lambda: load_definitions([{"name": "a", "description": "D.", "promt": ""}]), "did you mean prompt?"),
        (lambda: load_definitions([{"name": "a", "description": "D.", "zzz": ""}]), "the keys are name"),
        (lambda: load_definitions("/nowhere/a.md"), "cannot be read"),
        (lambda: load_definitions([]), "there is no subagent"),
    ],
)
def test_invalid_definitions_are_reported(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        make()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"You review.", "does not begin with a line of three dashes"),
        (b"---\nname: a\n", "does not end with a line of three dashes"),
        (b"---\nname: [a\n---\n", "front matter, line 3: not valid YAML"),
        (b"---\nname: a\n---\n", "the subagent 'a' has no description"),
        (b"---\nname: a\ndescription: &x b\ntools: *x\n---\n", "anchors"),
        (b"---\ndescription: \xff\n---\n", "utf-8"),
        (b"---\ndescription: D.\n---\n" + b"x" * SUBAGENT_BYTES, "longer than 256,000 bytes"),
        (b"---\ndescription: D.\ntools: {Read: 1}\n---\n", "are a list"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "odd.md").write_bytes(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_definitions(tmp_path)
    assert "odd.md" in str(caught.value)
