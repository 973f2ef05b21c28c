"""Typical user code passes mypy --strict, and typical mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TYPING = ROOT / "tests" / "typing"
MISTAKE = re.compile(r"  # type: ignore\[([\w, -]+)\]$")


def mypy(*paths: Path) -> str:
    """Return mypy's errors, or ""."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes", "--no-pretty"]
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([*command, *config, *map(str, paths)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(TYPING.glob("*.py")), ids=lambda path: path.name)
def test_types_match_the_file(path: Path) -> None:
    """A line that should be a mistake and is not has an ignore that is not used, which is an error, too."""
    assert mypy(path) == ""


def test_the_examples_are_well_typed() -> None:
    assert mypy(*sorted((ROOT / "examples").glob("*.py"))) == ""


def test_type_errors_are_reported_at_their_source(tmp_path: Path) -> None:
    """Without the ignores mypy finds exactly these, and nothing else."""
    lines = (TYPING / "mistakes.py").read_text(encoding="utf-8").splitlines()
    marks = {number: mark[1] for number, line in enumerate(lines, 1) if (mark := MISTAKE.search(line))}
    marked = {(number, code) for number, codes in marks.items() for code in codes.split(", ")}
    bare = tmp_path / "mistakes.py"
    bare.write_text("\n".join(MISTAKE.sub("", line) for line in lines), encoding="utf-8")
    found = re.findall(r"mistakes\.py:(\d+): error: .*\[([\w-]+)\]$", mypy(bare), re.MULTILINE)
    assert {(int(number), code) for number, code in found} == marked
    assert len(marked) > 10
