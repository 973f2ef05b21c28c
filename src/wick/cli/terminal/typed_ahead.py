"""Type-ahead: reading lines typed while an agent answers, without echo."""

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
    """A reader of stdin that calls `on_text` with each entered text. An unfinished line stays for the next prompt."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text, self._handle = on_text, sys.stdin.fileno()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Disable echo, and read stdin while the block runs."""
        before = termios.tcgetattr(self._handle)
        now = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(self._handle, termios.TCSADRAIN, now)
        self._start_reading()
        try:
            yield
        finally:
            self._stop_reading()
            termios.tcsetattr(self._handle, termios.TCSADRAIN, before)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop reading while another prompt uses the terminal."""
        self._stop_reading()
        try:
            yield
        finally:
            self._start_reading()

    def _start_reading(self) -> None:
        asyncio.get_running_loop().add_reader(self._handle, self._read_lines)

    def _stop_reading(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)

    def _read_lines(self) -> None:
        """Read all available bytes as one text, so that a pasted block stays together."""
        data = b""
        while select.select([self._handle], [], [], 0)[0]:
            try:
                more = os.read(self._handle, CHUNK)
            except OSError:
                more = b""
            if not more:  # Ctrl-D or a closed terminal; stop until the next run
                self._stop_reading()
                break
            data += more
        if words := data.decode(errors="replace").strip():
            self._on_text(words)


@contextmanager
def restore_terminal_on_sigterm() -> Iterator[None]:
    """Restore echo and the cursor if SIGTERM ends the process."""
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
