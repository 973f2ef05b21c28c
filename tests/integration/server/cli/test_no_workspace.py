"""`wick run` in folders that cannot be a workspace: it works without files and commands, and says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.forked_command import ForkedWick

NOTICE = "no workspace, so no files and commands: "


@pytest.fixture
def wick(tmp_path: Path) -> ForkedWick:
    return ForkedWick(tmp_path)


@pytest.mark.parametrize("folder", ["home", "/", "/usr"])
def test_a_folder_that_cannot_be_a_workspace_has_no_files(wick: ForkedWick, folder: str) -> None:
    path = wick.home if folder == "home" else Path(folder)
    done = wick("run", "What is in this folder?", "-m", "demo", "--folder", str(path), "--output", "json")
    assert done.code == 0 and "this agent has no such tool" in json.loads(done.out)["text"]
    (line,) = done.err.splitlines()
    assert line.startswith(NOTICE) and line.endswith("; change to a project folder, or use --folder")
    assert "line 1" not in line


def test_home_stays_without_a_workspace_if_the_data_is_elsewhere(wick: ForkedWick, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    done = wick("run", "Write hello to new.txt", "-m", "demo", "--folder", str(wick.home), WICK_DATA=data)
    assert done.code == 0 and f"{wick.home} cannot be a workspace" in done.err
    assert not (wick.home / "new.txt").exists()


def test_the_hooks_of_the_user_stay_on_at_home(wick: ForkedWick) -> None:
    program = wick.home / ".wick" / "hooks" / "refuse"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\n[ "$1" = hook ] && echo user_message_send && exit\n'
        'cat > /dev/null\necho \'{"blocked": true, "reason": "not today"}\'\n'
    )
    program.chmod(0o755)
    done = wick("run", "What is 2 + 2?", "-m", "demo", "--folder", str(wick.home))
    assert done.code == 3 and "not today" in done.err and "untrusted" not in done.err


def test_an_agent_of_a_file_is_still_refused_there(wick: ForkedWick) -> None:
    (wick.home / "agents.yaml").write_text("model: demo\nbackend: {type: local, workdir: .}\n")
    done = wick("run", "Hello!", "--agent", str(wick.home / "agents.yaml"))
    assert done.code == 2 and "line 2" in done.err and NOTICE not in done.err
