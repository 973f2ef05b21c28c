"""S5: bad input never breaks the server. No 5xx, no hang, no outbound request; a tool ends with a result or an error.

In CI some hundred requests and 40 argument sets of each tool; with WICK_FULL 100,000 requests and 10,000 argument sets.
What a browser does with bad text is tried in tests/e2e (test_everywhere.py, test_preview.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from faults.access_matrix import HOST
from faults.canary import Canary, canary, listening, overheard
from faults.json_fuzzer import Nonsense
from faults.raw_http import Line, request
from faults.request_fuzzer import Flood, Made, messages
from faults.tally import FULL, Tally, Violated
from server_process import TOKENS, InProcessServer, ServerProcess, host_server, open_client, read_events, run_server
from wick import Agent, Allow, tool
from wick.backends.local import Local
from wick.config import load
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta
from wick.server.agents.default_agent import EMBEDDED
from wick.server.agents.registry import AgentRegistry
from wick.server.auth.identity import User

REQUESTS, SOCKETS, ARGUMENTS = (100_000, 2_000, 10_000) if FULL else (600, 10, 40)
WITHIN = 10.0 if FULL else 60.0  # seconds for an answer; on a machine that is busy with other tests there is more time
LINES = 12
TOGETHER = 10  # calls of one reply
REFURNISHED = 200  # sets of arguments after which the workspace is as in the beginning

pytestmark = pytest.mark.timeout(7_200 if FULL else 300)

AGENTS: Mapping[str, Any] = {
    "default": {**EMBEDDED["default"], "model": "demo"},
    "plain": {"model": "demo"},
    "data": {"model": "demo", "backend": "state", "todos": True},
}


# -- requests ---------------------------------------------------------------------------------------------------------


@contextmanager
def overheard_server(folder: Path) -> Iterator[ServerProcess]:
    """A server under strace, which records its connections."""
    folder.mkdir(parents=True, exist_ok=True)
    traced = TRACED.replace("COMMAND", repr(listening(folder / "calls")))
    script = traced + SERVER.replace("AGENTS", repr(dict(AGENTS)))
    quotas = {"requests_per_second": 0, "threads": 0, "runs": 50}
    with run_server(folder, script=script, quotas=quotas) as server:
        yield server


TRACED = """
import os, sys
if "OVERHEARD" not in os.environ:
    os.environ["OVERHEARD"] = "yes"
    os.execvp("strace", [*COMMAND, sys.executable, *sys.argv])
"""
SERVER = """
import os
from wick.server.server import Server
server = Server(settings=os.environ["WICK_SETTINGS"])
for id, agent in AGENTS.items():
    server.register_agent(id, agent)
server.start()
"""


async def known_names(server: ServerProcess) -> dict[str, list[str]]:
    """Return existing ids by field name and kind, so that requests get past validation."""
    async with open_client(server) as ada:
        body = {"messages": [{"role": "user", "content": "Write hello to notes.txt"}], "thread_id": "th_known"}
        async with ada.post("/agents/default/stream", json=body) as answer:
            run, seen = answer.headers["X-Run-Id"], await read_events(answer)
            call = next(frame["data"]["data"]["call_id"] for frame in seen if frame["event"] == "on_tool_end")
    threads, agents = ["th_known", "th_1", "th_2"], ["default", "plain", "data", "a1", "a2", "a3"]
    paths = ["notes.txt", ".", "deck.md", "new/x.txt"]
    return {
        "agent": agents, "agent_id": agents, "thread": threads, "thread_id": threads, "run": [run], "call": [call],
        "model": ["demo", "default", "plain"], "path": paths, "source": paths, "target": paths, "name": ["one", "two"],
        "type": ["text", "local", "state"], "encoding": ["utf-8", "base64"],
    }  # fmt: skip


async def described(server: ServerProcess | InProcessServer) -> Any:
    async with open_client(server) as ada, ada.get("/openapi.json") as answer:
        return await answer.json()


async def flood(
    server: ServerProcess | InProcessServer,
    bird: Canary,
    requests: int,
    tally: Tally,
    chance: random.Random,
    known: Mapping[str, Sequence[str]],
) -> None:
    """Send so many, over some connections at once; each is answered, below 500 and in time."""
    source = Flood(await described(server), chance, bird, known)
    statuses: Counter[int] = Counter()
    left = iter(range(requests))

    async def work() -> None:
        async with Line(server.url) as line:
            for _ in left:
                made = source.next()
                status = await _answered(line, made)
                statuses[status] += 1
                fine = (status > 0 or made.odd) and status < 500
                tally.check(fine, f"{made.label}: {_said(status)} to {made.raw[:2_000]!r}")

    began = monotonic()
    await asyncio.gather(*(work() for _ in range(LINES)))
    tally.note(per_second=round(requests / (monotonic() - began)), statuses=dict(sorted(statuses.items())))


async def _answered(line: Line, made: Made) -> int:
    """The status; 0 if the server hung up twice (an idle connection may end just when it is used), 999 if it hangs."""
    with suppress(TimeoutError):
        answer = await line.ask(made.raw, WITHIN, last=made.last)
        if answer.status == 0 and not made.odd:
            line.close()
            answer = await line.ask(made.raw, WITHIN, last=made.last)
        if answer.status == 101:
            line.close()
        return answer.status
    return 999


def _said(status: int) -> str:
    return {0: "it hung up", 999: f"no answer within {WITHIN:g} s"}.get(status, str(status))


async def terminals(server: ServerProcess, sockets: int, tally: Tally, chance: random.Random) -> None:
    """Open terminals and send invalid input; the server closes each in time."""
    bearer = ("Authorization", f"Bearer {TOKENS['bob']}")
    nonsense = Nonsense(chance)
    left = iter(range(sockets))

    async def work() -> None:
        async with Line(server.url) as line:
            for number in left:
                raw = request("WS", f"/agents/default/terminal?rows={number % 3_000 - 1}", HOST, bearer)
                with tally.trying(f"socket {number}"):
                    status = await line.talk(raw, messages(chance, nonsense), WITHIN)
                    assert status in (101, 429), status

    await asyncio.gather(*(work() for _ in range(4)))


async def healthy(server: ServerProcess, tally: Tally) -> None:
    """Check that the server answers, works and has logged no error."""
    with tally.trying("health"):
        async with open_client(server, "root") as root, root.get("/health") as answer:
            assert answer.status == 200
        async with open_client(server, "root") as root:
            body = {"messages": [{"role": "user", "content": "What is 6 * 7?"}]}
            async with root.post("/agents/plain/invoke", json=body) as answer:
                assert answer.status == 200, await answer.text()
    at = server.log.find("Traceback")
    tally.check(at < 0, f"the log has a traceback: {server.log[max(0, at - 600) : at + 4_000]}")


def check_no_calls(server: ServerProcess, bird: Canary, tally: Tally) -> None:
    """Check that neither the canary nor a remote host was contacted."""
    with tally.trying("the canary"):
        bird.silent()
    beyond = {call for call in overheard(server.folder / "calls") if not _is_loopback(call)}
    tally.check(not beyond, f"the server called {sorted(beyond)[:5]}")


def _is_loopback(call: str) -> bool:
    return call.startswith(("127.", "::1:")) and not call.endswith(":53")


async def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    chance = random.Random(12)
    with canary() as bird, overheard_server(tmp_path / "server") as server:
        with Tally("S5", "generated requests") as tally:
            await flood(server, bird, REQUESTS, tally, chance, await known_names(server))
            await healthy(server, tally)
            check_no_calls(server, bird, tally)
        with Tally("S5", "terminals with invalid messages") as tally:
            await terminals(server, SOCKETS, tally, chance)
            await healthy(server, tally)
        assert server.stop() == 0


async def test_a_raising_handler_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def raising(self: AgentRegistry, user: User, id: str) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(AgentRegistry, "get_template", raising)
    with canary() as bird:
        async with host_server(tmp_path, agents={"plain": {"model": "demo"}}) as here:
            with pytest.raises(Violated, match="500 to"), Tally("S5", "requests, planted", planted=True) as tally:
                await flood(here, bird, 60, tally, random.Random(12), {"agent": ["plain"]})


# -- arguments of tools -----------------------------------------------------------------------------------------------

COMMANDS = (
    "ls -la", "cat notes.txt", "echo x > made.txt", "cat ../outside/secret.txt", "rm -rf ../outside", "exit 3", "env",
    "echo x > ../outside/new", "ln -s / root; ls root", "kill -9 $$", "printf '\\377\\000'", "cd / && touch x", "true",
    "mkdir -p a/b/c", "head -c 100000 /dev/zero", "for i in 1 2 3; do echo $i; done", "( :; ) & wait", "cat pipe &",
    "chmod 000 notes.txt; chmod 644 notes.txt", "ulimit -a", "rm -rf ./*", "mv notes.txt src/", "sh -c 'exit 255'",
)  # fmt: skip
SECRET = "the-word-that-is-outside"


class Caller:
    """A model that asks for tools with arguments that were put into its mouth, and then is content."""

    name = "caller"

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # the tool, and its arguments as text

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        calls, self.calls = self.calls, []
        for index, (name, args) in enumerate(calls):
            yield CallStart(index, f"call_{index}", name)
            half = len(args) // 2
            yield CallArgs(index, args[:half])
            yield CallArgs(index, args[half:])
        if not calls:
            yield TextDelta("done")
        yield Finish()


class Workshop:
    """The default agent and every built-in tool beside, in a workspace with neighbours that must stay as they are."""

    def __init__(self, folder: Path, bird: Canary, *tools: Any) -> None:
        self.folder, self.workspace, self.outside = folder, folder / "workspace", folder / "outside"
        self.workspace.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)
        self.furnish()
        self.chance = random.Random(5)
        self.model, self.backend = Caller(), Local(self.workspace, sandbox="bubblewrap")
        (folder / "agents.yaml").write_text(yaml.safe_dump({"agents": {"default": _everything()}}))
        config = load(folder / "agents.yaml").agents["default"]
        self.agent: Agent = config.agent(model=self.model, backend=self.backend, ask=self._ask).with_tools(*tools)
        self.nonsense = Nonsense(self.chance, [*bird.addresses, *bird.texts], self._known())
        self.before = self.surroundings()

    def furnish(self) -> None:
        """Restore the initial workspace."""
        for path in self.workspace.iterdir():
            rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.workspace / "notes.txt").write_text("hello\n" * 20)
        (self.workspace / "src").mkdir()
        (self.workspace / "src/main.py").write_text("print('hello')\n")
        (self.workspace / "link").symlink_to(self.outside)
        (self.workspace / "file-link").symlink_to("../outside/secret.txt")
        (self.workspace / "loop").symlink_to("loop")
        os.mkfifo(self.workspace / "pipe")

    def _known(self) -> dict[str, list[str]]:
        out = str(self.outside / "secret.txt")
        paths = ["notes.txt", "src", "src/main.py", ".", "new.txt", "link/secret.txt", "file-link", "loop", "pipe", out]
        paths += ["../outside/secret.txt", "../outside/new.txt", "link/new.txt", f"src/../{out}"]
        patterns = ["*.py", "**/*", "hello", "(a+)+$", "[", "{a,b}", "../**", "(?P<x>", "\\", "a{1000}"]
        times = ["UTC", "Europe/Berlin", "../../etc/passwd", "+25:00", "+02:00"]
        sums = [
            "1 + 1",
            "9**9**9",
            "1/0",
            "((((1))))",
            "sqrt(-1)",
            "5!",
            "10**5000",
            "__import__('os')",
            "round(pi, 99)",
        ]
        return {
            "path": paths, "workdir": paths[:5], "pattern": patterns, "glob": patterns, "command": [*COMMANDS],
            "old_text": ["hello", "hello\n", "print"], "timezone": times, "expr": sums, "method": ["GET", "POST", "X"],
        }  # fmt: skip

    async def _ask(self, question: Any) -> Any:
        return self.chance.choice((True, False, Allow(), "an answer", "x" * 20_000, "\ud800"))

    def surroundings(self) -> dict[str, str]:
        """Return all files beside the workspace with their content."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if self.workspace not in path.parents:
                kept = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                found[str(path)] = f"{path.lstat().st_mode:o} {kept}"
        return found

    async def use(self, name: str, sets: int) -> None:
        """One reply of the model that asks for a tool so often; each call gets a result or an error."""
        schema = next(tool.parameters for tool in self.agent.tools if tool.name == name)
        texts = [self.nonsense.text(schema).decode("utf-8", "replace") for _ in range(sets)]
        self.model.calls = [(name, text) for text in texts]
        try:
            async with asyncio.timeout(WITHIN):
                result = await self.agent.run("go")
        except Exception as error:
            raise Violated(f"{type(error).__name__}: {error}, after {texts}") from error
        told = [message for message in result.messages if message.role == "tool"]
        assert result.outcome in ("completed", "stopped") and len(told) == sets, f"{result.outcome}: {texts}"
        assert not any(SECRET in message.text for message in told), f"the secret was told: {texts}"

    def check(self, bird: Canary) -> None:
        """Check that no connection was made and files beside the workspace are unchanged."""
        bird.silent()
        now = self.surroundings()
        changed = {path for path in self.before.keys() | now.keys() if self.before.get(path) != now.get(path)}
        if changed:
            raise Violated(f"outside of the workspace this has changed: {sorted(changed)[:5]}")


def _everything() -> dict[str, Any]:
    """The default agent, with the built-in tools that it does not have."""
    more = {"todos": True, "metadata": True, "self_description": {"text": "A workshop.", "tool": True}}
    return {
        **EMBEDDED["default"],
        **more,
        "builtins": {"tools": ["calculate", "datetime", "http_request"]},
        "subagents": {"helper": {"description": "Helps.", "prompt": "You help."}},
    }


async def use_all(
    workshop: Workshop, bird: Canary, sets: int, names: Sequence[str] = (), planted: bool = False
) -> None:
    with Tally("S5", "argument sets of tools", planted=planted) as tally:
        for name in names or [tool.name for tool in workshop.agent.tools]:
            for done in range(0, sets, TOGETHER):
                with tally.trying(name):
                    await workshop.use(name, TOGETHER)
                tally.tried += TOGETHER - 1
                if done % REFURNISHED == 0:
                    workshop.furnish()
            with tally.trying(f"after {name}"):
                workshop.check(bird)
        tally.note(tools=len(names or workshop.agent.tools))


async def test_no_arguments_break_a_tool(tmp_path: Path) -> None:
    with canary() as bird:
        workshop = Workshop(tmp_path, bird)
        missing = {"ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute", "calculate", "datetime"}
        missing |= {"ask_user", "load_skill", "http_request", "write_todos", "task"}
        assert not missing - {tool.name for tool in workshop.agent.tools}
        try:
            await use_all(workshop, bird, ARGUMENTS)
        finally:
            await workshop.backend.stop()


@tool
def fetch(url: str) -> str:
    """Fetch a page, wherever it is."""
    where = urlsplit(url)
    with suppress(OSError, ValueError), socket.create_connection((where.hostname or "", where.port or 80), 1) as there:
        there.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return "fetched"


async def test_a_tool_that_fetches_or_hangs_or_writes_outside_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def scribble(text: str) -> str:
        """Note something."""
        (tmp_path / "outside" / "scribble").write_text(json.dumps(text))
        return "noted"

    @tool
    async def hang(text: str) -> str:
        """Think for long."""
        await asyncio.Event().wait()
        return "done"

    monkeypatch.setattr(sys.modules[__name__], "WITHIN", 3.0)
    faults = {"fetch": "the canary was called", "scribble": "outside of the workspace", "hang": "TimeoutError"}
    with canary() as bird:
        workshop = Workshop(tmp_path, bird, fetch, scribble, hang)
        for name, why in faults.items():
            with pytest.raises(Violated, match=why):
                await use_all(workshop, bird, 10 if name == "hang" else 30, [name], planted=True)
            bird.calls.clear()
        await workshop.backend.stop()
