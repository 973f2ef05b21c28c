"""Permission rules: which tools may be used, with which commands, on which files, towards which hosts.

    Bash                        every use of the tool
    Bash(git status)            a command, word for word
    Bash(git log *)             words, and any others in place of the star; `git log:*` is the same
    Read(src/**)                files of the workspace; `/etc/**` begins at the root
    WebFetch(domain:wick.dev)   a host and the hosts below it
    mcp__*, kind:shell(rm *)    all tools with such names; all tools of a kind

Deny and ask rules match broadly: by every current and former name of a tool, inside of nested commands, and below
folders. Allow rules match narrowly: every part of a use must be covered, and unparsable parts never are. A match is
`yes`, `no` or `maybe`. A caller that can ask the user should ask on `maybe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, TypeVar

from wick._internal.aliases import list_tool_aliases, resolve_tool_name
from wick.constants import RULE_CHARS
from wick.errors import ConfigError
from wick.permissions.shell import Script, parse_script
from wick.permissions.shell_grammar import load_grammar
from wick.permissions.shell_lexer import Redirect
from wick.permissions.specifiers import (
    STAR,
    CommandPattern,
    FilePattern,
    HostPattern,
    MatchResult,
    ToolPath,
    strictest,
)
from wick.tools import Tool

RuleType = Literal["deny", "ask", "allow"]
RuleSpec = str | Mapping[str, Any]

ONE_FILE = frozenset({"read_file", "write_file", "edit_file"})  # any other tool with a path may search folders
FOLDERS = frozenset({"ls", "glob", "grep"})  # tools that search folders
WORKDIRS = ("workdir", "cwd")  # arguments that make a command start elsewhere
DOMAIN = "domain:"

S = TypeVar("S", CommandPattern, FilePattern, HostPattern)

_TEXT = re.compile(r"(?P<tool>[^\s()|]+)(?:\((?P<specifier>.*)\))?", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """A permission rule as written, with the message that is shown when it decides."""

    type: RuleType
    text: str
    tool: str
    specifier: str = ""
    message: str = ""

    @cached_property
    def is_literal(self) -> bool:
        """Return True if the rule names a single tool, without wildcards or a kind."""
        return not self.tool.startswith("kind:") and not any(sign in self.tool for sign in "*?[")

    @property
    def allows_missing_tool(self) -> bool:
        """Return True if an agent without this tool may have the rule."""
        return not self.is_literal or bool(list_tool_aliases(self.tool) - {self.tool})

    @cached_property
    def is_host(self) -> bool:
        return self.specifier.startswith(DOMAIN)

    @cached_property
    def command_pattern(self) -> CommandPattern:
        """The specifier as a pattern for commands."""
        return _build_pattern(CommandPattern, self.specifier, self.text)

    @cached_property
    def file_pattern(self) -> FilePattern:
        return _build_pattern(FilePattern, self.specifier, self.text)

    @cached_property
    def host_pattern(self) -> HostPattern:
        return _build_pattern(HostPattern, self.specifier.removeprefix(DOMAIN).strip(), self.text)

    def names_tool(self, subject: RuleSubject) -> bool:
        """Return True if the rule is about this tool. Allow rules ignore former names of the tool."""
        if self.tool.startswith("kind:"):
            return bool(subject.kind) and fnmatchcase(subject.kind, self.tool.removeprefix("kind:"))
        names = subject.current_names if self.type == "allow" else subject.all_names
        if self.is_literal:
            return self.tool in names or resolve_tool_name(self.tool) in names
        return any(fnmatchcase(name, self.tool) for name in names)


def parse_rule(type: RuleType, given: RuleSpec) -> Rule:
    """Parse a rule from a text or from `{"rule": text, "message": text}`; raise ConfigError if it is invalid."""
    text, message = given, ""
    if isinstance(given, Mapping):
        if not set(given) <= {"rule", "message"} or not isinstance(given.get("message", ""), str):
            raise ConfigError(f"a rule is a text or {{rule: …, message: …}}, not {dict(given)!r}")
        text, message = given.get("rule", ""), given.get("message", "")
    if not isinstance(text, str) or len(text) > RULE_CHARS:
        raise ConfigError(f"a rule is a text of at most {RULE_CHARS} characters such as Bash(git status), not {text!r}")
    parts = _TEXT.fullmatch(text.strip())
    if parts is None or parts["specifier"] == "":
        raise ConfigError(f"the rule {text!r} cannot be read: write Tool or Tool(specifier), as in Bash(git status)")
    rule = Rule(type, text.strip(), parts["tool"], (parts["specifier"] or "").strip(), message)
    if parts["specifier"] is not None:
        _check_specifier(rule)
    return rule


def _build_pattern(kind: type[S], specifier: str, text: str) -> S:
    try:
        return kind(specifier)
    except ConfigError as error:
        raise ConfigError(f"the rule {text!r} cannot be used: {error}") from None


def _check_specifier(rule: Rule) -> object:
    """Raise ConfigError for an invalid specifier now, not at the first use of a tool."""
    own = resolve_tool_name(rule.tool)
    if not rule.specifier:
        raise ConfigError(f"the rule {rule.text!r} has nothing in its brackets; leave them out to mean every use")
    if own == "execute" or rule.tool == "kind:shell":
        return load_grammar() and rule.command_pattern
    if own == "http_request" and not rule.is_host:
        raise ConfigError(f"the rule {rule.text!r} should name a host, as in WebFetch(domain:example.com)")
    if rule.is_host:
        return rule.host_pattern
    in_files = own in ONE_FILE | FOLDERS or rule.tool in ("kind:read", "kind:write")
    return rule.file_pattern if in_files else None


# -- the subject of a rule -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleSubject:
    """A tool use in the form that rules are matched against."""

    name: str
    current_names: frozenset[str]  # names of the tool
    all_names: frozenset[str]  # current and former names
    kind: str
    args: Mapping[str, Any]
    workdir: str = ""  # the workspace, if known
    linked: frozenset[str] = field(default=frozenset())  # paths that contain a symbolic link
    parsed: Script | None = field(default=None, compare=False)  # the command, if it was parsed before

    @classmethod
    def from_use(cls, tool: Tool, args: Mapping[str, Any], called: Iterable[str] = (), **more: Any) -> RuleSubject:
        now = frozenset((tool.name, *list_tool_aliases(tool.name)))
        now |= frozenset(tool.aliases) if tool.name == tool.origin else frozenset()
        ever = now | tool.names | list_tool_aliases(tool.origin) | frozenset(called)
        return cls(tool.name, now, ever, tool.kind, args, **more)

    @cached_property
    def command(self) -> str | None:
        """The command, if the tool runs one."""
        shell = self.kind == "shell" or "execute" in self.all_names
        return self._text_arg("command") if shell else None

    @property
    def path(self) -> str | None:
        path = self._text_arg("path")
        if "glob" in self.all_names and (self._text_arg("pattern") or "").startswith("/"):
            return "."  # an absolute pattern searches the whole workspace, whatever the path
        return "." if not path and not FOLDERS.isdisjoint(self.all_names) else path

    @property
    def url(self) -> str | None:
        return self._text_arg("url")

    def _text_arg(self, name: str) -> str | None:
        value = self.args.get(name)
        return value if isinstance(value, str) else None

    @cached_property
    def script(self) -> Script:
        """The parsed command."""
        if self.parsed is not None:
            return self.parsed
        folder = next((value for name in WORKDIRS if (value := self.args.get(name))), None)
        return parse_script(
            self.command or "", moved=folder is not None, folder=folder if isinstance(folder, str) else ""
        )

    @property
    def tool_path(self) -> ToolPath:
        path = self.path or ""
        return ToolPath(path, self.workdir, path in self.linked)

    def paths(self) -> list[str]:
        """Return every path that a rule may be matched against."""
        if self.command is not None:
            return [redirect.target.text for redirect in self.script.redirects if redirect.is_file]
        return [self.path] if self.path else []

    def as_file_use(self, redirect: Redirect) -> RuleSubject:
        """Return a redirection as the equivalent use of a file tool."""
        name = "write_file" if redirect.writes else "read_file"
        names = frozenset((name, *list_tool_aliases(name)))
        kind = "write" if redirect.writes else "read"
        return RuleSubject(name, names, names, kind, {"path": redirect.target.text}, self.workdir, self.linked)


def match_rule(rule: Rule, subject: RuleSubject) -> MatchResult:
    """Match a deny or ask rule against a tool use."""
    if rule.names_tool(subject):
        result = _match_specifier(rule, subject)
        if result != "no":
            return result
    if subject.command is None:
        return "no"
    results: list[MatchResult] = []
    for redirect in subject.script.redirects:
        if redirect.is_file and rule.names_tool(file := subject.as_file_use(redirect)):
            results.append(_match_specifier(rule, file) if redirect.target.fixed else "maybe")
    return strictest(results)


class RuleIndex:
    """The deny and ask rules, by tool and by the first word of their command.

    A policy has many rules, and most are about programs that a command does not run. A rule is skipped only if
    `match_rule` would return "no" for it.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rule for rule in rules if rule.type != "allow")
        self._by_tool: dict[str, tuple[list[int], dict[str, list[int]]]] = {}  # places of rules: others, by word
        for place, rule in enumerate(self._rules):
            others, by_word = self._by_tool.setdefault(rule.tool, ([], {}))
            words = _index_words(rule)
            for word in words:
                by_word.setdefault(word, []).append(place)
            if not words:
                others.append(place)

    def match(self, subject: RuleSubject) -> list[tuple[Rule, MatchResult]]:
        """Return the rules that match a tool use, or may match it, in their order."""
        found: list[tuple[Rule, MatchResult]] = []
        for place in self._find_candidates(subject):
            if (result := match_rule(self._rules[place], subject)) != "no":
                found.append((self._rules[place], result))
        return found

    def _find_candidates(self, subject: RuleSubject) -> Iterable[int]:
        script = subject.script if self._rules and subject.command is not None else None
        if script is not None and (script.unnamed or script.redirects):
            return range(len(self._rules))  # an unknown program may be any, and a redirection is the use of a file
        places = set[int]()
        for others, by_word in self._by_tool.values():
            first = others[0] if others else next(iter(by_word.values()))[0]
            if not self._rules[first].names_tool(subject):  # the tool is the same for all of them
                continue
            places.update(others)
            words = by_word if script is None else (script.names | script.mentions) & by_word.keys()
            for word in words:
                places.update(by_word[word])
        return sorted(places)


def _index_words(rule: Rule) -> set[str]:
    """Return the words of which a command has at least one if the rule matches it; none if that is not known."""
    own = resolve_tool_name(rule.tool)
    if not rule.specifier or rule.is_host or not (own == "execute" or rule.tool == "kind:shell"):
        return set()
    pattern = rule.command_pattern
    words = {pattern.pattern[0].casefold(), *pattern.tokens[:1]}
    return set() if any(STAR in word for word in words) else words


def _match_specifier(rule: Rule, subject: RuleSubject) -> MatchResult:
    if not rule.specifier:
        return "yes"
    if rule.is_host:
        if subject.url is not None:
            return rule.host_pattern.matches(subject.url)
    elif subject.command is not None:
        return rule.command_pattern.matches(subject.script)
    elif subject.path is not None:
        return rule.file_pattern.matches(subject.tool_path, one_file=not ONE_FILE.isdisjoint(subject.current_names))
    if not rule.is_literal:
        return "maybe" if subject.kind == "shell" and not rule.is_host else "no"
    raise ConfigError(
        f"the rule {rule.text!r} cannot be compared with the input of {rule.tool}: "
        "a specifier is about the argument command, path or url"
    )


def find_allowing_rules(rules: Sequence[Rule], subject: RuleSubject) -> list[Rule]:
    """Return the rules that together allow a use, or an empty list."""
    rules = [rule for rule in rules if rule.type == "allow"]
    named = [rule for rule in rules if rule.names_tool(subject)]
    whole = [rule for rule in named if not rule.specifier]
    if whole:
        return whole[:1]
    if subject.command is not None:
        return _find_script_rules(rules, named, subject)
    folder, covering = not FOLDERS.isdisjoint(subject.all_names), list[Rule]()
    for rule in named:
        if rule.is_host:
            covered = subject.url is not None and rule.host_pattern.covers(subject.url)
        else:
            covered = subject.path is not None and rule.file_pattern.covers(subject.tool_path, folder=folder)
        if covered:
            covering.append(rule)
    return covering[:1]


def _find_script_rules(rules: Sequence[Rule], named: Sequence[Rule], subject: RuleSubject) -> list[Rule]:
    """Return the rules that allow a script: one for each command and each redirected file. Opaque scripts have none."""
    script, candidates = subject.script, list[list[Rule]]()
    if script.opaque or not script.commands:
        return []
    for command in script.commands:
        if command.needs_rule:
            candidates.append([rule for rule in named if not rule.is_host and rule.command_pattern.covers(command)])
    for redirect in script.redirects:
        if redirect.is_file:
            file = subject.as_file_use(redirect)
            candidates.append(find_allowing_rules(rules, file) if redirect.target.fixed else [])
    return list(dict.fromkeys(matching[0] for matching in candidates)) if all(candidates) else []


# -- policies -------------------------------------------------------------------------------------------------------

_REFUSED = "Command blocked by policy"
_SYSTEM = "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /sys /usr /var".split()
_DESTRUCTIVE = (
    *(f"rm * {folder} *" for folder in (*_SYSTEM, *(f"{folder}/" for folder in _SYSTEM[1:]))),
    *("rm * --no-preserve-root *", "chmod * / *", "chown * / *", "mv * / *", "shred *", "wipefs *", "blkdiscard *"),
    *("mkfs *", "mkfs.* *", "mkswap *", "fdisk *", "sfdisk *", "parted *", "dd * of=/dev/* *", "mount *", "umount *"),
    *("shutdown *", "reboot *", "halt *", "poweroff *", "init *", "telinit *", "kexec *", "crontab -r *"),
    *(f"systemctl * {verb} *" for verb in ("poweroff", "reboot", "halt", "kexec", "emergency", "rescue")),
    *("sudo *", "su *", "doas *", "pkexec *", "runuser *", "chroot *", "nsenter *", "setcap *", "visudo *"),
    *("passwd *", "useradd *", "userdel *", "usermod *", "insmod *", "rmmod *", "modprobe *", "iptables *", "nft *"),
)
SHELL_POLICY: tuple[RuleSpec, ...] = tuple(
    {"rule": f"kind:shell({command})", "message": _REFUSED} for command in _DESTRUCTIVE
)
POLICIES: Mapping[str, tuple[RuleSpec, ...]] = {"shell": SHELL_POLICY}
