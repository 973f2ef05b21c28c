"""How routes are made: late, when somebody first comes, and with bodies that hold up nobody else.

    router = Router(prefix="/threads", tags=["threads"])

To make all of them takes longer than everything else that a server does until it is ready.
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

from wick._internal.worker_threads import in_thread
from wick.constants import JSON_VALUES

SMALL_BYTES = 100_000  # of a body that is read at once, whatever is in it
PIECE_BYTES = 32_768  # that are looked through at once

# FastAPI does so while it makes a route. But what one Python thread ignores for a while, another one that does the same
# thing at that moment brings back.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)

_build_lock = RLock()  # the description of the API is made in another Python thread


class _DeferredInit:
    """What a route learns when it is first needed, for it takes a while."""

    _make: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        with _build_lock:
            make = self.__dict__.pop("_make", None)
            if make is not None:
                make()
        return object.__getattribute__(self, name)


class LazyRoute(_DeferredInit, APIRoute):
    """A route that knows its path, its methods and its function until somebody comes."""

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
    """The same for a WebSocket."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._make = partial(APIWebSocketRoute.__init__, self, path, endpoint, **options)


class Router(APIRouter):
    """A router with such routes."""

    def __init__(self, *, route_class: type[LazyRoute] = LazyRoute, **options: Any) -> None:
        super().__init__(route_class=route_class, **options)

    def add_api_websocket_route(self, path: str, endpoint: Callable[..., Any], *given: Any, **options: Any) -> None:
        self.routes.append(LazyWebSocketRoute(self.prefix + path, endpoint))


class _JsonRequest(Request):
    """A request whose JSON is looked through before it is read, for to read it stops everything else."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            large = len(body) > SMALL_BYTES
            self._json = await in_thread(lambda: _parse_json(body), "reading a body") if large else orjson.loads(body)
            await asyncio.sleep(0)  # others first; to check it takes its time too
        return self._json


def _parse_json(body: bytes) -> Any:
    if exceeds_values(body):
        raise HTTPException(413, f"the JSON of a request has at most {JSON_VALUES:,} values")
    return orjson.loads(body)


def exceeds_values(body: bytes, most: int = JSON_VALUES) -> bool:
    """Whether JSON has more values than that, as far as its commas and brackets tell; what stands in texts is no value.

    It is looked through piece by piece, so that a Python thread that does so lets the others go on.
    """
    found = (_count_separators(body[at : at + PIECE_BYTES]) for at in range(0, len(body), PIECE_BYTES))
    return _total_exceeds(found, most) and _total_exceeds(_count_outside_strings(body), most)


def _total_exceeds(counts: Iterable[int], most: int) -> bool:
    return any(total > most for total in accumulate(counts))


def _count_outside_strings(body: bytes) -> Iterator[int]:
    """How many signs stand between the texts of each piece."""
    inside = escaped = False
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at + escaped : at + PIECE_BYTES]
        escaped = (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1  # what comes first in the next piece belongs to it
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield sum(_count_separators(part) for part in parts[inside::2])
        inside ^= len(parts) % 2 == 0


def _count_separators(piece: bytes) -> int:
    return sum(piece.count(sign) for sign in (b",", b"[", b"{"))
