"""The base of parsers for replies in content blocks, as Anthropic and Bedrock stream them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from wick.models import openai_common
from wick.models._http import ModelServer
from wick.models.openai_common import require_text
from wick.protocols import Delta, Finish, ReasoningDelta, TextDelta


class BlockReply:
    """A parser that counts the text and the calls of a reply, as signed thoughts depend on their position in it."""

    __slots__ = ("_calls", "_chars", "_message", "_server", "done", "finish")

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._chars = 0  # characters of text so far
        self._calls: set[int] = set()  # the blocks that are calls of our tools, not of the server's own
        self._message: dict[str, Any] = {}  # the message as it started, with its id
        self.finish = ""
        self.done = False  # the last event was received

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            if self.done:
                return
            try:
                deltas = self._read_event(orjson.loads(data))
            except (AttributeError, KeyError, TypeError, ValueError):
                raise openai_common.unreadable_error(self._server, data) from None
            yield from deltas

    def end(self) -> Finish:
        if not self.finish:
            raise openai_common.truncated_error(self._server)
        return openai_common.build_finish(self.finish, self._message)

    def _read_event(self, event: Any) -> Sequence[Delta]:
        """Return the deltas of one event. Each API has its own."""
        raise NotImplementedError

    def _read_text(self, text: Any) -> Sequence[Delta]:
        self._chars += len(require_text(text))
        return (TextDelta(text),) if text else ()

    def _read_thought(self, kind: str, text: Any, signature: Any) -> Sequence[Delta]:
        """Return a thought. Its signature includes the position: characters of text and calls before it."""
        if not any((require_text(text), require_text(signature))):
            return ()
        if signature and (self._chars or self._calls):
            kind = f"{kind}@{self._chars}+{len(self._calls)}"
        return (ReasoningDelta(text, signature, kind),)
