"""Notifications of changed threads between the processes of a Postgres store.

A NOTIFY serializes the commits of all connections, so it is not part of a write. The changes of a short time share one
statement after their commits. The appends of a lease holder are sent only if another process has asked for them:
a watch sends the name of its thread on the channel of interests, and the lease holder replies with its position.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic

from wick.errors import StoreError
from wick.protocols import News
from wick.stores.watchers import ThreadKey, ThreadWatchers, merge_news

WINDOW_SECONDS = 0.01  # for which changes are collected
RETRY_SECONDS = 1.0  # after which changes are sent again that could not be sent
INTEREST_SECONDS = 75.0  # for which the interest of another process is remembered; it is renewed at each resync
SETTLED_SECONDS = 60.0  # of listening, after which the interests of all processes are known: they are renewed earlier
MAX_UNSENT = 10_000  # threads

Notice = tuple[str, str]  # channel and payload


class ThreadNotifier:
    """Collects the changes of one event loop, and sends them to the other processes."""

    def __init__(
        self, channel: str, watchers: ThreadWatchers, send: Callable[[Sequence[Notice]], Awaitable[None]]
    ) -> None:
        self.channel, self.interest_channel = channel, f"{channel}_interest"
        self.is_listening = False  # else the interests of other processes are unknown
        self._listening_since = 0.0
        self._watchers, self._send = watchers, send
        self._changes: dict[ThreadKey, News | None] = {}  # to be sent; None: deleted
        self._interests: set[ThreadKey] = set()  # to be sent
        self._wanted: dict[ThreadKey, float] = {}  # by other processes, until a time
        self._leased: set[ThreadKey] = set()  # by this process
        self._unsent: dict[ThreadKey, News] = {}  # changes that no other process has asked for
        self._task: asyncio.Task[None] | None = None

    # -- changes of this process --------------------------------------------------------------------------------------

    def report_change(self, key: ThreadKey, news: News | None) -> None:
        """Notify all watches of a change; None: the thread was deleted."""
        self._watchers.notify(key, news)
        before = self._changes.get(key)
        self._changes[key] = merge_news(before, news) if before is not None and news is not None else news
        self._unsent.pop(key, None)
        self._start_sending()

    def report_append(self, key: ThreadKey, news: News, is_milestone: bool) -> None:
        """Notify the watches of this process of an append; those of others only if they have asked, or at a milestone.

        A milestone is a resumed run, or a question. It reaches processes that do not know the lease holder yet.
        """
        if is_milestone or key not in self._leased:
            self.report_change(key, news)
        else:
            self._report_if_wanted(key, news)

    def report_enqueue(self, key: ThreadKey, news: News, has_holder: bool) -> None:
        """Notify the lease holder of an inbox item. Without one, the next holder reads the inbox."""
        if has_holder and key not in self._leased:
            self.report_change(key, news)
        else:
            self._report_if_wanted(key, news)

    def _report_if_wanted(self, key: ThreadKey, news: News) -> None:
        if not self.is_listening or self._wanted.get(key, 0.0) > monotonic():
            self.report_change(key, news)
            return
        self._watchers.notify(key, news)
        self._unsent[key] = news
        if len(self._unsent) > MAX_UNSENT:
            del self._unsent[next(iter(self._unsent))]

    def set_listening(self, is_listening: bool) -> None:
        """Report that this process starts or stops to receive notifications."""
        self.is_listening, self._listening_since = is_listening, monotonic()

    def add_lease(self, key: ThreadKey) -> None:
        self._leased.add(key)

    def remove_lease(self, key: ThreadKey) -> None:
        """Send the appends that were not sent, unless it is known that no process has asked for them.

        The next lease holder does not know them. A NOTIFY costs a commit here and one in each listening connection.
        """
        self._leased.discard(key)
        is_settled = self.is_listening and monotonic() - self._listening_since >= SETTLED_SECONDS
        if (unsent := self._unsent.get(key)) is not None and not is_settled:
            self.report_change(key, unsent)

    # -- changes of other processes -----------------------------------------------------------------------------------

    def request_changes(self, keys: Sequence[ThreadKey]) -> None:
        """Ask other processes for the changes of threads. Those that are leased here change only here."""
        if wanted := {key for key in keys if key not in self._leased}:
            self._interests |= wanted
            self._start_sending()

    def receive(self, channel: str, payload: str) -> None:
        """Handle a notification: a change, or the interest of a process."""
        if channel == self.channel:
            owner, id, last, inbox = json.loads(payload)
            self._watchers.notify((owner, id), None if last is None else News(last, inbox))
            return
        owner, id = json.loads(payload)
        now = monotonic()
        self._wanted = {key: until for key, until in self._wanted.items() if until > now}
        self._wanted[owner, id] = now + INTEREST_SECONDS
        if (unsent := self._unsent.get((owner, id))) is not None:  # changed before the interest was known
            self.report_change((owner, id), unsent)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _start_sending(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_later(), name="wick postgres notifier")

    async def _send_later(self) -> None:
        await asyncio.sleep(WINDOW_SECONDS)
        while self._changes or self._interests:
            try:
                await self.flush()
            except StoreError:  # a resync of the watches finds the changes if they are never sent
                await asyncio.sleep(RETRY_SECONDS)

    async def flush(self) -> None:
        """Send all collected changes in one statement."""
        changes, self._changes = self._changes, {}
        interests, self._interests = self._interests, set()
        notices = [(self.interest_channel, json.dumps(key)) for key in interests]
        notices += [
            (self.channel, json.dumps([*key, *((None, None) if news is None else (news.last, news.inbox))]))
            for key, news in changes.items()
        ]
        try:
            if notices:
                await self._send(notices)
        except BaseException:
            self._changes, self._interests = changes | self._changes, interests | self._interests
            raise

    async def close(self) -> None:
        """Send the rest, unless the database does not answer."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        with suppress(StoreError):
            await self.flush()
        self._changes, self._interests = {}, set()
