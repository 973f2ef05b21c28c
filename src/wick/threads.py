"""A thread: an append-only log of what happened, and the state folded from it.

Nothing is ever changed or removed: a message, a value, a tool's intent and its end are entries with a
sequence number. Appending costs the same whatever the thread's length. `messages`, `values`, `pending`
are what the entries add up to. To rewind is an entry too: what it goes back behind stays in the log.

A thread that has a keeper is kept somewhere: what is appended is on its way there, and `await thread.saved()`
returns when it has arrived.
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


REPLY_KEYS = ("model", "usage")  # what the row of a reply has beside the message


def split_reply_row(row: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return the message of a row, and what the row says about it."""
    if not isinstance(row, Mapping) or row.keys().isdisjoint(REPLY_KEYS):
        return row, None
    return {key: row[key] for key in row if key not in REPLY_KEYS}, {key: row[key] for key in REPLY_KEYS if key in row}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. `data` is a Message, or read-only JSON data.

    `about` has the model and the usage of a reply. They are in the same row as the message, and no part of it.
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
    """Where a thread is kept."""

    def write(self, entry: Entry) -> None:
        """Take an entry, to be written soon."""

    async def saved(self) -> None:
        """Return when all that was taken is written; raise a StoreError if it cannot be."""

    async def fetch_messages(self) -> Sequence[Message]:
        """What users have said to this thread meanwhile, each once."""

    def discard_message(self, message: Message) -> None:
        """What was said and is not going to be in the log."""

    async def answer(self, question: str, most: float) -> FrozenDict | None:
        """What somebody has said to a question, waiting a while for it, at most so many seconds; None if nobody has."""


class Values(MutableMapping[str, Any]):
    """What capabilities keep with a thread. Setting a value logs it; what was set is read-only.

    It is a view: a thread that held it would hold itself, and nothing but a search for garbage would ever free it.
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
        self._data[key]  # an unknown key is a KeyError, and nothing is logged
        self._log("value", {"key": key})

    def put(self, key: str, item: str, value: Any) -> None:
        """Set one item of a map, and log that item alone: what it costs does not grow with the map."""
        self._log("value", {"key": key, "item": item, "value": value})

    def drop(self, key: str, item: str) -> None:
        """Take one item out of a map."""
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
    """A map that is set item by item. Only folding changes it; it is no part of an entry, so the log stays as it is."""

    __slots__ = ()

    def fold(self, data: FrozenDict) -> None:
        if "value" in data:
            dict.__setitem__(self, data["item"], data["value"])
        else:
            dict.pop(self, data["item"], None)


class Thread:
    """One conversation."""

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
        self.waiting: dict[str, ToolCall] = {}  # the calls of the last reply that nobody has answered yet
        self.attempts: dict[str, list[AttemptStatus]] = {}  # how each attempt at such a call ended
        self.answers: dict[str, FrozenDict] = {}  # what was said to a question, by the hash it was about
        self.questions: dict[str, FrozenDict] = {}  # what nobody has answered yet, by its id
        self.compacted: FrozenDict | None = None  # what stands for the oldest messages, if somebody has summed them up
        self.writer: ThreadWriter | None = None
        self.open_run: FrozenDict | None = None  # the run that has started and not ended, or was interrupted
        self.changed_values: dict[
            str, set[str] | None
        ] = {}  # the values set since somebody announced them, or which items
        self.busy = False  # a run is going on here and now
        self.output_from = 0  # where that run's messages begin
        self.unheard: tuple[tuple[Message, int], ...] = ()  # inputs of runs that failed before they began, how often
        self.steps = 0  # how often the model has answered in it
        self._results_from = 0  # where the results of the last reply's calls begin
        self._order: dict[str, int] = {}
        self._chain: list[bytes] = []
        self._spent: dict[str, FrozenDict] = {}  # the tokens of each run
        self._lock = Lock()  # tools that run in threads set values, too

    @property
    def values(self) -> Values:
        """What capabilities keep with it."""
        return Values(self)

    def __repr__(self) -> str:
        return f"Thread({self.id!r}, {len(self.entries)} entries, {len(self._items)} messages)"

    def add(self, *messages: Message) -> None:
        """Say something: each message is an entry, checked against what came before it."""
        for message in messages:
            self.append("message", message)

    def append(self, kind: EntryKind, data: Any, about: Mapping[str, Any] | None = None) -> Entry:
        """Log one entry and fold it into the state; a reply may have its `model` and its `usage` in `about`."""
        if kind not in _KINDS:
            raise StoreError(f"there are no entries of the kind {kind!r}; to log something of your own, use run.record")
        if kind == "answered":
            data = {**data, "thread": self.id}  # so that a fork, which copies the entry, does not count the answer
        data = data if isinstance(data, Message) else freeze(data)
        with self._lock:
            entry = Entry(len(self.entries) + 1, kind, data, time.time(), freeze(about))
            self._fold(entry)
            self.entries.append(entry)
            if (keeper := self.writer) is not None:  # it may be let go of meanwhile, by another Python thread
                keeper.write(entry)
        return entry

    async def saved(self) -> None:
        """Wait until everything that was appended is where the thread is kept, if it is kept anywhere."""
        if self.writer is not None:
            await self.writer.saved()

    def fork(self, at: int | None = None, id: str = "") -> Thread:
        """Another thread that begins as this one was after its entry `at`; now, if none is given."""
        other = Thread(id)
        for entry in self.entries[: self._check_seq(at)]:
            other._fold(entry)
            other.entries.append(entry)
        other.changed_values = {}
        return other

    def rewind(self, to: int) -> Entry:
        """Go back to how things were after the entry `to`; what came later stays in the log and counts no more."""
        if self.busy:
            raise StoreError(f"a run of thread {self.id} is going on; cancel it, then rewind", "conflict")
        entry = self.append("rewind", {"to": self._check_seq(to)})
        for question in [*self.questions.values()]:
            self.append("asked", question)  # again, for a store counts no question from before a rewind
        return entry

    def effective_entries(self, at: int | None = None) -> list[Entry]:
        """The entries that count, or counted after the entry `at`: all but those that somebody went back behind."""
        kept: list[Entry] = []
        for entry in self.entries[: self._check_seq(at)]:
            if entry.kind == "rewind":
                kept = self.effective_entries(entry.data["to"])
            else:
                kept.append(entry)
        return kept

    def _check_seq(self, at: int | None) -> int:
        if at is not None and (type(at) is not int or not 0 <= at <= len(self.entries)):
            raise StoreError(f"thread {self.id} has no entry {at!r}; they go from 1 to {len(self.entries)}", "invalid")
        return len(self.entries) if at is None else at

    @property
    def usage(self) -> dict[str, int]:
        """The tokens of all runs so far."""
        total: dict[str, int] = {}
        for spent in self._spent.values():
            for name, count in spent.items():
                total[name] = total.get(name, 0) + count
        return total

    def has_ended(self, run: str) -> bool:
        """Whether a run is over for good, so that nobody takes it up again."""
        return run in self._spent and (self.open_run is None or self.open_run["run"] != run)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The tool calls that wait for a result, in the model's order."""
        return tuple(self.waiting.values())

    def is_waiting_for(self, call: ToolCall) -> bool:
        """Whether this very call waits for a result; a later one may have the same id."""
        return self.waiting.get(call.id) is call

    def attempt_status(self, call_id: str) -> AttemptStatus:
        """What became of a call so far: "" never began, "unknown" began and may or may not have happened."""
        fates = self.attempts.get(call_id)
        return "" if not fates else next((fate for fate in ("unknown", "done", "failed") if fate in fates), "")

    def hash_messages(self, messages: Sequence[Message]) -> str:
        """The hash of a list of messages; what it shares with this thread is hashed only once."""
        shared = self._shared_length(messages)
        while len(self._chain) < shared:
            self._chain.append(_hash_link(self._chain[-1] if self._chain else b"", self._items[len(self._chain)]))
        link = self._chain[shared - 1] if shared else b""
        for message in messages[shared:]:
            link = _hash_link(link, message)
        return link.hex()

    def _shared_length(self, messages: Sequence[Message]) -> int:
        most = min(len(messages), len(self._items))
        if list(messages[:most]) == self._items[:most]:  # compares references, at the speed of C
            return most
        return next(i for i in range(most) if messages[i] != self._items[i])

    def state(self) -> dict[str, Any]:
        """The thread as the API shows it."""
        state = {"thread_id": self.id, "messages": self.messages.to_json()}
        return state | {key: thaw(self.values[key]) for key in ("todos", "files") if self.values.get(key)}

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "id": self.id, "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, data: Any) -> Thread:
        """The thread that `to_json` wrote; what is not one is refused with a sentence."""
        known = isinstance(data, dict) and data.get("schema") == SCHEMA
        if not known or not isinstance(data.get("id"), str) or not isinstance(data.get("entries"), list):
            raise StoreError(f"this is not a thread of schema {SCHEMA}, which is what this version of wick reads")
        thread = cls(data["id"])
        for row in data["entries"]:
            thread.replay(row)
        return thread

    def replay(self, row: Any) -> None:
        """Take in an entry that was logged before, as `Entry.to_json` wrote it."""
        try:
            seq, kind, data, at = row["seq"], row["kind"], row["data"], float(row["at"])
            if seq != len(self.entries) + 1 or kind not in _KINDS:
                raise ValueError(f"{kind!r} cannot stand here")
            data, about = split_reply_row(data) if kind == "message" else (data, None)
            entry = Entry(seq, kind, Message.from_json(data) if kind == "message" else freeze(data), at, freeze(about))
            self._fold(entry)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise StoreError(f"thread {self.id}: entry {len(self.entries) + 1} cannot be read: {error}") from error
        self.entries.append(entry)
        self.changed_values = {}  # what was set before is no news

    def _fold(self, entry: Entry) -> None:
        fold = _FOLDS.get(entry.kind)
        if fold is not None:
            fold(self, entry.data)

    def _fold_message(self, message: Message) -> None:
        if message.role == "tool":
            return self._fold_result(message)
        if self.waiting:
            names = ", ".join(call.name for call in self.waiting.values())
            raise MessageError(f"the tool calls {names} wait for their results; nothing else can be said before")
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
        """Results arrive in any order; among the messages they stand in the order of the calls."""
        if message.tool_call_id not in self.waiting:
            raise MessageError(f"no tool call {message.tool_call_id!r} waits for a result")
        del self.waiting[message.tool_call_id]
        mine = self._order[message.tool_call_id]
        answered = self._items[self._results_from :]
        place = self._results_from + sum(self._order[other.tool_call_id] < mine for other in answered)
        self._items.insert(place, message)
        del self._chain[place:]

    def _fold_intent(self, data: FrozenDict) -> None:
        self.attempts.setdefault(data["call"], []).append("unknown")

    def _fold_done(self, data: FrozenDict) -> None:
        fates, attempt = self.attempts[data["call"]], data["attempt"]
        if not 0 < attempt <= len(fates):
            raise ValueError(f"attempt {attempt} at the call {data['call']!r} never began")
        fates[attempt - 1] = data["ended"]

    def _fold_asked(self, data: FrozenDict) -> None:
        self.questions[data["id"]] = data

    def _fold_answered(self, data: FrozenDict) -> None:
        self.questions.pop(data["id"], None)
        if data.get("thread") == self.id:  # an answer is for one place in one log
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
        run, said, _ = data["run"], data["input"], data["guards"]
        if said or self.open_run is None or self.open_run["run"] != run:
            self.output_from, self.steps = len(self._items) - said, 0
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
        """Fold anew what still counts, without the answers: each was for the place in the log where it was given."""
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
    """A value as a map of items; one that was set as a whole is copied once, for the log has it too."""
    value = values.get(key, _NO_ITEMS)
    if not isinstance(value, dict) or not isinstance(item, str):
        raise ValueError(f"an item of {key!r} cannot be set: that takes a map, and a text as its name")
    if not isinstance(value, _Items):
        value = values[key] = _Items(value)
    return value


_NO_ITEMS = FrozenDict()


def _hash_link(before: bytes, message: Message) -> bytes:
    return sha256(before + message.digest.encode()).digest()
