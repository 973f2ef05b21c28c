"""Transports of MCP messages: stdio of a program, or HTTP.

Programs are started here instead of by the `mcp` package. This limits the size of a message, quotes stderr in errors,
and kills the program with this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

from wick import constants
from wick.capabilities.mcp.config import McpServer

# Execs the server with PR_SET_PDEATHSIG, so that the kernel kills it when this process dies.
_SHIM = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[3:])
"""


class McpServerStatus:
    """The exit status of a server program, the known reason, and the tail of its stderr."""

    def __init__(self) -> None:
        self.data, self.reason, self.exited = b"", "", asyncio.Event()

    @property
    def stderr_text(self) -> str:
        return self.data.decode("utf-8", "replace")

    async def read_stderr(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(4_096):
            self.data = (self.data + chunk)[-constants.MCP_STDERR_BYTES :]


def load_mcp() -> None:
    """Import the `mcp` package."""
    import mcp.client.streamable_http  # noqa: F401


@asynccontextmanager
async def open_client(server: McpServer, life: McpServerStatus, hear: Any) -> AsyncIterator[Any]:
    """Yield a client of the `mcp` package that is connected to a server."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    if not server.url:
        async with Client(_run_program(server, life), cache=None, message_handler=hear) as connected:
            yield _without_output_schemas(connected)
        return
    async with _build_http_client(server) as http:
        stream = streamable_http_client(server.url, http_client=http, max_sse_event_size=constants.MCP_MESSAGE_BYTES)
        async with Client(stream, cache=None, message_handler=hear) as connected:
            yield _without_output_schemas(connected)


def _without_output_schemas(client: Any) -> Any:
    """Return a client that does not validate results.

    The package validates in the event loop, with `re` and without a limit. Schema and result both come from the server,
    so that a server could block every other run.
    """

    async def accept(name: str, result: Any) -> None:
        pass

    client.session.validate_tool_result = accept
    return client


def _build_http_client(server: McpServer) -> Any:
    """Return an HTTP client with a limit on response bodies; the package limits the events of SSE streams."""
    import httpx2

    class Limited(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream, self.room = stream, constants.MCP_MESSAGE_BYTES

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self.stream:
                self.room -= len(chunk)
                if self.room < 0:
                    raise httpx2.ReadError(_format_too_long())
                yield chunk

        async def aclose(self) -> None:
            await self.stream.aclose()

    async def limit(response: Any) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise httpx2.ReadError("it sent a compressed answer, which was not requested")
        if "event-stream" not in response.headers.get("Content-Type", ""):
            response.stream = Limited(response.stream)

    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=httpx2.Timeout(constants.MCP_CONNECT_SECONDS, read=server.seconds + constants.MCP_CONNECT_SECONDS),
        event_hooks={"response": [limit]},
    )


def _format_too_long() -> str:
    return f"it sent a message of more than {constants.MCP_MESSAGE_BYTES:,} bytes"


@asynccontextmanager
async def _run_program(server: McpServer, life: McpServerStatus) -> AsyncIterator[Any]:
    """Run a server program and yield its message streams: one JSON message per line."""
    import anyio
    from mcp.client.stdio import get_default_environment

    env, pipe = get_default_environment() | dict(server.env), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_build_command(server, env.get("PATH")), stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=server.cwd,
        limit=constants.MCP_MESSAGE_BYTES, start_new_session=True,
    )  # fmt: skip
    inward, read = anyio.create_memory_object_stream[Any](0)
    write, outward = anyio.create_memory_object_stream[Any](0)
    assert process.stdin and process.stdout and process.stderr
    tasks = [
        asyncio.create_task(_read_messages(process.stdout, inward, life), name=f"reading from {server.name}"),
        asyncio.create_task(_write_messages(process.stdin, outward), name=f"writing to {server.name}"),
        asyncio.create_task(life.read_stderr(process.stderr), name=f"errors of {server.name}"),
    ]
    try:
        yield read, write
    finally:
        await _stop_process(process)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1)
        for stream in (inward, read, write, outward):
            stream.close()


def _build_command(server: McpServer, path: str | None) -> list[str]:
    """Return the command line of a server; a relative path is resolved in its `cwd`."""
    named = os.path.join(server.cwd or "", server.command) if os.sep in server.command else server.command
    executable = shutil.which(named, path=path)
    if executable is None:
        raise FileNotFoundError(f"there is no program {server.command!r} on its PATH")
    program = os.path.abspath(executable)
    if sys.platform != "linux":
        return [program, *server.args]
    return [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), program, server.command, *server.args]


async def _read_messages(stdout: asyncio.StreamReader, inward: Any, life: McpServerStatus) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        while line := await stdout.readline():
            try:
                message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:  # programs may print other text to stdout
                message = error
            await inward.send(message)
    except ValueError:
        life.reason = _format_too_long()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        """The reader has closed the stream."""
    finally:
        life.exited.set()
        inward.close()


async def _write_messages(stdin: asyncio.StreamWriter, outward: Any) -> None:
    with suppress(OSError):  # the reader reports the exit of the program
        async for message in outward:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Stop a program: close stdin, then SIGTERM, then SIGKILL; finally SIGKILL its process group."""
    assert process.stdin
    with suppress(OSError):
        process.stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _wait_exited(process):
            break
        _signal_group(process, how)
    await _wait_exited(process)
    _signal_group(process, signal.SIGKILL)
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # avoids a warning if an escaped child still holds a pipe
        transport.close()


async def _wait_exited(process: asyncio.subprocess.Process) -> bool:
    """Return True if the program exits in time. `process.wait()` would also wait for children with its pipes."""
    until = monotonic() + constants.MCP_CLOSE_SECONDS
    while process.returncode is None and monotonic() < until:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal_group(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)
