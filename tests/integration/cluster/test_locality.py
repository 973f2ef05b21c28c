"""Two servers with their own disks on one Postgres: requests reach the files, and files reach the runs."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
import yaml
from yarl import URL

from postgres import FOLDERS
from postgres import shared_server as postgres_server
from server_agents import get_json, user_message
from server_process import TOKENS, ServerProcess, host_server, open_client, read_events, run_server, wait_until
from wick.server.agents.locality import find_snapshots
from wick.server.auth.forwards import HEADER, ForwardSigner
from wick.server.auth.identity import User

pytestmark = [
    pytest.mark.skipif(not FOLDERS, reason="no Postgres: install it with: apt-get install postgresql"),
    pytest.mark.timeout(300),
]

# Each line of the last user message is a command.
SCRIPT = """
import os
from wick import FunctionModel, ToolCall, assistant
from wick.server import forwarding
from wick.server.server import Server

forwarding.SAVE_SECONDS = 0.3

def answer(request):
    last = max(n for n, message in enumerate(request.messages) if message.role == "user")
    commands, results = request.messages[last].text.splitlines(), request.messages[last + 1:]
    done = [message.text for message in results if message.role == "tool"]
    if len(done) < len(commands):
        return assistant("", ToolCall(f"c{len(request.messages)}", "execute", {"command": commands[len(done)]}))
    return "; ".join(done)

agent = {"model": FunctionModel(answer), "backend": {"type": "local", "sandbox": "none"}}
server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("coder", agent)
server.register_agent("plain", agent | {"snapshots": False})
server.start()
"""


SECRET = "s" * 32


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """The first server to use a workspace has it: here the first one."""
    options: dict[str, Any] = {"store": "postgres", "store_schema": postgres_server().schema(), "script": SCRIPT}
    options |= {"snapshots": str(tmp_path / "snapshots"), "grace": 0.0, "cluster_secret": SECRET}
    with ExitStack() as stack:
        yield tuple(stack.enter_context(run_server(tmp_path / name, **options)) for name in "ab")  # type: ignore[misc]


@asynccontextmanager
async def clients(
    two: tuple[ServerProcess, ServerProcess],
) -> AsyncIterator[tuple[aiohttp.ClientSession, aiohttp.ClientSession]]:
    async with open_client(two[0], "olga") as here, open_client(two[1], "olga") as there:
        yield here, there


def folder(server: ServerProcess, agent: str = "coder") -> Path:
    """The folder of the only user of an agent."""
    (found,) = (server.folder / "data" / "workspaces").glob(f"*/{agent}")
    return found


def describe(root: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and the content of each file, folder and link."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_text("latin-1") if path.is_file() else ""
        found[str(path.relative_to(root))] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


async def invoke(client: aiohttp.ClientSession, agent: str, text: str, thread: str = "") -> dict[str, Any]:
    async with client.post(f"/agents/{agent}/invoke", json=user_message(text, thread)) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


async def test_requests_at_the_wrong_server_reach_the_files(two: tuple[ServerProcess, ServerProcess]) -> None:
    async with clients(two) as (here, there):
        await invoke(here, "coder", "echo one > a.txt")
        url = "/agents/coder/files"
        async with there.get(f"{url}/read", params={"path": "a.txt"}) as response:
            assert (await response.json())["content"] == "one\n"
        async with there.put(f"{url}/write", json={"path": "d/ü b.txt", "content": "two"}) as response:
            assert response.status == 200
        large = os.urandom(5_000_000)
        async with there.post(f"{url}/upload", params={"path": "large"}, data=BytesIO(large)) as response:
            assert response.status == 201
        async with there.get(f"{url}/download", params={"path": "large"}) as response:
            assert await response.read() == large
        async with there.get(f"{url}/read", params={"path": "missing"}) as response:
            assert response.status == 404 and (await response.json())["error"]["code"] == "not_found"
        async with there.post(f"{url}/upload", params={"path": "x"}, data=BytesIO(b"0" * 49_000_000)) as response:
            assert response.status == 413
        assert describe(folder(two[0])).keys() == {"a.txt", "d", "d/ü b.txt", "large"}

        # a path that is not encoded is read in the same way by each server
        answers = []
        for server in two:
            where = URL(server.url)
            reader, writer = await asyncio.open_connection(where.host, where.port)
            head = f"GET {url}/read?path=d/ü%20b.txt HTTP/1.1\r\nHost: {where.authority}\r\nConnection: close\r\n"
            writer.write(f"{head}Authorization: Bearer {TOKENS['olga']}\r\n\r\n".encode())
            answers.append((await reader.read()).partition(b"\r\n")[0])
            writer.close()
        assert answers[0] == answers[1]

        # an upload that breaks off leaves no file
        where = URL(two[1].url)
        _, cut = await asyncio.open_connection(where.host, where.port)
        head = f"POST {url}/upload?path=cut HTTP/1.1\r\nHost: {where.authority}\r\nTransfer-Encoding: chunked\r\n"
        cut.write(f"{head}Authorization: Bearer {TOKENS['olga']}\r\n\r\n5\r\nhello\r\n".encode())
        await cut.drain()
        await asyncio.sleep(0.2)
        cut.close()

        # a terminal, also one that is refused
        async with there.ws_connect("/agents/coder/terminal") as socket:
            await socket.send_bytes(b"cat a.txt; exit\n")
            seen = b"".join([m.data async for m in socket if m.type == aiohttp.WSMsgType.BINARY])
            assert b"one" in seen and socket.close_code == 1000
        async with open_client(two[0], "ada") as ada, open_client(two[1], "ada") as other:
            async with ada.get(f"{url}/list") as response:
                assert response.status == 200
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await other.ws_connect("/agents/coder/terminal")
            assert refused.value.status == 403

        # runs: forwarded by their address, claimed where the files are, or sent to a thread
        result = await invoke(there, "coder", "cat a.txt")
        assert "one" in result["response"]
        async with there.post("/agents/coder/stream", json=user_message("cat a.txt", result["thread_id"])) as response:
            assert "one" in (await read_events(response))[-1]["data"]["data"]["text"]
        asked = {"model": "coder", "messages": [{"role": "user", "content": "cat d/*"}]}
        async with there.post("/v1/chat/completions", json=asked) as response:
            assert "two" in (await response.json())["choices"][0]["message"]["content"]
        async with there.get(f"/threads/{result['thread_id']}/files") as response:
            assert response.status == 200, await response.text()
        assert not describe(folder(two[1])) and not [*two[0].folder.glob("data/workspaces/*/coder/cut")]

        # forged, replayed and looping forwards
        (owner,) = (path.parents[1].name for path in (two[0].folder / "data" / "workspaces").glob("*/coder/a.txt"))
        olga, admin = User(owner, "olga", "operator"), User("local", "local", "admin")
        assert await send_forward(two[0], admin, "/cluster", "guess") == (403, "bad_forward")
        header = sign(two[0], olga, f"{url}/list")
        assert await send_header(two[0], f"{url}/list", header) == (200, "")
        assert await send_header(two[0], f"{url}/list", header) == (403, "bad_forward")
        assert await send_header(two[0], f"{url}/list?path=d", sign(two[0], olga, f"{url}/list")) == (
            403,
            "bad_forward",
        )
        assert await send_forward(two[1], olga, f"{url}/list") == (503, "workspace_moved")  # not forwarded again

        # a terminal ends if the workspace moves away, as it does if this server only seems to be dead
        async with here.ws_connect("/agents/coder/terminal") as socket:
            await socket.receive()
            with psycopg.connect(postgres_server().conninfo, autocommit=True) as connection:
                connection.execute(f"UPDATE {two_schema(two)}.workspaces SET place = 'elsewhere'".encode())
            async for _ in socket:
                pass
            assert socket.close_code == 1012


def place(server: ServerProcess) -> str:
    return (server.folder / "data" / "workspaces" / ".place").read_text()


def sign(server: ServerProcess, user: User, target: str, secret: str = SECRET) -> str:
    """Return the header of a forwarded GET request to a server."""
    signer = ForwardSigner()
    signer.start(secret, "")
    return signer.sign(user, "GET", target.encode(), place(server))


async def send_header(server: ServerProcess, target: str, header: str) -> tuple[int, str]:
    async with open_client(server, "", **{HEADER: header}) as guest, guest.get(URL(target, encoded=True)) as response:
        return response.status, (await response.json()).get("error", {}).get("code", "")


async def send_forward(server: ServerProcess, user: User, target: str, secret: str = SECRET) -> tuple[int, str]:
    return await send_header(server, target, sign(server, user, target, secret))


def two_schema(two: tuple[ServerProcess, ServerProcess]) -> str:
    settings: dict[str, Any] = yaml.safe_load((two[0].folder / "server.yaml").read_text())
    return str(settings["store_schema"])


def count_connections(server: ServerProcess) -> int:
    """Return the number of established connections of clients to a server."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{URL(server.url).port:04X}") and row[3] == "01" for row in rows)


async def test_requests_for_files_of_a_killed_server_bring_them(two: tuple[ServerProcess, ServerProcess]) -> None:
    url = "/agents/coder/files"
    async with clients(two) as (here, there):
        await invoke(here, "coder", "echo one > a.txt; mkdir d; ln -s ../a.txt d/link")
        await invoke(here, "plain", "echo one > a.txt")
        expected = describe(folder(two[0]))

        before = count_connections(two[0])

        async def is_forwarded() -> bool:
            return count_connections(two[0]) > before

        async def kill_meanwhile() -> AsyncIterator[bytes]:
            yield b"half"
            await wait_until(is_forwarded)
            two[0].kill()
            yield b"half"

        async with there.post(f"{url}/upload", params={"path": "cut"}, data=kill_meanwhile()) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (502, "forward_broken") and "may or may not" in error["message"]

        async def write(name: str) -> None:
            async def is_written() -> bool:
                async with there.put(f"{url}/write", json={"path": name, "content": name}) as response:
                    assert response.status == 200 or response.headers["Retry-After"], await response.text()
                    return response.status == 200

            await wait_until(is_written)

        names = [f"new{number}.txt" for number in range(8)]
        await asyncio.gather(*map(write, names))  # the first one moves the workspace, and no other one reverts it
        found = describe(folder(two[1]))
        assert {name: found[name] for name in expected} == expected and {*names} < found.keys()
        async with there.ws_connect("/agents/coder/terminal") as socket:
            await socket.send_bytes(b"cat a.txt; exit\n")
            assert b"one" in b"".join([m.data async for m in socket if m.type == aiohttp.WSMsgType.BINARY])

        # without a snapshot there is nothing to restore
        async with there.get("/agents/plain/files/list") as response:
            assert response.status == 503 and response.headers["Retry-After"]
            message = (await response.json())["error"]["message"]
            assert "have no snapshot; start that server again, or send a message" in message

        two[0].start()  # with an older copy of the files
        async with open_client(two[0], "olga") as back:
            async with back.get(f"{url}/read", params={"path": names[0]}) as response:
                assert (await response.json())["content"] == names[0]
            async with back.get("/agents/plain/files/read", params={"path": "a.txt"}) as response:
                assert (await response.json())["content"] == "one\n"


async def test_a_draining_server_acknowledges_only_changes_that_are_saved(tmp_path: Path) -> None:
    agents = {"coder": {"model": "demo", "backend": {"type": "local", "sandbox": "none"}}}
    async with host_server(tmp_path, store="postgres", agents=agents) as server, open_client(server, "olga") as client:
        service, upload = server.service, "/agents/coder/files/upload"
        await service.drain()
        async with client.post(upload, params={"path": "a"}, data=b"one") as response:
            assert response.status == 201, await response.text()
        (owner,) = (path.parents[1].name for path in (tmp_path / "data" / "workspaces").glob("*/coder/a"))
        instance = await service.registry.get_agent(User(owner, "olga", "operator"), "coder")
        home, snapshots = (
            await service.registry.locality.find_home(owner, "coder"),
            find_snapshots(instance.agent.hooks),
        )
        assert snapshots is not None and snapshots.history.manifest(home.snapshot).files == 1

        async def is_served() -> bool:
            return any("_save_often" in repr(task) for task in asyncio.all_tasks())

        async def move_meanwhile() -> AsyncIterator[bytes]:
            yield b"half"
            await wait_until(is_served)
            with psycopg.connect(postgres_server().conninfo, autocommit=True) as connection:
                schema = service.settings.store_schema
                connection.execute(f"UPDATE {schema}.workspaces SET place = 'elsewhere'".encode())
            yield b"half"

        async with client.post(upload, params={"path": "b"}, data=move_meanwhile()) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "workspace_moved")


async def test_a_run_of_a_killed_server_finds_the_files_of_its_last_effect(
    two: tuple[ServerProcess, ServerProcess],
) -> None:
    async with clients(two) as (here, there):
        await invoke(there, "coder", "echo older > a.txt; echo older > gone.txt")  # a copy on the other server
        commands = [
            "rm gone.txt; mkdir -p d/empty; echo new > a.txt; chmod 640 a.txt; ln -s ../a.txt d/link; ln a.txt same",
            "echo partial > p; echo lost >> a.txt; sleep 600",
        ]
        two[1].stop()  # it leaves, and the files move
        started = [
            await here.post(f"/agents/{agent}/stream", json=user_message("\n".join(commands), f"th_{agent}"))
            for agent in ("coder", "plain")
        ]
        for agent in ("coder", "plain"):
            await wait_for_file(two[0], agent, "p")
        expected = {name: about for name, about in describe(folder(two[0])).items() if name != "p"}
        expected["a.txt"] = expected["same"] = (0o640, "new\n")  # without the change of the second command
        two[1].start()
        assert describe(folder(two[1]))["a.txt"] == (0o644, "older\n")
        two[0].kill()
        for response in started:
            response.close()
        async with open_client(two[1], "olga") as again:
            # without a snapshot the run pauses, and an approval alone does not continue in an empty folder
            question = await wait_for_question(again, "plain", "")
            assert "have no snapshot" in question["question"]
            async with again.get("/agents/plain/files/list") as response:
                assert response.status == 503 and response.headers["Retry-After"]
                assert "start that server again" in (await response.json())["error"]["message"]
            await answer(again, question["id"], {"choice": "allow"})
            question = await wait_for_question(again, "plain", question["id"])
            chosen = {"choice": "allow", "args": {"workspace": "start afresh"}}
            await answer(again, question["id"], chosen)

            # with one, an older copy gets the files of the last effect in the log
            await wait_for_end(again, "th_coder")
            assert describe(folder(two[1])) == expected
            assert (folder(two[1]) / "a.txt").samefile(folder(two[1]) / "same")
            log = (await get_json(again, "/threads/th_coder/export"))["entries"]
            assert [e["data"]["name"] for e in log if e["kind"] == "event"].count("workspace_restored") == 2  # b, a, b
            assert "was started before" in str(
                [e for e in log if e["kind"] == "message"][-2:]
            )  # its outcome is unknown

            await wait_for_end(again, "th_plain")
            log = (await get_json(again, "/threads/th_plain/export"))["entries"]
            answers = [e["data"].get("args") for e in log if e["kind"] == "answered"]
            assert answers == [None, {"workspace": "start afresh"}]
            assert "workspace_started_afresh" in [e["data"]["name"] for e in log if e["kind"] == "event"]


async def wait_for_file(server: ServerProcess, agent: str, name: str) -> None:
    async def exists() -> bool:
        return any((server.folder / "data" / "workspaces").glob(f"*/{agent}/{name}"))

    await wait_until(exists)


async def wait_for_question(client: aiohttp.ClientSession, agent: str, not_this: str) -> dict[str, Any]:
    async def find() -> Any:
        found = (await get_json(client, f"/approvals?thread_id=th_{agent}"))["approvals"]
        return next((one for one in found if one["id"] != not_this), None)

    question: dict[str, Any] = await wait_until(find)
    return question


async def answer(client: aiohttp.ClientSession, question: str, body: dict[str, Any]) -> None:
    async with client.post(f"/approvals/{question}", json=body) as response:
        assert response.status == 200, await response.text()


async def wait_for_end(client: aiohttp.ClientSession, thread: str) -> None:
    async def is_ended() -> bool:
        return not (await get_json(client, f"/threads/{thread}"))["run_id"]

    await wait_until(is_ended)
