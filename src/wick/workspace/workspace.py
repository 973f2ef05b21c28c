"""Files beneath a folder: what an agent reads, writes and searches, and nothing outside of it.

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
    FILE_WRITE_BYTES,
    GLOB_FILES,
    GREP_BYTES,
    GREP_MATCHES,
    LINES_SCAN_BYTES,
    LIST_ENTRIES,
    TREE_ENTRIES,
)
from wick.errors import BackendError
from wick.workspace.file_ops import READ, blocks, delete_tree, listed, lstat, rename, replace, size_of
from wick.workspace.git_config import find_trusted_paths
from wick.workspace.globs import Glob
from wick.workspace.grep import Search, standing
from wick.workspace.os_errors import check_range, check_regular, checked, explained, fail
from wick.workspace.pinned_files import Pinned
from wick.workspace.protected import GIT, PROTECTED, Protected, fold_name
from wick.workspace.results import Content, Edited, Found, Lines, Listing, Match, Matches, Stat, Written
from wick.workspace.rooted_folder import ANYTHING, FOLDER, MOST_LINKS, Beneath, Names, Step, kind
from wick.workspace.text import content_of, edited, encoded, is_binary, lines_of, searchable
from wick.workspace.walk import Budget, DiskWalk, Rules, ignore_text


class Workspace:
    """The files beneath a folder. Each method answers as a backend's method of that name does, but at once."""

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
            self._tree = Beneath(root, by_hand=by_hand)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            said = f"the workspace's folder {root} cannot be opened: {why}; make it first"
            raise BackendError(said, "not_found") from None
        protect = tuple(protect)
        self._protected, self._guards_git = Protected(protect), GIT in protect
        self._pinned = Pinned(pinned, fixed)
        self._editing = threading.Lock()  # two edits of a file at once would lose one of them

    @property
    def root(self) -> str:
        return self._tree.path

    def close(self) -> None:
        self._tree.close()

    # -- reading --

    def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        flags = os.O_RDONLY | os.O_DIRECTORY
        with self._asked(path, links) as inside, self._tree.opened(inside, flags, links=links) as (fd, _):
            budget = Budget()
            with os.scandir(fd) as found:
                seen = takewhile(lambda entry: budget.take(), found)
                names = heapq.nsmallest(LIST_ENTRIES + 1, (entry.name for entry in seen))
            entries = [entry for entry in (listed(name, fd) for name in names[:LIST_ENTRIES]) if entry]
        return {"path": path, "entries": entries, "truncated": len(names) > LIST_ENTRIES or budget.spent}

    def stat(self, path: str) -> Stat:
        with self._asked(path) as inside, self._tree.parent(inside) as (folder, _, name):
            found = os.lstat(name, dir_fd=folder) if name else os.fstat(folder)
        return {
            "path": path,
            "type": kind(found.st_mode),
            "size": size_of(found),
            "mode": stat.S_IMODE(found.st_mode),
            "modified": found.st_mtime,
        }

    def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> Content:
        check_range(offset, limit)
        with self._asked(path, links) as inside, self._file(inside, path, links) as (fd, found):
            most = FILE_READ_BYTES if limit is None else min(limit, FILE_READ_BYTES)
            data = b"".join(blocks(fd, offset, most))
        size = max(found.st_size, offset + len(data)) if data else found.st_size
        return content_of(path, data, size, offset, exact=limit is not None)

    def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> Lines:
        check_range(offset, limit)
        with self._asked(path, links) as inside, self._file(inside, path, links) as (fd, found):
            return lines_of(path, blocks(fd, 0, LINES_SCAN_BYTES + 1), found.st_size, offset, limit)

    def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> Found:
        pattern, path = self._seen_from(pattern, path)
        budget, files = Budget(), []
        with self._asked(path, links) as inside:
            start = "/".join(self._tree.names(inside, links=links))
            for name, link in DiskWalk(self._tree, budget, everything=everything).files(start, Glob(pattern)):
                if link and not self._leads_to_file(name):
                    continue
                files.append(name)
                if len(files) > GLOB_FILES:
                    break
        return {"files": files[:GLOB_FILES], "truncated": len(files) > GLOB_FILES or budget.spent}

    def real(self, path: str, *, links: bool = True) -> str:
        """The path of something that is there, without links: for programs that are to search in it."""
        with self._asked(path, links) as inside, self._tree.opened(inside, ANYTHING, links=links) as (_, names):
            return "/".join(names) or "."

    def keeps(
        self, path: str = ".", *, glob: str = "", everything: bool = False, links: bool = True
    ) -> Callable[[str], bool]:
        """Whether a file is one that grep looks into, for files that another program has found beneath a path."""
        with self._asked(path, links) as inside:
            base, is_file = self._base(inside, path, links)
        pattern = Glob(glob or "**")
        rules = Rules(lambda folder: ignore_text(self._tree, f"{folder}/" if folder else ""), everything=everything)

        def keep(file: str) -> bool:
            if self._protected.hides(file.split("/")) or not any(self._text_blocks(file, Budget())):
                return False
            if is_file:
                return file == base
            beneath = file[len(base) + 1 :] if base else file
            return pattern.fits(beneath) and not rules.left_out(file, base)

        return keep

    def searched(self, path: str = ".", *, glob: str = "", everything: bool = False, links: bool = True) -> Found:
        """The files that grep looks into."""
        budget = Budget()
        with self._asked(path, links) as inside:
            files = list(self._searched(inside, path, glob, budget, everything, links))
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
    ) -> Matches:
        search, budget = Search(pattern, ignore_case=ignore_case), Budget()
        matches: list[Match] = []
        with self._asked(path, links) as inside:
            for name in self._searched(inside, path, glob, budget, everything, links):
                for line, text in search.lines(self._text_blocks(name, budget)):
                    if len(matches) == GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if budget.over:
                    break
        return {"matches": matches, "truncated": budget.spent}

    def standing(self, matches: Iterable[Match]) -> list[Match]:
        """Those of some matches that stand in the workspace, for what another program has found by its paths.

        What a path leads to may have been exchanged for a link while that program searched.
        """
        files = groupby(matches, lambda match: match["file"])
        return [match for file, found in files for match in standing(self._text_blocks(file, Budget()), found)]

    # -- changing --

    def write(self, path: str, content: str | bytes, *, links: bool = True) -> Written:
        data = encoded(content)
        if len(data) > FILE_WRITE_BYTES:
            raise BackendError(f"{path} would have {len(data)} bytes; the most is {FILE_WRITE_BYTES}", "too_large")
        with self._changing(path, links) as inside:
            self._put(inside, path, data, links)
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
    ) -> Edited:
        with self._editing, self._changing(path, links) as inside:
            with self._file(inside, path, links) as (fd, found):
                data = b"" if found.st_size > EDIT_BYTES else b"".join(blocks(fd, 0, EDIT_BYTES + 1))
            if max(found.st_size, len(data)) > EDIT_BYTES:
                raise BackendError(f"{path} is larger than {EDIT_BYTES} bytes; edit it by a command", "too_large")
            data, count = edited(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            self._put(inside, path, data, links)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    def mkdir(self, path: str) -> None:
        with self._changing(path) as inside:
            try:
                self._make_folders(inside, path)
            except (NotADirectoryError, FileNotFoundError):  # a file, or a link to nothing
                with self._tree.parent(inside):  # what leads there is fine
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None

    def move(self, source: str, target: str) -> None:
        with self._changing(target) as there, self._asked(source) as here, self._tree.parent(here) as held:
            folder, names, name = held
            if not name:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            found = self._removable(folder, (*names, name), source)
            with self._place(there, target) as (new_folder, new_names, new_name):
                if stat.S_ISDIR(found.st_mode):
                    self._holds_nothing_protected(folder, (*names, name), (*new_names, new_name), source)
                    for depth in range(len(new_names) + 1) if self._guards_git else ():
                        above = "/".join(new_names[:depth]) or "."
                        self._check_git_settings(above, (*new_names, new_name), target, above=True)
                rename(folder, name, new_folder, new_name, target)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        with self._asked(path) as inside, self._tree.parent(inside) as (folder, names, name):
            if not name:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            found = self._removable(folder, (*names, name), path)
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=folder)
            elif recursive:
                self._holds_nothing_protected(folder, (*names, name), (*names, name), path)
                delete_tree(folder, name)
            else:
                os.rmdir(name, dir_fd=folder)

    # -- paths --

    @contextmanager
    def _asked(self, path: str, links: bool = True) -> Iterator[str]:
        """A path that somebody gave, seen from the workspace; what the system then says about it, as a sentence."""
        inside = self._tree.inside(checked(path))
        if inside is None:
            raise BackendError(f"{path} is outside of the workspace; give a path inside {self.root}", "escapes")
        try:
            yield inside
        except OSError as error:
            if self._tree.fd < 0:
                raise BackendError("the workspace is closed", "not_running") from None
            raise explained(error, path, links=links) from None

    @contextmanager
    def _changing(self, path: str, links: bool = True) -> Iterator[str]:
        """As `_asked`, for what is to be made or changed: nothing on the way is made if it is protected by its name."""
        with self._asked(path, links) as inside:
            self._may_change(_parts(inside), path)
            yield inside

    def _may_change(self, names: Sequence[str], path: str) -> None:
        if ".." in names:
            return
        self._protected.check_change(names, path)
        self._pinned.check_change(names, path)
        for depth in range(len(names)) if self._guards_git else ():
            folder = "/".join(names[:depth]) or "."
            if self._is_git_directory(folder):
                said = f"{path} is protected: it is in a git directory, which names programs that git runs"
                raise BackendError(said, "protected")
            self._check_git_settings(folder, names, path)

    def _check_git_settings(self, folder: str, names: Sequence[str], path: str, *, above: bool = False) -> None:
        """Refuse a change of a path that the git config of a folder names; with `above`, of what leads to it, too."""
        here = [*map(fold_name, names)]
        for trusted in find_trusted_paths(self._tree, folder) if self._has_git(folder) else ():
            there = [*map(fold_name, trusted.split("/"))]
            if here[: len(there)] == there or (above and there[: len(here)] == here):
                raise BackendError(f"{path} is protected: the git config trusts {trusted}", "protected")

    def _has_git(self, folder: str) -> bool:
        try:
            with self._tree.opened(folder, FOLDER) as (fd, _):
                return lstat(GIT, fd) is not None
        except OSError:
            return False

    def _is_git_directory(self, folder: str) -> bool:
        """Return True if git takes a folder for a git directory, whatever its name."""
        try:
            with self._tree.opened(folder, FOLDER) as (fd, _):
                parts = {name for name in ("HEAD", "commondir", "objects", "refs") if lstat(name, fd)}
        except OSError:
            return False
        return "HEAD" in parts and ("commondir" in parts or len(parts) == 3)

    def _removable(self, folder: int, names: Sequence[str], path: str) -> os.stat_result:
        """As `_may_change`, for something that gets another name or none; what it is."""
        self._may_change(names, path)
        self._pinned.check_removal(names, path)
        found = os.lstat(names[-1], dir_fd=folder)
        self._pinned.check_identity(self._tree, found, path)
        return found

    def _seen_from(self, pattern: str, path: str) -> tuple[str, str]:
        """An absolute pattern is one over the whole workspace."""
        if not pattern.startswith("/"):
            return pattern, path
        inside = self._tree.inside(pattern)
        if inside is None:
            raise BackendError(f"{pattern} is outside of the workspace; give a pattern inside {self.root}", "escapes")
        return f"./{inside}", "."

    # -- files --

    @contextmanager
    def _file(self, inside: str, path: str, links: bool) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file, open for reading."""
        with self._tree.opened(inside, READ, links=links) as (fd, names):
            found = os.fstat(fd)
            check_regular(found, path)
            self._protected.check_read(names, path)
            yield fd, found

    def _leads_to_file(self, path: str) -> bool:
        try:
            with self._tree.opened(path, ANYTHING) as (fd, _):
                return stat.S_ISREG(os.fstat(fd).st_mode)
        except OSError:
            return False

    def _base(self, inside: str, path: str, links: bool) -> tuple[str, bool]:
        """Where a search begins, as it is really called, and whether that is a file."""
        with self._tree.opened(inside, ANYTHING, links=links) as (fd, names):
            found = os.fstat(fd)
        is_file = not stat.S_ISDIR(found.st_mode)
        if is_file:
            check_regular(found, path)
            self._protected.check_read(names, path)
        return "/".join(names), is_file

    def _searched(
        self, inside: str, path: str, glob: str, budget: Budget, everything: bool, links: bool
    ) -> Iterator[str]:
        base, is_file = self._base(inside, path, links)
        if is_file:
            yield base
            return
        for name, link in DiskWalk(self._tree, budget, everything=everything).files(base, Glob(glob or "**")):
            if not link and not self._protected.hides(name.split("/")):
                yield name

    def _text_blocks(self, path: str, budget: Budget) -> Iterator[bytes]:
        """The bytes of a file, if it is still one and a text; they end at a NUL, and when the budget is spent."""
        try:
            fd = self._tree.folder(path, READ)
        except OSError:
            return
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or is_binary(os.pread(fd, BINARY_HEAD_BYTES, 0)):
                return
            for block in blocks(fd, 0, GREP_BYTES):
                if not budget.read(len(block)):
                    return
                text = searchable(block)
                yield text
                if len(text) < len(block):
                    return
        finally:
            os.close(fd)

    # -- making and replacing --

    @contextmanager
    def _place(self, inside: str, path: str) -> Iterator[tuple[int, Names, str]]:
        """Where something new is to be; the folders that lead there are made."""
        with self._asked(path):
            self._make_folders("/".join(_parts(inside)[:-1]), path)
            with self._tree.parent(inside) as (folder, names, name):
                self._may_change((*names, name), path)
                yield folder, names, name

    def _put(self, inside: str, path: str, data: bytes, links: bool) -> None:
        if inside.endswith("/"):
            fail(errno.EISDIR)
        self._make_folders("/".join(_parts(inside)[:-1]), path, links)
        with self._tree.parent(self._linked(inside) if links else inside, links=links) as (folder, names, name):
            self._may_change((*names, name), path)
            found = lstat(name, folder) if name else os.fstat(folder)
            if found is not None:
                if not links and stat.S_ISLNK(found.st_mode):
                    fail(errno.ELOOP)
                self._pinned.check_identity(self._tree, found, path)
                check_regular(found, path)
                if not os.access(name, os.W_OK, dir_fd=folder):
                    fail(errno.EACCES)
            replace(folder, name, data, found)

    def _linked(self, path: str) -> str:
        """Where a write to a path goes: what a link leads to, whether it is there or not."""
        for _ in range(MOST_LINKS):
            with self._tree.parent(path) as (folder, names, name):
                try:
                    link = os.readlink(name, dir_fd=folder)
                except OSError:
                    return "/".join([*names, name]) or "."
            inside = self._tree.inside(link)
            if inside is None:
                fail(errno.EXDEV)
            path = inside if link.startswith("/") else "/".join([*names, link])
        fail(errno.ELOOP)

    def _make_folders(self, inside: str, path: str, links: bool = True) -> None:
        """Make a folder and those that lead to it, as far as they are missing."""
        with suppress(FileNotFoundError), self._tree.opened(inside or ".", FOLDER, links=links):
            return
        parts = _parts(inside)
        for depth in range(1, len(parts) + 1):
            with self._tree.parent("/".join(parts[:depth]), links=links) as (folder, names, name):
                if name:
                    self._may_change((*names, name), path)
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
        self._tree.names(inside, links=links)  # what was there already is a folder too

    def _holds_nothing_protected(self, folder: int, names: Names, then: Names, path: str) -> None:
        """Nothing beneath a folder is protected, by the names that lead to it or by those that will."""
        budget, step, todo = Budget(TREE_ENTRIES), Step(folder), [[names[-1]]]
        longest = self._protected.longest
        try:
            while todo:
                if todo[-1]:
                    step.into(todo[-1].pop())
                    beneath = step.names[1:]
                    trails = [(*names, *beneath), (*then, *beneath)]
                    todo.append(self._unprotected(step, [trail[-longest:] for trail in trails], budget, path))
                else:
                    todo.pop()
                    if todo:
                        step.up()
        finally:
            step.close()

    def _unprotected(self, step: Step, trails: list[Names], budget: Budget, path: str) -> list[str]:
        """The folders in a folder, in which nothing is protected."""
        folders = []
        with step.entries() as found:
            for entry in found:
                if any(self._protected.ends((*trail, entry.name)) for trail in trails):
                    raise BackendError(f"{path} holds {entry.name}, which is protected", "protected")
                if not budget.take():
                    said = f"{path} holds too much to see whether some of it is protected; move or delete its parts"
                    raise BackendError(said, "protected")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
        return folders


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
