"""Events reach their subscribers, and a slow one does not block others."""

from __future__ import annotations

import asyncio

import pytest

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
