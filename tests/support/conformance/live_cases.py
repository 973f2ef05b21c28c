"""Cases that every live plane must pass. The importing module has a fixture `pair`: two servers of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wick.constants import LIVE_BYTES
from wick.server.live import LiveConnection

Pair = tuple[LiveConnection, LiveConnection]


class Inbox:
    """Received messages, which a test waits for."""

    def __init__(self, reply: bytes | None = None) -> None:
        self.messages: list[bytes] = []
        self._reply, self._changed = reply, asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, data: bytes) -> bytes | None:
        self.messages.append(data)
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return self._reply

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(check)


async def connect(there: LiveConnection, here: LiveConnection, subject: str) -> Inbox:
    """Subscribe `here`, and wait until messages of `there` arrive."""
    inbox = Inbox(b"pong")
    here.subscribe(subject, inbox)
    async with asyncio.timeout(30):
        while await there.request(subject, b"ping", 0.2) is None:
            await asyncio.sleep(0.02)
    await inbox.wait(lambda: b"ping" in inbox.messages)
    inbox.messages.clear()
    return inbox


async def test_messages_arrive_in_order_and_unchanged(pair: Pair) -> None:
    inbox = await connect(pair[0], pair[1], "run.one")
    sent = [b"", bytes(range(256)), "ä\0".encode(), *(b"%d" % number for number in range(500)), b"same", b"same"]
    for data in sent:
        pair[0].publish("run.one", data)
    await inbox.wait(lambda: len(inbox.messages) >= len(sent))
    assert inbox.messages == sent


async def test_a_server_receives_its_own_messages_and_several_receivers_get_each(pair: Pair) -> None:
    own, other = await connect(pair[1], pair[0], "run.one"), Inbox()
    pair[0].subscribe("run.one", other)
    pair[0].publish("run.one", b"1")
    await own.wait(lambda: b"1" in own.messages)
    await other.wait(lambda: b"1" in other.messages)
    assert own.messages == [b"1"] and other.messages[-1] == b"1"


async def test_subjects_are_separate(pair: Pair) -> None:
    one, two = await connect(pair[0], pair[1], "run.one"), await connect(pair[0], pair[1], "run.two")
    pair[0].publish("run.one", b"1")
    pair[0].publish("run.two", b"2")
    await two.wait(lambda: b"2" in two.messages)
    await one.wait(lambda: b"1" in one.messages)
    assert (one.messages, two.messages) == ([b"1"], [b"2"])


async def test_nothing_arrives_after_the_subscription_ended(pair: Pair) -> None:
    gone = Inbox()
    stop = pair[1].subscribe("run.one", gone)
    stop()
    stop()
    inbox = await connect(pair[0], pair[1], "run.one")
    pair[0].publish("run.one", b"1")
    await inbox.wait(lambda: b"1" in inbox.messages)
    assert gone.messages == []


async def test_a_request_gets_the_reply_of_the_other_server(pair: Pair) -> None:
    inbox = await connect(pair[0], pair[1], "held.one")
    assert await pair[0].request("held.one", b"question", 30) == b"pong"
    assert inbox.messages == [b"question"]


async def test_requests_at_the_same_time_get_their_own_replies(pair: Pair) -> None:
    pair[1].subscribe("held.one", lambda data: b"re: " + data)
    await connect(pair[0], pair[1], "held.two")
    replies = await asyncio.gather(*(pair[0].request("held.one", b"%d" % number, 30) for number in range(50)))
    assert replies == [b"re: %d" % number for number in range(50)]


async def test_a_request_without_a_reply_returns_none(pair: Pair) -> None:
    pair[1].subscribe("held.silent", lambda data: None)
    await connect(pair[0], pair[1], "held.one")
    assert await pair[0].request("held.silent", b"", 0.3) is None
    assert await pair[0].request("held.nobody", b"", 0.3) is None


async def test_large_messages_arrive_whole_and_larger_ones_are_dropped(pair: Pair) -> None:
    inbox = await connect(pair[0], pair[1], "run.one")
    large = bytes(number % 251 for number in range(LIVE_BYTES))
    pair[0].publish("run.one", large + b"x")
    pair[0].publish("run.one", large)
    pair[0].publish("run.one", b"next")
    await inbox.wait(lambda: b"next" in inbox.messages)
    assert inbox.messages == [large, b"next"]
    assert await pair[0].request("run.one", large + b"x", 0.3) is None


async def test_a_failing_receiver_stops_nothing(pair: Pair) -> None:
    def fail(data: bytes) -> None:
        raise RuntimeError("a bug")

    pair[1].subscribe("run.one", fail)
    inbox = await connect(pair[0], pair[1], "run.one")
    pair[0].publish("run.one", b"1")
    pair[0].publish("run.one", b"2")
    await inbox.wait(lambda: len(inbox.messages) == 2)
    assert inbox.messages == [b"1", b"2"] and not pair[1].problem
