"""R1 on a database that is damaged, of a newer version, or of another program.

A server refuses to start on it, with a sentence that names the file. Damage that comes later fails what needs the
damaged data, with a code and a request id, and `/health` reflects it. Users never see the path.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faults.tally import Tally, Violated
from postgres import shared_server as postgres_server
from server_agents import get_json, list_names, send_answer, user_message
from server_process import DEMO, host_server, open_client, read_events
from wick import Agent, FunctionModel
from wick.errors import StoreError
from wick.server import service
from wick.stores.sqlite import Sqlite

AGENTS = {"echo": Agent(FunctionModel(lambda request: "You said: " + request.messages[-1].text))}


def sql(*statements: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement)

    return damage


def put(make: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(make(path.read_bytes())) and None


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a text": put(lambda data: b"this is not a database\n" * 1_000),
    "random bytes": put(lambda data: bytes((7 * number + 3) % 256 for number in range(40_000))),
    "its header is gone": put(lambda data: bytes(100) + data[100:]),
    "cut in half": put(lambda data: data[: len(data) // 2]),
    "its second page is zero": put(lambda data: data[:4096] + bytes(4096) + data[8192:]),
    "its last pages are noise": put(lambda data: data[:-8192] + b"\xa5" * 8192),
    "a newer schema": sql("PRAGMA user_version = 99"),
    "another program's": sql("PRAGMA application_id = 7"),
    "a folder": folder_instead,
}
DROPPED = {
    f"without {table}": sql("PRAGMA foreign_keys = OFF", f"DROP TABLE {table}")
    for table in ("inbox", "entries", "keyed", "records")
}


async def good_data(folder: Path) -> Path:
    async with host_server(folder, agents=AGENTS) as server, open_client(server) as client:
        for number in range(4):
            await send_answer(client, "echo", user_message("Hello." * 2_000, f"th_{number}"))
    return folder / "data"


async def start_on_damage(folder: Path, *, planted: bool = False) -> None:
    """Damage the database in each way, and start a server on it."""
    good = await good_data(folder / "good")
    with Tally("R1", "starts on a damaged database", planted=planted) as tally:
        for number, (name, damage) in enumerate((DAMAGES | DROPPED).items()):
            place = folder / str(number)
            shutil.copytree(good, place / "data")
            damage(place / "data" / "threads.db")
            with tally.trying(name):
                await _refused(place)


async def _refused(folder: Path) -> None:
    try:
        async with (
            host_server(folder, agents=AGENTS) as server,
            open_client(server) as client,
            client.get("/threads") as answered,
        ):
            raise AssertionError(f"the server starts, and answers with a {answered.status}")
    except StoreError as error:
        assert str(folder / "data" / "threads.db") in str(error), f"which file? {error}"
        remedies = (
            "restore it",
            "update wick",
            "name another",
            "check that its folder exists",
            "give the path of a file",
        )
        assert any(remedy in str(error) for remedy in remedies), f"what is to be done? {error}"
        assert str(folder) not in error.public, f"the path is told to users: {error.public}"


async def test_a_server_does_not_start_on_a_damaged_database(tmp_path: Path) -> None:
    await start_on_damage(tmp_path)


async def test_a_start_without_a_check_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unchecked(place: Any) -> None:
        return None

    monkeypatch.setattr(service, "check_store", unchecked)
    with pytest.raises(Violated, match="the server starts"):
        await start_on_damage(tmp_path, planted=True)


def test_the_command_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "threads.db").write_bytes(b"this is not a database\n" * 1_000)
    (tmp_path / "agents.yaml").write_text(json.dumps(DEMO))
    command = [sys.executable, "-m", "wick.cli", "serve", str(tmp_path / "agents.yaml"), "--port", "0"]
    done = subprocess.run(
        [*command, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1 and not done.stdout and "Traceback" not in done.stderr
    assert f"Error: the database {tmp_path}/data/threads.db is not a SQLite database" in done.stderr


@pytest.mark.parametrize("how", ["newer", "another's", "no database"])
async def test_a_server_does_not_start_on_an_incompatible_postgres(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, conninfo = postgres_server().schema(), postgres_server().conninfo
    made = {
        "newer": f"CREATE TABLE {schema}.version (version bigint); INSERT INTO {schema}.version VALUES (99)",
        "another's": f"CREATE TABLE {schema}.threads (x int)",
        "no database": "SELECT 1",
    }
    with psycopg.connect(conninfo, autocommit=True) as database:
        for statement in (f"CREATE SCHEMA {schema}", *made[how].split("; ")):
            database.execute(statement.encode())
    if how == "no database":
        monkeypatch.setattr("wick.stores.postgres.WAIT_SECONDS", 1.0)
        conninfo = conninfo.replace("dbname=postgres", "dbname=missing")
        more = {"store": conninfo, "store_schema": schema, "data": tmp_path}
        store = service.Service(service.Settings(**more).check()).store  # type: ignore[arg-type]
        store._store._pools._options = (conninfo, schema, 1, 1.0)  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="does the database exist"):
            await service.check_store(store)
        return await store.close()
    with pytest.raises(StoreError, match="newer wick|belongs to something else") as refused:
        async with host_server(tmp_path, store="postgres", store_schema=schema, agents=AGENTS):
            pass
    assert refused.value.code == "incompatible" and schema not in refused.value.public


@pytest.mark.parametrize("route", ["invoke", "stream"])
async def test_later_damage_fails_only_operations_that_need_the_data(tmp_path: Path, route: str) -> None:
    async with host_server(tmp_path, agents=AGENTS) as server, open_client(server) as client:
        for thread in ("th_1", "th_2"):
            await send_answer(client, "echo", user_message("Hello.", thread))
        assert (await get_json(client, "/health"))["status"] == "ok"
        sql("UPDATE entries SET data = x'7b7d' WHERE seq = 1 AND thread = 1")(tmp_path / "data" / "threads.db")
        told = []
        for one in [*server.service.runs.executor.thread_cache._cached]:  # a thread in memory does not need the data
            server.service.runs.executor.thread_cache.discard(*one)
        async with client.get("/threads/th_1") as response:
            told.append(await response.text())
            assert response.status == 500 and (await response.json())["error"]["code"] == "corrupt"
            assert response.headers["X-Request-Id"] in told[-1]
        async with client.post(f"/agents/echo/{route}", json=user_message("Again.", "th_1")) as response:
            if route == "stream":
                found = await read_events(response)
                told.append(json.dumps(found))
                assert list_names(found) == ["error"] and found[-1]["data"]["data"]["error"]["code"] == "corrupt"
            else:
                told.append(await response.text())
                assert response.status >= 500 and (await response.json())["error"]["code"] == "corrupt"
        assert not any(str(tmp_path) in text for text in told)
        assert (await get_json(client, "/health", 503))["error"]["code"] == "corrupt"
        assert (await send_answer(client, "echo", user_message("Well?", "th_2")))["response"] == "You said: Well?"


async def test_the_library_names_the_problem(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    path.write_bytes(b"this is not a database\n" * 1_000)
    store = Sqlite(path)
    with pytest.raises(StoreError, match=f"the database {path} is not a SQLite database"):
        await store.check()
    await store.close()
