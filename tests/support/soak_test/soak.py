"""A soak from its beginning to its report."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any

import aiohttp

from ports import own_port
from server_process import ServerProcess, run_server
from soak_test import health_probe
from soak_test.clients import PATIENCE, Person
from soak_test.faults import Breaking, processes
from soak_test.ledger import Ledger, summary
from soak_test.model import Soaked, SoakedServer
from soak_test.server_metrics import Vitals, part
from soak_test.tcp_proxy import Door

KILLS_FOR = 0.6  # of the time; then the server is spared, so that its memory can be seen for a while
DISK_BYTES = 16 * 2**30  # of its own sparse disk


@dataclass
class Plan:
    """The size of a soak test."""

    seconds: float = 3600.0
    users: int = 50
    talks: int = 2  # conversations of each user, besides the one that works and the second reader
    terminals: int = 8
    every: float = 2.0  # seconds between two faults
    words: int = 20  # of an answer
    pace: float = 0.4  # seconds between two words
    think: float = 0.5  # seconds before each command: some twenty commands a second in all
    turns: int = 8  # of a thread
    store: str = "sqlite"
    chance: int = 1  # where chance begins


@dataclass
class Soak:
    """A running soak."""

    plan: Plan
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    vitals: Vitals = field(default_factory=Vitals)
    people: list[Person] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    began: float = 0.0
    until: float = 0.0
    over: bool = False
    files_idle: int = 0
    files_after: int = 0
    kinds_of_files: dict[str, int] = field(default_factory=dict)

    def going(self) -> bool:
        return not self.over and monotonic() < self.until

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.until - monotonic())

    def end(self) -> None:
        """Stop early: clients finish, and the report covers the time so far."""
        self.over, self.until = True, min(self.until, monotonic())

    async def run(self, tell: Callable[[Soak], None] = lambda soak: None) -> dict[str, Any]:
        """Run the soak; `tell` is called every second."""
        with _disk(self) as disk:
            async with SoakedServer() as provider:
                model = provider.soaked(self.ledger.mark, lambda words: self.ledger.say("invalid", words))
                with _served(self.plan, self.folder, model.url) as server:
                    await self._drive(server, model, disk, tell)
                    await self._settle(server)
                self._leaks()
                self._effects()
        return self._report()

    async def _drive(
        self, server: ServerProcess, model: Soaked, disk: Path | None, tell: Callable[[Soak], None]
    ) -> None:
        async with Door(_port(server)) as door, self._everybody(door), self._operator(server) as operator:
            self.files_idle = await self._rest(server)
            self.began = monotonic()
            self.until = self.began + self.plan.seconds
            chance = random.Random(self.plan.chance)
            breaking = Breaking(server, door, model, self.ledger, self.people, _token(0), disk, chance)
            looking = asyncio.create_task(self._look(server, breaking, operator, tell))
            talking = [asyncio.create_task(work) for work in self._works()]
            try:
                with _pulse(_port(server), self.folder / "health.txt"):
                    await breaking.go_on(self.plan.every, self.going)
                    await breaking.finished()
                    _, late = await asyncio.wait(talking, timeout=PATIENCE + 90)
                for task in late:
                    task.cancel()
                    self.ledger.say("lost", f"{task} did not come to an end")
                for result in await asyncio.gather(*talking, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result
                self.files_after = await self._rest(server)
            finally:
                self.over = True
                for task in (looking, *talking):
                    task.cancel()
                await asyncio.gather(looking, *talking, return_exceptions=True)

    def _works(self) -> Iterator[Any]:
        plan = self.plan
        for number, person in enumerate(self.people):
            for _ in range(plan.talks):
                yield person.converse("talker", f"talk {plan.words} {plan.pace}", plan.turns)
            asks = number % 5 == 4
            yield person.converse("payer" if asks else "worker", f"work 3 0.1 {plan.think}", plan.turns)
            yield person.watch()
            if number < plan.terminals:
                yield person.type()

    @asynccontextmanager
    async def _everybody(self, door: Door) -> AsyncIterator[None]:
        url = f"http://127.0.0.1:{door.port}"
        self.people += [Person(_token(n), url, self.ledger, self.going, n) for n in range(self.plan.users)]
        try:
            yield
        finally:
            for person in self.people:
                await person.close()

    @asynccontextmanager
    async def _operator(self, server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
        headers = {"Authorization": f"Bearer {_token(-1)}"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{_port(server)}", headers=headers) as client:
            yield client

    async def _look(
        self, server: ServerProcess, breaking: Breaking, client: aiohttp.ClientSession, tell: Callable[[Soak], None]
    ) -> None:
        while True:
            await self.vitals.look(server, self.ledger, client)
            breaking.spared = self.seconds_left < self.plan.seconds * (1 - KILLS_FOR)
            tell(self)
            await asyncio.sleep(1.0)

    async def _rest(self, server: ServerProcess) -> int:
        """Return the number of descriptors of the idle server."""
        counted: list[int] = []
        for _ in range(20):
            assert server.process is not None
            with suppress(OSError):
                counted.append(len(os.listdir(f"/proc/{server.process.pid}/fd")))
                self.kinds_of_files = _kinds_of_files(server.process.pid)
            if len(counted) > 3 and len(set(counted[-3:])) == 1:
                break
            await asyncio.sleep(0.3)
        return counted[-1] if counted else 0

    async def _settle(self, server: ServerProcess) -> None:
        code = await asyncio.to_thread(server.stop, 60.0)
        if code not in (0, -15):
            self.ledger.say("refused", f"the server ended with {code} when it was told to stop")

    # -- leftovers --------------------------------------------------------------------------------------------------

    def _leaks(self) -> None:
        for pid, words in processes(self.folder):
            self.ledger.say("leaked", f"process {pid}: {words}")
        for path in sorted((self.folder / "tmp").iterdir()):
            self.ledger.say("leaked", f"temporary file {path.name}")

    def _effects(self) -> None:
        """Check effects of commands: none twice, and all reported ones."""
        done: Counter[str] = Counter()
        for file in (self.folder / "data").rglob("effects.log"):
            done.update(file.read_text().split())
        self.ledger.counts["effects"] = sum(done.values())
        for effect, times in done.items():
            if times > 1:
                self.ledger.say("duplicated", f"{effect} was done {times} times")
        for effect in [effect for person in self.people for effect in person.told]:
            if not done[effect]:
                self.ledger.say("lost", f"{effect} was told, and is not done")

    def _report(self) -> dict[str, Any]:
        plan, ready = self.plan, self.ledger.ready_ms
        seconds = max(1.0, self.until - self.began)
        calls = round(self.ledger.counts["tool_calls"] / seconds, 1)
        report = {"minutes": round(seconds / 60, 2), "users": plan.users, "store": plan.store}
        report |= summary(self.ledger) | {"tool_calls_per_second": calls, "effects": self.ledger.counts["effects"]}
        report |= {"ready_p50_ms": part(ready, 0.5), "ready_p99_ms": part(ready, 0.99)}
        report |= self.vitals.figures(self.folder / "health.txt")
        report |= {
            "files_idle": self.files_idle,
            "files_after": self.files_after,
            "files_by_kind": self.kinds_of_files,
            "not_shown": self.not_shown,
        }
        return report | {"samples": self.vitals.rows()}


# -- the server -----------------------------------------------------------------------------------------------------


def _token(number: int) -> str:
    return f"token-of-user-{number:05}-0123456789"


def _port(server: ServerProcess) -> int:
    return int(server.url.rsplit(":", 1)[1])


def _people(count: int) -> list[dict[str, str]]:
    named = {-1: ("operator", "operator"), **{number: (f"user{number}", "user") for number in range(count)}}
    return [
        {"name": name, "role": role, "sha256": sha256(_token(number).encode()).hexdigest()}
        for number, (name, role) in named.items()
    ]


@contextmanager
def _served(plan: Plan, folder: Path, url: str) -> Iterator[ServerProcess]:
    (folder / "tmp").mkdir(parents=True)
    defaults = {"model": {"model": f"gateway:soak@{url}", "api_key": "sk-soak"}, "todos": False}
    agents = {
        "talker": {"system_prompt": "You talk."},
        "worker": {"backend": {"type": "local"}},
        "payer": {"backend": {"type": "local"}, "permissions": {"mode": "default"}},
    }
    quotas = {"runs": 0, "threads": 0, "streams": 0, "requests_per_second": 0}
    with (
        own_port() as port,
        run_server(
            folder,
            store=plan.store,
            config={"defaults": defaults, "agents": agents},
            flags=("--port", str(port)),
            environment={"TMPDIR": str(folder / "tmp")},
            fresh=True,
            tokens=_people(plan.users),
            quotas=quotas,
        ) as server,
    ):
        yield server


def _kinds_of_files(pid: int) -> dict[str, int]:
    """Return the kinds of open descriptors of a process, without numbers."""
    kinds: Counter[str] = Counter()
    for place in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(place)
            kinds["workspaces" if "/workspaces/" in target else re.sub(r"[0-9]+|\[.*", "", target)[-40:]] += 1
    return dict(kinds)


@contextmanager
def _pulse(port: int, file: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, health_probe.__file__, str(port), str(file)], process_group=0)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def _disk(soak: Soak) -> Iterator[Path | None]:
    """A disk for the server that can be filled; None without permission to mount."""
    data, image = soak.folder / "data", soak.folder / "disk.img"
    data.mkdir(parents=True)
    if os.geteuid() or which("mkfs.ext4") is None or not _mounted(data, image):
        soak.not_shown.append("a disk that is nearly full: it takes root, mkfs.ext4 and a loop device")
        yield None
        return
    try:
        yield data
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True, timeout=30)
        image.unlink()


def _mounted(data: Path, image: Path) -> bool:
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    for command in (["mkfs.ext4", "-q", "-F", "-m", "0", image], ["mount", "-o", "loop", image, data]):
        if subprocess.run(command, capture_output=True, timeout=60).returncode:
            image.unlink()
            return False
    return True
