"""Files beneath a folder: what an agent reads, writes and searches, and nothing outside of it.

    workspace = Workspace("./workspace")
    workspace.write("src/a.py", "x = 1\n")
    workspace.edit("src/a.py", "x = 1", "x = 2")
    workspace.grep(r"x = \\d", "src")

Every answer is one of wick.shapes, and what cannot be done is a BackendError: a sentence, and a code. What is later
trusted or run (see PROTECTED) cannot be changed from here, and files that hold secrets cannot be read, whatever link
leads to them.

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import heapq
import io
import os
import stat
import threading
import time
import unicodedata
from contextlib import contextmanager, suppress
from itertools import chain, islice, takewhile
from typing import Callable, Iterable, Iterator, List, Sequence, Tuple

from wick.beneath import ANYTHING, FOLDER, MOST_LINKS, NAME_BYTES, PATH_BYTES, Beneath, Names, Step, kind, libc
from wick.caps import (
    BINARY_HEAD_BYTES,
    DELETE_SECONDS,
    EDIT_BYTES,
    FILE_READ_BYTES,
    FILE_WRITE_BYTES,
    GLOB_FILES,
    GREP_BYTES,
    GREP_MATCHES,
    LINE_BYTES,
    LINES_SCAN_BYTES,
    LIST_ENTRIES,
    TREE_ENTRIES,
)
from wick.errors import BackendError
from wick.searching import (
    SECRET,
    Budget,
    Glob,
    Rules,
    Search,
    Test,
    Walk,
    codec,
    ignore_text,
    is_binary,
    name_test,
    text_of,
)
from wick.shapes import Content, Edited, Found, Lines, Listed, Listing, Match, Matches, Stat, Written

# What is trusted or run later. File tools do not change it, at any depth.
PROTECTED = (".git/hooks", ".git/config", ".wick", ".claude", *SECRET)

BLOCK_BYTES = 1_000_000  # read at once
BATCH = 10_000  # entries that a recursive delete holds in memory, of each folder on its way

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not make anybody wait


class Workspace:
    """The files beneath a folder. Each method answers as a backend's method of that name does, but at once."""

    def __init__(self, root: str, protect: Iterable[str] = PROTECTED, *, by_hand: bool = False) -> None:
        try:
            self._tree = Beneath(root, by_hand=by_hand)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            said = f"the workspace's folder {root} cannot be opened: {why}; make it first"
            raise BackendError(said, "not_found") from None
        self._protected = Protected(protect)
        self._editing = threading.Lock()  # two edits of a file at once would lose one of them

    @property
    def root(self) -> str:
        return self._tree.path

    def close(self) -> None:
        self._tree.close()

    # -- reading --

    def ls(self, path: str = ".") -> Listing:
        with self._asked(path) as inside, self._tree.opened(inside, os.O_RDONLY | os.O_DIRECTORY) as (fd, _):
            budget = Budget()
            with os.scandir(fd) as found:
                seen = takewhile(lambda entry: budget.take(), found)
                names = heapq.nsmallest(LIST_ENTRIES + 1, (entry.name for entry in seen))
            entries = [entry for entry in (_listed(name, fd) for name in names[:LIST_ENTRIES]) if entry]
        return {"path": path, "entries": entries, "truncated": len(names) > LIST_ENTRIES or budget.spent}

    def stat(self, path: str) -> Stat:
        with self._asked(path) as inside, self._tree.parent(inside) as (folder, _, name):
            found = os.lstat(name, dir_fd=folder) if name else os.fstat(folder)
        return {
            "path": path,
            "type": kind(found.st_mode),
            "size": _size(found),
            "mode": stat.S_IMODE(found.st_mode),
            "modified": found.st_mtime,
        }

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> Content:
        check_range(offset, limit)
        with self._asked(path) as inside, self._file(inside, path) as (fd, found):
            most = FILE_READ_BYTES if limit is None else min(limit, FILE_READ_BYTES)
            data = b"".join(_blocks(fd, offset, most))
        size = max(found.st_size, offset + len(data)) if data else found.st_size
        return content_of(path, data, size, offset, exact=limit is not None)

    def lines(self, path: str, *, offset: int = 0, limit: int | None = None) -> Lines:
        check_range(offset, limit)
        with self._asked(path) as inside, self._file(inside, path) as (fd, found):
            return lines_of(path, _blocks(fd, 0, LINES_SCAN_BYTES + 1), found.st_size, offset, limit)

    def glob(self, pattern: str, path: str = ".", *, everything: bool = False) -> Found:
        pattern, path = self._seen_from(pattern, path)
        budget, files = Budget(), []
        with self._asked(path) as inside:
            start = "/".join(self._tree.names(inside))
            for name, link in Walk(self._tree, budget, everything=everything).files(start, Glob(pattern)):
                if link and not self._leads_to_file(name):
                    continue
                files.append(name)
                if len(files) > GLOB_FILES:
                    break
        return {"files": files[:GLOB_FILES], "truncated": len(files) > GLOB_FILES or budget.spent}

    def real(self, path: str) -> str:
        """The path of something that is there, without links: for programs that are to search in it."""
        with self._asked(path) as inside, self._tree.opened(inside, ANYTHING) as (_, names):
            return "/".join(names) or "."

    def keeps(self, path: str = ".", *, glob: str = "", everything: bool = False) -> Callable[[str], bool]:
        """Whether a file is one that grep looks into, for files that another program has found beneath a path."""
        with self._asked(path) as inside:
            base, is_file = self._base(inside, path)
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

    def searched(self, path: str = ".", *, glob: str = "", everything: bool = False) -> Found:
        """The files that grep looks into."""
        budget = Budget()
        with self._asked(path) as inside:
            files = list(self._searched(inside, path, glob, budget, everything))
        return {"files": files, "truncated": budget.spent}

    def grep(
        self, pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
    ) -> Matches:
        search, budget = Search(pattern, ignore_case=ignore_case), Budget()
        matches: list[Match] = []
        with self._asked(path) as inside:
            for name in self._searched(inside, path, glob, budget, everything):
                for line, text in search.lines(self._text_blocks(name, budget)):
                    if len(matches) == GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if budget.over:
                    break
        return {"matches": matches, "truncated": budget.spent}

    # -- changing --

    def write(self, path: str, content: str | bytes) -> Written:
        data = encoded(content)
        if len(data) > FILE_WRITE_BYTES:
            raise BackendError(f"{path} would have {len(data)} bytes; the most is {FILE_WRITE_BYTES}", "too_large")
        with self._changing(path) as inside:
            self._put(inside, path, data)
        return {"path": path, "bytes_written": len(data)}

    def edit(self, path: str, old: str, new: str, *, replace_all: bool = False, occurrence: str = "only") -> Edited:
        with self._editing, self._changing(path) as inside:
            with self._file(inside, path) as (fd, found):
                data = b"" if found.st_size > EDIT_BYTES else b"".join(_blocks(fd, 0, EDIT_BYTES + 1))
            if max(found.st_size, len(data)) > EDIT_BYTES:
                raise BackendError(f"{path} is larger than {EDIT_BYTES} bytes; edit it by a command", "too_large")
            data, count = edited(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            self._put(inside, path, data)
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
            self._may_change((*names, name), source)
            found = os.lstat(name, dir_fd=folder)
            with self._place(there, target) as (new_folder, new_names, new_name):
                if stat.S_ISDIR(found.st_mode):
                    self._holds_nothing_protected(folder, (*names, name), (*new_names, new_name), source)
                _rename(folder, name, new_folder, new_name, target)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        with self._asked(path) as inside, self._tree.parent(inside) as (folder, names, name):
            if not name:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            self._may_change((*names, name), path)
            if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                os.unlink(name, dir_fd=folder)
            elif recursive:
                self._holds_nothing_protected(folder, (*names, name), (*names, name), path)
                _delete_tree(folder, name)
            else:
                os.rmdir(name, dir_fd=folder)

    # -- paths --

    @contextmanager
    def _asked(self, path: str) -> Iterator[str]:
        """A path that somebody gave, seen from the workspace; what the system then says about it, as a sentence."""
        inside = self._tree.inside(checked(path))
        if inside is None:
            raise BackendError(f"{path} is outside of the workspace; give a path inside {self.root}", "escapes")
        try:
            yield inside
        except OSError as error:
            if self._tree.fd < 0:
                raise BackendError("the workspace is closed", "not_running") from None
            raise explained(error, path) from None

    @contextmanager
    def _changing(self, path: str) -> Iterator[str]:
        """As `_asked`, for what is to be made or changed: nothing on the way is made if it is protected by its name."""
        with self._asked(path) as inside:
            self._may_change(_parts(inside), path)
            yield inside

    def _may_change(self, names: Sequence[str], path: str) -> None:
        if ".." not in names and self._protected.covers(names):
            said = f"{path} is protected: it is trusted or run later, so file tools do not change it"
            raise BackendError(said, "protected")

    def _may_read(self, names: Sequence[str], path: str) -> None:
        if self._protected.hides(names):
            said = f"{path} is protected: it may hold secrets, so file tools do not read it"
            raise BackendError(said, "protected")

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
    def _file(self, inside: str, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file, open for reading."""
        with self._tree.opened(inside, _READ) as (fd, names):
            found = os.fstat(fd)
            _check_regular(found, path)
            self._may_read(names, path)
            yield fd, found

    def _leads_to_file(self, path: str) -> bool:
        try:
            with self._tree.opened(path, ANYTHING) as (fd, _):
                return stat.S_ISREG(os.fstat(fd).st_mode)
        except OSError:
            return False

    def _base(self, inside: str, path: str) -> tuple[str, bool]:
        """Where a search begins, as it is really called, and whether that is a file."""
        with self._tree.opened(inside, ANYTHING) as (fd, names):
            found = os.fstat(fd)
        is_file = not stat.S_ISDIR(found.st_mode)
        if is_file:
            _check_regular(found, path)
            self._may_read(names, path)
        return "/".join(names), is_file

    def _searched(self, inside: str, path: str, glob: str, budget: Budget, everything: bool) -> Iterator[str]:
        base, is_file = self._base(inside, path)
        if is_file:
            yield base
            return
        for name, link in Walk(self._tree, budget, everything=everything).files(base, Glob(glob or "**")):
            if not link and not self._protected.hides(name.split("/")):
                yield name

    def _text_blocks(self, path: str, budget: Budget) -> Iterator[bytes]:
        """The bytes of a file, if it is still one and a text; they end at a NUL, and when the budget is spent."""
        try:
            fd = self._tree.folder(path, _READ)
        except OSError:
            return
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or is_binary(os.pread(fd, BINARY_HEAD_BYTES, 0)):
                return
            for block in _blocks(fd, 0, GREP_BYTES):
                if not budget.read(len(block)):
                    return
                cut = block.find(b"\0")
                yield block if cut < 0 else block[: block.rfind(b"\n", 0, cut) + 1]
                if cut >= 0:
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

    def _put(self, inside: str, path: str, data: bytes) -> None:
        if inside.endswith("/"):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._make_folders("/".join(_parts(inside)[:-1]), path)
        with self._tree.parent(self._linked(inside)) as (folder, names, name):
            self._may_change((*names, name), path)
            found = _lstat(name, folder) if name else os.fstat(folder)
            if found is not None:
                _check_regular(found, path)
                if not os.access(name, os.W_OK, dir_fd=folder):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            _replace(folder, name, data, found)

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
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            path = inside if link.startswith("/") else "/".join([*names, link])
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _make_folders(self, inside: str, path: str) -> None:
        """Make a folder and those that lead to it, as far as they are missing."""
        with suppress(FileNotFoundError), self._tree.opened(inside or ".", FOLDER):
            return
        parts = _parts(inside)
        for depth in range(1, len(parts) + 1):
            with self._tree.parent("/".join(parts[:depth])) as (folder, names, name):
                if name:
                    self._may_change((*names, name), path)
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
        self._tree.names(inside)  # what was there already is a folder too

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


# -- what is protected ----------------------------------------------------------------------------------------------


class Protected:
    """Names that file tools leave alone, at any depth: a name, or several with slashes between, with `*` and `?`."""

    def __init__(self, patterns: Iterable[str] = PROTECTED) -> None:
        texts = tuple(patterns)
        self._rules = _name_rules(texts)
        self._hidden = _name_rules(text for text in texts if text in SECRET)
        self.longest = max(map(len, self._rules), default=1)  # how many names one of them has

    def covers(self, names: Sequence[str]) -> bool:
        """Whether the path of these names is protected, or something that leads to it."""
        return _covers(self._rules, names)

    def ends(self, names: Sequence[str]) -> bool:
        """Whether the last of these names is protected; cheaper, where those before it are known not to be."""
        return _ends(self._rules, names)

    def hides(self, names: Sequence[str]) -> bool:
        """Whether what is there is not even read."""
        return _covers(self._hidden, names)


_Rules = List[Tuple[Test, ...]]


def _name_rules(patterns: Iterable[str]) -> _Rules:
    return [tuple(name_test(_folded(part)) or part.__eq__ for part in text.split("/") if part) for text in patterns]


def _covers(rules: _Rules, names: Sequence[str]) -> bool:
    return any(_ends(rules, names[: depth + 1]) for depth in range(len(names)))


def _ends(rules: _Rules, names: Sequence[str]) -> bool:
    last = _folded(names[-1])
    for rule in rules:
        if not rule[-1](last) or len(rule) > len(names):
            continue
        if all(test(_folded(name)) for test, name in zip(rule, names[len(names) - len(rule) :])):
            return True
    return False


def _folded(name: str) -> str:
    """A name as file systems see it that do not tell upper from lower case, or pass over invisible characters."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFD", name).casefold()
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")


# -- texts ----------------------------------------------------------------------------------------------------------


def content_of(path: str, data: bytes, size: int, offset: int, *, exact: bool = True) -> Content:
    """Bytes of a file as text if they are, else as base64. Unless `exact`, no character is cut in two at the end."""
    text = None if b"\0" in data else _utf8(data)
    if text is None and not exact and offset + len(data) < size and b"\0" not in data:
        shorter = next((data[:-cut] for cut in (1, 2, 3) if _utf8(data[:-cut]) is not None), None)
        data, text = (data, None) if shorter is None else (shorter, _utf8(shorter))
    return {
        "path": path,
        "content": base64.b64encode(data).decode() if text is None else text,
        "encoding": "base64" if text is None else "utf-8",
        "size": size,
        "offset": offset,
        "bytes": len(data),
        "truncated": offset + len(data) < size,
    }


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def lines_of(path: str, blocks: Iterable[bytes], size: int, offset: int, limit: int | None) -> Lines:
    """Some lines of a text that comes in blocks, without holding more of it than is shown."""
    blocks = iter(blocks)
    first = next(blocks, b"")
    if first[:2] in _UTF16:
        first = _from_utf16(path, b"".join([first, *blocks] if size <= EDIT_BYTES else [first]), size)
    elif is_binary(first):
        raise _not_text(path)
    shown: list[str] = []
    left, more = FILE_READ_BYTES, False
    for line in _cut_lines(chain([first], blocks), offset, path):
        if line is not None:
            shown.append(line)
            left -= len(line)
        elif len(shown) == limit or left <= 0:
            more = True
            break
    return {"path": path, "content": "".join(shown), "offset": offset, "lines": len(shown), "truncated": more}


def _from_utf16(path: str, data: bytes, size: int) -> bytes:
    if size > EDIT_BYTES:
        raise BackendError(f"{path} is UTF-16 and larger than {EDIT_BYTES} bytes; read it by a command", "too_large")
    return data[2:].decode(_UTF16[data[:2]], "replace").encode("utf-8", "replace")


def _cut_lines(blocks: Iterable[bytes], offset: int, path: str) -> Iterator[str | None]:
    """The lines from a number on: None as each begins, then the line; of a very long one its beginning."""
    number = scanned = lost = 0
    line, begun = bytearray(), False
    for block in blocks:
        scanned += len(block)
        if scanned > LINES_SCAN_BYTES:
            raise BackendError(f"{path} is too large to count its lines; read a range of its bytes", "too_large")
        ends = block.count(b"\n")
        if number + ends < offset:
            number += ends
            continue
        for piece in _line_pieces(block):
            if number >= offset:
                if not begun:
                    yield None
                begun, room = True, LINE_BYTES - len(line)
                line += piece[:room]
                lost += len(piece[room:])
            if piece.endswith(b"\n"):
                if begun:
                    yield _shown_line(bytes(line), lost, True)
                number, lost, line, begun = number + 1, 0, bytearray(), False
    if begun:
        yield _shown_line(bytes(line), lost, False)


def _line_pieces(block: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(block):
        end = block.find(b"\n", at) + 1 or len(block)
        yield block[at:end]
        at = end


def _shown_line(line: bytes, lost: int, ended: bool) -> str:
    if not lost:
        return text_of(line)
    return f"{text_of(line)}… [{lost - ended} more bytes]" + ("\n" if ended else "")


def edited(
    path: str, data: bytes, old: str, new: str, *, replace_all: bool = False, occurrence: str = "only"
) -> tuple[bytes, int]:
    """A file's bytes with a text replaced, and how often. Nothing else in it changes, whatever its encoding.

    A text without \\r means either end of a line, and what replaces it gets the ends that were there.
    """
    if not old:
        raise BackendError("the old text is empty; give a text that occurs in the file", "invalid")
    if occurrence not in ("only", "first"):
        raise BackendError(f"occurrence is 'only' or 'first', not {occurrence!r}", "invalid")
    mark, encoding, errors = _encoding(path, data)
    edit = _Edit(data[len(mark) :].decode(encoding, errors), old, new)
    if not edit.count:
        raise BackendError("old_text not found in file", "no_match")
    if edit.count > 1 and not replace_all and occurrence == "only":
        said = f"old_text occurs {edit.count} times in {path}; give more of the text around it, or replace all"
        raise BackendError(said, "not_unique")
    count = edit.count if replace_all else 1
    if len(data) + count * 2 * len(new) > FILE_WRITE_BYTES + count * len(old):
        raise BackendError(f"{path} would be larger than {FILE_WRITE_BYTES} bytes", "too_large")
    try:
        return mark + edit.done(count).encode(encoding, errors), count
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise BackendError(f"{path} is {encoding}, which cannot hold {odd!r}", "invalid") from None


def _encoding(path: str, data: bytes) -> tuple[bytes, str, str]:
    """The mark that a file begins with, its encoding, and how to keep bytes that do not belong to it."""
    if data[:2] in _UTF16 and len(data) % 2 == 0:
        return data[:2], _UTF16[data[:2]], "surrogatepass"
    if is_binary(data):
        raise _not_text(path)
    return (b"", *codec(data))


def _not_text(path: str) -> BackendError:
    return BackendError(f"{path} is a binary file, not a text", "binary")


class _Edit:
    """A text to be replaced in another. If it does not say how its lines end, they end as they do there."""

    def __init__(self, text: str, old: str, new: str) -> None:
        windows, every = text.count("\r\n"), text.count("\n")
        self._text, self._old, self._new = text, old, new
        self._mixed = 0 < windows < every and "\n" in old and "\r" not in old
        if self._mixed:
            self._plain = text.replace("\r\n", "\n")
            self.count = self._plain.count(old)
            return
        if windows == every and "\r" not in old:
            self._old = _windows(old)
        if "\r\n" in self._old if "\n" in old else windows * 2 > every:
            self._new = _windows(new)
        self.count = text.count(self._old)

    def done(self, count: int) -> str:
        """The text with the first so many replaced."""
        if not self._mixed:
            return self._text.replace(self._old, self._new, count)
        place, done, at = _Place(self._text), io.StringIO(), 0
        for start, end in islice(self._spans(), count):
            start, end = place.of(start), place.of(end)
            done.write(self._text[at:start])
            done.write(_windows(self._new) if "\r\n" in self._text[start:end] else self._new)
            at = end
        return done.getvalue() + self._text[at:]

    def _spans(self) -> Iterator[tuple[int, int]]:
        at = self._plain.find(self._old)
        while at >= 0:
            yield at, at + len(self._old)
            at = self._plain.find(self._old, at + len(self._old))


def _windows(text: str) -> str:
    return text if "\r" in text else text.replace("\n", "\r\n")


class _Place:
    """From places in a text whose lines end in \\n back to the text as it was; asked in ascending order."""

    def __init__(self, text: str) -> None:
        self._text, self._plain, self._real = text, 0, 0

    def of(self, plain: int) -> int:
        ahead = plain - self._plain
        real, before = self._real + ahead, -1
        while real != before:  # each \r\n on the way moves the place one further
            before, real = real, self._real + ahead + self._text.count("\r\n", self._real, real)
        if self._text[real - 1 : real + 1] == "\r\n":
            real += 1
        self._plain, self._real = plain, real
        return real


# -- descriptors ----------------------------------------------------------------------------------------------------


def _blocks(fd: int, offset: int, most: int) -> Iterator[bytes]:
    while most > 0:
        block = os.pread(fd, min(most, BLOCK_BYTES), offset)
        if not block:
            return
        yield block
        offset, most = offset + len(block), most - len(block)


def _listed(name: str, folder: int) -> Listed | None:
    found = _lstat(name, folder)
    return {"name": name, "type": kind(found.st_mode), "size": _size(found)} if found else None


def _size(found: os.stat_result) -> int:
    return found.st_size if kind(found.st_mode) in ("file", "link") else 0


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def _replace(folder: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """Put a file into a folder in one go: whoever looks sees the old one or the new one, whole."""
    temporary = f".wick-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if like is not None:
            _take_after(fd, folder, name, like)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(fd)


def _take_after(fd: int, folder: int, name: str, like: os.stat_result) -> None:
    """Give a file the owner, the mode and the attributes of the one it replaces, as far as that is allowed."""
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        with suppress(OSError):
            os.fchown(fd, -1, like.st_gid)
        with suppress(OSError):
            os.fchown(fd, like.st_uid, -1)
    os.fchmod(fd, stat.S_IMODE(like.st_mode) & 0o1777)  # new bytes do not run as somebody else
    with suppress(OSError, AttributeError):  # no such attributes on this system
        _copy_attributes(fd, folder, name)


def _copy_attributes(fd: int, folder: int, name: str) -> None:
    source = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder)
    try:
        for key in os.listxattr(source):
            if key.startswith("user.") or key == "system.posix_acl_access":
                os.setxattr(fd, key, os.getxattr(source, key))
    finally:
        os.close(source)


_NOREPLACE = 1


def _rename(folder: int, name: str, new_folder: int, new_name: str, path: str) -> None:
    """Rename, but never over something that is there."""
    renameat2 = getattr(libc, "renameat2", None)
    code = errno.ENOSYS if new_name else errno.EEXIST
    if renameat2 is not None and new_name:
        if renameat2(folder, os.fsencode(name), new_folder, os.fsencode(new_name), _NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):  # which a file system says that does not know how
        raise _not_renamed(code, path)
    if _lstat(new_name, new_folder) is not None:
        raise _not_renamed(errno.EEXIST, path)
    os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)


def _not_renamed(code: int, path: str) -> OSError | BackendError:
    if code == errno.EEXIST:
        return BackendError(f"{path} exists already; delete it first, or choose another name", "exists")
    if code == errno.EXDEV:
        return BackendError(f"{path} is on another file system; copy and delete instead", "unsupported")
    return OSError(code, os.strerror(code))


def _delete_tree(folder: int, name: str) -> None:
    """Delete a folder and all that is in it, however deep that is. No link is followed."""
    until = time.monotonic() + DELETE_SECONDS
    step, todo = Step(folder), [[name]]  # folders that are left, of each one on the way
    try:
        while todo[0]:
            if todo[-1]:
                step.into(todo[-1][-1])
                todo.append(_emptied(step))
            elif _removed(step):
                todo.pop()
                todo[-1].pop()
            else:
                todo[-1] = _emptied(step)
            if time.monotonic() > until:
                raise BackendError("there is so much to delete that some is left; delete it again", "failed")
    finally:
        step.close()


def _emptied(step: Step) -> list[str]:
    """Delete what is no folder, and return the folders: of one batch, as there may be very many."""
    with step.entries() as found:
        batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, BATCH)]
    for name, folder in batch:
        if not folder:
            os.unlink(name, dir_fd=step.fd)
    return [name for name, folder in batch if folder]


def _removed(step: Step) -> bool:
    """Leave a folder and delete it; False, and back in it, if there was more in it than a batch."""
    name = step.up()
    try:
        os.rmdir(name, dir_fd=step.fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        step.into(name)
        return False
    return True


# -- sentences ------------------------------------------------------------------------------------------------------

_SAID: dict[int, tuple[str, str]] = {
    errno.ENOENT: ("not_found", "there is no {path}"),
    errno.EEXIST: ("exists", "{path} exists already"),
    errno.EISDIR: ("is_directory", "{path} is a folder"),
    errno.ENOTDIR: ("not_directory", "{path} is not a folder, or something that leads to it is not"),
    errno.ENOTEMPTY: ("not_empty", "{path} is not empty; delete what is in it too, recursively, if that is meant"),
    errno.EXDEV: ("escapes", "{path} leads out of the workspace; give a path inside it"),
    errno.ELOOP: ("loop", "{path} leads through too many links, or round in a circle"),
    errno.ENAMETOOLONG: ("invalid", "{path} is too long"),
    errno.EINVAL: ("invalid", "{path} cannot be used like that"),
    errno.EILSEQ: ("invalid", "{path} has a name that the file system does not allow"),
    errno.EACCES: ("denied", "{path} may not be used like that: permission denied"),
    errno.EPERM: ("denied", "{path} may not be used like that: not permitted"),
    errno.EROFS: ("denied", "{path} is on a read-only file system"),
    errno.EBUSY: ("denied", "{path} is in use by the system"),
    errno.ETXTBSY: ("denied", "{path} is a program that is running"),
    errno.ENOSPC: ("no_space", "there is no space left for {path}"),
    errno.EDQUOT: ("no_space", "there is no space left for {path}: the quota is used up"),
    errno.EFBIG: ("too_large", "{path} would be too large"),
    errno.ENXIO: ("not_a_file", "{path} is not a regular file"),
    errno.ENODEV: ("not_a_file", "{path} is not a regular file"),
}


def explained(error: OSError, path: str) -> BackendError:
    code, sentence = _SAID.get(error.errno or 0, ("failed", "{path} could not be used: " + (error.strerror or "error")))
    return BackendError(sentence.replace("{path}", path), code)


def checked(path: str) -> str:
    """A path that can be one."""
    if not path or "\0" in path:
        raise BackendError("a path is a text that is not empty and has no NUL in it", "invalid")
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise BackendError("a path holds characters that no file name can have", "invalid") from None
    if len(data) > PATH_BYTES or any(len(part) > NAME_BYTES for part in data.split(b"/")):
        said = f"a path has at most {PATH_BYTES} bytes and each name in it at most {NAME_BYTES}"
        raise BackendError(said, "invalid")
    return path


def check_range(offset: int, limit: int | None) -> None:
    if offset < 0 or (limit is not None and limit < 0):
        raise BackendError("offset and limit are numbers from 0 on", "invalid")


def _check_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise BackendError(f"{path} is not a regular file", "not_a_file")


def encoded(content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError:
        raise BackendError("the text holds half characters that cannot be written; give bytes", "invalid") from None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


_checked, _check_range, _encoded, _explained = checked, check_range, encoded, explained  # as some still call them
