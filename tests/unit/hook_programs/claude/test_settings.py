"""Claude Code's settings: content, merging of files, and trust."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from executables.claude_kit import TOOLS, Json, agent, event_hooks, read_inputs, recording_handler, write_settings
from kit import tool_call, tool_calls_reply, tool_result
from wick import Agent, Scripted
from wick.capabilities.executables import Executables
from wick.errors import ConfigError
from wick.hook_programs.claude.settings import (
    HookSettings,
    merge_settings,
    parse_settings,
    parse_settings_bytes,
    read_settings,
)
from wick.hook_programs.claude.sources import list_trustable, load_settings, named_files
from wick.hook_programs.trust import Trust

CHECK = ".claude/hooks/check.sh"


def commands(settings: HookSettings, event: str = "PreToolUse") -> list[str]:
    return [entry.command for entry in settings.for_event(event)]


async def used(folder: Path, settings: HookSettings) -> str:
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done", spare=True)
    return tool_result(await agent(folder, settings, model).run("go"))


# -- content --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "settings", "hooks", "timeout")
def test_a_handler_has_its_settings() -> None:
    handler = {"type": "command", "command": "./check", "timeout": 5, "once": True, "fail": "open", "if": "Bash(ls)"}
    (entry,) = parse_settings({"PreToolUse": [{"matcher": "Bash", "hooks": [handler]}]}).entries
    assert (entry.event, entry.matcher, entry.command, entry.seconds) == ("PreToolUse", "Bash", "./check", 5)
    assert entry.once and entry.fail == "open" and entry.rule is not None and not entry.problem


@pytest.mark.shows("claude", "settings", "timeout")
def test_time_limits_depend_on_the_kind_and_the_event() -> None:
    handlers = [{"command": "x"}, {"type": "http", "url": "http://a"}, {"type": "prompt", "prompt": "x"}]
    limits = [
        entry.seconds
        for event in ("PreToolUse", "UserPromptSubmit")
        for entry in parse_settings(event_hooks(event, *handlers)).entries
    ]
    assert limits == [600, 600, 30, 30, 30, 30]


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ([], "a map of events"),
        ({"PreToolUs": []}, "there is no event named 'PreToolUs'"),
        ({"PreToolUse": {}}, "is a list"),
        ({"PreToolUse": ["x"]}, "a list of {matcher, hooks}"),
        ({"PreToolUse": [{"hooks": {}}]}, "is a list"),
        ({"PreToolUse": [{"matcher": 5, "hooks": []}]}, "matcher, in PreToolUse"),
        (event_hooks("PreToolUse", {"type": "command"}), "needs command or args"),
        (event_hooks("PreToolUse", {"type": "http"}), "needs url"),
        (event_hooks("PreToolUse", {"type": "prompt", "prompt": ""}), "needs prompt"),
        (event_hooks("PreToolUse", {"command": ["x"]}), "command, in PreToolUse in config, is a text"),
        (event_hooks("PreToolUse", {"args": "x"}), "is a list of texts"),
        (event_hooks("PreToolUse", {"command": "x", "timeout": 0}), "a number of seconds above 0"),
        (event_hooks("PreToolUse", {"command": "x", "timeout": True}), "a number of seconds above 0"),
        (event_hooks("PreToolUse", {"command": "x", "once": "yes"}), "once, in a handler"),
        (event_hooks("PreToolUse", {"command": "x", "fail": "soft"}), "is open or closed"),
        (event_hooks("PreToolUse", {"type": "http", "url": "http://a", "headers": {"a": 1}}), "a map of texts"),
    ],
)
def test_problems_are_reported(hooks: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_settings(hooks)


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"disableAllHooks": "yes"}', "\xff"])
def test_an_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"settings\.json"):
        read_settings(tmp_path / "settings.json")


def test_events_of_other_versions_are_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    text = json.dumps({"permissions": {}, "hooks": {"WorktreeCreate": [], **event_hooks("Stop", recording_handler())}})
    assert [entry.event for entry in parse_settings_bytes(text.encode(), "file").entries] == ["Stop"]
    assert "WorktreeCreate" in caplog.text


def test_a_file_that_is_not_there_has_no_hooks(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "settings.json") == HookSettings() == parse_settings_bytes(b"", "file")


@pytest.mark.shows("claude", "settings", "disableAllHooks")
async def test_all_hooks_can_be_disabled(tmp_path: Path) -> None:
    text = {"disableAllHooks": True, "hooks": event_hooks("PreToolUse", recording_handler(code=2))}
    off = parse_settings_bytes(json.dumps(text).encode(), "file")
    assert (
        await used(tmp_path, merge_settings(parse_settings(event_hooks("PreToolUse", recording_handler(code=2))), off))
        == "ran ls"
    )
    assert read_inputs(tmp_path) == []


def test_without_handlers_there_are_no_hooks(tmp_path: Path) -> None:
    assert write_settings(tmp_path, {}).hooks() == write_settings(tmp_path, HookSettings()).hooks() == []


# -- files ----------------------------------------------------------------------------------------------------------


class Folder:
    """A project with settings, a user with settings, and the user's trust."""

    def __init__(self, path: Path) -> None:
        self.path, self.home = path / "project", path / "home"
        for folder in (self.path / ".claude" / "hooks", self.home):
            folder.mkdir(parents=True)
        self.trust = Trust(path / "trust.json")

    def write(self, name: str, hooks: Json, home: bool = False) -> Path:
        file = (self.home if home else self.path / ".claude") / name
        file.write_text(json.dumps({"hooks": hooks}))
        return file

    def script(self, text: str = "exit 2") -> Path:
        file = self.path / CHECK
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    def load(self) -> HookSettings:
        return load_settings(self.path, self.trust, home=self.home)

    def trust_all(self) -> None:
        self.trust.trust(list_trustable(self.path))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.shows("claude", "settings", "merge")
def test_files_merge_in_order(folder: Folder) -> None:
    folder.write("settings.json", event_hooks("PreToolUse", {"command": "one"}), home=True)
    folder.write("settings.json", event_hooks("PreToolUse", {"command": "two"}))
    folder.write("settings.local.json", event_hooks("PreToolUse", {"command": "three"}))
    folder.trust_all()
    assert commands(folder.load()) == ["one", "two", "three"]


async def test_settings_of_an_untrusted_folder_are_ignored(folder: Folder) -> None:
    folder.write("settings.json", event_hooks("PreToolUse", recording_handler(code=2, stderr="no")))
    settings = folder.load()
    assert [entry.trust for entry in settings.entries] == ["untrusted"] and commands(settings) == []
    assert await used(folder.path, settings) == "ran ls" and read_inputs(folder.path) == []
    folder.trust_all()
    assert await used(folder.path, folder.load()) == "no"


def test_untrusted_settings_may_be_broken(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    (folder.path / ".claude" / "settings.json").write_text("{")
    assert folder.load() == HookSettings() and "not JSON" in caplog.text
    folder.trust.trust([folder.path / ".claude" / "settings.json"])
    with pytest.raises(ConfigError, match="not JSON"):
        folder.load()


async def test_settings_that_changed_are_not_used_and_deny(folder: Folder) -> None:
    file = folder.write("settings.json", event_hooks("PreToolUse", recording_handler()))
    folder.trust_all()
    settings = folder.load()
    assert await used(folder.path, settings) == "ran ls"
    folder.write("settings.json", {})  # also one that leaves the check out
    assert "was changed after it was trusted" in await used(folder.path, settings)
    assert "was changed after it was trusted" in await used(folder.path, folder.load())
    folder.trust.trust([file])
    assert await used(folder.path, folder.load()) == "ran ls"


async def test_removed_trusted_settings_deny_until_forgotten(folder: Folder) -> None:
    file = folder.write("settings.json", event_hooks("PreToolUse", recording_handler()))
    folder.trust_all()
    settings = folder.load()
    file.unlink()
    assert "no longer exists" in await used(folder.path, settings)
    assert "was trusted and is gone" in await used(folder.path, folder.load())
    folder.trust.forget([file])
    assert await used(folder.path, folder.load()) == "ran ls"


async def test_settings_that_are_not_trusted_switch_nothing_off(folder: Folder) -> None:
    folder.write("settings.json", event_hooks("PreToolUse", recording_handler(code=2, stderr="no")), home=True)
    (folder.path / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert await used(folder.path, folder.load()) == "no"
    folder.trust_all()
    assert await used(folder.path, folder.load()) == "ran ls"


@pytest.mark.parametrize(
    "handler",
    [
        {"command": CHECK},
        {"command": f'"$CLAUDE_PROJECT_DIR"/{CHECK} --strict'},
        {"command": f"cat; sh ${{CLAUDE_PROJECT_DIR}}/{CHECK}; exit $?"},
        {"args": ["sh", f"${{CLAUDE_PROJECT_DIR}}/{CHECK}"]},
        {"command": f"X=1 sh {CHECK}"},
        {"command": f"sh -c 'cat | sh {CHECK}'"},
        {"command": "cd .claude/hooks && ./check.sh"},
        {"command": "sh -c 'cd \"$CLAUDE_PROJECT_DIR/.claude/hooks\"; sh check.sh'"},
    ],
)
async def test_a_script_that_changed_does_not_run(folder: Folder, handler: Json) -> None:
    script = folder.script("exit 0")
    folder.write("settings.json", event_hooks("PreToolUse", {"type": "command", **handler}))
    folder.trust_all()
    settings = folder.load()
    assert await used(folder.path, settings) == "ran ls"
    script.write_text('#!/bin/sh\ntouch "$CLAUDE_PROJECT_DIR/ran"; exit 0\n')
    assert "was changed after it was trusted" in await used(folder.path, settings)
    assert not (folder.path / "ran").exists()
    folder.trust_all()
    assert await used(folder.path, folder.load()) == "ran ls" and (folder.path / "ran").exists()


async def test_user_settings_run_but_not_their_workspace_programs(folder: Folder) -> None:
    folder.script("touch ran")
    folder.write("settings.json", event_hooks("PreToolUse", {"command": f'"$CLAUDE_PROJECT_DIR"/{CHECK}'}), home=True)
    assert "names a file of this folder that is not trusted" in await used(folder.path, folder.load())
    assert not (folder.path / "ran").exists()
    folder.write("settings.json", event_hooks("PreToolUse", recording_handler(code=2, stderr="my own")), home=True)
    assert await used(folder.path, folder.load()) == "my own"


async def test_explicitly_named_files_are_trusted(folder: Folder) -> None:
    folder.script("exit 2")
    file = folder.write("mine.json", event_hooks("PreToolUse", {"command": CHECK}))
    assert "refused it" in await used(folder.path, load_settings(folder.path, folder.trust, paths=[file]))
    with pytest.raises(ConfigError, match="there are no settings at"):
        load_settings(folder.path, folder.trust, paths=["nowhere.json"])


def test_only_programs_and_scripts_of_the_folder_count(folder: Folder) -> None:
    folder.script()
    (folder.path / "notes.txt").write_text("x")
    (folder.path / "tool.py").write_text("x")
    (folder.path / "link.sh").symlink_to("/bin/sh")
    (folder.path / ".claude" / "hooks" / "part.py").write_text("x")
    (folder.path / ".claude" / "hooks" / "check.log").write_text("x")
    os.chmod(folder.path / "notes.txt", 0o644)
    (entry,) = parse_settings(
        event_hooks("PreToolUse", {"command": f"{CHECK} notes.txt /bin/sh tool.py link.sh 'unfinished"})
    ).entries
    assert [path.name for path in named_files(entry, folder.path)] == ["check.sh", "tool.py", "part.py"]


# -- the capability -------------------------------------------------------------------------------------------------


async def test_the_capability_has_all_settings(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.home.parent))
    folder.home.rename(folder.home.parent / ".claude")
    file = folder.home.parent / ".claude" / "settings.json"
    file.write_text(json.dumps({"hooks": event_hooks("PreToolUse", recording_handler(fail="open"))}))
    folder.write("settings.json", event_hooks("Stop", recording_handler()))
    own = event_hooks("SessionEnd", recording_handler())
    made = Executables(folder=folder.path, settings=own, claude=True, trust=folder.trust)
    rows = [(row.event, row.trust, row.fail, row.ring) for row in made.listed()]
    assert rows == [
        ("PreToolUse", "trusted", "open", 0),
        ("Stop", "untrusted", "", 1),
        ("SessionEnd", "trusted", "", 2),
    ]
    model = Scripted(tool_calls_reply(tool_call("execute", command="ls")), "done")
    await Agent(model, tools=TOOLS, hooks=[made]).run("go")
    await made.close()
    assert [row["hook_event_name"] for row in read_inputs(folder.path)] == ["PreToolUse", "SessionEnd"]


def test_without_settings_the_capability_has_no_hooks(folder: Folder) -> None:
    assert Executables(folder=folder.path, trust=folder.trust).hooks() == []


async def test_a_script_is_trusted_together_with_its_folder(folder: Folder) -> None:
    folder.script('. "$CLAUDE_PROJECT_DIR/.claude/hooks/parts/lib"')
    lib = folder.path / ".claude" / "hooks" / "parts" / "lib"
    lib.parent.mkdir()
    lib.write_text("exit 0\n")
    folder.write("settings.json", event_hooks("PreToolUse", {"command": f'"$CLAUDE_PROJECT_DIR"/{CHECK}'}))
    folder.trust_all()
    settings = folder.load()
    assert await used(folder.path, settings) == "ran ls"
    lib.write_text("touch ran\n")
    assert "was changed after it was trusted" in await used(folder.path, settings)
    assert not (folder.path / "ran").exists()


def test_settings_that_are_no_file_are_not_read(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    (folder.path / ".claude" / "settings.json").symlink_to("/dev/zero")
    os.mkfifo(folder.path / ".claude" / "settings.local.json")
    assert folder.load() == HookSettings() and caplog.text.count("are not a file") == 2
