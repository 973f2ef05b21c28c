"""`wick undo`: restore the files of an earlier moment of a thread."""

from __future__ import annotations

import sys

import click

from wick._internal.visible_text import format_count
from wick.api.types import UndoPreview, UndoReport
from wick.cli.completion import complete_thread_ids
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.host.protocol import AgentHost
from wick.cli.host.thread_ids import LAST, find_thread_id
from wick.cli.root_command import FAILED
from wick.cli.terminal.output import (
    JSON,
    format_time,
    print_json,
    print_text,
    show_status,
    strip_controls,
)


@click.command("undo")
@with_host_options
@click.option(
    "--thread",
    default=LAST,
    show_default=True,
    metavar="THREAD",
    shell_complete=complete_thread_ids,
    help="The thread, or `last` for the latest one of this folder.",
)
@click.option(
    "--to", type=click.IntRange(0), metavar="NUMBER", help="The entry to go back to; before the last turn by default."
)
@click.option("--file", "files", multiple=True, metavar="PATH", help="Restore only this file or folder.")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@JSON
def command(
    options: HostOptions,
    thread: str,
    to: int | None,
    files: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Undo the changes of files since a moment of a thread, also those of shell commands.

    Without --to, the last turn that changed files is undone. The changes are shown first. The agent needs
    `snapshots: true`. The current files are saved before, so that an undo can be undone.
    """

    async def load_preview(host: AgentHost) -> tuple[str, UndoPreview]:
        id = await find_thread_id(host, thread, options.absolute_folder)
        return id, await host.preview_undo(id, to, files)

    with show_status("comparing files"):
        id, preview = call_host(options, load_preview)
    if not as_json:
        _print_preview(preview)
    if dry_run or not preview.changes:
        if as_json:
            print_json({"thread": id, **preview.model_dump()})
        return
    if not yes and not click.confirm(f"Restore {format_count(len(preview.changes), 'path')}?", err=True):
        sys.exit(FAILED)

    async def restore_files(host: AgentHost) -> UndoReport:
        return await host.undo_files(id, preview.seq, files)

    with show_status("restoring files"):
        report = call_host(options, restore_files)
    if as_json:
        print_json({"thread": id, **preview.model_dump(), **report.model_dump()})
        return
    for path, reason in report.left.items():
        click.echo(f"not restored: {strip_controls(path)}: {strip_controls(reason)}", err=True)
    again = f"wick undo --thread {id} --to {report.entry - 1}{options.hint_options}"
    click.echo(f"restored {format_count(len(report.restored), 'path')}; to undo this: {again}")


def _print_preview(preview: UndoPreview) -> None:
    if not preview.changes:
        click.echo(f"no changes: the files are as they were at {format_time(preview.at)}", err=True)
    for change in preview.changes:
        click.secho(f"{change.kind} {strip_controls(change.path)}", bold=True)
        if change.diff:
            print_text(change.diff, nl=True)
    for use in preview.not_undone:
        click.echo(f"not undone: {strip_controls(use.tool)} (entry {use.seq}): {use.reason}", err=True)
