"""Disturbances of a server: each kind of bad input and fault, applied for a while.

    KINDS["deep JSON"](scene)      apply it until `scene.until`

Responses are read only as far as necessary. The tests measure the responses to other clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sqlite3
import zipfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import BytesIO
from time import monotonic, sleep
from typing import Any

import aiohttp

from faults.leaks import family, is_wickd
from server_process import TOKENS, ServerProcess
from soak_test.model import Soaked
from wick import Thread, ToolCall, assistant, user
from wick.constants import JSON_VALUES
from wick.messages import tool_message
from wick.stores.held_thread import hold
from wick.stores.sqlite import Sqlite

SERVER = """
import json, os, time
from wick import FunctionModel, ToolCall, assistant, tool
from wick.models import scripted
from wick.server.server import Server

@tool
def nap(seconds: float) -> str:
    "Sleep, and block the thread."
    time.sleep(seconds)
    return "awake"

def answer(request):
    last = request.messages[-1]
    if last.role != "user":
        return "Done."
    name, args = json.loads(last.text)
    if name == "many":
        calls = [ToolCall(f"c{at}", "execute", {"command": text}) for at, text in enumerate(args["commands"])]
        return assistant("", *calls)
    return assistant("", ToolCall("c1", name, args))

scripted.KEPT = 0  # a model that is a function remembers what it was asked
does = {"model": FunctionModel(answer), "backend": {"type": "local"}, "skills": True, "tools": [nap]}
far = {"model": {"model": f"gateway:soak@{os.environ['PROVIDER']}", "api_key": "sk-soak"}, "todos": False}
server = Server(settings=os.environ["WICK_SETTINGS"])
server.register_agent("does", does)
server.register_agent("asks", {**does, "permissions": {"mode": "default"}})
server.register_agent("denies", {**does, "permissions": {"policy": "shell", "mode": "dontAsk"}})
server.register_agent("far", far)
server.start()
"""
QUOTAS = dict.fromkeys(("runs", "threads", "streams", "terminals", "requests_per_second"), 0)
MEGABYTES = 7  # of a body: about as much as is taken
ENTRIES = 20_000  # of a long thread
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass
class Scene:
    """A server, a client of it, and a deadline."""

    server: ServerProcess
    client: aiohttp.ClientSession
    model: Soaked
    until: float = 0.0
    long: str = ""  # the thread that is long
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    said: int = 0

    @property
    def port(self) -> int:
        return int(self.server.url.rsplit(":", 1)[1])

    def going(self) -> bool:
        return monotonic() < self.until

    async def ask(self, method: str, path: str, **more: Any) -> int:
        """Return the status of a response that is read to its end; 0 if there is none."""
        with suppress(*BROKEN):
            async with self.client.request(method, path, **more) as answer:
                while await answer.content.read(1_000_000):
                    pass
                return answer.status
        return 0

    async def do(self, name: str, agent: str = "does", **args: Any) -> int:
        """Have an agent use a tool."""
        said = {"messages": [{"role": "user", "content": json.dumps([name, args])}]}
        return await self.ask("POST", f"/agents/{agent}/invoke", json=said)

    async def talk(self, words: int, pace: float) -> int:
        """Let the remote model stream that many words."""
        self.said += 1
        said = {"messages": [{"role": "user", "content": f"turn-{self.said} talk {words} {pace}"}]}
        return await self.ask("POST", "/agents/far/stream", json=said)

    async def over_and_over(self, work: Callable[[], Awaitable[object]], at_once: int = 2) -> None:
        """Do it until it is over, so many times at once."""

        async def one() -> None:
            while self.going():
                await work()
                await asyncio.sleep(0.01)

        await asyncio.gather(*(one() for _ in range(at_once)))

    async def linked(self, *pieces: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection and send bytes on it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for piece in pieces:
            writer.write(piece)
        return reader, writer


Kind = Callable[[Scene], Awaitable[None]]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def note(work: Kind) -> Kind:
        KINDS[name] = work
        return work

    return note


def _head(line: str, *more: str) -> bytes:
    given = ["Host: localhost", f"Authorization: Bearer {TOKENS['ada']}", *more]
    return "\r\n".join([f"{line} HTTP/1.1", *given, "", ""]).encode()


# -- bodies -----------------------------------------------------------------------------------------------------------


def _posts(name: str, path: str, body: Callable[[], bytes], media: str = "application/json") -> None:
    async def work(scene: Scene) -> None:
        said, headers = body(), {"Content-Type": media}
        await scene.over_and_over(lambda: scene.ask("POST", path, data=BytesIO(said), headers=headers))

    KINDS[name] = work


def _json(data: object) -> bytes:
    return json.dumps(data).encode()


SIZE = MEGABYTES * 1_000_000
MANY = JSON_VALUES // 2 - 10  # objects: just as many as are read
INVOKE = "/agents/does/invoke"
SAYS = b'{"messages": [{"role": "user", "content": "%s"}]}'
YAML = b"---\na: &a [x]\n" + b"b: [*a, *a]\n" * 4_000 + b"---\n"
RULES = {"agent_id": "does", "rules": {"deny": [f"Bash({'*a' * 900})"] * 200}}
_posts("deep JSON", INVOKE, lambda: b"[" * SIZE)
_posts("wide JSON", INVOKE, lambda: b"[" + b"[]," * (SIZE // 3) + b"[]]")
_posts("many numbers", INVOKE, lambda: b"[" + b"1e9," * (SIZE // 4) + b"0]")
_posts("many keys", INVOKE, lambda: _json(dict.fromkeys(map(str, range(JSON_VALUES - 10)), 0)))
_posts("many messages", INVOKE, lambda: _json({"messages": [{"a": 1}] * MANY}))
_posts("JSON that does not end", INVOKE, lambda: b'{"messages": "' + b"a" * SIZE)
_posts("JSON of escapes", INVOKE, lambda: SAYS % (b"\\u00e9" * (SIZE // 6)))
_posts("a text of brackets", INVOKE, lambda: SAYS % (b'{[,\\"' * (SIZE // 5)))
_posts("no UTF-8", INVOKE, lambda: SAYS % (b"\xff" * SIZE))
_posts("a chat of many", "/v1/chat/completions", lambda: _json({"model": "does", "messages": [{}] * MANY}))
_posts("long rules", "/replay", lambda: _json(RULES))
_posts("hostile slides", "/agents/does/slides/export", lambda: _json({"content": "**a*`" * 99_000 + "\n---\n" * 250}))
_posts(
    "hostile YAML", "/agents/does/skills", lambda: b"---\na: &a [x]\n" + b"b: [*a, *a]\n" * 4_000 + b"---\n", "text/x"
)


def _doubled(depth: int, key: str) -> dict[str, Any]:
    """Return a schema whose references double at each level."""
    levels: dict[str, Any] = {f"n{at}": {key: [{"$ref": f"#/$defs/n{at + 1}"}] * 2} for at in range(depth)}
    return _about({"$ref": "#/$defs/n0"}) | {"$defs": levels | {f"n{depth}": {"const": "never"}}}


def _about(x: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": x}, "required": ["x"]}


SCHEMAS: list[dict[str, Any]] = [
    *(_doubled(depth, key) for depth in (7, 8, 15, 25) for key in ("anyOf", "oneOf", "allOf")),
    _about({"type": "string", "minLength": 10**8}),
    _about({"type": "string", "minLength": 150_000, "pattern": "^(a|b|c){900}x"}),
    _about({"type": "array", "minItems": 20_000, "items": {"anyOf": [{"const": number} for number in range(99)]}}),
    _about({"type": "array", "minItems": 5_000, "items": {"type": "object", "required": [*"abcdef"]}}),
    {"type": "object", "required": ["a"], "allOf": [{"properties": {"a": {"$ref": "#"}}}] * 3},
]


@kind("schemas that are costly to check")
async def schemas(scene: Scene) -> None:
    """Some are refused when they are registered, others stop at a limit when an answer is checked."""

    async def one() -> None:
        id = f"schema-{scene.chance.randrange(10**9)}"
        output = {"schema": scene.chance.choice(SCHEMAS), "retries": 0}
        await scene.ask("POST", "/agents/", json={"agent_id": id, "model": "demo", "structured_output": output})
        await scene.ask("POST", f"/agents/{id}/invoke", json={"messages": [{"role": "user", "content": "hello"}]})
        await scene.ask("DELETE", f"/agents/{id}")

    await scene.over_and_over(one)


@kind("uploads")
async def uploads(scene: Scene) -> None:
    """As a body, and as a form."""
    body = os.urandom(39_000_000)

    async def one() -> None:
        form = aiohttp.FormData()
        form.add_field("file", BytesIO(body), filename="big")
        await scene.ask("POST", "/agents/does/files/upload?path=big", data=BytesIO(body))
        await scene.ask("POST", "/agents/does/files/upload", data=form)

    await scene.over_and_over(one, 1)


@kind("archive bombs")
async def bombs(scene: Scene) -> None:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("SKILL.md", "---\nname: bomb\ndescription: bomb\n---\n")
        for number in range(12):
            archive.writestr(f"{number}.txt", bytes(4_000_000))
    archives = [made.getvalue(), _many_files()]
    await scene.over_and_over(
        lambda: scene.ask("POST", "/agents/does/skills?overwrite=true", data=BytesIO(scene.chance.choice(archives))), 1
    )


def _many_files() -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.txt", b"")
    return made.getvalue()


# -- connections ------------------------------------------------------------------------------------------------------


@kind("many headers")
async def headers(scene: Scene) -> None:
    lines = [f"X-{number}: {number}" for number in range(10_000)]

    async def send() -> None:
        with suppress(*BROKEN):
            reader, writer = await scene.linked(_head("GET /threads", *lines))
            await reader.read(1_000)
            writer.close()

    await scene.over_and_over(send)


@kind("slow clients")
async def slow(scene: Scene) -> None:
    """Heads and bodies that come byte by byte."""
    body = _head("POST /agents/does/invoke", "Content-Type: application/json", "Content-Length: 100000")
    links = [await scene.linked(piece) for piece in (b"GET /thr", body) for _ in range(100)]
    while scene.going():
        for _, writer in links:
            writer.write(b"a")
        await asyncio.sleep(0.1)
    for _, writer in links:
        writer.close()


@kind("clients that never read")
async def deaf(scene: Scene) -> None:
    with ExitStack() as links:
        for _ in range(20):
            link = links.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            link.connect(("127.0.0.1", scene.port))
            link.sendall(_head(f"GET /threads/{scene.long}/export"))
        while scene.going():
            await asyncio.sleep(0.05)


@kind("hundreds at once")
async def crowd(scene: Scene) -> None:
    async def come() -> None:
        links = await asyncio.gather(*(scene.linked(_head("GET /threads")) for _ in range(300)))
        for reader, writer in links:
            await reader.read(100)
            writer.close()

    await scene.over_and_over(come, 1)


@kind("tokens that are guessed")
async def guesses(scene: Scene) -> None:
    async def guess() -> None:
        words = f"guess-{scene.chance.random()}"
        for given in ({"Authorization": f"Bearer {words}"}, {"Authorization": f"Bearer {words}.a.b"}):
            await scene.ask("GET", "/threads", headers=given)
        await scene.ask("GET", f"/agents/events?ticket={words}", headers={"Authorization": ""})
        await scene.ask("POST", "/auth/session", json={"token": words}, headers={"Authorization": ""})

    await scene.over_and_over(guess, 8)


@kind("a flood of messages to a terminal")
async def typing(scene: Scene) -> None:
    async with scene.client.ws_connect("/agents/does/terminal") as shell:
        await shell.send_bytes(b"stty -echo; cat > /dev/null\n")
        reading = asyncio.create_task(_read(shell))
        with suppress(*BROKEN, ConnectionError):
            while scene.going():
                for _ in range(100):
                    await shell.send_bytes(b"\x01{not json" if scene.chance.random() < 0.5 else b"a" * 500 + b"\n")
                await asyncio.sleep(0.005)
        reading.cancel()


@kind("a flood of a terminal")
async def printing(scene: Scene) -> None:
    async with scene.client.ws_connect("/agents/does/terminal") as shell:
        await shell.send_bytes(b"cat /dev/zero\n")
        with suppress(*BROKEN):
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + scene.until - monotonic()):
                await _read(shell)


async def _read(shell: aiohttp.ClientWebSocketResponse) -> None:
    while (await shell.receive()).type == aiohttp.WSMsgType.BINARY:
        await asyncio.sleep(0)


# -- runs -------------------------------------------------------------------------------------------------------------


@kind("a provider that floods")
async def flood(scene: Scene) -> None:
    await scene.over_and_over(lambda: scene.talk(5_000, 0.0))


@kind("a provider that breaks")
async def breaks(scene: Scene) -> None:
    async def one() -> None:
        scene.model.plant(scene.chance)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await scene.talk(20, 0.01)

    await scene.over_and_over(one, 6)


@kind("tools that print without end")
async def output(scene: Scene) -> None:
    await scene.over_and_over(lambda: scene.do("execute", command="head -c 100000000 /dev/zero | tr '\\0' 'é'"))


@kind("tools that sleep")
async def naps(scene: Scene) -> None:
    await scene.over_and_over(lambda: scene.do("nap", seconds=0.2), 10)


@kind("patterns that never end")
async def patterns(scene: Scene) -> None:
    await scene.do("write_file", path="long.txt", content="a" * 200_000)

    async def one() -> None:
        await scene.do("grep", pattern="(a+)+$|(a|aa)+b")
        await scene.do("glob", pattern="{a,b}" * 8 + "**/" * 50 + "*a" * 50)

    await scene.over_and_over(one)


@kind("wickd killed")
async def no_wickd(scene: Scene) -> None:
    async def one() -> None:
        await scene.do("execute", command="echo there")
        assert scene.server.process is not None
        for pid, line in family(scene.server.process.pid).items():
            if is_wickd(line):
                with suppress(OSError):
                    os.kill(pid, 9)

    await scene.over_and_over(one, 1)


@kind("unanswered questions")
async def questions(scene: Scene) -> None:
    async def one() -> None:
        said = {"messages": [{"role": "user", "content": json.dumps(["execute", {"command": "rm -rf x"}])}]}
        with suppress(*BROKEN):
            async with scene.client.post("/agents/asks/stream", json=said) as answer:
                await answer.content.read(100)  # and away: the question waits
        await scene.ask("GET", "/approvals")

    await scene.over_and_over(one)


@kind("commands that are slow to read")
async def slow_commands(scene: Scene) -> None:
    units = (
        "[[ watch ",
        "watch ",
        "a|<<-E\n{",
        "<<-E\na;",
        "a;",
        "nice ",
        "a&&",
        "a|",
        "[a]* ",
        "rm $a ",
        "$(",
        "a=1 ",
    )
    texts = [(unit * length)[: length - turn] for unit in units for length in (1_990, 20_000) for turn in range(3)]
    await scene.over_and_over(lambda: scene.do("many", agent="denies", commands=texts), 1)


# -- stored data ------------------------------------------------------------------------------------------------------


async def long_thread(data: str, owner: str, entries: int = ENTRIES) -> str:
    """A thread with that many entries, in the store of a server; its name."""
    store, thread = Sqlite(os.path.join(data, "threads.db")), Thread("th_long")
    await store.create(owner, thread.id, title="long", meta={"agent": "does"})
    async with hold(store, owner, thread):
        for number in range(entries // 8):
            _turn(thread, number)
            if number % 100 == 0:
                await thread.saved()
        await thread.saved()
    await store.close()
    return thread.id


def _turn(thread: Thread, number: int) -> None:
    """Eight entries."""
    run, call = {"run": f"run_{number}"}, ToolCall("c1", "execute", {"command": f"echo {number}"})
    thread.add(user(f"question {number} {'about something ' * 5}"))
    thread.append("run_start", {**run, "agent": "does", "guards": [], "resumed": False, "input": 1})
    thread.add(assistant("", call))
    thread.append("intent", {"call": "c1", "attempt": 1, "key": f"{number}"})
    thread.append("done", {"call": "c1", "attempt": 1, "ended": "done"})
    thread.add(tool_message("c1", "execute", f"{number}\n" * 10))
    thread.add(assistant(f"answer {number} {'with many words ' * 10}"))
    thread.append("run_end", {**run, "outcome": "completed", "reason": "", "usage": {"input_tokens": 1}})


def _looks(name: str, path: str, method: str = "GET", body: object = None) -> None:
    async def work(scene: Scene) -> None:
        said = {} if body is None else {"json": json.loads(json.dumps(body).replace("LONG", scene.long))}
        await scene.over_and_over(lambda: scene.ask(method, path.replace("LONG", scene.long), **said), 1)

    KINDS[f"a long thread, {name}"] = work


_looks("opened", "/threads/LONG")
_looks("exported", "/threads/LONG/export")
_looks("exported as Markdown", "/threads/LONG/export?format=markdown")
_looks("searched", "/threads/search?q=question+something&limit=200")
_looks("its runs", "/threads/LONG/runs")
_looks("its calls", "/threads/LONG/calls/c1/why")
_looks("replayed", "/replay", "POST", {"agent_id": "does", "thread_ids": ["LONG"], "rules": {"deny": ["Bash(echo *)"]}})
_looks("forked", "/threads/LONG/fork", "POST", {})
_looks("continued", "/agents/does/invoke", "POST", {"thread_id": "LONG", "messages": [{"content": '["ls", {}]'}]})


@kind("a store that is locked")
async def locked(scene: Scene) -> None:
    """By another process, for as long as that may be."""
    asking = asyncio.create_task(scene.over_and_over(lambda: scene.do("ls"), 4))
    while scene.going():
        await asyncio.to_thread(_lock, str(scene.server.folder / "data" / "threads.db"))
        await asyncio.sleep(0.1)
    await asking


def _lock(path: str) -> None:
    with sqlite3.connect(path, timeout=5, isolation_level=None) as db, suppress(sqlite3.OperationalError):
        db.execute("BEGIN IMMEDIATE")
        sleep(0.4)
        db.execute("ROLLBACK")


@kind("a disk that is full")
async def full(scene: Scene) -> None:
    """The data folder is a small disk of its own, if it could be mounted; then it is filled."""
    ballast = scene.server.folder / "data" / "ballast"
    if not await asyncio.to_thread(os.path.ismount, ballast.parent):
        return
    asking = asyncio.create_task(scene.over_and_over(lambda: scene.do("write_file", path="a", content="a" * 9_000), 4))
    try:
        while scene.going():
            await asyncio.to_thread(_fill, str(ballast))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(os.truncate, ballast, 0)
            await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(os.unlink, ballast)
    await asking


def _fill(path: str) -> None:
    with open(path, "ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1_000_000))
