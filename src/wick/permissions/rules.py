"""Permission rules: which tools may be used, with which commands, on which files, towards which hosts.

    Bash                        the tool, whatever it is told
    Bash(git status)            a command, word for word
    Bash(git log *)             words, and any others in place of the star; `git log:*` is the same
    Read(src/**)                files of the workspace; `/etc/**` begins at the root
    WebFetch(domain:wick.dev)   a host and the hosts below it
    mcp__*, kind:shell(rm *)    all tools with such names; all tools of a kind

A rule that denies or asks is read generously: it counts for every name that a tool has or had, for a command inside of
others, for what is in a folder. A rule that allows is read narrowly: every part must be covered, and what cannot be
read is not. Between "it is" and "it is not" there is `maybe`, and whoever asks the user asks then.
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
from wick.permissions.shell import Script, read
from wick.permissions.shell_grammar import grammar
from wick.permissions.shell_lexer import Redirect
from wick.permissions.specifiers import Files, Host, Met, Place, Words, most
from wick.tools import Tool

Type = Literal["deny", "ask", "allow"]
Given = str | Mapping[str, Any]

ONE_FILE = frozenset({"read_file", "write_file", "edit_file"})  # any other tool with a path may go into folders
FOLDERS = frozenset({"ls", "glob", "grep"})  # and these do
WORKDIRS = ("workdir", "cwd")  # arguments that make a command start elsewhere
DOMAIN = "domain:"

S = TypeVar("S", Words, Files, Host)

_TEXT = re.compile(r"(?P<tool>[^\s()|]+)(?:\((?P<specifier>.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, as it was written, with what is said when it decides."""

    type: Type
    text: str
    tool: str
    specifier: str = ""
    message: str = ""

    @property
    def literal(self) -> bool:
        """Whether it is about one tool, by its name."""
        return not self.tool.startswith("kind:") and not any(sign in self.tool for sign in "*?[")

    @property
    def known(self) -> bool:
        """Whether every agent may have a rule about this tool, whether it has the tool or not."""
        return not self.literal or bool(list_tool_aliases(self.tool) - {self.tool})

    @property
    def is_host(self) -> bool:
        return self.specifier.startswith(DOMAIN)

    @property
    def words(self) -> Words:
        """Its specifier, as a pattern over commands."""
        return _built(Words, self.specifier, self.text)

    @property
    def files(self) -> Files:
        return _built(Files, self.specifier, self.text)

    @property
    def host(self) -> Host:
        return _built(Host, self.specifier.removeprefix(DOMAIN).strip(), self.text)

    def names(self, subject: Subject) -> bool:
        """Whether it is about a tool; an allow goes by what the tool is called now, not by what it once was."""
        if self.tool.startswith("kind:"):
            return bool(subject.kind) and fnmatchcase(subject.kind, self.tool.removeprefix("kind:"))
        names = subject.now if self.type == "allow" else subject.ever
        if self.literal:
            return self.tool in names or resolve_tool_name(self.tool) in names
        return any(fnmatchcase(name, self.tool) for name in names)


def rule(type: Type, given: Given) -> Rule:
    """The rule that a text, or `{"rule": text, "message": text}`, is; a ConfigError says what is wrong with it."""
    text, message = given, ""
    if isinstance(given, Mapping):
        if not set(given) <= {"rule", "message"} or not isinstance(given.get("message", ""), str):
            raise ConfigError(f"a rule is a text or {{rule: …, message: …}}, not {dict(given)!r}")
        text, message = given.get("rule", ""), given.get("message", "")
    if not isinstance(text, str) or len(text) > RULE_CHARS:
        raise ConfigError(f"a rule is a text of at most {RULE_CHARS} characters such as Bash(git status), not {text!r}")
    found = _TEXT.fullmatch(text.strip())
    if found is None or found["specifier"] == "":
        raise ConfigError(f"the rule {text!r} cannot be read: write Tool or Tool(specifier), as in Bash(git status)")
    made = Rule(type, text.strip(), found["tool"], (found["specifier"] or "").strip(), message)
    if found["specifier"] is not None:
        _check(made)
    return made


def _built(kind: type[S], specifier: str, text: str) -> S:
    try:
        return kind(specifier)
    except ConfigError as error:
        raise ConfigError(f"the rule {text!r} cannot be used: {error}") from None


def _check(made: Rule) -> object:
    """Find out what is wrong with a specifier while somebody is there to mend it."""
    own = resolve_tool_name(made.tool)
    if not made.specifier:
        raise ConfigError(f"the rule {made.text!r} has nothing in its brackets; leave them out to mean every use")
    if own == "execute" or made.tool == "kind:shell":
        return grammar() and made.words
    if own == "http_request" and not made.is_host:
        raise ConfigError(f"the rule {made.text!r} should name a host, as in WebFetch(domain:example.com)")
    if made.is_host:
        return made.host
    in_files = own in ONE_FILE | FOLDERS or made.tool in ("kind:read", "kind:write")
    return made.files if in_files else None


# -- what rules are compared with -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A use of a tool, as rules see it."""

    name: str
    now: frozenset[str]  # what the tool is called
    ever: frozenset[str]  # and what it was called before
    kind: str
    args: Mapping[str, Any]
    workdir: str = ""  # the workspace, where it is known
    linked: frozenset[str] = field(default=frozenset())  # paths that lead over a link
    parsed: Script | None = field(default=None, compare=False)  # its command, where that was read before

    @classmethod
    def of(cls, tool: Tool, args: Mapping[str, Any], called: Iterable[str] = (), **more: Any) -> Subject:
        now = frozenset((tool.name, *list_tool_aliases(tool.name)))
        now |= frozenset(tool.aliases) if tool.name == tool.origin else frozenset()
        ever = now | tool.names | list_tool_aliases(tool.origin) | frozenset(called)
        return cls(tool.name, now, ever, tool.kind, args, **more)

    @property
    def command(self) -> str | None:
        shell = self.kind == "shell" or "execute" in self.ever
        return self._text("command") if shell else None

    @property
    def path(self) -> str | None:
        path = self._text("path")
        if "glob" in self.ever and (self._text("pattern") or "").startswith("/"):
            return "."  # an absolute pattern is one over the whole workspace, wherever the search begins
        return "." if not path and not FOLDERS.isdisjoint(self.ever) else path

    @property
    def url(self) -> str | None:
        return self._text("url")

    def _text(self, name: str) -> str | None:
        value = self.args.get(name)
        return value if isinstance(value, str) else None

    @cached_property
    def script(self) -> Script:
        """What its command would run."""
        if self.parsed is not None:
            return self.parsed
        folder = next((value for name in WORKDIRS if (value := self.args.get(name))), None)
        return read(self.command or "", moved=folder is not None, folder=folder if isinstance(folder, str) else "")

    @property
    def place(self) -> Place:
        path = self.path or ""
        return Place(path, self.workdir, path in self.linked)

    def paths(self) -> list[str]:
        """Every path that a rule may be compared with."""
        if self.command is not None:
            return [redirect.target.text for redirect in self.script.redirects if redirect.file]
        return [self.path] if self.path else []

    def redirected(self, redirect: Redirect) -> Subject:
        """A redirection, as the use of a file tool that it amounts to."""
        name = "write_file" if redirect.writes else "read_file"
        names = frozenset((name, *list_tool_aliases(name)))
        kind = "write" if redirect.writes else "read"
        return Subject(name, names, names, kind, {"path": redirect.target.text}, self.workdir, self.linked)


def met(rule: Rule, subject: Subject) -> Met:
    """Whether a rule that denies or asks is about this use."""
    if rule.names(subject):
        found = _specified(rule, subject)
        if found != "no":
            return found
    if subject.command is None:
        return "no"
    return most(_redirect_met(rule, subject, redirect) for redirect in subject.script.redirects if redirect.file)


def _redirect_met(rule: Rule, subject: Subject, redirect: Redirect) -> Met:
    file = subject.redirected(redirect)
    if not rule.names(file):
        return "no"
    return _specified(rule, file) if redirect.target.fixed else "maybe"


def _specified(rule: Rule, subject: Subject) -> Met:
    if not rule.specifier:
        return "yes"
    if rule.is_host:
        if subject.url is not None:
            return rule.host.met(subject.url)
    elif subject.command is not None:
        return rule.words.met(subject.script)
    elif subject.path is not None:
        return rule.files.met(subject.place, one_file=not ONE_FILE.isdisjoint(subject.now))
    if not rule.literal:
        return "maybe" if subject.kind == "shell" and not rule.is_host else "no"
    raise ConfigError(
        f"the rule {rule.text!r} cannot be compared with what {rule.tool} is told: "
        "a specifier is about the argument command, path or url"
    )


def allowing(rules: Sequence[Rule], subject: Subject) -> list[Rule]:
    """The rules that together allow a use; none if they do not."""
    rules = [rule for rule in rules if rule.type == "allow"]
    named = [rule for rule in rules if rule.names(subject)]
    whole = [rule for rule in named if not rule.specifier]
    if whole:
        return whole[:1]
    if subject.command is not None:
        return _script_allowed(rules, named, subject)
    return [rule for rule in named if _covers(rule, subject)][:1]


def _covers(rule: Rule, subject: Subject) -> bool:
    """Whether a rule allows all that a use of a file or a host may reach."""
    if rule.is_host:
        return subject.url is not None and rule.host.covers(subject.url)
    return subject.path is not None and rule.files.covers(subject.place, folder=not FOLDERS.isdisjoint(subject.ever))


def _script_allowed(rules: Sequence[Rule], named: Sequence[Rule], subject: Subject) -> list[Rule]:
    """Every command needs a rule, every file that it reads from or writes to needs one, and nothing may be hidden."""
    script, used = subject.script, list[list[Rule]]()
    if script.opaque or not script.commands:
        return []
    for command in script.commands:
        if command.needs:
            used.append([rule for rule in named if not rule.is_host and rule.words.covers(command)])
    for redirect in script.redirects:
        if redirect.file:
            used.append(allowing(rules, subject.redirected(redirect)) if redirect.target.fixed else [])
    return list(dict.fromkeys(found[0] for found in used)) if all(used) else []


# -- a ready set ----------------------------------------------------------------------------------------------------

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
SHELL_POLICY: tuple[Given, ...] = tuple(
    {"rule": f"kind:shell({command})", "message": _REFUSED} for command in _DESTRUCTIVE
)
POLICIES: Mapping[str, tuple[Given, ...]] = {"shell": SHELL_POLICY}
