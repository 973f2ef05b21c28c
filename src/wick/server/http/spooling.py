"""A large answer that waits for its reader does so on disk: whoever never reads theirs fills nobody's memory."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import IO

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick._internal.worker_threads import in_thread

LARGE_BYTES = 250_000  # of an answer that is kept on disk
PIECE_BYTES = 131_072  # sent of it at once


class SpoolingMiddleware:
    """Takes a large answer that is there as a whole, lets whoever made it go, and sends it piece by piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kept: list[IO[bytes]] = []

        async def put_by(message: Message) -> None:
            file = await _spool(message["body"]) if _is_large(message) else None
            if file is None:
                await send(message)
            else:
                kept.append(file)

        await self._app(scope, receive, put_by)
        for file in kept:
            with file:
                await _send_file(file, send)


async def spool_response(response: Response) -> Response:
    """The same answer; a large one is on disk, before whoever made it lets the next one be made."""
    file = await _spool(bytes(response.body)) if len(response.body) > LARGE_BYTES else None
    return response if file is None else _SpooledResponse(response, file)


class _SpooledResponse(Response):
    """An answer whose body is in a file."""

    def __init__(self, response: Response, file: IO[bytes]) -> None:
        super().__init__(status_code=response.status_code, background=response.background)
        self.raw_headers, self._file = response.raw_headers, file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_file(self._file, send)


def _is_large(message: Message) -> bool:
    whole = message["type"] == "http.response.body" and not message.get("more_body")
    return whole and len(message.get("body", b"")) > LARGE_BYTES


async def _spool(body: bytes) -> IO[bytes] | None:
    """A file with an answer in it; None if that was not possible: the disk may be full."""
    try:
        return await in_thread(lambda: _write_spool_file(body), "keeping an answer")
    except OSError:
        return None


def _write_spool_file(body: bytes) -> IO[bytes]:
    file = TemporaryFile(buffering=0)  # noqa: SIM115 - it is closed when it has been sent
    try:
        left = memoryview(body)
        while left:
            left = left[file.write(left) :]
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


async def _send_file(file: IO[bytes], send: Send) -> None:
    while piece := await in_thread(lambda: file.read(PIECE_BYTES), "sending an answer"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
