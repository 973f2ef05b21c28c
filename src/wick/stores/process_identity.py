"""Names of lease holders, by which processes on the same machine detect that a holder has ended.

A lease expires. If its holder is known to have ended, the lease can be taken over at once.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from uuid import uuid4


def holder_name(server: str = "") -> str:
    """Return a new unique holder name for this process, or for a server of a cluster in it."""
    return f"{_holder_prefix(os.getpid())}{f'{server}.' if server else ''}{uuid4().hex[:8]}"


def server_id(holder: str) -> str:
    """Return the server of a cluster that a holder belongs to, or an empty text."""
    process, _, name = holder.rpartition(":")
    return name.rpartition(".")[0] if process else ""


def holder_prefix() -> str:
    """Return the text with which all holder names of this process start."""
    return _holder_prefix(os.getpid())


def has_ended(holder: str) -> bool:
    """Return True if a holder is a process of this machine that has ended; False if unknown."""
    if holder.startswith(_holder_prefix(os.getpid())):  # a server checks thousands of its own holders every few seconds
        return False
    *host, namespace, pid, started, _ = holder.rsplit(":", 4) if holder.count(":") >= 4 else ("",) * 5
    if host != [socket.gethostname()] or namespace != _pid_namespace() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # owned by another user
        pass
    fields = _process_status(int(pid))
    is_zombie = bool(fields) and fields[0] == b"Z" and fields[17] == b"1"  # else threads run after the main thread
    return _process_start_time(int(pid)) != started or is_zombie


@cache
def _holder_prefix(pid: int) -> str:
    """Return the prefix of this process's holder names."""
    return f"{socket.gethostname()}:{_pid_namespace()}:{pid}:{_process_start_time(pid)}:"


def _pid_namespace() -> str:
    """Return the inode of this process's PID namespace."""
    with suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return ""


def _process_start_time(pid: int) -> str:
    """Return the start time of a process if known: PIDs are reused."""
    fields = _process_status(pid)
    return fields[19].decode() if fields else ""


def _process_status(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` from the state on; an empty list if they are not available."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return fields if len(fields) > 19 else []
    return []
