"""`wick serve`: the server, for a team or for oneself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from wick.errors import MissingExtra


@click.command("serve")
@click.argument("config", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The agents.yaml to serve.")
@click.option("--host", help="The address to listen on; 127.0.0.1 if not said.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 8000 if not said, and 0 for any that is free.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The folder that everything is kept in.")
@click.option("--token", help="The token of this server's owner, in place of the one in the data folder.")
@click.option("--gateway", metavar="URL", help="Where tokens are checked: its /auth/me says who somebody is.")
@click.option("--store", help="Where threads are kept: sqlite, postgresql://…, or memory.")
@click.option("--static", type=click.Path(path_type=Path, file_okay=False), help="A folder with pages of your own.")
@click.option("--settings", type=click.Path(path_type=Path, dir_okay=False), help="A server.yaml.")
@click.option("--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
def command(config: Path | None, file: Path | None, verbose: bool, **flags: Any) -> None:
    """Serve the agents of CONFIG, or one that is set up for you.

    Prints where, with a link that signs you in once.
    """
    if config is not None and file is not None and config != file:
        raise click.UsageError("two files are named; say one, with --config or without")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        from wick.server.server import Server
    except ModuleNotFoundError as error:
        raise MissingExtra("server", error.name or "fastapi", "`wick serve`") from None
    Server(config=config or file, **flags).start(tell=click.echo)
