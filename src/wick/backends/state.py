"""Files that are data: a workspace in a mapping, for agents that have no other. There are no commands.

    backend = State({"notes/plan.md": "# Plan"})
    await backend.edit("notes/plan.md", "Plan", "The plan")

How files are kept stands in wick.backends.state_tree; `State(InThread(thread))` keeps them in a thread. Nothing that is
kept is changed in place, so the mapping may be one that writes down what it is given. The answers, the codes, the
protected paths and the rules of searching are those of a workspace on disk (wick.workspace.workspace).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.state_tree import InThread, MappedWalk, Names, Tree, kept_as
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
    """Files in a mapping, such as one that a thread keeps; without one they live as long as this object."""

    name, workdir = "state", "/workspace"
    protection = Protection("strong", "state", "there are no commands, and the files are data of the conversation")

    def __init__(self, files: MutableMapping[str, Any] | None = None, *, protect: Iterable[str] = PROTECTED) -> None:
        self._files: MutableMapping[str, Any] = {} if files is None else files
        self._own = files is not None
        self._protect = tuple(protect)
        self._protected = ProtectedNames(self._protect)
        self._begun = time.time()
        self._times: dict[Names, float] = {}  # when something changed, as far as that happened here
        self._status = Status("idle")

    def of(self, thread: Thread) -> State:
        """The files of one thread, with the same rules; unless this was made with files of its own."""
        return self if self._own else State(InThread(thread), protect=self._protect)

    @property
    def status(self) -> Status:
        return self._status

    async def start(self) -> None:
        self._status = Status("launched")

    async def stop(self) -> None:
        self._status = Status("idle")

    # -- commands, of which there are none --

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
        _refuse()

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        _refuse()

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal:
        _refuse()

    async def jobs(self) -> Sequence[JobInfo]:
        return []

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput:
        raise BackendError(f"there is no job {id!r}; this workspace has none", "not_found")

    async def end_job(self, id: str) -> JobInfo:
        raise BackendError(f"there is no job {id!r}; this workspace has none", "not_found")

    # -- reading --

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        with self._asked(path) as names:
            tree = Tree(self._files)
            tree.check_folder(names)
            entries = [tree.listed((*names, name)) for name in sorted(tree.inside(names))]
        most = constants.LIST_ENTRIES
        return {"path": path, "entries": entries[:most], "truncated": len(entries) > most}

    async def stat(self, path: str) -> FileStat:
        with self._asked(path) as names:
            tree = Tree(self._files)
            tree.check_there(names)
            found = tree.listed(names)
        mode = FILE_MODE if found["type"] == "file" else FOLDER_MODE
        modified = self._times.get(names, self._begun)
        return {"path": path, "type": found["type"], "size": found["size"], "mode": mode, "modified": modified}

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        data = self._read(path)
        part = data[offset:] if limit is None else data[offset : offset + limit]
        return build_content(path, part, len(data), offset, exact=limit is not None)

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        data = self._read(path)
        return read_lines(path, [data], len(data), offset, limit)

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        pattern, path = self._seen_from(pattern, path)
        with self._asked(path) as names:
            files, wanted, budget = dict(self._files), Glob(pattern), WalkBudget()
            Tree(files).check_folder(names)

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
        with self._asked(path) as names:
            files, wanted = dict(self._files), Glob(glob or "**")
            one = Tree(files).is_file(names) and not _says_folder(path)
            if one:
                self._protected.check_read(names, path)
            else:
                Tree(files).check_folder(names)

        def find() -> GrepResult:
            walk, start = MappedWalk(files, budget, everything=everything), "/".join(names)
            return self._search(
                search, Tree(files), [start] if one else (file for file, _ in walk.files(start, wanted))
            )

        found = await run_in_thread(find, "grep")
        return {**found, "truncated": found["truncated"] or budget.spent}

    def _search(self, search: LineSearch, tree: Tree, files: Iterable[str]) -> GrepResult:
        found: GrepResult = {"matches": [], "truncated": False}
        for file in files:
            if self._protected.is_secret(file.split("/")):
                continue
            for line, text in search.find_lines(tree.text(file)):
                if len(found["matches"]) == constants.GREP_MATCHES:
                    return {**found, "truncated": True}
                found["matches"].append({"file": file, "line": line, "text": text})
        return found

    # -- changing --

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(content)
        with self._changing(path) as names:
            self._put(names, path, data)
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
        with self._changing(path) as names:
            data, count = replace_text(path, self._read(path), old, new, replace_all=replace_all, occurrence=occurrence)
            self._put(names, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        with self._changing(path) as names:
            tree = Tree(self._files)
            if tree.is_file(names):
                raise_os_error(errno.EEXIST)
            tree.check_above(names)
            if not tree.is_folder(names):
                self._make_folder(names)

    async def move(self, source: str, target: str) -> None:
        tree = Tree(self._files)
        with self._changing(target) as there, self._asked(source) as here:
            if not here:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            tree.check_folder(here[:-1])
            self._protected.check_change(here, source)
            tree.check_there(here)
            with self._asked(target):
                tree.check_above(there)
                self._holds_nothing_protected(tree, here, there, source)
                if tree.is_file(there) or tree.is_folder(there):
                    raise_os_error(errno.EEXIST)
                if there[: len(here)] == here:
                    raise_os_error(errno.EINVAL)
        self._rename(tree, here, there)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        with self._asked(path) as names:
            if not names:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            tree = Tree(self._files)
            tree.check_folder(names[:-1])
            self._protected.check_change(names, path)
            tree.check_there(names)
            if not recursive and not tree.is_file(names) and tree.inside(names):
                raise_os_error(errno.ENOTEMPTY)
            self._holds_nothing_protected(tree, names, names, path)
        for key in tree.keys_of(names):
            del self._files[key]
            self._times.pop(tuple(key.rstrip("/").split("/")), None)
        self._keep_folder(names[:-1])

    # -- paths --

    @contextmanager
    def _asked(self, path: str) -> Iterator[Names]:
        """The names that a path comes to; what is wrong with it then, as a sentence."""
        self._status = Status("launched")
        try:
            yield self._names(check_path(path))
        except OSError as error:
            raise to_backend_error(error, path) from None

    @contextmanager
    def _changing(self, path: str) -> Iterator[Names]:
        with self._asked(path) as names:
            self._protected.check_change(names, path)
            yield names

    def _names(self, path: str) -> Names:
        names: list[str] = []
        for name in self._inside(path).split("/"):
            if name == ".." and not names:
                raise_os_error(errno.EXDEV)
            elif name == "..":
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        return tuple(names)

    def _inside(self, path: str) -> str:
        """A path as seen from the workspace."""
        if not path.startswith("/"):
            return path
        if path != self.workdir and not path.startswith(f"{self.workdir}/"):
            raise_os_error(errno.EXDEV)
        return path[len(self.workdir) :]

    def _seen_from(self, pattern: str, path: str) -> tuple[str, str]:
        """An absolute pattern is one over the whole workspace."""
        if not pattern.startswith("/"):
            return pattern, path
        with self._asked(pattern):
            return f".{self._inside(pattern)}", "."

    def _holds_nothing_protected(self, tree: Tree, names: Names, then: Names, path: str) -> None:
        """Nothing beneath a folder is protected, by the names it has or by those it would have."""
        for key in tree.keys_of(names):
            inner = tuple(key.rstrip("/").split("/"))
            if self._protected.is_protected(inner) or self._protected.is_protected((*then, *inner[len(names) :])):
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")

    # -- what is kept --

    def _read(self, path: str) -> bytes:
        with self._asked(path) as names:
            tree = Tree(self._files)
            tree.check_there(names)
            if not tree.is_file(names):
                raise_os_error(errno.EISDIR)
            if _says_folder(path):
                raise_os_error(errno.ENOTDIR)
            self._protected.check_read(names, path)
            return tree.data("/".join(names))

    def _put(self, names: Names, path: str, data: bytes) -> None:
        tree = Tree(self._files)
        if _says_folder(path) or tree.is_folder(names):
            raise_os_error(errno.EISDIR)
        tree.check_above(names)
        if len(data) > constants.STATE_FILE_BYTES:
            most = constants.STATE_FILE_BYTES
            said = f"{path} would have {len(data)} bytes; the most that a conversation keeps is {most}"
            raise BackendError(said, "too_large")
        self._keep("/".join(names), data)
        self._touch(names)

    def _keep(self, key: str, data: bytes) -> None:
        if Tree(self._files).size(without=key) + len(key) + len(data) > constants.STATE_BYTES:
            raise_os_error(errno.ENOSPC)
        self._files[key] = kept_as(data)

    def _make_folder(self, names: Names) -> None:
        self._keep("/".join(names) + "/", b"")
        self._touch(names)

    def _keep_folder(self, names: Names) -> None:
        """A folder stays when the last thing in it goes."""
        if names and not Tree(self._files).is_folder(names):
            self._files["/".join(names) + "/"] = ""

    def _rename(self, tree: Tree, here: Names, there: Names) -> None:
        for key in tree.keys_of(here):
            self._files["/".join(there) + key[len("/".join(here)) :]] = self._files.pop(key)
        self._touch(there)
        self._keep_folder(here[:-1])

    def _touch(self, names: Names) -> None:
        self._times[names] = self._times[names[:-1]] = time.time()


def _says_folder(path: str) -> bool:
    return path.rpartition("/")[2] in ("", ".", "..")


def _refuse() -> NoReturn:
    raise BackendError(
        "this workspace has files and no commands; use a Local or a Docker backend to run one", "unsupported"
    )
