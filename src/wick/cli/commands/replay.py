"""`wick replay`: evaluate recorded tool uses with other guards or rules."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal, get_args

import click

from wick._internal.visible_text import format_count
from wick.api.types import ReplayReport
from wick.capability import Capability
from wick.cli.completion import complete_thread_ids
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.host.protocol import AgentHost
from wick.cli.host.thread_ids import find_thread_ids
from wick.cli.root_command import DONE, STOPPED
from wick.cli.terminal.output import JSON, print_json, print_table, show_status, strip_controls
from wick.config.builder import load_python_name
from wick.errors import ConfigError
from wick.hooks import Hook

Type = Literal["deny", "ask", "allow"]
SHOWN_CHARS = 100


@click.command("replay")
@click.argument("threads", metavar="[THREAD]…", nargs=-1, shell_complete=complete_thread_ids)
@with_host_options
@click.option(
    "--rule", "rules", multiple=True, metavar="'TYPE RULE'", help="Add a rule to the agent's: 'deny Bash(git push *)'."
)
@click.option("--guard", "guards", multiple=True, metavar="MODULE:NAME", help="Add a Python guard to the agent's.")
@JSON
def command(
    threads: tuple[str, ...], options: HostOptions, rules: tuple[str, ...], guards: tuple[str, ...], as_json: bool
) -> None:
    """Replay the tool uses of THREADs with the guards of an agent, and list the verdicts that change.

    Without THREAD, all threads of this folder are replayed; with a server, those of the agent. No tool is run.
    The exit code is 3 if a verdict changes, and 0 if none does.
    """
    parsed: dict[Type, list[str]] = {}
    for text in rules:
        type, _, rule = text.strip().partition(" ")
        if type not in get_args(Type) or not rule.strip():
            raise ConfigError(f"invalid rule {text!r}; start it with deny, ask or allow, as in 'deny Bash(rm *)'")
        parsed.setdefault(type, []).append(rule.strip())  # type: ignore[arg-type]
    hooks = [hook for name in guards for hook in _load_guards(name, Path(options.folder))]

    async def replay_threads(host: AgentHost) -> ReplayReport:
        ids = await find_thread_ids(host, threads, options.absolute_folder)
        return await host.replay(ids or None, rules=parsed, guards=hooks)

    with show_status("replaying tool uses"):
        result = call_host(options, replay_threads)
    if as_json:
        changes = [{"thread": row.thread_id, **row.model_dump(exclude={"thread_id"})} for row in result.changes]
        print_json({**result.model_dump(), "changes": changes})
    else:
        _print_result(result)
    sys.exit(STOPPED if result.changes else DONE)


def _load_guards(name: str, folder: Path) -> list[Hook]:
    """Import a hook or a capability, and return its guards."""
    value = load_python_name(name, folder)
    if isinstance(value, type) and issubclass(value, Capability):
        value = value()
    hooks = value.hooks() if isinstance(value, Capability) else [value]
    guards = [hook for hook in hooks if isinstance(hook, Hook) and hook.position == "guard"]
    if not guards:
        raise ConfigError(f"{name} is not a guard; decorate it with @guard(ToolUse), or use a capability that has one")
    return guards


def _print_result(result: ReplayReport) -> None:
    rows = list[tuple[object, ...]]()
    for change in result.changes:
        args = json.dumps(change.args, ensure_ascii=False)
        shown = f"{args[:SHOWN_CHARS]}…" if len(args) > SHOWN_CHARS else args
        rows.append((change.thread_id, change.seq, change.tool, shown, change.recorded, change.now, change.reason))
    if rows:
        print_table(("thread", "entry", "tool", "arguments", "was", "now", "reason"), rows)
    for line in result.skipped:
        click.echo(f"skipped {strip_controls(line)}", err=True)
    changed = format_count(len(rows), "changed verdict") if rows else "no changes"
    replayed = f"{format_count(result.threads, 'thread')}, {format_count(result.uses, 'tool use')}"
    asked = f"asked {result.asked} of {format_count(result.uses, 'call')}"
    click.echo(f"{replayed}, {asked}: {changed}", err=bool(rows))
    if result.more:
        click.echo("not all threads were replayed; select threads by id", err=True)
