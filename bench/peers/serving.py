"""The shared parts of the programs `serve_<name>.py`: the script of the model, and a uvicorn server.

A run is two model calls, one tool call and 100 text deltas, as in `run_served.py`. A program prints its port, and ends
with its input.
"""

from __future__ import annotations

import sys
from threading import Thread
from typing import Any

import uvicorn

DELTA, DELTAS = "some words ", 50  # of each reply
NAME, CALL_ID, ARGUMENTS = "add", "call_1", {"a": 2, "b": 3}
QUESTION_TOKENS, ANSWER_TOKENS = 100, 50


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Server(uvicorn.Server):
    """A server that prints its port after the start."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def serve(app: Any) -> None:
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, loop="uvloop", http="httptools")
    server = Server(config)
    Thread(target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True).start()
    server.run()
