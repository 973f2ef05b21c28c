"""Threads of users: creating them for an agent, counting, forking, and deleting them with their subthreads."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from wick import constants
from wick.errors import StoreError
from wick.protocols import Lease, NewThread, Store, Summary
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.ops.quotas import QuotaLimiter
from wick.stores.process_identity import holder_name
from wick.stores.rows import LEASE_SECONDS, TITLE_CHARS
from wick.threads import Thread

PAGE = 500
RECOUNT_SECONDS = 5.0


class UserThreads:
    """Creates, forks and deletes threads within the quota of each user."""

    def __init__(self, store: Store, limits: QuotaLimiter) -> None:
        self.store, self.limits = store, limits
        self._counts: Counter[str] = Counter()
        self._recount: dict[str, float] = {}  # when to count again, since other servers create threads
        self._counting = asyncio.Lock()  # one count at a time, however many requests wait for it

    async def open(self, user: User, agent: str, id: str) -> Summary:
        """Return a thread; create it if it does not exist. Raise a 409 for a thread of another agent or a subagent."""
        try:
            head = await self.store.head(user.id, id)
        except StoreError as error:
            if error.code != "not_found":
                raise
            return await self._create(user, agent, id)
        if (its := thread_agent(head)) != agent:
            raise ApiError(409, "conflict", f"thread {id} is one of the agent {its!r}; take another thread")
        return head

    async def _create(self, user: User, agent: str, id: str) -> Summary:
        await self.check_room(user)
        try:
            head = await self.store.create(user.id, id, meta={"agent": agent})
        except StoreError as error:
            if error.code != "conflict":
                raise
            return await self.open(user, agent, id)  # created concurrently
        self._counts[user.id] += 1
        return head

    async def start(
        self, user: User, agent: str, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[Summary, Lease]:
        """Create a thread with messages in its inbox, and acquire its lease for the run that answers them.

        The options are for the store's `lease`.
        """
        await self.check_room(user)
        new = NewThread({"agent": agent}, messages)
        holder = holder_name(getattr(self.store, "server_id", ""))
        lease = await self.store.lease(user.id, Thread().id, holder, LEASE_SECONDS, new=new, **options)
        self._counts[user.id] += 1
        assert lease.head is not None
        return lease.head, lease

    async def check_room(self, user: User) -> None:
        """Make room for one more thread by deleting the longest idle ones. Raise a 429 if all are in use."""
        most = self.limits.limit_of("threads")
        if not most:
            return
        async with self._counting:
            if user.id not in self._counts or (
                self.limits.is_shared and monotonic() >= self._recount.get(user.id, 0.0)
            ):
                self._counts[user.id] = await self.store.count(user.id)
                self._recount[user.id] = monotonic() + RECOUNT_SECONDS
        while (over := self._counts[user.id] - most + 1) > 0:
            if not await self.expire(0.0, owner=user.id, limit=over):
                # recount: other servers delete threads, too
                self._counts[user.id] = await self.store.count(user.id)
                break
        self.limits.check_room("threads", self._counts[user.id])

    async def expire(self, idle: float, *, owner: str = "", limit: int = constants.EXPIRED_AT_ONCE) -> int:
        """Delete some threads that have been idle for this many seconds; return their number."""
        expired = await self.store.expire(idle, owner=owner, limit=min(limit, constants.EXPIRED_AT_ONCE))
        for user_id, _ in expired:
            if user_id in self._counts:
                self._counts[user_id] = max(0, self._counts[user_id] - 1)
        return len(expired)

    async def fork(self, user: User, id: str, at: int | None, title: str) -> tuple[Summary, str]:
        """Fork a thread after an entry; return the fork and its agent.

        The fork has no agent yet, so that no server resumes a run that was open there: see `assign_agent`.
        """
        head = await self.store.head(user.id, id)
        agent, place = thread_agent(head), head.last if at is None else at
        await self.check_room(user)
        about = {"forked_from": id, "forked_at": place}
        title = title or name_fork(head.title)
        forked = await self.store.fork(user.id, id, place, Thread().id, title=title, meta=about)
        self._counts[user.id] += 1
        return forked, agent

    async def assign_agent(self, forked: Summary, agent: str) -> Summary:
        """Set the agent of a fork."""
        return await self.store.describe(forked.owner, forked.id, meta={**forked.meta, "agent": agent})

    async def delete(self, user: User, id: str) -> None:
        """Delete a thread and its subthreads."""
        cursor = None
        while cursor != "":
            page = await self.store.list(user.id, prefix=f"{id}.", order="created", cursor=cursor or "", limit=PAGE)
            for head in page.threads:
                if "parent" in head.meta:
                    try:
                        await self.store.delete(user.id, head.id)
                    except StoreError as error:
                        if error.code != "not_found":  # else its parent would be gone, and no request could delete it
                            raise
            cursor = page.next
        await self.store.delete(user.id, id)
        self._counts.pop(user.id, None)  # recount on the next request: runs create subthreads, too


def thread_agent(head: Summary) -> str:
    """Return the agent of a thread; raise a 409 for a thread of a subagent or of the command line."""
    agent = head.meta.get("agent")
    if "parent" not in head.meta and agent is None:
        message = f"thread {head.id} was started at the command line; continue it there: wick chat --thread {head.id}"
        raise ApiError(409, "conflict", message)
    if "parent" in head.meta or not isinstance(agent, str):
        raise ApiError(409, "conflict", f"thread {head.id} belongs to a subagent; send messages to its parent thread")
    return agent


def name_fork(title: str) -> str:
    """Return the title of a fork: `tea (fork)`, and `tea (fork 2)` for a fork of that one."""
    if not title:
        return ""
    found = re.fullmatch(r"(.*) \(fork(?: (\d{1,6}))?\)", title, re.DOTALL)
    name, number = (found[1], int(found[2] or 1) + 1) if found else (title, 1)
    ending = f" (fork {number})" if number > 1 else " (fork)"
    return name[: TITLE_CHARS - len(ending)].rstrip() + ending
