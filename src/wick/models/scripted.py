"""Models for tests: one with scripted replies, one with a reply function. Both record their requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from inspect import isawaitable, signature

from wick._internal.visible_text import format_count
from wick.errors import ConfigError, ModelError
from wick.messages import Message, ToolCall
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage

TURN = 100  # deltas of a reply between yields to the event loop
_CHUNK_CHARS = 12  # of the arguments in one delta
KEPT = 100  # number of recorded requests, as a server may run for a long time

Reply = str | Message | ToolCall | Sequence[ToolCall] | BaseException

watched: list[Scripted] | None = None  # set by a test runner to collect the models of one test


class Scripted:
    """A model that returns scripted replies in order, and records its requests.

    Each reply is a text, a message, a tool call or several, or an exception. Text is streamed word by word, a tool
    call's arguments in pieces. A test that leaves replies unused fails; `spare=True` allows it.
    """

    def __init__(self, *replies: Reply, name: str = "scripted", spare: bool = False) -> None:
        self.name = name
        self.replies = list(replies)
        self.requests: list[Request] = []
        self.spare = spare
        if watched is not None:
            watched.append(self)

    @property
    def unused(self) -> list[Reply]:
        """The replies that were not requested."""
        return [] if self.spare else self.replies[len(self.requests) :]

    def check(self) -> None:
        """Raise AssertionError if replies are unused."""
        if self.unused:
            raise AssertionError(
                f"{len(self.unused)} of the {len(self.replies)} scripted replies were not used: {self.unused!r}; "
                "remove them, or allow them with Scripted(…, spare=True)"
            )

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if len(self.requests) > len(self.replies):
            replies = format_count(len(self.replies), "reply")
            raise ModelError(
                f"the script has {replies}, and this is question {len(self.requests)}; a FunctionModel answers them all"
            )
        reply = self.replies[len(self.requests) - 1]
        for delta in _deltas(reply, request):
            yield delta


class FunctionModel:
    """A model that replies by a function of the request. `requests` holds the last hundred.

    An async generator function streams its reply: the texts and tool calls that it yields, when it yields them.
    """

    def __init__(
        self, fn: Callable[[Request], Reply | Awaitable[Reply] | AsyncIterator[str | ToolCall]], name: str = "function"
    ) -> None:
        _check_function(fn)
        self.fn = fn
        self.name = name
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if len(self.requests) > KEPT:
            del self.requests[0]
        answer = self.fn(request)
        if isinstance(answer, AsyncIterator):
            async with aclosing(_stream_pieces(answer, request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        reply = await answer if isawaitable(answer) else answer
        for number, delta in enumerate(_deltas(reply, request), 1):
            yield delta
            if number % TURN == 0:
                await asyncio.sleep(0)  # yield to other tasks


def _check_function(fn: object) -> None:
    """Refuse a function that cannot be called with the request alone, such as one of `messages` and `info`."""
    if not callable(fn):
        raise ConfigError(f"FunctionModel takes a function of the request, not {fn!r}; Scripted takes replies")
    try:
        signature(fn).bind(None)
    except TypeError:
        raise ConfigError(
            "the function of a FunctionModel takes one argument, the request, with request.text, request.messages and "
            "request.tools"
        ) from None
    except ValueError:
        """A function in C may have no signature."""


async def _stream_pieces(pieces: AsyncIterator[str | ToolCall], request: Request) -> AsyncGenerator[Delta]:
    text, calls = "", list[ToolCall]()
    try:
        async for piece in pieces:
            if isinstance(piece, str):
                text += piece
                yield TextDelta(piece)
            elif isinstance(piece, ToolCall):
                for delta in _call_deltas(len(calls), piece):
                    yield delta
                calls.append(piece)
            else:
                raise ModelError(f"{piece!r} is not a part of a reply: yield texts and tool calls")
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    for delta in _end_deltas(Message("assistant", text, tuple(calls)), request):
        yield delta


def _deltas(reply: Reply, request: Request) -> Iterator[Delta]:
    if isinstance(reply, BaseException):
        raise reply
    match reply:
        case Message(role="assistant"):
            message = reply
        case str():
            message = Message("assistant", reply)
        case ToolCall():
            message = Message("assistant", "", (reply,))
        case [*calls] if all(isinstance(call, ToolCall) for call in calls):
            message = Message("assistant", "", tuple(calls))
        case _:
            hint = "; several replies are several arguments: Scripted(…, …)" if isinstance(reply, list) else ""
            hint = "; a function that yields is `async def`" if isinstance(reply, Iterator) else hint
            raise ModelError(
                f"{reply!r} is not a reply: give a text, an assistant's message, tool calls or an exception{hint}"
            )
    for thought in message.reasoning:
        yield ReasoningDelta(thought.text, thought.signature, thought.provider)
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", message.text):
        yield TextDelta(word)
    for index, call in enumerate(message.tool_calls):
        yield from _call_deltas(index, call)
    yield from _end_deltas(message, request)


def _call_deltas(index: int, call: ToolCall) -> Iterator[Delta]:
    yield CallStart(index, call.id, call.name)
    raw = call.raw or json.dumps(call.args)
    for start in range(0, len(raw), _CHUNK_CHARS):
        yield CallArgs(index, raw[start : start + _CHUNK_CHARS])


def _end_deltas(message: Message, request: Request) -> Iterator[Delta]:
    # An estimate from the newest message only, so that long threads stay fast.
    prompt = request.messages[-1].tokens if request.messages else 0
    yield Usage(input_tokens=prompt, output_tokens=message.tokens)
    yield Finish("tool_calls" if message.tool_calls else "stop")
