"""Search for paths that the git configs of a workspace name: hook folders, included configs, programs.

    find_trusted_paths(tree, ".")      {".githooks", "tools/clean.sh"}

Git runs them, so they are as trusted as the config itself.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from contextlib import suppress
from typing import Iterator

from wick.workspace.protected import GIT, fold_name
from wick.workspace.rooted_folder import RootedFolder

CONFIG_BYTES = 64_000  # a larger config is read up to here
INCLUDES = 40  # configs that are read for one repository
_DATA = frozenset("user remote branch submodule color advice init extensions".split())  # sections without programs
_HEADER = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=(.*)", re.DOTALL)
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"?|([#;].*)|(\\.)|([^"\\#;]+)', re.DOTALL)
_WORD = re.compile(r"[^\s'\"!;&|()<>$`]+")


def find_trusted_paths(tree: RootedFolder, folder: str) -> set[str]:
    """Return the paths that the config of the repository in a folder names, as seen from the workspace."""
    found: set[str] = set()
    todo = list(_list_configs(tree, folder))
    for config in todo:
        for section, key, value in parse_settings(_read_head(tree, config)):
            if section in ("include", "includeif") and key == "path":
                path = _to_workspace_path(tree, posixpath.dirname(config), value)
                if path and path not in todo and len(todo) < INCLUDES:
                    todo.append(path)
                elif not path and value.startswith(("~", "/")) and len(todo) < INCLUDES:
                    todo.append(os.path.expanduser(value))
            elif (section, key) == ("core", "hookspath"):
                path = _to_workspace_path(tree, folder, value)
            else:
                words = _WORD.findall(value) if section not in _DATA else ()
                places = (_to_workspace_path(tree, folder, word) for word in words)
                found |= {place for place in places if place and _is_file(tree, place)}
                continue
            found |= {path} if path else set()
    return {path for path in found if GIT not in map(fold_name, path.split("/"))}


def parse_settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the key and the value of each setting of a git config; names in lower case."""
    section = ""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        header = _HEADER.match(line)
        if header:
            section, line = header[1].lower().partition(".")[0], line[header.end() :]
        setting = _SETTING.match(line)
        if setting:
            yield section, setting[1].lower(), _unquote(setting[2].strip())


def _unquote(text: str) -> str:
    pieces = []
    for quoted, comment, escaped, plain in _PIECE.findall(text):
        if comment:
            break
        pieces.append(re.sub(r"\\(.)", r"\1", quoted) or escaped[1:] or plain)
    return "".join(pieces).strip()


def _list_configs(tree: RootedFolder, folder: str) -> Iterator[str]:
    """Yield the configs of the repository in a folder. Its git directory may be elsewhere, and share another's."""
    directory = posixpath.join(folder, GIT)
    link = _read_head(tree, directory)
    if link.startswith("gitdir: "):
        directory = posixpath.join(folder, link[len("gitdir: ") :].rstrip("\r\n"))
    common = _read_head(tree, posixpath.join(directory, "commondir")).strip()
    for place in (directory, posixpath.join(directory, common)) if common else (directory,):
        yield posixpath.join(place, "config")
        yield posixpath.join(place, "config.worktree")


def _read_head(tree: RootedFolder, path: str) -> str:
    """Read the beginning of a regular file; empty for everything else. The user's repository may lie outside."""
    inside = tree.relative_path(posixpath.normpath(path))
    flags = os.O_RDONLY | os.O_NONBLOCK
    with suppress(OSError, ValueError):
        if inside is None or inside.startswith("../"):
            fd = os.open(path if inside is None else posixpath.join(tree.path, inside), flags | os.O_CLOEXEC)
            try:
                return _read_regular(fd)
            finally:
                os.close(fd)
        with tree.open_path(inside, flags) as (fd, _):
            return _read_regular(fd)
    return ""


def _read_regular(fd: int) -> str:
    return os.read(fd, CONFIG_BYTES).decode("utf-8", "surrogateescape") if stat.S_ISREG(os.fstat(fd).st_mode) else ""


def _to_workspace_path(tree: RootedFolder, base: str, value: str) -> str:
    """Return a path as seen from the workspace; empty if it is the workspace itself, or outside of it."""
    path = os.path.expanduser(value) if value.startswith("~") else posixpath.join(base, value)
    inside = tree.relative_path(posixpath.normpath(path)) if value else None
    return "" if inside is None or inside == "." or inside.split("/")[0] == ".." else inside


def _is_file(tree: RootedFolder, path: str) -> bool:
    with suppress(OSError, ValueError), tree.open_path(path, os.O_RDONLY | os.O_NONBLOCK) as (fd, _):
        return stat.S_ISREG(os.fstat(fd).st_mode)
    return False
