"""The minimal program for the work: a hand-written loop that encodes each message once, without error handling."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from contract import DESCRIPTION, PARAMETERS, SYSTEM, TOOL, Peer, forecast

TOOLS = [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}]
OPTIONS = {"model": "gpt-4o", "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS}
HEAD = orjson.dumps(OPTIONS)[:-1] + b',"messages":['
HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


class Reply:
    """The content of a stream so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.rest = b""

    def feed(self, chunk: bytes) -> None:
        *events, self.rest = (self.rest + chunk).split(b"\n\n")
        for event in events:
            if event != b"data: [DONE]":
                for choice in orjson.loads(event[6:])["choices"]:
                    self._take(choice["delta"])

    def _take(self, delta: dict[str, Any]) -> None:
        if text := delta.get("content"):
            self.texts.append(text)
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                self.calls.append({"id": piece["id"], "type": "function", "function": piece["function"]})
            else:
                self.calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]

    def message(self) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": "".join(self.texts) or None}
        return said | {"tool_calls": self.calls} if self.calls else said


class Bare(Peer):
    """A hand-written loop; subclasses implement `post` with an HTTP library."""

    def __init__(self, url: str) -> None:
        self.url = url + "/chat/completions"

    def post(self, body: bytes) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def ask(self, body: bytes) -> Reply:
        reply = Reply()
        async for chunk in self.post(body):
            reply.feed(chunk)
        return reply

    async def run(self, agent: None, question: str) -> str:
        first = {"role": "system", "content": SYSTEM}, {"role": "user", "content": question}
        said = [*map(orjson.dumps, first)]
        while True:
            reply = await self.ask(b"".join((HEAD, b",".join(said), b"]}")))
            if not reply.calls:
                return "".join(reply.texts)
            said.append(orjson.dumps(reply.message()))
            for call in reply.calls:
                result = await forecast(**orjson.loads(call["function"]["arguments"]))
                said.append(orjson.dumps({"role": "tool", "tool_call_id": call["id"], "content": result}))

    stream = run
