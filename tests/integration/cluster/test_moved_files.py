"""The comparison of moved files: it finds files that differ, and accepts a whole effect whose end is not recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.file_commands import FINISHED, generate_command, repeat_command
from cluster.load import ClientRun
from cluster.moved_files import MovedFiles, RepeatedFiles

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="commands run as another user, which needs root")
STEPS = 4


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace after STEPS commands, and an empty folder for their repetition."""
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):  # another user enters them
        folder.chmod(0o755)
    workspace, repeated = tmp_path / "workspace", tmp_path / "repeated"
    workspace.mkdir()
    repeated.mkdir()
    for step in range(STEPS):
        repeat_command(workspace, generate_command("r1", step))
    return workspace, repeated


def compare(folders: tuple[Path, Path], finished: int, times: int = 1) -> list[str]:
    """Compare with commands of which so many have a recorded end, and the others none."""
    moved = MovedFiles(None, None)  # type: ignore[arg-type]  # neither is used by the comparison
    results = [FINISHED] * finished + ["The tool was started before."] * (STEPS - finished)
    repeated = RepeatedFiles("files0", ClientRun("r1"), folders[1])
    return [moved.compare_folders(repeated, folders[0], results) for _ in range(times)]


def test_equal_files_are_equal(folders: tuple[Path, Path]) -> None:
    assert any(folders[0].rglob("*")) and compare(folders, STEPS) == ["equal"]


def test_an_effect_without_a_recorded_end_is_ahead(folders: tuple[Path, Path]) -> None:
    assert compare(folders, STEPS - 1) == ["ahead"]


@pytest.mark.parametrize("change", ["content", "mode", "link"])
def test_a_difference_is_found(folders: tuple[Path, Path], change: str) -> None:
    (folders[0] / "file").touch()
    (folders[1] / "file").touch()
    if change == "content":
        (folders[0] / "file").write_text("x")
    elif change == "mode":
        (folders[0] / "file").chmod(0o604)
    else:
        (folders[0] / "same").symlink_to("file")
    assert compare(folders, STEPS, times=2) == ["different", "equal"]  # it counts once
