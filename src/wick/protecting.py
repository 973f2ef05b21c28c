"""What file tools leave alone: what is trusted or run later is not changed, and secrets are not even read.

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations

import unicodedata
from typing import Iterable, List, Sequence, Tuple

from wick.errors import BackendError
from wick.patterns import SECRET, Test, name_test

# What is trusted or run later. File tools do not change it, at any depth.
PROTECTED = (".git/hooks", ".git/config", ".wick", ".claude", *SECRET)


class Protected:
    """Names that file tools leave alone, at any depth: a name, or several with slashes between, with `*` and `?`."""

    def __init__(self, patterns: Iterable[str] = PROTECTED) -> None:
        texts = tuple(patterns)
        self._rules = _name_rules(texts)
        self._hidden = _name_rules(text for text in texts if text in SECRET)
        self.longest = max(map(len, self._rules), default=1)  # how many names one of them has

    def covers(self, names: Sequence[str]) -> bool:
        """Whether the path of these names is protected, or something that leads to it."""
        return _covers(self._rules, names)

    def ends(self, names: Sequence[str]) -> bool:
        """Whether the last of these names is protected; cheaper, where those before it are known not to be."""
        return _ends(self._rules, names)

    def check_change(self, names: Sequence[str], path: str) -> None:
        if self.covers(names):
            said = f"{path} is protected: it is trusted or run later, so file tools do not change it"
            raise BackendError(said, "protected")

    def check_read(self, names: Sequence[str], path: str) -> None:
        if self.hides(names):
            said = f"{path} is protected: it may hold secrets, so file tools do not read it"
            raise BackendError(said, "protected")

    def hides(self, names: Sequence[str]) -> bool:
        """Whether what is there is not even read."""
        return _covers(self._hidden, names)


_Rules = List[Tuple[Test, ...]]


def _name_rules(patterns: Iterable[str]) -> _Rules:
    return [tuple(name_test(_folded(part)) or part.__eq__ for part in text.split("/") if part) for text in patterns]


def _covers(rules: _Rules, names: Sequence[str]) -> bool:
    return any(_ends(rules, names[: depth + 1]) for depth in range(len(names)))


def _ends(rules: _Rules, names: Sequence[str]) -> bool:
    last = _folded(names[-1])
    for rule in rules:
        if not rule[-1](last) or len(rule) > len(names):
            continue
        if all(test(_folded(name)) for test, name in zip(rule, names[len(names) - len(rule) :])):
            return True
    return False


def _folded(name: str) -> str:
    """A name as file systems see it that do not tell upper from lower case, or pass over invisible characters."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFD", name).casefold()
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")
