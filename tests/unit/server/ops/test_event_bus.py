"""Events reach their subscribers, and a slow one does not block others."""

from __future__ import annotations

import asyncio

import pytest

from wick.server.live.local import LocalLive
from wick.server.ops.event_bus import MAX_PENDING, BusEvent, EventBus


async def test_events_are_for_all_or_one_user() -> None:
    bus = EventBus()
    with bus.subscribe("ada") as ada, bus.subscribe("bob") as bob:
        bus.publish("tools_changed", {"registered": "x"})
        bus.publish("agent_created", {"agent_id": "hers"}, owner="ada")
        assert await ada.receive() == [
            BusEvent("tools_changed", {"registered": "x"}),
            BusEvent("agent_created", {"agent_id": "hers"}),
        ]
        assert await bob.receive() == [BusEvent("tools_changed", {"registered": "x"})]


async def test_some_news_are_for_operators() -> None:
    bus = EventBus()
    with bus.subscribe("ada") as ada, bus.subscribe("olga", operator=True) as olga:
        bus.publish("config_error", {"message": "line 2"}, operators=True)
        bus.publish("config_reloaded", {})
        assert [news.kind for news in await ada.receive()] == ["config_reloaded"]
        assert [news.kind for news in await olga.receive()] == ["config_error", "config_reloaded"]


async def test_events_before_a_subscription_are_missed() -> None:
    bus = EventBus()
    bus.publish("early", {})
    with bus.subscribe("ada") as ada:
        bus.publish("now", {})
        assert [news.kind for news in await ada.receive()] == ["now"]
    bus.publish("late", {})


async def test_a_slow_subscriber_is_asked_to_refetch() -> None:
    bus = EventBus()
    with bus.subscribe("ada") as ada:
        for number in range(MAX_PENDING + 5):
            bus.publish("container_status", {"number": number})
        found = await ada.receive()
        assert found[0].kind == "resync" and len(found) < 10
        assert found[-1].data == {"number": MAX_PENDING + 4}


async def test_a_reader_waits_until_there_is_something() -> None:
    bus = EventBus()
    with bus.subscribe("ada") as ada:
        waiting = asyncio.create_task(ada.receive())
        await asyncio.sleep(0)
        assert not waiting.done()
        bus.publish("now", {})
        assert [news.kind for news in await waiting] == ["now"]


@pytest.mark.parametrize("before", [True, False])
async def test_a_bus_that_is_closed_ends_its_readers(before: bool) -> None:
    bus = EventBus()
    if before:
        bus.close()
    with bus.subscribe("ada") as ada:
        bus.close()
        assert await ada.receive() == []
        assert await ada.receive() == []


async def test_changes_of_threads_are_for_windows_of_their_owner() -> None:
    bus = EventBus()
    bus.publish_change("ada", "thread_changed", {"thread_id": "early"})
    with bus.subscribe("ada", window=True) as window, bus.subscribe("ada") as other, bus.subscribe("bob", window=True):
        assert bus.is_awaited("ada") and not bus.is_awaited("eve")
        bus.publish_change("bob", "thread_changed", {"thread_id": "his"})
        bus.publish_change("ada", "thread_changed", {"thread_id": "hers"})
        bus.publish("tools_changed", {})
        assert [(one.kind, one.data.get("thread_id")) for one in await window.receive()] == [
            ("thread_changed", "hers"),
            ("tools_changed", None),
        ]
        assert [one.kind for one in await other.receive()] == ["tools_changed"]
    assert not bus.is_awaited("ada")


class CountingLive(LocalLive):
    """A live plane that counts messages and may lose the next one."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.published: list[str] = []
        self.loses = False

    def publish(self, subject: str, data: bytes) -> None:
        self.published.append(subject)
        if self.loses:
            self.loses = False
        else:
            super().publish(subject, data)


async def test_a_window_at_another_server_gets_changes_and_nothing_is_sent_without_one() -> None:
    live, here, there = CountingLive(), EventBus(), EventBus()
    here.connect(live)
    there.connect(live)
    here.publish_change("ada", "thread_changed", {"thread_id": "early"})
    assert live.published == []
    with there.subscribe("ada", window=True) as window:
        await asyncio.sleep(0.01)
        assert here.is_awaited("ada") and not here.is_awaited("bob")
        here.publish_change("ada", "thread_changed", {"thread_id": "t1"})
        assert [dict(one.data) for one in await window.receive()] == [{"thread_id": "t1"}]
        live.loses = True
        here.publish_change("ada", "thread_changed", {"thread_id": "lost"})
        here.publish_change("ada", "thread_changed", {"thread_id": "t3"})
        assert [one.kind for one in await window.receive()] == ["resync", "thread_changed"]
    there.close()
    here.close()
