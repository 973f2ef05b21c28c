"""Protected paths around a command: which there are before it, and which appeared while it ran.

Git's hooks and config, wick's own folder, dot-env files: they are trusted or hold secrets, so commands do not write
them. Mounts keep what is there as it is; what is not there cannot be mounted over, so it is looked for afterwards and
moved aside, to a name that nobody trusts.

    before = scan(tree, patterns)
    covers(tree, before, firm)               what to mount over them
    …                                        the command runs
    move_aside(tree, appeared(tree, before, scan(tree, patterns)))

The search is cheap, as every command has two: it goes through the top of the workspace, and two folders deep as far
as a budget reaches. No link is followed, and nothing is opened but beneath `tree`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from typing import Literal

from wick import caps
from wick.beneath import Beneath, kind
from wick.patterns import HEAVY, SECRET

DEEP = 2  # folders below the workspace
COPY_BYTES = 64_000  # the largest file that is copied, or looked into
COPIES = 40

_EXAMPLES = (".example", ".sample", ".template", ".dist")  # dot-env files that nothing loads, for people to copy


@dataclass(frozen=True, slots=True)
class Entry:
    """A protected path that is there, or a folder that leads to one (`.git`)."""

    path: str  # relative to the workspace
    type: str  # dir, file, link, other
    identity: tuple[int, int]  # the same for as long as it is the same file
    secret: bool = False  # not even to be read
    leads: bool = False  # only leads to something protected
    target: str = ""  # of a link
    linked: bool = False  # protected only because a link leads to it


@dataclass(frozen=True, slots=True)
class Cover:
    """What is mounted over a path: itself, read-only or so that it stays; something empty; a copy; or nothing."""

    path: str
    how: Literal["show", "keep", "leave", "hide", "copy"]
    folder: bool = False
    content: bytes = b""


Entries = Mapping[str, Entry]


# -- before ---------------------------------------------------------------------------------------------------------


def scan(tree: Beneath, patterns: Sequence[str]) -> dict[str, Entry]:
    """The protected paths of a workspace, as far as a short look finds them."""
    found: dict[str, Entry] = {}
    rules = _rules(tuple(patterns))
    for folder, name in _names(tree):
        for rule in rules.beginning_with(name):
            for entry in _look(tree, f"{folder}{name}", rule.rest, rule.secret):
                if not (entry.linked and entry.path in found):  # protected by itself is more
                    found[entry.path] = entry
    return found


class _Rule:
    """A pattern: its first name, which may have wildcards, and the names after it."""

    def __init__(self, pattern: str) -> None:
        self.head, _, self.rest = pattern.partition("/")
        self.secret = pattern in SECRET
        self.begins = re.compile(translate(self.head), re.IGNORECASE).match


class _Rules:
    """Patterns, and one test for all of them: most names begin none."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [_Rule(pattern) for pattern in patterns]
        heads = "|".join(translate(rule.head) for rule in self._rules) or "(?!)"
        self._any = re.compile(heads, re.IGNORECASE).match

    def beginning_with(self, name: str) -> list[_Rule]:
        return [rule for rule in self._rules if rule.begins(name)] if self._any(name) else []


_rules = cache(_Rules)


def _names(tree: Beneath) -> Iterator[tuple[str, str]]:
    """Folders (with a slash at the end) and the names in them: all of the top, and below it what the budget allows."""
    folders, budget = [""], caps.PROTECTED_NAMES
    for folder in folders:  # grows
        with suppress(OSError), _listing(tree, folder or ".") as entries:
            for entry in entries:
                budget -= folder != ""
                if budget < 0:
                    return
                yield folder, entry.name
                if folder.count("/") < DEEP and entry.name not in HEAVY and entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{entry.name}/")


@contextmanager
def _listing(tree: Beneath, folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    fd = tree.folder(folder)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


def _look(tree: Beneath, path: str, rest: str, secret: bool) -> Iterator[Entry]:
    """What a rule is about, from the first name of it on. A `.git` that is no folder stands for what it leads to."""
    try:
        with tree.parent(path) as (folder, _, name):
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    what, identity = kind(info.st_mode), (info.st_dev, info.st_ino)
    if rest and what == "dir":
        first, _, more = rest.partition("/")
        yield Entry(path, what, identity, leads=True)
        yield from _look(tree, f"{path}/{first}", more, secret)
        return
    if secret and (what == "dir" or name.endswith(_EXAMPLES)):  # a folder `.env` is a virtual environment
        return
    if what == "link":
        yield Entry(path, what, identity, secret, target=_link(tree, path))
        yield from _linked(tree, path, secret)
    else:
        yield Entry(path, what, identity, secret)


def _link(tree: Beneath, path: str) -> str:
    with suppress(OSError), tree.parent(path) as (folder, _, name):
        return os.readlink(name, dir_fd=folder)
    return ""


def _linked(tree: Beneath, path: str, secret: bool) -> Iterator[Entry]:
    """What a protected link leads to, if that is in the workspace too."""
    with suppress(OSError), tree.opened(path, getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)) as (fd, names):
        info = os.fstat(fd)
        if names:
            yield Entry("/".join(names), kind(info.st_mode), (info.st_dev, info.st_ino), secret, linked=True)


# -- during ---------------------------------------------------------------------------------------------------------


def covers(tree: Beneath, entries: Entries, firm: Collection[tuple[int, int]]) -> list[Cover]:
    """What to mount over the protected paths.

    A path is looked up on the host when it is mounted. A command that is at work in the same workspace could put a
    link into it at the right moment, and make it lead out. So only what is `firm` is shown: it was there before any
    command began that is at work now, and the mounts of each of those keep it, and the `.git` that leads to it, where
    they are. Of the rest, a folder is hidden and a file is copied.
    """
    found: list[Cover] = []
    gone: set[str] = set()  # folders that are hidden, and all that is in them with them
    for entry in sorted(entries.values(), key=lambda entry: entry.path.count("/"))[: caps.PROTECTED_MOUNTS]:
        if entry.type == "link" or any(entry.path.startswith(folder) for folder in gone):
            continue
        cover = _cover(tree, entry, _is_firm(entry, entries, firm))
        if cover.how == "copy" and sum(one.how == "copy" for one in found) == COPIES:
            cover = Cover(entry.path, "hide")
        if cover.how == "hide" and cover.folder:
            gone.add(f"{entry.path}/")
        found.append(cover)
    return found


def _is_firm(entry: Entry, entries: Entries, firm: Collection[tuple[int, int]]) -> bool:
    above, _, _ = entry.path.rpartition("/")
    if not above:
        return entry.identity in firm
    return entry.identity in firm and above in entries and _is_firm(entries[above], entries, firm)


def _cover(tree: Beneath, entry: Entry, firm: bool) -> Cover:
    folder = entry.type == "dir"
    if entry.leads:
        return Cover(entry.path, "keep" if firm else "leave", folder)
    if firm and not entry.secret:
        return Cover(entry.path, "show", folder)
    if folder or entry.secret or entry.type == "other":
        return Cover(entry.path, "hide", folder)
    try:
        return Cover(entry.path, "copy", content=_content(tree, entry.path))
    except (OSError, ValueError):
        return Cover(entry.path, "hide")


def _content(tree: Beneath, path: str) -> bytes:
    with open(tree.folder(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        data = file.read(COPY_BYTES + 1)
    if len(data) > COPY_BYTES:
        raise ValueError("too large")
    return data


# -- after ----------------------------------------------------------------------------------------------------------


def appeared(tree: Beneath, before: Entries, after: Entries) -> list[str]:
    """The protected paths that are new, unless plainly harmless. What came along with its folder is not new."""
    known = {entry.identity for entry in before.values() if entry.type != "link"}
    new = [after[path] for path in sorted(after) if _changed(path, before, after) and after[path].identity not in known]
    return [entry.path for entry in new if not (entry.leads or entry.linked or _harmless(tree, entry))]


def _changed(path: str, before: Entries, after: Entries) -> bool:
    """Whether a path is something else than it was, or only is on one side."""
    return path not in before or path not in after or before[path].identity != after[path].identity


def move_aside(tree: Beneath, paths: Sequence[str]) -> list[str]:
    """Give each path the name `….moved-1` (or -2, …), which nobody trusts; gives those that were moved."""
    return [path for path in paths if _moved(tree, path)]


def put_back(tree: Beneath, before: Entries, after: Entries) -> None:
    """Make the links again that are gone: nothing can be mounted over a link, so a command can remove one."""
    for path, entry in before.items():
        if entry.type == "link" and _changed(path, before, after):
            with suppress(OSError), tree.parent(path) as (folder, _, name):
                os.symlink(entry.target, name, dir_fd=folder)


def _moved(tree: Beneath, path: str) -> bool:
    try:
        with tree.parent(path) as (folder, _, name), _writable(folder):
            number = 1
            while _exists(folder, f"{name}.moved-{number}"):
                number += 1
            os.rename(name, f"{name}.moved-{number}", src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        return False
    return True


@contextmanager
def _writable(folder: int) -> Iterator[None]:
    """A command may have made a folder read-only; who it belongs to can change that, and back."""
    mode = os.fstat(folder).st_mode
    if mode & 0o300 == 0o300:
        yield
        return
    os.chmod(".", (mode | 0o300) & 0o7777, dir_fd=folder)
    try:
        yield
    finally:
        os.chmod(".", mode & 0o7777, dir_fd=folder)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _harmless(tree: Beneath, entry: Entry) -> bool:
    """Whether something new is only what `git init` and `git clone` make."""
    with suppress(OSError, ValueError):
        if entry.path.endswith(".git/hooks") and entry.type == "dir":
            with _listing(tree, entry.path) as entries:
                return all(hook.name.endswith(".sample") and hook.is_file(follow_symlinks=False) for hook in entries)
        if entry.path.endswith(".git/config") and entry.type == "file":
            return _plain_config(_content(tree, entry.path).decode())
    return False


# Git runs programs that its config names (fsmonitor, sshCommand, filters, aliases, …). These settings name none.
_SETTINGS = {
    "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks".split(),
    "remote": "url fetch".split(),
    "branch": "remote merge".split(),
    "user": "name email".split(),
}
_SECTION = re.compile(r'\[(core|remote|branch|user)(?: "[\w./-]+")?\]')
_SETTING = re.compile(r"\t(\w+) = ([^\\\"]*)")
_URL = re.compile(r"(?:https?|git|ssh)://[^-].*|\w[\w.-]*@\w[\w.-]*:[^-].*|/.*")


def _plain_config(text: str) -> bool:
    """Whether a Git config has only settings that name no program."""
    section = ""
    for line in text.split("\n"):
        if header := _SECTION.fullmatch(line):
            section = header[1]
        elif line and not _plain_setting(section, line):
            return False
    return True


def _plain_setting(section: str, line: str) -> bool:
    setting = _SETTING.fullmatch(line)
    if setting is None or setting[1] not in _SETTINGS.get(section, ()):
        return False
    return setting[1] != "url" or _URL.fullmatch(setting[2]) is not None
