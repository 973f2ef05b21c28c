"""`wick agents`: list agents, and validate an agents.yaml."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path

import click

from wick._internal.visible_text import format_count
from wick.api.conversions import list_operation_rings
from wick.api.types import OperationRings
from wick.cli.checks.agents_file import FileProblem, check_agents_file
from wick.cli.command_group import CommandGroup
from wick.cli.commands.onions import draw_rings
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.root_command import DONE, WRONG
from wick.cli.terminal.output import JSON, print_json, print_table, show_status, strip_controls
from wick.config import Config

FILE = "agents.yaml"
SESSIONS_NOTE = (
    "`sessions` is for programs that load this file: wick run stores threads in the data folder (WICK_DATA), "
    "and wick serve in its setting `store`"
)


@click.group("agents", cls=CommandGroup)
def command() -> None:
    """List agents, and validate an agents.yaml."""


@command.command("list")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@with_host_options
@JSON
def list_agents(file: Path | None, options: HostOptions, as_json: bool) -> None:
    """List the agents of a server, of FILE, or of this folder's agents.yaml."""
    if file is not None and (options.server or options.agent):
        raise click.UsageError("use only one of FILE, --agent and --server")
    own = Path(options.folder) / FILE
    if file is None and not options.agent and not options.server and own.is_file():
        file = own
    options = HostOptions(agent=str(file), folder=options.folder) if file is not None else options
    with show_status("loading agents"):
        agents = call_host(options, lambda host: host.list_agents())
    if as_json:
        return print_json(
            [{"id": info.agent_id, "name": info.name, "model": info.model, "hooks": info.hooks} for info in agents]
        )
    rows = [(info.agent_id, info.name, info.model, ", ".join(info.hooks)) for info in agents]
    print_table(("agent", "name", "model", "hooks"), rows, nothing="no agents")


# -- check ----------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("file", type=click.Path(path_type=Path), default=FILE)
@JSON
def check(file: Path, as_json: bool) -> None:
    """Report all errors of FILE with their lines, and draw the rings of its agents.

    The exit code is 2 if there are errors. The agents are built, so the modules that FILE names are imported.
    """
    with show_status(f"reading {file}"):
        config, problems = check_agents_file(file)
        onions = asyncio.run(_build_rings(config)) if config is not None else {}
    if as_json:
        fields = {"position", "hook", "source", "fail"}
        agents = {
            id: [
                {"operation": operation.operation, **ring.model_dump(include=fields)}
                for operation in operations
                for ring in (*operation.rings, *operation.guards)
            ]
            for id, operations in onions.items()
        }
        print_json({"file": str(file), "problems": [asdict(problem) for problem in problems], "agents": agents})
    else:
        _print_text_report(file, problems, onions)
        if config is not None and any(part.options.get("sessions") for part in config.agents.values()):
            click.echo(SESSIONS_NOTE, err=True)
    sys.exit(WRONG if problems else DONE)


async def _build_rings(config: Config) -> dict[str, list[OperationRings]]:
    """Return the rings of each agent."""
    try:
        return {id: list_operation_rings(part.agent()) for id, part in config.agents.items()}
    finally:
        await config.close()


def _print_text_report(file: Path, problems: list[FileProblem], onions: dict[str, list[OperationRings]]) -> None:
    for problem in problems:
        where = "" if problem.line is None else f"{file}, line {problem.line}: "
        click.echo(strip_controls(f"{where}{problem.message}"))
    if problems:
        return click.echo(f"{format_count(len(problems), 'problem')} in {file}", err=True)
    for id, rings in onions.items():
        click.secho(f"{strip_controls(id)}\n", bold=True, underline=True)
        for line in draw_rings(rings):
            click.echo(line)
    click.echo(strip_controls(f"{file} is valid: {', '.join(onions)}"))
