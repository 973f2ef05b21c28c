"""The tools of a server beside those that agents bring: of the program that runs it, and behind HTTP.

A tool behind HTTP is registered by an operator, so it may be on a private address. An agent has a tool if its config
names it, or if the tool was registered for that agent, or for all of them (`*`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wick._internal.aliases import ARGUMENTS, tool_name
from wick._internal.worker_threads import in_thread
from wick.capability import Capability
from wick.config.builder import BUILTIN
from wick.errors import ConfigError
from wick.server.agents.templates import EVERYONE
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.records import Records
from wick.tools import HttpTool, Tool, tool

KIND = "tool"
MAX_TOOLS = 500  # tools behind HTTP
RESERVED_NAMES = frozenset(
    (*BUILTIN, *ARGUMENTS, "write_todos", "update_todo", "load_skill", "ls", "ask_user", "execute")
)


class Registered(Capability):
    """Brings the tools that were registered with the server."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = [*tools]

    def tools(self) -> list[Tool]:
        return self._tools


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool behind HTTP, as it was registered."""

    name: str
    owner: str
    data: Mapping[str, Any]

    def create_tool(self) -> Tool:
        told = {key: self.data[key] for key in ("description", "parameters", "callback_url", "timeout", "headers")}
        return HttpTool(self.name, **told, read_only=self.data.get("read_only", False))

    def is_assigned_to(self, agent: str) -> bool:
        return not {agent, "*"}.isdisjoint(self.data.get("agents", ()))


class ToolRegistry:
    """The tools of a server."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.native: dict[str, Tool] = {}

    def register(self, given: Tool | Callable[..., Any]) -> None:
        """Add a function of the program that runs the server."""
        made = given if isinstance(given, Tool) else tool(given)
        if made.name in self.native:
            raise ConfigError(f"there is a tool named {made.name!r} already; give this one another name")
        self.native[made.name] = made

    async def list_registered(self, user: User) -> list[RegisteredTool]:
        """The tools behind HTTP that this user's agents may have."""
        rows = [*await self.records.list(KIND, EVERYONE), *await self.records.list(KIND, user.id)]
        found = {row.id: RegisteredTool(row.id, row.owner, row.data) for row in rows}
        return [*found.values()]

    async def list_names(self, user: User) -> set[str]:
        """Every name that this user's agents may have in their `tools`."""
        return {*self.native, *(kept.name for kept in await self.list_registered(user))}

    async def add(self, user: User, name: str, data: Mapping[str, Any], *, shared: bool) -> RegisteredTool:
        """Register a tool behind HTTP, in place of one that this user registered before."""
        if tool_name(name) in RESERVED_NAMES or name in self.native:
            raise ApiError(409, "conflict", f"there is a tool named {name!r} already; choose another name")
        owner = EVERYONE if shared else user.id
        kept = RegisteredTool(name, owner, data)
        await in_thread(
            lambda: kept.create_tool().schema, "schema"
        )  # a wrong one is refused now, not in the middle of a run
        there = {one.name: one for one in await self.list_registered(user)}
        if name in there and there[name].owner != owner:
            raise ApiError(409, "conflict", f"there is a tool named {name!r} already; deregister it first")
        if name not in there and len(there) >= MAX_TOOLS:
            raise ApiError(409, "conflict", f"there are {MAX_TOOLS} tools already; deregister one first")
        await self.records.put(KIND, owner, name, data)
        return kept

    async def remove(self, user: User, name: str) -> RegisteredTool:
        for kept in await self.list_registered(user):
            if kept.name == name:
                await self.records.delete(KIND, kept.owner, name)
                return kept
        raise ApiError(404, "not_found", f"there is no registered tool {name[:100]!r}")

    def select_tools(self, agent: str, named: Sequence[Any], kept: Iterable[RegisteredTool]) -> list[Tool]:
        """The tools of the server that an agent has."""
        native = [made for name, made in self.native.items() if name in named]
        return native + [one.create_tool() for one in kept if one.name in named or one.is_assigned_to(agent)]
