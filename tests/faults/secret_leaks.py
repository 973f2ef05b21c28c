"""Secrets of a server, leaked by every possible source: a provider, tools, hooks, commands, a crashing model.

python -c PROGRAM          a server with agents that tell what they must not; the secrets are in its environment,
                           its settings and its agents.yaml
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import web

from server_process import ServerProcess, read_frames

PROGRAM = '''
import os, sys
from wick import Agent, FunctionModel, ModelCall, ToolCall, ToolUse, Block, assistant, before, after, guard, tool
from wick.messages import TextPart, ToolResult
from wick.server import Server

KEY = os.environ["PLANTED_API_KEY"]
if os.environ.get("REDACTION") == "off":
    from wick.server.ops.redaction import Secrets
    from wick.models._http import ModelServer
    Secrets.redact_text = lambda self, text: text
    ModelServer.redact = lambda self, text, shortest=0: text


@tool
def leak() -> ToolResult:
    """Say what must not be said."""
    return ToolResult(f"it is {KEY}", data={"it": KEY}, parts=(TextPart(f"it is {KEY}"),))


@tool
def fail() -> str:
    """Fail, and say why."""
    raise ValueError(f"it is {KEY}")


@tool
def harmless() -> str:
    """Do nothing."""
    return "nothing"


@guard(ToolUse, match="harmless")
def denies(use):
    return Block(f"it is {KEY}")


@before(ToolUse, match="harmless")
def breaks(use):
    raise RuntimeError(f"it is {KEY}")


@after(ToolUse, match="harmless")
def tells(use):
    use.result = ToolResult(f"it is {KEY}")


@before(ModelCall)
def stumbles(call):
    raise RuntimeError(f"it is {KEY}")


def calling(*names):
    def model(request):
        if request.messages[-1].role == "tool":
            return "Done."
        return assistant("", *(ToolCall(f"c{number}", name, {}) for number, name in enumerate(names)))
    return FunctionModel(model)


def crashes(request):
    raise RuntimeError(f"it is {KEY}")


LOOK = """
env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/auxv; cat ~/.netrc; cat server.yaml ../../../*.yaml
for pid in 1 $$ $PPID $(ls /proc | grep '^[0-9]*$'); do
  cat /proc/$pid/root/proc/1/environ /proc/$pid/cwd/*.yaml /proc/$pid/task/*/environ
done
ls -la / /tmp /run /data ..
timeout 3 find / -xdev -maxdepth 3 -name '*.yaml' -o -maxdepth 3 -name token | head -50 | xargs cat
ulimit -c unlimited; sh -c 'kill -SEGV $$'; cat core*; git config --list; cat .env* ~/.bash_history
"""
def looking(request):
    if request.messages[-1].role == "tool":
        return "Done."
    return assistant("", ToolCall("c1", "execute", {"command": LOOK}))


def repeats(request):
    if request.messages[-1].role == "tool":
        return "Done."
    one, two = ("''".join(part[at : at + 3] for at in range(0, len(part), 3)) for part in (KEY[:9], KEY[9:]))
    halves = f"printf %s 'it is '{one}; sleep 0.2; printf %s {two}' indeed'; echo {one}{two} >&2; exit 3"
    return assistant("", ToolCall("c1", "execute", {"command": halves}))


with open(os.environ["WICK_SETTINGS"], "a") as file:
    file.write(f"config: {os.environ['AGENTS_FILE']}\\n")
server = Server(settings=os.environ["WICK_SETTINGS"])
more = {"recorder": True}
server.register_agent("leaks", {"model": calling("leak", "fail"), "tools": [leak, fail], **more})
for name, hook in {"denies": denies, "breaks": breaks, "tells": tells, "stumbles": stumbles}.items():
    server.register_agent(name, {"model": calling("harmless"), "tools": [harmless], "hooks": [hook], **more})
server.register_agent("crashes", {"model": FunctionModel(crashes), **more})
given = {"env": {"GIVEN": KEY}} if os.environ.get("REACH") == "on" else {}
server.register_agent("looks", {"model": FunctionModel(looking), "backend": {"type": "local", **given}, **more})
server.register_agent("repeats", {"model": FunctionModel(repeats), "backend": "local", **more})
server.register_agent("own", Agent(calling("leak", "fail"), tools=[leak, fail]))
server.start()
'''
HERE = ("leaks", "denies", "breaks", "tells", "stumbles", "crashes", "looks", "repeats", "own")
IN_FILE = ("refused", "header", "filled")


@dataclass
class Planted:
    """The secrets, by where they are."""

    environment: str = field(default_factory=lambda: f"sk-env-{uuid4().hex}")
    config: str = field(default_factory=lambda: f"sk-config-{uuid4().hex}")
    header: str = field(default_factory=lambda: f"sk-header-{uuid4().hex}")
    filled: str = field(default_factory=lambda: f"sk-filled-{uuid4().hex}")

    def found(self, text: str) -> list[str]:
        """Return the secrets that a text contains, whole or half."""
        return [name for name, secret in vars(self).items() if secret in text or secret[12:28] in text]

    def agents(self, url: str) -> dict[str, Any]:
        """Return an agents.yaml whose models use a provider that refuses every request."""
        model = {"provider": "openai", "model": "m", "base_url": url}
        options: dict[str, Any] = {"recorder": True}
        return {
            "agents": {
                "refused": {"model": {**model, "api_key": self.config}, **options},
                "header": {"model": {**model, "headers": {"Authorization": f"Bearer {self.header}"}}, **options},
                "filled": {"model": {**model, "api_key": "${UPSTREAM}"}, **options},
            }
        }


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """A provider that repeats the key that it does not know."""

    async def refuse(request: web.Request) -> web.Response:
        said = request.headers.get("Authorization", "").removeprefix("Bearer ")
        error = {"message": f"Incorrect API key provided: {said}. You can find your key elsewhere.", "type": "invalid"}
        return web.json_response({"error": error}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def all_told(server: ServerProcess, agent: str) -> AsyncIterator[tuple[str, str]]:
    """Return all output of a server about a run, by source."""
    async with server.client("ada") as user, server.client("root") as admin:
        listening = asyncio.create_task(_events(admin))
        thread = f"th_{agent}_{uuid4().hex[:8]}"
        body = {"messages": [{"role": "user", "content": "Go."}], "thread_id": thread}
        async with user.post(f"/agents/{agent}/stream", json=body) as answer:
            run = answer.headers.get("X-Run-Id", "")
            yield "stream", await answer.text()
        for path in (
            *(
                f"/runs/{run}",
                f"/runs/{run}/trace",
                f"/runs/{run}/why",
                f"/threads/{thread}",
                f"/threads/{thread}/runs",
            ),
            *(f"/threads/{thread}/export", f"/threads/{thread}/messages", f"/agents/{agent}", "/agents", "/usage"),
            *(f"/agents/{agent}/onion", f"/agents/{agent}/hooks"),
        ):
            async with user.get(path) as answer:
                yield path, await answer.text()
        async with admin.get("/metrics") as answer:
            yield "metrics", await answer.text()
        listening.cancel()
        yield "events", json.dumps((await asyncio.gather(listening, return_exceptions=True))[0], default=str)


async def _events(client: aiohttp.ClientSession) -> list[Any]:
    found: list[Any] = []
    try:
        async with client.get("/events") as answer:
            async for frame in read_frames(answer):
                found.append(frame)
    except asyncio.CancelledError:
        return found
    return found


def kept(folder: Path) -> str:
    """All bytes that a server keeps, but for its own settings."""
    return "".join(path.read_bytes().decode("latin-1") for path in (folder / "data").rglob("*") if path.is_file())
