"""A folder shared by a container and this machine, for the daemon's socket.

The container can write there, so its content is not trusted: the socket may be a link to another one.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from wick.errors import BackendError

SOCKET = "wick-daemon.sock"


def folder_path(id: str) -> str:
    """Return the path of a container's folder, which is stable across restarts."""
    return str(Path(tempfile.gettempdir()).resolve() / f"wick-{os.getuid()}" / id / "tmp")


def create_folder(path: str) -> None:
    """Create the folder, below a folder with mode 0700."""
    private = Path(path).parent.parent
    private.mkdir(mode=0o700, exist_ok=True)
    info = private.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise BackendError(f"{private} is not a folder that only wick may enter; remove it", "denied")
    Path(path).mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o1777)  # the container's user differs from ours


def remove_folder(path: str) -> None:
    """Remove the folder, and its parent if that is empty."""
    shutil.rmtree(Path(path).parent, ignore_errors=True)
    with suppress(OSError):
        Path(path).parent.parent.rmdir()


def connect_socket(path: str) -> socket.socket:
    """Connect to the socket in the folder without following links."""
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        file = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise ConnectionRefusedError("there is no socket")
        connection.setblocking(False)
        connection.connect(f"/proc/self/fd/{file}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(file)
    return connection
