"""File operations relative to open folders: read blocks, replace atomically, rename, delete trees.

Each operation takes a folder descriptor and one name, so that concurrent renames and links cannot redirect it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Iterator

from wick.constants import DELETE_SECONDS
from wick.errors import BackendError
from wick.workspace.results import FolderEntry
from wick.workspace.rooted_folder import FolderCursor, file_type, libc

BLOCK_BYTES = 1_000_000  # read at once
BATCH = 10_000  # entries that a recursive delete holds in memory, of each folder on its way

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # opening a FIFO must not block


def read_blocks(fd: int, offset: int, most: int) -> Iterator[bytes]:
    while most > 0:
        block = os.pread(fd, min(most, BLOCK_BYTES), offset)
        if not block:
            return
        yield block
        offset, most = offset + len(block), most - len(block)


def list_entry(name: str, folder: int) -> FolderEntry | None:
    """Return the entry of a name in a folder, or None if it is gone."""
    info = lstat(name, folder)
    return {"name": name, "type": file_type(info.st_mode), "size": get_size(info)} if info else None


def get_size(info: os.stat_result) -> int:
    """Return the size of a file or link, and 0 for anything else."""
    return info.st_size if file_type(info.st_mode) in ("file", "link") else 0


def lstat(name: str, folder: int) -> os.stat_result | None:
    """Return the stat of a name in a folder without following a link, or None if it does not exist."""
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def replace_file(folder: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """Replace a file atomically: readers see the old or the new content, never a mixture."""
    temporary = f".wick-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if like is not None:
            _copy_metadata(fd, folder, name, like)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(fd)


def _copy_metadata(fd: int, folder: int, name: str, like: os.stat_result) -> None:
    """Copy owner, mode and attributes from the replaced file, as far as permitted."""
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
        with suppress(OSError):
            os.fchown(fd, -1, like.st_gid)
        with suppress(OSError):
            os.fchown(fd, like.st_uid, -1)
    os.fchmod(fd, stat.S_IMODE(like.st_mode) & 0o1777)  # without setuid: it must not run as another user
    flags = READ | os.O_NOFOLLOW
    with suppress(OSError, AttributeError), open(os.open(name, flags, dir_fd=folder), "rb") as source:
        for key in os.listxattr(source.fileno()):  # some systems have no such attributes
            if key.startswith("user.") or key == "system.posix_acl_access":
                os.setxattr(fd, key, os.getxattr(source.fileno(), key))


_NOREPLACE = 1


def rename_exclusive(folder: int, name: str, new_folder: int, new_name: str, path: str) -> None:
    """Rename without replacing an existing file (RENAME_NOREPLACE)."""
    renameat2 = getattr(libc, "renameat2", None)
    code = errno.ENOSYS if new_name else errno.EEXIST
    if renameat2 is not None and new_name:
        if renameat2(folder, os.fsencode(name), new_folder, os.fsencode(new_name), _NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):  # else the file system lacks the flag
        raise _rename_error(code, path)
    if lstat(new_name, new_folder) is not None:
        raise _rename_error(errno.EEXIST, path)
    os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)


def _rename_error(code: int, path: str) -> OSError | BackendError:
    if code == errno.EEXIST:
        return BackendError(f"{path} exists already; delete it first, or choose another name", "exists")
    if code == errno.EXDEV:
        return BackendError(f"{path} is on another file system; copy and delete instead", "unsupported")
    return OSError(code, os.strerror(code))


def delete_tree(folder: int, name: str) -> None:
    """Delete a folder and its content at any depth. Links are not followed."""
    until = time.monotonic() + DELETE_SECONDS
    step, todo = FolderCursor(folder), [[name]]  # the remaining folders of each level
    try:
        while todo[0]:
            if time.monotonic() > until:
                raise BackendError("there is so much to delete that some is left; delete it again", "failed")
            if todo[-1]:
                step.enter(todo[-1][-1])
                todo.append(_delete_files(step))
                continue
            emptied = step.leave()
            try:
                os.rmdir(emptied, dir_fd=step.fd)
                todo.pop()
                todo[-1].pop()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                step.enter(emptied)  # it has more entries
                todo[-1] = _delete_files(step)
    finally:
        step.close()


def _delete_files(step: FolderCursor) -> list[str]:
    """Delete the files of one batch of entries, and return its folders."""
    with step.entries() as entries:
        batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, BATCH)]
    for name, folder in batch:
        if not folder:
            os.unlink(name, dir_fd=step.fd)
    return [name for name, folder in batch if folder]
