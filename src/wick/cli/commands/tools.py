"""`wick tools`: the declarations of an agent's tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from wick._internal.tool_flow import UNDECLARED, ToolFlow
from wick.agent import Agent
from wick.capabilities.mcp import MCP
from wick.cli.command_group import CommandGroup
from wick.cli.host.agent_options import FOLDER
from wick.cli.terminal.output import JSON, print_json, print_table, show_status
from wick.config import load

ASSUMED = "(assumed)"


@click.group("tools", cls=CommandGroup)
def command() -> None:
    """List what the tools of an agent declare."""


@command.command()
@click.argument("agent", metavar="[AGENT]", default="")
@click.option("--config", metavar="FILE", help="The agents.yaml with the agent; by default that of the folder.")
@FOLDER
@JSON
def labels(agent: str, config: str | None, folder: str, as_json: bool) -> None:
    """List the effect, targets and authors that each tool declares, and what is assumed without them.

    MCP servers are connected. See the guide, "Information flow".
    """
    built = load(config if config is not None else Path(folder) / "agents.yaml").agent(agent)
    rows = [describe_flow(name, flow) for name, flow in asyncio.run(_find_flows(built)).items()]
    if as_json:
        return print_json(rows)
    cells = [
        (
            row["tool"],
            row["effect"],
            "all" if row["targets"] is None else ", ".join(row["targets"]) or "-",
            ", ".join(author if name == "*" else f"{name}: {author}" for name, author in row["returns"].items()),
            row["private"] or "-",
            "" if row["declared"] else ASSUMED,
        )
        for row in rows
    ]
    print_table(("tool", "effect", "targets", "returns", "private", ""), cells, nothing="no tools")


def describe_flow(tool: str, flow: ToolFlow | None) -> dict[str, Any]:
    """Return what a tool declares, as JSON data; without a declaration, what is assumed."""
    found = UNDECLARED if flow is None else flow
    return {
        "tool": tool,
        "effect": found.effect,
        "targets": None if found.targets is None else [*found.targets],
        "returns": dict(found.authors),
        "private": found.name_source(tool),
        "declared": found.declared,
    }


async def _find_flows(agent: Agent) -> dict[str, ToolFlow | None]:
    """Return the declarations of an agent's tools and of its MCP servers."""
    flows = {tool.name: tool.flow for tool in agent.tools}
    servers = dict.fromkeys(hook.owner for hook in agent.hooks if isinstance(hook.owner, MCP))
    for mcp in servers:
        with show_status("connecting to MCP servers"):
            try:
                flows |= await mcp.declarations()
            finally:
                await mcp.close()
    return flows
