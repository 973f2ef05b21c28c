"""A connection to an MCP server, from when it is made until it has ended, and those of a program.

A connection belongs to one task of its own, for what the `mcp` package opens must be closed by the task that opened it.
It ends when it is closed, when the server goes away, or with the event loop; and a program ends with its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from wick import constants
from wick._internal.prompt_text import one_line
from wick._internal.tasks import cancel_and_wait
from wick._internal.worker_threads import in_thread
from wick.capabilities.mcp.config import McpServer
from wick.capabilities.mcp.transports import McpServerStatus, load_mcp, open_client
from wick.errors import ToolError, Uncertain

T = TypeVar("T")

CLOSED = -32000  # the code of an answer that cannot come any more
UNKNOWN = "whether it took effect is unknown"
MAX_PAGES = 100  # of a list
SHOWN_CHARS = 300  # of somebody else's words in a sentence of ours


class McpConnection:
    """A connection to one server, from when it is made until it has ended; a new one is made then."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.is_closed = False
        self._close, self._failure = asyncio.Event(), ""
        self._was_refused = False  # a service that was not there to take a request
        self._pending_requests = 0
        self._known_tools: list[Any] | None = None
        self._status = McpServerStatus()
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # It is nobody's child: what the run that came first has in its context is not that of the others.
        self.task = asyncio.create_task(self._run_connection(), name=f"MCP server {server.name}", context=Context())

    async def wait_connected(self) -> McpConnection:
        """Wait until the server has said that it is there; a ToolError says why it is not."""
        seconds = constants.MCP_CONNECT_SECONDS
        await asyncio.wait((self._client, self.task), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._client.done() and not self.is_closed:
            return self
        if not self.task.done():
            self._failure = self._failure or f"it did not answer within {seconds:g} s"
            await self.close()
        raise ToolError(f"the MCP server {self.server.name} cannot be reached: {self._explain_end()}")

    @property
    def abilities(self) -> Any:
        """What the server says that it has."""
        return self._client.result().server_capabilities

    async def tools(self, *, fresh: bool = False) -> list[Any]:
        """The definitions of its tools; asked for again when they may have changed."""
        if self._known_tools is None or fresh:
            found = await self._list_pages("list_tools", "tools", constants.MCP_TOOLS) if self.abilities.tools else []
            self._known_tools = [*{made.name: made for made in reversed(found)}.values()][
                ::-1
            ]  # the first of each name
        return self._known_tools

    async def resources(self) -> list[Any]:
        return await self._list_pages("list_resources", "resources", constants.MCP_LIST)

    async def prompts(self) -> list[Any]:
        return await self._list_pages("list_prompts", "prompts", constants.MCP_LIST)

    async def _list_pages(self, verb: str, field: str, most: int) -> list[Any]:
        """A list that comes in pieces, up to the most that is wanted of it."""
        found: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.server.seconds):
                for _ in range(MAX_PAGES):
                    page = await self.request(partial(_fetch_page, verb, cursor), changes=False)
                    found += getattr(page, field)
                    if not page.next_cursor or page.next_cursor == cursor or len(found) >= most:
                        break
                    cursor = page.next_cursor
        except TimeoutError:
            name, seconds = self.server.name, self.server.seconds
            raise ToolError(f"the MCP server {name} did not list its {field} within {seconds:g} s") from None
        return found[:most]

    async def request(self, question: Callable[[Any], Awaitable[T]], *, changes: bool = True) -> T:
        """What the server answers. If it goes away meanwhile, what `changes` something is Uncertain."""
        work = asyncio.ensure_future(question(self._client.result()))
        self._pending_requests += 1
        try:
            await asyncio.wait((work, self.task), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled() and work.exception() is None:
                return work.result()
            raise await self._build_error(work, changes)
        finally:
            self._pending_requests -= 1
            if not work.done():
                await cancel_and_wait((work,))

    async def _build_error(self, work: asyncio.Future[Any], changes: bool) -> Exception:
        """Why there is no answer, as what a tool raises."""
        error = work.exception() if work.done() and not work.cancelled() else None
        name, code = self.server.name, getattr(error, "code", None)
        if error is not None and code != CLOSED and not self.is_closed:
            if "Session terminated" in str(error):  # it was started anew
                await self.close()
            return ToolError(f"the MCP server {name} answered: {_format_error(error)}")
        alone = self._pending_requests == 1
        await self.close()  # whatever is left of the connection is of no use
        told = f"the MCP server {name} went away: {self._explain_end()}; it is connected to again when it is next used"
        return Uncertain(f"{told}; {UNKNOWN}") if changes and not (self._was_refused and alone) else ToolError(told)

    async def close(self) -> None:
        """End the connection, and the program behind it."""
        self._close.set()
        if not self._client.done():  # it still waits for the server to say something
            self.task.cancel()
        await asyncio.wait((self.task,), timeout=3 * constants.MCP_CLOSE_SECONDS + 1)
        if not self.task.done():
            await cancel_and_wait((self.task,))

    def _explain_end(self) -> str:
        words = one_line(self._status.stderr_text, SHOWN_CHARS)
        known = self._status.reason or self._failure or "its connection was closed"
        return known + (f" (it wrote: {words})" if words else "")

    async def _run_connection(self) -> None:
        try:
            await in_thread(load_mcp, "loading mcp")  # which takes a while
            async with open_client(self.server, self._status, self._on_message) as opened:
                self._client.set_result(opened)
                await self._wait_closed()
        except Exception as error:
            causes = [*_flatten_errors(error)]
            self._was_refused = any(type(cause).__name__ in ("ConnectError", "ConnectTimeout") for cause in causes)
            self._failure = self._failure or _format_error(causes[0])
        finally:
            self.is_closed = True
            self._client.cancel()

    async def _wait_closed(self) -> None:
        """Wait until it is closed, from here or from there."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._close, self._status.exited)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_closed = True
            for wait in waits:
                wait.cancel()

    async def _on_message(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._known_tools = None


def _fetch_page(verb: str, cursor: str | None, client: Any) -> Awaitable[Any]:
    page: Awaitable[Any] = getattr(client, verb)(cursor=cursor)
    return page


def _flatten_errors(error: BaseException) -> Iterable[BaseException]:
    """What a group of errors is made of."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from _flatten_errors(inner)


def _format_error(error: BaseException) -> str:
    return one_line(str(error), SHOWN_CHARS) or type(error).__name__


class McpConnections:
    """The connections of each event loop, made when they are first needed."""

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, dict[str, McpConnection]] = {}

    async def connect(self, server: McpServer) -> McpConnection:
        """A connection that is there; if there was one, and it has ended, a new one."""
        loop = asyncio.get_running_loop()
        links = self._loops.setdefault(loop, {})
        link = links.get(server.name)
        if link is None or link.is_closed:
            link = links[server.name] = McpConnection(server)
            link.task.add_done_callback(partial(self._remove, loop, link))
        return await link.wait_connected()

    def _remove(self, loop: asyncio.AbstractEventLoop, link: McpConnection, task: object) -> None:
        """Nothing is left of a connection that has ended, nor of an event loop without any."""
        links = self._loops.get(loop, {})
        if links.get(link.server.name) is link:
            del links[link.server.name]
        if not links:
            self._loops.pop(loop, None)

    async def request(self, server: McpServer, question: Callable[[McpConnection], Awaitable[T]]) -> T:
        """The answer to a question that changes nothing; if the server has gone away, it is asked again, once."""
        link = await self.connect(server)
        try:
            return await question(link)
        except ToolError:
            if not link.is_closed:
                raise
        return await question(await self.connect(server))

    async def close(self) -> None:
        """End those of this event loop."""
        links = self._loops.get(asyncio.get_running_loop(), {})
        await asyncio.gather(*(link.close() for link in [*links.values()]))
