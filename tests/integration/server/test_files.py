"""Files of a workspace over HTTP: list, read, write, upload, download, delete; never those of other users."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest

from api_requests import send_refused, send_request
from server_process import InProcessServer, ServerProcess, host_server, open_client
from wick import Scripted
from wick.constants import FILE_WRITE_BYTES
from wick.messages import ToolCall
from wick.server.auth.identity import User

FILES = "/agents/default/files"


@pytest.fixture
def folder() -> str:
    """A folder of its own for each test."""
    return f"f-{uuid4().hex[:8]}"


async def write(server: ServerProcess, path: str, content: str, user: str = "ada") -> None:
    status, body = await send_request(server, user, "PUT", f"{FILES}/write", json={"path": path, "content": content})
    assert status == 200 and body == {"path": path, "bytes_written": len(content.encode())}


async def test_a_file_is_written_listed_read_downloaded_and_deleted(server: ServerProcess, folder: str) -> None:
    name = f"{folder}/with space and .. and ü.txt"
    await write(server, name, "héllo")
    _, listing = await send_request(server, "ada", "GET", f"{FILES}/list", params={"path": folder})
    assert listing["entries"] == [{"name": "with space and .. and ü.txt", "type": "file", "size": 6}]
    _, content = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": name})
    assert (content["content"], content["encoding"], content["truncated"]) == ("héllo", "utf-8", False)
    _, part = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": name, "offset": 3, "limit": 2})
    assert part["content"] == "ll" and part["truncated"]
    async with server.client() as ada, ada.get(f"{FILES}/download", params={"path": name}) as answer:
        assert await answer.read() == "héllo".encode()
        assert answer.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''with%20space")
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (await send_request(server, "ada", "DELETE", FILES, params={"path": name}))[0] == 204
    assert await send_refused(server, "ada", "GET", f"{FILES}/read", params={"path": name}) == (404, "not_found")


async def test_bytes_are_transferred_as_base64(server: ServerProcess, folder: str) -> None:
    data = bytes(range(256))
    body = {"path": f"{folder}/bytes", "content": b64encode(data).decode(), "encoding": "base64"}
    assert (await send_request(server, "ada", "PUT", f"{FILES}/write", json=body))[0] == 200
    _, content = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": f"{folder}/bytes"})
    assert content["encoding"] == "base64" and content["content"] == body["content"]
    wrong = {**body, "content": "no base64!"}
    assert await send_refused(server, "ada", "PUT", f"{FILES}/write", json=wrong) == (422, "invalid")


async def test_a_file_is_uploaded_as_form_or_body(server: ServerProcess, folder: str) -> None:
    data = b"\x00\x01" * 700_000  # more than one piece of a download
    form = aiohttp.FormData()
    form.add_field("path", f"{folder}/by-form.bin")
    form.add_field("file", BytesIO(data), filename="whatever.bin", content_type="application/octet-stream")
    status, written = await send_request(server, "ada", "POST", f"{FILES}/upload", data=form)
    assert status == 201 and written == {"path": f"{folder}/by-form.bin", "bytes_written": len(data)}
    raw = {"data": BytesIO(data), "params": {"path": f"{folder}/raw.bin"}}
    assert (await send_request(server, "ada", "POST", f"{FILES}/upload", **raw))[0] == 201
    for name in ("by-form.bin", "raw.bin"):
        assert (await send_request(server, "ada", "GET", f"{FILES}/download", params={"path": f"{folder}/{name}"}))[
            1
        ] == data
    assert await send_refused(server, "ada", "POST", f"{FILES}/upload", data=b"x") == (422, "invalid")
    empty = aiohttp.FormData({"path": "x"})
    empty.add_field("other", b"x", filename="x")
    assert await send_refused(server, "ada", "POST", f"{FILES}/upload", data=empty) == (422, "invalid")


async def test_a_form_file_name_is_reduced_to_its_base_name(server: ServerProcess, folder: str) -> None:
    form = aiohttp.FormData(quote_fields=False)
    name = f"{folder}.txt"
    form.add_field("file", b"x", filename=f"../../{name}")
    status, written = await send_request(server, "ada", "POST", f"{FILES}/upload", data=form)
    assert status == 201 and written["path"] == name


async def test_oversized_uploads_are_refused(server: ServerProcess, folder: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(FILE_WRITE_BYTES // 1_000_000 + 2):
            yield b"x" * 1_000_000

    status, refused = await send_refused(
        server, "ada", "POST", f"{FILES}/upload", params={"path": folder}, data=endless()
    )
    assert (status, refused) == (413, "too_large")
    assert await send_refused(server, "ada", "GET", f"{FILES}/read", params={"path": folder}) == (404, "not_found")


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../outside", "x\0y", ""])
async def test_files_stay_inside(server: ServerProcess, path: str) -> None:
    for method, where, options in (
        ("GET", "/read", {"params": {"path": path}}),
        ("GET", "/download", {"params": {"path": path}}),
        ("PUT", "/write", {"json": {"path": path, "content": "x"}}),
        ("POST", "/upload", {"params": {"path": path}, "data": b"x"}),
        ("DELETE", "", {"params": {"path": path}}),
    ):
        status, _ = await send_request(server, "ada", method, f"{FILES}{where}", **options)
        assert status in (400, 403, 404, 422), (method, where, status)


async def workspace(server: ServerProcess) -> Path:
    """Return the folder of ada's files."""
    _, found = await send_request(server, "ada", "GET", "/agents/default/backend")
    await write(server, "there.txt", "")
    return Path(found["workdir"])


async def test_links_do_not_lead_out(server: ServerProcess, folder: str) -> None:
    os.symlink("/etc", await workspace(server) / folder)
    for path in (f"{folder}/passwd", f"{folder}/../../x"):
        status, _ = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": path})
        assert status in (400, 403, 404)
    status, _ = await send_request(server, "ada", "PUT", f"{FILES}/write", json={"path": f"{folder}/x", "content": "x"})
    assert status in (400, 403)


async def test_a_name_that_is_no_text_is_listed(server: ServerProcess, folder: str) -> None:
    inside = await workspace(server) / folder
    os.mkdir(inside)
    os.mkdir(inside / "\udcff")
    status, listing = await send_request(server, "ada", "GET", f"{FILES}/list", params={"path": folder})
    assert status == 200 and listing["entries"][0]["name"] == "\udcff"


async def test_trusted_files_are_not_written(server: ServerProcess) -> None:
    body = {"path": ".git/hooks/pre-commit", "content": "x"}
    assert await send_refused(server, "ada", "PUT", f"{FILES}/write", json=body) == (403, "protected")


async def test_users_cannot_see_files_of_others(server: ServerProcess, folder: str) -> None:
    await write(server, f"{folder}/hers.txt", "hers")
    assert await send_refused(server, "bob", "GET", f"{FILES}/read", params={"path": f"{folder}/hers.txt"}) == (
        404,
        "not_found",
    )
    await write(server, f"{folder}/hers.txt", "his", "bob")
    _, content = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": f"{folder}/hers.txt"})
    assert content["content"] == "hers"


async def test_an_agent_without_a_workspace_has_no_files(server: ServerProcess) -> None:
    assert await send_refused(server, "ada", "GET", "/agents/plain/files/list") == (409, "conflict")


async def test_files_and_folders_are_moved(server: ServerProcess, folder: str) -> None:
    await write(server, f"{folder}/sub/a.txt", "a")
    body = {"source": f"{folder}/sub/a.txt", "target": f"{folder}/new/b.txt"}
    status, moved = await send_request(server, "ada", "POST", f"{FILES}/move", json=body)
    assert (status, moved) == (200, {"path": f"{folder}/new/b.txt"})
    _, content = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": f"{folder}/new/b.txt"})
    assert content["content"] == "a"
    assert await send_refused(server, "ada", "POST", f"{FILES}/move", json=body) == (404, "not_found")
    whole = {"source": f"{folder}/new", "target": f"{folder}/renamed"}
    assert (await send_request(server, "ada", "POST", f"{FILES}/move", json=whole))[0] == 200
    _, listing = await send_request(server, "ada", "GET", f"{FILES}/list", params={"path": f"{folder}/renamed"})
    assert [entry["name"] for entry in listing["entries"]] == ["b.txt"]


async def test_a_move_neither_overwrites_nor_escapes(server: ServerProcess, folder: str) -> None:
    await write(server, f"{folder}/a.txt", "a")
    await write(server, f"{folder}/b.txt", "b")
    for target, refused in (
        (f"{folder}/b.txt", {(409, "exists")}),
        ("../outside.txt", {(400, "escapes")}),
        (".git/hooks/pre-commit", {(403, "protected")}),
        ("", {(422, "invalid")}),
    ):
        body = {"source": f"{folder}/a.txt", "target": target}
        assert await send_refused(server, "ada", "POST", f"{FILES}/move", json=body) in refused, target
        body = {"source": target, "target": f"{folder}/c.txt"}
        if target != f"{folder}/b.txt":
            assert (await send_refused(server, "ada", "POST", f"{FILES}/move", json=body))[0] in (400, 403, 404, 422), (
                target
            )
    _, content = await send_request(server, "ada", "GET", f"{FILES}/read", params={"path": f"{folder}/b.txt"})
    assert content["content"] == "b"
    body = {"source": f"{folder}/a.txt", "target": f"{folder}/d.txt"}
    assert await send_refused(server, "bob", "POST", f"{FILES}/move", json=body) == (404, "not_found")


async def test_folders_are_deleted_only_if_asked_for(server: ServerProcess, folder: str) -> None:
    await write(server, f"{folder}/sub/a.txt", "a")
    status, _ = await send_request(server, "ada", "DELETE", FILES, params={"path": folder})
    assert status in (400, 409)
    assert (await send_request(server, "ada", "DELETE", FILES, params={"path": folder, "recursive": "true"}))[0] == 204


async def test_files_that_are_data_of_a_conversation_are_read_by_its_thread(tmp_path: Path) -> None:
    write = ToolCall("c1", "write_file", {"path": "notes.txt", "content": "kept"})
    agents = {"noter": {"model": Scripted(write, "Done.", spare=True), "backend": "state"}}
    async with host_server(tmp_path, agents=agents) as there:
        user = await _user(there, "ada")
        instance = await there.service.registry.get_agent(user, "noter")
        await instance.agent.run("Note it.", user=user.id, thread="t1")
        files = "/agents/noter/files"
        _, content = await send_request(
            there, "ada", "GET", f"{files}/read", params={"path": "notes.txt", "thread_id": "t1"}
        )
        assert content["content"] == "kept"
        assert (await send_request(there, "ada", "GET", f"{files}/list", params={"thread_id": "t1"}))[1]["entries"]
        reading = {"params": {"path": "notes.txt", "thread_id": "t1"}}
        assert await send_refused(there, "bob", "GET", f"{files}/read", **reading) == (404, "not_found")
        body = {"path": "notes.txt", "content": "changed"}
        assert await send_refused(there, "ada", "PUT", f"{files}/write", json=body) == (409, "conflict")


async def _user(there: InProcessServer, name: str) -> User:
    _, me = await send_request(there, name, "GET", "/auth/me")
    return User(me["id"], me["username"], me["role"])


async def test_many_uploads_at_once_take_little_memory(server: ServerProcess) -> None:
    """Those of one user wait for each other; however many there are, one file is in memory."""
    assert server.process is not None
    process = Path(f"/proc/{server.process.pid}")
    (process / "clear_refs").write_text("5")  # forgets the most that was held so far
    size, before = 30_000_000, _most_memory(process)

    async def upload(client: aiohttp.ClientSession, number: int) -> int:
        address = f"/agents/default/files/upload?path=large-{number}.bin"
        async with client.post(address, data=BytesIO(bytes(size))) as answer:
            return answer.status

    async with open_client(server) as ada:
        assert await asyncio.gather(*(upload(ada, number) for number in range(4))) == [201] * 4
        for number in range(4):
            async with ada.delete(f"/agents/default/files?path=large-{number}.bin") as gone:
                assert gone.status == 204
    assert _most_memory(process) - before < 64_000_000


def _most_memory(process: Path) -> int:
    """The most that a process has held, in bytes."""
    (line,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
