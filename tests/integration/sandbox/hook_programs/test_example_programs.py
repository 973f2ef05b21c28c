"""The programs of examples/programs behave as examples/README.md documents."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import ScriptedUser, execute, tool_call, tool_calls_reply, tool_result
from wick import Agent, Scripted, Tool, tool
from wick.capabilities.executables import Executables

PROGRAMS = Path(__file__).parents[4] / "examples" / "programs"


@tool(kind="write")
async def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"wrote {path}"


@tool
async def whois(person: str) -> str:
    """Return a description of a person."""
    return f"{person} <{person}@example.org>"


@pytest.fixture
def use_with_program(tmp_path: Path) -> Callable[..., Any]:
    """Return the result that the model gets, with one of the programs in an agent."""

    async def use(program: str, tool: Tool, ask: ScriptedUser | None = None, **args: Any) -> str:
        shutil.copy(PROGRAMS / program, tmp_path)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # the Python that has wick
        hooks = Executables([tmp_path], env={"PATH": path})
        assert [found.problem for found in hooks.found] == [""]
        model = Scripted(tool_calls_reply(tool_call(tool.name, **args)), "done")
        result = await Agent(model, tools=[tool], hooks=[hooks], ask=ask).run("go")
        await hooks.close()
        return tool_result(result)

    return use


FORCE = "force is not allowed; push to a branch of your own"


@pytest.mark.parametrize(
    ("command", "told"), [("git push -f", FORCE), ("git push --force origin", FORCE), ("ls", "ran ls")]
)
async def test_no_force(use_with_program: Any, command: str, told: str) -> None:
    assert await use_with_program("no_force.py", execute, command=command) == told


async def test_no_force_asks_about_any_other_push(use_with_program: Any) -> None:
    user = ScriptedUser(True)
    assert await use_with_program("no_force.py", execute, user, command="git push") == "ran git push"
    assert user.question.question == "Push?"


@pytest.mark.parametrize("secret", ["AKIA" + "A1" * 8, "-----BEGIN RSA " + "PRIVATE KEY-----"])
async def test_no_secrets(use_with_program: Any, secret: str) -> None:
    told = await use_with_program("no_secrets.sh", write_file, path="a", content=f"key = {secret}")
    assert told == "there is a key in it; read it from the environment"


async def test_no_secrets_passes_other_calls(use_with_program: Any) -> None:
    assert await use_with_program("no_secrets.sh", write_file, path="a", content="hello") == "wrote a"
    assert (
        await use_with_program("no_secrets.sh", execute, command="echo " + "AKIA" + "A1" * 8)
        == "ran echo " + "AKIA" + "A1" * 8
    )


async def test_redact(use_with_program: Any) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node here: install Node.js")
    assert await use_with_program("redact.js", whois, person="eve") == "eve <[a mail address]>"
    assert await use_with_program("redact.js", execute, command="ls") == "ran ls"


def test_every_program_can_be_run() -> None:
    """All but the one that has to be built first."""
    files = [path for path in PROGRAMS.iterdir() if path.is_file() and path.suffix != ".go"]
    assert len(files) == 3
    assert [path.name for path in files if not path.stat().st_mode & 0o100] == []
