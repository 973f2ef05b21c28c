"""`wick serve`: start the HTTP server."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from wick.errors import ConfigError, MissingExtra
from wick.models import check_model


@click.command("serve")
@click.argument("config", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The agents.yaml to serve.")
@click.option("--host", help="The address to listen on; 127.0.0.1 by default.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 8000 by default, and 0 for any free port.")
@click.option("--model", "-m", default="", metavar="NAME", help="The model of the default agent, without a CONFIG.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The data folder.")
@click.option("--token", help="The admin token, instead of the one in the data folder.")
@click.option("--gateway", metavar="URL", help="The URL of an auth gateway, whose /auth/me validates tokens.")
@click.option("--store", help="The store of threads: sqlite, postgresql://…, or memory.")
@click.option("--live", metavar="URL", help="The live plane of several servers: nats://…, postgres, or local.")
@click.option("--advertise", metavar="URL", help="The address at which other servers reach this one.")
@click.option(
    "--static",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder of static files to serve.",
)
@click.option("--settings", type=click.Path(path_type=Path, dir_okay=False), help="The server.yaml to read.")
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, help="The number of server processes; needs Postgres."
)
@click.option("--worker", "inherited", type=(int, int), hidden=True)
@click.option("--verbose", is_flag=True, help="Log each request and each run, and other messages of level INFO.")
def command(
    config: Path | None,
    file: Path | None,
    model: str,
    workers: int,
    inherited: tuple[int, int] | None,
    verbose: bool,
    **flags: Any,
) -> None:
    """Serve the agents of CONFIG, or a default agent.

    Print the address with a one-time sign-in link.
    """
    if config is not None and file is not None and config != file:
        raise click.UsageError("two configuration files; pass one, as CONFIG or with --config")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        from wick.server.agents.default_agent import EMBEDDED
        from wick.server.server import Server
        from wick.server.workers import serve_as_worker, supervise_workers
    except ModuleNotFoundError as error:
        raise MissingExtra("server", error.name or "fastapi", "`wick serve`") from None
    server = Server(config=config or file, **flags)
    if model and server.settings.config:
        raise ConfigError(f"{server.settings.config} sets the models of its agents; remove --model")
    if model:
        check_model(model)
        server.register_agent("default", {**EMBEDDED["default"], "model": model})
    if inherited is not None:
        return serve_as_worker(server, *inherited, workers)
    if workers == 1:
        return server.start(tell=click.echo)
    sys.exit(supervise_workers(server.settings, workers, click.echo))
