"""The package of `wick new --plugin` installs offline, passes its tests and mypy --strict, and is found by wick."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wick.cli.plugin_template import render_plugin

ROOT = Path(__file__).parents[3]
NAME = "acme_tools"


def run(*command: str, folder: Path, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment, with the installed plugin on its path."""
    paths = [str(ROOT / "src"), *([str(site)] if site else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MYPYPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    run("-m", "wick.cli", "new", "--plugin", NAME, folder=folder)
    return folder / NAME


@pytest.fixture(scope="module")
def site(project: Path) -> Path:
    """The plugin, installed without a network."""
    site = project.parent / "site"
    offline = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(site)]
    run("-m", "pip", "install", *offline, ".", folder=project)
    return site


def test_an_editable_install_needs_no_other_package(project: Path) -> None:
    editable = project.parent / "editable"
    offline = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(editable)]
    run("-m", "pip", "install", *offline, "-e", ".", folder=project)
    assert [path.read_text().strip() for path in editable.glob("*.pth")] == [str(project / "src")]


@pytest.mark.timeout(300)
def test_the_tests_of_the_plugin_pass(project: Path, site: Path) -> None:
    # The cases of stores that run on SQLite in the unit tests are not all repeated.
    chosen = "not TestStore or lease or new_thread or fork or blobs"
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", "-rA"]
    done = run("-m", "pytest", *options, "-k", chosen, folder=project, site=site)
    for shown in (
        *("TestEchoModel", "TestStore", "TestMemoryBackend", "test_the_command"),
        *("test_an_agent_uses_the_tool", "test_an_agent_uses_the_hook", "test_an_agent_uses_the_backend"),
    ):
        assert f"::{shown}" in done.stdout, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.timeout(300)
def test_the_plugin_is_fully_typed(project: Path) -> None:
    # With other options than those of `make lint`, mypy would check all of wick again, and replace its cache.
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = run("-m", "mypy", "--strict", *options, "src", "tests", folder=project)
    assert "Success" in done.stdout


@pytest.mark.timeout(300)
def test_pyright_accepts_the_plugin(project: Path, site: Path) -> None:
    """With the settings of the package: basedpyright has more rules, which `standard` switches off."""
    assert '[tool.pyright]\ntypeCheckingMode = "standard"' in (project / "pyproject.toml").read_text()
    program = Path(sys.executable).parent / "basedpyright"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{site}"}
    command = [program, "--pythonpath", sys.executable, "src", "tests"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "0 errors, 0 warnings" in done.stdout, done.stdout


def test_skipped_cases_are_explained(project: Path) -> None:
    readme = (project / "README.md").read_text()
    assert "`pytest -rs`" in readme and "`unsupported` in `tests/test_backends.py`" in readme
    assert not re.search(r"pytest -rs", render_plugin("acme", "acme", ["tools"])["README.md"])


def test_the_doctor_lists_the_plugins(project: Path, site: Path) -> None:
    code = "import json; from wick.cli.checks.doctor import check_plugins; "
    code += "print(json.dumps([(c.name, c.state, c.says) for c in check_plugins()]))"
    found = json.loads(run("-c", code, folder=project, site=site).stdout)
    assert [name for name, state, says in found if says == f"in {NAME} 0.1.0" and state == "ok"] == [
        "model provider acme-tools",
        "tool acme_tools_reverse",
        "hook acme_tools_limit",
        "backend acme-tools",
        "store acme-tools",
        "command acme-tools",
    ]
