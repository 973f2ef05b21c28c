"""`wick mcp`: list and test the MCP servers of agents, and serve an agent over MCP."""

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

from wick._internal.factory_options import suggest_key
from wick._internal.prompt_text import to_one_line
from wick._internal.visible_text import format_count
from wick.capabilities.mcp.config import McpServer, read_servers
from wick.cli.command_group import CommandGroup
from wick.cli.host.agent_options import FOLDER
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.root_command import DONE, FAILED, INTERRUPTED
from wick.cli.terminal.output import JSON, print_json, print_table, show_status
from wick.config import Config, load
from wick.errors import ConfigError, MissingExtra, WickError

SHOWN_CHARS = 120
CONFIG = click.option(
    "--config", metavar="FILE", help="The agents.yaml with the servers; by default that of the folder."
)


@click.group("mcp", cls=CommandGroup)
def command() -> None:
    """List and test the MCP servers of agents, or serve an agent over MCP."""


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A row in a list of MCP servers: its agents, its address, and whether its tool annotations are trusted."""

    server: str
    agents: list[str]
    where: str
    trust: bool


@dataclass(frozen=True, slots=True)
class ServerTrial:
    """The result of a connection test: counts of what a server offers, or the problem."""

    server: str
    works: bool
    tools: int = 0
    resources: int = 0
    prompts: int = 0
    seconds: float = 0.0
    problem: str = ""

    @property
    def summary(self) -> str:
        if not self.works:
            return self.problem
        has = {"tool": self.tools, "resource": self.resources, "prompt": self.prompts}
        return f"{', '.join(format_count(number, noun) for noun, number in has.items())}, in {self.seconds:.1f} s"


# -- list -----------------------------------------------------------------------------------------------------------


@command.command("list")
@CONFIG
@FOLDER
@JSON
def list_servers(config: str | None, folder: str, as_json: bool) -> None:
    """List the MCP servers of the agents of a file, without connecting."""
    rows = [
        ServerRow(server.name, agents, _format_location(server), server.trust)
        for server, agents in _iter_servers(_load_config(config, folder))
    ]
    if as_json:
        return print_json([asdict(row) for row in rows])
    cells = [(row.server, ", ".join(row.agents), row.where, "trusted" if row.trust else "-") for row in rows]
    print_table(("server", "agents", "where", "hints"), cells, nothing="no MCP servers; add them to the agent's `mcp:`")


def _load_config(config: str | None, folder: str) -> Config:
    return load(config if config is not None else Path(folder) / "agents.yaml")


def _iter_servers(config: Config) -> Iterator[tuple[McpServer, list[str]]]:
    """Yield each server once, with the ids of its agents."""
    by_name: dict[str, tuple[McpServer, list[str]]] = {}
    for id, part in config.agents.items():
        options = part.options.get("mcp")
        for server in (
            read_servers(options["servers"]) if isinstance(options, Mapping) and options.get("servers") else ()
        ):
            by_name.setdefault(server.name, (server, []))[1].append(id)
    yield from by_name.values()


def _format_location(server: McpServer) -> str:
    """Return the command line or URL of a server, without secrets."""
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
    rows = asyncio.run(_fetch_tools(_select_servers(_load_config(config, folder), name)))
    if as_json:
        return print_json(rows)
    cells = [(row["server"], row["tool"], to_one_line(row["description"], SHOWN_CHARS)) for row in rows]
    print_table(("server", "tool", "description"), cells, nothing="no tools")


@command.command()
@click.argument("name", metavar="[SERVER]", default="")
@CONFIG
@FOLDER
@JSON
def test(name: str, config: str | None, folder: str, as_json: bool) -> None:
    """Connect to each server, or to SERVER, and count its tools, resources and prompts.

    The exit code is 1 if a server cannot be reached.
    """
    rows = asyncio.run(_try_servers(_select_servers(_load_config(config, folder), name)))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        cells = [(row.server, "works" if row.works else "fails", row.summary) for row in rows]
        print_table(("server", "", "capabilities"), cells, nothing="no MCP servers; add them to the agent's `mcp:`")
    sys.exit(DONE if all(row.works for row in rows) else FAILED)


def _select_servers(config: Config, name: str) -> list[McpServer]:
    servers = {server.name: server for server, _ in _iter_servers(config)}
    if name and name not in servers:
        hint = suggest_key(name, servers, "there are") if servers else "its agents have none, add them under `mcp`"
        raise ConfigError(f"{config.path} has no MCP server {name!r}; {hint}")
    return [servers[name]] if name else [*servers.values()]


async def _fetch_tools(servers: list[McpServer]) -> list[dict[str, Any]]:
    from wick.capabilities.mcp.connections import McpConnections

    links, rows = McpConnections(), list[dict[str, Any]]()
    try:
        for server in servers:
            with show_status(f"connecting to {server.name}"):
                listed = await (await links.connect(server)).tools()
            chosen = [tool for tool in listed if server.tools is None or tool.name in server.tools]
            rows += [
                {
                    "server": server.name,
                    "tool": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                }
                for tool in chosen
            ]
    finally:
        await links.close()
    return rows


async def _try_servers(servers: list[McpServer]) -> list[ServerTrial]:
    from wick.capabilities.mcp.connections import McpConnections

    links = McpConnections()

    async def connect(server: McpServer) -> ServerTrial:
        start = time.perf_counter()
        try:
            link = await links.connect(server)
            tools = len(await link.tools())
            resources = len(await link.resources()) if link.abilities.resources else 0
            prompts = len(await link.prompts()) if link.abilities.prompts else 0
            return ServerTrial(server.name, True, tools, resources, prompts, round(time.perf_counter() - start, 2))
        except WickError as error:
            return ServerTrial(server.name, False, problem=to_one_line(str(error), 500))

    try:
        with show_status(f"connecting to {', '.join(server.name for server in servers)}"):
            return await asyncio.gather(*map(connect, servers))
    finally:
        await links.close()


# -- serve ----------------------------------------------------------------------------------------------------------


@command.command()
@with_host_options
def serve(options: HostOptions) -> None:
    """Serve an agent over MCP on stdin and stdout, with the tool `ask`.

    Questions of the agent wait for `wick approvals`.
    """
    # A thread blocks on stdin and cannot be cancelled, so Ctrl-C exits the process. Messages are persisted already.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        from wick.cli.commands.mcp_server import serve_agent

        call_host(options, serve_agent)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingExtra("mcp", "mcp", "`wick mcp serve`") from None
