"""Templates of a plugin package for `wick new --plugin`: a model, a tool, a hook, a backend, a store and a command."""

from __future__ import annotations

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "A plugin for wick."
requires-python = ">=3.11"
dependencies = ["wick-agent[cli]"]

[project.optional-dependencies]
test = ["pytest>=8.3", "pytest-asyncio>=1.1", "mypy>=1.15"]

# wick finds these names in every environment where the package is installed. Remove the groups that you do not need.
[project.entry-points."wick.models"]
{scheme} = "{module}.models:EchoModel"      # model: {scheme}:echo

[project.entry-points."wick.tools"]
{module}_reverse = "{module}.tools:reverse"        # tools: [{module}_reverse]

[project.entry-points."wick.hooks"]
{module}_limit = "{module}.hooks:limit_length"     # hooks: [{module}_limit]

[project.entry-points."wick.backends"]
{scheme} = "{module}.backends:MemoryBackend"       # backend: {scheme}

[project.entry-points."wick.stores"]
{scheme} = "{module}.stores:open_store"            # sessions: {{store: "{scheme}:///path/of/a/folder"}}

[project.entry-points."wick.commands"]
{scheme} = "{module}.commands:command"             # wick {scheme}

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
"""A hook: agents.yaml names it as {module}_limit. A hook runs only in agents that name it."""

from __future__ import annotations

from wick import Block, ToolUse, guard


@guard(ToolUse, match="{module}_reverse")
def limit_length(use: ToolUse) -> Block | None:
    """Block long texts. A guard sees the final arguments."""
    if len(use.args["text"]) > 100:
        return Block("texts of more than 100 characters are not reversed here")
    return None
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

import pytest

from {module}.backends import MemoryBackend
from wick.protocols import Backend
from wick.testing import BackendCases


class TestMemoryBackend(BackendCases):
    unsupported = frozenset({{"execute", "background", "terminal"}})

    @pytest.fixture
    def backend(self) -> Backend:
        return MemoryBackend()
'''

_TEST_AGENTS = '''\
"""An agent that names the plugins in agents.yaml. The package must be installed: pip install -e ."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from wick import Scripted, ToolCall
from wick.cli.root_command import wick
from wick.config import load

AGENTS = """
model: {scheme}:echo
tools: [{module}_reverse]
hooks: [{module}_limit]
backend: {scheme}
"""


def test_an_agent_uses_the_plugins(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (part,) = load(tmp_path / "agents.yaml").agents.values()
    replies = [ToolCall(str(number), "{module}_reverse", {{"text": "ab" * number}}) for number in (1, 99)]
    result = part.agent(model=Scripted(*replies, "Done.")).run_sync("Reverse.")
    assert [message.text for message in result.messages.tool_messages()] == [
        "ba",
        "texts of more than 100 characters are not reversed here",
    ]


def test_the_command() -> None:
    assert CliRunner().invoke(wick, ["{scheme}", "abc"]).output == "cba\\n"
'''

_README = """\
# {name}

A plugin for wick. The entry points in `pyproject.toml` add models, tools, hooks, backends, stores and commands to
every environment where this package is installed.

| file | provides | used as |
|---|---|---|
| `src/{module}/models.py` | a model provider | `model: {scheme}:echo` |
| `src/{module}/tools.py` | a tool | `tools: [{module}_reverse]` |
| `src/{module}/hooks.py` | a hook | `hooks: [{module}_limit]` |
| `src/{module}/backends.py` | a backend | `backend: {scheme}` |
| `src/{module}/stores.py` | a store | `sessions: {{store: "{scheme}:///path/of/a/folder"}}` |
| `src/{module}/commands.py` | a command | `wick {scheme} TEXT` |

```sh
pip install -e '.[test]'     # installs the entry points; repeat it after a change of them
pytest                       # wick's test cases for models, stores and backends, and an agent
mypy --strict src tests
wick doctor                  # lists the plugins
```
"""

PLUGIN_FILES = {
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    "src/{module}/__init__.py": '"""{name}: a plugin for wick."""\n',
    "src/{module}/py.typed": "",
    "src/{module}/models.py": _MODELS,
    "src/{module}/tools.py": _TOOLS,
    "src/{module}/hooks.py": _HOOKS,
    "src/{module}/backends.py": _BACKENDS,
    "src/{module}/stores.py": _STORES,
    "src/{module}/commands.py": _COMMANDS,
    "tests/test_models.py": _TEST_MODELS,
    "tests/test_stores.py": _TEST_STORES,
    "tests/test_backends.py": _TEST_BACKENDS,
    "tests/test_agents.py": _TEST_AGENTS,
    ".gitignore": "__pycache__/\n.pytest_cache/\n.mypy_cache/\n.venv/\ndist/\n",
}


def render_plugin(name: str, module: str) -> dict[str, str]:
    """Return the files of a plugin package by path; `module` is the name of its Python package."""
    values = {"name": name, "module": module, "scheme": module.replace("_", "-")}
    return {path.format(**values): text.format(**values) for path, text in PLUGIN_FILES.items()}
