"""Protected paths: files that programs outside of the sandbox run or trust on sight, and files that hold secrets.

File tools do not change the first, and do not read the second either. Files that a person runs by name (a Makefile, a
script, a program in node_modules) are not protected: they are the agent's work.
"""

from __future__ import annotations

import sys
import unicodedata
from typing import Iterable, List, Sequence, Tuple

from wick.errors import BackendError
from wick.workspace.globs import SECRET, NameTest, compile_name

GIT = ".git"  # for commands, only its parts that run programs: see wick.workspace.auto_executed
GIT_HEAD = "HEAD"  # every git directory has one, and a bare repository lies under any name; in this case only

# Names that are protected at any depth, by the program that runs or trusts them on sight.
ON_SIGHT = {
    "version control": (GIT, GIT_HEAD, ".hg/hgrc", ".jj/repo/config.toml"),
    "hooks of version control": (
        ".husky .pre-commit-config.yaml .pre-commit-config.yml lefthook.yml .lefthook.yml lefthook.yaml .lefthook.yaml "
        "lefthook-local.yml .overcommit.yml"
    ).split(),
    "agents": ".wick .claude .cursor .gemini .codex .windsurf .mcp.json".split(),
    "editors": (
        ".vscode .idea .fleet .zed .devcontainer .devcontainer.json *.code-workspace .exrc .vimrc .gvimrc .nvimrc "
        ".nvim.lua .lvimrc .dir-locals.el .dir-locals-2.el .emacs .emacs.d"
    ).split(),
    "shells": (
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin "
        ".zlogout .kshrc .cshrc .tcshrc .login .inputrc .mise.toml mise.toml .mise .ssh"
    ).split(),
    "package managers": (
        ".npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .pnpmfile.mjs bunfig.toml .cargo .mvn "
        ".bundle/plugin"
    ).split(),
    "interpreters and debuggers": ".rprofile .irbrc .pryrc .gdbinit .lldbinit".split(),
    "secrets": SECRET,
}
PROTECTED = tuple(name for names in ON_SIGHT.values() for name in names)


class ProtectedNames:
    """Patterns of names that file tools do not change, at any depth: names joined by slashes, with `*` and `?`.

    A pattern with a leading slash matches only from the root of the workspace.
    """

    def __init__(self, patterns: Iterable[str] = PROTECTED) -> None:
        texts = tuple(patterns)
        self._head = GIT_HEAD in texts and sys.platform != "darwin"  # on case-sensitive file systems
        self._rules = _compile_rules(text for text in texts if not (self._head and text == GIT_HEAD))
        lasts = [text.rstrip("/").rpartition("/")[2] for text in texts if text.strip("/")]
        wild = [last for last in lasts if any(sign in last for sign in "*?[\\")]
        self._plain_lasts = frozenset(fold_name(last) for last in lasts)
        self._wild_lasts = [test for test in (compile_name(fold_name(last)) for last in wild) if test]
        self._hidden = _compile_rules(text for text in texts if text in SECRET)
        self.longest = max((len(tests) for _, tests in self._rules), default=1)  # names in the longest rule

    def is_protected(self, names: Sequence[str]) -> bool:
        """Return True if a path or one of its parent folders is protected."""
        return any(self.matches_last(names[: depth + 1]) for depth in range(len(names)))

    def may_match_last(self, name: str) -> bool:
        """Return True if a protected path may end in a name."""
        folded = fold_name(name)
        return folded in self._plain_lasts or any(test(folded) for test in self._wild_lasts)

    def matches_last(self, names: Sequence[str]) -> bool:
        """Return True if the last name of a path is protected. The parent folders are not checked."""
        if not names or not self.may_match_last(names[-1]):
            return False
        return (self._head and names[-1] == GIT_HEAD) or _matches_last(self._rules, names)

    def check_change(self, names: Sequence[str], path: str) -> None:
        if self.is_protected(names):
            message = f"{path} is protected: it is trusted or run later, so file tools do not change it"
            raise BackendError(message, "protected")

    def check_read(self, names: Sequence[str], path: str) -> None:
        if self.is_secret(names):
            message = f"{path} is protected: it may hold secrets, so file tools do not read it"
            raise BackendError(message, "protected")

    def is_secret(self, names: Sequence[str]) -> bool:
        """Return True if a path may hold secrets, so that file tools do not read it."""
        return any(_matches_last(self._hidden, names[: depth + 1]) for depth in range(len(names)))


_Rules = List[Tuple[bool, Tuple[NameTest, ...]]]  # True if anchored at the root, and the tests of the names


def _compile_rules(patterns: Iterable[str]) -> _Rules:
    return [
        (text.startswith("/"), tuple(compile_name(fold_name(part)) or part.__eq__ for part in text.split("/") if part))
        for text in patterns
    ]


def _matches_last(rules: _Rules, names: Sequence[str]) -> bool:
    last = fold_name(names[-1])
    for fixed, rule in rules:
        if not rule[-1](last) or len(rule) > len(names) or (fixed and len(rule) < len(names)):
            continue
        if all(test(fold_name(name)) for test, name in zip(rule, names[len(names) - len(rule) :])):
            return True
    return False


def fold_name(name: str) -> str:
    """Return the form of a name on file systems that ignore case or invisible characters."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFD", name).casefold()
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")
