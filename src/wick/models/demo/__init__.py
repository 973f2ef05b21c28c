"""The offline demo model, for a first look and for tests in a browser.

It is not a language model. A table of patterns maps a few requests in plain English to tool calls, and the results are
reported in fixed sentences. Any other request is refused with a list of the abilities. The same conversation always
gets the same reply.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from wick.constants import CHARS_PER_TOKEN
from wick.errors import ModelError
from wick.models import openai_common
from wick.models._http import ModelServer
from wick.models.demo.decide import decide
from wick.models.demo.instance import LABEL
from wick.protocols import CallArgs, CallStart, Delta, Finish, HoldsSchema, Request, TextDelta, Usage

_NO_SERVER = ModelServer(LABEL, "")
_CHUNK_CHARS = 16  # of the arguments in one delta


class Demo:
    """The offline demo model: it needs no key and no network."""

    name = LABEL
    holds_schema: HoldsSchema = "always"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        settings = openai_common.build_settings(_NO_SERVER, request)
        max_tokens = settings.get("max_tokens")
        if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
            raise ModelError(f"max_tokens must be a whole number from 1 up, not {max_tokens!r}")
        reply = decide(request)
        text = reply.text if max_tokens is None else reply.text[: max_tokens * CHARS_PER_TOKEN]
        for word in re.findall(r"\s*\S+|\s+", text):
            yield TextDelta(word)
        is_cut = len(text) < len(reply.text)
        for index, call in enumerate(() if is_cut else reply.tool_calls):
            yield CallStart(index, call.id, call.name)
            raw = call.raw_args
            for start in range(0, len(raw), _CHUNK_CHARS):
                yield CallArgs(index, raw[start : start + _CHUNK_CHARS])
        prompt = len(request.system) // CHARS_PER_TOKEN + sum(message.tokens for message in request.messages)
        yield Usage(input_tokens=prompt, output_tokens=reply.tokens)
        yield Finish("length" if is_cut else "tool_calls" if reply.tool_calls else "stop")

    def __repr__(self) -> str:
        return f"<Demo: {LABEL}>"
