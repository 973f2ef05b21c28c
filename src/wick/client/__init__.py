"""The Python client of a wick server: `Client` for async programs, `SyncClient` for others."""

from __future__ import annotations

from wick.client.client import Client
from wick.client.errors import ServerError
from wick.client.run_stream import RunStream
from wick.client.sync import SyncClient
from wick.client.terminal import TerminalLink

__all__ = ["Client", "RunStream", "ServerError", "SyncClient", "TerminalLink"]
