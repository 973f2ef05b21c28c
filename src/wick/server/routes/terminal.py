"""Terminals: a shell in an agent's workspace over a WebSocket, which carries raw bytes in both directions.

A message that starts with the byte 0x01 is a control message in JSON: `{"type": "resize", "rows": 40, "columns": 120}`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal

from fastapi import APIRouter
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from wick.errors import BackendError, WickError
from wick.protocols import Terminal
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, as_api_error

router = APIRouter(tags=["terminal"])

CONTROL = 0x01
INPUT_BYTES = 1_000_000  # in one message
CLOSE_SECONDS = 1.0  # for a shell to exit


class Resize(BaseModel):
    """A control message."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["resize"]
    rows: int = Field(ge=1, le=1_000)
    columns: int = Field(ge=1, le=1_000, validation_alias=AliasChoices("columns", "cols"))


@router.websocket("/agents/{id}/terminal")
async def open_terminal(
    socket: WebSocket, id: str, caller: Caller, wick: Wick, rows: int = 24, columns: int = 80
) -> None:
    """Open a shell in the workspace of your agent."""
    try:
        instance = await wick.registry.get_agent(caller, id)
        backend = instance.backend
        if backend is None or backend.name == "state":
            raise ApiError(409, "conflict", f"the agent {id!r} has no workspace with commands")
        protection = backend.protection
        if (protection.level == "none" or protection.asks) and not caller.has_role("operator"):  # a shell on the host
            raise ApiError(403, "not_allowed", f"a terminal requires an operator here: {protection.says}")
        size = {"rows": min(max(rows, 1), 1_000), "columns": min(max(columns, 1), 1_000)}
        with wick.limits.hold("terminals", caller.id), instance.hold():
            terminal = await backend.terminal(**size, approved=caller.has_role("operator"))
            try:
                if await _accept(socket):
                    await _relay(socket, terminal)
            finally:
                with suppress(BackendError, TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await terminal.close()
    except (ApiError, WickError) as error:
        refusal = as_api_error(error) or ApiError(500, "internal", "the terminal could not be opened")
        with suppress(RuntimeError, WebSocketDisconnect):  # the client may have disconnected
            await socket.send_denial_response(refusal.response())


async def _accept(socket: WebSocket) -> bool:
    """Accept the connection; return False if the client has disconnected."""
    try:
        await socket.accept()
    except OSError:
        return False
    return True


async def _relay(socket: WebSocket, terminal: Terminal) -> None:
    """Relay bytes in both directions until one side closes. Each direction reads only after its write has finished."""
    ways = {asyncio.create_task(_relay_input(socket, terminal)), asyncio.create_task(_relay_output(socket, terminal))}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for way in done:
        if not way.cancelled() and isinstance(error := way.exception(), BackendError):
            await _close_socket(socket, 1011, str(error))
    await _close_socket(socket, 1000, "")


async def _relay_input(socket: WebSocket, terminal: Terminal) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes") or (message.get("text") or "").encode("utf-8", "replace")
        if len(data) > INPUT_BYTES:
            return await _close_socket(socket, 1009, f"a message may have at most {INPUT_BYTES:,} bytes")
        if data[:1] == bytes([CONTROL]) and len(data) > 1:  # alone it is Ctrl-A from the keyboard
            with suppress(ValidationError):  # ignored: a terminal of the wrong size still works
                wanted = Resize.model_validate_json(data[1:])
                await terminal.resize(wanted.rows, wanted.columns)
        elif data:
            await terminal.write(data)


async def _relay_output(socket: WebSocket, terminal: Terminal) -> None:
    while data := await terminal.read():
        await socket.send_bytes(data)


async def _close_socket(socket: WebSocket, code: int, reason: str) -> None:
    with suppress(RuntimeError, WebSocketDisconnect):  # the client may have disconnected
        await socket.close(code, reason[:120])
