"""The page of the guide about backends leaves nothing out: no operation, no field of an answer, no code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import is_typeddict

from wick.protocols import Backend
from wick.wickd import zipapp
from wick.workspace import results
from wick.workspace.os_errors import SENTENCES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "guide" / "backends.md").read_text(encoding="utf-8")
SOURCES = [ROOT / "src" / name for name in zipapp.read_sources() if name.startswith("wick/w")]
OPERATIONS = {name for name, part in vars(Backend).items() if callable(part) and not name.startswith("_")}
SHAPES = [kind for kind in vars(results).values() if is_typeddict(kind)]


def codes(text: str) -> set[str]:
    """Return inline code of a page."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))


def test_the_page_has_every_operation_and_result() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)\(", row)} >= OPERATIONS
    for shape in SHAPES:
        assert any(set(shape.__annotations__) <= codes(row) for row in rows), shape.__name__


def test_the_page_has_every_code() -> None:
    table = PAGE.partition("## Error codes")[2].partition("\n## ")[0]
    said = {name for row in table.splitlines() if row.startswith("| `") for name in codes(row.split("|")[1])}
    assert _given() == said, _given() ^ said


WITHIN = {"no_engine"}  # messages of the daemon to wick only


def _given() -> set[str]:
    """The codes that a BackendError has: those it is given in the source, and those of the system's errors."""
    found = {code for code, _ in SENTENCES.values()}
    for path in [*SOURCES, *(ROOT / "src" / "wick" / "backends").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("BackendError", "EngineError"):
                found |= {arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)}
    return found - WITHIN
