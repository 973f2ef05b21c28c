"""Finding files and lines: patterns over paths, what is left out, the walk, and the search itself.

    Glob("src/**/*.{py,md}").fits("src/a/b.py")     `**`, `*`, `?`, `[a-z]`, `{a,b}`; without a slash: at any depth
    ignores("", text)                               the rules of a .gitignore
    Walk(tree, budget).files(start, glob)           the files beneath a folder, in order, within a budget
    Search("def \\w+").lines(blocks)                 the lines that match a regular expression (RE2)

No pattern is ever given to `re`: the matching here takes time in proportion to the pattern times the name.

This module also runs inside containers: the standard library only, Python 3.8; there, ripgrep or grep searches
instead of RE2, and what they print is read here.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import time
from typing import (
    Any,
    Callable,
    FrozenSet,
    Iterable,
    Iterator,
    NamedTuple,
    Sequence,
    Union,
)

from wick.beneath import Beneath
from wick.caps import (
    BINARY_HEAD_BYTES,
    GLOB_ALTERNATIVES,
    GLOB_CHARS,
    GREP_BUFFER_BYTES,
    GREP_BYTES,
    GREP_LINE_CHARS,
    GREP_MATCHES,
    GREP_MEMORY_BYTES,
    GREP_OVERLAP_BYTES,
    GREP_PATTERN_CHARS,
    IGNORE_BYTES,
    IGNORE_RULES,
    WALK_ENTRIES,
    WALK_SECONDS,
)
from wick.errors import BackendError, MissingExtra
from wick.shapes import Match, Matches

# Folders that hold much and say little. They are left out unless somebody asks for everything.
HEAVY = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox .nox .results".split()
)

Test = Callable[[str], bool]


# -- names ----------------------------------------------------------------------------------------------------------


class _Set(NamedTuple):
    """`[a-z]`: the characters between pairs of characters, or all others."""

    pairs: tuple[tuple[str, str], ...]
    negated: bool

    def has(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.pairs) is not self.negated


_Token = Union[str, _Set, None]  # a character, `?` (the empty string), a set, `*`
_ANY, _STAR = "", None

_CLASSES = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "blank": ((" ", " "), ("\t", "\t")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": ((" ", " "), ("\t", "\r")),
    "upper": (("A", "Z"),),
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}


def name_test(pattern: str) -> Test | None:
    """A test for one name, of `*`, `?`, `[a-z]` and backslashes; None if a bracket or a backslash is left open."""
    if not any(sign in pattern for sign in "*?[\\"):
        return pattern.__eq__
    tokens = _tokens(pattern)
    if tokens is None:
        return None
    if tokens == [_STAR]:
        return lambda name: True
    rest = [token for token in tokens[1:] if isinstance(token, str) and token]
    if tokens[0] is _STAR and len(rest) == len(tokens) - 1:
        end = "".join(rest)
        return lambda name: name.endswith(end)
    return lambda name: _fits(tokens, name)


def _tokens(pattern: str) -> list[_Token] | None:
    tokens: list[_Token] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            if not tokens or tokens[-1] is not _STAR:
                tokens.append(_STAR)
        elif char == "?":
            tokens.append(_ANY)
        elif char == "[":
            found, at = _set(pattern, at + 1)
            if found is None:
                return None
            tokens.append(found)
            continue
        elif char == "\\":
            at += 1
            if at == len(pattern):
                return None
            tokens.append(pattern[at])
        else:
            tokens.append(char)
        at += 1
    return tokens


def _set(pattern: str, at: int) -> tuple[_Set | None, int]:
    """What stands in brackets, from after the first one to after the last one."""
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    pairs: list[tuple[str, str]] = []
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        if pattern[at : at + 2] == "[:" and ":]" in pattern[at + 2 :]:
            end = pattern.index(":]", at + 2)
            if pattern[at + 2 : end] not in _CLASSES:
                return None, at
            pairs += _CLASSES[pattern[at + 2 : end]]
            at = end + 2
            continue
        low, at = _char(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("]", ""):
            high, at = _char(pattern, at + 1)
        if not low or not high:
            return None, at
        pairs.append((low, high))
    return _Set(tuple(pairs), negated), at + 1


def _char(pattern: str, at: int) -> tuple[str, int]:
    at += pattern[at : at + 1] == "\\"
    return pattern[at : at + 1], at + 1


def _segments(pattern: str) -> list[str]:
    """The patterns of the names in a path: a slash in brackets is no end of one."""
    segments, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "/":
            segments.append(pattern[start:at])
            start = at + 1
        if pattern[at] == "[":
            found, end = _set(pattern, at + 1)
            at = at if found is None else end - 1
        at += 2 if pattern[at] == "\\" else 1
    return [*segments, pattern[start:]]


def _fits(tokens: list[_Token], name: str) -> bool:
    """Each `*` takes as little as it can, and only the last one ever takes more: no more than tokens times name."""
    at = here = mark = 0
    star = -1
    while here < len(name):
        token = tokens[at] if at < len(tokens) else "/"  # which no name has
        if token is _STAR:
            star, mark, at = at, here, at + 1
        elif token in (name[here], _ANY) or (isinstance(token, _Set) and token.has(name[here])):
            at, here = at + 1, here + 1
        elif star >= 0:
            mark, at, here = mark + 1, star + 1, mark + 1
        else:
            return False
    return all(token is _STAR for token in tokens[at:])


# -- paths ----------------------------------------------------------------------------------------------------------

States = FrozenSet[int]  # how far into a pattern the names so far have led


class Route:
    """A pattern over a path, tried one name at a time; `**` stands for any number of folders."""

    def __init__(self, tests: Sequence[Test | None]) -> None:
        again = [*tests[1:], _never]
        self._tests = tuple(test for test, after in zip(tests, again) if test or after)  # None is `**`, and two are one
        self.start = self._with_skips({0})

    def step(self, states: States, name: str) -> States:
        """How far a folder's name leads."""
        led = set()
        for at in states:
            test = self._tests[at] if at < len(self._tests) else _never
            if test is None:
                led.add(at)
            elif test(name):
                led.add(at + 1)
        return self._with_skips(led)

    def ends(self, states: States, name: str) -> bool:
        """Whether a name is the last one of a path that fits."""
        last = len(self._tests) - 1
        if last not in states:
            return False
        test = self._tests[last]
        return test is None or test(name)

    def fits(self, parts: Sequence[str]) -> bool:
        states = self.start
        for name in parts[:-1]:
            states = self.step(states, name)
            if not states:
                return False
        return self.ends(states, parts[-1])

    def _with_skips(self, states: Iterable[int]) -> States:
        """`**` may stand for no folder at all, but at the end it stands for something."""
        found = set()
        for at in states:
            found.add(at)
            while at < len(self._tests) - 1 and self._tests[at] is None:
                at += 1
                found.add(at)
        return frozenset(found)


def _never(name: str) -> bool:
    return False


def _always(name: str) -> bool:
    return True


class Glob:
    """A pattern over paths: `**`, `*`, `?`, `[a-z]`, `{a,b}`. Without a slash it fits a name at any depth."""

    def __init__(self, pattern: str) -> None:
        if not pattern or "\0" in pattern or len(pattern) > GLOB_CHARS:
            raise BackendError(f"a pattern has 1 to {GLOB_CHARS} characters, and no NUL among them", "invalid")
        self._routes = [_route(text) for text in _alternatives(pattern)]
        self.start: tuple[States, ...] = tuple(route.start for route in self._routes)

    def step(self, states: tuple[States, ...], name: str) -> tuple[States, ...]:
        return tuple([route.step(state, name) for route, state in zip(self._routes, states)])

    def ends(self, states: tuple[States, ...], name: str) -> bool:
        return any(route.ends(state, name) for route, state in zip(self._routes, states))

    def fits(self, path: str) -> bool:
        """Whether a whole path fits, seen from where the pattern is seen from."""
        parts = path.split("/")
        return any(route.fits(parts) for route in self._routes)


def _route(pattern: str) -> Route:
    parts = [part for part in _segments(pattern) if part not in ("", ".")]
    if ".." in parts:
        raise BackendError(f"the pattern {pattern!r} has .. in it; give the folder as the path instead", "invalid")
    if not parts:
        raise BackendError(f"the pattern {pattern!r} names no file; ** is all files", "invalid")
    if pattern.endswith("/"):
        parts.append("**")
    if "/" not in pattern:
        parts.insert(0, "**")
    return Route([None if part == "**" else _lenient_test(part) for part in parts])


def _lenient_test(part: str) -> Test:
    """In a glob, a bracket that is left open is just a bracket."""
    test = name_test(part)
    if test is None:
        test = name_test(part.replace("\\", "\\\\").replace("[", "\\["))
    return test or part.__eq__


def _alternatives(pattern: str) -> list[str]:
    """The patterns that braces stand for."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        found = _braces(text)
        if found is None:
            done.append(text)
        else:
            before, choices, after = found
            todo += [before + choice + after for choice in choices]
        if len(todo) + len(done) > GLOB_ALTERNATIVES:
            raise BackendError(f"the braces of a pattern stand for at most {GLOB_ALTERNATIVES} patterns", "invalid")
    return done


def _braces(text: str) -> tuple[str, list[str], str] | None:
    """What stands before, in and after the first braces that are closed."""
    start = -1
    depth = at = 0
    cuts: list[int] = []
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            if depth == 0:
                start, cuts = at, [at]
            depth += 1
        elif char == "," and depth == 1:
            cuts.append(at)
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                ends = [*cuts[1:], at]
                return text[:start], [text[a + 1 : b] for a, b in zip(cuts, ends)], text[at + 1 :]
        at += 1
    return None


# -- what is left out -----------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    test: Test  # of the last name
    route: Route | None  # of the path from the ignore file's folder, if it matters
    negated: bool
    folders_only: bool

    def leads(self, path: str) -> bool:
        return self.route is None or self.route.fits(path.split("/"))


class Ignores:
    """The rules of an ignore file; those of the folders above come after. The last rule that fits decides."""

    def __init__(self, folder: str, rules: Sequence[_Rule], above: Ignores | None = None) -> None:
        self._folder = f"{folder}/" if folder else ""
        self._rules = tuple(reversed(rules))
        self._above = above

    def leaves_out(self, path: str, name: str, folder: bool) -> bool:
        """Whether a path is left out, if no folder that leads to it is."""
        level: Ignores | None = self
        while level is not None:
            for rule in level._rules:
                if rule.test(name) and (folder or not rule.folders_only) and rule.leads(path[len(level._folder) :]):
                    return not rule.negated
            level = level._above
        return False


def ignores(folder: str, text: str, above: Ignores | None = None) -> Ignores | None:
    """The rules of an ignore file's text; the folder is the one it stands in, seen from the tree."""
    lines = text.lstrip("\ufeff").split("\n")
    rules = [rule for rule in map(_rule, lines) if rule is not None][:IGNORE_RULES]
    return Ignores(folder, rules, above) if rules else above


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    pattern = _without_spaces(line[:-1] if line.endswith("\r") else line)
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern[: -1 if folders_only else None]
    if not pattern:
        return None
    parts = _segments(pattern[pattern.startswith("/") :])
    tests = [None if part == "**" and "/" in pattern else name_test(part) for part in parts]
    if any(test is None and part != "**" for test, part in zip(tests, parts)):
        return None  # git, too, lets such a pattern fit nothing
    return _Rule(tests[-1] or _always, Route(tests) if "/" in pattern else None, negated, folders_only)


def _without_spaces(line: str) -> str:
    """Spaces at the end do not count, unless a backslash stands before them."""
    kept = line.rstrip(" ")
    slashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if slashes % 2 and len(kept) < len(line) else kept


class Rules:
    """What is left out of a tree, for those who do not walk it. `read` gives a folder's .gitignore, "" if none."""

    def __init__(self, read: Callable[[str], str], *, everything: bool = False) -> None:
        self._read, self._everything = read, everything
        self._known: dict[str, Ignores | None] = {}

    def left_out(self, path: str, start: str = "") -> bool:
        """Whether a file is left out of a search that begins in a folder."""
        if self._everything:
            return False
        parts = path.split("/")
        first = start.count("/") + 1 if start else 0
        return any(self._leaves_out(parts[:depth], depth < len(parts)) for depth in range(first + 1, len(parts) + 1))

    def _leaves_out(self, parts: list[str], folder: bool) -> bool:
        if folder and parts[-1] in HEAVY:
            return True
        rules = self._of(parts[:-1])
        return rules is not None and rules.leaves_out("/".join(parts), parts[-1], folder)

    def _of(self, parts: list[str]) -> Ignores | None:
        folder = "/".join(parts)
        if folder not in self._known:
            above = self._of(parts[:-1]) if parts else None
            self._known[folder] = ignores(folder, self._read(folder), above)
        return self._known[folder]


# -- the walk -------------------------------------------------------------------------------------------------------


class Budget:
    """How much may be looked at. `spent` once there is more than was looked at; `over` when it is time to stop."""

    def __init__(
        self, entries: int = WALK_ENTRIES, seconds: float = WALK_SECONDS, most_bytes: int = GREP_BYTES
    ) -> None:
        self._entries, self._bytes, self._until = entries, most_bytes, time.monotonic() + seconds
        self.spent = self.over = False

    def take(self) -> bool:
        """Look at one more file or folder; False if there is nothing left for it."""
        self._entries -= 1
        if self._entries % 64 == 0:
            self._stop_if(time.monotonic() > self._until)
        self.spent = self.spent or self._entries < 0
        return self._entries >= 0 and not self.over

    def read(self, size: int) -> bool:
        """Look into so many bytes; False if there is nothing left for them."""
        self._bytes -= size
        self._stop_if(self._bytes < 0 or time.monotonic() > self._until)
        return not self.over

    def _stop_if(self, over: bool) -> None:
        self.over = self.over or over
        self.spent = self.spent or over


class _Frame(NamedTuple):
    """One folder of a walk: what is still to be looked at, and what was found out on the way."""

    entries: Iterator[str]
    prefix: str
    states: tuple[States, ...]
    rules: Ignores | None


_LINK = "\0"  # ends the name of a link in a listing, as "/" ends a folder's: they are sorted as the whole path is


class Walk:
    """The files beneath a folder in the order of their paths. Links are never followed."""

    def __init__(self, tree: Beneath, budget: Budget, *, everything: bool = False) -> None:
        self._tree, self._budget, self._everything = tree, budget, everything

    def files(self, start: str, glob: Glob) -> Iterator[tuple[str, bool]]:
        """The path of each file that fits, seen from the tree, and whether it is a link."""
        stack = [self._frame(f"{start}/" if start else "", glob.start, self._above(start))]
        while stack and not self._budget.over:
            frame = stack[-1]
            entry = next(frame.entries, None)
            if entry is None:
                stack.pop()
            elif entry.endswith("/"):
                inner = self._into(frame, entry[:-1], glob)
                if inner:
                    stack.append(inner)
            else:
                name = entry.rstrip(_LINK)
                if glob.ends(frame.states, name) and not self._left_out(frame, name, False):
                    yield frame.prefix + name, entry.endswith(_LINK)

    def _into(self, frame: _Frame, name: str, glob: Glob) -> _Frame | None:
        if not self._everything and (name in HEAVY or self._left_out(frame, name, True)):
            return None
        states = glob.step(frame.states, name)
        return self._frame(f"{frame.prefix}{name}/", states, frame.rules) if any(states) else None

    def _left_out(self, frame: _Frame, name: str, folder: bool) -> bool:
        return frame.rules is not None and frame.rules.leaves_out(frame.prefix + name, name, folder)

    def _frame(self, prefix: str, states: tuple[States, ...], above: Ignores | None) -> _Frame:
        entries = self._entries(prefix)
        rules = self._rules(prefix, above) if ".gitignore" in entries else above
        return _Frame(iter(entries), prefix, states, rules)

    def _entries(self, prefix: str) -> list[str]:
        try:
            fd = self._tree.folder(prefix or ".")
        except OSError as error:  # gone, or not ours to read; or deeper than a path can say: then there is more
            self._budget.spent = self._budget.spent or error.errno == errno.ENAMETOOLONG
            return []
        try:
            with os.scandir(fd) as found:
                return sorted(self._typed(found))
        finally:
            os.close(fd)

    def _typed(self, found: Iterator[os.DirEntry[str]]) -> Iterator[str]:
        for entry in found:
            if not self._budget.take():
                return
            if entry.is_dir(follow_symlinks=False):
                yield entry.name + "/"
            elif entry.is_symlink():
                yield entry.name + _LINK
            elif entry.is_file(follow_symlinks=False):
                yield entry.name

    def _above(self, start: str) -> Ignores | None:
        """The rules of the folders that lead to the first one."""
        rules: Ignores | None = None
        parts = start.split("/") if start else []
        for depth in range(len(parts)):
            rules = self._rules("".join(f"{part}/" for part in parts[:depth]), rules)
        return rules

    def _rules(self, prefix: str, above: Ignores | None) -> Ignores | None:
        if self._everything:
            return None
        text = ignore_text(self._tree, prefix)
        return ignores(prefix.rstrip("/"), text, above) if text else above


def ignore_text(tree: Beneath, prefix: str) -> str:
    """What a folder's .gitignore says, if there is one."""
    try:
        fd = tree.folder(f"{prefix}.gitignore", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(fd, IGNORE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:  # a folder of that name, a device
        return ""
    finally:
        os.close(fd)


# -- lines ----------------------------------------------------------------------------------------------------------


def text_of(data: bytes) -> str:
    """A line's bytes as text: UTF-8, or Latin-1 if nothing in it is UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode(codec(data)[0], "replace")


def codec(data: bytes) -> tuple[str, str]:
    """The encoding of bytes that are not UTF-16, and how to keep what does not belong to it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        foreign = text.encode("ascii", "surrogateescape") != text.encode("ascii", "replace")
    except UnicodeEncodeError:  # there is UTF-8 in it
        return "utf-8", "surrogateescape"
    return ("latin-1", "strict") if foreign else ("utf-8", "surrogateescape")


def is_binary(head: bytes) -> bool:
    """Whether a file that begins like this is no text."""
    return b"\0" in head[:BINARY_HEAD_BYTES]


def shown(line: bytes, start: int, end: int) -> str:
    """The text of a line that matched, without its end; of a long one what is around the match."""
    line = line.rstrip(b"\r\n")
    text = text_of(line)
    if len(text) <= GREP_LINE_CHARS:
        return text
    room = GREP_LINE_CHARS - min(GREP_LINE_CHARS, end - start)
    begin = len(text_of(line[:start])) - room // 2
    begin = max(0, min(begin, len(text) - GREP_LINE_CHARS))
    cut = text[begin : begin + GREP_LINE_CHARS]
    return ("…" if begin else "") + cut + ("…" if begin + GREP_LINE_CHARS < len(text) else "")


class Search:
    """A regular expression, by RE2: no pattern makes it slow. Lines are searched one by one."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        self._regex = _compiled(pattern, ignore_case)

    def lines(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
        """The number of each line that matches, from 1, and its text. The blocks are those of one file."""
        number, matched = 1, False  # matched: the line that goes on from the last piece did, and is not said twice
        for piece in _pieces(blocks):
            for line, text in self._matches(piece):
                if line or not matched:
                    yield number + line, text
                matched = True
            number += piece.count(b"\n")
            matched = matched and not piece.endswith(b"\n")

    def _matches(self, data: bytes) -> Iterator[tuple[int, str]]:
        if b"\r\n" in data:
            data = data.replace(b"\r\n", b"\n")  # so that $ stands before either end of a line
        at = line = 0
        while at < len(data):
            found = self._regex.search(data, at)
            if found is None or (found.start() == len(data) and data.endswith(b"\n")):
                return
            start = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.end())
            end = len(data) if end < 0 else end
            line += data.count(b"\n", at, start)
            yield line, shown(data[start:end], found.start() - start, found.end() - start)
            at, line = end + 1, line + 1


def _pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines; of one that is too long for the memory pieces that overlap."""
    rest = b""
    for block in blocks:
        rest += block
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        elif len(rest) > GREP_BUFFER_BYTES:
            yield rest
            rest = rest[-GREP_OVERLAP_BYTES:]
    if rest:
        yield rest


def _compiled(pattern: str, ignore_case: bool) -> Any:
    try:
        import re2  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise MissingExtra("files", "google-re2", "searching in files") from None
    check_pattern(pattern)
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_nl = GREP_MEMORY_BYTES, False, True
    options.case_sensitive, options.never_capture = not ignore_case, True
    try:
        re2.compile(pattern.encode(), options)  # by itself, so that its brackets are its own
        return re2.compile(b"(?m:" + pattern.encode() + b")", options)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise BackendError(f"the regular expression {pattern!r} is not one that RE2 knows: {said}", "invalid") from None


def check_pattern(pattern: str) -> None:
    """A regular expression that can be given to a program."""
    if len(pattern) > GREP_PATTERN_CHARS or "\0" in pattern:
        raise BackendError(f"a regular expression has at most {GREP_PATTERN_CHARS} characters, and no NUL", "invalid")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise BackendError("the regular expression has half characters in it", "invalid") from None


# -- ripgrep and grep -----------------------------------------------------------------------------------------------

SECRET = (".env", ".env.*", ".envrc")  # not read by any file tool


def ripgrep(
    pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
) -> list[str]:
    """The command that finds the same lines by ripgrep, in the workspace's folder. `Ripgrep` reads what it prints.

    The path is one that no link leads to. What ripgrep leaves out is never more than what is to be left out.
    """
    command = ["rg", "--no-config", "--json", "--no-messages", "--hidden", "--sort=path", "--crlf", "--encoding=none"]
    command += ["--no-mmap", "--no-follow", "--no-require-git", f"--max-count={GREP_MATCHES + 1}"]
    command += ["--no-ignore-parent", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"]
    command += [f"--iglob=!{name}" for name in SECRET]
    command += ["--no-ignore"] if everything else [f"--glob=!{name}/" for name in sorted(HEAVY)]
    command += ["--ignore-case"] if ignore_case else ["--case-sensitive"]
    if _is_plain(glob):
        command += [f"--type-add=wick:{glob}", "--type=wick"]
    return [*command, "-e", _translated(pattern, r"(?-u:\b)", r"(?-u:\B)"), "--", _from_here(path)]


_COLOR = "1;9;31;9;1"  # by which grep shows where in a line the match is
_BEGIN, _END = f"\x1b[{_COLOR}m".encode(), b"\x1b[m"


def gnu_grep(
    pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
) -> list[str]:
    """The command that finds the same lines by GNU grep, in the workspace's folder. `Grep` reads what it prints.

    It knows no ignore files: what is to be left out is left out by the reader.
    """
    colors = f"GREP_COLORS=ne:fn=:ln=:bn=:se=:mt={_COLOR}"  # nothing has one but what matched
    command = ["env", "LC_ALL=C.UTF-8", colors, "grep", "-rPanHsZ", "--color=always", "--devices=skip"]
    command += [f"--max-count={GREP_MATCHES + 1}", *(f"--exclude={name}" for name in SECRET)]
    heavy = HEAVY - {os.path.basename(path)}  # which was asked for
    command += [] if everything else [f"--exclude-dir={name}" for name in sorted(heavy)]
    command += ["-i"] if ignore_case else []
    if _is_plain(glob) and "{" not in glob:
        command += [f"--include={glob}"]
    word = "[0-9A-Za-z_]"
    edge = f"(?:(?<!{word})(?={word})|(?<={word})(?!{word}))"
    inner = f"(?:(?<!{word})(?!{word})|(?<={word})(?={word}))"
    return [*command, "-e", _translated(pattern, edge, inner, r"(?=\r?$)"), "--", _from_here(path)]


def _from_here(path: str) -> str:
    """A path that no program takes for an option."""
    return path if path == "." else f"./{path}"


def _is_plain(glob: str) -> bool:
    """Whether every program takes a pattern for the same."""
    return bool(glob) and all((char.isalnum() and char.isascii()) or char in "*._-{," or char == "}" for char in glob)


_OUTSIDE = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "v": r"\x0B",
}
_WITHIN = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r ", "v": r"\x0B"}


def _translated(pattern: str, edge: str, inner: str, end: str = "$") -> str:
    """A pattern of RE2 for programs whose \\w, \\d, \\s and \\b know all of Unicode, and which nest brackets."""
    check_pattern(pattern)
    outside = {**_OUTSIDE, "b": edge, "B": inner}
    done: list[str] = []
    at, within = 0, False
    while at < len(pattern):
        char, after = pattern[at], pattern[at + 1 : at + 2]
        taken = char
        if char == "\\" and after == "Q" and not within:
            quoted, _, _ = pattern[at + 2 :].partition("\\E")
            done.append("".join(f"\\{sign}" if sign in "\\.+*?()|[]{}^$" else sign for sign in quoted))
            at += len(quoted) + 4
            continue
        if char == "\\":
            taken = char + after
            done.append((_WITHIN if within else outside).get(after, taken))
        elif within and char == "[" and after == ":" and ":]" in pattern[at:]:
            taken = pattern[at : pattern.index(":]", at) + 2]
            done.append(taken)
        elif within:
            within = char != "]"
            done.append(f"\\{char}" if char in "[&~" else char)
        elif char == "[":
            within = True
            taken += "^" if after == "^" else ""
            taken += "]" if pattern[at + len(taken) :].startswith("]") else ""
            done.append(taken.replace("]", "\\]"))
        else:
            literal = char == "{" and not _is_count(pattern, at)
            done.append("\\{" if literal else end if char == "$" else char)
        at += len(taken)
    return "".join(done)


def _is_count(pattern: str, at: int) -> bool:
    low, _, high = pattern[at + 1 : (pattern.find("}", at) + 1 or at + 2) - 1].partition(",")
    return low.isdigit() and low.isascii() and (not high or (high.isdigit() and high.isascii()))


class _Reader:
    """Reads what a search prints, as it comes. `keep` says whether a file is one of those that are searched."""

    def __init__(self, keep: Callable[[str], bool] = bool) -> None:
        self._keep, self._kept = keep, ("", False)
        self._rest = b""
        self._matches: list[Match] = []
        self._cut = False

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; False when there is enough."""
        self._rest += data
        self._rest = self._rest[self._take(self._rest) :]
        if len(self._rest) > 2 * GREP_BUFFER_BYTES:  # a line without end, or nothing that a search prints
            self._rest, self._cut = b"", True
        return not self._cut

    def result(self, exit_code: int = 0, stderr: str = "") -> Matches:
        """What was found, in order. Files that could not be read are none; a search that complains is an error."""
        if not self._matches and not self._cut and (exit_code > 2 or (exit_code == 2 and stderr.strip())):
            said = stderr.strip()[:500] or f"exit code {exit_code}"
            code = "invalid" if exit_code == 2 else "failed"
            raise BackendError(f"the search failed; check the regular expression: {said}", code)
        matches = sorted(self._matches, key=lambda match: (match["file"], match["line"]))
        return {"matches": matches, "truncated": self._cut}

    def _take(self, data: bytes) -> int:
        """Read as much as is whole, and say how much that was."""
        raise NotImplementedError

    def _found(self, name: bytes, line: int, text: bytes, start: int, end: int) -> None:
        file = name.decode("utf-8", "surrogateescape")
        file = file[2:] if file.startswith("./") else file
        if file != self._kept[0]:
            self._kept = file, self._keep(file)
        if not self._kept[1] or self._cut:
            return
        if len(self._matches) == GREP_MATCHES:
            self._cut = True
        else:
            self._matches.append({"file": file, "line": line, "text": shown(text, start, end)})


class Ripgrep(_Reader):
    """Reads what ripgrep prints as JSON."""

    def _take(self, data: bytes) -> int:
        at = 0
        while not self._cut:
            end = data.find(b"\n", at)
            if end < 0:
                break
            self._line(data[at:end])
            at = end + 1
        return at

    def _line(self, line: bytes) -> None:
        if not line.startswith(b'{"type":"match"'):
            return
        try:
            said = json.loads(line)["data"]
            spot = said["submatches"][0] if said["submatches"] else {"start": 0, "end": 0}
            text, name = _bytes_of(said["lines"]), _bytes_of(said["path"])
            self._found(name, int(said["line_number"]), text, int(spot["start"]), int(spot["end"]))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            self._cut = True  # not what ripgrep prints


def _bytes_of(said: dict[str, str]) -> bytes:
    """ripgrep gives what is not UTF-8 as base64."""
    return said["text"].encode() if "text" in said else base64.b64decode(said["bytes"], validate=True)


class Grep(_Reader):
    """Reads what GNU grep prints: a name, NUL, a number, a colon, the line."""

    def _take(self, data: bytes) -> int:
        at = 0
        while not self._cut:
            name_end = data.find(b"\0", at)
            colon = data.find(b":", name_end + 1)
            end = data.find(b"\n", colon + 1)
            if min(name_end, colon, end) < 0:
                break
            number = data[name_end + 1 : colon]
            if not number.isdigit() or len(number) > 18:  # not what grep prints
                self._cut = True
                break
            line, start, stop = _uncolored(data[colon + 1 : end])
            self._found(data[at:name_end], int(number), line, start, stop)
            at = end + 1
        return at


def _uncolored(line: bytes) -> tuple[bytes, int, int]:
    """A line as it is in the file, and where the first match in it begins and ends."""
    before, *rest = line.split(_BEGIN)
    if not rest:
        return line, 0, 0
    matched = rest[0].find(_END)
    plain = b"".join(piece.replace(_END, b"", 1) for piece in rest)
    return before + plain, len(before), len(before) + max(matched, 0)
