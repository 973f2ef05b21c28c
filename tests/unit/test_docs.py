"""The docs are complete and correct, and every link has a target."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import asdict, fields
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, get_args

import pytest

import wick
import wick.capabilities
from doc_pages import FENCE, GUIDE, MARKDOWN, PAGES, ROOT, environment_variables, page_name, remove_keys
from wick._internal.aliases import POINT_NAMES
from wick.agent import RunOptions
from wick.cli.plugin_template import render_plugin
from wick.cli.scaffold import render_project
from wick.config import RINGS
from wick.config.keys import build_agent_schema, list_agent_keys
from wick.decisions import STOPS
from wick.errors import ModelError
from wick.events import Event
from wick.hook_checks import POSITIONS, allowed_decisions
from wick.models import resolve
from wick.models._http import RETRYABLE, TimeLimits
from wick.models._network import NetworkSettings, find_context
from wick.models.anthropic import Anthropic
from wick.models.demo.intents import ABILITIES
from wick.models.local import Local
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.models.registry import ALIASES, DEFAULTS, FAMILIES, HOSTED, PROVIDERS
from wick.operations import OPERATIONS, Outcome
from wick.protocols import SETTINGS, Delta, Request, Usage
from wick.server.settings import Jwt, Quotas, Retention, Settings, StaticToken
from wick.threads.state import EntryKind

__all__ = ["remove_keys"]  # a fixture that counts for every test here


# -- nothing is left out --------------------------------------------------------------------------------------------


@cache
def code(*pages: Path) -> str:
    """Return all inline code of the pages: a name that is an English word must be code."""
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
    """Return the text of a section, up to the next heading of its level, without code blocks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = re.search(rf"^(#+) {re.escape(heading)}$(.*?)(?=^(?!\1#)#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[2] if found else ""


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def _capabilities() -> dict[str, list[type[wick.Capability]]]:
    """The capabilities, by the name of their file."""
    names = [found.name for found in iter_modules(wick.capabilities.__path__) if not found.name.startswith("_")]
    modules = [import_module(f"wick.capabilities.{name}") for name in names]
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
    "environment variables of models": (environment_variables("models"), GUIDE / "models.md"),
    "environment variables": (environment_variables(), None),
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
    "fields of a result": (_fields(wick.Result) - {"needs_output"}, GUIDE / "agents.md"),
    "fields of a message": (_fields(wick.Message) - {"cache"}, GUIDE / "messages.md"),
    "kinds of entries": (set(get_args(EntryKind)), GUIDE / "threads.md"),
    "options of a hook": (
        _fields(wick.Hook) - {"fn", "operation", "position", "owner", "matches", "has_patterns", "deps"},
        GUIDE / "hooks.md",
    ),
    "options of a tool": (_fields(wick.Tool) - {"fn", "foreign", "origin"}, GUIDE / "tools.md"),
    "make targets": (_make_targets(), None),
}


@pytest.mark.parametrize("what", NAMES)
def test_every_name_is_in_the_docs(what: str) -> None:
    names, page = NAMES[what]
    assert names
    left_out = missing(names, *([page] if page else []))
    assert not left_out, f"{page_name(page) if page else 'the docs'} say nothing of these {what}: {', '.join(left_out)}"


def test_the_table_of_points_has_allowed_results() -> None:
    table = rows(GUIDE / "hooks.md", 0)
    for position in POSITIONS:
        for operation in OPERATIONS:
            said = set(re.findall(r"`(\w+)`", table[f"{position}_{operation.operation_name}"][-1]))
            assert said == {kind.__name__ for kind in allowed_decisions(position, operation.operation_name)}


def test_the_table_of_operations_has_mutable_fields() -> None:
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


def test_the_list_of_capabilities_is_complete() -> None:
    listed = {row[1].strip(" `"): codes(row[0])[0] for row in rows(GUIDE / "capabilities.md", 1).values()}
    assert listed == {ring.key: ring.kind for ring in RINGS if ring.kind}


def test_the_guide_has_all_methods_of_stores() -> None:
    text = (GUIDE / "stores.md").read_text(encoding="utf-8")
    block = text.partition("## All methods")[2].partition("```python\n")[2].partition("```")[0]
    shown = {node.name: node for node in ast.parse(block).body if isinstance(node, ast.ClassDef)}
    source = ast.parse((ROOT / "src/wick/protocols.py").read_text(encoding="utf-8"))
    written = {node.name: node for node in source.body if isinstance(node, ast.ClassDef) and node.name in shown}
    assert "ClaimingStore" in shown and shown.keys() == written.keys()
    for name, node in shown.items():
        assert _list_members(node) == _list_members(written[name]), name


def _list_members(node: ast.ClassDef) -> list[str]:
    """Return the fields and the signatures of a class."""
    members = list[str]()
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            members.append(ast.unparse(item))
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            members.append(
                f"{type(item).__name__} {item.name}({ast.unparse(item.args)}) -> {ast.unparse(item.returns)}"
            )  # type: ignore[arg-type]
    return members


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "coming-from").glob("*.md")), ids=page_name)
def test_the_glossary_of_other_frameworks_is_correct(page: Path) -> None:
    """Names on wick's side of a table exist and accept the named options."""
    places = ("wick", "wick.backends.local", "wick.backends.state", "wick.capabilities.mcp")
    places += ("wick.config.claude_settings",)
    known = {kind: value for place in places for kind, value in vars(import_module(place)).items()}
    known |= {ring.kind: ring.load_class() for ring in RINGS if ring.kind}
    for code in [code for row in rows(page, 1).values() for code in codes(row[1])]:
        if found := re.match(r"@?([A-Z][a-z]\w+)(\(.*)?", code):
            assert found[1] in known, f"{code} is no name of wick"
            options = set(re.findall(r"(\w+)=", found[2] or ""))
            assert options <= set(inspect.signature(known[found[1]]).parameters), code


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
    specs = [{"provider": provider, "model": "m"} for provider in PROVIDERS]
    specs += [{"provider": "bedrock", "model": "m", "region": "r"}]  # else it is missed before all else
    specs += [{"provider": "vertex", "model": "m", "api_key": "k"}]
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://acme.example")
    specs += [{"provider": "azure", "model": "m", "api_key": "k"}]
    for spec in specs:
        try:
            resolve(spec)
        except wick.WickError:
            continue
    asyncio.run(find_context(NetworkSettings()))  # read by a connection
    read -= {"PYTHONASYNCIODEBUG", "SSLKEYLOGFILE"}  # by Python itself
    shared = {name for name in environment_variables("_internal") if name.startswith("AWS_")}  # also for buckets
    assert read | {"NO_PROXY"} == environment_variables("models") | shared  # urllib finds the variables of proxies


def table(page: Path, heading: str, first: str) -> list[list[str]]:
    """Return the rows of the table in a section with this first column."""
    found = re.search(rf"^\| {first} \|.*\n.*\n((?:\|.*\n)+)", section(page, heading), re.MULTILINE)
    assert found, f"{page_name(page)} has no table of {first} under {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


NAMED = {codes(row[0])[0].partition(":")[0]: row for row in table(MODELS, "Names", "Name")}


def test_the_table_of_names_has_every_provider() -> None:
    assert set(NAMED) == set(PROVIDERS)


@pytest.mark.parametrize("provider", NAMED)
def test_model_names_match_the_table(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a")
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    monkeypatch.setenv("GEMINI_API_KEY", "g")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "b")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "v")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "PROJECT")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://NAME.openai.azure.com")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "a")
    for _, key, _ in HOSTED.values():
        monkeypatch.setenv(key, "h")
    monkeypatch.delenv("OLLAMA_HOST")
    example, where = codes(NAMED[provider][1])[0], codes(NAMED[provider][2])
    if provider == "local":
        with pytest.raises(wick.WickError, match="there is no model in the file|wick-agent\\[local]"):
            resolve(example)
        return
    model: Any = resolve(example)
    assert provider in ("demo", "auto") or model.server.url == where[0]


def test_the_table_of_aliases() -> None:
    assert {codes(alias)[0]: codes(means)[0] for alias, means in table(MODELS, "Names", "Alias")} == ALIASES


def test_names_without_a_provider_match_the_table() -> None:
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
def test_settings_match_the_table(setting: str, client: Any) -> None:
    words = {codes(row[0])[0]: row[1:] for row in table(MODELS, "Settings", "Setting")}
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
    said = {codes(name)[0]: float(seconds) for name, seconds, _ in table(MODELS, "Time limits", "Limit")}
    assert said == asdict(TimeLimits())


def test_retryable_errors() -> None:
    row = next(line for line in section(MODELS, "Errors").splitlines() if "529" in line)
    assert {int(status) for status in re.findall(r"\b\d{3}\b", row)} == RETRYABLE


DEMO = table(MODELS, "The demo model", "Ability")


def test_the_demo_table_is_complete() -> None:
    assert {ability for ability, *_ in DEMO} == set(re.split(", | and (?=hand)", ABILITIES))


@pytest.mark.parametrize(("request_", "tools"), [row[1:] for row in DEMO])
def test_the_demo_follows_its_table(request_: str, tools: str) -> None:
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
from wick import Agent, Scripted, ToolCall, assistant, tool
from wick.capabilities.tracing import Tracing

@tool
def look() -> str:
    "Look."
    return "a room"

memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)
model = Scripted(assistant("", ToolCall("1", "look")), "Done.")
Agent(model, tools=[look], name="a", system="Hm.", hooks=[Tracing(content=True)]).run_sync("Go on.")
for span in memory.get_finished_spans():
    print(span.name.split()[0], *span.attributes, sep="\\n")
"""


def test_every_span_and_attribute_is_in_the_docs() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", TRACED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.split("\n")) - {""}
    assert {"invoke_agent", "step", "chat", "execute_tool"} <= names
    assert missing(names, GUIDE / "tracing.md") == []


# -- reference ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, "reference", raising=False)  # a module of tests/support has the same name
    return import_module("reference")


def _documented_classes(reference: Any) -> list[type]:
    named = {"wick": wick.__all__, **reference.MORE}
    values = [getattr(import_module(module), name) for module, names in named.items() for name in names]
    return [value for value in [*values, *_events()] if isinstance(value, type)]


def test_every_field_of_the_reference_has_a_description(reference: Any) -> None:
    rows = {kind: reference.public_fields(kind) for kind in _documented_classes(reference)}
    assert {"deps", "thread", "emit"} <= {name for name, _, _ in rows[RunOptions]}
    left_out = [f"{kind.__name__}.{name}" for kind, found in rows.items() for name, _, words in found if not words]
    assert left_out == [], "describe these fields in a comment at the end of their line"


def test_every_key_of_the_reference_has_a_description(reference: Any) -> None:
    files = sys.modules["reference_files"]
    settings = {kind: files.field_comments(kind) for kind in (Settings, StaticToken, Jwt, Quotas, Retention)}
    left_out = [f"{kind.__name__}.{name}" for kind, words in settings.items() for name in kind.model_fields
                if not words.get(name)]  # fmt: skip
    schema = build_agent_schema(RINGS, list_agent_keys(RINGS))
    left_out += [f"{key}: {row[0]}" for key, form in schema["properties"].items()
                 for _, rows in files.key_rows(key, form) for row in rows if not row[-1]]  # fmt: skip
    assert left_out == [], "describe these keys in a comment of the class, or in a table of the guide"


def test_every_field_of_the_http_api_has_a_description(reference: Any) -> None:
    files, document = sys.modules["reference_files"], json.loads((ROOT / "ui" / "openapi.json").read_text("utf-8"))
    left_out = [f"{name}.{row[0]}" for name, schema in document["components"]["schemas"].items()
                for row in files.property_rows(name, schema) if not row[-1]]  # fmt: skip
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    left_out += [
        f"{operation['operationId']}: {row[0]}"
        for operation in operations
        for row in files.parameter_rows(operation)
        if not row[-1]
    ]
    assert left_out == [], "give the field a description, or add it to scripts/reference_fields.py"


def test_the_reference_has_no_internal_names(reference: Any) -> None:
    for kind in _documented_classes(reference):
        members = {*dir(kind), *getattr(kind, "__annotations__", ())}
        hidden = set(reference.INTERNAL.get(kind.__name__, "").split())
        assert hidden <= members, f"{kind.__name__} has no {', '.join(sorted(hidden - members))}"
    page = reference.api()
    assert "### RunOptions" in page and "[RunOptions](#runoptions)" in page
    assert [module for module in reference.MORE if "._" in module] == []
    assert not re.search(
        r"^#### (?:Run\.loop|Agent\.find_deps_problem|ToolUse\.seal)$|needs_output", page, re.MULTILINE
    )


# -- numbers --------------------------------------------------------------------------------------------------------


def _numbers() -> Any:
    return _script("cost_numbers")


def _script(name: str) -> Any:
    spec = spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_costs_are_those_of_the_benchmarks() -> None:
    numbers = _numbers()
    shown = numbers.BLOCK.search(numbers.PAGE.read_text("utf-8"))
    kept = json.loads(numbers.KEPT.read_text("utf-8"))
    assert shown, "docs/costs.md has a place for the numbers, between <!-- numbers --> and <!-- /numbers -->"
    expected = f"{shown[1]}{numbers.rendered(kept)}{shown[2]}"
    assert shown[0] == expected, "run python scripts/cost_numbers.py"
    assert "wick's client" in shown[0]


def test_a_quick_run_changes_no_number(tmp_path: Path) -> None:
    numbers = _numbers()
    kept = json.loads(numbers.KEPT.read_text("utf-8"))
    rows = [{**row, field: 1.0} for _, row, field in numbers.PICKED.values()]
    for file in {file for file, _, _ in numbers.PICKED.values()}:
        measured = {"quick": True, "python": "3.14", "cpus": 64, "rows": rows}
        (tmp_path / f"{file}.json").write_text(json.dumps(measured), encoding="utf-8")
    assert numbers.taken(tmp_path, kept) == kept
    for path in tmp_path.iterdir():
        path.write_text(path.read_text("utf-8").replace("true", "false"), encoding="utf-8")
    changed = numbers.taken(tmp_path, kept)
    assert {*changed["figures"].values()} == {1.0}
    assert "64 cores, Python 3.14" in numbers.rendered(changed)


def test_the_comparison_has_the_measured_speeds(tmp_path: Path) -> None:
    numbers = _numbers()
    wick_ = {"version": "0.1", "different": "", "step_20": {"us": 400.0, "ratio": 1.2}, "delta": {"us": 9.0}}
    other = {"version": "2", "different": "a message more", "delta": {"us": 7.0, "ratio": 14.0}}
    peers = {"wick": wick_, "other": other, "lost": {"version": ""}}
    measured = {"quick": False, "date": "2026-01-01", "python": "3.11", "cores": 2, "peers": peers}
    (tmp_path / "peers.json").write_text(json.dumps(measured), encoding="utf-8")
    shown = _script("comparison").speeds(numbers.taken(tmp_path, json.loads(numbers.KEPT.read_text("utf-8"))))
    assert "| wick | 0.4 ms (1.2×) |  |  | 9 µs |" in shown
    assert "| other \\* |  |  |  | 7 µs (14×) |" in shown and "- other: a message more" in shown
    assert "| lost |  |  |  |  |" in shown


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
            broken.append(f"{page_name(page)}: {target}")
    return broken


@pytest.mark.parametrize("page", MARKDOWN, ids=page_name)
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
    assert {page_name(page) for page in PAGES[1:]} - {page_name(page) for page in reached} == set()


# -- installation ---------------------------------------------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
INSTALL = ROOT / "docs" / "install.md"
INSTALLED = re.compile(r"pip install[^\n`]*?['\" ]wick-agent(?:\[[\w,]+\])?([^\n`'\"]*)")


@pytest.mark.parametrize("page", [page for page in MARKDOWN if page != INSTALL], ids=page_name)
def test_no_page_installs_wick_from_an_index(page: Path) -> None:
    """wick is in no package index yet. `docs/install.md` shows the messages that add an extra to an installed wick."""
    text, source = page.read_text(encoding="utf-8"), f" @ git+{PROJECT['urls']['Repository']}"
    assert [found[0] for found in INSTALLED.finditer(text) if found[1] != source] == []
    assert "pypi" not in text.lower()


def test_a_page_that_installs_wick_from_an_index_is_found() -> None:
    for line in ("pip install wick-agent", "pip install -U 'wick-agent[server]'", "uv pip install 'wick-agent[a,b]'"):
        assert [found[1] for found in INSTALLED.finditer(line)] == [""]


def test_a_new_project_depends_on_the_repository() -> None:
    (wanted,) = tomllib.loads(render_project("new", "new")["pyproject.toml"])["project"]["dependencies"]
    assert wanted == f"wick-agent[cli,files,permissions] @ git+{PROJECT['urls']['Repository']}"


@pytest.mark.parametrize(("kinds", "extras"), [([], "cli,files"), (["tools"], "cli")])
def test_a_new_plugin_depends_on_the_repository(kinds: list[str], extras: str) -> None:
    project = tomllib.loads(render_plugin("new", "new", kinds)["pyproject.toml"])
    assert project["project"]["dependencies"] == [f"wick-agent[{extras}] @ git+{PROJECT['urls']['Repository']}"]
    assert project["tool"]["hatch"]["metadata"]["allow-direct-references"], "hatchling refuses it otherwise"


def test_the_table_of_extras_is_complete() -> None:
    extras = PROJECT["optional-dependencies"]
    in_server = set(re.findall(r"\w+", extras["server"][-1].partition("[")[2]))
    listed = table(INSTALL, "Extras", "Extra")
    assert {codes(row[0])[0] for row in listed} == set(extras)
    assert {codes(row[0])[0] for row in listed if row[2] == "yes"} == in_server


def test_the_extra_all_has_every_extra_that_runs_something() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == set(extras) - {"all", "dev", "docs"}
    assert "wick-agent[all,docs]" in extras["dev"]


# -- promises -------------------------------------------------------------------------------------------------------


def test_the_promises_show_recorded_results() -> None:
    promises = _script("promises")
    page, kept = promises.PAGE.read_text("utf-8"), json.loads(promises.KEPT.read_text("utf-8"))
    assert page == promises.rendered(page, kept), "run python scripts/promises.py"
    assert all(f"| {told} |" in page for told in promises.PROMISES.values())


def test_each_promise_is_tried_and_so_is_a_planted_fault() -> None:
    files = [path.read_text("utf-8") for path in (ROOT / "tests" / "faults").glob("test_*.py")]
    for promise in _script("promises").PROMISES:
        tallies = [found for text in files for found in re.findall(r"\bTally\([^\n]*", text) if f'"{promise}"' in found]
        assert tallies, f"a test in tests/faults tries {promise}"
        assert any("planted=" in tally for tally in tallies), f"a planted fault shows that {promise} is tried"


def test_each_promise_of_a_cluster_names_tests_that_exist() -> None:
    rows = table(ROOT / "docs" / "promises.md", "Several servers", "id")
    assert [row[0] for row in rows] == [f"C{number}" for number in range(1, len(rows) + 1)] and len(rows) > 5
    for _, _, _, held_by in rows:
        assert codes(held_by)
        for path, _, name in (one.partition("::") for one in codes(held_by)):
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE), (path, name)


def test_untested_results_are_kept(tmp_path: Path) -> None:
    promises = _script("promises")
    (tmp_path / "faults").mkdir()
    line = {"promise": "R1", "what": "cancels", "tried": 5, "violated": 1, "seconds": 1.0, "at": "2026-01-01T00:00:00Z"}
    (tmp_path / "faults" / "R1.json").write_text(json.dumps(line) + "\n")
    kept = {
        "tried": {"R1": {"cancels": {**line, "tried": 7}, "races": line}, "S6": {"bits": line}},
        "soak": {"lost": 0},
    }
    found = promises.taken(tmp_path, kept)
    assert found["tried"]["R1"]["cancels"]["tried"] == 5 and found["tried"]["R1"]["races"] == line
    assert found["tried"]["S6"] == {"bits": line} and found["soak"] == {"lost": 0}
    shown = promises.promises(found)
    assert "| [R1](#r1) |" in shown and "| 10 | 2 |" in shown and "| cancels | 5 | 1 | 2026-01-01 |" in shown
