"""Clients of the server: they reconnect after broken connections and check all responses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import aiohttp

from server_process import read_frames
from soak_test.ledger import TERMINAL, Ledger, Turn
from wick.server.runs.frames import parse_position

PATIENCE = 150.0  # seconds after which a turn that has not ended is lost
SILENCE = 40.0  # the server sends a keep-alive at least every 15 seconds
AGAIN = (429, 503)  # come again in a moment
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class Person:
    """One user, with as many conversations as they like."""

    def __init__(self, token: str, url: str, ledger: Ledger, going: Callable[[], bool], number: int) -> None:
        self.ledger, self.going, self.chance = ledger, going, random.Random(number)
        self.turns: set[Turn] = set()  # active runs
        self.told: list[str] = []  # effects that commands reported
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENCE)
        self.client = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
        )

    async def close(self) -> None:
        await self.client.close()

    # -- talking ----------------------------------------------------------------------------------------------------

    async def converse(self, agent: str, ask: str, length: int) -> None:
        """One thread after the other, each of some turns, and each looked through at its end."""
        while self.going():
            said: list[Turn] = []
            while self.going() and len(said) < length:
                turn = Turn(agent, ask, thread=said[0].thread if said else "")
                said.append(turn)
                await self.speak(turn)
                await asyncio.sleep(self.chance.uniform(0.0, 0.3))
                if turn.outcome == "lost":
                    break
            await self.persist(lambda said=said: self._check_thread(said), said[0].thread if said else "")

    async def speak(self, turn: Turn) -> None:
        """Send a message and read until an outcome, despite broken connections."""
        self.ledger.begin(turn)
        self.turns.add(turn)
        asked = turn.thread
        while not turn.outcome:
            if monotonic() - turn.began > PATIENCE:
                turn.outcome, turn.reason = "lost", f"nothing came of it within {PATIENCE:g} s"
                self.ledger.say("lost", f"{turn.name} ({turn.ask}), run {turn.run or 'unknown'}: {turn.reason}")
                break
            try:
                await self._listen(turn, asked)
            except BROKEN:
                turn.broken += 1
                self.ledger.counts["reconnects"] += 1
            if not turn.outcome:
                await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        self.turns.discard(turn)
        self.told += turn.effects
        self.ledger.end(turn)
        if turn.outcome != "lost" and (turn.broken or self.chance.random() < 0.1):
            await self.persist(lambda: self._check_run(turn), turn.run)

    async def _listen(self, turn: Turn, thread: str) -> None:
        async with self._stream(turn, thread) as answer:
            if answer.status != 200:
                return await self._not_taken(turn, answer)
            turn.run, turn.thread = (
                answer.headers.get("X-Run-Id", turn.run),
                answer.headers.get("X-Thread-Id", turn.thread),
            )
            async for frame in read_frames(answer):
                await self._hear(turn, frame)
                if turn.outcome:
                    return None
        return None

    @asynccontextmanager
    async def _stream(self, turn: Turn, thread: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The stream of a turn: from its beginning, or from where it broke."""
        if turn.run:
            headers = {"Last-Event-ID": turn.last} if turn.last else {}
            asked = self.client.get(f"/runs/{turn.run}/events", headers=headers)
        else:
            body: dict[str, Any] = {"messages": [{"role": "user", "content": turn.text}]}
            body |= {"thread_id": thread} if thread else {}
            asked = self.client.post(f"/agents/{turn.agent}/stream", json=body, headers={"Idempotency-Key": turn.name})
        async with asked as answer:
            self.ledger.streamed(1)
            try:
                yield answer
            finally:
                self.ledger.streamed(-1)

    async def _not_taken(self, turn: Turn, answer: aiohttp.ClientResponse) -> None:
        if answer.status in AGAIN:
            await asyncio.sleep(0.5)
            return
        said = f"{turn.name}: {answer.status} {(await answer.text())[:300]}"
        if "disk" not in turn.faults:
            self.ledger.say("refused", said)
        await asyncio.sleep(0.5)

    async def _hear(self, turn: Turn, frame: dict[str, Any]) -> None:
        name, data = frame["event"], (frame["data"] or {}).get("data") or {}
        paused = name == "done" and data.get("outcome") == "interrupted"
        if frame["id"] and not paused:
            if turn.seen and parse_position(frame["id"]) <= parse_position(turn.last):
                self.ledger.say("duplicated", f"{turn.run}: frame {frame['id']} came after {turn.last}")
            turn.seen.append((frame["id"], name))
        if name == "on_tool_end":
            self.ledger.counts["tool_calls"] += 1
            turn.effects += [line.split()[1] for line in data.get("output", "").splitlines() if line.startswith("did ")]
        elif name == "on_approval_request":
            await self._agree(turn, data["id"])
        elif name in TERMINAL and not paused:
            turn.outcome, turn.end = data.get("outcome") or "failed", frame
            turn.reason = data.get("reason") or data.get("message") or ""

    async def _agree(self, turn: Turn, question: str) -> None:
        """Approve until the answer is accepted."""

        async def say() -> None:
            async with self.client.post(f"/approvals/{question}", json={"choice": "allow"}) as answer:
                if answer.status in AGAIN or answer.status >= 500:
                    raise aiohttp.ClientError("come again")
                self.ledger.counts["answers"] += answer.status == 200

        await self.persist(say, question)

    async def persist(self, work: Callable[[], Any], what: str = "", seconds: float = 60.0) -> None:
        """Do something over again until no connection breaks."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            try:
                return await work()  # type: ignore[no-any-return]
            except BROKEN:
                await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        self.ledger.say("lost", f"the server could not be asked for a minute about {what}")
        return None

    # -- checking ---------------------------------------------------------------------------------------------------

    async def _check_run(self, turn: Turn) -> None:
        """Check that streamed frames match the log."""
        async with asyncio.timeout(20), self.client.get(f"/runs/{turn.run}/events") as answer:
            if answer.status != 200:
                raise aiohttp.ClientError(str(answer.status))
            whole = [(frame["id"], frame["event"]) async for frame in read_frames(answer) if frame["id"]]
        if not whole or whole[-1][1] not in TERMINAL:
            raise aiohttp.ClientError("it broke off")
        self.ledger.counts["checked_runs"] += 1
        if missing := [frame for frame in whole if frame not in turn.seen]:
            self.ledger.say("lost", f"{turn.run} was never told {missing[:3]}, but {turn.seen[-2:]} and {turn.end}")
        if more := [frame for frame in turn.seen if frame not in whole]:
            self.ledger.say("lost", f"{turn.run} was told {more[:3]}, and that is gone")
        if [event in TERMINAL for _, event in whole].count(True) != 1:
            self.ledger.say("invalid", f"{turn.run} ends more than once: {whole[-3:]}")

    async def _check_thread(self, said: list[Turn]) -> None:
        """Check that messages are stored once and in order, and every call has one result."""
        said = [turn for turn in said if turn.thread and turn.outcome != "lost"]
        if not said:
            return
        async with self.client.get(f"/threads/{said[0].thread}") as answer:
            if answer.status != 200:
                raise aiohttp.ClientError(str(answer.status))
            thread = await answer.json()
        self.ledger.counts["checked_threads"] += 1
        there = [_words(message) for message in thread["messages"] if message["role"] == "user"]
        there = [text for text in there if text.startswith("turn-")]
        wanted = [turn.text for turn in said]
        if missing := [text for text in wanted if text not in there]:
            await self._check_unheard(said, missing)
        if there != [*dict.fromkeys(there)] or len(there) > len(wanted):
            self.ledger.say("duplicated", f"{said[0].thread}: {there}")
        _check_calls(thread, self.ledger)

    async def _check_unheard(self, said: list[Turn], missing: list[str]) -> None:
        """Check that messages cancelled before a decision are in the log and not delivered to a model."""
        async with self.client.get(f"/threads/{said[0].thread}/export") as answer:
            if answer.status != 200:
                raise aiohttp.ClientError(str(answer.status))
            log = (await answer.json())["entries"]
        unheard = [_words(row["data"]["data"]["message"]) for row in log if _is_unheard(row)]
        cancelled = [turn.text for turn in said if turn.outcome == "cancelled"]
        if gone := [text for text in missing if text not in unheard or text not in cancelled]:
            self.ledger.say("lost", f"{said[0].thread}: {gone} is gone")

    # -- watching, and a shell --------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """A second reader of active runs."""
        while self.going():
            turn = next((turn for turn in [*self.turns] if turn.run), None)
            if turn is None:
                await asyncio.sleep(0.2)
                continue
            try:
                async with asyncio.timeout(20), self._stream(turn, "") as answer:
                    async for _ in read_frames(answer):
                        if not self.going():
                            break
            except BROKEN:
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.1)

    async def type(self) -> None:
        """A terminal with input; it is reopened after a disconnect."""
        number = 0
        while self.going():
            try:
                async with self.client.ws_connect("/agents/worker/terminal") as shell:
                    while self.going():
                        number += 1
                        await shell.send_bytes(f"echo $(({number} * 3))-typed\n".encode())
                        await _printed(shell, f"{number * 3}-typed".encode())
                        self.ledger.counts["terminal_lines"] += 1
                        await asyncio.sleep(1.0)
            except BROKEN:
                await asyncio.sleep(0.5)


async def _printed(shell: aiohttp.ClientWebSocketResponse, text: bytes) -> None:
    seen = b""
    async with asyncio.timeout(30):
        while text not in seen:
            message = await shell.receive()
            if message.type != aiohttp.WSMsgType.BINARY:
                raise aiohttp.ClientError("the shell is gone")
            seen = (seen + message.data)[-10_000:]


def _words(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _is_unheard(row: dict[str, Any]) -> bool:
    return row["kind"] == "event" and row["data"].get("name") == "message_unheard"


def _check_calls(thread: dict[str, Any], ledger: Ledger) -> None:
    """After a message with calls come their results, in the order of the calls."""
    waiting: list[str] = []
    for message in thread["messages"]:
        if message["role"] == "tool":
            if not waiting or waiting.pop(0) != message["tool_call_id"]:
                ledger.say("invalid", f"{thread['thread_id']}: a result of {message['tool_call_id']} out of place")
        elif waiting:
            ledger.say("invalid", f"{thread['thread_id']}: {waiting} have no result")
            waiting = []
        if message["role"] == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        ledger.say("invalid", f"{thread['thread_id']}: {waiting} have no result at the end")
