"""The JSON lines protocol of wickd: requests in flight, their replies, and timeouts."""

from __future__ import annotations

import asyncio
import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from wick import constants
from wick.errors import BackendError
from wick.workspace.results import Json

OnChunk = Callable[[str, bytes], None]
OUTPUTS = frozenset(("stdout", "stderr", "output"))
END_LINE = b"\n"


class DaemonLost(BackendError):
    """Raised if the connection to wickd is missing or lost. `began`: the request may have been executed."""

    def __init__(self, message: str, *, began: bool) -> None:
        super().__init__(message, "unavailable")
        self.began = began


class PendingRequest:
    """A request in flight: `final` is its last reply; earlier ones go to `on_chunk` and `on_result`."""

    __slots__ = ("id", "final", "on_chunk", "on_result", "callback_error")

    def __init__(self, id: str, on_chunk: OnChunk | None, on_result: Callable[[], None] | None) -> None:
        self.id, self.on_chunk, self.on_result = id, on_chunk, on_result
        self.final: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self.callback_error: Exception | None = None  # raised by `on_chunk`

    def resolve(self, reply: Json) -> None:
        if not self.final.done():
            self.final.set_result(reply)

    def fail(self, error: BaseException) -> None:
        if not self.final.done():
            self.final.set_exception(error)
            self.final.exception()  # mark it as retrieved, as the waiter may be cancelled


class DaemonConnection(asyncio.Protocol):
    """One connection to a wickd, many requests at a time.

    Replies are not trusted: a wickd may run beside commands. A protocol violation closes the connection.
    """

    def __init__(self, *, name: str = "wickd", token: str = "") -> None:
        self.name, self._token = name, token
        self._transport: Any = None
        self._lost: asyncio.Future[None] | None = None
        self._buffer, self._searched = bytearray(), 0
        self._pending: dict[str, PendingRequest] = {}
        self._request_count = 0
        self._paused: asyncio.Future[None] | None = None
        self._close_reason = "it is closed"
        self._reading: asyncio.Task[None] | None = None

    # -- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._lost = asyncio.get_running_loop().create_future()
        if self._token:
            transport.write(json.dumps({"token": self._token}).encode() + END_LINE)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None or self._lost.done():
            return
        self._lost.set_result(None)
        self.resume_writing()
        waiting, self._pending = self._pending, {}
        why = (
            f"the connection to {self.name} ended ({exc or self._close_reason}); the request may have been carried out"
        )
        for pending in waiting.values():
            pending.fail(DaemonLost(why, began=True))

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)
        self._paused = None

    def data_received(self, data: bytes) -> None:
        """Buffer received bytes and handle complete lines."""
        self._buffer += data
        while (end := self._buffer.find(END_LINE, self._searched)) >= 0:
            self._searched = 0
            if end + 1 == len(self._buffer):  # not copied, as it may be large
                line, self._buffer = self._buffer, bytearray()
            else:
                line = self._buffer[: end + 1]
                del self._buffer[: end + 1]
            self._handle_line(line)
        self._searched = len(self._buffer)
        if self._searched > constants.WIRE_LINE_BYTES:
            self.abort(f"it sent more than {constants.WIRE_LINE_BYTES} bytes in one line")

    def read_from(self, reader: Any) -> None:
        """Start a task that reads an asyncio stream until its end."""

        async def read_all() -> None:
            error: Exception | None = None
            try:
                while data := await reader.read(262_144):
                    self.data_received(data)
            except (OSError, EOFError) as found:
                error = found
            finally:
                self.connection_lost(error)

        self._reading = asyncio.ensure_future(read_all())

    # -- replies ----------------------------------------------------------------------------------------------------

    def _handle_line(self, line: bytearray) -> None:
        try:
            reply = json.loads(line)
            pending = self._pending.get(reply["id"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return self.abort("it sent an invalid reply")
        if pending is None:
            return None  # its request was abandoned
        if "chunk" not in reply:
            if pending.on_result is not None and "result" in reply:
                return pending.on_result()
            del self._pending[pending.id]
            return pending.resolve(reply)
        try:
            name, data = reply["chunk"], b64decode(reply["data"], validate=True)
            if name not in OUTPUTS:
                raise ValueError(name)
        except (ValueError, TypeError, KeyError, binascii.Error):
            return self.abort("it sent an invalid output")
        if pending.on_chunk is None or pending.callback_error is not None:
            return None
        try:
            pending.on_chunk(name, data)
        except Exception as error:
            pending.callback_error = error
            self.send({"op": "cancel", "target": pending.id})
        return None

    def abort(self, why: str) -> None:
        """Close the connection after a protocol violation or a timeout."""
        self._close_reason = why
        if self._transport is not None:
            getattr(self._transport, "abort", self._transport.close)()
        self._buffer, self._searched = bytearray(), 0
        self.connection_lost(None)

    # -- requests ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while requests can be sent."""
        return self._lost is not None and not self._lost.done() and not self._transport.is_closing()

    def _new_id(self) -> str:
        self._request_count += 1
        return f"r{self._request_count}"

    def send(self, request: Json) -> None:
        """Send a request without waiting for its reply."""
        if self.alive:
            self._transport.write(_encode_line({"id": self._new_id(), **request}))

    async def send_request(
        self, request: Json, on_chunk: OnChunk | None = None, on_result: Callable[[], None] | None = None
    ) -> PendingRequest:
        """Send a request once the transport is writable."""
        id = self._new_id()
        line = _encode_line({"id": id, **request})
        while self._paused is not None and self.alive:  # the write buffer is full
            drained, _ = await asyncio.wait([self._paused], timeout=constants.DAEMON_ANSWER_SECONDS)
            if not drained:
                self.abort(f"it did not read for {constants.DAEMON_ANSWER_SECONDS:g} s")
        if not self.alive:
            raise DaemonLost(
                f"{self.name} cannot be reached ({self._close_reason}); the request was not sent", began=False
            )
        pending = self._pending[id] = PendingRequest(id, on_chunk, on_result)
        self._transport.write(line)
        return pending

    async def request(self, request: Json, limit: float, on_chunk: OnChunk | None = None) -> Json:
        """Send a request and return its final reply. `limit` is a timeout that closes the connection."""
        pending = await self.send_request(request, on_chunk)
        late = asyncio.get_running_loop().call_later(limit, self.abort, f"it did not answer within {limit:g} s")
        try:
            reply = await pending.final
        except asyncio.CancelledError:
            await self.cancel_request(pending)
            raise
        finally:
            late.cancel()
            self._pending.pop(pending.id, None)
        if pending.callback_error is not None:
            raise pending.callback_error
        return reply

    async def cancel_request(self, pending: PendingRequest) -> None:
        """Cancel a request and wait for its end; this short wait ignores cancellation."""
        self.send({"op": "cancel", "target": pending.id})  # even if its reply has arrived: it may have started a job
        if pending.id not in self._pending:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + constants.DAEMON_GRACE_SECONDS
        if pending.final.done():  # cancelled together with its waiter
            pending.final = loop.create_future()
        while not pending.final.done() and loop.time() < until:
            try:
                await asyncio.wait([pending.final], timeout=until - loop.time())
            except asyncio.CancelledError:
                continue  # the request is being cancelled already
        if not pending.final.done():
            self.abort("it did not end the cancelled operation")

    async def close(self) -> None:
        """Close the connection; wickd then ends all that was started over it."""
        if self._transport is None or self._lost is None:
            return
        self._transport.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await asyncio.wait([self._lost], timeout=constants.DAEMON_GRACE_SECONDS)


def _encode_line(request: Json) -> bytes:
    line = json.dumps(request, separators=(",", ":")).encode() + END_LINE
    if len(line) > constants.WIRE_LINE_BYTES:
        raise BackendError(f"a request has at most {constants.WIRE_LINE_BYTES} bytes; send less at once", "too_large")
    return line


def encode_base64(data: bytes) -> str:
    return b64encode(data).decode()
