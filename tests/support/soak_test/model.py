"""The model of a soak: a scripted provider that follows the plan of a turn, with faults on demand."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from provider.checks import Refused
from provider.faults import FINE, HTML, Fault, corrupt, cut, delay, end, error_before, events, reset, stall, status
from provider.flow import Flow, pause
from provider.script import Call, Reply
from provider.server import WIRES, Answer, Asked, Script, ScriptedServer, _refuse, _respond

MARK = f"soak-mark-{os.getpid()}"  # in every command, so that its processes can be found
KINDS: tuple[Callable[[float], Fault], ...] = (
    lambda place: cut(place),
    lambda place: reset(place),
    lambda place: end(place),
    lambda place: corrupt(place),
    lambda place: delay(place, 2.0),
    lambda place: stall(place),
    lambda place: status(500),
    lambda place: status(429, Retry_After="1"),
    lambda place: status(503, HTML, "text/html"),
    lambda place: error_before("text"),
)


class Soaked(Script):
    """Replies by the last message: `turn-7 talk 20 0.5`, `turn-7 work 3`, `turn-7 pay`."""

    def __init__(self, url: str, hit: Callable[[str, str], None], wrong: Callable[[str], None]) -> None:
        super().__init__(url, (), strict=True)
        self.asked = deque(maxlen=10)  # type: ignore[assignment]  # an hour has many
        self.next_faults: deque[Fault] = deque()
        self._hit, self._wrong = hit, wrong

    def plant(self, chance: random.Random) -> str:
        """Plant a random fault in the next response."""
        number = chance.randrange(len(KINDS))
        self.next_faults.append(KINDS[number](chance.random()))
        return str(number)

    def answer(self, asked: Asked) -> Flow:
        wire = WIRES["chat"]
        try:
            asked.body = self._check(asked, wire)
        except Refused as refused:  # wick sent a request that providers refuse: the thread is invalid
            self._wrong(f"the provider refused: {refused.message}")
            return _refuse(wire, refused)
        turn, done, words = _find_turn(asked.body["messages"])
        fault = FINE
        if self.next_faults:
            fault = self.next_faults.popleft()
            self._hit(turn, "provider")
        return _respond(Answer(_reply(turn, done, words), fault | _paced(words)), wire, asked.body)


def _find_turn(messages: list[dict[str, Any]]) -> tuple[str, int, list[str]]:
    """Return the turn, its number of results, and its plan."""
    for place in range(len(messages) - 1, -1, -1):
        found = re.search(r"(turn-\d+) (\w+.*)", _text(messages[place])) if messages[place]["role"] == "user" else None
        if found:
            done = sum(message["role"] == "tool" for message in messages[place:])
            return found[1], done, found[2].split()
    return "", 0, ["talk", "1", "0"]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _reply(turn: str, done: int, words: list[str]) -> Reply:
    if words[0] == "talk":
        return Reply("".join(f"word{number:03} " for number in range(int(words[1]))), piece=8)
    steps = int(words[1])
    if done >= steps:
        return Reply(f"All of {turn} is done.", piece=64)
    effect = f"{turn}.{done}"
    command = f"echo {effect} >> effects.log && sleep {words[2]} && echo did {effect} {MARK}"
    return Reply("", calls=(Call.of(f"call_{turn}_{done}", "execute", command=command),), piece=4_000)


def _paced(words: list[str]) -> Fault:
    """Talk is streamed word by word; tool calls follow a short delay."""
    if words[0] == "talk":
        return events(lambda all: [item for event in all for item in (event, pause(float(words[2])))])
    return events(lambda all: [pause(float(words[3])), *all])


class SoakedServer(ScriptedServer):
    """A provider with one address for all users."""

    def soaked(self, hit: Callable[[str, str], None], wrong: Callable[[str], None]) -> Soaked:
        made = Soaked(f"http://127.0.0.1:{self.port}/soak/v1", hit, wrong)
        self._scripts["soak"] = made
        return made

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super()._converse(reader, writer)
        except RuntimeError as error:  # uvloop's error for a disconnected client
            raise ConnectionResetError(str(error)) from None
