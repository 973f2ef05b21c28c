"""The files that configure or extend this process, and the workspaces that may not hold them.

    files = ProcessFiles(code={"/srv/hooks": "a folder of hook programs"}, config={"/srv/agents.yaml": "the config"})
    pinned = pin_files("/srv", files)        ConfigError: the workspace holds a folder of hook programs

An agent writes its workspace. Code that the process imports or runs would leave the sandbox from there, so such a
workspace is refused. Plain files that the process reads again are pinned: nothing in the workspace may change them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder

from wick.errors import ConfigError

MOST_LINKS = 40
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProcessFiles:
    """Paths by a few words that say what each is."""

    code: Mapping[str, str] = field(default_factory=dict)  # imported, run, or trusted without a question
    config: Mapping[str, str] = field(default_factory=dict)  # read again

    def __or__(self, other: ProcessFiles) -> ProcessFiles:
        return ProcessFiles({**self.code, **other.code}, {**self.config, **other.config})


def running_code() -> ProcessFiles:
    """Return the folders that this process imports Python from, and its installation."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = {package: "wick itself", sys.prefix: "the Python environment that wick runs in"}
    on_path = {os.path.abspath(entry): "a folder that Python imports modules from" for entry in sys.path if entry}
    return ProcessFiles({**on_path, **found})


def pin_files(workspace: str | os.PathLike[str], files: ProcessFiles) -> list[str]:
    """Return the config files inside a workspace, by their paths in it; a ConfigError if it holds code."""
    root = os.path.realpath(workspace)
    if not os.path.isdir(root):
        return []
    home = _identity(root)
    _leave_path(home)
    files = _with_environment(files, home)
    for path, what in files.code.items():
        if _inside(path, home) is not None:
            raise _refusal(root, path, what)
        _check_links(path, what, root, home)
    for path, what in running_code().code.items():
        if what.startswith(("wick", "the Python")) and _inside(root, _identity(path)) is not None:
            raise ConfigError(f"the workspace {root} is a part of {what} ({path}); set `workdir` to another folder")
    pinned = []
    for path, what in files.config.items():
        _check_links(path, what, root, home)
        names = _inside(path, home)
        if names is None or not os.path.lexists(path):
            continue
        if not names:
            raise _refusal(root, path, what)
        info = os.stat(path)
        if os.path.isfile(path) and info.st_nlink > 1:
            raise ConfigError(
                f"{path} is {what} and has a second name (a hard link), by which the agent could change it; "
                f"copy it: cp {path} {path}.new && mv {path}.new {path}"
            )
        pinned.append("/".join(names))
    return pinned


def _with_environment(files: ProcessFiles, home: Identity) -> ProcessFiles:
    """Return the files with the running code. A virtual environment in a project's folder is pinned as a whole."""
    running, environment = running_code().code, sys.prefix
    if environment == sys.base_prefix or not _inside(environment, home):
        return ProcessFiles(running) | files
    around = _identity(environment)
    others = {path: what for path, what in running.items() if _inside(path, around) is None}
    return ProcessFiles(others, {environment: "the Python environment that wick runs in"}) | files


def _leave_path(home: Identity) -> None:
    """Stop importing from the current folder, which `python -m` and `-c` put on the path, if a workspace holds it."""
    if "" in sys.path and _inside(os.getcwd(), home) is not None:
        sys.path[:] = [entry for entry in sys.path if entry]
    as_module = "-m" in sys.orig_argv[1:] and sys.path and os.path.abspath(sys.path[0]) == os.getcwd()
    if as_module and _inside(sys.path[0], home) is not None:
        del sys.path[0]


def find_module(name: str, folder: str | os.PathLike[str]) -> str:
    """Return where the top-level module of a name lies; "" if it is built in, loaded already, or not there.

    Python's own path comes first: `folder` is only for modules that are not found there.
    """
    top = name.partition(":")[0].partition(".")[0]
    for path in (None, [os.fspath(folder)]):
        try:
            found = PathFinder.find_spec(top, path)
        except (ImportError, ValueError, AttributeError):
            continue
        if found is not None:
            return found.origin or next(iter(found.submodule_search_locations or ()), "")
    return ""


def find_packages(name: str, folder: str | os.PathLike[str]) -> list[str]:
    """Return the files and folders that importing a dotted name reads: its module, and each package around it."""
    found: list[str] = []
    path: list[str] | None = None
    names = name.partition(":")[0].split(".")
    for one in names:  # by its last name: a dotted one needs the packages around it loaded
        try:
            spec = PathFinder.find_spec(one, path)
            if spec is None and path is None:
                spec = PathFinder.find_spec(one, [os.fspath(folder)])
        except (ImportError, ValueError, AttributeError):
            break
        if spec is None:
            break
        path = list(spec.submodule_search_locations or ())
        found += [place for place in (spec.origin, *path) if place and os.path.isabs(place)]
    return found


def check_loaded(workspace: str) -> None:
    """Refuse a workspace from which a module was imported, by whatever module that was."""
    root, apart = os.path.realpath(workspace), tuple(map(os.path.realpath, (sys.prefix, sys.base_prefix)))
    folders: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        folder = os.path.dirname(file)
        if folder not in folders:
            real = os.path.realpath(folder)
            folders[folder] = _is_below(real, root) and not any(_is_below(real, other) for other in apart)
        if folders[folder]:
            raise _refusal(root, file, f"the module {name}, which this process has imported")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _refusal(root: str, path: str, what: str) -> ConfigError:
    return ConfigError(
        f"the workspace {root} holds {what} ({path}), so the agent could change what runs outside of its sandbox; "
        "move that out of the workspace, or set `workdir` to a folder without it"
    )


def _identity(path: str) -> Identity:
    try:
        info = os.stat(path)
    except OSError:
        return -1, -1
    return info.st_dev, info.st_ino


def _inside(path: str, home: Identity) -> tuple[str, ...] | None:
    """Return the names that lead from a folder to a path, or None; folders are compared by what they are."""
    at, names = os.path.realpath(path), list[str]()
    while True:
        if _identity(at) == home:
            return tuple(reversed(names))
        above, name = os.path.split(at)
        if above == at:
            return None
        names.append(name)
        at = above


def _check_links(path: str, what: str, root: str, home: Identity) -> None:
    """Nothing can be mounted over a link, so none inside the workspace may lead to a file of the process."""
    for link in _links(path):
        if _inside(os.path.dirname(link), home) is not None:
            raise ConfigError(
                f"{path} is {what}, and the link {link} in the workspace {root} leads to it; name it by its real path"
            )


def _links(path: str) -> Iterator[str]:
    """Every link that is followed on the way to a path."""
    at, todo, followed = "/", [part for part in os.path.abspath(path).split("/") if part][::-1], 0
    while todo and followed < MOST_LINKS:
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
