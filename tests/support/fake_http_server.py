"""A real HTTP server with scripted responses that records requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from wick.messages import Message
from wick.models import _http
from wick.protocols import Delta, Model, Request


@dataclass
class FakeResponse:
    """A response; `cut` closes the connection after it, without the end of the response."""

    data: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    cut: bool = False


@dataclass
class FakeServer:
    """Scripted responses and recorded requests."""

    answers: list[FakeResponse] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    url: str = ""

    def say(self, data: bytes, **options: Any) -> None:
        self.answers.append(FakeResponse(data, **options))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path_qs)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        answer = self.answers.pop(0)
        response = web.StreamResponse(status=answer.status, headers={"content-type": answer.content_type})
        await response.prepare(request)
        await response.write(answer.data)
        if answer.cut:
            request.transport.close()
        return response


@asynccontextmanager
async def run_fake_server() -> AsyncIterator[FakeServer]:
    told = FakeServer()
    app = web.Application()
    app.router.add_post("/{path:.*}", told.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        told.url = str(server.make_url("/v1"))
        yield told
        await _http.close()


def sse_body(*events: Any, end: str = "data: [DONE]\n\n") -> bytes:
    return ("".join(f"data: {json.dumps(event)}\n\n" for event in events) + end).encode()


def model_request(*messages: Message, **options: Any) -> Request:
    return Request(messages or (Message("user", "hi"),), **options)


async def stream_deltas(model: Model, request: Request | None = None) -> list[Delta]:
    return [delta async for delta in model.stream(request or model_request())]
