"""A stream outlives its connection: cut anywhere, or during a restart, each event is delivered once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agents_program import AGENTS
from ports import own_port
from server_process import TOKENS, ServerProcess, run_server
from wick.client import Client
from wick.client.sse import SseFrame
from wick.events import ChatModelEnd, ChatModelStream, Done, Event, ToolEnd

DURABLE = (ChatModelEnd, ToolEnd, Done)


class Cutting:
    """Between a client and a server: it ends each connection after so many bytes of the answer, the next one later."""

    def __init__(self, target: str, first: int, more: int) -> None:
        self.host, self.port = urlsplit(target).hostname, urlsplit(target).port
        self.most, self.more, self.cuts = first, more, 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            there, back = await asyncio.open_connection(self.host, self.port)
            most, self.most = self.most, self.most + self.more
            forth = asyncio.create_task(self._forward(reader, back))
            try:
                await self._answer(there, writer, most)
            finally:
                forth.cancel()
                back.transport.abort()
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        with suppress(OSError):
            while left > 0 and (data := await reader.read(min(left, 4096))):
                left -= len(data)
                writer.write(data)
                await writer.drain()
            self.cuts += left <= 0

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def cutting(server: ServerProcess, first: int, more: int) -> AsyncIterator[tuple[str, Cutting]]:
    cutter = Cutting(server.url, first, more)
    listener = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    async with listener:
        try:
            yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", cutter
        finally:
            await cutter.end()


def durable(events: list[Event]) -> list[str]:
    return [event.event for event in events if isinstance(event, DURABLE)]


@pytest.mark.parametrize("first", [1, 200, 350, 500, 700, 900, 1_200, 1_500, 2_000])
async def test_a_connection_that_breaks_anywhere(server: ServerProcess, first: int) -> None:
    async with cutting(server, first, 400) as (url, cutter), Client(url, TOKENS["ada"]) as client:
        stream = client.stream("adding", "What is 2 + 3?")
        events = [event async for event in stream]
    assert durable(events) == ["on_chat_model_end", "on_tool_end", "on_chat_model_end", "done"]
    assert cutter.cuts >= 1 and isinstance(events[-1], Done) and events[-1].text == "It is 5."
    async with Client(server.url, TOKENS["ada"]) as client:
        assert len((await client.thread(stream.thread_id)).messages) == 4, "it has run once"


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_is_restarted(tmp_path: Path, how: str) -> None:
    with (
        own_port() as port,
        run_server(tmp_path, script=AGENTS, environment={"WICK_PORT": str(port)}, grace=0.2) as server,
    ):
        async with Client(server.url, TOKENS["ada"]) as client:
            stream = client.stream("slow", "20 0.1")
            events = list[Event]()
            async for event in stream:
                events.append(event)
                if sum(isinstance(one, ChatModelStream) for one in events) == 3 and server.starts == 1:
                    await asyncio.to_thread(getattr(server, how))
                    await asyncio.to_thread(server.start)
            assert durable(events) == ["on_chat_model_end", "done"] and server.starts == 2
            assert isinstance(events[-1], Done) and events[-1].outcome == "completed"
            assert events[-1].text == "".join(f"{number} " for number in range(20))
            assert (await client.run(stream.run_id)).outcome == "completed"


async def test_a_reader_redirected_to_the_next_run_follows_it(server: ServerProcess) -> None:
    async with Client(server.url, TOKENS["ada"]) as client:
        stream = client.follow("run_1")
        told = [
            ("7", "on_chat_model_end", "run_1"),
            ("9", "on_approval_request", "run_child"),
            ("", "on_chat_model_stream", "run_child"),
            ("12", "on_chat_model_end", "run_2"),
        ]
        at = []
        for id, name, run in told:
            stream._accept_frame(SseFrame(id, name, json.dumps({"event": name, "run_id": run, "data": {}})))
            at.append(stream.run_id)
    assert at == ["run_1", "run_1", "run_1", "run_2"]
