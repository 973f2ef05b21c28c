"""`wick cluster`: the servers of a cluster."""

from __future__ import annotations

import asyncio
import sys

import click

from wick._internal.visible_text import format_count
from wick.api.types import ClusterStatus
from wick.cli.host.open import HostOptions, find_token
from wick.cli.root_command import FAILED
from wick.cli.terminal.output import JSON, print_json, print_table, show_status, strip_controls
from wick.client import Client

COLUMNS = ("SERVER", "HOST", "ADDRESS", "VERSION", "RUNS", "CAPACITY", "HEARTBEAT", "STATE")


@click.command("cluster")
@click.option("--server", metavar="URL", required=True, envvar="WICK_SERVER", help="The address of any of its servers.")
@click.option("--token-file", metavar="FILE", default="", help="A file with an admin's token for the server.")
@JSON
def command(server: str, token_file: str, as_json: bool) -> None:
    """List the servers of a cluster, and check that they are alive.

    The exit code is 1 if a server is dead, or if the server that responds cannot reach another one or its live plane. A
    dead server is listed for a day.
    """
    with show_status("fetching the servers"):
        status = asyncio.run(fetch_cluster(server, find_token(HostOptions(server, token_file))[0]))
    if as_json:
        print_json(status.model_dump())
    else:
        rows = []
        for one in status.servers:
            id = f"{one.id} (this)" if one.id == status.server_id else one.id
            state = "dead" if not one.alive else "draining" if one.draining else "alive"
            state = "unreachable" if one.problem else state
            age = f"{one.heartbeat_age:.1f} s ago"
            capacity = one.capacity or "no limit"
            rows.append((id, one.host, one.address or "-", one.version, one.running, capacity, age, state))
        print_table(COLUMNS, rows, nothing="there are no servers in the cluster")
        state = "connected" if status.live_connected else "disconnected; streams of runs on other servers lack deltas"
        click.echo(f"live plane of this server: {strip_controls(status.live)}, {state}")
        for one in status.servers:
            if one.problem:
                click.echo(f"{one.id}: requests for its files fail here: {strip_controls(one.problem)}")
        if dead := sum(not one.alive for one in status.servers):
            servers = f"{format_count(dead, 'server')} {'is' if dead == 1 else 'are'} dead"
            click.echo(f"{servers}: other servers resume the runs, and restore the files from snapshots")
    if not status.is_healthy:
        sys.exit(FAILED)


async def fetch_cluster(server: str, token: str) -> ClusterStatus:
    """Return the status of the cluster of a server."""
    async with Client(server, token) as client:
        return await client.cluster()
