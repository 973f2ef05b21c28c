"""Watches on threads: notified from any OS thread, each waking its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from threading import Lock

from wick.errors import StoreError
from wick.protocols import News
from wick.stores.rows import not_found_error

ThreadKey = tuple[str, str]  # owner and id


class ThreadWatch:
    """A watch on a thread. It stores only the newest state, so slow watchers need no queue."""

    __slots__ = ("_changed", "_end", "_loop", "_news")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] | None = None  # while it is awaited; an Event takes 0.8 kB
        self._news = News(0, 0)
        self._end: StoreError | bool = False

    def notify(self, news: News | StoreError | bool) -> None:
        def receive() -> None:
            if isinstance(news, News):
                self._news = merge_news(self._news, news)
            else:
                self._end = news
            if self._changed is not None and not self._changed.done():
                self._changed.set_result(None)

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
            self._changed = self._loop.create_future()
            await self._changed


def merge_news(one: News, other: News) -> News:
    """Return the later position of both."""
    return News(max(one.last, other.last), max(one.inbox, other.inbox))


class ThreadWatchers:
    """The watches on the threads of a store."""

    def __init__(self) -> None:
        self._watches: dict[ThreadKey, tuple[ThreadWatch, ...]] = {}  # an empty set takes 0.2 kB
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

    def add(self, key: ThreadKey) -> ThreadWatch:
        """Watch a thread until `remove` is called."""
        watch = ThreadWatch()
        with self._lock:
            self._watches[key] = (*self._watches.get(key, ()), watch)
        return watch

    def remove(self, key: ThreadKey, watch: ThreadWatch) -> None:
        with self._lock:
            left = tuple(other for other in self._watches[key] if other is not watch)
            if left:
                self._watches[key] = left
            else:
                del self._watches[key]


async def follow_thread(
    watchers: ThreadWatchers, key: ThreadKey, now: Callable[[], Awaitable[News | None]]
) -> AsyncGenerator[News, None]:
    """Yield the news of a thread now, and after each change. None ends it: the store is closed."""
    watch = watchers.add(key)
    try:
        news = await now()
        while news is not None:
            yield news
            news = await watch.wait_newer(news)
    finally:
        watchers.remove(key, watch)
