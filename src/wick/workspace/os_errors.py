"""Translation of OSError to BackendError with a sentence and a code, and checks of paths and ranges."""

from __future__ import annotations

import errno
import os
import stat
from typing import NoReturn

from wick.errors import BackendError
from wick.workspace.rooted_folder import NAME_BYTES, PATH_BYTES

SENTENCES: dict[int, tuple[str, str]] = {
    errno.ENOENT: ("not_found", "there is no {path}"),
    errno.EEXIST: ("exists", "{path} exists already"),
    errno.EISDIR: ("is_directory", "{path} is a folder"),
    errno.ENOTDIR: ("not_directory", "{path} is not a folder, or something that leads to it is not"),
    errno.ENOTEMPTY: ("not_empty", "{path} is not empty; delete it recursively to remove its content too"),
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


def to_backend_error(error: OSError, path: str, *, links: bool = True) -> BackendError:
    """Convert an OSError about a path to a BackendError; without `links`, ELOOP means that the path has a link."""
    if error.errno == errno.ELOOP and not links:
        message = f"{path} leads over a link, which may not be followed here; give the path that it leads to"
        return BackendError(message, "linked")
    unknown = "failed", "{path} could not be used: " + (error.strerror or "error")
    code, sentence = SENTENCES.get(error.errno or 0, unknown)
    return BackendError(sentence.replace("{path}", path), code)


def check_path(path: str) -> str:
    """Return a path; raise BackendError if no file can have it."""
    if not path or "\0" in path:
        raise BackendError("a path is a text that is not empty and has no NUL in it", "invalid")
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise BackendError("a path holds characters that no file name can have", "invalid") from None
    if len(data) > PATH_BYTES or any(len(part) > NAME_BYTES for part in data.split(b"/")):
        message = f"a path has at most {PATH_BYTES} bytes and each name in it at most {NAME_BYTES}"
        raise BackendError(message, "invalid")
    return path


def check_range(offset: int, limit: int | None) -> None:
    """Raise BackendError if an offset or limit is negative."""
    if offset < 0 or (limit is not None and limit < 0):
        raise BackendError("offset and limit are numbers from 0 on", "invalid")


def raise_os_error(code: int) -> NoReturn:
    """Raise OSError with an errno, as a system call would."""
    raise OSError(code, os.strerror(code))


def check_regular(info: os.stat_result, path: str) -> None:
    """Raise an error unless a stat is that of a regular file."""
    if stat.S_ISDIR(info.st_mode):
        raise_os_error(errno.EISDIR)
    if not stat.S_ISREG(info.st_mode):
        raise BackendError(f"{path} is not a regular file", "not_a_file")
