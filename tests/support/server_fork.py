"""A process that has loaded the server, and forks for each that is started: `python server_fork.py SOCKET`.

For each there is a second process that waits for its end, and reports its exit code.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from importlib import import_module
from runpy import run_module, run_path
from typing import Any

# Modules loaded in advance. A server uses them, or imports others by itself.
LOADED = """
wick.cli wick.cli.commands.serve wick.server wick.server.app wick.server.agents.default_agent wick.models.demo
wick.models.scripted wick.models.registry wick.backends.local wick.capabilities.ask_user wick.capabilities.subagents
wick.capabilities.todos wick.stores.sqlite uvloop uvicorn yaml orjson aiohttp httptools websockets
""".split()


def accept_servers(link: socket.socket) -> dict[str, Any]:
    """Fork for each server that is asked for; return in the process that is to be the server."""
    while True:
        head, files, _, _ = socket.recv_fds(link, 4, 2)
        if not head:
            os._exit(0)
        told: dict[str, Any] = json.loads(link.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        log, status = files
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            link.close()
            if server := os.fork():
                _report_exit(server, status)
            os.close(status)
            _take_over(told, log)
            return told
        for file in files:
            os.close(file)


def _report_exit(server: int, status: int) -> None:
    os.setpgid(0, 0)
    os.write(status, f"{server}\n".encode())
    os.write(status, f"{os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])}\n".encode())
    os._exit(0)


def _take_over(told: dict[str, Any], log: int) -> None:
    """Take the folder, the environment, the words and the log of a server."""
    os.setpgid(0, 0)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = told["words"]
    sys.orig_argv = [sys.executable, *told["words"]]


if __name__ == "__main__":
    for name in LOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the second processes are not waited for
    gc.freeze()  # loaded objects are frozen, and so never copied
    server = accept_servers(socket.socket(fileno=int(sys.argv[1])))
    if server["words"][0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = sys.argv[1:]
        run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(sys.argv[0])
        run_path(sys.argv[0], run_name="__main__")
