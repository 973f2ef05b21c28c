"""Four servers on one Postgres spend one budget."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from postgres import shared_server as postgres_server
from server_agents import get_json, send_answer, user_message
from server_process import host_server, open_client, wait_until
from wick import Agent, tool
from wick.capabilities.budget import Budget
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage

RUNS = 200 if os.environ.get("WICK_FULL") else 40
LIMIT = 100 * RUNS  # each run would spend 300
OPTIONS = {"tokens": LIMIT, "reserve": 400}


@tool
def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: a word"


class Metered:
    """A model that uses a tool twice, and reports 100 tokens for each call."""

    name = "metered"

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.calls += 1
        await asyncio.sleep(0.02)
        if sum(message.role == "tool" for message in request.messages) < 2:
            yield CallStart(0, f"c{self.calls}", "look_up")
            yield CallArgs(0, '{"word": "tea"}')
        else:
            yield TextDelta("Tea is a word.")
        yield Usage(90, 10)
        yield Finish("stop")


def from_options(model: Metered) -> Any:
    return {"model": model, "tools": [look_up], "budget": OPTIONS}


def from_object(model: Metered) -> Any:
    return Agent(model, tools=[look_up], hooks=[Budget(**OPTIONS)])


async def fetch_budget(client: aiohttp.ClientSession) -> Any:
    (budget,) = (await get_json(client, "/agents/spender/limits"))["budgets"]
    return budget


@pytest.mark.parametrize("make", [from_options, from_object])
async def test_four_servers_spend_at_most_one_budget(tmp_path: Path, make: Callable[[Metered], Any]) -> None:
    schema, model = postgres_server().schema(), Metered()
    async with AsyncExitStack() as opened:
        clients = []
        for number in range(4):
            options = {"store": "postgres", "store_schema": schema, "agents": {"spender": make(model)}}
            server = await opened.enter_async_context(host_server(tmp_path / str(number), **options))
            clients.append(await opened.enter_async_context(open_client(server)))
        answers = await asyncio.gather(
            *(send_answer(clients[n % 4], "spender", user_message("Hello.", f"th_{n}")) for n in range(RUNS))
        )
        outcomes = {answer["outcome"] for answer in answers}
        assert "stopped" in outcomes and outcomes <= {"stopped", "completed"}
        assert LIMIT / 10 < 100 * model.calls <= LIMIT

        async def is_released() -> bool:
            budgets = [await fetch_budget(client) for client in clients]
            return all((one["spent_tokens"], one["reserved_tokens"]) == (100 * model.calls, 0) for one in budgets)

        await wait_until(is_released)
    options["agents"] = {"spender": make(model)}
    async with host_server(tmp_path / "later", **options) as server, open_client(server) as client:
        assert (await fetch_budget(client))["spent_tokens"] == 100 * model.calls, "a restart does not reset it"
