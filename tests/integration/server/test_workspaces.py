"""Workspaces: a folder or a container for each user, named by internal ids, removed when unused."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from api_requests import send_refused, send_request
from engines import RunningEngine, find_engine
from server_process import InProcessServer, host_server
from wick.server.agents.overrides import Overrides
from wick.server.agents.templates import template_from_request
from wick.server.agents.workspaces import IMAGE, Workspaces
from wick.server.records.sqlite import SqliteRecords
from wick.stores.sqlite import Sqlite


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Workspaces]:
    records = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    made = Workspaces(tmp_path, records)
    await made.start()
    yield made
    await made.stop()
    await records.close()


def template(folder: Path, backend: Any) -> Any:
    return template_from_request("coder", {"model": "demo", "backend": backend}, folder, "*")


DOCKER = {
    "type": "docker",
    "image": "x",
    "volumes": {"./project": "/workspace", "/data": "/data", "cache": "/cache:ro"},
}


async def test_mounts_of_the_template_are_shared_to_be_read_only(places: Workspaces, tmp_path: Path) -> None:
    """Files of a user are private: the workspace that the template names is for the owner of the server."""
    wanted = places.backend_options(template(tmp_path, DOCKER), Overrides(), "u_1")
    assert wanted is not None
    volumes = dict(wanted["volumes"])
    assert {key: volumes.pop(key) for key in ("/data", "cache")} == {"/data": "/data:ro", "cache": "/cache:ro"}
    (own,) = volumes
    assert volumes[own] == "/workspace" and own.startswith("wick-") and "u_1" not in own
    local = places.backend_options(template(tmp_path, DOCKER), Overrides(), "local")
    assert local is not None
    assert local["volumes"] == {str(tmp_path / "project"): "/workspace", "/data": "/data", "cache": "/cache:ro"}


async def test_every_user_and_agent_has_a_container_and_a_volume_of_its_own(places: Workspaces, tmp_path: Path) -> None:
    made = [
        places.backend_options(template(tmp_path, {"type": "docker", "image": "x"}), Overrides(), user)
        for user in ("a", "b")
    ]
    assert all(made)
    assert len({one["id"] for one in made if one}) == 2
    assert len({json.dumps(one["volumes"]) for one in made if one}) == 2
    assert [one["owner"] for one in made if one] == ["a", "b"] and all(
        one["server"] == places.server for one in made if one
    )


async def test_a_mode_selects_the_backend(places: Workspaces, tmp_path: Path) -> None:
    local, none = template(tmp_path, {"type": "local", "timeout": 5}), template(tmp_path, False)
    remote = places.backend_options(local, Overrides(mode="remote", sandbox_url="tcp://box:2376"), "u_1")
    assert remote is not None and (remote["type"], remote["image"], remote["engine"]) == (
        "docker",
        IMAGE,
        "tcp://box:2376",
    )
    assert "timeout" not in remote  # that was about the other one
    boxed = template(tmp_path, {"type": "docker", "image": "x", "engine": "unix:///x"})
    back = places.backend_options(boxed, Overrides(mode="local"), "u_1")
    assert back is not None and back["type"] == "local" and back["path"] == str(places.folder("u_1", "coder"))
    same = places.backend_options(boxed, Overrides(mode="remote"), "u_1")
    assert same is not None and (same["image"], same["engine"]) == ("x", "unix:///x")
    assert places.backend_options(none, Overrides(), "u_1") is None
    there = places.backend_options(none, Overrides(mode="local"), "u_1")
    assert there is not None and there["type"] == "local"


async def test_a_workspace_is_shared_and_released_with_its_last_user(places: Workspaces, tmp_path: Path) -> None:
    wanted = places.backend_options(template(tmp_path, "local"), Overrides(), "u_1")
    first, second = await places.open(wanted), await places.open(wanted)
    assert first is second and first is not None
    await first.backend.start()
    await places.close(first)
    assert first.backend.status.state == "launched"
    await places.close(first)
    assert first.backend.status.state == "idle"
    assert await places.open(None) is None


async def test_servers_that_share_no_users_share_no_volumes(tmp_path: Path) -> None:
    names = []
    for number in range(2):
        records = SqliteRecords(Sqlite(tmp_path / f"{number}.db"))
        for folder in ("one", "two"):  # two servers with the same records
            made = Workspaces(tmp_path / f"{number}-{folder}", records)
            await made.start()
            wanted = made.backend_options(template(tmp_path, {"type": "docker", "image": "x"}), Overrides(), "local")
            assert wanted is not None
            names.append(next(iter(wanted["volumes"])))
        await records.close()
    assert names[0] == names[1] and names[2] == names[3] and names[0] != names[2]


async def test_a_server_keeps_its_id(tmp_path: Path) -> None:
    records = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    names = []
    for _ in range(2):
        made = Workspaces(tmp_path, records)
        await made.start()
        names.append(made.server)
    assert names[0] == names[1] and len(names[0]) == 16
    await records.close()


# -- over HTTP, without an engine -------------------------------------------------------------------------------------


async def test_users_switch_their_own_mode_but_not_to_a_remote_engine(tmp_path: Path) -> None:
    agents = {"coder": {"model": "demo", "backend": "local"}, "open": {"model": "demo", "backend": {"type": "local"}}}
    async with host_server(tmp_path, agents=agents) as there:
        path = "/agents/coder/backend"
        assert await send_refused(
            there, "ada", "PATCH", path, json={"mode": "remote", "sandbox_url": "tcp://box:2376"}
        ) == (
            403,
            "not_allowed",
        )
        status, info = await send_request(there, "ada", "PATCH", path, json={"mode": "remote", "sandbox_url": None})
        assert status == 200 and (info["mode"], info["type"], info["status"]) == ("remote", "docker", "idle")
        assert (await send_request(there, "bob", "GET", path))[1]["mode"] == "local"
        status, info = await send_request(
            there, "olga", "PATCH", path, json={"mode": "remote", "sandbox_url": "tcp://box:2376"}
        )
        assert status == 200 and info["sandbox_url"] == "tcp://box:2376"
        assert await send_refused(
            there, "olga", "PATCH", path, json={"mode": "remote", "sandbox_url": "what://box"}
        ) == (
            400,
            "invalid",
        )
        assert (await send_request(there, "olga", "GET", path))[1]["sandbox_url"] == "tcp://box:2376"  # as it was
        assert (await send_request(there, "ada", "PATCH", path, json={"mode": "local"}))[1]["type"] == "local"
        for wrong in ({}, {"mode": "elsewhere"}, {"mode": "local", "x": 1}):
            assert await send_refused(there, "ada", "PATCH", path, json=wrong) == (422, "invalid")


async def test_an_agent_without_commands_gets_some_from_an_operator_only(tmp_path: Path) -> None:
    async with host_server(
        tmp_path, agents={"plain": {"model": "demo"}, "noter": {"model": "demo", "backend": "state"}}
    ) as there:
        for id in ("plain", "noter"):
            path, body = f"/agents/{id}/backend", {"mode": "local"}
            assert await send_refused(there, "ada", "PATCH", path, json=body) == (403, "not_allowed")
            assert (await send_request(there, "olga", "PATCH", path, json=body))[1]["type"] == "local"


async def test_an_agent_without_a_container_has_none_to_stop(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"plain": {"model": "demo"}}) as there:
        body = {"action": "stop"}
        assert await send_refused(there, "ada", "POST", "/agents/plain/container", json=body) == (409, "conflict")
        assert await send_refused(there, "ada", "POST", "/agents/plain/container", json={"action": "x"}) == (
            422,
            "invalid",
        )


async def test_a_local_workspace_is_stopped_and_started_as_a_container_is(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"coder": {"model": "demo", "backend": "local"}}) as there:
        _, state = await send_request(there, "ada", "POST", "/agents/coder/container", json={"action": "restart"})
        assert state == {"agent_id": "coder", "status": "launched", "reason": ""}
        _, state = await send_request(there, "ada", "POST", "/agents/coder/container", json={"action": "stop"})
        assert state["status"] == "idle"


# -- with an engine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the volumes that this test has asked for: the engine has those of other tests, too."""
    names: set[str] = set()
    volume = Workspaces._volume_name

    def volume_name(places: Workspaces, user: str, agent: str) -> str:
        name = volume(places, user, agent)
        names.add(name)
        return name

    monkeypatch.setattr(Workspaces, "_volume_name", volume_name)
    return names


def volumes(engine: RunningEngine, named: set[str]) -> set[str]:
    return {volume["Name"] for volume in engine.ask("GET", "/volumes")["Volumes"] or []} & named


@pytest.fixture
def engine(named: set[str]) -> Iterator[RunningEngine]:
    """This machine's engine; the volumes of users, which outlive a server, end with the test."""
    found = find_engine()
    yield found
    for name in volumes(found, named):
        found.ask("DELETE", f"/volumes/{quote(name)}?force=true")


@pytest.fixture
async def boxed(tmp_path: Path, engine: RunningEngine) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, agents=_boxed(engine)) as there:
        yield there


def _boxed(engine: RunningEngine) -> dict[str, Any]:
    return {
        "boxed": {"model": "demo", "backend": {"type": "docker", "image": engine.image("python"), "engine": engine.url}}
    }


async def write(there: InProcessServer, user: str, content: str) -> None:
    body = {"path": "a.txt", "content": content}
    status, written = await send_request(there, user, "PUT", "/agents/boxed/files/write", json=body)
    assert status == 200, written


async def read(there: InProcessServer, user: str) -> tuple[int, Any]:
    return await send_request(there, user, "GET", "/agents/boxed/files/read", params={"path": "a.txt"})


def containers(there: InProcessServer, engine: RunningEngine) -> list[dict[str, Any]]:
    return engine.containers(f"wick.server={there.service.registry.workspaces.server}")


async def test_containers_are_per_user_and_files_outlive_them(boxed: InProcessServer, engine: RunningEngine) -> None:
    await write(boxed, "ada", "hers")
    assert (await read(boxed, "bob"))[0] == 404
    await write(boxed, "bob", "his")
    found = containers(boxed, engine)
    assert len(found) == 2
    _, me = await send_request(boxed, "ada", "GET", "/auth/me")
    assert me["id"] in {one["Labels"]["wick.owner"] for one in found}
    assert all(re.fullmatch("/wick-[0-9a-f]+", name) for one in found for name in one["Names"])  # no user's name
    _, state = await send_request(boxed, "ada", "POST", "/agents/boxed/container", json={"action": "restart"})
    assert state["status"] == "launched"
    assert (await read(boxed, "ada"))[1]["content"] == "hers"
    _, state = await send_request(boxed, "ada", "POST", "/agents/boxed/container", json={"action": "stop"})
    assert state["status"] == "idle" and len(containers(boxed, engine)) == 1
    assert (await read(boxed, "ada"))[1]["content"] == "hers"  # made anew when it is needed


async def test_a_terminal_is_in_the_container(boxed: InProcessServer) -> None:
    await write(boxed, "ada", "hers")
    async with boxed.client("ada") as ada, ada.ws_connect("/agents/boxed/terminal") as socket:
        await socket.send_bytes(b"cat a.txt; pwd; exit\n")
        seen = b"".join([message.data async for message in socket])
        assert b"hers" in seen and b"/workspace" in seen


async def test_no_container_is_left_when_the_server_has_stopped(tmp_path: Path, engine: RunningEngine) -> None:
    async with host_server(tmp_path, agents=_boxed(engine)) as there:
        await write(there, "ada", "hers")
        assert containers(there, engine)
    assert not containers(there, engine)


async def test_a_starting_server_removes_containers_of_a_killed_one(tmp_path: Path, engine: RunningEngine) -> None:
    data = tmp_path / "data"
    data.mkdir()
    records = SqliteRecords(Sqlite(data / "threads.db"))
    killed = Workspaces(data, records)
    await killed.start()
    wanted = killed.backend_options(template(tmp_path, _boxed(engine)["boxed"]["backend"]), Overrides(), "u_1")
    place = await killed.open(wanted)
    assert place is not None
    await place.backend.start()
    again = Workspaces(data, records)
    await again.start()
    assert engine.containers(f"wick.server={again.server}")
    await again.reap()
    assert not engine.containers(f"wick.server={again.server}")
    await killed.stop()
    await records.close()


async def test_deleting_an_agent_with_its_files_deletes_its_volume(
    tmp_path: Path, engine: RunningEngine, named: set[str]
) -> None:
    options = {"agent_id": "mine", "model": "demo", "backend": {"type": "docker", "image": engine.image("python")}}
    async with host_server(tmp_path, agents={"plain": {"model": "demo"}}) as there:
        backend = {**options["backend"], "engine": engine.url}  # type: ignore[dict-item]
        status, _ = await send_request(there, "root", "POST", "/agents/", json={**options, "backend": backend})
        assert status == 201
        body = {"path": "a.txt", "content": "x"}
        assert (await send_request(there, "root", "PUT", "/agents/mine/files/write", json=body))[0] == 200
        assert volumes(engine, named)
        assert (await send_request(there, "root", "DELETE", "/agents/mine", params={"files": "true"}))[0] == 204
        assert not containers(there, engine)
        assert not volumes(engine, named)
