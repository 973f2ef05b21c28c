"""File operations in a container without Python: one constant sh script, with the container's coreutils or busybox.

Each operation is one conversation with the script (shell_protocol). The script resolves the path and reports its type;
wick decides by the same rules as for any workspace; the script then executes the decision. A process in the container
may change the path in between. The effect of that race is confined to the container.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Literal, NoReturn

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.containers.exec_commands import ExecRunner
from wick.backends.containers.shell_protocol import BLOCK, SCRIPT, TREE_BYTES, Place, Talk
from wick.backends.containers.shell_scripts import MARK, escaped
from wick.backends.containers.shell_tree import Tree, TreeWalk, records
from wick.errors import BackendError
from wick.workspace.globs import Glob
from wick.workspace.grep import LineSearch
from wick.workspace.os_errors import check_path, check_range, raise_os_error, to_backend_error
from wick.workspace.protected import PROTECTED, ProtectedNames
from wick.workspace.results import (
    EditResult,
    FileLines,
    FileStat,
    FolderEntry,
    GlobResult,
    GrepMatch,
    GrepResult,
    Listing,
    ReadResult,
    WriteResult,
)
from wick.workspace.rooted_folder import file_type
from wick.workspace.text import build_content, cut_at_nul, encode_content, is_binary, read_lines, replace_text
from wick.workspace.walk import WalkBudget

HELD_BYTES = 64_000_000  # of one file that is searched


class ShellFiles:
    """The files of a workspace in a container; each method answers as a backend's method of that name does."""

    def __init__(self, plain: ExecRunner, root: str, protect: Sequence[str] = PROTECTED) -> None:
        self._plain, self._root, self._protected = plain, root, ProtectedNames(protect)
        self._editing = asyncio.Lock()

    # -- reading ----------------------------------------------------------------------------------------------------

    async def stat(self, path: str) -> FileStat:
        async with self._talk(path, follow=False) as talk:
            place = talk.place
            _there(place)
            await talk.do("end")
        return {
            "path": path,
            "type": place.type,
            "size": place.shown_size,
            "mode": stat.S_IMODE(place.mode),
            "modified": float(place.modified),
        }

    async def enter(self, path: str) -> None:
        """Nothing, if a path is a folder of the workspace."""
        async with self._talk(path) as talk:
            _folder(talk.place)
            await talk.do("end")

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        async with self._talk(path, links=links) as talk:
            place = talk.place
            _folder(place)
            await talk.tell(f"list {TREE_BYTES}")
            said = await talk.all(TREE_BYTES)
        entries: list[FolderEntry] = [
            {"name": name, "type": file_type(mode), "size": size if file_type(mode) in ("file", "link") else 0}
            for name, mode, size in sorted(records(said))
        ]
        cut = len(said) >= TREE_BYTES or len(entries) > constants.LIST_ENTRIES
        return {"path": path, "entries": entries[: constants.LIST_ENTRIES], "truncated": cut}

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        most = constants.FILE_READ_BYTES if limit is None else min(limit, constants.FILE_READ_BYTES)
        async with self._talk(path, links=links) as talk:
            place = talk.place
            self._may_read(place, path)
            data = await _range(talk, offset, most) if most else b""
            if not most:
                await talk.do("end")
        return build_content(
            path, data, max(place.size, offset + len(data) if data else 0), offset, exact=limit is not None
        )

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        most = 2 * constants.FILE_READ_BYTES
        async with self._talk(path, links=links) as talk:
            place = talk.place
            self._may_read(place, path)
            await talk.tell(f"lines {offset + 1} {most}")
            head = await talk.exactly(min(place.size, BLOCK))
            data = await talk.all(most)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return await self._utf16_lines(path, offset, limit, links)
        if is_binary(head):
            read_lines(path, [head], place.size, 0, limit)  # says so
        found = read_lines(path, [data], len(data), 0, limit)
        return {**found, "offset": offset, "truncated": found["truncated"] or len(data) >= most}

    async def _utf16_lines(self, path: str, offset: int, limit: int | None, links: bool) -> FileLines:
        """Its newlines are not those that tail counts."""
        async with self._talk(path, links=links) as talk:
            place = talk.place
            self._may_read(place, path)
            data = await _range(talk, 0, constants.EDIT_BYTES)
        return read_lines(path, [data], place.size, offset, limit)

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        if pattern.startswith("/"):
            pattern, path = f"./{self._inside(pattern)}", "."
        wanted, budget = Glob(pattern), WalkBudget()
        tree = await self._tree(path, everything, links)
        if tree.file is not None:
            _fail_at(errno.ENOTDIR, path)
        files = list[str]()
        for name, link in TreeWalk(tree, budget, everything=everything).files("/".join(tree.start), wanted):
            if link and not await self._leads_to_file(name):
                continue
            files.append(name)
            if len(files) > constants.GLOB_FILES:
                break
        cut = len(files) > constants.GLOB_FILES or budget.spent or tree.cut
        return {"files": files[: constants.GLOB_FILES], "truncated": cut}

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
        search, wanted, budget = LineSearch(pattern, ignore_case=ignore_case), Glob(glob or "**"), WalkBudget()
        tree = await self._tree(path, everything, links)
        if tree.file is not None:
            self._may_read(tree.file, path)
            files = ["/".join(tree.file.names)]
        else:
            found = TreeWalk(tree, budget, everything=everything).files("/".join(tree.start), wanted)
            files = [name for name, link in found if not link and not self._protected.is_secret(name.split("/"))]
        matches = list[GrepMatch]()
        async with aclosing(self._texts(files)) as texts:
            async for name, data in texts:
                for line, text in await run_in_thread(partial(_matches, search, data), "grep"):
                    if len(matches) == constants.GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if not budget.take_bytes(len(data)):
                    break
        return {"matches": matches, "truncated": budget.spent or tree.cut}

    # -- changing ---------------------------------------------------------------------------------------------------

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(content)
        if len(data) > constants.FILE_WRITE_BYTES:
            raise BackendError(
                f"{path} would have {len(data)} bytes; the most is {constants.FILE_WRITE_BYTES}", "too_large"
            )
        if path.endswith("/"):
            self._inside(path)
            _fail_at(errno.EISDIR, path)
        async with self._talk(path, links=links) as talk:
            place = talk.place
            await self._put(talk, place, path, data)
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
        async with self._editing:
            async with self._talk(path, links=links) as talk:
                place = talk.place
                self._protected.check_change(place.names, path)
                self._may_read(place, path)
                if place.size > constants.EDIT_BYTES:
                    raise BackendError(
                        f"{path} is larger than {constants.EDIT_BYTES} bytes; edit it by a command", "too_large"
                    )
                data = await _range(talk, 0, constants.EDIT_BYTES)
            data, count = replace_text(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            async with self._talk(path, links=links) as talk:
                place = talk.place
                await self._put(talk, place, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        async with self._talk(path) as talk:
            place = talk.place
            self._protected.check_change(place.names, path)
            if place.there and place.type != "dir":
                raise_os_error(errno.EEXIST)
            await talk.do("mkdir")

    async def move(self, source: str, target: str) -> None:
        async with self._talk(source, follow=False, target=target) as talk:
            here, there = talk.place, talk.target
            if not here.names:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            _there(here)
            self._protected.check_change(here.names, source)
            self._protected.check_change(there.names, target)
            if here.type == "dir":
                await self._holds_nothing_protected(talk, here.names, there.names, source)
            if there.there:
                _fail_at(errno.EEXIST, target)
            if there.names[: len(here.names)] == here.names:
                _fail_at(errno.EINVAL, target)
            await talk.do("rename")

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        async with self._talk(path, follow=False) as talk:
            place = talk.place
            if not place.names:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            self._protected.check_change(place.names, path)
            _there(place)
            if place.type != "dir":
                return await talk.do("unlink")
            if not recursive:
                return await talk.do("rmdir")
            await self._holds_nothing_protected(talk, place.names, place.names, path)
            await talk.do("rmtree")

    # -- talking ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _talk(
        self, path: str, *, follow: bool = True, target: str | None = None, links: bool = True
    ) -> AsyncIterator[Talk]:
        """Look at a path, or two; what the script then says went wrong is explained as for any workspace."""
        mark = secrets.token_hex(12)
        args = [escaped(self._root), escaped(self._inside(path)), "refuse" if not links else "follow" if follow else ""]
        args += ["", ""] if target is None else [escaped(self._inside(target)), ""]
        process = await self._plain.start(["sh", "-c", SCRIPT, "wick", *args], stdin=True, env={MARK: mark})
        try:
            async with asyncio.timeout(constants.FILE_SECONDS):
                talk = Talk(process)
                await talk.look(two=target is not None)
                yield talk
        except TimeoutError:
            await self._plain.end(mark, gently=False)
            raise BackendError(f"{path} took longer than {constants.FILE_SECONDS:g} s", "failed") from None
        except asyncio.CancelledError:
            await asyncio.shield(self._plain.end(mark, gently=False))
            raise
        except OSError as error:
            raise to_backend_error(error, path, links=links) from None
        finally:
            process.close()  # the script, if it still waits to be told something, ends with its input

    def _inside(self, path: str) -> str:
        """A path as seen from the workspace."""
        check_path(path)
        if not path.startswith("/"):
            return path
        if path == self._root or path.startswith(f"{self._root}/"):
            return path[len(self._root) :].lstrip("/") or "."
        raise BackendError(f"{path} is outside of the workspace; give a path inside {self._root}", "escapes")

    def _may_read(self, place: Place, path: str) -> None:
        _there(place)
        if place.type == "dir":
            raise_os_error(errno.EISDIR)
        if place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        self._protected.check_read(place.names, path)

    async def _put(self, talk: Talk, place: Place, path: str, data: bytes) -> None:
        self._protected.check_change(place.names, path)
        if place.there and place.type == "dir":
            raise_os_error(errno.EISDIR)
        if place.there and place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        like = f"{stat.S_IMODE(place.mode) & 0o1777:o},{place.owner}" if place.there else "-"
        await talk.do(f"put {len(data)} {like} {secrets.token_hex(8)}", data)

    async def _holds_nothing_protected(
        self, talk: Talk, names: tuple[str, ...], then: tuple[str, ...], path: str
    ) -> None:
        await talk.tell(f"names {TREE_BYTES}")
        size = 0
        while name := await talk.field():
            size += len(name) + 1
            inner = tuple(os.fsdecode(name).split("/")[1:])
            held = self._protected.matches_last((*names, *inner)) or self._protected.matches_last((*then, *inner))
            if held or size >= TREE_BYTES:
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")

    # -- searching --------------------------------------------------------------------------------------------------

    async def _tree(self, path: str, everything: bool, links: bool) -> Tree:
        async with self._talk(path, links=links) as talk:
            place = talk.place
            _there(place)
            if place.type != "dir":
                await talk.do("end")
                return Tree(place.names, [], {}, False, place)
            await talk.tell(f"tree {TREE_BYTES} {'everything' if everything else '-'}")
            said = await talk.all(TREE_BYTES)
        start = place.names
        found = [((*start, *name.split("/")), mode) for name, mode, _ in records(said)]
        rules = dict[str, str]()
        if not everything:
            above = ["/".join((*start[:depth], ".gitignore")) for depth in range(len(start))]
            inner = ["/".join(names) for names, mode in found if names[-1] == ".gitignore" and stat.S_ISREG(mode)]
            async with aclosing(self._texts([*above, *inner], constants.IGNORE_BYTES)) as texts:
                async for name, data in texts:
                    rules[name] = data.decode("utf-8", "surrogateescape")
        return Tree(start, found, rules, len(said) >= TREE_BYTES)

    async def _texts(self, files: Sequence[str], most: int = HELD_BYTES) -> AsyncGenerator[tuple[str, bytes], None]:
        """The bytes of files, one after the other; of something that is no file, none."""
        if not files:
            return
        async with self._talk(".") as talk:
            await talk.tell(f"texts {most}")
            telling = asyncio.create_task(_tell_all(talk, files))
            try:
                for name in files:
                    size = await talk.field()
                    if not size.isdigit() or int(size) > most:
                        raise BackendError("a file changed while it was read", "failed")
                    yield name, await talk.exactly(int(size))
                await talk.finish()
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def _leads_to_file(self, path: str) -> bool:
        try:
            async with self._talk(path) as talk:
                place = talk.place
                await talk.do("end")
                return place.there and place.type == "file"
        except BackendError:
            return False


async def _range(talk: Talk, offset: int, most: int) -> bytes:
    """Bytes of the file; the script reads whole blocks."""
    first, last = offset // BLOCK, -(-(offset + most) // BLOCK)
    await talk.tell(f"bytes {first} {last - first}")
    data = await talk.all((last - first) * BLOCK)
    return data[offset - first * BLOCK :][:most]


async def _tell_all(talk: Talk, files: Sequence[str]) -> None:
    for name in files:
        await talk.tell(escaped(name))
    await talk.tell("end")


def _text(data: bytes) -> list[bytes]:
    """What is searched of a file: nothing if it is no text, and no more than up to where that shows."""
    return [] if is_binary(data) else [cut_at_nul(data)]


def _matches(search: LineSearch, data: bytes) -> list[tuple[int, str]]:
    """The lines that match, one more than are ever shown."""
    return list(islice(search.find_lines(_text(data)), constants.GREP_MATCHES + 1))


def _there(place: Place) -> None:
    if not place.there:
        raise_os_error(errno.ENOENT)


def _folder(place: Place) -> None:
    _there(place)
    if place.type != "dir":
        raise_os_error(errno.ENOTDIR)


def _fail_at(number: int, path: str) -> NoReturn:
    raise to_backend_error(OSError(number, os.strerror(number)), path)
