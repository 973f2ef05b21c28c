"""wick's column of the comparison is correct; the record has every framework and leak, and the page matches it."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HERE = ROOT / "tests" / "comparison"
SHOWN = 1_000 if os.environ.get("WICK_FULL") else 200  # megabytes of output


def loaded(path: Path) -> ModuleType:
    """A script as a module, under a name that no other test has."""
    spec = spec_from_file_location(f"comparison_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


judge = loaded(HERE / "judge.py")
page = loaded(ROOT / "scripts" / "comparison.py")
LEAKS = list(judge.LEAKS)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.RECORD.read_text("utf-8"))
    return found


@pytest.mark.parametrize("leak", LEAKS)
def test_wick_holds(leak: str) -> None:
    options = {"megabytes": SHOWN} if leak == "output" else {}
    found = judge.judge("wick", leak, [sys.executable], HERE / "with_wick.py", **options)
    assert found.verdict == "held", found.line()
    assert json.loads(found.line())["evidence"]


@pytest.mark.parametrize("leak", LEAKS)
def test_wick_holds_inside_programs(leak: str) -> None:
    """Each scenario, with the tool calls made by a program of code mode."""
    options = {"megabytes": SHOWN} if leak == "output" else {}
    found = judge.judge("wick", leak, [sys.executable], HERE / "inside_programs.py", **options)
    assert found.verdict == "held", found.line()


def test_a_program_of_code_mode_without_a_guard_leaks(tmp_path: Path) -> None:
    """The judge detects a leak inside a program, too."""
    for name in ("peer.py", "with_wick.py", "inside_programs.py"):
        text = (HERE / name).read_text("utf-8").replace("hooks=[no_rm, expand]", "hooks=[expand]")
        (tmp_path / name).write_text(text)
    found = judge.judge("wick", "rewrite", [sys.executable], tmp_path / "inside_programs.py")
    assert found.verdict == "leaked" and found.evidence.endswith("executed: ls, rm -rf /data"), found.line()


def test_a_program_without_a_guard_leaks(tmp_path: Path) -> None:
    """The judge detects a leak: the same program without its guard executes the command."""
    text = (HERE / "with_wick.py").read_text("utf-8").replace("hooks=[no_rm, expand]", "hooks=[expand]")
    for name in ("peer.py", "with_wick.py"):
        (tmp_path / name).write_text(text if name == "with_wick.py" else (HERE / name).read_text("utf-8"))
    found = judge.judge("wick", "rewrite", [sys.executable], tmp_path / "with_wick.py")
    assert found.verdict == "leaked", found.line()
    assert found.evidence.endswith("executed: ls, rm -rf /data")


def test_a_program_that_does_nothing_has_failed(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("print('all is well')")
    found = judge.judge("idle", "rewrite", [sys.executable], tmp_path / "idle.py")
    assert found.verdict == "failed", found.line()


def test_the_record_has_every_framework_and_leak(record: dict[str, Any]) -> None:
    programs = {file.stem.removeprefix("with_") for file in HERE.glob("with_*.py")}
    assert len(record["frameworks"]) == len(programs)
    for name, told in record["frameworks"].items():
        assert told["version"], f"{name} has no version in the record"
        assert list(told["leaks"]) == LEAKS, f"the record of {name} is not complete: run make comparison"
        assert {one["verdict"] for one in told["leaks"].values()} <= set(page.SIGNS)
        assert all(one["evidence"] and one["date"] for one in told["leaks"].values())
    assert {one["verdict"] for one in record["frameworks"]["wick"]["leaks"].values()} == {"held"}


def test_the_page_matches_the_record(record: dict[str, Any]) -> None:
    assert list(page.QUESTIONS) == LEAKS
    text = page.PAGE.read_text("utf-8")
    assert page.SIGNS["held"] in text
    assert page.rendered(text, record, page.read(page.NUMBERS)) == text, "run python scripts/comparison.py"
