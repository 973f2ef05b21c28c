"""Shells that outlive their connection for a minute, so that a reloaded page finds its shell again.

A session belongs to one user and one agent. Its name is chosen by the client. While no client is connected nothing
reads from the shell, so a program that writes a lot waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from wick.errors import BackendError
from wick.protocols import Terminal
from wick.server.agents.builder import AgentInstance

DETACHED_SECONDS = 60.0  # without a connection
SCROLLBACK_BYTES = 200_000  # of recent output, for the screen of the next connection
CLOSE_SECONDS = 1.0  # for a shell to exit

SessionKey = tuple[str, str, str]  # user, agent, name
_QUERIES = re.compile(rb"\x1b\[[>=?]?\d*[cn]")  # a terminal would answer them again


@dataclass(eq=False, slots=True)
class TerminalSession:
    """A shell, its recent output, and the connection that uses it."""

    terminal: Terminal
    instance: AgentInstance
    resources: ExitStack  # the quota and the hold of the agent instance
    scrollback: bytearray = field(default_factory=bytearray)
    relay: asyncio.Task[bool] | None = None  # of the connection that uses it
    expiry: asyncio.TimerHandle | None = None  # while no connection uses it

    def add_output(self, data: bytes) -> None:
        self.scrollback += data
        if len(self.scrollback) > 2 * SCROLLBACK_BYTES:
            start = self.scrollback.find(b"\n", -SCROLLBACK_BYTES)  # not in the middle of an escape sequence
            del self.scrollback[: start + 1 or -SCROLLBACK_BYTES]

    def replay_output(self) -> bytes:
        """Return the recent output, without queries that the client's terminal would answer."""
        return _QUERIES.sub(b"", bytes(self.scrollback))

    async def release_connection(self) -> None:
        """Stop the relay of the connection that uses the shell, or the timer that closes it."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None
        relay, self.relay = self.relay, None
        if relay is not None:
            relay.cancel()
            await asyncio.wait({relay})

    async def close(self) -> None:
        """Close the shell and release its resources."""
        if self.expiry is not None:
            self.expiry.cancel()
        try:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.terminal.close()
        finally:
            self.resources.close()


class TerminalSessions:
    """The shells of a server."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, TerminalSession] = {}
        # one connection at a time attaches to a session; a lock exists while one does
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    async def attach(
        self, key: SessionKey, instance: AgentInstance, start: Callable[[], Awaitable[TerminalSession]]
    ) -> tuple[TerminalSession, bool]:
        """Return the session of this name, taken over from an older connection, or start one; and if it is resumed."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            session = self._sessions.get(key)
            if session is not None:
                await session.release_connection()
                if session.instance is instance:
                    return session, True
                await self.close(key, session)  # the agent has another backend by now
            session = self._sessions[key] = await start()
            return session, False

    def detach(self, key: SessionKey, session: TerminalSession) -> None:
        """Close a session later, unless a connection attaches to it before."""
        session.relay = None
        loop = asyncio.get_running_loop()
        session.expiry = loop.call_later(DETACHED_SECONDS, lambda: self._close_soon(key, session))

    def _close_soon(self, key: SessionKey, session: TerminalSession) -> None:
        task = asyncio.ensure_future(self.close(key, session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self, key: SessionKey, session: TerminalSession) -> None:
        if self._sessions.get(key) is session:
            del self._sessions[key]
        await session.close()

    async def close_all(self) -> None:
        for key, session in [*self._sessions.items()]:
            await self.close(key, session)
        await asyncio.gather(*self._closing, return_exceptions=True)
