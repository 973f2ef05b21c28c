"""Glob patterns for names and paths, and the rules of ignore files.

    Glob("src/**/*.{py,md}").matches("src/a/b.py")  `**`, `*`, `?`, `[a-z]`, `{a,b}`; without a slash: at any depth
    parse_ignore_file("", text)                     the rules of a .gitignore

Patterns are not translated to `re`: matching here takes time proportional to pattern length times name length.
"""

from __future__ import annotations

from typing import Callable, FrozenSet, Iterable, NamedTuple, Sequence, Union

from wick.constants import GLOB_ALTERNATIVES, GLOB_CHARS, IGNORE_RULES
from wick.errors import BackendError

# Large folders of little interest, which searches skip by default.
HEAVY = frozenset(
    ".git .hg .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox .nox .results".split()
)
SECRET = (".env", ".env.*", ".envrc")  # not read by any file tool

NameTest = Callable[[str], bool]


# -- names ----------------------------------------------------------------------------------------------------------


class _Set(NamedTuple):
    """`[a-z]`: the characters between pairs of characters, or all others."""

    pairs: tuple[tuple[str, str], ...]
    negated: bool

    def contains(self, char: str) -> bool:
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


def compile_name(pattern: str) -> NameTest | None:
    """Compile a pattern for one name (`*`, `?`, `[a-z]`, backslashes); return None if a bracket is not closed."""
    if not any(sign in pattern for sign in "*?[\\"):
        return pattern.__eq__
    tokens = _tokenize(pattern)
    if tokens is None:
        return None
    if tokens == [_STAR]:
        return lambda name: True
    rest = [token for token in tokens[1:] if isinstance(token, str) and token]
    if tokens[0] is _STAR and len(rest) == len(tokens) - 1:
        end = "".join(rest)
        return lambda name: name.endswith(end)
    return lambda name: _match_tokens(tokens, name)


def _tokenize(pattern: str) -> list[_Token] | None:
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
            found, at = _parse_set(pattern, at + 1)
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


def _parse_set(pattern: str, at: int) -> tuple[_Set | None, int]:
    """Parse a bracket expression; return it with the position after the closing bracket."""
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
        low, at = _parse_char(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("]", ""):
            high, at = _parse_char(pattern, at + 1)
        if not low or not high:
            return None, at
        pairs.append((low, high))
    return _Set(tuple(pairs), negated), at + 1


def _parse_char(pattern: str, at: int) -> tuple[str, int]:
    at += pattern[at : at + 1] == "\\"
    return pattern[at : at + 1], at + 1


def _split_segments(pattern: str) -> list[str]:
    """Split a path pattern at its slashes, except those in brackets."""
    segments, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "/":
            segments.append(pattern[start:at])
            start = at + 1
        if pattern[at] == "[":
            found, end = _parse_set(pattern, at + 1)
            at = at if found is None else end - 1
        at += 2 if pattern[at] == "\\" else 1
    return [*segments, pattern[start:]]


def _match_tokens(tokens: list[_Token], name: str) -> bool:
    """Return True if tokens match a name. Only the last `*` backtracks, which bounds the time to tokens × name."""
    at = here = mark = 0
    star = -1
    while here < len(name):
        token = tokens[at] if at < len(tokens) else "/"  # which no name has
        if token is _STAR:
            star, mark, at = at, here, at + 1
        elif token in (name[here], _ANY) or (isinstance(token, _Set) and token.contains(name[here])):
            at, here = at + 1, here + 1
        elif star >= 0:
            mark, at, here = mark + 1, star + 1, mark + 1
        else:
            return False
    return all(token is _STAR for token in tokens[at:])


# -- paths ----------------------------------------------------------------------------------------------------------

States = FrozenSet[int]  # positions in a pattern after the names matched so far


class PathPattern:
    """A path pattern, matched name by name as an automaton. `**` matches any number of folders."""

    def __init__(self, tests: Sequence[NameTest | None]) -> None:
        again = [*tests[1:], _match_none]
        self._tests = tuple(test for test, after in zip(tests, again) if test or after)  # None is `**`, and two are one
        self.start = self._expand_skips({0})

    def advance(self, states: States, name: str) -> States:
        """Return the states after a folder's name."""
        reached = set()
        for at in states:
            test = self._tests[at] if at < len(self._tests) else _match_none
            if test is None:
                reached.add(at)
            elif test(name):
                reached.add(at + 1)
        return self._expand_skips(reached)

    def matches_last(self, states: States, name: str) -> bool:
        """Return True if the path matches with this last name."""
        last = len(self._tests) - 1
        if last not in states:
            return False
        test = self._tests[last]
        return test is None or test(name)

    def matches(self, parts: Sequence[str]) -> bool:
        states = self.start
        for name in parts[:-1]:
            states = self.advance(states, name)
            if not states:
                return False
        return self.matches_last(states, parts[-1])

    def _expand_skips(self, states: Iterable[int]) -> States:
        """Add the states after `**`, which may match no folder, except at the end of the pattern."""
        found = set()
        for at in states:
            found.add(at)
            while at < len(self._tests) - 1 and self._tests[at] is None:
                at += 1
                found.add(at)
        return frozenset(found)


def _match_none(name: str) -> bool:
    return False


class Glob:
    """A glob over paths: `**`, `*`, `?`, `[a-z]`, `{a,b}`. Without a slash it matches names at any depth."""

    def __init__(self, pattern: str) -> None:
        if not pattern or "\0" in pattern or len(pattern) > GLOB_CHARS:
            raise BackendError(f"a pattern has 1 to {GLOB_CHARS} characters, and no NUL among them", "invalid")
        self._routes: list[PathPattern] = []
        for text in _expand_braces(pattern):
            parts = [part for part in _split_segments(text) if part not in ("", ".")]
            if ".." in parts:
                raise BackendError(f"the pattern {text!r} has .. in it; give the folder as the path instead", "invalid")
            if not parts:
                raise BackendError(f"the pattern {text!r} names no file; ** is all files", "invalid")
            parts += ["**"] if text.endswith("/") else []
            tests: list[NameTest | None] = [] if "/" in text else [None]
            for part in parts:
                literal = part.replace("\\", "\\\\").replace("[", "\\[")  # an unclosed bracket is a literal bracket
                test = compile_name(part) or compile_name(literal) or part.__eq__
                tests.append(None if part == "**" else test)
            self._routes.append(PathPattern(tests))
        self.start: tuple[States, ...] = tuple(route.start for route in self._routes)

    def advance(self, states: tuple[States, ...], name: str) -> tuple[States, ...]:
        return tuple([route.advance(state, name) for route, state in zip(self._routes, states)])

    def matches_last(self, states: tuple[States, ...], name: str) -> bool:
        return any(route.matches_last(state, name) for route, state in zip(self._routes, states))

    def matches(self, path: str) -> bool:
        """Return True if a path matches, relative to the folder of the pattern."""
        parts = path.split("/")
        return any(route.matches(parts) for route in self._routes)


def _expand_braces(pattern: str) -> list[str]:
    """Return all patterns that a pattern with braces expands to."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        found = _split_braces(text)
        if found is None:
            done.append(text)
        else:
            before, choices, after = found
            todo += [before + choice + after for choice in choices]
        if len(todo) + len(done) > GLOB_ALTERNATIVES:
            raise BackendError(f"the braces of a pattern expand to at most {GLOB_ALTERNATIVES} patterns", "invalid")
    return done


def _split_braces(text: str) -> tuple[str, list[str], str] | None:
    """Split a text at its first closed braces: before, alternatives, after."""
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


# -- ignore files ---------------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    test: NameTest  # of the last name
    route: PathPattern | None  # of the path from the ignore file's folder, if it matters
    negated: bool
    folders_only: bool

    def matches_path(self, path: str) -> bool:
        return self.route is None or self.route.matches(path.split("/"))


class IgnoreRules:
    """The rules of an ignore file, with those of parent folders as fallback. The last matching rule decides."""

    def __init__(self, folder: str, rules: Sequence[_Rule], above: IgnoreRules | None = None) -> None:
        self._folder = f"{folder}/" if folder else ""
        self._rules = tuple(reversed(rules))
        self._above = above

    def is_ignored(self, path: str, name: str, folder: bool) -> bool:
        """Return True if the rules ignore a path; its parent folders are not ignored."""
        level: IgnoreRules | None = self
        while level is not None:
            for rule in level._rules:
                if (
                    rule.test(name)
                    and (folder or not rule.folders_only)
                    and rule.matches_path(path[len(level._folder) :])
                ):
                    return not rule.negated
            level = level._above
        return False


def parse_ignore_file(folder: str, text: str, above: IgnoreRules | None = None) -> IgnoreRules | None:
    """Parse an ignore file. `folder` is its folder, relative to the tree."""
    rules: list[_Rule] = []
    for line in text.lstrip("\ufeff").split("\n"):
        if len(rules) == IGNORE_RULES:
            break
        if line.startswith("#"):
            continue
        line = line[:-1] if line.endswith("\r") else line
        pattern = line.rstrip(" ")
        backslashes = len(pattern) - len(pattern.rstrip("\\"))
        if backslashes % 2 and len(pattern) < len(line):  # a backslash keeps the space after it
            pattern += " "
        negated = pattern.startswith("!")
        pattern = pattern[negated:]
        folders_only = pattern.endswith("/")
        pattern = pattern[: -1 if folders_only else None]
        if not pattern:
            continue
        parts = _split_segments(pattern[pattern.startswith("/") :])
        tests = [None if part == "**" and "/" in pattern else compile_name(part) for part in parts]
        if any(test is None and part != "**" for test, part in zip(tests, parts)):
            continue  # in git, too, such a pattern matches nothing
        route = PathPattern(tests) if "/" in pattern else None
        rules.append(_Rule(tests[-1] or (lambda name: True), route, negated, folders_only))
    return IgnoreRules(folder, rules, above) if rules else above
