"""Functions that block run in threads, and a thread that hangs holds up nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar
from pathlib import Path

import pytest

from wick._internal import worker_threads
from wick._internal.worker_threads import call_function, list_abandoned, run_in_thread
from wick.errors import Paused

SOURCE = str(Path(__file__).parents[3] / "src")
colour: ContextVar[str] = ContextVar("colour", default="none")


async def until_nothing_is_abandoned() -> None:
    while list_abandoned():
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _nothing_is_abandoned() -> None:
    """Wait for work that earlier tests have abandoned."""
    while list_abandoned():
        time.sleep(0.005)


async def test_a_worker_thread_returns_the_result() -> None:
    assert await run_in_thread(threading.get_ident, "ident") != threading.get_ident()


async def test_the_event_loop_is_not_blocked() -> None:
    go = threading.Event()
    waiting = asyncio.create_task(run_in_thread(lambda: go.wait(10), "wait"))
    await asyncio.sleep(0)
    go.set()
    assert await waiting is True


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), Paused("later"), KeyError("x")])
async def test_any_exception_reaches_the_waiter(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await run_in_thread(fail, "fail")
    assert caught.value is error


async def test_stop_iteration_is_an_ordinary_error() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_thread(lambda: next(iter(())), "next")


async def test_context_variables_are_copied_to_the_thread() -> None:
    colour.set("red")

    def look() -> str:
        seen = colour.get()
        colour.set("blue")
        return seen

    assert await run_in_thread(look, "look") == "red"
    assert colour.get() == "red"


async def test_a_thread_carries_the_name_of_its_work() -> None:
    assert await run_in_thread(lambda: threading.current_thread().name, "grep") == "wick grep"


async def test_idle_threads_are_used_again() -> None:
    first = await run_in_thread(threading.get_ident, "one")
    assert {await run_in_thread(threading.get_ident, "more") for _ in range(20)} == {first}


async def test_busy_threads_do_not_block_others() -> None:
    together = threading.Barrier(20, timeout=20)
    places = await asyncio.gather(*(run_in_thread(together.wait, str(index)) for index in range(20)))
    assert sorted(places) == list(range(20))


async def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.01)
    worker_threads._idle.clear()  # those that wait longer
    thread = await run_in_thread(threading.current_thread, "short")
    thread.join(20)
    assert not thread.is_alive() and not worker_threads._idle
    assert await run_in_thread(lambda: "new", "new") == "new"


async def test_work_submitted_as_a_thread_ends_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "IDLE_SECONDS", 0.0001)
    worker_threads._idle.clear()
    for index in range(500):
        assert await run_in_thread(lambda index=index: index, "race") == index  # type: ignore[misc]
        await asyncio.sleep(0.0001)


async def test_cancelled_work_is_abandoned_and_named() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(20)

    task = asyncio.create_task(run_in_thread(work, "slow one"))
    await run_in_thread(lambda: begun.wait(20), "see it begin")
    assert list_abandoned() == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list_abandoned() == ["slow one"]
    go.set()
    await until_nothing_is_abandoned()


async def test_abandoned_work_may_fail_unseen() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(20)
        raise ValueError("not reported")

    task = asyncio.create_task(run_in_thread(work, "fails"))
    await run_in_thread(lambda: begun.wait(20), "see it begin")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await until_nothing_is_abandoned()


def test_work_may_end_after_its_loop() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(20)

    async def leave() -> None:
        task = asyncio.create_task(run_in_thread(work, "late"))
        await run_in_thread(lambda: begun.wait(20), "see it begin")
        task.cancel()

    asyncio.run(leave())
    assert list_abandoned() == ["late"]
    go.set()
    while list_abandoned():
        time.sleep(0.005)
    assert asyncio.run(run_in_thread(lambda: 1, "next")) == 1


async def test_an_idle_thread_holds_no_references() -> None:
    class Thing:
        pass

    thing = Thing()
    seen = weakref.ref(thing)
    await run_in_thread(lambda thing=thing: None, "hold")  # type: ignore[misc]
    del thing
    while seen() is not None:  # the thread lets go a moment after it has answered
        gc.collect()
        await asyncio.sleep(0.005)


def test_the_process_exits_although_a_thread_hangs() -> None:
    program = """
import asyncio, threading
from wick._internal.worker_threads import call_function, list_abandoned, run_in_thread

async def main():
    begun = threading.Event()
    task = asyncio.create_task(run_in_thread(lambda: (begun.set(), threading.Event().wait()), "hangs"))
    await run_in_thread(begun.wait, "begin")
    task.cancel()
    await asyncio.wait([task])
    print(list_abandoned())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": SOURCE}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['hangs']\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os, signal
from wick._internal.worker_threads import run_in_thread

asyncio.run(run_in_thread(lambda: None, "parent"))
child = os.fork()
if child == 0:
    signal.alarm(30)
    print(asyncio.run(run_in_thread(lambda: "child", "child")), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": SOURCE}
    )
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr


async def test_a_handled_error_is_released_at_once() -> None:
    """Its traceback refers to every frame, and those to the data of a request."""

    class Known(ValueError):
        """One that can be referred to weakly."""

    def fail() -> None:
        raise Known("no")

    gc.collect()
    gc.disable()
    try:
        try:
            await run_in_thread(fail, "failing")
        except Known as error:
            known = weakref.ref(error)
        for _ in range(1_000):  # the Python thread that has raised it forgets it, too
            if known() is None:
                break
            await asyncio.sleep(0.005)
        assert known() is None
    finally:
        gc.enable()


class Doubling:
    async def __call__(self, number: int) -> int:
        return 2 * number


async def test_functions_of_users_are_called_on_the_loop_or_in_a_thread() -> None:
    here = threading.current_thread()

    async def is_here(number: int) -> bool:
        return number == 1 and threading.current_thread() is here

    assert await call_function(is_here, 1, name="async") is True
    assert await call_function(Doubling(), 2, name="object") == 4
    assert await call_function(lambda: threading.current_thread() is here, name="sync") is False
    assert await call_function(lambda number: is_here(number), 1, name="returns an awaitable") is True
