"""Proposals of allow rules in a question about a shell command: `cp a b` proposes `execute(cp *)`.

A proposal is made from the parsed command, and only if the rules would allow it. Programs that run other programs get
none: a rule for `bash *` or `env *` would allow everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from wick._internal.aliases import resolve_tool_name
from wick.constants import RULE_CHARS
from wick.permissions.rules import Rule, RuleSubject, find_allowing_rules, parse_rule
from wick.permissions.shell import ShellCommand, parse_script
from wick.permissions.shell_programs import (
    CODE,
    COMMANDED,
    DATABASES,
    KEYWORDS,
    VERBS,
    WRAPPERS,
    find_interpreter,
    is_opener,
    is_shell,
)

MAX_COMMANDS = 4  # of a script; more are not read before they are allowed
SCRIPTED = frozenset("npm pnpm yarn bun".split())  # their `run` names a script of the project
RUNS = frozenset("run exec x dlx eval sh shell".split())  # subcommands that run a program or a script
SUBCOMMANDED = VERBS | {"git", "gh", "pip", "pip3", "apt", "apt-get"}
_NAME = re.compile(r"(?:\./)?[\w.+-]+(?:/[\w.+-]+)*")
_SUBCOMMAND = re.compile(r"[a-z][\w:.-]*")
_FILE = re.compile(r"(?!-)[\w./+-]+\.\w+")


def propose_rules(question: Mapping[str, Any]) -> list[str]:
    """Return the allow rules that a question about a command proposes for its thread, or an empty list."""
    tool, command = question.get("tool"), (question.get("args") or {}).get("command")
    if not isinstance(tool, str) or not isinstance(command, str) or not question.get("lasting"):
        return []
    return [*_propose(tool, command)] if resolve_tool_name(tool) == "execute" else []


@lru_cache(maxsize=64)
def _propose(tool: str, command: str) -> tuple[str, ...]:
    script = parse_script(command)
    commands = [one for one in script.commands if one.needs_rule]
    if script.opaque or not commands or any(redirect.is_file for redirect in script.redirects):
        return ()
    patterns = [*dict.fromkeys(map(_find_pattern, commands))]
    texts = tuple(f"{tool}({pattern})" for pattern in patterns)
    if not all(patterns) or len(texts) > MAX_COMMANDS or max(map(len, texts)) > RULE_CHARS:
        return ()
    subject = RuleSubject(tool, frozenset({tool}), frozenset({tool}), "shell", {"command": command})
    return texts if find_allowing_rules(parse_grants(texts), subject) else ()


def _find_pattern(command: ShellCommand) -> str:
    """Return the pattern for commands like this one, or an empty text."""
    name, *others = command.words
    base = name.text.rsplit("/", 1)[-1].casefold()
    if not name.fixed or not _NAME.fullmatch(name.text):
        return ""
    second = others[0].text if others and others[0].fixed else ""
    if find_interpreter(base) is not None:
        return f"{name.text} {second} *" if _FILE.fullmatch(second) else ""
    if base in SCRIPTED and second == "run":
        script = others[1].text if len(others) > 1 and others[1].fixed else ""
        return f"{name.text} run {script} *" if _SUBCOMMAND.fullmatch(script) else ""
    if base in SUBCOMMANDED:
        return f"{name.text} {second} *" if _SUBCOMMAND.fullmatch(second) and second not in RUNS else ""
    runs_others = is_shell(base) or is_opener(base) or base in WRAPPERS or base in COMMANDED or base in DATABASES
    return "" if runs_others or base in CODE or base in KEYWORDS else f"{name.text} *"


def parse_grants(texts: Iterable[str]) -> tuple[Rule, ...]:
    """Return the allow rules of a grant."""
    return tuple(_parse_grant(text) for text in texts)


@lru_cache(maxsize=256)
def _parse_grant(text: str) -> Rule:
    return parse_rule("allow", text)
