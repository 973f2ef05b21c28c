"""`wick completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from wick.cli.root_command import wick
from wick.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_WICK_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  eval "$(wick completion bash)"  in ~/.bashrc
    zsh   eval "$(wick completion zsh)"   in ~/.zshrc, after compinit
    fish  wick completion fish > ~/.config/fish/completions/wick.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigError(
            f"this version of click has no completion for {shell}; update it: pip install --upgrade click"
        )
    click.echo(kind(wick, {}, "wick", VARIABLE).source())
