"""Assembly of streamed tool calls of Chat Completions."""

from __future__ import annotations

from typing import Any

import orjson

from wick.models.openai_common import dumps
from wick.protocols import CallArgs, CallStart, Delta


class ToolCallAssembler:
    """Assigns streamed pieces to tool calls, even if servers omit the index or the id, or number every call 0."""

    __slots__ = ("begun", "known", "last")

    def __init__(self) -> None:
        self.begun: dict[int, CallStart] = {}
        self.known: dict[int | str, int] = {}  # calls by the server's index and by id
        self.last: tuple[int, list[str]] = (-1, [])  # the call of the last pieces, and these pieces

    def deltas(self, piece: dict[str, Any]) -> list[Delta]:
        found: list[Delta] = []
        function = piece.get("function") or {}
        id, name, args = str(piece.get("id") or ""), str(function.get("name") or ""), function.get("arguments")
        number = self._find(piece.get("index"), id, name)
        if number is None:
            number = self._start_call(piece.get("index"), id, name)
            found.append(self.begun[number])
        if number != self.last[0]:
            self.last = (number, [])
        if args:
            text = args if isinstance(args, str) else dumps(args).decode()
            self.last[1].append(text)
            found.append(CallArgs(number, text))
        return found

    def _find(self, index: Any, id: str, name: str) -> int | None:
        """Return the call that a piece belongs to; None if it starts a new one."""
        counted = type(index) is int
        if id in self.known and (not counted or index in self.known):
            return self.known[id]
        if counted:
            number = self.known.get(index)
            another = number is not None and id and name and self.begun[number].id
            return None if another else number
        if id or not self.begun:
            return None
        return None if name and self._is_whole(name) else self.last[0]

    def _is_whole(self, name: str) -> bool:
        """Return True if the last call is complete, so that a name starts the next one."""
        number, texts = self.last
        if self.begun[number].name != name:
            return True
        try:
            orjson.loads("".join(texts))
        except ValueError:
            return False
        return True

    def _start_call(self, index: Any, id: str, name: str) -> int:
        counted = type(index) is int
        number: int = index if counted and index not in self.begun else max(self.begun, default=-1) + 1
        self.begun[number] = CallStart(number, id, name)
        if counted:
            self.known[index] = number
        if id:
            self.known[id] = number
        return number
