"""Readers of streams, in a separate process: they open streams, record the time of each event, and print a summary.

    python bench/readers.py      reads {"port": 8000, "token": "…", "streams": 100, "words": "40 0.5", "seconds": 10}

It prints `steady` when all streams are open and the measurement starts, `over` when it ends, and then one line of
JSON. With `"seconds": 0` everything is measured, from the first request to the end of the last stream. The text of a
delta is the time at which it was created, so its age when it is read is its lag.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns, process_time
from typing import Any

import uvloop

STAMP = re.compile(rb'"delta":"(\d+) "')
HEALTH_PAUSE = 0.05  # seconds between two requests of /health


@dataclass
class Tally:
    """The events of all readers; some are counted only while `counting` is set."""

    counting: bool = False
    events: int = 0
    opened: int = 0
    failed: int = 0
    ended: int = 0
    late_us: list[int] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)


class Reader(asyncio.Protocol):
    """One stream: it sends a request, and records the events."""

    def __init__(self, question: bytes, tally: Tally, room: asyncio.Semaphore) -> None:
        self.question, self.tally, self.room = question, tally, room
        self.answered, self.gone = asyncio.Event(), asyncio.Event()
        self.rest, self.asked = b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport, self.asked = transport, monotonic()
        transport.write(self.question)

    def data_received(self, data: bytes) -> None:
        tally = self.tally
        if not self.answered.is_set():
            self.answered.set()
            tally.opened += 1
            tally.failed += not data.startswith(b"HTTP/1.1 200")
        text = self.rest + data
        cut = text.rfind(b"\n\n") + 2 if b"\n\n" in text else 0
        now, self.rest = monotonic_ns(), text[cut:]
        stamps = STAMP.findall(text[:cut])
        if stamps and self.asked:
            tally.first_ms.append((monotonic() - self.asked) * 1000)
            self.asked = 0.0
        if tally.counting:
            tally.events += len(stamps)
            tally.late_us.extend((now - int(stamp)) // 1000 for stamp in stamps)
        if b"event: done" in text[:cut] or b"event: error" in text[:cut]:
            tally.ended += 1
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.answered.set()
        self.gone.set()
        self.room.release()


class Question(asyncio.Protocol):
    """One short request on its own connection."""

    def __init__(self, question: bytes, answered: asyncio.Future[float]) -> None:
        self.question, self.answered, self.asked = question, answered, monotonic()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.question)

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            self.answered.set_result((monotonic() - self.asked) * 1000)
        self.transport.close()


async def ask_health(port: int, tally: Tally) -> None:
    loop, question = asyncio.get_running_loop(), b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    while True:
        answered: asyncio.Future[float] = loop.create_future()
        await loop.create_connection(lambda answered=answered: Question(question, answered), "127.0.0.1", port)
        took = await answered
        if tally.counting:
            tally.health_ms.append(took)
        await asyncio.sleep(HEALTH_PAUSE)


def question(asked: dict[str, Any]) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": asked["words"]}]}).encode()
    head = f"POST {asked.get('path', '/agents/ticker/stream')} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += f"Authorization: Bearer {asked['token']}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read(asked: dict[str, Any]) -> dict[str, Any]:
    tally, whole = Tally(), not asked["seconds"]
    clock = begin(tally) if whole else None
    opened = await open_all(asked, tally)
    if clock is None:
        await asyncio.wait_for(asyncio.gather(*(one.answered.wait() for one in opened)), 120)
        await asyncio.sleep(asked.get("settle", 1.0))
        clock = begin(tally)
    health = asyncio.create_task(ask_health(asked["port"], tally) if asked.get("health", True) else asyncio.sleep(0))
    await (asyncio.gather(*(one.gone.wait() for one in opened)) if whole else asyncio.sleep(asked["seconds"]))
    tally.counting, seconds, spent = False, monotonic() - clock[0], process_time() - clock[1]
    health.cancel()
    print("over", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)  # until the server has been measured
    for one in opened:
        one.transport.close()
    return summarize(tally, seconds, spent)


def begin(tally: Tally) -> tuple[float, float]:
    print("steady", flush=True)
    tally.counting = True
    return monotonic(), process_time()


async def open_all(asked: dict[str, Any], tally: Tally) -> list[Reader]:
    loop, words, opened = asyncio.get_running_loop(), question(asked), list[Reader]()
    room = asyncio.Semaphore(asked.get("at_once", asked["streams"]))
    for number in range(asked["streams"]):
        await room.acquire()
        _, reader = await loop.create_connection(lambda: Reader(words, tally, room), "127.0.0.1", asked["port"])
        opened.append(reader)
        if asked.get("ramp") and number % 10 == 9:
            await asyncio.sleep(asked["ramp"] * 10 / asked["streams"])
    return opened


def summarize(tally: Tally, seconds: float, cpu: float) -> dict[str, Any]:
    late = sorted(tally.late_us)
    return {
        "opened": tally.opened, "failed": tally.failed, "ended": tally.ended, "events": tally.events,
        "seconds": seconds, "reader_cpu": cpu,
        "late_p50_ms": part(late, 0.5) / 1000, "late_p99_ms": part(late, 0.99) / 1000,
        "first_p50_ms": part(sorted(tally.first_ms), 0.5), "first_p99_ms": part(sorted(tally.first_ms), 0.99),
        "health_p50_ms": part(sorted(tally.health_ms), 0.5), "health_p99_ms": part(sorted(tally.health_ms), 0.99),
    }  # fmt: skip


def part(values: list[Any], share: float) -> float:
    return float(values[min(len(values) - 1, int(len(values) * share))]) if values else 0.0


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(read(json.loads(sys.stdin.readline())))), flush=True)
