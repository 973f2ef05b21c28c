"""Links to threads that anyone may read until the link is revoked.

A link holds a secret of 256 bits; the records hold its hash, so that a reader of the database has no link. It shows the
messages up to the moment when it was created.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wick.protocols import Summary
from wick.server.auth.signed_cookies import new_secret, secret_id
from wick.server.records import Records

KIND = "share"  # of records
ID_CHARS = 16
MAX_SHARES = 50  # of one thread


@dataclass(frozen=True, slots=True)
class Share:
    """A link to a thread, without its secret."""

    id: str
    owner: str
    thread: str
    thread_created: float  # a later thread with the same id is another one
    last: int  # the last entry that it shows
    created: float


class Shares:
    """The links of a server. All servers of a database know them."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time) -> None:
        self._records, self._clock = records, clock

    async def create(self, head: Summary) -> tuple[str, Share]:
        """Return the secret of a new link to a thread, and its record. The secret cannot be read again."""
        secret = new_secret()
        data: dict[str, Any] = {"thread": head.id, "thread_created": head.created, "last": head.last}
        data["created"] = self._clock()
        await self._records.put(KIND, head.owner, secret_id(secret), data)
        return secret, Share(secret_id(secret)[:ID_CHARS], head.owner, **data)

    async def find(self, secret: str) -> Share | None:
        """Return the link with a secret, or None if it is unknown or revoked."""
        id = secret_id(secret)
        found = await self._records.find(KIND, id)
        return None if found is None else Share(id[:ID_CHARS], found[0], **found[1])

    async def list(self, head: Summary) -> list[Share]:
        """Return the links to a thread, the latest first."""
        rows = await self._records.list(KIND, head.owner)
        shares = [Share(row.id[:ID_CHARS], row.owner, **row.data) for row in rows if row.data["thread"] == head.id]
        return sorted(shares, key=lambda share: share.created, reverse=True)

    async def revoke(self, owner: str, thread: str, id: str) -> bool:
        """Revoke a link of a thread; return False if it does not exist."""
        for row in await self._records.list(KIND, owner):
            if row.data["thread"] == thread and row.id[:ID_CHARS] == id:
                return await self._records.delete(KIND, owner, row.id)
        return False

    async def revoke_all(self, owner: str, thread: str) -> None:
        """Revoke the links of a deleted thread."""
        for row in await self._records.list(KIND, owner):
            if row.data["thread"] == thread:
                await self._records.delete(KIND, owner, row.id)
