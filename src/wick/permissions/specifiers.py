"""What stands in the brackets of a rule: a pattern over commands, over files or over hosts.

Each is asked two questions. `met`: could a rule that denies mean this? `covers`: does a rule that allows certainly mean
all of it? Between yes and no the first has `maybe`; the second has no doubts, only a no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import normalize
from urllib.parse import urlsplit

from wick.errors import BackendError, ConfigError
from wick.permissions.shell import LOOSE, Command, Script, simplify
from wick.permissions.shell_lexer import Word
from wick.workspace.globs import Glob

Met = Literal["yes", "maybe", "no"]
STAR = "*"


def most(answers: Iterable[Met]) -> Met:
    """The most that any of several answers says."""
    found = set(answers)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"


# -- commands -------------------------------------------------------------------------------------------------------


class Words:
    """The words of a command: `git log *`; a star that stands alone is any number of words."""

    def __init__(self, text: str) -> None:
        words = f"{text.removesuffix(':*')} {STAR}".split() if text.endswith(":*") else text.split()
        if (words[0] == STAR and len(words) > 1) or text.startswith(":*"):
            raise ConfigError("it must begin with the name of a command, as in Bash(git status *)")
        self.pattern = tuple(words)
        self.denied = tuple(_Denied(word) for word in words)
        contains = len(words) == 4 and words[1] == words[3] == STAR and STAR not in words[2]
        self.contained = self.denied[2] if contains else None
        self.tokens = tuple(token for word in words for token in tokenize(word.rsplit("/", 1)[-1] or word))

    def met(self, script: Script) -> Met:
        """Whether one of the commands is meant. A program is known by its name wherever it lies, and in any case."""
        if self.pattern == (STAR,):
            return "yes"
        name = self.pattern[0].casefold()
        named = STAR in name or name in script.names or self._is_in(script.mentions)
        return most(self._one_met(command, script) for command in (script.commands if named else script.unnamed))

    def _one_met(self, command: Command, script: Script | None = None) -> Met:
        name = command.words[0]
        if name.fixed and not _by_any_name(self.pattern[0], name.text):
            return "maybe" if self._is_mentioned(command) else "no"
        if self.contained is not None and name.fixed and script is not None:
            return self._contains(self.contained, command, script)
        if self._led(command.words, _by_any_name, sure=True):
            return "yes"
        loose = self._led(command.words, _by_any_name, sure=False, script=script)
        return "maybe" if loose or self._is_mentioned(command) else "no"

    def _contains(self, denied: _Denied, command: Command, script: Script) -> Met:
        """Compare a pattern such as `rm * /usr *` with what was found out about the words of a command."""
        if denied.pattern in command.texts or (denied.path and denied.path in command.texts):
            return "yes"
        return "maybe" if any(denied.can_be(word, script) for word in command.loose) else "no"

    def _is_mentioned(self, command: Command) -> bool:
        """Return True if a program about which nothing is known is given the words of the pattern."""
        return command.foreign and self._is_in(command.mentions)

    def _is_in(self, mentions: frozenset[str]) -> bool:
        if not mentions or not self.tokens:
            return False
        if LOOSE in mentions and self.pattern[1:2] != (STAR,):  # the words behind the name may be any
            return self._is_token(self.tokens[0], mentions)
        return all(self._is_token(token, mentions) for token in self.tokens)

    def _is_token(self, token: str, mentions: frozenset[str]) -> bool:
        return token in mentions if STAR not in token else any(like(token, other) for other in mentions)

    def covers(self, command: Command) -> bool:
        return self._led(command.words, _by_its_name, sure=True, allows=True)

    def _led(
        self,
        words: Sequence[Word],
        named: Callable[[str, str], bool],
        sure: bool,
        allows: bool = False,
        script: Script | None = None,
    ) -> bool:
        """Whether words lead through the pattern; unless `sure`, what the shell may make of them counts, too."""
        states = self._skipped({0})
        for place, word in enumerate(words):
            if word.fixed:
                states = self._stepped(states, self._compare(word, place, named, sure, allows, script))
            elif sure:
                states = {at for at in states if self.pattern[at : at + 1] == (STAR,)}
            elif not place or word != words[place - 1]:  # any number of words, however often it is repeated
                states = self._any(states, word, not place, script)
            if not states:
                return False
        return len(self.pattern) in self._skipped(states)

    def _compare(
        self,
        word: Word,
        place: int,
        named: Callable[[str, str], bool],
        sure: bool,
        allows: bool,
        script: Script | None,
    ) -> Callable[[int], bool]:
        """Return the test of a fixed word against a place of the pattern."""
        if not place:
            return lambda at: named(self.pattern[at], word.text)
        if allows:
            return lambda at: like(self.pattern[at], word.text)
        if sure:
            return lambda at: self.denied[at].is_word(word.text)
        return lambda at: self.denied[at].is_word(word.text) or self.denied[at].can_be(word, script)

    def _skipped(self, states: Iterable[int]) -> set[int]:
        """A star may stand for nothing."""
        found = set()
        for at in states:
            found.add(at)
            while at < len(self.pattern) and self.pattern[at] == STAR:
                at += 1
                found.add(at)
        return found

    def _stepped(self, states: Iterable[int], test: Callable[[int], bool]) -> set[int]:
        led = set()
        for at in states:
            if at < len(self.pattern):
                if self.pattern[at] == STAR:
                    led.add(at)
                elif test(at):
                    led.add(at + 1)
        return self._skipped(led)

    def _any(self, states: set[int], word: Word, is_name: bool, script: Script | None) -> set[int]:
        """Where any number of words may lead that the shell could make of this one."""
        reached, fresh = set(states), set(states)

        def test(at: int) -> bool:
            if at == 0 and is_name:
                return _can_be_named(self.pattern[0], word)
            return self.denied[at].can_be(word, script)

        while fresh:
            fresh = self._stepped(fresh, test) - reached
            reached |= fresh
        return reached


class _Denied:
    """One word of a rule that denies. A path is the same with double slashes, `.` and `..` in it, and in capitals."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.path = simplify(pattern.casefold()) if "/" in pattern else ""
        self.last = self.path.rsplit("/", 1)[-1]

    def is_word(self, text: str) -> bool:
        """Return True if a word certainly is what the pattern says."""
        if like(self.pattern, text):
            return True
        return bool(self.path) and "/" in text and like(self.path, simplify(text.casefold()))

    def can_be(self, word: Word, script: Script | None) -> bool:
        """Return True if a word may become, or lead to, what the pattern says."""
        if word.tail:
            pattern = self.last if self.path else self.pattern
            return STAR in pattern or (bool(self.path) and pattern == word.tail.casefold())
        if not word.fixed and not word.glob:
            return True
        if not self.path or not self.path.startswith("/"):
            relative = word.text.startswith("./") and not self.pattern.startswith("-")
            return not word.fixed and _found(self.pattern, simplify(word.text) if relative else word.text)
        folders = script.folders if script is not None else ()
        lost = script is not None and script.lost
        text = simplify(word.text.casefold())
        if text.startswith("/proc/"):
            lost, text = True, text.rsplit("/", 1)[-1]
        rooted = text.startswith("/") or text[:1] in "*?["
        if not word.fixed and rooted and (_found(self.path, text) or _found(f"{self.path}/", text)):
            return True
        if text.startswith("/"):
            return False
        paths = [simplify(f"{folder.casefold()}/{text}") for folder in folders]
        if any(like(self.path, path) if word.fixed else _found(self.path, path) for path in paths):
            return True
        climbs = text == ".." or text.startswith("../")
        if not climbs and not lost:
            return False
        last = text.rsplit("/", 1)[-1]
        if last in ("..", "."):
            return True
        return like(self.last, last) if word.fixed else _found(self.last, last)


def tokenize(text: str) -> list[str]:
    """Return the names in a text, without its signs."""
    return [token for token in _TOKEN.findall(text.casefold()) if token.strip(STAR)]


_TOKEN = re.compile(r"[\w.+*-]+")


def _can_be_named(pattern: str, word: Word) -> bool:
    """Return True if a word that the shell makes something of can become the name of this program."""
    name = pattern.casefold().rsplit("/", 1)[-1]
    if word.tail:
        return like(name, word.tail.casefold())
    if not word.glob:
        return True
    text = word.text.casefold()
    return _found(pattern.casefold(), text) or _found(name, text.rsplit("/", 1)[-1])


def like(pattern: str, text: str) -> bool:
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


def _by_its_name(pattern: str, program: str) -> bool:
    """A star in the name of a program is no path."""
    return like(pattern, program) and ("/" in pattern or "/" not in program)


def _by_any_name(pattern: str, program: str) -> bool:
    pattern, program = pattern.casefold(), program.casefold()
    return like(pattern, program) or like(pattern, program.rsplit("/", 1)[-1])


def _found(pattern: str, glob: str) -> bool:
    """Whether the shell could find a file of that name; what begins with a sign never begins at the root."""
    pieces = re.split(r"[]*?[]", glob)
    start, end = pieces[0], pieces[-1]
    first, last = pattern.split(STAR, 1)[0], pattern.rsplit(STAR, 1)[-1]
    if not start and first.startswith("/"):
        return False
    begins = first.startswith(start) or (start.startswith(first) and first != pattern)
    return begins and (last.endswith(end) or (end.endswith(last) and last != pattern))


# -- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A path that a tool is told, in a workspace; where one ends that leads over a link, nobody knows."""

    path: str
    workdir: str = ""  # the workspace, where it is known
    linked: bool = False


@dataclass(frozen=True, slots=True)
class _Parts:
    """A path, taken apart: `climbs` if it goes up, which links can make mean anything."""

    names: tuple[str, ...]
    climbs: bool


class Files:
    """Files of the workspace, or from the root: `src/**`, `/etc/*`."""

    def __init__(self, text: str) -> None:
        if text.startswith("~"):
            raise ConfigError("it begins with ~, and whose home that is nobody knows; write the path")
        self.absolute = text.startswith("/")
        try:
            self.exact, self.folded = Glob(text), Glob(_folded(text))
        except BackendError as error:
            raise ConfigError(str(error)) from None

    def met(self, place: Place, one_file: bool) -> Met:
        """Whether a path, a folder it is in, or (where a tool goes into folders) something in it is meant."""
        parts = self._seen_from(place)
        if parts is None:  # without the workspace, relative and absolute paths cannot be compared
            return "no" if place.workdir else "maybe"
        folded = tuple(map(_folded, parts.names))
        for glob, names in ((self.exact, parts.names), (self.folded, folded)):
            if any(glob.matches("/".join(names[:end])) for end in range(1, len(names) + 1)):
                return "yes"
            if not one_file and _beneath(glob, names):
                return "yes"
        return "maybe" if parts.climbs or place.linked else "no"

    def covers(self, place: Place, folder: bool) -> bool:
        """Whether a path is meant; of a folder, everything in it."""
        parts = self._seen_from(place)
        if parts is None or parts.climbs or place.linked:
            return False
        if not folder:
            return bool(parts.names) and self.exact.matches("/".join(parts.names))
        inside = ("\ue000", "\ue001")  # names that only a star fits
        return all(self.exact.matches("/".join((*parts.names, *inside[:depth]))) for depth in (1, 2))

    def _seen_from(self, place: Place) -> _Parts | None:
        """The path from the root or from the workspace, as the pattern is; None if it does not lie there."""
        path, home = place.path, place.workdir
        if self.absolute:
            return _parts(path) if path.startswith("/") else _parts(f"{home}/{path}") if home else None
        if not path.startswith("/"):
            return _parts(path)
        parts, above = _parts(path), _parts(home).names
        inside = home and parts.names[: len(above)] == above
        return _Parts(parts.names[len(above) :], parts.climbs) if inside else None


def _folded(name: str) -> str:
    """A name as a file system that does not mind capitals or accents in pieces compares it."""
    return normalize("NFC", normalize("NFC", name).casefold())


def _parts(path: str) -> _Parts:
    names, climbs = list[str](), False
    for name in path.split("/"):
        if name == "..":
            climbs = True
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return _Parts(tuple(names), climbs)


def _beneath(glob: Glob, names: Sequence[str]) -> bool:
    """Whether a pattern may fit something in a folder."""
    states = glob.start
    for name in names:
        states = glob.advance(states, name)
    return any(states)


# -- hosts ----------------------------------------------------------------------------------------------------------

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


class Host:
    """A host and the hosts below it: `example.com`; only those below it: `*.example.com`; all: `*`."""

    def __init__(self, text: str) -> None:
        self.below = text.startswith(STAR)
        self.name = "" if text == STAR else _ascii(text.removeprefix("*."))
        if text != STAR and not _HOST.fullmatch(self.name):
            raise ConfigError("it should name a host, as in WebFetch(domain:example.com)")

    def met(self, url: str) -> Met:
        """`maybe` if programs may read the URL in different ways."""
        host, plain = _host(url)
        if self._fits(host):
            return "yes"
        return "no" if plain else "maybe"

    def covers(self, url: str) -> bool:
        host, plain = _host(url)
        return plain and self._fits(host)

    def _fits(self, host: str) -> bool:
        if not self.name:
            return True
        return host.endswith(f".{self.name}") or (host == self.name and not self.below)


def _ascii(host: str) -> str:
    """A host's name as it is looked up; empty if there is more than one way to spell it so."""
    host = host.removesuffix(".")
    if not host or any(char in host for char in "ßẞς\u200c\u200d%"):  # two standards make different names of them
        return ""
    try:
        return host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return ""


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
