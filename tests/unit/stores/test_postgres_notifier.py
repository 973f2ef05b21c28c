"""Notifications of a Postgres store that are sent after a release, without a database."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from wick.protocols import News
from wick.stores import postgres_notifier
from wick.stores.postgres_notifier import Notice, ThreadNotifier
from wick.stores.watchers import ThreadWatchers

KEY = ("ada", "t")


async def append_and_release() -> tuple[ThreadNotifier, list[Notice]]:
    """Return the notifier of a process that has listened, appended and released; and the notices that it has sent."""
    sent: list[Notice] = []

    async def send(notices: Sequence[Notice]) -> None:
        sent.extend(notices)

    notifier = ThreadNotifier("wick", ThreadWatchers(), send)
    notifier.set_listening(True)
    notifier.add_lease(KEY)
    notifier.report_append(KEY, News(7, 0), is_milestone=False)
    notifier.remove_lease(KEY)
    await notifier.flush()
    return notifier, sent


async def test_a_release_is_sent_while_the_interests_of_others_may_be_unknown() -> None:
    notifier, sent = await append_and_release()
    assert sent == [("wick", json.dumps([*KEY, 7, 0]))]
    await notifier.close()


async def test_a_release_is_not_sent_if_no_process_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_notifier, "SETTLED_SECONDS", 0.0)
    notifier, sent = await append_and_release()
    assert sent == []
    notifier.receive("wick_interest", json.dumps(KEY))  # it was on its way when the thread was released
    await notifier.flush()
    assert sent == [("wick", json.dumps([*KEY, 7, 0]))]
    await notifier.close()
