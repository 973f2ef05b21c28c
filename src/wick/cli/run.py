"""`wick run`: answer one prompt, and say how it ended by the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from wick.agent import Agent, Stream
from wick.cli.agents import AGENT, FOLDER, Chosen
from wick.cli.frame import DONE, FAILED, INTERRUPTED, STOPPED, WAITING
from wick.decisions import Question
from wick.errors import ConfigError
from wick.events import ChatModelRestart, ChatModelStream, Event, ToolStart
from wick.fencing import fenced, one_line
from wick.operations import Result
from wick.workers import in_thread

MOST_PIPED = 1_000_000  # bytes
CODES = {"completed": DONE, "failed": FAILED, "stopped": STOPPED, "interrupted": WAITING, "cancelled": INTERRUPTED}


@click.command("run")
@click.argument("prompt", default="")
@click.option("--model", default="", help="A model, such as sonnet, ollama:llama3.1:8b or demo.")
@AGENT
@click.option("--recipe", default="", metavar="NAME", help="A recipe that says what is to be done.")
@click.option("--output", type=click.Choice(["text", "json", "events"]), default="text", help="What is printed.")
@click.option("--max-steps", type=click.IntRange(1), help="How often the model is asked at most.")
@FOLDER
def command(
    prompt: str, model: str, agent: str | None, recipe: str, output: str, max_steps: int | None, folder: str
) -> None:
    """Answer PROMPT, with what is piped in as its context.

    The exit code is 0 if the run completed, 1 if it failed, 2 if the command is wrong, 3 if a hook or a limit stopped
    it, 4 if it waits for an answer.
    """
    words = _words(prompt, _piped())
    if not words and not recipe:
        raise click.UsageError("say what to do, as in: wick run 'What is in this folder?'")
    chosen = Chosen(agent, folder)
    made = chosen.built(model=model, ask=_ask if sys.stdin.isatty() else None, steps=max_steps)
    try:
        sys.exit(CODES[asyncio.run(_answer(chosen, made, words, recipe, _SHOWN[output]())).outcome])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        raise ConfigError(f"more than {MOST_PIPED:,} bytes were piped in; put them into a file and name it")
    return data.decode(errors="replace").strip()


def _words(prompt: str, piped: str) -> str:
    return "\n\n".join(filter(None, (prompt, fenced("stdin", piped) if piped and prompt else piped)))


async def _ask(question: Question) -> bool:
    told = "".join(char for char in question.question if char.isprintable() or char == "\n")
    return await in_thread(lambda: click.confirm(told, err=True), "the terminal")


async def _answer(chosen: Chosen, agent: Agent, words: str, recipe: str, shown: Shown) -> Result:
    try:
        stream = agent.stream(words, recipe=recipe)
        async for event in stream:
            shown.event(event, mine=event.run_id == stream.run.id)
        result = _came_to(stream)
        shown.end(result, stream)
        return result
    finally:
        await chosen.close()


def _came_to(stream: Stream) -> Result:
    result = stream.result
    if result is None or isinstance(result.error, ConfigError):
        raise (result.error if result else None) or ConfigError("the run did not begin")
    return result


# -- what is printed ------------------------------------------------------------------------------------------------


class Shown:
    """What a run prints: its answer, as it comes."""

    def event(self, event: Event, *, mine: bool) -> None:
        if mine and isinstance(event, ChatModelStream) and event.kind == "text":
            click.echo(event.delta, nl=False)
        elif mine and isinstance(event, ChatModelRestart):
            click.echo(f"\n{event.content}", nl=False)
        elif isinstance(event, ToolStart) and sys.stderr.isatty():
            click.secho(f"\n→ {event.name} {one_line(json.dumps(event.args), 200)}", err=True, dim=True)

    def end(self, result: Result, stream: Stream) -> None:
        click.echo()
        if result.outcome != "completed":
            click.echo(f"{result.outcome}: {result.error or result.reason}", err=True)


class _Events(Shown):
    """Every event, one JSON object a line."""

    def event(self, event: Event, *, mine: bool) -> None:
        click.echo(json.dumps(event.to_json(), ensure_ascii=False, default=str))

    def end(self, result: Result, stream: Stream) -> None:
        """The last event has said it."""


class _Json(Shown):
    """What the run came to, as one JSON object."""

    def event(self, event: Event, *, mine: bool) -> None:
        """Nothing before the end."""

    def end(self, result: Result, stream: Stream) -> None:
        told: dict[str, Any] = {"text": result.text, "outcome": result.outcome, "reason": result.reason}
        told |= {"run": stream.run.id, "thread": stream.run.thread.id, "usage": result.usage.to_json()}
        told |= {"price": str(result.price)} if result.price is not None else {}
        told |= {"error": str(result.error)} if result.error is not None else {}
        click.echo(json.dumps(told, ensure_ascii=False))


_SHOWN: dict[str, type[Shown]] = {"text": Shown, "json": _Json, "events": _Events}
