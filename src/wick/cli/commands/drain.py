"""`wick drain`: drain a server before it is stopped."""

from __future__ import annotations

import asyncio

import click

from wick._internal.visible_text import format_count
from wick.api.types import DrainStatus
from wick.cli.host.open import HostOptions, find_token
from wick.cli.terminal.output import show_status
from wick.client import Client

POLL_SECONDS = 0.5  # between two requests for the progress


@click.command("drain")
@click.option("--server", metavar="URL", required=True, envvar="WICK_SERVER", help="The address of the server.")
@click.option("--token-file", metavar="FILE", default="", help="A file with an admin's token for the server.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the server has no runs.")
def command(server: str, token_file: str, no_wait: bool) -> None:
    """Drain a server: its runs end, or continue on another one.

    The server stays up, is not ready, and refuses new runs until it is restarted.
    """
    with show_status("draining"):
        status = asyncio.run(drain_server(server, find_token(HostOptions(server, token_file))[0], wait=not no_wait))
    left = f"{format_count(status.runs, 'run')} {'is' if status.runs == 1 else 'are'}"
    click.echo(f"{server} is {status.status}; {left} left")


async def drain_server(server: str, token: str, *, wait: bool) -> DrainStatus:
    """Drain a server, and wait until it has no runs if `wait` is set."""
    async with Client(server, token) as client:
        status = await client.drain()
        while wait and status.status != "drained":
            await asyncio.sleep(POLL_SECONDS)
            status = await client.drain()
        return status
