"""A thread: an append-only log of entries, and the state folded from it.

Entries are never changed or removed: messages, values, tool intents and tool ends are entries with a
sequence number. Appending takes constant time. `messages`, `values` and `pending` are folded from the
entries. A rewind is an entry, too: the entries before it stay in the log.

A stored thread has a writer, which persists appended entries in the background. `await thread.saved()`
returns when they are durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any, Literal, Protocol, get_args
from uuid import uuid4

from wick._internal.frozen import FrozenDict, freeze, thaw
from wick.errors import MessageError, StoreError
from wick.messages import Message, Messages, ToolCall

SCHEMA = 1

EntryKind = Literal[
    "message", "intent", "done", "decision", "asked", "answered", "value", "event", "run_start", "run_end",
    "compaction", "rewind",
]  # fmt: skip
_KINDS = frozenset(get_args(EntryKind))
AttemptStatus = Literal["", "failed", "done", "unknown"]


REPLY_KEYS = ("model", "usage")  # keys in the row of a reply that are not part of the message


def split_reply_row(row: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Split a row into the message and its model and usage."""
    if not isinstance(row, Mapping) or row.keys().isdisjoint(REPLY_KEYS):
        return row, None
    return {key: row[key] for key in row if key not in REPLY_KEYS}, {key: row[key] for key in REPLY_KEYS if key in row}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. `data` is a Message or read-only JSON data.

    `about` has the model and the usage of a reply. They are stored in the message's row.
    """

    seq: int
    kind: EntryKind
    data: Any
    at: float = field(default=0.0, compare=False)
    about: FrozenDict | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        data = self.data.to_json() if isinstance(self.data, Message) else thaw(self.data)
        if self.about:
            data = {**data, **thaw(self.about)}
        return {"seq": self.seq, "kind": self.kind, "at": self.at, "data": data}


class ThreadWriter(Protocol):
    """Persists the entries of a thread, and delivers its queued messages and answers."""

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

    __slots__ = ("_data", "_thread")

    def __init__(self, thread: Thread) -> None:
        self._thread, self._data = thread, thread._values

    def _log(self, kind: EntryKind, data: Any) -> None:
        self._thread.append(kind, data)

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._log("value", {"key": key, "value": value})

    def __delitem__(self, key: str) -> None:
        self._data[key]  # raise KeyError before anything is logged
        self._log("value", {"key": key})

    def put(self, key: str, item: str, value: Any) -> None:
        """Set one item of a map and log only that item, whatever the size of the map."""
        self._log("value", {"key": key, "item": item, "value": value})

    def drop(self, key: str, item: str) -> None:
        """Delete one item of a map."""
        if item not in self._data[key]:
            raise KeyError(item)
        self._log("value", {"key": key, "item": item})

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"Values({self._data!r})"


class _Items(FrozenDict):
    """A map that is set item by item. Only folding changes it. Entries never refer to it."""

    __slots__ = ()

    def fold(self, data: FrozenDict) -> None:
        if "value" in data:
            dict.__setitem__(self, data["item"], data["value"])
        else:
            dict.pop(self, data["item"], None)


class Thread:
    """One conversation: a log of entries and the state folded from it."""

    __slots__ = (
        *("id", "entries", "messages", "waiting", "attempts", "answers", "questions", "compacted", "writer"),
        *("busy", "changed_values", "open_run", "output_from", "steps", "unheard"),
        *("_items", "_values", "_results_from", "_order", "_chain", "_spent", "_lock"),
    )

    def __init__(self, id: str = "") -> None:
        self.id = id or f"th_{uuid4().hex[:12]}"
        self.entries: list[Entry] = []
        self._values: dict[str, Any] = {}
        self._items: list[Message] = []
        self.messages = Messages.view(self._items)
        self.waiting: dict[str, ToolCall] = {}  # pending calls of the last reply
        self.attempts: dict[str, list[AttemptStatus]] = {}  # the status of each attempt, by call id
        self.answers: dict[str, FrozenDict] = {}  # answers to questions, by operation hash
        self.questions: dict[str, FrozenDict] = {}  # open questions, by id
        self.compacted: FrozenDict | None = None  # the summary of the oldest messages
        self.writer: ThreadWriter | None = None
        self.open_run: FrozenDict | None = None  # the run that has started and not ended
        self.changed_values: dict[str, set[str] | None] = {}  # since the last event; which items, or None for all
        self.busy = False  # a run is active in this process
        self.output_from = 0  # index of the first message of that run
        self.unheard: tuple[tuple[Message, int], ...] = ()  # input of runs that failed to start; failures
        self.steps = 0  # number of replies in the run
        self._results_from = 0  # index of the first result of the last reply's calls
        self._order: dict[str, int] = {}
        self._chain: list[bytes] = []
        self._spent: dict[str, FrozenDict] = {}  # token usage by run
        self._lock = Lock()  # tools in worker threads set values, too

    @property
    def values(self) -> Values:
        """The values that capabilities store with the thread."""
        return Values(self)

    def __repr__(self) -> str:
        return f"Thread({self.id!r}, {len(self.entries)} entries, {len(self._items)} messages)"

    def add(self, *messages: Message) -> None:
        """Append messages. Each one is validated against the messages before it."""
        for message in messages:
            self.append("message", message)

    def append(self, kind: EntryKind, data: Any, about: Mapping[str, Any] | None = None) -> Entry:
        """Append an entry and fold it into the state. `about` has the `model` and `usage` of a reply."""
        if kind not in _KINDS:
            raise StoreError(f"there are no entries of the kind {kind!r}; to log something of your own, use run.record")
        if kind == "answered":
            data = {**data, "thread": self.id}  # so that an answer is not valid in a fork
        data = data if isinstance(data, Message) else freeze(data)
        with self._lock:
            entry = Entry(len(self.entries) + 1, kind, data, time.time(), freeze(about))
            self._fold(entry)
            self.entries.append(entry)
            if (writer := self.writer) is not None:  # read once: another Python thread may release it
                writer.write(entry)
        return entry

    async def saved(self) -> None:
        """Wait until all appended entries are durable. Return at once for a thread without a store."""
        if self.writer is not None:
            await self.writer.saved()

    def fork(self, at: int | None = None, id: str = "") -> Thread:
        """Return a new thread with the entries up to `at`; all of them by default."""
        other = Thread(id)
        for entry in self.entries[: self._check_seq(at)]:
            other._fold(entry)
            other.entries.append(entry)
        other.changed_values = {}
        return other

    def rewind(self, to: int) -> Entry:
        """Restore the state after the entry `to`. Later entries stay in the log without effect."""
        if self.busy:
            raise StoreError(f"a run of thread {self.id} is running; cancel it, then rewind", "conflict")
        entry = self.append("rewind", {"to": self._check_seq(to)})
        for question in [*self.questions.values()]:
            self.append("asked", question)  # stores ignore questions before a rewind
        return entry

    def effective_entries(self, at: int | None = None) -> list[Entry]:
        """Return the entries up to `at` that no rewind has undone."""
        effective: list[Entry] = []
        for entry in self.entries[: self._check_seq(at)]:
            if entry.kind == "rewind":
                effective = self.effective_entries(entry.data["to"])
            else:
                effective.append(entry)
        return effective

    def _check_seq(self, at: int | None) -> int:
        if at is not None and (type(at) is not int or not 0 <= at <= len(self.entries)):
            raise StoreError(f"thread {self.id} has no entry {at!r}; they go from 1 to {len(self.entries)}", "invalid")
        return len(self.entries) if at is None else at

    @property
    def usage(self) -> dict[str, int]:
        """The token usage of all runs so far."""
        total: dict[str, int] = {}
        for spent in self._spent.values():
            for name, count in spent.items():
                total[name] = total.get(name, 0) + count
        return total

    def has_ended(self, run: str) -> bool:
        """Return True if a run has ended and cannot be resumed."""
        return run in self._spent and (self.open_run is None or self.open_run["run"] != run)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The tool calls without a result, in the model's order."""
        return tuple(self.waiting.values())

    def is_waiting_for(self, call: ToolCall) -> bool:
        """Return True if exactly this call has no result yet. A later call may have the same id."""
        return self.waiting.get(call.id) is call

    def attempt_status(self, call_id: str) -> AttemptStatus:
        """Return the status of a call: "" if it never started, "unknown" if it started and its effect is not known."""
        attempts = self.attempts.get(call_id)
        return (
            "" if not attempts else next((status for status in ("unknown", "done", "failed") if status in attempts), "")
        )

    def hash_messages(self, messages: Sequence[Message]) -> str:
        """Return a hash of messages. The hash of the prefix shared with this thread is cached."""
        shared = self._shared_length(messages)
        while len(self._chain) < shared:
            self._chain.append(_hash_link(self._chain[-1] if self._chain else b"", self._items[len(self._chain)]))
        link = self._chain[shared - 1] if shared else b""
        for message in messages[shared:]:
            link = _hash_link(link, message)
        return link.hex()

    def _shared_length(self, messages: Sequence[Message]) -> int:
        most = min(len(messages), len(self._items))
        if list(messages[:most]) == self._items[:most]:  # fast: compares references first
            return most
        return next(i for i in range(most) if messages[i] != self._items[i])

    def state(self) -> dict[str, Any]:
        """Return the thread in the format of the HTTP API."""
        state = {"thread_id": self.id, "messages": self.messages.to_json()}
        return state | {key: thaw(self.values[key]) for key in ("todos", "files") if self.values.get(key)}

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
            seq, kind, data, at = row["seq"], row["kind"], row["data"], float(row["at"])
            if seq != len(self.entries) + 1 or kind not in _KINDS:
                raise ValueError(f"{kind!r} is not valid here")
            data, about = split_reply_row(data) if kind == "message" else (data, None)
            entry = Entry(seq, kind, Message.from_json(data) if kind == "message" else freeze(data), at, freeze(about))
            self._fold(entry)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StoreError(f"thread {self.id}: entry {len(self.entries) + 1} cannot be read: {error}") from error
        self.entries.append(entry)
        self.changed_values = {}  # loaded values are not new

    def _fold(self, entry: Entry) -> None:
        fold = _FOLDS.get(entry.kind)
        if fold is not None:
            fold(self, entry.data)

    def _fold_message(self, message: Message) -> None:
        if message.role == "tool":
            return self._fold_result(message)
        if self.waiting:
            names = ", ".join(call.name for call in self.waiting.values())
            raise MessageError(f"the tool calls {names} wait for their results; add these first")
        if message.role == "assistant":
            self._set_waiting(message.tool_calls)
            self._results_from, self.steps = len(self._items) + 1, self.steps + 1
        self._items.append(message)

    def _set_waiting(self, calls: tuple[ToolCall, ...]) -> None:
        waiting = {call.id: call for call in calls}
        if len(waiting) < len(calls):
            raise MessageError("two tool calls of one message have the same id")
        self.waiting = waiting
        self._order = {call.id: number for number, call in enumerate(calls)}
        self.attempts, self.answers, self.questions = {}, {}, {}

    def _fold_result(self, message: Message) -> None:
        """Insert a tool result in the order of the calls. Results arrive in any order."""
        if message.tool_call_id not in self.waiting:
            raise MessageError(f"no tool call {message.tool_call_id!r} waits for a result")
        del self.waiting[message.tool_call_id]
        order = self._order[message.tool_call_id]
        results = self._items[self._results_from :]
        index = self._results_from + sum(self._order[other.tool_call_id] < order for other in results)
        self._items.insert(index, message)
        del self._chain[index:]

    def _fold_intent(self, data: FrozenDict) -> None:
        self.attempts.setdefault(data["call"], []).append("unknown")

    def _fold_done(self, data: FrozenDict) -> None:
        attempts, attempt = self.attempts[data["call"]], data["attempt"]
        if not 0 < attempt <= len(attempts):
            raise ValueError(f"attempt {attempt} at the call {data['call']!r} never started")
        attempts[attempt - 1] = data["ended"]

    def _fold_asked(self, data: FrozenDict) -> None:
        self.questions[data["id"]] = data

    def _fold_answered(self, data: FrozenDict) -> None:
        self.questions.pop(data["id"], None)
        if data.get("thread") == self.id:  # an answer is valid in one thread only
            self.answers.setdefault(data["hash"], data)  # the first answer wins

    def _fold_value(self, data: FrozenDict) -> None:
        key, values = data["key"], self._values
        if "item" in data:
            _ensure_items(values, key, data["item"]).fold(data)
        elif "value" in data:
            values[key] = data["value"]
        else:
            values.pop(key, None)
        if "item" not in data:
            self.changed_values[key] = None
        elif (items := self.changed_values.setdefault(key, set())) is not None:
            items.add(data["item"])

    def _fold_run_start(self, data: FrozenDict) -> None:
        run, inputs, _ = data["run"], data["input"], data["guards"]
        if inputs or self.open_run is None or self.open_run["run"] != run:
            self.output_from, self.steps = len(self._items) - inputs, 0
        self.open_run, self.unheard = data, ()

    def _fold_run_end(self, data: FrozenDict) -> None:
        run, outcome, spent = data["run"], data["outcome"], data["usage"] if "usage" in data else FrozenDict()
        self._spent[run] = FrozenDict({name: int(count) for name, count in spent.items()})
        self.unheard = tuple(
            (Message.from_json(thaw(row["message"])), int(row["failures"])) for row in data.get("unheard", ())
        )
        if outcome != "interrupted":
            self.open_run, self.questions = None, {}
        elif self.open_run is not None:
            left = {key: data[key] for key in ("usage", "guards", "stopping") if key in data}
            self.open_run = FrozenDict({**self.open_run, **left})

    def _fold_compaction(self, data: FrozenDict) -> None:
        if not 0 < data["replaces"] <= len(self._items):
            raise ValueError(f"{data['replaces']} messages cannot be summed up: there are {len(self._items)}")
        Message.from_json(thaw(data["summary"]))
        self.compacted = data

    def _fold_rewind(self, data: FrozenDict) -> None:
        """Fold the effective entries again, without the answers: an answer is valid only where it was given."""
        if not 0 <= data["to"] <= len(self.entries):
            raise ValueError(f"there is no entry {data['to']} to go back to")
        before = Thread(self.id)
        for entry in self.effective_entries(data["to"]):
            before._fold(entry)
        self._items[:] = before._items
        self._values.clear()
        self._values |= before._values
        for name in _FOLDED:
            setattr(self, name, getattr(before, name))
        self.answers = {}
        self.changed_values |= dict.fromkeys(self._values)


_FOLDS: dict[EntryKind, Callable[[Thread, Any], None]] = {
    "message": Thread._fold_message,
    "intent": Thread._fold_intent,
    "done": Thread._fold_done,
    "asked": Thread._fold_asked,
    "answered": Thread._fold_answered,
    "value": Thread._fold_value,
    "run_start": Thread._fold_run_start,
    "run_end": Thread._fold_run_end,
    "compaction": Thread._fold_compaction,
    "rewind": Thread._fold_rewind,
}
_FOLDED = (
    *("waiting", "attempts", "questions", "compacted", "open_run", "output_from", "steps", "unheard"),
    *("_results_from", "_order", "_chain", "_spent"),
)


def _ensure_items(values: dict[str, Any], key: str, item: Any) -> _Items:
    """Return a value as a mutable map. A map that was set as a whole is copied once: its entry refers to it."""
    value = values.get(key, _NO_ITEMS)
    if not isinstance(value, dict) or not isinstance(item, str):
        raise ValueError(f"an item of {key!r} cannot be set: that takes a map, and a text as its name")
    if not isinstance(value, _Items):
        value = values[key] = _Items(value)
    return value


_NO_ITEMS = FrozenDict()


def _hash_link(before: bytes, message: Message) -> bytes:
    return sha256(before + message.digest.encode()).digest()
