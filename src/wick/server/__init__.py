"""The wick server: agents over HTTP, SSE and WebSocket, for many users. It needs the extra `server`.

Server(port=8000).register_agent("default", {"model": "sonnet"}).start()
"""

from __future__ import annotations

from wick.server.auth.identity import User
from wick.server.server import Server

__all__ = ["Server", "User"]
