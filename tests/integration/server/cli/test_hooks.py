"""`wick hooks`, as a process: list, onion, trust, test, new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import CommandResult, WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from server_process import ServerProcess

NO_FORCE = """#!/bin/sh
case "$1" in
hook) echo before_tool_call ;;
run) if grep -q -e --force; then echo '{"blocked": true, "reason": "no force"}'; fi ;;
esac
"""


@pytest.fixture
def wick(tmp_path: Path) -> WickCommand:
    return ForkedWick(tmp_path)


@pytest.fixture
def local(wick: WickCommand) -> WickCommand:
    """A folder with a program in it."""
    wick.write(".wick/hooks/no_force", NO_FORCE, executable=True)
    return wick


def rows(done: CommandResult) -> dict[str, dict[str, Any]]:
    assert done.code == 0, done.err
    return {row["name"]: row for row in json.loads(done.out)}


def test_programs_of_a_folder_are_listed_as_untrusted(local: WickCommand) -> None:
    row = rows(local("hooks", "list", "--json"))["no_force"]
    assert (row["trust"], row["point"], row["ring"]) == ("untrusted", "", None)
    assert row["source"] == ".wick/hooks"


def test_a_trusted_program_is_listed_with_its_point_and_ring(local: WickCommand) -> None:
    done = local("hooks", "trust", "--yes")
    assert done.code == 0, done.err
    assert "no_force" in done.out and "1 trusted" in done.out
    row = rows(local("hooks", "list", "--json"))["no_force"]
    assert (row["trust"], row["point"], row["fail"]) == ("trusted", "before_tool_use", "closed")
    assert isinstance(row["ring"], int)
    assert "no files need trust" in local("hooks", "trust").out


def test_a_changed_file_is_listed_as_untrusted(local: WickCommand) -> None:
    local("hooks", "trust", "--yes")
    local.write(".wick/hooks/no_force", NO_FORCE + "# changed\n", executable=True)
    row = rows(local("hooks", "list", "--json"))["no_force"]
    assert (row["trust"], row["problem"]) == ("changed", "was changed after it was trusted")
    assert row["point"] == "before_tool_use"  # it keeps its hooks and denies


def test_trust_is_asked_for_and_can_be_taken_back(local: WickCommand) -> None:
    refused = local("hooks", "trust", stdin="n\n")
    assert refused.code == 1 and "Trust them?" in refused.out
    assert local("hooks", "trust", stdin="y\n").code == 0
    assert "1 revoked" in local("hooks", "trust", "--forget", "--yes").out
    assert rows(local("hooks", "list", "--json"))["no_force"]["trust"] == "untrusted"
    assert "no trusted files" in local("hooks", "trust", "--forget").out


def test_the_list_has_python_hooks_too(wick: WickCommand) -> None:
    found = rows(wick("hooks", "list", "--json"))
    assert found["limits.check"]["point"] == "before_step"
    assert found["limits.check"]["source"] == "wick.capabilities.limits:Limits"
    guards = [
        row for row in found.values() if row["source"].endswith(":Permissions") and row["point"].startswith("guard")
    ]
    assert guards and all(row["fail"] == "closed" for row in guards)


def test_a_table_for_people(local: WickCommand) -> None:
    done = local("hooks", "list")
    header, *lines = done.out.splitlines()
    assert header.split() == ["hook", "point", "ring", "source", "trust", "fail", "problem"]
    (line,) = [line for line in lines if line.startswith("no_force")]
    assert line.split() == ["no_force", "-", "-", ".wick/hooks", "untrusted"]


def test_fail_open_shows_in_the_list(wick: WickCommand) -> None:
    wick.write("programs/no_force", NO_FORCE, executable=True)
    wick.write("agents.yaml", "model: demo\nexecutables: {dirs: [programs], fail: {no_force: open}}\n")
    row = rows(wick("hooks", "list", "--json", "--agent", "agents.yaml"))["no_force"]
    assert (row["trust"], row["fail"]) == ("trusted", "open")


def test_fail_open_shows_in_the_onion(wick: WickCommand) -> None:
    wick.write("programs/no_force", NO_FORCE, executable=True)
    entry = "{type: command, command: 'exit 0'}"
    opened = entry.replace("}", ", fail: open}")
    wick.write(
        "agents.yaml",
        "model: demo\nexecutables: {dirs: [programs], fail: {no_force: open}}\n"
        f"hooks: {{UserPromptSubmit: [{{hooks: [{opened}]}}], Stop: [{{hooks: [{entry}]}}]}}\n",
    )
    drawn = wick("hooks", "onion", "--agent", "agents.yaml").out.splitlines()
    marked = {line.split()[1] for line in drawn if "(fail: open)" in line}
    assert marked == {
        *("no_force@before_tool_use", "no_force@guard_tool_use"),
        *("UserPromptSubmit@before_run", "UserPromptSubmit@guard_run"),
    }
    told = json.loads(wick("hooks", "onion", "--json", "--agent", "agents.yaml").out)
    assert {row["name"] for rows in told.values() for row in rows if row.get("fail") == "open"} == marked


def test_a_program_with_several_events_is_listed_with_its_rings(wick: WickCommand) -> None:
    wick.write(
        "programs/check",
        """#!/bin/sh\necho '{"points": ["before_tool_call", "agent_stop"], "protocol": "run"}'\n""",
        executable=True,
    )
    wick.write("agents.yaml", "model: demo\nexecutables: {dirs: [programs]}\n")
    listed = json.loads(wick("hooks", "list", "--json", "--agent", "agents.yaml").out)
    rings = {row["point"]: row["ring"] for row in listed if row["name"] == "check"}
    assert set(rings) == {"before_tool_use", "after_step"} and None not in rings.values()


def test_the_onion_shows_a_program_before_and_at_the_gate(local: WickCommand) -> None:
    local("hooks", "trust", "--yes")
    drawn = local("hooks", "onion").out
    part = drawn[drawn.index("tool_use\n") :].splitlines()
    stripped = [line.split() for line in part if "no_force" in line]
    assert stripped == [["before", "no_force@before_tool_use"], ["guard", "no_force@guard_tool_use"]]
    told = json.loads(local("hooks", "onion", "--json").out)
    assert {"run", "step", "model_call", "tool_use"} == told.keys()
    assert ("guard", "no_force@guard_tool_use") in [(row["position"], row["name"]) for row in told["tool_use"]]


def test_the_hooks_of_a_server(tmp_path: Path, cli_server: ServerProcess) -> None:
    there = HostCommand(ForkedWick(tmp_path), cli_server)
    found = rows(there("hooks", "list", "--json"))
    assert found["limits.check"]["point"] == "before_step" and found["permissions.check"]["fail"] == "closed"
    assert isinstance(found["limits.check"]["ring"], int)
    told = json.loads(there("hooks", "onion", "--json").out)
    assert {"run", "step", "model_call", "tool_use"} == told.keys()
    drawn = there("hooks", "onion", "--agent", "other").out
    assert "limits.check" in drawn and "permissions.check" not in drawn
    unknown = there("hooks", "list", "--agent", "nobody")
    assert unknown.code == 2 and "nobody" in unknown.err and unknown.err.count("\n") == 1


# -- test -----------------------------------------------------------------------------------------------------------

EVENT = {"event": "before_tool_call", "tool_name": "bash", "tool_input": {"command": "git push"}}
FORCED = {**EVENT, "tool_input": {"command": "git push --force"}}


def run_hook_test(wick: WickCommand, event: Any, *more: str, name: str = "no_force") -> CommandResult:
    wick.write("event.json", json.dumps(event))
    return wick("hooks", "test", name, "--payload", "event.json", *more)


def test_a_program_is_tried(local: WickCommand) -> None:
    untrusted = run_hook_test(local, EVENT)
    assert untrusted.code == 2 and "is untrusted; review it, then run: wick hooks trust" in untrusted.err
    local("hooks", "trust", "--yes")
    agreed = run_hook_test(local, EVENT)
    assert (agreed.code, agreed.out.strip()) == (0, "agreed")
    refused = run_hook_test(local, FORCED)
    assert refused.code == 3 and refused.out.startswith("refused: no force\n")
    told = json.loads(run_hook_test(local, FORCED, "--json").out)
    assert (told["word"], told["reason"], told["exit_code"]) == ("refused", "no force", 0)


def test_a_program_gets_the_compact_json_of_a_run(wick: WickCommand) -> None:
    body = (
        """[ "$1" = hook ] && echo before_tool_call && exit\ncase "$(cat)" in *'"tool_name":"bash"'*) exit 5; esac\n"""
    )
    wick.write("programs/compact", f"#!/bin/sh\n{body}", executable=True)
    wick.write("agents.yaml", "model: demo\nexecutables: {dirs: [programs]}\n")
    tried = run_hook_test(wick, EVENT, "--agent", "agents.yaml", name="compact")
    assert tried.out.startswith("failed: it ended with exit code 5")


def test_a_failing_program_is_reported(wick: WickCommand) -> None:
    for name, body in {"crashes": "exit 5", "babbles": "echo nonsense"}.items():
        text = f'#!/bin/sh\n[ "$1" = hook ] && echo before_tool_call && exit\n{body}\n'
        wick.write(f"programs/{name}", text, executable=True)
    wick.write("agents.yaml", "model: demo\nexecutables: {dirs: [programs]}\n")
    crashed = run_hook_test(wick, EVENT, "--agent", "agents.yaml", name="crashes")
    assert crashed.code == 1
    assert crashed.out.startswith("failed: it ended with exit code 5, so the operation is blocked")
    babbled = run_hook_test(wick, EVENT, "--agent", "agents.yaml", name="babbles")
    assert babbled.code == 1 and "not JSON" in babbled.out


WARM = """#!/usr/bin/env python3
import json, sys
if sys.argv[1:] == ["hook"]:
    print(json.dumps({"points": ["guard_tool_use"], "protocol": "lines"}))
else:
    for line in sys.stdin:
        call = json.loads(line)
        bad = "--force" in call["args"]["command"]
        answer = {"decision": "block", "reason": "no force"} if bad else {}
        print(json.dumps({"id": call["id"], **answer}), flush=True)
"""


def test_a_warm_program_is_tried(wick: WickCommand) -> None:
    wick.write("programs/warm", WARM, executable=True)
    wick.write("agents.yaml", "model: demo\nexecutables: {dirs: [programs]}\n")
    event = {"event": "guard_tool_use", "tool": "execute", "args": {"command": "git push --force"}}
    refused = run_hook_test(wick, event, "--agent", "agents.yaml", name="warm")
    assert refused.code == 3 and "refused: no force" in refused.out


SETTINGS = {
    "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}],
    "Stop": [{"hooks": [{"type": "command", "command": "echo one"}, {"type": "command", "command": "exit 1"}]}],
}
CHECK = "#!/bin/sh\nif grep -q -e --force; then echo no force >&2; exit 2; fi\n"


def test_a_handler_of_settings_is_listed_trusted_and_tried(wick: WickCommand) -> None:
    wick.write(".claude/settings.json", json.dumps({"hooks": SETTINGS}))
    wick.write("check.sh", CHECK, executable=True)
    assert rows(wick("hooks", "list", "--json"))["./check.sh"]["trust"] == "untrusted"
    call = {"tool_name": "Bash", "tool_input": {"command": "git push --force"}}
    assert "is untrusted" in run_hook_test(wick, call, name="PreToolUse").err
    done = wick("hooks", "trust", "--yes")
    assert "settings.json" in done.out and "check.sh" in done.out and "2 trusted" in done.out
    row = rows(wick("hooks", "list", "--json"))["./check.sh"]
    assert (row["trust"], row["point"], row["fail"]) == ("trusted", "before_tool_use", "closed")
    assert isinstance(row["ring"], int)
    refused = run_hook_test(wick, call, name="PreToolUse")
    assert refused.code == 3 and "refused: no force" in refused.out
    several = run_hook_test(wick, {}, name="Stop")
    assert several.code == 2 and "choose one: echo one, exit 1" in several.err
    failed = run_hook_test(wick, {}, name="exit 1")
    assert failed.code == 1 and "ended with exit code 1, so the run continues" in failed.out


@pytest.mark.parametrize(
    ("name", "event", "sentence"),
    [
        ("gone", "{}", "there is no hook program 'gone'; there are no_force"),
        ("no_force", "[]", "the payload must be a JSON object"),
        ("no_force", "{", "the payload is not valid JSON"),
    ],
)
def test_an_invalid_trial_is_an_error_message(local: WickCommand, name: str, event: str, sentence: str) -> None:
    local.write("event.json", event)
    done = local("hooks", "test", name, "--payload", "event.json")
    assert done.code == 2 and sentence in done.err


# -- new ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "event"),
    [("python", "before_tool_call"), ("sh", "user_message_send"), ("node", "agent_stop"), ("sh", "after_tool_call")],
)
def test_a_new_program_runs_and_agrees(wick: WickCommand, language: str, event: str) -> None:
    made = wick("hooks", "new", "mine", "--language", language, "--event", event, "--user")
    assert made.code == 0 and made.out.strip() == str(wick.home / ".wick" / "hooks" / "mine")
    told = {"event": event, "message": "hi", "messages": [], "tool_name": "bash", "tool_input": {}, "tool_output": {}}
    done = run_hook_test(wick, told, name="mine")  # it is the user's own, and trusted
    assert (done.code, done.out.splitlines()[0]) == (0, "agreed"), done


def test_a_new_program_of_a_folder_needs_trust_and_replaces_nothing(wick: WickCommand) -> None:
    made = wick("hooks", "new", "mine")
    assert made.code == 0 and "wick hooks trust" in made.err
    again = wick("hooks", "new", "mine")
    assert again.code == 2 and "already exists; choose another name" in again.err
    assert wick("hooks", "new", "../mine").code == 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "\0", "[]", ""])
def test_an_invalid_payload_is_an_error(local: WickCommand, text: str) -> None:
    local.write("event.json", text)
    done = local("hooks", "test", "no_force", "--payload", "event.json")
    assert done.code == 2 and done.err.startswith("Error: the payload ")
