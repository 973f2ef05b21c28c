"""The root command `wick`: lazy loading of commands, exit codes and error messages.

0    success
1    failure
2    invalid arguments, or an invalid input file
3    stopped or refused by a hook, a limit or a budget
4    waiting for an answer
130  interrupted by Ctrl-C
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem, add_completion_class

from wick._internal.plugins import find_plugin, find_plugins
from wick.cli.command_group import CommandGroup, explain_unknown_option
from wick.cli.command_help import add_help
from wick.cli.completion import BashCompletion
from wick.cli.terminal.output import strip_controls
from wick.errors import ConfigError, InvalidArgs, MissingExtra, WickError

DONE, FAILED, WRONG, STOPPED, WAITING, INTERRUPTED = 0, 1, 2, 3, 4, 130

COMMANDS = {
    "agents": "List agents, and validate an agents.yaml.",
    "approvals": "List pending questions, and answer them.",
    "chat": "Chat with an agent in the terminal.",
    "cluster": "List the servers of a cluster, and check that they are alive.",
    "completion": "Print the completion script of a shell.",
    "doctor": "Check packages, programs, sandboxes, models, the data folder and the port.",
    "drain": "Drain a server: its runs end, or continue on another one.",
    "eval": "Run the cases of a suite with several agents, and compare the results.",
    "hooks": "List, trust, test and create hooks.",
    "mcp": "List and test the MCP servers of agents, or serve an agent over MCP.",
    "new": "Create a project: an agent, a hook, a tool and tests.",
    "replay": "Evaluate recorded tool uses with other guards or rules.",
    "run": "Run one prompt, and print the answer.",
    "serve": "Serve agents over HTTP, with a web interface.",
    "skills": "List the skills of an agent, and create one.",
    "threads": "List, show, fork, export and delete threads.",
    "tools": "List what the tools of an agent declare.",
    "undo": "Undo the changes of files since a moment of a thread.",
}


class RootCommand(CommandGroup):
    """The group of all commands. It imports the module of a command when it is called, to start quickly."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            raise explain_unknown_option(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name, _ in _list_plugins())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = import_module(f"wick.cli.commands.{cmd_name}").command
            add_help(command, cmd_name)
            return command
        if (plugin := find_plugin("wick.commands", cmd_name)) is None:
            return None
        command = plugin.load()
        if not isinstance(command, click.Command):
            raise plugin.build_error("is not a command of click")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])
        if plugins := _list_plugins():
            with formatter.section("Commands of installed packages"):
                formatter.write_dl(plugins)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and options without importing a command."""
        items = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Print errors as a sentence, without a traceback."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader closed the pipe
        except click.NoSuchOption as error:
            raise explain_unknown_option(error) from None
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("prompt_toolkit", "rich"):
                raise
            raise _InvalidCall(str(MissingExtra("cli", error.name or "", "this command"))) from None
        except (WickError, OSError) as error:
            code = getattr(error, "code", "")
            wrong = isinstance(error, ConfigError | InvalidArgs) or code in ("invalid", "invalid_args", "not_found")
            message = str(error)
            if isinstance(error, FileNotFoundError) and error.filename is None:  # raised by getcwd
                message = "the current folder does not exist any more; change to another one"
            elif isinstance(error, OSError) and error.strerror:  # without its number
                message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
            raise (_InvalidCall if wrong else click.ClickException)(strip_controls(message)) from None


def _list_plugins() -> list[tuple[str, str]]:
    """Return the commands of installed packages with their packages, without importing them."""
    found = {plugin.name: f"From {plugin.distribution}." for plugin in find_plugins("wick.commands")}
    return [(name, text) for name, text in found.items() if name not in COMMANDS]


class _InvalidCall(click.ClickException):
    exit_code = WRONG


@click.group(cls=RootCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wick-agent", prog_name="wick")
def wick() -> None:
    """Build, run and serve AI agents."""


add_help(wick, "")
add_completion_class(BashCompletion)
