"""agno's AgentOS, with an agent on SQLite and the scripted model of `run_served.py`.

    python serve_agno.py FOLDER

It prints its port, and ends with its input. Telemetry is off: https://docs.agno.com/telemetry
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from threading import Thread
from typing import Any

import uvicorn
from agno.agent import Agent
from agno.db.sqlite import AsyncSqliteDb
from agno.models.base import Model
from agno.models.message import MessageMetrics
from agno.models.response import ModelResponse
from agno.os import AgentOS

DELTAS = 50  # of each reply
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Script(Model):
    """A model that requests one tool call, and replies with a text to its result."""

    def __init__(self) -> None:
        super().__init__(id="script", name="script", provider="script")

    def _last(self, messages: Any) -> ModelResponse:
        usage = MessageMetrics(input_tokens=100, output_tokens=50, total_tokens=150)
        calls = [] if messages[-1].role == "tool" else [CALL]
        return ModelResponse(role="assistant", tool_calls=calls, response_usage=usage)

    async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
        reply = self._last(messages)
        reply.content = "some words " * DELTAS
        return reply

    async def ainvoke_stream(self, messages: Any, **_: Any) -> AsyncIterator[ModelResponse]:  # type: ignore[override]
        for _ in range(DELTAS):
            yield ModelResponse(content="some words ")
        yield self._last(messages)

    def invoke(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError

    invoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke  # type: ignore[assignment]


def main(folder: str) -> None:
    db = AsyncSqliteDb(db_file=f"{folder}/agno.db")
    agent = Agent(id="bench", model=Script(), tools=[add], db=db, telemetry=False)
    app = AgentOS(agents=[agent], db=db, telemetry=False).get_app()
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, loop="uvloop", http="httptools")

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    server = Server(config)
    Thread(target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True).start()
    server.run()


if __name__ == "__main__":
    main(sys.argv[1])
