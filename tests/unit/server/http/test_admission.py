"""Admission middleware: some requests start per event-loop iteration, in order, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from wick.server.http.admission import STARTS_PER_ITERATION, AdmissionMiddleware


class Turns:
    """An app that records which request started in which event-loop iteration."""

    def __init__(self) -> None:
        self.turn = 0
        self.began: list[tuple[int, int]] = []  # iteration and request
        self.crowds = AdmissionMiddleware(self)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.began.append((self.turn, scope["number"]))

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def send(self, number: int, path: str = "/threads") -> asyncio.Task[None]:
        scope = {"type": "http", "path": path, "number": number}
        return asyncio.create_task(self.crowds(scope, None, None))  # type: ignore[arg-type]


async def test_requests_start_in_batches_in_order() -> None:
    turns = Turns()
    counting = asyncio.create_task(turns.count())
    await asyncio.gather(*(turns.send(number) for number in range(100)))
    counting.cancel()
    assert [who for _, who in turns.began] == [*range(100)]
    in_turn = [turn for turn, _ in turns.began]
    assert max(in_turn.count(turn) for turn in in_turn) <= STARTS_PER_ITERATION
    assert len({*in_turn}) >= 100 // STARTS_PER_ITERATION


async def test_health_checks_are_not_queued() -> None:
    turns = Turns()
    crowd = [turns.send(number) for number in range(50)]
    await turns.send(99, "/health")
    assert turns.began[-1][1] == 99 and len(turns.began) <= 2 * STARTS_PER_ITERATION + 1
    await asyncio.gather(*crowd)


async def test_a_disconnected_waiter_blocks_no_other() -> None:
    turns = Turns()
    crowd = [turns.send(number) for number in range(60)]
    await asyncio.sleep(0)
    for task in crowd[STARTS_PER_ITERATION : 2 * STARTS_PER_ITERATION]:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    gone = [*range(STARTS_PER_ITERATION, 2 * STARTS_PER_ITERATION)]
    assert [who for _, who in turns.began] == [number for number in range(60) if number not in gone]
    await turns.send(60)
    assert turns.began[-1][1] == 60


async def test_sequential_requests_do_not_wait() -> None:
    turns = Turns()
    for number in range(30):
        task = turns.send(number)
        await asyncio.sleep(0)
        assert task.done()
