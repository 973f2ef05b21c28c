"""The cases of live planes, over NATS and over Postgres; and lost connections of both."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from conformance.live_cases import *  # noqa: F403
from conformance.live_cases import Pair, connect
from nats_server import NatsServer, run_nats
from postgres import shared_server as postgres_server
from server_process import wait_until
from wick.errors import ConfigError
from wick.server.live import LiveConnection
from wick.server.live.nats import NatsLive, hide_credentials
from wick.server.live.postgres import PostgresLive, live_channel


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    with run_nats() as server:
        yield server


async def open_pair(kind: str, nats_url: str) -> Pair:
    schema, pair = postgres_server().schema(), list[LiveConnection]()
    for _ in range(2):
        live: LiveConnection = NatsLive([nats_url])
        if kind == "postgres":
            live = PostgresLive(postgres_server().conninfo, schema=schema)
        await live.start("test")
        pair.append(live)
    return pair[0], pair[1]


@pytest.fixture(params=["nats", "postgres"])
async def pair(request: pytest.FixtureRequest, nats: NatsServer) -> AsyncIterator[Pair]:
    opened = await open_pair(request.param, nats.url)
    yield opened
    for live in opened:
        await live.close()


async def test_nats_is_away_and_comes_back(nats: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    pair = await open_pair("nats", nats.url)
    try:
        inbox = await connect(pair[0], pair[1], "run.one")
        nats.kill()

        async def is_away() -> bool:
            pair[0].publish("run.one", b"lost")
            return bool(pair[0].problem and pair[1].problem)

        await wait_until(is_away)
        inbox.messages.clear()
        assert await pair[0].request("run.one", b"", 5) is None
        nats.start()

        async def is_back() -> bool:
            return not pair[0].problem and await pair[0].request("run.one", b"again", 0.2) == b"pong"

        await wait_until(is_back)
        assert {*inbox.messages} == {b"again"}
        lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert sum("cannot be reached" in line for line in lines) == 2 == sum("again" in line for line in lines)
    finally:
        for live in pair:
            await live.close()


async def test_a_server_starts_without_nats_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with run_nats() as nats:
        nats.kill()
        live = NatsLive([f"nats://ada:secret-password@127.0.0.1:{nats.port}"])
        await live.start("test")
        try:
            assert live.problem and await live.request("run.one", b"", 5) is None
            (line,) = [record.getMessage() for record in caplog.records if "cannot be reached" in record.getMessage()]
            assert f"nats://127.0.0.1:{nats.port}" in line and "secret" not in caplog.text
            nats.start()

            async def is_connected() -> bool:
                return not live.problem

            await wait_until(is_connected)
        finally:
            await live.close()


async def test_a_server_starts_without_postgres_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    live = PostgresLive("postgresql://ada:secret-password@127.0.0.1:1/wick")
    await live.start("test")
    try:
        assert live.problem and await live.request("run.one", b"", 5) is None
        assert caplog.text.count("cannot reach Postgres") == 1 and "secret" not in caplog.text
    finally:
        await live.close()


async def test_clusters_on_one_nats_do_not_hear_each_other(nats: NatsServer) -> None:
    one, two = NatsLive([nats.url]), NatsLive([nats.url])
    await one.start("one")
    await two.start("two")
    try:
        inbox = await connect(two, two, "bus")
        one.publish("bus", b"1")
        assert await one.request("bus", b"2", 0.3) is None
        two.publish("bus", b"3")
        await inbox.wait(lambda: b"3" in inbox.messages)
        assert inbox.messages == [b"3"]
    finally:
        await one.close()
        await two.close()


async def test_credentials_are_used_and_wrong_ones_are_a_problem(tmp_path: Path) -> None:
    import nkeys

    pair = nkeys.from_seed(b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY")
    key = tmp_path / "server.nk"
    key.write_bytes(b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY")
    config = tmp_path / "nats.conf"
    config.write_text('authorization { users = [{ nkey: "%s" }] }' % pair.public_key.decode())  # noqa: UP031
    with run_nats("--config", str(config)) as nats:
        known, unknown = NatsLive([nats.url], credentials=key), NatsLive([nats.url])
        await known.start("test")
        await unknown.start("test")
        try:
            assert not known.problem and "uthorization" in unknown.problem
        finally:
            await known.close()
            await unknown.close()
    with pytest.raises(ConfigError, match="live_credentials"):
        await NatsLive([nats.url], credentials=tmp_path / "none").start("test")


async def test_other_programs_on_the_channel_are_ignored() -> None:
    import psycopg

    schema = postgres_server().schema()
    live = PostgresLive(postgres_server().conninfo, schema=schema)
    await live.start("test")
    try:
        inbox = await connect(live, live, "bus")
        async with await psycopg.AsyncConnection.connect(postgres_server().conninfo, autocommit=True) as other:
            for payload in (
                "",
                "nonsense",
                "[]",
                "[1, 2, 3, 4, 5, 6]",
                '["a", "bus", "", 0, 0, "%%"]',
                '{"a": 1}',
                "a 0 0 [1]",
                'a 0 0 ["bus", "", 1]',
                "a 0 x []",
                "a 0 0 ",
            ):
                await other.execute("SELECT pg_notify(%s, %s)", (live_channel(schema), payload))
        live.publish("bus", b"1")
        await inbox.wait(lambda: b"1" in inbox.messages)
        assert inbox.messages == [b"1"] and not live.problem
    finally:
        await live.close()


async def test_messages_of_one_moment_share_a_notification_and_may_be_any_bytes() -> None:
    import psycopg

    schema = postgres_server().schema()
    live = PostgresLive(postgres_server().conninfo, schema=schema)
    await live.start("test")
    try:
        inbox = await connect(live, live, "bus")
        inbox.messages.clear()
        async with await psycopg.AsyncConnection.connect(postgres_server().conninfo, autocommit=True) as other:
            await other.execute(f"LISTEN {live_channel(schema)}")
            sent = [b'{"delta": "' + str(number).encode() + b'"}' for number in range(50)]
            sent += [b"\xff\x00\n", b"", "\x1e\n\u2028 zażółć 🎉".encode()]
            for data in sent:
                live.publish("bus", data)
            await inbox.wait(lambda: len(inbox.messages) >= len(sent))
            assert inbox.messages == sent
            assert len([notice async for notice in other.notifies(timeout=0.2)]) == 1
    finally:
        await live.close()


def test_addresses_are_shown_without_credentials() -> None:
    assert hide_credentials("nats://ada:secret@host:4222") == "nats://host:4222"
    assert hide_credentials("tls://token@host") == "tls://host"
