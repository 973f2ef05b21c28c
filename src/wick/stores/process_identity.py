"""Who holds a thread: a program, named so that others on its machine can tell when it has ended.

A lease lapses by itself. Where one can tell that the program which held it is no more, nobody needs to wait for that.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from uuid import uuid4


def holder_name() -> str:
    """A name for this program as the holder of something; each one is another."""
    return f"{_holder_prefix(os.getpid())}{uuid4().hex[:8]}"


def has_ended(holder: str) -> bool:
    """Whether a holder is a program of this machine that has ended; of others nobody knows."""
    if holder.startswith(_holder_prefix(os.getpid())):  # a server looks at thousands of its own every few seconds
        return False
    *host, namespace, pid, started, _ = holder.rsplit(":", 4) if holder.count(":") >= 4 else ("",) * 5
    if host != [socket.gethostname()] or namespace != _pid_namespace() or not pid.isdecimal():
        return False
    return not _process_exists(int(pid)) or _process_start_time(int(pid)) != started


@cache
def _holder_prefix(pid: int) -> str:
    """How the names of this program's holders begin."""
    return f"{socket.gethostname()}:{_pid_namespace()}:{pid}:{_process_start_time(pid)}:"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is somebody else's
        pass
    return True


def _pid_namespace() -> str:
    """In which numbers mean which processes."""
    with suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return ""


def _process_start_time(pid: int) -> str:
    """When a process began, as far as the system tells: its number may be used again."""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()
    return ""
