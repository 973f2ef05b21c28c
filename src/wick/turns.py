"""Tool uses side by side: who has passed the gate, whose turn it is, and what happens when all are cancelled."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from wick import caps

T = TypeVar("T")

logger = logging.getLogger(__name__)

_leftover: set[asyncio.Future[Any]] = set()  # cancelled and still running: the loop itself would forget them


class Turns:
    """The tool uses of one step, by number.

    All pass the gate before any waits for an answer, so that one question does not hide another.
    One whose tool works alone waits for those before it, and those after it wait for it.
    """

    __slots__ = ("_all", "_alone", "_ended", "_passed")

    def __init__(self, alone: Sequence[bool] = (False,)) -> None:
        self._alone = alone
        self._passed: set[int] = set()
        self._all = asyncio.Event()
        self._ended = [asyncio.Event() for _ in alone]

    def passed(self, number: int) -> None:
        self._passed.add(number)
        if len(self._passed) == len(self._alone):
            self._all.set()

    def ended(self, number: int) -> None:
        self.passed(number)
        self._ended[number].set()

    async def everyone(self) -> None:
        """Wait until every use has passed the gate, or ended before it."""
        await self._all.wait()

    async def mine(self, number: int) -> None:
        """Wait until this use may run."""
        for other in range(number):
            if self._alone[number] or self._alone[other]:
                await self._ended[other].wait()


async def side_by_side(works: Sequence[Coroutine[Any, Any, None]], names: Sequence[str]) -> list[BaseException]:
    """Do all of it, whatever goes wrong with some; return what went wrong, in order.

    When the caller is cancelled, so is all of the work. Work that ignores it is abandoned, and named.
    """
    tasks = [asyncio.create_task(work, name=name) for work, name in zip(works, names, strict=True)]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await end(tasks)
        raise
    failures = (asyncio.CancelledError() if task.cancelled() else task.exception() for task in tasks)
    return [failure for failure in failures if failure is not None]


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a stream at once when it is no longer read, if it can be closed."""
    try:
        yield stream
    finally:
        if (aclose := getattr(stream, "aclose", None)) is not None:
            await aclose()


async def within(seconds: float, work: Awaitable[Any], name: str) -> Any:
    """Wait for work, but no longer than that; work that goes on all the same is abandoned."""
    task = _started(work, name)
    try:
        if not task.done():
            await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await end((task,))
        raise
    if not task.done():
        await end((task,))
        raise TimeoutError(f"{name} did not finish within {seconds:g} s")
    return task.result()


def _started(work: Awaitable[Any], name: str) -> asyncio.Future[Any]:
    """A task of its own; where Python can, it begins at once, so that what never waits costs no turn of the loop."""
    if not asyncio.iscoroutine(work):
        return asyncio.ensure_future(work)
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name, eager_start=True)
    return asyncio.create_task(work, name=name)


async def end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and see them end; one that does not within the grace is left behind, and said so."""
    grace = caps.CANCEL_GRACE_SECONDS
    for task in tasks:
        _leftover.add(task)
        task.add_done_callback(_forget)
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=grace)
    for task in tasks:
        if not task.done():
            name = task.get_name() if isinstance(task, asyncio.Task) else "some work"
            logger.warning("%s was cancelled and did not end within %g s; it is abandoned", name, grace)


def _forget(task: asyncio.Future[Any]) -> None:
    _leftover.discard(task)
    _went_wrong(task)  # so that nobody is told of an error nobody can mend


def _went_wrong(task: asyncio.Future[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
