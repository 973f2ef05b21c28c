"""A terminal that a test types into and reads: tmux, on its own socket."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cli.command import COMMAND

SECONDS = 60  # that something may take to appear, on a machine that is busy


class Terminal:
    """One window of tmux with a command in it."""

    def __init__(self, socket: Path) -> None:
        self._tmux, self._is_open = ["tmux", "-S", str(socket), "-f", "/dev/null"], False

    def open(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Start a command; an earlier one is left as if its terminal was closed."""
        settings = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        shell = f"{command}; echo EXIT $?; exec cat"  # the window stays, to be looked at
        how = ["respawn-pane", "-k"] if self._is_open else ["new-session", "-d", "-x", "110", "-y", "60"]
        self._do(*how, "-c", str(folder), *settings, shell)
        self._do("clear-history")
        self._is_open = True

    def _do(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, timeout=30, check=True, env=_ENVIRONMENT)
        return done.stdout.decode(errors="replace")

    def type(self, text: str) -> None:
        """Type letters; nothing is sent by that."""
        self._do("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def say(self, text: str) -> None:
        """Type a line and send it, once there is a place to type it."""
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste in bracketed-paste mode."""
        self._do("set-buffer", text)
        self._do("paste-buffer", "-p")

    @property
    def screen(self) -> str:
        """Return the visible text with the scrollback."""
        lines = self._do("capture-pane", "-p", "-J", "-S", "-500").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def see(self, *texts: str, after: str = "") -> str:
        """Wait until all of these can be seen, after the first place where `after` is."""
        until = time.monotonic() + SECONDS
        while True:
            seen = self.screen
            rest = seen[seen.index(after) + len(after) :] if after and after in seen else "" if after else seen
            if all(text in rest for text in texts):
                return rest
            if time.monotonic() > until:
                raise AssertionError(f"{texts} cannot be seen after {after!r}:\n{seen}")
            time.sleep(0.1)

    def end(self, program: str) -> None:
        """Send SIGTERM to a program of this window."""
        session = self._do("list-panes", "-F", "#{pane_pid}").strip()
        words = ["pgrep", "--session", session, "--full", rf"^\S*python.* {re.escape(program)} "]
        found = subprocess.run(words, capture_output=True, timeout=30, check=True).stdout.split()
        os.kill(int(found[0]), signal.SIGTERM)

    def close(self) -> None:
        with suppress(subprocess.SubprocessError):
            self._do("kill-server")


_ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """A terminal for one test."""
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            raise AssertionError("these tests need tmux: apt-get install tmux")
        pytest.skip("these tests need tmux: apt-get install tmux")
    with TemporaryDirectory(prefix="wick") as folder:  # the path of a socket is short
        made = Terminal(Path(folder) / "tmux")
        try:
            yield made
        finally:
            made.close()


def shell_command(*words: str) -> str:
    """Return the command `wick` as a shell line.

    Without `timeout`, which would pass Ctrl-C on: the command would get it twice, and the second one ends it.
    """
    return shlex.join([*COMMAND, *words])
