"""Settings files of Claude Code as capabilities and options of an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wick import Agent, Scripted, ToolCall, tool
from wick.backends.local import Local
from wick.capabilities.executables import Executables
from wick.capabilities.permissions import Permissions
from wick.cli.host.agent_options import AgentOverrides
from wick.config import claude_settings, load
from wick.config.claude_settings import ClaudeSettings
from wick.errors import ConfigError
from wick.hook_programs.trust import Trust

USER, PROJECT, LOCAL = "home/.claude/settings.json", "p/.claude/settings.json", "p/.claude/settings.local.json"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "p").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "p")
    monkeypatch.setattr(claude_settings, "MANAGED_FOLDER", str(tmp_path / "managed"))
    return tmp_path


def write(root: Path, name: str, trusted: bool = True, /, **settings: Any) -> Path:
    """Write a settings file, and trust it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))
    if trusted:
        Trust().trust([path])
    return path


def load_settings(root: Path, **options: Any) -> ClaudeSettings:
    return ClaudeSettings.load(root / "p", **options)


def decide(settings: ClaudeSettings, tool: str, **args: Any) -> str:
    _, permissions = settings.capabilities()
    assert isinstance(permissions, Permissions)
    return permissions.explain(tool, args).decision


def test_the_files_are_merged_in_their_order(root: Path) -> None:
    write(root, USER, permissions={"deny": ["Bash(rm *)"], "defaultMode": "plan"}, env={"A": "1", "B": "1"})
    write(root, PROJECT, permissions={"ask": ["Bash(git push*)"], "defaultMode": "default"}, env={"B": "2", "C": "2"})
    write(root, LOCAL, permissions={"allow": ["Bash(git *)"], "defaultMode": "acceptEdits"}, env={"C": "3"})
    settings = load_settings(root)
    assert (settings.mode, settings.env) == ("acceptEdits", {"A": "1", "B": "2", "C": "3"})
    assert settings.warnings == []
    commands = ("rm -rf x", "git push origin", "git status", "make")
    assert [decide(settings, "Bash", command=command) for command in commands] == ["deny", "ask", "allow", "ask"]
    assert decide(settings, "Edit", path="a.py") == "allow"


MANAGED = "managed/managed-settings.json"


def test_managed_settings_come_last_and_need_no_trust(root: Path) -> None:
    write(root, USER, permissions={"allow": ["Bash(rm *)"], "defaultMode": "acceptEdits"}, env={"A": "1"})
    own = write(root, "own.json", permissions={"allow": ["Bash(rm *)"]})
    rules = {"deny": ["Bash(rm *)"], "defaultMode": "plan", "disableBypassPermissionsMode": "disable"}
    write(root, MANAGED, False, permissions=rules, env={"A": "2"})
    write(root, "managed/managed-settings.d/10-curl.json", False, permissions={"deny": ["Bash(curl *)"]})
    for settings in (load_settings(root), load_settings(root, paths=[own])):
        assert (settings.mode, settings.env, settings.has_bypass) == ("plan", {"A": "2"}, False)
        assert [decide(settings, "Bash", command=command) for command in ("rm x", "curl x")] == ["deny", "deny"]


@pytest.mark.parametrize("key", ["hooks", "allowManagedHooksOnly", "allowManagedPermissionRulesOnly"])
def test_managed_settings_that_cannot_be_applied_are_refused(root: Path, key: str) -> None:
    write(root, MANAGED, False, **{key: {"PreToolUse": []}})
    with pytest.raises(ConfigError, match=f"wick does not apply {key} of the managed settings .*; ask your admin"):
        load_settings(root)


def test_reading_is_not_asked_about_as_in_claude_code(root: Path) -> None:
    assert [decide(load_settings(root), tool, path="a") for tool in ("Read", "Grep", "Write")] == [
        "allow",
        "allow",
        "ask",
    ]
    write(root, USER, permissions={"defaultMode": "dontAsk"})
    assert decide(load_settings(root), "Read", path="a") == "deny"


def test_a_denied_use_names_the_rule_as_it_is_written(root: Path) -> None:
    write(root, USER, permissions={"deny": ["Edit(/dist/**)"]})
    _, permissions = load_settings(root).capabilities()
    assert isinstance(permissions, Permissions)
    verdict = permissions.explain("Write", {"path": "dist/a.js"})
    assert (verdict.decision, verdict.reason) == ("deny", "the permission rule Edit(/dist/**) denies this")


def test_rules_may_name_tools_that_the_agent_lacks(root: Path) -> None:
    write(root, USER, permissions={"deny": ["mcp__github__delete", "NotebookEdit", "KillShell", "Task(Explore)"]})
    settings = load_settings(root)
    agent = Agent(Scripted("done"), hooks=settings.capabilities())
    assert agent.run_sync("go").text == "done"
    with pytest.raises(ConfigError, match="mcp__github__delete"):
        Agent(Scripted(), hooks=[Permissions(deny=["mcp__github__delete"])])


async def test_hooks_run_with_the_environment_of_the_settings(root: Path) -> None:
    handler = {"type": "command", "command": 'test "$WORD" = secret && echo "not with $WORD" >&2 && exit 2'}
    write(root, PROJECT, hooks={"PreToolUse": [{"matcher": "look", "hooks": [handler]}]}, env={"WORD": "secret"})
    (programs, permissions) = load_settings(root).capabilities()
    assert isinstance(programs, Executables)

    @tool
    def look() -> str:
        """Look."""
        return "a room"

    agent = Agent(Scripted(ToolCall("1", "look"), "done"), tools=[look], hooks=[programs, permissions])
    result = await agent.run("go")
    assert [message.text for message in result.messages.tool_messages()] == ["not with secret"]
    await programs.close()


# -- trust ----------------------------------------------------------------------------------------------------------


def test_an_untrusted_file_of_the_project_is_not_used(root: Path) -> None:
    path = write(root, PROJECT, False, permissions={"allow": ["Bash"], "defaultMode": "plan"}, env={"A": "1"})
    settings = load_settings(root)
    assert (settings.mode, settings.env) == ("default", {})
    assert decide(settings, "Bash", command="ls") == "ask"
    assert settings.warnings == [f"untrusted settings are not used: {path}; review them, then run: wick hooks trust"]


def test_a_file_that_was_changed_or_removed_is_refused(root: Path) -> None:
    path = write(root, PROJECT, permissions={"deny": ["Bash"]})
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"was changed after it was trusted.*wick hooks trust"):
        load_settings(root)
    path.unlink()
    with pytest.raises(ConfigError, match=r"was trusted and is gone.*wick hooks trust --forget"):
        load_settings(root)


def test_the_command_that_trusts_names_another_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    write(root, PROJECT, False)
    assert load_settings(root).warnings[0].endswith(f"then run: wick hooks trust --folder {root / 'p'}")


def test_a_file_that_the_caller_names_needs_no_trust(root: Path) -> None:
    write(root, PROJECT, False, permissions={"deny": ["Bash"]})
    write(root, "p/mine.json", False, permissions={"defaultMode": "plan"})
    settings = load_settings(root, paths=["mine.json"])
    assert (settings.mode, settings.rules["deny"]) == ("plan", [])
    with pytest.raises(ConfigError, match="there are no settings at"):
        load_settings(root, paths=["other.json"])


# -- nothing is looser than written ---------------------------------------------------------------------------------


def test_the_mode_without_questions_needs_the_consent_of_the_caller(root: Path) -> None:
    write(root, USER, permissions={"defaultMode": "bypassPermissions"})
    settings = load_settings(root)
    assert settings.mode == "default"
    assert settings.warnings == ["the mode bypassPermissions of the settings is not used; allow it with allow_bypass"]
    assert load_settings(root, allow_bypass=True).mode == "bypassPermissions"
    write(root, PROJECT, permissions={"disableBypassPermissionsMode": "disable"})
    settings = load_settings(root, allow_bypass=True)
    assert settings.mode == "default" and "disableBypassPermissionsMode is set" in settings.warnings[0]


@pytest.mark.parametrize(
    "permissions, words",
    [
        ({"defaultMode": "auto"}, "wick has no permission mode 'auto', the defaultMode in"),
        ({"defaultMode": 1}, "wick has no permission mode 1"),
        ({"denny": ["Bash"]}, "wick does not know permissions.denny in"),
        ({"deny": "Bash"}, "is a list, also of one"),
        ({"deny": ["Bash(*rm*)"]}, r"permissions.deny in .*settings.json: the rule 'Bash\(\*rm\*\)' cannot be applied"),
        ({"ask": [["Bash"]]}, "cannot be read"),
        (["Bash"], "is a map"),
    ],
)
def test_wrong_permissions_are_refused(root: Path, permissions: Any, words: str) -> None:
    write(root, USER, permissions=permissions)
    with pytest.raises(ConfigError, match=words):
        load_settings(root)


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "are not JSON"),
        ("[]", "are a JSON object"),
        ('{"env": {"A": 1}}', "write it in quotes"),
        ('{"env": []}', ""),
    ],
)
def test_a_wrong_file_is_refused(root: Path, text: str, words: str) -> None:
    path = root / USER
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=words or "is a map"):
        load_settings(root)


def test_an_empty_file_counts_as_absent(root: Path) -> None:
    path = root / USER
    path.parent.mkdir()
    path.write_text("")
    assert load_settings(root).warnings == []


def test_keys_that_are_not_used_are_named(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(root, USER, **{"$schema": "x", "model": "opus", "statusLine": {}})
    write(root, PROJECT, permissions={"allow": ["Bash(* --version)"], "additionalDirectories": ["~/nowhere"]})
    settings = load_settings(root)
    assert settings.warnings[0] == f"wick does not use model, statusLine in {path}"
    assert "the rule 'Bash(* --version)' cannot be applied" in settings.warnings[1]
    assert "the additional directory ~/nowhere" in settings.warnings[2]
    assert settings.warnings == [record.getMessage() for record in caplog.records]


# -- agents.yaml and the command line -------------------------------------------------------------------------------


def parse_agent(root: Path, text: str) -> Agent:
    (root / "agents.yaml").write_text(text)
    config = load(root / "agents.yaml")
    (part,) = config.agents.values()
    return part.agent()


def find_permissions(agent: Agent) -> Permissions:
    (found,) = (part for part in agent.capabilities if isinstance(part, Permissions))
    return found


def test_an_agents_file_uses_the_settings(root: Path) -> None:
    write(root, PROJECT, permissions={"deny": ["Bash(rm *)"], "defaultMode": "acceptEdits"}, env={"A": "1"})
    text = """
model: demo
claude_settings: true
backend: {type: local, workdir: p}
permissions: {deny: ["Bash(git push *)"]}
"""
    agent = parse_agent(root, text)
    permissions = find_permissions(agent)
    decisions = [permissions.explain("Bash", {"command": command}).decision for command in ("rm x", "git push x", "ls")]
    assert (permissions.mode, decisions) == ("acceptEdits", ["deny", "deny", "ask"])
    assert isinstance(permissions.backend, Local)


def test_a_backend_gets_the_environment_and_the_additional_directories(root: Path) -> None:
    (root / "home" / "lib").mkdir()
    write(root, USER, permissions={"additionalDirectories": ["~/lib"]}, env={"A": "1", "B": "1"})
    settings, lib = load_settings(root), str(root / "home" / "lib")
    own = {"type": "local", "env": {"B": "2"}, "readable": ["/opt"]}
    assert settings.apply_to({"backend": own})["backend"] == {
        "type": "local",
        "env": {"A": "1", "B": "2"},
        "readable": [lib, "/opt"],
    }
    docker = {"type": "docker", "image": "x"}
    assert settings.apply_to({"backend": docker})["backend"] == {**docker, "env": {"A": "1", "B": "1"}}
    assert "backend" not in settings.apply_to({})


@pytest.mark.parametrize("value", ["[mine.json]", "{paths: [mine.json]}"])
def test_an_agents_file_names_settings(root: Path, value: str) -> None:
    write(root, "mine.json", False, permissions={"defaultMode": "plan"})
    assert find_permissions(parse_agent(root, f"model: demo\nclaude_settings: {value}\n")).mode == "plan"


def test_an_error_of_the_settings_names_the_line_of_the_agents_file(root: Path) -> None:
    write(root, USER, permissions={"defaultMode": "auto"})
    with pytest.raises(ConfigError, match=r"agents.yaml, line 2: claude_settings: wick has no permission mode 'auto'"):
        parse_agent(root, "model: demo\nclaude_settings: true\n")


def test_own_permissions_have_precedence(root: Path) -> None:
    write(root, USER, permissions={"defaultMode": "bypassPermissions"})
    wanted = "claude_settings: {allow_bypass: true}"
    assert find_permissions(parse_agent(root, f"model: demo\n{wanted}\n")).mode == "bypassPermissions"
    own = find_permissions(parse_agent(root, f"model: demo\n{wanted}\npermissions: {{mode: plan}}\n"))
    assert own.mode == "plan"


def test_options_of_the_command_line_add_rules_and_keep_the_mode() -> None:
    options = AgentOverrides(allow=["Bash(ls)"], claude=True).apply_to({"model": "demo"})
    assert options["claude_settings"] is True
    assert options["permissions"] == {"allow": ["Bash(ls)"]}
    named = {"claude_settings": ["a.json"]}
    assert AgentOverrides(claude=True).apply_to(named)["claude_settings"] == ["a.json"]


def test_without_hooks_the_settings_bring_permissions_only(root: Path) -> None:
    write(root, USER, permissions={"deny": ["Bash"]}, hooks={"Stop": [{"hooks": [{"command": "exit 1"}]}]})
    changed = load_settings(root).apply_to({"executables": False})
    assert changed["executables"] is False and changed["permissions"]["deny"]
