"""Threads in memory: a run continues with the entries that the previous run of its thread has left."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Any

from wick.constants import CACHED_ENTRY_BYTES, CACHED_THREADS_BYTES, CACHED_THREADS_SECONDS
from wick.messages import Message
from wick.protocols import Lease
from wick.stores.rows import encode_json
from wick.threads import Thread


@dataclass(slots=True)
class CachedThread:
    """A thread and its approximate size in memory."""

    owner: str
    thread: Thread
    created: float = 0.0  # distinguishes a thread that was deleted and created again; 0 if unknown
    size: int = 0
    counted: int = 0  # entries in `size`
    used: float = 0.0  # monotonic time

    def measure(self) -> None:
        """Add the entries since the last call to the size."""
        for entry in self.thread.entries[self.counted :]:
            # texts, images and arguments, and their encoded form for the provider
            self.size += CACHED_ENTRY_BYTES + 2 * count_chars(entry.data)
        self.counted, self.used = len(self.thread.entries), monotonic()


def count_chars(data: Any) -> int:
    """Return about the length of all texts in a message or in JSON data."""
    if isinstance(data, str):
        return len(data)
    if isinstance(data, Message) and isinstance(data.content, str) and not data.reasoning:  # most of them
        return len(data.content) + sum(len(call.raw_args) for call in data.tool_calls)
    if isinstance(data, dict):
        return len(encode_json(data))
    if isinstance(data, list | tuple):
        return sum(map(count_chars, data))
    return sum(count_chars(getattr(data, name)) for name in getattr(data, "__match_args__", ()))  # of a data class


class ThreadCache:
    """The recently used threads of a server, by owner and id. Their total size is limited."""

    def __init__(self, most: int = CACHED_THREADS_BYTES) -> None:
        self._most, self.size = most, 0
        self._cached: OrderedDict[tuple[str, str], CachedThread] = OrderedDict()  # the longest unused one is the first

    def take(self, owner: str, id: str, lease: Lease | None) -> CachedThread:
        """Remove and return the thread for a run: the cached one if the leased log has its entries, else a new one.

        A log is append-only, so that a cached thread lacks at most the last entries. The lease holder reads those.
        """
        cached, head = self.discard(owner, id), None if lease is None else lease.head
        if head is None:
            return CachedThread(owner, Thread(id))
        if cached is None or cached.created != head.created or len(cached.thread.entries) > head.last:
            return CachedThread(owner, Thread(id), head.created)
        return cached

    def put(self, cached: CachedThread) -> None:
        """Cache the thread of a run that has ended."""
        if not cached.created:
            return
        self.discard(cached.owner, cached.thread.id)
        cached.measure()
        self._cached[cached.owner, cached.thread.id] = cached
        self.size += cached.size
        expired = monotonic() - CACHED_THREADS_SECONDS
        while self._cached and (self.size > self._most or next(iter(self._cached.values())).used < expired):
            self.discard(*next(iter(self._cached)))

    def discard(self, owner: str, id: str) -> CachedThread | None:
        """Remove a thread from the cache, and return it."""
        cached = self._cached.pop((owner, id), None)
        self.size -= cached.size if cached is not None else 0
        return cached
