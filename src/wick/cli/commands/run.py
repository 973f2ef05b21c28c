"""`wick run`: answer one prompt, and say how it ended by the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from typing import Any

import click

from wick._internal.prompt_text import fence_text, to_one_line
from wick.cli.completion import thread_ids
from wick.cli.host.agent_options import Wishes
from wick.cli.host.open import PLACE, WISHES, Place, opened
from wick.cli.host.protocol import CameTo
from wick.cli.root_command import DONE, FAILED, INTERRUPTED, STOPPED, WAITING
from wick.cli.terminal.follow_run import Asker, follow
from wick.cli.terminal.logs import VERBOSE, log_to_stderr
from wick.cli.terminal.output import json_text, plain, print_text, working
from wick.errors import ConfigError
from wick.events import (
    ApprovalRequest,
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Event,
    ToolStart,
)

MOST_PIPED = 1_000_000  # bytes
CODES = {"completed": DONE, "failed": FAILED, "stopped": STOPPED, "interrupted": WAITING, "cancelled": INTERRUPTED}


@click.command("run")
@click.argument("prompt", default="")
@PLACE
@WISHES
@click.option(
    "--thread",
    default="",
    metavar="ID",
    shell_complete=thread_ids,
    help="Go on with this thread; without a PROMPT, where it waits.",
)
@click.option("--recipe", default="", metavar="NAME", help="A recipe that says what is to be done.")
@click.option("--output", type=click.Choice(["text", "json", "events"]), default="text", help="What is printed.")
@VERBOSE
def command(prompt: str, place: Place, wishes: Wishes, thread: str, recipe: str, output: str, verbose: bool) -> None:
    """Answer PROMPT in the current folder, with what is piped in as its context.

    The exit code is 0 if the run completed, 1 if it failed, 2 if the command is wrong, 3 if a hook or a limit stopped
    it, 4 if it waits for an answer that nobody is there to give, 130 if it was interrupted.
    """
    log_to_stderr(verbose)
    if recipe and not wishes.hooks:
        raise click.UsageError("--no-hooks loads no recipes; leave out --recipe or --no-hooks")
    words = as_text(_words(prompt, _piped()))
    if not words and not recipe and not thread:
        raise click.UsageError("say what to do, as in: wick run 'What is in this folder?'")
    came_to = asyncio.run(_answered(place, wishes, words, thread, recipe, _SHOWN[output]()))
    sys.exit(CODES[came_to.outcome])


def as_text(words: str) -> str:
    """What somebody typed, whatever its bytes were, as text."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        raise ConfigError(f"more than {MOST_PIPED:,} bytes were piped in; put them into a file and name it")
    return data.decode(errors="replace").strip()


def _words(prompt: str, piped: str) -> str:
    return "\n\n".join(filter(None, (prompt, fence_text("stdin", piped) if piped and prompt else piped)))


async def _answered(place: Place, wishes: Wishes, words: str, thread: str, recipe: str, shown: Shown) -> CameTo:
    ask = _terminal()
    async with opened(place, wishes, waits=ask is not None) as desk:
        for sentence in await desk.warnings(thread):
            click.echo(plain(sentence), err=True)
        talk = desk.talk(words, thread=thread, recipe=recipe) if words or recipe else desk.take_up(thread)
        await follow(desk, talk, lambda event: shown.event(event, mine=event.run_id == talk.run_id), ask)
        came_to = await talk.came_to()
    if came_to.code == "config_error":
        raise ConfigError(came_to.error)
    shown.end(came_to)
    return came_to


def _terminal() -> Asker | None:
    """Who sits at the terminal, if anybody does."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from wick.cli.terminal.prompts import Terminal

    return Terminal(sys.stderr).ask


# -- what is printed ------------------------------------------------------------------------------------------------


class Shown:
    """What a run prints: its answer, as it comes."""

    def __init__(self) -> None:
        self.asked = ""
        self._begun = False  # something stands on this line
        self._doing = ExitStack()

    def event(self, event: Event, *, mine: bool) -> None:
        self._doing.close()
        self._show(event, mine)
        if words := _doing(event):
            self._doing.enter_context(working(words))

    def _show(self, event: Event, mine: bool) -> None:
        if mine and isinstance(event, ChatModelStream) and event.kind == "text":
            self._say(event.delta)
        elif mine and isinstance(event, ChatModelRestart):
            self._break()
            self._say(event.content)
        elif mine and isinstance(event, ChatModelEnd):
            self._break()
        elif isinstance(event, ToolStart) and sys.stderr.isatty():
            click.secho(f"→ {plain(event.name)} {plain(to_one_line(json.dumps(event.args), 200))}", err=True, dim=True)
        elif isinstance(event, ApprovalRequest):
            self.asked = event.question

    def _say(self, words: str) -> None:
        if words:
            print_text(words)
            self._begun = True

    def _break(self) -> None:
        if self._begun:
            click.echo()
            self._begun = False

    def end(self, came_to: CameTo) -> None:
        self._doing.close()
        self._break()
        if came_to.outcome == "interrupted" and self.asked:
            return click.echo(waiting(came_to, self.asked), err=True)
        if came_to.outcome != "completed":
            click.echo(f"{came_to.outcome}: {plain(came_to.error or came_to.reason)}", err=True)


def waiting(came_to: CameTo, question: str) -> str:
    """What to do about a run that waits for an answer."""
    return (
        f"waiting for an answer to: {plain(question)}\n"
        f"answer it with: wick approvals, and go on with: wick run --thread {came_to.thread}"
    )


def _doing(event: Event) -> str:
    """What is being done after an event, where nothing else shows it."""
    if isinstance(event, ChatModelStart):
        return "thinking"
    return event.name if isinstance(event, ToolStart) else ""


class _Events(Shown):
    """Every event, one JSON object a line."""

    def event(self, event: Event, *, mine: bool) -> None:
        click.echo(json_text(event.to_json()))

    def end(self, came_to: CameTo) -> None:
        """The last event has said it."""


class _Json(Shown):
    """What the run came to, as one JSON object."""

    def event(self, event: Event, *, mine: bool) -> None:
        """Nothing before the end."""

    def end(self, came_to: CameTo) -> None:
        names = ("text", "outcome", "reason", "run", "thread", "usage", "cost", "error")
        told: dict[str, Any] = {name: getattr(came_to, name) for name in names}
        click.echo(
            json_text({name: value for name, value in told.items() if value not in (None, "") or name == "text"})
        )


_SHOWN: dict[str, type[Shown]] = {"text": Shown, "json": _Json, "events": _Events}
