"""Measure the client-side cost of a model call, in CPU time over loopback: per call and per streamed delta.

wick's clients are compared in the same rounds with a bare aiohttp + orjson loop that encodes each message once (the
floor), the same loop on httpx2, and the vendor's SDK. See bench/README.md.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import openai
import orjson
from measure import Prepare, Rows, Samples, by_length, compare, groups, main, measure, share, table

from wick import Agent, Message, Thread, ToolCall, assistant, tool, user
from wick.messages import tool_message
from wick.models.anthropic import Anthropic
from wick.models.openai import OpenAI
from wick.protocols import Request, TextDelta

LENGTHS = (20, 100, 200)  # messages in the conversation before the first call
CALLS = 10  # consecutive calls, each with two more messages
DELTAS = 200  # additional deltas of a long reply; a short reply has one

# Goals: times the floor.
CALL_GOAL, DELTA_GOAL = 1.3, 2.0


# -- the conversation -----------------------------------------------------------------------------------------------

SYSTEM = "You are an assistant for travellers. Look up what you do not know, and answer in short sentences. " * 10
QUESTION = "What should I wear in Lisbon tomorrow, if I walk the whole day and eat outside in the evening?"


@tool
async def forecast(city: str, days: int = 1) -> str:
    """The weather forecast for a city."""
    return "sunny"


@tool
async def search(query: str, limit: int = 5) -> str:
    """Search the web, and return the titles and the first lines of the results."""
    return query


@tool
async def remember(key: str, value: str) -> str:
    """Store a value for later conversations."""
    return value


TOOLS = (forecast, search, remember)


def _past(length: int) -> Iterator[Message]:
    """Yield the messages of a conversation in which every second question needs a tool."""
    for number in range(length // 4):
        call = ToolCall(f"call_{number}", "forecast", {"city": "Lisbon", "days": number})
        yield user(QUESTION)
        yield assistant("Let me look.", call)
        yield tool_message(call.id, call.name, "Sunny, 24 degrees, a light wind from the north-west. " * 15)
        yield assistant("It will be warm: take a hat, light shoes, and a jumper for the evening. " * 4)


PASTS = {length: list(_past(length)) for length in LENGTHS}


# -- the clients ----------------------------------------------------------------------------------------------------

Post = Callable[[str, bytes, "Format"], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """A wire format of a bare loop: the path, and a function that extracts the texts of events."""

    path: str
    texts: Callable[[list[bytes]], list[str]]


def _chat(events: list[bytes]) -> list[str]:
    found = []
    for event in events:
        if event != b"data: [DONE]":
            for choice in orjson.loads(event[6:])["choices"]:
                if text := choice["delta"].get("content"):
                    found.append(text)
    return found


def _claude(events: list[bytes]) -> list[str]:
    found = []
    for event in events:
        data = orjson.loads(event[event.index(b"\ndata: ") + 7 :])
        if data["type"] == "content_block_delta":
            found.append(data["delta"]["text"])
    return found


CHAT, CLAUDE = Format("/v1/chat/completions", _chat), Format("/v1/messages", _claude)
JSON = {"content-type": "application/json", "authorization": "Bearer key"}


def by_aiohttp(session: aiohttp.ClientSession) -> Post:
    async def post(url: str, body: bytes, format: Format) -> str:
        texts, rest = [], b""
        async with session.post(url, data=body, headers=JSON) as response:
            async for chunk in response.content.iter_any():
                *events, rest = (rest + chunk).split(b"\n\n")
                texts += format.texts(events)
        return "".join(texts)

    return post


def by_httpx2(client: httpx2.AsyncClient) -> Post:
    async def post(url: str, body: bytes, format: Format) -> str:
        texts, rest = [], b""
        async with client.stream("POST", url, content=body, headers=JSON) as response:
            async for chunk in response.aiter_bytes():
                *events, rest = (rest + chunk).split(b"\n\n")
                texts += format.texts(events)
        return "".join(texts)

    return post


@dataclass(frozen=True, slots=True)
class Way:
    """A client: `begin` creates a conversation of some messages; `go_on` adds a question and its reply."""

    begin: Callable[[int], Any]
    go_on: Callable[[Any], Awaitable[object]]
    most: int = CALLS  # consecutive calls; fewer for slow clients

    def talk(self, length: int, calls: int) -> Prepare:
        async def go_on(said: Any) -> None:
            for _ in range(calls):
                await self.go_on(said)

        return lambda: go_on(self.begin(length))


def bare(base: str, post: Post, format: Format, model: OpenAI | Anthropic) -> Way:
    """The minimal client: it encodes each message once, and everything else once in total."""
    url = base + format.path
    sent = {length: orjson.loads(model.body(Request(tuple(past), SYSTEM, TOOLS))) for length, past in PASTS.items()}
    pasts = {length: [*map(orjson.dumps, body["messages"])] for length, body in sent.items()}
    options = {key: value for key, value in sent[LENGTHS[0]].items() if key != "messages"}
    head = orjson.dumps(options)[:-1] + b',"messages":['

    async def go_on(said: list[bytes]) -> None:
        said.append(orjson.dumps({"role": "user", "content": QUESTION}))
        text = await post(url, b"".join((head, b",".join(said), b"]}")), format)
        said.append(orjson.dumps({"role": "assistant", "content": text}))

    return Way(lambda length: [*pasts[length]], go_on)


def vendor(base: str, sdk: openai.AsyncOpenAI, model: OpenAI) -> Way:
    asked: Any = sdk.with_options(base_url=base + "/v1")
    sent = {length: orjson.loads(model.body(Request(tuple(past), SYSTEM, TOOLS))) for length, past in PASTS.items()}

    async def go_on(body: dict[str, Any]) -> None:
        texts, said = [], body["messages"]
        said.append({"role": "user", "content": QUESTION})
        async for chunk in await asked.chat.completions.create(**body):
            for choice in chunk.choices:
                if choice.delta.content:
                    texts.append(choice.delta.content)
        said.append({"role": "assistant", "content": "".join(texts)})

    return Way(lambda length: {**sent[length], "messages": [*sent[length]["messages"]]}, go_on, most=1)


def client(model: OpenAI | Anthropic) -> Way:
    """One of wick's clients, alone: it gets existing message objects, and encodes the new ones."""

    def begin(length: int) -> tuple[list[Message], Iterator[Message]]:
        coming = [(user(QUESTION), assistant("Take a hat.")) for _ in range(CALLS)]
        return [*PASTS[length]], iter([message for pair in coming for message in pair])

    async def go_on(talk: tuple[list[Message], Iterator[Message]]) -> str:
        said, coming = talk
        said.append(next(coming))
        texts = []
        async for delta in model.stream(Request(tuple(said), SYSTEM, TOOLS)):
            if isinstance(delta, TextDelta):
                texts.append(delta.text)
        said.append(next(coming))
        return "".join(texts)

    return Way(begin, go_on)


def whole(model: OpenAI) -> Way:
    """A run of an agent: the client, the loop, the hooks that every agent has, and the thread."""
    agent = Agent(model, system=SYSTEM, tools=TOOLS)

    def begin(length: int) -> Thread:
        thread = Thread()
        thread.add(*PASTS[length])
        return thread

    return Way(begin, lambda thread: agent.run(QUESTION, thread=thread))


# Each case with its floor.
FLOOR, CLAUDE_FLOOR = "bare aiohttp + orjson", "Anthropic: bare aiohttp + orjson"
CLIENT, CLAUDE_CLIENT = "wick's client", "Anthropic: wick's client"
FLOORS = {FLOOR: FLOOR, "bare httpx2 + orjson": FLOOR, "the vendor's SDK": FLOOR, CLIENT: FLOOR,
          "wick, a whole run": FLOOR, CLAUDE_FLOOR: CLAUDE_FLOOR, CLAUDE_CLIENT: CLAUDE_FLOOR}  # fmt: skip
CLIENTS = (CLIENT, CLAUDE_CLIENT)


@asynccontextmanager
async def ways() -> AsyncIterator[Callable[[str], dict[str, Way]]]:
    """Yield a function that returns all clients for a base URL."""
    sdk = openai.AsyncOpenAI(api_key="key", base_url="http://127.0.0.1", max_retries=0)
    async with aiohttp.ClientSession() as session, httpx2.AsyncClient() as connections, sdk:

        def at(base: str) -> dict[str, Way]:
            chat = OpenAI("gpt-4o", base_url=base + "/v1", api_key="key")
            claude = Anthropic("claude-sonnet-4-5", base_url=base, api_key="key")
            post = by_aiohttp(session)
            found = [
                bare(base, post, CHAT, chat),
                bare(base, by_httpx2(connections), CHAT, chat),
                vendor(base, sdk, chat),
                client(chat),
                whole(chat),
                bare(base, post, CLAUDE, Anthropic("claude-sonnet-4-5", base_url=base, api_key="key", cache=False)),
                client(claude),
            ]
            return dict(zip(FLOORS, found, strict=True))

        yield at


@contextmanager
def provider() -> Iterator[str]:
    """Run the provider in a separate process, and yield its address."""
    command = [sys.executable, str(Path(__file__).parent / "provider.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()  # the process exits at the end of its input


# -- measuring ------------------------------------------------------------------------------------------------------

Key = tuple[str, int, str, int]  # client, deltas in the reply, their pace, messages
KINDS = [(1, "burst", length, CALLS) for length in LENGTHS] + [
    (1 + DELTAS, "burst", LENGTHS[0], 3),
    (1, "live", LENGTHS[0], CALLS),
    (1 + DELTAS, "live", LENGTHS[0], 1),
]


async def costs(address: str, rounds: int) -> Samples[Key]:
    """Return the microseconds per call of every client in every kind of call."""
    cases: dict[Key, Prepare] = {}
    counts: dict[Key, int] = {}
    async with ways() as at:
        for deltas, pace, length, calls in KINDS:
            for name, way in at(f"{address}/{deltas}/{pace}").items():
                key = name, deltas, pace, length
                counts[key] = min(calls, way.most)
                cases[key] = way.talk(length, counts[key])
        spent = await measure(cases, rounds)
    return {key: [us / counts[key] for us in samples] for key, samples in spent.items()}


def calls(cost: Samples[Key]) -> Rows:
    """Return the cost of a call with a short reply at each length, and the cost that 100 more messages add."""

    def growth(name: str) -> list[float]:
        short, long = cost[name, 1, "burst", LENGTHS[0]], cost[name, 1, "burst", LENGTHS[-1]]
        return share(long, short, LENGTHS[-1] - LENGTHS[0], 100)

    rows: Rows = []
    for name, length in product(FLOORS, LENGTHS):
        own, floor = cost[name, 1, "burst", length], cost[FLOORS[name], 1, "burst", length]
        row = compare("call", name, own, floor, messages=length)
        rows.append(row.to_json() | {"goal_ratio": CALL_GOAL if name in CLIENTS else None})
    for name, floor_name in FLOORS.items():
        unit = cost[floor_name, 1, "burst", LENGTHS[0]]
        rows.append(compare("growth", name, growth(name), growth(floor_name), unit).to_json())
    return rows


def deltas(cost: Samples[Key]) -> Rows:
    """Return the cost of one more delta of a reply, in one burst and one at a time."""

    def one(name: str, pace: str) -> list[float]:
        return share(cost[name, 1 + DELTAS, pace, LENGTHS[0]], cost[name, 1, pace, LENGTHS[0]], DELTAS)

    rows = []
    for pace, (name, floor) in product(("burst", "live"), FLOORS.items()):
        row = compare("delta", name, one(name, pace), one(floor, pace))
        rows.append(row.to_json() | {"pace": pace, "goal_ratio": DELTA_GOAL if name in CLIENTS else None})
    return rows


# -- reporting ------------------------------------------------------------------------------------------------------


def tell(rows: Rows) -> None:
    group = groups(rows)
    for row in group["call"]:
        row["ms"] = row["us"] / 1_000
    lengths = [f"{length:,}" for length in LENGTHS]
    _tell("a call with a short reply: CPU ms by messages, and times the floor", group["call"], "ms", lengths)
    paces = ["burst", "live"]
    _tell("a delta: CPU µs in one burst and each alone, and times the floor", group["delta"], "us", paces)
    table(
        "cost that 100 more messages add to a call: CPU µs",
        ("", "µs", "floor", "beyond it"),
        ([row["case"], row["us"], row["floor_us"], row["own_us"]] for row in group["growth"]),
    )


def _tell(title: str, rows: Rows, unit: str, columns: list[str]) -> None:
    goals = {row["case"]: row["goal_ratio"] for row in rows}
    lines = [
        [case, *by_length(rows, case, unit), *by_length(rows, case, "ratio"), goal] for case, goal in goals.items()
    ]
    table(title, ("", *columns, *(f"× {name}" for name in columns), "goal"), lines)


def run(quick: bool) -> Rows:
    with provider() as address:
        cost = asyncio.run(costs(address, 3 if quick else 51))
    return calls(cost) + deltas(cost)


if __name__ == "__main__":
    main(__doc__, "models", run, tell)
