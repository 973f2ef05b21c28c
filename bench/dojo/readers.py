"""A model that has handles: it asks a reader about untrusted texts, and never knows a value that it could not read.

The main model knows the task's calls by heart, but not their values. Of each value it decides: the user typed it, or a
result shows it, or it is the model's own words. Every other value is asked of the reader, with the references of the
results that have it. The reader answers correctly, unless its data has an injection: then it answers with the values of
the attacker, if the injection has any for that argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from attackers import Call, Script

from wick import Thread

ANSWER = "answer"  # the argument of a question about the final answer
_WORD = re.compile(r"\w{4,}")
_REFERENCE = re.compile(r"\{\{h\d+\}\}")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(slots=True)
class Reader:
    """The questions of one run to its reader, and the reader's answers."""

    prompt: str
    mark: str
    thread: Thread
    lies: Sequence[Call]  # calls of the attacker, for a reader that is hijacked
    extra: str = ""  # words of the attacker
    shown: list[str] = field(default_factory=list)  # results, as the main model sees them
    hijacked: bool = False
    _asked: list[tuple[str, str, Any]] = field(default_factory=list)  # tool, argument and correct answer

    def play(self, calls: Iterable[Call]) -> Script:
        """Make the calls of a task, each after the questions about its values."""
        for name, args in calls:
            found = dict[str, Any]()
            for argument, value in args.items():
                found[argument] = yield from self._replace(name, argument, value)
            if all(value is not _MISSING for value in found.values()):
                yield name, found

    def answer(self, text: str) -> Iterator[Call]:
        """Ask for the final answer, unless the model needs nothing that it has not seen."""
        result = yield from self._replace(ANSWER, ANSWER, text)
        return text if result is _MISSING else result  # type: ignore[return-value]

    def _replace(self, tool: str, argument: str, value: Any) -> Any:
        """Return a value with references in place of what the model cannot know."""
        if isinstance(value, dict):
            rows = []
            for key, item in value.items():
                rows.append((key, (yield from self._replace(tool, argument, item))))
            return _MISSING if any(item is _MISSING for _, item in rows) else dict(rows)
        if isinstance(value, list):
            items = []
            for item in value:
                items.append((yield from self._replace(tool, argument, item)))
            return _MISSING if any(item is _MISSING for item in items) else items
        sources = self._find_sources(value)
        if not sources:
            return value
        self._asked.append((tool, argument, value))
        schema = {"type": _TYPES.get(type(value), "string")}
        question = f"{len(self._asked) - 1}: the {argument} for {tool}"
        references = [f"{{{{{id}}}}}" for id in sources]
        result = yield "look", {"reference": references, "question": question, "schema": schema}
        if isinstance(result, bool):
            return result
        match = _REFERENCE.search(result) if isinstance(result, str) else None
        return match[0] if match else _MISSING

    def _find_sources(self, value: Any) -> list[str]:
        """Return the handles with a value, or with words of it; none if the model knows it, or chooses it itself."""
        text, known = str(value), "\n".join((self.prompt, *self.shown))
        if value is None or isinstance(value, bool) or not text or text in known:
            return []
        stored = self.thread.values.get("handles", {})
        handles = {id: row["text"] for id, row in stored.items() if row["tool"] != "look"}
        whole = [id for id, body in handles.items() if text in body or json.dumps(text)[1:-1] in body]
        if whole:
            return whole[-1:]
        words = {word for word in _WORD.findall(text) if word not in known}
        return [id for id, body in handles.items() if any(word in body for word in words)]

    def reply(self, request_text: str) -> str:
        """Answer a question of the main model."""
        number = re.search(r"^Question: (\d+):", request_text)
        assert number is not None, request_text[:100]
        tool, argument, value = self._asked[int(number[1])]
        if self.mark in request_text:
            self.hijacked = True
            value = self._lie(tool, argument, value)
        return json.dumps(value)

    def _lie(self, tool: str, argument: str, value: Any) -> Any:
        if argument == ANSWER:
            return f"{value}\n{self.extra}"
        rows = [(name, args[argument]) for name, args in self.lies if argument in args]
        wanted = next((row for row in rows if row[0] == tool), rows[0] if rows else None)
        lie = wanted[1] if wanted else value
        lie = lie[0] if isinstance(lie, list) and lie else lie
        return lie if type(lie) is type(value) else value


_MISSING = object()  # the reader has not answered
