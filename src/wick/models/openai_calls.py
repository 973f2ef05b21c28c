"""Assembly of streamed tool calls of Chat Completions."""

from __future__ import annotations

from typing import Any

import orjson

from wick._internal.fast_json import encode_json
from wick.protocols import CallArgs, CallStart, Delta


class ToolCallAssembler:
    """Assigns streamed pieces to tool calls, even if servers omit the index or the id, or number every call 0."""

    __slots__ = ("started", "known", "last")

    def __init__(self) -> None:
        self.started: dict[int, CallStart] = {}
        self.known: dict[int | str, int] = {}  # calls by the server's index and by id
        self.last: tuple[int, list[str]] = (-1, [])  # the call of the last pieces, and these pieces

    def deltas(self, piece: dict[str, Any]) -> list[Delta]:
        """Return the deltas of a streamed piece."""
        deltas: list[Delta] = []
        index: Any = piece.get("index")
        function = piece.get("function") or {}
        id, name, args = str(piece.get("id") or ""), str(function.get("name") or ""), function.get("arguments")
        number = self._find(index, id, name)
        if number is None:
            is_free = type(index) is int and index not in self.started
            number = int(index) if is_free else max(self.started, default=-1) + 1
            start = self.started[number] = CallStart(number, id, name)
            deltas.append(start)
            if type(index) is int:
                self.known[index] = number
            if id:
                self.known[id] = number
        if number != self.last[0]:
            self.last = (number, [])
        if args:
            text = args if isinstance(args, str) else encode_json(args).decode()
            self.last[1].append(text)
            deltas.append(CallArgs(number, text))
        return deltas

    def _find(self, index: Any, id: str, name: str) -> int | None:
        """Return the call that a piece belongs to; None if it starts a new one."""
        counted = type(index) is int
        if id in self.known and (not counted or index in self.known):
            return self.known[id]
        if counted:
            number = self.known.get(index)
            another = number is not None and id and name and self.started[number].id
            return None if another else number
        if id or not self.started:
            return None
        number, texts = self.last
        if not name:
            return number
        if self.started[number].name != name:
            return None
        try:
            orjson.loads("".join(texts))  # arguments that are complete: the name starts another call
        except ValueError:
            return number
        return None
