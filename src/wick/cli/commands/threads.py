"""`wick threads`: list, show, fork, export and delete threads."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from wick._internal.visible_text import format_count
from wick.api.types import ThreadInfo
from wick.cli.command_group import CommandGroup
from wick.cli.completion import complete_thread_ids
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.host.protocol import AgentHost
from wick.cli.host.thread_ids import find_thread_id, find_thread_ids
from wick.cli.root_command import FAILED
from wick.cli.terminal.output import JSON, format_time, print_json, print_table, print_text, show_status, strip_controls
from wick.errors import ConfigError

ID = click.argument("id", metavar="THREAD", shell_complete=complete_thread_ids)
SHOWN_CHARS = 2_000  # of the result of a tool

T = TypeVar("T")


@click.group("threads", cls=CommandGroup)
def command() -> None:
    """List, show, fork, export and delete threads."""


def _call_with_id(options: HostOptions, text: str, call: Callable[[AgentHost, str], Awaitable[T]]) -> T:
    """Call the host with the id of the thread that `text` names."""

    async def find_and_call(host: AgentHost) -> T:
        return await call(host, await find_thread_id(host, text, options.absolute_folder))

    return call_host(options, find_and_call)


@command.command("list")
@with_host_options
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="The maximum number of threads."
)
@click.option("--here", is_flag=True, help="List only threads of this folder.")
@click.option("--asking", is_flag=True, help="List only threads that wait for an answer.")
@JSON
def list_threads(options: HostOptions, limit: int, here: bool, asking: bool, as_json: bool) -> None:
    """List threads, the latest first."""
    folder = options.absolute_folder if here else ""
    with show_status("loading threads"):
        threads = call_host(options, lambda host: host.list_threads(limit=limit, folder=folder, asking=asking or None))
    if as_json:
        return print_json([_thread_json(info) for info in threads])
    columns = ("thread", "title", "agent", "folder", "updated", "state")
    rows = [
        (info.id, info.title or "-", info.agent, info.folder, format_time(info.updated), format_state(info))
        for info in threads
    ]
    print_table(columns, rows, nothing="no threads; start one with: wick chat")


def _thread_json(info: ThreadInfo) -> dict[str, Any]:
    names = ("id", "title", "agent", "folder", "created", "updated", "last", "running", "asking", "queued")
    return {name: getattr(info, name) for name in names} | {"run": info.run_id}


def format_state(info: ThreadInfo) -> str:
    """Return the state of a thread as one phrase."""
    if info.asking:
        return "waiting" if info.asking == 1 else f"waiting ({info.asking} questions)"
    return "running" if info.running else "interrupted" if info.run_id else "-"


# -- show -----------------------------------------------------------------------------------------------------------


@command.command()
@ID
@with_host_options
@JSON
def show(id: str, options: HostOptions, as_json: bool) -> None:
    """Show the messages of THREAD, with the entry numbers that `fork --at` takes."""
    with show_status("reading the thread"):
        thread = _call_with_id(options, id, lambda host, id: host.get_thread(id))
    if as_json:
        return print_json(_thread_json(thread) | thread.model_dump(include={"messages", "todos", "files", "usage"}))
    click.secho(strip_controls(thread.title or thread.id), bold=True)
    click.echo(
        f"{thread.id} · {strip_controls(thread.agent) or 'no agent'} · "
        f"{format_time(thread.updated)} · {format_state(thread)}"
    )
    for message in thread.messages:
        name = f" {message.name}" if message.name else ""
        click.secho(f"\n[{message.seq or '-'}] {message.role}{strip_controls(name)}", bold=True)
        if isinstance(message.content, str):
            text = message.content
        else:
            text = "\n".join(f"[{part.type}]" if part.text is None else part.text for part in message.content)
        if message.role == "tool" and len(text) > SHOWN_CHARS:
            text = f"{text[:SHOWN_CHARS]}\n… ({len(text) - SHOWN_CHARS:,} more characters; use --json to see them)"
        if text:
            click.echo(strip_controls(text))
        for call in message.tool_calls:
            click.echo(f"→ {strip_controls(call.name)} {strip_controls(json.dumps(call.args, ensure_ascii=False))}")
    for todo in thread.todos:
        click.echo(f"{'✓' if todo.status == 'done' else '·'} {strip_controls(todo.title)}")


# -- fork, export, delete -------------------------------------------------------------------------------------------


@command.command()
@ID
@with_host_options
@click.option("--at", type=click.IntRange(0), metavar="NUMBER", help="Fork after this entry; the last one by default.")
@click.option("--title", default="", help="The title of the new thread.")
@JSON
def fork(id: str, options: HostOptions, at: int | None, title: str, as_json: bool) -> None:
    """Copy THREAD to a new thread, and print its id."""
    with show_status("forking the thread"):
        forked = _call_with_id(options, id, lambda host, id: host.fork_thread(id, at, title=title))
    if as_json:
        return print_json(_thread_json(forked))
    click.echo(forked.id)


@command.command()
@ID
@with_host_options
@click.option("--format", type=click.Choice(["json", "markdown"]), default="json", show_default=True)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to this new file instead of stdout."
)
def export(id: str, options: HostOptions, format: Literal["json", "markdown"], output: Path | None) -> None:
    """Print the log of THREAD as JSON, or its messages as Markdown."""
    with show_status("reading the thread"):
        text = _call_with_id(options, id, lambda host, id: host.export_thread(id, format))
    if output is None:
        return print_text(text, nl=not text.endswith("\n"))
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{output} already exists; choose another name") from None


@command.command()
@click.argument("ids", metavar="THREAD…", nargs=-1, required=True, shell_complete=complete_thread_ids)
@with_host_options
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
def delete(ids: tuple[str, ...], options: HostOptions, yes: bool) -> None:
    """Delete threads with all their messages."""
    with show_status("finding the threads"):
        ids = call_host(options, lambda host: find_thread_ids(host, ids, options.absolute_folder))
    described = f"the thread {ids[0]}" if len(ids) == 1 else format_count(len(ids), "thread")
    if not yes and not click.confirm(f"Delete {strip_controls(described)} permanently?"):
        sys.exit(FAILED)

    async def delete_all(host: AgentHost) -> None:
        for id in ids:
            await host.delete_thread(id)
            click.echo(id)

    with show_status("deleting"):
        call_host(options, delete_all)
