"""Groups of commands, and errors about unknown commands and options that name the closest one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from shlex import quote

import click

_FAMILIAR_OPTIONS = {  # of other programs
    "concurrency": "--jobs",
    "filter": "--case",
    "parallel": "--jobs",
    "replay": "--offline",
    "report": "--html",
    "workers": "--jobs",
}


class CommandGroup(click.Group):
    """A click group that suggests a command for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        if " " in name and ctx.parent is None:
            raise click.UsageError(f"there is no command {name!r}; to send a prompt, use: wick run {quote(name)}", ctx)
        commands = self.list_commands(ctx)
        if "check" in commands and name.endswith((".yaml", ".yml")):  # a file, as in `wick agents agents.yaml`
            hint = f"did you mean {ctx.command_path} check {name}?"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        hint = suggest_word(name, [*commands, *list_options(ctx)]) or f"the commands are {', '.join(commands)}"
        raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)


def explain_unknown_option(error: click.NoSuchOption) -> click.UsageError:
    """Return an error that names the closest option of the command, or the help that lists all of them."""
    name, ctx = error.option_name, error.ctx
    if ctx is None:
        return error
    options = list_options(ctx)
    familiar = _FAMILIAR_OPTIONS.get(name.lstrip("-"))
    hint = f"did you mean {familiar}?" if familiar in options else suggest_word(name, options)
    if not hint and ctx.parent is None:
        hint = "options follow the command, as in: wick run --model demo"
    return click.UsageError(f"there is no option {name!r}; {hint or f'{ctx.command_path} --help lists them'}", ctx)


def list_options(ctx: click.Context) -> list[str]:
    """Return the names of all options of a command."""
    names = (name for param in ctx.command.get_params(ctx) for name in (*param.opts, *param.secondary_opts))
    return [name for name in names if name.startswith("-")]


def suggest_word(word: str, known: Iterable[str]) -> str:
    """Return `did you mean …?` with the closest known word, or an empty string if none is close."""
    by_name = {name.lstrip("-"): name for name in known}  # dashes would make short options look alike
    wanted = word.lstrip("-").lower()
    starts = [name for name in by_name if len(wanted) > 1 and name.startswith(wanted)]
    close = [*starts, *get_close_matches(wanted, by_name, n=1)]
    return f"did you mean {by_name[close[0]]}?" if close else ""
