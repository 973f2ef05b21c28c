"""The docs are right: their code runs and prints what they say, nothing is left out, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, get_args

import pytest

import wick
import wick.capabilities
from wick.agent import SETTINGS
from wick.aliases import POINT_NAMES
from wick.decisions import STOPS
from wick.events import Event
from wick.operations import OPERATIONS, Outcome
from wick.signatures import POSITIONS, allowed
from wick.threads import Kind

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))

FENCE = re.compile(r"(<!-- continues -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# -- code in the pages ----------------------------------------------------------------------------------------------


@dataclass
class Block:
    """A piece of Python in a page, and what it should print; None if the page does not say."""

    line: int
    code: str
    output: str | None = None


@dataclass
class Story:
    """Blocks that go on from each other: `<!-- continues -->` stands before every one but the first."""

    page: Path
    blocks: list[Block] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{_name(self.page)}:{self.blocks[0].line}"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def stories(page: Path) -> list[Story]:
    text, found = page.read_text(encoding="utf-8"), list[Story]()
    for fence in FENCE.finditer(text):
        continues, language, body = fence.groups()
        if language == "python":
            if not continues:
                found.append(Story(page))
            found[-1].blocks.append(Block(text.count("\n", 0, fence.start(3)) + 1, body))
        elif language == "text output":
            found[-1].blocks[-1].output = body
    return found


@pytest.mark.parametrize("story", [story for page in PAGES for story in stories(page)], ids=str)
def test_the_code_of_a_page_runs(story: Story) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in story.blocks:
        padding = "\n" * (block.line - 1)  # so that a traceback names the line of the page
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(padding + block.code, story.page, "exec"), names)
        if block.output is not None:
            assert _lines(printed.getvalue()) == _lines(block.output), f"{_name(story.page)}, line {block.line}"


def _lines(text: str) -> list[str]:
    """Spaces at the end of a line do not show, and editors remove them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_every_kind_of_fence_is_known() -> None:
    """A misspelt one would be code that nobody checks."""
    known = {"", "python", "text", "text output", "sh"}
    odd = [f"{_name(page)}: {found[2]!r}" for page in PAGES for found in FENCE.finditer(page.read_text("utf-8"))
           if found[2] not in known]  # fmt: skip
    assert not odd, "\n".join(odd)


# -- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    said = path.read_text(encoding="utf-8").partition("\n# prints:\n")[2]
    expected = [line.removeprefix("#").removeprefix(" ") for line in said.splitlines()]
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-W", "error", str(path)], cwd=tmp_path, env=environment,
                          capture_output=True, encoding="utf-8", timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert expected, "the example ends with a comment `# prints:` and what it prints"
    assert _lines(done.stdout) == _lines("\n".join(expected))


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_an_example_is_short_and_listed(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert f"({path.name})" in (path.parent / "README.md").read_text(encoding="utf-8")


def test_the_first_example_is_there() -> None:
    assert EXAMPLES[0].name == "01_hello.py"


# -- nothing is left out --------------------------------------------------------------------------------------------


@cache
def code(*pages: Path) -> str:
    """Everything that the pages write as code: a name that happens to be an English word must stand there."""
    texts = [page.read_text(encoding="utf-8") for page in pages or MARKDOWN]
    blocks = [found[3] for text in texts for found in FENCE.finditer(text)]
    return "\n".join([*blocks, *(found for text in texts for found in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)))])


def missing(names: set[str], *pages: Path) -> list[str]:
    return sorted(name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", code(*pages)))


def rows(page: Path, column: int) -> dict[str, list[str]]:
    """The rows of a page's tables, by the first code in that column."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    named = [(re.search(r"`([^`]+)`", row[column]), row) for row in cells if len(row) > column]
    return {found[1]: row for found, row in named if found}


def _capabilities() -> set[str]:
    modules = [import_module(f"wick.capabilities.{found.name}") for found in iter_modules(wick.capabilities.__path__)]
    classes = {thing for module in modules for thing in vars(module).values() if isinstance(thing, type)}
    return {kind.__name__ for kind in classes if issubclass(kind, wick.Capability) and kind is not wick.Capability}


def _make_targets() -> set[str]:
    return {f"make {name}" for name in re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)}


def _fields(kind: Any) -> set[str]:
    return {part.name for part in fields(kind)}


def _events() -> list[type[Event]]:
    return Event.__subclasses__()


NAMES = {
    "public names": (set(wick.__all__), ROOT / "docs" / "index.md"),
    "hook points": (set(POINT_NAMES), GUIDE / "hooks.md"),
    "events": ({kind.event for kind in _events()}, GUIDE / "events.md"),
    "event classes": ({kind.__name__ for kind in _events()}, GUIDE / "events.md"),
    "capabilities": (_capabilities(), None),
    "settings": (set(SETTINGS), GUIDE / "agents.md"),
    "outcomes": ({*get_args(Outcome), *STOPS}, GUIDE / "agents.md"),
    "fields of a result": (_fields(wick.Result), GUIDE / "agents.md"),
    "fields of a message": (_fields(wick.Message) - {"cache"}, GUIDE / "messages.md"),
    "kinds of entries": (set(get_args(Kind)), GUIDE / "threads.md"),
    "options of a hook": (_fields(wick.Hook) - {"fn", "operation", "position", "owner", "matches"}, GUIDE / "hooks.md"),
    "options of a tool": (_fields(wick.Tool) - {"fn", "foreign", "origin"}, GUIDE / "tools.md"),
    "make targets": (_make_targets(), None),
}


@pytest.mark.parametrize("what", NAMES)
def test_every_name_is_in_the_docs(what: str) -> None:
    names, page = NAMES[what]
    assert names
    left_out = missing(names, *([page] if page else []))
    assert not left_out, f"{_name(page) if page else 'the docs'} say nothing of these {what}: {', '.join(left_out)}"


def test_the_table_of_points_says_what_may_be_answered() -> None:
    table = rows(GUIDE / "hooks.md", 0)
    for position in POSITIONS:
        for operation in OPERATIONS:
            said = set(re.findall(r"`(\w+)`", table[f"{position}_{operation.name}"][-1]))
            assert said == {kind.__name__ for kind in allowed(position, operation.name)}


def test_the_table_of_operations_says_what_can_be_changed() -> None:
    table = rows(GUIDE / "hooks.md", 0)
    for operation in OPERATIONS:
        assert tuple(re.findall(r"`(\w+)`", table[operation.__name__][1])) == operation.editable


@pytest.mark.parametrize("kind", _events(), ids=lambda kind: kind.event)
def test_the_table_of_events_has_every_field(kind: type[Event]) -> None:
    event, name, data = rows(GUIDE / "events.md", 0)[kind.event][:3]
    assert name.strip(" `") == kind.__name__, event
    assert _fields(kind) - _fields(Event) <= set(re.findall(r"`(\w+)`", data))


TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from wick import Agent, Scripted, ToolCall, assistant

memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)
Agent(Scripted(assistant("", ToolCall("1", "len", {"obj": 1})), "Done."), tools=[], name="a").run_sync("Go on.")
for span in memory.get_finished_spans():
    print(span.name, *span.attributes, sep="\\n")
"""


def test_every_span_and_attribute_is_in_the_docs() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", TRACED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.split("\n")) - {""}
    assert "llm.call" in names
    assert missing(names, GUIDE / "agents.md") == []


# -- links ----------------------------------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken(page: Path) -> list[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    broken = []
    for target in targets:
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(f"{_name(page)}: {target}")
    return broken


@pytest.mark.parametrize("page", MARKDOWN, ids=_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert _broken(page) == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, todo = set[Path](), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in reached or not page.is_relative_to(ROOT / "docs"):
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        todo += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert {_name(page) for page in PAGES[1:]} - {_name(page) for page in reached} == set()
