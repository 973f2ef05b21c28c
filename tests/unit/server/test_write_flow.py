"""The flow control of a connection: writers wait while writing is paused."""

from __future__ import annotations

import asyncio
from typing import cast

from wick.server.uvicorn_protocol import WriteFlow


async def test_writers_wait_until_writing_resumes() -> None:
    flow = WriteFlow(cast(asyncio.Transport, None))
    await flow.drain()
    flow.pause_writing()
    flow.pause_writing()
    writers = [asyncio.create_task(flow.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    writers[0].cancel()
    await asyncio.wait(writers[:1])
    assert flow.write_paused and not writers[1].done()
    flow.resume_writing()
    flow.resume_writing()
    await writers[1]
    assert not flow.write_paused and writers[0].cancelled()


async def test_a_writer_waits_for_the_last_pause() -> None:
    flow = WriteFlow(cast(asyncio.Transport, None))
    flow.pause_writing()
    writer = asyncio.create_task(flow.drain())
    await asyncio.sleep(0)
    flow.resume_writing()
    flow.pause_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not writer.done()
    flow.resume_writing()
    await writer
