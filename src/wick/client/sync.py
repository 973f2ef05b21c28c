"""The blocking client: the same methods as `Client`, without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from wick.client.client import Client, Words
from wick.client.errors import ServerError
from wick.client.run_stream import RunStream
from wick.client.terminal import TerminalLink
from wick.events import Event

P = ParamSpec("P")
T = TypeVar("T")


class _LoopThread:
    """An event loop in a daemon thread, with blocking calls into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wick client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise ServerError("this client is closed; create a new one", "closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # also KeyboardInterrupt: cancel the abandoned coroutine
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def fetch_next() -> tuple[T, ...]:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return ()

        try:
            while item := self.wait(fetch_next()):
                yield item[0]
        finally:
            if not self._loop.is_closed() and (close := getattr(items, "aclose", None)) is not None:
                self.wait(close())

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop_thread.wait(method(self._client, *args, **kwargs))

    update_wrapper(call, method)
    return call


class SyncStream:
    """The events of a run: `for event in …`. `run_id` and `thread_id` are set once the first event is read."""

    def __init__(self, stream: RunStream, loop_thread: _LoopThread) -> None:
        self._stream, self._loop_thread = stream, loop_thread

    @property
    def run_id(self) -> str:
        return self._stream.run_id

    @property
    def thread_id(self) -> str:
        return self._stream.thread_id

    @property
    def last_id(self) -> str:
        return self._stream.last_id

    @property
    def on_break(self) -> Callable[[ServerError], None] | None:
        """The function that the client's thread calls with an error before each reconnect."""
        return self._stream.on_break

    @on_break.setter
    def on_break(self, call: Callable[[ServerError], None] | None) -> None:
        self._stream.on_break = call

    def __iter__(self) -> Iterator[Event]:
        return self._loop_thread.iterate(aiter(self._stream))


class SyncTerminal:
    """A shell in an agent's workspace: `with client.terminal(…) as shell`."""

    def __init__(self, link: TerminalLink, loop_thread: _LoopThread) -> None:
        self._link, self._loop_thread = link, loop_thread

    def read(self) -> bytes:
        """Return the next output bytes; empty at the end."""
        return self._loop_thread.wait(self._link.read())

    def write(self, data: bytes) -> None:
        """Send input bytes."""
        self._loop_thread.wait(self._link.write(data))

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        self._loop_thread.wait(self._link.resize(rows, columns))

    def __enter__(self) -> Self:
        self._loop_thread.wait(self._link.open())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop_thread.wait(self._link.close())


class SyncClient:
    """A client for programs that are not async: the methods of `Client`, without `await`."""

    def __init__(self, url: str, token: str = "", *, timeout: float | None = None, patience: float = 60.0) -> None:
        self._client = Client(url, token, timeout=timeout, patience=patience)
        self._loop_thread = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the event loop."""
        try:
            self._loop_thread.wait(self._client.close())
        finally:
            self._loop_thread.stop()

    def stream(
        self,
        agent: str,
        words: Words,
        *,
        thread_id: str | None = None,
        recipe: str = "",
        key: str = "",
        model: str = "",
    ) -> SyncStream:
        """Start a run, and iterate over its events: `for event in …`."""
        stream = self._client.stream(agent, words, thread_id=thread_id, recipe=recipe, key=key, model=model)
        return SyncStream(stream, self._loop_thread)

    def follow(self, run_id: str, *, after: str = "") -> SyncStream:
        """Iterate over the events of an existing run."""
        return SyncStream(self._client.follow(run_id, after=after), self._loop_thread)

    def download(self, agent: str, path: str) -> Iterator[bytes]:
        """Yield the content of a workspace file in chunks."""
        return self._loop_thread.iterate(self._client.download(agent, path))

    def terminal(self, agent: str, *, rows: int = 24, columns: int = 80) -> SyncTerminal:
        """Return a shell in the agent's workspace."""
        return SyncTerminal(self._client.terminal(agent, rows=rows, columns=columns), self._loop_thread)

    invoke = _blocking(Client.invoke)
    send = _blocking(Client.send)
    run = _blocking(Client.run)
    cancel = _blocking(Client.cancel)
    trace = _blocking(Client.trace)
    threads = _blocking(Client.threads)
    search = _blocking(Client.search)
    thread = _blocking(Client.thread)
    describe_thread = _blocking(Client.describe_thread)
    delete_thread = _blocking(Client.delete_thread)
    fork = _blocking(Client.fork)
    rewind = _blocking(Client.rewind)
    switch_branch = _blocking(Client.switch_branch)
    file_changes = _blocking(Client.file_changes)
    restore_files = _blocking(Client.restore_files)
    export = _blocking(Client.export)
    thread_runs = _blocking(Client.thread_runs)
    replay = _blocking(Client.replay)
    why = _blocking(Client.why)
    approvals = _blocking(Client.approvals)
    answer = _blocking(Client.answer)
    agents = _blocking(Client.agents)
    agent = _blocking(Client.agent)
    create_agent = _blocking(Client.create_agent)
    delete_agent = _blocking(Client.delete_agent)
    onion = _blocking(Client.onion)
    hooks = _blocking(Client.hooks)
    change_hooks = _blocking(Client.change_hooks)
    permissions = _blocking(Client.permissions)
    revoke_grant = _blocking(Client.revoke_grant)
    limits = _blocking(Client.limits)
    skills = _blocking(Client.skills)
    switch_skills = _blocking(Client.switch_skills)
    upload_skill = _blocking(Client.upload_skill)
    list_files = _blocking(Client.list_files)
    read_file = _blocking(Client.read_file)
    write_file = _blocking(Client.write_file)
    move_file = _blocking(Client.move_file)
    delete_file = _blocking(Client.delete_file)
    export_slides = _blocking(Client.export_slides)
    health = _blocking(Client.health)
    drain = _blocking(Client.drain)
    cluster = _blocking(Client.cluster)
    me = _blocking(Client.me)
    usage = _blocking(Client.usage)
    request = _blocking(Client.request)
