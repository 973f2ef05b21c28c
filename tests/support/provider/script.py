"""Replies of a scripted server, independent of vendors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `args` is JSON text as the model writes it, right or wrong."""

    id: str
    name: str
    args: str = "{}"

    @classmethod
    def of(cls, id: str, name: str, /, **args: Any) -> Call:
        return cls(id, name, json.dumps(args, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning; its signature must be replayed with the same text."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The usage of a reply; `input` includes cached tokens, `output` includes reasoning."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the model.

    It is sent in pieces of `piece` characters. `order` says whose arguments' piece comes next, by the
    number of the call; what it leaves out follows in turn. A call begins with its first piece.
    `finish` is one of stop, tool_calls, length and content_filter.
    """

    text: str = ""
    thoughts: tuple[Thought, ...] = ()
    calls: tuple[Call, ...] = ()
    tokens: Tokens | None = Tokens(100, 20)
    finish: str = ""
    piece: int = 8
    order: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")

    def pieces(self, text: str) -> list[str]:
        return [text[i : i + self.piece] for i in range(0, len(text), self.piece)]

    def call_pieces(self) -> Iterator[tuple[int, str | None]]:
        """(number, None) starts a call, (number, text) continues it."""
        left = [[*self.pieces(call.args)] for call in self.calls]
        begun: set[int] = set()
        for number in (*self.order, *(n for n, pieces in enumerate(left) for _ in pieces or [""])):
            if number not in begun:
                begun.add(number)
                yield number, None
            if left[number]:
                yield number, left[number].pop(0)


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. `tag` names its kind for every vendor.

    The tags: start, reasoning, signature, text, call, args, part (what opens and closes), finish, usage, end.
    """

    tag: str
    data: Any  # JSON data, or text or bytes to send as they are
    name: str = ""
    number: int = 0  # of the call, for call and args

    def encode(self) -> bytes:
        data = self.data if isinstance(self.data, bytes) else self._text().encode("utf-8", "surrogatepass")
        head = f"event: {self.name}\n".encode() if self.name else b""
        return head + b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"

    def _text(self) -> str:
        return self.data if isinstance(self.data, str) else dumps(self.data)


def dumps(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
