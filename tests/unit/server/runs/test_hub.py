"""Subscribers of a run: every durable event once, and deltas while they keep up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from threading import Thread as OsThread
from typing import Any

import pytest

from kit import echo, tool_call, tool_calls_reply
from wick import Agent, FunctionModel, Message, ModelCall, Scripted, Thread, after
from wick.capabilities.sessions import Sessions
from wick.events import ChatModelEnd, ChatModelRestart, ChatModelStart, ChatModelStream, Done, ToolStream
from wick.protocols import Delta, Finish, Request, TextDelta
from wick.server.ops.redaction import RedactingEmitter, Secrets
from wick.server.runs import hub as module
from wick.server.runs.followers import HubDirectory
from wick.server.runs.frames import START, Frame, FrameBuilder, StreamPosition, parse_position
from wick.server.runs.hub import RunHub, StreamReader
from wick.server.runs.record import RunInfo
from wick.stores.in_memory import InMemory

BEAT = 5.0


def events(frames: list[Frame]) -> list[str]:
    return [frame.event.event for frame in frames]


def ids(frames: list[Frame]) -> list[str]:
    return [frame.text.split(b"\n")[0].decode()[4:] for frame in frames if frame.position is not None]


async def collect_frames(hub: RunHub, after: StreamPosition = START) -> list[Frame]:
    async with aclosing(hub.stream(StreamReader(after), BEAT)) as batches:
        return [frame async for batch in batches for frame in batch]


class Slow:
    """A model that streams a word on demand."""

    name = "slow"

    def __init__(self) -> None:
        self.words: asyncio.Queue[str] = asyncio.Queue()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        while word := await self.words.get():
            yield TextDelta(word)
        yield Finish()


class Going:
    """A running run with a hub."""

    def __init__(self, model: Any, **options: Any) -> None:
        self.store, self.thread = InMemory(), Thread("th_1")
        agent = Agent(model, hooks=[Sessions(self.store)], **options)
        self.hub = RunHub(self.thread, "r", 0)
        emit = RedactingEmitter(Secrets(), self.hub.emit, audience=self.hub)
        self.stream = agent.stream("Go.", thread=self.thread, emit=emit)
        self.stream.run.id = "r"
        self.task = asyncio.create_task(self._go())

    async def _go(self) -> None:
        try:
            await self.stream.finish()
        finally:
            self.hub.finish("ended")
            await self.store.close()


async def test_all_subscribers_get_the_same_events() -> None:
    going = Going(Scripted(tool_calls_reply(tool_call()), "All done."), tools=[echo])
    first, second = await asyncio.gather(collect_frames(going.hub), collect_frames(going.hub))
    await going.task
    assert [frame.text for frame in first] == [frame.text for frame in second]
    assert events(first)[0] == "on_chat_model_start" and events(first)[-1] == "done"
    assert events(first).count("on_tool_end") == events(first).count("on_tool_start") == 1
    assert events(first).count("done") == 1 and ids(first) == sorted(set(ids(first)), key=parse_position)
    deltas = "".join(frame.event.delta for frame in first if isinstance(frame.event, ChatModelStream))
    assert deltas.endswith("All done.")


async def test_a_run_that_ends_before_its_follower_wakes_is_not_read_from_the_log() -> None:
    """A busy event loop wakes a follower only after its run was published, has ended and was removed."""
    going, directory = Going(Scripted("All done.")), HubDirectory()
    directory.expect("ada", going.hub, is_leased=True)
    following = asyncio.create_task(directory.wait_published(RunInfo("r", "ada", "th_1", "echo")))
    await going.task
    assert not following.done()
    directory.publish("ada", going.hub)
    directory.remove("ada", going.hub)
    assert await following is going.hub and directory.find(RunInfo("r", "ada", "th_1", "echo")) is None


async def test_a_run_that_never_starts_is_followed_in_the_log() -> None:
    hub, directory = RunHub(Thread("th_1"), "r", 0), HubDirectory()
    directory.expect("ada", hub, is_leased=True)
    following = asyncio.create_task(directory.wait_published(RunInfo("r", "ada", "th_1", "echo")))
    await asyncio.sleep(0)
    hub.finish("ended")
    directory.remove("ada", hub)
    assert await following is None


async def test_a_late_subscriber_gets_all_durable_events() -> None:
    going = Going(Scripted(tool_calls_reply(tool_call()), "All done."), tools=[echo])
    await going.task
    late, live = await collect_frames(going.hub), [frame async for frame in _positioned_frames(going)]
    assert [frame.text for frame in late] == [frame.text for frame in live] and events(late)[-1] == "done"
    for number, id in enumerate(ids(late), 1):
        assert ids(await collect_frames(going.hub, parse_position(id))) == ids(late)[number:]


async def _positioned_frames(going: Going) -> AsyncIterator[Frame]:
    for frame in await collect_frames(going.hub):
        if frame.position is not None:
            yield frame


async def test_a_late_subscriber_gets_the_open_message() -> None:
    model = Slow()
    going = Going(model)
    early: list[Frame] = []

    async def read_early() -> None:
        early.extend(await collect_frames(going.hub))

    reading = asyncio.create_task(read_early())
    model.words.put_nowait("Hello ")
    model.words.put_nowait("wor")
    while going.hub.message.text != "Hello wor":
        await asyncio.sleep(0.001)
    joining = asyncio.create_task(collect_frames(going.hub))
    await asyncio.sleep(0.01)
    model.words.put_nowait("ld.")
    model.words.put_nowait("")
    late = await joining
    await asyncio.gather(reading, going.task)
    assert events(late) == ["on_chat_model_restart", "on_chat_model_stream", "on_chat_model_end", "done"]
    assert isinstance(late[0].event, ChatModelRestart) and late[0].event.content == "Hello wor"
    assert events(early).count("on_chat_model_stream") == 3 and ids(early) == ids(late)


async def test_a_reader_that_joins_before_the_first_text_gets_the_start() -> None:
    model = Slow()
    going = Going(model)
    while not going.hub.message.is_open:
        await asyncio.sleep(0.001)
    joining = asyncio.create_task(collect_frames(going.hub))
    await asyncio.sleep(0.01)
    model.words.put_nowait("Hello.")
    model.words.put_nowait("")
    late = await joining
    await going.task
    assert events(late) == ["on_chat_model_start", "on_chat_model_stream", "on_chat_model_end", "done"]


async def test_a_slow_subscriber_is_notified_and_gets_all_durable_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READER_FRAMES", 5)
    model = Slow()
    going = Going(model)
    found: list[Frame] = []
    async with aclosing(going.hub.stream(StreamReader(START), BEAT)) as batches:
        await anext(batches)  # joined
        for number in range(50):
            model.words.put_nowait(f"{number} ")
        await _until(lambda: (going.hub.message.text or "").endswith("49 "))
        async for batch in batches:
            found += batch
            if found and found[-1].event.event == "on_chat_model_restart":
                break
        assert events(found)[-2:] == ["resync", "on_chat_model_restart"]
        assert found[-1].event.content == "".join(f"{number} " for number in range(50))  # type: ignore[attr-defined]
        model.words.put_nowait("")
        found += [frame async for batch in batches for frame in batch]
    await going.task
    assert events(found)[-2:] == ["on_chat_model_end", "done"]


async def _until(check: Any) -> None:
    for _ in range(5000):
        if check():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


async def test_a_reader_that_never_reads_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READER_BYTES", 10_000)
    reader = StreamReader(START)
    hub = RunHub(Thread("th_1"), "r", 0)
    hub._attach(reader)
    hub.emit(ChatModelStart("r", "m", 1))
    for _ in range(1000):
        hub.emit(ChatModelStream("r", "m", "x" * 1000))
        assert sum(len(frame.text) for frame in reader.queue) <= 12_000
    assert reader.behind and not reader.queue


async def test_an_idle_stream_sends_keep_alives() -> None:
    hub = RunHub(Thread("th_1"), "r", 0)
    async with aclosing(hub.stream(StreamReader(START), 0.01)) as batches:
        assert [await anext(batches) for _ in range(3)] == [[], [], []]
        hub.finish("stopped")
        assert [batch async for batch in batches] in ([], [[]])


@pytest.mark.parametrize("end", ["elsewhere", "stopped"])
async def test_a_foreign_terminal_event_is_not_sent(end: Any) -> None:
    hub = RunHub(Thread("th_1"), "r", 0)
    listening = asyncio.create_task(collect_frames(hub))
    await asyncio.sleep(0)
    hub.emit(Done("r"))
    hub.finish(end)
    assert await listening == [] and await collect_frames(hub) == []


async def test_a_terminal_event_missing_in_the_log_is_sent() -> None:
    hub = RunHub(Thread("th_1"), "r", 0)
    listening = asyncio.create_task(collect_frames(hub))
    await asyncio.sleep(0)
    hub.emit(Done("r", outcome="stopped", reason="blocked: no"))
    hub.finish("ended")
    for found in (await listening, await collect_frames(hub)):
        assert events(found) == ["done"] and found[0].position is None


async def test_deltas_after_a_complete_message_are_dropped() -> None:
    """A reply replaced by hooks is announced after it was logged: the log has sent it by then."""

    @after(ModelCall)
    def shout(op: ModelCall) -> None:
        op.result = Message("assistant", op.result.text.upper())

    store, thread = InMemory(), Thread("th_2")
    hub = RunHub(thread, "r", 0)
    stream = Agent(Scripted("hello"), hooks=[Sessions(store), shout]).stream("Go.", thread=thread, emit=hub.emit)
    stream.run.id = "r"
    listening = asyncio.create_task(collect_frames(hub))
    await stream.finish()
    hub.finish("ended")
    found = await listening
    assert "on_chat_model_restart" not in events(found)
    (end,) = [frame for frame in found if isinstance(frame.event, ChatModelEnd)]
    assert json.loads(end.text.decode().split("data: ")[1])["data"]["message"]["content"] == "HELLO"
    await store.close()


async def test_without_readers_no_frame_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    real = FrameBuilder.build_frames

    def build(self: FrameBuilder, row: Any, after: StreamPosition = START) -> list[Frame]:
        built.append(row["seq"])
        return real(self, row, after)

    monkeypatch.setattr(FrameBuilder, "build_frames", build)
    store, thread = InMemory(), Thread("th_1")
    hub = RunHub(thread, "r", 0)
    agent = Agent(FunctionModel(lambda request: "hello"), hooks=[Sessions(store)])
    stream = agent.stream("Go.", thread=thread, emit=hub.emit)
    stream.run.id = "r"
    await stream.finish()
    hub.finish("ended")
    assert built == [] and hub.has_started
    assert events(await collect_frames(hub)) == ["on_chat_model_end", "done"]
    assert built == [entry.seq for entry in thread.entries]
    await store.close()


async def test_without_readers_no_event_of_a_reply_or_a_tool_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = list[str]()
    monkeypatch.setattr(RunHub, "_handle_event", lambda hub, event: built.append(event.event))
    going = Going(Scripted(tool_calls_reply(tool_call()), "All done."), tools=[echo])
    await going.task
    assert built == ["on_chat_model_start", "on_chat_model_start", "done"]


async def test_events_of_other_threads_are_accepted() -> None:
    hub = RunHub(Thread("th_1"), "r", 0)
    listening = asyncio.create_task(collect_frames(hub))
    await asyncio.sleep(0)
    worker = OsThread(target=lambda: [hub.emit(ToolStream("r", "t", "c", str(n))) for n in range(100)])
    worker.start()
    while worker.is_alive():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    hub.emit(Done("r"))
    hub.finish("ended")
    found = await listening
    assert [frame.event.delta for frame in found[:-1]] == [str(n) for n in range(100)]  # type: ignore[attr-defined]


async def test_unsaved_events_are_not_sent() -> None:
    """An entry that is appended and not on disk yet is no frame."""
    saving = asyncio.Event()

    class Late(InMemory):
        async def append(self, *args: Any, **options: Any) -> int:
            await saving.wait()
            return await super().append(*args, **options)

    store, thread = Late(), Thread("th_1")
    hub = RunHub(thread, "r", 0)
    agent = Agent(FunctionModel(lambda request: "hello"), hooks=[Sessions(store)])
    stream = agent.stream("Go.", thread=thread, emit=hub.emit)
    stream.run.id = "r"
    running = asyncio.create_task(stream.finish())
    await _until(lambda: len(thread.entries) >= 2)
    hub.flush()
    assert hub._sent == 0
    saving.set()
    await running
    hub.finish("ended")
    assert events(await collect_frames(hub)) == ["on_chat_model_end", "done"]
    await store.close()
