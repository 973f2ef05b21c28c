"""Concurrent work: turns, failures and cancellation."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar

import pytest

from wick import constants
from wick._internal.tasks import (
    ToolUseOrder,
    cancel_and_wait,
    closing_stream,
    run_all,
    run_detached,
    run_with_timeout,
    wait_done,
)
from wick.errors import Paused


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandon work that ignores cancellation sooner."""
    monkeypatch.setattr(constants, "CANCEL_GRACE_SECONDS", 0.02)


async def stubborn(until: asyncio.Event) -> None:
    """Work that ignores being cancelled."""
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue


# -- turns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "order"),
    [
        ("...", ["+0 +1 +2", "-2 -1 -0"]),
        ("!..", ["+0", "-0", "+1 +2", "-2 -1"]),
        (".!.", ["+0", "-0", "+1", "-1", "+2", "-2"]),
        ("..!", ["+0 +1", "-1 -0", "+2", "-2"]),
        ("!!!", ["+0", "-0", "+1", "-1", "+2", "-2"]),
        ("..!..", ["+0 +1", "-1 -0", "+2", "-2", "+3 +4", "-4 -3"]),
    ],
)
async def test_exclusive_work_runs_alone_and_the_order_is_kept(alone: str, order: list[str]) -> None:
    mine = ToolUseOrder([mark == "!" for mark in alone])
    log: list[str] = []
    running: list[int] = []

    async def work(number: int) -> None:
        await mine.wait_turn(number)
        log.append(f"+{number}")
        running.append(number)
        for _ in range(20):  # long enough for all runnable tasks to arrive
            await asyncio.sleep(0)
        while running[-1] != number:  # the last one that began ends first
            await asyncio.sleep(0)
        running.pop()
        log.append(f"-{number}")
        mine.mark_finished(number)

    await asyncio.gather(*(work(number) for number in range(len(alone))))
    assert log == " ".join(order).split()


async def test_all_waiters_pass_after_the_last_one() -> None:
    mine = ToolUseOrder([False] * 3)
    waiting = asyncio.create_task(mine.wait_all_gated(0))
    for number in (2, 0, 0):
        mine.mark_gated(number)
        await asyncio.sleep(0)
        assert not waiting.done()
    mine.mark_finished(1)  # it ended before the gate
    await waiting


async def test_waiters_pass_in_the_order_of_their_numbers() -> None:
    mine, passed = ToolUseOrder([False] * 3), list[int]()

    async def decide(number: int) -> None:
        mine.mark_gated(number)
        await mine.wait_all_gated(number)
        passed.append(number)

    await asyncio.gather(decide(1), decide(0), decide(2))
    assert passed == [0, 1, 2]


async def test_one_alone_has_no_one_to_wait_for() -> None:
    mine = ToolUseOrder()
    await mine.wait_turn(0)
    mine.mark_gated(0)
    await mine.wait_all_gated(0)


# -- side by side -----------------------------------------------------------------------------------------------------


async def test_all_tasks_finish_despite_failures() -> None:
    done = []

    async def work(number: int, error: BaseException | None = None) -> None:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        if error is not None:
            raise error
        done.append(number)

    late, early = ValueError("late"), Paused("early")
    failures = await run_all([work(0), work(1, late), work(2), work(3, early)], ["a", "b", "c", "d"])
    assert failures == [late, early]
    assert sorted(done) == [0, 2]


async def test_abandoned_work_is_referenced(hasty: None) -> None:
    go, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await stubborn(go)
        ended.set()

    with pytest.raises(TimeoutError):
        await run_with_timeout(0.01, work(), "the mule")
    gc.collect()
    go.set()
    await ended.wait()


async def test_no_task_failed() -> None:
    assert await run_all([asyncio.sleep(0), asyncio.sleep(0)], ["a", "b"]) == []


async def test_work_that_cancels_itself_failed() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    (failure,) = await run_all([work()], ["a"])
    assert isinstance(failure, asyncio.CancelledError)


async def test_when_the_caller_is_cancelled_all_of_the_work_is() -> None:
    cancelled = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # tidying up takes a moment
            cancelled.append(number)
            raise

    task = asyncio.create_task(run_all([work(0), work(1)], ["a", "b"]))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [0, 1]


async def test_work_that_ignores_cancellation_is_abandoned_and_named(
    hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()
    task = asyncio.create_task(run_all([stubborn(go), asyncio.sleep(60)], ["mule", "lamb"]))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "mule was cancelled and did not end within 0.02 s; it is abandoned" in caplog.text
    assert "lamb" not in caplog.text
    go.set()


# -- within -----------------------------------------------------------------------------------------------------------


async def test_work_within_its_time_has_its_result() -> None:
    assert await run_with_timeout(5, asyncio.sleep(0, "here"), "it") == "here"


async def test_an_error_within_its_time_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_with_timeout(5, fail(), "it")


@pytest.mark.parametrize("iterations", [0, 1])
async def test_an_error_is_freed_without_the_garbage_collector(iterations: int) -> None:
    """A cycle of the error and its task would hold the run until the next collection."""

    class Wrong(Exception):
        """An error that can be referred to weakly."""

    raised: list[weakref.ref[Wrong]] = []

    async def fail() -> None:
        for _ in range(iterations):
            await asyncio.sleep(0)
        error = Wrong()
        raised.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.collect()
    gc.disable()
    try:
        with suppress(Wrong):
            await run_with_timeout(5, fail(), "it")
        assert len(await run_all([fail(), fail()], ["a", "b"])) == 2
        assert [error() for error in raised] == [None, None, None]
    finally:
        gc.enable()


async def test_work_beyond_its_time_is_cancelled() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    with pytest.raises(TimeoutError, match=r"the tortoise did not finish within 0\.01 s"):
        await run_with_timeout(0.01, slow(), "the tortoise")
    assert ended == ["cancelled"]


async def test_work_that_continues_after_its_timeout_is_abandoned(hasty: None) -> None:
    go = asyncio.Event()
    with pytest.raises(TimeoutError):
        await run_with_timeout(0.01, stubborn(go), "the mule")
    go.set()


async def test_cancelling_the_waiter_cancels_the_work() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.create_task(run_with_timeout(60, slow(), "it"))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_an_error_of_abandoned_work_is_ignored(hasty: None) -> None:
    """It would be logged as never retrieved, which fails a test here."""
    go = asyncio.Event()

    async def work() -> None:
        await stubborn(go)
        raise ValueError("too late")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancel_and_wait((task,))
    go.set()
    await asyncio.wait((task,))


async def test_ending_nothing_is_done_at_once() -> None:
    await cancel_and_wait(())


# -- closing ----------------------------------------------------------------------------------------------------------


async def test_an_unread_stream_is_closed() -> None:
    closed = []

    async def count() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    async with closing_stream(count()) as numbers:
        async for number in numbers:
            if number == 2:
                break
    assert closed == [True]


async def test_a_stream_that_cannot_be_closed_is_fine() -> None:
    class Numbers:
        left = 3

        def __aiter__(self) -> Numbers:
            return self

        async def __anext__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    async with closing_stream(Numbers()) as numbers:
        assert [number async for number in numbers] == [2, 1, 0]


async def test_detached_work_has_no_parent_task() -> None:
    whose = ContextVar("whose", default="nobody")
    whose.set("mine")

    async def work() -> str:
        return whose.get()

    assert (await work(), await run_detached(work())) == ("mine", "nobody")


@pytest.mark.parametrize("ticks", range(6))
async def test_detached_work_is_cancelled_with_its_waiter_or_finished(ticks: int) -> None:
    """At every moment it is either cancelled or its result is delivered."""
    seen = []

    async def work() -> str:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        seen.append("done")
        return "result"

    async def wait() -> None:
        seen.append(await run_detached(work()))

    task = asyncio.create_task(wait())
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert seen in ([], ["cancelled"], ["done", "result"])


async def test_errors_of_detached_work_are_raised() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async with asyncio.timeout(5):
        with pytest.raises(ZeroDivisionError):
            await run_detached(work())


async def test_detached_work_can_time_out() -> None:
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await run_detached(work())


async def test_waiting_for_a_task_leaves_its_outcome_and_its_life_alone() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        begun.set()
        await may_end.wait()
        raise ValueError("failed")

    task = asyncio.create_task(fail())
    waiters = [asyncio.create_task(wait_done(task)) for _ in range(2)]
    await begun.wait()
    waiters[0].cancel()
    await asyncio.wait(waiters[:1])
    assert waiters[0].cancelled() and not task.cancelled() and not waiters[1].done()
    may_end.set()
    await waiters[1]
    await wait_done(task)  # it has ended
    with pytest.raises(ValueError, match="failed"):
        await task
