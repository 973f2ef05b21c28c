"""Connections to MCP servers: programs that this one starts, and services behind HTTP.

    servers = read_servers({"files": {"command": "mcp-files", "args": ["."]}})
    links = Links()
    link = await links.to(servers[0])            connected, whoever asked first
    tools = await link.tools()
    answer = await link.ask(lambda client: client.call_tool("search", {"query": "moon"}))
    await links.close()

A connection belongs to one task of its own, for what the `mcp` package opens must be closed by the task that opened it.
It ends when it is closed, when the server goes away, or with the event loop; and a program ends with its connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from wick import caps
from wick.errors import ConfigError, MissingExtra, ToolError, Uncertain
from wick.fencing import one_line
from wick.turns import end

T = TypeVar("T")

CLOSED = -32000  # the code of an answer that cannot come any more
UNKNOWN = "whether it took effect is unknown"
SHOWN_CHARS = 300  # of somebody else's words in a sentence of ours
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,30}")
_KEYS = {"command", "args", "env", "cwd", "url", "headers", "tools", "trust", "seconds", "type"}
_OF_A_PROGRAM, _OF_A_SERVICE = {"command", "args", "env", "cwd"}, {"url", "headers"}

# Turns into the server, which the kernel kills when this program dies, however it dies.
_SHIM = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[3:])
"""


# -- what is configured -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is, and what it is trusted with."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: frozenset[str] | None = None  # None: all that it has
    trust: bool = False  # what it says of its tools, that they change nothing, is believed
    seconds: float = caps.MCP_SECONDS


def read_servers(servers: Any) -> tuple[Server, ...]:
    """The servers of a configuration; a ConfigError says what is wrong with one."""
    if not isinstance(servers, Mapping) or not servers:
        raise ConfigError('MCP(servers=…) takes servers by name: {"files": {"command": "mcp-files", "args": ["."]}}')
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "mcp", "a connection to an MCP server")
    return tuple(_read(name, given) for name, given in servers.items())


def _read(name: Any, given: Any) -> Server:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for an MCP server: take letters, digits, - and single _, at most 31")
    if not isinstance(given, Mapping):
        raise ConfigError(f'the MCP server {name} is described by a mapping with "command" or "url", not {given!r}')
    if unknown := sorted(map(str, given.keys() - _KEYS)):
        raise ConfigError(f"the MCP server {name} has no option {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    program, service = _OF_A_PROGRAM & given.keys(), _OF_A_SERVICE & given.keys()
    if ("command" in given) == ("url" in given) or (program and service):
        raise ConfigError(f'the MCP server {name} is either a "command" (args, env, cwd) or a "url" (headers)')
    options = {key: value for key, value in given.items() if key != "type"}
    for key, value in options.items():
        if not _CHECKS[key](value):
            raise ConfigError(f"the MCP server {name} has {key}={value!r}; it must be {_WORDS[key]}")
    for key, kind in (("args", tuple), ("tools", frozenset), ("env", dict), ("headers", dict)):
        if key in options:
            options[key] = kind(options[key])
    return Server(name, **options)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(item, str) for item in value)


def _text_map(value: Any) -> bool:
    return isinstance(value, Mapping) and _texts([*value, *value.values()])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_url(value: Any) -> bool:
    try:
        return isinstance(value, str) and urlsplit(value).scheme in ("http", "https") and bool(urlsplit(value).hostname)
    except ValueError:
        return False


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "command": _is_text,
    "args": _texts,
    "env": _text_map,
    "cwd": _is_text,
    "url": _is_url,
    "headers": _text_map,
    "tools": _texts,
    "trust": lambda value: isinstance(value, bool),
    "seconds": _is_seconds,
}
_WORDS = {
    "command": "the name or the path of a program",
    "args": "a list of texts",
    "env": "texts by name",
    "cwd": "a folder",
    "url": "like https://example.com/mcp",
    "headers": "texts by name",
    "tools": "a list of names",
    "trust": "true or false",
    "seconds": "a number above 0",
}


# -- a connection -------------------------------------------------------------------------------------------------------


class Link:
    """A connection to one server, from when it is made until it has ended; a new one is made then."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = False
        self._close, self._failure = asyncio.Event(), ""
        self._refused = False  # a service that was not there to take a request
        self._under_way = 0
        self._listed: list[Any] | None = None
        self._life = _Life()
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # It is nobody's child: what the run that came first has in its context is not that of the others.
        self._task = asyncio.create_task(self._live(), name=f"MCP server {server.name}", context=Context())

    async def connected(self, seconds: float = caps.MCP_CONNECT_SECONDS) -> Link:
        """Wait until the server has said that it is there; a ToolError says why it is not."""
        await asyncio.wait((self._client, self._task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._client.done() and not self.over:
            return self
        if not self._task.done():
            self._failure = self._failure or f"it did not answer within {seconds:g} s"
            await self.close()
        raise ToolError(f"the MCP server {self.server.name} cannot be reached: {self._why()}")

    @property
    def abilities(self) -> Any:
        """What the server says that it has."""
        return self._client.result().server_capabilities

    async def tools(self, *, fresh: bool = False) -> list[Any]:
        """The definitions of its tools; asked for again when they may have changed."""
        if self._listed is None or fresh:
            self._listed = await self._pages("list_tools", "tools", caps.MCP_TOOLS) if self.abilities.tools else []
        return self._listed

    async def resources(self) -> list[Any]:
        return await self._pages("list_resources", "resources", caps.MCP_LIST)

    async def prompts(self) -> list[Any]:
        return await self._pages("list_prompts", "prompts", caps.MCP_LIST)

    async def _pages(self, verb: str, field: str, most: int) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        while len(found) < most:
            at = cursor
            page = await self.ask(lambda client: getattr(client, verb)(cursor=at), changes=False)
            found += getattr(page, field)
            cursor = page.next_cursor
            if not cursor or cursor == at:
                break
        return found[:most]

    async def ask(self, question: Callable[[Any], Awaitable[T]], *, changes: bool = True) -> T:
        """What the server answers. If it goes away meanwhile, what `changes` something is Uncertain."""
        client = self._client.result()
        work = asyncio.ensure_future(question(client))
        self._under_way += 1
        try:
            await asyncio.wait((work, self._task), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled() and work.exception() is None:
                return work.result()
            raise await self._failed(work, changes)
        finally:
            self._under_way -= 1
            if not work.done():
                await end((work,))

    async def _failed(self, work: asyncio.Future[Any], changes: bool) -> Exception:
        """Why there is no answer, as what a tool raises."""
        error = work.exception() if work.done() and not work.cancelled() else None
        name, code = self.server.name, getattr(error, "code", None)
        if error is not None and code != CLOSED and not self.over:
            if "Session terminated" in str(error):  # it was started anew
                await self.close()
            return ToolError(f"the MCP server {name} answered: {_sentence(error)}")
        alone = self._under_way == 1
        await self.close()  # whatever is left of the connection is of no use
        told = f"the MCP server {name} went away: {self._why()}; it is connected to again when it is next used"
        return Uncertain(f"{told}; {UNKNOWN}") if changes and not (self._refused and alone) else ToolError(told)

    async def close(self) -> None:
        """End the connection, and the program behind it."""
        self._close.set()
        await asyncio.wait((self._task,), timeout=3 * caps.MCP_CLOSE_SECONDS + 1)
        if not self._task.done():
            await end((self._task,))

    def _why(self) -> str:
        words = one_line(self._life.text, SHOWN_CHARS)
        known = self._life.why or self._failure or "its connection was closed"
        return known + (f" (it wrote: {words})" if words else "")

    async def _live(self) -> None:
        try:
            async with _client(self.server, self._life, self._hear) as client:
                self._client.set_result(client)
                await self._ended(client)
        except Exception as error:
            causes = [*_causes(error)]
            self._refused = any(type(cause).__name__ in ("ConnectError", "ConnectTimeout") for cause in causes)
            self._failure = self._failure or _sentence(causes[0])
        finally:
            self.over = True
            self._client.cancel()

    async def _ended(self, client: Any) -> None:
        """Wait until it is closed, from here or from there."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._close, self._life.gone)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.over = True
            for wait in waits:
                wait.cancel()

    async def _hear(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._listed = None


def _causes(error: BaseException) -> Iterable[BaseException]:
    """What a group of errors is made of."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from _causes(inner)


def _sentence(error: BaseException) -> str:
    return one_line(str(error), SHOWN_CHARS) or type(error).__name__


class Links:
    """The connections of each event loop, made when they are first needed."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Link]] = WeakKeyDictionary()

    async def to(self, server: Server) -> Link:
        """A connection that is there; if there was one, and it has ended, a new one."""
        links = self._loops.setdefault(asyncio.get_running_loop(), {})
        link = links.get(server.name)
        if link is None or link.over:
            link = links[server.name] = Link(server)
        return await link.connected()

    async def close(self) -> None:
        """End those of this event loop."""
        links = self._loops.pop(asyncio.get_running_loop(), {})
        await asyncio.gather(*(link.close() for link in links.values()))


# -- transports ---------------------------------------------------------------------------------------------------------


class _Life:
    """Whether a program has gone, why as far as we know, and the last of what it wrote to its errors."""

    def __init__(self) -> None:
        self.data, self.why, self.gone = b"", "", asyncio.Event()

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(4_096):
            self.data = (self.data + chunk)[-caps.MCP_STDERR_BYTES :]


@asynccontextmanager
async def _client(server: Server, life: _Life, hear: Callable[[Any], Awaitable[None]]) -> AsyncIterator[Any]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    if not server.url:
        async with Client(_program(server, life), cache=None, message_handler=hear) as client:
            yield client
        return
    async with (
        _http(server) as http,
        Client(streamable_http_client(server.url, http_client=http), cache=None, message_handler=hear) as client,
    ):
        yield client


def _http(server: Server) -> Any:
    import httpx2

    limit = httpx2.Timeout(caps.MCP_CONNECT_SECONDS, read=server.seconds + caps.MCP_CONNECT_SECONDS)
    return httpx2.AsyncClient(headers=dict(server.headers), timeout=limit)


@asynccontextmanager
async def _program(server: Server, life: _Life) -> AsyncIterator[Any]:
    """A server as a program of ours: a line is a message."""
    import anyio

    process = await _start(server)
    inward, read = anyio.create_memory_object_stream[Any](0)
    write, outward = anyio.create_memory_object_stream[Any](0)
    assert process.stdin and process.stdout and process.stderr
    tasks = [
        asyncio.create_task(_receive(process.stdout, inward, life), name=f"reading from {server.name}"),
        asyncio.create_task(_send(process.stdin, outward), name=f"writing to {server.name}"),
        asyncio.create_task(life.read(process.stderr), name=f"errors of {server.name}"),
    ]
    try:
        yield read, write
    finally:
        await _stop(process)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1)
        for stream in (inward, read, write, outward):
            stream.close()


async def _start(server: Server) -> asyncio.subprocess.Process:
    from mcp.client.stdio import get_default_environment

    env = get_default_environment() | dict(server.env)
    program = shutil.which(server.command, path=env.get("PATH"))
    if program is None:
        raise FileNotFoundError(f"there is no program {server.command!r} on its PATH")
    line = [server.command, *server.args]
    if sys.platform == "linux":
        program, line = sys.executable, ["-I", "-S", "-c", _SHIM, str(os.getpid()), program, *line]
    else:
        line = line[1:]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        program, *line, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=server.cwd,
        limit=caps.MCP_MESSAGE_BYTES, start_new_session=True,
    )  # fmt: skip


async def _receive(stdout: asyncio.StreamReader, inward: Any, life: _Life) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        while line := await stdout.readline():
            try:
                message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:  # a program may well print what is no message
                message = error
            await inward.send(message)
    except ValueError:
        life.why = f"it sent a message of more than {caps.MCP_MESSAGE_BYTES:,} bytes"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        """Nobody reads any more."""
    finally:
        life.gone.set()
        inward.close()


async def _send(stdin: asyncio.StreamWriter, outward: Any) -> None:
    with suppress(OSError):  # the reader notices that the program has gone
        async for message in outward:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Let a program end by itself, tell it to, make it end; and then what it has started."""
    assert process.stdin
    with suppress(OSError):
        process.stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _exited(process):
            break
        _signal(process, how)
    await _exited(process)
    _signal(process, signal.SIGKILL)
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # else it warns where something that got away holds a pipe
        transport.close()


async def _exited(process: asyncio.subprocess.Process) -> bool:
    """Whether it ends in time. `process.wait()` would wait for everybody who has its pipes, too."""
    until = monotonic() + caps.MCP_CLOSE_SECONDS
    while process.returncode is None and monotonic() < until:
        await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, how: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)
