"""Shells that outlive their connection for a minute, so that a reloaded page finds its shell again.

A session belongs to one user and one agent. Its name is chosen by the client. While no client is connected nothing
reads from the shell, so a program that writes a lot waits.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from wick.errors import BackendError
from wick.protocols import Terminal
from wick.server.agents.builder import AgentInstance

KEPT_SECONDS = 60.0  # without a connection
KEPT_BYTES = 200_000  # of recent output, for the screen of the next connection
CLOSE_SECONDS = 1.0  # for a shell to exit

SessionKey = tuple[str, str, str]  # user, agent, name


@dataclass(eq=False, slots=True)
class TerminalSession:
    """A shell, its recent output, and the connection that uses it."""

    terminal: Terminal
    instance: AgentInstance
    held: ExitStack  # the quota and the agent instance
    recent: bytearray = field(default_factory=bytearray)
    relay: asyncio.Task[bool] | None = None  # of the connection that uses it
    expiry: asyncio.TimerHandle | None = None

    def add_output(self, data: bytes) -> None:
        self.recent += data
        if len(self.recent) > 2 * KEPT_BYTES:
            del self.recent[:-KEPT_BYTES]

    async def close(self) -> None:
        """Close the shell and give back what it holds."""
        if self.expiry is not None:
            self.expiry.cancel()
        try:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.terminal.close()
        finally:
            self.held.close()


class TerminalSessions:
    """The shells of a server whose connection may come back."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, TerminalSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, key: SessionKey, instance: AgentInstance) -> TerminalSession | None:
        """Return the session of this name, taken over from an older connection; None if there is no such shell."""
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None
        relay, session.relay = session.relay, None
        if relay is not None:
            relay.cancel()
            await asyncio.wait({relay})
        if session.instance is instance:
            return session
        await self.close(key)  # the agent has another backend by now
        return None

    def add(self, key: SessionKey, session: TerminalSession) -> None:
        self._sessions[key] = session

    def keep(self, key: SessionKey) -> None:
        """Close a session later, unless a connection takes it before."""
        session, loop = self._sessions[key], asyncio.get_running_loop()
        session.relay = None
        session.expiry = loop.call_later(KEPT_SECONDS, lambda: self._close_soon(key))

    def _close_soon(self, key: SessionKey) -> None:
        task = asyncio.ensure_future(self.close(key))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self, key: SessionKey) -> None:
        if (session := self._sessions.pop(key, None)) is not None:
            await session.close()

    async def close_all(self) -> None:
        for key in [*self._sessions]:
            await self.close(key)
        await asyncio.gather(*self._closing, return_exceptions=True)
