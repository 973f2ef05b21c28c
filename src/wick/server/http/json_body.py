"""Routes that are built on first use, and JSON bodies that are parsed without blocking the event loop.

    router = Router(prefix="/threads", tags=["threads"])

Building all FastAPI routes takes longer than the rest of the server's start.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import accumulate
from threading import RLock
from typing import Any

import orjson
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import compile_path

from wick._internal.worker_threads import run_in_thread
from wick.constants import JSON_VALUES

SMALL_BYTES = 100_000  # a smaller body is parsed on the event loop
PIECE_BYTES = 32_768  # bytes counted at once; the GIL is released between two pieces

# FastAPI ignores this warning while it builds a route. `warnings.catch_warnings` is not thread-safe, so a route that is
# built at the same time in another thread could restore it.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)

_build_lock = RLock()  # the OpenAPI document is built in a worker thread


class _DeferredInit:
    """Mixin that runs the expensive `__init__` of a route on the first access to a missing attribute."""

    _make: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        with _build_lock:
            make = self.__dict__.pop("_make", None)
            if make is not None:
                make()
        return object.__getattribute__(self, name)


class LazyRoute(_DeferredInit, APIRoute):
    """An API route that knows only its path, methods and endpoint until the first request."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, methods: Iterable[str] | None = None, **options: Any
    ) -> None:
        self.path, self.endpoint = path, endpoint
        self.methods = {method.upper() for method in methods or ("GET",)}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._make = partial(APIRoute.__init__, self, path, endpoint, methods=[*self.methods], **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return answer


class LazyWebSocketRoute(_DeferredInit, APIWebSocketRoute):
    """A WebSocket route that is built on the first connection."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._make = partial(APIWebSocketRoute.__init__, self, path, endpoint, **options)


class Router(APIRouter):
    """An API router whose routes are lazy."""

    def __init__(self, *, route_class: type[LazyRoute] = LazyRoute, **options: Any) -> None:
        super().__init__(route_class=route_class, **options)

    def add_api_websocket_route(self, path: str, endpoint: Callable[..., Any], *given: Any, **options: Any) -> None:
        self.routes.append(LazyWebSocketRoute(self.prefix + path, endpoint))


class _JsonRequest(Request):
    """A request that parses a large JSON body in a worker thread, after its values were counted."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            large = len(body) > SMALL_BYTES
            self._json = (
                await run_in_thread(lambda: _parse_json(body), "reading a body") if large else orjson.loads(body)
            )
            await asyncio.sleep(0)  # validation follows and takes time: let other tasks run first
        return self._json


def _parse_json(body: bytes) -> Any:
    if exceeds_values(body):
        raise HTTPException(413, f"the JSON of a request has at most {JSON_VALUES:,} values")
    return orjson.loads(body)


def exceeds_values(body: bytes, most: int = JSON_VALUES) -> bool:
    """Return True if JSON has more than `most` values, counted by commas and brackets outside of strings.

    The body is scanned in pieces, so that other threads can take the GIL in between.
    """
    found = (_count_separators(body[at : at + PIECE_BYTES]) for at in range(0, len(body), PIECE_BYTES))
    return _total_exceeds(found, most) and _total_exceeds(_count_outside_strings(body), most)


def _total_exceeds(counts: Iterable[int], most: int) -> bool:
    return any(total > most for total in accumulate(counts))


def _count_outside_strings(body: bytes) -> Iterator[int]:
    """Yield, for each piece, the number of separators outside of strings."""
    inside = escaped = False
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at + escaped : at + PIECE_BYTES]
        escaped = (
            len(piece) - len(piece.rstrip(b"\\"))
        ) % 2 == 1  # the backslash escapes the first byte of the next piece
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield sum(_count_separators(part) for part in parts[inside::2])
        inside ^= len(parts) % 2 == 0


def _count_separators(piece: bytes) -> int:
    return sum(piece.count(sign) for sign in (b",", b"[", b"{"))
