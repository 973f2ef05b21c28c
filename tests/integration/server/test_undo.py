"""Undo over HTTP: the changes of a turn, their restoration, rewind and fork with files; and a moved workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from postgres import shared_server as postgres_server
from server_agents import get_json, send_answer, user_message
from server_process import InProcessServer, host_server, open_client

AGENTS: dict[str, Any] = {
    "agents": {
        "coder": {
            "model": "demo",
            "backend": {"type": "local"},
            "snapshots": True,
            "permissions": {"mode": "bypassPermissions"},
        },
        "plain": {"model": "demo", "backend": {"type": "local"}, "permissions": {"mode": "bypassPermissions"}},
    }
}


def write_agents(folder: Path) -> Path:
    path = folder / "agents.yaml"
    path.write_text(yaml.safe_dump(AGENTS))
    return path


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, config=write_agents(tmp_path), grace=0) as found:
        yield found


@pytest.fixture
async def client(server: InProcessServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server) as found:
        yield found


async def post(client: aiohttp.ClientSession, path: str, body: Any, status: int = 200) -> Any:
    async with client.post(path, json=body) as response:
        found = await response.json()
        assert response.status == status, found
        return found


async def read_names(client: aiohttp.ClientSession) -> list[str]:
    return [entry["name"] for entry in (await get_json(client, "/agents/coder/files/list"))["entries"]]


async def test_a_turn_is_undone_and_the_undo_is_undone(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "coder", user_message("Write 'milk' to one.txt", "th_1"))
    await send_answer(client, "coder", user_message("Write 'eggs' to two.txt", "th_1"))
    assert await read_names(client) == ["one.txt", "two.txt"]
    preview = await get_json(client, "/threads/th_1/files")
    assert [(change["path"], change["kind"]) for change in preview["changes"]] == [("two.txt", "deleted")]
    assert "-eggs" in preview["changes"][0]["diff"]
    assert preview["not_undone"] == []
    report = await post(client, "/threads/th_1/files/restore", {})
    assert (report["restored"], report["left"]) == (["two.txt"], {})
    assert await read_names(client) == ["one.txt"]
    await post(client, "/threads/th_1/files/restore", {"seq": report["entry"] - 1})
    assert await read_names(client) == ["one.txt", "two.txt"]


async def test_single_paths_are_compared_and_restored(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "coder", user_message("Write 'milk' to one.txt", "th_1"))
    await send_answer(client, "coder", user_message("Write 'eggs' to two.txt", "th_1"))
    found = await get_json(client, "/threads/th_1/files?seq=0&path=one.txt")
    assert [change["path"] for change in found["changes"]] == ["one.txt"]
    await post(client, "/threads/th_1/files/restore", {"seq": 0, "paths": ["one.txt"]})
    assert await read_names(client) == ["two.txt"]


async def test_rewind_and_fork_restore_files_if_asked(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "coder", user_message("Write 'milk' to one.txt", "th_1"))
    last = (await get_json(client, "/threads/th_1"))["last"]
    await send_answer(client, "coder", user_message("Write 'eggs' to two.txt", "th_1"))
    await post(client, "/threads/th_1/rewind", {"to": last})
    assert await read_names(client) == ["one.txt", "two.txt"]
    await post(client, "/threads/th_1/rewind", {"to": last, "files": True})
    assert await read_names(client) == ["one.txt"]
    await post(client, "/threads/th_1/fork", {"at": 0, "files": True}, 201)
    assert await read_names(client) == []


async def test_errors_say_what_to_do(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "plain", user_message("Write 'milk' to one.txt", "th_1"))
    await send_answer(client, "coder", user_message("Hello.", "th_2"))
    none = await get_json(client, "/threads/th_1/files", 409)
    assert "switch them on with `snapshots: true`" in none["error"]["message"]
    await post(client, "/threads/th_1/files/restore", {}, 409)
    assert "nothing to undo" in (await get_json(client, "/threads/th_2/files", 404))["error"]["message"]
    await get_json(client, "/threads/th_3/files", 404)
    await post(client, "/threads/th_2/files/restore", {"seq": -1}, 422)


async def test_a_workspace_moves_to_another_server(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    shared: dict[str, Any] = {
        "store": "postgres",
        "store_schema": postgres_server().schema(),
        "snapshots": tmp_path / "shared",
        "config": write_agents(tmp_path),
        "grace": 0,
    }
    async with host_server(tmp_path / "a", **shared) as first, open_client(first) as ada:
        await send_answer(ada, "coder", user_message("Write 'milk' to one.txt", "th_1"))
    async with host_server(tmp_path / "b", **shared) as second, open_client(second) as ada:
        await send_answer(ada, "coder", user_message("Write 'eggs' to two.txt", "th_1"))
        assert await read_names(ada) == ["one.txt", "two.txt"]
    # without the shared folder the run waits for an answer, and the folder stays empty
    async with host_server(tmp_path / "c", **{**shared, "snapshots": None}) as third, open_client(third) as ada:
        await post(ada, "/threads/th_1/messages", user_message("Write 'tea' to three.txt"), 202)
        while not (questions := (await get_json(ada, "/approvals"))["approvals"]):
            await asyncio.sleep(0.05)
        (question,) = questions
        assert "is not on this server" in question["question"]
        away = await get_json(ada, "/agents/coder/files/list", 503)
        assert away["error"]["code"] == "workspace_away" and "cannot be restored here" in away["error"]["message"]
        assert not [*(tmp_path / "c" / "data" / "workspaces").glob("*/coder/*")]
