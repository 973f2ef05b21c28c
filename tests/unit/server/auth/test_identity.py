"""Users, ids and roles; sealed secrets; process stats."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from server_process import host_server
from soak_test.loop_lag import buckets, late_ms, looks
from wick.server.auth.identity import LOCAL_USER, ROLES, User
from wick.server.auth.signed_cookies import decrypt, encrypt, new_secret, secret_id
from wick.server.auth.users import Users
from wick.server.ops import process_stats
from wick.server.ops.metrics import Metrics
from wick.server.ops.process_stats import (
    IDLE_SAMPLE_SECONDS,
    SAMPLE_SECONDS,
    LoopMonitor,
    count_open_files,
    lag_samples,
    memory_bytes,
)
from wick.server.records.sqlite import SqliteRecords
from wick.stores.sqlite import Sqlite


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    made = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    yield made
    await made.close()


def test_a_role_includes_lower_roles() -> None:
    may = {role: [other for other in ROLES if User("u", "u", role).has_role(other)] for role in ROLES}
    assert may == {"user": ["user"], "operator": ["user", "operator"], "admin": ["user", "operator", "admin"]}
    assert LOCAL_USER.has_role("admin")


async def test_a_login_of_one_provider_is_not_that_of_another(records: SqliteRecords) -> None:
    users = Users(records)
    found = [await users.get_or_create(provider, "ada", "user") for provider in ("token", "gateway", "jwt", "token")]
    assert len({user.id for user in found}) == 3 and found[0] == found[3]
    assert {user.name for user in found} == {"ada"}
    assert await users.name(found[0].id) == "ada"
    assert await users.name("u_unknown") == "u_unknown"


async def test_concurrent_first_sight_of_a_user_agrees(records: SqliteRecords) -> None:
    found = await asyncio.gather(*(Users(records).get_or_create("token", "ada", "user") for _ in range(20)))
    assert len({user.id for user in found}) == 1


async def test_a_role_is_the_last_confirmed_one(records: SqliteRecords) -> None:
    users = Users(records)
    first, second = await users.get_or_create("jwt", "ada", "admin"), await users.get_or_create("jwt", "ada", "user")
    assert first.id == second.id and second.role == "user"


def test_sealed_data_opens_only_with_its_secret() -> None:
    secret, other = new_secret(), new_secret()
    sealed = encrypt(secret, "a token, ü")
    assert decrypt(secret, sealed) == "a token, ü"
    assert decrypt(other, sealed) is None and decrypt(secret, sealed[:-4] + "AAAA") is None
    assert secret_id(secret) != secret_id(other) and secret not in secret_id(secret) + sealed


async def test_the_monitor_reports_process_stats() -> None:
    metrics = Metrics()
    pulse = LoopMonitor(metrics)
    pulse.start()
    while not looks(buckets(said := metrics.render())):
        await asyncio.sleep(0.01)
    pulse.stop()
    pulse.stop()
    assert memory_bytes() > 1_000_000 and count_open_files() > 0
    for name in ("wick_loop_lag_seconds_sum", "wick_memory_bytes", "wick_open_files"):
        assert f"\n{name} " in said


def test_a_blocked_loop_counts_as_lag_for_all_missed_ticks() -> None:
    assert lag_samples(0.0) == [0.0] and lag_samples(-1.0) == [0.0]
    assert lag_samples(0.05) == pytest.approx([0.05, 0.03, 0.01])
    assert len(lag_samples(1e9)) == len(lag_samples(10.0))  # one sample is short


async def test_the_monitor_detects_a_blocked_loop() -> None:
    metrics = Metrics()
    pulse = LoopMonitor(metrics)
    pulse.start()
    time.sleep(0.3)  # noqa: ASYNC251  # this is what the pulse is there for
    while not looks(buckets(said := metrics.render())):
        await asyncio.sleep(0.01)
    pulse.stop()
    late = late_ms(buckets(said))
    assert late is not None and late > 150


class ManualLoop:
    """An event loop with one timer, whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[Any], None], argument: Any) -> ManualLoop:
        self.timer = when, lambda: callback(argument)
        return self

    def cancel(self) -> None:
        self.timer = None

    def advance(self, late: float = 0.0) -> None:
        """Let the timer fire, so many seconds after it was due."""
        assert self.timer is not None
        due, callback = self.timer
        self.now = due + late
        callback()


def test_the_monitor_samples_an_idle_loop_rarely_until_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = ManualLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(process_stats, "thread_time", lambda: 0.0)
    pulse = LoopMonitor(metrics := Metrics())
    pulse.start()
    for _ in range(6):
        loop.advance()
    assert pulse._interval == IDLE_SAMPLE_SECONDS
    before = looks(buckets(metrics.render()))
    pulse.note_request()
    assert pulse._interval == SAMPLE_SECONDS
    loop.advance(late=0.29)  # the request blocked the loop: all samples that were missed are counted
    assert looks(buckets(metrics.render())) == before + 15
    assert pulse._interval == SAMPLE_SECONDS
    late = late_ms(buckets(metrics.render()))
    loop.advance()
    assert pulse._interval == 2 * SAMPLE_SECONDS  # idle again
    pulse.stop()
    pulse.note_request()  # has no effect
    assert late is not None and late > 150 and pulse._timer is None and loop.timer is None


async def test_a_rate_limited_client_gets_retry_after(tmp_path: Path) -> None:
    quotas = {"requests_per_second": 0.5, "burst": 3, "agents": 1}
    async with host_server(tmp_path, agents={"default": {"model": "demo"}}, quotas=quotas) as here:
        here.service.limits._clock = lambda: 0.0  # however long it takes, it is at once
        async with here.client("ada") as ada:
            statuses = []
            for _ in range(4):
                async with ada.get("/auth/me") as answer:
                    statuses.append(answer.status)
            assert statuses == [200, 200, 200, 429]
            assert 1 <= int(answer.headers["Retry-After"]) <= 2
        async with here.client("bob") as bob:
            for id, status in (("one", 201), ("two", 429)):
                async with bob.post("/agents/", json={"agent_id": id, "model": "demo"}) as answer:
                    assert answer.status == status, await answer.text()
        async with here.client("") as nobody, nobody.get("/health") as answer:
            assert answer.status == 200  # which costs nothing
