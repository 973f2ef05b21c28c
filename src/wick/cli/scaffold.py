"""Templates of a new project for `wick new`: an agent, a hook, a tool and tests."""

from __future__ import annotations

from wick.constants import REPOSITORY

_AGENTS = """\
# The configuration of the agent. Check it with: wick agents check
name: {name}
model: auto                # a key in the environment, else Ollama, else the offline demo model
system_prompt: |
  You are {name}. Do the task, verify the result, and report it briefly.
backend:
  type: local              # files and commands, in a sandbox
  workdir: ./workspace
tools: ["{module}:count_words"]
hooks: ["{module}:no_force"]
permissions:
  allow: [Read, LS, Glob, Grep, count_words]   # other tool uses need approval
limits: {{steps: 25}}
"""

_MODULE = '''\
"""The tools and hooks of {name}: agents.yaml names them as {module}:NAME."""

from __future__ import annotations

import re

from wick import Block, ToolUse, guard, tool

# --force-with-lease is one of them: it also replaces published commits, just not those that were not fetched.
FORCED = re.compile(r"--force\\S*|--mirror|-[A-Za-z]*f[A-Za-z]*|\\+\\S+")  # or a refspec, as in: git push origin +main


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@guard(ToolUse, match="execute")
def no_force(use: ToolUse) -> Block | None:
    """Block force pushes. Guards run last, and see the final arguments.

    A shell has more ways to write one; they need approval, because the rules in agents.yaml allow no commands.
    """
    for command in re.split(r"[;&|\\n]+", use.args["command"]):
        _, push, rest = command.partition(" push ")
        if push and any(FORCED.fullmatch(word.strip("'\\"")) for word in rest.split()):
            return Block("force is not allowed here")
    return None
'''

_TEST = '''\
"""Tests of the agent with a scripted model: no API is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from wick import Result, Scripted, ToolCall
from wick.config import load

AGENTS = Path(__file__).parent.parent / "agents.yaml"


def run(*replies: ToolCall | str) -> Result:
    """Run the agent with these replies of the model."""
    (part,) = load(AGENTS).agents.values()
    return part.agent(model=Scripted(*replies)).run_sync("Start.")


def test_counts_words() -> None:
    result = run(ToolCall("1", "count_words", {{"text": "one two three"}}), "There are three.")
    (counted,) = result.messages.tool_messages()
    assert counted.text == "3"
    assert result.text == "There are three."


@pytest.mark.parametrize("options", ["--force", "--force-with-lease", "-f", "-uf origin", "origin '+main'", "--mirror"])
def test_blocks_force_push(options: str) -> None:
    result = run(ToolCall("1", "execute", {{"command": f"git status && git push {{options}}"}}), "I may not do that.")
    (refused,) = result.messages.tool_messages()
    assert "force is not allowed here" in refused.text


@pytest.mark.parametrize("command", ["git push --follow-tags", "git push -u origin a-f", "git push; tail -f +1"])
def test_other_pushes_are_not_blocked(command: str) -> None:
    result = run(ToolCall("1", "execute", {{"command": command}}), "It waits for approval.")
    assert "force is not allowed here" not in str(result.messages)
'''

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["wick-agent[cli,files,permissions] @ git+{repository}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_README = """\
# {name}

| | |
|---|---|
| `agents.yaml` | the configuration of the agent |
| `{module}.py` | its tool `count_words`, and its guard `no_force` |
| `tests/` | tests with a scripted model |

```sh
pytest                                                     # the tests
wick agents check                                          # validate agents.yaml, and show the hooks of the agent
wick run --agent agents.yaml --model demo "What is in this folder?"
wick chat --agent agents.yaml
wick serve agents.yaml
```
"""

FILES = {
    "agents.yaml": _AGENTS,
    "{module}.py": _MODULE,
    "tests/test_{module}.py": _TEST,
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    ".gitignore": "workspace/\n__pycache__/\n.pytest_cache/\n.venv/\n",
}


def render_project(name: str, module: str) -> dict[str, str]:
    """Return the files of a project by path; `module` is the name of its Python module."""
    values = {"name": name, "module": module, "repository": REPOSITORY}
    return {path.format(**values): text.format(**values) for path, text in FILES.items()}
