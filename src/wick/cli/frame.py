"""What all commands have in common: how they are found, what their exit codes mean, how they tell what went wrong.

0    it was done
1    it failed
2    it was called wrongly, or a file that it was given is wrong
3    it was stopped or refused: by a hook, a limit, a budget
4    it waits for somebody's answer
130  it was interrupted
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from wick.errors import ConfigError, WickError

DONE, FAILED, WRONG, STOPPED, WAITING, INTERRUPTED = 0, 1, 2, 3, 4, 130

COMMANDS = {
    "hooks": "See, trust, try and make hooks.",
    "run": "Answer one prompt.",
    "serve": "Serve agents over HTTP, with a page to talk to them.",
}


class Commands(click.Group):
    """Loads the file of a command when it is named, so that what is not asked for costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"wick.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """A user's mistake is a sentence, not a traceback."""
        try:
            return super().invoke(ctx)
        except (WickError, OSError) as error:
            kind = _Wrong if isinstance(error, ConfigError) else click.ClickException
            raise kind(str(error)) from None


class _Wrong(click.ClickException):
    exit_code = WRONG


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wick-agent", prog_name="wick")
def wick() -> None:
    """Agents made of hooks."""
