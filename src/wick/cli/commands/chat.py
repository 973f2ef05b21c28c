"""`wick chat`: talk to an agent in the terminal, in the current folder."""

from __future__ import annotations

import asyncio
import sys

import click

from wick._internal.paths import data_folder
from wick.cli.commands.run import as_text
from wick.cli.completion import thread_ids
from wick.cli.host.agent_options import Wishes
from wick.cli.host.open import PLACE, WISHES, Place, opened
from wick.cli.host.protocol import Desk
from wick.cli.terminal.chat import Chat
from wick.cli.terminal.input import Lines
from wick.cli.terminal.logs import VERBOSE, log_to_stderr
from wick.cli.terminal.output import working
from wick.cli.terminal.slash_commands import obey, words
from wick.cli.terminal.typed_ahead import terminal_restored
from wick.errors import ConfigError

HISTORY = "chat_history"  # in the data folder
LEAVE = "Ctrl-C again leaves; so does Ctrl-D"


@click.command("chat")
@PLACE
@WISHES
@click.option("--continue", "goes_on", is_flag=True, help="Go on with the last thread of this folder.")
@click.option("--thread", default="", metavar="ID", shell_complete=thread_ids, help="Go on with this thread.")
@VERBOSE
def command(place: Place, wishes: Wishes, goes_on: bool, thread: str, verbose: bool) -> None:
    """Talk to an agent that works in the current folder.

    It asks before it changes anything. Ctrl-C stops what it does and keeps the thread; /help shows what else there is.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this needs a terminal; in pipes, say: wick run 'What is in this folder?'")
    if goes_on and thread:
        raise click.UsageError("say --continue or --thread, not both")
    log_to_stderr(verbose)
    with terminal_restored():
        asyncio.run(_chat(place, wishes, goes_on, thread))


async def _chat(place: Place, wishes: Wishes, goes_on: bool, thread: str) -> None:
    async with opened(place, wishes, waits=True) as desk:
        chat = Chat(desk)
        with working("getting ready"):
            thread = await _last(desk, place.here) if goes_on else thread
            await chat.prepare()
        await chat.open(thread)
        await _converse(chat, Lines(data_folder() / HISTORY, lambda: words(chat)))
        if chat.thread:
            chat.tell(f"go on with: wick chat --thread {chat.thread}")


async def _last(desk: Desk, here: str) -> str:
    found = await desk.threads(limit=1, folder=here)
    if not found:
        raise ConfigError(f"there is no thread of {here} yet; begin one with: wick chat")
    return found[0].id


async def _converse(chat: Chat, lines: Lines) -> None:
    warned = False
    while not chat.over:
        try:
            said = chat.later.pop(0) if chat.later else as_text(await lines.read())
        except EOFError:
            return
        except KeyboardInterrupt:
            if warned and not lines.typed:
                return
            warned = not lines.typed
            if warned:
                chat.tell(LEAVE)
            continue
        warned = False
        if not await obey(chat, said):
            await chat.say(said)
