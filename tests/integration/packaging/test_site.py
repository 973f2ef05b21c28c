"""The site that `make docs` builds: strict, complete, and without external resources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import wick
from wick import constants, errors, events
from wick.cli.checks.doctor import EXTRAS
from wick.config import RINGS
from wick.server.auth.access_table import ACCESS
from wick.server.settings import Settings

pytest.importorskip("mkdocs", reason="pip install 'wick-agent[docs]' builds the site")

pytestmark = pytest.mark.timeout(400)  # the site is built in a test
BUILD_SECONDS = 300
ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "srcset",
    "link": "href",
    "video": "src",
    "use": "href",
}


class _Page(HTMLParser):
    """Loaded resources, links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.ids = list[str](), list[str](), set[str]()
        self.menu, self._nav = list[str](), 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.ids |= {told[key] for key in ("id", "name") if key in told}
        self._nav += tag == "nav"
        if tag == "a" and "href" in told:
            self.links.append(told["href"])
            self.menu += [told["href"]] if self._nav else []
        elif tag in LOADED and told.get("rel") not in ("prev", "next", "canonical"):
            self.loads += [told[LOADED[tag]].partition(" ")[0]] if told.get(LOADED[tag]) else []

    def handle_endtag(self, tag: str) -> None:
        self._nav -= tag == "nav"


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with the packages of the extra `docs` alone: the reference imports modules of extras."""
    folder = tmp_path_factory.mktemp("docs")
    blocked = dict.fromkeys(_modules_outside_docs())
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update({blocked})\n")
    paths = f"{folder}{os.pathsep}{ROOT / 'src'}"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return folder / "site"


def _modules_outside_docs() -> list[str]:
    """Return the modules of extras that are not requirements of the extra `docs`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    installed = {"docs", *re.findall(r"\w+", project["docs"][1].partition("[")[2])}
    installed |= {*re.findall(r"\w+", project["server"][-1].partition("[")[2])}
    kept = {module for extra in installed & EXTRAS.keys() for module in EXTRAS[extra].values()}
    missing = {module for modules in EXTRAS.values() for module in modules.values()} - kept
    assert missing
    return sorted(missing)


def _pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def test_every_page_is_in_the_menu(site: Path) -> None:
    index = site / "index.html"
    menu = {(index.parent / unquote(urlsplit(link).path)).resolve() for link in _read(index).menu}
    written = {site / path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    named = {path.with_name("index.html") if path.name == "README.html" else path for path in written}
    assert {path for path in named if not path.exists()} == set()
    assert named - menu == set()


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    broken = [f"{page.relative_to(site)}: {link}" for page in _pages(site) for link in {*_read(page).links}
              if not _leads(page, link)]  # fmt: skip
    assert broken == []


def _leads(page: Path, link: str) -> bool:
    there = urlsplit(link)
    if there.scheme or there.netloc:
        return there.scheme in ("https", "http", "mailto")
    target = (page.parent / unquote(there.path)).resolve() if there.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return not there.fragment or target.suffix != ".html" or unquote(there.fragment) in _read(target).ids


def test_the_site_loads_no_external_resources(site: Path) -> None:
    loaded = {load for page in site.rglob("*.html") for load in _read(page).loads}
    assert loaded
    assert [load for load in loaded if re.match(r"(?:[a-z]+:)?//", load)] == []
    styles = [
        text
        for path in site.rglob("*.css")
        for text in re.findall(r"url\(([^)]*)\)|@import ([^;]*)", path.read_text("utf-8"))
    ]
    assert [style for style in styles if re.match(r"""["']?(?:[a-z]+:)?//""", "".join(style))] == []


def test_every_picture_is_there_and_has_a_text(site: Path) -> None:
    for page in _pages(site):
        text = page.read_text(encoding="utf-8")
        for tag in re.findall(r"<img [^>]*>", text):
            assert 'alt="' in tag, f"{page.relative_to(site)}: {tag}"
    lost = [f"{page.relative_to(site)}: {load}" for page in _pages(site) for load in _read(page).loads
            if not load.startswith("data:") and not (page.parent / unquote(urlsplit(load).path)).is_file()]  # fmt: skip
    assert lost == []


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_has_a_description_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"<title[^>]*>\w", text)
    assert not re.search(r"(?:href|src)=\"http|<script|<image|@import", text)


REFERENCE = {
    "api": lambda: [name.lower() for name in wick.__all__],
    "capabilities": lambda: [ring.kind.lower() for ring in RINGS if ring.kind],
    "events": lambda: [kind.event for kind in events.Event.__subclasses__()],
    "errors": lambda: [name.lower() for name, kind in vars(errors).items() if isinstance(kind, type)],
    "agents-yaml": lambda: [ring.key for ring in RINGS],
}


@pytest.mark.parametrize("page", REFERENCE)
def test_the_reference_has_a_heading_for_each(page: str, site: Path) -> None:
    assert {*REFERENCE[page]()} - _read(site / "reference" / f"{page}.html").ids == set()


def test_the_reference_has_every_route_setting_and_cap(site: Path) -> None:
    def codes(page: str) -> set[str]:
        return {*re.findall(r"<code>([^<]+)</code>", (site / "reference" / f"{page}.html").read_text("utf-8"))}

    assert {path for _, path, _ in ACCESS} - codes("http") == set()
    assert {*Settings.model_fields} - codes("server-yaml") == set()
    assert {name for name in vars(constants) if name.isupper()} - codes("caps") == set()


def test_code_is_shown_as_code(site: Path) -> None:
    """An unparsed fence would be shown as text."""
    for page in _pages(site):
        shown = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```" not in shown, page.relative_to(site)


# -- search -----------------------------------------------------------------------------------------------------------

SEARCHES = {  # words that readers search for, and the page that they need
    "approvals": "how-to/approvals-in-fastapi",
    "authentication": "guide/authentication",
    "azure": "how-to/providers",
    "budget": "guide/budget",
    "budget for each user": "guide/budget",
    "cancel": "guide/agents",
    "chat backend": "how-to/chat-backend",
    "cli": "guide/cli",
    "context window": "guide/summaries",
    "conversation history": "guide/threads",
    "cassette": "how-to/record-model-replies",
    "cost": "guide/budget",
    "costs": "guide/budget",
    "debug": "how-to/debug-a-tool",
    "dependency injection": "how-to/dependencies",
    "dollars": "guide/budget",
    "docker": "how-to/deploy",
    "evals": "guide/evals",
    "evaluate": "how-to/evaluate",
    "edit arguments": "how-to/approvals-in-fastapi",
    "eventsource": "how-to/stream-to-browser",
    "expiry": "guide/sessions",
    "fastapi": "how-to/chat-backend",
    "gemini": "how-to/providers",
    "guardrails": "guide/guards",
    "html": "how-to/stream-to-browser",
    "human in the loop": "guide/ask_user",
    "hitl": "how-to/approvals-in-fastapi",
    "jupyter": "how-to/jupyter",
    "kubernetes": "how-to/deploy",
    "last-event-id": "how-to/chat-backend",
    "mcp": "guide/mcp",
    "memory": "guide/threads",
    "mypy": "how-to/type-checking",
    "notebook": "how-to/jupyter",
    "openrouter": "how-to/providers",
    "parallel": "how-to/parallel-agents",
    "postgres": "guide/stores",
    "proxy": "how-to/company-proxy",
    "pydantic": "how-to/structured-output",
    "react": "how-to/stream-to-react",
    "record": "how-to/record-model-replies",
    "retry": "guide/resilience",
    "streaming": "guide/events",
    "stream": "how-to/stream-to-browser",
    "structured output": "how-to/structured-output",
    "subagent": "guide/subagents",
    "systemd": "how-to/deploy",
    "test": "guide/testing",
    "timeout": "guide/resilience",
    "webhook": "how-to/webhooks",
}
FIRST = 3  # results that a reader looks at
FIRST_RESULTS = {  # words with several pages for several meanings: the first results, in any order
    "cassette": ["how-to/record-model-replies"],
    "cost": ["guide/budget"],
    "evals": ["guide/evals", "how-to/evaluate"],
    "human in the loop": ["how-to/approvals-in-a-terminal", "how-to/approvals-in-fastapi"],
    "memory": ["guide/memory", "guide/threads"],
    "streaming": ["how-to/stream-to-browser"],
    "subagent": ["guide/subagents"],
}


def test_task_words_find_their_page(site: Path) -> None:
    if not (node := shutil.which("node")):
        pytest.skip("the search of the theme runs in Node.js")
    wanted = {query: page for query, page in SEARCHES.items() if (DOCS / f"{page}.md").exists()}
    assert len(wanted) >= 25
    command = [node, str(ROOT / "tests" / "support" / "site_search.mjs"), str(site)]
    done = subprocess.run(command, input=json.dumps([*wanted]), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = {query: pages[:FIRST] for query, pages in json.loads(done.stdout).items()}
    assert {query: found[query] for query, page in wanted.items() if f"{page}.html" not in found[query]} == {}
    first = {query: sorted(page.removesuffix(".html") for page in found[query][: len(pages)])
             for query, pages in FIRST_RESULTS.items()}  # fmt: skip
    assert first == FIRST_RESULTS


def test_internal_pages_are_not_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    pages = {entry["location"].partition("#")[0] for entry in index["docs"]}
    internal = ("decisions/", "project/src/", "project/tests/", "project/scripts/", "writing.", "heart.", "promises.")
    assert len(pages) > 60
    assert [page for page in pages if page.startswith(internal)] == []
    assert (site / "writing.html").is_file()  # it is still a page
