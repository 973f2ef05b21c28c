"""A shell over a WebSocket: bytes in both directions, its size, access, and no leftover process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from api_requests import send_request
from server_process import ServerProcess, host_server, run_server, wait_until

TERMINAL = "/agents/default/terminal"


async def until(socket: aiohttp.ClientWebSocketResponse, text: bytes) -> bytes:
    """Return the output up to a text."""
    seen = b""
    async with asyncio.timeout(60):
        while text not in seen:
            message = await socket.receive()
            if message.type == aiohttp.WSMsgType.TEXT:  # the greeting of a named shell
                continue
            assert message.type == aiohttp.WSMsgType.BINARY, message
            seen += message.data
    return seen


def control(**said: Any) -> bytes:
    return b"\x01" + json.dumps(said).encode()


async def test_a_shell_is_typed_into_and_ends_by_itself(server: ServerProcess) -> None:
    async with server.client() as ada, ada.ws_connect(TERMINAL) as socket:
        await socket.send_bytes(b"echo $((40 + 2))-\xc3\xbc\n")
        await until(socket, "42-ü".encode())
        await socket.send_bytes(b"exit\n")
        async with asyncio.timeout(60):
            while (message := await socket.receive()).type == aiohttp.WSMsgType.BINARY:
                pass
        assert message.type == aiohttp.WSMsgType.CLOSE and message.data == 1000


async def test_a_terminal_has_the_requested_size(server: ServerProcess) -> None:
    async with server.client() as ada, ada.ws_connect(f"{TERMINAL}?rows=11&columns=33") as socket:
        await socket.send_bytes(b"stty size\n")
        await until(socket, b"11 33")
        await socket.send_bytes(control(type="resize", rows=40, columns=120))
        await socket.send_bytes(b"stty size\n")
        await until(socket, b"40 120")
        for odd in (b"\x01", b"\x01{", control(type="resize", rows=-1, columns=5), control(type="other"), b"\x01\xff"):
            await socket.send_bytes(odd)  # passed over
        await socket.send_bytes(control(type="resize", rows=50, cols=99))
        await socket.send_bytes(b"stty size\n")
        await until(socket, b"50 99")


async def test_invalid_utf8_closes_the_terminal_without_server_error(server: ServerProcess) -> None:
    async with server.client() as ada, ada.ws_connect(TERMINAL) as socket:
        await socket.send_frame(b"\xff\x8c", aiohttp.WSMsgType.TEXT)
        async with asyncio.timeout(60):
            while (message := await socket.receive()).type == aiohttp.WSMsgType.BINARY:
                pass
        assert message.type == aiohttp.WSMsgType.CLOSE and message.data == 1007
    async with server.client() as ada, ada.ws_connect(TERMINAL) as socket:
        link = socket._response.connection.transport  # type: ignore[union-attr]
        link.write(b"\x81\x82\0\0\0\0\xff\x8c" + b"\x88\x80\0\0\0\0")  # and at once it is closed
        async with asyncio.timeout(60):
            while (await socket.receive()).type == aiohttp.WSMsgType.BINARY:
                pass
    assert "Traceback" not in server.log


async def greeting(socket: aiohttp.ClientWebSocketResponse) -> Any:
    async with asyncio.timeout(60):
        return json.loads(await socket.receive_str())


def cut(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Break the connection, as a network that fails does."""
    socket._response.connection.transport.abort()  # type: ignore[union-attr]


async def test_a_named_shell_outlives_a_connection_that_breaks_off(server: ServerProcess) -> None:
    named = f"{TERMINAL}?session={uuid4().hex}"
    async with server.client() as ada:
        socket = await ada.ws_connect(named)
        assert await greeting(socket) == {"type": "session", "kept": False}
        await socket.send_bytes(b"kept=yes; (sleep 0.5; echo la''ter) & echo first-$kept\n")
        await until(socket, b"first-yes")
        cut(socket)
        async with ada.ws_connect(named) as again:
            assert await greeting(again) == {"type": "session", "kept": True}
            await until(again, b"first-yes")  # the output of before
            await until(again, b"later")  # written while no client was connected
            await again.send_bytes(b"echo second-$kept\n")
            await until(again, b"second-yes")


async def test_a_named_shell_ends_when_its_client_closes_it(server: ServerProcess) -> None:
    named = f"{TERMINAL}?session={uuid4().hex}"
    async with server.client() as ada:
        async with ada.ws_connect(named) as socket:
            assert not (await greeting(socket))["kept"]
        async with asyncio.timeout(60):  # the server may see the new connection before the end of the old one
            while await _is_kept(ada, named):
                pass


async def _is_kept(client: aiohttp.ClientSession, named: str) -> bool:
    async with client.ws_connect(named) as socket:
        return bool((await greeting(socket))["kept"])


async def _close_code(socket: aiohttp.ClientWebSocketResponse) -> int:
    async with asyncio.timeout(60):
        while (message := await socket.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            pass
    assert message.type == aiohttp.WSMsgType.CLOSE, message
    return int(message.data)


async def test_a_second_connection_takes_a_named_shell_over(server: ServerProcess) -> None:
    named = f"{TERMINAL}?session={uuid4().hex}"
    async with server.client() as ada, ada.ws_connect(named) as first:
        assert not (await greeting(first))["kept"]
        await first.send_bytes(b"taken=over; echo re''ady\n")
        await until(first, b"ready")
        async with ada.ws_connect(named) as second:
            assert (await greeting(second))["kept"]
            assert await _close_code(first) == 4001
            await second.send_bytes(b"echo is-$taken\n")
            await until(second, b"is-over")


async def test_connections_that_begin_a_named_shell_at_once_share_one(server: ServerProcess) -> None:
    named = f"{TERMINAL}?session={uuid4().hex}"
    async with server.client() as ada:
        begun = await asyncio.gather(*(ada.ws_connect(named) for _ in range(3)), return_exceptions=True)
        sockets = [one for one in begun if not isinstance(one, BaseException)]  # others were taken over at once
        ends = {asyncio.create_task(_close_code(socket)): socket for socket in sockets}
        async with asyncio.timeout(60):
            while len(running := {task for task in ends if not task.done()}) > 1:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        (left,) = running
        assert all(task.result() == 4001 for task in ends if task is not left)
        left.cancel()
        await asyncio.wait({left})
        await ends[left].send_bytes(b"echo sti''ll\n")
        await until(ends[left], b"still")
        await ends[left].close()


async def test_the_shell_of_another_user_is_another_one(server: ServerProcess) -> None:
    named = f"{TERMINAL}?session=same"
    async with server.client() as ada, server.client("bob") as bob:
        socket = await ada.ws_connect(named)
        await greeting(socket)
        cut(socket)
        async with bob.ws_connect(named) as other:
            assert not (await greeting(other))["kept"]


async def test_closing_a_terminal_kills_its_processes(server: ServerProcess) -> None:
    mark = f"3{uuid4().int % 10**9}"
    async with server.client() as ada:
        async with ada.ws_connect(TERMINAL) as socket:
            await socket.send_bytes(f"sleep {mark} & nohup setsid sleep {mark} & echo star''ted\n".encode())
            await until(socket, b"started")

            async def both() -> bool:
                return len(_running(mark)) >= 2

            await wait_until(both)  # they are started, but may not have called exec yet

        async def is_stopped() -> bool:
            return not _running(mark)

        await wait_until(is_stopped)


async def test_killing_the_server_kills_terminal_processes(tmp_path: Path) -> None:
    mark = f"4{uuid4().int % 10**9}"
    with run_server(tmp_path) as server:
        async with server.client() as ada:
            socket = await ada.ws_connect(TERMINAL)
            await socket.send_bytes(f"nohup setsid sleep {mark} & echo star''ted\n".encode())
            await until(socket, b"started")

            async def there() -> bool:
                return bool(_running(mark))

            await wait_until(there)
            server.kill()

            async def is_stopped() -> bool:
                return not _running(mark)

            await wait_until(is_stopped)


def _running(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def test_unread_output_is_bounded(server: ServerProcess) -> None:
    """A shell that prints without end waits for its reader; the server answers others meanwhile."""
    async with server.client() as ada, ada.ws_connect(TERMINAL, max_msg_size=0) as socket:
        await socket.send_bytes(b"yes 0123456789012345678901234567890123456789\n")
        await until(socket, b"\r\n0123456789")  # it has started and is running
        await asyncio.sleep(1.0)
        before = _memory(server)
        await asyncio.sleep(2.0)
        assert (await send_request(server, "ada", "GET", "/health"))[0] == 200
        assert _memory(server) - before < 32_000_000


def _memory(server: ServerProcess) -> int:
    assert server.process is not None
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


async def refused(server: Any, user: str, path: str) -> int:
    async with server.client(user) as client:
        try:
            async with client.ws_connect(path):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status


async def test_a_denied_terminal_gets_a_status(server: ServerProcess) -> None:
    assert await refused(server, "", TERMINAL) == 401
    assert await refused(server, "ada", "/agents/nobody/terminal") == 404
    assert await refused(server, "ada", "/agents/plain/terminal") == 409


async def test_an_unconfined_terminal_needs_an_operator(tmp_path: Path) -> None:
    agents = {"open": {"model": "demo", "backend": {"type": "local", "sandbox": "none"}}}
    async with host_server(tmp_path, agents=agents) as there:
        assert await refused(there, "ada", "/agents/open/terminal") == 403
        assert await refused(there, "olga", "/agents/open/terminal") == 101


async def test_there_are_only_so_many_at_once(tmp_path: Path) -> None:
    agents = {"default": {"model": "demo", "backend": "local"}}
    quotas = {"terminals": 1, "requests_per_second": 0}
    async with host_server(tmp_path, agents=agents, quotas=quotas) as there:
        async with there.client("ada") as ada, ada.ws_connect(TERMINAL):
            assert await refused(there, "ada", TERMINAL) == 429
            assert await refused(there, "bob", TERMINAL) == 101

        async def again() -> bool:
            return await refused(there, "ada", TERMINAL) == 101

        await wait_until(again)


@pytest.mark.parametrize("data", [b"", b"\x00" * 10, b"\xff\xfe"])
async def test_odd_bytes_do_no_harm(server: ServerProcess, data: bytes) -> None:
    async with server.client() as ada, ada.ws_connect(TERMINAL) as socket:
        await socket.send_bytes(data)
        await socket.send_str("\necho st''ill-here\n")
        await until(socket, b"still-here")
