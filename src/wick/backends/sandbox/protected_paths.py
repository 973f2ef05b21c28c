"""Mounts over the protected paths of a workspace, so that a command cannot write them, nor read secrets.

    plan_covers(tree, entries, firm)          the mounts over the entries of wick.workspace.auto_executed

A missing path cannot be mounted over. A watcher follows the workspace while a command runs, and neutralises the files
that it plants; see wick.wickd.watcher.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from wick import constants
from wick.errors import BackendError
from wick.workspace.auto_executed import ProtectedEntry
from wick.workspace.rooted_folder import RootedFolder

COPY_BYTES = 64_000  # maximum size of a copied file
COPIES = 40


@dataclass(frozen=True, slots=True)
class Cover:
    """The mount over a path: itself, read-only or writable but fixed; an empty file or folder; a copy; or none."""

    path: str
    how: Literal["show", "keep", "leave", "hide", "copy"]
    folder: bool = False
    content: bytes = b""


Entries = Mapping[str, ProtectedEntry]


def plan_covers(tree: RootedFolder, entries: Entries, firm: Collection[tuple[int, int]]) -> list[Cover]:
    """Return the mounts over the protected paths.

    A path is resolved on the host when it is mounted. A concurrent command in the same workspace could replace a
    folder of it by a link that leads out. So only `firm` entries are shown: they existed before every running command
    started, and the mounts of those commands fix them and their parent `.git` in place. Of the others, a folder is
    hidden and a file is copied. More mounts than a sandbox supports are refused.
    """
    found: list[Cover] = []
    hidden: set[str] = set()  # folders whose contents need no mounts
    for entry in sorted(entries.values(), key=lambda entry: entry.path.count("/")):
        names = entry.path.split("/")
        if entry.type == "link" or any("/".join(names[:depth]) in hidden for depth in range(1, len(names))):
            continue
        cover = _plan_cover(tree, entry, _is_firm(entry, entries, firm))
        if cover.how == "copy" and sum(one.how == "copy" for one in found) == COPIES:
            cover = Cover(entry.path, "hide")
        if cover.how == "hide" and cover.folder:
            hidden.add(entry.path)
        found.append(cover)
    check_mount_count(found)
    return found


def check_mount_count(covers: Collection[Cover]) -> None:
    """Raise if there are more protected paths than mounts."""
    mounted = [cover.path for cover in covers if cover.how != "leave"]
    if len(mounted) > constants.PROTECTED_MOUNTS:
        some = ", ".join(sorted(mounted)[:3])
        raise BackendError(
            f"the workspace has {len(mounted)} protected paths ({some}, …), and a command can be kept from "
            f"{constants.PROTECTED_MOUNTS} at most; move some out of the workspace, or protect fewer names",
            "protected",
        )


def _is_firm(entry: ProtectedEntry, entries: Entries, firm: Collection[tuple[int, int]]) -> bool:
    above, _, _ = entry.path.rpartition("/")
    if not above:
        return entry.identity in firm
    return entry.identity in firm and above in entries and _is_firm(entries[above], entries, firm)


def _plan_cover(tree: RootedFolder, entry: ProtectedEntry, firm: bool) -> Cover:
    folder = entry.type == "dir"
    if entry.leads:
        return Cover(entry.path, "keep" if firm else "leave", folder)
    if firm and not entry.secret:
        return Cover(entry.path, "show", folder)
    if folder or entry.secret or entry.type == "other":
        return Cover(entry.path, "hide", folder)
    try:
        with open(tree.open_folder(entry.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            data = file.read(COPY_BYTES + 1)
    except (OSError, ValueError):
        return Cover(entry.path, "hide")
    return Cover(entry.path, "copy", content=data) if len(data) <= COPY_BYTES else Cover(entry.path, "hide")
