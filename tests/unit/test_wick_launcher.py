"""The launcher of the command `wick`: which entries of the import system it sets aside."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import wick_launcher
from wick_launcher import NEEDED, project_name, set_aside

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("__editable__.click-8.1.7.pth", "click"),
        ("__editable___prompt_toolkit_3_0_finder", "prompt-toolkit"),
        ("_editable_impl_wick_agent.pth", "wick-agent"),
        ("_click.pth", "click"),
        ("click.pth", "click"),
        ("_lxml_editable_loader", "lxml"),
        ("easy-install.pth", "easy-install"),
    ],
)
def test_the_project_of_a_file(file: str, name: str) -> None:
    assert project_name(file) == name


def test_every_requirement_of_wick_is_needed() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in extras.keys() - {"dev", "docs"} for one in extras[name])]
    names = {re.split(r"[\[<>=;~! ]", one)[0] for one in wanted}
    assert names <= NEEDED


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages after which the path has a project, wick, and a folder that no file names."""
    site = tmp_path / "lib/site-packages"
    for name in ("lib/site-packages/win32", "project", "click", "plain"):
        (tmp_path / name).mkdir(parents=True)
    for name, folder in (("project", "project"), ("click", "click"), ("pywin32", "lib/site-packages/win32")):
        (site / f"{name}.pth").write_text(f"# a comment\n\n{tmp_path / folder}\n")
    (site / "run.pth").write_text("import startup; startup.run()\n")
    own = str(Path(wick_launcher.__file__).parent)
    added = [str(tmp_path / name) for name in ("project", "click", "plain", "lib/site-packages/win32")]
    monkeypatch.setattr(sys, "path", [*(one for one in sys.path if one != own), str(site), own, *added])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    return site


def test_an_editable_install_is_set_aside(site: Path, tmp_path: Path) -> None:
    before = [*sys.path]
    entries, finders, imports = set_aside()
    assert entries == [str(tmp_path / "project")]
    assert not finders and "import startup; startup.run()" in imports
    assert sys.path == [one for one in before if one not in entries]


def test_an_entry_before_installed_packages_stays(site: Path, tmp_path: Path) -> None:
    sys.path.insert(0, sys.path.pop(sys.path.index(str(tmp_path / "project"))))
    before = [*sys.path]
    assert set_aside()[0] == []
    assert sys.path == before


def test_an_entry_that_was_imported_from_stays(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sitecustomize", type(sys)("sitecustomize"))
    sys.modules["sitecustomize"].__file__ = str(tmp_path / "project/sitecustomize.py")
    assert set_aside()[0] == []


def test_the_finder_of_an_editable_install_is_set_aside(site: Path) -> None:
    mine = type("Finder", (), {"__module__": "__editable___project_0_1_finder"})()
    needed = type("Finder", (), {"__module__": "__editable___click_8_1_finder"})()
    sys.meta_path += [mine, needed]
    assert set_aside()[1] == [mine]
    assert needed in sys.meta_path and mine not in sys.meta_path
