"""R6: for any provider fault, a run has one terminal event, no tool gets partial arguments, the thread stays valid.

Each kind of fault of the provider's table is combined with trouble on the way at 20 places of the answer. After that
the conversation continues with a working provider. The full size is every kind at every place, the sample 60 kinds at
one place each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Any

import pytest

from faults.faulty_proxy import Proxy, Trouble
from faults.tally import FULL, Tally, Violated
from faults.thread_validity import valid
from provider import FAULTS, WIRES, Answer, Asked, Call, Reply, Script, ScriptedServer, Thought, Tokens
from wick import Agent, Run, Thread, tool
from wick.capabilities.retry import Retry
from wick.errors import ModelError
from wick.events import Event
from wick.hooks import Next
from wick.models import _http, reply
from wick.models._http import TimeLimits
from wick.models._sse import SSEDecoder
from wick.models.anthropic import Anthropic
from wick.models.bedrock import Bedrock
from wick.models.google import Google
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.run_events import announce_run

CLIENTS: dict[str, tuple[Any, str]] = {
    "chat": (OpenAI, "gpt-4o"),
    "responses": (OpenAIResponses, "gpt-5"),
    "messages": (Anthropic, "claude-sonnet-4-5"),
    "gemini": (Google, "gemini-3-pro-preview"),
    "converse": (Bedrock, "amazon.nova-pro-v1:0"),
}
ADDS = Reply(
    "I'll add.",
    (Thought("Two and three …", "c2ln"),),
    (Call("call_1", "add", '{"a": 2, "b": 3}'),),
    Tokens(40, 30),
    piece=6,
)
SAYS, BYE = Reply("2 + 3 = 5"), Reply("bye")
HUGE = ("without end", "20 MB", "bomb", "5 MB", "huge error", "for ever")  # places in them would be far apart
KINDS = [name for name in FAULTS if not any(word in name for word in HUGE)]
WAYS = ("cut", "reset", "half-close", "corrupt", "stall", "throttle", "delay")
PLACES = 20
SAMPLED = 60
TOGETHER = 8  # concurrent trials: most of their time is waiting for a timeout
LIMITS: dict[str, float] = {"first_byte": 0.4, "between_chunks": 0.4, "total": 5.0}
SAID = ([], [(2, 3)], [(2, 3), (1, 1)])  # all texts of the table, and nothing else

USES: ContextVar[list[tuple[int, int]]] = ContextVar("USES")


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    USES.get().append((a, b))
    return str(a + b)


@dataclass(frozen=True)
class Case:
    """One kind of fault in one format, with trouble of one kind at one of the places."""

    kind: str
    wire: str
    way: Any
    place: int
    of: int = PLACES

    def __str__(self) -> str:
        return f"{self.kind} / {self.wire} / {self.way} at {self.place} of {self.of}"

    @property
    def trouble(self) -> Trouble:
        length = answer_length(self.kind, self.wire)
        return Trouble(self.way, length * self.place // self.of, seconds=0.002, size=max(16, length // 20))


@dataclass
class Trial:
    """The outcome of a run."""

    uses: list[tuple[int, int]] = field(default_factory=list)
    terminal: list[Event] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # after the end
    error: Exception | None = None
    text: str = ""

    def take(self, event: Event) -> None:
        if self.terminal:
            self.late.append(event.event)
        self.terminal += [event] if event.terminal else []

    def check(self) -> None:
        assert len(self.terminal) == 1 and not self.late, f"{self.terminal}, and then {self.late}"
        assert self.error is None or type(self.error) is ModelError, repr(self.error)
        assert self.terminal[0].event == ("done" if self.error is None else "error")
        assert self.uses in SAID, f"the tool was used with {self.uses}"


@cache
def answer_length(kind: str, wire: str) -> int:
    """Return the number of bytes of a reply with that fault, up to a limit."""
    asked = Asked("POST", WIRES[wire].path, {}, b'{"model": "m", "stream": true}')
    flow = Script("", (Answer(ADDS, FAULTS[kind].fault),), strict=False).answer(asked)
    pieces = (piece for piece in islice(flow, 5_000) if isinstance(piece, bytes))
    return min(sum(map(len, pieces)), 200_000)


def cases() -> Iterator[Case]:
    """Yield every kind at every place, with alternating formats and ways."""
    wires = [*CLIENTS]
    for number, kind in enumerate(KINDS):
        for place in range(PLACES):
            way = WAYS[(number + place) % len(WAYS)]
            yield Case(kind, wires[(number // 2 + place // 3) % len(wires)], way, place + (number % 2))


def sampled() -> list[Case]:
    """60 kinds, each at one place, spread over all of them."""
    every = [*cases()]
    step = len(KINDS) / SAMPLED
    return [every[int(number * step) * PLACES + number * 7 % PLACES] for number in range(SAMPLED)]


async def attempt(case: Case, port: int, script: Script, thread: Thread, text: str, limits: TimeLimits) -> Trial:
    trial = Trial()
    USES.set(trial.uses)
    client, model = CLIENTS[case.wire]
    url = script.url.replace(script.url.split("/")[2], f"127.0.0.1:{port}")
    agent = Agent(client(model, base_url=url, api_key="sk-test", limits=limits), tools=[add], hooks=[Retry(attempts=1)])
    try:
        trial.text = (await agent.run(text, thread=thread, emit=trial.take)).text
    except Exception as error:
        trial.error = error
    return trial


async def overcome(server: ScriptedServer, case: Case) -> None:
    """Check one fault: its run ends once, and the conversation can be continued."""
    thread, fault = Thread(), FAULTS[case.kind]
    script = server.script(Answer(ADDS, fault.fault), SAYS)
    async with Proxy(server.port, case.trouble) as proxy:
        async with asyncio.timeout(60):
            trial = await attempt(case, proxy.port, script, thread, "2 + 3?", TimeLimits(**LIMITS | fault.limits))
    trial.check()
    valid(thread)
    after = server.script(BYE, ADDS)  # signed reasoning
    again = await attempt(case, server.port, after, thread, "And now?", TimeLimits())
    again.check()
    assert again.text == BYE.text, f"the thread cannot be continued: {again.error}"
    assert not after.refusals
    valid(thread)


async def provider_faults(
    chosen: Sequence[Case], what: str = "provider faults × places", planted: bool = False
) -> None:
    """Run the chosen cases, some of them concurrently, and count violations."""
    with Tally("R6", what, planted=planted) as tally:
        room = asyncio.Semaphore(TOGETHER)
        async with ScriptedServer() as server:

            async def one(case: Case) -> None:
                async with room:
                    with tally.trying(str(case)):
                        await overcome(server, case)

            try:
                await asyncio.gather(*map(one, chosen))
            finally:
                await _http.close()
        tally.note(kinds=len({case.kind for case in chosen}))


def test_there_are_enough_kinds_and_each_meets_every_way() -> None:
    assert len(KINDS) >= 60
    assert len({case.kind for case in sampled()}) == SAMPLED
    assert {case.way for case in sampled()} == set(WAYS)
    assert {case.wire for case in sampled()} == set(CLIENTS)


@pytest.mark.timeout(1800)
async def test_provider_faults() -> None:
    await provider_faults([*cases()] if FULL else sampled())


def damaged(step: int) -> list[Case]:
    """An answer of each format in which every so-many-th byte, one at a time, is another."""
    return [
        Case("no usage", wire, "corrupt", place, answer_length("no usage", wire))
        for wire in CLIENTS
        for place in range(0, answer_length("no usage", wire), step)
    ]


@pytest.mark.timeout(1800)
async def test_damaged_bytes() -> None:
    await provider_faults(damaged(11 if FULL else 97), "damaged bytes of a reply")


async def test_a_damaged_field_name_is_an_error() -> None:
    """An unknown field would be ignored, and a piece of the reply lost."""
    with pytest.raises(ModelError, match="damaged on the way"):
        SSEDecoder().feed(b'data: {"a": 1}\n\ndat\xff: {"b": 2}\n\n')
    fine = b"\xef\xbb\xbfevent: x\ndata: 1\n\n: caf\xe9\nid: \xc3\xa9\ndata: 2\n\n"
    assert SSEDecoder().feed(fine) == [b"1", b"2"]


# -- planted faults -------------------------------------------------------------------------------------------------

HALF = [Case(kind, wire, "fine", 0) for kind in ("half the arguments", "arguments in a list") for wire in CLIENTS]


async def test_guessed_arguments_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reply.parse_args
    monkeypatch.setattr(reply, "parse_args", lambda raw: ({"a": 2, "b": 0}, "") if read(raw)[1] else read(raw))
    with pytest.raises(Violated, match="the tool was used with"):
        await provider_faults(HALF, planted=True)


async def test_a_run_that_ends_twice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def announce_twice(next: Next[Any], run: Run) -> Awaitable[Any]:
        return announce_run(partial(announce_run, next), run)

    monkeypatch.setattr("wick.agent.announce_run", announce_twice)
    with pytest.raises(Violated, match="and then"):
        await provider_faults(HALF[:2], planted=True)


async def test_a_call_without_result_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.loop.record_tool_use", lambda next, use: next(use))
    monkeypatch.setattr("wick.run_log.answer_lost_calls", lambda thread, event: None)
    with pytest.raises(Violated):
        await provider_faults(HALF[:2], planted=True)
