"""Mount and IPC namespaces of the processes that start commands.

    hold_devices()                     wickd on the host: device nodes become read-only mounts
    hold_files(["/srv/workspace"])     a command under Landlock: every mount but these becomes read-only

A process may change the mode, owner, times and attributes of each file of its own user, whatever rules decide about
opening it. On a read-only mount these calls fail with EROFS, and a device node still works.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from typing import Any, Sequence

with contextlib.suppress(ImportError):  # without ctypes there are no direct system calls
    import ctypes

# Not /dev/ptmx: the kernel looks for `pts` beside it, and a mount of its own has nothing beside it.
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts"))

_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x00020000, 0x08000000, 0x10000000
_READ_ONLY, _BIND, _RECURSIVE, _SLAVE = 1, 4_096, 16_384, 1 << 19
_DUMPABLE = 4
_MOUNT_SETATTR, _HERE, _WHOLE_TREE = 442, -100, 0x8000
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") and "ctypes" in sys.modules else None


def hold_devices() -> bool:
    """Mount the device nodes read-only for this process and its children; return True on success.

    Needed only for root, which owns the nodes: bubblewrap binds them, and commands of a root wick could change them.
    """
    if os.geteuid() != 0 or not _unshare(_NEW_MOUNTS):
        return False
    try:
        for path in DEVICES:
            if os.path.exists(path) and not os.path.islink(path):
                _mount(path, path, _BIND)
                _set_attributes(path, add=_READ_ONLY)
    except OSError:
        return False
    return True


def hold_files(writable: Sequence[str], pinned: Sequence[str] = (), fixed: Sequence[str] = ()) -> bool:
    """Mount everything read-only except `writable`, in a new IPC namespace; return True on success.

    Pinned files in these folders stay read-only, and their parent folders cannot be moved. `fixed` folders cannot be
    moved either, but their files can be written.
    The working directory is still in the old mount, so the caller must enter it again.
    """
    if not _unshare(_NEW_MOUNTS | _NEW_IPC):
        return False
    try:
        folders = [path for path in writable if os.path.isdir(path)]
        for path in folders:
            _mount(path, path, _BIND | _RECURSIVE)
        _set_attributes("/", add=_READ_ONLY, flags=_WHOLE_TREE)
        for path in folders:
            _set_attributes(path, remove=_READ_ONLY)
        for path in fixed:
            _pin(path, folders, writable=True)
        for path in pinned:
            _pin(path, folders)
    except OSError:
        return False
    return True


def _pin(path: str, folders: Sequence[str], *, writable: bool = False) -> None:
    for folder in folders:
        names = os.path.relpath(path, folder).split("/")
        if names[0] != "..":
            for depth in range(1, len(names) + writable):
                above = os.path.join(folder, *names[:depth])
                _mount(above, above, _BIND | _RECURSIVE)  # a folder that is a mount cannot be renamed
            if not writable:
                _mount(path, path, _BIND)
                _set_attributes(path, add=_READ_ONLY)


def _unshare(namespaces: int) -> bool:
    """Unshare namespaces, as root or else in a user namespace that maps the user to itself."""
    if _libc is None:
        return False
    if _libc.unshare(namespaces) == 0:
        return _separate_mounts()
    pid = os.fork()  # try in a child first: a partial success would leave this process without a user
    if pid == 0:
        try:
            os._exit(0 if _unshare_user(namespaces) else 1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0 and _unshare_user(namespaces)


def _unshare_user(namespaces: int) -> bool:
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(namespaces | _NEW_USER) != 0:
        return False
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    _libc.prctl(_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0)  # else these files are root's
    try:
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError:
        return False
    finally:
        _libc.prctl(_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    return _separate_mounts()


def _separate_mounts() -> bool:
    try:
        _mount("none", "/", _RECURSIVE | _SLAVE)  # host mounts propagate here, but not back
    except OSError:
        return False
    return True


def _mount(source: str, target: str, flags: int) -> None:
    result = _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None)
    _check(result, target)


def _set_attributes(path: str, *, add: int = 0, remove: int = 0, flags: int = 0) -> None:
    wanted = struct.pack("=QQQQ", add, remove, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_long(_HERE),
        os.fsencode(path),
        ctypes.c_long(flags),
        wanted,
        ctypes.c_size_t(len(wanted)),
    )
    _check(result, path)


def _check(result: int, path: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
