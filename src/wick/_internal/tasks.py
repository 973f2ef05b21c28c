"""Task helpers: the order of parallel tool uses, timeouts, and cancellation with a grace period."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Sequence
from contextvars import Context
from types import coroutine
from typing import Any, Generic, TypeVar, cast

from wick import constants

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Strong references to cancelled tasks that still run: the event loop holds only weak ones.
_leftover: set[asyncio.Future[Any]] = set()


class ToolUseOrder:
    """The execution order of the tool uses of one step, identified by number.

    The guards decide about all uses before any waits for an approval, so that all questions are asked at once, in
    the order of the calls.
    A use of a tool that runs `alone` waits for all earlier uses, and all later uses wait for it.
    """

    __slots__ = ("_alone", "_asking", "_finished", "_gated")

    def __init__(self, alone: Sequence[bool] = (False,)) -> None:
        self._alone = alone
        self._gated: set[int] = set()
        self._asking: list[tuple[int, asyncio.Future[None]]] = []  # uses that wait to ask; one may wait twice
        self._finished = [asyncio.Event() for _ in alone] if any(alone) else []

    def mark_gated(self, number: int) -> None:
        """Note that the guards have decided about a use, for or against it."""
        self._gated.add(number)
        self._release_questions()

    def mark_finished(self, number: int) -> None:
        """Note that a use has finished. A hook may have prevented that it reached the gate."""
        self.mark_gated(number)
        if self._finished:
            self._finished[number].set()

    async def wait_all_gated(self, number: int) -> None:
        """Wait until the guards have decided about every use that has not finished before."""
        waiting = asyncio.get_running_loop().create_future()
        self._asking.append((number, waiting))
        self._release_questions()
        await waiting

    def _release_questions(self) -> None:
        if self._asking and len(self._gated) == len(self._alone):
            # later in this iteration of the event loop: the last use asks right after its guards
            asyncio.get_running_loop().call_soon(self._release_in_order)

    def _release_in_order(self) -> None:
        asking, self._asking = self._asking, []
        for _, waiting in sorted(asking, key=lambda item: item[0]):
            if not waiting.done():
                waiting.set_result(None)

    async def wait_turn(self, number: int) -> None:
        """Wait until this use may run."""
        for other in range(number if self._finished else 0):
            if self._alone[number] or self._alone[other]:
                await self._finished[other].wait()


async def run_all(works: Sequence[Coroutine[Any, Any, None]], names: Sequence[str]) -> list[BaseException]:
    """Run coroutines concurrently to the end, even if some fail; return their errors in order.

    If the caller is cancelled, all tasks are cancelled. A task that ignores this is abandoned, and logged by name.

    A `TaskGroup` would cancel the siblings of a task that fails. It and `gather` wait for their tasks after a
    cancellation, however long these take. `asyncio.wait` returns one loop iteration after the end of the last task,
    so that a step takes 8 µs more and background work runs ahead of the run. A task that stores its error is in the
    cycle task → error → traceback → frame of a hook's call → task, which keeps the run in memory.
    """
    all_done = asyncio.get_running_loop().create_future()
    failures: dict[int, BaseException] = {}
    left = len(works)

    async def do(number: int, work: Coroutine[Any, Any, None]) -> None:
        nonlocal left
        try:
            await work
        except BaseException as error:
            failures[number] = error
        left -= 1
        if not left and not all_done.done():
            all_done.set_result(None)

    tasks = [
        asyncio.create_task(do(number, work), name=name)
        for number, (work, name) in enumerate(zip(works, names, strict=True))
    ]
    try:
        await all_done
    except asyncio.CancelledError:
        await cancel_and_wait(tasks)
        failures.clear()
        raise
    return [failures.pop(number) for number in sorted(failures)]  # `pop`: this frame keeps no error


@coroutine
def run_detached(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run a coroutine for a shared resource in an empty context, so that it does not keep the current run in memory.

    Tasks, transports and timers that the coroutine creates copy its context, and the caller's context refers to
    the run. `create_task(work, context=Context())` does not do: the result of a finished task, such as a started
    process, is lost if its waiter is cancelled before it wakes up. Here the coroutine runs in the caller's task,
    so a cancellation reaches the coroutine itself, which can clean up.
    """
    context, step, given = Context(), cast(Any, work.send), None
    while True:
        try:
            awaited = context.run(step, given)
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            step = given = None  # break the cycle error → traceback → frame → error
        try:
            step, given = work.send, (yield awaited)
        except BaseException as error:
            step, given = work.throw, error


class closing_stream(Generic[T]):
    """Async context manager that closes a stream on exit, if it has `aclose`."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._stream

    async def __aexit__(self, *error: object) -> None:
        if (aclose := getattr(self._stream, "aclose", None)) is not None:
            await aclose()


async def run_with_timeout(seconds: float, work: Awaitable[T], name: str) -> T:
    """Await work with a timeout. Work that ignores its cancellation is abandoned.

    `asyncio.timeout` and `wait_for` return only when the work has ended, so work that ignores its cancellation
    would block the run. `asyncio.wait` returns one loop iteration after the end of the work: 28 instead of 17 µs for
    each guard, and 6 % more for a step with four. The outcome is in a future, as a task that stores its error is in
    a reference cycle; see `run_all`.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    if sys.version_info >= (3, 12):  # work that never suspends then costs no loop iteration
        task = asyncio.Task(_set_outcome(work, answer), loop=loop, name=name, eager_start=True)
    else:
        task = asyncio.create_task(_set_outcome(work, answer), name=name)
    timer = loop.call_later(
        seconds, _set_result, answer, (None, TimeoutError(f"{name} did not finish within {seconds:g} s"))
    )
    try:
        result, error = answer.result() if answer.done() else await answer
    except asyncio.CancelledError:
        await cancel_and_wait((task,))
        raise
    finally:
        timer.cancel()
    if error is None:
        return cast(T, result)
    if not task.done():
        await cancel_and_wait((task,))
    try:
        raise error
    finally:
        del answer, error  # break the cycle error → traceback → frame → error


async def _set_outcome(work: Awaitable[T], answer: asyncio.Future[tuple[T | None, BaseException | None]]) -> None:
    """Await work and set its result or error on the future, within the same loop iteration."""
    try:
        _set_result(answer, (await work, None))
    except BaseException as error:
        _set_result(answer, (None, error))
    finally:
        del answer  # break the cycle error → traceback → frame → future → error


def _set_result(answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        answer.set_result(value)


async def wait_done(task: asyncio.Future[Any]) -> None:
    """Wait until a task has ended, whatever its outcome. It is not cancelled with its waiter.

    It does the work of `asyncio.wait((task,))` at a third of the cost.
    """
    if task.done():
        return
    ended = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(wake)
    try:
        await ended
    finally:
        task.remove_done_callback(wake)


async def cancel_and_wait(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for the grace period; log a warning for each that still runs."""
    grace = constants.CANCEL_GRACE_SECONDS
    for task in tasks:
        _leftover.add(task)
        task.add_done_callback(_drop_task)
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=grace)
    for task in tasks:
        if not task.done():
            name = task.get_name() if isinstance(task, asyncio.Task) else "some work"
            logger.warning("%s was cancelled and did not end within %g s; it is abandoned", name, grace)


def _drop_task(task: asyncio.Future[Any]) -> None:
    _leftover.discard(task)
    task.cancelled() or task.exception()  # retrieve the exception, so that asyncio does not log it
