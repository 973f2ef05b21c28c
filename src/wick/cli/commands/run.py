"""`wick run`: answer one prompt; the exit code is its outcome."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from wick._internal.prompt_text import fence_text, to_one_line
from wick.cli.completion import complete_thread_ids
from wick.cli.host.agent_options import AgentOverrides
from wick.cli.host.open import (
    CONTINUE,
    HostOptions,
    open_host,
    with_agent_overrides,
    with_host_options,
)
from wick.cli.host.protocol import RunOutcome
from wick.cli.host.thread_ids import LAST, find_thread_id
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

MAX_STDIN_BYTES = 1_000_000
EXIT_CODES = {"completed": DONE, "failed": FAILED, "stopped": STOPPED, "interrupted": WAITING, "cancelled": INTERRUPTED}


@click.command("run")
@click.argument("prompt", default="")
@with_host_options
@with_agent_overrides
@CONTINUE
@click.option(
    "--thread",
    default="",
    metavar="ID",
    shell_complete=complete_thread_ids,
    help="Continue this thread, or the `last` of this folder; without PROMPT, resume its interrupted run.",
)
@click.option("--recipe", default="", metavar="NAME", help="Run this recipe.")
@click.option("--output", type=click.Choice(["text", "json", "events"]), default="text", help="The output format.")
@VERBOSE
def command(
    prompt: str,
    options: HostOptions,
    overrides: AgentOverrides,
    resume: bool,
    thread: str,
    recipe: str,
    output: str,
    verbose: bool,
) -> None:
    """Answer PROMPT in the current folder, with stdin as its context.

    The exit code is 0 if the run completed, 1 if it failed, 2 if the command is invalid, 3 if a hook or a limit stopped
    it, 4 if it waits for an answer, 130 if it was interrupted.
    """
    log_to_stderr(verbose)
    if recipe and not overrides.hooks:
        raise click.UsageError("--recipe does not work with --no-hooks, which loads no recipes")
    if resume and thread:
        raise click.UsageError("use only one of --continue and --thread")
    piped = _read_stdin()
    parts = (prompt, fence_text("stdin", piped) if piped and prompt else piped)
    words = replace_surrogates("\n\n".join(filter(None, parts)))
    if not words and not recipe and not thread and not resume:
        raise click.UsageError("a prompt is missing, as in: wick run 'What is in this folder?'")
    request = RunInput(words, LAST if resume else thread, recipe)
    outcome = asyncio.run(_run_prompt(options, overrides, request, _OUTPUTS[output](options.hint_options)))
    sys.exit(EXIT_CODES[outcome.outcome])


def replace_surrogates(words: str) -> str:
    """Replace undecodable bytes of an argument, which Python keeps as surrogates."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise ConfigError(
            f"stdin has more than {MAX_STDIN_BYTES:,} bytes; write them to a file and pass its path in the prompt"
        )
    return data.decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class RunInput:
    """A prompt or a recipe, for a new thread or a given one."""

    words: str
    thread: str
    recipe: str


async def _run_prompt(
    options: HostOptions, overrides: AgentOverrides, request: RunInput, shown: TextOutput
) -> RunOutcome:
    ask: Asker | None = None
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        from wick.cli.terminal.prompts import ApprovalPrompt

        ask = ApprovalPrompt(sys.stderr).ask
    async with open_host(options, overrides, interactive=ask is not None) as host:
        words, recipe = request.words, request.recipe
        thread = await find_thread_id(host, request.thread, options.absolute_folder)
        for sentence in await host.list_warnings(thread):
            click.echo(strip_controls(sentence), err=True)
        run = host.start_run(words, thread=thread, recipe=recipe) if words or recipe else host.resume_run(thread)
        await follow_run(host, run, lambda event: shown.on_event(event, is_main_run=event.run_id == run.run_id), ask)
        outcome = await run.get_outcome()
    if outcome.code == "config_error":
        raise ConfigError(outcome.error)
    shown.finish(outcome)
    if not words and not recipe and outcome.outcome == "completed" and not outcome.text:
        click.echo(f"nothing to resume: the last run of thread {thread} is completed", err=True)
    return outcome


# -- output ---------------------------------------------------------------------------------------------------------


class TextOutput:
    """Output of the answer as streamed text."""

    def __init__(self, hint_options: str = "") -> None:
        self.question, self.hint_options = "", hint_options
        self._line_is_open = False  # the current line has text
        self._status = ExitStack()

    def on_event(self, event: Event, *, is_main_run: bool) -> None:
        self._status.close()
        if is_main_run and isinstance(event, ChatModelStream) and event.kind == "text":
            self._print_delta(event.delta)
        elif is_main_run and isinstance(event, ChatModelRestart):
            self._end_line()
            self._print_delta(event.content)
        elif is_main_run and isinstance(event, ChatModelEnd):
            self._end_line()
        elif isinstance(event, ToolStart) and sys.stderr.isatty():
            click.secho(
                f"→ {strip_controls(event.name)} {strip_controls(to_one_line(json.dumps(event.args), 200))}",
                err=True,
                dim=True,
            )
        elif isinstance(event, ApprovalRequest):
            self.question = event.question
        status = "thinking" if isinstance(event, ChatModelStart) else event.name if isinstance(event, ToolStart) else ""
        if status:
            self._status.enter_context(show_status(status))

    def _print_delta(self, words: str) -> None:
        if words:
            print_text(words)
            self._line_is_open = True

    def _end_line(self) -> None:
        if self._line_is_open:
            click.echo()
            self._line_is_open = False

    def finish(self, outcome: RunOutcome) -> None:
        self._status.close()
        self._end_line()
        if outcome.outcome == "interrupted" and self.question:
            return click.echo(format_waiting(outcome, self.question, self.hint_options), err=True)
        if outcome.outcome != "completed":
            click.echo(f"{outcome.outcome}: {strip_controls(outcome.error or outcome.reason)}", err=True)


def format_waiting(outcome: RunOutcome, question: str, hint_options: str = "") -> str:
    """Return the hint for a run that waits for an answer. A server, selected by options, continues its runs itself."""
    hint = f"answer it with: wick approvals; then resume with: wick run --thread {outcome.thread}"
    if hint_options:
        hint = (
            f"answer it with: wick approvals{hint_options}; the server then continues the run, "
            f"and the reply is in: wick threads show {outcome.thread}{hint_options}"
        )
    return f"waiting for an answer to: {strip_controls(question)}\n{hint}"


class _EventOutput(TextOutput):
    """Output of every event as one JSON object per line."""

    def on_event(self, event: Event, *, is_main_run: bool) -> None:
        click.echo(dump_json(event.to_json()))

    def finish(self, outcome: RunOutcome) -> None:
        """Print nothing: the last event has the outcome."""


class _JsonOutput(TextOutput):
    """Output of the result as one JSON object."""

    def on_event(self, event: Event, *, is_main_run: bool) -> None:
        """Print nothing before the end."""

    def finish(self, outcome: RunOutcome) -> None:
        names = ("text", "outcome", "reason", "run", "thread", "usage", "cost", "error")
        fields: dict[str, Any] = {name: getattr(outcome, name) for name in names}
        click.echo(
            dump_json({name: value for name, value in fields.items() if value not in (None, "") or name == "text"})
        )


_OUTPUTS: dict[str, type[TextOutput]] = {"text": TextOutput, "json": _JsonOutput, "events": _EventOutput}
