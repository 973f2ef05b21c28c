"""Files in a container without wickd: the engine's archive API for content, and plain sh commands for the rest.

Paths are resolved name by name with the archive's HEAD request, which reports links. Content is read with GET, and
written with PUT under a temporary name. The commands list, rename and delete as the container's user, each in a folder
that it enters and compares with the resolved path. A link that appears between the check and a GET is followed.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import json
import os
import posixpath
import re
import secrets
import stat
import tarfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.containers.engine import Engine, EngineError, ProcessNotStarted
from wick.backends.containers.exec_commands import DECODE, ExecRunner, escape_argument
from wick.backends.containers.spec import ContainerSpec
from wick.errors import BackendError
from wick.workspace import results
from wick.workspace.globs import HEAVY, Glob
from wick.workspace.grep import LineSearch
from wick.workspace.os_errors import check_path, check_range, raise_os_error, to_backend_error
from wick.workspace.protected import ProtectedNames
from wick.workspace.rooted_folder import MOST_LINKS, file_type
from wick.workspace.text import build_content, cut_at_nul, encode_content, is_binary, read_lines, replace_text
from wick.workspace.walk import LINK, FileWalk, WalkBudget

Names = tuple[str, ...]
TREE_BYTES = 12_000_000  # largest listing of a tree
FETCH_BYTES = 64_000_000  # of a file: up to here lines are counted, and one file is searched
HEADER_BYTES = 65_536  # before the content of a file in an archive
TEXTS_AT_ONCE = 500  # files read by one command of a search

# Bits of a Go file mode, by their POSIX file types.
GO_TYPES = {1 << 31: stat.S_IFDIR, 1 << 27: stat.S_IFLNK, 1 << 26: stat.S_IFBLK, 1 << 25: stat.S_IFIFO}
GO_BITS = {1 << 23: stat.S_ISUID, 1 << 22: stat.S_ISGID, 1 << 20: stat.S_ISVTX}
GO_OTHER = 1 << 24 | 1 << 21 | 1 << 19  # sockets, devices and irregular files

SCRIPT = (
    DECODE
    + """
LC_ALL=C
export LC_ALL
fail() { printf 'wick:%s' "$1" >&2; exit 99; }
enter() {
    cd -- "$1" 2>/dev/null || { [ -d "$1" ] && fail EACCES; fail ENOENT; }
    [ "$(pwd -P; printf .)" = "$1
." ] || fail ELOOP
}
text "$1"; folder=$decoded
text "$2"; name=./$decoded
"""
)
ABOUT = f'{DECODE}text "$1"; id -u && id -G && cd -P -- "$decoded" && pwd -P'
LIST = (
    SCRIPT
    + """enter "$folder"
[ -r . ] || fail EACCES
find . -mindepth 1 $3 -exec stat -c '%f %s %n//' {} + 2>/dev/null | head -c "$4"
"""
)
PREPARE = (
    SCRIPT
    + """mkdir -p -- "$folder" || exit 1
enter "$folder"
[ -w . ] || fail EACCES
[ ! -e "$name" ] || [ -w "$name" ] || fail EACCES
[ ! -e "$name" ] || stat -c '%a %g' "$name"
"""
)
COMMIT = SCRIPT + 'enter "$folder"; mv -f "./$3" "$name" || { rm -f "./$3"; exit 1; }'
ENTER = SCRIPT + 'enter "$folder"'
READABLE = SCRIPT + 'enter "$folder"; [ -r "$name" ] || fail EACCES'
MKDIR = SCRIPT + 'enter "$folder"; mkdir -p "$name"'
MOVE = (
    SCRIPT
    + """text "$3"; there=$decoded
text "$4"; new=$there/$decoded
mkdir -p -- "$there" || exit 1
enter "$there"
enter "$folder"
[ ! -e "$new" ] && [ ! -L "$new" ] || fail EEXIST
mv "$name" "$new"
"""
)
DELETE = SCRIPT + 'enter "$folder"; [ -w . ] || fail EACCES; $3 "$name"'
TEXTS = (
    SCRIPT
    + """enter "$folder"
while IFS= read -r line; do
    [ "$line" ] || exit 0
    text "$line"
    file=./$decoded size=0
    [ -f "$file" ] && [ ! -L "$file" ] && [ -r "$file" ] && size=$(wc -c <"$file")
    [ "$size" -le "$3" ] || size=$3
    printf '%d\\0' "$size"
    [ "$size" -eq 0 ] || head -c "$size" "$file"
done
"""
)
HEAVY_FOLDERS = " -o ".join(f"-name {name}" for name in sorted(HEAVY))
RECORD = re.compile(rb"([0-9a-f]+) (\d+) \./", re.DOTALL)
ERRNO = {os.strerror(code): code for code in errno.errorcode}


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved path: its names beneath the workspace without links, and its stat."""

    names: Names
    exists: bool = False
    mode: int = 0
    size: int = 0
    modified: float = 0.0
    target: str = ""  # of a link, resolved by the engine

    @property
    def type(self) -> str:
        return file_type(self.mode)


class TreeWalk(FileWalk):
    """A walk over a listing; `found` has the names, mode and size of each entry."""

    def __init__(self, found: Sequence[tuple[Names, int, int]], rules: dict[str, str], *, everything: bool) -> None:
        super().__init__(WalkBudget(), everything=everything)
        self._rules, self._folders = rules, dict[str, list[str]]()
        self.sizes = {"/".join(names): size for names, _, size in found}
        for names, mode, _ in found:
            mark = {"dir": "/", "link": LINK, "file": ""}.get(file_type(mode))
            if mark is not None:
                self._folders.setdefault("".join(f"{name}/" for name in names[:-1]), []).append(names[-1] + mark)

    def entries(self, prefix: str) -> list[str]:
        return sorted(name for name in self._folders.get(prefix, []) if self.budget.take_entry())

    def ignore_text(self, prefix: str) -> str:
        return self._rules.get(f"{prefix}.gitignore", "")


class ArchiveFiles:
    """The files of a workspace in a container. Each method returns the same as the backend's method of that name."""

    def __init__(
        self, engine: Engine, spec: ContainerSpec, container: str, runner: ExecRunner, protect: Sequence[str]
    ) -> None:
        self._engine, self._path, self._runner = engine, f"/containers/{container}/archive", runner
        self._given, self._root, self._protected = spec.workdir, "", ProtectedNames(protect)
        self._in_memory = spec.read_only and not spec.is_mounted
        self._uid, self._groups = -1, [-1]
        self._editing = asyncio.Lock()

    # -- reading ----------------------------------------------------------------------------------------------------

    async def stat(self, path: str) -> results.FileStat:
        async with self._resolve(path, follow=False) as place:
            _check_exists(place)
        size, mode = place.size if place.type in ("file", "link") else 0, stat.S_IMODE(place.mode)
        return {"path": path, "type": place.type, "size": size, "mode": mode, "modified": place.modified}

    async def ls(self, path: str = ".", *, links: bool = True) -> results.Listing:
        async with self._resolve(path, links=links) as place:
            _check_folder(place)
            found, cut = await self._list(place.names, "-maxdepth 1")
        entries: list[results.FolderEntry] = [
            {"name": names[-1], "type": (kind := file_type(mode)), "size": size if kind in ("file", "link") else 0}
            for names, mode, size in found
        ]
        most = constants.LIST_ENTRIES
        return {"path": path, "entries": entries[:most], "truncated": cut or len(entries) > most}

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True
    ) -> results.ReadResult:
        check_range(offset, limit)
        most = constants.FILE_READ_BYTES if limit is None else min(limit, constants.FILE_READ_BYTES)
        async with self._resolve(path, links=links) as place:
            data = await self._fetch(place, path, offset, most)
        size = max(place.size, offset + len(data) if data else 0)
        return build_content(path, data, size, offset, exact=limit is not None)

    async def lines(
        self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True
    ) -> results.FileLines:
        check_range(offset, limit)
        async with self._resolve(path, links=links) as place:
            data = await self._fetch(place, path, 0, FETCH_BYTES)
        step = constants.ENGINE_BUFFER_BYTES
        blocks = (data[at : at + step] for at in range(0, len(data), step))
        found = await run_in_thread(lambda: read_lines(path, blocks, place.size, offset, limit), "lines")
        if place.size > len(data) and not found["truncated"]:
            message = f"{path} is larger than {FETCH_BYTES} bytes, so its last lines cannot be counted here"
            raise BackendError(f"{message}; read a range of its bytes, or use a command", "too_large")
        return found

    async def glob(
        self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True
    ) -> results.GlobResult:
        if pattern.startswith("/"):
            pattern, path = f"./{self._relative_path(pattern)}", "."
        wanted = Glob(pattern)
        async with self._resolve(path, links=links) as place:
            _check_folder(place)
            walk, cut = await self._walk(place.names, everything)
        files, most = list[str](), constants.GLOB_FILES
        for name, is_link in walk.files("/".join(place.names), wanted):
            if is_link and not await self._leads_to_file(name):
                continue
            files.append(name)
            if len(files) > most:
                break
        return {"files": files[:most], "truncated": len(files) > most or walk.budget.spent or cut}

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str = "",
        ignore_case: bool = False,
        everything: bool = False,
        links: bool = True,
    ) -> results.GrepResult:
        search, wanted = LineSearch(pattern, ignore_case=ignore_case), Glob(glob or "**")
        budget, cut, sizes = WalkBudget(), False, dict[str, int]()
        async with self._resolve(path, links=links) as place:
            _check_exists(place)
            if place.type == "dir":
                walk, cut = await self._walk(place.names, everything)
                budget, sizes, found = walk.budget, walk.sizes, walk.files("/".join(place.names), wanted)
                names = [name for name, link in found if not (link or self._protected.is_secret(name.split("/")))]
            else:
                self._check_read(place, path)
                names = ["/".join(place.names)]

            def find(data: bytes) -> list[tuple[int, str]]:
                blocks = [] if is_binary(data) else [cut_at_nul(data)]
                return list(islice(search.find_lines(blocks), constants.GREP_MATCHES + 1))

            matches = list[results.GrepMatch]()
            async for name, data in self._read_texts(names, FETCH_BYTES, sizes):
                for line, text in await run_in_thread(lambda data=data: find(data), "grep"):  # type: ignore[misc]
                    if len(matches) == constants.GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if not budget.take_bytes(len(data)):
                    break
        return {"matches": matches, "truncated": budget.spent or cut}

    # -- changing ---------------------------------------------------------------------------------------------------

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> results.WriteResult:
        data = encode_content(content)
        if len(data) > constants.FILE_WRITE_BYTES:
            message = f"{path} would have {len(data)} bytes; the most is {constants.FILE_WRITE_BYTES}"
            raise BackendError(message, "too_large")
        async with self._resolve(path.rstrip("/") or path, links=links) as place:
            if path.endswith("/"):
                raise_os_error(errno.EISDIR)
            await self._replace(place, path, data)
        return {"path": path, "bytes_written": len(data)}

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        occurrence: str = "only",
        links: bool = True,
    ) -> results.EditResult:
        async with self._editing, self._resolve(path, links=links) as place:
            self._protected.check_change(place.names, path)
            if place.size > constants.EDIT_BYTES and place.type == "file":
                message = f"{path} is larger than {constants.EDIT_BYTES} bytes; edit it by a command"
                raise BackendError(message, "too_large")
            data = await self._fetch(place, path, 0, constants.EDIT_BYTES)
            data, count = replace_text(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            await self._replace(place, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        async with self._resolve(path) as place:
            self._protected.check_change(place.names, path)
            if place.exists and place.type != "dir":
                raise_os_error(errno.EEXIST)
            await self._run(MKDIR, self._root, "/".join(place.names) or ".")

    async def move(self, source: str, target: str) -> None:
        async with self._resolve(source, follow=False) as here:
            if not here.names:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            _check_exists(here)
            self._protected.check_change(here.names, source)
        async with self._resolve(target, follow=False) as there:
            self._protected.check_change(there.names, target)
            if here.type == "dir":
                await self._check_nothing_protected(here.names, there.names, source)
            if there.exists:
                raise_os_error(errno.EEXIST)
            if there.names[: len(here.names)] == here.names:
                raise_os_error(errno.EINVAL)
            await self._run(MOVE, *self._split(here.names), *self._split(there.names))

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        async with self._resolve(path, follow=False) as place:
            if not place.names:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            self._protected.check_change(place.names, path)
            _check_exists(place)
            is_folder = place.type == "dir"
            if is_folder and recursive:
                await self._check_nothing_protected(place.names, place.names, path)
            command = "rm -f" if not is_folder else "rm -rf" if recursive else "rmdir"
            await self._run(DELETE, *self._split(place.names), command)

    # -- paths ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _resolve(self, path: str, *, follow: bool = True, links: bool = True) -> AsyncIterator[Place]:
        """Yield the place of a path, within a time limit; translate OSErrors into BackendErrors."""
        try:
            async with asyncio.timeout(constants.FILE_SECONDS):
                if not self._root:
                    await self._query_workspace()
                yield await self._find(self._relative_path(path), follow, links)
        except TimeoutError:
            raise BackendError(f"{path} took longer than {constants.FILE_SECONDS:g} s", "failed") from None
        except OSError as error:
            raise to_backend_error(error, path, links=links) from None

    async def _query_workspace(self) -> None:
        """Query the container for the user, the groups and the real path of the workspace."""
        if self._in_memory:
            message = "the workspace of a read-only container is in memory, where files need Python in the image"
            raise BackendError(f"{message}; mount a volume at {self._given}, or use commands", "unsupported")
        uid, groups, root = (await self._run(ABOUT, self._given)).split(b"\n")[:3]
        self._uid, self._groups, self._root = int(uid), [int(group) for group in groups.split()], os.fsdecode(root)

    def _relative_path(self, path: str) -> str:
        check_path(path)
        for root in {self._given, self._root or self._given} if path.startswith("/") else ():
            if path == root or path.startswith(f"{root}/"):
                return path[len(root) :].lstrip("/") or "."
        if path.startswith("/"):
            raise BackendError(f"{path} is outside of the workspace; give a path inside {self._given}", "escapes")
        return path

    async def _find(self, path: str, follow: bool, links: bool) -> Place:
        names, todo, followed = list[str](), path.split("/")[::-1], 0
        place = Place((), True, stat.S_IFDIR)
        while todo:
            name = todo.pop()
            if name == ".." and (not place.exists or not names):
                raise_os_error(errno.EXDEV if not names else errno.ENOENT)
            if name == "..":
                names.pop()
                continue
            if name in ("", "."):
                continue
            names.append(name)
            if place.exists:
                place = await self._stat((*names,))
            if place.type == "link" and (todo or follow):
                followed += 1
                if not links or followed > MOST_LINKS or not place.target:
                    raise_os_error(errno.ELOOP)
                if place.target != self._root and not place.target.startswith(f"{self._root}/"):
                    raise_os_error(errno.EXDEV)
                todo += place.target[len(self._root) :].split("/")[::-1]
                names, place = [], Place((), True, stat.S_IFDIR)
            elif todo and place.exists and place.type != "dir":
                raise_os_error(errno.ENOTDIR)
            elif todo and place.exists and place.mode & 0o111 != 0o111:  # the engine passes it as root
                await self._run(ENTER, posixpath.join(self._root, *names), ".")
        if place.exists and (not names or (*names,) != place.names):  # there is no name, or `..` was the last one
            place = await self._stat((*names,))
        return place if place.exists else Place((*names,))

    async def _stat(self, names: Names) -> Place:
        """Return the stat of a path, whose last name is not followed."""
        query = {"path": posixpath.join(self._root, *names)}
        try:
            async with self._engine.open("HEAD", self._path, query) as response:
                header = response.headers["X-Docker-Container-Path-Stat"]
        except EngineError as error:
            if error.status == 404:
                if not names:
                    raise ProcessNotStarted(str(error), error.code, error.status) from None
                await self._stat(())  # raises if the container is missing, as a response to HEAD does not tell
                return Place(names)
            if error.status < 500:
                raise
            try:
                await self._engine.request("GET", self._path, query)  # a response to HEAD has no message
            except EngineError as reason:
                if "too many links" in str(reason):  # they lead round in a circle
                    return Place(names, True, stat.S_IFLNK | 0o777)
            raise
        found = json.loads(base64.b64decode(header))
        modified = datetime.fromisoformat(found["mtime"]).timestamp()
        go_mode: int = found["mode"]
        kind = next((posix for bit, posix in GO_TYPES.items() if go_mode & bit), stat.S_IFREG)
        kind = stat.S_IFSOCK if go_mode & GO_OTHER else kind
        mode = kind | go_mode & 0o777 | sum(posix for bit, posix in GO_BITS.items() if go_mode & bit)
        return Place(names, True, mode, found["size"], modified, found["linkTarget"])

    def _split(self, names: Names) -> tuple[str, str]:
        return posixpath.join(self._root, *names[:-1]), names[-1]

    def _check_read(self, place: Place, path: str) -> None:
        _check_exists(place)
        if place.type == "dir":
            raise_os_error(errno.EISDIR)
        if place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        self._protected.check_read(place.names, path)

    async def _check_nothing_protected(self, names: Names, then: Names, path: str) -> None:
        """Raise if a folder contains a protected path, under its current or its future name."""
        found, cut = await self._list(names)
        for inner, _, _ in found:
            later = (*then, *inner[len(names) :])
            if self._protected.matches_last(inner) or self._protected.matches_last(later):
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")
        if cut:
            message = f"{path} holds too much to check it for protected files; move or delete its parts"
            raise BackendError(message, "too_large")

    async def _leads_to_file(self, path: str) -> bool:
        with suppress(BackendError):
            async with self._resolve(path) as place:
                return place.exists and place.type == "file"
        return False

    # -- content ----------------------------------------------------------------------------------------------------

    async def _fetch(self, place: Place, path: str, offset: int, most: int) -> bytes:
        """Return a range of a file's bytes. The archive begins at its first byte, so those before are skipped."""
        self._check_read(place, path)
        if place.mode & 0o444 != 0o444:  # the engine reads it as root
            await self._run(READABLE, *self._split(place.names))
        if any("\udc80" <= char <= "\udcff" for char in place.names[-1]):  # an archive has no names that are not UTF-8
            texts = self._read_texts(["/".join(place.names)], min(offset + most, FETCH_BYTES))
            return (await anext(texts))[1][offset:]
        head, data, member, skip = bytearray(), bytearray(), None, 0
        query = {"path": posixpath.join(self._root, *place.names)}
        async with self._engine.open("GET", self._path, query, seconds=constants.FILE_SECONDS) as response:
            async for chunk in response.content.iter_any():
                if member is None:
                    head += chunk
                    member = _parse_header(head)
                    if member is None and len(head) > HEADER_BYTES:
                        break
                    if member is not None:
                        skip, most = member.offset_data + offset, max(0, min(most, member.size - offset))
                        chunk = bytes(head)
                if member is not None:
                    data += chunk[skip:]
                    skip = max(0, skip - len(chunk))
                    if len(data) >= most:
                        break
        if member is None or not member.isreg():
            raise BackendError(f"{path} changed while it was read; read it again", "failed")
        return bytes(data[:most])

    async def _replace(self, place: Place, path: str, data: bytes) -> None:
        """Replace a file: upload it under a temporary name, and rename it as the container's user."""
        self._protected.check_change(place.names, path)
        if not place.names or (place.exists and place.type == "dir"):
            raise_os_error(errno.EISDIR)
        if place.exists and place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        folder, name = self._split(place.names)
        like = (await self._run(PREPARE, folder, name)).split()
        info = tarfile.TarInfo(f".wick-{secrets.token_hex(8)}")
        info.size, info.mtime, info.uid = len(data), int(time.time()), self._uid
        info.mode = int(like[0], 8) & 0o1777 if like else 0o644
        info.gid = int(like[1]) if like and int(like[1]) in self._groups else self._groups[0]
        archive = info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE)
        try:
            await self._engine.request("PUT", self._path, {"path": folder}, data=archive)
            await self._run(COMMIT, folder, name, info.name)
        except BaseException as error:
            with suppress(BackendError, OSError):
                await asyncio.shield(self._run(DELETE, folder, info.name, "rm -f"))
            if isinstance(error, EngineError) and (code := _find_errno(str(error))):
                raise_os_error(code)
            raise

    # -- commands ---------------------------------------------------------------------------------------------------

    async def _run(self, script: str, *args: str, stdin: bytes = b"", most: int = TREE_BYTES) -> bytes:
        code, output, errors = await self._runner.run_script(script, *args, stdin=stdin, most=most)
        if code == 0:
            return output
        message = errors.decode(errors="replace").strip()
        if number := _find_errno(message):
            raise_os_error(number)
        raise BackendError(f"the container could not do it: {message[-300:] or f'exit code {code}'}", "failed")

    async def _list(self, names: Names, options: str = "") -> tuple[list[tuple[Names, int, int]], bool]:
        """Return the names, mode and size of everything in a folder, sorted, and True if there is more."""
        script = LIST.replace("$3", options)
        output = await self._run(script, posixpath.join(self._root, *names), ".", "", str(TREE_BYTES))
        return sorted(_parse_records(output, names)), len(output) >= TREE_BYTES

    async def _walk(self, start: Names, everything: bool) -> tuple[TreeWalk, bool]:
        """Return a walk over a folder with the ignore files that count there, and True if it is incomplete."""
        options = "" if everything else rf"-type d \( {HEAVY_FOLDERS} \) -prune -o -mindepth 1"
        found, cut = await self._list(start, options)
        rules = dict[str, str]()
        if not everything:
            above = ["/".join((*start[:depth], ".gitignore")) for depth in range(len(start))]
            inner = ["/".join(names) for names, mode, _ in found if names[-1] == ".gitignore" and stat.S_ISREG(mode)]
            async for name, data in self._read_texts([*above, *inner], constants.IGNORE_BYTES):
                rules[name] = data.decode("utf-8", "surrogateescape")
        return TreeWalk(found, rules, everything=everything), cut

    async def _read_texts(
        self, files: Sequence[str], most: int, sizes: Mapping[str, int] | None = None
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the first bytes of each file, and none of what is not a readable file."""
        batch, total = list[str](), 0
        for number, file in enumerate(files, 1):
            batch.append(file)
            total += min((sizes or {}).get(file, 0), most)
            if number < len(files) and len(batch) < TEXTS_AT_ONCE and total < FETCH_BYTES:
                continue
            lines = "".join(f"{escape_argument(name)}\n" for name in batch) + "\n"
            output = await self._run(TEXTS, self._root, ".", str(most), stdin=lines.encode(), most=3 * FETCH_BYTES)
            end = 0
            for name in batch:
                start = output.find(b"\0", end) + 1
                size = output[end : max(start - 1, end)]
                if not size.isdigit() or (end := start + int(size)) > len(output):
                    raise BackendError(f"{name} changed while it was read; try again", "failed")
                yield name, output[start:end]
            batch, total = [], 0


def _parse_records(output: bytes, above: Names) -> Iterator[tuple[Names, int, int]]:
    """Yield the names, mode and size that find and stat printed. No path has two slashes in a row: they end one."""
    for record in output.split(b"//\n")[:-1]:  # the last one is empty, or was cut
        if found := RECORD.match(record):
            names = os.fsdecode(record[found.end() :]).split("/")
            yield (*above, *names), int(found[1], 16), int(found[2])


def _parse_header(head: bytearray) -> tarfile.TarInfo | None:
    """Return the first member of an archive, or None if its header is incomplete."""
    try:
        with tarfile.open(fileobj=io.BytesIO(head), mode="r:") as archive:
            return archive.next()
    except tarfile.TarError:
        return None


def _find_errno(message: str) -> int:
    """Return the errno that the messages of a script or of the engine name, or 0."""
    if found := re.search(r"wick:(E[A-Z]+)$", message):
        return int(getattr(errno, found[1], errno.EIO))
    return next(
        (ERRNO[end] for line in reversed(message.splitlines()) if (end := line.rpartition(": ")[2]) in ERRNO), 0
    )


def _check_exists(place: Place) -> None:
    if not place.exists:
        raise_os_error(errno.ENOENT)


def _check_folder(place: Place) -> None:
    _check_exists(place)
    if place.type != "dir":
        raise_os_error(errno.ENOTDIR)
