"""A scripted model for a cluster: a program that speaks OpenAI's Chat Completions, with paced deltas.

    python model_program.py ADDRESS PORT LOG

The last user message is the script: `{"run": "r1", "steps": 3, "deltas": 8, "pause": 0.1}`. Each step is a text
and a call of the tool `effect`; after the last one, the reply is a text. With `wait`, the first delta comes after so
many seconds, and each delta is the time at which it is sent. With `files`, each step is a generated command that
changes files; replies are held while there is a file `hold` beside the log, and the run ends once there is a file
`stop`. The program has no state, so any server can continue a run. Each request is a line of the log: the run, its
step, the address of the server and the time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path[:0] = [str(Path(__file__).parents[1])]

from cluster.file_commands import generate_command  # noqa: E402

INPUT_TOKENS, OUTPUT_TOKENS = 100, 100  # as the usage of each reply reports them


class ModelProgram:
    """The model: it answers requests and logs them."""

    def __init__(self, log: Any, folder: Path) -> None:
        self._log, self._folder = log, folder

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Stream the next reply of a script."""
        messages = (await request.json())["messages"]
        last = max(index for index, message in enumerate(messages) if message["role"] == "user")
        script = json.loads(_text(messages[last]["content"]))
        step = sum(message["role"] == "tool" for message in messages[last:])
        row = {"run": script["run"], "step": step, "server": request.remote, "at": time.time()}
        self._log.write(json.dumps(row) + "\n")
        self._log.flush()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        wait = script.get("wait")
        try:
            await asyncio.sleep(wait or 0)
            while script.get("files") and (self._folder / "hold").exists():
                await asyncio.sleep(0.05)
            is_last = (self._folder / "stop").exists() if script.get("files") else step >= script["steps"]
            for _ in range(script["deltas"]):
                if script["pause"]:
                    await asyncio.sleep(script["pause"])
                await response.write(_chunk({"content": "word " if wait is None else f"{time.monotonic_ns()} "}))
            await response.write(_end(script, step, is_last))
        except ConnectionError:
            return response  # the server was killed
        return response


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _end(script: Any, step: int, is_last: bool) -> bytes:
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 200}
    if is_last:
        return _chunk({}, "stop") + _chunk(None, usage=usage) + b"data: [DONE]\n\n"
    name, arguments = "effect", {"run_name": script["run"], "number": step}
    if script.get("files"):
        name, arguments = "execute", {"command": generate_command(script["run"], step)}
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{script['run']}_{step}", "type": "function", "function": function}
    return _chunk({"tool_calls": [call]}) + _chunk({}, "tool_calls") + _chunk(None, usage=usage) + b"data: [DONE]\n\n"


def _chunk(delta: Any, finish: str | None = None, usage: Any = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    row = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": choices}
    return b"data: " + json.dumps(row | {"usage": usage}).encode() + b"\n\n"


async def serve(address: str, port: int, log: str) -> None:
    """Serve until the process is ended."""
    with open(log, "a", encoding="utf-8") as file:  # noqa: ASYNC230  # once, before the first request
        app = web.Application()
        app.router.add_post("/v1/chat/completions", ModelProgram(file, Path(log).parent).complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, address, port, backlog=1024).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
