"""The docs are right: their code runs and prints what they say, nothing is left out, and every link leads somewhere."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, fields
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
from wick.errors import ModelError
from wick.events import Event
from wick.models import resolve
from wick.models.anthropic import Anthropic
from wick.models.demo.intents import ABILITIES
from wick.models.http import RETRYABLE, TimeLimits
from wick.models.local import Local
from wick.models.named import ALIASES, DEFAULTS, FAMILIES, PROVIDERS
from wick.models.openai import OpenAI
from wick.models.responses import OpenAIResponses
from wick.operations import OPERATIONS, Outcome
from wick.protocols import Delta, Request, Usage
from wick.signatures import POSITIONS, allowed
from wick.threads import Kind

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md"]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))

NOT_VARIABLES = {"MSG_CMSG_CLOEXEC", "WICK_CALL"}  # names of the same shape; the second one is only ever set
NOBODY = "127.0.0.1:1"  # where no server listens

FENCE = re.compile(r"(<!-- continues -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def variables(folder: str = "") -> set[str]:
    """The environment variables that wick reads: a module that reads any has their names in its texts."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "wick" / folder).rglob("*.py")]
    readers = [ast.parse(text) for text in texts if re.search(r"\benviron\b|\bgetenv\b", text)]
    found = [node.value for tree in readers for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    names = {name for text in found if isinstance(text, str) for name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)}
    return names - NOT_VARIABLES


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The docs say what happens without a key, and no key of anybody's is used to see whether they are right."""
    for name in variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", NOBODY)
    return monkeypatch


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
def test_the_code_of_a_page_runs(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
    known = {"", "python", "text", "text output", "sh", "toml"}
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


def section(page: Path, heading: str) -> str:
    """What stands under a heading, up to the next one that is as high, without its blocks of code."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = re.search(rf"^(#+) {re.escape(heading)}$(.*?)(?=^(?!\1#)#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[2] if found else ""


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def _capabilities() -> dict[str, list[type[wick.Capability]]]:
    """The capabilities, by the name of their file."""
    modules = [import_module(f"wick.capabilities.{found.name}") for found in iter_modules(wick.capabilities.__path__)]
    return {
        module.__name__.rpartition(".")[2]: [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, wick.Capability) and kind.__module__ == module.__name__
        ]
        for module in modules
    }


def _options(kind: Any) -> set[str]:
    return {name for name in inspect.signature(kind).parameters if name != "model"}


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
    "environment variables of models": (variables("models"), GUIDE / "models.md"),
    "environment variables": (variables(), None),
    "options of a model": (
        set().union(*map(_options, (OpenAI, OpenAIResponses, Anthropic, Local))),
        GUIDE / "models.md",
    ),
    "deltas": ({kind.__name__ for kind in get_args(Delta)}, GUIDE / "models.md"),
    "fields of a request": (_fields(Request), GUIDE / "models.md"),
    "fields of the usage": (_fields(Usage), GUIDE / "models.md"),
    "what a model's error says": ({*vars(ModelError(""))}, GUIDE / "models.md"),
    "what auto takes": ({*DEFAULTS, *DEFAULTS.values()}, GUIDE / "models.md"),
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


@pytest.mark.parametrize("file", _capabilities())
def test_every_capability_has_a_section_with_its_options(file: str) -> None:
    assert _capabilities()[file], "a file of capabilities has one"
    for kind in _capabilities()[file]:
        found = "".join(section(page, kind.__name__) for page in GUIDE.glob("*.md"))
        assert found, f"no page of the guide has a heading {kind.__name__}"
        assert _options(kind) <= set(re.findall(r"\w+", " ".join(codes(found))))


# -- models ---------------------------------------------------------------------------------------------------------

MODELS = GUIDE / "models.md"


def test_the_environment_variables_are_all_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are put together at run time do not escape either."""
    read = set[str]()

    class Listening(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return super().get(name, default)

    monkeypatch.setattr(os, "environ", Listening(os.environ))
    for provider in PROVIDERS:
        try:
            resolve({"provider": provider, "model": "m"})
        except wick.WickError:
            continue
    assert read == variables("models")


def table(page: Path, heading: str, first: str) -> list[list[str]]:
    """The rows of the table under a heading whose first column is headed so."""
    found = re.search(rf"^\| {first} \|.*\n.*\n((?:\|.*\n)+)", section(page, heading), re.MULTILINE)
    assert found, f"{_name(page)} has no table of {first} under {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


NAMED = {codes(row[0])[0].partition(":")[0]: row for row in table(MODELS, "Names", "name")}


def test_the_table_of_names_has_every_provider() -> None:
    assert set(NAMED) == set(PROVIDERS)


@pytest.mark.parametrize("provider", NAMED)
def test_a_name_is_asked_where_the_table_says(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a")
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    monkeypatch.delenv("OLLAMA_HOST")
    example, where = codes(NAMED[provider][1])[0], codes(NAMED[provider][2])
    if provider == "local":
        with pytest.raises(wick.WickError, match="there is no model in the file|wick-agent\\[local]"):
            resolve(example)
        return
    model: Any = resolve(example)
    assert provider in ("demo", "auto") or model.server.url == where[0]


def test_the_table_of_aliases() -> None:
    assert {codes(alias)[0]: codes(means)[0] for alias, means in table(MODELS, "Names", "alias")} == ALIASES


def test_names_without_a_provider_are_those_that_it_says() -> None:
    said = codes(section(MODELS, "Names"))
    for provider, family in FAMILIES.items():
        assert any(re.fullmatch(family, f"{name}x") for name in said if ":" not in name), provider


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SET = {
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 100,
    "stop": ["END"],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "response_format": SCHEMA,
    "extra": {"another": 1},
}
CLIENTS = (OpenAI, OpenAIResponses, Anthropic)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_is_sent_as_the_table_says(setting: str, client: Any) -> None:
    words = {codes(row[0])[0]: row[1:] for row in table(MODELS, "Settings", "setting")}
    said = words[setting][CLIENTS.index(client)]
    model = client("m", base_url="http://localhost:1")
    tools = (wick.tool(len, name="len", parameters={"type": "object"}),)
    request = Request((wick.user("Hi."),), tools=tools, settings={setting: SET[setting]})
    if said == "refused":
        with pytest.raises(ModelError):
            model.body(request)
        return
    sent = json.loads(model.body(request))
    for key in (codes(said) or ["another"])[0].split("."):
        assert key in sent
        sent = sent[key]


def test_the_table_of_time_limits() -> None:
    said = {codes(name)[0]: float(seconds) for name, seconds, _ in table(MODELS, "Time limits", "limit")}
    assert said == asdict(TimeLimits())


def test_what_may_be_asked_again() -> None:
    row = next(line for line in section(MODELS, "When it fails").splitlines() if "529" in line)
    assert {int(status) for status in re.findall(r"\b\d{3}\b", row)} == RETRYABLE


DEMO = table(MODELS, "The demo model", "it can")


def test_the_table_of_the_demo_model_has_all_that_it_can() -> None:
    assert {ability for ability, *_ in DEMO} == set(re.split(", | and (?=hand)", ABILITIES))


@pytest.mark.parametrize(("request_", "tools"), [row[1:] for row in DEMO])
def test_the_demo_model_does_what_the_table_says(request_: str, tools: str) -> None:
    names = {name for row in DEMO for name in codes(row[2])}
    there = [wick.tool(lambda: "done", name=name, description="A tool.") for name in sorted(names)]
    result = wick.Agent("demo", tools=there).run_sync(request_.strip("“”"))
    used = [call.name for message in result.messages for call in message.tool_calls]
    assert [*dict.fromkeys(used)] == codes(tools)


# -- traces ---------------------------------------------------------------------------------------------------------

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
