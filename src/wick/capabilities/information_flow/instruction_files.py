"""Files that later runs read as instructions, compared before and after each tool that may write them.

    watches = [Watch(files, "AGENTS.md")]
    await begin_watches(watches)      read the files
    …                                 a command runs
    await end_watches(watches)        move changed files aside, and restore their content

A command runs programs that a hijacked model may have written, so what it writes is untrusted text. Its arguments do
not show what it will write, so no question can name it. The files are compared by content, which covers links, `mv` and
`git checkout`.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from posixpath import basename, dirname, join, normpath
from threading import Lock
from typing import Any

from wick.backends.files import FileBackend, HostFolder, files_for_thread
from wick.constants import INSTRUCTION_BYTES, SKILL_COPIES
from wick.errors import BackendError
from wick.operations import ToolUse
from wick.threads import Thread

RESTORED = "instructions_restored"  # the event, and in the notes of a tool use, a sentence for the model
_MOST_MOVED = 1_000  # versions of one file


@dataclass(frozen=True, slots=True)
class FileContent:
    """The beginning of a file, and its size."""

    data: bytes
    size: int


Contents = dict[str, FileContent]  # by path


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of instructions that a tool has changed or created."""

    path: str
    shown: str  # its name for the model, without a text that others have chosen
    moved: str  # its new path; empty if it could not be moved
    is_restored: bool  # it has its earlier content again

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "moved": self.moved, "restored": self.is_restored}


def describe_changes(changed: Sequence[ChangedFile]) -> str:
    """Return a sentence for the model."""
    if stuck := [one.path for one in changed if not one.moved]:
        return f"Later runs read {len(stuck)} of the changed files as instructions; ask the user to check them."
    names = ", ".join(dict.fromkeys(one.shown for one in changed))
    return (
        f"Later runs read {names} as instructions, so this call cannot write it. Earlier content of up to 1 MB was "
        "restored, and the changed file has a name that ends in .moved-1, or a higher number. To change it, use a file "
        "tool; the user is asked about that."
    )


@dataclass(eq=False, slots=True)
class SharedContents:
    """The contents of a place before the first of some tools that run at the same time."""

    running: int = 0
    before: Contents | None = None

    def keep(self, before: Contents) -> None:
        """Store the contents, unless a parallel tool has stored them meanwhile and may be running."""
        with _lock:
            if self.before is None:
                self.before = before


_lock = Lock()  # event loops of several threads may use one backend
_places = dict[Hashable, SharedContents]()  # a place is forgotten after its last tool


@dataclass(eq=False, slots=True)
class Watch:
    """A place with instructions: a file or folder of some files, or files of some names anywhere in a workspace."""

    files: FileBackend
    key: Hashable  # of the place; tools that run at the same time share the content before the first of them
    path: str = ""
    names: frozenset[str] = frozenset()
    shared: SharedContents | None = None  # while its tool is running

    def acquire(self) -> SharedContents:
        """Return the contents that tools in this place share, from the first one that runs to the last."""
        with _lock:
            self.shared = _places.setdefault(self.key, SharedContents())
            self.shared.running += 1
        return self.shared

    def release(self) -> None:
        with _lock:
            if (shared := self.shared) is None:
                return
            self.shared, shared.running = None, shared.running - 1
            if not shared.running:
                del _places[self.key]

    async def read(self) -> Contents:
        """Return the content of the files."""
        paths = await (self._find_names() if self.names else self._list_path())
        read = await asyncio.gather(*(_read_file(self.files, path) for path in paths))
        return {path: content for path, content in zip(paths, read, strict=True) if content is not None}

    async def restore(self, before: Contents) -> list[ChangedFile]:
        """Move the files aside that were changed or created, and restore the earlier content."""
        after = await self.read()
        changed = [path for path, content in after.items() if content != before.get(path)]
        found = list[ChangedFile]()
        for path in changed:
            earlier, is_restored, moved = before.get(path), False, await self._move_aside(path)
            if moved and earlier is not None and earlier.size == len(earlier.data):
                with suppress(BackendError):
                    await self.files.write(path, earlier.data)
                    is_restored = True
            shown = f"a file in {basename(self.path)}" if self._is_inside(path) else basename(path)
            found.append(ChangedFile(path, shown, moved, is_restored))
        return found

    async def _move_aside(self, path: str) -> str:
        """Move a file out of a folder of instructions, to a name that is not one of them; return its new path."""
        start = join(dirname(self.path), path.replace("/", "-")) if self._is_inside(path) else path
        for number in range(1, _MOST_MOVED):
            target = f"{start}.moved-{number}"
            try:
                await self.files.move(path, target)
            except BackendError as error:
                if error.code != "exists":
                    return ""
            else:
                return target
        return ""

    def _is_inside(self, path: str) -> bool:
        """Return True for a file in a folder of instructions."""
        return bool(self.path) and path != self.path

    async def _list_path(self) -> list[str]:
        """Return the file at the path, or all files in the folder at the path."""
        if await _read_file(self.files, self.path) is not None:
            return [self.path]
        with suppress(BackendError):
            return (await self.files.glob("**", self.path, everything=True))["files"]
        return []

    async def _find_names(self) -> list[str]:
        """Return the files with these names: at the top, and in folders that searches do not skip."""
        found = dict[str, None]()
        with suppress(BackendError):
            found |= dict.fromkeys((await self.files.glob("{" + ",".join(sorted(self.names)) + "}"))["files"])
        list_folder: Any = getattr(self.files, "ls", None)
        with suppress(BackendError):
            entries = (await list_folder("."))["entries"] if list_folder is not None else ()
            names = {name.casefold() for name in self.names}
            found |= {entry["name"]: None for entry in entries if entry["name"].casefold() in names}
        return [path for path in found if not path.startswith(f"{SKILL_COPIES}/")]


async def _read_file(files: FileBackend, path: str) -> FileContent | None:
    try:
        content = await files.read(path, limit=INSTRUCTION_BYTES)
    except (BackendError, OSError):
        return None
    text = content["content"]
    data = b64decode(text) if content["encoding"] == "base64" else text.encode()
    return FileContent(data, content["size"])


# -- places -----------------------------------------------------------------------------------------------------------


def list_watches(use: ToolUse, names: frozenset[str]) -> list[Watch]:
    """Return the places with instructions that a tool may change: of the run's capabilities, and of its workspace."""
    runs, run = [use.run], use.run
    while run.parent is not None:
        run = run.parent
        runs.append(run)
    owners = {hook.owner: None for run in runs for hook in run.loop.hooks if hook.owner is not None}
    paths = [(getattr(owner, "backend", None), path) for owner in owners for path in owner.instruction_paths()]
    watches = [watch_path(backend, path, use.run.thread) for backend, path in paths if basename(path) != SKILL_COPIES]
    backend = getattr(getattr(use.bound.fn, "__self__", None), "backend", None)
    if names and backend is not None and not hasattr(backend, "of"):  # files in a thread are written by file tools only
        watches.append(Watch(backend, (id(backend), names), names=names))
    return watches


def watch_path(backend: Any, path: str, thread: Thread) -> Watch:
    """Return the watch of a file or folder of a capability."""
    if backend is None:
        folder, name = os.path.split(os.path.realpath(os.path.expanduser(path)))
        return Watch(HostFolder(folder), (folder, name), name)
    thread_id = thread.id if hasattr(backend, "of") else ""
    return Watch(files_for_thread(backend, thread), (id(backend), thread_id, path), normpath(path))


# -- tools that run at the same time ----------------------------------------------------------------------------------


async def begin_watches(watches: Iterable[Watch]) -> None:
    """Read the files before a tool runs, unless another tool is running: it may have changed them."""
    for watch in watches:
        shared = watch.acquire()
        if shared.before is None:
            shared.keep(await watch.read())


async def end_watches(watches: Sequence[Watch]) -> list[ChangedFile]:
    """Restore the files after a tool has run; return those that were changed."""
    changed = list[ChangedFile]()
    try:
        for watch in watches:
            if watch.shared is not None and watch.shared.before is not None:
                changed += await watch.restore(watch.shared.before)
    finally:
        for watch in watches:
            watch.release()
    return changed
