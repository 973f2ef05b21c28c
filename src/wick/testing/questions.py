"""Questions to users in tests: let them expire without waiting for a day."""

from __future__ import annotations

from time import time

from wick.capabilities.sessions import LOCAL, Sessions
from wick.errors import StoreError
from wick.stores.held_thread import hold
from wick.threads import Thread


async def lapse_questions(sessions: Sessions, thread: str, *, owner: str = LOCAL) -> None:
    """Let the open questions of a paused thread expire now. Its run must not be in progress."""
    await sessions.store.head(owner, thread)
    held = Thread(thread)
    async with hold(sessions.store, owner, held, wait=False):
        if not held.questions:
            raise StoreError(f"thread {thread} has no open question", "not_found")
        for question in [*held.questions.values()]:
            held.append("asked", {**question, "expires": time()})
        await held.saved()
