"""Pages of the docs as tests read them: code blocks and their annotations."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]

NOT_VARIABLES = {"MSG_CMSG_CLOEXEC", "WICK_CALL"}  # names of the same shape; the second one is only ever set
NOBODY = "127.0.0.1:1"  # where no server listens
FENCE = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_blocks(page: Path, *languages: str) -> list[tuple[str, int, str, str]]:
    """Return the code blocks of a page: annotation, line, language and text."""
    text = page.read_text(encoding="utf-8")
    found = [(one[1] or "", text.count("\n", 0, one.start(3)) + 1, one[2], one[3]) for one in FENCE.finditer(text)]
    return [one for one in found if not languages or one[2] in languages]


@cache
def environment_variables(folder: str = "") -> set[str]:
    """The environment variables that wick reads: a module that reads any has their names in its texts."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "wick" / folder).rglob("*.py")]
    readers = [ast.parse(text) for text in texts if re.search(r"\benviron\b|\bgetenv\b", text)]
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
