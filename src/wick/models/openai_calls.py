"""Which tool call a piece of a Chat Completions stream belongs to."""

from __future__ import annotations

from typing import Any

import orjson

from wick.models.openai_common import dumps
from wick.protocols import CallArgs, CallStart, Delta


class Calls:
    """Tells tool calls apart, also where servers leave out the index, the id or both, or count every call as 0."""

    __slots__ = ("begun", "known", "last")

    def __init__(self) -> None:
        self.begun: dict[int, CallStart] = {}
        self.known: dict[int | str, int] = {}  # the calls by the server's index and by their ids
        self.last: tuple[int, list[str]] = (-1, [])  # the call that pieces came for last, and these

    def deltas(self, piece: dict[str, Any]) -> list[Delta]:
        found: list[Delta] = []
        function = piece.get("function") or {}
        id, name, args = str(piece.get("id") or ""), str(function.get("name") or ""), function.get("arguments")
        number = self._find(piece.get("index"), id, name)
        if number is None:
            number = self._begin(piece.get("index"), id, name)
            found.append(self.begun[number])
        if number != self.last[0]:
            self.last = (number, [])
        if args:
            text = args if isinstance(args, str) else dumps(args).decode()
            self.last[1].append(text)
            found.append(CallArgs(number, text))
        return found

    def _find(self, index: Any, id: str, name: str) -> int | None:
        """The call that a piece belongs to, unless it begins one."""
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
        """Whether the last call is complete, so that a name begins the next one instead of being repeated."""
        number, texts = self.last
        if self.begun[number].name != name:
            return True
        try:
            orjson.loads("".join(texts))
        except ValueError:
            return False
        return True

    def _begin(self, index: Any, id: str, name: str) -> int:
        counted = type(index) is int
        number: int = index if counted and index not in self.begun else max(self.begun, default=-1) + 1
        self.begun[number] = CallStart(number, id, name)
        if counted:
            self.known[index] = number
        if id:
            self.known[id] = number
        return number
