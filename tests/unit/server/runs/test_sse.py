"""The streaming response: it writes pending frames, sends keep-alives, and ends at a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from server_agents import HELLO, Gate, sample_agents
from server_process import InProcessServer, host_server, open_client, read_frames, wait_until
from wick import Agent, FunctionModel, Scripted, ToolCall, ToolUse, tool
from wick.events import ToolStream
from wick.server.runs.frames import Frame, transient_frame
from wick.server.runs.sse import HEARTBEAT, EventStream


def frame(text: str) -> Frame:
    return transient_frame(ToolStream("r", "t", "c", text))


async def respond(batches: Any, gone: asyncio.Event | None = None) -> list[dict[str, Any]]:
    """Return the sent messages for a client that stays or disconnects."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    await EventStream(batches, {"X-Run-Id": "r"})({"type": "http"}, receive, send)
    return sent


async def test_pending_frames_are_written_at_once() -> None:
    async def batches() -> AsyncGenerator[list[Frame], None]:
        yield [frame("a"), frame("b"), frame("c")]
        yield []
        yield [frame("d")]

    start, *bodies = await respond(batches)
    assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
    assert (b"x-run-id", b"r") in start["headers"] and start["status"] == 200
    assert [body["body"].count(b"event: ") for body in bodies] == [3, 0, 1, 0] and bodies[1]["body"] == HEARTBEAT
    assert [body["more_body"] for body in bodies] == [True, True, True, False]


async def test_a_disconnect_ends_the_stream_and_closes_its_source() -> None:
    gone, closed = asyncio.Event(), asyncio.Event()

    async def batches() -> AsyncGenerator[list[Frame], None]:
        try:
            yield [frame("a")]
            gone.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    sent = await asyncio.wait_for(respond(batches, gone), 60)
    assert closed.is_set() and len(sent) == 2


async def test_an_outer_cancellation_is_not_a_disconnect() -> None:
    async def batches() -> AsyncGenerator[list[Frame], None]:
        await asyncio.Event().wait()
        yield []

    task = asyncio.create_task(respond(batches))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_of_the_source_are_raised() -> None:
    async def batches() -> AsyncGenerator[list[Frame], None]:
        yield [frame("a")]
        raise RuntimeError("no tea")

    with pytest.raises(RuntimeError, match="no tea"):
        await respond(batches)


# -- with a server --------------------------------------------------------------------------------------------------


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(tmp_path: Path, gate: Gate) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as found:
        yield found


async def test_a_stream_ends_with_its_client(server: InProcessServer, gate: Gate) -> None:
    """At once, and not at its next event."""
    following = server.service.runs.followers
    following.beat = 3_600.0
    async with open_client(server) as client:
        response = await client.post("/agents/gate/stream", json=HELLO)
        await gate.asked.wait()
        assert following.readers == 1
        response.close()

        async def has_no_readers() -> bool:
            return following.readers == 0

        await wait_until(has_no_readers)
    assert len(server.service.runs.executor.running) == 1
    gate.answers.put_nowait("Here.")


async def test_keep_alives_are_sent_while_idle(server: InProcessServer, gate: Gate) -> None:
    server.service.runs.followers.beat = 0.05
    async with open_client(server) as client, client.post("/agents/gate/stream", json=HELLO) as response:
        beats = 0
        async for line in response.content:
            beats += line == b": \n"
            if beats == 3:
                break
        assert server.service.runs.executor.running
        gate.answers.put_nowait("Here.")
        assert [found["event"] async for found in read_frames(response)][-1] == "done"


async def test_clients_that_never_read_hold_little(tmp_path: Path) -> None:
    """A stalled reader is dropped; the run continues with bounded memory."""

    @tool
    async def chatter(use: ToolUse) -> str:
        """Say a lot."""
        for _ in range(3_000):
            use.stream("x" * 5_000)
            await asyncio.sleep(0)
        return "that was a lot"

    script = Scripted(ToolCall("c1", "chatter", {}), "Done.")
    short = {"chatty": Agent(script, tools=[chatter]), "echo": Agent(FunctionModel(lambda request: "hello"))}
    async with host_server(tmp_path, agents=short, grace=0) as server, open_client(server) as client:
        response = await client.post("/agents/chatty/stream", json=HELLO)
        run = response.headers["X-Run-Id"]
        hubs = server.service.runs.followers.board._hubs

        async def is_ended() -> bool:
            for hub in hubs.values():
                for reader in hub._readers:
                    assert sum(len(frame.text) for frame in reader.queue) < 1_100_000
            async with client.get(f"/runs/{run}") as state:
                return bool((await state.json())["state"] == "ended")

        await wait_until(is_ended)
        async with client.post("/agents/echo/invoke", json=HELLO) as fine:
            assert fine.status == 200
        seen = [found["event"] async for found in read_frames(response)]  # and now it reads
        assert seen[-2:] == ["on_chat_model_end", "done"] and "resync" in seen and seen.count("done") == 1
