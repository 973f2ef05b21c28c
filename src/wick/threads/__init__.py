"""A thread: an append-only log of entries, and the state folded from it.

Entries are never changed or removed: messages, values, tool intents and tool ends are entries with a
sequence number. Appending takes constant time. `thread.current` is the state folded from the entries; see
`wick.threads.state`. A rewind is an entry, too: the entries before it stay in the log.

A stored thread has a writer, which persists appended entries in the background. `await thread.saved()`
returns when they are durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Any, Protocol
from uuid import uuid4

from wick._internal.frozen import FrozenDict, freeze
from wick.errors import StoreError
from wick.messages import Message, Messages, ToolCall
from wick.threads.branches import MessageTree
from wick.threads.state import ENTRY_KINDS, AttemptStatus, Entry, EntryKind, ThreadState, fold, select_effective

SCHEMA = 1

_STATUSES: tuple[AttemptStatus, ...] = ("unknown", "done", "failed")  # by precedence among the attempts of a call


class ThreadWriter(Protocol):
    """Persists the entries of a thread, and delivers its queued messages and answers."""

    saves_on_release: bool  # the end of a run is saved when the lease is released, before it is announced
    on_saved: Callable[[], None] | None  # called after each write: it announces the saved entries

    def write(self, entry: Entry) -> None:
        """Queue an entry for writing."""

    async def saved(self) -> None:
        """Return when all queued entries are durable; raise a StoreError if they cannot be written."""

    async def fetch_messages(self) -> Sequence[Message]:
        """Return new messages of users from the inbox, each once."""

    def discard_message(self, message: Message) -> None:
        """Remove a message from the inbox that will not be logged."""

    async def answer(self, question: str, most: float) -> FrozenDict | None:
        """Return the queued answer to a question. Wait for it up to `most` seconds, then return None."""


class Values(MutableMapping[str, Any]):
    """The values that capabilities store with a thread. Setting a value logs it; values are read-only.

    It is created on each access: a reference from the thread would be a reference cycle.
    """

    __slots__ = ("_thread",)

    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    @property
    def _data(self) -> dict[str, Any]:
        return self._thread.current.values

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._thread.append("value", {"key": key, "value": value})

    def __delitem__(self, key: str) -> None:
        self._data[key]  # raise KeyError before anything is logged
        self._thread.append("value", {"key": key})

    def put(self, key: str, item: str, value: Any) -> None:
        """Set one item of a map and log only that item, whatever the size of the map."""
        self._thread.append("value", {"key": key, "item": item, "value": value})

    def drop(self, key: str, item: str) -> None:
        """Delete one item of a map."""
        if item not in self._data[key]:
            raise KeyError(item)
        self._thread.append("value", {"key": key, "item": item})

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"Values({self._data!r})"


class Thread:
    """One conversation: a log of entries and the state folded from it."""

    __slots__ = (
        "id", "entries", "current", "messages", "writer", "saved_log", "busy", "folds", "changed_values", "_lock"
    )  # fmt: skip

    def __init__(self, id: str = "") -> None:
        self.id = id or f"th_{uuid4().hex[:12]}"
        self.entries: list[Entry] = []
        self.current = ThreadState(self.id)
        self.messages = Messages.view(self.current.messages)
        self.writer: ThreadWriter | None = None
        self.saved_log: tuple[float, int] | None = None  # creation time and length of its stored log, when released
        self.busy = False  # a run is active in this process
        self.folds: dict[object, Any] = {}  # what capabilities derive from the entries, to read each only once
        self.changed_values: dict[str, set[str] | None] = {}  # since the last event; which items, or None for all
        self._lock = Lock()  # tools in worker threads set values, too

    def __repr__(self) -> str:
        return f"Thread({self.id!r}, {len(self.entries)} entries, {len(self.messages)} messages)"

    @property
    def values(self) -> Values:
        """The values that capabilities store with the thread."""
        return Values(self)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The tool calls without a result, in the model's order."""
        return tuple(self.current.calls.waiting.values())

    @property
    def open_run(self) -> FrozenDict | None:
        """The start of the run that has not ended."""
        return self.current.runs.open

    @property
    def output_from(self) -> int:
        """The index of the first message of the open or the last run."""
        return self.current.runs.output_from

    @property
    def steps(self) -> int:
        """The number of replies in the open or the last run."""
        return self.current.runs.steps

    @property
    def questions(self) -> dict[str, FrozenDict]:
        """The open questions, by id."""
        return self.current.approvals.questions

    @property
    def answers(self) -> dict[str, FrozenDict]:
        """The answers to questions, by operation hash."""
        return self.current.approvals.answers

    @property
    def compacted(self) -> FrozenDict | None:
        """The summary of the oldest messages."""
        return self.current.compacted

    @property
    def outcome(self) -> str:
        """The outcome of the last run; empty if it is in progress, its process was killed, or there was none."""
        return self.current.runs.outcome

    @property
    def usage(self) -> dict[str, int]:
        """The token usage of all runs so far, and of the replies of one that is in progress or was killed."""
        total: dict[str, int] = {}
        runs = self.current.runs
        for spent in (*runs.usage.values(), *(reply["usage"] for reply in runs.replies)):
            for name, count in spent.items():
                total[name] = total.get(name, 0) + count
        return total

    def add(self, *messages: Message) -> None:
        """Append messages. Each one is validated against the messages before it."""
        for message in messages:
            self.append("message", message)

    def append(self, kind: EntryKind, data: Any, about: Mapping[str, Any] | None = None) -> Entry:
        """Append an entry and fold it into the state. `about` has the `model` and `usage` of a reply."""
        if kind not in ENTRY_KINDS:
            raise StoreError(f"there are no entries of the kind {kind!r}; to log something of your own, use run.record")
        if kind == "answered":
            data = {**data, "thread": self.id}  # so that an answer is not valid in a fork
        data = data if isinstance(data, Message) else freeze(data)
        with self._lock:
            entry = Entry(len(self.entries) + 1, kind, data, time.time(), freeze(about))
            self.apply(entry)
            if kind == "rewind":
                self.changed_values |= dict.fromkeys(self.current.values)
            elif kind == "value" and "item" not in entry.data:
                self.changed_values[entry.data["key"]] = None
            elif kind == "value" and (items := self.changed_values.setdefault(entry.data["key"], set())) is not None:
                items.add(entry.data["item"])
            if (writer := self.writer) is not None:  # read once: another Python thread may release it
                writer.write(entry)
        return entry

    def apply(self, entry: Entry) -> None:
        """Fold an entry and append it in memory. The store, and `changed_values`, do not get it: see `append`."""
        fold(self.current, entry, self.entries)
        self.entries.append(entry)

    async def saved(self) -> None:
        """Wait until all appended entries are durable. Return at once for a thread without a store."""
        if self.writer is not None:
            await self.writer.saved()

    async def wait_announceable(self) -> None:
        """Wait until all appended entries may be announced. A writer that announces them itself needs no wait."""
        if self.writer is not None and self.writer.on_saved is None:
            await self.writer.saved()

    async def save_end(self) -> None:
        """Wait until the end of a run is durable, unless the session of the run saves it when it closes."""
        if self.writer is not None and not self.writer.saves_on_release:
            await self.writer.saved()

    def fork(self, at: int | None = None, id: str = "") -> Thread:
        """Return a new thread with the entries up to `at`; all of them by default."""
        other = Thread(id)
        for entry in self.entries[: self._check_seq(at)]:
            other.apply(entry)
        return other

    def rewind(self, to: int) -> Entry:
        """Restore the state after the entry `to`. Later entries stay in the log without effect."""
        if self.busy:
            raise StoreError(f"a run of thread {self.id} is running; cancel it, then rewind", "conflict")
        entry = self.append("rewind", {"to": self._check_seq(to)})
        for question in [*self.questions.values()]:
            self.append("asked", question)  # stores ignore questions before a rewind
        return entry

    def switch_branch(self, message: int) -> None:
        """Return to the branch of a message that a rewind has undone, where it was left. `message` is its entry."""
        try:
            tip = MessageTree(self.entries).find_tip(message)
        except KeyError:
            raise StoreError(f"entry {message!r} of thread {self.id} is not a message", "invalid") from None
        if all(entry.seq != message for entry in self.effective_entries()):
            self.rewind(tip)

    def effective_entries(self, at: int | None = None) -> list[Entry]:
        """Return the entries up to `at` that no rewind has undone."""
        return select_effective(self.entries, self._check_seq(at))

    def _check_seq(self, at: int | None) -> int:
        if at is not None and (type(at) is not int or not 0 <= at <= len(self.entries)):
            raise StoreError(f"thread {self.id} has no entry {at!r}; they go from 1 to {len(self.entries)}", "invalid")
        return len(self.entries) if at is None else at

    def has_ended(self, run: str) -> bool:
        """Return True if a run has ended and cannot be resumed."""
        return run in self.current.runs.usage and (self.open_run is None or self.open_run["run"] != run)

    def is_waiting_for(self, call: ToolCall) -> bool:
        """Return True if exactly this call has no result yet. A later call may have the same id."""
        return self.current.calls.find(call.id) is call

    def attempt_status(self, call_id: str) -> AttemptStatus:
        """Return the status of a call: "" if it never started, "unknown" if it started and its effect is not known."""
        attempts = self.current.calls.attempts.get(call_id, ())
        return next((status for status in _STATUSES if status in attempts), "")

    def count_attempts(self, call_id: str) -> int:
        """Return how often the tool of a call was started."""
        return len(self.current.calls.attempts.get(call_id, ()))

    def hash_messages(self, messages: Sequence[Message]) -> str:
        """Return a hash of messages. The hash of the prefix shared with this thread is cached."""
        ours, links = self.current.messages, self.current.hashes
        shared = min(len(messages), len(ours))
        if list(messages[:shared]) != ours[:shared]:  # comparing lists is fast: equal references come first
            shared = next(i for i in range(shared) if messages[i] != ours[i])
        while len(links) < shared:
            links.append(_hash_link(links[-1] if links else b"", ours[len(links)]))
        link = links[shared - 1] if shared else b""
        for message in messages[shared:]:
            link = _hash_link(link, message)
        return link.hex()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "id": self.id, "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, data: Any) -> Thread:
        """Load a thread from the output of `to_json`; raise a StoreError if it is not one."""
        known = isinstance(data, dict) and data.get("schema") == SCHEMA
        if not known or not isinstance(data.get("id"), str) or not isinstance(data.get("entries"), list):
            raise StoreError(f"this is not a thread of schema {SCHEMA}, which is what this version of wick reads")
        thread = cls(data["id"])
        for row in data["entries"]:
            thread.replay(row)
        return thread

    def replay(self, row: Any) -> None:
        """Append an entry from its row, as written by `Entry.to_json`."""
        try:
            entry = Entry.from_json(row)
            if entry.seq != len(self.entries) + 1:
                raise ValueError(f"{entry.kind!r} is not valid here")
            self.apply(entry)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StoreError(f"thread {self.id}: entry {len(self.entries) + 1} cannot be read: {error}") from error


def _hash_link(before: bytes, message: Message) -> bytes:
    return sha256(before + message.digest.encode()).digest()
