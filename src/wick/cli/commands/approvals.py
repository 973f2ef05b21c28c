"""`wick approvals`: list pending questions of agents, and answer them."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace
from typing import Any

import click
from click.core import ParameterSource

from wick._internal.visible_text import cut_visible, format_count, make_visible
from wick.api.types import Approval, Choice, ThreadInfo
from wick.approvals import START_AFRESH
from wick.cli.command_group import CommandGroup
from wick.cli.completion import complete_question_ids, complete_thread_ids
from wick.cli.host.open import HostOptions, call_host, open_host, with_host_options
from wick.cli.host.protocol import AgentHost
from wick.cli.host.thread_ids import choose_id, find_thread_id
from wick.cli.terminal.output import JSON, dump_json, print_json, print_table, show_status, strip_controls
from wick.errors import ConfigError, WickError

POLL_SECONDS = 1.0  # between two requests with --watch
SHOWN_CHARS = 2_000  # of the arguments, in a list


@click.group("approvals", cls=CommandGroup, invoke_without_command=True)
@with_host_options
@click.option(
    "--thread", default="", metavar="THREAD", shell_complete=complete_thread_ids, help="Only questions of this thread."
)
@click.option("--watch", is_flag=True, help="Watch for new questions until Ctrl-C.")
@JSON
@click.pass_context
def command(ctx: click.Context, options: HostOptions, thread: str, watch: bool, as_json: bool) -> None:
    """List pending questions, and answer them.

    With --watch and --json each question is one line of JSON.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = GroupOptions(options, thread)
        return
    if watch:
        return asyncio.run(_watch_approvals(options, thread, as_json))
    with show_status("loading questions"):
        pending, hidden = call_host(options, lambda host: _list_pending_and_hidden(host, options, thread))
    if as_json:
        return print_json([_approval_json(approval) for approval in pending])
    _print_pending(pending)
    if hidden:
        click.echo(_describe_hidden(hidden), err=True)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options before `allow` or `deny`."""

    host: HostOptions
    thread: str


async def _list_pending(host: AgentHost, options: HostOptions, thread: str) -> list[Approval]:
    return await host.list_approvals(await find_thread_id(host, thread, options.absolute_folder))


async def _list_pending_and_hidden(host: AgentHost, options: HostOptions, thread: str) -> tuple[list[Approval], int]:
    pending = await _list_pending(host, options, thread)
    return pending, 0 if pending or thread else await host.count_hidden_approvals()


def _describe_hidden(count: int) -> str:
    questions = format_count(count, "question")
    return f"{questions} of runs with a `user=` of their own: a program answers these, with sessions.answer(…, owner=…)"


def _print_pending(pending: list[Approval]) -> None:
    rows = [
        (approval.id, approval.thread_id, approval.agent_id, _format_question(approval), _format_time_left(approval))
        for approval in pending
    ]
    print_table(("question", "thread", "agent", "what", "expires in"), rows, nothing="no pending questions")


async def _watch_approvals(options: HostOptions, thread: str, as_json: bool) -> None:
    async with open_host(options) as host:
        thread = await find_thread_id(host, thread, options.absolute_folder)
        async for approval in _iter_new_approvals(host, thread):
            if as_json:
                click.echo(dump_json(_approval_json(approval)))
                continue
            click.secho(f"{approval.id}  {strip_controls(approval.agent_id)}  {approval.thread_id}", bold=True)
            click.echo(f"  {_format_question(approval)}")
            at = f"{approval.id}{host.hint_options}"
            click.echo(f"  wick approvals allow {at}  ·  wick approvals deny {at} 'reason'")
            if approval.about.get("files") == "missing":
                click.echo(f"  without the files: wick approvals allow {at} --start-afresh")


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
    question = make_visible(approval.question, mark_breaks=False)
    listed = cut_visible(json.dumps(rest, ensure_ascii=False), SHOWN_CHARS) if rest else ""
    shown += [listed] if listed and listed not in question else []
    return " ".join(filter(None, (question, f"[{approval.tool}]" if approval.tool else "", *shown)))


def _format_time_left(approval: Approval) -> str:
    if approval.expires is None:
        return "-"
    minutes = max(0, int(approval.expires - time.time())) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


# -- answers --------------------------------------------------------------------------------------------------------

QUESTION = click.argument("id", metavar="[QUESTION]", default="", shell_complete=complete_question_ids)


@command.command()
@QUESTION
@click.option("--session", is_flag=True, help="Allow the same tool use for the rest of this thread.")
@click.option("--always", is_flag=True, help="Always allow the same tool use.")
@click.option("--source", is_flag=True, help="Let the source of the values name such targets for the rest of this run.")
@click.option("--step", is_flag=True, help="Also allow the other questions of the same step.")
@click.option("--args", "changed", metavar="JSON", help="Replace the arguments of the tool use with this JSON object.")
@click.option(
    "--start-afresh", "afresh", is_flag=True, help="If files of a workspace are missing: continue in an empty folder."
)
@click.argument("words", default="")
@with_host_options
@click.pass_obj
def allow(
    group: GroupOptions,
    options: HostOptions,
    id: str,
    session: bool,
    always: bool,
    source: bool,
    step: bool,
    changed: str | None,
    afresh: bool,
    words: str,
) -> None:
    """Allow QUESTION; WORDS answer a question of the tool ask_user.

    QUESTION is an id or its beginning. It can be left out if exactly one question is pending.
    """
    given = {"--session": session, "--always": always, "--source": source, "--step": step}
    if sum(given.values()) > 1:
        raise click.UsageError(f"use only one of {', '.join(name for name in given if given[name])}")
    if afresh and (any(given.values()) or changed is not None):
        raise click.UsageError("use --start-afresh without another option")
    choices: tuple[Choice, ...] = ("allow_session", "allow_always", "allow_source", "allow_step")
    choice: Choice = next(
        (choice for choice, is_given in zip(choices, given.values(), strict=True) if is_given), "allow"
    )
    args = {"workspace": START_AFRESH} if afresh else None
    if changed is not None:
        try:
            args = json.loads(changed)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"--args is not valid JSON: {error}") from None
        if not isinstance(args, dict):
            raise ConfigError('--args must be a JSON object, such as {"command": "git status"}')
    asyncio.run(_send_answer(_merge_options(options, group), group.thread, ApprovalAnswer(id, choice, words, args)))


@command.command()
@QUESTION
@click.option("--step", is_flag=True, help="Also deny the other questions of the same step.")
@click.argument("words", default="")
@with_host_options
@click.pass_obj
def deny(group: GroupOptions, options: HostOptions, id: str, step: bool, words: str) -> None:
    """Deny QUESTION, with WORDS as the reason for the agent.

    QUESTION is an id or its beginning. It can be left out if exactly one question is pending.
    """
    choice: Choice = "deny_step" if step else "deny"
    asyncio.run(_send_answer(_merge_options(options, group), group.thread, ApprovalAnswer(id, choice, words)))


def _merge_options(options: HostOptions, group: GroupOptions) -> HostOptions:
    """Return the options given before `allow` or `deny`, each replaced by one that is given after it."""
    ctx = click.get_current_context()
    given = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if ctx.get_parameter_source(field.name) is ParameterSource.COMMANDLINE  # WICK_SERVER replaces no option
    }
    return replace(group.host, **given)


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """An answer as given on the command line; `id` may be empty, or the beginning of an id."""

    id: str
    choice: Choice
    words: str
    args: dict[str, Any] | None = None


def choose_question(pending: list[Approval], answer: ApprovalAnswer, hint_options: str) -> tuple[Approval, str]:
    """Return the question that an answer is for, and its words. Without an id, exactly one must be pending.

    An id has no spaces, so that a single argument with spaces is the words.
    """
    id, words = (answer.id, answer.words) if " " not in answer.id or answer.words else ("", answer.id)
    if not id and len(pending) > 1:
        _print_pending(pending)
        raise ConfigError(f"{len(pending)} questions are pending; choose one by its id")
    if not id and not pending:
        raise ConfigError("no pending questions")
    chosen = choose_id(id, [approval.id for approval in pending], "pending question", f"wick approvals{hint_options}")
    return next(approval for approval in pending if approval.id == chosen), words


async def _send_answer(options: HostOptions, thread: str, answer: ApprovalAnswer) -> None:
    async with open_host(options) as host:
        pending, hidden = await _list_pending_and_hidden(host, options, thread)
        if hidden:
            raise ConfigError(f"no pending questions; {_describe_hidden(hidden)}")
        question, words = choose_question(pending, answer, host.hint_options)
        try:
            thread_id = await host.answer_approval(
                question.id, answer.choice, words=words, args=answer.args, thread=question.thread_id
            )
        except WickError as error:
            if getattr(error, "code", "") != "conflict":
                raise
            raise ConfigError(str(error)) from None  # it was answered meanwhile, or has expired
        about = "" if answer.id == question.id else f"  {_format_question(question)}"
        if answer.args is not None:  # the question has the old ones
            about = f"  {_format_question(question.model_copy(update={'question': '', 'args': answer.args}))}"
        click.echo(f"{'denied' if answer.choice.startswith('deny') else 'allowed'}: {question.id}{about}")
        if not host.remote:
            for note in _list_notes(await host.get_thread(thread_id), host.name, is_changed=answer.args is not None):
                click.echo(note, err=True)


def _list_notes(thread: ThreadInfo, folder: str, *, is_changed: bool) -> list[str]:
    """Return notes about an answered run on this machine: whether its arguments were checked, and how it continues."""
    notes, is_own = list[str](), bool(thread.folder) and not thread.agent_id
    if is_changed and (not is_own or thread.folder != folder):
        notes.append("the new arguments are not checked yet; they are checked when the run continues")
    if thread.running:
        return notes
    if thread.agent_id:
        notes.append("the run is interrupted; the server of this data folder resumes it")
    elif not is_own:
        notes.append(
            f"the run is interrupted; the program that asked resumes it, with: agent.run(thread={thread.id!r})"
        )
    else:
        where = "" if thread.folder == folder else f" --folder {shlex.quote(thread.folder)}"
        notes.append(f"the run is interrupted; resume it with: wick run --thread {thread.id}{where}")
    return notes
