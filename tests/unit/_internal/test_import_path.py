"""Editable installs that were set aside: modules found among them, and restored ones."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from wick._internal.import_path import excluded, find_spec, load_module, startup_names
from wick.errors import ConfigError


@pytest.fixture(autouse=True)
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"aside_{name}.py").write_text(f"NAME = {name!r}\n")
    monkeypatch.setattr(excluded, "entries", [str(tmp_path / "one"), str(tmp_path / "two")])
    monkeypatch.setattr(excluded, "imports", ["import startup_a; x = __import__('startup_b')", "import os, sys"])
    monkeypatch.setattr(excluded, "workspaces", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_module_is_found_and_its_entry_put_back(projects: Path) -> None:
    spec = find_spec("aside_one", projects)
    assert spec is not None and spec.origin == str(projects / "one/aside_one.py")
    assert load_module(lambda: import_module("aside_one")).NAME == "one"
    assert str(projects / "one") in sys.path and str(projects / "two") not in sys.path
    del sys.modules["aside_one"]


def test_a_module_that_is_nowhere_is_not_found(projects: Path) -> None:
    assert find_spec("aside_none", projects) is None
    with pytest.raises(ModuleNotFoundError):
        load_module(lambda: import_module("aside_none"))
    assert not {str(projects / name) for name in ("one", "two")} & {*sys.path}


def test_a_module_in_two_projects_is_refused(projects: Path) -> None:
    (projects / "two/aside_one.py").touch()
    with pytest.raises(ConfigError, match="uninstall one"):
        load_module(lambda: import_module("aside_one"))


def test_a_module_in_a_workspace_is_refused(projects: Path) -> None:
    excluded.workspaces.add(str(projects / "one"))
    with pytest.raises(ConfigError, match="holds the module aside_one"):
        load_module(lambda: import_module("aside_one"))
    assert str(projects / "one") not in sys.path


def test_names_of_the_start() -> None:
    names = startup_names()
    assert {"sitecustomize", "usercustomize", "startup_a", "startup_b", "wick"} <= {*names}
    assert not {"os", "sys", "site", "venv", "test"} & {*names}
