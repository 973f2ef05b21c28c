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
from wick.lexing import Word
from wick.patterns import Glob
from wick.shell import Command, Script

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

    def met(self, script: Script) -> Met:
        """Whether one of the commands is meant. A program is known by its name wherever it lies, and in any case."""
        if self.pattern == (STAR,):
            return "yes"
        return most(self._one_met(command) for command in script.commands)

    def _one_met(self, command: Command) -> Met:
        if self._led(command.words, _by_any_name, sure=True):
            return "yes"
        return "maybe" if self._led(command.words, _by_any_name, sure=False) else "no"

    def covers(self, command: Command) -> bool:
        return self._led(command.words, _by_its_name, sure=True)

    def _led(self, words: Sequence[Word], named: Callable[[str, str], bool], sure: bool) -> bool:
        """Whether words lead through the pattern; unless `sure`, what the shell may make of them counts, too."""
        states, test = self._skipped({0}), named
        for word in words:
            if word.fixed:
                states = self._stepped(states, word.text, test)
            elif sure:
                states = {at for at in states if self.pattern[at : at + 1] == (STAR,)}
            else:
                states = self._any(states, word)
            if not states:
                return False
            test = like
        return len(self.pattern) in self._skipped(states)

    def _skipped(self, states: Iterable[int]) -> set[int]:
        """A star may stand for nothing."""
        found = set()
        for at in states:
            found.add(at)
            while at < len(self.pattern) and self.pattern[at] == STAR:
                at += 1
                found.add(at)
        return found

    def _stepped(self, states: Iterable[int], word: str, test: Callable[[str, str], bool]) -> set[int]:
        led = set()
        for at in states:
            if at < len(self.pattern):
                if self.pattern[at] == STAR:
                    led.add(at)
                elif test(self.pattern[at], word):
                    led.add(at + 1)
        return self._skipped(led)

    def _any(self, states: set[int], word: Word) -> set[int]:
        """Where any number of words may lead that the shell could make of this one."""
        reached, fresh = set(states), set(states)
        test = _found if word.glob else _anything
        while fresh:
            fresh = self._stepped(fresh, word.text, test) - reached
            reached |= fresh
        return reached


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


def _anything(pattern: str, word: str) -> bool:
    return True


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
            if any(glob.fits("/".join(names[:end])) for end in range(1, len(names) + 1)):
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
            return bool(parts.names) and self.exact.fits("/".join(parts.names))
        inside = ("\ue000", "\ue001")  # names that only a star fits
        return all(self.exact.fits("/".join((*parts.names, *inside[:depth]))) for depth in (1, 2))

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
        states = glob.step(states, name)
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
