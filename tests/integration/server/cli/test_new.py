"""`wick new`, as a process: the project works, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
    answered = here("run", "--agent", "my-agent/agents.yaml", "--model", "demo", "What is in this folder?")
    assert answered.code == 0 and "There is nothing" in answered.out


def test_the_generated_test_depends_on_the_guard(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here("new", "mine-x")
    path = here.wick.folder / "mine-x" / "mine_x.py"
    path.write_text(path.read_text(encoding="utf-8").replace("--force", "--nothing"), encoding="utf-8")
    done = outcome_of(here, "mine-x")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout


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
