"""Recovery: runs that a server resumes by itself, and runs that it ignores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server_agents import HELLO, Gate, get_json, list_names, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events, wait_until
from wick import Agent, FunctionModel, Run, assistant, before, user
from wick.capability import Capability
from wick.errors import StoreError
from wick.protocols import Summary
from wick.server import runs as runs_module
from wick.server.auth.identity import User
from wick.server.errors import ApiError
from wick.server.runs import QueuedRun, recovery
from wick.server.runs.record import RunInfo, derive_run_id
from wick.server.runs.recovery import RunRecovery
from wick.stores.held_thread import hold
from wick.threads import Thread


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(tmp_path: Path, gate: Gate) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as found:
        await found.service._recovery.stop()  # here the test triggers the poll
        found.service.registry.sessions.patience = 0.0
        yield found


@pytest.fixture
async def client(server: InProcessServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server) as found:
        yield found


async def paused(client: aiohttp.ClientSession) -> str:
    """A run that waits for an answer without an executing server."""
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        assert list_names(await read_events(response))[-1] == "done"
    return response.headers["X-Run-Id"]


async def settled(server: InProcessServer) -> None:
    async def nothing_runs() -> bool:
        return not server.service.runs.executor.running

    await wait_until(nothing_runs)


async def test_a_run_that_waits_for_an_answer_is_left_alone(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    run = await paused(client)
    before = (await get_json(client, "/threads/th_1"))["last"]
    for _ in range(3):
        await server.service._recovery.resume_all()
    await settled(server)
    thread = await get_json(client, "/threads/th_1")
    assert thread["last"] == before and thread["asking"] == 1 and thread["run_id"] == run
    async with client.post("/threads/th_1/messages", json=user_message("Well?")) as said:
        assert (await said.json())["run_id"] == run
    await server.service._recovery.resume_all()
    assert (await get_json(client, "/threads/th_1"))["queued"] == 1  # it is delivered when the question is answered


async def test_an_unanswered_question_expires(tmp_path: Path, gate: Gate) -> None:
    options: dict[str, Any] = {"agents": sample_agents(gate), "grace": 0, "answer_within": 0.3}
    async with host_server(tmp_path, **options) as server, open_client(server) as client:
        server.service.registry.sessions.patience = 0.0
        run = await paused(client)

        async def is_ended() -> bool:
            return bool((await get_json(client, f"/runs/{run}"))["state"] == "ended")

        await wait_until(is_ended)
        thread = await get_json(client, "/threads/th_1")
        assert "lapsed without an answer" in thread["messages"][2]["content"]
        assert (await get_json(client, f"/runs/{run}"))["outcome"] == "completed"


async def test_an_answer_through_another_server_continues_the_run(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    run = await paused(client)
    owner = (await get_json(client, "/auth/me"))["id"]
    sessions = server.service.runs.sessions
    (question,) = await sessions.questions("th_1", owner=owner)
    await sessions.answer("th_1", question["id"], "allow", owner=owner)
    await server.service._recovery.resume_all()
    async with client.get(f"/runs/{run}/events") as response:
        found = await read_events(response)
    assert list_names(found).count("done") == 1 and found[-1]["data"]["data"]["outcome"] == "completed"


async def test_failed_recovery_is_retried_with_backoff(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    owner = (await get_json(client, "/auth/me"))["id"]
    await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Two."})
    tries: list[Any] = []

    async def fails(*given: Any, **options: Any) -> None:
        tries.append(given)
        raise ApiError(503, "unavailable", "not now")

    monkeypatch.setattr(server.service.runs, "resume_thread", fails)

    async def five() -> bool:
        return len(tries) >= 5

    resuming, began = RunRecovery(server.service.runs, look=0.05), time.monotonic()
    resuming.start()
    await wait_until(five)
    assert time.monotonic() - began >= 0.05 + 0.1 + 0.2 + 0.4
    monkeypatch.undo()
    await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Three."})  # which changes it

    async def is_delivered() -> bool:
        return (await server.service.store.head(owner, "th_1")).queued == 0

    await wait_until(is_delivered)
    await resuming.stop()
    await settled(server)


async def test_a_run_with_missing_guards_waits_for_them(tmp_path: Path, gate: Gate) -> None:
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        server.service.registry.sessions.patience = 0.0
        run = await paused(client)
    bare = sample_agents(gate)
    bare["payer"] = bare["payer"]._copy(hooks=())  # the same, without a question
    async with host_server(tmp_path, agents=bare, grace=0) as server, open_client(server) as client:
        await server.service._recovery.stop()  # it would try again and again
        (waiting,) = (await get_json(client, "/approvals"))["approvals"]
        async with client.post(f"/approvals/{waiting['id']}", json={"choice": "allow"}) as said:
            assert said.status == 200
        await settled(server)
        state = await get_json(client, f"/runs/{run}")
        assert state["state"] == "interrupted" and "guards confirm, which are missing now" in state["reason"]
        assert (await get_json(client, "/threads/th_1"))["messages"][-1]["role"] == "assistant"  # nothing was paid
        async with client.post(f"/runs/{run}/cancel") as cancelled:
            assert (await cancelled.json())["outcome"] == "cancelled"


async def test_a_thread_leased_elsewhere_is_not_recovered(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    owner = (await get_json(client, "/auth/me"))["id"]
    async with hold(server.service.store, owner, Thread("th_1")):
        await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Two."})
        await server.service._recovery.resume_all()
        assert not server.service.runs.executor.running
    await server.service._recovery.resume_all()
    await settled(server)
    assert (await get_json(client, "/threads/th_1"))["messages"][-1]["content"] == "You said: Two."


async def test_threads_of_a_removed_agent_are_readable(tmp_path: Path, gate: Gate) -> None:
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("One.", "th_1"))
        owner = (await get_json(client, "/auth/me"))["id"]
        await server.service.drain()
        await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Two."})
    left = {id: agent for id, agent in sample_agents(gate).items() if id != "echo"}
    async with host_server(tmp_path, agents=left, grace=0) as server, open_client(server) as client:

        async def over() -> bool:
            return bool((await get_json(client, "/threads/th_1"))["queued"] == 0)

        await wait_until(over)
        await settled(server)
        thread = await get_json(client, "/threads/th_1")
        assert [message["content"] for message in thread["messages"]] == ["One.", "You said: One.", "Two."]
        assert (await send_answer(client, "echo", user_message("Three.", "th_1"), 404))["error"]["code"] == "not_found"


async def full(*given: Any, **options: Any) -> None:
    raise StoreError("the disk is full; make room, and go on", "full")


def fill_disk(server: InProcessServer, monkeypatch: pytest.MonkeyPatch) -> None:
    release = server.service.store.release

    async def release_only(*given: Any, entries: Any = (), **options: Any) -> Any:
        await full() if entries else None
        return await release(*given, **options)

    monkeypatch.setattr(server.service.store, "append", full)
    monkeypatch.setattr(server.service.store, "release", release_only)


async def stalled(server: InProcessServer) -> None:
    async def is_stalled() -> bool:
        return bool(server.service.runs.executor.stalls)

    await wait_until(is_stalled)


@pytest.mark.parametrize("route", ["stream", "invoke"])
async def test_clients_of_a_run_that_cannot_be_saved_wait_for_its_end(
    server: InProcessServer, client: aiohttp.ClientSession, gate: Gate, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """The run continues once there is room again: the only end that a client sees is the one in the log."""
    asking = asyncio.create_task(client.post(f"/agents/gate/{route}", json=user_message("Hello.", "th_1")))
    await gate.asked.wait()
    fill_disk(server, monkeypatch)
    gate.answers.put_nowait("")
    await stalled(server)
    (run,) = [stall.run for stall in server.service.runs.executor.stalls.values()]
    assert (await get_json(client, f"/runs/{run}"))["state"] == "interrupted"
    monkeypatch.undo()
    gate.answers.put_nowait("")
    await server.service._recovery.resume_all()
    async with await asking as response:
        if route == "invoke":
            assert (await response.json())["outcome"] == "completed"
        else:
            seen = await read_events(response)
            assert [name for name in list_names(seen) if name in ("done", "error")] == ["done"]
            assert seen[-1]["data"]["data"]["outcome"] == "completed" and seen[-1]["id"]
    assert not server.service.runs.executor.stalls
    ends = [(end["run"], end["outcome"]) for end in (await get_json(client, "/threads/th_1"))["ends"]]
    assert ends == [(run, "completed")]


@pytest.mark.parametrize("began", [True, False])
async def test_a_client_that_times_out_learns_that_the_run_is_open(
    server: InProcessServer, client: aiohttp.ClientSession, gate: Gate, monkeypatch: pytest.MonkeyPatch, began: bool
) -> None:
    """A 503 with the run's id, and never an outcome; under its key the request is the same one later."""
    monkeypatch.setattr(runs_module, "STALLED_SECONDS", 0.0)
    server.service.runs.followers.beat = 0.05
    if not began:
        fill_disk(server, monkeypatch)
    gate.answers.put_nowait("")
    asking = asyncio.create_task(client.post("/agents/gate/invoke", json=HELLO, headers={"Idempotency-Key": "k"}))
    if began:
        await gate.asked.wait()
        fill_disk(server, monkeypatch)
    async with await asking as response:
        told = await response.json()
        assert (response.status, told["error"]["code"]) == (503, "still_open"), told
        run = response.headers["X-Run-Id"]
    async with client.post("/v1/chat/completions", json={"model": "gate", **HELLO}) as response:
        gate.answers.put_nowait("")
        assert response.status == 503 and "still open" in (await response.json())["error"]["message"]
    for name in ("append", "release"):
        monkeypatch.setattr(server.service.store, name, getattr(server.service.store._store, name))
    for _ in range(4):
        gate.answers.put_nowait("")
    await server.service._recovery.resume_all()
    again = await send_answer(client, "gate", HELLO, **{"Idempotency-Key": "k"})
    assert (again["run_id"], again["outcome"]) == (run, "completed")
    await settled(server)


async def test_a_cancellation_that_cannot_be_written_is_written_later(
    server: InProcessServer, client: aiohttp.ClientSession, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.post("/agents/gate/stream", json=user_message("Hello.", "th_1")) as response:
        await gate.asked.wait()
        run = response.headers["X-Run-Id"]
        fill_disk(server, monkeypatch)
        async with client.post(f"/runs/{run}/cancel") as cancelled:
            assert cancelled.status == 507, await cancelled.text()
        monkeypatch.undo()
        await server.service._recovery.resume_all()
        seen = await read_events(response)
    assert seen[-1]["data"]["data"]["outcome"] == "cancelled" and len(gate.requests) == 1
    assert (await get_json(client, f"/runs/{run}"))["outcome"] == "cancelled"


async def test_a_run_resumed_without_capacity_is_retried(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_answer(client, "echo", user_message("One.", "th_1"))
    owner = (await get_json(client, "/auth/me"))["id"]
    await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Two."})
    append, tried = server.service.store.append, asyncio.Event()

    async def full(*given: Any, **options: Any) -> Any:
        if tried.is_set():
            return await append(*given, **options)  # there is room again, so that it could be given up
        tried.set()
        raise StoreError("the disk is full; make room, and go on", "full")

    monkeypatch.setattr(server.service.store, "append", full)
    await server.service._recovery.resume_all()
    await settled(server)
    assert tried.is_set() and (await get_json(client, "/threads/th_1"))["queued"] == 1
    await RunRecovery(server.service.runs).resume_all()
    await settled(server)
    assert (await get_json(client, "/threads/th_1"))["messages"][-1]["content"] == "You said: Two."


async def test_the_end_of_a_finished_run_is_sent_from_the_log(tmp_path: Path) -> None:
    """Its server was killed between its last message and its end, so it sends nothing when resumed."""
    opens = asyncio.Event()

    class Waiting(Capability):
        @asynccontextmanager
        async def session(self, run: Run) -> AsyncIterator[None]:
            await opens.wait()
            yield

    waiting = Agent(FunctionModel(lambda request: "Never asked."), hooks=[Waiting()])
    async with host_server(tmp_path, agents={"waiting": waiting}) as server, open_client(server) as client:
        owner, store = (await get_json(client, "/auth/me"))["id"], server.service.store
        await store.create(owner, "th_1", meta={"agent": "waiting"})
        async with hold(store, owner, thread := Thread("th_1")):
            thread.add(user("Hello."))
            thread.append("run_start", {"run": "run_1", "agent": "", "guards": [], "resumed": False, "input": 1})
            thread.add(assistant("Hello yourself."))
        await server.service._recovery.resume_all()
        response = await client.get("/runs/run_1/events")
        opens.set()
        seen = await read_events(response)
        async with client.get("/runs/run_1/events") as again:
            there = await read_events(again)
    assert list_names(there) == ["on_chat_model_end", "done"] and seen == there


async def one_over_one_waiting(server: InProcessServer, client: aiohttp.ClientSession) -> tuple[RunInfo, Summary, int]:
    """A finished run and its thread, with an unread message at a position."""
    first = await send_answer(client, "echo", user_message("One.", "th_1"))
    me, runs = await get_json(client, "/auth/me"), server.service.runs
    position = await runs.store.enqueue(me["id"], "th_1", {"role": "user", "content": "Two."})
    over = await runs.load_info(User(me["id"], ""), first["run_id"])
    return over, await runs.store.head(me["id"], "th_1"), position


async def test_a_run_of_a_deleted_thread_has_no_next_run(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    """The stream of a run may end just after its thread was deleted."""
    runs = server.service.runs
    over, _, position = await one_over_one_waiting(server, client)
    assert await runs.next_run_for(over, position) is not None
    await runs.store.delete(over.owner, "th_1")
    assert await runs.next_run_for(over, position) is None


async def test_a_finished_run_does_not_receive_messages_for_the_next(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    """It was to be resumed, and was ended just then."""
    runs = server.service.runs
    over, head, position = await one_over_one_waiting(server, client)
    runs.executor.start(over.user, over, runs._start_next_run)

    async def is_delivered() -> bool:
        return (await runs.store.head(over.owner, "th_1")).queued == 0

    await wait_until(is_delivered)
    async with client.get(f"/runs/{derive_run_id(head, position)}/events") as response:
        assert list_names(await read_events(response))[-1] == "done"
    log = [row async for batch in runs.store.read(over.owner, "th_1") for row in batch]
    started = [row["data"]["run"] for row in log if row["kind"] == "run_start"]
    assert started == [over.id, derive_run_id(head, position)]


async def test_a_message_during_recovery_of_a_finished_run_gets_the_next_run(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    """A reconnecting client asks for its run: that must be the one that received the message."""
    runs = server.service.runs
    over, head, position = await one_over_one_waiting(server, client)
    runs.executor.start(over.user, over, runs._start_next_run)
    turn = await runs.start(over.user, "echo", [user("Three.")], "th_1")
    assert turn.run_id == derive_run_id(head, position)
    assert (await turn.wait_end()).outcome == "completed"


async def test_to_cancel_a_run_that_is_just_over_takes_nothing_from_the_next(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    """It existed at the lookup; messages since then are not its own."""
    runs = server.service.runs
    over, head, position = await one_over_one_waiting(server, client)
    assert await runs._cancel_pending(over)
    assert (await runs.store.head(over.owner, "th_1")).queued == 1
    next_one = replace(over, id=derive_run_id(head, position), begin=head.last, ended=0.0, outcome="")
    await runs.records.put("run", over.owner, next_one.id, next_one.to_json())
    assert await runs._cancel_pending(next_one)
    assert (await runs.store.head(over.owner, "th_1")).queued == 0
    log = [row async for batch in runs.store.read(over.owner, "th_1") for row in batch]
    ends = [(row["data"]["run"], row["data"]["outcome"]) for row in log if row["kind"] == "run_end"]
    assert ends == [(over.id, "completed"), (next_one.id, "cancelled")]


@pytest.mark.parametrize("holding", [True, False])
async def test_cancelling_a_run_during_recovery_ends_it(tmp_path: Path, holding: bool) -> None:
    """Its log is loaded and it is not running yet: readers get the state of the log."""

    there = asyncio.Event()

    class Waiting(Capability):
        @asynccontextmanager
        async def session(self, run: Run) -> AsyncIterator[None]:
            if holding:
                await self.wait_long()
            yield

        @before(Run)
        async def wait(self, run: Run) -> None:
            await self.wait_long()

        async def wait_long(self) -> None:
            there.set()
            await asyncio.sleep(60)

    waiting = Agent(FunctionModel(lambda request: "Never asked."), hooks=[Waiting()])
    async with host_server(tmp_path, agents={"waiting": waiting}) as server, open_client(server) as client:
        owner, store = (await get_json(client, "/auth/me"))["id"], server.service.store
        await store.create(owner, "th_1", meta={"agent": "waiting"})
        async with hold(store, owner, thread := Thread("th_1")):
            thread.add(user("Hello."))
            thread.append("run_start", {"run": "run_1", "agent": "", "guards": [], "resumed": False, "input": 1})
        await server.service._recovery.resume_all()
        await there.wait()
        async with client.get("/runs/run_1/events") as reading:
            async with client.post("/runs/run_1/cancel") as response:
                assert (await response.json())["outcome"] == "cancelled"
            seen = await read_events(reading)
        async with client.get("/runs/run_1/events") as again:
            whole = await read_events(again)
        log = [row async for batch in store.read(owner, "th_1") for row in batch]
    assert seen == whole and whole[-1]["id"] and whole[-1]["data"]["data"]["outcome"] == "cancelled"
    assert [row["data"]["outcome"] for row in log if row["kind"] == "run_end"] == ["cancelled"]


async def test_a_message_taken_by_the_next_run_gets_that_run(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    """It arrived while a run was ending, and the next one was faster than the lookup."""
    runs = server.service.runs
    over, head, position = await one_over_one_waiting(server, client)
    await runs.resume_thread(over.user, head)
    await settled(server)
    told = [frame async for frames in QueuedRun(runs, over, position).frames() for frame in frames]
    assert [frame.terminal for frame in told].count(True) == 1 and told[-1].terminal
    assert derive_run_id(head, position).encode() in told[-1].text
    turn = QueuedRun(runs, over, position)
    assert (await turn.wait_end()).id == turn.run_id == derive_run_id(head, position)


async def test_a_run_whose_resume_is_denied_by_a_hook_is_open(tmp_path: Path) -> None:
    """The log has no end of it, so a client is not sent an outcome."""

    @before(Run)
    def policy(run: Run) -> None:
        raise ConnectionError("the policy service is down")

    agent = Agent(FunctionModel(lambda request: "Never asked."), hooks=[policy])
    async with host_server(tmp_path, agents={"strict": agent}) as server, open_client(server) as client:
        await server.service._recovery.stop()
        owner, store = (await get_json(client, "/auth/me"))["id"], server.service.store
        await store.create(owner, "th_1", meta={"agent": "strict"})
        async with hold(store, owner, thread := Thread("th_1")):
            thread.add(user("Hello."))
            thread.append("run_start", {"run": "run_1", "agent": "", "guards": [], "resumed": False, "input": 1})
        told = await send_answer(client, "strict", user_message("And now?", "th_1"), 503)
        assert told["error"]["code"] == "still_open" and "the policy service is down" in told["error"]["message"]
        assert (await get_json(client, "/threads/th_1"))["queued"] == 1
        assert (await get_json(client, "/runs/run_1"))["state"] == "interrupted"


@pytest.mark.parametrize("code", ["conflict", "fenced", "failed"])
async def test_a_hook_that_fails_like_a_store_is_not_run_again_and_again(tmp_path: Path, code: str) -> None:
    tried = list[str]()

    @before(Run)
    def other_thread(run: Run) -> None:
        tried.append(run.id)
        raise StoreError("another thread is busy", code)

    agent = Agent(FunctionModel(lambda request: "Never asked."), hooks=[other_thread])
    async with host_server(tmp_path, agents={"strict": agent}) as server, open_client(server) as client:
        told = await send_answer(client, "strict", user_message("Hello.", "th_1"), 502)
        assert told["error"]["code"] == code
        await settled(server)
        await server.service._recovery.resume_all()
        await settled(server)
        log = await get_json(client, "/threads/th_1/export")
    assert len(tried) == 1 and log["entries"][-1]["data"]["unheard"][0]["message"]["content"] == "Hello."


async def test_a_stop_ends_although_cancellations_are_lost(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recovery, "STOP_SECONDS", 0.05)
    lost = 0

    async def lose_cancellations(most: int) -> None:
        nonlocal lost
        while lost < most:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1

    stubborn = RunRecovery(server.service.runs)
    stubborn.resume_all = lambda: lose_cancellations(2)  # type: ignore[method-assign]
    stubborn.start()
    await asyncio.sleep(0)
    await stubborn.stop()
    assert lost == 2 and not stubborn._tasks and "does not end" not in caplog.text
    stubborn.resume_all = lambda: lose_cancellations(8)  # type: ignore[method-assign]
    stubborn.start()
    await asyncio.sleep(0)
    await stubborn.stop()
    assert "the server stops without it" in caplog.text
    await stubborn.stop()
    assert not stubborn._tasks


async def test_a_scan_for_cancellations_does_not_hide_a_failed_claim(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "CANCEL_PAUSE", 0.01)
    scans, has_failed, is_scanned = 0, asyncio.Event(), asyncio.Event()

    async def fail_to_claim() -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise StoreError("away", "unavailable")
        await asyncio.sleep(3600)

    async def scan() -> None:
        nonlocal scans
        scans += has_failed.is_set()
        if scans == 3:
            is_scanned.set()

    failing = RunRecovery(server.service.runs, look=0.01)
    failing.resume_all, failing.cancel_requested = fail_to_claim, scan  # type: ignore[method-assign]
    failing.start()
    try:
        async with asyncio.timeout(30):
            await is_scanned.wait()
        assert failing.problem == "unavailable"
    finally:
        await failing.stop()


# -- many threads of a dead server -----------------------------------------------------------------------------------


async def queue_messages(server: InProcessServer, client: aiohttp.ClientSession, threads: int) -> str:
    """Create threads with a pending message that no run has; return their owner."""
    owner, store = (await get_json(client, "/auth/me"))["id"], server.service.store
    for number in range(threads):
        await store.create(owner, f"th_{number}", meta={"agent": "echo"})
        await store.enqueue(owner, f"th_{number}", {"role": "user", "content": f"{number}."})
    return owner


async def count_leased(server: InProcessServer, owner: str) -> int:
    return sum(head.leased for head in (await server.service.store.list(owner, limit=100)).threads)


async def test_a_thread_that_cannot_be_resumed_holds_up_no_other(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 45 claimed threads one has a damaged record, and the resume of another one waits."""
    owner = await queue_messages(server, client, 45)
    resume, released = server.service.runs.resume_thread, asyncio.Event()

    async def resume_thread(user: User, head: Summary, **options: Any) -> None:
        if head.id == "th_3":
            raise TypeError("a damaged record")
        if head.id == "th_7":
            await released.wait()
        await resume(user, head, **options)

    monkeypatch.setattr(server.service.runs, "resume_thread", resume_thread)
    resuming = asyncio.create_task(server.service._recovery.resume_all())

    async def others_are_answered() -> bool:
        return sum(head.queued for head in (await server.service.store.list(owner, limit=100)).threads) == 2

    await wait_until(others_are_answered)
    assert not resuming.done()
    released.set()
    await resuming
    await settled(server)
    heads = {head.id: head.queued for head in (await server.service.store.list(owner, limit=100)).threads}
    assert [id for id, queued in heads.items() if queued] == ["th_3"]
    assert await count_leased(server, owner) == 0


async def test_a_stop_releases_the_leases_of_threads_that_were_not_resumed(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await queue_messages(server, client, 45)
    began = asyncio.Event()

    async def resume_thread(user: User, head: Summary, **options: Any) -> None:
        began.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(server.service.runs, "resume_thread", resume_thread)
    stopped = RunRecovery(server.service.runs)
    stopped.start()
    await began.wait()
    assert await count_leased(server, owner) == 45
    await stopped.stop()
    assert await count_leased(server, owner) == 0
