"""`wick serve` as a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from server_process import TOKENS, ServerProcess, open_client, run_server
from wick import Scripted
from wick.server.ops.files_limit import raise_files_limit
from wick.server.server import Server, bind_socket

OWNER: dict[str, Any] = {"tokens": [], "quotas": {}}  # only the starting user
OFFLINE = {"OLLAMA_HOST": "127.0.0.1:1"}  # where no Ollama listens


def wick_serve(*flags: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`wick serve`, for calls that end by themselves."""
    command = [sys.executable, "-m", "wick.cli", "serve", *flags]
    clean = {key: os.environ[key] for key in os.environ if not key.startswith("WICK_")}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 100, "check": False, "cwd": folder}
    return subprocess.run(command, env={**clean, **environment}, **options)


def test_the_model_of_the_default_agent_can_be_chosen(tmp_path: Path) -> None:
    with run_server(tmp_path, config=None, flags=("-m", "ollama:tiny"), environment=OFFLINE, **OWNER) as server:
        assert re.search(r"^  model +\S*tiny", server.log, re.MULTILINE), server.log


def test_a_model_is_refused_beside_a_config(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("model: demo\n")
    data = str(tmp_path / "data")
    refused = wick_serve("agents.yaml", "--model", "demo", "--data", data, folder=tmp_path)
    assert refused.returncode == 2 and "sets the models of its agents; remove --model" in refused.stderr
    unknown = wick_serve("-m", "sonet", "--data", data, folder=tmp_path)
    assert unknown.returncode == 2 and "sonet" in unknown.stderr


async def test_serve_works_without_options(tmp_path: Path) -> None:
    with run_server(tmp_path, config=None, environment=OFFLINE, **OWNER) as server:
        said = server.log
        assert re.search(r"^  model +\S.*demo", said, re.MULTILINE)
        assert re.search(r"^  protection +\S+", said, re.MULTILINE)
        assert re.search(r"^  agents +default$", said, re.MULTILINE)
        assert said.count("demo") == 1 and "WARNING" not in said
        ticket = server.link.partition("#ticket=")[2]
        async with open_client(server, "") as browser:
            async with browser.post("/auth/session", json={"ticket": ticket}) as answer:
                assert answer.status == 200
            async with browser.post("/auth/session", json={"ticket": ticket}) as answer:
                assert answer.status == 401
        token = (tmp_path / "data" / "token").read_text().strip()
        assert token not in said
        async with open_client(server, token) as owner, owner.get("/agents/") as answer:
            (agent,) = (await answer.json())["agents"]
            assert agent["agent_id"] == "default"
        assert server.stop() == 0
        server.start()  # and again, with existing data
        async with open_client(server, token) as owner, owner.get("/auth/me") as answer:
            assert (await answer.json())["role"] == "admin"
        assert oct(os.stat(tmp_path / "data").st_mode & 0o777) == "0o700"


async def test_flags_and_environment_are_applied(tmp_path: Path) -> None:
    with run_server(
        tmp_path, flags=("--token", "of-the-flag"), environment={"WICK_TOKEN": "of-the-environment"}
    ) as server:
        async with open_client(server, "of-the-flag") as owner, owner.get("/auth/me") as answer:
            assert answer.status == 200
        async with open_client(server, "of-the-environment") as nobody, nobody.get("/auth/me") as answer:
            assert answer.status == 401


def test_curl_reads_a_stream(server: ServerProcess) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl: apt-get install curl")
    body = '{"messages": [{"role": "user", "content": "What is 2 + 3?"}]}'
    headers = ["-H", f"Authorization: Bearer {TOKENS['ada']}", "-H", "Content-Type: application/json"]
    command = ["curl", "-N", "-sS", "--max-time", "60", *headers, "-d", body, f"{server.url}/agents/plain/stream"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert "event: on_chat_model_stream\n" in done.stdout
    *_, last, end = done.stdout.split("\n\n")
    assert "event: done" in last and end == ""


def test_serve_does_not_listen_publicly_without_auth(tmp_path: Path) -> None:
    done = wick_serve("--host", "0.0.0.0", "--data", str(tmp_path / "data"), folder=tmp_path)
    assert done.returncode == 2
    assert "no authentication is configured" in done.stderr and "Traceback" not in done.stderr


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = wick_serve("--port", port, "--data", str(tmp_path / "data"), folder=tmp_path, **OFFLINE)
    assert done.returncode == 2
    assert "another program listens there" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [("modle: demo\n", "did you mean 'model'"), ("agents:\n  tools: {model: demo}\n", "cannot be the id of an agent")],
)
def test_an_invalid_config_is_reported(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "agents.yaml").write_text(text)
    done = wick_serve("agents.yaml", "--port", "0", "--data", str(tmp_path / "data"), folder=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr


CRASHING = """
from wick import Run, Scripted, ToolCall, assistant, before, tool

@tool
def divide(number: int) -> float:
    "Divide by zero."
    return number / 0

@before(Run)
def script(run):
    run.model = Scripted(assistant("", ToolCall("c1", "divide", {"number": 1})), "Sorry.")
"""


@pytest.mark.parametrize("flags", [(), ("--verbose",)])
async def test_the_traceback_of_a_tool_that_crashes_is_in_the_log(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    config = "agents:\n  default: {model: demo, tools: ['crashing:divide'], hooks: ['crashing:script']}\n"
    with run_server(tmp_path, config=config, flags=flags) as served:
        body = {"messages": [{"role": "user", "content": "go"}]}
        async with open_client(served) as ada, ada.post("/agents/default/invoke", json=body) as answer:
            told = await answer.text()
        assert "Sorry." in told and "Traceback" not in told
        assert "the tool divide crashed in call c1" in served.log and "return number / 0" in served.log


def test_two_files_are_one_too_many(tmp_path: Path) -> None:
    done = wick_serve("a.yaml", "--config", "b.yaml", folder=tmp_path)
    assert done.returncode == 2 and "two configuration files" in done.stderr


def test_an_unavailable_address_is_reported(tmp_path: Path) -> None:
    done = wick_serve("--host", "no such host", "--token", "t", "--data", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2 and "there is no address" in done.stderr


SCRIPT = """
import os
from wick import tool
from wick.server import Server

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

server = Server(settings=os.environ["WICK_SETTINGS"], data=os.environ["WICK_DATA"], port=0)
server.register_agent("default", {"model": "demo", "tools": ["add"]}).register_tool(add)
server.start()
"""


async def test_a_program_serves_its_own_agents_and_tools(tmp_path: Path) -> None:
    with run_server(tmp_path, script=SCRIPT) as server:
        async with open_client(server) as ada, ada.get("/agents/default") as answer:
            tools = [tool["name"] for tool in (await answer.json())["tools"]]
            assert "add" in tools
        assert server.stop() == 0


def test_registration_must_precede_the_start(tmp_path: Path) -> None:
    server = Server(data=tmp_path).register_agent("default", {"model": "demo"})
    assert server.app() is server.app()
    with pytest.raises(Exception, match="before the server is started"):
        server.register_agent("late", {"model": "demo"})
    server.shutdown()  # a server that is not running sends nothing


def test_the_file_limit_is_raised_or_reported() -> None:
    assert raise_files_limit(64) == []
    said = raise_files_limit(10**9)
    assert said == [] or "ulimit -n" in said[0]


@asynccontextmanager
async def run_by_uvicorn(app: Any) -> AsyncIterator[str]:
    """An ASGI app behind a plain uvicorn."""
    with bind_socket("127.0.0.1", 0) as bound:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning"))
        task = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def test_the_app_runs_in_another_server(tmp_path: Path) -> None:
    server = Server(data=tmp_path, token="of-the-program").register_agent("default", {"model": Scripted("It is 5.")})
    headers = {"Authorization": "Bearer of-the-program"}
    asked: dict[str, Any] = {"json": {"messages": [{"role": "user", "content": "What is 2 + 3?"}]}, "headers": headers}
    async with run_by_uvicorn(server.app()) as url, aiohttp.ClientSession(url) as owner:
        async with owner.post("/agents/default/invoke", **asked) as answer:
            assert answer.status == 200
            assert (await answer.json())["response"] == "It is 5."
        async with owner.get("/agents/") as answer:
            assert answer.status == 401


async def test_the_app_can_be_mounted_below_a_path(tmp_path: Path) -> None:
    server = Server(data=tmp_path, token="of-the-program").register_agent("default", {"model": "demo"})
    app = server.app()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await server.service.start()
        yield
        await server.service.stop()

    outer = Starlette(routes=[Mount("/wick", app)], lifespan=lifespan)
    async with run_by_uvicorn(outer) as url, aiohttp.ClientSession(url) as nobody:
        async with nobody.get("/wick/health") as answer:
            assert (await answer.json())["agents"] == 1
        async with nobody.get("/wick/agents/") as answer:
            assert answer.status == 401
        async with nobody.get("/wick/agents/", headers={"Authorization": "Bearer of-the-program"}) as answer:
            assert answer.status == 200


LOGGED = re.compile(r"^\S+ \S+ INFO (wick\.server\.(?:access|runs)): (.*)$", re.MULTILINE)


async def test_verbose_logs_each_request_and_each_run(tmp_path: Path) -> None:
    with run_server(tmp_path, flags=("--verbose",)) as server:
        async with open_client(server, TOKENS["ada"]) as ada:
            async with ada.get(f"/threads/no%0Asuch?token={TOKENS['ada']}") as answer:
                assert answer.status == 404
            body = {"messages": [{"role": "user", "content": "Hi!"}]}
            async with ada.post("/agents/plain/invoke", json=body) as done:
                thread = (await done.json())["thread_id"]
            async with ada.get("/files/../../etc/passwd?ticket=geheim-geheim", allow_redirects=False) as answer:
                assert answer.status in (401, 403, 404)
        assert server.stop() == 0
        log = server.log
    requests = [line for name, line in LOGGED.findall(log) if name == "wick.server.access"]
    runs = [line for name, line in LOGGED.findall(log) if name == "wick.server.runs"]
    assert re.fullmatch(r"GET /threads/no%0Asuch 404 \d+ ms", requests[1]), log  # the first is of the health check
    assert re.fullmatch(r"POST /agents/plain/invoke 200 \d+ ms", requests[2])
    assert len(requests) == 4
    (run,) = runs
    assert re.fullmatch(rf"run_\w+ of thread {thread}, agent plain: completed, 1 step, \d+ tokens, \d+ ms", run)
    assert TOKENS["ada"] not in log and "geheim" not in log and "Hi!" not in log
    lines = [line for line in log.splitlines() if " INFO " not in line]
    assert len(lines) == len({*lines}), log


async def test_without_verbose_no_request_is_logged(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        async with open_client(server, TOKENS["ada"]) as ada, ada.get("/threads/none") as answer:
            assert answer.status == 404
        assert server.stop() == 0
        assert " INFO " not in server.log and "/threads" not in server.log
