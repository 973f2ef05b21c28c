"""Connections to MCP servers, one per server and event loop.

Each connection has its own task: the `mcp` package must close its resources in the task that opened them. A connection
ends when it is closed, when the server disconnects, or with the event loop. A server program ends with its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from operator import methodcaller
from typing import Any, TypeVar

from wick import constants
from wick._internal.prompt_text import to_one_line
from wick._internal.tasks import cancel_and_wait
from wick._internal.worker_threads import run_in_thread
from wick.capabilities.mcp.config import McpServer
from wick.capabilities.mcp.transports import McpServerStatus, load_mcp, open_client
from wick.errors import ToolError, Uncertain

T = TypeVar("T")

CLOSED = -32000  # error code of a closed connection
UNKNOWN = "whether it took effect is unknown"
MAX_PAGES = 100  # of a list
SHOWN_CHARS = 300  # of server text in an error message


class McpConnection:
    """A connection to one server. It is not reopened: after its end a new one is created."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.is_closed = False
        self._close, self._failure = asyncio.Event(), ""
        self._was_refused = False  # the service refused the connection, so no request was sent
        self._pending_requests = 0
        self._known_tools: list[Any] | None = None
        self._status = McpServerStatus()
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # An empty context: the context variables of the first run must not leak into other runs.
        self.task = asyncio.create_task(self._run_connection(), name=f"MCP server {server.name}", context=Context())

    async def wait_connected(self) -> McpConnection:
        """Wait for the handshake with the server; raise a ToolError if it fails."""
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
        """Return the capabilities that the server declared."""
        return self._client.result().server_capabilities

    async def tools(self, *, fresh: bool = False) -> list[Any]:
        """Return the tool definitions; fetch them again after a change notification or with `fresh`."""
        if self._known_tools is None or fresh:
            listed = await self._list_pages("list_tools", "tools", constants.MCP_TOOLS) if self.abilities.tools else []
            self._known_tools = [*{tool.name: tool for tool in reversed(listed)}.values()][::-1]  # first of each name
        return self._known_tools

    async def resources(self) -> list[Any]:
        return await self._list_pages("list_resources", "resources", constants.MCP_LIST)

    async def prompts(self) -> list[Any]:
        return await self._list_pages("list_prompts", "prompts", constants.MCP_LIST)

    async def _list_pages(self, verb: str, field: str, most: int) -> list[Any]:
        """Return a paginated list, up to `most` items."""
        items: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.server.seconds):
                for _ in range(MAX_PAGES):
                    page: Any = await self.request(methodcaller(verb, cursor=cursor), changes=False)
                    items += getattr(page, field)
                    if not page.next_cursor or page.next_cursor == cursor or len(items) >= most:
                        break
                    cursor = page.next_cursor
        except TimeoutError:
            name, seconds = self.server.name, self.server.seconds
            raise ToolError(f"the MCP server {name} did not list its {field} within {seconds:g} s") from None
        return items[:most]

    async def request(self, question: Callable[[Any], Awaitable[T]], *, changes: bool = True) -> T:
        """Return the server's answer. After a disconnect, raise Uncertain for a request that `changes` state."""
        work = asyncio.ensure_future(question(self._client.result()))
        self._pending_requests += 1
        try:
            await asyncio.wait((work, self.task), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled() and work.exception() is None:
                return work.result()
            error = work.exception() if work.done() and not work.cancelled() else None
            name, code = self.server.name, getattr(error, "code", None)
            if error is not None and code != CLOSED and not self.is_closed:
                if "Session terminated" in str(error):  # the server was restarted
                    await self.close()
                raise ToolError(f"the MCP server {name} answered: {_format_error(error)}")
            alone = self._pending_requests == 1
            await self.close()  # the connection cannot be used again
            again = "it is connected to again when it is next used"
            reason = f"the MCP server {name} went away: {self._explain_end()}; {again}"
            if changes and not (self._was_refused and alone):
                raise Uncertain(f"{reason}; {UNKNOWN}")
            raise ToolError(reason)
        finally:
            self._pending_requests -= 1
            if not work.done():
                await cancel_and_wait((work,))

    async def close(self) -> None:
        """Close the connection, and stop its program."""
        self._close.set()
        if not self._client.done():  # the handshake is still pending
            self.task.cancel()
        await asyncio.wait((self.task,), timeout=3 * constants.MCP_CLOSE_SECONDS + 1)
        if not self.task.done():
            await cancel_and_wait((self.task,))

    def _explain_end(self) -> str:
        words = to_one_line(self._status.stderr_text, SHOWN_CHARS)
        known = self._status.reason or self._failure or "its connection was closed"
        return known + (f" (it wrote: {words})" if words else "")

    async def _run_connection(self) -> None:
        async def hear(message: Any) -> None:
            if type(message).__name__ == "ToolListChangedNotification":
                self._known_tools = None

        try:
            await run_in_thread(load_mcp, "loading mcp")  # the import is slow
            async with open_client(self.server, self._status, hear) as opened:
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
        """Wait until either side closes the connection."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._close, self._status.exited)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_closed = True
            for wait in waits:
                wait.cancel()


def _flatten_errors(error: BaseException) -> Iterable[BaseException]:
    """Yield the leaf errors of an exception group."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from _flatten_errors(inner)


def _format_error(error: BaseException) -> str:
    return to_one_line(str(error), SHOWN_CHARS) or type(error).__name__


class McpConnections:
    """The connections of each event loop, opened on demand."""

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, dict[str, McpConnection]] = {}

    async def connect(self, server: McpServer) -> McpConnection:
        """Return the open connection to a server; open one if none is open or it has ended."""
        loop = asyncio.get_running_loop()
        links = self._loops.setdefault(loop, {})
        link = links.get(server.name)
        if link is None or link.is_closed:
            opened = link = links[server.name] = McpConnection(server)

            def remove(task: object) -> None:
                if links.get(server.name) is opened:
                    del links[server.name]
                if not links and self._loops.get(loop) is links:
                    del self._loops[loop]

            opened.task.add_done_callback(remove)
        return await link.wait_connected()

    async def request(self, server: McpServer, question: Callable[[McpConnection], Awaitable[T]]) -> T:
        """Return the answer to a read-only request; retry once if the server has disconnected."""
        link = await self.connect(server)
        try:
            return await question(link)
        except ToolError:
            if not link.is_closed:
                raise
        return await question(await self.connect(server))

    async def close(self) -> None:
        """Close the connections of this event loop."""
        links = self._loops.get(asyncio.get_running_loop(), {})
        await asyncio.gather(*(link.close() for link in [*links.values()]))
