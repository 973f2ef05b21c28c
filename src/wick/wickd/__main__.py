"""Command line of wickd: serve standard input and output, or listen on a port or socket for clients with the token.

    python3 wickd.pyz                                    one client, by stdin and stdout; ends when stdin does
    python3 wickd.pyz --tcp [HOST:PORT] --token-stdin    listens (127.0.0.1:9090); the token is the first line of stdin
    python3 wickd.pyz --unix [PATH] --token-file FILE    listens (/tmp/wick-daemon.sock); the token is read from FILE

Without --token-… the token is read from the environment variable WICK_DAEMON_TOKEN. It is never an argument, because
all users can read the arguments of processes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import signal
import socket
import stat
import sys
from functools import partial
from typing import Any

from wick.wickd import files
from wick.wickd.commands import CommandPool
from wick.wickd.event_loop import EventLoop
from wick.wickd.server import ClientConnection
from wick.wickd.supervisor import fork_under_guard
from wick.wickd.watcher import WatcherPool
from wick.workspace.namespaces import hold_devices
from wick.workspace.processes import drop_session_keys, hide_memory

TCP, UNIX = "127.0.0.1:9090", "/tmp/wick-daemon.sock"
TOKEN = "WICK_DAEMON_TOKEN"


def main(arguments: list[str] | None = None) -> None:
    options, token = _parse_options(arguments)
    ends = _prepare_process(options.parent)
    loop = EventLoop()
    _end_on_signals(loop, options.parent)
    watchers = WatcherPool(loop)
    commands = CommandPool(loop, files.perform_call, lambda: watchers.pids)
    if options.tcp or options.unix:
        _accept_connections(loop, commands, watchers, _open_sockets(options), token)
    else:
        ClientConnection(loop, commands, watchers, ends).on_close = lambda: setattr(loop, "running", False)
    try:
        loop.run()
    finally:
        commands.close()
        watchers.close()
        if options.unix:
            _remove_socket(options.unix)


def _parse_options(arguments: list[str] | None) -> tuple[Any, str]:
    """Return the options, and the token for clients; exit if wickd would listen without one."""
    parser = argparse.ArgumentParser(prog="wickd", description="Runs commands and file operations for wick.")
    parser.add_argument("--tcp", metavar="HOST:PORT", nargs="?", const=TCP, help=f"listen there (default: {TCP})")
    parser.add_argument("--unix", metavar="PATH", nargs="?", const=UNIX, help=f"listen there (default: {UNIX})")
    parser.add_argument("--token-file", metavar="FILE", help="read the token of clients from this file")
    parser.add_argument(
        "--token-stdin", action="store_true", help="read the token of clients from the first line of stdin"
    )
    parser.add_argument("--parent", metavar="PID", type=int, help="end when this process, its parent, does")
    options = parser.parse_args(arguments)
    if not (options.tcp or options.unix):
        return options, ""
    if options.token_stdin:
        token = sys.stdin.readline().strip()
    elif options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    else:
        token = os.environ.get(TOKEN, "")
    if len(token) < 16:
        sys.exit(
            f"wickd: to listen, a token of at least 16 characters is needed: --token-stdin, --token-file or {TOKEN}"
        )
    return options, token


def _prepare_process(parent: int | None) -> tuple[int, int]:
    """Set up the process: guard and subreaper, hidden memory, default signals, frozen GC for cheap forks.

    Return the descriptors of the protocol stream: stdin and stdout, moved so that no other code writes into it.
    """
    if parent:  # on the host, and before any device is opened
        hold_devices()
    ends = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    os.environ.pop(TOKEN, None)
    hide_memory()
    drop_session_keys()
    fork_under_guard(parent)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = hard if hard != resource.RLIM_INFINITY else 65_536
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    gc.collect()
    gc.freeze()
    return ends


def _end_on_signals(loop: EventLoop, parent: int | None) -> None:
    """End wickd and all its commands on TERM, INT and HUP, and with its parent process."""
    wakes, woken = os.pipe()
    for descriptor in (wakes, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: setattr(loop, "running", False))
    loop.on_read(wakes, lambda: os.read(wakes, 512))
    if not parent:
        return

    def check_parent() -> None:  # stdin is not enough: a fork of the parent may hold it open
        try:
            os.kill(parent, 0)
        except OSError:
            loop.running = False
        loop.call_later(1.0, check_parent)

    pidfd_open = getattr(os, "pidfd_open", None)  # Python 3.9, Linux 5.3
    try:
        descriptor = pidfd_open(parent) if pidfd_open else -1
    except OSError:
        descriptor = -1
    if descriptor >= 0:
        loop.on_read(descriptor, lambda: setattr(loop, "running", False))
    else:
        check_parent()


# -- listening ------------------------------------------------------------------------------------------------------


def _open_sockets(options: Any) -> list[socket.socket]:
    """Return the bound sockets. Only the user may connect to the Unix socket."""
    listeners = []
    if options.tcp:
        host, _, port = options.tcp.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
        listeners.append(listener)
    if options.unix:
        _remove_socket(options.unix)  # left behind by a killed process
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(options.unix)
        finally:
            os.umask(before)
        listeners.append(listener)
    return listeners


def _remove_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def _accept_connections(
    loop: EventLoop, commands: CommandPool, watchers: WatcherPool, listeners: list[socket.socket], token: str
) -> None:
    connections: set[ClientConnection] = set()

    def accept(listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        if peer.family != socket.AF_UNIX:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        descriptor = peer.detach()
        connection = ClientConnection(loop, commands, watchers, (descriptor, descriptor), token)
        connections.add(connection)
        connection.on_close = lambda: connections.discard(connection)

    for listener in listeners:
        listener.setblocking(False)
        listener.listen(16)
        loop.on_read(listener.fileno(), partial(accept, listener))


if __name__ == "__main__":
    main()
