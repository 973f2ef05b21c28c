"""Editable installs that the `wick` command removed from the import path at startup, and module search in them.

    excluded.entries                 folders excluded from imports, unless a config names a module there
    find_spec("mine", folder)        the spec of a top-level module, also in excluded folders
    load_module(lambda: import_module("mine.hooks"))      restore the entry that provides it, and import it
    startup_names()                  modules that Python could import from such a folder before its exclusion

A process that was not started by `wick_launcher` excludes nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, TypeVar

from wick.errors import ConfigError

Loaded = TypeVar("Loaded")

# `site` imports the first two, Ubuntu's sitecustomize the third, `copy` and `pickle` of Python 3.12 the fourth.
SOUGHT = ("sitecustomize", "usercustomize", "apport_python_hook", "org", "wick", "wick_launcher")
WINDOWS = ("nt", "winreg", "msvcrt", "winsound")
_IMPORTED = re.compile(r"\b(?:import|from)\s+(\w+)|__import__\(\s*['\"](\w+)")


class ExcludedEntries:
    """Entries removed from sys.path and finders removed from sys.meta_path."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.finders: list[Any] = []
        self.imports: list[str] = []  # the lines of `.pth` files that are run when Python starts
        self.workspaces: set[str] = set()  # entries inside them are never restored

    def add(self, entries: Iterable[str], finders: Iterable[object], imports: Iterable[str]) -> None:
        self.entries += entries
        self.finders += finders
        self.imports += imports

    @property
    def folders(self) -> list[str]:
        """Return the entries that are file system paths; others are names for path hooks."""
        return [entry for entry in self.entries if os.path.isabs(entry)]


excluded = ExcludedEntries()


def find_spec(name: str, folder: str | os.PathLike[str]) -> ModuleSpec | None:
    """Return the spec of a top-level module: from sys.path, the excluded entries, or a folder."""
    searches: list[Callable[[], ModuleSpec | None]] = [
        lambda: PathFinder.find_spec(name),
        *(lambda finder=finder: finder.find_spec(name, None, None) for finder in excluded.finders),
        lambda: PathFinder.find_spec(name, excluded.entries),
        lambda: PathFinder.find_spec(name, [os.fspath(folder)]),
    ]
    for search in searches:
        try:
            if (found := search()) is not None:
                return found
        except (ImportError, ValueError, AttributeError):
            continue
    return None


def load_module(load: Callable[[], Loaded]) -> Loaded:
    """Return the result of `load`. Restore an excluded entry if it alone provides a missing module."""
    while True:
        try:
            return load()
        except ModuleNotFoundError as error:
            if not error.name or not _restore_entry(error.name.partition(".")[0]):
                raise


def _restore_entry(name: str) -> bool:
    """Restore the entry that provides a top-level module; return False if none does, or it is active already."""
    for finder in excluded.finders:
        if finder not in sys.meta_path and (spec := finder.find_spec(name, None, None)) is not None:
            _check_outside(name, [spec.origin or "", *(spec.submodule_search_locations or ())])
            sys.meta_path.append(finder)
            return True
    found = {entry: PathFinder.find_spec(name, [entry]) for entry in excluded.entries if entry not in sys.path}
    specs = {entry: spec for entry, spec in found.items() if spec is not None}
    if len(specs) > 1 and any(spec.origin for spec in specs.values()):  # several parts of a namespace are fine
        raise ConfigError(f"the module {name} is in {' and in '.join(specs)}; uninstall one of these projects")
    _check_outside(name, specs)
    sys.path += specs
    return bool(specs)


def _check_outside(name: str, paths: Iterable[str]) -> None:
    for path in paths:
        real = os.path.realpath(path)
        if root := next((root for root in excluded.workspaces if f"{real}/".startswith(f"{root.rstrip('/')}/")), ""):
            raise ConfigError(
                f"the workspace {root} holds the module {name} ({path}), so the agent could change code that runs "
                "outside of its sandbox; move that out of the workspace, or set `workdir` to a folder without it"
            )


def startup_names() -> Sequence[str]:
    """Return the top-level modules that are not installed, and that Python may look for before the launcher runs."""
    library, listed = os.path.dirname(os.__file__), set[str]()
    for folder in (library, os.path.join(library, "lib-dynload")):
        if os.path.isdir(folder):
            listed |= {name.partition(".")[0] for name in os.listdir(folder)}
    internal = {name for name in sys.stdlib_module_names if name.startswith("_") or name in WINDOWS}
    absent = internal - listed - set(sys.builtin_module_names) - sys.modules.keys()
    lines = {name for line in excluded.imports for pair in _IMPORTED.findall(line) for name in pair if name}
    return sorted({*SOUGHT, *absent, *(lines - sys.stdlib_module_names)})
