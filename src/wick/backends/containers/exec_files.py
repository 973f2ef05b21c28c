"""Files in a container without wickd: sh scripts, which the engine's exec runs as the container's user.

One script resolves a path name by name, prints where it leads, and reads or lists what is there. A change takes a
second script, after wick has checked the resolved path: it enters the folder, compares its path, and writes, renames or
deletes one name. A link that appears between the check of a name and its use is followed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.backends.containers.exec_commands import DECODE, ExecRunner
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
TEXTS_AT_ONCE = 2_000  # files read by one command of a search

FAIL = (
    DECODE
    + """
LC_ALL=C
export LC_ALL
fail() { printf 'wick:%s' "$1" >&2; exit 99; }
"""
)
# $1 the workspace, $2 the path, $3 whether a link at its end is followed, $4 whether links are followed at all. Enter
# the folder of the path as far as it exists. Print the workspace, this folder in it, the rest of the path and its stat.
RESOLVE = (
    FAIL
    + """
text "$1"; given=$decoded
text "$2"; target=$decoded
cd -P -- "$given" 2>/dev/null || fail ENOENT
root=$(pwd -P; printf .)
root=${root%??}
todo= name= missing= links=0 about=
while :; do
    case $target/ in
    "$root"/*) cd -- "$root" || fail EACCES; target=${target#"$root"} ;;
    "$given"/*) cd -- "$root" || fail EACCES; target=${target#"$given"} ;;
    /?*) fail EXDEV ;;
    esac
    [ -z "$target" ] || todo=$target/$todo target=
    if [ "$todo" ] && [ "$name" ]; then
        if [ "$missing" ] || [ ! -e "./$name" ]; then missing=$missing$name/
        elif [ ! -d "./$name" ]; then fail ENOTDIR
        else cd -P "./$name" 2>/dev/null || fail EACCES
        fi
        name=
    fi
    if [ "$todo" ]; then
        part=${todo%%/*}
        todo=${todo#*/}
        case $part in
        '' | .) ;;
        ..)
            [ -z "$missing" ] || fail ENOENT
            [ "$(pwd -P; printf .)" != "$root
." ] || fail EXDEV
            cd -P .. ;;
        *) name=$part ;;
        esac
    fi
    if [ "$name" ] && [ -z "$missing" ] && [ -L "./$name" ] && [ "$todo$3" ]; then
        links=$((links + 1))
        [ "$4" ] && [ $links -le MOST_LINKS ] || fail ELOOP
        target=$(readlink "./$name" && printf .) || fail EACCES
        target=${target%??}
        name=
    elif [ -z "$todo" ]; then break
    fi
done
here=$(pwd -P; printf .)
here=${here%??}
case $here/ in "$root"/*) ;; *) fail EXDEV ;; esac
[ "$missing" ] || about=$(stat -c '%f %s %g %Y %y' "./$name" 2>/dev/null)
here=${here#"$root"}
printf '%s\\0' "$root" "$here" "$missing$name" "$about"
""".replace("MOST_LINKS", str(MOST_LINKS))
)
READ = """
[ -f "./$name" ] || exit 0
[ -r "./$name" ] || fail EACCES
tail -c "+$5" "./$name" | head -c "$6"
"""
LIST = f"""
[ -d "./$name" ] && [ ! -L "./$name" ] || exit 0
cd "./$name" 2>/dev/null && [ -r . ] || fail EACCES
find . -mindepth 1 OPTIONS -exec stat -c '%f %s %n//' {{}} + 2>/dev/null | head -c {TREE_BYTES}
"""
HEAVY_FOLDERS = " -o ".join(f"-name {name}" for name in sorted(HEAVY))
LIST_FOLDER = LIST.replace("OPTIONS", "-maxdepth 1")
LIST_TREE = LIST.replace("OPTIONS", "")
LIST_LIGHT_TREE = LIST.replace("OPTIONS", rf"-type d \( {HEAVY_FOLDERS} \) -prune -o -mindepth 1")
RECORD = re.compile(rb"([0-9a-f]+) (\d+) \./", re.DOTALL)

# $1 a resolved folder, $2 a name in it. Enter it, unless a link leads there by now.
ENTER = (
    FAIL
    + """
text "$1"; folder=$decoded
text "$2"; name=./$decoded
enter() {
    cd -- "$1" 2>/dev/null || { [ -d "$1" ] && fail EACCES; fail ENOENT; }
    [ "$(pwd -P; printf .)" = "$1
." ] || fail ELOOP
}
"""
)
# $3 a temporary name, $4 the size of stdin, $5 and $6 mode and group of the file that is replaced, if there is one.
WRITE = (
    ENTER
    + """
mkdir -p -- "$folder" || exit 1
enter "$folder"
[ ! -e "$name" ] || [ -w "$name" ] || fail EACCES
trap 'rm -f "./$3"' EXIT
[ -z "$5" ] || umask 077
head -c "$4" >"./$3" || exit 1
[ "$(wc -c <"./$3")" -eq "$4" ] || exit 1
[ -z "$5" ] || { chgrp "$6" "./$3" 2>/dev/null; chmod "$5" "./$3"; }
mv -f "./$3" "$name"
"""
)
MKDIR = ENTER + 'enter "$folder"; mkdir -p "$name"'
MOVE = (
    ENTER
    + """
text "$3"; there=$decoded
text "$4"; new=$there/$decoded
mkdir -p -- "$there" || exit 1
enter "$there"
enter "$folder"
[ ! -e "$new" ] && [ ! -L "$new" ] || fail EEXIST
mv "$name" "$new"
"""
)
DELETE = ENTER + 'enter "$folder"; $3 "$name"'

# Run a line for each path of stdin, which has $3 bytes and no end. $4 and $5 are for the line.
EACH = (
    ENTER
    + """
enter "$folder"
most=$4 mark=$5
export folder most mark
head -c "$3" | xargs -0 sh -c 'for file; do
    LINE
done; :' sh
"""
)
# A mark, and the first bytes of a readable file.
TEXTS = EACH.replace(
    "LINE", 'printf %s "$mark"; [ -f "$file" ] && [ ! -L "$file" ] && [ -r "$file" ] && head -c "$most" "$file"'
)
# 1 if a link leads to a file in the folder, else 0.
LINKS = EACH.replace(
    "LINE",
    'to=$(readlink -f "$file"); case $to in "$folder"/*) [ -f "$to" ] ;; *) false ;; esac && printf 1 || printf 0',
)
ERRNO = {os.strerror(code): code for code in errno.errorcode}


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved path: its names beneath the workspace without links, its stat, and the output of a script about it."""

    root: str
    names: Names
    exists: bool
    mode: int = 0
    size: int = 0
    group: int = 0
    modified: float = 0.0
    output: bytes = b""

    @classmethod
    def parse(cls, reply: bytes) -> Place:
        root, folder, rest, about, output = reply.split(b"\0", 4)
        names = tuple(name for name in os.fsdecode(folder + b"/" + rest).split("/") if name)
        if not about:
            return cls(os.fsdecode(root), names, False)
        mode, size, group, seconds, _, clock, *_ = about.split()
        fraction = float(f"0.{clock.decode().partition('.')[2] or 0}")
        numbers = int(mode, 16), int(size), int(group), int(seconds) + fraction
        return cls(os.fsdecode(root), names, True, *numbers, output)

    @property
    def type(self) -> str:
        return file_type(self.mode)

    @property
    def parts(self) -> tuple[str, str]:
        """The folder, and the name in it."""
        return "/".join((self.root, *self.names[:-1])), self.names[-1]

    def list_entries(self) -> list[tuple[Names, int, int]]:
        """Return the names, mode and size of everything that find and stat printed, sorted."""
        found = []
        for record in self.output.split(b"//\n")[:-1]:  # no path has two slashes in a row; the last one may be cut
            if match := RECORD.match(record):
                names = os.fsdecode(record[match.end() :]).split("/")
                found.append(((*self.names, *names), int(match[1], 16), int(match[2])))
        return sorted(found)

    @property
    def is_cut(self) -> bool:
        return len(self.output) >= TREE_BYTES

    def check_exists(self) -> None:
        if not self.exists:
            raise_os_error(errno.ENOENT)

    def check_folder(self) -> None:
        self.check_exists()
        if self.type != "dir":
            raise_os_error(errno.ENOTDIR)


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


class ExecFiles:
    """The files of a workspace in a container. Each method returns the same as the backend's method of that name."""

    def __init__(self, runner: ExecRunner, workdir: str, protect: Sequence[str]) -> None:
        self._runner, self._workdir, self._protected = runner, workdir, ProtectedNames(protect)
        self._editing = asyncio.Lock()

    # -- reading ----------------------------------------------------------------------------------------------------

    async def stat(self, path: str) -> results.FileStat:
        async with self._resolve(path, follow=False) as place:
            place.check_exists()
        size, mode = place.size if place.type in ("file", "link") else 0, stat.S_IMODE(place.mode)
        return {"path": path, "type": place.type, "size": size, "mode": mode, "modified": place.modified}

    async def ls(self, path: str = ".", *, links: bool = True) -> results.Listing:
        async with self._resolve(path, LIST_FOLDER, links=links) as place:
            place.check_folder()
        entries: list[results.FolderEntry] = [
            {"name": names[-1], "type": (kind := file_type(mode)), "size": size if kind in ("file", "link") else 0}
            for names, mode, size in place.list_entries()
        ]
        most = constants.LIST_ENTRIES
        return {"path": path, "entries": entries[:most], "truncated": place.is_cut or len(entries) > most}

    async def read(
        self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True
    ) -> results.ReadResult:
        check_range(offset, limit)
        most = constants.FILE_READ_BYTES if limit is None else min(limit, constants.FILE_READ_BYTES)
        async with self._resolve(path, READ, str(offset + 1), str(most), links=links) as place:
            self._check_read(place, path)
        size = max(place.size, offset + len(place.output) if place.output else 0)
        return build_content(path, place.output, size, offset, exact=limit is not None)

    async def lines(
        self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True
    ) -> results.FileLines:
        check_range(offset, limit)
        async with self._resolve(path, READ, "1", str(FETCH_BYTES), links=links) as place:
            self._check_read(place, path)
        data, step = place.output, constants.ENGINE_BUFFER_BYTES
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
            if not pattern.startswith(f"{self._workdir}/"):
                message = f"{pattern} is outside of the workspace; give a path inside {self._workdir}"
                raise BackendError(message, "escapes")
            pattern, path = f".{pattern[len(self._workdir) :]}", "."
        wanted, most = Glob(pattern), constants.GLOB_FILES
        async with self._resolve(path, LIST_TREE if everything else LIST_LIGHT_TREE, links=links) as place:
            place.check_folder()
            walk = await self._walk(place, everything)
            found = list(islice(walk.files("/".join(place.names), wanted), most + 1))
            linked = [name for name, is_link in found if is_link]
            answers = await self._run_each(LINKS, place.root, linked) if linked else b""
        elsewhere = {name for name, answer in zip(linked, answers.decode(), strict=True) if answer == "0"}
        files = [name for name, _ in found[:most] if name not in elsewhere]
        return {"files": files, "truncated": len(found) > most or walk.budget.spent or place.is_cut}

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
        budget, sizes = WalkBudget(), dict[str, int]()

        def find(data: bytes) -> list[tuple[int, str]]:
            blocks = [] if is_binary(data) else [cut_at_nul(data)]
            return list(islice(search.find_lines(blocks), constants.GREP_MATCHES + 1))

        async with self._resolve(path, LIST_TREE if everything else LIST_LIGHT_TREE, links=links) as place:
            place.check_exists()
            if place.type == "dir":
                walk = await self._walk(place, everything)
                budget, sizes, found = walk.budget, walk.sizes, walk.files("/".join(place.names), wanted)
                names = [name for name, link in found if not (link or self._protected.is_secret(name.split("/")))]
            else:
                self._check_read(place, path)
                names = ["/".join(place.names)]
            matches = list[results.GrepMatch]()
            async for name, data in self._read_texts(place.root, names, FETCH_BYTES, sizes):
                for line, text in await run_in_thread(lambda data=data: find(data), "grep"):  # type: ignore[misc]
                    if len(matches) == constants.GREP_MATCHES:
                        return {"matches": matches, "truncated": True}
                    matches.append({"file": name, "line": line, "text": text})
                if not budget.take_bytes(len(data)):
                    break
        return {"matches": matches, "truncated": budget.spent or place.is_cut}

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
        script = READ, "1", str(constants.EDIT_BYTES)
        async with self._editing, self._resolve(path, *script, links=links) as place:
            self._protected.check_change(place.names, path)
            self._check_read(place, path)
            if place.size > constants.EDIT_BYTES:
                message = f"{path} is larger than {constants.EDIT_BYTES} bytes; edit it by a command"
                raise BackendError(message, "too_large")
            data, count = replace_text(path, place.output, old, new, replace_all=replace_all, occurrence=occurrence)
            await self._replace(place, path, data)
        return {"path": path, "replacements": count, "bytes_written": len(data)}

    async def mkdir(self, path: str) -> None:
        async with self._resolve(path) as place:
            self._protected.check_change(place.names, path)
            if place.exists and place.type != "dir":
                raise_os_error(errno.EEXIST)
            await self._run(MKDIR, place.root, "/".join(place.names) or ".")

    async def move(self, source: str, target: str) -> None:
        async with self._resolve(source, LIST_TREE, follow=False) as here:
            if not here.names:
                raise BackendError("the workspace itself cannot be moved", "invalid")
            here.check_exists()
            self._protected.check_change(here.names, source)
        async with self._resolve(target, follow=False) as there:
            self._protected.check_change(there.names, target)
            self._check_nothing_protected(here, there.names, source)
            if there.exists:
                raise_os_error(errno.EEXIST)
            if there.names[: len(here.names)] == here.names:
                raise_os_error(errno.EINVAL)
            await self._run(MOVE, *here.parts, *there.parts)

    async def delete(self, path: str, *, recursive: bool = False) -> None:
        async with self._resolve(path, LIST_TREE if recursive else "", follow=False) as place:
            if not place.names:
                raise BackendError("the workspace itself cannot be deleted", "invalid")
            self._protected.check_change(place.names, path)
            place.check_exists()
            self._check_nothing_protected(place, place.names, path)
            command = "rm -f" if place.type != "dir" else "rm -rf" if recursive else "rmdir"
            await self._run(DELETE, *place.parts, command)

    # -- scripts ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _resolve(
        self, path: str, script: str = "", *args: str, follow: bool = True, links: bool = True
    ) -> AsyncIterator[Place]:
        """Yield the place of a path and the output of a script there; translate OSErrors into BackendErrors."""
        check_path(path)
        flags = ["1" if flag else "" for flag in (follow, links)]
        try:
            async with asyncio.timeout(constants.FILE_SECONDS):
                yield Place.parse(await self._run(RESOLVE + script, self._workdir, path, *flags, *args))
        except TimeoutError:
            raise BackendError(f"{path} took longer than {constants.FILE_SECONDS:g} s", "failed") from None
        except OSError as error:
            raise to_backend_error(error, path, links=links) from None

    async def _run(self, script: str, *args: str, stdin: bytes = b"") -> bytes:
        code, output, errors = await self._runner.run_script(script, *args, stdin=stdin, most=3 * FETCH_BYTES)
        if code == 0:
            return output
        message = errors.decode(errors="replace").strip()
        if found := re.search(r"wick:(E[A-Z]+)$", message):
            raise_os_error(int(getattr(errno, found[1], errno.EIO)))
        ends = [line.rpartition(": ")[2] for line in reversed(message.splitlines())]
        if number := next((ERRNO[end] for end in ends if end in ERRNO), 0):
            raise_os_error(number)
        raise BackendError(f"the container could not do it: {message[-300:] or f'exit code {code}'}", "failed")

    async def _run_each(self, script: str, root: str, paths: Sequence[str], *args: str) -> bytes:
        """Run a script for each path in the workspace."""
        stdin = b"".join(os.fsencode(f"./{path}\0") for path in paths)
        return await self._run(script, root, ".", str(len(stdin)), *args, stdin=stdin)

    def _check_read(self, place: Place, path: str) -> None:
        place.check_exists()
        if place.type == "dir":
            raise_os_error(errno.EISDIR)
        if place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        self._protected.check_read(place.names, path)

    def _check_nothing_protected(self, place: Place, then: Names, path: str) -> None:
        """Raise if a listed folder contains a protected path, under its current or its future name."""
        for inner, _, _ in place.list_entries():
            later = (*then, *inner[len(place.names) :])
            if self._protected.matches_last(inner) or self._protected.matches_last(later):
                raise BackendError(f"{path} holds {inner[-1]}, which is protected", "protected")
        if place.is_cut:
            message = f"{path} holds too much to check it for protected files; move or delete its parts"
            raise BackendError(message, "too_large")

    async def _replace(self, place: Place, path: str, data: bytes) -> None:
        """Replace a file: write it under a temporary name, and rename it."""
        self._protected.check_change(place.names, path)
        if not place.names or (place.exists and place.type == "dir"):
            raise_os_error(errno.EISDIR)
        if place.exists and place.type != "file":
            raise BackendError(f"{path} is not a regular file", "not_a_file")
        like = (f"{stat.S_IMODE(place.mode) & 0o1777:o}", str(place.group)) if place.exists else ("", "")
        await self._run(WRITE, *place.parts, f".wick-{secrets.token_hex(8)}", str(len(data)), *like, stdin=data)

    async def _walk(self, place: Place, everything: bool) -> TreeWalk:
        """Return a walk over a listed folder, with the ignore files that count there."""
        found, rules = place.list_entries(), dict[str, str]()
        if not everything:
            above = ["/".join((*place.names[:depth], ".gitignore")) for depth in range(len(place.names))]
            inner = ["/".join(names) for names, mode, _ in found if names[-1] == ".gitignore" and stat.S_ISREG(mode)]
            async for name, data in self._read_texts(place.root, [*above, *inner], constants.IGNORE_BYTES):
                rules[name] = data.decode("utf-8", "surrogateescape")
        return TreeWalk(found, rules, everything=everything)

    async def _read_texts(
        self, root: str, files: Sequence[str], most: int, sizes: Mapping[str, int] | None = None
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the first bytes of each file, and none of what is not a readable file."""
        batch, total = list[str](), 0
        for number, file in enumerate(files, 1):
            batch.append(file)
            total += min((sizes or {}).get(file, 0), most)
            if number < len(files) and len(batch) < TEXTS_AT_ONCE and total < FETCH_BYTES:
                continue
            mark = secrets.token_hex(16)
            texts = (await self._run_each(TEXTS, root, batch, str(most), mark)).split(mark.encode())[1:]
            if len(texts) != len(batch):
                raise BackendError("the container gave an invalid answer; try again", "failed")
            for pair in zip(batch, texts, strict=True):
                yield pair
            batch, total = [], 0
