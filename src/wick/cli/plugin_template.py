"""Templates of a plugin package for `wick new --plugin`: a model, a tool, a hook, a backend, a store and a command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wick.constants import REPOSITORY

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "A plugin for wick."
requires-python = ">=3.11"
dependencies = ["wick-agent[{extras}] @ git+{repository}"]  # wick is in no package index yet

[project.optional-dependencies]
test = ["pytest>=8.3", "pytest-asyncio>=1.1", "mypy>=1.15", "pyright>=1.1.400"]

# wick finds these names in every environment where the package is installed.
{entry_points}
[tool.hatch.metadata]
allow-direct-references = true  # for the repository of wick

[tool.hatch.build]
dev-mode-dirs = ["src"]  # `pip install --no-build-isolation -e .` needs no other package

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"

[tool.mypy]
strict = true

[tool.pyright]
typeCheckingMode = "standard"
"""

_MODELS = '''\
"""A model provider: `{scheme}:NAME` is EchoModel("NAME")."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage


class EchoModel:
    """A model that needs no network. Replace the body of `stream` with a request to your provider."""

    def __init__(self, model: str, *, api_key: str = "") -> None:
        self.name = f"{scheme}:{{model}}"
        self._api_key = api_key

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Yield the deltas of a reply, and one Finish. Raise wick.errors.ModelError if the provider fails."""
        last = request.messages[-1]
        if request.tools and last.role != "tool":
            tool = request.tools[0]
            numbers = map(int, re.findall(r"\\d+", last.text))
            yield CallStart(0, f"call_{{len(request.messages)}}", tool.name)
            yield CallArgs(0, json.dumps(dict(zip(tool.parameters["properties"], numbers))))
            yield Usage(input_tokens=len(last.text), output_tokens=1)
            yield Finish("tool_calls")
            return
        for word in re.findall(r"\\S+\\s*", f"You said: {{last.text}}"):
            yield TextDelta(word)
        yield Usage(input_tokens=len(last.text), output_tokens=len(last.text) + 10)
        yield Finish("stop")
'''

_TOOLS = '''\
"""A tool: agents.yaml names it as {module}_reverse."""

from __future__ import annotations

from wick import tool


@tool(name="{module}_reverse", read_only=True)
def reverse(text: str) -> str:
    """Reverse a text."""
    return text[::-1]
'''

_HOOKS = '''\
"""A hook with an option: agents.yaml names it as {module}_limit. A hook runs only in agents that name it."""

from __future__ import annotations

from wick import Block, Hook, ToolUse, guard
from wick.errors import ConfigError


def limit_length(most: int = 100) -> Hook:
    """Return a guard. wick calls this with the options in agents.yaml: `hooks: [{{{module}_limit: {{most: 50}}}}]`.

    It has checked them against this signature. So check only their ranges.
    """
    if most < 1:
        raise ConfigError(f"most is {{most}}; it must be at least 1")

    @guard(ToolUse)
    def check_length(use: ToolUse) -> Block | None:
        """Block long texts. A guard sees the final arguments."""
        if any(isinstance(value, str) and len(value) > most for value in use.args.values()):
            return Block(f"texts of more than {{most}} characters are not allowed here")
        return None

    return check_length
'''

_BACKENDS = '''\
"""A backend: files and commands of agents. agents.yaml names it as `backend: {scheme}`."""

from __future__ import annotations

from wick.backends.state import State


class MemoryBackend(State):
    """Files in memory. Replace the base class with your own methods of wick.protocols.Backend.

    In a server, `workspace` is the name of one user's workspace: users must not share files.
    """

    def __init__(self, *, workspace: str = "") -> None:
        super().__init__({{}})
        self.workspace = workspace
'''

_STORES = '''\
"""A store of threads, by the scheme of its address: {scheme}:///path/of/a/folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from wick.protocols import Store
from wick.stores.sqlite import Sqlite


def open_store(address: str) -> Store:
    """Return the store at an address. Replace Sqlite with your own class: the methods of wick.protocols.Store."""
    return Sqlite(Path(unquote(urlsplit(address).path)) / "threads.db")
'''

_COMMANDS = '''\
"""A command of the command line: `wick {scheme}`."""

from __future__ import annotations

import click


@click.command("{scheme}")
@click.argument("text")
def command(text: str) -> None:
    """Reverse a TEXT."""
    click.echo(text[::-1])
'''

_TEST_MODELS = '''\
"""wick's test cases for models.

To test a model behind a network, return `cassette("{scheme}:NAME")` with the fixture `cassette`, and record its replies
with `pytest --wick-record`.
"""

from __future__ import annotations

import pytest

from wick.models import resolve
from wick.protocols import Model
from wick.testing import ModelCases


class TestEchoModel(ModelCases):
    @pytest.fixture
    def model(self) -> Model:
        return resolve("{scheme}:echo")
'''

_TEST_STORES = '''\
"""wick's test cases for stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from {module}.stores import open_store
from wick.protocols import Store
from wick.testing import StoreCases


class TestStore(StoreCases):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = open_store(f"{scheme}://{{tmp_path}}")
        yield store
        await store.close()
'''

_TEST_BACKENDS = '''\
"""wick's test cases for backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from {module}.backends import MemoryBackend
from wick.config import load
from wick.protocols import Backend
from wick.testing import BackendCases


class TestMemoryBackend(BackendCases):
    # The cases of these operations are skipped. Remove a name when the backend supports it.
    unsupported = frozenset({{"execute", "background", "terminal"}})

    @pytest.fixture
    def backend(self) -> Backend:
        return MemoryBackend()


def test_an_agent_uses_the_backend(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("model: demo\\nbackend: {scheme}\\n")
    (part,) = load(tmp_path / "agents.yaml").agents.values()
    assert "read_file" in [tool.name for tool in part.agent().tools]
'''

_TEST_TOOLS = '''\
"""An agent that names the tool in agents.yaml. The package must be installed: pip install -e ."""

from __future__ import annotations

from pathlib import Path

from wick import Scripted, ToolCall
from wick.config import load


def test_an_agent_uses_the_tool(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("model: demo\\ntools: [{module}_reverse]\\n")
    (part,) = load(tmp_path / "agents.yaml").agents.values()
    model = Scripted(ToolCall("1", "{module}_reverse", {{"text": "ab"}}), "Done.")
    result = part.agent(model=model).run_sync("Reverse ab.")
    assert [message.text for message in result.messages.tool_messages()] == ["ba"]
'''

_TEST_HOOKS = '''\
"""An agent that names the hook, with its option, in agents.yaml. The package must be installed: pip install -e ."""

from __future__ import annotations

from pathlib import Path

import pytest

from {module}.hooks import limit_length
from wick import Scripted, ToolCall
from wick.config import load
from wick.errors import ConfigError

AGENTS = """
model: demo
builtins: [calculate]
hooks: [{{{module}_limit: {{most: 5}}}}]
"""


def test_an_agent_uses_the_hook(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (part,) = load(tmp_path / "agents.yaml").agents.values()
    calls = [ToolCall(str(number), "calculate", {{"expr": expr}}) for number, expr in enumerate(("1+1", "1+1+1+1"))]
    result = part.agent(model=Scripted(*calls, "Done.")).run_sync("Add.")
    assert [message.text for message in result.messages.tool_messages()] == [
        "2",
        "texts of more than 5 characters are not allowed here",
    ]


def test_an_option_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        limit_length(0)
'''

_TEST_COMMANDS = '''\
"""The command. The package must be installed: pip install -e ."""

from __future__ import annotations

from click.testing import CliRunner

from wick.cli.root_command import wick


def test_the_command() -> None:
    assert CliRunner().invoke(wick, ["{scheme}", "abc"]).output == "cba\\n"
'''

_README = """\
# {name}

A plugin for wick. The entry points in `pyproject.toml` add names to every environment where this package is installed.

| file | provides | used as |
|---|---|---|
{rows}
```sh
pip install -e '.[test]'     # installs the entry points; repeat it after a change of them
pytest
mypy --strict src tests
pyright src tests
wick doctor                  # lists the plugins
```
{notes}"""

_SKIPPED = """
`pytest` skips the cases of commands, background jobs and terminals: the example backend runs none. They are named in
`unsupported` in `tests/test_backends.py`. Remove a name there when your backend supports the operation: its cases run.
`pytest -rs` lists the skipped cases with reasons.
"""

_FILES = {
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    "src/{module}/__init__.py": '"""{name}: a plugin for wick."""\n',
    "src/{module}/py.typed": "",
    ".gitignore": "__pycache__/\n.pytest_cache/\n.mypy_cache/\n.venv/\ndist/\n",
}


@dataclass(frozen=True, slots=True)
class PluginKind:
    """The example of one kind of plugin: a module, its test, its entry point and its use."""

    noun: str
    source: str
    test: str
    entry: str  # the name of the entry point
    target: str  # the name in the module
    use: str


PLUGIN_KINDS = {
    "models": PluginKind("a model provider", _MODELS, _TEST_MODELS, "{scheme}", "EchoModel", "model: {scheme}:echo"),
    "tools": PluginKind("a tool", _TOOLS, _TEST_TOOLS, "{module}_reverse", "reverse", "tools: [{module}_reverse]"),
    "hooks": PluginKind(
        "a hook", _HOOKS, _TEST_HOOKS, "{module}_limit", "limit_length", "hooks: [{{{module}_limit: {{most: 50}}}}]"
    ),
    "backends": PluginKind("a backend", _BACKENDS, _TEST_BACKENDS, "{scheme}", "MemoryBackend", "backend: {scheme}"),
    "stores": PluginKind(
        "a store",
        _STORES,
        _TEST_STORES,
        "{scheme}",
        "open_store",
        'sessions: {{store: "{scheme}:///path/of/a/folder"}}',
    ),
    "commands": PluginKind("a command", _COMMANDS, _TEST_COMMANDS, "{scheme}", "command", "wick {scheme} TEXT"),
}


def render_plugin(name: str, module: str, kinds: Sequence[str] = ()) -> dict[str, str]:
    """Return the files of a plugin package by path; `module` is its Python package. No `kinds` means all of them."""
    values = {"name": name, "module": module, "scheme": module.replace("_", "-"), "repository": REPOSITORY}
    chosen = {kind: part for kind, part in PLUGIN_KINDS.items() if kind in kinds or not kinds}
    files, entries, rows = dict(_FILES), list[str](), list[str]()
    for kind, part in chosen.items():
        files |= {f"src/{{module}}/{kind}.py": part.source, f"tests/test_{kind}.py": part.test}
        entry, use = part.entry.format(**values), part.use.format(**values)
        entries.append(f'[project.entry-points."wick.{kind}"]\n{entry} = "{module}.{kind}:{part.target}"  # {use}\n')
        rows.append(f"| `src/{module}/{kind}.py` | {part.noun} | `{use}` |\n")
    values |= {
        "entry_points": "\n".join(entries),
        "rows": "".join(rows),
        "extras": "cli,files" if "backends" in chosen else "cli",  # a backend searches in files
        "notes": _SKIPPED if "backends" in chosen else "",
    }
    return {path.format(**values): text.format(**values) for path, text in files.items()}
