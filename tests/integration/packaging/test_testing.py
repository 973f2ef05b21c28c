"""In pytest, a test that leaves replies of a `Scripted` model unused fails; shown by a real pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def outcomes(folder: Path, source: str) -> tuple[dict[str, str], str]:
    """Return the outcome of each test of a file, and the output."""
    (folder / "test_it.py").write_text(source)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "src")}
    plugins = ["-p", "wick.testing", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    command = [sys.executable, "-m", "pytest", "-rA", "-q", *plugins, "test_it.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    rows = (line.split(" ")[:2] for line in done.stdout.splitlines() if "test_it.py::" in line)
    return {name.partition("::")[2]: word for word, name in rows}, done.stdout


def test_unused_replies_fail_their_test(tmp_path: Path) -> None:
    became, printed = outcomes(
        tmp_path,
        """
import pytest
from wick import Agent, Scripted

@pytest.fixture
def model():
    return Scripted("from a fixture")

async def test_used():
    assert (await Agent(Scripted("one")).run("go")).text == "one"

async def test_unused():
    await Agent(Scripted("one", "two")).run("go")

async def test_spare():
    await Agent(Scripted("one", "two", spare=True)).run("go")

def test_sync_unused():
    Scripted("one")

def test_sync_used():
    Agent(Scripted("one")).run_sync("go")

def test_fixture_unused(model):
    pass

def test_fixture_used(model):
    assert Agent(model).run_sync("go").text == "from a fixture"

def test_none():
    Scripted()

def test_failed():
    Scripted("one")
    assert 1 == 2
""",
    )
    assert became == {
        "test_used": "PASSED",
        "test_unused": "FAILED",
        "test_spare": "PASSED",
        "test_sync_unused": "FAILED",
        "test_sync_used": "PASSED",
        "test_fixture_unused": "FAILED",
        "test_fixture_used": "PASSED",
        "test_none": "PASSED",
        "test_failed": "FAILED",
    }
    assert "1 of the 2 scripted replies were not used: ['two']" in printed
    assert "assert 1 == 2" in printed  # a failed test reports its failure, and not unused replies


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"wick": "wick.testing"}


def test_outside_of_pytest_replies_are_not_checked() -> None:
    code = """
import sys, wick
from wick.models import scripted
wick.Scripted("one")
print(scripted.watched, "wick.testing" in sys.modules, "pytest" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "None False False\n"
