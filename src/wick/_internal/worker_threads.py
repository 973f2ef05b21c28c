"""Threads for functions that block.

    value = await in_thread(fn, "grep")    fn() in a thread of its own, with the caller's context variables
    abandoned()                            the names of threads still at work that nobody waits for

The threads are daemons, and not those of an executor: Python joins an executor's threads
before it exits, so one function that hangs would keep the whole process from ending.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeVar

from wick._internal.run_context import detach_thread

T = TypeVar("T")

IDLE_SECONDS = 10.0  # a thread with nothing to do ends after this long


@dataclass(slots=True, eq=False)
class _Work:
    fn: Callable[[], Any]
    name: str
    context: Context
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[tuple[Any, BaseException | None]]
    is_abandoned: bool = False

    def run(self) -> tuple[Any, BaseException | None]:
        if self.is_abandoned:  # nobody waits any more, and nothing has begun
            return None, None
        current_thread().name = f"wick {self.name}"
        try:
            return self.context.run(self.fn), None
        except BaseException as error:  # whatever it is, it belongs to the one who waits
            return None, error

    def deliver(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


_Inbox = SimpleQueue[_Work]
_idle: deque[_Inbox] = deque()  # its append, pop and remove are atomic: no lock, also none for a fork to copy locked
_running: set[_Work] = set()


async def run_in_thread(fn: Callable[[], T], name: str) -> T:
    """Run a function in a thread and wait for its result; if the waiting is cancelled, the thread is abandoned."""
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
    finally:  # what knows the error is known by it: only a search for garbage would free either
        del work.answer, work, error


def list_abandoned() -> list[str]:
    """The names of threads still at work that nobody waits for."""
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
            with suppress(ValueError):  # not among the idle: work is on its way
                _idle.remove(inbox)
                return
            continue
        outcome = work.run()
        _running.discard(work)
        current_thread().name = "wick"
        _idle.append(inbox)  # before the answer, so that whoever gets it can use this thread again
        with suppress(RuntimeError):  # the loop may be closed by now
            work.loop.call_soon_threadsafe(work.deliver, outcome)
        del work, outcome  # an idle thread keeps nothing alive


def _reset_after_fork() -> None:
    """After a fork the threads are gone, and only their inboxes are left."""
    _idle.clear()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
