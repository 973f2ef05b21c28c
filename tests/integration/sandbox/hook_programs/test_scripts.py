"""Five hook scripts as they are known from the docs of other tools, each in two formats, run as they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kit import tool_results
from local_sandbox import needs_bubblewrap
from wick import Agent, Result, Scripted, ToolCall
from wick.backends.local import Local
from wick.capabilities.executables import Executables
from wick.capabilities.filesystem import Filesystem
from wick.hook_programs.trust import Trust

SCRIPTS = Path(__file__).parents[3] / "support" / "executables" / "scripts"
KEY = "AKIA" + "ABCDEFGHIJKLMNOP"


class Project:
    """A folder with hook scripts in one of the formats, and an agent that works there."""

    def __init__(self, format: str, tmp_path: Path) -> None:
        self.folder, self.home = tmp_path / "project", tmp_path / "home"
        self.folder.mkdir()
        self.home.mkdir()
        (self.folder / "run_tests").write_text("exit 0\n")
        self.trust = Trust(tmp_path / "trust.json")
        self.hooks = getattr(self, format)()

    def kodelet(self) -> Executables:
        local = self.folder / ".kodelet" / "hooks"
        shutil.copytree(SCRIPTS / "kodelet", local)
        self.trust.trust(local.iterdir())
        return Executables(folder=self.folder, brand="kodelet", home=self.home, trust=self.trust)

    def claude(self) -> Executables:
        local = self.folder / ".claude"
        shutil.copytree(SCRIPTS / "claude", local)
        self.trust.trust(path for path in local.rglob("*") if path.is_file())
        return Executables(folder=self.folder, claude=True, home=self.home, trust=self.trust)

    async def run(self, *replies: Any, prompt: str = "Go.") -> tuple[Result, Scripted]:
        model = Scripted(*replies)
        backend = Local(self.folder)
        agent = Agent(model, hooks=[self.hooks, Filesystem(backend)])
        try:
            return await agent.run(prompt), model
        finally:
            await self.hooks.close()
            await backend.stop()


@pytest.fixture(params=["kodelet", "claude"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    if shutil.which("node") is None:
        pytest.skip("two of the scripts need Node: install nodejs")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Project(request.param, tmp_path)


def write(path: str, content: str) -> ToolCall:
    return ToolCall("w", "write_file", {"path": path, "content": content})


def execute(command: str) -> ToolCall:
    return ToolCall("e", "execute", {"command": command})


@pytest.mark.shows("kodelet", "after_tool_call", "tool_input", "tool_output.success")
@pytest.mark.shows("claude", "PostToolUse", "tool_input")
async def test_a_formatter_after_edits(project: Project) -> None:
    await project.run(write("a.py", "x = 1   \ny = 2\t\n"), "done")
    assert (project.folder / "a.py").read_text() == "x = 1\ny = 2\n"


@pytest.mark.shows("kodelet", "before_tool_call", "tool_input", "blocked", "reason")
@pytest.mark.shows("claude", "PreToolUse", "tool_input", "exit-2")
async def test_a_secret_scanner_before_writes(project: Project) -> None:
    result, _ = await project.run(write("settings.py", f"KEY = '{KEY}'\n"), write("b.py", "KEY = 1\n"), "done")
    assert "there is an access key in this file" in tool_results(result)[0]
    assert not (project.folder / "settings.py").exists()
    assert (project.folder / "b.py").exists()


@needs_bubblewrap
@pytest.mark.shows("kodelet", "before_tool_call", "tool_name")
@pytest.mark.shows("claude", "PreToolUse", "permissionDecision", "permissionDecisionReason")
async def test_a_command_blocker(project: Project) -> None:
    (project.folder / "data").mkdir()
    result, _ = await project.run(execute("rm -rf data"), execute("echo fine"), "done")
    refused, ran = tool_results(result)
    assert "rm -rf is not allowed here" in refused and "fine" in ran
    assert (project.folder / "data").exists()


@pytest.mark.shows("kodelet", "user_message_send", "message", "blocked", "reason")
@pytest.mark.shows("claude", "UserPromptSubmit", "prompt", "exit-2")
async def test_a_prompt_filter(project: Project) -> None:
    result, model = await project.run(prompt="My password: hunter2. Log me in.")
    assert (result.outcome, model.requests) == ("stopped", [])
    assert "take the password out of your message" in result.reason
    result, _ = await project.run("Hello.", prompt="Hi.")
    assert result.text == "Hello."


@pytest.mark.shows("kodelet", "agent_stop", "follow_up_messages")
@pytest.mark.shows("claude", "Stop", "decision", "reason", "stop_hook_active")
async def test_a_stop_gate_that_runs_tests(project: Project) -> None:
    (project.folder / "run_tests").write_text("test -e fixed.py\n")
    result, model = await project.run("I am done.", write("fixed.py", "x = 1\n"), "Now I am done.")
    assert result.text == "Now I am done."
    assert "The tests fail. Mend what is broken" in model.requests[1].messages[-1].text
