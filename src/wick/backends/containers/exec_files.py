"""Files in a container without wickd: sh scripts, which the engine's exec runs as the container's user.

One script resolves a path with `readlink -f`, prints its stat, and reads or lists it. A change is a second script,
after wick has checked the resolved path. A link that appears between the two is followed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import stat
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from wick import constants
from wick.backends.containers.exec_commands import ExecRunner
from wick.errors import BackendError
from wick.workspace.os_errors import check_path, check_range, to_backend_error
from wick.workspace.protected import ProtectedNames
from wick.workspace.results import EditResult, FileLines, FileStat, FolderEntry, Listing, ReadResult, WriteResult
from wick.workspace.rooted_folder import file_type
from wick.workspace.text import build_content, encode_content, read_lines, replace_text

Names = tuple[str, ...]
TREE_BYTES = 12_000_000  # largest listing of a tree

START = "fail() { printf 'wick: %s' \"$1\" >&2; exit 99; }; LC_ALL=C; export LC_ALL"
# $1 the workspace, $2 a path in it, $3 whether a link at its end is followed, $4 whether links are followed at all.
# Resolve the part of the path that exists. Print the workspace, the resolved path, and its stat or the error of stat.
# The dots protect trailing newlines.
RESOLVE = f"""{START}
cd -P -- "$1" 2>/dev/null || fail ENOENT
root=$(pwd -P; printf .)
root=${{root%??}} path=./$2 at=. rest=$2/ missing=
while [ -z "$4" ] && [ "$rest" ]; do
    at=$at/${{rest%%/*}}; rest=${{rest#*/}}
    [ ! -L "$at" ] || fail ELOOP
done
[ "$3" ] || {{ missing=/${{path##*/}}; path=${{path%/*}}; }}
until [ -e "$path" ] || [ -L "$path" ] || [ "$path" = . ]; do missing=/${{path##*/}}$missing; path=${{path%/*}}; done
real=$(readlink -f "$path" && printf .) || case $(readlink "$path") in
    '' | [!/]* | "$root"/*) stat -L "$path" >/dev/null; exit 1 ;;
    *) fail EXDEV ;;
esac
real=${{real%??}}$missing
printf '%s\\0' "$root" "$real" "$(stat -c '%f %s %Y' "$real" 2>&1)"
"""
READ = """
[ -f "$real" ] || exit 0
[ -r "$real" ] || fail EACCES
tail -c "+$5" "$real" | head -c "$6"
"""
LIST = f"""
[ -d "$real" ] && [ ! -L "$real" ] || exit 0
cd "$real" 2>/dev/null && [ -r . ] || fail EACCES
find . -mindepth 1 $5 -exec stat -c '%f %s %n//' {{}} + 2>/dev/null | head -c {TREE_BYTES}
"""
# $1 a folder that is created, and then a command.
CHANGE = f'{START}; mkdir -p "$1" && shift && "$@"'
# $1 the file, $2 a temporary file, $3 the size of stdin, $4 the mode of the file that is replaced, if there is one.
WRITE = f"""{START}
mkdir -p "${{1%/*}}" || exit 1
[ ! -e "$1" ] || [ -w "$1" ] || fail EACCES
trap 'rm -f "$2"' EXIT
[ -z "$4" ] || umask 077
head -c "$3" >"$2" && [ "$(wc -c <"$2")" -eq "$3" ] || exit 1
[ -z "$4" ] || chmod "$4" "$2"
mv -f "$2" "$1"
"""
ERRNO = {os.strerror(code): code for code in errno.errorcode} | {name: code for code, name in errno.errorcode.items()}
ERRNO |= {
    "Symbolic link loop": errno.ELOOP,
    "Filename too long": errno.ENAMETOOLONG,
    "Quota exceeded": errno.EDQUOT,
}  # musl


class Place(NamedTuple):
    """A resolved path: its names beneath the workspace without links, its stat, and the output of a script about it."""

    root: str
    names: Names
    type: str = ""  # empty if there is nothing
    mode: int = 0
    size: int = 0
    modified: float = 0.0
    output: bytes = b""

    @property
    def folder(self) -> str:
        return "/".join((self.root, *self.names[:-1]))

    @property
    def path(self) -> str:
        return "/".join((self.root, *self.names))

    def list_entries(self) -> list[tuple[Names, str, int]]:
        """Return the names, type and size of everything that find and stat printed, sorted."""
        records = self.output.split(b"//\n")[:-1]  # no path has two slashes in a row; the last one may be cut
        fields = [record.split(b" ", 2) for record in records]
        return sorted(
            (tuple(os.fsdecode(path[2:]).split("/")), file_type(int(mode, 16)), int(size))
            for mode, size, path in fields
        )


class ExecFiles:
    """The files of a workspace in a container. Each method returns the same as the backend's method of that name."""

    def __init__(self, runner: ExecRunner, workdir: str, protect: Sequence[str]) -> None:
        self._runner, self._workdir, self._protected = runner, workdir, ProtectedNames(protect)
        self._editing = asyncio.Lock()

    async def stat(self, path: str) -> FileStat:
        place = await self._resolve(path, follow=False)
        if not place.type:
            _refuse(errno.ENOENT, path)
        size, mode = place.size if place.type in ("file", "link") else 0, stat.S_IMODE(place.mode)
        return {"path": path, "type": place.type, "size": size, "mode": mode, "modified": place.modified}

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing:
        place = await self._resolve(path, LIST, "-maxdepth 1", links=links)
        if place.type != "dir":
            _refuse(errno.ENOTDIR if place.type else errno.ENOENT, path)
        entries: list[FolderEntry] = [
            {"name": names[-1], "type": kind, "size": size if kind in ("file", "link") else 0}
            for names, kind, size in place.list_entries()
        ]
        is_cut = len(place.output) >= TREE_BYTES or len(entries) > constants.LIST_ENTRIES
        return {"path": path, "entries": entries[: constants.LIST_ENTRIES], "truncated": is_cut}

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        check_range(offset, limit)
        most = constants.FILE_READ_BYTES if limit is None else min(limit, constants.FILE_READ_BYTES)
        place = await self._read(path, offset, most, links)
        size = max(place.size, offset + len(place.output) if place.output else 0)
        return build_content(path, place.output, size, offset, exact=limit is not None)

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        check_range(offset, limit)
        place = await self._read(path, 0, constants.FILE_READ_BYTES, links)
        found = read_lines(path, [place.output], place.size, offset, limit)
        if place.size > len(place.output) and not found["truncated"]:
            message = f"without wickd, lines are counted in the first {constants.FILE_READ_BYTES} bytes of a file"
            raise BackendError(
                f"{message}; read a range of its bytes, or use execute: `sed -n 5,9p {path}`", "too_large"
            )
        return found

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        data = encode_content(content)
        if len(data) > constants.FILE_WRITE_BYTES:
            message = f"{path} would have {len(data)} bytes; the most is {constants.FILE_WRITE_BYTES}"
            raise BackendError(message, "too_large")
        place = await self._resolve(path.rstrip("/") or path, links=links)
        if path.endswith("/") or not place.names:
            _refuse(errno.EISDIR, path)
        await self._replace(place, path, data)
        return {"path": path, "bytes_written": len(data)}

    async def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, occurrence: str = "only", links: bool = True
    ) -> EditResult:
        async with self._editing:
            place = await self._read(path, 0, constants.EDIT_BYTES, links)
            if place.size > constants.EDIT_BYTES:
                message = f"{path} is larger than {constants.EDIT_BYTES} bytes; edit it by a command"
                raise BackendError(message, "too_large")
            data, count = replace_text(path, place.output, old, new, replace_all=replace_all, occurrence=occurrence)
            await self._replace(place, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        place = await self._resolve(path)
        self._protected.check_change(place.names, path)
        await self._run(path, CHANGE, place.path, "true")

    async def move(self, source: str, target: str) -> None:
        here, there = await self._resolve(source, LIST, follow=False), await self._resolve(target, follow=False)
        self._protected.check_change(there.names, target)
        self._check_change(here, there.names, source)
        if there.type or there.names[: len(here.names)] == here.names:
            _refuse(errno.EEXIST if there.type else errno.EINVAL, target)
        await self._run(target, CHANGE, there.folder, "mv", here.path, there.path)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        place = await self._resolve(path, LIST if recursive else "", follow=False)
        self._check_change(place, place.names, path)
        command = ["rmdir"] if place.type == "dir" and not recursive else ["rm", "-rf"]
        await self._run(path, CHANGE, place.folder, *command, place.path)

    def _check_change(self, place: Place, then: Names, path: str) -> None:
        """Raise if a path cannot be moved or deleted, or contains a protected path by its current or future name."""
        if not place.names:
            raise BackendError("the workspace itself cannot be moved or deleted", "invalid")
        self._protected.check_change(place.names, path)
        if not place.type:
            _refuse(errno.ENOENT, path)
        for names, _, _ in place.list_entries():
            if self._protected.matches_last(place.names + names) or self._protected.matches_last(then + names):
                raise BackendError(f"{path} holds {names[-1]}, which is protected", "protected")
        if len(place.output) >= TREE_BYTES:
            message = f"{path} holds too much to check it for protected files; move or delete its parts"
            raise BackendError(message, "too_large")

    async def _read(self, path: str, offset: int, most: int, links: bool) -> Place:
        place = await self._resolve(path, READ, str(offset + 1), str(most), links=links)
        _check_file(place, path)
        self._protected.check_read(place.names, path)
        return place

    async def _replace(self, place: Place, path: str, data: bytes) -> None:
        """Replace a file: write it under a temporary name, and rename it."""
        self._protected.check_change(place.names, path)
        if place.type:
            _check_file(place, path)
        temporary, mode = f"{place.folder}/.wick-{secrets.token_hex(8)}", stat.S_IMODE(place.mode) & 0o1777
        like = f"{mode:o}" if place.type else ""
        await self._run(path, WRITE, place.path, temporary, str(len(data)), like, stdin=data)

    async def _resolve(self, path: str, script: str = "", *args: str, follow: bool = True, links: bool = True) -> Place:
        """Return the place of a path, and the output of a script there."""
        inner = check_path(path)
        if f"{path}/".startswith(f"{self._workdir}/"):
            inner = path.removeprefix(self._workdir).lstrip("/") or "."
        inner = inner if follow else inner.rstrip("/") or inner
        follow = follow or inner.rpartition("/")[2] in (".", "..")
        flags = ["1" if flag else "" for flag in (follow, links)]
        if inner.startswith("/"):
            _refuse(errno.EXDEV, path)
        reply = await self._run(path, RESOLVE + script, self._workdir, inner, *flags, *args, links=links)
        root, real, about, output = reply.split(b"\0", 3)
        if not (real + b"/").startswith(root + b"/"):
            _refuse(errno.EXDEV, path)
        names = tuple(name for name in os.fsdecode(real.removeprefix(root)).split("/") if name)
        if ".." in names:  # of a folder that was missing
            _refuse(errno.ENOENT, path)
        if found := re.fullmatch(rb"([0-9a-f]+) (\d+) (\d+)", about):
            mode = int(found[1], 16)
            return Place(os.fsdecode(root), names, file_type(mode), mode, int(found[2]), float(found[3]), output)
        if _find_errno(about) != errno.ENOENT:
            _raise_error(about, path)
        return Place(os.fsdecode(root), names)

    async def _run(self, path: str, script: str, *args: str, stdin: bytes = b"", links: bool = True) -> bytes:
        """Run a script about a path; raise the error that it prints."""
        try:
            async with asyncio.timeout(constants.FILE_SECONDS):
                code, output, errors = await self._runner.run_script(script, *args, stdin=stdin)
        except TimeoutError:
            raise BackendError(f"{path} took longer than {constants.FILE_SECONDS:g} s", "failed") from None
        if code:
            _raise_error(errors or b"exit code %d" % code, path, links=links)
        return output


def _check_file(place: Place, path: str) -> None:
    if place.type in ("", "dir"):
        _refuse(errno.EISDIR if place.type else errno.ENOENT, path)
    if place.type != "file":
        raise BackendError(f"{path} is not a regular file", "not_a_file")


def _find_errno(message: bytes) -> int:
    """Return the errno at the end of a script's or a program's message, or 0."""
    return ERRNO.get(message.decode(errors="replace").strip().rpartition(": ")[2], 0)


def _raise_error(message: bytes, path: str, *, links: bool = True) -> NoReturn:
    if code := _find_errno(message):
        _refuse(code, path, links=links)
    raise BackendError(f"the container could not do it: {message.decode(errors='replace').strip()[-300:]}", "failed")


def _refuse(code: int, path: str, *, links: bool = True) -> NoReturn:
    raise to_backend_error(OSError(code, os.strerror(code)), path, links=links)
