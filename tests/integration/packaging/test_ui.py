"""The web interface as a program: its types are the server's, its own tests pass, and it ships as it should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from doc_pages import PAGES, code_blocks
from wick.server.static_files import BUILT_PAGES

ROOT = Path(__file__).parents[3]
UI = ROOT / "ui"
SOURCES = [path for path in (UI / "src").rglob("*") if path.is_file()]
SHIPPED = [path for path in SOURCES if ".test." not in path.name]
FIRST_LOAD_KB = 350


def node(*command: str, seconds: int = 110) -> str:
    """Return the output of a Node program of the UI; skip if it cannot run."""
    if subprocess.run([ROOT / "scripts" / "find-node"], capture_output=True, timeout=30).returncode:
        pytest.skip("no Node.js: install Node.js 20.19 or newer")
    if not (UI / "node_modules").is_dir():
        pytest.skip("the packages of the interface are not installed: make ui")
    done = subprocess.run(["npx", "--no-install", *command], cwd=UI, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- sources ----------------------------------------------------------------------------------------------------------


def test_the_description_is_the_servers_own() -> None:
    described = run_path(str(ROOT / "scripts" / "openapi.py"))["described"]()
    kept = (UI / "openapi.json").read_text(encoding="utf-8")
    assert json.loads(kept) == json.loads(described), "run scripts/openapi.py: the routes have changed"
    assert kept == described


def test_the_types_follow_from_the_description(tmp_path: Path) -> None:
    command = json.loads((UI / "package.json").read_text())["scripts"]["types"].split()
    assert command[-1] == "src/api/schema.ts"
    node(*command[:-1], str(tmp_path / "schema.ts"))
    made = (tmp_path / "schema.ts").read_text(encoding="utf-8")
    assert made == (UI / "src" / "api" / "schema.ts").read_text(encoding="utf-8"), "run scripts/openapi.py"


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((UI / "package-lock.json").read_text())
    packages = {name: about for name, about in lock["packages"].items() if name and not about.get("link")}
    assert packages
    assert [name for name, about in packages.items() if "resolved" in about] == []
    assert [name for name, about in packages.items() if not about.get("integrity", "").startswith("sha512-")] == []


def test_the_lock_has_the_parts_for_each_system() -> None:
    """npm ignores packages missing in the lock, and the page could be built on one system only."""
    packages = json.loads((UI / "package-lock.json").read_text())["packages"]
    parts = {part for about in packages.values() for part in about.get("optionalDependencies", {})}
    native = {part for part in parts if re.search(r"(linux|darwin|win32)-(x64|arm64)", part)}
    assert len(native) > 10
    assert {part for part in native if f"node_modules/{part}" not in packages} == set()


# -- code of the docs -------------------------------------------------------------------------------------------------


def test_react_code_of_the_docs_compiles(tmp_path: Path) -> None:
    blocks = [(page, line, body) for page in PAGES for _, line, _, body in code_blocks(page, "tsx")]
    assert blocks
    (tmp_path / "node_modules").symlink_to(UI / "node_modules")  # for the types of React
    for page, line, body in blocks:
        (tmp_path / f"{page.stem}_{line}.tsx").write_text("\n" * (line - 1) + body, encoding="utf-8")
    config = {"extends": str(UI / "tsconfig.json"), "include": ["*.tsx"], "compilerOptions": {"types": []}}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config), encoding="utf-8")
    node("tsc", "--project", str(tmp_path / "tsconfig.json"))


# -- no sample data ---------------------------------------------------------------------------------------------------

# Made-up people, ids and times; and rows of objects that hold nothing but words and numbers, more than a few of them.
MADE_UP = re.compile(
    r"""(?ix) \b(lorem|ipsum|foo\s?bar|john\ doe|jane\ doe|acme)\b
    | \b(mock|sample|dummy|fake|demo)_?(data|messages?|threads?|runs?|agents?|rows?|files?|users?)\b
    | \b(run|thread|call)_[0-9a-f]{6,}
    | \b20\d\d-\d\d-\d\d(T|\b)
    | [\w.]+@[\w-]+\.(com|org|net)\b
    """
)
ROW = re.compile(r"\{\s*(?:\"?\w+\"?:\s*(?:\"[^\"{}]*\"|-?[\d.]+|true|false|null)\s*,?\s*){3,}\}")
MOST_ROWS = 6


def made_up(text: str) -> list[str]:
    """Return text that looks like invented data."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", text, flags=re.DOTALL)
    rows = ROW.findall(code)
    return [found[0] for found in MADE_UP.finditer(code)] + (rows if len(rows) > MOST_ROWS else [])


def test_the_build_contains_no_sample_data() -> None:
    assert {path.suffix for path in SOURCES} <= {".ts", ".tsx", ".css"}
    texts = {path: path.read_text(encoding="utf-8") for path in SHIPPED if path.name != "schema.ts"}
    assert {str(path.relative_to(UI)): found for path, text in texts.items() if (found := made_up(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "const MOCK_THREADS = [];",
        'const run = "run_5f22ca40693f6e82";',
        'const made = { day: "2026-01-02" };',
        "const ROWS = [" + ", ".join(f'{{ name: "r{n}", cost: {n}, model: "m" }}' for n in range(7)) + "];",
    ],
)
def test_sample_data_would_be_found(text: str) -> None:
    assert made_up(text)


def test_the_ui_writes_no_html() -> None:
    """External content is text: no API that creates markup is used."""
    words = re.compile(
        r"dangerouslySetInnerHTML|\.(inner|outer)HTML\s*[+|&?]*=(?!=)|insertAdjacentHTML|setHTMLUnsafe|createContextualFragment"
        r"|document\.write|\beval\(|new Function"
    )
    assert [path.name for path in SHIPPED if words.search(path.read_text(encoding="utf-8"))] == []


# -- its own tests ----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)  # on a busy machine it takes long to make documents
def test_its_own_tests_pass(tmp_path: Path) -> None:
    report = tmp_path / "vitest.json"
    # Files that share a document take a third of the processor time; `make test-full` isolates them.
    isolation = "--isolate" if os.environ.get("WICK_FULL") else "--no-isolate"
    node("vitest", "run", isolation, "--reporter=dot", "--reporter=json", f"--outputFile={report}", seconds=580)
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["numFailedTests"] == 0 and found["numPassedTests"] == found["numTotalTests"] > 50


# -- build output -----------------------------------------------------------------------------------------------------


def built() -> Path:
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the interface is not built: make ui")
    return BUILT_PAGES


@pytest.mark.long
def test_the_initial_bundle_is_small(tmp_path: Path) -> None:
    """In a real browser; and the editor, the terminal and the like come when they are asked for."""
    built()
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("no browser: apt-get install chromium")
    command = [sys.executable, str(ROOT / "bench" / "ui.py"), "--quick", "--json", str(tmp_path / "ui.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=115)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "ui.json").read_text())["rows"]
    sizes = {row["case"]: row["gzip_kb"] for row in rows if row["group"] in ("first load", "panel")}
    assert 50 < sizes.pop("sign in and chat") <= FIRST_LOAD_KB
    assert all(kb > 0 for kb in sizes.values()) and sizes["terminal"] > 50, "panels come when they are opened"
    scrolls = [row for row in rows if row["group"] == "scroll"]
    assert all(0 < row["drawn"] < 60 < row["entries"] for row in scrolls), "only what is looked at is drawn"
