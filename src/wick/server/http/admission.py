"""Admission control: a limited number of requests start per event-loop iteration, so that bursts do not block it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

STARTS_PER_ITERATION = 8  # requests that start in one iteration of the event loop
EXEMPT_PATHS = ("/health", "/health/live", "/health/ready")


class AdmissionMiddleware:
    """Admission middleware: starts at most 8 requests per event-loop iteration, in the order of their arrival.

    `on_request` is called for every request when it arrives.
    """

    def __init__(self, app: ASGIApp, on_request: Callable[[], None] = lambda: None) -> None:
        self._app, self._on_request = app, on_request
        self._started = 0  # in this iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._on_request()
        if scope.get("path") not in EXEMPT_PATHS:
            if not self._started:
                asyncio.get_running_loop().call_soon(self._admit_next)
            if self._started >= STARTS_PER_ITERATION:
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
            else:
                self._started += 1
        await self._app(scope, receive, send)

    def _admit_next(self) -> None:
        self._started = 0
        while self._waiting and self._started < STARTS_PER_ITERATION:
            turn = self._waiting.popleft()
            if not turn.done():  # else the request was cancelled while it waited
                turn.set_result(None)
                self._started += 1
        if self._started:
            asyncio.get_running_loop().call_soon(self._admit_next)
