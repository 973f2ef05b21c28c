"""`wick mcp`: the MCP servers of agents, and an agent as an MCP server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from wick._internal.prompt_text import to_one_line
from wick.capabilities.mcp.config import McpServer, read_servers
from wick.cli.host.agent_options import FOLDER
from wick.cli.host.open import PLACE, Place, opened
from wick.cli.root_command import DONE, FAILED, INTERRUPTED
from wick.cli.terminal.output import JSON, counted, print_json, print_table, working
from wick.config import Config, load
from wick.config.options_schema import suggest_key
from wick.errors import ConfigError, MissingExtra, WickError

SHOWN_CHARS = 120
CONFIG = click.option(
    "--config", metavar="FILE", help="The agents.yaml whose servers are meant; that of the folder if not said."
)


@click.group("mcp")
def command() -> None:
    """See and try the MCP servers of agents, or serve an agent by MCP."""


@dataclass(frozen=True, slots=True)
class Row:
    """A server of an agents.yaml: whose it is, where it is, and whether its hints are believed."""

    server: str
    agents: list[str]
    where: str
    trust: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """What a server has, or why it cannot be reached."""

    server: str
    works: bool
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    seconds: float = 0.0
    problem: str = ""


# -- list -----------------------------------------------------------------------------------------------------------


@command.command("list")
@CONFIG
@FOLDER
@JSON
def list_servers(config: str | None, folder: str, as_json: bool) -> None:
    """List the MCP servers that the agents of a file have; nothing is started."""
    rows = [
        Row(server.name, agents, _where(server), server.trust) for server, agents in _servers(_config(config, folder))
    ]
    if as_json:
        return print_json([asdict(row) for row in rows])
    cells = [(row.server, ", ".join(row.agents), row.where, "trusted" if row.trust else "-") for row in rows]
    print_table(("server", "agents", "where", "hints"), cells, nothing="its agents have no MCP servers; see `mcp:`")


def _config(config: str | None, folder: str) -> Config:
    return load(config if config is not None else Path(folder) / "agents.yaml")


def _servers(config: Config) -> Iterator[tuple[McpServer, list[str]]]:
    """Each server once, with the agents that have it."""
    whose: dict[str, tuple[McpServer, list[str]]] = {}
    for id, part in config.agents.items():
        given = part.options.get("mcp")
        for server in read_servers(given["servers"]) if isinstance(given, Mapping) and given.get("servers") else ():
            whose.setdefault(server.name, (server, []))[1].append(id)
    yield from whose.values()


def _where(server: McpServer) -> str:
    """The program or the address, without what may be secret."""
    if server.command:
        return to_one_line(" ".join((server.command, *server.args)), SHOWN_CHARS)
    parts = urlsplit(server.url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


# -- tools and test -------------------------------------------------------------------------------------------------


@command.command()
@click.argument("name", metavar="[SERVER]", default="")
@CONFIG
@FOLDER
@JSON
def tools(name: str, config: str | None, folder: str, as_json: bool) -> None:
    """Connect to the servers, or to SERVER, and list their tools."""
    rows = asyncio.run(_tools(_wanted(_config(config, folder), name)))
    if as_json:
        return print_json(rows)
    cells = [(row["server"], row["tool"], to_one_line(row["description"], SHOWN_CHARS)) for row in rows]
    print_table(("server", "tool", "description"), cells, nothing="they have no tools")


@command.command()
@click.argument("name", metavar="[SERVER]", default="")
@CONFIG
@FOLDER
@JSON
def test(name: str, config: str | None, folder: str, as_json: bool) -> None:
    """Connect to each server, or to SERVER, and say what it has.

    The exit code is 1 if one of them cannot be reached.
    """
    rows = asyncio.run(_tried(_wanted(_config(config, folder), name)))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        cells = [(row.server, "works" if row.works else "fails", _told(row)) for row in rows]
        print_table(("server", "", "what it has"), cells, nothing="its agents have no MCP servers; see `mcp:`")
    sys.exit(DONE if all(row.works for row in rows) else FAILED)


def _wanted(config: Config, name: str) -> list[McpServer]:
    found = {server.name: server for server, _ in _servers(config)}
    if name and name not in found:
        raise ConfigError(f"{config.path} has no MCP server {name!r}; {suggest_key(name, found, 'there are')}")
    return [found[name]] if name else [*found.values()]


def _told(row: Tried) -> str:
    if not row.works:
        return row.problem
    has = {"tool": row.tools, "resource": row.resources, "prompt": row.prompts}
    return f"{', '.join(counted(number, what) for what, number in has.items())}, within {row.seconds:.1f} s"


async def _tools(servers: list[McpServer]) -> list[dict[str, Any]]:
    from wick.capabilities.mcp.connections import McpConnections

    links, rows = McpConnections(), list[dict[str, Any]]()
    try:
        for server in servers:
            with working(f"connecting to {server.name}"):
                listed = await (await links.connect(server)).tools()
            chosen = [made for made in listed if server.tools is None or made.name in server.tools]
            rows += [_tool(server, made) for made in chosen]
    finally:
        await links.close()
    return rows


def _tool(server: McpServer, made: Any) -> dict[str, Any]:
    about = {"tool": made.name, "description": made.description or ""}
    return {"server": server.name, **about, "parameters": made.input_schema}


async def _tried(servers: list[McpServer]) -> list[Tried]:
    from wick.capabilities.mcp.connections import McpConnections

    links = McpConnections()
    try:
        with working(f"connecting to {', '.join(server.name for server in servers)}"):
            return await asyncio.gather(*(_try(links, server) for server in servers))
    finally:
        await links.close()


async def _try(links: Any, server: McpServer) -> Tried:
    start = time.perf_counter()
    try:
        link = await links.connect(server)
        tools = len(await link.tools())
        resources = len(await link.resources()) if link.abilities.resources else 0
        prompts = len(await link.prompts()) if link.abilities.prompts else 0
        return Tried(server.name, True, tools, resources, prompts, round(time.perf_counter() - start, 2))
    except WickError as error:
        return Tried(server.name, False, problem=to_one_line(str(error), 500))


# -- serve ----------------------------------------------------------------------------------------------------------


@command.command()
@PLACE
def serve(place: Place) -> None:
    """Serve an agent by MCP, over the stdin and stdout: other programs ask it with the tool `ask`.

    What the agent wants to ask before it goes on waits for `wick approvals`.
    """
    # A thread waits for the stdin, and nothing wakes it, so Ctrl-C ends the process; what was said is kept already.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        asyncio.run(_serve(place))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingExtra("mcp", "mcp", "`wick mcp serve`") from None


async def _serve(place: Place) -> None:
    from wick.cli.commands.mcp_server import served

    async with opened(place) as desk:
        await served(desk)
