"""Servers of a cluster: membership, lapsed leases, shares of claimed threads, and servers of an earlier version."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psycopg
import pytest

from postgres import open_store, shared_server
from server_agents import Gate, sample_agents, send_answer, user_message
from server_process import host_server, open_client, wait_until
from store_fixtures import hold_thread, make_entry, read_entries
from wick.errors import StoreError
from wick.protocols import Lease, NewThread
from wick.server.runs.executor import _is_crash
from wick.server.runs.recovery import LAPSE_MARGIN, RunRecovery
from wick.stores import postgres_pool
from wick.stores.postgres import Postgres
from wick.stores.process_identity import holder_name, server_id

NOW = "extract(epoch FROM clock_timestamp())"


store = open_store()


def ask(query: str) -> list[tuple[object, ...]]:
    """Run a query without the event loop."""
    with psycopg.connect(shared_server().conninfo, autocommit=True) as connection:
        found = connection.execute(query.encode())
        return found.fetchall() if found.description else []


async def join(store: Postgres, capacity: int = 0, draining: bool = False, place: str = "") -> str:
    return await store.join("1.0", capacity, lambda: 0, lambda: draining, place=place, address=f"http://{place}")


async def start_runs(store: Postgres, holder: str, first: int, last: int) -> None:
    """Create threads with an open run that a holder performs."""
    for number in range(first, last):
        new = NewThread({"agent": "a"})
        lease = await store.lease("ada", f"t{number}", holder, 60, new=new)
        entry = make_entry(1, "run_start", run="r")
        await store.append("ada", f"t{number}", [entry], expect=0, fence=lease.fence)


def add_dead_server(schema: str, id: str, seconds: float) -> str:
    """Add a server on another machine that was seen so many seconds ago; return one of its holder names."""
    ask(f"INSERT INTO {schema}.servers VALUES ('{id}', 'elsewhere', '1', 0, 0, false, 0, {NOW} - {seconds})")
    return f"elsewhere:1:2:3:{id}.0a1b2c3d"


# -- membership -----------------------------------------------------------------------------------------------------


async def test_a_server_is_a_member_until_it_leaves(store: Postgres, schema: str) -> None:
    id = await join(store, capacity=7)
    (member,) = await store.servers()
    assert (member.id, member.version, member.capacity, member.running, member.draining) == (id, "1.0", 7, 0, False)
    assert store.server_id == id and server_id(holder_name(id)) == id and server_id(holder_name()) == ""
    await store.leave()
    assert await store.servers() == [] and store.server_id == ""


async def test_a_blocked_event_loop_does_not_stop_the_heartbeat(store: Postgres, schema: str) -> None:
    await join(store)
    before = ask(f"SELECT seen FROM {schema}.servers")
    until = time.monotonic() + 30
    while ask(f"SELECT seen FROM {schema}.servers") == before:  # blocks the event loop
        assert time.monotonic() < until
        time.sleep(0.1)  # noqa: ASYNC251


async def test_a_heartbeat_survives_a_lost_connection(store: Postgres, schema: str) -> None:
    await join(store)
    ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO servers%'"
        " AND pid <> pg_backend_pid()"
    )
    (before,) = ask(f"SELECT seen FROM {schema}.servers")

    async def is_seen_again() -> bool:
        return ask(f"SELECT seen FROM {schema}.servers") != [before]

    await wait_until(is_seen_again)


async def test_a_heartbeat_survives_an_error_of_its_server(
    store: Postgres, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    counts = iter((1, ZeroDivisionError("no such count"), 3))

    def count_runs() -> int:
        count = next(counts, 3)
        if isinstance(count, Exception):
            raise count
        return count

    await store.join("1.0", 0, count_runs, lambda: False)

    async def is_seen_again() -> bool:
        return ask(f"SELECT running FROM {schema}.servers") == [(3,)]

    await wait_until(is_seen_again)
    assert "the heartbeat of this server failed; trying again: no such count" in caplog.text


# -- lapsed leases --------------------------------------------------------------------------------------------------


async def test_a_lease_lapses_with_the_heartbeat_of_its_server(store: Postgres, schema: str) -> None:
    await store.check()
    dead, alive = add_dead_server(schema, "aa", 4), add_dead_server(schema, "bb", -600)
    await start_runs(store, dead, 0, 1)
    await start_runs(store, alive, 1, 2)
    await start_runs(store, "elsewhere:1:2:3:0a1b2c3d", 2, 3)  # a process that is not a server of a cluster
    assert [(await store.head("ada", f"t{n}")).leased for n in range(3)] == [False, True, True]
    (lease,) = await store.claim(holder_name(), 9)
    assert lease.head is not None and lease.head.id == "t0"
    with pytest.raises(Exception, match="is held by elsewhere"):
        await store.lease("ada", "t1", "me", 60)


async def test_a_server_whose_heartbeat_paused_claims_nothing_until_others_are_seen(
    store: Postgres, schema: str
) -> None:
    """After an outage of the database, the first server that is back would take the leases of all others."""
    await join(store)
    assert store._heartbeat is not None
    heartbeat = store._heartbeat
    dead = add_dead_server(schema, "aa", 4)
    await start_runs(store, dead, 0, 1)
    heartbeat._beat_at -= 60.0

    async def is_beating() -> bool:
        return heartbeat._steady_at > 0.0

    await wait_until(is_beating)
    begun = time.monotonic()
    assert begun >= heartbeat._steady_at or await store.claim(holder_name(), 9) == []

    async def has_claimed() -> bool:
        return bool(await store.claim(holder_name(), 9))

    await wait_until(has_claimed)
    assert time.monotonic() >= heartbeat._steady_at


async def test_recovery_claims_when_the_leases_of_another_server_lapse(tmp_path: Path, schema: str) -> None:
    async with host_server(tmp_path, store="postgres", store_schema=schema) as server:
        store = server.service.store
        add_dead_server(schema, "dying", -20.0)  # its leases lapse in 23 seconds
        async with asyncio.timeout(20):
            while store.servers_alive != 2:  # type: ignore[attr-defined]
                await asyncio.sleep(0.05)
        recovery = RunRecovery(server.service.runs, look=60.0)
        assert 0 < recovery._next_claim() <= 23.0 + LAPSE_MARGIN
        recovery = RunRecovery(server.service.runs, look=0.001)
        assert recovery._next_claim() == 0.001


async def test_a_server_that_was_not_seen_is_fenced_after_a_claim(store: Postgres, schema: str) -> None:
    await store.check()
    dead = add_dead_server(schema, "aa", 4)
    new = NewThread({"agent": "a"})
    lease = await store.lease("ada", "t", dead, 60, new=new)
    entry = make_entry(1, "run_start", run="r")
    await store.append("ada", "t", [entry], expect=0, fence=lease.fence)  # it is late, but still the only holder
    (taken,) = await store.claim(holder_name(), 9)
    assert taken.fence > lease.fence
    with pytest.raises(Exception, match="its lease has expired or was taken over"):
        await store.append("ada", "t", [make_entry(2)], expect=1, fence=lease.fence)
    assert await store.append("ada", "t", [make_entry(2)], expect=1, fence=taken.fence) == 2


# -- shares ---------------------------------------------------------------------------------------------------------


async def claim_shares(schema: str, dead: int, weights: list[tuple[int, int]]) -> list[int]:
    """Return the numbers of runs of servers, given as capacity and runs before, after one of them has died."""
    stores = [Postgres(shared_server().conninfo, schema=schema, connections=2) for _ in weights]
    try:
        ids = [await join(store, capacity) for store, (capacity, _) in zip(stores, weights, strict=True)]
        number = 0
        for id, (_, runs) in zip(ids, weights, strict=True):
            await start_runs(stores[0], holder_name(id), number, number := number + runs)
        await start_runs(stores[0], "elsewhere:1:2:3:dead.0a1b2c3d", number, number + dead)
        totals = [runs for _, runs in weights]

        async def claim(index: int) -> list[Lease]:
            return await stores[index].claim(holder_name(ids[index]), 1000)

        for _ in range(2):
            claims = await asyncio.gather(*(claim(index) for index in range(len(stores))))
            totals = [total + len(leases) for total, leases in zip(totals, claims, strict=True)]
        return totals
    finally:
        for store in stores:
            await store.leave()
            await store.close()


async def test_survivors_take_equal_shares(schema: str) -> None:
    assert await claim_shares(schema, 40, [(0, 20), (0, 20)]) == [40, 40]


async def test_a_server_with_fewer_runs_takes_more(schema: str) -> None:
    assert await claim_shares(schema, 30, [(0, 15), (0, 5), (0, 10)]) == [20, 20, 20]


async def test_shares_follow_the_capacity(schema: str) -> None:
    assert await claim_shares(schema, 40, [(300, 0), (100, 0)]) == [30, 10]


async def test_a_draining_server_is_not_counted(store: Postgres, schema: str) -> None:
    mine = await join(store)
    other = Postgres(shared_server().conninfo, schema=schema, connections=2)
    await join(other, draining=True)
    await start_runs(store, "elsewhere:1:2:3:dead.0a1b2c3d", 0, 10)
    assert len(await store.claim(holder_name(mine), 99)) == 10
    await other.leave()
    await other.close()


# -- workspaces -----------------------------------------------------------------------------------------------------


async def test_runs_are_claimed_where_their_files_are(store: Postgres, schema: str) -> None:
    other = Postgres(shared_server().conninfo, schema=schema, connections=2)
    ids = [await join(store, place="here"), await join(other, place="there")]
    home = await other.find_workspace("ada", "a")
    assert (home.place, home.address, home.alive, home.in_use) == ("there", "http://there", True, True)
    assert await store.find_workspace("ada", "a") == home
    await start_runs(store, "elsewhere:1:2:3:dead.0a1b2c3d", 0, 9)
    assert await store.claim(holder_name(ids[0]), 99) == []
    assert not await store.move_workspace("ada", "a", home, "")
    leases = await other.claim(holder_name(ids[1]), 8)
    assert len(leases) == 8  # all, not a share
    await other.leave()
    assert len(await store.claim(holder_name(ids[0]), 99)) == 9  # those of the dead server, too
    await other.close()


async def test_files_move_from_a_draining_server_when_its_runs_have_ended(store: Postgres, schema: str) -> None:
    other = Postgres(shared_server().conninfo, schema=schema, connections=2)
    id = await join(other, draining=True, place="there")
    await join(store, place="here")
    home = await other.find_workspace("ada", "a")
    assert not home.in_use and home.draining and not home.changed
    await start_runs(other, holder_name(id), 0, 1)
    assert (await store.find_workspace("ada", "a")).in_use and not await store.move_workspace("ada", "a", home, "")
    ask(f"UPDATE {schema}.threads SET holder = ''")
    await other.record_change("ada", "a", "s1", 1.0)
    assert not await store.move_workspace("ada", "a", home, "")  # a snapshot was taken meanwhile
    home = await store.find_workspace("ada", "a")
    assert (home.snapshot, home.changed) == ("s1", True)
    assert await store.move_workspace("ada", "a", home, "s1")
    assert not await other.record_change("ada", "a", "s2", 99.0)  # it is late
    assert (await store.find_workspace("ada", "a")).snapshot == "s1"
    await other.leave()
    await other.close()


async def test_a_move_ends_the_leases_of_servers_that_only_seemed_dead(store: Postgres, schema: str) -> None:
    other = Postgres(shared_server().conninfo, schema=schema, connections=2)
    ids = [await join(store, place="here"), await join(other, place="there")]
    home = await other.find_workspace("ada", "a")
    lease = await other.lease("ada", "t1", holder_name(ids[1]), 60, new=NewThread({"agent": "a"}))
    kept = [
        await other.lease("ada", "t2", holder_name(ids[1]), 60, new=NewThread({"agent": "b"})),  # another workspace
        await store.lease("ada", "t3", holder_name(ids[0]), 60, new=NewThread({"agent": "a"})),  # of the new place
    ]
    ask(f"UPDATE {schema}.servers SET place = 'gone' WHERE place = 'there'")  # its heartbeat is late
    assert await store.move_workspace("ada", "a", home, "s1")
    with pytest.raises(StoreError, match="t1") as fenced:
        await other.append("ada", "t1", [make_entry(1, "run_start", run="r")], expect=0, fence=lease.fence)
    assert fenced.value.code == "fenced"
    for id, held in zip(("t2", "t3"), kept, strict=True):
        await store.append("ada", id, [make_entry(1, "run_start", run="r")], expect=0, fence=held.fence)
    await other.leave()
    await other.close()


async def test_of_two_snapshots_the_later_one_is_recorded(store: Postgres, schema: str) -> None:
    await join(store, place="here")
    await store.find_workspace("ada", "a")
    assert await store.record_change("ada", "a", "later", 20.0)
    assert await store.record_change("ada", "a", "earlier", 10.0)  # taken before, recorded after
    assert await store.record_change("ada", "a")
    assert (await store.find_workspace("ada", "a")).snapshot == "later"
    ask(f"UPDATE {schema}.servers SET seen = 0; UPDATE {schema}.workspaces SET place = 'there'")
    home = await store.find_workspace("ada", "a")
    assert await store.move_workspace("ada", "a", home, "later")
    assert await store.record_change("ada", "a", "next", 5.0)  # the clock of another machine
    assert (await store.find_workspace("ada", "a")).snapshot == "next"


async def test_a_run_moves_from_a_full_server_to_another(tmp_path: Path) -> None:
    gate, schema = Gate(), shared_server().schema()
    options = {"store": "postgres", "store_schema": schema, "agents": sample_agents(gate), "grace": 0.0}
    async with (
        host_server(tmp_path / "a", capacity=1, **options) as first,
        host_server(tmp_path / "b", **options) as second,
        open_client(first) as here,
    ):
        blocked = asyncio.create_task(send_answer(here, "gate", user_message("One.", "th_1")))
        await gate.asked.wait()
        answer = await send_answer(here, "echo", user_message("Two.", "th_2"))
        assert answer["response"] == "You said: Two." and len(first.service.runs.executor.running) == 1
        gate.answers.put_nowait("Done.")
        assert (await blocked)["response"] == "Done."
        assert {server.id for server in await second.service.store.servers()} == {  # type: ignore[attr-defined]
            first.service.store.server_id,  # type: ignore[attr-defined]
            second.service.store.server_id,  # type: ignore[attr-defined]
        }


# -- servers of an earlier version ------------------------------------------------------------------------------------

# The statements of the version before claims, as far as they name the columns that were added since.
OLD_VERSION = 3
OLD_ASKED = "INSERT INTO questions (thread, id, state) SELECT key, 'q', 'open' FROM threads WHERE id = 't'"
OLD_ASKING = "UPDATE threads SET asking = (SELECT count(*) FROM questions WHERE thread = key AND state = 'open')"
OLD_LEASE = "UPDATE threads SET fence = nextval('fences'), holder = 'old:1:2:3:0a', until = {now} + 30 WHERE id = 't'"


async def test_a_server_of_an_earlier_version_works_with_the_schema(store: Postgres, schema: str) -> None:
    mine = await hold_thread(store, meta={"agent": "a"})
    await mine.log("run_start", run="r")
    assert ask(f"SELECT max(version) FROM {schema}.version") == [(OLD_VERSION,)]  # which it compares with its own
    entry = make_entry(2, "asked", id="q", question="?", hash="h", expires=1.0)
    await store.append("ada", "t", [entry], expect=1, fence=mine.lease.fence)
    ask(
        f"SET search_path TO {schema}; DELETE FROM questions; {OLD_ASKED}; {OLD_ASKING}, expires = NULL; "
        f"{OLD_LEASE.format(now=NOW)}; UPDATE threads SET holder = '', until = 0"
    )
    assert await store.claim("me", 9) == []  # when its question expires is not known yet
    await store.check()  # at the start of a server
    assert [lease.head.id for lease in await store.claim("me", 9) if lease.head] == ["t"]


async def test_a_server_of_this_version_works_with_additions_of_a_later_one(
    store: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = postgres_pool.STEPS
    monkeypatch.setattr(postgres_pool, "STEPS", (*steps, ("ALTER TABLE threads ADD COLUMN color text DEFAULT 'red'",)))
    await (await hold_thread(store)).append(make_entry(1))
    await store.close()
    monkeypatch.setattr(postgres_pool, "STEPS", steps)
    assert len(await read_entries(store)) == 1
    assert ask(f"SELECT steps FROM {schema}.version") == [(len(steps) + 1,)]


def test_a_start_of_a_dead_server_is_a_crash_at_once() -> None:
    start, long_ago = "elsewhere:1:2:3:abc.0a1b2c3d", time.time() - 3600
    assert _is_crash(start, time.time(), {"def"}) and not _is_crash(start, long_ago, {"abc", "def"})
    assert _is_crash("elsewhere:1:2:3:0a1b2c3d", long_ago, {"def"}) and not _is_crash(start, time.time(), None)
