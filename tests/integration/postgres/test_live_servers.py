"""Servers on one Postgres with a live plane: readers anywhere get the deltas, in the order of the performing server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from nats_server import NatsServer, run_nats
from postgres import shared_server as postgres_server
from server_agents import Gate, get_json, list_ids, sample_agents, send_answer, user_message
from server_process import InProcessServer, host_server, open_client, read_events, read_frames, wait_until
from wick import Agent
from wick.protocols import Delta, Finish, Request, TextDelta
from wick.stores.held_thread import LeaseRenewals


class Stream:
    """A model whose deltas the test sends; None ends the reply."""

    name = "stream"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.asked.set()
        while (word := await self.words.get()) is not None:
            yield TextDelta(word)
        yield Finish()


class Cluster:
    """Servers in one event loop, on one schema."""

    def __init__(self, kind: str, nats: NatsServer) -> None:
        self.kind, self.nats, self.model, self.gate = kind, nats, Stream(), Gate()
        self.servers: list[InProcessServer] = []
        agents = {**sample_agents(self.gate), "stream": Agent(self.model, name="stream")}
        live = nats.url if kind == "nats" else "postgres"
        self.options = {"store": "postgres", "store_schema": postgres_server().schema(), "grace": 0.0}
        self.options |= {"agents": agents, "live": live}


@pytest.fixture(params=["nats", "postgres"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    with run_nats() as nats:
        made = Cluster(request.param, nats)
        async with AsyncExitStack() as stack:
            for name in "abc":
                made.servers.append(await stack.enter_async_context(host_server(tmp_path / name, **made.options)))
            yield made


def streamed_text(frames: list[dict[str, Any]]) -> str:
    """The text of the first reply, as a client shows it before the reply is complete."""
    text = ""
    for frame in frames:
        data = frame["data"]["data"]
        if frame["event"] == "on_chat_model_end":
            break
        if frame["event"] == "on_chat_model_restart":
            text = data["content"]
        if frame["event"] == "on_chat_model_stream":
            text += data["delta"]
    return text


async def read_until(response: Any, found: list[dict[str, Any]], text: str) -> None:
    """Read frames until the streamed text is complete."""
    async for frame in read_frames(response):
        found.append(frame)
        if streamed_text(found) == text:
            return
    raise AssertionError(f"the stream ended before {text!r}: {found}")


async def test_readers_on_other_servers_get_every_delta_in_order(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(server)) for server in cluster.servers]
        started = await stack.enter_async_context(clients[0].post("/agents/stream/stream", json=user_message("Go.")))
        await cluster.model.asked.wait()
        run = started.headers["X-Run-Id"]
        streams = [started]
        for client in clients[1:]:
            streams.append(await stack.enter_async_context(client.get(f"/runs/{run}/events")))
        found: list[list[dict[str, Any]]] = [[] for _ in streams]
        cluster.model.words.put_nowait("Hello")
        await asyncio.gather(*(read_until(*pair, "Hello") for pair in zip(streams, found, strict=True)))
        words = [f" {number}" for number in range(200)]
        for word in words:
            cluster.model.words.put_nowait(word)
        cluster.model.words.put_nowait(None)
        for stream, frames in zip(streams, found, strict=True):
            frames += await read_events(stream)
    for frames in found:
        assert streamed_text(frames) == "Hello" + "".join(words)
        assert [frame["event"] for frame in frames[-2:]] == ["on_chat_model_end", "done"]
        assert list_ids(frames) == list_ids(found[0])
        deltas = [frame["data"]["data"]["delta"] for frame in frames if frame["event"] == "on_chat_model_stream"]
        assert deltas[-200:] == words


async def test_a_reader_that_joins_late_gets_the_open_message(cluster: Cluster) -> None:
    async with (
        open_client(cluster.servers[0]) as here,
        open_client(cluster.servers[1]) as there,
        here.post("/agents/stream/stream", json=user_message("Go.")) as started,
    ):
        run = started.headers["X-Run-Id"]
        cluster.model.words.put_nowait("One ")
        cluster.model.words.put_nowait("two")
        await read_until(started, [], "One two")
        for _ in range(2):  # the second one joins a feed that is there already
            async with there.get(f"/runs/{run}/events") as response:
                await read_until(response, [], "One two")
        async with there.get(f"/runs/{run}/events") as response:
            found: list[dict[str, Any]] = []
            await read_until(response, found, "One two")
            cluster.model.words.put_nowait(" three")
            cluster.model.words.put_nowait(None)
            found += await read_events(response)
    assert streamed_text(found) == "One two three" and found[-1]["event"] == "done"


async def test_nothing_is_published_without_a_remote_reader(cluster: Cluster) -> None:
    published: list[str] = []
    live = cluster.servers[0].service.live
    send = live.publish
    live.publish = lambda subject, data: (published.append(subject), send(subject, data))[1]  # type: ignore[method-assign]
    async with (
        open_client(cluster.servers[0]) as here,
        here.post("/agents/stream/stream", json=user_message("Go.")) as started,
    ):
        cluster.model.words.put_nowait("Hello")
        cluster.model.words.put_nowait(None)
        found = await read_events(started)
    assert streamed_text(found) == "Hello" and not published


async def test_a_run_is_cancelled_by_a_message(cluster: Cluster) -> None:
    assert all(server.service._recovery._cancel_pause() >= 5 for server in cluster.servers)
    async with open_client(cluster.servers[0]) as here, open_client(cluster.servers[1]) as there:
        for server in cluster.servers:
            await server.service._recovery.stop()
        async with here.post("/agents/gate/stream", json=user_message("One.")) as started:
            await cluster.gate.asked.wait()
            run = started.headers["X-Run-Id"]
            async with there.post(f"/runs/{run}/cancel") as cancelled:
                assert (await cancelled.json())["outcome"] == "cancelled"
            assert (await read_events(started))[-1]["data"]["data"]["outcome"] == "cancelled"
        assert not await cluster.servers[1].service.records.list("cancel")


async def test_a_user_cannot_follow_or_cancel_runs_of_another(cluster: Cluster) -> None:
    async with (
        open_client(cluster.servers[0]) as here,
        open_client(cluster.servers[1], "bob") as bob,
        here.post("/agents/gate/stream", json=user_message("One.")) as started,
    ):
        await cluster.gate.asked.wait()
        run = started.headers["X-Run-Id"]
        async with bob.get(f"/runs/{run}/events") as response:
            assert response.status == 404
        async with bob.post(f"/runs/{run}/cancel") as response:
            assert response.status == 404
        cluster.gate.answers.put_nowait("Done.")
        assert (await read_events(started))[-1]["data"]["data"]["outcome"] == "completed"


async def test_bus_events_reach_the_clients_of_other_servers(cluster: Cluster) -> None:
    async with (
        open_client(cluster.servers[0]) as here,
        open_client(cluster.servers[1]) as there,
        there.get("/agents/events") as events,
    ):
        await anext(aiter(events.content))  # the first heartbeat: it is subscribed
        async with here.post("/agents", json={"agent_id": "mine", "model": "demo"}) as created:
            assert created.status == 201, await created.text()
        async for frame in read_frames(events):
            assert (frame["event"], frame["data"]["data"]) == ("agent_created", {"agent_id": "mine"})
            break


async def test_a_run_that_moves_is_followed_at_its_new_server(cluster: Cluster, tmp_path: Path) -> None:
    async with (
        open_client(cluster.servers[1]) as there,
        host_server(tmp_path / "d", **cluster.options) as moving,
        open_client(moving) as here,
    ):
        started = await here.post("/agents/stream/stream", json=user_message("Go."))
        await cluster.model.asked.wait()
        cluster.model.words.put_nowait("Lost")
        run, found = started.headers["X-Run-Id"], list[dict[str, Any]]()
        response = await there.get(f"/runs/{run}/events")
        await read_until(response, found, "Lost")
        cluster.model.asked.clear()
        moving.server.shutdown()  # it releases the run, which another server resumes
        await cluster.model.asked.wait()
        found.clear()
        cluster.model.words.put_nowait("Found")
        await read_until(response, found, "Found")
        cluster.model.words.put_nowait(None)
        found += await read_events(response)
        started.close()
    assert found[-1]["data"]["data"]["text"] == "Found"


@pytest.mark.parametrize("cluster", ["nats"], indirect=True)  # without Postgres, runs wait
async def test_without_nats_streams_follow_the_log(cluster: Cluster) -> None:
    async with (
        open_client(cluster.servers[0]) as here,
        open_client(cluster.servers[1]) as there,
        here.post("/agents/stream/stream", json=user_message("Go.", "th_1")) as started,
    ):
        await cluster.model.asked.wait()
        run, found = started.headers["X-Run-Id"], list[dict[str, Any]]()
        async with there.get(f"/runs/{run}/events") as response:
            cluster.model.words.put_nowait("One")
            await read_until(response, found, "One")
            cluster.nats.kill()
            for server in cluster.servers:
                await wait_until(lambda server=server: _has_problem(server))
            async with there.post(
                "/threads/th_1/messages", json={"messages": user_message("More.")["messages"]}
            ) as sent:
                assert sent.status == 202
            await wait_until(lambda: _is_noticed(cluster.servers[0]))  # else another run may take the message
            cluster.model.words.put_nowait(" two")
            cluster.model.words.put_nowait(None)
            found += await read_events(response, until="on_user_message")
            cluster.nats.start()
            for server in cluster.servers:
                await wait_until(lambda server=server: _is_connected(server))
            cluster.model.words.put_nowait("Again")
            later: list[dict[str, Any]] = []
            await read_until(response, later, "Again")
            cluster.model.words.put_nowait(None)
            found += later + await read_events(response)
        assert list_ids(found) == list_ids(await read_events(started))
    assert found[-1]["data"]["data"]["text"] == "Again"


class Held:
    """A model that says a word, and ends its reply when the test allows it."""

    name = "held"

    def __init__(self) -> None:
        self.can_end = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("Hello")
        await self.can_end.wait()
        yield Finish()


@pytest.mark.parametrize("live", ["nats", "postgres", "local"])
async def test_clients_see_runs_that_two_servers_race_for(tmp_path: Path, live: str) -> None:
    """Both servers start each run. With a live plane, no run ends before its client has seen its first word."""
    model, total = Held(), 8
    with run_nats() as nats:
        options = {"store": "postgres", "store_schema": postgres_server().schema(), "grace": 0.0}
        options |= {"agents": {"held": Agent(model, name="held")}, "live": nats.url if live == "nats" else live}
        async with (
            host_server(tmp_path / "a", **options) as first,
            host_server(tmp_path / "b", **options) as second,
            open_client(first) as here,
        ):
            runs = [server.service.runs for server in (first, second)]
            start = runs[0].executor.start

            def race(user: Any, info: Any, *more: Any) -> None:
                runs[1].executor.start(user, info, runs[1]._start_next_run)
                asyncio.get_running_loop().call_later(int(info.thread[3:]) / 400, start, user, info, *more)

            runs[0].executor.start = race  # type: ignore[method-assign]
            user = (await get_json(here, "/auth/me"))["id"]

            async def follow(number: int) -> list[dict[str, Any]]:
                await runs[0].store.create(user, f"th_{number}", meta={"agent": "held"})
                found: list[dict[str, Any]] = []
                message = user_message("Go.", f"th_{number}")
                async with here.post("/agents/held/stream", json=message) as response:
                    if live != "local":
                        await read_until(response, found, "Hello")
                        seen.append(number)
                        if len(seen) == total:
                            model.can_end.set()
                    return found + await read_events(response)

            seen: list[int] = []
            if live == "local":
                asyncio.get_running_loop().call_later(1, model.can_end.set)
            streams = await asyncio.gather(*map(follow, range(total)))
    assert all(frames[-1]["data"]["data"]["text"] == "Hello" for frames in streams)
    assert all(list_ids(frames) for frames in streams)


async def _has_problem(server: InProcessServer) -> bool:
    return bool(server.service.live.problem)


async def _is_noticed(server: InProcessServer) -> bool:
    """Return True if the one run of a server knows that it has a new message."""
    [held] = LeaseRenewals.of(server.service.store)._held
    return held._inbox.is_stale


async def _is_connected(server: InProcessServer) -> bool:
    return not server.service.live.problem


async def test_a_window_at_another_server_sees_a_message_at_once(cluster: Cluster) -> None:
    """Changes are published while a window of the user is open, at whichever server."""
    async with (
        open_client(cluster.servers[0]) as here,
        open_client(cluster.servers[1]) as there,
        there.get("/events") as window,
    ):
        frames = read_frames(window)
        assert (await anext(frames))["event"] == "resync"
        await send_answer(here, "echo", user_message("Hello.", "th_elsewhere"))
        async with asyncio.timeout(30):
            async for frame in frames:
                if frame["event"] == "thread" and frame["data"]["data"]["last"] and not frame["data"]["data"]["run_id"]:
                    break
        assert frame["data"]["data"]["id"] == "th_elsewhere"
