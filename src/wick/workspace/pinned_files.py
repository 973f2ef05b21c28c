"""Pinned files: files and folders of a workspace that cannot be changed, recognized by path and by inode.

    pinned = PinnedFiles(["conf/agents.yaml"])
    pinned.check_change(("conf", "agents.yaml"), "conf/agents.yaml")     BackendError: … is pinned

A second name of a pinned file (a hard link, another case) is pinned too. A `fixed` folder cannot be moved or deleted,
but its content can change.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Iterable, Sequence

from wick.errors import BackendError
from wick.workspace.rooted_folder import ANYTHING, RootedFolder


class PinnedFiles:
    """The pinned paths and fixed folders of a workspace, relative to it."""

    def __init__(self, paths: Iterable[str] = (), fixed: Iterable[str] = ()) -> None:
        self._paths = tuple(paths)
        self._names = [tuple(_fold_path(path).split("/")) for path in self._paths]
        self._fixed = [*self._names, *(tuple(_fold_path(path).split("/")) for path in fixed)]

    def check_change(self, names: Sequence[str], path: str) -> None:
        """Raise a BackendError if these names lead to a pinned file, or into a pinned folder."""
        if self._names:
            given = _fold_path("/".join(names)).split("/")
            if any(tuple(given[: len(one)]) == one for one in self._names):
                raise _pinned_error(path)

    def check_removal(self, names: Sequence[str], path: str) -> None:
        """Raise a BackendError for a fixed folder, or a parent folder of a pinned file."""
        if self._fixed:
            given = tuple(_fold_path("/".join(names)).split("/"))
            if any(one[: len(given)] == given for one in self._fixed):
                raise _pinned_error(path)

    def check_identity(self, tree: RootedFolder, info: os.stat_result, path: str) -> None:
        """Raise a BackendError if a file is a pinned file under another name."""
        for one in self._paths:
            with suppress(OSError), tree.open_path(one, ANYTHING) as (fd, _):
                pinned = os.fstat(fd)
                if (pinned.st_dev, pinned.st_ino) == (info.st_dev, info.st_ino):
                    raise _pinned_error(path)


def _pinned_error(path: str) -> BackendError:
    message = f"{path} is pinned: the process that serves this workspace reads it, so nothing here changes it"
    return BackendError(message, "protected")


def _fold_path(path: str) -> str:
    return path.casefold()
