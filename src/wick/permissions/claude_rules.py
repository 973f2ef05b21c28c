"""Permission rules of Claude Code's settings as rules of wick.

The rules look alike, but Claude Code reads some of them more broadly:

    Read(./secrets/**)    every tool that reads files        Edit(src/**)      every tool that changes files
    Read(~/.ssh/**)       the user's home folder             Edit(/src/**)     the project, not the root
    Read(//etc/**)        the root                           Bash(git push*)   a star matches spaces, too
    mcp__github           all tools of an MCP server         Agent(Explore)    one subagent

A translated deny or ask rule matches at least as much as the original. An allow rule without an equivalent is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from wick.errors import ConfigError
from wick.permissions.rules import RuleType, parse_rule
from wick.workspace.globs import SECRET, compile_name

ALTERNATIVES = 32  # rules that one rule of a command becomes

_RULE = re.compile(r"(?P<tool>[^\s()]+)(?:\((?P<specifier>.*)\))?", re.DOTALL)
_OPERATOR = re.compile(r"\s*(?:[|;<>\n]|&(?!\w)|\d>).*", re.DOTALL)  # the end of the first command of a script
_SERVER = re.compile(r"mcp__(?:(?!__).)+")  # an MCP server without a tool
_RENAMED = {
    "Agent": "Task",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "NotebookRead": "Read",
}
_READERS, _EDITORS = ("Read", "Grep", "Glob", "LS"), ("Edit", "Write")
_FILE_TOOLS = frozenset((*_READERS, *_EDITORS))
_COMMANDS = {"Read": ("cat", "head", "tail", "sed"), "Edit": ("sed", "tee")}  # commands that rules about files apply to


@dataclass(frozen=True, slots=True)
class TranslatedRule:
    """The rules of wick for one rule, and a sentence about a difference, if there is one."""

    rules: tuple[str, ...]
    note: str = ""


def translate_rule(type: RuleType, given: object) -> TranslatedRule:
    """Translate one rule. Raise ConfigError for a deny or ask rule that wick cannot apply.

    An allow rule that wick cannot apply is left out: then the user is asked.
    """
    try:
        translated = _translate(type, given)
        for text in translated.rules:
            parse_rule(type, text)
        return translated
    except ConfigError as error:
        if type != "allow":
            raise
        return TranslatedRule((), f"{error}; it allows nothing")


def _translate(type: RuleType, given: object) -> TranslatedRule:
    parts = _RULE.fullmatch(given.strip()) if isinstance(given, str) else None
    if parts is None:
        raise ConfigError(f"the rule {given!r} cannot be read: write Tool or Tool(specifier), as in Bash(git status)")
    tool, specifier = _RENAMED.get(parts["tool"], parts["tool"]), parts["specifier"]
    if _SERVER.fullmatch(tool):
        return TranslatedRule((f"{tool}__*",))
    if specifier is None or specifier.strip() in ("", "*"):
        return TranslatedRule(tuple(_related_tools(type, tool)))
    specifier = specifier.strip()
    if tool == "Bash":
        return _translate_command(type, specifier, str(given))
    if tool in _FILE_TOOLS:
        pattern = _translate_path(type, specifier, str(given))
        files = [f"{name}({pattern})" for name in _related_tools(type, tool, pattern)]
        path = pattern.removeprefix("./")
        words = [path] if "/" in path else [path, f"*/{path}"]
        # Commands that read or change a file, and have its path as one of their words.
        commands = [f"Bash({name} * {word} *)" for name in _COMMANDS.get(tool, ()) for word in words if " " not in word]
        return TranslatedRule((*files, *(commands if type != "allow" else ())))
    if tool == "WebFetch":
        return TranslatedRule((f"{tool}({specifier})",))
    if type == "allow":
        raise ConfigError(f"the rule {given!r} cannot be applied: wick compares commands, paths and hosts only")
    return TranslatedRule((tool,), f"the rule {given!r} applies to every use of {tool}: wick does not compare its use")


def _related_tools(type: RuleType, tool: str, pattern: str = "") -> Iterable[str]:
    """Return the tools that a rule about this tool applies to.

    A rule about a file would deny to search or to list each of its parent folders. To list them is harmless, and
    secrets such as `.env` are never searched.
    """
    if tool == "Edit":
        return _EDITORS
    if tool != "Read":
        return (tool,)
    if type == "allow" or not pattern:
        return _READERS
    name = pattern.rstrip("/").rsplit("/", 1)[-1]
    tests = [test for secret in SECRET if (test := compile_name(secret))]
    return ("Read",) if any(test(name) for test in tests) else ("Read", "Grep")


def _translate_path(type: RuleType, path: str, rule: str) -> str:
    if path.startswith("!"):
        raise ConfigError(f"the rule {rule!r} cannot be applied: a pattern with ! is not supported")
    if path.startswith("~"):
        home = os.path.expanduser("~")
        if path[1:2] not in ("", "/") or not os.path.isabs(home):
            raise ConfigError(f"the rule {rule!r} cannot be applied: that home folder is not known; write its path")
        path = re.sub(r"([\\*?\[\]{}])", r"\\\1", home) + path[1:]
    elif path.startswith("//"):
        path = f"/{path.lstrip('/')}"
    elif path.startswith("/"):
        path = f"./{path.lstrip('/')}"
    return path if type == "allow" else path.rstrip("/") or "/"


def _translate_command(type: RuleType, command: str, rule: str) -> TranslatedRule:
    prefix = command.removesuffix(":*")
    simple, note = _OPERATOR.sub("", prefix), ""
    if simple != prefix:
        if type == "allow":
            raise ConfigError(f"the rule {rule!r} cannot be applied: wick compares single commands, not pipes or lists")
        note = f"the rule {rule!r} applies to each command {simple!r}: wick compares single commands"
    words = simple.split()
    if not words or words[0].startswith("*"):
        raise ConfigError(f"the rule {rule!r} cannot be applied: it must begin with the name of a command")
    spellings = [_spread_stars(word) for word in words]
    tail = [["*"]] if command != prefix and not note else []
    if len(texts := [" ".join(choice) for choice in product(*spellings, *tail)]) > ALTERNATIVES:
        raise ConfigError(f"the rule {rule!r} cannot be applied: it has too many stars")
    return TranslatedRule(tuple(f"Bash({text})" for text in texts), note)


def _spread_stars(word: str) -> list[str]:
    """Return the patterns for a word whose stars may match spaces: `a*b` is `a*b`, or `a*`, any words, and `*b`."""
    if "*" not in word or not word.strip("*"):
        return ["*" if word.startswith("*") else word]
    first, *rest = re.split(r"\*+", word)
    texts = [first]
    for part in rest:
        within = [f"{text}*{part}" for text in texts] if part else []
        apart = [f"{text}* * *{part}" if part else f"{text}* *" for text in texts]
        texts = within + apart
    return texts
