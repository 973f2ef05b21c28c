"""What is typed while an agent answers: not shown in the midst of that, and passed on when it is sent."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

CHUNK = 65_536
SHOW_CURSOR = "\x1b[?25h"


class TypeAheadReader:
    """Hears each line that is sent at the terminal; what was typed and not sent is there at the next prompt."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard, self._handle = heard, sys.stdin.fileno()

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Hear, and do not show what is typed."""
        before = termios.tcgetattr(self._handle)
        now = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(self._handle, termios.TCSADRAIN, now)
        self._listen()
        try:
            yield
        finally:
            self._stop()
            termios.tcsetattr(self._handle, termios.TCSADRAIN, before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to somebody who asks something there."""
        self._stop()
        try:
            yield
        finally:
            self._listen()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._handle, self._read)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)

    def _read(self) -> None:
        """Lines that were sent at once, as those of a paste are, are one thing that was said."""
        said = b""
        while select.select([self._handle], [], [], 0)[0]:
            try:
                more = os.read(self._handle, CHUNK)
            except OSError:
                more = b""
            if not more:  # Ctrl-D, or the terminal is gone; nothing more is heard until the next run
                self._stop()
                break
            said += more
        if words := said.decode(errors="replace").strip():
            self._heard(words)


@contextmanager
def restore_terminal_on_sigterm() -> Iterator[None]:
    """Who is ended by SIGTERM leaves the terminal as it was: it shows what is typed, and where."""
    before, other = termios.tcgetattr(sys.stdin), signal.getsignal(signal.SIGTERM)

    def restore(number: int, frame: FrameType | None) -> Any:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        os.write(sys.stdout.fileno(), SHOW_CURSOR.encode())
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, restore)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, other)
