"""`wick agents`: which there are, and whether a file of them is right."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from wick.cli.checks.agents_file import Problem, look
from wick.cli.commands.onions import drawn
from wick.cli.host.local import onion_of
from wick.cli.host.open import PLACE, Place, opened
from wick.cli.host.protocol import AgentInfo, RingInfo
from wick.cli.root_command import DONE, WRONG
from wick.cli.terminal.output import JSON, plain, print_json, print_table, working
from wick.config import Config

FILE = "agents.yaml"


@click.group("agents")
def command() -> None:
    """List agents, and check a file of them."""


@command.command("list")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@PLACE
@JSON
def list_agents(file: Path | None, place: Place, as_json: bool) -> None:
    """List the agents of a server, of FILE, or of this folder's agents.yaml."""
    if file is not None and (place.server or place.agent):
        raise click.UsageError("say FILE, --agent or --server, not two of them")
    own = Path(place.folder) / FILE
    if file is None and not place.agent and not place.server and own.is_file():
        file = own
    place = Place(agent=str(file), folder=place.folder) if file is not None else place
    found = asyncio.run(_list(place))
    if as_json:
        return print_json([asdict(info) for info in found])
    rows = [(info.id, info.name, info.model, ", ".join(info.hooks)) for info in found]
    print_table(("agent", "name", "model", "hooks"), rows, nothing="there are no agents")


async def _list(place: Place) -> list[AgentInfo]:
    with working("looking for agents"):
        async with opened(place) as desk:
            return await desk.agents()


# -- check ----------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("file", type=click.Path(path_type=Path), default=FILE)
@JSON
def check(file: Path, as_json: bool) -> None:
    """Say everything that is wrong with FILE, each with its line, and draw the rings of its agents.

    The exit code is 2 if something is wrong. Agents are built for this, so the modules that FILE names are loaded.
    """
    with working(f"reading {file}"):
        config, problems = look(file)
        onions = asyncio.run(_onions(config)) if config is not None else {}
    if as_json:
        _print_json(file, problems, onions)
    else:
        _print(file, problems, onions)
    sys.exit(WRONG if problems else DONE)


async def _onions(config: Config) -> dict[str, list[RingInfo]]:
    """The rings of each agent."""
    try:
        return {id: onion_of(part.agent()) for id, part in config.agents.items()}
    finally:
        await config.close()


def _print_json(file: Path, problems: list[Problem], onions: dict[str, list[RingInfo]]) -> None:
    told: dict[str, Any] = {"file": str(file), "problems": [asdict(problem) for problem in problems]}
    print_json({**told, "agents": {id: [asdict(ring) for ring in rings] for id, rings in onions.items()}})


def _print(file: Path, problems: list[Problem], onions: dict[str, list[RingInfo]]) -> None:
    for problem in problems:
        where = "" if problem.line is None else f"{file}, line {problem.line}: "
        click.echo(plain(f"{where}{problem.says}"))
    if problems:
        many = "1 thing is" if len(problems) == 1 else f"{len(problems)} things are"
        return click.echo(f"{many} wrong with {file}", err=True)
    for id, rings in onions.items():
        click.secho(f"{plain(id)}\n", bold=True, underline=True)
        for line in drawn(rings):
            click.echo(line)
    click.echo(plain(f"{file} is right: {', '.join(onions)}"))
