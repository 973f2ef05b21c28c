"""A process that has loaded the commands, and forks for each that is to be run: `python fork_server.py SOCKET`."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from importlib import import_module
from typing import Any

# Modules loaded in advance. A command uses them, or imports others by itself.
LOADED = """
wick.cli.commands.agents wick.cli.commands.approvals wick.cli.commands.doctor wick.cli.commands.hooks
wick.cli.commands.mcp wick.cli.commands.new wick.cli.commands.replay wick.cli.commands.run wick.cli.commands.skills
wick.cli.commands.threads wick.cli.host.local wick.cli.host.remote wick.models.demo wick.models.registry rich.console
rich.table aiohttp yaml orjson opentelemetry.trace wick.capabilities.permissions wick.capabilities.tracing
""".split()


def accept_commands(link: socket.socket) -> None:
    """Fork for each command that is asked for; returns in the process that is to be the command."""
    while True:
        head, files, _, _ = socket.recv_fds(link, 4, 3)
        if not head:
            os._exit(0)
        told = json.loads(link.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        child = os.fork()
        if not child:
            return exec_command(told, files)
        for file in files:
            os.close(file)
        link.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF]))


def exec_command(told: dict[str, Any], files: list[int]) -> None:
    """Take the folder, the environment, the words and the pipes of a command."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = ["wick", *told["words"]]
    sys.path[0] = ""  # the folder it is called in


if __name__ == "__main__":
    for name in LOADED:
        import_module(name)
    gc.freeze()  # loaded objects are frozen, and so never copied
    with socket.socket(fileno=int(sys.argv[1])) as link:
        accept_commands(link)
    import_module("wick.cli").main()
