"""Tools of the server: native tools of the program that runs it, and HTTP tools that operators register.

Since operators register HTTP tools, their address may be private. An agent has a tool if its config names it, or if
the tool was registered for that agent or for all agents (`*`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wick._internal.aliases import ARGUMENTS, resolve_tool_name
from wick._internal.worker_threads import run_in_thread
from wick.capability import Capability
from wick.config.builder import BUILTIN
from wick.errors import ConfigError
from wick.server.agents.templates import EVERYONE
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.records import Records
from wick.tools import HttpTool, Tool, tool

KIND = "tool"
MAX_TOOLS = 500  # HTTP tools
RESERVED_NAMES = frozenset(
    (*BUILTIN, *ARGUMENTS, "write_todos", "update_todo", "load_skill", "ls", "ask_user", "execute")
)


class Registered(Capability):
    """Capability that provides the tools of the server."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = [*tools]

    def tools(self) -> list[Tool]:
        return self._tools


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """An HTTP tool as it was registered."""

    name: str
    owner: str
    data: Mapping[str, Any]

    def create_tool(self) -> Tool:
        options = {key: self.data[key] for key in ("description", "parameters", "callback_url", "timeout", "headers")}
        return HttpTool(self.name, **options, read_only=self.data.get("read_only", False))

    def is_assigned_to(self, agent: str) -> bool:
        return not {agent, "*"}.isdisjoint(self.data.get("agents", ()))


class ToolRegistry:
    """The native and HTTP tools of a server."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.native: dict[str, Tool] = {}

    def register(self, given: Tool | Callable[..., Any]) -> None:
        """Add a native tool of the program that runs the server."""
        native = given if isinstance(given, Tool) else tool(given)
        if native.name in self.native:
            raise ConfigError(f"there is a tool named {native.name!r} already; give this one another name")
        self.native[native.name] = native

    async def list_registered(self, user: User) -> list[RegisteredTool]:
        """Return the HTTP tools that this user's agents may have."""
        rows = [*await self.records.list(KIND, EVERYONE), *await self.records.list(KIND, user.id)]
        found = {row.id: RegisteredTool(row.id, row.owner, row.data) for row in rows}
        return [*found.values()]

    async def list_names(self, user: User) -> set[str]:
        """Return every tool name that this user's agents may list in `tools`."""
        return {*self.native, *(one.name for one in await self.list_registered(user))}

    async def add(self, user: User, name: str, data: Mapping[str, Any], *, shared: bool) -> RegisteredTool:
        """Register an HTTP tool, replacing an earlier one of the same owner."""
        if resolve_tool_name(name) in RESERVED_NAMES or name in self.native:
            raise ApiError(409, "conflict", f"there is a tool named {name!r} already; choose another name")
        owner = EVERYONE if shared else user.id
        registered = RegisteredTool(name, owner, data)
        await run_in_thread(
            lambda: registered.create_tool().schema, "schema"
        )  # an invalid schema is refused now, not during a run
        there = {one.name: one for one in await self.list_registered(user)}
        if name in there and there[name].owner != owner:
            raise ApiError(409, "conflict", f"there is a tool named {name!r} already; deregister it first")
        if name not in there and len(there) >= MAX_TOOLS:
            raise ApiError(409, "conflict", f"there are {MAX_TOOLS} tools already; deregister one first")
        await self.records.put(KIND, owner, name, data)
        return registered

    async def remove(self, user: User, name: str) -> RegisteredTool:
        for registered in await self.list_registered(user):
            if registered.name == name:
                await self.records.delete(KIND, registered.owner, name)
                return registered
        raise ApiError(404, "not_found", f"there is no registered tool {name[:100]!r}")

    def select_tools(self, agent: str, named: Sequence[Any], registered: Iterable[RegisteredTool]) -> list[Tool]:
        """Return the tools of the server that an agent has."""
        native = [found for name, found in self.native.items() if name in named]
        return native + [one.create_tool() for one in registered if one.name in named or one.is_assigned_to(agent)]
