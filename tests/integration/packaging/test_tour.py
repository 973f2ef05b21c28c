"""The tour is its own script: its blocks run in order, in an empty folder, with wick installed from the wheel.

`sh` is typed into a terminal, or `<!-- in a second terminal -->`. A block whose first line is a comment with the name
of a file (`# first.py`) is that file. `text output` is what the block before it prints: `…` stands for anything, a line
of its own with it for any lines, and an id (`th_…`) for the one that is there, from then on.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

import pytest

from doc_pages import ROOT, code_blocks
from ports import own_port
from wheel_install import build_wheel, plain_programs, wheelhouse
from wick.server.static_files import BUILT_PAGES

TOUR = ROOT / "docs" / "tour.md"
PAGE_PORT = "127.0.0.1:8000"
FROM_REPOSITORY = " @ git+https://github.com/wick-agents/wick"  # the test installs the wheel of this source tree
SECOND = "in a second terminal"
ID = re.compile(r"\b(?:th|ask|run)_[0-9a-f]{12}\b")
SECONDS = 300  # for commands that take seconds on an idle machine


@dataclass
class Step:
    """A block of the page with its expected output; None if the page has none."""

    line: int
    body: str
    second: bool = False
    output: str | None = None

    @property
    def file(self) -> str:
        """The file that it is, if it is one."""
        found = re.match(r"(?:#!.*\n)?# (\S+)\n", self.body)
        return found[1] if found and not found[1].endswith(":") else ""


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for about, line, language, body in code_blocks(page, "sh", "python", "text output"):
        if language == "text output":
            found[-1].output = body
        else:
            found.append(Step(line, body, about == SECOND))
    return found


@dataclass
class Ids:
    """The ids of this machine, by the ids of the page."""

    known: dict[str, str] = field(default_factory=dict)

    def replace(self, text: str) -> str:
        """Return the expected text with the ids of this machine."""
        return ID.sub(lambda found: self.known.get(found[0], found[0]), text)

    def learn(self, shown: str, printed: str) -> bool:
        """Return True if the output matches; remember its ids."""
        new: dict[str, str] = {}
        found = re.fullmatch(self._pattern(_tidy(shown), new), _tidy(printed))
        if found is None:
            return False
        self.known |= {id: found[group] for id, group in new.items()}
        return True

    def _pattern(self, shown: str, new: dict[str, str]) -> str:
        lines = []
        for line in shown.splitlines(keepends=True):
            if line.strip() == "…":
                lines.append(r"(?:.*\n)*?")
                continue
            parts = re.split(rf"({ID.pattern}|…)", line)
            lines.append("".join(self._part(part, new) for part in parts))
        return "".join(lines)

    def _part(self, part: str, new: dict[str, str]) -> str:
        if part == "…":
            return ".*"
        if not ID.fullmatch(part):
            return re.escape(part)
        if part in self.known:
            return re.escape(self.known[part])
        if part in new:
            return rf"(?P={new[part]})"
        new[part] = f"id{len(new)}"
        return rf"(?P<{new[part]}>{part.partition('_')[0]}_[0-9a-f]+)"


def _tidy(text: str) -> str:
    """Spaces at the end of a line do not show, and neither do empty lines at the beginning and at the end."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


class Terminal:
    """A shell that keeps folder and variables between blocks; commands get no input."""

    def __init__(self, folder: Path, environment: dict[str, str], name: str) -> None:
        self._script, self._printed = folder.parent / f"{name}.sh", folder.parent / f"{name}.out"
        self._printed.touch()
        with self._printed.open("ab") as printed:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                stdout=printed, stderr=printed, start_new_session=True,
            )  # fmt: skip

    def run(self, command: str) -> tuple[int, str]:
        """Run a block to its end; return exit code and output."""
        before = len(self.printed)
        self.begin(f"{command}\nprintf '\\nENDED %s\\n' $?")
        said = self.wait_for(r"\nENDED (\d+)\n\Z", before)
        text, _, code = self.printed[before:].rpartition("\nENDED ")
        assert said, f"it does not end:\n{text}"
        return int(code), text

    def begin(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._script.write_text(command)
        self._shell.stdin.write(f". {quote(str(self._script))} </dev/null\n".encode())
        self._shell.stdin.flush()

    @property
    def printed(self) -> str:
        return self._printed.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, pattern: str, start: int = 0) -> bool:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if re.search(pattern, self.printed[start:]):
                return True
            time.sleep(0.02)
        return False

    def end(self) -> None:
        """Send Ctrl-C to running commands and close."""
        os.killpg(self._shell.pid, signal.SIGINT)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(30)
        finally:
            if self._shell.poll() is None:
                os.killpg(self._shell.pid, signal.SIGKILL)
                self._shell.wait(10)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the tour: Python, common programs, and a registry with wick."""
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the interface is not built: make ui")
    (tmp_path / "dist").mkdir()
    made = build_wheel(tmp_path / "dist")
    house = wheelhouse(tmp_path, f"{made}[server]")
    shutil.copy(made, house)
    programs = plain_programs(tmp_path / "programs")
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "home").mkdir()
    with own_port() as port:
        yield {
            "HOME": str(tmp_path / "home"),
            "PATH": str(programs),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "OLLAMA_HOST": "127.0.0.1:1",  # no owner
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(house),
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "WICK_PORT": str(port),
        }


@pytest.fixture
def terminals(tmp_path: Path, machine: dict[str, str]) -> Iterator[list[Terminal]]:
    (tmp_path / "here").mkdir()
    opened = [Terminal(tmp_path / "here", machine, "first")]
    yield opened
    for terminal in reversed(opened):
        terminal.end()


@pytest.mark.timeout(900)
def test_the_tour(terminals: list[Terminal], machine: dict[str, str], tmp_path: Path) -> None:
    ids, port, folder = Ids(), f"127.0.0.1:{machine['WICK_PORT']}", tmp_path / "here" / "tour"
    for step in steps(TOUR):
        body = ids.replace(step.body).replace(PAGE_PORT, port).replace(FROM_REPOSITORY, "")
        output = None if step.output is None else step.output.replace(PAGE_PORT, port)
        where = f"docs/tour.md, line {step.line}"
        if step.file:
            (folder / step.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.file).write_text(body, encoding="utf-8")
        elif step.second:
            terminals.append(Terminal(folder, machine, "second"))
            terminals[-1].begin(body)
            assert terminals[-1].wait_for("protection"), f"{where}:\n{terminals[-1].printed}"
            assert output is not None and ids.learn(output, terminals[-1].printed), terminals[-1].printed
        else:
            code, printed = terminals[0].run(body)
            assert output is None or ids.learn(output, printed), f"{where}:\n{printed}"
            assert code == 0, f"{where}: exit code {code}\n{printed}"


# -- the reading of the page ------------------------------------------------------------------------------------------


def test_every_block_is_run_or_compared() -> None:
    kinds = {language for _, _, language, _ in code_blocks(TOUR)}
    assert kinds == {"sh", "python", "text output"}
    assert all(step.file for step in steps(TOUR) if "import" in step.body.split()), "a file has a name"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a  \nb", True),
        ("a\nb\n", "a\nc\n", False),
        ("a …\n", "a b c\n", True),
        ("a …\n", "b c\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nb\nc\n", False),
        ("th_000000000000 th_000000000000\n", "th_abcdefabcdef th_abcdefabcdef\n", True),
        ("th_000000000000 th_000000000000\n", "th_abcdefabcdef th_aaaaaaaaaaaa\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert Ids().learn(shown, printed) is same


def test_ids_are_consistent() -> None:
    ids = Ids()
    assert ids.learn("made th_000000000000\n", "made th_abcdefabcdef\n")
    assert ids.replace("wick run --thread th_000000000000") == "wick run --thread th_abcdefabcdef"
    assert not ids.learn("th_000000000000\n", "th_aaaaaaaaaaaa\n")
