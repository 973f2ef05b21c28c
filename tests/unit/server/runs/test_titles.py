"""Titles that the model writes: short, clean, and only where they replace nothing of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from server_agents import get_json, send_answer, user_message
from server_process import host_server, open_client, wait_until
from wick import Agent
from wick.errors import ModelError
from wick.protocols import Delta, Finish, Request, TextDelta, Usage
from wick.server.runs.titles import SYSTEM, TITLE_CHARS, clean_title


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ("Otters in the river", "Otters in the river"),
        ('\n "Otters in the river." \n\nI hope this helps', "Otters in the river"),
        ("# Title: **Otters**", "Title: **Otters"),
        ("Title: Otters", "Otters"),
        ("« Loutres »", "Loutres"),
        ("a\u202eb\x07c", "abc"),
        ("", ""),
        ("...", ""),
        ("long " * 40, ("long " * 40)[: TITLE_CHARS - 1].rstrip() + "…"),
    ],
)
def test_a_reply_becomes_a_title(reply: str, title: str) -> None:
    assert clean_title(reply) == title and len(clean_title(reply)) <= TITLE_CHARS


class Titled:
    """A model of a provider that counts the titles it is asked for."""

    name = "fake:titled"

    def __init__(self, title: str | Exception = "Otters in the river") -> None:
        self.title, self.asked, self.gate = title, list[str](), asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        if request.system == SYSTEM:
            self.asked.append(request.messages[-1].text)
            await self.gate.wait()
            if isinstance(self.title, Exception):
                raise self.title
            yield TextDelta(self.title)
            yield Usage(50, 5)
        else:
            yield TextDelta("Otters live in rivers.")
            yield Usage(10, 5)
        yield Finish()


async def read_title(client: Any) -> str:
    return str((await get_json(client, "/threads/th_1"))["title"])


async def test_the_model_writes_the_title_of_a_new_thread_once(tmp_path: Path) -> None:
    model = Titled()
    model.gate.set()
    agents = {"otter": Agent(model, name="otter")}
    async with host_server(tmp_path, agents=agents, titles=True) as server, open_client(server) as client:
        await send_answer(client, "otter", user_message("Where do otters live?", "th_1"))
        await wait_until(lambda: is_titled(client, "Otters in the river"))
        assert "Where do otters live?" in model.asked[0] and "Otters live in rivers." in model.asked[0]
        await send_answer(client, "otter", user_message("And beavers?", "th_1"))
        assert len(model.asked) == 1
        (row,) = (await get_json(client, "/usage"))["rows"]
        assert (row["runs"], row["input_tokens"]) == (2, 70)


async def is_titled(client: Any, title: str) -> bool:
    return await read_title(client) == title


async def test_a_title_of_the_user_stays(tmp_path: Path) -> None:
    model = Titled()
    agents = {"otter": Agent(model, name="otter")}
    async with host_server(tmp_path, agents=agents, titles=True) as server, open_client(server) as client:
        await send_answer(client, "otter", user_message("Where do otters live?", "th_1"))
        await wait_until(lambda: asyncio.sleep(0, bool(model.asked)))
        async with client.patch("/threads/th_1", json={"title": "Mine"}) as response:
            assert response.status == 200
        model.gate.set()
        titles = server.service.runs.executor.titles
        await wait_until(lambda: asyncio.sleep(0, not titles._tasks))
        assert await read_title(client) == "Mine"


@pytest.mark.parametrize("problem", [ModelError("the provider is away"), ValueError("a bug")])
async def test_a_failed_call_changes_nothing(tmp_path: Path, problem: Exception) -> None:
    model = Titled(problem)
    model.gate.set()
    agents = {"otter": Agent(model, name="otter")}
    async with host_server(tmp_path, agents=agents, titles=True) as server, open_client(server) as client:
        told = await send_answer(client, "otter", user_message("Where do otters live?", "th_1"))
        assert told["outcome"] == "completed"
        titles = server.service.runs.executor.titles
        await wait_until(lambda: asyncio.sleep(0, bool(model.asked) and not titles._tasks))
        assert await read_title(client) == "Where do otters live?"


async def test_titles_are_switched_off_and_a_call_ends_with_the_server(tmp_path: Path) -> None:
    model = Titled()
    agents = {"otter": Agent(model, name="otter")}
    async with host_server(tmp_path / "a", agents=agents, titles=False) as server, open_client(server) as client:
        await send_answer(client, "otter", user_message("Where do otters live?", "th_1"))
        assert model.asked == [] and await read_title(client) == "Where do otters live?"
    async with host_server(tmp_path / "b", agents=agents, titles=True) as server, open_client(server) as client:
        await send_answer(client, "otter", user_message("Where do otters live?", "th_1"))
        await wait_until(lambda: asyncio.sleep(0, bool(model.asked)))
