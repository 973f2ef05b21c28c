"""The protocol of a small sh script in a container that resolves one or two paths and then operates on them.

The script resolves names and links as `wick.workspace.rooted_folder` does and reports what it found. Then it executes
operations line by line. Paths are arguments, never part of the script.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

from wick.backends.containers.engine import ContainerProcess
from wick.backends.containers.shell_scripts import DECODE
from wick.errors import BackendError
from wick.workspace.globs import HEAVY
from wick.workspace.os_errors import raise_os_error
from wick.workspace.rooted_folder import file_type

BLOCK = 65_536
TREE_BYTES = 12_000_000  # of a listing of everything

# $1 the workspace; then twice a path and whether its last link is followed, the second time perhaps empty; with
# `refuse` no link is.
# Prints for each path what is there and its names without links; then does what the lines of its input say.
SCRIPT = (
    f"{DECODE}"
    + r"""
LC_ALL=C
export LC_ALL
newline='
'
fail() {
    printf 'wick:%s' "$1" >&2
    exit 99
}
look() {
    rest=$1 names='' links=0 missing=''
    case $1 in */) solid=/ ;; *) solid='' ;; esac
    while [ "$rest" ]; do
        name=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest='' ;; esac
        case $name in
            '' | .) continue ;;
            ..)
                [ -z "$missing" ] || fail ENOENT
                [ "$names" ] || fail EXDEV
                case $names in */*) names=${names%/*} ;; *) names='' ;; esac
                continue
                ;;
        esac
        here=$root/${names:+$names/}$name
        if [ -z "$missing" ] && [ -L "$here" ] && [ "$rest$solid$2" ]; then
            links=$((links + 1))
            [ $links -le 40 ] && [ "$2" != refuse ] || fail ELOOP
            target=$(readlink "$here"; printf .)
            target=${target%"$newline".}
            case $target in
                "$root" | "$root"/*) names='' target=${target#"$root"} ;;
                "$given" | "$given"/*) names='' target=${target#"$given"} ;;
                /*) fail EXDEV ;;
            esac
            case $target in */) [ "$rest" ] || solid=/ ;; esac
            rest=$target${rest:+/$rest}
            continue
        fi
        if [ -z "$missing" ] && [ ! -e "$here" ] && [ ! -L "$here" ]; then
            [ -x "$root/$names" ] || fail EACCES
            missing=1
        fi
        names=${names:+$names/}$name
        [ "$missing" ] || [ -z "$rest$solid" ] || [ -d "$here" ] || fail ENOTDIR
    done
    real=$root${names:+/$names}
    if [ "$missing" ]; then
        printf '%s\0%s\0' - "$names"
    else
        info=$(stat -c '%f %s %Y %u %g' "$real") || exit 1
        printf '%s\0%s\0' "$info" "$names"
    fi
}
readable() { [ -r "$1" ] || fail EACCES; }

text "$1"
given=$decoded
root=$(cd -P -- "$given" && pwd -P) || fail ENOENT
real2=''
if [ "$4" ]; then
    text "$4"
    look "$decoded" "$5"
    real2=$real
fi
text "$2"
look "$decoded" "$3"

while read -r verb a b c; do
    case $verb in
        bytes) exec dd if="$real" bs=65536 skip="$a" count="$b" ;;
        lines)
            readable "$real"
            dd if="$real" bs=65536 count=1 2>/dev/null
            tail -n +"$a" "$real" | head -c "$b"
            exit
            ;;
        list)
            cd "$real" || exit 1
            readable .
            find . -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %n//' {} + 2>/dev/null | head -c "$a"
            exit
            ;;
        tree)
            cd "$real" || exit 1
            if [ "$b" = everything ]; then
                find . -mindepth 1 -exec stat -c '%f %s %n//' {} + 2>/dev/null | head -c "$a"
            else
                find . -mindepth 1 -type d \( HEAVY \) -prune -o -mindepth 1 \
                    -exec stat -c '%f %s %n//' {} + 2>/dev/null | head -c "$a"
            fi
            exit
            ;;
        names)
            (cd "$real" && find . -mindepth 1 -print0 | head -c "$a")
            printf '\0\0'
            ;;
        texts)
            while IFS= read -r line; do
                [ "$line" = end ] && exit 0
                text "$line"
                file=$root/$decoded
                size=0
                [ -f "$file" ] && [ ! -L "$file" ] && [ -r "$file" ] && size=$(wc -c <"$file")
                [ "$size" -le "$a" ] || size=$a
                printf '%d\0' "$size"
                [ "$size" -eq 0 ] || head -c "$size" "$file"
            done
            exit
            ;;
        put)
            [ "$b" = - ] || [ -w "$real" ] || fail EACCES
            mkdir -p "${real%/*}" || exit 1
            new=${real%/*}/.wick-$c
            trap 'rm -f "$new"' EXIT
            if [ "$a" -gt 0 ]; then head -c "$a" >"$new" || exit 1; else : >"$new" || exit 1; fi
            [ "$(wc -c <"$new")" -eq "$a" ] || fail ENOSPC
            if [ "$b" != - ]; then
                chown "${b#*,}" "$new" 2>/dev/null
                chmod "${b%,*}" "$new" || exit 1
            fi
            mv -f "$new" "$real"
            exit
            ;;
        mkdir) mkdir -p "$real"; exit ;;
        rename)
            mkdir -p "${real2%/*}" || exit 1
            [ ! -e "$real2" ] && [ ! -L "$real2" ] || fail EEXIST
            mv "$real" "$real2"
            exit
            ;;
        unlink) [ -w "${real%/*}" ] || fail EACCES; rm -f "$real"; exit ;;
        rmdir) rmdir "$real"; exit ;;
        rmtree) [ -w "${real%/*}" ] || fail EACCES; rm -rf "$real"; exit ;;
        end) exit 0 ;;
    esac
done
"""
).replace("HEAVY", " -o ".join(f"-name {name}" for name in sorted(HEAVY)))

SAYS = {os.strerror(code): code for code in errno.errorcode}


@dataclass(frozen=True, slots=True)
class Place:
    """What the script found at a path: the names that really lead there, and what is there."""

    names: tuple[str, ...]
    there: bool
    mode: int = 0
    size: int = 0
    modified: int = 0
    owner: str = ""

    @classmethod
    def read(cls, info: bytes, names: bytes) -> Place:
        path = tuple(os.fsdecode(names).split("/")) if names else ()
        if info == b"-":
            return cls(path, False)
        try:
            mode, size, modified, uid, gid = info.split()
            return cls(path, True, int(mode, 16), int(size), int(modified), f"{int(uid)}:{int(gid)}")
        except ValueError:
            raise BackendError("the container described a file in a way that is not understood", "failed") from None

    @property
    def type(self) -> str:
        return file_type(self.mode)

    @property
    def shown_size(self) -> int:
        return self.size if self.type in ("file", "link") else 0


class Talk:
    """One run of the script."""

    def __init__(self, process: ContainerProcess) -> None:
        self._process = process
        self._buffer, self._said = bytearray(), bytearray()
        self._over = False
        self.place = self.target = Place((), False)

    async def look(self, *, two: bool) -> None:
        """Read what the script found; of two places it tells the target first."""
        if two:
            self.target = Place.read(await self.field(), await self.field())
        self.place = Place.read(await self.field(), await self.field())

    async def field(self) -> bytes:
        """What comes until the next NUL."""
        while (end := self._buffer.find(b"\0")) < 0:
            if len(self._buffer) > TREE_BYTES * 2:
                raise BackendError("the container answered with more than was asked for", "too_large")
            if not await self._more():
                await self.finish()
                raise_os_error(errno.EIO)
        found = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return found

    async def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size and await self._more():
            pass
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    async def all(self, most: int) -> bytes:
        """What comes until the end, which must be a good one."""
        while await self._more():
            if len(self._buffer) > most:
                raise BackendError("the container answered with more than was asked for", "too_large")
        await self.finish()
        return bytes(self._buffer)

    async def tell(self, line: str, data: bytes = b"") -> None:
        try:
            self._process.write(line.encode() + b"\n")
            for at in range(0, len(data), BLOCK):
                self._process.write(data[at : at + BLOCK])
                await self._process.drain()
        except OSError:
            pass  # it has ended; why, it says on its other streams

    async def do(self, line: str, data: bytes = b"") -> None:
        await self.tell(line, data)
        await self.finish()

    async def finish(self) -> None:
        """Raise what the script says went wrong; what else it says does not matter any more."""
        while await self._more():
            self._buffer.clear()
        code = await self._process.exit_code()
        said = self._said.decode(errors="replace").strip()
        if code == 0:
            return
        if found := re.search(r"wick:(E[A-Z]+)$", said):
            raise_os_error(getattr(errno, found[1], errno.EIO))
        for line in reversed(said.splitlines()):
            if number := SAYS.get(line.rpartition(": ")[2]):
                raise_os_error(number)
        raise BackendError(f"the container could not do it: {said[-300:] or f'exit code {code}'}", "failed")

    async def _more(self) -> bool:
        if self._over:
            return False
        pieces = await self._process.read()
        for stream, data in pieces:
            if stream == 1:
                self._buffer += data
            else:
                self._said = (self._said + data)[-8_192:]
        self._over = not pieces
        return not self._over
