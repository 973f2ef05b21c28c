"""Selection of the live plane by the settings of a server."""

from __future__ import annotations

from wick.server.live import LiveConnection
from wick.server.live.local import LocalLive
from wick.server.settings import Settings


def open_live(settings: Settings) -> LiveConnection:
    """Return the live plane of these settings, not yet started."""
    if settings.live_kind == "nats":
        from wick.server.live.nats import NatsLive

        urls = [url.strip() for url in settings.live.split(",")]
        return NatsLive(urls, credentials=settings.live_credentials, ca=settings.live_ca)
    if settings.live_kind == "postgres":
        from wick.server.live.postgres import PostgresLive

        return PostgresLive(settings.store, schema=settings.store_schema)
    return LocalLive()
