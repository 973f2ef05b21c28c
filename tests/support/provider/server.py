"""A server with scripted replies in several vendors' formats, which refuses requests that they would refuse.

    async with ScriptedServer() as server:
        script = server.script(Reply("hello"), Answer(Reply("again"), crlf | cut(0.5)))
        …  # ask at script.url; the path says in which words: /chat/completions, /messages, …
        script.asked[0].body

It writes HTTP by hand, so that every byte of an answer can be made wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from provider.chat import Chat
from provider.checks import Refused
from provider.converse import Converse
from provider.faults import FINE, Fault
from provider.flow import Act, Flow, Head, frame
from provider.gemini import Gemini
from provider.messages import Messages
from provider.responses import Responses
from provider.script import Reply, dumps
from tcp_listener import Listener

Wire = Chat | Responses | Messages | Gemini | Converse
WIRES: dict[str, Wire] = {wire.name: wire for wire in (Chat(), Responses(), Messages(), Gemini(), Converse())}
JSON = {"Content-Type": "application/json"}
BINARY = {"Content-Type": "application/vnd.amazon.eventstream"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply with its faults."""

    reply: Reply
    fault: Fault = FINE


@dataclass(slots=True)
class Asked:
    """One recorded request."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any = None
    refused: str = ""
    left: asyncio.Event = field(default_factory=asyncio.Event)  # the client hung up before the answer's end


class Script:
    """The answers that are given in turn at one address."""

    def __init__(self, url: str, answers: tuple[Answer, ...], strict: bool) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self._answers = answers
        self._next = iter(answers)
        self._strict = strict

    @property
    def refusals(self) -> list[str]:
        return [asked.refused for asked in self.asked if asked.refused]

    @property
    def issued(self) -> dict[str, str]:
        """The signatures that were given out, and the reasoning they were given for."""
        return {thought.signature: thought.text for a in self._answers for thought in a.reply.thoughts}

    def answer(self, asked: Asked) -> Flow:
        wire = next((wire for wire in WIRES.values() if asked.path.endswith(wire.path)), WIRES["chat"])
        try:
            asked.body = self._check(asked, wire)
        except Refused as refused:
            asked.refused = refused.message
            return _refuse(wire, refused)
        answer = next(self._next, None)
        if answer is None:
            asked.refused = "the script has no more replies"
            return _refuse(wire, Refused(asked.refused))
        return _respond(answer, wire, asked.body)

    def _check(self, asked: Asked, wire: Wire) -> Any:
        if asked.method != "POST" or not asked.path.endswith(wire.path):
            raise Refused(f"Unknown request URL: {asked.method} {asked.path}.", 404)
        try:
            body = json.loads(asked.raw)
        except ValueError as error:
            raise Refused(f"We could not parse the JSON body of your request: {error}") from None
        if not isinstance(body, dict):
            raise Refused("The body of a request must be a JSON object.")
        if self._strict:
            wire.check(body, asked.headers, self.issued)
        return body


def stream_of(reply: Reply, wire: Wire, asked: Any) -> bytes:
    """Return the body of a streamed response without faults."""
    return b"".join(wire.encode(event) for event in wire.events(reply, asked))


def _refuse(wire: Wire, refused: Refused) -> Flow:
    return frame(Head(refused.status, JSON, "length"), [dumps(wire.error(refused.status, refused.message)).encode()])


def _respond(answer: Answer, wire: Wire, body: Any) -> Flow:
    """The answer's way from a reply to bytes; at each stage something can go wrong."""
    fault = answer.fault
    reply = fault.apply("reply", answer.reply, wire)
    if wire.streams(body):
        items = fault.apply("events", [*wire.events(reply, body)], wire)
        flow: Flow = (item if isinstance(item, Act) else wire.encode(item) for item in items)
        head = Head(headers=BINARY) if wire.name == "converse" else Head()
    else:
        flow, head = [dumps(wire.whole(reply, body)).encode()], Head(200, JSON, "length")
    flow = fault.apply("body", flow, wire)
    return fault.apply("wire", frame(fault.apply("head", head, wire), flow), wire)  # type: ignore[no-any-return]


class ScriptedServer(Listener):
    """Speaks HTTP/1.1 on a free port of this machine while it is entered."""

    def __init__(self, strict: bool = True) -> None:
        super().__init__()
        self.strict = strict
        self._scripts: dict[str, Script] = {}
        self._names = map(str, count(1))
        self.accepted = 0  # accepted connections
        self.answering = 0  # responses in progress

    @property
    def open(self) -> int:
        """Return the number of open connections."""
        return len(self._tasks)

    def script(self, *answers: Reply | Answer) -> Script:
        """Return a script with its own address, which gives these answers in order."""
        name = next(self._names)
        whole = tuple(answer if isinstance(answer, Answer) else Answer(answer) for answer in answers)
        self._scripts[name] = Script(f"http://127.0.0.1:{self.port}/{name}/v1", whole, self.strict)
        return self._scripts[name]

    async def idle(self, seconds: float = 30.0) -> bool:
        """Return True if no response is in progress, at the latest after that time."""
        return await _soon(lambda: not self.answering, seconds)

    async def quiet(self, seconds: float = 30.0) -> bool:
        """Return True if no connection is open, at the latest after that time."""
        return await _soon(lambda: not self._tasks, seconds)

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            """The client left, or the server ends."""
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                writer.close()
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (asked := await _read(reader)) is not None:
            name, _, _ = asked.path.lstrip("/").partition("/")
            script = self._scripts.get(name)
            if script is None:
                return await _perform(_refuse(WIRES["chat"], Refused("Not Found", 404)), reader, writer)
            script.asked.append(asked)
            self.answering += 1
            try:
                await _perform(script.answer(asked), reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                asked.left.set()
                raise
            finally:
                self.answering -= 1
            if writer.is_closing():
                return None
        return None


async def _soon(true: Callable[[], bool], seconds: float) -> bool:
    deadline = asyncio.get_running_loop().time() + seconds
    while not true() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.005)
    return true()


async def _perform(flow: Flow, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for piece in flow:
        if isinstance(piece, bytes):
            writer.write(piece)
            await writer.drain()
        elif piece.do == "pause":
            await asyncio.sleep(piece.seconds)
        elif piece.do == "stall":
            await reader.readexactly(1)  # raises when the client leaves
        else:
            return _hang_up(writer, piece.do == "reset")


def _hang_up(writer: asyncio.StreamWriter, reset: bool) -> None:
    if not reset:
        return writer.close()
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    """Return the next request of a connection, or None."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        raw = b"".join([piece async for piece in _chunks(reader)])
    else:
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path.partition("?")[0], headers, raw)


async def _chunks(reader: asyncio.StreamReader) -> Any:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)


__all__ = ["WIRES", "Answer", "Asked", "Script", "ScriptedServer", "Wire", "stream_of"]
