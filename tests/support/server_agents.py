"""Agents to talk to in the tests of a server, and how one talks to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from wick import Agent, Ask, FunctionModel, ToolCall, ToolUse, assistant, guard, tool
from wick.protocols import Delta, Finish, Request, TextDelta

HELLO = {"messages": [{"role": "user", "content": "Hello."}]}


def user_message(text: str, thread: str = "") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]} | ({"thread_id": thread} if thread else {})


class Gate:
    """A model that replies when released; it repeats the last message."""

    name = "gate"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers: asyncio.Queue[str] = asyncio.Queue()
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        self.asked.set()
        answer = await self.answers.get()
        yield TextDelta(answer or f"You said: {request.messages[-1].text}")
        yield Finish()


def echo_agent(request: Request) -> str:
    return f"You said: {request.messages[-1].text}"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


def payment_agent(request: Request) -> Any:
    """An agent that pays after approval and reports the result."""
    last = request.messages[-1]
    if last.role == "user" and last.text == "Pay.":
        return assistant("", ToolCall("c1", "pay", {"amount": 500}))
    said = [message.text for message in request.messages if message.role == "tool"]
    return f"{last.text} ({'; '.join(said)})"


def sample_agents(gate: Gate) -> dict[str, Any]:
    return {
        "echo": Agent(FunctionModel(echo_agent), name="echo"),
        "gate": Agent(gate, name="gate"),
        "payer": Agent(FunctionModel(payment_agent), name="payer", tools=[pay], hooks=[confirm]),
    }


async def send_answer(client: aiohttp.ClientSession, agent: str, body: Any, status: int = 200, **headers: str) -> Any:
    async with client.post(f"/agents/{agent}/invoke", json=body, headers=headers) as response:
        found = await response.json()
        assert response.status == status, found
        return found


async def get_json(client: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with client.get(path) as response:
        found = await response.json()
        assert response.status == status, found
        return found


def list_ids(found: list[dict[str, Any]]) -> list[str]:
    return [frame["id"] for frame in found if frame["id"]]


def list_names(found: list[dict[str, Any]]) -> list[str]:
    return [frame["event"] for frame in found]
