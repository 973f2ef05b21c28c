"""HTTP as a model's server speaks it: cut anywhere it means the same, and what is not HTTP is never an answer."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wick import constants, user
from wick.errors import ConfigError, ModelError
from wick.models import _connections, _http
from wick.models._connections import Broken, Connection, Place, Pool, Unreachable
from wick.models._http import TimeLimits
from wick.models.openai import OpenAI
from wick.protocols import Finish, Request, TextDelta

SAID = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HI = [TextDelta("hi"), Finish("stop")]
OK = b"HTTP/1.1 200 OK\r\n"


def chunked(body: bytes, size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sized(body: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n%s" % (len(body), body)


class Wire(asyncio.Transport):
    """What a connection writes to, with nobody at the other end."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def connected() -> tuple[Connection, Wire]:
    connection, wire = Connection(Place("h", 80, False), asyncio.get_running_loop()), Wire()
    connection.connection_made(wire)
    return connection, wire


async def heard(*pieces: bytes, closes: bool = False) -> tuple[Connection, bytes]:
    """What is read when these pieces come."""
    connection, _ = connected()
    asking = asyncio.create_task(connection.ask(b"POST / HTTP/1.1\r\n", b"{}", 30))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    if closes:
        connection.eof_received()
        connection.connection_lost(None)
    await asking
    body = b""
    while piece := await connection.read(30):
        body += piece
    return connection, body


ANSWERS = {
    "sized": (OK + sized(b"hello"), True),
    "of no length": (OK + b"content-length: 0\r\n\r\n", True),
    "chunked": (OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hello, hello", 5), True),
    "chunks with extensions": (OK + b"transfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n", True),
    "chunks with a trailer": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n", True),
    "a chunk with line ends in it": (OK + b"transfer-encoding: chunked\r\n\r\n" + chunked(b"\r\n0\r\n\r\n", 9), True),
    "after hints": (b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK + sized(b"hi"), True),
    "not to be kept": (OK + b"Connection: close\r\n" + sized(b"hello"), False),
    "older": (b"HTTP/1.0 200 OK\r\n" + sized(b"hello"), False),
    "older, and to be kept": (b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n" + sized(b"hello"), True),
    "with a length, too": (OK + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n" + chunked(b"hello"), False),
    "without a reason": (b"HTTP/1.1 200\r\n" + sized(b"hello"), True),
    "nothing to say": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
}  # fmt: skip
BODIES = {"after hints": b"hi", "chunked": b"hello, hello", "a chunk with line ends in it": b"\r\n0\r\n\r\n"}
BODIES |= {"of no length": b"", "nothing to say": b""}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_cut_anywhere_is_the_same(name: str) -> None:
    data, kept = ANSWERS[name]
    for at in range(len(data)):
        connection, body = await heard(data[:at], data[at:])
        assert body == BODIES.get(name, b"hello"), at
        assert connection.whole and connection.reusable is kept
    connection, body = await heard(*(data[at : at + 1] for at in range(len(data))))
    assert (body, connection.reusable) == (BODIES.get(name, b"hello"), kept)


async def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    connection, body = await heard(OK + b"\r\nhel", b"lo", closes=True)
    assert body == b"hello" and connection.whole and not connection.reusable


async def test_more_than_the_answer_ends_the_connection() -> None:
    connection, body = await heard(OK + sized(b"hello") + b"HTTP/1.1")
    assert body == b"hello" and not connection.reusable
    connection, _ = await heard(OK + sized(b"hello"))
    connection.data_received(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert not connection.reusable


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b" folded: x\r\n\r\n",
        OK + b"a b: x\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 1_0\r\n\r\n",
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhelloXX5\r\nhello\r\n",
        OK + b"x: " + b"x" * constants.HTTP_HEAD_BYTES,
        OK + b"x: " + b"x" * constants.HTTP_HEAD_BYTES + b"\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * constants.HTTP_HEAD_BYTES,
    ],
)
async def test_what_is_not_http_is_no_answer(data: bytes) -> None:
    with pytest.raises(Broken):
        await heard(data, closes=True)


@pytest.mark.parametrize("data", [ANSWERS["sized"][0], ANSWERS["chunked"][0], ANSWERS["chunks with a trailer"][0]])
async def test_an_answer_that_ends_too_early_is_broken(data: bytes) -> None:
    for at in range(len(data)):
        with pytest.raises(Broken):
            await heard(data[:at], closes=True)


async def test_a_server_waits_for_who_reads_slowly() -> None:
    connection, wire = connected()
    asking = asyncio.create_task(connection.ask(b"", b"", 30))
    await asyncio.sleep(0)
    connection.data_received(OK + b"content-length: %d\r\n\r\n" % (2 * constants.CONNECTION_BUFFER_BYTES))
    await asking
    connection.data_received(b"x" * (constants.CONNECTION_BUFFER_BYTES + 1))
    assert wire.calls == ["pause"]
    read = len(await connection.read(30))
    assert read == _connections.PORTION_BYTES and wire.calls == ["pause", "resume"]
    while read <= constants.CONNECTION_BUFFER_BYTES:
        read += len(await connection.read(30))
    assert read == constants.CONNECTION_BUFFER_BYTES + 1 and wire.calls == ["pause", "resume"]


async def test_of_much_that_comes_at_once_some_is_read_and_others_have_a_turn() -> None:
    connection, _ = connected()
    asking = asyncio.create_task(connection.ask(b"", b"", 30))
    await asyncio.sleep(0)
    body = bytes(range(256)) * 400
    connection.data_received(OK + sized(body))
    await asking
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(read))
            await asyncio.sleep(0)

    read: list[bytes] = []
    other = asyncio.create_task(others())
    while piece := await connection.read(30):
        read.append(piece)
    other.cancel()
    assert b"".join(read) == body and max(map(len, read)) == _connections.PORTION_BYTES
    assert turns == list(range(1, len(read) + 1)) or turns == list(range(1, len(read)))


async def test_waiting_ends_when_its_time_is_over_also_after_a_longer_one() -> None:
    connection, _ = connected()
    asking = asyncio.create_task(connection.ask(b"", b"", 30))
    await asyncio.sleep(0)
    connection.data_received(OK + b"\r\nx")
    await asking
    assert await connection.read(30) == b"x"
    for seconds in (0.02, 0.01, 0, -1):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.read(seconds), 60)


# -- over sockets ---------------------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def saying(answer: bytes, heads: list[bytes] | None = None) -> Serve:
    """A server that says the same to every question, and remembers how it was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head) if heads is not None else None
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


@asynccontextmanager
async def serving(serve: Serve, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, host, 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await _http.close()
        server.close()


async def ask(port: int, scheme: str = "http", **options: Any) -> list[Any]:
    model = OpenAI("m", base_url=f"{scheme}://127.0.0.1:{port}/v1", name="here", **options)
    return [delta async for delta in model.stream(Request((user("hello"),)))]


STREAM = OK + b"content-type: text/event-stream\r\n"


async def test_the_head_of_a_question() -> None:
    heads: list[bytes] = []
    async with serving(saying(STREAM + sized(SAID), heads)) as port:
        url = f"http://127.0.0.1:{port}/a b/ä?x=1&y=%20"
        assert await ask(port, headers={"X-Name": "ä", "User-Agent": "me"}) == HI
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
    assert {f"host: 127.0.0.1:{port}", "x-name: ä", "user-agent: me", "accept-encoding: identity"} <= {*lines}
    head = _http.ModelServer("here", url).head
    assert head.startswith(b"POST /a%20b/%C3%A4?x=1&y=%20 HTTP/1.1\r\n")
    assert b"\r\nhost: [::1]\r\n" in _http.ModelServer("here", "http://[::1]/v1").head


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b"])
def test_a_header_cannot_begin_another(value: str) -> None:
    with pytest.raises(ConfigError, match="there is a line break in what here is sent as 'x'"):
        OpenAI("m", base_url="http://127.0.0.1:1/v1", name="here", headers={"x": value})


@pytest.mark.parametrize("host", [f"{'x' * 64}.org", "a..b", "ä" * 64])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="the address of here must be like http://host:port/path"):
        OpenAI("m", base_url=f"http://{host}/v1", name="here")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_what_comes_compressed_is_read_all_the_same(pack: Callable[[bytes], bytes]) -> None:
    kind = b"gzip" if pack is gzip.compress else b"deflate"
    async with serving(saying(STREAM + b"content-encoding: " + kind + b"\r\n" + sized(pack(SAID)))) as port:
        assert await ask(port) == HI == await ask(port)


async def test_another_compression_is_refused_in_a_sentence() -> None:
    async with serving(saying(STREAM + b"content-encoding: br\r\n" + sized(SAID))) as port:
        with pytest.raises(ModelError, match="compressed as 'br', which was not requested"):
            await ask(port)


async def test_a_server_that_never_pauses_does_not_outlive_its_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(STREAM + b"\r\n")
            while True:
                writer.write(b": nothing\n\n" * 1000)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with serving(serve) as port, asyncio.timeout(60):
        with pytest.raises(ModelError, match="did not finish its answer within 0.2 s"):
            await ask(port, limits=TimeLimits(whole=0.2))


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connections, "CONNECTION_IDLE_SECONDS", 0.05)
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(STREAM + sized(SAID))(reader, writer)
        left.set()

    async with serving(serve) as port, asyncio.timeout(60):
        assert await ask(port) == HI
        await left.wait()


async def test_the_next_address_is_tried_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(saying(STREAM + sized(SAID))) as port:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            gone = closed.getsockname()
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")

        async def addresses(place: Place) -> Any:
            return [(*kind, gone), (*kind, ("127.0.0.1", port))]

        monkeypatch.setattr(_connections, "_addresses", addresses)
        pool = Pool()
        connection = await pool.take(Place("somewhere", port, False), 60)
        connection.close()
        await pool.close()


async def test_a_name_that_nobody_knows_cannot_be_reached() -> None:
    with pytest.raises(Unreachable):
        await Pool().take(Place("nowhere.invalid", 80, False), 5)


# -- TLS ------------------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key, in one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, today - timedelta(1), today + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    both = made.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "both.pem"
    path.write_bytes(both)
    return path


async def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certificate(tmp_path)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(path)
    body = STREAM + b"transfer-encoding: chunked\r\n\r\n" + chunked(SAID)
    async with serving(saying(body), ssl=secure) as port:
        with pytest.raises(ModelError, match=r"cannot be reached at https://127.0.0.1.*certificate"):
            await ask(port, "https")
        trust = ssl.create_default_context(cafile=path)
        monkeypatch.setattr(_connections, "_trust", lambda: trust)
        assert await ask(port, "https") == HI == await ask(port, "https")
