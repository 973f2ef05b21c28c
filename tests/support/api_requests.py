"""Requests to a server in tests: return the status and the JSON of a response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from server_process import InProcessServer, ServerProcess


async def send_request(
    server: ServerProcess | InProcessServer, user: str, method: str, path: str, **options: Any
) -> tuple[int, Any]:
    """Send a request as a user; return the status and the JSON (or bytes)."""
    async with server.client(user) as client, client.request(method, path, **options) as answer:
        data = await answer.read()
    try:
        return answer.status, json.loads(data) if data else None
    except ValueError:
        return answer.status, data


async def send_refused(
    server: ServerProcess | InProcessServer, user: str, method: str, path: str, **options: Any
) -> tuple[int, str]:
    """Send a request that is refused; return the status and the error code."""
    status, body = await send_request(server, user, method, path, **options)
    return status, body["error"]["code"]


@asynccontextmanager
async def follow_events(server: ServerProcess | InProcessServer, user: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """Subscribe to changes of a user's agents; no later event is missed."""
    async with server.client(user) as client, client.get("/agents/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        await answer.content.readline()  # a sign of life
        yield answer
