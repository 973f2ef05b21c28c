"""`wick run`: answer one prompt, and say how it ended by the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from typing import Any

import click

from wick._internal.prompt_text import fenced, one_line
from wick.cli.completion import complete_thread_ids
from wick.cli.host.agent_options import AgentOverrides
from wick.cli.host.open import HostOptions, open_host, with_agent_overrides, with_host_options
from wick.cli.host.protocol import RunOutcome
from wick.cli.root_command import DONE, FAILED, INTERRUPTED, STOPPED, WAITING
from wick.cli.terminal.follow_run import Asker, follow_run
from wick.cli.terminal.logs import VERBOSE, log_to_stderr
from wick.cli.terminal.output import dump_json, print_text, show_status, strip_controls
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

MAX_STDIN_BYTES = 1_000_000  # bytes
EXIT_CODES = {"completed": DONE, "failed": FAILED, "stopped": STOPPED, "interrupted": WAITING, "cancelled": INTERRUPTED}


@click.command("run")
@click.argument("prompt", default="")
@with_host_options
@with_agent_overrides
@click.option(
    "--thread",
    default="",
    metavar="ID",
    shell_complete=complete_thread_ids,
    help="Go on with this thread; without a PROMPT, where it waits.",
)
@click.option("--recipe", default="", metavar="NAME", help="A recipe that says what is to be done.")
@click.option("--output", type=click.Choice(["text", "json", "events"]), default="text", help="What is printed.")
@VERBOSE
def command(
    prompt: str, place: HostOptions, wishes: AgentOverrides, thread: str, recipe: str, output: str, verbose: bool
) -> None:
    """Answer PROMPT in the current folder, with what is piped in as its context.

    The exit code is 0 if the run completed, 1 if it failed, 2 if the command is wrong, 3 if a hook or a limit stopped
    it, 4 if it waits for an answer that nobody is there to give, 130 if it was interrupted.
    """
    log_to_stderr(verbose)
    if recipe and not wishes.hooks:
        raise click.UsageError("--no-hooks loads no recipes; leave out --recipe or --no-hooks")
    words = replace_surrogates(_build_prompt(prompt, _read_stdin()))
    if not words and not recipe and not thread:
        raise click.UsageError("say what to do, as in: wick run 'What is in this folder?'")
    came_to = asyncio.run(_run_prompt(place, wishes, words, thread, recipe, _OUTPUTS[output]()))
    sys.exit(EXIT_CODES[came_to.outcome])


def replace_surrogates(words: str) -> str:
    """What somebody typed, whatever its bytes were, as text."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise ConfigError(f"more than {MAX_STDIN_BYTES:,} bytes were piped in; put them into a file and name it")
    return data.decode(errors="replace").strip()


def _build_prompt(prompt: str, piped: str) -> str:
    return "\n\n".join(filter(None, (prompt, fenced("stdin", piped) if piped and prompt else piped)))


async def _run_prompt(
    place: HostOptions, wishes: AgentOverrides, words: str, thread: str, recipe: str, shown: TextOutput
) -> RunOutcome:
    ask = _find_asker()
    async with open_host(place, wishes, waits=ask is not None) as desk:
        for sentence in await desk.warnings(thread):
            click.echo(strip_controls(sentence), err=True)
        talk = desk.talk(words, thread=thread, recipe=recipe) if words or recipe else desk.take_up(thread)
        await follow_run(desk, talk, lambda event: shown.event(event, mine=event.run_id == talk.run_id), ask)
        came_to = await talk.came_to()
    if came_to.code == "config_error":
        raise ConfigError(came_to.error)
    shown.end(came_to)
    return came_to


def _find_asker() -> Asker | None:
    """Who sits at the terminal, if anybody does."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from wick.cli.terminal.prompts import ApprovalPrompt

    return ApprovalPrompt(sys.stderr).ask


# -- what is printed ------------------------------------------------------------------------------------------------


class TextOutput:
    """What a run prints: its answer, as it comes."""

    def __init__(self) -> None:
        self.asked = ""
        self._begun = False  # something stands on this line
        self._doing = ExitStack()

    def event(self, event: Event, *, mine: bool) -> None:
        self._doing.close()
        self._show(event, mine)
        if words := _status_after(event):
            self._doing.enter_context(show_status(words))

    def _show(self, event: Event, mine: bool) -> None:
        if mine and isinstance(event, ChatModelStream) and event.kind == "text":
            self._say(event.delta)
        elif mine and isinstance(event, ChatModelRestart):
            self._break()
            self._say(event.content)
        elif mine and isinstance(event, ChatModelEnd):
            self._break()
        elif isinstance(event, ToolStart) and sys.stderr.isatty():
            click.secho(
                f"→ {strip_controls(event.name)} {strip_controls(one_line(json.dumps(event.args), 200))}",
                err=True,
                dim=True,
            )
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

    def end(self, came_to: RunOutcome) -> None:
        self._doing.close()
        self._break()
        if came_to.outcome == "interrupted" and self.asked:
            return click.echo(format_waiting(came_to, self.asked), err=True)
        if came_to.outcome != "completed":
            click.echo(f"{came_to.outcome}: {strip_controls(came_to.error or came_to.reason)}", err=True)


def format_waiting(came_to: RunOutcome, question: str) -> str:
    """What to do about a run that waits for an answer."""
    return (
        f"waiting for an answer to: {strip_controls(question)}\n"
        f"answer it with: wick approvals, and go on with: wick run --thread {came_to.thread}"
    )


def _status_after(event: Event) -> str:
    """What is being done after an event, where nothing else shows it."""
    if isinstance(event, ChatModelStart):
        return "thinking"
    return event.name if isinstance(event, ToolStart) else ""


class _EventOutput(TextOutput):
    """Every event, one JSON object a line."""

    def event(self, event: Event, *, mine: bool) -> None:
        click.echo(dump_json(event.to_json()))

    def end(self, came_to: RunOutcome) -> None:
        """The last event has said it."""


class _JsonOutput(TextOutput):
    """What the run came to, as one JSON object."""

    def event(self, event: Event, *, mine: bool) -> None:
        """Nothing before the end."""

    def end(self, came_to: RunOutcome) -> None:
        names = ("text", "outcome", "reason", "run", "thread", "usage", "cost", "error")
        told: dict[str, Any] = {name: getattr(came_to, name) for name in names}
        click.echo(
            dump_json({name: value for name, value in told.items() if value not in (None, "") or name == "text"})
        )


_OUTPUTS: dict[str, type[TextOutput]] = {"text": TextOutput, "json": _JsonOutput, "events": _EventOutput}
