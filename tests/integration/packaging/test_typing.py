"""Type checkers accept the programs of the docs, the examples and tests/typing, and find planted mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import pytest

from doc_pages import ROOT, RUN, Story, page_name, stories

TYPING = ROOT / "tests" / "typing"
PROGRAMS = [*sorted(TYPING.glob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
MISTAKE = re.compile(r"  # type: ignore\[([\w, -]+)\](  # not pyright)?$")
TYPICAL = 21  # mistakes, at least
BARE = "bare_mistakes.py"  # the planted mistakes without their marks

PlantedMistakes = tuple[Path, dict[int, str], set[int]]


pytestmark = pytest.mark.timeout(400)  # type checkers start without a cache


def run_mypy(*paths: Path) -> str:
    """Return the errors of `mypy --strict`."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes", "--no-pretty"]
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([*command, *config, *map(str, paths)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def run_pyright(folder: Path, *paths: Path) -> list[tuple[Path, int, str]]:
    """Return the errors of pyright, in its default mode: file, line and message."""
    config = {"include": [str(path) for path in paths], "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    file = folder / "pyrightconfig.json"
    file.write_text(json.dumps({**config, "typeCheckingMode": "standard"}), encoding="utf-8")
    program = Path(sys.executable).parent / "basedpyright"
    command = [program, "--project", file, "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(paths), done.stdout
    found = [row for row in report["generalDiagnostics"] if row["severity"] == "error"]
    return [(Path(row["file"]), row["range"]["start"]["line"] + 1, row["message"]) for row in found]


def is_coroutine(code: str) -> bool:
    """Return True if a block awaits outside of functions, as in a notebook."""
    compiled = compile(code, "block", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return bool(compiled.co_flags & CO_COROUTINE)


def write_program(story: Story, folder: Path) -> Path:
    """Write the blocks of a page to a file, each on its own lines; a block that awaits goes into a function."""
    lines = list[str]()
    for block in story.blocks:
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    if awaits := any(is_coroutine(block.code) for block in story.blocks):
        lines = ["    " + line if line else "" for line in lines]
    # The page has a fence before the first block, so there is an empty line for each of these.
    lines[0] = "token: str = 'secret'" if story.served else ""
    lines[story.blocks[0].line - 2] += "async def main() -> None:" if awaits else ""
    path = folder / (re.sub(r"\W+", "_", page_name(story.page)) + f"_{story.blocks[0].line}.py")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The programs that users write: of the docs, of the examples and of tests/typing."""
    folder = tmp_path_factory.mktemp("pages")
    pages = [write_program(story, folder) for page in RUN for story in stories(page)]
    assert len(pages) > 70
    return [*PROGRAMS, *pages]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> PlantedMistakes:
    """The planted mistakes without their marks, the codes of mypy by line, and the lines that pyright accepts."""
    lines = (TYPING / "mistakes.py").read_text(encoding="utf-8").splitlines()
    marks = {number: mark for number, line in enumerate(lines, 1) if (mark := MISTAKE.search(line))}
    bare = tmp_path_factory.mktemp("mistakes") / BARE
    bare.write_text("\n".join(MISTAKE.sub("", line) for line in lines), encoding="utf-8")
    assert len(marks) >= TYPICAL
    return bare, {number: mark[1] for number, mark in marks.items()}, {n for n, mark in marks.items() if mark[2]}


@pytest.fixture(scope="module")
def mypy_errors(programs: list[Path], mistakes: PlantedMistakes) -> list[str]:
    """The errors of mypy in all programs, in one run: most of its time it reads wick."""
    return run_mypy(*programs, mistakes[0]).splitlines()


@pytest.fixture(scope="module")
def pyright_errors(
    programs: list[Path], mistakes: PlantedMistakes, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Path, int, str]]:
    """The errors of pyright in all programs, in one run."""
    return run_pyright(tmp_path_factory.mktemp("pyright"), *programs, mistakes[0])


def test_mypy_accepts_the_programs_of_users(mypy_errors: list[str]) -> None:
    """A marked mistake that is accepted is an error, too: its ignore is unused."""
    assert [line for line in mypy_errors if BARE not in line] == []


def test_pyright_accepts_the_programs_of_users(pyright_errors: list[tuple[Path, int, str]]) -> None:
    assert [error for error in pyright_errors if error[0].name != BARE] == []


def test_mypy_finds_every_planted_mistake(mypy_errors: list[str], mistakes: PlantedMistakes) -> None:
    _, marks, _ = mistakes
    marked = {(number, code) for number, codes in marks.items() for code in codes.split(", ")}
    found = re.findall(rf"{BARE}:(\d+): error: .*\[([\w-]+)\]$", "\n".join(mypy_errors), re.MULTILINE)
    assert {(int(number), code) for number, code in found} == marked


def test_pyright_finds_the_planted_mistakes(
    pyright_errors: list[tuple[Path, int, str]], mistakes: PlantedMistakes
) -> None:
    _, marks, accepted = mistakes
    assert {line for path, line, _ in pyright_errors if path.name == BARE} == marks.keys() - accepted
    assert len(accepted) <= 2
