"""Expiry of idle threads: a background task that deletes them in small batches, if `retention` is set."""

from __future__ import annotations

import asyncio
import logging

from wick import constants
from wick.server.runs.threads import UserThreads

logger = logging.getLogger("wick.server")


class ThreadExpiry:
    """Deletes threads that have been idle for `seconds`. With 0 it deletes nothing."""

    def __init__(self, conversations: UserThreads, seconds: float) -> None:
        self._threads, self._seconds = conversations, seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._seconds:
            self._task = asyncio.create_task(self._expire_forever(), name="expiry of threads")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _expire_forever(self) -> None:
        pause = min(constants.EXPIRE_SECONDS, max(1.0, self._seconds / 10))
        while True:
            try:
                while await self._threads.expire(self._seconds):
                    logger.debug("deleted idle threads")
            except Exception:
                logger.warning("expired threads could not be deleted; retrying", exc_info=True)
            await asyncio.sleep(pause)
