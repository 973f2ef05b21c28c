"""PublishingStore: a store whose changes of threads are published on the event bus, while a window awaits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wick.protocols import Lease, Store, Summary
from wick.server.ops.event_bus import THREAD_CHANGED, EventBus

APPROVAL_KINDS = frozenset({"asked", "answered", "rewind", "run_end"})  # entries that open or close questions


class PublishingStore:
    """Publishes each change of a thread after it is durable.

    `approvals` of an event says that its questions may have changed, `files` that a tool has ended, which may have
    changed files.
    """

    def __init__(self, store: Store, bus: EventBus) -> None:
        self._store, self._bus = store, bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _publish(self, owner: str, id: str, *, approvals: bool = False, files: bool = False) -> None:
        change = {"thread_id": id, "approvals": approvals, "files": files}
        self._bus.publish_change(owner, THREAD_CHANGED, change)

    async def create(self, owner: str, id: str, **options: Any) -> Summary:
        head = await self._store.create(owner, id, **options)
        self._publish(owner, id)
        return head

    async def append(self, owner: str, id: str, entries: Sequence[Mapping[str, Any]], **options: Any) -> int:
        last = await self._store.append(owner, id, entries, **options)
        self._publish_entries(owner, id, entries)
        return last

    def _publish_entries(self, owner: str, id: str, entries: Sequence[Mapping[str, Any]]) -> None:
        if self._bus.is_awaited(owner):
            kinds = {entry["kind"] for entry in entries}
            self._publish(owner, id, approvals=not APPROVAL_KINDS.isdisjoint(kinds), files="done" in kinds)

    async def delete(self, owner: str, id: str) -> None:
        await self._store.delete(owner, id)
        self._publish(owner, id, approvals=True)

    async def expire(self, idle: float, **options: Any) -> Sequence[tuple[str, str]]:
        expired = await self._store.expire(idle, **options)
        for owner, id in expired:
            self._publish(owner, id)
        return expired

    async def fork(self, owner: str, id: str, at: int, new_id: str, **options: Any) -> Summary:
        head = await self._store.fork(owner, id, at, new_id, **options)
        self._publish(owner, new_id, approvals=True)
        return head

    async def lease(self, owner: str, id: str, holder: str, seconds: float, **options: Any) -> Lease:
        lease = await self._store.lease(owner, id, holder, seconds, **options)
        self._publish(owner, id)
        return lease

    async def release(
        self, owner: str, id: str, fence: int, *, entries: Sequence[Mapping[str, Any]] = (), **options: Any
    ) -> Summary | None:
        head = await self._store.release(owner, id, fence, entries=entries, **options)
        self._publish_entries(owner, id, entries)
        return head

    async def describe(self, owner: str, id: str, **options: Any) -> Summary:
        head = await self._store.describe(owner, id, **options)
        self._publish(owner, id)
        return head

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        position = await self._store.enqueue(owner, id, *messages, key=key)
        self._publish(owner, id)
        return position

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        position = await self._store.answer(owner, id, question, data)
        self._publish(owner, id, approvals=True)
        return position
