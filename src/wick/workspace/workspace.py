"""File operations of an agent, confined to one folder.

    workspace = Workspace("./workspace")
    workspace.write("src/a.py", "x = 1\\n")
    workspace.edit("src/a.py", "x = 1", "x = 2")
    workspace.grep(r"x = \\d", "src")

Every operation returns one of `wick.workspace.results` or raises a BackendError with a sentence and a code. Files that
are later trusted or executed (see PROTECTED) cannot be changed from here, and files that hold secrets cannot be read,
whatever link leads to them.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
import threading
from contextlib import contextmanager, suppress
from itertools import groupby, takewhile
from typing import Callable, Iterable, Iterator, Sequence

from wick.constants import (
    BINARY_HEAD_BYTES,
    EDIT_BYTES,
    FILE_READ_BYTES,
    GLOB_FILES,
    GREP_BYTES,
    GREP_MATCHES,
    LINES_SCAN_BYTES,
    LIST_ENTRIES,
    TREE_ENTRIES,
)
from wick.errors import BackendError
from wick.workspace.file_ops import (
    READ,
    delete_tree,
    get_size,
    list_entry,
    lstat,
    read_blocks,
    rename_exclusive,
    replace_file,
)
from wick.workspace.git_config import find_trusted_paths
from wick.workspace.globs import Glob
from wick.workspace.grep import LineSearch, verify_matches
from wick.workspace.os_errors import check_path, check_range, check_regular, raise_os_error, to_backend_error
from wick.workspace.pinned_files import PinnedFiles
from wick.workspace.protected import GIT, PROTECTED, ProtectedNames, fold_name
from wick.workspace.results import (
    EditResult,
    FileLines,
    FileStat,
    GlobResult,
    GrepMatch,
    GrepResult,
    Listing,
    ReadResult,
    WriteResult,
)
from wick.workspace.rooted_folder import ANYTHING, FOLDER, MOST_LINKS, FolderCursor, Names, RootedFolder, file_type
from wick.workspace.text import build_content, cut_at_nul, encode_content, is_binary, read_lines, replace_text
from wick.workspace.walk import DiskWalk, IgnoreLookup, WalkBudget, read_ignore_file


class Workspace:
    """The files beneath a folder. The methods are the synchronous form of a backend's methods."""

    def __init__(
        self,
        root: str,
        protect: Iterable[str] = PROTECTED,
        *,
        by_hand: bool = False,
        pinned: Iterable[str] = (),
        fixed: Iterable[str] = (),
    ) -> None:
        try:
            self._tree = RootedFolder(root, by_hand=by_hand)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            message = f"the workspace's folder {root} cannot be opened: {why}; make it first"
            raise BackendError(message, "not_found") from None
        protect = tuple(protect)
        self._protected, self._guards_git = ProtectedNames(protect), GIT in protect
        self._pinned = PinnedFiles(pinned, fixed)
        self._editing = threading.Lock()  # two edits of a file at once would lose one of them

    @property
    def root(self) -> str:
        return self._tree.path

    def close(self) -> None:
        self._tree.close()

    # -- reading --

    def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        flags = os.O_RDONLY | os.O_DIRECTORY
        with self._resolve_path(path, links) as inside, self._tree.open_path(inside, flags, links=links) as (fd, _):
            budget = WalkBudget()
            with os.scandir(fd) as scanned:
                within = takewhile(lambda entry: budget.take_entry(), scanned)
                names = heapq.nsmallest(LIST_ENTRIES + 1, (entry.name for entry in within))
            entries = [entry for entry in (list_entry(name, fd) for name in names[:LIST_ENTRIES]) if entry]
        return {"path": path, "entries": entries, "truncated": len(names) > LIST_ENTRIES or budget.spent}

    def stat(self, path: str) -> FileStat:
        with self._resolve_path(path) as inside, self._tree.open_parent(inside) as (folder, _, name):
            info = os.lstat(name, dir_fd=folder) if name else os.fstat(folder)
        return {
            "path": path,
            "type": file_type(info.st_mode),
            "size": get_size(info),
            "mode": stat.S_IMODE(info.st_mode),
            "modified": info.st_mtime,
        }

    def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        with self._resolve_path(path, links) as inside, self._open_file(inside, path, links) as (fd, info):
            most = FILE_READ_BYTES if limit is None else min(limit, FILE_READ_BYTES)
            data = b"".join(read_blocks(fd, offset, most))
        size = max(info.st_size, offset + len(data)) if data else info.st_size
        return build_content(path, data, size, offset, exact=limit is not None)

    def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        with self._resolve_path(path, links) as inside, self._open_file(inside, path, links) as (fd, info):
            return read_lines(path, read_blocks(fd, 0, LINES_SCAN_BYTES + 1), info.st_size, offset, limit)

    def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        if pattern.startswith("/"):
            relative = self._tree.relative_path(pattern)
            if relative is None:
                message = f"{pattern} is outside of the workspace; give a pattern inside {self.root}"
                raise BackendError(message, "escapes")
            pattern, path = f"./{relative}", "."
        budget, files = WalkBudget(), []
        with self._resolve_path(path, links) as inside:
            start = "/".join(self._tree.resolve_names(inside, links=links))
            for name, link in DiskWalk(self._tree, budget, everything=everything).files(start, Glob(pattern)):
                if link and not self._tree.is_file(name):
                    continue
                files.append(name)
                if len(files) > GLOB_FILES:
                    break
        return {"files": files[:GLOB_FILES], "truncated": len(files) > GLOB_FILES or budget.spent}

    def resolve(self, path: str, *, links: bool = True) -> str:
        """Return an existing path with all links resolved, for search programs."""
        with self._resolve_path(path, links) as inside, self._tree.open_path(inside, ANYTHING, links=links) as (
            _,
            names,
        ):
            return "/".join(names) or "."

    def build_search_filter(
        self, path: str = ".", *, glob: str = "", everything: bool = False, links: bool = True
    ) -> Callable[[str], bool]:
        """Return a predicate that is True for files that `grep` would search, to filter another program's results."""
        with self._resolve_path(path, links) as inside:
            base, is_file = self._resolve_search_root(inside, path, links)
        pattern = Glob(glob or "**")
        rules = IgnoreLookup(
            lambda folder: read_ignore_file(self._tree, f"{folder}/" if folder else ""), everything=everything
        )

        def keep(file: str) -> bool:
            if self._protected.is_secret(file.split("/")) or not any(self._text_blocks(file, WalkBudget())):
                return False
            if is_file:
                return file == base
            beneath = file[len(base) + 1 :] if base else file
            return pattern.matches(beneath) and not rules.is_ignored(file, base)

        return keep

    def list_searchable(
        self, path: str = ".", *, glob: str = "", everything: bool = False, links: bool = True
    ) -> GlobResult:
        """Return the files that `grep` searches."""
        budget = WalkBudget()
        with self._resolve_path(path, links) as inside:
            files = list(self._iterate_searchable(inside, path, glob, budget, everything, links))
        return {"files": files, "truncated": budget.spent}

    def grep(
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
        matches: list[GrepMatch] = []
        with self._resolve_path(path, links) as inside:
            for name in self._iterate_searchable(inside, path, glob, budget, everything, links):
                for line, text in search.find_lines(self._text_blocks(name, budget)):
                    if len(matches) == GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if budget.over:
                    break
        return {"matches": matches, "truncated": budget.spent}

    def verify_matches(self, matches: Iterable[GrepMatch]) -> list[GrepMatch]:
        """Return the matches of another program whose text is really in the workspace.

        A file may have been replaced by a link while that program searched by path.
        """
        files = groupby(matches, lambda match: match["file"])
        return [
            match for file, group in files for match in verify_matches(self._text_blocks(file, WalkBudget()), group)
        ]

    # -- changing --

    def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(path, content)
        with self._resolve_for_change(path, links) as inside:
            self._write_file(inside, path, data, links)
        return {"path": path, "bytes_written": len(data)}

    def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        occurrence: str = "only",
        links: bool = True,
    ) -> EditResult:
        with self._editing, self._resolve_for_change(path, links) as inside:
            with self._open_file(inside, path, links) as (fd, _):
                data = b"".join(read_blocks(fd, 0, EDIT_BYTES + 1))
            data, count = replace_text(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            self._write_file(inside, path, data, links)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    def mkdir(self, path: str) -> None:
        with self._resolve_for_change(path) as inside:
            try:
                self._make_folders(inside, path)
            except (NotADirectoryError, FileNotFoundError):  # a file, or a link to nothing
                with self._tree.open_parent(inside):  # raises if a parent folder is the problem
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None

    def move(self, source: str, target: str) -> None:
        with self._resolve_for_change(target) as there, self._resolve_path(source) as here, self._tree.open_parent(
            here
        ) as (folder, names, name):
            if not name:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            info = self._check_removal(folder, (*names, name), source)
            with self._open_target(there, target) as (new_folder, new_names, new_name):
                if stat.S_ISDIR(info.st_mode):
                    self._check_tree_unprotected(folder, (*names, name), (*new_names, new_name), source)
                    for depth in range(len(new_names) + 1) if self._guards_git else ():
                        above = "/".join(new_names[:depth]) or "."
                        self._check_git_settings(above, (*new_names, new_name), target, above=True)
                rename_exclusive(folder, name, new_folder, new_name, target)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        with self._resolve_path(path) as inside, self._tree.open_parent(inside) as (folder, names, name):
            if not name:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            info = self._check_removal(folder, (*names, name), path)
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(name, dir_fd=folder)
            elif recursive:
                self._check_tree_unprotected(folder, (*names, name), (*names, name), path)
                delete_tree(folder, name)
            else:
                os.rmdir(name, dir_fd=folder)

    # -- paths --

    @contextmanager
    def _resolve_path(self, path: str, links: bool = True) -> Iterator[str]:
        """Yield a given path relative to the workspace, and translate OSError to BackendError."""
        inside = self._tree.relative_path(check_path(path))
        if inside is None:
            raise BackendError(f"{path} is outside of the workspace; give a path inside {self.root}", "escapes")
        try:
            yield inside
        except OSError as error:
            if self._tree.fd < 0:
                raise BackendError("the workspace is closed", "not_running") from None
            raise to_backend_error(error, path, links=links) from None

    @contextmanager
    def _resolve_for_change(self, path: str, links: bool = True) -> Iterator[str]:
        """Yield a path as `_resolve_path` does, for a change; refuse a path that is protected by name."""
        with self._resolve_path(path, links) as inside:
            self._check_change(_split_path(inside), path)
            yield inside

    def _check_change(self, names: Sequence[str], path: str) -> None:
        if ".." in names:
            return
        self._protected.check_change(names, path)
        self._pinned.check_change(names, path)
        for depth in range(len(names)) if self._guards_git else ():
            folder = "/".join(names[:depth]) or "."
            parts = self._find_names(folder, ("HEAD", "commondir", "objects", "refs"))
            if "HEAD" in parts and ("commondir" in parts or len(parts) == 3):  # regardless of the folder's name
                message = f"{path} is protected: it is in a git directory, which names programs that git runs"
                raise BackendError(message, "protected")
            self._check_git_settings(folder, names, path)

    def _check_git_settings(self, folder: str, names: Sequence[str], path: str, *, above: bool = False) -> None:
        """Refuse to change a path that the git config of a folder names; with `above`, also its parent folders."""
        here = [*map(fold_name, names)]
        for trusted in find_trusted_paths(self._tree, folder) if self._find_names(folder, (GIT,)) else ():
            there = [*map(fold_name, trusted.split("/"))]
            if here[: len(there)] == there or (above and there[: len(here)] == here):
                raise BackendError(f"{path} is protected: the git config trusts {trusted}", "protected")

    def _find_names(self, folder: str, names: Sequence[str]) -> set[str]:
        """Return those of some names that a folder has; none if it cannot be opened."""
        try:
            with self._tree.open_path(folder, FOLDER) as (fd, _):
                return {name for name in names if lstat(name, fd)}
        except OSError:
            return set()

    def _check_removal(self, folder: int, names: Sequence[str], path: str) -> os.stat_result:
        """Check that a path can be moved or deleted, and return its stat."""
        self._check_change(names, path)
        self._pinned.check_removal(names, path)
        info = os.lstat(names[-1], dir_fd=folder)
        self._pinned.check_identity(self._tree, info, path)
        return info

    # -- files --

    @contextmanager
    def _open_file(self, inside: str, path: str, links: bool) -> Iterator[tuple[int, os.stat_result]]:
        """Open a regular file for reading; refuse files that may hold secrets."""
        with self._tree.open_path(inside, READ, links=links) as (fd, names):
            info = os.fstat(fd)
            check_regular(info, path)
            self._protected.check_read(names, path)
            yield fd, info

    def _resolve_search_root(self, inside: str, path: str, links: bool) -> tuple[str, bool]:
        """Return the resolved root of a search, and True if it is a file."""
        with self._tree.open_path(inside, ANYTHING, links=links) as (fd, names):
            info = os.fstat(fd)
        is_file = not stat.S_ISDIR(info.st_mode)
        if is_file:
            check_regular(info, path)
            self._protected.check_read(names, path)
        return "/".join(names), is_file

    def _iterate_searchable(
        self, inside: str, path: str, glob: str, budget: WalkBudget, everything: bool, links: bool
    ) -> Iterator[str]:
        base, is_file = self._resolve_search_root(inside, path, links)
        if is_file:
            yield base
            return
        for name, link in DiskWalk(self._tree, budget, everything=everything).files(base, Glob(glob or "**")):
            if not link and not self._protected.is_secret(name.split("/")):
                yield name

    def _text_blocks(self, path: str, budget: WalkBudget) -> Iterator[bytes]:
        """Yield the blocks of a text file, up to a NUL or the end of the budget."""
        try:
            fd = self._tree.open_folder(path, READ)
        except OSError:
            return
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or is_binary(os.pread(fd, BINARY_HEAD_BYTES, 0)):
                return
            for block in read_blocks(fd, 0, GREP_BYTES):
                if not budget.take_bytes(len(block)):
                    return
                text = cut_at_nul(block)
                yield text
                if len(text) < len(block):
                    return
        finally:
            os.close(fd)

    # -- creating and replacing --

    @contextmanager
    def _open_target(self, inside: str, path: str) -> Iterator[tuple[int, Names, str]]:
        """Open the parent folder of a new path; create missing folders."""
        with self._resolve_path(path):
            self._make_folders("/".join(_split_path(inside)[:-1]), path)
            with self._tree.open_parent(inside) as (folder, names, name):
                self._check_change((*names, name), path)
                yield folder, names, name

    def _write_file(self, inside: str, path: str, data: bytes, links: bool) -> None:
        if inside.endswith("/"):
            raise_os_error(errno.EISDIR)
        self._make_folders("/".join(_split_path(inside)[:-1]), path, links)
        target = self._follow_links(inside) if links else inside
        with self._tree.open_parent(target, links=links) as (folder, names, name):
            self._check_change((*names, name), path)
            info = lstat(name, folder) if name else os.fstat(folder)
            if info is not None:
                if not links and stat.S_ISLNK(info.st_mode):
                    raise_os_error(errno.ELOOP)
                self._pinned.check_identity(self._tree, info, path)
                check_regular(info, path)
                if not os.access(name, os.W_OK, dir_fd=folder):
                    raise_os_error(errno.EACCES)
            replace_file(folder, name, data, info)

    def _follow_links(self, path: str) -> str:
        """Return the path that a write would change: the target of links, even if it does not exist."""
        for _ in range(MOST_LINKS):
            with self._tree.open_parent(path) as (folder, names, name):
                try:
                    link = os.readlink(name, dir_fd=folder)
                except OSError:
                    return "/".join([*names, name]) or "."
            inside = self._tree.relative_path(link)
            if inside is None:
                raise_os_error(errno.EXDEV)
            path = inside if link.startswith("/") else "/".join([*names, link])
        raise_os_error(errno.ELOOP)

    def _make_folders(self, inside: str, path: str, links: bool = True) -> None:
        """Create a folder and its missing parents."""
        with suppress(FileNotFoundError), self._tree.open_path(inside or ".", FOLDER, links=links):
            return
        parts = _split_path(inside)
        for depth in range(1, len(parts) + 1):
            with self._tree.open_parent("/".join(parts[:depth]), links=links) as (folder, names, name):
                if name:
                    self._check_change((*names, name), path)
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
        self._tree.resolve_names(inside, links=links)  # raises if an existing path is not a folder

    def _check_tree_unprotected(self, folder: int, names: Names, then: Names, path: str) -> None:
        """Raise BackendError if a folder holds a protected path, under its current or its new path."""
        budget, step, todo = WalkBudget(TREE_ENTRIES), FolderCursor(folder), [[names[-1]]]
        longest = self._protected.longest
        try:
            while todo:
                if todo[-1]:
                    step.enter(todo[-1].pop())
                    beneath = step.names[1:]
                    trails = [(*names, *beneath), (*then, *beneath)]
                    todo.append(self._list_unprotected(step, [trail[-longest:] for trail in trails], budget, path))
                else:
                    todo.pop()
                    if todo:
                        step.leave()
        finally:
            step.close()

    def _list_unprotected(self, step: FolderCursor, trails: list[Names], budget: WalkBudget, path: str) -> list[str]:
        """Return the subfolders of a folder; raise BackendError if an entry is protected."""
        folders = []
        with step.entries() as entries:
            for entry in entries:
                if any(self._protected.matches_last((*trail, entry.name)) for trail in trails):
                    raise BackendError(f"{path} holds {entry.name}, which is protected", "protected")
                if not budget.take_entry():
                    message = f"{path} holds too much to see whether some of it is protected; move or delete its parts"
                    raise BackendError(message, "protected")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
        return folders


def _split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
