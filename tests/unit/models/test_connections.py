"""Connections to model servers over real sockets: framing, limits, event loops, and invalid HTTP."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from raw_servers import (
    HI,
    OK,
    SAID,
    STREAM,
    chunked_response,
    fixed_response,
    read_request,
    request_deltas,
    run_raw_server,
    sized_response,
)
from wick import Agent, Message, constants, user
from wick.errors import ConfigError, ModelError
from wick.models import _connections, _http
from wick.models._http import TimeLimits
from wick.models.openai import OpenAI
from wick.protocols import Request

CHUNKED = STREAM + b"transfer-encoding: chunked\r\n\r\n"
PART = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'  # of a reply that does not end
ANSWERS = {  # and True if the connection can be reused
    "sized": (STREAM + sized_response(SAID), True),
    "chunked": (CHUNKED + chunked_response(SAID), True),
    "chunks with extensions": (CHUNKED + b"%x;a=b\r\n%s\r\n0;c\r\n\r\n" % (len(SAID), SAID), True),
    "chunks with a trailer": (CHUNKED + b"%x\r\n%s\r\n0\r\nA: b\r\n\r\n" % (len(SAID), SAID), True),
    "after hints": (b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + STREAM + sized_response(SAID), True),
    "connection: close": (STREAM + b"Connection: close\r\n" + sized_response(SAID), False),
    "HTTP/1.0": (STREAM.replace(b"1.1", b"1.0") + sized_response(SAID), False),
    "without a reason": (STREAM.replace(b" OK", b"") + sized_response(SAID), True),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_reply_is_read_in_every_framing(name: str) -> None:
    data, is_reused = ANSWERS[name]
    peers: set[Any] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.add(writer.get_extra_info("peername"))
        await fixed_response(data)(reader, writer)

    async with run_raw_server(serve) as port:
        assert await request_deltas(port) == HI == await request_deltas(port)
    assert len(peers) == (1 if is_reused else 2)


async def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    async with run_raw_server(fixed_response(STREAM + b"\r\n" + SAID, closes=True)) as port:
        assert await request_deltas(port) == HI == await request_deltas(port)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"a b: x\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhelloXX5\r\nhello\r\n",
        OK + b"x: " + b"x" * 1_000_000 + b"\r\n\r\n",
        *[(STREAM + sized_response(PART))[:at] for at in (1, 9, 40, -40, -20, -1)],
        *[(CHUNKED + chunked_response(PART))[:at] for at in (40, -40, -20, -5, -1)],
    ],
)
async def test_invalid_or_truncated_http_is_a_retryable_error(data: bytes) -> None:
    async with run_raw_server(fixed_response(data, closes=True)) as port:
        with pytest.raises(ModelError, match="broke off|cannot be read") as caught:
            await request_deltas(port)
    assert caught.value.retryable


async def test_a_complete_reply_counts_although_its_connection_breaks() -> None:
    async with run_raw_server(fixed_response(CHUNKED + chunked_response(SAID)[:-5], closes=True)) as port:
        assert await request_deltas(port) == HI


async def test_other_tasks_run_between_the_portions_of_a_large_reply() -> None:
    deltas = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * 4000
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with run_raw_server(fixed_response(STREAM + sized_response(deltas + SAID))) as port:
        model = OpenAI("m", base_url=f"http://127.0.0.1:{port}/v1", name="here")
        counting, longest, run, seen = asyncio.create_task(count_turns()), 0, 0, 0
        async for _ in model.stream(Request((user("hello"),))):
            run, seen = (run + 1, seen) if turns == seen else (1, turns)
            longest = max(longest, run)
        counting.cancel()
    assert longest <= _connections.PORTION_BYTES / (len(deltas) / 4000) + 2


async def test_the_head_of_a_request() -> None:
    heads: list[bytes] = []
    async with run_raw_server(fixed_response(STREAM + sized_response(SAID), heads)) as port:
        assert await request_deltas(port, headers={"X-Name": "ä", "User-Agent": "me"}) == HI
        assert await request_deltas(f"http://127.0.0.1:{port}/a b/ä?x=1&y=%20") == HI
    first, second = (head.decode().split("\r\n") for head in heads)
    assert first[0] == "POST /v1/chat/completions HTTP/1.1"
    lines = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in first}
    assert (lines["host"], lines["x-name"], lines["user-agent"]) == (f"127.0.0.1:{port}", "ä", "me")
    assert lines["accept-encoding"] == "identity" and "cookie" not in lines and "authorization" not in lines
    assert second[0] == "POST /a%20b/%C3%A4/chat/completions?x=1&y=%20 HTTP/1.1"
    assert _http.ModelServer("here", "http://[::1]/v1").endpoint.url == "http://[::1]/v1"


async def test_passwords_of_netrc_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, heads = tmp_path / "netrc", list[bytes]()
    path.write_text("machine 127.0.0.1 login me password correct-horse\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    async with run_raw_server(fixed_response(STREAM + sized_response(SAID), heads)) as port:
        assert await request_deltas(port) == HI
    assert b"authorization" not in heads[0].lower()


async def test_a_large_request_arrives_whole() -> None:
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append((await read_request(reader))[1])
        writer.write(STREAM + sized_response(SAID))
        await writer.drain()
        writer.close()

    text = "Ä long text. " * 300_000
    async with run_raw_server(serve) as port:
        model = OpenAI("m", base_url=f"http://127.0.0.1:{port}/v1", name="here")
        assert [delta async for delta in model.stream(Request((Message("user", text),)))] == HI
    assert json.loads(bodies[0])["messages"][0]["content"] == text


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b"])
def test_header_injection_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="there is a line break in what here is sent as 'x'"):
        OpenAI("m", base_url="http://127.0.0.1:1/v1", name="here", headers={"x": value})


@pytest.mark.parametrize("host", [f"{'x' * 64}.org", "a..b", "ä" * 64])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="the address of here must be like http://host:port/path"):
        OpenAI("m", base_url=f"http://{host}/v1", name="here")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_a_compressed_reply_is_read(pack: Callable[[bytes], bytes]) -> None:
    kind = b"gzip" if pack is gzip.compress else b"deflate"
    async with run_raw_server(
        fixed_response(STREAM + b"content-encoding: " + kind + b"\r\n" + sized_response(pack(SAID)))
    ) as port:
        assert await request_deltas(port) == HI == await request_deltas(port)


@pytest.mark.parametrize("kind", [b"gzip", b"deflate", b"br", b"zstd"])
async def test_a_reply_that_cannot_be_decompressed_is_an_error(kind: bytes) -> None:
    async with run_raw_server(
        fixed_response(STREAM + b"content-encoding: " + kind + b"\r\n" + sized_response(SAID))
    ) as port:
        with pytest.raises(ModelError, match="the connection to here broke off: .*content-encoding"):
            await request_deltas(port)


async def test_a_server_that_never_pauses_does_not_outlive_its_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(STREAM + b"\r\n")
            while True:
                writer.write(b": nothing\n\n" * 1000)
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with run_raw_server(serve) as port, asyncio.timeout(60):
        with pytest.raises(ModelError, match="did not finish its answer within 0.2 s"):
            await request_deltas(port, limits=TimeLimits(total=0.2))


async def test_a_server_that_accepts_no_connection_in_time_cannot_be_reached() -> None:
    """The backlog of a listening socket is full, so that the next connection waits."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for other in (first, second):
            other.setblocking(False)
            other.connect_ex(listener.getsockname())
        await asyncio.sleep(0.05)
        with pytest.raises(ModelError, match=r"cannot be reached at .*no connection within 0.2 s") as caught:
            await request_deltas(listener.getsockname()[1], limits=TimeLimits(connect=0.2))
    assert caught.value.retryable
    await _http.close()


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CONNECTION_IDLE_SECONDS", 0.05)
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await fixed_response(STREAM + sized_response(SAID))(reader, writer)
        left.set()

    await _http.close()
    async with run_raw_server(serve) as port, asyncio.timeout(60):
        assert await request_deltas(port) == HI
        await left.wait()


async def test_cancelling_closes_the_connection() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(STREAM + b"\r\n: wait\n\n")
        begun.set()
        await reader.read()
        left.set()
        writer.close()

    async with run_raw_server(serve) as port, asyncio.timeout(60):
        task = asyncio.create_task(request_deltas(port))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left.wait()


async def test_the_next_address_is_tried_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def two_addresses(host: str, port: Any, *args: Any, **options: Any) -> Any:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "model.test" else (host,)
        return [found for one in hosts for found in look_up(one, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    async with run_raw_server(fixed_response(STREAM + sized_response(SAID))) as port:
        assert await request_deltas(f"http://model.test:{port}/v1") == HI


async def test_an_unknown_name_cannot_be_reached() -> None:
    with pytest.raises(ModelError, match=r"here cannot be reached at http://nowhere.invalid/v1") as caught:
        await request_deltas("http://nowhere.invalid/v1")
    assert caught.value.retryable
    await _http.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.wfile.write(STREAM + sized_response(SAID))

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_model_works_in_several_event_loops(recwarn: pytest.WarningsRecorder) -> None:
    """Sessions are closed with their event loops: the garbage collector has nothing to report."""
    problems: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        for _ in range(2):
            assert (await Agent(model).run("hello")).text == "hi"

    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        model = OpenAI("m", base_url=f"http://127.0.0.1:{server.server_port}/v1", name="here")
        for _ in range(3):
            asyncio.run(run())
        server.shutdown()
        serving.join()
    gc.collect()
    assert not problems and not recwarn.list
    assert not _connections._sessions


def test_aiohttp_is_loaded_when_the_first_request_is_sent() -> None:
    program = (
        "import sys; from wick.models import resolve; "
        "resolve({'provider': 'openai', 'model': 'm', 'base_url': 'https://127.0.0.1:1/v1'}); "
        "assert 'aiohttp' not in sys.modules and 'yarl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
