"""`wick hooks`: list the hooks of an agent, trust, test and create hook programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from wick.agent import Agent
from wick.api.types import OperationRings
from wick.capabilities.executables import Executables
from wick.cli.checks.hook_trial import TrialVerdict, try_handler, try_program
from wick.cli.command_group import CommandGroup
from wick.cli.commands.onions import draw_rings
from wick.cli.hook_templates import EVENTS, LANGUAGES, render_program
from wick.cli.host.agent_options import AGENT, FOLDER, SelectedAgent
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.host.skipped_hooks import HOME
from wick.cli.root_command import DONE, FAILED, STOPPED
from wick.cli.terminal.output import JSON, print_json, print_table, show_status, strip_controls
from wick.errors import ConfigError
from wick.hook_programs.trust import expand_home
from wick.hooks import order_rings
from wick.operations import OPERATIONS


@click.group("hooks", cls=CommandGroup)
def command() -> None:
    """List, trust, test and create hooks."""


# -- list and onion -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HookLine:
    """A row in a list of hooks. `ring` counts from the outside; it is None for an untrusted program."""

    name: str
    point: str
    ring: int | None
    priority: float
    source: str
    trust: str
    fail: str
    problem: str


@command.command("list")
@with_host_options
@JSON
def list_hooks(options: HostOptions, as_json: bool) -> None:
    """List every hook with its point, ring, source, trust and failure policy."""
    if options.server:  # a server's agent has only trusted hooks
        rows = [
            HookLine(ring.hook, f"{ring.position}_{operation.operation}", depth, 0.0, ring.source, "", ring.fail, "")
            for operation in _fetch_rings(options)
            for depth, ring in enumerate((*operation.rings, *operation.guards))
        ]
    else:
        selected = SelectedAgent(options.agent or None, options.folder)
        rows = list_hook_rows(selected.build(), selected.executables)
    if as_json:
        return print_json([asdict(row) for row in rows])
    cells = list[tuple[str, ...]]()
    for row in rows:
        ring = "-" if row.ring is None else f"{row.ring}{f' ({row.priority:+g})' if row.priority else ''}"
        cells.append((row.name, row.point or "-", ring, row.source, row.trust, row.fail, row.problem))
    print_table(("hook", "point", "ring", "source", "trust", "fail", "problem"), cells)


def _fetch_rings(options: HostOptions) -> list[OperationRings]:
    with show_status("loading the agent"):
        return call_host(options, lambda host: host.list_rings())


def list_hook_rows(agent: Agent, programs: Sequence[Executables]) -> list[HookLine]:
    """Return the hooks of an agent, and the programs that are not trusted."""
    depths = {
        id(hook): depth for operation in OPERATIONS for depth, hook in enumerate(order_rings(agent.hooks, operation))
    }
    of_programs = {id(hook): hook for part in programs for hook in part.hooks()}
    rows = list[HookLine]()
    for hook in agent.hooks:
        if id(hook) not in of_programs:
            owner = None if hook.owner is None else type(hook.owner)
            module = str(getattr(hook.fn, "__module__", "") or "Python")
            source = module if owner is None else f"{owner.__module__}:{owner.__name__}"
            fails = "closed" if hook.position == "guard" or hook.on_error == "fail" else "open"
            rows.append(HookLine(hook.name, hook.point, depths[id(hook)], hook.priority, source, "", fails, ""))
    by_name = {hook.name: (depths[id(hook)], hook.priority) for hook in of_programs.values()}
    for row in (row for part in programs for row in part.listed()):
        names = (f"{row.name}@{row.point}", f"{row.name}@{row.point}({row.event})", f"{row.event}@{row.point}")
        depth, priority = next((by_name[name] for name in names if name in by_name), (None, row.priority))
        rows.append(HookLine(row.name, row.point, depth, priority, row.source, row.trust, row.fail, row.problem))
    return rows


@command.command()
@with_host_options
@JSON
def onion(options: HostOptions, as_json: bool) -> None:
    """Draw the rings around each operation, the outermost first."""
    operations = _fetch_rings(options)
    if as_json:
        return print_json(
            {
                operation.operation: [
                    {"position": ring.position, "name": ring.hook, "source": ring.source}
                    | ({"fail": "open"} if ring.fail == "open" else {})
                    for ring in (*operation.rings, *operation.guards)
                ]
                for operation in operations
            }
        )
    for line in draw_rings(operations):
        click.echo(line)


# -- trust ----------------------------------------------------------------------------------------------------------


@command.command()
@AGENT
@FOLDER
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--forget", is_flag=True, help="Revoke the trust.")
def trust(agent: str | None, folder: str, yes: bool, forget: bool) -> None:
    """Trust the hook programs of a folder in their current version.

    A file that changes later is not trusted any more.
    """
    selected = SelectedAgent(agent, folder)
    selected.build()
    root = Path(folder).resolve()
    files_by_store = [
        (
            part.trust,
            [path for path in part.trust.files() if path.is_relative_to(root)] if forget else part.untrusted(),
        )
        for part in selected.executables
    ]
    for path in (path for _, files in files_by_store for path in files):
        click.echo(strip_controls(str(path)))
    if not any(files for _, files in files_by_store):
        return click.echo("no trusted files" if forget else "no files need trust")
    words = "Revoke the trust in these files?" if forget else "These files will run as your user. Trust them?"
    if not yes and not click.confirm(words):
        sys.exit(FAILED)
    for store, files in files_by_store:
        changed = store.forget(files) if forget else store.trust(files)
        click.echo(f"{len(changed)} {'revoked' if forget else 'trusted'}")
    SelectedAgent(agent, folder).build()  # stores the events of each program: a changed one must deny there


# -- test -----------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@click.option("--payload", type=click.File("rb"), required=True, help="A file with the event as JSON, or - for stdin.")
@AGENT
@FOLDER
@JSON
def test(name: str, payload: Any, agent: str | None, folder: str, as_json: bool) -> None:
    """Call one hook program with an event, and print its verdict.

    The exit code is 0 if it allows, asks or has no verdict, 3 if it refuses, 1 if it fails.
    """
    try:
        event = json.loads(payload.read())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the payload is not valid JSON: {error}") from None
    if not isinstance(event, dict):
        raise ConfigError(
            'the payload must be a JSON object, such as {"event": "before_tool_call", "tool_name": "bash"}'
        )
    selected = SelectedAgent(agent, folder)
    selected.build()
    verdict = _try_hook(selected.executables, name, event)
    if as_json:
        print_json(asdict(verdict))
    else:
        click.echo(strip_controls(f"{verdict.word}{f': {verdict.reason}' if verdict.reason else ''}"))
        if verdict.answer:
            print_json(verdict.answer)
        click.echo(f"{verdict.milliseconds:.0f} ms", err=True)
    sys.exit({"failed": FAILED, "refused": STOPPED}.get(verdict.word, DONE))


def _try_hook(parts: Sequence[Executables], name: str, payload: dict[str, Any]) -> TrialVerdict:
    """Call the program of this name, or the settings handler with this name or event."""
    for part in parts:
        program, handlers = part.program(name), part.handlers(name)
        if program is None and len(handlers) > 1:
            raise ConfigError(f"{name} has several handlers; choose one: {', '.join(one.name for one in handlers)}")
        if (trust := program.trust if program else handlers[0].trust if handlers else "trusted") != "trusted":
            raise ConfigError(f"{name} is {trust}; review it, then run: wick hooks trust")
        if program is not None:
            return try_program(program, part.runner, payload)
        if handlers:
            return try_handler(handlers[0], part.runner, payload)
    names = [row.name for part in parts for row in part.listed()]
    raise ConfigError(f"there is no hook program {name!r}; there are {', '.join(names) or 'none'}")


# -- new ------------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@click.option("--event", type=click.Choice(EVENTS), default="before_tool_call", show_default=True)
@click.option("--language", type=click.Choice(LANGUAGES), default="python", show_default=True)
@click.option("--user", is_flag=True, help="Write it to ~/.wick/hooks, for all folders.")
@FOLDER
def new(name: str, event: str, language: str, user: bool, folder: str) -> None:
    """Write a hook program that allows everything, as a template."""
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
        raise ConfigError(f"invalid name {name!r}; use letters, digits, `_`, `.` and `-`")
    home = expand_home(HOME) if user else Path(folder) / ".wick"
    if home is None:
        raise ConfigError("HOME is not set; set it to an absolute path")
    path = home / "hooks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(render_program(language, event))
    except FileExistsError:
        raise ConfigError(f"{path} already exists; choose another name") from None
    path.chmod(0o755)
    click.echo(str(path))
    if not user:
        click.echo("hooks of a folder run only once they are trusted: wick hooks trust", err=True)
