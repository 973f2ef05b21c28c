"""Files in a container without wickd: sh scripts, which the engine's exec runs as the container's user.

Scripts follow no links. So `..` is resolved by name, and protected names are checked before a script runs. A link
that appears while a script runs may be followed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import stat
from collections.abc import Sequence

from wick import constants
from wick.backends.containers.exec_commands import ExecRunner
from wick.errors import BackendError
from wick.workspace.os_errors import SENTENCES, check_path, check_range, to_backend_error
from wick.workspace.protected import ProtectedNames
from wick.workspace.results import EditResult, FileLines, FileStat, FolderEntry, Listing, ReadResult, WriteResult
from wick.workspace.rooted_folder import Names, file_type
from wick.workspace.text import build_content, encode_content, read_lines, replace_text

# $1 the workspace, $2 a path in it, $3 and $4 the arguments of a script.
START = """
LC_ALL=C; export LC_ALL
fail() { printf 'wick: %s' "$1" >&2; exit 1; }
check_parents() {
    at=. rest=${1#./}
    while [ "$rest" != "${rest#*/}" ]; do
        at=$at/${rest%%/*}; rest=${rest#*/}
        [ ! -L "$at" ] || fail ELOOP
        [ ! -e "$at" ] || [ -d "$at" ] || fail ENOTDIR
    done
}
path=./$2
cd -P -- "$1" 2>/dev/null || fail ENOENT
check_parents "$path"
"""
STAT = """stat -c '%f %s %Y %n' "$path" """
# A folder is checked like a parent. Entries may be deleted while they are listed.
LIST = """
check_parents "$path/"
find "$path" -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %Y %n//' {} + || { [ -r "$path" ] && [ -x "$path" ]; }
"""
LIST_TREE = 'find "$path" -mindepth 1 -print0'
FILE = """
[ ! -L "$path" ] || fail ELOOP
[ ! -d "$path" ] || fail EISDIR
[ ! -e "$path" ] || [ -f "$path" ] || fail ENXIO
"""
READ = f"""{FILE}
stat -c %s "$path" || exit
[ -r "$path" ] || fail EACCES
tail -c "+$3" "$path" | head -c "$4"
"""
WRITE = f"""{FILE}
[ ! -e "$path" ] || [ -w "$path" ] || fail EACCES
mkdir -p "${{path%/*}}" && new=$(mktemp "${{path%/*}}/.wick-XXXXXXXX") || exit
trap 'rm -f "$new"' EXIT
head -c "$3" >"$new" && [ "$(wc -c <"$new")" -eq "$3" ] || exit 1
mode=$(stat -c %a "$path" 2>/dev/null) || mode="=rw"  # without the bits of the umask
chmod "$mode" "$new" && chmod ug-s "$new" && mv -f "$new" "$path"
"""
MOVE = """
source=./$3
check_parents "$source"
[ ! -e "$path" ] && [ ! -L "$path" ] || fail EEXIST
case $path in "$source"/*) fail EINVAL ;; esac
mkdir -p "${path%/*}" && mv "$source" "$path"
"""
DELETE = """
[ "$3" ] || [ -L "$path" ] || [ ! -d "$path" ] || exec rmdir "$path"
exec rm $3 "$path"
"""
CODES = {os.strerror(code): code for code in SENTENCES} | {errno.errorcode[code]: code for code in SENTENCES}


class ExecFiles:
    """The files of a workspace in a container. Each method returns the same as the backend's method of that name.

    No link is followed, whatever `links` is.
    """

    def __init__(self, runner: ExecRunner, workdir: str, protect: Sequence[str]) -> None:
        self._runner, self._workdir, self._protected = runner, workdir, ProtectedNames(protect)
        self._editing = asyncio.Lock()

    async def stat(self, path: str) -> FileStat:
        return {**_parse_stat(await self._run(STAT, path)), "path": path}

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        records = (await self._run(LIST, path)).split(b"//\n")[:-1]  # no path has two slashes in a row
        found = sorted(map(_parse_stat, records), key=lambda entry: entry["path"])
        entries: list[FolderEntry] = [
            {"name": entry["path"].rpartition("/")[2], "type": entry["type"], "size": entry["size"]}
            for entry in found[: constants.LIST_ENTRIES]
        ]
        return {"path": path, "entries": entries, "truncated": len(found) > len(entries)}

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        most = constants.FILE_READ_BYTES if limit is None else min(limit, constants.FILE_READ_BYTES)
        data, size = await self._read(path, offset, most)
        return build_content(path, data, size, offset, exact=limit is not None)

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        data, size = await self._read(path, 0, constants.FILE_READ_BYTES)
        found = read_lines(path, [data], size, offset, limit)
        if size > len(data) and not found["truncated"]:
            raise BackendError(f"{path} is too large to count its lines; read a range of its bytes", "too_large")
        return found

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(path, content)
        self._protected.check_change(self._resolve(path), path)
        if path.endswith("/"):
            raise to_backend_error(IsADirectoryError(errno.EISDIR, ""), path)
        await self._run(WRITE, path, str(len(data)), stdin=data)
        return {"path": path, "bytes_written": len(data)}

    async def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, occurrence: str = "only", links: bool = True
    ) -> EditResult:
        async with self._editing:
            data, _ = await self._read(path, 0, constants.EDIT_BYTES + 1)
            data, count = replace_text(path, data, old, new, replace_all=replace_all, occurrence=occurrence)
            await self.write(path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        self._protected.check_change(self._resolve(path), path)
        await self._run('mkdir -p "$path"', path)

    async def move(self, source: str, target: str) -> None:
        here, there = self._resolve(source), self._resolve(target)
        self._protected.check_change(there, target)
        await self._check_removal(source, here, there)
        await self._run(MOVE, target, "/".join(here))

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        names = self._resolve(path)
        await self._check_removal(path, names, names)
        await self._run(DELETE, path, "-r" if recursive else "")

    async def _check_removal(self, path: str, names: Names, then: Names) -> None:
        """Raise if a path cannot be moved or deleted, or contains a protected path by its current or future name."""
        if not names:
            raise BackendError("the workspace itself cannot be moved or deleted", "invalid")
        self._protected.check_change(names, path)
        for found in (await self._run(LIST_TREE, path)).split(b"\0")[:-1]:
            inner = tuple(os.fsdecode(found).split("/"))[1 + len(names) :]
            if self._protected.matches_last(names + inner) or self._protected.matches_last(then + inner):
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")

    async def _read(self, path: str, offset: int, most: int) -> tuple[bytes, int]:
        """Return bytes of a file, and its size."""
        self._protected.check_read(self._resolve(path), path)
        size, _, data = (await self._run(READ, path, str(offset + 1), str(most))).partition(b"\n")
        return data, max(int(size), offset + len(data) if data else 0)

    def _resolve(self, path: str) -> Names:
        """Return the names of a path in the workspace, without `.` and `..`."""
        inner = posixpath.relpath(posixpath.join(self._workdir, check_path(path)), self._workdir)
        names = tuple(name for name in inner.split("/") if name != ".")
        if names[:1] == ("..",):
            raise to_backend_error(OSError(errno.EXDEV, ""), path)
        return names

    async def _run(self, script: str, path: str, *args: str, stdin: bytes = b"") -> bytes:
        """Run a script about a path; raise the error that it prints."""
        argv = (START + script, "wick", self._workdir, "/".join(self._resolve(path)) or ".", *args)
        code, output, errors = await self._runner.run_script(constants.FILE_SECONDS, *argv, stdin=stdin)
        if code:
            reason = errors.strip() or f"exit code {code}"
            known = CODES.get(reason.rpartition(": ")[2], 0)
            raise to_backend_error(OSError(known, reason[-300:]), path, links=False)
        return output


def _parse_stat(line: bytes) -> FileStat:
    mode, size, modified, path = os.fsdecode(line).split(" ", 3)
    kind, permissions = file_type(int(mode, 16)), stat.S_IMODE(int(mode, 16))
    shown = int(size) if kind in ("file", "link") else 0
    return {"path": path, "type": kind, "size": shown, "mode": permissions, "modified": float(modified)}
