"""Feeds of runs that another server performs: order, gaps, new lease holders, slow readers and invalid messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest

from wick.constants import LIVE_BYTES
from wick.events import ChatModelEnd, ChatModelStart, ChatModelStream, Event, ToolStream
from wick.server.live.local import LocalLive
from wick.server.runs import live_feed as module
from wick.server.runs.live_feed import FeedReader, RunFeeds
from wick.server.runs.live_messages import (
    HolderRequest,
    LiveBatch,
    LiveItem,
    decode_event,
    encode_event_fields,
    encode_message,
    frames_subject,
    holder_subject,
)
from wick.server.runs.live_outlet import LiveOutlet
from wick.server.runs.open_message import OpenMessage
from wick.server.runs.record import RunInfo

RUN, OWNER = "run_1", "ada"


class Holder:
    """The hub of a run, without the run."""

    def __init__(self, live: LocalLive, fence: int = 1) -> None:
        self.run, self.message, self.sent = RUN, OpenMessage(), 0
        self.cancelled: list[bool] = []
        self.outlet = LiveOutlet(
            live, self, OWNER, fence, cancel=lambda: self.cancelled.append(True), read_inbox=lambda: None
        )

    def flush(self) -> None:
        pass

    def emit(self, event: Event) -> None:
        if event.run_id == RUN:
            self.message.track(event)
        self.outlet.send(event)

    def say(self, *words: str) -> None:
        for word in words:
            self.emit(ChatModelStream(RUN, delta=word))

    def log(self, at: int, *, closes: bool = False) -> None:
        self.sent = at
        if closes:
            self.message.close()
        self.outlet.send(None)


class Reader:
    """A reader that collects what it gets: places, and the texts of frames."""

    def __init__(self, feeds: RunFeeds) -> None:
        self._woken = asyncio.Event()
        self.queue: FeedReader = feeds.join(RunInfo(RUN, OWNER, "th_1", "agent"), self._woken.set)
        self.found: list[tuple[float, str]] = []

    async def read(self, until: tuple[float, str]) -> list[tuple[float, str]]:
        """Return the items up to this one."""
        async with asyncio.timeout(10):
            while until not in self.found:
                for at, frame in self.queue.take():
                    self.found.append((at, "" if frame is None else describe(frame.event)))
                if until not in self.found:
                    await self._woken.wait()
                    self._woken.clear()
        found, self.found = self.found, []
        return found


def describe(event: Event) -> str:
    data: dict[str, Any] = event.data()
    return str(data.get("delta") or data.get("content") or event.event)


@pytest.fixture
async def live() -> LocalLive:
    return LocalLive(is_shared=True)


@pytest.fixture
async def feeds(live: LocalLive) -> AsyncIterator[RunFeeds]:
    made = RunFeeds(live)
    yield made
    await made.close()


async def test_events_come_with_their_place_in_the_log(live: LocalLive, feeds: RunFeeds) -> None:
    holder, reader = Holder(live), Reader(feeds)
    holder.log(2)
    holder.emit(ChatModelStart(RUN, step=1))
    assert await reader.read((2, "on_chat_model_start")) == [(inf, ""), (2, "on_chat_model_start")]
    holder.say("Hel", "lo")
    holder.log(3, closes=True)
    holder.emit(ToolStream(RUN, call_id="c1", delta="output"))
    assert await reader.read((3, "output")) == [(2, "Hel"), (2, "lo"), (3, ""), (3, "output")]
    holder.outlet.close()
    assert await reader.read((inf, "")) == [(3, ""), (inf, "")]
    reader.queue.close()


async def test_a_joining_reader_gets_the_open_reply_from_its_beginning(live: LocalLive, feeds: RunFeeds) -> None:
    holder = Holder(live)
    holder.emit(ChatModelStart(RUN, step=1))
    holder.say("One", " two")
    first = Reader(feeds)
    assert (await first.read((0, "One two")))[-1] == (0, "One two")
    holder.say(" three")
    await first.read((0, " three"))
    second = Reader(feeds)
    assert await second.read((0, "One two three")) == [(0, "One two three")]
    first.queue.close()
    second.queue.close()


async def test_nothing_is_published_unless_a_reader_asks(live: LocalLive, feeds: RunFeeds) -> None:
    holder, published = Holder(live), list[bytes]()
    live.subscribe(frames_subject(RUN), published.append)
    holder.say("unheard")
    await asyncio.sleep(0)
    assert not published
    reader = Reader(feeds)
    await reader.read((0, ""))
    holder.say("heard")
    await reader.read((0, "heard"))
    assert len(published) == 1
    reader.queue.close()


async def test_a_lost_batch_leads_to_a_resync(live: LocalLive, feeds: RunFeeds) -> None:
    holder, reader = Holder(live), Reader(feeds)
    holder.emit(ChatModelStart(RUN, step=1))
    await reader.read((0, "on_chat_model_start"))
    send, live.publish = live.publish, lambda subject, data: None  # type: ignore[method-assign]
    holder.say("lost")
    await asyncio.sleep(0)
    live.publish = send  # type: ignore[method-assign]
    holder.say(" and", " found")
    assert (await reader.read((0, "lost and found")))[-2:] == [(0, "resync"), (0, "lost and found")]
    holder.say("!")
    assert await reader.read((0, "!")) == [(0, "!")]
    reader.queue.close()


async def test_an_event_that_is_too_large_leads_to_a_resync(live: LocalLive, feeds: RunFeeds) -> None:
    holder, reader = Holder(live), Reader(feeds)
    await reader.read((0, ""))
    holder.emit(ChatModelEnd("run_child", message={"content": "x" * LIVE_BYTES}))
    assert (0, "resync") in await reader.read((0, "resync"))
    holder.emit(ToolStream(RUN, call_id="c1", delta="next"))
    assert (await reader.read((0, "next")))[-1] == (0, "next")
    reader.queue.close()


async def test_a_reply_that_is_too_large_is_left_out_until_the_next(live: LocalLive, feeds: RunFeeds) -> None:
    holder = Holder(live)
    holder.emit(ChatModelStart(RUN, step=1))
    holder.say("x" * LIVE_BYTES)
    reader = Reader(feeds)
    await reader.read((0, ""))
    holder.say("middle")
    holder.log(1, closes=True)
    holder.emit(ChatModelStart(RUN, step=2))
    holder.say("next")
    assert await reader.read((1, "next")) == [(0, ""), (1, ""), (1, "on_chat_model_start"), (1, "next")]
    reader.queue.close()


async def test_a_slow_reader_drops_its_queue_and_joins_again(
    live: LocalLive, feeds: RunFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READER_FRAMES", 5)
    holder, slow, other = Holder(live), Reader(feeds), Reader(feeds)
    holder.emit(ChatModelStart(RUN, step=1))
    await slow.read((0, "on_chat_model_start"))
    for number in range(20):
        holder.say(str(number))
        await other.read((0, str(number)))
    text = "".join(map(str, range(20)))
    assert await slow.read((0, text)) == [(0, "resync"), (0, text)]
    slow.queue.close()
    other.queue.close()


async def test_a_new_lease_holder_replaces_the_old_one(live: LocalLive, feeds: RunFeeds) -> None:
    old, reader = Holder(live, fence=1), Reader(feeds)
    old.emit(ChatModelStart(RUN, step=1))
    old.say("old")
    await reader.read((0, "old"))
    new = Holder(live, fence=2)
    new.outlet._receive(encode_message(HolderRequest(action="follow", owner=OWNER)))  # another server reads it
    new.emit(ChatModelStart(RUN, step=1))
    new.say("new")
    old.say("stale")
    assert (await reader.read((0, "new")))[-1] == (0, "new")
    old.say("stale")
    new.say("er")
    assert await reader.read((0, "er")) == [(0, "er")]
    reader.queue.close()


async def test_a_holder_that_the_log_has_left_behind_is_not_waited_for(
    live: LocalLive, feeds: RunFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIVE_LATE_SECONDS", 0.01)
    Holder(live)
    reader = Reader(feeds)
    await reader.read((0, ""))
    reader.queue.check_log(5)
    assert await reader.read((inf, "")) == [(inf, "")]
    reader.queue.close()


async def test_a_holder_that_does_not_reply_is_left(
    live: LocalLive, feeds: RunFeeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIVE_REFRESH_SECONDS", 0.01)
    holder, reader = Holder(live), Reader(feeds)
    await reader.read((0, ""))
    holder.outlet._unsubscribe()  # as if its process was killed
    assert (await reader.read((inf, "")))[-1] == (inf, "")
    reader.queue.close()


async def test_requests_of_others_are_not_followed(live: LocalLive) -> None:
    holder = Holder(live)
    for data in (b"", b"[]", b"\xff", b'{"action": "destroy", "owner": "ada"}', b'{"action": "cancel"}'):
        assert await live.request(holder_subject(RUN), data, 1) is None
    wrong = [HolderRequest(action="cancel", owner="bob"), HolderRequest(action="cancel", owner=OWNER, fence=2)]
    for request in wrong:
        assert await live.request(holder_subject(RUN), encode_message(request), 1) is None
    assert not holder.cancelled
    assert await live.request(holder_subject(RUN), encode_message(HolderRequest(action="cancel", owner=OWNER)), 1)
    assert holder.cancelled == [True]


async def test_invalid_batches_are_ignored(live: LocalLive, feeds: RunFeeds) -> None:
    holder, reader = Holder(live), Reader(feeds)
    await reader.read((0, ""))
    items = [
        LiveItem(at=0, is_open=True, event={"event": "done", "run_id": RUN}),
        LiveItem(at=0, is_open=True, event={"event": "on_chat_model_end", "run_id": RUN}),
        LiveItem(at=0, is_open=True, event={"event": "on_tool_stream", "delta": ["a"]}),
        LiveItem(at=0, is_open=True, event={"event": "on_tool_stream", "unknown": 1}),
    ]
    for data in (b"", b"null", b'{"fence": "x"}', b'{"fence": 1, "number": 1, "items": [{"at": -1}]}'):
        live.publish(frames_subject(RUN), data)
    live.publish(frames_subject(RUN), encode_message(LiveBatch(fence=0, number=9, items=items[:1])))
    holder.say("fine")
    assert await reader.read((0, "fine")) == [(0, "fine")]
    assert [decode_event(item.event or {}, RUN) for item in items[:3]] == [None] * 3
    reader.queue.close()


def test_events_survive_the_wire() -> None:
    event = ChatModelStream(RUN, "model", delta="ä", kind="tool_args", index=0)
    fields = encode_event_fields(event)
    assert decode_event(fields | {"index": 0}, RUN) == event
    assert decode_event(encode_event_fields(ChatModelEnd("child", message={"a": [1]})), RUN) is not None
