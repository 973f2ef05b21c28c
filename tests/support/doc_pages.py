"""Pages of the docs as tests read them: code blocks and their annotations."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "examples" / "README.md",
]

CONTINUES, SERVED, NOT_RUN = "continues", "with a server", "not run: "  # what may stand in the comment before a block
ELSEWHERE = {ROOT / "docs" / "tour.md"}  # its blocks are run in order, in an empty folder, by tests of their own
RUN = [page for page in MARKDOWN if page not in ELSEWHERE]

SHELL_VARIABLES = {"COMP_LINE", "COMP_POINT", "COMP_WORDBREAKS", "COMP_WORDS"}  # set by a shell that completes a line
# Names of the same shape; WICK_CALL is only ever set.
NOT_VARIABLES = {"MSG_CMSG_CLOEXEC", "WICK_CALL", *SHELL_VARIABLES}
NOBODY = "127.0.0.1:1"  # where no server listens
FENCE = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_blocks(page: Path, *languages: str) -> list[tuple[str, int, str, str]]:
    """Return the code blocks of a page: annotation, line, language and text."""
    text = page.read_text(encoding="utf-8")
    found = [(one[1] or "", text.count("\n", 0, one.start(3)) + 1, one[2], one[3]) for one in FENCE.finditer(text)]
    return [one for one in found if not languages or one[2] in languages]


@dataclass
class Block:
    """A piece of Python in a page, and what it should print; None if the page does not say."""

    line: int
    code: str
    output: str | None = None


@dataclass
class Story:
    """Blocks that continue each other, with `<!-- continues -->` before each but the first."""

    page: Path
    blocks: list[Block] = field(default_factory=list)
    served: bool = False

    def __str__(self) -> str:
        return f"{page_name(self.page)}:{self.blocks[0].line}"


def stories(page: Path) -> list[Story]:
    found = list[Story]()
    for about, line, language, body in code_blocks(page, "python", "text output"):
        if about.startswith(NOT_RUN):
            continue
        if language == "text output":
            found[-1].blocks[-1].output = body
            continue
        if about != CONTINUES:
            found.append(Story(page, served=about == SERVED))
        found[-1].blocks.append(Block(line, body))
    return found


def write_app(page: Path, folder: Path, blocks: int) -> None:
    """Write the first blocks of a page as `app.py`, and its HTML as `index.html`."""
    code = "\n".join(block.code for block in stories(page)[0].blocks[:blocks])
    (folder / "app.py").write_text(code, encoding="utf-8")
    ((_, _, _, html),) = code_blocks(page, "html")
    (folder / "index.html").write_text(html, encoding="utf-8")


@contextmanager
def run_uvicorn(folder: Path, app: str = "app:app") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve an app of a folder with uvicorn, as a reader of the page does; yield its address and its process."""
    command = [sys.executable, "-m", "uvicorn", app, "--port", "0", "--timeout-graceful-shutdown", "2"]
    log = folder / "uvicorn.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if found := re.search(r"running on (http://\S+)", log.read_text(encoding="utf-8")):
                break
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.05)
        assert found, log.read_text(encoding="utf-8")
        yield found[1], process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)


@cache
def environment_variables(folder: str = "") -> set[str]:
    """The environment variables that wick reads: a module that reads any has their names in its texts."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "wick" / folder).rglob("*.py")]
    readers = [ast.parse(text) for text in texts if re.search(r"\b(?:environ|getenv|read_variable)\b", text)]
    found = [node.value for tree in readers for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    names = {name for text in found if isinstance(text, str) for name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)}
    return names - NOT_VARIABLES


@pytest.fixture(autouse=True)
def remove_keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The docs describe behaviour without keys, so tests use none."""
    for name in environment_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", NOBODY)
    return monkeypatch
