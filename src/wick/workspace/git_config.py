"""The readers of git's config: one finds the paths that it names, the other keeps the settings that name none.

    find_trusted_paths(tree, ".")      {".githooks", "tools/clean.sh"}
    filter_git_config(text)            the lines that name no program

Git runs the hook folders, included configs and programs that a config names, so they are as trusted as the config
itself. The first reader takes a setting in every form that git reads, the second only in the plain form that git
writes.
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

CONFIG_BYTES = 64_000  # a larger config is read up to here, and is not harmless
INCLUDES = 40  # configs that are read for one repository
_DATA = frozenset("user remote branch submodule color advice init extensions".split())  # sections without programs
_HEADER = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=(.*)", re.DOTALL)
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"?|([#;].*)|(\\.)|([^"\\#;]+)', re.DOTALL)
_WORD = re.compile(r"[^\s'\"!;&|()<>$`]+")


def find_trusted_paths(tree: RootedFolder, folder: str) -> set[str]:
    """Return the paths that the config of the repository in a folder names, as seen from the workspace."""
    found: set[str] = set()
    directory = posixpath.join(folder, GIT)
    link = _read_head(tree, directory)
    if link.startswith("gitdir: "):  # the git directory is elsewhere
        directory = posixpath.join(folder, link[len("gitdir: ") :].rstrip("\r\n"))
    common = _read_head(tree, posixpath.join(directory, "commondir")).strip()  # it may share another's config
    places = (directory, posixpath.join(directory, common)) if common else (directory,)
    todo = [posixpath.join(place, name) for place in places for name in ("config", "config.worktree")]
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
                named = (_to_workspace_path(tree, folder, word) for word in words)
                found |= {path for path in named if path and tree.is_file(path)}
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
        if setting is None:
            continue
        value = ""
        for quoted, comment, escaped, plain in _PIECE.findall(setting[2].strip()):
            if comment:
                break
            value += re.sub(r"\\(.)", r"\1", quoted) or escaped[1:] or plain
        yield section, setting[1].lower(), value.strip()


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


# -- harmless settings ----------------------------------------------------------------------------------------------

# Git runs programs that its config names (fsmonitor, sshCommand, filters, aliases, …). These settings name none.
_HARMLESS = {
    "core": (
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks "
        "sparsecheckout sparsecheckoutcone autocrlf eol safecrlf quotepath longpaths abbrev compression "
        "untrackedcache preloadindex multipackindex sharedrepository commitgraph bigfilethreshold"
    ),
    "remote": "url pushurl fetch push tagopt prune mirror",
    "branch": "remote merge rebase pushremote description autosetupmerge autosetuprebase",
    "user": "name email signingkey useconfigonly",
    "submodule": "url active branch path ignore shallow recurse fetchrecursesubmodules",
    "extensions": "worktreeconfig objectformat noop refstorage",
    "init": "defaultbranch",
    "pull": "rebase ff",
    "push": "default autosetupremote followtags",
    "fetch": "prune prunetags",
    "merge": "conflictstyle ff",
    "diff": "algorithm renames mnemonicprefix noprefix",
    "color": "ui",
    "gc": "auto autodetach",
    "index": "version sparse",
    "rerere": "enabled autoupdate",
    "advice": "detachedhead",
    "commit": "gpgsign",
    "lfs": "repositoryformatversion",
}
_HARMLESS_NAMES = {section: frozenset(names.split()) for section, names in _HARMLESS.items()}
_PLAIN_HEADER = re.compile(r'\[({})(?: "[^"\\\x00-\x1f\x7f]*")?\]'.format("|".join(_HARMLESS)), re.IGNORECASE)
_PLAIN_SETTING = re.compile(r'[ \t]*([A-Za-z][A-Za-z0-9-]*)(?:[ \t]*=[ \t]*([^\\"\x00-\x08\x0a-\x1f\x7f]*))?')
_COMMENT = re.compile(r"[ \t]*[#;][^\x00-\x08\x0a-\x1f\x7f]*")
_URL = re.compile(r"(?:https?|git|ssh|file)://[^-].*|[\w][\w.-]*@\w[\w.-]*:[^-].*|\.{0,2}/.*")


def filter_git_config(text: str) -> str:
    """Return the lines of a git config that name no program, in sections that have such lines."""
    section, plain_lines = "", []
    for line in text.split("\n"):
        header = _PLAIN_HEADER.fullmatch(line)
        if header:
            section = header[1].lower()
        elif line.lstrip().startswith("["):
            section = ""
            continue
        elif line and not _COMMENT.fullmatch(line):
            setting = _PLAIN_SETTING.fullmatch(line)
            if setting is None or setting[1].lower() not in _HARMLESS_NAMES.get(section, ()):
                continue
            if setting[1].lower() in ("url", "pushurl") and not _URL.fullmatch(setting[2] or ""):
                continue
        plain_lines.append(line)
    return "\n".join(plain_lines)
