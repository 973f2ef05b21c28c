"""Specifiers of permission rules: patterns for commands, files and hosts.

Each pattern has two tests. `matches` serves deny and ask rules: it returns `maybe` if a match cannot be excluded.
`covers` serves allow rules: it returns True only if everything is certainly covered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal
from unicodedata import normalize
from urllib.parse import urlsplit

from wick.errors import BackendError, ConfigError
from wick.permissions.shell import LOOSE, Script, ShellCommand, simplify
from wick.permissions.shell_lexer import Word
from wick.workspace.globs import Glob

MatchResult = Literal["yes", "maybe", "no"]
STAR = "*"


def strictest(answers: Iterable[MatchResult]) -> MatchResult:
    """Return the strongest result: `yes` before `maybe` before `no`."""
    results = set(answers)
    return "yes" if "yes" in results else "maybe" if "maybe" in results else "no"


# -- commands -------------------------------------------------------------------------------------------------------


class CommandPattern:
    """A pattern for the words of a command: `git log *`. A separate star matches any number of words."""

    def __init__(self, text: str) -> None:
        words = f"{text.removesuffix(':*')} {STAR}".split() if text.endswith(":*") else text.split()
        if (words[0] == STAR and len(words) > 1) or text.startswith(":*"):
            raise ConfigError("it must begin with the name of a command, as in Bash(git status *)")
        self.pattern = tuple(words)
        self.denied = tuple(_DenyWord(word) for word in words)
        contains = len(words) == 4 and words[1] == words[3] == STAR and STAR not in words[2]
        self.contained = self.denied[2] if contains else None
        self.tokens = tuple(token for word in words for token in tokenize(word.rsplit("/", 1)[-1] or word))

    def matches(self, script: Script) -> MatchResult:
        """Match the commands of a script. Program names are compared without folder and case."""
        if self.pattern == (STAR,):
            return "yes"
        name = self.pattern[0].casefold()
        named = STAR in name or name in script.names or self._is_in(script.mentions)
        return strictest(
            self._match_command(command, script) for command in (script.commands if named else script.unnamed)
        )

    def _match_command(self, command: ShellCommand, script: Script | None = None) -> MatchResult:
        name = command.words[0]
        if name.fixed and not _matches_base_name(self.pattern[0], name.text):
            return "maybe" if self._is_mentioned(command) else "no"
        if self.contained is not None and name.fixed and script is not None:
            # A pattern such as `rm * /usr *`: the words of the command are indexed for it.
            denied = self.contained
            if denied.pattern in command.texts or (denied.path and denied.path in command.texts):
                return "yes"
            return "maybe" if any(denied.can_be(word, script) for word in command.loose) else "no"
        if self._match_words(command.words, _matches_base_name, sure=True):
            return "yes"
        loose = self._match_words(command.words, _matches_base_name, sure=False, script=script)
        return "maybe" if loose or self._is_mentioned(command) else "no"

    def _is_mentioned(self, command: ShellCommand) -> bool:
        """Return True if an unknown program has the words of the pattern among its arguments."""
        return command.foreign and self._is_in(command.mentions)

    def _is_in(self, mentions: frozenset[str]) -> bool:
        if not mentions or not self.tokens:
            return False
        if LOOSE in mentions and self.pattern[1:2] != (STAR,):  # the words after the name are unknown
            return self._is_token(self.tokens[0], mentions)
        return all(self._is_token(token, mentions) for token in self.tokens)

    def _is_token(self, token: str, mentions: frozenset[str]) -> bool:
        return token in mentions if STAR not in token else any(wildcard_match(token, other) for other in mentions)

    def covers(self, command: ShellCommand) -> bool:
        return self._match_words(command.words, _matches_exact_name, sure=True, allows=True)

    def _match_words(
        self,
        words: Sequence[Word],
        named: Callable[[str, str], bool],
        sure: bool,
        allows: bool = False,
        script: Script | None = None,
    ) -> bool:
        """Return True if the words match the pattern. Unless `sure`, possible expansions by the shell count, too."""
        states = self._skip_stars({0})
        for place, word in enumerate(words):
            if word.fixed:
                states = self._advance_states(states, self._word_test(word, place, named, sure, allows, script))
            elif sure:
                states = {at for at in states if self.pattern[at : at + 1] == (STAR,)}
            elif (
                not place or word != words[place - 1]
            ):  # it expands to any number of words, so a repetition adds nothing
                states = self._expand_states(states, word, not place, script)
            if not states:
                return False
        return len(self.pattern) in self._skip_stars(states)

    def _word_test(
        self,
        word: Word,
        place: int,
        named: Callable[[str, str], bool],
        sure: bool,
        allows: bool,
        script: Script | None,
    ) -> Callable[[int], bool]:
        """Return the test of a fixed word against a position of the pattern."""
        if not place:
            return lambda at: named(self.pattern[at], word.text)
        if allows:
            return lambda at: wildcard_match(self.pattern[at], word.text)
        if sure:
            return lambda at: self.denied[at].is_word(word.text)
        return lambda at: self.denied[at].is_word(word.text) or self.denied[at].can_be(word, script)

    def _skip_stars(self, states: Iterable[int]) -> set[int]:
        """Return the states, with those behind stars: a star matches zero words, too."""
        reached = set()
        for at in states:
            reached.add(at)
            while at < len(self.pattern) and self.pattern[at] == STAR:
                at += 1
                reached.add(at)
        return reached

    def _advance_states(self, states: Iterable[int], test: Callable[[int], bool]) -> set[int]:
        reached = set()
        for at in states:
            if at < len(self.pattern):
                if self.pattern[at] == STAR:
                    reached.add(at)
                elif test(at):
                    reached.add(at + 1)
        return self._skip_stars(reached)

    def _expand_states(self, states: set[int], word: Word, is_name: bool, script: Script | None) -> set[int]:
        """Return the states after any number of words that the shell may expand this word to."""
        reached, fresh = set(states), set(states)

        def test(at: int) -> bool:
            if at == 0 and is_name:
                return _can_be_named(self.pattern[0], word)
            return self.denied[at].can_be(word, script)

        while fresh:
            fresh = self._advance_states(fresh, test) - reached
            reached |= fresh
        return reached


class _DenyWord:
    """A word of a deny rule. Paths are compared after normalization and without case."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.path = simplify(pattern.casefold()) if "/" in pattern else ""
        self.last = self.path.rsplit("/", 1)[-1]

    def is_word(self, text: str) -> bool:
        """Return True if a word certainly matches the pattern."""
        if wildcard_match(self.pattern, text):
            return True
        return bool(self.path) and "/" in text and wildcard_match(self.path, simplify(text.casefold()))

    def can_be(self, word: Word, script: Script | None) -> bool:
        """Return True if a word may expand or resolve to a match of the pattern."""
        if word.tail:
            pattern = self.last if self.path else self.pattern
            return STAR in pattern or (bool(self.path) and pattern == word.tail.casefold())
        if not word.fixed and not word.glob:
            return True
        if not self.path or not self.path.startswith("/"):
            relative = word.text.startswith("./") and not self.pattern.startswith("-")
            return not word.fixed and _can_glob_match(self.pattern, simplify(word.text) if relative else word.text)
        folders = script.folders if script is not None else ()
        lost = script is not None and script.lost
        text = simplify(word.text.casefold())
        if text.startswith("/proc/"):
            lost, text = True, text.rsplit("/", 1)[-1]
        rooted = text.startswith("/") or text[:1] in "*?["
        if not word.fixed and rooted and (_can_glob_match(self.path, text) or _can_glob_match(f"{self.path}/", text)):
            return True
        if text.startswith("/"):
            return False
        paths = [simplify(f"{folder.casefold()}/{text}") for folder in folders]
        if any(wildcard_match(self.path, path) if word.fixed else _can_glob_match(self.path, path) for path in paths):
            return True
        climbs = text == ".." or text.startswith("../")
        if not climbs and not lost:
            return False
        last = text.rsplit("/", 1)[-1]
        if last in ("..", "."):
            return True
        return wildcard_match(self.last, last) if word.fixed else _can_glob_match(self.last, last)


def tokenize(text: str) -> list[str]:
    """Return the names in a text, without punctuation."""
    return [token for token in _TOKEN.findall(text.casefold()) if token.strip(STAR)]


_TOKEN = re.compile(r"[\w.+*-]+")


def _can_be_named(pattern: str, word: Word) -> bool:
    """Return True if a word that the shell expands can become the name of this program."""
    name = pattern.casefold().rsplit("/", 1)[-1]
    if word.tail:
        return wildcard_match(name, word.tail.casefold())
    if not word.glob:
        return True
    text = word.text.casefold()
    return _can_glob_match(pattern.casefold(), text) or _can_glob_match(name, text.rsplit("/", 1)[-1])


def wildcard_match(pattern: str, text: str) -> bool:
    """Return True if a text matches a pattern whose only wildcard is the star."""
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


def _matches_exact_name(pattern: str, program: str) -> bool:
    """Return True if a program name matches. A star in the pattern does not match a folder."""
    return wildcard_match(pattern, program) and ("/" in pattern or "/" not in program)


def _matches_base_name(pattern: str, program: str) -> bool:
    pattern, program = pattern.casefold(), program.casefold()
    return wildcard_match(pattern, program) or wildcard_match(pattern, program.rsplit("/", 1)[-1])


def _can_glob_match(pattern: str, glob: str) -> bool:
    """Return True if a shell glob can expand to a match. A glob that begins with a wildcard is not absolute."""
    pieces = re.split(r"[]*?[]", glob)
    start, end = pieces[0], pieces[-1]
    first, last = pattern.split(STAR, 1)[0], pattern.rsplit(STAR, 1)[-1]
    if not start and first.startswith("/"):
        return False
    begins = first.startswith(start) or (start.startswith(first) and first != pattern)
    return begins and (last.endswith(end) or (end.endswith(last) and last != pattern))


# -- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolPath:
    """A path argument of a tool in a workspace. The target of a `linked` path is unknown."""

    path: str
    workdir: str = ""  # the workspace, if known
    linked: bool = False


@dataclass(frozen=True, slots=True)
class _PathParts:
    """The names of a path. `climbs` marks a path with `..`, whose target depends on symbolic links."""

    names: tuple[str, ...]
    climbs: bool


class FilePattern:
    """A pattern for files of the workspace (`src/**`) or absolute paths (`/etc/*`)."""

    def __init__(self, text: str) -> None:
        if text.startswith("~"):
            raise ConfigError("~ is not expanded in rules; write the whole path")
        self.absolute = text.startswith("/")
        try:
            self.exact, self.folded = Glob(text), Glob(_fold_name(text))
        except BackendError as error:
            raise ConfigError(str(error)) from None

    def matches(self, place: ToolPath, one_file: bool) -> MatchResult:
        """Match a path, its parent folders and, unless `one_file`, the files below it."""
        parts = self._relative_names(place)
        if parts is None:  # without the workspace, relative and absolute paths cannot be compared
            return "no" if place.workdir else "maybe"
        folded = tuple(map(_fold_name, parts.names))
        for glob, names in ((self.exact, parts.names), (self.folded, folded)):
            if any(glob.matches("/".join(names[:end])) for end in range(1, len(names) + 1)):
                return "yes"
            if not one_file:
                below = reduce(glob.advance, names, glob.start)
                if any(below):  # the pattern may match a file below the folder
                    return "yes"
        return "maybe" if parts.climbs or place.linked else "no"

    def covers(self, place: ToolPath, folder: bool) -> bool:
        """Return True if the pattern certainly matches the path, or everything below a folder."""
        parts = self._relative_names(place)
        if parts is None or parts.climbs or place.linked:
            return False
        if not folder:
            return bool(parts.names) and self.exact.matches("/".join(parts.names))
        inside = ("\ue000", "\ue001")  # names that only a star matches
        return all(self.exact.matches("/".join((*parts.names, *inside[:depth]))) for depth in (1, 2))

    def _relative_names(self, place: ToolPath) -> _PathParts | None:
        """Return the path relative to the root or the workspace, like the pattern; None if it is outside."""
        path, home = place.path, place.workdir
        if self.absolute:
            return _split_path(path) if path.startswith("/") else _split_path(f"{home}/{path}") if home else None
        if not path.startswith("/"):
            return _split_path(path)
        parts, above = _split_path(path), _split_path(home).names
        inside = home and parts.names[: len(above)] == above
        return _PathParts(parts.names[len(above) :], parts.climbs) if inside else None


def _fold_name(name: str) -> str:
    """Return a name as a case-insensitive, Unicode-normalizing file system compares it."""
    return normalize("NFC", normalize("NFC", name).casefold())


def _split_path(path: str) -> _PathParts:
    names, climbs = list[str](), False
    for name in path.split("/"):
        if name == "..":
            climbs = True
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return _PathParts(tuple(names), climbs)


# -- hosts ----------------------------------------------------------------------------------------------------------

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


class HostPattern:
    """A pattern for a host and its subdomains (`example.com`), subdomains only (`*.example.com`) or all hosts (`*`)."""

    def __init__(self, text: str) -> None:
        self.below = text.startswith(STAR)
        self.name = "" if text == STAR else _to_ascii(text.removeprefix("*."))
        if text != STAR and not _HOST.fullmatch(self.name):
            raise ConfigError("it should name a host, as in WebFetch(domain:example.com)")

    def matches(self, url: str) -> MatchResult:
        """Match the host of a URL; return `maybe` if parsers disagree about the URL."""
        host, plain = _parse_host(url)
        if self._matches_host(host):
            return "yes"
        return "no" if plain else "maybe"

    def covers(self, url: str) -> bool:
        host, plain = _parse_host(url)
        return plain and self._matches_host(host)

    def _matches_host(self, host: str) -> bool:
        if not self.name:
            return True
        return host.endswith(f".{self.name}") or (host == self.name and not self.below)


def _to_ascii(host: str) -> str:
    """Return a host name in IDNA form, or an empty text if its encoding is ambiguous."""
    host = host.removesuffix(".")
    if not host or any(char in host for char in "ßẞς\u200c\u200d%"):  # IDNA 2003 and 2008 encode them differently
        return ""
    try:
        return host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


def _parse_host(url: str) -> tuple[str, bool]:
    """Return the host of a URL, and True if every parser agrees about it."""
    odd = "\\" in url or any(char.isspace() or ord(char) < 32 or ord(char) == 127 for char in url)
    try:
        parts = urlsplit(url)
        host, _ = _to_ascii(parts.hostname or ""), parts.port
    except ValueError:
        return "", False
    bare = host if ":" not in host else f"[{host}]"
    plain = not odd and "@" not in parts.netloc and parts.scheme in ("http", "https")
    return bare, plain and _HOST.fullmatch(bare) is not None
