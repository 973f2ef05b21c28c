"""Commands as processes that need not load wick first: each is a fork of one that has.

A command is a process of its own, with its own folder, environment and pipes, that begins where `wick` has just been
loaded. It costs a tenth of one that is started anew. `Wick` in `command.py` starts them anew, as people do.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cli.command import CommandResult, WickCommand
from leak_checks import allow_leaks

SECONDS = 60.0
FORKED = Path(__file__).with_name("fork_server.py")


class ForkServer:
    """A process that has loaded the commands, and forks for each that is to be run."""

    def __init__(self) -> None:
        with allow_leaks():
            self._begin()
        self.socket.settimeout(SECONDS)
        atexit.register(self.close)

    def _begin(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-W", "error", str(FORKED), str(theirs.fileno())]
            self.process = subprocess.Popen(
                words,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"},
            )

    def run(
        self, words: list[str], folder: Path, environment: Mapping[str, str], stdin: bytes
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its exit code and output."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            told = json.dumps({"words": words, "folder": str(folder), "environment": dict(environment)}).encode()
            files = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(self.socket, [len(told).to_bytes(4, "big")], files)
            self.socket.sendall(told)
            code = int.from_bytes(self._answer(), "big")
            for file in (out, err):
                file.seek(0)
            return code, out.read(), err.read()

    def _answer(self) -> bytes:
        try:
            return self.socket.recv(1)
        except TimeoutError:
            self.close()
            raise AssertionError(f"a command did not end within {SECONDS:g} s") from None

    def close(self) -> None:
        fork_server.cache_clear()
        self.socket.close()
        self.process.kill()
        self.process.wait()


@cache
def fork_server() -> ForkServer:
    """The one of this program, made when it is first needed."""
    return ForkServer()


class ForkedWick(WickCommand):
    """The command `wick` as such a process."""

    def __call__(self, *words: str, stdin: str | bytes = "", **environment: str) -> CommandResult:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        code, out, err = fork_server().run([*words], self.folder, self.environment | environment, given)
        assert "--verbose" in words or b"Traceback" not in err, err.decode()
        return CommandResult(code, out.decode(), err.decode())

    def as_new_process(self, *words: str, **environment: str) -> CommandResult:
        """The same as a process that is started anew, as people do."""
        return super().__call__(*words, **environment)
