"""Spooling of response bodies over 250 kB to disk, so that slow clients do not hold memory."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import IO

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick._internal.worker_threads import run_in_thread

LARGE_BYTES = 250_000  # a larger body is spooled to disk
PIECE_BYTES = 131_072  # sent in one message


class SpoolingMiddleware:
    """Writes a large response to a temporary file, lets the route return, and sends the file piece by piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        spooled: list[IO[bytes]] = []

        async def spool_large(message: Message) -> None:
            whole = message["type"] == "http.response.body" and not message.get("more_body")
            body = message.get("body", b"") if whole else b""
            file = await _spool(body) if len(body) > LARGE_BYTES else None
            if file is None:
                await send(message)
            else:
                spooled.append(file)

        await self._app(scope, receive, spool_large)
        for file in spooled:
            with file:
                await _send_file(file, send)


async def spool_response(response: Response) -> Response:
    """Return a response whose body, if large, is on disk. A route calls this before it releases its lock."""
    file = await _spool(bytes(response.body)) if len(response.body) > LARGE_BYTES else None
    return response if file is None else _SpooledResponse(response, file)


class _SpooledResponse(Response):
    """A response whose body is in a temporary file."""

    def __init__(self, response: Response, file: IO[bytes]) -> None:
        super().__init__(status_code=response.status_code, background=response.background)
        self.raw_headers, self._file = response.raw_headers, file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_file(self._file, send)


async def _spool(body: bytes) -> IO[bytes] | None:
    """Write a body to a temporary file and return it, or None if that fails, as on a full disk."""

    def write_file() -> IO[bytes]:
        file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed after it was sent
        try:
            left = memoryview(body)
            while left:
                left = left[file.write(left) :]
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    try:
        return await run_in_thread(write_file, "spooling a response")
    except OSError:
        return None


async def _send_file(file: IO[bytes], send: Send) -> None:
    while piece := await run_in_thread(lambda: file.read(PIECE_BYTES), "sending a response"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
