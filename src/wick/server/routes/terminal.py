"""Terminals: a shell in an agent's workspace over a WebSocket, which carries raw bytes in both directions.

A message that starts with the byte 0x01 is a control message in JSON: `{"type": "resize", "rows": 40, "columns": 120}`.
With `session`, a name of the client's choice, a shell outlives a connection that breaks off by a minute. The first
message of the server is then a text, `{"type": "session", "kept": true}`, and the recent output follows it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from wick.errors import BackendError, WickError
from wick.protocols import Backend, Terminal
from wick.server.agents.builder import AgentInstance
from wick.server.agents.terminal_sessions import SessionKey, TerminalSession, TerminalSessions
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, as_api_error
from wick.server.service import Service

router = APIRouter(tags=["terminal"])

CONTROL = 0x01
INPUT_BYTES = 1_000_000  # in one message
CLOSED = (1000, 1009)  # by the client on purpose, or for a message that is too long; other codes: it broke off
TAKEN_OVER = 4001


class Resize(BaseModel):
    """A control message."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["resize"]
    rows: int = Field(ge=1, le=1_000)
    columns: int = Field(ge=1, le=1_000, validation_alias=AliasChoices("columns", "cols"))


@router.websocket("/agents/{id}/terminal")
async def open_terminal(
    socket: WebSocket,
    id: str,
    caller: Caller,
    wick: Wick,
    rows: int = 24,
    columns: int = 80,
    session: Annotated[str, Query(max_length=100)] = "",
) -> None:
    """Open a shell in the workspace of your agent, or return to the one of `session` whose connection broke off."""
    size = {"rows": min(max(rows, 1), 1_000), "columns": min(max(columns, 1), 1_000)}
    key = (caller.id, id, session or f"once {uuid4().hex}")
    try:
        instance = await wick.registry.get_agent(caller, id)
        backend = _check_terminal(instance.backend, id, caller)
        shell, resumed = await wick.terminals.attach(
            key, instance, lambda: _start_shell(wick, instance, backend, caller, size)
        )
        greeting = json.dumps({"type": "session", "kept": resumed}) if session else ""
        report = partial(wick.file_changes.report_output, caller.id, id)
        await _serve_shell(
            socket, wick.terminals, key, shell, _run_relay(socket, shell, greeting, size, report), bool(session)
        )
    except (ApiError, WickError) as error:
        refusal = as_api_error(error) or ApiError(500, "internal", "the terminal could not be opened")
        with suppress(RuntimeError, WebSocketDisconnect):  # the client may have disconnected
            await socket.send_denial_response(refusal.response())


def _check_terminal(backend: Backend | None, agent: str, caller: User) -> Backend:
    """Return the backend of an agent if this user may open a shell there."""
    if backend is None or backend.name == "state":
        raise ApiError(409, "conflict", f"the agent {agent!r} has no workspace with commands")
    protection = backend.protection
    if (protection.level == "none" or protection.asks) and not caller.has_role("operator"):  # a shell on the host
        raise ApiError(403, "not_allowed", f"a terminal requires an operator here: {protection.says}")
    return backend


async def _start_shell(
    wick: Service, instance: AgentInstance, backend: Backend, caller: User, size: dict[str, int]
) -> TerminalSession:
    with ExitStack() as held:
        held.enter_context(wick.limits.hold("terminals", caller.id))
        held.enter_context(instance.hold())
        terminal = await backend.terminal(**size, approved=caller.has_role("operator"))
        return TerminalSession(terminal, instance, held.pop_all())


async def _serve_shell(
    socket: WebSocket,
    shells: TerminalSessions,
    key: SessionKey,
    shell: TerminalSession,
    run: Coroutine[Any, Any, bool],
    named: bool,
) -> None:
    """Relay until one side closes. A shell whose named connection broke off is detached, for the next one."""
    shell.relay = relay = asyncio.ensure_future(run)
    try:
        await asyncio.wait({relay})
    except asyncio.CancelledError:
        relay.cancel()
        await shells.close(key, shell)
        raise
    if shell.relay is not relay:
        return await _close_socket(socket, TAKEN_OVER, "the shell is open in another window")
    if named and not relay.cancelled() and relay.exception() is None and relay.result():
        shells.detach(key, shell)
    else:
        await shells.close(key, shell)


async def _run_relay(
    socket: WebSocket, shell: TerminalSession, greeting: str, size: dict[str, int], report: Callable[[], None]
) -> bool:
    """Relay bytes between a client and a shell; return True if the connection broke off."""
    try:
        await socket.accept()
    except OSError:  # the client has disconnected
        return True
    try:
        if greeting:
            await socket.send_text(greeting)
        if shell.scrollback:
            await socket.send_bytes(shell.replay_output())
            with suppress(BackendError):  # one that has ended meanwhile says so when it is read
                await shell.terminal.resize(**size)
    except (OSError, RuntimeError, WebSocketDisconnect):
        return True
    return await _relay(socket, shell, report)


async def _relay(socket: WebSocket, shell: TerminalSession, report: Callable[[], None]) -> bool:
    """Relay in both directions until one side closes. Each direction reads only after its write has finished.

    Return True if the connection broke off: the client has not closed it, and the shell has not ended.
    """
    client = asyncio.create_task(_relay_input(socket, shell.terminal))
    output = asyncio.create_task(_relay_output(socket, shell, report))
    tasks: set[asyncio.Task[Any]] = {client, output}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    errors = [task.exception() for task in done if not task.cancelled()]
    for error in errors:
        if isinstance(error, BackendError):
            await _close_socket(socket, 1011, str(error))
            return False
    has_ended = output in done and output.exception() is None
    was_closed = client in done and client.exception() is None and client.result() in CLOSED
    await _close_socket(socket, 1000, "")
    return not has_ended and not was_closed


async def _relay_input(socket: WebSocket, terminal: Terminal) -> int:
    """Relay what the client sends; return the code with which it disconnected."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return int(message.get("code") or 1006)
        data = message.get("bytes") or (message.get("text") or "").encode("utf-8", "replace")
        if len(data) > INPUT_BYTES:
            await _close_socket(socket, 1009, f"a message may have at most {INPUT_BYTES:,} bytes")
            return 1009
        if data[:1] == bytes([CONTROL]) and len(data) > 1:  # alone it is Ctrl-A from the keyboard
            with suppress(ValidationError):  # ignored: a terminal of the wrong size still works
                wanted = Resize.model_validate_json(data[1:])
                await terminal.resize(wanted.rows, wanted.columns)
        elif data:
            await terminal.write(data)


async def _relay_output(socket: WebSocket, shell: TerminalSession, report: Callable[[], None]) -> None:
    while data := await shell.terminal.read():
        report()
        shell.add_output(data)  # first, so that a connection that breaks off loses nothing
        await socket.send_bytes(data)


async def _close_socket(socket: WebSocket, code: int, reason: str) -> None:
    with suppress(RuntimeError, WebSocketDisconnect):  # the client may have disconnected
        await socket.close(code, reason[:120])
