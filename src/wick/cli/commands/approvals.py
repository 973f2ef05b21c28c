"""`wick approvals`: list pending questions of agents, and answer them."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator
from typing import Any

import click

from wick._internal.visible_text import cut_visible, make_visible
from wick.api.types import Approval, Choice
from wick.cli.command_group import CommandGroup
from wick.cli.host.open import HostOptions, call_host, open_host, with_host_options
from wick.cli.host.protocol import AgentHost
from wick.cli.terminal.output import JSON, dump_json, print_json, print_table, show_status, strip_controls
from wick.errors import ConfigError

POLL_SECONDS = 1.0  # between two requests with --watch
SHOWN_CHARS = 2_000  # of the arguments, in a list


@click.group("approvals", cls=CommandGroup, invoke_without_command=True)
@with_host_options
@click.option("--thread", default="", metavar="THREAD", help="Show only questions of this thread.")
@click.option("--watch", is_flag=True, help="Watch for new questions until Ctrl-C.")
@JSON
@click.pass_context
def command(ctx: click.Context, options: HostOptions, thread: str, watch: bool, as_json: bool) -> None:
    """List pending questions, and answer them.

    With --watch and --json each question is one line of JSON.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = options
        return
    if watch:
        return asyncio.run(_watch_approvals(options, thread, as_json))
    with show_status("loading questions"):
        pending = call_host(options, lambda host: host.list_approvals(thread))
    if as_json:
        return print_json([_approval_json(approval) for approval in pending])
    rows = [
        (approval.id, approval.thread_id, approval.agent_id, _format_question(approval), _format_time_left(approval))
        for approval in pending
    ]
    print_table(("question", "thread", "agent", "what", "expires in"), rows, nothing="no pending questions")


async def _watch_approvals(options: HostOptions, thread: str, as_json: bool) -> None:
    async with open_host(options) as host:
        async for approval in _iter_new_approvals(host, thread):
            if as_json:
                click.echo(dump_json(_approval_json(approval)))
                continue
            click.secho(f"{approval.id}  {strip_controls(approval.agent_id)}  {approval.thread_id}", bold=True)
            click.echo(f"  {_format_question(approval)}")
            click.echo(f"  wick approvals allow {approval.id}  ·  wick approvals deny {approval.id} 'reason'")


async def _iter_new_approvals(host: AgentHost, thread: str) -> AsyncIterator[Approval]:
    """Yield each question once, as it appears."""
    seen = set[tuple[str, str]]()
    while True:
        pending = {(approval.thread_id, approval.id): approval for approval in await host.list_approvals(thread)}
        for key in pending.keys() - seen:
            yield pending[key]
        seen = {*pending}
        await asyncio.sleep(POLL_SECONDS)


def _approval_json(approval: Approval) -> dict[str, Any]:
    fields = approval.model_dump(exclude={"thread_id", "agent_id", "run_id", "shell", "hash"})
    return {**fields, "thread": approval.thread_id, "agent": approval.agent_id, "run": approval.run_id}


def _format_question(approval: Approval) -> str:
    """Return the question and the arguments. A command is shown completely; other long arguments are cut."""
    args = dict(approval.args or {})
    command = args.pop("command", None)
    shown = [f"command: {make_visible(command)}"] if isinstance(command, str) else []
    rest = args if isinstance(command, str) else approval.args
    shown += [cut_visible(json.dumps(rest, ensure_ascii=False), SHOWN_CHARS)] if rest else []
    question = make_visible(approval.question, mark_breaks=False)
    return " ".join(filter(None, (question, f"[{approval.tool}]" if approval.tool else "", *shown)))


def _format_time_left(approval: Approval) -> str:
    if approval.expires is None:
        return "-"
    minutes = max(0, int(approval.expires - time.time())) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


# -- answers --------------------------------------------------------------------------------------------------------

QUESTION = click.argument("id", metavar="QUESTION")


@command.command()
@QUESTION
@click.option("--session", is_flag=True, help="Allow the same tool use for the rest of this thread.")
@click.option("--always", is_flag=True, help="Always allow the same tool use.")
@click.option("--args", "changed", metavar="JSON", help="Replace the arguments of the tool use with this JSON object.")
@click.argument("words", default="")
@with_host_options
@click.pass_obj
def allow(
    group_options: HostOptions,
    options: HostOptions,
    id: str,
    session: bool,
    always: bool,
    changed: str | None,
    words: str,
) -> None:
    """Allow QUESTION; WORDS answer a question of the tool ask_user."""
    if session and always:
        raise click.UsageError("use only one of --session and --always")
    choice: Choice = "allow_session" if session else "allow_always" if always else "allow"
    args = None
    if changed is not None:
        try:
            args = json.loads(changed)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"--args is not valid JSON: {error}") from None
        if not isinstance(args, dict):
            raise ConfigError('--args must be a JSON object, such as {"command": "git status"}')
    asyncio.run(_send_answer(_merge_options(options, group_options), id, choice, words, args))


@command.command()
@QUESTION
@click.argument("words", default="")
@with_host_options
@click.pass_obj
def deny(group_options: HostOptions, options: HostOptions, id: str, words: str) -> None:
    """Deny QUESTION, with WORDS as the reason for the agent."""
    asyncio.run(_send_answer(_merge_options(options, group_options), id, "deny", words, None))


def _merge_options(options: HostOptions, group_options: HostOptions) -> HostOptions:
    """Return the options given after `allow` or `deny`, or else those given before it."""
    return group_options if options == HostOptions() else options


async def _send_answer(options: HostOptions, id: str, choice: Choice, words: str, args: dict[str, Any] | None) -> None:
    async with open_host(options) as host:
        thread_id = await host.answer_approval(id, choice, words=words, args=args)
        click.echo(f"{'denied' if choice == 'deny' else 'allowed'}: {strip_controls(id)}")
        if not host.remote and not (thread := await host.get_thread(thread_id)).running:
            where = f" --folder {shlex.quote(thread.folder)}" if thread.folder not in ("", host.name) else ""
            click.echo(f"the run is interrupted; resume it with: wick run --thread {thread_id}{where}", err=True)
