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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from wick.aliases import tool_aliases, tool_name
from wick.caps import RULE_CHARS
from wick.errors import BackendError, ConfigError
from wick.lexing import Redirect, Word
from wick.searching import Glob
from wick.shell import Command, Script, grammar, read
from wick.tools import Tool

Type = Literal["deny", "ask", "allow"]
Met = Literal["yes", "maybe", "no"]
Given = str | Mapping[str, Any]

ONE_FILE = frozenset({"read_file", "write_file", "edit_file"})  # any other tool with a path may go into folders
FOLDERS = frozenset({"ls", "glob", "grep"})  # and these do
WORKDIRS = ("workdir", "cwd")  # arguments that make a command start elsewhere
DOMAIN = "domain:"

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
        return not self.literal or bool(tool_aliases(self.tool) - {self.tool})

    def names(self, subject: Subject) -> bool:
        """Whether it is about a tool; an allow goes by what the tool is called now, not by what it once was."""
        if self.tool.startswith("kind:"):
            return bool(subject.kind) and fnmatchcase(subject.kind, self.tool.removeprefix("kind:"))
        names = subject.now if self.type == "allow" else subject.ever
        if self.literal:
            return self.tool in names or tool_name(self.tool) in names
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


def _check(made: Rule) -> None:
    """Find out what is wrong with a specifier while somebody is there to mend it."""
    own = tool_name(made.tool)
    if not made.specifier:
        raise ConfigError(f"the rule {made.text!r} has nothing in its brackets; leave them out to mean every use")
    if own == "execute" or made.tool == "kind:shell":
        grammar()
        _shell(made)
    elif own == "http_request" and not made.specifier.startswith(DOMAIN):
        raise ConfigError(f"the rule {made.text!r} should name a host, as in WebFetch(domain:example.com)")
    elif made.specifier.startswith(DOMAIN):
        _domain(made)
    elif own in ONE_FILE | FOLDERS or made.tool in ("kind:read", "kind:write"):
        _globs(made)


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

    @classmethod
    def of(cls, tool: Tool, args: Mapping[str, Any], called: Iterable[str] = (), **more: Any) -> Subject:
        now = frozenset((tool.name, *tool_aliases(tool.name)))
        now |= frozenset(tool.aliases) if tool.name == tool.origin else frozenset()
        ever = now | tool.names | tool_aliases(tool.origin) | frozenset(called)
        return cls(tool.name, now, ever, tool.kind, args, **more)

    @property
    def command(self) -> str | None:
        shell = self.kind == "shell" or "execute" in self.ever
        return self._text("command") if shell else None

    @property
    def path(self) -> str | None:
        return self._text("path")

    @property
    def url(self) -> str | None:
        return self._text("url")

    def _text(self, name: str) -> str | None:
        value = self.args.get(name)
        return value if isinstance(value, str) else None

    @cached_property
    def script(self) -> Script:
        """What its command would run."""
        return read(self.command or "", moved=any(self.args.get(name) for name in WORKDIRS))

    @property
    def one_file(self) -> bool:
        return not ONE_FILE.isdisjoint(self.now)

    def paths(self) -> list[str]:
        """Every path that a rule may be compared with."""
        if self.command is not None:
            return [redirect.target.text for redirect in self.script.redirects if redirect.file]
        return [self.path] if self.path else []

    def redirected(self, redirect: Redirect) -> Subject:
        """A redirection, as the use of a file tool that it amounts to."""
        name = "write_file" if redirect.writes else "read_file"
        names = frozenset((name, *tool_aliases(name)))
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
    return _most(_redirect_met(rule, subject, redirect) for redirect in subject.script.redirects if redirect.file)


def _redirect_met(rule: Rule, subject: Subject, redirect: Redirect) -> Met:
    file = subject.redirected(redirect)
    if not rule.names(file):
        return "no"
    return _specified(rule, file) if redirect.target.fixed else "maybe"


def _specified(rule: Rule, subject: Subject) -> Met:
    if not rule.specifier:
        return "yes"
    if rule.specifier.startswith(DOMAIN):
        if subject.url is not None:
            return _host_met(_domain(rule), subject.url)
    elif subject.command is not None:
        return _command_met(rule, subject.script)
    elif subject.path is not None:
        return _path_met(_globs(rule), subject)
    if not rule.literal:
        return "no"
    raise ConfigError(
        f"the rule {rule.text!r} cannot be compared with what {rule.tool} is told: "
        "a specifier is about the argument command, path or url"
    )


def _most(answers: Iterable[Met]) -> Met:
    found = set(answers)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"


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
    if rule.specifier.startswith(DOMAIN):
        return subject.url is not None and _host_allowed(_domain(rule), subject.url)
    return subject.path is not None and subject.command is None and _path_allowed(_globs(rule), subject)


def _script_allowed(rules: Sequence[Rule], named: Sequence[Rule], subject: Subject) -> list[Rule]:
    """Every command needs a rule, every file that it reads from or writes to needs one, and nothing may be hidden."""
    script, used = subject.script, list[Rule]()
    if script.opaque or not script.commands:
        return []
    patterns = [(rule, _shell(rule)) for rule in named if not rule.specifier.startswith(DOMAIN)]
    for command in script.commands:
        if command.needs:
            found = [rule for rule, pattern in patterns if _fits(pattern, command, exactly=True) == "yes"]
            if not found:
                return []
            used += found[:1]
    for redirect in script.redirects:
        if redirect.file:
            found = allowing(rules, subject.redirected(redirect)) if redirect.target.fixed else []
            if not found:
                return []
            used += found
    return list(dict.fromkeys(used))


# -- commands -------------------------------------------------------------------------------------------------------

STAR = "*"


def _shell(rule: Rule) -> tuple[str, ...]:
    """The words of a specifier; a star that stands alone is any number of words."""
    text = rule.specifier
    words = f"{text.removesuffix(':*')} {STAR}".split() if text.endswith(":*") else text.split()
    if (words[0] == STAR and len(words) > 1) or text.startswith(":*"):
        raise ConfigError(f"the rule {rule.text!r} must begin with the name of a command, as in Bash(git status *)")
    return tuple(words)


def _command_met(rule: Rule, script: Script) -> Met:
    pattern = _shell(rule)
    if pattern == (STAR,):
        return "yes"
    return _most(_fits(pattern, command, exactly=False) for command in script.commands)


def _fits(pattern: tuple[str, ...], command: Command, exactly: bool) -> Met:
    """Compare word by word. Unless `exactly`, a program is known by its name wherever it lies, and in any case."""
    if _led(pattern, command.words, exactly, sure=True):
        return "yes"
    return "maybe" if not exactly and _led(pattern, command.words, exactly, sure=False) else "no"


def _led(pattern: tuple[str, ...], words: Sequence[Word], exactly: bool, sure: bool) -> bool:
    """Whether the words lead through the pattern; unless `sure`, what the shell may make of them counts, too."""
    states = _skipped(pattern, {0})
    for number, word in enumerate(words):
        test = _test(word, first=number == 0, exactly=exactly)
        if word.fixed:
            states = _stepped(pattern, states, test)
        elif sure:
            states = {at for at in states if pattern[at : at + 1] == (STAR,)}
        else:
            states = _any(pattern, states, _globbed(word) if word.glob else lambda text: True)
    return len(pattern) in _skipped(pattern, states)


def _skipped(pattern: tuple[str, ...], states: Iterable[int]) -> set[int]:
    """A star may stand for nothing."""
    found = set()
    for at in states:
        found.add(at)
        while at < len(pattern) and pattern[at] == STAR:
            at += 1
            found.add(at)
    return found


def _stepped(pattern: tuple[str, ...], states: Iterable[int], test: Callable[[str], bool]) -> set[int]:
    led = set()
    for at in states:
        if at < len(pattern):
            if pattern[at] == STAR:
                led.add(at)
            elif test(pattern[at]):
                led.add(at + 1)
    return _skipped(pattern, led)


def _any(pattern: tuple[str, ...], states: set[int], test: Callable[[str], bool]) -> set[int]:
    """Where any number of words that pass a test may lead."""
    reached, fresh = set(states), set(states)
    while fresh:
        fresh = _stepped(pattern, fresh, test) - reached
        reached |= fresh
    return reached


def _test(word: Word, first: bool, exactly: bool) -> Callable[[str], bool]:
    if exactly and first and "/" in word.text:  # a star in the name of a program is no path
        return lambda text: "/" in text and _like(text, word.text)
    if exactly or not first:
        return lambda text: _like(text, word.text)
    forms = {form.casefold() for form in (word.text, word.text.rsplit("/", 1)[-1])}
    return lambda text: any(_like(text.casefold(), form) for form in forms)


def _globbed(word: Word) -> Callable[[str], bool]:
    """Whether the shell could find a file of that name; what begins with a sign never begins at the root."""
    pieces = re.split(r"[]*?[]", word.text)
    start, end = pieces[0], pieces[-1]

    def test(text: str) -> bool:
        first, last = text.split(STAR, 1)[0], text.rsplit(STAR, 1)[-1]
        if not start and first.startswith("/"):
            return False
        begins = first.startswith(start) or (start.startswith(first) and first != text)
        return begins and (last.endswith(end) or (end.endswith(last) and last != text))

    return test


def _like(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern whose only sign is the star."""
    first, *rest = pattern.split(STAR)
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


# -- paths ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Globs:
    """The files that a specifier names: as it is written, and in any case."""

    absolute: bool
    exact: Glob
    folded: Glob


@lru_cache(maxsize=1_000)
def _globs(rule: Rule) -> _Globs:
    text = rule.specifier
    if text.startswith("~"):
        raise ConfigError(f"the rule {rule.text!r} begins with ~, and whose home that is nobody knows; write the path")
    try:
        return _Globs(text.startswith("/"), Glob(text), Glob(text.casefold()))
    except BackendError as error:
        raise ConfigError(f"the rule {rule.text!r} cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class _Place:
    """A path, taken apart: `climbs` if it goes up, which links can make mean anything."""

    parts: tuple[str, ...]
    climbs: bool


def _parts(path: str) -> _Place:
    parts, climbs = list[str](), False
    for part in path.split("/"):
        if part == "..":
            climbs = True
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return _Place(tuple(parts), climbs)


def _seen_from(globs: _Globs, subject: Subject) -> _Place | None:
    """The path as the rule sees it: from the root or from the workspace; None if it does not lie there."""
    path, home = subject.path or "", subject.workdir
    if globs.absolute:
        return _parts(path) if path.startswith("/") else _parts(f"{home}/{path}") if home else None
    if not path.startswith("/"):
        return _parts(path)
    place, above = _parts(path), _parts(home).parts
    inside = home and place.parts[: len(above)] == above
    return _Place(place.parts[len(above) :], place.climbs) if inside else None


def _path_met(globs: _Globs, subject: Subject) -> Met:
    """Whether a path, a folder it is in, or (where a tool goes into folders) something in it is named."""
    place = _seen_from(globs, subject)
    if place is None:  # without the workspace, relative and absolute paths cannot be compared
        return "no" if subject.workdir else "maybe"
    folded = tuple(part.casefold() for part in place.parts)
    for glob, parts in ((globs.exact, place.parts), (globs.folded, folded)):
        if any(glob.fits("/".join(parts[:end])) for end in range(1, len(parts) + 1)):
            return "yes"
        if not subject.one_file and _beneath(glob, parts):
            return "yes"
    return "maybe" if place.climbs or subject.path in subject.linked else "no"


def _beneath(glob: Glob, parts: Sequence[str]) -> bool:
    """Whether a pattern may fit something in a folder."""
    states = glob.start
    for part in parts:
        states = glob.step(states, part)
    return any(states)


def _path_allowed(globs: _Globs, subject: Subject) -> bool:
    place = _seen_from(globs, subject)
    if place is None or place.climbs or subject.path in subject.linked:
        return False
    if FOLDERS.isdisjoint(subject.ever):
        return bool(place.parts) and globs.exact.fits("/".join(place.parts))
    inside = ("\ue000", "\ue001")  # names that only a star fits
    return all(globs.exact.fits("/".join((*place.parts, *inside[:depth]))) for depth in (1, 2))


# -- hosts ----------------------------------------------------------------------------------------------------------

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]|\*")


@lru_cache(maxsize=1_000)
def _domain(rule: Rule) -> str:
    text = rule.specifier.removeprefix(DOMAIN).strip()
    host = text if text == STAR else _ascii(text.removeprefix("*."))
    if not host or not _HOST.fullmatch(host):
        raise ConfigError(f"the rule {rule.text!r} should name a host, as in WebFetch(domain:example.com)")
    return f"*.{host}" if text.startswith("*.") else host


def _ascii(host: str) -> str:
    """A host's name as it is looked up; empty if there is more than one way to spell it so."""
    host = host.removesuffix(".")
    if not host or any(char in host for char in "ßẞς\u200c\u200d%"):  # two standards make different names of them
        return ""
    try:
        return host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


def _host_met(domain: str, url: str) -> Met:
    """Whether a URL leads to a host or one below it; `maybe` if programs may read the URL in different ways."""
    host, plain = _host(url)
    if _below(domain, host):
        return "yes"
    return "no" if plain else "maybe"


def _host_allowed(domain: str, url: str) -> bool:
    host, plain = _host(url)
    return plain and _below(domain, host)


def _below(domain: str, host: str) -> bool:
    if domain.startswith(STAR):
        return host.endswith(domain[1:])
    return host == domain or host.endswith(f".{domain}")


def _host(url: str) -> tuple[str, bool]:
    """The host of a URL, and whether there is no doubt about it."""
    odd = "\\" in url or any(char.isspace() or ord(char) < 32 or ord(char) == 127 for char in url)
    try:
        parts = urlsplit(url)
        host, _ = _ascii(parts.hostname or ""), parts.port
    except ValueError:
        return "", False
    bare = host if ":" not in host else f"[{host}]"
    plain = not odd and "@" not in parts.netloc and parts.scheme in ("http", "https")
    return bare, plain and _HOST.fullmatch(bare) is not None


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
