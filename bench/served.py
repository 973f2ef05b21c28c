"""A server for the benchmarks, in a separate process: wick, or a bare server that sends the same bytes.

    python bench/served.py wick FOLDER      POST /agents/ticker/stream, POST /agents/noting/invoke, GET /health,
                                            POST /agents/writer/stream: "table 500" requests a table of 500 rows
    python bench/served.py bare             the same paths: only Starlette's StreamingResponse

It prints its port, and exits at the end of its input. The message defines the reply: `{"messages": [{"role": "user",
"content": "20 0.5"}]}` requests 20 deltas, one each half second. The text of a delta is the time at which it was
created, by the monotonic clock of the system, which all processes share.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import takewhile
from threading import Thread
from time import monotonic_ns
from typing import Any

import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from wick.agent import Agent
from wick.capabilities.limits import Limits
from wick.messages import Message, ToolCall, assistant
from wick.models.scripted import FunctionModel
from wick.protocols import Delta, Finish, Request, TextDelta, Usage
from wick.server.server import Server
from wick.tools import tool

TOKEN = "a-token-for-the-benchmark-0123456789"


async def pieces(words: str) -> AsyncIterator[str]:
    count, pause = words.split()
    for _ in range(int(count)):
        await asyncio.sleep(float(pause))
        yield f"{monotonic_ns()} "


class Ticker:
    """A model that streams timestamps, with the count and the pause of the message."""

    name = "ticker"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for piece in pieces(request.messages[-1].text):
            yield TextDelta(piece)
        yield Usage(1, 1)
        yield Finish()


@tool
def note(number: int) -> str:
    """Write a number down."""
    return f"{number} is noted.\n" * (number % 7 + 1)


def noting(request: Request) -> Message:
    """A model that calls `note` once per step, as often as the message requests, with some text for each number."""
    before = list(takewhile(lambda message: message.role != "user", reversed(request.messages)))
    number, asked = len(before) // 2, request.messages[-len(before) - 1].text
    at = len(request.messages)  # a different text in each entry
    words = f"Number **{at}** has a `square` of {at**2}, and more to it:\n\n- {at + 1}\n- {at + 2}\n"
    more = [ToolCall(f"call_{len(request.messages)}", "note", {"number": number})] if number < int(asked) else []
    return assistant(words * (number % 3 + 1), *more)


PIECE, PAUSE = 40, 0.01  # letters of a delta, and seconds between two: 4 kB or 1,000 tokens a second

PARAGRAPH = "Paragraph {0} says **something** about `item_{0}`, and [more](https://example.com/{0}) of it. " * 4
SECTION = (
    "## Section {0}\n\n" + PARAGRAPH + "\n\n- one of {0}\n- two of {0}\n  - and a part of it\n\n"
    "| a | b |\n|---|---|\n| {0} | *x* |\n\n```python\ndef function_{0}(value: int) -> str:\n"
    '    """Return a text."""\n    return f"{{value}} and {0}"\n```\n\n'
)


def document(kind: str, size: int) -> str:
    """Return Markdown: `text` or `code` of a number of bytes, or a `table` of a number of rows."""
    if kind == "table":
        rows = "".join(f"| {n} | name {n} | **{n * 7}** | `value_{n}` | some words of {n} |\n" for n in range(size))
        return "| id | name | sum | key | note |\n|---|---|---|---|---|\n" + rows
    parts = (SECTION if kind == "text" else "def function_{0}(value):\n    return '{0}'  # so\n\n\n").format
    count = size // len(parts(1_000)) + 1
    body = "".join(parts(number) for number in range(count))
    return body if kind == "text" else f"```python\n{body}```\n"


class Writer:
    """A model that writes a long document at the pace of a fast provider."""

    name = "writer"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        kind, size = request.messages[-1].text.split()
        text = document(kind, int(size))
        for at in range(0, len(text), PIECE):
            await asyncio.sleep(PAUSE)
            yield TextDelta(text[at : at + PIECE])
        yield Usage(1, 1)
        yield Finish()


def wick(folder: str) -> Server:
    quotas = {"runs": 0, "threads": 0, "streams": 0, "requests_per_second": 0}
    server = Server(port=0, data=folder, token=TOKEN, quotas=quotas, grace=1.0)
    server.register_agent("ticker", Agent(Ticker(), name="ticker"))
    server.register_agent("writer", Agent(Writer(), name="writer"))
    noter = Agent(FunctionModel(noting), name="noting", tools=[note], hooks=[Limits(steps=None)])
    return server.register_agent("noting", noter)


# -- without wick ---------------------------------------------------------------------------------------------------

HEAD = {"event": "on_chat_model_stream", "name": "ticker", "run_id": "run_0123456789ab"}


async def frames(words: str) -> AsyncIterator[bytes]:
    async for piece in pieces(words):
        data = orjson.dumps({**HEAD, "data": {"delta": piece, "kind": "text"}})
        yield b"event: on_chat_model_stream\ndata: %s\n\n" % data
    yield b'event: done\ndata: {"event":"done"}\n\n'


async def stream(request: HttpRequest) -> Response:
    words = orjson.loads(await request.body())["messages"][-1]["content"]
    return StreamingResponse(frames(words), media_type="text/event-stream")


async def health(request: HttpRequest) -> Response:
    return JSONResponse({"status": "ok"})


class Bare(uvicorn.Server):
    """A server that prints its port after the start."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


async def serve_bare() -> None:
    routes = [Route("/agents/ticker/stream", stream, methods=["POST"]), Route("/health", health)]
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, http="httptools", log_level="warning", access_log=False, backlog=4096
    )
    server = Bare(config)
    Thread(target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True).start()
    await server.serve()


def serve_wick(folder: str) -> None:
    server = wick(folder)
    Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.start(tell=lambda line: print(line, flush=True))


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_bare())
    else:
        serve_wick(sys.argv[2])
