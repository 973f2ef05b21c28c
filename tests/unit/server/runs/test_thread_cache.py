"""Threads in memory: the conditions under which a run continues with a cached thread, and the limit of their size."""

from __future__ import annotations

import pytest

from wick.constants import CACHED_ENTRY_BYTES
from wick.messages import ImagePart, Message, TextPart, ToolCall, user
from wick.protocols import Lease, Summary
from wick.server.runs import thread_cache
from wick.server.runs.thread_cache import CachedThread, ThreadCache, count_chars
from wick.threads import Thread


def lease(last: int, created: float = 1.0) -> Lease:
    return Lease(2, "me", 100.0, Summary("ada", "t", "", {}, created, created, last, "", 0, 0, True), ())


def cached(id: str = "t", texts: int = 2, created: float = 1.0) -> CachedThread:
    thread = Thread(id)
    thread.add(*[user("x" * 10)] * texts)
    return CachedThread("ada", thread, created)


def test_a_run_takes_the_thread_of_the_same_log() -> None:
    cache, left = ThreadCache(), cached()
    for last in (2, 5):  # unchanged; another process has appended three entries
        cache.put(left)
        assert cache.take("ada", "t", lease(last)) is left and cache.size == 0
    assert cache.take("ada", "t", lease(2)).thread is not left.thread  # it is taken once


@pytest.mark.parametrize("other", [lease(1), lease(2, created=2.0), None])
def test_a_run_starts_anew_if_the_log_may_be_another_one(other: Lease | None) -> None:
    cache, left = ThreadCache(), cached()
    cache.put(left)
    taken = cache.take("ada", "t", other)
    assert taken.thread is not left.thread and not taken.thread.entries
    assert cache.take("bob", "t", lease(2)).thread is not left.thread


def test_images_and_arguments_count_for_the_size() -> None:
    cache, left = ThreadCache(), cached(texts=0)
    left.thread.add(Message("user", (TextPart("x"), ImagePart(data="A" * 50_000, media_type="image/png"))))
    left.thread.add(Message("assistant", tool_calls=(ToolCall("1", "write_file", {"content": ["y" * 40_000]}),)))
    left.thread.append("event", {"name": "z" * 30_000})
    cache.put(left)
    assert 2 * 120_000 < cache.size < 2 * 121_000 + 3 * CACHED_ENTRY_BYTES


def test_the_longest_unused_threads_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 2 * (CACHED_ENTRY_BYTES + 2 * count_chars(user("x" * 10)))
    cache, several = ThreadCache(2 * each), [cached("a"), cached("b"), cached("c")]
    for one in several:
        cache.put(one)
    assert cache.size == 2 * each and cache.discard("ada", "a") is None
    several[1].thread.add(user("y"))
    cache.put(several[1])  # it has grown, so that there is no room for another one
    assert cache.discard("ada", "c") is None and cache.discard("ada", "b") is several[1] and cache.size == 0
    monkeypatch.setattr(thread_cache, "CACHED_THREADS_SECONDS", -1.0)
    cache.put(several[0])
    assert cache.size == 0
    cache.put(CachedThread("ada", Thread("new")))  # its creation time is unknown
    assert cache.size == 0
