"""Test cases for watchers, which are notified of changes to a thread."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from wick.protocols import News, Store
from wick.testing.leased_thread_cases import (
    LeasedThreadCases,
    hold_thread,
    make_entries,
    make_entry,
)


class WatchCases(LeasedThreadCases):
    """Test cases for watchers."""

    async def test_a_watcher_is_notified_of_changes(self, store: Store) -> None:
        writer = await hold_thread(store)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            assert await anext(news) == News(0, 0)
            await writer.append(*make_entries(1, 2))
            assert await anext(news) == News(2, 0)
            await store.enqueue("ada", "t", {"n": 1})
            await store.enqueue("ada", "t", {"n": 2})
            seen = await anext(news)
            while seen != News(2, 2):  # it may skip some, never the last
                seen = await anext(news)
            await store.delete("ada", "t")
            with self.assert_refused("not_found"):
                await anext(news)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            with self.assert_refused("not_found"):
                await anext(news)

    async def test_a_watcher_gets_only_changes_of_its_thread(self, store: Store) -> None:
        writer = await hold_thread(store)
        other = await hold_thread(store, "other")
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            await anext(news)
            waiting = asyncio.ensure_future(anext(news))
            await other.append(make_entry(1))
            await asyncio.sleep(0.1)
            assert not waiting.done(), "a watcher was notified of another thread"
            await writer.append(make_entry(1))
            assert await waiting == News(1, 0)

    async def test_closing_ends_watchers(self, store: Store) -> None:
        await hold_thread(store)
        async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
            await anext(news)
            await store.close()
            assert await anext(news, None) is None, "a watcher ends when its store is closed"

    async def test_many_watchers_are_notified(self, store: Store) -> None:
        writer = await hold_thread(store)

        async def last() -> int:
            async with aclosing(store.watch("ada", "t")) as news:  # type: ignore[type-var]
                async for found in news:
                    if found.last == 20:
                        return 20
            return 0

        watching = [asyncio.ensure_future(last()) for _ in range(20)]
        for seq in range(1, 21):
            await writer.append(make_entry(seq))
        assert await asyncio.gather(*watching) == [20] * 20
