"""`wick chat`: an interactive session with an agent in the current folder."""

from __future__ import annotations

import asyncio
import sys

import click

from wick._internal.paths import data_folder
from wick.cli.commands.run import replace_surrogates
from wick.cli.completion import complete_thread_ids
from wick.cli.host.agent_options import AgentOverrides
from wick.cli.host.open import (
    CONTINUE,
    HostOptions,
    open_host,
    with_agent_overrides,
    with_host_options,
)
from wick.cli.host.thread_ids import LAST, find_thread_id
from wick.cli.terminal.chat import Chat
from wick.cli.terminal.input import LineReader
from wick.cli.terminal.logs import VERBOSE, log_to_stderr
from wick.cli.terminal.output import show_status
from wick.cli.terminal.slash_commands import describe_commands, run_slash_command
from wick.cli.terminal.typed_ahead import restore_terminal_on_sigterm

HISTORY = "chat_history"  # in the data folder
LEAVE_HINT = "press Ctrl-C again or Ctrl-D to quit"


@click.command("chat")
@with_host_options
@with_agent_overrides
@CONTINUE
@click.option("--thread", default="", metavar="ID", shell_complete=complete_thread_ids, help="Continue this thread.")
@VERBOSE
def command(options: HostOptions, overrides: AgentOverrides, resume: bool, thread: str, verbose: bool) -> None:
    """Chat with an agent in the current folder.

    It asks before it changes anything. Ctrl-C stops the run, not the thread; /help lists the commands.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("chat needs a terminal; in a pipe, use: wick run 'What is in this folder?'")
    if resume and thread:
        raise click.UsageError("use only one of --continue and --thread")
    log_to_stderr(verbose)
    with restore_terminal_on_sigterm():
        asyncio.run(_run_chat(options, overrides, resume, thread))


async def _run_chat(options: HostOptions, overrides: AgentOverrides, resume: bool, thread: str) -> None:
    async with open_host(options, overrides, interactive=True) as host:
        chat = Chat(host)
        with show_status("starting"):
            thread = await find_thread_id(host, LAST if resume else thread, options.absolute_folder)
            await chat.prepare()
        await chat.open(thread)
        await _converse(chat, LineReader(data_folder() / HISTORY, lambda: describe_commands(chat)))
        if chat.thread:
            chat.print_notice(f"continue with: wick chat --thread {chat.thread}{host.hint_options}")


async def _converse(chat: Chat, lines: LineReader) -> None:
    warned = False
    while not chat.is_over:
        try:
            text = chat.queued_lines.pop(0) if chat.queued_lines else replace_surrogates(await lines.read())
        except EOFError:
            return
        except KeyboardInterrupt:
            if warned and not lines.typed_text:
                return
            warned = not lines.typed_text
            if warned:
                chat.print_notice(LEAVE_HINT)
            continue
        warned = False
        if not await run_slash_command(chat, text):
            await chat.send_prompt(text)
