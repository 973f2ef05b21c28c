"""The Makefile sets up one environment in two steps: for serving, and for building and testing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from wheel_install import ROOT

if shutil.which("make") is None:
    pytest.skip("no make: apt-get install make", allow_module_level=True)

INSTALL = '#!/bin/sh\nmkdir -p .venv && echo "$1" >>installed\n'  # in place of scripts/get-packages


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose environment is only recorded."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "scripts" / "get-packages").write_text(INSTALL)
    return tmp_path


def installed_by(clone: Path, *stamps: str) -> list[str]:
    """Make these stamps, and return the extras that were installed."""
    (clone / "installed").write_text("")
    subprocess.run(["make", *(f".venv/.{stamp}" for stamp in stamps)], cwd=clone, check=True, capture_output=True)
    return (clone / "installed").read_text().split()


def test_serving_comes_first_and_tests_complete_it(clone: Path) -> None:
    assert installed_by(clone, "serve") == ["server"]
    assert installed_by(clone, "serve") == []
    assert installed_by(clone, "ready") == ["dev"]
    assert installed_by(clone, "serve", "ready") == []


def test_after_tests_serving_installs_nothing(clone: Path) -> None:
    assert installed_by(clone, "ready") == ["dev"]
    assert installed_by(clone, "serve") == []


def test_new_requirements_are_installed(clone: Path) -> None:
    assert installed_by(clone, "ready") == ["dev"]
    later = time.time() + 10
    os.utime(clone / "pyproject.toml", (later, later))
    assert installed_by(clone, "serve") == ["server"]
    assert installed_by(clone, "ready") == ["dev"]


@pytest.mark.parametrize(("target", "extra"), [("serve", "server"), ("test", "dev"), ("fmt", "dev"), ("docs", "dev")])
def test_each_target_installs_only_its_extra(clone: Path, target: str, extra: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=clone, check=True, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if "get-packages" in line] == [f"scripts/get-packages {extra}"]


def test_an_unknown_extra_is_refused() -> None:
    done = subprocess.run([ROOT / "scripts" / "get-packages"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: scripts/get-packages server|dev\n")


def test_nothing_is_installed_as_root() -> None:
    """A program for the whole system is the user's decision: messages name the command."""
    for path in [ROOT / "Makefile", *(ROOT / "scripts").iterdir()]:
        if path.is_file():
            assert "sudo" not in path.read_text(encoding="utf-8"), path.name
