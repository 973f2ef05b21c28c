"""Mounts over pinned paths, so that a command can read them but not change them or their parents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from wick.backends.sandbox.protected_paths import Cover
from wick.workspace.rooted_folder import RootedFolder

_COVERED = ("show", "hide", "copy")


def plan_pinned_covers(
    tree: RootedFolder, pinned: Sequence[str], fixed: Sequence[str], others: Sequence[Cover]
) -> list[Cover]:
    """Return the mounts for pinned paths and fixed folders, from the top down; `others` are those made before them.

    A path is mounted by its name on the host. Every command has these mounts, so no command can have replaced a parent
    folder, and file tools refuse to.
    """
    covered = {cover.path for cover in others if cover.how in _COVERED}
    found: dict[str, Cover] = {}
    for path in (*fixed, *pinned):
        names = path.split("/")
        above = ["/".join(names[:depth]) for depth in range(1, len(names))]
        if covered.intersection([*above, path]):
            continue
        if not os.path.lexists(f"{tree.path}/{path}"):
            continue
        for folder in above:
            found.setdefault(folder, Cover(folder, "keep", folder=True))
        how: Literal["show", "keep"] = "show" if path in pinned else "keep"
        found[path] = Cover(path, how, folder=os.path.isdir(f"{tree.path}/{path}"))
    return sorted(found.values(), key=lambda cover: cover.path.count("/"))
