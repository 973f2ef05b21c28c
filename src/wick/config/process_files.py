"""The files that configure or extend this process, and checks that workspaces do not expose them.

    files = ProcessFiles(code={"/srv/hooks": "a folder of hook programs"}, config={"/srv/agents.yaml": "the config"})
    pinned = pin_files("/srv", files)        WorkspaceError: the workspace holds a folder of hook programs

An agent can write to its workspace. Code that the process imports or runs from there would escape the sandbox, so such
a workspace is refused. Files that the process reads again are pinned: they are read-only in the workspace. The virtual
environment and the source folder of wick are pinned too.

The command `wick` imports nothing from editable installs (`wick._internal.import_path`). Such a folder may be in a
workspace: `guard_editable` returns options that protect the names Python imports from it before `wick` runs.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder

from wick._internal.import_path import excluded, find_spec, startup_names
from wick.errors import WorkspaceError
from wick.workspace.globs import HEAVY

logger = logging.getLogger(__name__)

MAX_LINKS = 40
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = "the Python environment that wick runs in"
IMPORTED = "a folder that Python imports modules from"
SOURCE = "the folder that wick is imported from"
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Paths of the process, each with a short description."""

    code: Mapping[str, str] = field(default_factory=dict)  # imported, executed, or trusted without a prompt
    config: Mapping[str, str] = field(default_factory=dict)  # read again while the process runs

    def __or__(self, other: ProcessFiles) -> ProcessFiles:
        return ProcessFiles({**self.code, **other.code}, {**self.config, **other.config})


def find_running_code() -> ProcessFiles:
    """Return the folders on the import path of this process, and its installation."""
    installation = {os.path.dirname(PACKAGE): SOURCE, PACKAGE: "wick itself", sys.prefix: ENVIRONMENT}
    on_path = {os.path.abspath(entry): IMPORTED for entry in sys.path if entry}
    for finder in sys.meta_path:  # editable installs may map names to folders and modules
        module = str(getattr(finder, "__module__", ""))
        mapping = getattr(sys.modules.get(module), "MAPPING", None) if "editable" in module else None
        if isinstance(mapping, Mapping):
            on_path |= {os.path.abspath(path): IMPORTED for path in mapping.values() if isinstance(path, str)}
    return ProcessFiles({**on_path, **installation})


def pin_files(workspace: str | os.PathLike[str], files: ProcessFiles, *, protects: bool = False) -> list[str]:
    """Return the config files inside a workspace, as relative paths; raise a WorkspaceError if it contains code.

    A workspace with an editable install is refused, unless the caller `protects` it with `guard_editable`.
    """
    root = os.path.realpath(workspace)
    if not os.path.isdir(root):  # it is created later, so the code is named in it and not there yet
        for path, what in files.code.items():
            if os.path.join(os.path.realpath(path), "").startswith(os.path.join(root, "")):
                raise _build_refusal(root, path, what)
        return []
    home = _read_identity(root)
    _leave_path(home)
    _leave_editable(root, home, protects)
    files = _add_environment(files, home)
    for path, what in files.code.items():
        if _find_relative_names(path, home) is not None:
            raise _build_refusal(root, path, what)
        _check_links(path, what, root, home)
    for path, what in find_running_code().code.items():
        if what.startswith(("wick", "the Python")) and _find_relative_names(root, _read_identity(path)) is not None:
            raise WorkspaceError(f"the workspace {root} is a part of {what} ({path}); set `workdir` to another folder")
    pinned = []
    for path, what in files.config.items():
        _check_links(path, what, root, home)
        names = _find_relative_names(path, home)
        if names is None or not os.path.lexists(path):
            continue
        if not names:
            raise _build_refusal(root, path, what)
        info = os.stat(path)
        if os.path.isfile(path) and info.st_nlink > 1:
            raise WorkspaceError(
                f"{path} is {what} and has a second name (a hard link), by which the agent could change it; "
                f"copy it: cp {path} {path}.new && mv {path}.new {path}"
            )
        pinned.append("/".join(names))
        if what == SOURCE and (root, path) not in _reported:
            _reported.add((root, path))
            logger.warning("wick is imported from %s: the agent can read that folder, and cannot change it", path)
    return pinned


def _add_environment(files: ProcessFiles, home: Identity) -> ProcessFiles:
    """Return the files with the running code added. The virtual environment and wick's source are pinned as folders."""
    running = find_running_code().code
    source = os.path.dirname(PACKAGE)
    folders = {source: SOURCE} if sys.prefix == sys.base_prefix else {sys.prefix: ENVIRONMENT, source: SOURCE}
    pinned: dict[str, str] = {}
    for path, what in folders.items():
        if _find_relative_names(path, home) and all(
            _find_relative_names(path, _read_identity(folder)) is None for folder in pinned
        ):
            pinned[path] = what
    around = [_read_identity(path) for path in pinned]
    others = {
        path: what
        for path, what in running.items()
        if all(_find_relative_names(path, folder) is None for folder in around)
    }
    return ProcessFiles(others, pinned) | files


def _leave_editable(root: str, home: Identity, protects: bool) -> None:
    """Stop importing from editable installs in a workspace; raise a WorkspaceError if a module came from one."""
    if excluded.entries or excluded.finders:
        excluded.workspaces.add(root)
    for entry in excluded.folders:
        _check_links(entry, IMPORTED, root, home)
        names = _find_relative_names(entry, home)
        if names is None:
            continue
        if not protects or HEAVY.intersection(names):  # the sandbox does not protect names in these folders
            raise _build_refusal(root, entry, IMPORTED)
        sys.path[:] = [name for name in sys.path if name != entry]
        if (root, entry) not in _reported:
            _reported.add((root, entry))
            logger.info("%s is in the workspace: no module is imported from there", entry)
    if excluded.workspaces:
        check_loaded(root)


def guard_editable(workspace: str | os.PathLike[str], protect: Iterable[str]) -> dict[str, list[str]]:
    """Return Local backend options for a workspace with editable installs: protected patterns and fixed folders.

    The patterns cover names that Python imports from such a folder at startup, before `wick` removes it from the path.
    The folder itself is fixed: a link in its place would bypass the patterns.
    """
    root = os.path.realpath(workspace)
    home = _read_identity(root)
    patterns, fixed = list[str](), list[str]()
    for entry in excluded.folders:
        names = _find_relative_names(entry, home)
        if names is None:
            continue
        existing = 0  # number of leading names that are existing folders
        while existing < len(names) and os.path.isdir(os.path.join(root, *names[: existing + 1])):
            existing += 1
        if existing:
            fixed.append("/".join(names[:existing]))
        if existing < len(names):  # prevent its creation, also as a link
            patterns.append("".join(f"/{name}" for name in names[: existing + 1]))
        else:
            folder = "".join(f"/{name}" for name in names)
            patterns += [f"{folder}/{name}{end}" for name in startup_names() for end in ("", ".*")]
    return {"protect": [*protect, *patterns], "fixed": fixed} if patterns else {}


_reported: set[tuple[str, str]] = set()  # (workspace, path) pairs that were logged


def _leave_path(home: Identity) -> None:
    """Remove the current folder, added by `python -m` and `-c`, from the path if it is in the workspace."""
    if "" in sys.path and _find_relative_names(os.getcwd(), home) is not None:
        sys.path[:] = [entry for entry in sys.path if entry]
    as_module = "-m" in sys.orig_argv[1:] and sys.path and os.path.abspath(sys.path[0]) == os.getcwd()
    if as_module and _find_relative_names(sys.path[0], home) is not None:
        del sys.path[0]


def find_module(name: str, folder: str | os.PathLike[str]) -> str:
    """Return the path of a name's top-level module; "" if it is built in, already loaded, or not found.

    `folder` is searched after `sys.path`.
    """
    spec = find_spec(name.partition(":")[0].partition(".")[0], folder)
    if spec is None:
        return ""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")


def find_packages(name: str, folder: str | os.PathLike[str]) -> list[str]:
    """Return the files and folders that importing a dotted name reads: its module and parent packages."""
    paths: list[str] = []
    path: list[str] | None = None
    names = name.partition(":")[0].split(".")
    for one in names:  # one at a time: find_spec of a dotted name imports its parents
        try:
            spec = find_spec(one, folder) if path is None else PathFinder.find_spec(one, path)
        except (ImportError, ValueError, AttributeError):
            break
        if spec is None:
            break
        path = list(spec.submodule_search_locations or ())
        paths += [location for location in (spec.origin, *path) if location and os.path.isabs(location)]
    return paths


def check_loaded(workspace: str) -> None:
    """Raise a WorkspaceError if any loaded module comes from the workspace.

    Modules of the environment and of wick are skipped if these are pinned as folders.
    """
    root, source = os.path.realpath(workspace), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    candidates = map(os.path.realpath, (sys.prefix, sys.base_prefix, source))
    pinned = [path for path in candidates if path != root and _is_below(path, root)]
    folders: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        folder = os.path.dirname(file)
        if folder not in folders:
            real = os.path.realpath(folder)
            folders[folder] = _is_below(real, root) and not any(_is_below(real, other) for other in pinned)
        if folders[folder]:
            raise _build_refusal(root, file, f"the module {name}, which this process has imported")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _build_refusal(root: str, path: str, what: str) -> WorkspaceError:
    remedy = "move that out of the workspace, or set `workdir` to a folder without it"
    if not os.path.lexists(path):
        remedy = (
            "paths of a hook's command start at the workspace, so name one outside of it, such as `../check.sh`, "
            "or set `workdir` to another folder"
        )
    return WorkspaceError(
        f"the workspace {root} holds {what} ({path}), so the agent could change code that runs outside of its sandbox; "
        f"{remedy}"
    )


def _read_identity(path: str) -> Identity:
    try:
        info = os.stat(path)
    except OSError:
        return -1, -1
    return info.st_dev, info.st_ino


def _find_relative_names(path: str, home: Identity) -> tuple[str, ...] | None:
    """Return the names from a folder to a path, or None if it is outside; folders are compared by inode."""
    at, names = os.path.realpath(path), list[str]()
    while True:
        if _read_identity(at) == home:
            return tuple(reversed(names))
        above, name = os.path.split(at)
        if above == at:
            return None
        names.append(name)
        at = above


def _check_links(path: str, what: str, root: str, home: Identity) -> None:
    """Raise a WorkspaceError if a link inside the workspace leads to this path: links cannot be mounted over."""
    for link in _find_links(path):
        if _find_relative_names(os.path.dirname(link), home) is not None:
            raise WorkspaceError(
                f"{path} is {what}, and the link {link} in the workspace {root} leads to it; name it by its real path"
            )


def _find_links(path: str) -> Iterator[str]:
    """Yield each link that resolving a path follows."""
    at, todo, followed = "/", [part for part in os.path.abspath(path).split("/") if part][::-1], 0
    while todo and followed < MAX_LINKS:
        name = todo.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        if os.path.islink(here):
            followed += 1
            yield here
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            todo += [part for part in target.split("/") if part not in ("", ".")][::-1]
        else:
            at = here
