"""JSON request bodies that are bounded and do not block the event loop: `APIRouter(route_class=JsonRoute)`.

A large body is parsed in a worker thread, after its values were counted: parsing holds the GIL, and a body of 8 MB can
hold millions of values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import accumulate
from typing import Any

import orjson
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from wick._internal.worker_threads import run_in_thread
from wick.constants import JSON_VALUES

SMALL_BYTES = 100_000  # a smaller body is parsed on the event loop
PIECE_BYTES = 32_768  # bytes counted at once; the GIL is released between two pieces


class JsonRoute(APIRoute):
    """A route that reads a JSON body by `JsonRequest`. Every route with a JSON body is one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


class JsonRequest(Request):
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


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body, which was read already, and then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _parse_json(body: bytes) -> Any:
    if exceeds_values(body):
        raise HTTPException(413, f"the JSON body of a request may have at most {JSON_VALUES:,} values")
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
        # an odd backslash at the end escapes the first byte of the next piece
        escaped = (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield sum(_count_separators(part) for part in parts[inside::2])
        inside ^= len(parts) % 2 == 0


def _count_separators(piece: bytes) -> int:
    return sum(piece.count(sign) for sign in (b",", b"[", b"{"))
