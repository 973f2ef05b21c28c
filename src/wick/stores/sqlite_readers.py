"""Connections that read a SQLite file, beside the one that writes it: a few at a time, kept for the next."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from traceback import clear_frames
from typing import TypeVar
from weakref import WeakKeyDictionary

from wick._internal.worker_threads import in_thread
from wick.errors import StoreError
from wick.stores.sqlite_file import TROUBLE, File, Link, explained

T = TypeVar("T")

READERS = 4  # how many read at once, each with a connection that is kept for the next


class Readers:
    """Those who read a file. `idle` are the connections that nobody uses now."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.idle: deque[Link] = deque()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """A few at a time, so that a thousand who read at once do not open a thousand connections."""
        loop = asyncio.get_running_loop()
        async with self._turns.setdefault(loop, asyncio.Semaphore(READERS)):
            return await in_thread(lambda: self.read_here(work), "sqlite reader")

    def read_here(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read in one transaction, so that what is seen belongs together."""
        link = self._taken()
        try:
            link.db.execute("BEGIN")
            found = work(link.db)
            self._put_back(link)
        except StoreError as error:
            clear_frames(error.__traceback__)  # whoever keeps the error would keep cursors, and so the file open
            self._put_back(link)
            raise
        except BaseException as error:
            clear_frames(error.__traceback__)
            link.close()
            if isinstance(error, TROUBLE):
                raise explained(error, self._file.path) from error
            raise
        return found

    def close(self) -> None:
        """Let go of the file; who reads now does not keep its connection either."""
        self._file.age += 1
        while self.idle:
            self.idle.pop().close()

    def _put_back(self, link: Link) -> None:
        link.db.execute("ROLLBACK")  # it only read
        if len(self.idle) < READERS and link.age == self._file.age:
            self.idle.append(link)
        else:
            link.close()

    def _taken(self) -> Link:
        while self.idle:
            with suppress(IndexError):  # another thread took it
                link = self.idle.pop()
                try:
                    link.check()
                except StoreError:
                    link.close()
                    continue
                return link
        return self._file.open(writes=False)
