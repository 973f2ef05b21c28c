"""Runs belong to the server: they continue without a reader, are steered, cancelled, answered and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server_agents import (
    HELLO,
    Gate,
    echo_agent,
    get_json,
    list_ids,
    list_names,
    sample_agents,
    send_answer,
    user_message,
)
from server_process import InProcessServer, host_server, open_client, read_events, wait_until
from wick import Agent, Block, FunctionModel, Run, after, before
from wick.capabilities.recipes import Recipes
from wick.capability import Capability
from wick.protocols import Request
from wick.server.runs.record import KIND, derive_run_id


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(tmp_path: Path, gate: Gate, store: str) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, store=store, agents=sample_agents(gate), grace=0.2) as found:
        yield found


@pytest.fixture
async def client(server: InProcessServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with open_client(server) as found:
        yield found


# -- asking ---------------------------------------------------------------------------------------------------------


async def test_an_agent_is_asked_and_remembers(client: aiohttp.ClientSession) -> None:
    first = await send_answer(client, "echo", HELLO)
    assert first["response"] == "You said: Hello." and first["outcome"] == "completed"
    assert [message["role"] for message in first["messages"]] == ["user", "assistant"]
    assert first["usage"]["output_tokens"] > 0 and first["todos"] == [] and first["files"] == {}
    second = await send_answer(client, "echo", user_message("More.", first["thread_id"]))
    assert second["thread_id"] == first["thread_id"] and second["run_id"] != first["run_id"]
    assert [message["content"] for message in second["messages"]] == [
        *("Hello.", "You said: Hello."),
        *("More.", "You said: More."),
    ]


async def test_the_record_of_a_run_shares_the_transactions_of_its_thread(tmp_path: Path, gate: Gate) -> None:
    async with host_server(tmp_path, agents=sample_agents(gate)) as server, open_client(server) as client:
        await send_answer(client, "echo", HELLO)
        statements = list[str]()
        server.service.store._ensure_writer()._connection.db.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        await send_answer(client, "echo", HELLO)
        transactions = [part for part in "\n".join(statements).split("COMMIT")[:-1] if "UPDATE threads" in part]
        assert len(transactions) == 3, transactions  # with the message; before the model call; with the end
        assert ["INTO records" in part for part in transactions] == [True, False, True]
        await send_answer(client, "echo", user_message("One.", "th_1"))
        statements.clear()
        await send_answer(client, "echo", user_message("Two.", "th_1"))
        transactions = [part for part in "\n".join(statements).split("COMMIT")[:-1] if "UPDATE threads" in part]
        assert len(transactions) == 4, transactions  # also one with the message alone
        assert ["INTO records" in part for part in transactions] == [False, True, False, True]


async def test_a_run_that_was_recorded_before_keeps_its_record(
    server: InProcessServer, client: aiohttp.ClientSession
) -> None:
    owner = (await get_json(client, "/auth/me"))["id"]
    first = await send_answer(client, "echo", user_message("One.", "th_1"))
    head = await server.service.store.head(owner, "th_1")
    id = derive_run_id(head, 2)  # of the run that answers the second message
    row = await server.service.records.get(KIND, owner, first["run_id"]) or {}
    row |= {"name": "recorded before", "begin": head.last, "ended": 0.0, "outcome": "", "reason": ""}
    await server.service.records.put(KIND, owner, id, row)
    second = await send_answer(client, "echo", user_message("Two.", "th_1"))
    found = await server.service.records.get(KIND, owner, id) or {}
    assert second["run_id"] == id and (found["name"], found["outcome"]) == ("recorded before", "completed")


async def test_a_thread_in_memory_is_continued_with_what_others_have_appended(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reads = server.service.store, list[int]()
    read, owner = store.read, (await get_json(client, "/auth/me"))["id"]

    def count(owner: str, id: str, *, after: int = 0, limit: int | None = None) -> Any:
        reads.append(after)
        return read(owner, id, after=after, limit=limit)

    await send_answer(client, "echo", user_message("One.", "th_1"))
    monkeypatch.setattr(store, "read", count)
    second = await send_answer(client, "echo", user_message("Two.", "th_1"))
    assert len(second["messages"]) == 4 and reads == []  # no process has written since
    lease = await store.lease(owner, "th_1", "another process", 60)
    last = (await store.head(owner, "th_1")).last
    entry = {"seq": last + 1, "kind": "message", "at": 1.0, "data": {"role": "user", "content": "Between."}}
    await store.append(owner, "th_1", [entry], expect=last, fence=lease.fence)
    await store.release(owner, "th_1", lease.fence)
    third = await send_answer(client, "echo", user_message("Three.", "th_1"))
    assert [message["content"] for message in third["messages"]][4:] == ["Between.", "Three.", "You said: Three."]
    assert reads == [last - 1, last]  # the last common entry, and the new ones


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"messages": [{"role": "user", "content": "Hello."}]}', 200),
        (b'{"messages": [{"role": "user", "content": "Hello."}], "model": 3}', 422),
        (b'{"messages": [{"role": "user", "content": "Hello."}], "more": 1}', 422),
        (b'{"messages": [{"role": "tool", "content": "Hello."}]}', 422),
        (b'{"messages": [], "thread_id": "a b"}', 422),
        (b'{"messages": [', 422),
        (b"[1]", 422),
        (b"", 422),
    ],
)
async def test_a_usual_request_gets_the_response_of_any_other(
    client: aiohttp.ClientSession, body: bytes, status: int
) -> None:
    """A request with exactly this content type skips FastAPI's resolution of arguments."""
    found = []
    for kind in ("application/json", "application/json; charset=utf-8"):
        async with client.post("/agents/echo/invoke", data=body, headers={"Content-Type": kind}) as response:
            answer = await response.json()
            found.append((response.status, answer["response"] if status == 200 else answer["error"]))
    assert found[0] == found[1] and found[0][0] == status
    key = {"Idempotency-Key": "k" * 201, "Content-Type": "application/json"}
    async with client.post("/agents/echo/invoke", data=body, headers=key) as response:
        assert response.status == 422


async def test_a_stream_reports_a_run_to_its_end(client: aiohttp.ClientSession) -> None:
    async with client.post("/agents/echo/stream", json=HELLO) as response:
        assert response.content_type == "text/event-stream"
        found = await read_events(response)
    assert list_names(found)[0] == "on_chat_model_start" and list_names(found)[-2:] == ["on_chat_model_end", "done"]
    assert found[-1]["data"]["thread_id"] == response.headers["X-Thread-Id"]
    assert {frame["data"]["run_id"] for frame in found} == {response.headers["X-Run-Id"]}
    run = await get_json(client, f"/runs/{response.headers['X-Run-Id']}")
    assert run["state"] == "ended" and run["outcome"] == "completed" and run["ended"] >= run["started"]


async def test_a_run_can_be_read_again_from_any_frame(client: aiohttp.ClientSession) -> None:
    asked = await send_answer(client, "echo", HELLO)
    url = f"/runs/{asked['run_id']}/events"
    async with client.get(url) as response:
        whole = await read_events(response)
    assert list_names(whole) == ["on_chat_model_end", "done"]
    for number, id in enumerate(list_ids(whole), 1):
        async with client.get(url, headers={"Last-Event-ID": id}) as response:
            assert response.status == (204 if number == len(whole) else 200)
            assert await read_events(response) == whole[number:]
    async with client.get(url, params={"last_event_id": list_ids(whole)[0]}) as response:
        assert await read_events(response) == whole[1:]
    async with client.get(url, headers={"Last-Event-ID": "nonsense"}) as response:
        assert response.status == 400


async def test_invalid_requests_are_refused(client: aiohttp.ClientSession) -> None:
    for body in (
        {},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "I said so."}]},
        {"messages": [{"role": "tool", "content": "42", "tool_call_id": "1"}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": []}]},
        HELLO | {"thread_id": "a/b"},
        HELLO | {"colour": "other"},
    ):
        assert (await send_answer(client, "echo", body, 422))["error"]["code"] == "invalid"
    system = {"messages": [{"role": "system", "content": "Obey."}, {"role": "user", "content": "Hello."}]}
    assert (await send_answer(client, "echo", system, 403))["error"]["code"] == "forbidden"
    assert (await send_answer(client, "nobody", HELLO, 404))["error"]["code"] == "not_found"
    assert (await send_answer(client, "echo", HELLO | {"model": "other"}, 403))["error"]["code"] == "not_allowed"
    assert (
        "has no recipes" in (await send_answer(client, "echo", HELLO | {"recipe": "review"}, 400))["error"]["message"]
    )
    assert (await get_json(client, "/threads"))["threads"] == []


async def test_system_messages_need_the_setting(tmp_path: Path) -> None:
    async with (
        host_server(tmp_path, agents=sample_agents(Gate()), allow_system_messages=True) as server,
        open_client(server) as client,
    ):
        words = {"messages": [{"role": "system", "content": "Obey."}, {"role": "user", "content": "Hello."}]}
        found = await send_answer(client, "echo", words)
        assert [message["role"] for message in found["messages"]] == ["system", "user", "assistant"]


async def test_a_thread_stays_with_its_agent(client: aiohttp.ClientSession) -> None:
    asked = await send_answer(client, "echo", HELLO)
    refused = await send_answer(client, "payer", user_message("Pay.", asked["thread_id"]), 409)
    assert "is one of the agent 'echo'" in refused["error"]["message"]


async def test_hooks_of_a_run_see_the_input(tmp_path: Path) -> None:
    @before(Run)
    def no_secrets(run: Run) -> Block | None:
        return Block("that is secret") if "secret" in run.input[-1].text else None

    made = Agent(FunctionModel(echo_agent), name="strict", hooks=[no_secrets])
    async with host_server(tmp_path, agents={"strict": made}) as server, open_client(server) as client:
        refused = await send_answer(client, "strict", user_message("the secret", "th_1"))
        assert (refused["outcome"], refused["reason"]) == ("stopped", "blocked: that is secret")
        assert refused["messages"] == [] and refused["response"] == ""
        async with client.get(f"/runs/{refused['run_id']}/events") as response:
            assert list_names(await read_events(response)) == ["done"]
        fine = await send_answer(
            client, "strict", user_message("the weather", "th_1")
        )  # a refused message is not queued
        assert [message["content"] for message in fine["messages"]] == ["the weather", "You said: the weather"]


async def test_a_failure_is_reported_with_its_message(tmp_path: Path) -> None:
    def broken(request: Request) -> str:
        raise RuntimeError("no tea")

    async with (
        host_server(tmp_path, agents={"broken": Agent(FunctionModel(broken))}) as server,
        open_client(server) as client,
    ):
        failed = await send_answer(client, "broken", HELLO, 502)
        assert failed["error"] == {"code": "runtime_error", "message": "no tea"}
        async with client.post("/agents/broken/stream", json=HELLO) as response:
            found = await read_events(response)
        assert list_names(found)[-1] == "error" and found[-1]["data"]["data"]["error"]["message"] == "no tea"
        run = await get_json(client, f"/runs/{response.headers['X-Run-Id']}")
        assert run["outcome"] == "failed" and run["error"]["message"] == "no tea"


@pytest.mark.parametrize("agent", ["broken", "fine"])
async def test_the_outcome_is_stored_before_the_terminal_event(tmp_path: Path, agent: str) -> None:
    """Even with a slow store: a client that sees the end can read the outcome at once."""

    def broken(request: Request) -> str:
        raise RuntimeError("no tea")

    made = {"broken": Agent(FunctionModel(broken)), "fine": Agent(FunctionModel(echo_agent))}
    async with host_server(tmp_path, agents=made) as server, open_client(server) as client:
        records = server.service.runs.executor.records
        put = records.put

        async def slowly(*words: Any) -> None:
            await asyncio.sleep(0.2)
            await put(*words)

        async with client.post(f"/agents/{agent}/stream", json=HELLO) as response:
            records.put = slowly  # type: ignore[method-assign]
            await read_events(response, until="error" if agent == "broken" else "done")
            run = await get_json(client, f"/runs/{response.headers['X-Run-Id']}")
        assert run["outcome"] == {"broken": "failed", "fine": "completed"}[agent]


# -- readers --------------------------------------------------------------------------------------------------------


async def test_a_run_continues_without_its_reader(
    server: InProcessServer, client: aiohttp.ClientSession, gate: Gate
) -> None:
    async with client.post("/agents/gate/stream", json=HELLO) as response:
        await read_events(response, until="on_chat_model_start")
        run = response.headers["X-Run-Id"]
        response.close()

    async def nobody_reads() -> bool:
        return server.service.runs.followers.readers == 0

    await wait_until(nobody_reads)
    assert (await get_json(client, f"/runs/{run}"))["state"] == "running"
    gate.answers.put_nowait("Here.")
    async with client.get(f"/runs/{run}/events") as response:
        assert list_names(await read_events(response))[-1] == "done"


async def test_several_clients_watch_one_run(client: aiohttp.ClientSession, gate: Gate) -> None:
    async with client.post("/agents/gate/stream", json=HELLO) as response:
        await gate.asked.wait()
        url = f"/runs/{response.headers['X-Run-Id']}/events"
        async with client.get(url) as second, client.get(url) as third:
            await asyncio.sleep(0.05)
            gate.answers.put_nowait("Here.")
            found = [await read_events(each) for each in (response, second, third)]
    assert list_ids(found[0]) == list_ids(found[1]) == list_ids(found[2]) and {
        list_names(each)[-1] for each in found
    } == {"done"}


# -- the same again -------------------------------------------------------------------------------------------------


async def test_the_same_request_under_its_key_is_one_run(client: aiohttp.ClientSession) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await send_answer(client, "echo", HELLO, **key)
    again = await send_answer(client, "echo", HELLO, **key)
    assert again == first and len((await get_json(client, "/threads"))["threads"]) == 1
    async with client.post("/agents/echo/stream", json=HELLO, headers=key) as response:
        found = await read_events(response)
    assert response.headers["X-Run-Id"] == first["run_id"] and list_names(found) == ["on_chat_model_end", "done"]
    assert (await send_answer(client, "echo", user_message("Other."), 409, **key))["error"]["code"] == "conflict"


async def test_two_at_once_under_one_key_are_one_run(client: aiohttp.ClientSession) -> None:
    found = await asyncio.gather(*(send_answer(client, "echo", HELLO, **{"Idempotency-Key": "k1"}) for _ in range(5)))
    assert len({each["run_id"] for each in found}) == 1 and len(found[0]["messages"]) == 2


async def test_keys_are_ones_own_and_outlive_the_server(tmp_path: Path) -> None:
    async with (
        host_server(tmp_path, agents=sample_agents(Gate())) as server,
        open_client(server) as ada,
        open_client(server, "bob") as bob,
    ):
        first = await send_answer(ada, "echo", HELLO, **{"Idempotency-Key": "k1"})
        assert (await send_answer(bob, "echo", HELLO, **{"Idempotency-Key": "k1"}))["run_id"] != first["run_id"]
    async with host_server(tmp_path, agents=sample_agents(Gate())) as server, open_client(server) as ada:
        again = await send_answer(ada, "echo", HELLO, **{"Idempotency-Key": "k1"})
        assert again == first


# -- steering -------------------------------------------------------------------------------------------------------


async def test_a_message_to_a_busy_thread_steers_its_run(client: aiohttp.ClientSession, gate: Gate) -> None:
    async with client.post("/agents/gate/stream", json=user_message("First.", "th_1")) as first:
        await gate.asked.wait()
        async with client.post("/agents/gate/stream", json=user_message("Second.", "th_1")) as second:
            assert second.headers["X-Run-Id"] == first.headers["X-Run-Id"]
            async with client.post("/threads/th_1/messages", json=user_message("Third.")) as third:
                assert third.status == 202
                assert (await third.json())["run_id"] == first.headers["X-Run-Id"]
            gate.answers.put_nowait("One.")
            gate.answers.put_nowait("Two.")
            found = [await read_events(each) for each in (first, second)]
    assert list_ids(found[0])[-4:] == list_ids(found[1])[-4:] and [
        list_names(each).count("done") for each in found
    ] == [1, 1]
    joined = [frame["data"]["data"]["message"]["content"] for frame in found[0] if frame["event"] == "on_user_message"]
    assert joined == ["Second.", "Third."]
    said = [message["content"] for message in (await get_json(client, "/threads/th_1"))["messages"]]
    assert said == ["First.", "One.", "Second.", "Third.", "Two."]


async def test_a_late_message_is_answered_by_the_next_run(tmp_path: Path) -> None:
    """Sent after the run's last inbox check: its client reads on into the run that answers it."""
    ending, late = asyncio.Event(), asyncio.Event()

    @after(Run)
    async def linger(run: Run) -> None:
        ending.set()
        await late.wait()

    made = Agent(FunctionModel(echo_agent), hooks=[linger])
    async with (
        host_server(tmp_path, agents={"slow": made}) as server,
        open_client(server) as client,
        client.post("/agents/slow/stream", json=user_message("First.", "th_1")) as first,
    ):
        await ending.wait()
        async with client.post("/agents/slow/stream", json=user_message("Second.", "th_1")) as second:
            assert second.headers["X-Run-Id"] == first.headers["X-Run-Id"]
            late.set()
            found = [await read_events(first), await read_events(second)]
    assert [list_names(each).count("done") for each in found] == [1, 1]
    assert found[0][-1]["data"]["data"]["text"] == "You said: First."
    assert found[1][-1]["data"]["data"]["text"] == "You said: Second."
    assert found[1][-1]["data"]["run_id"] != first.headers["X-Run-Id"]


async def test_simultaneous_messages_are_all_answered(client: aiohttp.ClientSession) -> None:
    await send_answer(client, "echo", user_message("0", "th_1"))
    await asyncio.gather(*(send_answer(client, "echo", user_message(str(n), "th_1")) for n in range(1, 20)))
    thread = await get_json(client, "/threads/th_1")
    said = [message["content"] for message in thread["messages"] if message["role"] == "user"]
    assert sorted(said, key=int) == [str(n) for n in range(20)] and thread["queued"] == 0 and thread["run_id"] == ""
    assert thread["messages"][-1]["role"] == "assistant"


async def test_a_message_queued_while_a_run_starts_is_answered_by_that_run(
    server: InProcessServer, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run starts after the thread was read for the message, and before its inbox is read."""
    store, starting, may_start = server.service.store, asyncio.Event(), asyncio.Event()
    append, inbox = store.append, store.inbox
    await send_answer(client, "echo", user_message("Zero.", "th_1"))

    async def append_later(owner: str, id: str, entries: Any, **more: Any) -> int:
        starting.set()
        await may_start.wait()
        return await append(owner, id, entries, **more)

    async def read_inbox_later(owner: str, id: str) -> Any:
        if starting.is_set() and not may_start.is_set():
            may_start.set()
            async with asyncio.timeout(30):
                while not (await store.head(owner, id)).last > 4:
                    await asyncio.sleep(0.01)
        return await inbox(owner, id)

    monkeypatch.setattr(store, "append", append_later)
    first = asyncio.create_task(send_answer(client, "echo", user_message("First.", "th_1")))
    await starting.wait()
    monkeypatch.setattr(store, "inbox", read_inbox_later)
    second = await send_answer(client, "echo", user_message("Second.", "th_1"))
    assert second["response"] == "You said: Second." and (await first)["thread_id"] == "th_1"


async def test_messages_during_a_failed_run_are_answered(tmp_path: Path) -> None:
    asked, going = asyncio.Event(), asyncio.Event()

    async def moody(request: Request) -> str:
        if request.messages[-1].text == "First.":
            asked.set()
            await going.wait()
            raise RuntimeError("no tea")
        return echo_agent(request)

    async with (
        host_server(tmp_path, agents={"moody": Agent(FunctionModel(moody))}) as server,
        open_client(server) as client,
    ):
        await server.service._recovery.stop()  # no later reader
        first = asyncio.create_task(send_answer(client, "moody", user_message("First.", "th_1"), 502))
        await asked.wait()
        second = asyncio.create_task(send_answer(client, "moody", user_message("Second.", "th_1")))
        await asyncio.sleep(0.1)
        going.set()
        assert (await first)["error"]["message"] == "no tea"
        assert (await second)["response"] == "You said: Second."


async def test_a_recipe_is_the_input(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "review.md").write_text("---\ndescription: Reviews\n---\nReview {{input}} with care.\n")
    cook = Agent(gate, hooks=[Recipes(dirs=[str(tmp_path / "recipes")])])
    async with host_server(tmp_path, agents={"cook": cook}, grace=0) as server, open_client(server) as client:
        gate.answers.put_nowait("")
        found = await send_answer(client, "cook", user_message("the branch", "th_1") | {"recipe": "review"})
        assert found["response"].strip() == "You said: Review the branch with care."
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        gate.asked.clear()
        going = asyncio.create_task(send_answer(client, "cook", user_message("more", "th_1")))
        await gate.asked.wait()
        for headers in ({}, {"Idempotency-Key": "k"}):
            body = user_message("that", "th_1") | {"recipe": "review"}
            refused = await send_answer(client, "cook", body, 409, **headers)
            assert "a recipe can only start one" in refused["error"]["message"]
        gate.answers.put_nowait("Fine.")
        await going


# -- stopping -------------------------------------------------------------------------------------------------------


async def test_a_run_is_cancelled(client: aiohttp.ClientSession, gate: Gate) -> None:
    async with client.post("/agents/gate/stream", json=HELLO) as response:
        await gate.asked.wait()
        async with client.post(f"/runs/{response.headers['X-Run-Id']}/cancel") as cancelling:
            run = await cancelling.json()
        found = await read_events(response)
    assert (run["state"], run["outcome"], run["reason"]) == ("ended", "cancelled", "user requested")
    assert found[-1]["event"] == "done" and found[-1]["data"]["data"]["outcome"] == "cancelled"
    async with client.post(f"/runs/{run['id']}/cancel") as again:
        assert await again.json() == run
    gate.answers.put_nowait("Fine.")
    assert (await send_answer(client, "gate", user_message("And now?", run["thread_id"])))["response"] == "Fine."


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_the_end_of_a_run_that_never_started_is_sent_from_the_log(tmp_path: Path, how: str) -> None:
    opens = asyncio.Event()

    class Shut(Capability):
        @asynccontextmanager
        async def session(self, run: Run) -> AsyncIterator[None]:
            await opens.wait()
            raise ValueError("nobody comes in here")
            yield

    shut = Agent(FunctionModel(echo_agent), hooks=[Shut()])
    async with host_server(tmp_path, agents={"shut": shut}) as server, open_client(server) as client:
        response = await client.post("/agents/shut/stream", json=HELLO)
        run = response.headers["X-Run-Id"]
        if how == "cancelled":
            async with client.post(f"/runs/{run}/cancel") as cancelled:
                assert (await cancelled.json())["outcome"] == "cancelled"
        opens.set()
        seen = await read_events(response)
        async with client.get(f"/runs/{run}/events") as again:
            there = await read_events(again)
    assert seen[-1]["event"] == ("done" if how == "cancelled" else "error") and seen[-1]["id"]
    assert seen[-1] == there[-1]


async def test_an_agent_that_fails_to_build_does_not_prevent_startup(tmp_path: Path) -> None:
    def make(user: Any) -> Agent:
        raise ValueError("this agent cannot be made")

    async with host_server(tmp_path, agents={"default": make}) as server, open_client(server) as client:
        assert (await get_json(client, "/health"))["agents"] == 1


async def test_a_run_that_waits_for_an_answer_is_cancelled(client: aiohttp.ClientSession) -> None:
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        await read_events(response, until="on_approval_request")
        run = response.headers["X-Run-Id"]
        assert (await get_json(client, f"/runs/{run}"))["state"] == "waiting"
        async with client.post(f"/runs/{run}/cancel") as cancelling:
            assert (await cancelling.json())["outcome"] == "cancelled"
    assert (await get_json(client, "/approvals"))["approvals"] == []
    assert (await send_answer(client, "payer", user_message("Well.", "th_1")))["response"].startswith("Well. (")


# -- asking back ----------------------------------------------------------------------------------------------------


async def test_an_answered_question_continues_the_run(client: aiohttp.ClientSession) -> None:
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        asked = (await read_events(response, until="on_approval_request"))[-1]["data"]["data"]
        (waiting,) = (await get_json(client, "/approvals"))["approvals"]
        assert waiting["id"] == asked["id"] and waiting["question"] == "pay 500?" and waiting["thread_id"] == "th_1"
        assert waiting["tool"] == "pay" and waiting["args"] == {"amount": 500} and waiting["agent_id"] == "payer"
        body = {"choice": "allow", "args": {"amount": 5}}
        async with client.post(f"/approvals/{asked['id']}", json=body) as answered:
            assert answered.status == 200
        found = await read_events(response)
        async with client.post(f"/approvals/{asked['id']}", json=body) as again:
            assert again.status == 404
    assert list_names(found)[0] == "on_approval_response" and list_names(found)[-1] == "done"
    assert found[0]["data"]["data"] == {"id": asked["id"], "allowed": True, "reason": "", "args": {"amount": 5}}
    end = next(frame for frame in found if frame["event"] == "on_tool_end")
    assert end["data"]["data"]["output"] == "paid 5"
    (approved,) = [row for row in end["data"]["data"]["why"] if row["position"] == "gate"]
    assert (approved["verdict"], approved["changed"]) == ("approved", {"amount": [500, 5]})
    async with client.get(f"/runs/{response.headers['X-Run-Id']}/events") as replayed:
        assert end in await read_events(replayed)
    reasons = await get_json(client, f"/threads/th_1/calls/{asked['call_id']}/why")
    (verdict,) = [row for row in reasons["verdicts"] if row["position"] == "gate"]
    assert {**approved, "ms": verdict["ms"]}.items() <= verdict.items()


async def test_another_message_is_not_an_approval(client: aiohttp.ClientSession) -> None:
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as first:
        await read_events(first, until="on_approval_request")
        found = await send_answer(client, "payer", user_message("Wait.", "th_1"))
        rest = await read_events(first)
    assert "the user sent another message" in found["response"] and found["run_id"] == first.headers["X-Run-Id"]
    assert list_names(rest).count("done") == 1 and not any(
        message.get("content") == "paid 500" for message in found["messages"]
    )


async def test_a_repeated_request_leaves_its_question_open(client: aiohttp.ClientSession) -> None:
    """A client repeats its request after a broken connection: that is not another message."""
    key = {"Idempotency-Key": "k1"}
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1"), headers=key) as first:
        await read_events(first, until="on_approval_request")
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1"), headers=key) as again:
        asked = (await read_events(again, until="on_approval_request"))[-1]["data"]["data"]
        (waiting,) = (await get_json(client, "/approvals"))["approvals"]
        assert waiting["id"] == asked["id"] and again.headers["X-Run-Id"] == first.headers["X-Run-Id"]
        async with client.post(f"/approvals/{asked['id']}", json={"choice": "allow"}) as answered:
            assert answered.status == 200
        outputs = [
            each["data"]["data"]["output"] for each in await read_events(again) if each["event"] == "on_tool_end"
        ]
    assert outputs == ["paid 500"]


async def test_a_paused_run_continues_in_another_server(tmp_path: Path, gate: Gate) -> None:
    async with (
        host_server(tmp_path, agents=sample_agents(gate), grace=0) as server,
        open_client(server) as client,
        client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response,
    ):
        seen = await read_events(response, until="on_approval_request")
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        run = response.headers["X-Run-Id"]
        (waiting,) = (await get_json(client, "/approvals"))["approvals"]
        url, after = f"/runs/{run}/events", {"Last-Event-ID": list_ids(seen)[-1]}
        async with client.get(url, headers=after) as reading:
            async with client.post(f"/approvals/{waiting['id']}", json={"choice": "deny", "words": "no money"}) as said:
                assert said.status == 200
            rest = await read_events(reading)
    assert not set(list_ids(seen)) & set(list_ids(rest)) and list_names(rest).count("done") == 1
    ended = next(frame for frame in rest if frame["event"] == "on_tool_end")
    assert ended["data"]["data"]["error"] == "no money"


# -- the server stops -----------------------------------------------------------------------------------------------


async def test_released_runs_are_resumed(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        host_server(tmp_path, agents=sample_agents(gate), grace=0) as server,
        open_client(server) as client,
        client.post("/agents/gate/stream", json=user_message("First.", "th_1")) as response,
    ):
        seen = await read_events(response, until="on_chat_model_start")
        server.server.shutdown()
        seen += await read_events(response)
    assert list_names(seen) == ["on_chat_model_start"]
    gate.answers.put_nowait("Here.")
    async with host_server(tmp_path, agents=sample_agents(gate), grace=0) as server, open_client(server) as client:
        async with client.get(f"/runs/{response.headers['X-Run-Id']}/events") as reading:
            found = await read_events(reading)
        assert list_names(found)[-2:] == ["on_chat_model_end", "done"]
        assert found[-1]["data"]["data"]["text"] == "Here."
        assert [m["content"] for m in (await get_json(client, "/threads/th_1"))["messages"]] == ["First.", "Here."]


async def test_a_stopping_server_drains_runs_and_refuses_new_ones(tmp_path: Path) -> None:
    gate = Gate()
    async with host_server(tmp_path, agents=sample_agents(gate), grace=60) as server, open_client(server) as client:
        going = asyncio.create_task(send_answer(client, "gate", HELLO))
        await gate.asked.wait()
        server.server.shutdown()

        async def refused() -> bool:
            soon = aiohttp.ClientTimeout(total=5)  # one that was taken just before is answered after the restart
            with suppress(TimeoutError):
                async with client.post("/agents/echo/invoke", json=HELLO, timeout=soon) as response:
                    return response.status == 503 and "Retry-After" in response.headers
            return False

        await wait_until(refused)
        gate.answers.put_nowait("Here.")
        assert (await going)["response"] == "Here."


async def test_queued_messages_are_answered_after_a_restart(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=sample_agents(Gate()), grace=0) as server, open_client(server) as client:
        await send_answer(client, "echo", user_message("First.", "th_1"))
        owner = (await get_json(client, "/auth/me"))["id"]
        await server.service.drain()
        await server.service.store.enqueue(owner, "th_1", {"role": "user", "content": "Second."})
    async with host_server(tmp_path, agents=sample_agents(Gate()), grace=0) as server, open_client(server) as client:

        async def is_answered() -> bool:
            return bool((await get_json(client, "/threads/th_1"))["messages"][-1]["content"] == "You said: Second.")

        await wait_until(is_answered)


# -- ownership ------------------------------------------------------------------------------------------------------


async def test_users_cannot_access_runs_of_others(server: InProcessServer, client: aiohttp.ClientSession) -> None:
    async with client.post("/agents/payer/stream", json=user_message("Pay.", "th_1")) as response:
        asked = (await read_events(response, until="on_approval_request"))[-1]["data"]["data"]["id"]
        run = response.headers["X-Run-Id"]
        tries: list[Callable[[aiohttp.ClientSession], Any]] = [
            lambda bob: bob.get(f"/runs/{run}"),
            lambda bob: bob.get(f"/runs/{run}/events"),
            lambda bob: bob.post(f"/runs/{run}/cancel"),
            lambda bob: bob.get("/threads/th_1"),
            lambda bob: bob.patch("/threads/th_1", json={"title": "Mine"}),
            lambda bob: bob.delete("/threads/th_1"),
            lambda bob: bob.post("/threads/th_1/fork", json={}),
            lambda bob: bob.post("/threads/th_1/rewind", json={"to": 0}),
            lambda bob: bob.get("/threads/th_1/export"),
            lambda bob: bob.post("/threads/th_1/messages", json=HELLO),
            lambda bob: bob.post(f"/approvals/{asked}", json={"choice": "allow"}),
            lambda bob: bob.post(f"/approvals/{asked}", json={"choice": "allow", "thread_id": "th_1"}),
        ]
        for user in ("bob", "root"):
            async with open_client(server, user) as other:
                for attempt in tries:
                    async with attempt(other) as refused:
                        assert refused.status == 404, (refused.method, refused.url)
                assert (await get_json(other, "/threads"))["threads"] == []
                assert (await get_json(other, "/approvals"))["approvals"] == []
                assert (await get_json(other, "/threads/search?q=Pay"))["hits"] == []
        assert (await get_json(client, f"/runs/{run}"))["state"] == "waiting"
