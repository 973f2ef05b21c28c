"""`wick mcp`, as a process: the servers of a file, and an agent as a server of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import COMMAND, ROOT, WickCommand
from cli.forked_command import ForkedWick
from cli.hosts import HostCommand
from wick.capabilities.mcp.config import read_servers
from wick.capabilities.mcp.connections import McpConnection, McpConnections
from wick.errors import ToolError

SERVER = str(ROOT / "tests" / "support" / "mcp_server.py")


@pytest.fixture
def here(tmp_path: Path) -> HostCommand:
    """A folder whose agents have a working and a missing server."""
    made = HostCommand(ForkedWick(tmp_path))
    servers: dict[str, Any] = {
        "tests": {"command": sys.executable, "args": [SERVER], "tools": ["add", "greet"], "trust": True},
        "gone": {"url": "http://user:word@127.0.0.1:1/mcp?key=secret", "headers": {"Authorization": "secret"}},
    }
    agents = {"coder": {"model": "demo", "mcp": {"servers": servers}}, "talker": {"model": "demo"}}
    made.wick.write("agents.yaml", json.dumps({"agents": agents}))
    return made


def test_servers_of_a_file_are_listed_without_secrets(here: HostCommand) -> None:
    listed = here("mcp", "list")
    assert listed.out.split()[:4] == ["server", "agents", "where", "hints"]
    assert "secret" not in listed.out and "word" not in listed.out
    rows = {row["server"]: row for row in here.json("mcp", "list")}
    assert rows["gone"] == {"server": "gone", "agents": ["coder"], "where": "http://127.0.0.1:1/mcp", "trust": False}
    assert rows["tests"]["trust"] is True


def test_the_tools_of_a_server(here: HostCommand) -> None:
    rows = here.json("mcp", "tools", "tests")
    assert [(row["server"], row["tool"]) for row in rows] == [("tests", "add"), ("tests", "greet")]
    assert rows[0]["description"] == "Add two numbers." and "a" in rows[0]["parameters"]["properties"]


def test_declarations_of_tools(here: HostCommand) -> None:
    here.wick.write(
        "flow.yaml",
        json.dumps(
            {
                "model": "demo",
                "information_flow": True,
                "mcp": {
                    "servers": {
                        "yes": {"command": sys.executable, "args": [SERVER], "tools": ["add", "greet"], "trust": True},
                        "no": {"command": sys.executable, "args": [SERVER], "tools": ["add", "list_resources"]},
                    }
                },
            }
        ),
    )
    rows = {row["tool"]: row for row in here.json("tools", "labels", "--config", "flow.yaml")}
    declared = {name: (row["effect"], row["declared"]) for name, row in rows.items()}
    assert declared["plan"] == ("read", True) and declared["mcp__yes__add"] == ("fetch", True)
    assert declared["mcp__no__add"] == ("change", False) and declared["mcp__no__list_resources"] == ("read", True)
    assert rows["mcp__no__add"]["targets"] is None and rows["mcp__no__add"]["returns"] == {"*": "untrusted"}
    shown = here("tools", "labels", "--config", "flow.yaml")
    assert [line.split()[-1] for line in shown.out.splitlines() if "mcp__" in line].count("(assumed)") == 2


def test_trying_all_servers(here: HostCommand) -> None:
    done = here("mcp", "test", "--json")
    assert done.code == 1 and "secret" not in done.out + done.err
    rows = {row["server"]: row for row in json.loads(done.out)}
    assert rows["tests"]["works"] and rows["tests"]["tools"] == 14 and rows["tests"]["resources"]
    assert not rows["gone"]["works"] and "cannot be reached" in rows["gone"]["problem"]


def test_mistakes_are_sentences(here: HostCommand) -> None:
    unknown = here("mcp", "test", "test")
    assert unknown.code == 2 and "did you mean 'tests'?" in unknown.err
    assert here("mcp", "list", "--config", "nowhere.yaml").code == 2
    here.wick.write("none.yaml", "model: demo")
    assert "no MCP servers" in here("mcp", "list", "--config", "none.yaml").err
    here.wick.write("bad.yaml", "model: demo\nmcp: {servers: {a: {cmd: x}}}")
    assert "has no option 'cmd'" in here("mcp", "test", "--config", "bad.yaml").err


# -- an agent as a server -------------------------------------------------------------------------------------------


@pytest.fixture
async def link(place: HostCommand) -> AsyncIterator[McpConnection]:
    """A client of `wick mcp serve`: wick's own."""
    environment = place.wick.environment | place.environment
    where = ["--folder", str(place.wick.folder)]
    if place.server is None:
        place.wick.write("agents.yaml", json.dumps(AGENT))
        where += ["--agent", str(place.wick.folder / "agents.yaml")]
    words = [*COMMAND[1:], "mcp", "serve", *where]
    (server,) = read_servers({"agent": {"command": COMMAND[0], "args": words, "env": environment}})
    links = McpConnections()
    yield await links.connect(server)
    await links.close()


AGENT = {
    "name": "helper",
    "model": "demo",
    "backend": {"type": "local", "workdir": "."},
    "permissions": {"allow": ["LS"]},
}


async def ask(link: McpConnection, **args: Any) -> Any:
    return await link.request(lambda client: client.call_tool("ask", args))


async def test_an_agent_answers_by_mcp(place: HostCommand, link: McpConnection) -> None:
    (tool,) = await link.tools()
    assert tool.name == "ask" and set(tool.input_schema["required"]) == {"prompt"}
    answer = (await ask(link, prompt="What is in this folder?")).structured_content
    assert answer["outcome"] == "completed" and answer["text"]
    again = (await ask(link, prompt="What is in this folder?", thread=answer["thread"])).structured_content
    assert again["thread"] == answer["thread"]
    assert len(place.json("threads", "show", answer["thread"])["messages"]) == 8


@pytest.mark.parametrize("place", ["here"], indirect=True)
async def test_a_question_waits_for_the_user(place: HostCommand, link: McpConnection) -> None:
    answer = (await ask(link, prompt="Write 'milk' to list.txt")).structured_content
    assert answer["outcome"] == "interrupted" and "wick approvals" in answer["text"]
    (asked,) = place.json("approvals")
    assert asked["id"] in answer["text"] and asked["thread"] == answer["thread"]
    refused = await ask(link, prompt="hello", thread="th_none")
    assert refused.is_error and "th_none" in refused.content[0].text


async def test_a_start_failure_is_reported(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    words = [*COMMAND[1:], "mcp", "serve", "--agent", "nowhere.yaml", "--folder", str(wick.folder)]
    (server,) = read_servers({"agent": {"command": COMMAND[0], "args": words, "env": wick.environment}})
    links = McpConnections()
    with pytest.raises(ToolError, match="there is no file nowhere.yaml"):
        await links.connect(server)
    await links.close()


def test_the_server_ends_with_its_input_and_with_ctrl_c(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    pipe = subprocess.PIPE
    words = [*COMMAND, "mcp", "serve"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode() + b"\n"
    for ended, code in ((False, 130), (True, 0)):
        with subprocess.Popen(
            words, cwd=wick.folder, env=wick.environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as going:
            assert going.stdin is not None and going.stdout is not None
            going.stdin.write(line)
            going.stdin.flush()
            assert json.loads(going.stdout.readline())["result"]["serverInfo"]["name"] == "wick wick"
            if ended:
                going.stdin.close()
            else:
                going.send_signal(signal.SIGINT)
            assert going.wait(30) == code


def test_without_the_extra_the_message_names_the_extra(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    wick.write("blocks/sitecustomize.py", "import sys\nsys.modules['mcp'] = None\n")
    path = os.pathsep.join((str(wick.folder / "blocks"), wick.environment["PYTHONPATH"]))
    done = wick("mcp", "serve", PYTHONPATH=path)
    assert done.code == 2 and "pip install 'wick-agent[mcp]'" in done.err
