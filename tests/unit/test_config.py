"""agents.yaml: valid content, the built agents, and errors."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from pkgutil import iter_modules
from textwrap import dedent
from typing import Any, Literal

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wick.capabilities
from certificates import Authority
from kit import tool_call, tool_calls_reply
from wick import Agent, Capability, Scripted, ToolCall
from wick.backends.containers.spec import ContainerLimits
from wick.capabilities.budget import Budget
from wick.capabilities.builtins import Builtins
from wick.config import RINGS, load, schema
from wick.config.builder import BUILTIN
from wick.config.files import find_python_names
from wick.config.options_schema import MODEL, REFERENCE, build_type_schema
from wick.constants import CONFIG_BYTES, YAML_DEPTH
from wick.errors import ConfigError
from wick.protocols import Backend, Model, Store

# Word for word as users of the file know it.
SAMPLE = """\
name: code-assistant
model: claude-sonnet-4-20250514
system_prompt: "You are a coding assistant."
context_window: 128000          # → SummarizationHook (§6.4) uses this
backend:
  type: docker                  # → FilesystemHook (§6.1) activated (needs a backend)
  image: python:3.12-slim
  workdir: /workspace
skills:
  paths:                        # → SkillsHook (§6.2) activated
    - /workspace/skills
memory:
  paths:                        # → MemoryHook (§6.3) activated
    - /workspace/AGENTS.md
"""

FULL = """\
defaults:
  model: demo
  system_prompt: Be brief.
  backend: {type: local, workdir: ./work}
  limits: {steps: 10, tokens: 50000}
  settings: {temperature: 0.2}
  permissions: {deny: ["Bash(rm *)"], mode: acceptEdits}
agents:
  coder:
    name: The coder
    context_window: 100000
    tools: [calculate, "shapes_of_full:area"]
    skills: {paths: [skills], shipped: true}
    memory: {paths: [AGENTS.md]}
    subagents:
      reviewer: {description: Reviews code, prompt: You review code., tools: [read_file, grep]}
    hooks: ["shapes_of_full:watch"]
    permissions: {deny: ["Bash(git push *)"]}
    limits: {tokens: null, seconds: 300}
  talker:
    backend: false
    system_prompt: Chat.
    todos: false
"""
SHAPES = """\
from wick import ToolUse, after

def area(width: float, height: float) -> float:
    "The area of a rectangle."
    return width * height

@after(ToolUse)
async def watch(use: ToolUse) -> None:
    use.run.record("watched")
"""


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Any]:
    """Writes agents.yaml and modules beside it, which are forgotten afterwards."""
    before = {*sys.modules}

    def written(text: str, **modules: str) -> Path:
        for name, code in modules.items():
            (tmp_path / f"{name}.py").write_text(dedent(code), encoding="utf-8")
        path = tmp_path / "agents.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    yield written
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def rings(agent: Agent) -> list[str]:
    return [part.name for part in agent._parts]


def ring(agent: Agent, name: str) -> Any:
    return next(part for part in agent._parts if part.name == name)


def tools(agent: Agent) -> set[str]:
    return {tool.name for tool in agent.tools}


def complaint(path: Path, **environment: str) -> str:
    """Return the error of an invalid file, without its folder."""
    with pytest.raises(ConfigError) as caught:
        config = load(path, environment=environment)
        for one in config.agents.values():
            one.agent()
    return str(caught.value).replace(f"{path.parent}{os.sep}", "")


# -- good files -----------------------------------------------------------------------------------------------------


def test_the_sample_config_loads(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)  # a key is needed to ask the model, not to read the file
    config = load(write(SAMPLE))
    assert [*config.agents] == ["code-assistant"]
    agent = config.agent()
    assert agent.name == "code-assistant"
    assert agent.system == "You are a coding assistant."
    assert rings(agent) == "tracing limits retry todos filesystem skills memory summarization".split()
    assert ring(agent, "summarization").window == 128_000
    backend = ring(agent, "filesystem").backend
    assert (backend.name, backend.workdir) == ("docker", "/workspace")
    assert "python:3.12-slim" in repr(backend)
    assert ring(agent, "skills").paths == ("/workspace/skills",)
    assert ring(agent, "memory").paths == ("/workspace/AGENTS.md",)
    assert ring(agent, "skills").backend is ring(agent, "memory").backend is backend


def test_the_sample_is_also_one_of_several(write: Any) -> None:
    lines = "".join(f"    {line}\n" for line in SAMPLE.splitlines())
    config = load(write(f"agents:\n  first:\n{lines}  second:\n    model: demo\n"))
    assert [*config.agents] == ["first", "second"]
    assert rings(config.agent("first")) == rings(load(write(SAMPLE)).agent())
    assert config.agents["first"].name == "code-assistant"
    assert rings(config.agent("second")) == ["tracing", "limits", "retry", "todos", "summarization"]


async def test_every_key_of_a_full_file(write: Any, tmp_path: Path) -> None:
    config = load(write(FULL, shapes_of_full=SHAPES))
    coder, talker = config.agent("coder"), config.agent("talker")
    assert (coder.name, talker.name) == ("The coder", "talker")
    assert (coder.system, talker.system) == ("Be brief.", "Chat.")
    assert {"calculate", "area", "read_file", "task", "load_skill", "write_todos"} <= tools(coder)
    assert tools(talker) == set()
    assert coder.settings == talker.settings == {"temperature": 0.2}
    assert ring(coder, "filesystem").backend.workdir == str(tmp_path / "work")
    assert ring(coder, "summarization").window == 100_000
    limits = ring(coder, "limits")
    assert (limits.steps, limits.tokens, limits.seconds) == (10, None, 300)
    assert [rule.text for rule in ring(coder, "permissions").rules] == ["Bash(rm *)", "Bash(git push *)"]
    assert ring(coder, "permissions").mode == ring(talker, "permissions").mode == "acceptEdits"
    assert [rule.text for rule in ring(talker, "permissions").rules] == ["Bash(rm *)"]
    assert "watch" in [hook.name for hook in coder.hooks]
    assert [*ring(coder, "subagents").agents] == ["reviewer"]
    await config.close()


def test_rings_follow_the_order_of_the_list(write: Any) -> None:
    """Every capability at once, written in the order of the alphabet."""
    said: dict[str, Any] = {
        "budget": {"tokens": 1000},
        "context": "Today is a holiday.",
        "fallback": ["demo"],
        "hooks": ["shapes_in_order:watch"],
        "mcp": {"servers": {"files": {"command": "true"}}},
        "permissions": {"policy": "shell"},
        "sessions": "memory",
        "structured_output": {"schema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "subagents": {"helper": {"description": "Helps"}},
    }
    every = {ring.key: said.get(ring.key, True) for ring in RINGS}
    text = yaml.safe_dump({"model": "demo", "backend": "state", **every}, sort_keys=True)
    agent = load(write(text, shapes_in_order=SHAPES)).agent()
    assert rings(agent) == [part.key if part.key != "hooks" else "watch" for part in RINGS]


def test_the_list_has_every_capability() -> None:
    files = {found.name for found in iter_modules(wick.capabilities.__path__) if not found.name.startswith("_")}
    assert files == {part.key for part in RINGS} - {"hooks"}
    for part in RINGS:
        if part.kind:
            kind = part.load_class()
            assert isinstance(kind, type) and issubclass(kind, Capability) and kind.name == part.key


@pytest.mark.parametrize("part", [part for part in RINGS if part.kind], ids=lambda part: part.key)
def test_every_capability_option_is_configurable(part: Any) -> None:
    """All that its constructor takes, but the backend, which is the agent's."""
    forms = schema()["$defs"]["agent"]["properties"][part.key]["anyOf"]
    known = set().union(*(form.get("properties", {}) for form in forms))
    assert known >= {*inspect.signature(part.load_class()).parameters} - {"backend"}


def test_the_built_in_tools_are_these() -> None:
    assert {tool.name for tool in Builtins(BUILTIN, search=str).tools()} == {*BUILTIN}


@pytest.mark.parametrize("text, on", [
    ("", "tracing limits retry todos summarization"),
    ("backend: state", "tracing limits retry todos filesystem summarization"),
    ("backend: state\nfilesystem: false", "tracing limits retry todos summarization"),
    ("backend: state\nskills: {paths: [s]}\nmemory: [A.md]",
     "tracing limits retry todos filesystem skills memory summarization"),
    ("backend: state\nskills: {paths: []}\nmemory: {paths: []}", "tracing limits retry todos filesystem summarization"),
    ("backend: state\nmemory: true", "tracing limits retry todos filesystem memory summarization"),
    ("skills: true", "tracing limits retry todos skills summarization"),
    ("todos: false\nsummarization: false\nmetadata: true", "tracing limits retry metadata"),
])  # fmt: skip
def test_enabled_capabilities(write: Any, text: str, on: str) -> None:
    assert rings(load(write(f"model: demo\n{text}\n")).agent()) == on.split()


@pytest.mark.parametrize("key", ["skills: [skills]", "memory: [AGENTS.md]", "filesystem: true"])
def test_capabilities_that_need_a_backend_are_off_without_one(
    write: Any, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "wick"):
        agent = load(write(f"model: demo\n{key}\n")).agent()
    name = key.partition(":")[0]
    assert name not in rings(agent)
    assert f"line 2: {name}: stays off, as the agent 'default' has no backend" in caplog.text


def test_defaults_can_be_disabled(write: Any) -> None:
    agent = load(
        write("model: demo\nlimits: false\nretry: false\ntracing: false\ntodos: false\nsummarization: false\n")
    ).agent()
    assert rings(agent) == ["tracing", "limits", "retry"] and agent.hooks == ()


@pytest.mark.parametrize("own, defaults, steps, tokens", [
    ("{tokens: 5}", "{steps: 3}", 3, 5),
    ("{steps: 4}", "{steps: 3}", 4, None),
    ("true", "{steps: 3}", 3, None),
    ("true", "false", 25, None),
    ("{steps: 4}", "false", 4, None),
])  # fmt: skip
def test_an_agents_options_are_laid_over_the_defaults(
    write: Any, own: str, defaults: str, steps: int, tokens: int | None
) -> None:
    text = f"defaults: {{model: demo, limits: {defaults}}}\nagents: {{a: {{limits: {own}}}, b: }}\n"
    config = load(write(text))
    limits = ring(config.agent("a"), "limits")
    assert (limits.steps, limits.tokens) == (steps, tokens)


def test_a_backend_of_its_own_takes_the_place_of_the_default(write: Any, tmp_path: Path) -> None:
    text = """\
defaults: {model: demo, backend: {type: local, sandbox: none, workdir: here}}
agents: {a: , b: {backend: {type: state}}, c: {backend: false}}
"""
    config = load(write(text))
    assert ring(config.agent("a"), "filesystem").backend.workdir == str(tmp_path / "here")
    assert ring(config.agent("a"), "filesystem").backend.protection.level == "none"
    assert ring(config.agent("b"), "filesystem").backend.name == "state"
    assert "filesystem" not in rings(config.agent("c"))


def test_a_budget_of_the_defaults_is_one_for_all(write: Any) -> None:
    agents = "agents: {a: , b: , c: {budget: {tokens: 5}}, d: {budget: false}}"
    config = load(write(f"defaults: {{model: demo, budget: {{tokens: 100}}}}\n{agents}\n"))
    shared = ring(config.agent("a"), "budget")
    assert isinstance(shared, Budget) and shared.tokens == 100
    assert ring(config.agent("b"), "budget") is shared
    assert ring(config.agent("c"), "budget").tokens == 5
    assert "budget" not in rings(config.agent("d"))


def test_an_agent_is_built_lazily_and_once(write: Any) -> None:
    config = load(write('agents:\n  good: {model: demo}\n  bad: {model: demo, tools: ["there.is.no:module"]}\n'))
    assert config.agent("good") is config.agent("good")
    with pytest.raises(ConfigError, match="line 3: tools: there.is.no:module cannot be loaded: ModuleNotFoundError"):
        config.agent("bad")
    other = config.agents["good"].agent(ask=lambda question: True)
    assert other is not config.agent("good") and other.ask is not None


@pytest.mark.parametrize("text, id", [
    ("model: demo", "default"),
    ("name: My Agent!\nmodel: demo", "my-agent"),
    ("name: '...'\nmodel: demo", "default"),
    ("agents: {only: {model: demo}}", "only"),
])  # fmt: skip
def test_the_id_of_a_single_agent(write: Any, text: str, id: str) -> None:
    config = load(write(text))
    assert [*config.agents] == [id]
    assert config.agent() is config.agent(id)


def test_an_agent_that_is_not_there(write: Any) -> None:
    config = load(write("agents: {coder: {model: demo}, writer: {model: demo}}"))
    with pytest.raises(ConfigError, match="has no agent 'codr'; did you mean 'coder'\\?"):
        config.agent("codr")
    with pytest.raises(ConfigError, match="has several agents; choose one of: coder, writer"):
        config.agent()
    assert load(write("agents: {default: {model: demo}, other: {model: demo}}")).agent().name == "default"


def test_secrets_do_not_show(write: Any) -> None:
    config = load(
        write('model: {provider: openai, model: gpt-4o, api_key: "${KEY}"}'), environment={"KEY": "sk-secret"}
    )
    assert "sk-secret" not in f"{config!r} {config.agents!r} {[*config.agents.values()]!r}"


# -- an agent of a file at work -------------------------------------------------------------------------------------


async def test_an_agent_of_a_file_at_work(write: Any, tmp_path: Path) -> None:
    """A tool of a module, files beside the file, permissions, a hook and a session, all together."""
    text = """\
model: demo
backend: {type: local, workdir: work}
sessions: ./kept
tools: ["shapes_at_work:area", calculate]
hooks: ["shapes_at_work:watch"]
permissions:
  allow: ["Write(out/**)", area, calculate]
  deny: [{rule: "Write(secret/**)", message: Hands off.}]
"""
    config = load(write(text, shapes_at_work=SHAPES))
    replies = tool_calls_reply(
        tool_call("area", "1", width=2, height=3),
        tool_call("calculate", "2", expr="6 * 7"),
        tool_call("write_file", "3", path="out/a.txt", content="A"),
        tool_call("write_file", "4", path="secret/b.txt", content="B"),
    )
    agent = config.agents["default"].agent(model=Scripted(replies, "done"))
    result = await agent.run("Go.", thread="t1")
    area, product, _, refused = (message.text for message in result.messages.tool_messages())
    assert (area, product, refused) == ("6.0", "42", "Hands off.")
    assert (tmp_path / "work" / "out" / "a.txt").read_text() == "A"
    assert not (tmp_path / "work" / "secret").exists()
    assert (tmp_path / "kept" / "threads.db").exists()
    assert result.thread is not None
    assert [entry.data["name"] for entry in result.thread.entries if entry.kind == "event"].count("watched") == 4
    await config.close()


async def test_subagents_of_a_file_are_under_its_guards(write: Any, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "writer.md").write_text("---\nname: writer\ndescription: Writes\n---\nYou write.\n")
    text = "model: demo\nbackend: state\nsubagents: agents\npermissions: {deny: [Write], allow: [task]}\n"
    model = Scripted(
        tool_calls_reply(tool_call("task", agent="writer", prompt="Write a.txt")),
        tool_calls_reply(tool_call("write_file", path="a.txt", content="A")),
        "I may not.",
        "It may not.",
    )
    config = load(write(text))
    result = await config.agents["default"].agent(model=model).run("Go.")
    assert result.text == "It may not."
    assert result.thread is not None and "files" not in result.thread.values


def test_a_file_that_needs_no_key_answers(write: Any) -> None:
    result = load(write("model: demo\nsystem_prompt: Be kind.\n")).agent().run_sync("Hello!")
    assert result.outcome == "completed" and result.text.startswith("Offline demo model")


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings a tool and a hook, as pip would have installed it."""
    site = tmp_path / "site"
    (site / "rulers-1.0.dist-info").mkdir(parents=True)
    (site / "rulers-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rulers\nVersion: 1.0\n")
    points = """
        [wick.tools]
        measure = rulers_of_test:measure
        broken = rulers_of_test:gone
        [wick.hooks]
        ruled = rulers_of_test:Ruled
    """
    (site / "rulers-1.0.dist-info" / "entry_points.txt").write_text(dedent(points))
    code = """
        from wick import Capability, Run, ToolUse, before
        from wick.protocols import Model

        def measure(length: float) -> str:
            "Measure a length."
            return f"{length} m"

        class Ruled(Capability):
            def __init__(self, unit: str = "m") -> None:
                self.unit = unit

            @before(Run)
            async def begin(self, run: Run) -> None:
                run.record("ruled", unit=self.unit)
    """
    code += """
        @before(Run)
        def plain(run: Run) -> None:
            pass

        def bare(use: ToolUse) -> None:
            pass

        def broken_limit(most: int = 1) -> Ruled:
            return Ruled(most < None)

        def limit(most: int, words: frozenset[str] = frozenset(), model: Model | None = None) -> Ruled:
            return Ruled(f"{most + 1} {sorted(words)} {model and model.name}")
    """
    (site / "rulers_of_test.py").write_text(dedent(code))
    monkeypatch.syspath_prepend(site)


@pytest.mark.usefixtures("installed")
def test_tools_and_hooks_that_are_installed(write: Any) -> None:
    config = load(write("model: demo\ntools: [measure, datetime]\nhooks: [ruled]\n"))
    assert {"measure", "datetime"} <= tools(config.agent())
    assert ring(config.agent(), "ruled").unit == "m"
    agent = load(write("model: demo\nhooks: [{rulers_of_test:Ruled: {unit: ft}}]\n")).agent()
    assert ring(agent, "ruled").unit == "ft"


def test_a_hook_whose_program_starts_at_the_workspace_is_refused_before_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    hooks = "hooks: {PreToolUse: [{matcher: Bash, hooks: [{type: command, command: ./check.sh}]}]}\n"
    path.write_text("model: demo\nbackend: {type: local, workdir: ./work}\n" + hooks)
    for _ in range(2):
        with pytest.raises(ConfigError, match="start at the workspace, so name one outside of it"):
            load(path).agent()
    path.write_text(path.read_text().replace("./check.sh", "../check.sh"))
    assert load(path).agent().name == "default"


async def test_a_capability_of_the_user_gets_the_workspace(write: Any, tmp_path: Path) -> None:
    code = """
        from wick import Capability, tool

        class Placed(Capability):
            def __init__(self, backend, name="note.txt"):
                self.backend, self.file = backend, name

            @tool
            async def note(self, text: str) -> str:
                "Store a note in the workspace."
                await self.backend.write(self.file, text)
                return "stored"
    """
    (tmp_path / "work").mkdir()
    options = "model: demo\nhooks: [{placed_of_test:Placed: {name: a.txt}}]\n"
    place = "backend: {type: local, workdir: work}\n"
    (part,) = load(write(options + place, placed_of_test=code)).agents.values()
    agent = part.agent(model=Scripted(ToolCall("1", "note", {"text": "hello"}), "Done."))
    await agent.run("Make a note.")
    assert (tmp_path / "work" / "a.txt").read_text() == "hello"
    with pytest.raises(ConfigError, match="Placed cannot be made: .* 'backend'"):
        load(write(options)).agent()


@pytest.mark.usefixtures("installed")
def test_options_of_a_hook_are_converted_to_the_types_of_its_factory(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOST", "2")
    options = "{most: '${MOST}', words: [b, a, a], model: demo}"
    agent = load(write(f"model: demo\nhooks: [{{rulers_of_test:limit: {options}}}]\n")).agent()
    assert ring(agent, "ruled").unit == "3 ['a', 'b'] offline demo model"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text, said", [
    ("tools: [mesure]", "tools: there is no tool 'mesure'; did you mean 'measure'?"),
    ("tools: [xyz]", "tools: there is no tool 'xyz'; one of your own is written module:name, and there are calculate, "
                     "datetime, http_request, web_search, broken, measure"),
    ("tools: [broken]",
     "tools: the tool 'broken' (rulers_of_test:gone of the package rulers 1.0) cannot be loaded: AttributeError: "
     "module 'rulers_of_test' has no attribute 'gone'; update or uninstall that package"),
    ("tools: ['a b:c']", "tools: 'a b:c' is not written as module:name"),
    ("tools: ['os:sep']", "tools: os:sep is neither a tool nor a function"),
    ("tools: ['os:PathLike']", "tools: os:PathLike is neither a tool nor a function"),
    ("tools: [{name: x}]", "tools.0 has no 'description'"),
    ("hooks: [rule]", "hooks: there is no hook 'rule'; did you mean 'ruled'?"),
    ("hooks: ['os:sep']", "hooks: os:sep is not a hook: decorate it with @before, @wrap, @after or @guard"),
    ("hooks: ['os:getcwd']", "hooks: os:getcwd is not a hook: decorate it with @before, @wrap, @after or @guard"),
    ("hooks: [{'rulers_of_test:Ruled': {unt: ft}}]", "hooks: rulers_of_test:Ruled: there is no option 'unt'; "
     "did you mean 'unit'?"),
    ("hooks: [{ruled: {unit: 1}}]", "hooks: ruled: unit: input should be a valid string"),
    ("hooks: [{'rulers_of_test:limit': {most: many}}]", "hooks: rulers_of_test:limit: most: input should be a valid "
     "integer, unable to parse string as an integer"),
    ("hooks: [{'rulers_of_test:limit': {mots: 1}}]", "hooks: rulers_of_test:limit: there is no option 'mots'; "
     "did you mean 'most'?"),
    ("hooks: ['rulers_of_test:limit']", "hooks: rulers_of_test:limit: the option 'most' is missing; write "
     "{rulers_of_test:limit: {most: …}}"),
    ("hooks: [{'rulers_of_test:limit': 3}]", "hooks: rulers_of_test:limit: options are a map, as in {most: 3}"),
    ("hooks: [{'rulers_of_test:limit': [ada]}]", "hooks: rulers_of_test:limit: options are a map, as in {most: …}"),
    ("hooks: ['rulers_of_test:bare']", "hooks: rulers_of_test:bare cannot be made: bare() missing 1 required "
     "positional argument: 'use'; is it a hook, decorated with @guard or so?"),
    ("hooks: ['rulers_of_test:broken_limit']", "hooks: rulers_of_test:broken_limit cannot be made: '<' not supported "
     "between instances of 'int' and 'NoneType'"),
    ("hooks: [{'rulers_of_test:plain': {most: 1}}]", "hooks: rulers_of_test:plain is a hook that takes no options; "
     "remove them, or name a function or class that takes them and returns the hook"),
    ("hooks: [{a: 1, b: 2}]",
     "hooks: a hook with options is a map of one name, as in `- mine:Redactor: {words: [secret]}`"),
])  # fmt: skip
def test_names_that_mean_nothing(write: Any, text: str, said: str) -> None:
    assert complaint(write(f"model: demo\n{text}\n")) == f"agents.yaml, line 2: {said}"


def test_a_module_beside_the_file_hides_no_other(write: Any) -> None:
    path = write("model: demo\ntools: ['json:dumps']\n", json="raise RuntimeError('not me')")
    before = [*sys.path]
    assert "dumps" in tools(load(path).agent())
    assert sys.path == before


def test_http_tools_and_remote_models(write: Any) -> None:
    text = """\
model: demo
tools:
  - {name: weather, description: The weather, parameters: {type: object}, callback_url: "http://127.0.0.1:9/"}
fallback: [demo, {provider: ollama, model: llama3}]
critique: {model: demo, rounds: 1}
"""
    agent = load(write(text)).agent()
    assert "weather" in tools(agent)
    assert [model.name for model in ring(agent, "fallback").models] == ["offline demo model", "ollama:llama3"]
    assert ring(agent, "critique").model.name == "offline demo model"


def test_paths_are_relative_to_the_file(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    text = """\
model: demo
skills: {host: [skills]}
context: {files: [notes.md]}
sessions: ./kept
mcp: {servers: {files: {command: mcp-files}}, pins: pins.json}
"""
    agent = load(write(text)).agent()
    assert ring(agent, "skills").host == (str(tmp_path / "skills"),)
    assert ring(agent, "context").files == (str(tmp_path / "notes.md"),)
    assert str(tmp_path / "kept") in repr(ring(agent, "sessions").store)
    assert str(tmp_path / "pins.json") in repr(ring(agent, "mcp").pins)
    docker = load(write("model: demo\nbackend: {type: docker, image: x, volumes: {./a: /a, cache: /c, ~/b: /b}}\n"))
    mounted = str(ring(docker.agent(), "filesystem").backend._spec.binds)
    assert str(tmp_path / "a") in mounted and str(Path("~/b").expanduser()) in mounted
    assert "cache" in mounted and str(tmp_path / "cache") not in mounted


def test_model_certificates_are_relative_to_the_file(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    ca = Authority(tmp_path)
    ca.issue("client", "correct-horse")
    spec = "{provider: openai, model: m, base_url: 'https://h/v1', %s}"
    given = spec % "verify: ca.pem, cert: [client.pem, ./client.key, correct-horse]"
    agent = load(
        write(
            f"model: {given}\nfallback: [{given}]\nsubagents: {{agents: {{a: {{description: x, model: {given}}}}}}}\n"
        )
    ).agent()
    expected = (str(tmp_path / "ca.pem"), (str(tmp_path / "client.pem"), str(tmp_path / "client.key"), "correct-horse"))
    for model in (agent.model, *ring(agent, "fallback").models):
        assert (model.server.network.verify, model.server.network.cert) == expected
    for flaw, sentence in {
        "verify: gone.pem": f"there is no file {tmp_path / 'gone.pem'}; the 'verify' of a model's spec must be",
        "verify: client.key": "client.key has no CA certificates",
        "verify: 7": "the 'verify' of a model's spec must be true, false, or the path",
        "cert: [client.pem, client.key, wrong-horse]": "the client certificate .* cannot be used",
        "cert: {a: b}": "the 'cert' of a model's spec must be a path, or a list",
    }.items():
        with pytest.raises(ConfigError, match=sentence) as caught:
            _ = load(write(f"model: {spec % flaw}\n")).agent().model
        assert "horse" not in str(caught.value)


@pytest.mark.parametrize("store, kind", [
    ("memory", "InMemory"),
    ("postgresql://nobody@127.0.0.1:1/none", "Postgres"),
    ("true", "Sqlite"),
])  # fmt: skip
def test_the_session_store_is_configurable(write: Any, store: str, kind: str) -> None:
    agent = load(write(f"model: demo\nsessions: {store}\n")).agent()
    assert type(ring(agent, "sessions").store).__name__ == kind


def test_subagents_have_their_own_options(write: Any) -> None:
    text = """\
model: demo
subagents:
  depth: 2
  agents:
    - {name: measurer, description: Measures, tools: ["shapes_of_subagent:area", read_file],
       hooks: ["shapes_of_subagent:watch"], settings: {temperature: 0}, output_type: {type: object, properties: {}}}
ask_user: {interactor: terminal, seconds: 60}
"""
    agent = load(write(text, shapes_of_subagent=SHAPES)).agent()
    measurer = ring(agent, "subagents").agents["measurer"]
    assert [tool.name for tool in measurer.own] == ["area"] and measurer.wanted == {"read_file"}
    assert [hook.name for hook in measurer.hooks] == ["watch"]
    assert measurer.settings == {"temperature": 0} and measurer.output_type == {"type": "object", "properties": {}}
    assert ring(agent, "subagents").depth == 2
    assert type(ring(agent, "ask_user").interactor).__name__ == "Terminal"


@pytest.mark.parametrize("text, names", [
    ("tools: [calculate]", {"calculate"}),
    ("tools: [calculate]\nbuiltins: false", {"calculate"}),
    ("builtins: true", {"calculate", "datetime", "http_request"}),
    ("builtins: {tools: null}", {"calculate", "datetime", "http_request"}),
    ("builtins: true\ntools: [datetime]", {"calculate", "datetime", "http_request"}),
    ("builtins: [datetime]\ntools: [calculate]", {"calculate", "datetime"}),
    ("builtins: {timezone: Europe/Berlin}\ntools: [WebFetch]", {"calculate", "datetime", "http_request"}),
    ("builtins: {search: 'searches_of_test:find'}\ntools: [web_search]", {*BUILTIN}),
])  # fmt: skip
def test_built_in_tools(write: Any, text: str, names: set[str]) -> None:
    text = f"todos: false\ninformation_flow: false\n{text}"
    path = write(f"model: demo\n{text}\n", searches_of_test="def find(query: str) -> str:\n    return ''")
    if "search:" in text:
        sys.path.append(str(path.parent))
    try:
        assert tools(load(path).agent()) == names
    finally:
        sys.path[:] = [folder for folder in sys.path if folder != str(path.parent)]


def test_information_flow_is_on_where_a_tool_returns_untrusted_data_and_one_line_disables_it(write: Any) -> None:
    agent = load(write("model: demo\nbuiltins: [http_request]\n")).agent()
    assert "information_flow" in rings(agent) and "plan" in tools(agent)
    agent = load(write("model: demo\nbuiltins: [http_request]\ninformation_flow: false\n")).agent()
    assert "plan" not in tools(agent) and not any(hook.name.startswith("information_flow") for hook in agent.hooks)


# -- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value, expected", [
    ("${NAME}", "Ada"),
    ("'${NAME}'", "Ada"),
    ("Dear ${NAME}, ${GREETING:-hello}!", "Dear Ada, hello!"),
    ("${EMPTY}", ""),
    ("${EMPTY:-full}", "full"),
    ("${GONE:-}", ""),
    ("${GONE:-a:-b c}", "a:-b c"),
    ("$${NAME} costs $5", "${NAME} costs $5"),
    ("${TRICKY}", "${NAME}"),
    ("${YAML}", "x\nmodel: evil"),
    ("${NUMBER}", "12"),
])  # fmt: skip
def test_variables(write: Any, value: str, expected: str) -> None:
    environment = {"NAME": "Ada", "EMPTY": "", "TRICKY": "${NAME}", "YAML": "x\nmodel: evil", "NUMBER": "12"}
    path = write(f"model: demo\nsystem_prompt: {value}\n")
    config = load(path, environment=environment)
    assert config.agents["default"].options == {"model": "demo", "system_prompt": expected}
    assert type(config.agents["default"].options["system_prompt"]) is str


def test_variables_are_converted(write: Any) -> None:
    text = """\
model: demo
context_window: ${WINDOW}
limits: {steps: "${STEPS:-7}", seconds: "${SECONDS}"}
todos: ${TODOS}
permissions: {mode: "${MODE:-plan}"}
backend: {type: "${BACKEND:-state}"}
"""
    environment = {"WINDOW": "5000", "SECONDS": "1.5", "TODOS": "False"}
    agent = load(write(text), environment=environment).agent()
    assert ring(agent, "summarization").window == 5000
    assert (ring(agent, "limits").steps, ring(agent, "limits").seconds) == (7, 1.5)
    assert "todos" not in rings(agent)
    assert ring(agent, "permissions").mode == "plan"
    assert ring(agent, "filesystem").backend.name == "state"


def test_variables_of_this_process(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_TEST_PROMPT", "Hello.")
    assert load(write("model: demo\nsystem_prompt: ${WICK_TEST_PROMPT}\n")).agent().system == "Hello."


@pytest.mark.parametrize("text, said", [
    ("system_prompt: ${GONE}", "the environment variable GONE is not set; set it, or write ${GONE:-…} with a default"),
    ("system_prompt: ${A-b}", "'${A-b}' is not a variable; write ${NAME}, ${NAME:-default}, or $${ for the signs"),
    ("system_prompt: 'x ${A'", "'${A' is not a variable; write ${NAME}, ${NAME:-default}, or $${ for the signs"),
    ("context_window: ${SECRET}", "context_window is a whole number, not a text"),
    ("permissions: {mode: '${SECRET}'}", "permissions.mode is one of default, plan, acceptEdits, bypassPermissions, "
                                         "dontAsk, not a text"),
])  # fmt: skip
def test_variables_that_are_wrong(write: Any, text: str, said: str) -> None:
    assert complaint(write(f"model: demo\n{text}\n"), SECRET="sk-123") == f"agents.yaml, line 2: {said}"


# -- files that are wrong -------------------------------------------------------------------------------------------

WRONG = {
    "model: demo\nsytem_prompt: x": "line 2: there is no key 'sytem_prompt'; did you mean 'system_prompt'?",
    "model: demo\nsystem: x": "line 2: there is no key 'system'; did you mean 'system_prompt'?",
    "model: demo\nlimits:\n  tokens: 1\n  step: 2": "line 4: there is no key 'step' in limits; did you mean 'steps'?",
    "model: demo\nlimits: {zzz: 2}": "line 2: there is no key 'zzz' in limits; "
                                     "the keys are steps, tokens, seconds, cost, tool_calls",
    "model: demo\nlimits: {steps: ten}": "line 2: limits.steps is a whole number, not a text",
    "model: demo\nlimits: {steps: true}": "line 2: limits.steps is a whole number, not true or false",
    "model: demo\nlimits: {steps: 1.5}": "line 2: limits.steps is a whole number, not a number",
    "model: demo\nlimits: {steps: -1}": "line 2: limits: Limits(steps=-1): a limit is a number above 0, "
                                        "or None for no limit",
    "model: demo\nlimits: 10": "line 2: limits is true or false or a map of keys and values, not a whole number",
    "model: demo\ntodos:": "line 2: todos is true or false or a map of keys and values, not empty",
    "model: demo\nbuiltins:": "line 2: builtins is true or false or a map of keys and values or a list, not empty",
    "model: [demo]": "line 1: model is a text or a map of keys and values, not a list",
    "model: demo\ntools: calculate": "line 2: tools is a list, not a text",
    "model: demo\ntools:\n  - calculate\n  - 5": "line 4: tools.1 is a text or a map of keys and values, "
                                                 "not a whole number",
    "model: demo\nbackend: {type: dokcer, image: x}": "line 2: backend.type is one of local, docker, state, "
                                                      "not 'dokcer'; did you mean 'docker'?",
    "model: demo\nbackend: {image: x}": "line 2: backend has no 'type'; it is one of local, docker, state",
    "model: demo\nbackend: {type: docker}": "line 2: backend has no 'image'",
    "model: demo\nbackend:\n  type: local\n  netwrok: x":
        "line 4: there is no key 'netwrok' in backend; did you mean 'network'?",
    "model: demo\nbackend: {type: local, sandbox: non}":
        "line 2: backend.sandbox is one of auto, bubblewrap, landlock, sandbox-exec, none, not 'non'; "
        "did you mean 'none'?",
    "model: demo\nbackend: {type: local, workdir: /etc}": "line 2: backend: ",
    "model: demo\npermissions: {mode: plam}": "line 2: permissions.mode is one of default, plan, acceptEdits, "
                                              "bypassPermissions, dontAsk, not 'plam'; did you mean 'plan'?",
    "model: demo\npermissions: {deny: ['Bash(']}": "line 2: permissions: ",
    "model: demo\nbudget: true": "line 2: budget: Budget() limits nothing",
    "model: demo\nmcp: true": "line 2: mcp: it needs 'servers'",
    "model: demo\nfallback: [nothing-like-this]": "line 2: fallback: there is no model named 'nothing-like-this'",
    "model: demo\nsubagents: {helper: {prompt: x}}": "line 2: subagents.helper has no 'description'",
    "model: demo\nsubagents:\n  agents: {helper: {description: x}}\n  dept: 2":
        "line 4: there is no key 'dept' in subagents; did you mean 'depth'?",
    "model: demo\nsubagents: gone.md": "line 2: subagents: the subagent in ",
    "model: demo\nstructured_output: {schema: 'gone_module:X'}":
        "line 2: structured_output: gone_module:X cannot be loaded",
    "model: demo\nsettings: {temprature: 1}":
        "line 2: there is no key 'temprature' in settings; did you mean 'temperature'?",
    "model: demo\nbackend: state\ntools: ['shapes_wrong:ls']": "line 1: the agent 'default': two tools are named 'ls'",
    "model: demo\nmodel: other": "line 2: the key 'model' is repeated; it is in line 1 already",
    "agents:\n  a: {model: demo}\n  a: {model: demo}": "line 3: the key 'a' is repeated; it is in line 2",
    "agents: {a: {model: demo}}\nmodel: demo": "line 2: there is no key 'model' beside agents and defaults; "
                                               "put it into `defaults:` or into an agent",
    "agent: {a: {model: demo}}": "line 1: there is no key 'agent'; ",
    "agents: {a: {model: demo}}\ndefault: {}": "line 2: there is no key 'default' beside agents and defaults; "
                                               "did you mean 'defaults'?",
    "defaults: {model: demo}": "line 1: agents is a map of ids",
    "agents: [a]": "line 1: agents is a map of ids",
    "agents: {}": "line 1: agents is a map of ids",
    "agents:\n  a: hello": "line 2: agents.a is a map of keys and values, such as `model: auto`",
    "agents:\n  ../a: {model: demo}":
        "line 2: an agent's id has letters, digits, `_`, `.` and `-`, at most 64; not '../a'",
    "agents:\n  a:\n    modle: demo": "line 3: there is no key 'modle'; did you mean 'model'?",
    "defaults:\n  limits: {stesp: 1}\nagents: {a: }":
        "line 2: there is no key 'stesp' in limits; did you mean 'steps'?",
    "defaults:\n  model: demo\n  limits: {steps: -1}\nagents: {a: }": "line 3: limits: Limits(steps=-1)",
    "": "line 1: there are no settings here",
    "# nothing": "line 1: there are no settings here",
    "- a": "line 1: there are no settings here",
    "hello": "line 1: there are no settings here",
    "model: demo\n? [a]\n: b": "line 1: a key is a text here, not a list or a map",
    "model: demo\n---\nmodel: other": "line 2: not valid YAML: ",
    "model: {": "line 2: not valid YAML: ",
    "model: demo\n\tname: x": "line 2: not valid YAML: ",
    "model: a: b": "line 1: not valid YAML: mapping values are not allowed in this context (column 9)",
    "a: &x [1]\nb: *x":
        "line 1: anchors (&) and aliases (*) are not used here; put shared settings under `defaults:`",
    "model: *x": "line 1: anchors (&) and aliases (*) are not used here",
    "model: !!python/object/apply:os.system [ls]":
        "line 1: tags such as 'tag:yaml.org,2002:python/object/apply:os.system'",
    "model: demo\nname: !secret x": "line 2: tags such as '!secret' are not used here",
    "x: " + "[" * 60 + "]" * 60: f"line 1: this is nested more than {YAML_DEPTH} levels deep",
    "context_window: 1" + "0" * 5000: "line 1: this number cannot be read",
    "name: a\0b": "line 1: not valid YAML: the character U+0000 is not allowed (column 8)",
}  # fmt: skip


# unknown to an editor's schema
WRONG_OTHERWISE = {
    "name: x\nmodel: {provider: banana}": "line 2: model: there is no provider 'banana'",
    "model: {provider: openai, model: x, modle: y}": "line 1: model: there is no key 'modle' for a model of openai; "
    "did you mean 'model'?",
    "defaults:\n  model: banana:x\nagents:\n  a: {}": "line 2: model: there is no model named 'banana:x'",
    "model: demo\nrecorder: yes": "line 2: yes is a switch in one version of YAML and a text in another; write true",
    "model: demo\nname: No": "line 2: No is a switch",
    "model: demo\nlimits: {steps: 010}": "line 2: 010 is octal in one version of YAML and decimal in another",
    "model: demo\nlimits: {seconds: 1:30}": "line 2: limits.seconds is a number, not a text",
    "model: demo\nlimits: {steps: 1_000}": "line 2: limits.steps is a whole number, not a text",
    "model: demo\n<<: {name: x}": "line 2: there is no key '<<'",
    "model: demo\n" + "".join(f"k{n}: 1\n" for n in range(30_000)): "line 10000: the file has more than 20,000 keys",
    "agents:\n" + " a: {}\n" * 30_000: "line 6667: the file has more than 20,000 keys",
}


@pytest.mark.parametrize("text", WRONG_OTHERWISE, ids=lambda text: text[:40])
def test_errors_only_the_reader_detects(write: Any, text: str) -> None:
    assert complaint(write(text)).startswith(f"agents.yaml, {WRONG_OTHERWISE[text]}")


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:40])
def test_errors_of_an_invalid_file(write: Any, text: str) -> None:
    said = complaint(write(text, shapes_wrong="def ls() -> str:\n    return ''"))
    expected = WRONG[text]
    assert said.startswith(expected if expected.startswith("agents.yaml") else f"agents.yaml, {expected}")
    assert "\n" not in said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"there is no file {re.escape(str(tmp_path / 'gone.yaml'))}"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"model: demo\nname: caf\xe9\n")
    with pytest.raises(ConfigError, match="latin.yaml, line 2: this is not UTF-8"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "long.yaml").write_bytes(b"# " + b"x" * CONFIG_BYTES)
    with pytest.raises(ConfigError, match=f"long.yaml is longer than {CONFIG_BYTES:,} bytes"):
        load(tmp_path / "long.yaml")


def test_dates_and_unusual_numbers_are_verbatim(write: Any) -> None:
    extra = "a: 2024-05-01, b: .inf, c: 0x10, d: true, on: 1, e: 1:30, f: 1_000, g: 1e3, h: 'no', i: 0o17"
    text = f"model: demo\nsettings: {{extra: {{{extra}}}}}\nname: 2024-05-01\n"
    options = load(write(text)).agents["2024-05-01"].options
    odd = {"a": "2024-05-01", "b": ".inf", "e": "1:30", "f": "1_000", "h": "no"}
    assert options["settings"]["extra"] == odd | {"c": 16, "d": True, "on": 1, "g": 1000.0, "i": 15}


def test_a_mark_at_the_beginning_and_json_are_fine(tmp_path: Path) -> None:
    (tmp_path / "agents.json").write_text("\ufeff" + json.dumps({"model": "demo", "limits": {"steps": 3}}))
    assert ring(load(tmp_path / "agents.json").agent(), "limits").steps == 3


WORDS = st.sampled_from(
    ["model", "agents", "defaults", "limits", "steps", "tools", "backend", "type", "state", "demo", "true", "null", "1",
     "1.5", "${X}", "$${", "calculate", "subagents", "description", "skills", "paths", "[", "]", "{", "}", ": ", "- ",
     ", ", "\n", "\n  ", "'", '"', "&a ", "*a", "!t ", "|\n  ", "#", "?", "%", "\t", "\0", "é"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=30).map("".join))
@example("model: demo\ntools: [null]")
@example("agents: {1: {model: demo}}")
@example("? |\n  a\n: b")
def test_any_text_is_a_file_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        config = load(path, environment={})
    except ConfigError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
    else:
        assert config.agents
        jsonschema.validate(json.loads(json.dumps(yaml.safe_load(text), default=str)), schema())


# -- for editors ----------------------------------------------------------------------------------------------------

GOOD = [
    SAMPLE,
    FULL,
    "model: demo",
    "model: demo\nlimits: {steps: '${STEPS}'}",
    "model: demo\ncontext_window: ${WINDOW:-5}",
    "agents: {a: }\ndefaults: ",
    "model: {provider: ollama, model: llama3, stream_usage: false}",
    "backend: {type: docker, image: x, limits: {memory: 1g, cpus: 2}, volumes: {./a: /b}}",
    "backend: {type: local, sandbox: none, network: true, limits: {memory: null}}",
    "backend: {type: '${BACKEND:-state}'}",
    "backend: state\nmemory: AGENTS.md\ncontext: {texts: [a], files: [b]}",
    "subagents: [agents/a.md, {name: b, description: c, tools: 'Read, Grep'}]",
    "subagents: {agents: {b: {description: c}}, depth: 2, models: {fast: haiku}}",
    "permissions: {deny: [Write, {rule: 'Bash(rm *)', message: No.}], policy: shell}",
    "hooks: ['a:b', {'c:D': {e: 1}}]",
]
# Errors that a schema can express; others are left to the builder.
SCHEMA_CANNOT = re.compile(
    "is repeated|not valid YAML|not used here|tags such|nested|cannot be read|: Budget|Limits\\(|cannot be loaded|"
    "needs|no model|the subagent in|two tools|backend: |permissions: $|not a list or a map"
)
BAD = [text for text, said in WRONG.items() if not SCHEMA_CANNOT.search(said)]


@pytest.fixture(scope="module")
def editor() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("text", GOOD, ids=lambda text: text[:40])
def test_the_schema_takes_good_files(editor: jsonschema.Draft202012Validator, text: str) -> None:
    assert [error.message for error in editor.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize("text", GOOD, ids=lambda text: text[:40])
def test_good_files_are_good(write: Any, text: str) -> None:
    assert load(write(text), environment={"STEPS": "3", "WINDOW": "9"}).agents


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_the_schema_refuses_bad_files(editor: jsonschema.Draft202012Validator, text: str) -> None:
    assert [*editor.iter_errors(yaml.safe_load(text))]


def test_most_bad_files_are_seen_by_an_editor() -> None:
    assert len(BAD) >= 30


def test_the_schema_is_json_with_descriptions(editor: jsonschema.Draft202012Validator) -> None:
    made = json.loads(json.dumps(schema()))
    assert made == schema()
    described = made["$defs"]["agent"]["properties"]
    assert all(part.get("description") for part in described.values())


TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
MAP = {"type": "object", "additionalProperties": True}


@pytest.mark.parametrize("hint, expected", [
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (float | Decimal, {"type": "number"}),
    (str | Path | os.PathLike[str], TEXT),
    (Iterable[str], TEXTS),
    (Sequence[str | Path], TEXTS),
    (Mapping[str, Any], MAP),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Callable[[str], Any] | None, {"anyOf": [REFERENCE, {"type": "null"}]}),
    (type[Capability], REFERENCE),
    (Model | str, {"anyOf": MODEL["anyOf"]}),
    (Store | str, TEXT),
    (logging.Logger | bool, {"type": "boolean"}),
    (ContainerLimits | str, TEXT),
    (Backend | None, None),
    (ContainerLimits | logging.Logger, None),
])  # fmt: skip
def test_a_type_has_a_schema_without_the_objects_that_a_file_cannot_express(hint: Any, expected: Any) -> None:
    assert build_type_schema(hint) == expected


# -- the docs -------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "config.md").read_text(encoding="utf-8")
SHOWN = [*re.findall(r"^```yaml\n(# agents.yaml\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL),
         (ROOT / "examples" / "agents.yaml").read_text(encoding="utf-8")]  # fmt: skip


def test_the_table_of_capabilities_is_the_order_of_the_rings() -> None:
    table = PAGE.partition("\n## Capabilities\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [part.key for part in RINGS if part.kind]


def test_every_key_is_in_the_docs() -> None:
    for name in schema()["$defs"]["agent"]["properties"]:
        assert f"| `{name}` |" in PAGE
    for form in schema()["$defs"]["agent"]["properties"]["backend"]["anyOf"]:
        said = PAGE.partition("\n## The backend\n")[2].partition("\n## ")[0]
        assert all(f"`{option}`" in said for option in form.get("properties", {}))


@pytest.mark.parametrize("text", SHOWN, ids=["first", "several", "example"])
def test_the_files_that_are_shown_are_good(write: Any, editor: jsonschema.Draft202012Validator, text: str) -> None:
    assert [error.message for error in editor.iter_errors(yaml.safe_load(text))] == []
    (write(text).parent / "project").mkdir()
    config = load(write(text), environment={})
    assert all(agent.agent().name == agent.name for agent in config.agents.values())


# -- deps -------------------------------------------------------------------------------------------------------------

SHOP = """
    from dataclasses import dataclass
    from wick import Deps, Run, tool

    @dataclass
    class Shop:
        customer: str

    @tool
    def greet(shop: Deps[Shop]) -> str:
        '''Greet the customer.'''
        return f"Hello, {shop.customer}."

    def open_shop(run: Run) -> Shop:
        return Shop(run.user)

    async def open_late(run: Run) -> Shop:
        return Shop(run.user)

    def open_alone() -> Shop:
        return Shop("nobody")
"""


def test_deps_come_from_a_function_of_the_run(write: Any) -> None:
    path = write("model: demo\ntools: [shop_of_test:greet]\ndeps: shop_of_test:open_shop\n", shop_of_test=SHOP)
    agent = load(path).agents["default"].agent(model=Scripted(ToolCall("1", "greet", {}), "Done."))
    assert agent.run_sync("hi", user="ada").messages.tool_messages()[0].text == "Hello, ada."
    assert "shop_of_test:open_shop" in find_python_names(load(path).agents["default"].options)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("open_late", "line 3: deps: shop_of_test:open_late is not a plain function; name one that takes the run and"),
        ("open_alone", r"deps: shop_of_test:open_alone must take one argument, the run: def open_alone\(run: Run\)"),
        ("gone", "deps: shop_of_test:gone cannot be loaded"),
        ("__name__", "is not a plain function"),
    ],
)
def test_a_function_that_cannot_give_deps_is_refused(write: Any, name: str, sentence: str) -> None:
    config = load(write(f"model: demo\ntools: []\ndeps: shop_of_test:{name}\n", shop_of_test=SHOP))
    with pytest.raises(ConfigError, match=sentence):
        config.agent()


def test_deps_that_are_no_reference_are_refused(write: Any) -> None:
    with pytest.raises(ConfigError, match="line 2: deps: 'shop' is not written as module:name"):
        load(write("model: demo\ndeps: shop\n")).agent()
