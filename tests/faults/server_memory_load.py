"""Load a server with far more than it may hold: endless bodies, and clients that never read.

Each of KINDS is done to a server that runs in a process of its own, and comes back with what there is to say about it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from faults.leaks import family, forget_peak, is_wickd, peak
from faults.memory_load import LIFT
from server_process import TOKENS, ServerProcess, open_client, wait_until

PIECE = b"x" * 65_536
MILLION = 1_000_000
BIG = 8 * MILLION  # bytes of a conversation that is exported, and of a run that is over
FILE = 100 * MILLION  # bytes of a file that is downloaded

SERVER = """
import asyncio, os
from pathlib import Path
from wick import Agent, Ask, FunctionModel, ToolCall, ToolUse, assistant, guard, tool
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.models import scripted
from wick.server.server import Server

@tool
async def shout(use: ToolUse, megabytes: int) -> str:
    "Say much while it works, and little in the end."
    for _ in range(megabytes * 50):
        use.stream("x" * 20_000)
        await asyncio.sleep(0)
    return "done"

@tool(max_output=100_000)
def fill(number: int) -> str:
    "Say much in the end."
    return str(number) * 70_000

@guard(ToolUse)
def ask(use):
    return Ask("Really?")

def shouting(request):
    if request.messages[-1].role == "tool":
        return "done"
    return assistant("", ToolCall("c1", "shout", {"megabytes": int(request.messages[-1].text)}))

def filling(request):
    step = sum(message.role == "assistant" for message in request.messages)
    calls = [ToolCall(f"c{step}-{number}", "fill", {"number": number % 10}) for number in range(20)]
    return "done" if step * 20 >= int(request.messages[0].text) else assistant("", *calls)

scripted.KEPT = 0  # a model that is a function remembers what it was asked
work = Path(os.environ["WICK_DATA"]) / "work"
server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("short", Agent(FunctionModel(lambda request: "I see.")))
server.register_agent("loud", Agent(FunctionModel(shouting), tools=[shout]))
server.register_agent("long", Agent(FunctionModel(filling), tools=[fill]))
server.register_agent("asking", Agent(FunctionModel(shouting), tools=[shout], hooks=[ask]))
server.register_agent("files", Agent(FunctionModel(lambda request: "I see."), hooks=[Filesystem(Local(work))]))
server.start()
"""

# Everything that holds something back is lifted, here and in the server's wickd.
LIFTED = f"""
LIFT = {LIFT!r}
exec(LIFT)
import uvicorn
from contextlib import nullcontext
from starlette.formparsers import MultiPartParser
from wick.backends import daemon_client
from wick.server import service
from wick.server.http import middleware, spooling, uploads
from wick.server.runs import followers, hub, sse
from wick.server.routes import files, terminal
from wick.stores import rows

launch = daemon_client._LAUNCH
daemon_client._LAUNCH = launch.replace("from wick.wickd", LIFT + "from wick.wickd", 1)
assert daemon_client._LAUNCH != launch
middleware.LARGE_BYTES = middleware.SMALL_BYTES = sse.PORTION_BYTES = 10**12
spooling.LARGE_BYTES = uploads.SMALL_BYTES = 10**12
rows.BATCH_BYTES = terminal.INPUT_BYTES = 10**12
files.PIECE_BYTES = 10_000_000
MultiPartParser.spool_max_size = 10**12

class Open(service.Service):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.files = self.loading = nullcontext()

class Config(uvicorn.Config):
    def __init__(self, *given, **options):
        super().__init__(*given, **{{**options, "ws_max_size": 10**12}})

async def write(self, data):
    self._daemon.send({{"op": "input", "target": self._request_id, "data": daemon_client.encode_base64(data)}})

class Heavy(hub.StreamReader):
    def __init__(self, place):
        super().__init__(place)
        self.weight = b"x" * 500_000

service.Service, uvicorn.Config, followers.StreamReader, daemon_client.DaemonTerminal.write = Open, Config, Heavy, write
"""


@dataclass
class Scene:
    """A server, how much is done to it, and by how many."""

    server: ServerProcess
    megabytes: int
    many: int
    sockets: ExitStack = field(default_factory=ExitStack)
    before: dict[int, int] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        """Return the pids of the server and of its wickd."""
        assert self.server.process is not None
        pid = self.server.process.pid
        return [pid, *[one for one, line in family(pid).items() if is_wickd(line)][1:2]]

    def begin(self) -> None:
        """Start the measurement; earlier growth is not counted."""
        self.before = {pid: forget_peak(pid) for pid in self.pids}

    async def grown(self, kind: Kind) -> tuple[int, str]:
        """Return the growth of the server in bytes, and the response."""
        self.begin()
        with self.sockets:
            said = await kind(self)
            after = sum(peak(pid) for pid in self.before)
        return after - sum(self.before.values()), said

    # -- reading clients --------------------------------------------------------------------------------------------

    async def over(self, runs: list[str]) -> None:
        """Until these runs have ended."""
        async with open_client(self.server) as client:
            for run in runs:

                async def ended(run: str = run) -> bool:
                    async with client.get(f"/runs/{run}") as response:
                        return bool((await response.json())["state"] == "ended")

                await wait_until(ended, 300)

    # -- clients that do not read -----------------------------------------------------------------------------------

    async def deaf(self, path: str, body: Any = None, more: bytes = b"", headers: str = "") -> socket.socket:
        """A client that asks, and never reads the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n{_headers()}{headers}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n" if data else "\r\n"
        made = self.sockets.enter_context(socket.socket())
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(made, _address(self.server))
        await loop.sock_sendall(made, head.encode() + data)
        if more:
            await answered(made)
            await loop.sock_sendall(made, more)
        return made

    async def quiet(self, seconds: float = 1.0) -> None:
        """Until the server grows no more."""
        loop, seen = asyncio.get_running_loop(), [0]
        until = loop.time() + 120
        while loop.time() < until and sum(map(peak, self.pids)) != seen[0]:
            seen[0] = sum(map(peak, self.pids))
            await asyncio.sleep(seconds)


Kind = Callable[[Scene], Awaitable[str]]


async def say(client: aiohttp.ClientSession, agent: str, words: str, thread: str) -> dict[str, Any]:
    """Send a message and wait for the answer."""
    body = {"messages": [{"role": "user", "content": words}], "thread_id": thread}
    async with client.post(f"/agents/{agent}/invoke", json=body) as response:
        found: dict[str, Any] = await response.json()
        assert response.status == 200, found
        return found


def _headers(user: str = "ada") -> str:
    return f"Host: localhost\r\nAuthorization: Bearer {TOKENS[user]}\r\n"


def _address(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port.strip("/"))


async def answered(client: socket.socket) -> str:
    """The head of an answer, which stays unread."""
    for _ in range(12_000):
        with suppress(BlockingIOError):
            head = client.recv(1_000, socket.MSG_PEEK).decode("latin-1")
            if not head:
                raise ConnectionError("the server hung up")
            if "\r\n\r\n" in head or len(head) == 1_000:
                return head
        await asyncio.sleep(0.005)
    raise TimeoutError("there is no answer")


async def _fine(clients: list[socket.socket]) -> list[str]:
    """The heads of answers that are all fine."""
    heads = [await answered(client) for client in clients]
    assert all(head.startswith("HTTP/1.1 200") for head in heads), heads
    return heads


def _header(head: str, name: str) -> str:
    return next(line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name}:"))


# -- bodies without end ---------------------------------------------------------------------------------------------


async def _poured(scene: Scene, head: str, begin: bytes, chunked: bool) -> str:
    """Send a body of that size until it is refused; return the response and the accepted bytes."""
    size = scene.megabytes * MILLION
    reader, writer = await asyncio.open_connection(*_address(scene.server))
    head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else f"Content-Length: {size}\r\n\r\n"
    writer.write(head.encode())
    sent, saying = 0, asyncio.ensure_future(reader.read(200))
    with suppress(ConnectionError):
        while sent < size and not saying.done():
            piece = begin + PIECE if sent == 0 else PIECE
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            sent += len(piece)
            await asyncio.wait_for(writer.drain(), 30)
            await asyncio.sleep(0)
    said = b""
    with suppress(ConnectionError, TimeoutError):
        said = await asyncio.wait_for(saying, 30)
    writer.transport.abort()
    return f"{said[9:12].decode() or 'hung up'} after {sent / MILLION:.0f} MB"


def _body(path: str, kind: str, *, chunked: bool, begin: bytes = b"") -> Kind:
    def pour(scene: Scene) -> Awaitable[str]:
        head = f"POST {path} HTTP/1.1\r\n{_headers()}Content-Type: {kind}\r\n"
        return _poured(scene, head, begin, chunked)

    return pour


FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="much"\r\n\r\n'


async def many_uploads(scene: Scene) -> str:
    """Upload files of the maximum size for all users, up to a total; all are accepted."""
    size = 39 * MILLION if scene.megabytes >= 1_000 else 15 * MILLION
    turns = iter(range(max(len(TOKENS), scene.megabytes * MILLION // size)))

    async def upload(user: str) -> None:
        async with open_client(scene.server, user) as client:
            for number in turns:
                path = f"/agents/files/files/upload?path=much-{user}-{number % 2}"
                async with client.post(path, data=_pieces(size)) as response:
                    assert response.status == 201, await response.text()

    await asyncio.gather(*(upload(user) for user in TOKENS))
    return f"uploads of {size // MILLION} MB were taken"


async def _pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, len(PIECE)):
        yield PIECE


# -- terminals ------------------------------------------------------------------------------------------------------

TERMINAL = "/agents/files/terminal"
UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def _frame(data: bytes) -> bytes:
    """A message of a WebSocket client, masked with zeros."""
    assert len(data) < 126
    return bytes([0x82, 0x80 | len(data)]) + bytes(4) + data


async def typed(scene: Scene) -> str:
    """Type that much into a terminal whose program reads all of it."""
    async with open_client(scene.server) as client, client.ws_connect(TERMINAL) as terminal:
        await terminal.send_bytes(b"stty raw -echo; echo rea''dy; exec cat >/dev/null\n")
        await _until(terminal, b"ready")
        for _ in range(scene.megabytes):
            await terminal.send_bytes(bytes(MILLION - 1) + b"\n")
        await terminal.send_bytes(b"\x01" + json.dumps({"type": "resize", "rows": 9, "columns": 9}).encode())
    return f"{scene.megabytes} MB were typed"


async def _until(terminal: aiohttp.ClientWebSocketResponse, text: bytes) -> None:
    seen = b""
    async with asyncio.timeout(60):
        while text not in seen:
            seen += (await terminal.receive_bytes())[-1_000:]


async def typed_in_vain(scene: Scene) -> str:
    """Type that much into a terminal whose program does not read."""
    async with open_client(scene.server) as client, client.ws_connect(TERMINAL) as terminal:
        await terminal.send_bytes(b"stty raw -echo; echo rea''dy; exec sleep 600\n")
        await _until(terminal, b"ready")
        sent = 0
        with suppress(TimeoutError):
            while sent < scene.megabytes:
                async with asyncio.timeout(2):
                    await terminal.send_bytes(bytes(MILLION - 1) + b"\n")
                sent += 1
        terminal.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # unsent data would hold it open
    return f"{sent} MB were taken"


async def one_message(scene: Scene) -> str:
    """One message of that size is sent to a terminal."""
    size = scene.megabytes * MILLION
    client = await scene.deaf(TERMINAL, headers=UPGRADE)
    assert (await answered(client)).startswith("HTTP/1.1 101")
    loop, sent = asyncio.get_running_loop(), 0
    await loop.sock_sendall(client, b"\x82\xff" + size.to_bytes(8, "big") + bytes(4))
    with suppress(ConnectionError, TimeoutError):
        while sent < size:
            await asyncio.wait_for(loop.sock_sendall(client, PIECE), 5)
            sent += len(PIECE)
    return f"{sent / MILLION:.0f} MB were taken"


async def unread_terminals(scene: Scene) -> str:
    """Terminals that print without end."""
    flood = _frame(f"yes 0123456789 | head -c {3 * BIG}\n".encode())
    clients = [await scene.deaf(TERMINAL, more=flood, headers=UPGRADE) for _ in range(min(30, scene.many))]
    refused = [await scene.deaf(TERMINAL, headers=UPGRADE) for _ in range(max(0, scene.many - 32))]
    assert all([(await answered(one)).startswith("HTTP/1.1 101") for one in clients])
    heads = [await answered(one) for one in refused]
    await scene.quiet()
    return f"{len(clients)} terminals, and {dict(Counter(head[9:12] for head in heads))} for more"


# -- unread responses -----------------------------------------------------------------------------------------------


async def unread_streams(scene: Scene) -> str:
    """Open streams of one run with much output."""
    body = {"messages": [{"role": "user", "content": "30"}]}
    first = await scene.deaf("/agents/loud/stream", body)
    run = _header(await answered(first), "x-run-id")
    clients = [await scene.deaf(f"/runs/{run}/events") for _ in range(scene.many - 1)]
    await _fine(clients)
    await scene.over([run])
    return f"{len(clients) + 1} streams of one run"


async def unread_runs(scene: Scene) -> str:
    """Open streams of runs with much output, one each."""
    body = {"messages": [{"role": "user", "content": "20"}]}
    clients = [await scene.deaf("/agents/loud/stream", body) for _ in range(scene.many)]
    await scene.over([_header(head, "x-run-id") for head in await _fine(clients)])
    return f"{len(clients)} runs"


async def unread_logs(scene: Scene) -> str:
    """Open streams of a finished run with much output."""
    async with open_client(scene.server) as client:
        run = (await say(client, "long", str(BIG // 70_000), "th_long"))["run_id"]
    return await _asked(scene, f"/runs/{run}/events")


async def unread_exports(scene: Scene) -> str:
    """Request exports of a long conversation, and the conversation itself."""
    await _conversation(scene)
    paths = ("/threads/th_big/export", "/threads/th_big/export?format=markdown", "/threads/th_big")
    return await _asked(scene, *paths)


async def _conversation(scene: Scene) -> None:
    async with open_client(scene.server) as client:
        for number in range(BIG // MILLION):
            await say(client, "short", f"{number} " * (MILLION // 2), "th_big")


async def unread_downloads(scene: Scene) -> str:
    """Downloads of a large file, and as much of it as can be read at once."""
    _file(scene.server)
    return await _asked(scene, "/agents/files/files/download?path=large", "/agents/files/files/read?path=large")


def _file(server: ServerProcess) -> None:
    path = server.folder / "data" / "work" / "large"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * (FILE // 256))


async def _asked(scene: Scene, *paths: str) -> str:
    """Send all requests and read no response."""
    scene.begin()
    clients = [await scene.deaf(paths[number % len(paths)]) for number in range(scene.many)]
    await _fine(clients)
    await scene.quiet()
    return f"{len(clients)} clients"


KINDS: dict[str, Kind] = {
    "upload": _body("/agents/files/files/upload?path=a", "application/octet-stream", chunked=False),
    "upload without a length": _body("/agents/files/files/upload?path=a", "application/octet-stream", chunked=True),
    "upload in a form": _body(
        "/agents/files/files/upload?path=a", "multipart/form-data; boundary=b", chunked=True, begin=FORM
    ),
    "JSON body": _body("/agents/short/stream", "application/json", chunked=True, begin=b'{"messages": [{"content": "'),
    "uploads by all users": many_uploads,
    "terminal input": typed,
    "unread terminal input": typed_in_vain,
    "message to a terminal": one_message,
    "unread terminals": unread_terminals,
    "unread streams": unread_streams,
    "unread runs": unread_runs,
    "unread logs": unread_logs,
    "unread exports": unread_exports,
    "unread downloads": unread_downloads,
}


# -- nothing to do --------------------------------------------------------------------------------------------------


async def idle(scene: Scene, threads: int, streams: int) -> tuple[int, int]:
    """Return the memory of the server with that many threads and idle streams."""
    numbers = iter(range(threads - streams))

    async def fill() -> None:
        async with open_client(scene.server) as client:
            for number in numbers:
                await say(client, "short", "Hello.", f"th_idle{number}")

    await asyncio.gather(*(fill() for _ in range(8)))
    before = sum(map(_now, scene.pids))
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "1"}]}
    for start in range(0, streams, 50):
        opened = range(start, min(start + 50, streams))
        clients = [await scene.deaf("/agents/asking/stream", {**body, "thread_id": f"th_asked{n}"}) for n in opened]
        await _fine(clients)
    await scene.quiet()
    return before, sum(map(_now, scene.pids))


def _now(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4_096
