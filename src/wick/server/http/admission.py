"""Hundreds who come at once begin one after the other, so that everything else goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send

AT_ONCE = 8  # requests that begin in one turn of the event loop
AT_ANY_TIME = ("/health",)


class Crowds:
    """Lets some requests begin in each turn of the event loop, in the order in which they came."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._begun = 0  # in this turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") not in AT_ANY_TIME:
            if not self._begun:
                asyncio.get_running_loop().call_soon(self._next_turn)
            if self._begun >= AT_ONCE:
                await self._in_line()
            else:
                self._begun += 1
        await self._app(scope, receive, send)

    async def _in_line(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        await mine

    def _next_turn(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < AT_ONCE:
            mine = self._waiting.popleft()
            if not mine.done():  # else whoever it was has gone
                mine.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)
