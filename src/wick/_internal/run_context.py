"""Context of the current run, which also follows threads and executors that a tool uses.

    with run_context(run):      around a tool: an agent started in here is a child of `run`
        ...
    find_run()                  the run that the calling code belongs to, or None

A ContextVar follows awaits, tasks and `asyncio.to_thread`. It does not follow threads, executors or the pools of
`multiprocessing`, so that guards would not hold for an agent that a tool runs there. The first tool use therefore
instruments the places where Python hands work to a thread:

    threading.Thread.start               a thread belongs to the run that started it
    _thread.start_new_thread             the function remembers the run that started it
    concurrent.futures.thread._WorkItem  a work item remembers the run that submitted it
    concurrent.futures.Future            a callback remembers the run that added it
    multiprocessing.pool.ThreadPool      functions, callbacks and iterables remember the run that handed them over

Outside of a tool their behaviour is unchanged. See docs/decisions/0028-guards-follow-tools-into-threads.md.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import thread as executors
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from wick.operations import Run

P = ParamSpec("P")
T = TypeVar("T")

_current: ContextVar[Run | None] = ContextVar("wick_current_run", default=None)
_DETACHED = "_wick_detached"  # an attribute of threads that belong to no run
_lock = threading.Lock()
_instrumented: set[str] = set()


def find_run() -> Run | None:
    """Return the run that the calling code is part of, or None if it is part of no tool."""
    return _current.get()


@contextmanager
def run_context(run: Run) -> Iterator[None]:
    """Make every agent that is started inside, in whatever thread, a child of `run`."""
    if len(_instrumented) < 3:
        with _lock:
            _instrument_once("thread", _instrument_threads)
            _instrument_once("executor", _instrument_executors)
            if "multiprocessing.pool" in sys.modules:  # where it is not imported, there is no pool of it
                _instrument_once("pool", _instrument_pools)
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)


def detach_thread(thread: threading.Thread) -> threading.Thread:
    """Return a thread that belongs to no run, whichever starts it: a worker that serves several."""
    setattr(thread, _DETACHED, True)
    return thread


def _instrument_once(name: str, instrument: Callable[[], None]) -> None:
    if name not in _instrumented:
        instrument()
        _instrumented.add(name)


def _instrument_threads() -> None:
    start = threading.Thread.start

    @wraps(start)
    def start_in_context(self: threading.Thread) -> None:
        run = find_run()
        if run is not None and not _is_worker(self):
            _bind_thread(self, run)
        start(self)

    start_new_thread = _thread.start_new_thread  # `threading` has a reference of its own

    @wraps(start_new_thread)
    def start_raw_in_context(function: Callable[..., object], *args: Any) -> int:
        run = find_run()
        return start_new_thread(function if run is None else _bind_function(run, function), *args)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    _thread.start_new_thread = _thread.start_new = start_raw_in_context


def _bind_thread(thread: threading.Thread, run: Run) -> None:
    """Set the context variable first in a new thread, so that threads started from it inherit the run."""
    work, own = thread.run, thread.__dict__.get("run")

    def run_in_context() -> None:
        thread.__dict__.pop("run", None)  # break the cycle thread → function → thread
        if own is not None:
            thread.__dict__["run"] = own
        _current.set(run)
        work()

    thread.run = run_in_context  # type: ignore[method-assign]


def _is_worker(thread: threading.Thread) -> bool:
    """Return True for a thread of a pool: it also does work that other runs submit, and each item has its own run."""
    if getattr(thread, _DETACHED, False):
        return True
    target = getattr(thread, "_target", None)
    pool = sys.modules.get("multiprocessing.pool")
    return target is executors._worker or ("pool" in _instrumented and pool is not None and target is pool.worker)


def _instrument_executors() -> None:
    # Not `submit`: a program may hold a reference to the method from before the first tool use.
    module: Any = executors
    plain = module._WorkItem

    class WorkItem(plain):  # type: ignore[misc, valid-type]
        """A work item that runs as part of the run that submitted it."""

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self.submitted_by: Run | None = find_run()

        def run(self, *args: object) -> None:
            token = _current.set(self.submitted_by)
            try:
                super().run(*args)
            finally:
                self.submitted_by = None
                _current.reset(token)

    module._WorkItem = WorkItem
    add_done_callback = Future.add_done_callback

    @wraps(add_done_callback)
    def add_in_context(self: Future[Any], fn: Callable[[Future[Any]], object]) -> None:
        run = find_run()
        add_done_callback(self, fn if run is None else _bind_function(run, fn))

    Future.add_done_callback = add_in_context  # type: ignore[method-assign]


def _instrument_pools() -> None:
    pools = sys.modules["multiprocessing.pool"].ThreadPool
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        setattr(pools, name, _bind_submit(getattr(pools, name)))


def _bind_submit(method: Callable[..., T]) -> Callable[..., T]:
    @wraps(method)
    def submit(self: object, func: Callable[..., object], *args: object, **kwargs: object) -> T:
        run = find_run()
        if run is None:
            return method(self, func, *args, **kwargs)
        given = [_bind_argument(run, value) for value in args]
        more = {name: _bind_argument(run, value) for name, value in kwargs.items()}
        return method(self, _bind_function(run, func), *given, **more)

    return submit


def _bind_argument(run: Run, value: object) -> object:
    """Return an argument of a pool's method: its threads also call callbacks and iterate over iterables."""
    if isinstance(value, list | tuple | dict | set | str | bytes | range):
        return value
    if isinstance(value, Iterable):
        return _bind_items(run, value)
    return _bind_function(run, value) if callable(value) else value


def _bind_items(run: Run, items: Iterable[T]) -> Iterator[T]:
    """Yield items; the iterable's own code runs as part of the run."""
    iterator = _bind_function(run, items.__iter__)()
    take = _bind_function(run, iterator.__next__)
    while True:
        try:
            item = take()
        except StopIteration:
            return
        yield item


def _bind_function(run: Run, func: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls `func` as part of a run."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _current.set(run)
        try:
            return func(*args, **kwargs)
        finally:
            _current.reset(token)

    return call
