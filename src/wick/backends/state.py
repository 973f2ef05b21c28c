"""The state backend: a workspace whose files are data in a mapping. It runs no commands.

    backend = State({"notes/plan.md": "# Plan"})
    await backend.edit("notes/plan.md", "Plan", "The plan")

The format is described in wick.backends.state_tree; `State(InThread(thread))` stores the files in a thread. Values are
never changed in place, so the mapping may log each assignment. Results, error codes, protected paths and search rules
are those of a workspace on disk (wick.workspace.workspace).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.state_tree import InThread, MappedWalk, PathNames, StateTree, encode_state
from wick.errors import BackendError
from wick.protocols import OnOutput, Protection, Status, Terminal
from wick.threads import Thread
from wick.workspace.globs import Glob
from wick.workspace.grep import LineSearch
from wick.workspace.os_errors import check_path, check_range, raise_os_error, to_backend_error
from wick.workspace.protected import PROTECTED, ProtectedNames
from wick.workspace.results import (
    CommandResult,
    EditResult,
    FileLines,
    FileStat,
    GlobResult,
    GrepMatch,
    GrepResult,
    JobInfo,
    JobOutput,
    Listing,
    ReadResult,
    WriteResult,
)
from wick.workspace.text import build_content, encode_content, read_lines, replace_text
from wick.workspace.walk import WalkBudget

FILE_MODE, FOLDER_MODE = 0o644, 0o755


class State:
    """Files in a mapping, such as `InThread`; by default, in a dict of this object."""

    name, workdir = "state", "/workspace"

    def __init__(self, files: MutableMapping[str, Any] | None = None, *, protect: Iterable[str] = PROTECTED) -> None:
        self._files: MutableMapping[str, Any] = {} if files is None else files
        self._has_own_files = files is not None
        self._protect = tuple(protect)
        self._protected = ProtectedNames(self._protect)
        self._created_at = time.time()
        self._times: dict[PathNames, float] = {}  # modification times of changes by this object
        self._status = Status("idle")

    def of(self, thread: Thread) -> State:
        """Return a backend for the files of one thread; itself if it was created with its own files."""
        return self if self._has_own_files else State(InThread(thread), protect=self._protect)

    @property
    def protection(self) -> Protection:
        """Return that there are no commands. Files in a mapping of a program or a plugin may be stored anywhere."""
        place = "are data of the conversation"
        if self._has_own_files and not isinstance(self._files, InThread):
            place = (
                f"are in a mapping of the type {type(self._files).__name__}; wick does not know where it stores them"
            )
        return Protection("strong", "state", f"there are no commands, and the files {place}")

    @property
    def status(self) -> Status:
        return self._status

    async def start(self) -> None:
        self._status = Status("launched")

    async def stop(self) -> None:
        self._status = Status("idle")

    # -- commands are not supported --

    async def execute(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        workdir: str = "",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        approved: bool = False,
    ) -> CommandResult:
        _raise_unsupported()

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        _raise_unsupported()

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal:
        _raise_unsupported()

    async def jobs(self) -> Sequence[JobInfo]:
        return []

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        raise BackendError(f"there is no job {id!r}; this workspace has none", "not_found")

    async def end_job(self, id: str) -> JobInfo:
        raise BackendError(f"there is no job {id!r}; this workspace has none", "not_found")

    # -- reading --

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        with self._resolve_path(path) as names:
            tree = StateTree(self._files)
            tree.check_folder(names)
            entries = [tree.describe_entry((*names, name)) for name in sorted(tree.list_names(names))]
        most = constants.LIST_ENTRIES
        return {"path": path, "entries": entries[:most], "truncated": len(entries) > most}

    async def stat(self, path: str) -> FileStat:
        with self._resolve_path(path) as names:
            tree = StateTree(self._files)
            tree.check_exists(names)
            found = tree.describe_entry(names)
        mode = FILE_MODE if found["type"] == "file" else FOLDER_MODE
        modified = self._times.get(names, self._created_at)
        return {"path": path, "type": found["type"], "size": found["size"], "mode": mode, "modified": modified}

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        data = self._read_file(path)
        part = data[offset:] if limit is None else data[offset : offset + limit]
        return build_content(path, part, len(data), offset, exact=limit is not None)

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        data = self._read_file(path)
        return read_lines(path, [data], len(data), offset, limit)

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        if pattern.startswith("/"):  # relative to the root of the workspace
            with self._resolve_path(pattern):
                pattern, path = f".{self._relative_path(pattern)}", "."
        with self._resolve_path(path) as names:
            files, wanted, budget = dict(self._files), Glob(pattern), WalkBudget()
            StateTree(files).check_folder(names)

        def find() -> list[str]:
            walk = MappedWalk(files, budget, everything=everything)
            return [file for file, _ in walk.files("/".join(names), wanted)]

        found = await run_in_thread(find, "glob")
        most = constants.GLOB_FILES
        return {"files": found[:most], "truncated": len(found) > most or budget.spent}

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str = "",
        ignore_case: bool = False,
        everything: bool = False,
        links: bool = True,
    ) -> GrepResult:
        search, budget = LineSearch(pattern, ignore_case=ignore_case), WalkBudget()
        with self._resolve_path(path) as names:
            files, wanted = dict(self._files), Glob(glob or "**")
            is_file = StateTree(files).is_file(names) and not _is_folder_path(path)
            if is_file:
                self._protected.check_read(names, path)
            else:
                StateTree(files).check_folder(names)

        def find() -> GrepResult:
            walk, tree = MappedWalk(files, budget, everything=everything), StateTree(files)
            start, matches = "/".join(names), list[GrepMatch]()
            for file in [start] if is_file else (file for file, _ in walk.files(start, wanted)):
                if self._protected.is_secret(file.split("/")):
                    continue
                for line, text in search.find_lines(tree.read_searchable(file)):
                    if len(matches) == constants.GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": file, "line": line, "text": text})
            return {"matches": matches, "truncated": False}

        found = await run_in_thread(find, "grep")
        return {**found, "truncated": found["truncated"] or budget.spent}

    # -- changing --

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(path, content)
        with self._resolve_for_change(path) as names:
            self._write_file(names, path, data)
        return {"path": path, "bytes_written": len(data)}

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        occurrence: Literal["only", "first"] = "only",
        links: bool = True,
    ) -> EditResult:
        with self._resolve_for_change(path) as names:
            data, count = replace_text(
                path, self._read_file(path), old, new, replace_all=replace_all, occurrence=occurrence
            )
            self._write_file(names, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        with self._resolve_for_change(path) as names:
            tree = StateTree(self._files)
            if tree.is_file(names):
                raise_os_error(errno.EEXIST)
            tree.check_parents(names)
            if not tree.is_folder(names):
                self._store("/".join(names) + "/", b"")
                self._touch(names)

    async def move(self, source: str, target: str) -> None:
        tree = StateTree(self._files)
        with self._resolve_for_change(target) as there, self._resolve_path(source) as here:
            if not here:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            tree.check_folder(here[:-1])
            self._protected.check_change(here, source)
            tree.check_exists(here)
            with self._resolve_path(target):
                tree.check_parents(there)
                self._check_nothing_protected(tree, here, there, source)
                if tree.is_file(there) or tree.is_folder(there):
                    raise_os_error(errno.EEXIST)
                if there[: len(here)] == here:
                    raise_os_error(errno.EINVAL)
        for key in tree.find_keys(here):
            self._files["/".join(there) + key[len("/".join(here)) :]] = self._files.pop(key)
        self._touch(there)
        self._preserve_folder(here[:-1])

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        with self._resolve_path(path) as names:
            if not names:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            tree = StateTree(self._files)
            tree.check_folder(names[:-1])
            self._protected.check_change(names, path)
            tree.check_exists(names)
            if not recursive and not tree.is_file(names) and tree.list_names(names):
                raise_os_error(errno.ENOTEMPTY)
            self._check_nothing_protected(tree, names, names, path)
        for key in tree.find_keys(names):
            del self._files[key]
            self._times.pop(tuple(key.rstrip("/").split("/")), None)
        self._preserve_folder(names[:-1])

    # -- paths --

    @contextmanager
    def _resolve_path(self, path: str) -> Iterator[PathNames]:
        """Yield the names of a path; translate OSErrors into BackendErrors."""
        self._status = Status("launched")
        try:
            names: list[str] = []
            for name in self._relative_path(check_path(path)).split("/"):
                if name == ".." and not names:
                    raise_os_error(errno.EXDEV)
                elif name == "..":
                    names.pop()
                elif name not in ("", "."):
                    names.append(name)
            yield tuple(names)
        except OSError as error:
            raise to_backend_error(error, path) from None

    @contextmanager
    def _resolve_for_change(self, path: str) -> Iterator[PathNames]:
        with self._resolve_path(path) as names:
            self._protected.check_change(names, path)
            yield names

    def _relative_path(self, path: str) -> str:
        """Return a path relative to the workspace."""
        if not path.startswith("/"):
            return path
        if path != self.workdir and not path.startswith(f"{self.workdir}/"):
            raise_os_error(errno.EXDEV)
        return path[len(self.workdir) :]

    def _check_nothing_protected(self, tree: StateTree, names: PathNames, then: PathNames, path: str) -> None:
        """Raise if a path in a folder is protected, under its current or its future name."""
        for key in tree.find_keys(names):
            inner = tuple(key.rstrip("/").split("/"))
            if self._protected.is_protected(inner) or self._protected.is_protected((*then, *inner[len(names) :])):
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")

    # -- storage --

    def _read_file(self, path: str) -> bytes:
        with self._resolve_path(path) as names:
            tree = StateTree(self._files)
            tree.check_exists(names)
            if not tree.is_file(names):
                raise_os_error(errno.EISDIR)
            if _is_folder_path(path):
                raise_os_error(errno.ENOTDIR)
            self._protected.check_read(names, path)
            return tree.read_data("/".join(names))

    def _write_file(self, names: PathNames, path: str, data: bytes) -> None:
        tree = StateTree(self._files)
        if _is_folder_path(path) or tree.is_folder(names):
            raise_os_error(errno.EISDIR)
        tree.check_parents(names)
        if len(data) > constants.STATE_FILE_BYTES:
            most = constants.STATE_FILE_BYTES
            message = f"{path} would have {len(data)} bytes; the most that a conversation keeps is {most}"
            raise BackendError(message, "too_large")
        self._store("/".join(names), data)
        self._touch(names)

    def _store(self, key: str, data: bytes) -> None:
        if StateTree(self._files).total_size(without=key) + len(key) + len(data) > constants.STATE_BYTES:
            raise_os_error(errno.ENOSPC)
        self._files[key] = encode_state(data)

    def _preserve_folder(self, names: PathNames) -> None:
        """Keep a folder after its last entry was removed."""
        if names and not StateTree(self._files).is_folder(names):
            self._files["/".join(names) + "/"] = ""

    def _touch(self, names: PathNames) -> None:
        self._times[names] = self._times[names[:-1]] = time.time()


def _is_folder_path(path: str) -> bool:
    return path.rpartition("/")[2] in ("", ".", "..")


def _raise_unsupported() -> NoReturn:
    raise BackendError(
        "this workspace has files and no commands; use a Local or a Docker backend to run one", "unsupported"
    )
