"""Path resolution beneath an open folder, which no path can leave.

    tree = RootedFolder("./workspace")
    with tree.open_path("src/a.py", os.O_RDONLY) as (fd, names):    names are resolved: no links, no ..
        …
    with tree.open_parent("src/new.py") as (fd, names, name):       the parent folder of a path that need not exist
        …

The kernel resolves each path beneath the folder's descriptor (openat2 with RESOLVE_BENEATH), so that concurrent
renames and links cannot lead out. Without openat2, the path is walked name by name from that descriptor with
O_NOFOLLOW, and links are resolved here. Either way a path that leads out raises OSError with `errno.EXDEV`.
Links may be relative, or begin with the folder's own path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from contextlib import contextmanager
from typing import Iterator, Tuple

Names = Tuple[str, ...]

MOST_LINKS, NAME_BYTES, PATH_BYTES = 40, 255, 4_095  # limits of the kernel
MOST_TRIES = 32  # a concurrent rename makes openat2 return EAGAIN

# Flags to open anything for stat, and a folder for lookups. Without O_PATH, both need read permission.
_PATH = getattr(os, "O_PATH", 0)
ANYTHING = _PATH or os.O_RDONLY | os.O_NONBLOCK
FOLDER = os.O_DIRECTORY | ANYTHING

_OPENAT2 = 437  # on every architecture that shares the table of new system calls; elsewhere it is ENOSYS
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


libc = ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, path: str, flags: int, links: bool) -> int:
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    for _ in range(MOST_TRIES):
        fd: int = libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_long(folder),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


def supports_openat2(folder: int) -> bool:
    """Return True if openat2 works for a folder: the kernel has it, and no seccomp filter denies it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(_openat2(folder, ".", FOLDER, True))
    except OSError:
        return False
    return True


def make_listable(folder: int) -> None:
    """Give the owner of an open folder all permissions for it, and close its descriptor."""
    try:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
    finally:
        os.close(folder)


class RootedFolder:
    """An open folder, beneath which paths are resolved. `by_hand` disables openat2."""

    def __init__(self, path: str, *, by_hand: bool = False) -> None:
        self.path = os.path.realpath(path)
        self._paths = {self.path, os.path.abspath(path)}
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self._by_hand = by_hand or not supports_openat2(self.fd)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def relative_path(self, path: str) -> str | None:
        """Return a path relative to the folder, or None for an absolute path outside of it."""
        if not path.startswith("/"):
            return path
        for own in self._paths:
            rest = path[len(own) :] if path.startswith(own) else "no"
            if rest == "" or rest.startswith("/") or own == "/":
                return rest.lstrip("/") or "."
        return None

    @contextmanager
    def open_path(self, path: str, flags: int, *, links: bool = True) -> Iterator[tuple[int, Names]]:
        """Open an existing path; yield its descriptor and resolved names. Without `links` a link raises ELOOP."""
        fd, names = -1, None
        if not self._by_hand:
            try:
                fd = _openat2(self.fd, path, flags, links)
            except OSError as error:
                # Possibly an absolute link back into the folder, which RESOLVE_BENEATH refuses. After concurrent
                # renames the kernel restarts a lookup and counts links twice, so ELOOP may come at half the limit.
                if error.errno not in (errno.EXDEV, errno.EAGAIN, errno.ELOOP):
                    raise
            else:
                names = self._read_names(fd)
                if names is None:
                    os.close(fd)
        if names is None:
            fd, names = self._walk_path(path, flags, links)
        try:
            yield fd, names
        finally:
            os.close(fd)

    @contextmanager
    def open_parent(self, path: str, *, links: bool = True) -> Iterator[tuple[int, Names, str]]:
        """Open the parent folder of a path; yield its descriptor, its resolved names, and the last name.

        The last name is not followed if it is a link. It is empty for the root folder, which has no parent here.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if parts and parts[-1] == "..":
            parts = list(self.resolve_names(path, links=links))
        name = parts.pop() if parts else ""
        with self.open_path("/".join(parts) or ".", FOLDER, links=links) as (fd, names):
            yield fd, names, name

    def resolve_names(self, path: str, *, links: bool = True) -> Names:
        """Return the names of a folder's path after all links are resolved."""
        with self.open_path(path, FOLDER, links=links) as (_, names):
            return names

    def is_file(self, path: str) -> bool:
        """Return True if a path leads to a regular file in the folder."""
        try:
            with self.open_path(path, ANYTHING) as (fd, _):
                return stat.S_ISREG(os.fstat(fd).st_mode)
        except (OSError, ValueError):  # a path with a NUL
            return False

    def open_folder(self, path: str, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> int:
        """Open a path without following links and return the descriptor, which the caller closes."""
        if self._by_hand:
            return self._walk_path(path, flags | os.O_NOFOLLOW, links=False)[0]
        return _openat2(self.fd, path, flags | os.O_NOFOLLOW, False)

    def _read_names(self, fd: int) -> Names | None:
        """Return the names of a descriptor's path from /proc, or None if they are not available."""
        try:
            home, path = os.readlink(f"/proc/self/fd/{self.fd}"), os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            return None
        if path == home:
            return ()
        home = home.rstrip("/") + "/"
        if not path.startswith(home) or path.endswith(" (deleted)"):  # the kernel's suffix, or a part of the name
            return None
        return tuple(path[len(home) :].split("/"))

    def _walk_path(self, path: str, flags: int, links: bool = True) -> tuple[int, Names]:
        if len(os.fsencode(path)) > PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        step, followed = FolderCursor(self.fd), 0
        try:
            todo = _split_reversed(self._resolve_start(path, step))
            while todo:
                name = todo.pop()
                if name == ".":
                    continue
                if name == "..":
                    step.leave()
                    continue
                link = None if not todo and flags & os.O_NOFOLLOW else step.read_link(name)
                if link is not None:
                    followed += 1
                    if followed > MOST_LINKS or not links:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    todo += _split_reversed(self._resolve_start(link, step))
                elif todo:
                    step.enter(name)
                else:
                    return step.open(name, flags), (*step.names, name)
            return step.open(".", flags), tuple(step.names)
        finally:
            step.close()

    def _resolve_start(self, path: str, step: FolderCursor) -> str:
        """Return a path or link target relative to the cursor; move the cursor to the root for an absolute one."""
        inside = self.relative_path(path)
        if inside is None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        if path.startswith("/"):
            step.reset()
        return inside


def _split_reversed(path: str) -> list[str]:
    """Return the names of a path in reverse order. A trailing slash becomes `.`."""
    parts = path.split("/")
    last = parts[-1] or "."
    return [last, *(part for part in reversed(parts[:-1]) if part not in ("", "."))]


class FolderCursor:
    """The position of a walk: one open folder, and the identities of its parents to verify `..`."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.fd = os.dup(root)
        self._above: list[tuple[int, int]] = []
        self.names: list[str] = []

    def close(self) -> None:
        os.close(self.fd)

    def read_link(self, name: str) -> str | None:
        """Return the target of a link, or None if the name is not a link."""
        try:
            return os.readlink(name, dir_fd=self.fd)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise

    def open(self, name: str, flags: int) -> int:
        """Open a name in the folder. A link is opened only with O_NOFOLLOW in `flags`, without a race."""
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=self.fd)
        if flags & _PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return fd

    @contextmanager
    def entries(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Yield an iterator over the entries of the folder."""
        fd = self.open(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def enter(self, name: str) -> None:
        fd = self.open(name, FOLDER)
        self._above.append(identify_folder(self.fd))
        self.names.append(name)
        self._move_to(fd)

    def leave(self) -> str:
        """Return to the parent folder, and return the name of the folder that was left."""
        if not self.names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), "..")
        fd = self.open("..", FOLDER)
        if identify_folder(fd) != self._above[-1]:  # the folder was moved meanwhile
            os.close(fd)
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), "..")
        self._above.pop()
        self._move_to(fd)
        return self.names.pop()

    def reset(self) -> None:
        self._above, self.names = [], []
        self._move_to(os.dup(self._root))

    def _move_to(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def identify_folder(fd: int) -> tuple[int, int]:
    """Return device and inode of a folder."""
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def file_type(mode: int) -> str:
    """Return the type of a file mode: `file`, `dir`, `link` or `other`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"
