"""Threads for functions that block.

    value = await run_in_thread(fn, "grep")    fn() in a thread, with the caller's context variables
    start_in_thread(fn, "cleanup")             fn() in a thread, without waiting for it
    list_abandoned()                           the names of abandoned functions that still run

The threads are daemon threads instead of executor threads: Python joins executor threads at exit,
so a function that hangs would block the exit of the process.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeVar

from wick._internal.run_context import detach_thread

T = TypeVar("T")

IDLE_SECONDS = 10.0  # an idle thread exits after this time


@dataclass(slots=True, eq=False)
class _Work:
    fn: Callable[[], Any]
    name: str
    context: Context
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[tuple[Any, BaseException | None]]
    is_abandoned: bool = False

    def run(self) -> tuple[Any, BaseException | None]:
        if self.is_abandoned:  # cancelled before it started
            return None, None
        current_thread().name = f"wick {self.name}"
        try:
            return self.context.run(self.fn), None
        except BaseException as error:  # every error is raised in the caller
            return None, error
        finally:
            del self.fn  # this thread may hold the work for a moment longer than its caller needs the function

    def deliver(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


_Inbox = SimpleQueue[_Work]
_idle: deque[_Inbox] = deque()  # append, pop and remove are atomic; a lock could be copied in locked state by a fork
_running: set[_Work] = set()


async def call_function(fn: Callable[..., Any], *args: Any, name: str) -> Any:
    """Call a function of a user and return its result. A function that is not async runs in a thread."""
    if iscoroutinefunction(fn) or iscoroutinefunction(type(fn).__call__):
        return await fn(*args)
    result = await run_in_thread(lambda: fn(*args), name)
    return await result if isawaitable(result) else result


async def run_in_thread(fn: Callable[[], T], name: str) -> T:
    """Run a function in a thread and await its result. If the caller is cancelled, the thread is abandoned."""
    loop = asyncio.get_running_loop()
    work = _Work(fn, name, copy_context(), loop, loop.create_future())
    _running.add(work)
    try:
        _dispatch(work)
    except BaseException:
        _running.discard(work)
        raise
    try:
        value, error = await work.answer
    except asyncio.CancelledError:
        work.is_abandoned = True
        raise
    if error is None:
        return value  # type: ignore[no-any-return]
    try:
        raise error
    finally:  # break the cycle error → traceback → frame → error
        del work.answer, work, error


def start_in_thread(fn: Callable[[], object], name: str) -> None:
    """Start a function in a thread that belongs to no run. Its result and its errors are dropped."""
    loop = asyncio.get_running_loop()
    _dispatch(_Work(fn, name, Context(), loop, loop.create_future()))


def list_abandoned() -> list[str]:
    """Return the names of abandoned functions that still run."""
    return sorted(work.name for work in _running.copy() if work.is_abandoned)


def _dispatch(work: _Work) -> None:
    try:
        _idle.pop().put(work)
    except IndexError:
        inbox: _Inbox = SimpleQueue()
        inbox.put(work)
        detach_thread(Thread(target=_serve_inbox, args=(inbox,), name="wick", daemon=True)).start()


def _serve_inbox(inbox: _Inbox) -> None:
    while True:
        try:
            work = inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            with suppress(ValueError):  # not idle any more: work was dispatched meanwhile
                _idle.remove(inbox)
                return
            continue
        outcome = work.run()
        _running.discard(work)
        current_thread().name = "wick"
        _idle.append(inbox)  # before the result is delivered, so that its receiver can reuse this thread
        with suppress(RuntimeError):  # the loop may be closed by now
            work.loop.call_soon_threadsafe(work.deliver, outcome)
        del work, outcome  # an idle thread must not keep objects alive


def _reset_after_fork() -> None:
    """Clear the state in a forked child, which has no worker threads."""
    _idle.clear()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
