"""The shared command-line options, and the host that they select: this process, or a server."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from wick._internal.paths import data_folder
from wick.cli.completion import complete_agent_specs
from wick.cli.host.agent_options import FOLDER, AgentOverrides
from wick.cli.host.protocol import AgentHost
from wick.errors import ConfigError

MAX_TOKEN_CHARS = 16_000

T = TypeVar("T")

CONTINUE = click.option("--continue", "resume", is_flag=True, help="Continue the last thread of this folder.")


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The values of --server, --token-file, --agent and --folder."""

    server: str = ""
    token_file: str = ""
    agent: str = ""
    folder: str = "."

    @property
    def absolute_folder(self) -> str:
        """Return the absolute path of the folder."""
        return str(Path(self.folder).absolute())

    @property
    def hint_options(self) -> str:
        """Return --server and --token-file as given, to append to a command in a hint."""
        given = (("--server", self.server), ("--token-file", self.token_file))
        return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value)


_HOST_OPTIONS = (
    click.option(
        "--server",
        metavar="URL",
        default="",
        envvar="WICK_SERVER",
        help="Use the agents and threads of this wick server.",
    ),
    click.option("--token-file", metavar="FILE", default="", help="A file with the token for the server."),
    click.option(
        "--agent",
        metavar="FILE[:ID]",
        default="",
        help="An agent of an agents.yaml, or the id of a server's agent.",
        shell_complete=complete_agent_specs,
    ),
    FOLDER,
)


def with_host_options(command: Callable[..., Any]) -> Any:
    """Add the options that select a host to a command, which receives them as `options`."""

    @wraps(command)
    def wrapper(server: str, token_file: str, agent: str, folder: str, **others: Any) -> Any:
        return command(options=HostOptions(server, token_file, agent, folder), **others)

    return _apply_options(wrapper, _HOST_OPTIONS)


def _apply_options(command: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


_OVERRIDE_OPTIONS = (
    click.option(
        "--model", "-m", default="", metavar="NAME", help="A model, such as sonnet, ollama:llama3.1:8b or demo."
    ),
    click.option(
        "--allow", multiple=True, metavar="RULE", help="Allow tool uses that match, as in 'Bash(git *)'. Repeatable."
    ),
    click.option(
        "--deny", multiple=True, metavar="RULE", help="Deny tool uses that match, as in 'Write(*.env)'. Repeatable."
    ),
    click.option("--max-steps", type=click.IntRange(1), help="The maximum number of model calls of a run."),
    click.option(
        "--budget", type=click.FloatRange(0, min_open=True), metavar="USD", help="The maximum cost in dollars."
    ),
    click.option(
        "--no-hooks",
        is_flag=True,
        help="Leave out hook programs and recipes, and name them; Python guards stay.",
    ),
    click.option("--claude-settings", is_flag=True, help="Use the settings files of Claude Code."),
)


def with_agent_overrides(command: Callable[..., Any]) -> Any:
    """Add the options that change an agent to a command, which receives them as `overrides`."""

    @wraps(command)
    def wrapper(
        model: str,
        allow: Sequence[str],
        deny: Sequence[str],
        max_steps: int | None,
        budget: float | None,
        no_hooks: bool,
        claude_settings: bool,
        **others: Any,
    ) -> Any:
        overrides = AgentOverrides(model, max_steps, budget, allow, deny, not no_hooks, claude_settings)
        return command(overrides=overrides, **others)

    return _apply_options(wrapper, _OVERRIDE_OPTIONS)


@asynccontextmanager
async def open_host(
    options: HostOptions, overrides: AgentOverrides | None = None, *, interactive: bool = False
) -> AsyncIterator[AgentHost]:
    """Open the selected host, and close it at the end.

    With `interactive`, runs wait for the user's answer to a question. Otherwise they end as interrupted.
    """
    host: AgentHost
    if options.server:
        from wick.cli.host.remote import RemoteHost

        if overrides is not None and overrides != AgentOverrides():
            raise ConfigError(
                "the server sets the model, rules, hooks and limits of its agents; "
                "remove --model, --allow, --deny, --max-steps, --budget, --no-hooks and --claude-settings"
            )
        token, place = find_token(options)
        host = RemoteHost(options.server, token, options.agent, options.absolute_folder, token_place=place)
        host.hint_options = options.hint_options
    else:
        from wick.cli.host.local import LocalHost

        if options.token_file:
            raise ConfigError("--token-file needs --server URL")
        folder, agent = Path(options.folder), options.agent or None
        host = LocalHost(data_folder(), folder, agent, overrides, interactive=interactive)
    try:
        await host.open()
        yield host
    finally:
        await host.close()


def call_host(options: HostOptions, call: Callable[[AgentHost], Awaitable[T]]) -> T:
    """Open the selected host, and return the result of one call."""

    async def open_and_call() -> T:
        async with open_host(options) as host:
            return await call(host)

    return asyncio.run(open_and_call())


def find_token(options: HostOptions) -> tuple[str, str]:
    """Return the token of --token-file, of WICK_TOKEN or, for a local server, of the data folder, and its place."""
    if options.token_file:
        return _read_token(Path(options.token_file)), options.token_file
    if token := os.environ.get("WICK_TOKEN", ""):
        return token, "WICK_TOKEN"
    try:
        host = urlsplit(options.server).hostname or ""
        is_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    stored = data_folder() / "token"
    if not is_loopback:
        return "", ""
    return _read_token(stored) if stored.is_file() else "", str(stored)


def _read_token(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")[:MAX_TOKEN_CHARS].strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{path} has no token; write the token as one line of printable characters")
    return text
