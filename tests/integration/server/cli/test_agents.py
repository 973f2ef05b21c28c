"""`wick agents` as a process: lists, and every problem of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.command import ROOT, WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from wick import Agent
from wick.cli.checks.agents_file import check_agents_file
from wick.config import load


@pytest.fixture
def here(tmp_path: Path) -> HostCommand:
    return HostCommand(ForkedWick(tmp_path))


def test_the_agents_of_a_place(place: HostCommand) -> None:
    if place.server is None:
        place.wick.write("agents.yaml", "agents: {default: {model: demo, name: wick}, other: {model: demo}}")
    listed = place("agents", "list")
    assert listed.out.split()[:4] == ["agent", "name", "model", "hooks"]
    rows = {row["id"]: row for row in place.json("agents", "list")}
    assert rows.keys() == {"default", "other"}
    assert rows["default"]["name"] == "wick" and "demo" in rows["default"]["model"]


def test_the_agents_of_a_folder_without_a_file(here: HostCommand) -> None:
    (row,) = here.json("agents", "list")
    assert row["id"] == "wick" and "permissions" in row["hooks"]
    here.wick.write("mine.yaml", "model: demo\nname: mine")
    assert [row["name"] for row in here.json("agents", "list", "mine.yaml")] == ["mine"]


def test_a_file_that_is_right_is_drawn(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    wick.write("mine.py", "from wick import ToolUse, guard\n\n@guard(ToolUse)\ndef look(use): return None\n")
    wick.write("agents.yaml", "agents:\n  coder: {model: demo, hooks: ['mine:look']}\n  talker: {model: demo}\n")
    done = wick("agents", "check")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "agents.yaml is valid: coder, talker"
    assert "guard  look" in done.out and "● operation" in done.out
    told = json.loads(wick("agents", "check", "agents.yaml", "--json").out)
    assert told["problems"] == [] and {"coder", "talker"} == told["agents"].keys()
    assert ("tool_use", "look") in [(ring["operation"], ring["hook"]) for ring in told["agents"]["coder"]]


def test_the_store_of_a_file_is_not_used_by_commands(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    wick.write("agents.yaml", "model: demo\nsessions: {store: ./mine}\n")
    checked, ran = wick("agents", "check"), wick("run", "Hello.", "--agent", "agents.yaml")
    assert checked.code == 0 and checked.err.startswith("`sessions` is for programs that load this file: wick run")
    assert ran.code == 0 and "`sessions` of the file is for programs that load it" in ran.err and "WICK_DATA" in ran.err
    wick.write("agents.yaml", "model: demo\n")
    assert "sessions" not in wick("agents", "check").err + wick("run", "Hello.", "--agent", "agents.yaml").err


def test_the_example_is_right(here: HostCommand) -> None:
    assert here("agents", "check", str(ROOT / "examples" / "agents.yaml")).code == 0


BAD = """\
defaults:
  model: demo
  limits: {steps: many, tokns: 3}
agents:
  coder:
    modle: demo
    hooks:
      - nowhere:hook
      - json:loads
      - alsonowhere:hook
    tools: [calculate, whatever, another]
    permissions:
      deny: ["Bash(rm *)", "Bash(", "x y z"]
      mode: sometimes
    system_prompt: ${NOT_SET} and ${NOR_THIS}
  talker:
    model: nonesuch
    backend: {type: dockr}
  bad id!:
    model: demo
  mcp:
    mcp:
      servers:
        a: {cmd: x}
        b: {url: nonsense}
        c: {url: "http://127.0.0.1:1/mcp"}
"""
EXPECTED = [
    (3, "limits.steps is a whole number"),
    (3, "there is no key 'tokns' in limits; did you mean 'tokens'?"),
    (6, "there is no key 'modle'; did you mean 'model'?"),
    (8, "nowhere:hook cannot be loaded"),
    (9, "json:loads"),
    (10, "alsonowhere:hook cannot be loaded"),
    (11, "there is no tool 'whatever'"),
    (11, "there is no tool 'another'"),
    (13, "the rule 'Bash(' cannot be read"),
    (13, "the rule 'x y z' cannot be read"),
    (14, "permissions.mode is one of"),
    (15, "the environment variable NOT_SET is not set"),
    (15, "the environment variable NOR_THIS is not set"),
    (17, "there is no model named 'nonesuch'"),
    (18, "backend.type is one of"),
    (19, "an agent's id has letters"),
    (24, "the MCP server a has no option 'cmd'"),
    (25, "the MCP server b has url='nonsense'"),
]


def test_every_problem_is_reported_with_its_line(here: HostCommand) -> None:
    here.wick.write("bad.yaml", BAD)
    done = here("agents", "check", "bad.yaml")
    assert done.code == 2 and f"{len(EXPECTED)} problems in bad.yaml" in done.err
    lines = done.out.splitlines()
    assert len(lines) == len(EXPECTED)
    for line, (number, sentence) in zip(lines, EXPECTED, strict=True):
        assert line.startswith(f"bad.yaml, line {number}: ") and sentence in line
    told = json.loads(here("agents", "check", "bad.yaml", "--json").out)
    assert [problem["line"] for problem in told["problems"]] == [number for number, _ in EXPECTED]


ONE: dict[str, tuple[str, str]] = {
    "nothing": ("", "there are no settings here"),
    "no yaml": ("a: [1,\nb: 3", "not valid YAML"),
    "a list": ("- model: demo", "there are no settings here"),
    "twice": ("model: demo\nmodel: demo", "is repeated"),
    "no agents": ("defaults: {model: demo}", "agents is a map of ids"),
    "beside": ("agents: {a: {model: demo}}\nmodel: demo", "beside agents and defaults"),
    "a tool that a guard is for": (
        "model: demo\npermissions: {deny: [nonesuch]}",
        "nonesuch",
    ),
    "an anchor": ("a: &x 1", "anchors (&)"),
}


@pytest.mark.parametrize("what", ONE)
def test_a_problem_is_reported_once(here: HostCommand, what: str) -> None:
    text, sentence = ONE[what]
    here.wick.write("bad.yaml", text)
    done = here("agents", "check", "bad.yaml")
    assert done.code == 2 and len(done.out.splitlines()) == 1 and sentence in done.out


def test_a_file_that_cannot_be_read(here: HostCommand) -> None:
    done = here("agents", "check", "gone.yaml")
    assert done.code == 2 and "there is no file gone.yaml" in done.out
    assert here("agents", "check").code == 2
    here.wick.write("folder/agents.yaml", "")
    assert here("agents", "check", "folder").code == 2
    (here.wick.folder / "latin.yaml").write_bytes(b"model: caf\xe9")
    assert "this is not UTF-8" in here("agents", "check", "latin.yaml").out
    assert here("agents", "list", "--agent", "gone.yaml").code == 2
    assert here("agents", "list", "gone.yaml").code == 2
    assert here("agents", "list", "gone.yaml", "--agent", "other.yaml").code == 2


KEYS = st.sampled_from(["model", "modle", "hooks", "tools", "limits", "permissions", "backend", "mcp", "todos", "name"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["demo", "nowhere:hook", "local", "${NOT_SET}", True, False, None, 3, -1, "Bash(", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.just("deny"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.booleans())
@settings(max_examples=300 if os.environ.get("WICK_FULL") else 25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_the_check_ends_for_any_content(tmp_path: Path, options: dict[str, Any], several: bool) -> None:
    """It always ends, and a file is valid exactly if it has no problem."""
    path = tmp_path / "agents.yaml"
    path.write_text(json.dumps({"agents": {"a": options, "b": {"model": "demo"}}} if several else options))
    config, problems = check_agents_file(path)
    assert (config is not None) or problems
    assert all(problem.message for problem in problems)
    assert problems or is_right(path)


def is_right(path: Path) -> bool:
    """Return True if its agents can be built."""
    return all(isinstance(part.agent(), Agent) for part in load(path).agents.values())
