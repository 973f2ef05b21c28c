"""Rules of Claude Code's settings, by what wick decides with them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.capabilities.permissions import Permissions
from wick.errors import ConfigError
from wick.permissions.claude_rules import translate_rule
from wick.permissions.rules import RuleType


def decide(type: RuleType, rule: str, tool: str, **args: Any) -> str:
    """Return the decision about a tool use with one rule; without it, a denied use is allowed and others are asked."""
    mode: Any = "default" if type == "allow" else "bypassPermissions"
    rules: dict[str, Any] = {type: translate_rule(type, rule).rules}
    return Permissions(**rules, mode=mode, missing_tools=True).explain(tool, args).decision


@pytest.mark.parametrize(
    "rule, command, expected",
    [
        ("Bash(git push)", "git push", "deny"),
        ("Bash(git push)", "git push origin", "allow"),
        ("Bash(git push*)", "git push", "deny"),
        ("Bash(git push*)", "git push origin main", "deny"),
        ("Bash(git push*)", "git pull", "allow"),
        ("Bash(git push:*)", "git push --force", "deny"),
        ("Bash(git push *--force*)", "git push origin --force-with-lease", "deny"),
        ("Bash(git * --force)", "git push origin --force", "deny"),
        ("Bash(rm -rf*tmp)", "rm -rf a b/tmp", "deny"),
        ("Bash(curl * | bash)", "curl https://a.example", "deny"),
        ("Bash(npm publish && git push)", "npm publish", "deny"),
        ("Bash(*)", "ls", "deny"),
        ("Bash", "ls", "deny"),
        ("Read(./secret.txt)", "cat secret.txt", "deny"),
        ("Read(secret.txt)", "cat a/secret.txt", "deny"),
        ("Read(./secret.txt)", "cat other.txt", "allow"),
        ("Edit(./secret.txt)", "echo x > secret.txt", "deny"),
    ],
)
def test_a_deny_rule_for_commands(rule: str, command: str, expected: str) -> None:
    assert decide("deny", rule, "Bash", command=command) == expected


@pytest.mark.parametrize(
    "rule, command, expected",
    [
        ("Bash(npm run test:*)", "npm run test --watch", "allow"),
        ("Bash(git log*)", "git log --oneline", "allow"),
        ("Bash(git log*)", "git push", "ask"),
        ("Bash(cd * && npm test)", "cd x && npm test", "ask"),
        ("Bash(* --version)", "node --version", "ask"),
    ],
)
def test_an_allow_rule_for_commands(rule: str, command: str, expected: str) -> None:
    assert decide("allow", rule, "Bash", command=command) == expected


@pytest.mark.parametrize(
    "rule, tool, path, expected",
    [
        ("Read(./secret.txt)", "Read", "secret.txt", "deny"),
        ("Read(./secret.txt)", "Read", "a/secret.txt", "allow"),
        ("Read(secret.txt)", "Read", "a/secret.txt", "deny"),
        ("Read(/keys/**)", "Read", "keys/a", "deny"),
        ("Read(/keys/**)", "Read", "/keys/a", "ask"),  # the folder of the workspace is not known here
        ("Read(//keys/**)", "Read", "/keys/a", "deny"),
        ("Read(keys/)", "Read", "keys/a/b", "deny"),
        ("Read(./keys/**)", "Grep", "keys", "deny"),
        ("Read(./keys/**)", "Grep", "src", "allow"),
        ("Read(./.env)", "Grep", ".", "allow"),  # no file tool reads .env
        ("Read", "Grep", "src", "deny"),
        ("Edit(./src/**)", "Write", "src/a.py", "deny"),
        ("MultiEdit(./src/**)", "Edit", "src/a.py", "deny"),
        ("Edit", "Write", "a", "deny"),
    ],
)
def test_a_deny_rule_for_files(rule: str, tool: str, path: str, expected: str) -> None:
    assert decide("deny", rule, tool, path=path) == expected


def test_the_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada [x]")
    assert decide("deny", "Read(~/.ssh/**)", "Read", path="/home/ada [x]/.ssh/id") == "deny"
    assert decide("deny", "Read(~/.ssh/**)", "Read", path="/home/eve/.ssh/id") == "allow"
    assert decide("allow", "Edit(~/notes/**)", "Write", path="/home/ada [x]/notes/a.md") == "allow"
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(ConfigError, match="home folder is not known"):
        translate_rule("deny", "Read(~/.ssh/**)")
    with pytest.raises(ConfigError, match="home folder is not known"):
        translate_rule("deny", "Read(~eve/x)")


@pytest.mark.parametrize(
    "rule, tool, expected",
    [
        ("mcp__github", "mcp__github__list_issues", "deny"),
        ("mcp__github", "mcp__gitlab__list_issues", "allow"),
        ("mcp__github__list_issues", "mcp__github__list_issues", "deny"),
        ("mcp__github__*", "mcp__github__list_issues", "deny"),
        ("Task(Explore)", "task", "deny"),
        ("Agent(Explore)", "task", "deny"),
        ("Skill(commit)", "load_skill", "deny"),
    ],
)
def test_a_deny_rule_for_other_tools(rule: str, tool: str, expected: str) -> None:
    assert decide("deny", rule, tool) == expected


def test_a_specifier_that_is_not_compared_is_noted() -> None:
    assert translate_rule("deny", "Task(Explore)").note.startswith("the rule 'Task(Explore)' applies to every use")
    left_out = translate_rule("allow", "Task(Explore)")
    assert left_out.rules == () and left_out.note.endswith("it allows nothing")


@pytest.mark.parametrize("rule", ["Bash(*foo*)", "Bash(* rm)", "Read(!a)", "Bash(", "", 7, "WebFetch(x)", "Read(../x)"])
def test_a_rule_that_cannot_be_applied_denies_or_is_an_error(rule: Any) -> None:
    for type in ("deny", "ask"):
        with pytest.raises(ConfigError, match="rule"):
            translate_rule(type, rule)
    assert translate_rule("allow", rule).rules == ()


WORDS = st.text("ab -*", min_size=1, max_size=12)


@given(pattern=WORDS, command=st.lists(st.text("ab-", min_size=1, max_size=4), min_size=1, max_size=4).map(" ".join))
def test_a_deny_rule_matches_every_command_that_its_text_matches(pattern: str, command: str) -> None:
    """A star in a rule of Claude Code matches any text, also with spaces."""
    try:
        translated = translate_rule("deny", f"Bash({pattern})")
    except ConfigError:
        return
    if re.fullmatch(re.escape(" ".join(pattern.split())).replace(r"\*", ".*"), command):
        permissions = Permissions(deny=translated.rules, mode="bypassPermissions")
        assert permissions.explain("Bash", {"command": command}).decision != "allow"
