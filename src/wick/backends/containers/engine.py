"""A client of the Engine HTTP API of Docker and Podman: over a unix socket, TCP, TLS or ssh.

    engine = Engine("unix:///var/run/docker.sock")
    await engine.request("GET", "/containers/json")
    process = await engine.exec(container, ["sh", "-c", "ls"])

Every request has a timeout. Failures raise an EngineError whose message names the remedy.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

from wick import constants
from wick.backends.containers.engine_address import EngineAddress, parse_engine_address
from wick.backends.containers.ssh_tunnel import SshTunnel
from wick.errors import BackendError

Query = Mapping[str, str | int | bool]


class EngineError(BackendError):
    """Raised if the engine refused or did not respond. `status` is its HTTP status, 0 without a response."""

    def __init__(self, message: str, code: str = "failed", status: int = 0) -> None:
        super().__init__(message, code)
        self.status = status


class ProcessNotStarted(EngineError):
    """Raised if a process was not started, as its container is missing or not running."""


class Engine:
    """A client of an engine. Connections are pooled per event loop, and closed when it ends."""

    def __init__(
        self,
        url: str = "",
        *,
        tls: str | ssl.SSLContext | None = None,
        seconds: float = constants.ENGINE_SECONDS,
    ) -> None:
        self.address = parse_engine_address(url, tls)
        self.seconds = seconds
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Engine({self.address.url!r})"

    async def close(self) -> None:
        """Close the connections of this event loop; the next request opens new ones."""
        if connections := self._by_loop.pop(asyncio.get_running_loop(), None):
            await connections.holder.aclose()

    # -- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: Literal["GET", "POST", "PUT", "DELETE"],
        path: str,
        query: Query | None = None,
        *,
        body: object = None,
        data: bytes | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Send a request; return the decoded JSON response, or the bytes of another type."""
        limit, url = self.seconds if seconds is None else seconds, self.address.base_url + path
        if query:
            texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
            url += f"?{urlencode(texts)}"
        headers = {"Content-Type": "application/x-tar" if data is not None else "application/json"}
        payload = data if data is not None else b"" if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(limit):
                session = (await self._ensure_connections()).session
                async with session.request(method, URL(url, encoded=True), data=payload, headers=headers) as response:
                    raw = await _read_bounded(response)
        except (aiohttp.ClientError, OSError) as error:
            raise await self._explain_unreachable(error, limit) from None
        if response.status >= 400:
            raise error_from_reply(response.status, raw)
        return json.loads(raw) if raw and response.content_type == "application/json" else raw

    async def get_or_none(self, path: str, query: Query | None = None) -> Any:
        """Get a resource; return None on status 404."""
        try:
            return await self.request("GET", path, query)
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        stdin: bool = False,
        env: Mapping[str, str] | None = None,
        user: str = "",
        workdir: str = "",
    ) -> ContainerProcess:
        """Start a process in a running container."""
        wanted: dict[str, Any] = {
            "Cmd": list(argv),
            "AttachStdin": stdin,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "Env": [f"{name}={value}" for name, value in (env or {}).items()],
        }
        wanted |= {"User": user} if user else {}
        wanted |= {"WorkingDir": workdir} if workdir else {}
        process: ContainerProcess | None = None
        try:
            created = await self.request("POST", f"/containers/{quote(container, safe='')}/exec", body=wanted)
            process = ContainerProcess(self, str(created["Id"]))
            await process.start()
        except EngineError as error:
            if error.status in (404, 409):
                raise ProcessNotStarted(str(error), error.code, error.status) from None
            if error.status or process is None:
                raise
            raise EngineError(f"{error}; it is not known whether the process began", "unknown") from None
        return process

    async def hijack(self, path: str, body: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Upgrade a connection to a raw byte stream in both directions."""
        address, limit = self.address, constants.ENGINE_BUFFER_BYTES
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(self.seconds):
                if unix_path := (await self._ensure_connections()).path:
                    reader, writer = await asyncio.open_unix_connection(unix_path, limit=limit)
                else:
                    reader, writer = await asyncio.open_connection(
                        address.host, address.port, ssl=address.tls, limit=limit
                    )
                try:
                    writer.write(head.encode() + data)
                    await _read_upgrade_reply(reader)
                except BaseException:
                    writer.transport.abort()
                    raise
        except OSError as error:  # TimeoutError is one
            raise await self._explain_unreachable(error, self.seconds) from None
        return reader, writer

    async def _ensure_connections(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None or connections.session.closed:
            holder = _hold_connections(self.address)
            connections = self._by_loop[loop] = await anext(holder)
            connections.holder = holder
        return connections

    async def _explain_unreachable(self, error: Exception, limit: float) -> EngineError:
        """Return the error for an engine that cannot be reached."""
        url = self.address.url
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
            return EngineError(f"the engine at {url} did not answer within {limit:g} s", "unavailable")
        connections = self._by_loop.get(asyncio.get_running_loop())
        reason = await connections.tunnel.last_error() if connections and connections.tunnel else ""
        if not reason and isinstance(error, OSError) and error.strerror:
            reason = str(error.strerror)
        reason = reason or " ".join(str(error).split())[:300] or type(error).__name__
        return EngineError(
            f"no engine answers at {url}: {reason}; start Docker (or `podman system service`), "
            "or name another engine with DOCKER_HOST",
            "unavailable",
        )


@dataclass(slots=True, eq=False)
class _LoopConnections:
    """The connections of one event loop to an engine."""

    session: aiohttp.ClientSession
    path: str  # of the unix socket; empty for TCP
    tunnel: SshTunnel | None
    holder: AsyncGenerator[_LoopConnections, None] = field(init=False)


async def _hold_connections(address: EngineAddress) -> AsyncGenerator[_LoopConnections, None]:
    """Hold the connections. An ending event loop closes its async generators, and so the connections."""
    tunnel = SshTunnel(address.ssh) if address.ssh else None
    path = await tunnel.open() if tunnel else address.path
    if path:
        # Only ssh connections are reused, as they cost a handshake; a pooled connection may be dead.
        connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path, limit=0, force_close=not tunnel)
    else:
        connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=address.tls or False)
    limits = aiohttp.ClientTimeout(total=None, sock_connect=constants.CONNECT_SECONDS)
    session = aiohttp.ClientSession(connector=connector, timeout=limits, trust_env=False)
    try:
        yield _LoopConnections(session, path, tunnel)
    finally:
        await session.close()
        if tunnel:
            await tunnel.close()


# -- requests and responses -----------------------------------------------------------------------------------------


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > constants.ENGINE_ANSWER_BYTES:
            response.close()
            raise EngineError(f"the engine answered with more than {constants.ENGINE_ANSWER_BYTES} bytes", "too_large")
    return bytes(raw)


async def _read_upgrade_reply(reader: asyncio.StreamReader) -> None:
    """Read the response head; the bytes after it belong to the process."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionError(f"the connection broke off: {error}") from None
    lines = head.decode("latin-1").split("\r\n")
    status = next(iter(lines[0].split(" ")[1:2]), "")
    if status in ("101", "200"):
        return
    sizes = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
    size = int(sizes[0]) if sizes and sizes[0].strip().isdigit() else 0
    raw = await reader.readexactly(min(size, constants.ERROR_BODY_BYTES))
    raise error_from_reply(int(status) if status.isdigit() else 500, raw)


def error_from_reply(status: int, raw: bytes) -> EngineError:
    """Return the error for a response with an error status."""
    try:
        found = json.loads(raw)
        text = found.get("message") or found.get("cause") or ""
    except (ValueError, AttributeError):
        text = raw.decode(errors="replace")
    text = " ".join(str(text).split())[:500] or f"status {status}"
    code = {404: "not_found", 409: "conflict"}.get(status, "failed")
    return EngineError(f"the engine refused: {text}", code, status)


# -- processes in containers ----------------------------------------------------------------------------------------


class FrameDecoder:
    """A decoder of the engine's frames: an eight-byte header with stream and length, then the payload."""

    def __init__(self) -> None:
        self._head = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Decode bytes into (stream, bytes) pairs. A long frame is returned in parts, so the buffer stays small."""
        found, at = list[tuple[int, bytes]](), 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                found.append((self._stream, piece))
                at, self._left = at + len(piece), self._left - len(piece)
                continue
            part = data[at : at + 8 - len(self._head)]
            self._head, at = self._head + part, at + len(part)
            if len(self._head) == 8:
                self._stream, self._left = self._head[0], int.from_bytes(self._head[4:], "big")
                self._head = b""
        return found


class ContainerProcess:
    """A process in a container: its output streams, its stdin and its exit code."""

    def __init__(self, engine: Engine, id: str) -> None:
        self.id = id
        self._engine = engine
        self._frames = FrameDecoder()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        body = {"Detach": False, "Tty": False}
        self._reader, self._writer = await self._engine.hijack(f"/exec/{self.id}/start", body)

    @property
    def is_over(self) -> bool:
        """True if its output is at EOF."""
        return self._reader is None or self._reader.at_eof()

    async def read(self) -> list[tuple[int, bytes]]:
        """Return the next output as (1 for stdout or 2 for stderr, bytes); empty at EOF."""
        if self._reader is None:
            return []
        while data := await self._reader.read(constants.ENGINE_BUFFER_BYTES):
            if pieces := self._frames.feed(data):
                return pieces
        return []

    def write(self, data: bytes) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ConnectionResetError("the connection to the process is closed")
        self._writer.write(data)

    async def drain(self) -> None:
        if self._writer:
            await self._writer.drain()

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Attach a protocol to the connection: it receives stdout, and its writes go to stdin."""
        assert self._writer is not None
        self._writer.transport.set_protocol(_FrameProtocol(self, self._frames, protocol))
        protocol.connection_made(self._writer.transport)

    async def is_running(self) -> bool:
        return bool((await self._inspect())["Running"])

    async def exit_code(self) -> int:
        """Return the exit code; the engine may report it shortly after EOF."""
        for pause in (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0):
            await asyncio.sleep(pause)
            state = await self._inspect()
            if not state["Running"]:
                return int(-1 if state["ExitCode"] is None else state["ExitCode"])
        raise EngineError("the engine reports that the process still runs, although its output has ended", "unknown")

    async def _inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._engine.request("GET", f"/exec/{self.id}/json")
        return found

    def close(self) -> None:
        """Close the connection; the process continues."""
        if self._writer:
            self._writer.transport.abort()
        self._reader = self._writer = None


class _FrameProtocol(asyncio.Protocol):
    """An adapter that decodes the frames of a connection for another protocol; stderr is discarded."""

    def __init__(self, process: ContainerProcess, frames: FrameDecoder, protocol: asyncio.Protocol) -> None:
        self._process = process  # a reference, as its writer closes the connection when it is collected
        self._frames, self._protocol = frames, protocol
        self.pause_writing, self.resume_writing = protocol.pause_writing, protocol.resume_writing  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        for stream, piece in self._frames.feed(data):
            if stream == 1:
                self._protocol.data_received(piece)

    def eof_received(self) -> None:
        return None  # so asyncio closes the connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
