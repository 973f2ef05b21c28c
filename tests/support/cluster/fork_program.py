"""A process that has loaded wick, and forks for each server of a cluster: a restart takes a fraction of the time.

    python fork_program.py

Each line of its input is a server as JSON: its arguments, folder, host name, address, environment and log. It replies
with a line: the process id of the server, which is the first process in its own namespaces. The server starts once its
network address exists.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

from server_fork import LOADED  # noqa: E402

MORE = "wick.models.openai wick.stores.postgres wick.server.records.postgres wick.server.live.nats psycopg_pool nats"
NAMESPACES = 0x40000000 | 0x20000000 | 0x04000000 | 0x00020000  # CLONE_NEWNET, NEWPID, NEWUTS, NEWNS
PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE
PARENT_DIED = 1  # PR_SET_PDEATHSIG
libc = ctypes.CDLL(None, use_errno=True)


def fork_server(told: dict[str, Any]) -> bool:
    """Fork a server in namespaces of its own, and print its process id; return True in the server."""
    reads, writes = os.pipe()
    if keeper := os.fork():
        os.close(writes)
        with open(reads, encoding="ascii") as lines:
            print(lines.readline().strip() or f"process {keeper} failed", flush=True)
        return False
    libc.prctl(PARENT_DIED, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    check(libc.unshare(NAMESPACES), "unshare")
    if server := os.fork():  # its parent stays outside of its PID namespace
        os.write(writes, f"{server}\n".encode())
        os.waitpid(server, 0)
        os._exit(0)
    libc.prctl(PARENT_DIED, signal.SIGKILL)
    os.close(reads)
    os.close(writes)
    enter_machine(told)
    return True


def check(result: int, name: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def enter_machine(told: dict[str, Any]) -> None:
    """Take the host name, the folder, the environment and the log of a server, and wait for its network."""
    check(libc.mount(b"none", b"/", None, PRIVATE, None), "mount")
    check(libc.mount(b"proc", b"/proc", b"proc", 0, None), "mount")
    socket.sethostname(told["name"])
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in ((0, nothing), (1, log), (2, log)):
        os.dup2(file, number)
    os.chdir(told["folder"])
    os.environ.update(told["environment"])
    while not has_address(told["address"]):
        time.sleep(0.005)


def has_address(address: str) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    for module in [*LOADED, *MORE.split()]:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # loaded objects are frozen, and so never copied
    for line in sys.stdin:
        given = json.loads(line)
        if fork_server(given):
            sys.path[0] = os.getcwd()
            sys.argv = ["wick.cli", *given["arguments"]]
            sys.orig_argv = [sys.executable, "-m", *sys.argv]
            run_module("wick.cli", run_name="__main__", alter_sys=True)
            break
