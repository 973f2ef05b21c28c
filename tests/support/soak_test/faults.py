"""Faults of the server: one every other second, of each kind in turn."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp

from server_process import ServerProcess
from soak_test.clients import BROKEN, Person
from soak_test.ledger import Ledger
from soak_test.model import MARK, Soaked
from soak_test.tcp_proxy import Door

LEFT_FREE = 128 * 1024  # of the disk, when it is nearly full
FULL_SECONDS = 1.0
REST_SECONDS = 15.0  # between the start of a server and its end, so that turns can end too
FULL_EVERY = 4  # of the rounds through all kinds
GONE_SECONDS = 5.0  # after which leftovers of a killed server count as leaked
BAD: tuple[bytes, ...] = (
    b"POST /agents/talker/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %t\r\n"
    b'Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": [[[',
    b"POST /agents/talker/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %t\r\n"
    b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000,
    b"GET /threads/%00%ff/../.. HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %t\r\n\r\n",
    b"GET /runs/run_nobody/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %t\r\nLast-Event-ID: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"DELETE /threads/th_none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nonsense\r\n\r\n",
    b"POST /approvals/ask_none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %t\r\n"
    b'Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"choice": "maybe"}',
    b"POST /agents/worker/stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)


class Breaking:
    """Injects faults. `spared` ends the kills of the server, so that it has one long life."""

    def __init__(
        self,
        server: ServerProcess,
        door: Door,
        model: Soaked,
        ledger: Ledger,
        people: list[Person],
        token: str,
        disk: Path | None,
        chance: random.Random,
    ) -> None:
        self.server, self.door, self.model, self.ledger, self.people = server, door, model, ledger, people
        self.token, self.disk, self.chance = token, disk, chance
        self.spared = False
        self.alive = asyncio.Lock()  # kills and full disks exclude each other
        self.kinds: dict[str, Callable[[], Awaitable[str]]] = {
            "kill": self._kill,
            "provider": self._provider,
            "cut": self._cut,
            "tool": self._tool,
            "slow": self._slow,
            "cancel": self._cancel,
            "input": self._input,
        }
        if disk is not None:
            self.kinds["disk"] = self._disk
        self._bag: list[str] = []
        self._bags = 0
        self._ready_at = 0.0  # when the server was last started
        self._under_way: set[asyncio.Task[None]] = set()

    async def go_on(self, every: float, going: Callable[[], bool]) -> None:
        """A fault at every beat; one that takes long does not keep the next."""
        while going():
            await asyncio.sleep(every)
            if going():
                task = asyncio.create_task(self._one())
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)

    async def finished(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _one(self) -> None:
        if not self._bag:
            self._bags += 1
            self._bag = [kind for kind in self.kinds if self._due(kind)]
            self.chance.shuffle(self._bag)
        kind = self._bag.pop()
        if kind == "kill" and (self.spared or self.alive.locked() or monotonic() - self._ready_at < REST_SECONDS):
            kind = "provider"
        try:
            self.ledger.fault(kind, await self.kinds[kind]())
        except BROKEN as error:
            self.ledger.fault(kind, f"({type(error).__name__})")

    def _due(self, kind: str) -> bool:
        """A full disk affects all turns, so it is rarer; else no turn would be unaffected."""
        return self._bags % FULL_EVERY == 1 if kind == "disk" else not (self.spared and kind == "kill")

    # -- the kinds --------------------------------------------------------------------------------------------------

    async def _kill(self) -> str:
        async with self.alive:
            for turn in self.ledger.live.values():
                turn.killed = turn.killed or bool(turn.run)
            assert self.server.process is not None
            old, at = self.server.process.pid, _ticks()
            await asyncio.to_thread(self.server.kill)
            began = monotonic()
            await asyncio.to_thread(self.server.start)
            await self._ready()
            self._ready_at = monotonic()
            self.ledger.ready_ms.append((self._ready_at - began) * 1000)
        await asyncio.sleep(GONE_SECONDS)
        for pid, words in processes(self.server.folder, before=at):
            self.ledger.say("leaked", f"process {pid} outlived the killed server {old}: {words}")
        return f"{old}"

    async def _ready(self) -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self.door.target}") as client:
            for _ in range(600):
                with suppress(*BROKEN):
                    async with client.get("/health") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.02)

    async def _provider(self) -> str:
        return f"kind {self.model.plant(self.chance)}"

    async def _cut(self) -> str:
        return f"{self.door.cut(self.chance, 0.1)} connections"

    async def _tool(self) -> str:
        """Kill a process of a command; its turn is known by its arguments."""
        found = [
            (pid, words) for pid, words in processes(self.server.folder) if MARK in words and "echo turn-" in words
        ]
        if not found:
            return "none"
        pid, words = self.chance.choice(found)
        self.ledger.mark(words.split("echo ", 1)[1].split(".")[0], "tool")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return words.split("echo ", 1)[1].split()[0]

    async def _slow(self) -> str:
        """Readers that never read."""
        turns = [(person, turn) for person in self.people for turn in person.turns if turn.run][:5]
        with ExitStack() as links:
            for person, turn in turns:
                links.enter_context(await asyncio.to_thread(self._deaf, person, turn.run))
            await asyncio.sleep(4.0)
        return f"{len(turns)} readers"

    def _deaf(self, person: Person, run: str) -> socket.socket:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        link.settimeout(5)
        try:
            link.connect(("127.0.0.1", self.door.target))
        except OSError:
            link.close()
            raise
        credential = person.client.headers["Authorization"]
        link.sendall(
            f"GET /runs/{run}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {credential}\r\n\r\n".encode()
        )
        return link

    async def _cancel(self) -> str:
        turns = [(person, turn) for person in self.people for turn in person.turns if turn.run and not turn.faults]
        if not turns:
            return "none"
        person, turn = self.chance.choice(turns)
        turn.faults.add("cancel")
        async with person.client.post(f"/runs/{turn.run}/cancel") as answer:
            full = answer.status == 507 and self.disk is not None  # a cancelled write is stored or not
            if answer.status >= 500 and answer.status != 503 and not full:
                self.ledger.say("refused", f"to cancel {turn.run} is answered {answer.status}")
        return turn.name

    async def _disk(self) -> str:
        """The disk is nearly full for a moment."""
        assert self.disk is not None
        ballast = self.disk / "ballast"
        async with self.alive:
            self._do_to_all("disk")
            try:
                free = os.statvfs(self.disk)
                size = max(0, free.f_bavail * free.f_frsize - LEFT_FREE)
                with ballast.open("wb") as file, suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, size)
                await asyncio.sleep(FULL_SECONDS)
            finally:
                self.ledger.everywhere = ""
                ballast.unlink(missing_ok=True)
        return f"for {FULL_SECONDS:g} s"

    def _do_to_all(self, fault: str) -> None:
        """Mark all active turns and those that start meanwhile."""
        self.ledger.everywhere = fault
        for turn in self.ledger.live.values():
            turn.faults.add(fault)

    async def _input(self) -> str:
        """Send invalid requests."""
        statuses: list[Any] = []
        for raw in BAD:
            statuses.append(await self._send(raw.replace(b"%t", self.token.encode())))
        return " ".join(map(str, statuses))

    async def _send(self, raw: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.door.port)
        try:
            writer.write(raw)
            async with asyncio.timeout(10):
                line = await reader.readline()
            status = int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0
            if status >= 500 and status != 503:
                self.ledger.say("refused", f"{raw[:80]!r} is answered {status}")
            return status
        except TimeoutError:
            return 0  # it waits for the rest, as it may
        finally:
            writer.close()


def _ticks() -> float:
    """Now, as the kernel counts since it was started."""
    return float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK")


def processes(folder: Path, before: float = float("inf")) -> list[tuple[int, str]]:
    """Return child processes of the server of that folder, by command line and start time."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if not (MARK in words or str(folder) in words) or "wick.cli serve" in words or "soak_test" in words:
                continue
            began = float((place / "stat").read_text().rsplit(")", 1)[1].split()[19])
            if began < before:
                found.append((int(place.name), words.strip()[:300]))
    return found
