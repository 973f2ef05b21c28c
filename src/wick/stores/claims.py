"""Claims of threads that a server should resume, also from stores without a `claim` of their own."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import time
from typing import cast

from wick.errors import StoreError
from wick.protocols import ClaimingStore, Lease, Store, Summary
from wick.stores import rows
from wick.stores.held_thread import iter_unfinished, load
from wick.stores.process_identity import holder_name, holder_prefix

PAGE = 500


class ThreadClaims:
    """The claims of a server. A store without `claim` lists its unfinished threads, and each is leased by itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # by thread: its last entry, and when its first question expires
        self._expiry: dict[tuple[str, str], tuple[int, float]] = {}

    async def claim(self, capacity: int, skip: Sequence[Summary]) -> Sequence[Lease]:
        """Acquire the leases of at most so many threads, except those that have not changed since they are skipped."""
        holder = holder_name(getattr(self._store, "server_id", ""))
        if hasattr(self._store, "claim"):
            return await cast(ClaimingStore, self._store).claim(holder, capacity, skip=skip)
        unchanged, leases, listed = rows.unchanged_states(skip), list[Lease](), set[tuple[str, str]]()
        async for head in iter_unfinished(self._store, skip_holder=holder_prefix(), limit=PAGE):
            listed.add((head.owner, head.id))
            if len(leases) >= capacity or head.leased or not rows.can_claim(head, unchanged):
                continue
            try:
                if await self._can_resume(head):
                    leases.append(await self._store.lease(head.owner, head.id, holder, rows.LEASE_SECONDS))
            except StoreError as error:
                if error.code not in ("conflict", "not_found"):  # another server has it, or it was deleted
                    raise
        self._expiry = {key: known for key, known in self._expiry.items() if key in listed}
        return leases

    async def _can_resume(self, head: Summary) -> bool:
        """Return True unless a thread waits for an answer. It is read only when it has changed."""
        if not head.asking:
            return True
        key = head.owner, head.id
        last, expiry = self._expiry.get(key, (-1, inf))
        if last != head.last:
            asked = (await load(self._store, head.owner, head.id)).questions.values()
            expiry = min(map(rows.question_expiry, asked), default=inf)
            self._expiry[key] = head.last, expiry
        if time() >= expiry:
            return True
        return head.queued > 0 and any(item.kind == "answer" for item in await self._store.inbox(*key))
