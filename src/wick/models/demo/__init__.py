"""A model that works offline, for a first look and for tests in a browser.

It is no language model: it understands a handful of requests in plain English by a table of patterns, carries them
out with the agent's real tools and says what came of it. Everything else it refuses, and says what it can do. The same
request gets the same reply, to the letter.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from wick.constants import CHARS_PER_TOKEN
from wick.errors import ModelError
from wick.messages import Message
from wick.models import openai_common
from wick.models._http import ModelServer
from wick.models.demo.decide import decide
from wick.models.demo.instance import LABEL
from wick.protocols import CallArgs, CallStart, Delta, Finish, HoldsSchema, Request, TextDelta, Usage

_NOWHERE = ModelServer(LABEL, "")
_PIECE = 16  # characters of a call's arguments that come at a time


class Demo:
    """The offline demo model: no key, no network, no surprises."""

    name = LABEL
    holds_schema: HoldsSchema = "always"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        _check(request)
        for delta in _deltas(decide(request), request):
            yield delta

    def __repr__(self) -> str:
        return f"<Demo: {LABEL}>"


def _check(request: Request) -> None:
    """Refuse the settings that a server would refuse, too."""
    found = openai_common.build_settings(_NOWHERE, request)
    most = found.get("max_tokens", 1)
    if type(most) is not int or most < 1:
        raise ModelError(f"max_tokens must be a whole number from 1 up, not {most!r}")


def _deltas(reply: Message, request: Request) -> Iterator[Delta]:
    most = request.settings.get("max_tokens")
    text = reply.text if most is None else reply.text[: most * CHARS_PER_TOKEN]
    for word in re.findall(r"\s*\S+|\s+", text):
        yield TextDelta(word)
    is_cut = len(text) < len(reply.text)
    for index, call in enumerate(() if is_cut else reply.tool_calls):
        yield CallStart(index, call.id, call.name)
        raw = call.raw_args
        for start in range(0, len(raw), _PIECE):
            yield CallArgs(index, raw[start : start + _PIECE])
    asked = len(request.system) // CHARS_PER_TOKEN + sum(message.tokens for message in request.messages)
    yield Usage(input_tokens=asked, output_tokens=reply.tokens)
    yield Finish("length" if is_cut else "tool_calls" if reply.tool_calls else "stop")
