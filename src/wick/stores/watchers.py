"""Watches on threads: notified from any OS thread, each waking its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from wick.errors import StoreError
from wick.protocols import News
from wick.stores.rows import not_found_error

ThreadKey = tuple[str, str]  # owner and id


class ThreadWatch:
    """A watch on a thread. It stores only the newest state, so slow watchers need no queue."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._news = News(0, 0)
        self._end: StoreError | bool = False

    def notify(self, news: News | StoreError | bool) -> None:
        def receive() -> None:
            if isinstance(news, News):
                self._news = merge_news(self._news, news)
            else:
                self._end = news
            self._changed.set()

        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(receive)

    async def wait_newer(self, seen: News) -> News | None:
        """Wait for newer news; return None when the store is closed."""
        while True:
            if isinstance(self._end, StoreError):
                raise self._end
            if self._end:
                return None
            if (newest := merge_news(seen, self._news)) != seen:
                return newest
            self._changed.clear()
            await self._changed.wait()


def merge_news(one: News, other: News) -> News:
    """Return the later position of both."""
    return News(max(one.last, other.last), max(one.inbox, other.inbox))


class ThreadWatchers:
    """The watches on the threads of a store."""

    def __init__(self) -> None:
        self._watches: dict[ThreadKey, set[ThreadWatch]] = {}
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._watches)

    def watched_keys(self) -> list[ThreadKey]:
        with self._lock:
            return [*self._watches]

    def notify(self, key: ThreadKey, news: News | None) -> None:
        """Notify the watches of a thread; None means that it was deleted."""
        if key in self._watches:
            with self._lock:
                for watch in self._watches.get(key, ()):
                    watch.notify(not_found_error(key[1]) if news is None else news)

    def close(self) -> None:
        with self._lock:
            for watches in self._watches.values():
                for watch in watches:
                    watch.notify(True)

    @contextmanager
    def open(self, key: ThreadKey) -> Iterator[ThreadWatch]:
        watch = ThreadWatch()
        with self._lock:
            self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[key].discard(watch)
                if not self._watches[key]:
                    del self._watches[key]


async def follow_thread(
    watchers: ThreadWatchers, key: ThreadKey, now: Callable[[], Awaitable[News | None]]
) -> AsyncGenerator[News, None]:
    """Yield the news of a thread now, and after each change. None ends it: the store is closed."""
    with watchers.open(key) as watch:
        news = await now()
        while news is not None:
            yield news
            news = await watch.wait_newer(news)
