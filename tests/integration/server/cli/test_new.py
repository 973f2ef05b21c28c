"""`wick new`, as a process: the project works, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from wick.cli.checks.agents_file import check_agents_file

FILES = ("agents.yaml", "pyproject.toml", "README.md", ".gitignore")


def outcome_of(here: HostCommand, project: str) -> subprocess.CompletedProcess[str]:
    """Return pytest's outcome in a project."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::ResourceWarning"],
        cwd=here.wick.folder / project,
        env=here.wick.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_new_project_works(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    made = here.wick.as_new_process("new", "my-agent")
    assert made.code == 0 and "pytest" in made.err
    files = {Path(line).relative_to("my-agent").as_posix() for line in made.out.split()}
    assert files == {*FILES, "my_agent.py", "tests/test_my_agent.py"}
    assert check_agents_file(here.wick.folder / "my-agent" / "agents.yaml")[1] == []
    done = outcome_of(here, "my-agent")
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout
    answered = here("run", "--agent", "my-agent/agents.yaml", "--model", "demo", "What is in this folder?")
    assert answered.code == 0 and "There is nothing" in answered.out


def test_the_generated_test_depends_on_the_guard(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here("new", "mine-x")
    path = here.wick.folder / "mine-x" / "mine_x.py"
    path.write_text(path.read_text(encoding="utf-8").replace("--force", "--nothing"), encoding="utf-8")
    done = outcome_of(here, "mine-x")
    assert done.returncode == 1 and "2 failed, 8 passed" in done.stdout, done.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here.wick.write("taken/notes.txt", "mine")
    done = here("new", "taken")
    assert done.code == 2 and "already exists and is not empty" in done.err
    assert os.listdir(here.wick.folder / "taken") == ["notes.txt"]
    here.wick.write("a-file", "")
    assert here("new", "a-file").code == 2
    (here.wick.folder / "empty").mkdir()
    made = here("new", "empty", "--json")
    assert made.code == 0 and "agents.yaml" in json.loads(made.out)["files"]
    assert here("new", "deep/er/mine").code == 0
    assert (here.wick.folder / "deep" / "er" / "mine" / "mine.py").is_file()


@pytest.mark.parametrize("name", ["json", "wick", "tests", "1st", "a b", "../..", "x" * 80, "ümlaut"])
def test_a_name_that_cannot_be_one_is_a_sentence(tmp_path: Path, name: str) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    done = here("new", name)
    assert done.code == 2 and "Error: " in done.err
    assert os.listdir(here.wick.folder) == []


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    done = HostCommand(ForkedWick(tmp_path))("new", "/proc/project")
    assert done.code == 1 and "/proc/project" in done.err


def test_a_plugin_has_only_the_kinds_that_are_named(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    files = json.loads(here("new", "--plugin", "acme-x", "--only", "tools, hooks", "--json").out)["files"]
    common = {"pyproject.toml", "README.md", ".gitignore", "src/acme_x/__init__.py", "src/acme_x/py.typed"}
    kinds = {"src/acme_x/tools.py", "src/acme_x/hooks.py", "tests/test_tools.py", "tests/test_hooks.py"}
    assert {*files} == common | kinds
    project = here.wick.folder / "acme-x"
    points = tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points == {
        "wick.tools": {"acme_x_reverse": "acme_x.tools:reverse"},
        "wick.hooks": {"acme_x_limit": "acme_x.hooks:limit_length"},
    }
    rows = [line.split(" | ")[1] for line in (project / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert rows == ["a tool", "a hook"]


def test_kinds_of_a_plugin_are_checked(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    done = here("new", "--plugin", "acme-x", "--only", "tools,hook")
    assert done.code == 2 and "'hook' is not a kind of plugin; did you mean 'hooks'?" in done.err
    done = here("new", "acme-x", "--only", "tools")
    assert done.code == 2 and "wick new --plugin acme-x --only tools" in done.err
    assert not (here.wick.folder / "acme-x").exists()
