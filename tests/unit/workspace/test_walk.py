"""Walks over folders: ordered, within a budget, without ignored paths."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wick import constants
from wick.workspace.globs import Glob
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.walk import DiskWalk, WalkBudget


@pytest.fixture(params=[False, True], ids=["kernel", "by hand"])
def by_hand(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def tree(tmp_path: Path, by_hand: bool) -> Iterator[RootedFolder]:
    beneath = RootedFolder(str(tmp_path), by_hand=by_hand)
    yield beneath
    beneath.close()


def fill(root: Path, *paths: str, text: str = "x\n") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def walked(tree: RootedFolder, start: str = "", glob: str = "**", **options: bool) -> list[str]:
    return [path for path, _ in DiskWalk(tree, WalkBudget(), **options).files(start, Glob(glob))]


def test_a_walk_is_ordered_by_path(tree: RootedFolder, tmp_path: Path) -> None:
    paths = ["a.txt", "a/b", "a-b", "a/b.c", "a/b-c/d", "b", "a b", "A"]
    fill(tmp_path, *[path for path in paths if path != "a/b"])
    assert walked(tree) == sorted(path for path in paths if path != "a/b")


def test_a_walk_omits_heavy_and_ignored_folders(tree: RootedFolder, tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "node_modules/x.py", "src/node_modules/y.py", ".git/config.py", "build/b.py", "src/c.pyc")
    fill(tmp_path, "src/.gitignore", text="*.pyc\n/build/\n")
    fill(tmp_path, ".gitignore", text="build/\n")
    assert walked(tree, glob="*.py*") == ["a.py"]
    assert len(walked(tree, glob="*.py*", everything=True)) == 6
    assert walked(tree, "node_modules") == ["node_modules/x.py"]  # asked for by its name
    assert walked(tree, "src", "*.pyc") == []


def test_a_file_named_like_a_heavy_folder_is_found(tree: RootedFolder, tmp_path: Path) -> None:
    fill(tmp_path, "venv", "x/dist")
    assert walked(tree) == ["venv", "x/dist"]


def test_a_walk_follows_no_link(tree: RootedFolder, tmp_path: Path) -> None:
    fill(tmp_path, "a/b.py")
    os.symlink("..", tmp_path / "a" / "up")
    os.symlink("/etc", tmp_path / "out")
    os.symlink("a/b.py", tmp_path / "link.py")
    assert list(DiskWalk(tree, WalkBudget()).files("", Glob("**"))) == [
        ("a/b.py", False),
        ("a/up", True),
        ("link.py", True),
        ("out", True),
    ]


def test_a_walk_skips_unreadable_rule_files(tree: RootedFolder, tmp_path: Path) -> None:
    fill(tmp_path, "a/x", "b/x", "c/x", text="x")
    (tmp_path / "a" / ".gitignore").mkdir()
    os.mkfifo(tmp_path / "b" / ".gitignore")
    os.symlink("/etc/passwd", tmp_path / "c" / ".gitignore")
    assert [path for path in walked(tree) if path.endswith("/x")] == ["a/x", "b/x", "c/x"]


def test_a_walk_that_finds_too_much_stops(tree: RootedFolder, tmp_path: Path) -> None:
    fill(tmp_path, *(f"d{number}/f" for number in range(20)))
    budget = WalkBudget(entries=10)
    assert len(list(DiskWalk(tree, budget).files("", Glob("**")))) < 10
    assert budget.spent
    fill(tmp_path, *(f"one/f{number}" for number in range(9)))
    assert len(list(DiskWalk(tree, WalkBudget(entries=5)).files("one", Glob("**")))) == 5  # found paths are returned
    budget = WalkBudget(seconds=-1)
    assert list(DiskWalk(tree, budget).files("", Glob("**/nothing"))) == []
    fill(tmp_path, *(f"d/f{number}" for number in range(200)))
    assert len(list(DiskWalk(tree, budget).files("", Glob("**")))) < 200
    assert budget.spent


def test_a_walk_into_a_very_deep_tree_ends(tree: RootedFolder, tmp_path: Path) -> None:
    top = fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):  # 300 names of 20 bytes: deeper than a path can be long
        os.mkdir("x" * 20, dir_fd=fd)
        inner = os.open("x" * 20, os.O_RDONLY, dir_fd=fd)
        if fd != top:
            os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    os.close(top)
    budget = WalkBudget()
    fill(tmp_path, "z/file")
    assert list(DiskWalk(tree, budget).files("", Glob("*"))) == [("z/file", False)]
    assert budget.spent  # there is more than was seen
    subprocess.run(["rm", "-rf", str(tmp_path / ("x" * 20))], check=True)


@pytest.mark.timeout(1_800 if os.environ.get("WICK_FULL") else 120)
def test_fifty_thousand_files(tmp_path: Path) -> None:
    many = 1_000_000 if os.environ.get("WICK_FULL") else 50_000
    for folder in range(many // 500):
        place = tmp_path / f"d{folder % 50}" / f"e{folder}"
        place.mkdir(parents=True)
        for number in range(500):
            os.close(os.open(place / f"f{number}.py", os.O_CREAT | os.O_WRONLY))
    tree = RootedFolder(str(tmp_path))
    budget = WalkBudget()
    found = sum(1 for _ in DiskWalk(tree, budget).files("", Glob("*7.py")))
    tree.close()
    assert found == many // 10 or (budget.spent and many > constants.WALK_ENTRIES)
