"""The entries of a thread's log, and the state that is folded from them.

    run_start   a run has started or is resumed: its guards, the number of its input messages
    run_end     a run has ended or is interrupted: outcome, reason, usage; with the data to resume it
    message     a message of the user, the model or a tool
    intent      a tool is about to run: attempt, idempotency key, hash of the sealed tool use
    done        a tool has ended; its result is a message, saved after all hooks have run
    call        a running program calls a tool: the tool call, the call of the program, the lines
    result      the result of such a call, in place of a message: only the program gets it
    suspended   the state of a program that waits for an answer
    decision    a hook's decision or failure
    asked       a question to the user about one sealed operation; open until it is answered
    answered    the answer, valid for the hash of that operation
    value       a value of a capability, or one item of it
    event       a custom event: `Run.record`
    compaction  a summary in place of the oldest messages
    rewind      back to the state after an earlier entry

`fold` applies one entry to a state. It depends on nothing but the state and the log, so a fork, a rewind and a
loaded thread have the state of a thread to which the same entries were appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from wick._internal.frozen import FrozenDict, freeze, thaw
from wick.errors import MessageError
from wick.messages import Message, ToolCall

EntryKind = Literal[
    "message", "intent", "done", "decision", "asked", "answered", "value", "event", "run_start", "run_end",
    "compaction", "rewind", "call", "result", "suspended",
]  # fmt: skip
ENTRY_KINDS = frozenset(get_args(EntryKind))
REPLY_KEYS = ("model", "usage", "cut", "label", "hook")  # keys in the row of a message that are not part of it

AttemptStatus = Literal["", "failed", "done", "unknown"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. `data` is a Message or read-only JSON data.

    `about` has the model and the usage of a reply, and `cut` if the run was cancelled before the end of the reply.
    It has the `label` of a reply or a tool result, if a capability sets one, and the name of the `hook` that added a
    message. They are stored in the message's row.
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

    @classmethod
    def from_json(cls, row: Any) -> Entry:
        """Return the entry of a row; raise LookupError, TypeError or ValueError if it is not one."""
        seq, kind, data, about = row["seq"], row["kind"], row["data"], None
        if kind not in ENTRY_KINDS:
            raise ValueError(f"{kind!r} is not valid here")
        if kind == "message":
            message, about = split_reply_row(data)
            data = Message.from_json(message)
        return cls(seq, kind, data if kind == "message" else freeze(data), float(row["at"]), freeze(about))


def split_reply_row(row: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Split a row into the message and its model, usage, mark of a cut, label and hook."""
    if not isinstance(row, Mapping) or row.keys().isdisjoint(REPLY_KEYS):
        return row, None
    return {key: row[key] for key in row if key not in REPLY_KEYS}, {key: row[key] for key in REPLY_KEYS if key in row}


@dataclass(slots=True)
class ProgramState:
    """The calls of one program that the model wrote. See `wick.capabilities.code_mode`."""

    calls: dict[str, FrozenDict] = field(default_factory=dict)  # by id, in the program's order
    results: list[FrozenDict] = field(default_factory=list)  # in the order of the log
    suspended: FrozenDict | None = None  # the last state of the interpreter


@dataclass(slots=True)
class CallState:
    """The tool calls of the last reply, and those of its programs. Each reply starts with a new one."""

    waiting: dict[str, ToolCall] = field(default_factory=dict)  # calls without a result, by id, in the model's order
    positions: dict[str, int] = field(default_factory=dict)  # position of each call in the reply, by id
    results_from: int = 0  # index of the first result in the messages
    attempts: dict[str, list[AttemptStatus]] = field(default_factory=dict)  # status of each attempt, by call id
    nested: dict[str, ToolCall] = field(default_factory=dict)  # calls of programs without a result, by id
    programs: dict[str, ProgramState] = field(default_factory=dict)  # by the id of the program's own call
    parents: dict[str, str] = field(default_factory=dict)  # the program of each nested call, both by id

    def find(self, id: str) -> ToolCall | None:
        """Return the call with this id if it has no result yet, also one of a program."""
        return self.waiting.get(id) or self.nested.get(id)


@dataclass(slots=True)
class ApprovalState:
    """The questions to the user and their answers. Each reply starts with a new one."""

    questions: dict[str, FrozenDict] = field(default_factory=dict)  # open questions, by id
    answers: dict[str, FrozenDict] = field(default_factory=dict)  # answers, by operation hash


@dataclass(slots=True)
class RunHistory:
    """The open or the last run, and the token usage of all runs and of the replies since then."""

    open: FrozenDict | None = None  # the start of the run that has not ended, with the data to resume it
    output_from: int = 0  # index of the first message of the run
    steps: int = 0  # number of replies in the run
    outcome: str = ""  # of the last run; empty while it is in progress
    unheard: tuple[tuple[Message, int], ...] = ()  # input of runs that failed to start, and the number of failures
    usage: dict[str, FrozenDict] = field(default_factory=dict)  # token usage at the end of each run, by run
    replies: list[FrozenDict] = field(default_factory=list)  # model and usage of those since the last start or end


@dataclass(slots=True)
class ThreadState:
    """The state of a thread after its entries. Only `fold` changes it, except for the cache `hashes`."""

    thread: str = field(compare=False)  # the thread's id: an answer is valid in one thread only
    messages: list[Message] = field(default_factory=list)  # always the same list: views of it stay live
    hashes: list[bytes] = field(default_factory=list, compare=False)  # cache: hash of each prefix of the messages
    compacted: FrozenDict | None = None  # the summary of the oldest messages
    values: dict[str, Any] = field(default_factory=dict)  # values of capabilities
    calls: CallState = field(default_factory=CallState)
    approvals: ApprovalState = field(default_factory=ApprovalState)
    runs: RunHistory = field(default_factory=RunHistory)


def fold(state: ThreadState, entry: Entry, log: Sequence[Entry]) -> None:
    """Apply an entry to the state. A rewind reads the entries before it in `log`."""
    if entry.about and "usage" in entry.about:
        state.runs.replies.append(entry.about)
    if (fold_data := _FOLDS.get(entry.kind)) is not None:
        fold_data(state, entry.data)
    elif entry.kind == "rewind":
        _fold_rewind(state, entry, log)


def fold_entries(thread: str, entries: Iterable[Entry], log: Sequence[Entry] = ()) -> ThreadState:
    """Return the state after entries, from scratch."""
    state = ThreadState(thread)
    for entry in entries:
        fold(state, entry, log)
    return state


def select_effective(log: Sequence[Entry], at: int) -> list[Entry]:
    """Return the entries up to `at` that no rewind has undone. One pass from the end: a rewind is a jump."""
    effective: list[Entry] = []
    while at:
        entry = log[at - 1]
        if entry.kind == "rewind":
            at = entry.data["to"]
        else:
            effective.append(entry)
            at -= 1
    effective.reverse()
    return effective


def _fold_rewind(state: ThreadState, entry: Entry, log: Sequence[Entry]) -> None:
    """Restore an earlier state, without its answers: an answer is valid only at its place in the log."""
    to = entry.data["to"]
    if type(to) is not int or not 0 <= to < entry.seq:
        raise ValueError(f"there is no entry {to!r} to go back to")
    earlier = fold_entries(state.thread, select_effective(log, to))
    earlier.approvals.answers = {}
    state.messages[:], state.hashes = earlier.messages, []
    state.compacted, state.values = earlier.compacted, earlier.values
    state.calls, state.approvals, state.runs = earlier.calls, earlier.approvals, earlier.runs


def _fold_message(state: ThreadState, message: Message) -> None:
    if message.role == "tool":
        return _fold_result(state, message)
    if waiting := state.calls.waiting:
        names = ", ".join(call.name for call in waiting.values())
        raise MessageError(f"the tool calls {names} wait for their results; add these first")
    if message.role == "assistant":
        positions = {call.id: number for number, call in enumerate(message.tool_calls)}
        if len(positions) < len(message.tool_calls):
            raise MessageError("two tool calls of one message have the same id")
        waiting = {call.id: call for call in message.tool_calls}
        state.calls, state.approvals = CallState(waiting, positions, len(state.messages) + 1), ApprovalState()
        state.runs.steps += 1
    state.messages.append(message)


def _fold_result(state: ThreadState, message: Message) -> None:
    """Insert a tool result in the order of the calls. Results arrive in any order."""
    id, calls = message.tool_call_id, state.calls
    if id not in calls.waiting:
        raise MessageError(f"no tool call {id!r} waits for a result")
    del calls.waiting[id]
    for nested in calls.programs[id].calls if id in calls.programs else ():
        calls.nested.pop(nested, None)  # the program is over
    results, position = state.messages[calls.results_from :], calls.positions[id]
    index = calls.results_from + sum(calls.positions[other.tool_call_id] < position for other in results)
    state.messages.insert(index, message)
    del state.hashes[index:]


def _fold_call(state: ThreadState, data: FrozenDict) -> None:
    calls, id, program = state.calls, data["call"], data["program"]
    if program not in calls.waiting or id in calls.positions or id in calls.parents:
        raise ValueError(f"the call {id!r} is not one of a running program")
    calls.nested[id] = ToolCall(id, data["name"], data["args"], invalid=data.get("invalid", ""))
    calls.parents[id] = program
    calls.programs.setdefault(program, ProgramState()).calls[id] = data


def _fold_nested_result(state: ThreadState, data: FrozenDict) -> None:
    calls, id = state.calls, data["call"]
    if calls.nested.pop(id, None) is None:
        raise ValueError(f"no call {id!r} of a program waits for a result")
    calls.programs[calls.parents[id]].results.append(data)


def _fold_suspended(state: ThreadState, data: FrozenDict) -> None:
    state.calls.programs.setdefault(data["program"], ProgramState()).suspended = data


def _fold_intent(state: ThreadState, data: FrozenDict) -> None:
    state.calls.attempts.setdefault(data["call"], []).append("unknown")


def _fold_done(state: ThreadState, data: FrozenDict) -> None:
    attempts, attempt = state.calls.attempts[data["call"]], data["attempt"]
    if not 0 < attempt <= len(attempts):
        raise ValueError(f"attempt {attempt} at the call {data['call']!r} never started")
    attempts[attempt - 1] = data["ended"]


def _fold_asked(state: ThreadState, data: FrozenDict) -> None:
    state.approvals.questions[data["id"]] = data


def _fold_answered(state: ThreadState, data: FrozenDict) -> None:
    state.approvals.questions.pop(data["id"], None)
    if data.get("thread") == state.thread:
        state.approvals.answers.setdefault(data["hash"], data)  # the first answer wins


def _fold_value(state: ThreadState, data: FrozenDict) -> None:
    key, values = data["key"], state.values
    if "item" in data:
        items = values.get(key, _NO_ITEMS)
        if not isinstance(items, dict) or not isinstance(data["item"], str):
            raise ValueError(f"an item of {key!r} cannot be set: that takes a map, and a text as its name")
        if not isinstance(items, _Items):  # copy it once: an entry refers to a map that was set as a whole
            items = values[key] = _Items(items)
        items.fold(data)
    elif "value" in data:
        values[key] = data["value"]
    else:
        values.pop(key, None)


class _Items(FrozenDict):
    """A map that is set item by item. Only folding changes it. Entries never refer to it."""

    __slots__ = ()

    def fold(self, data: FrozenDict) -> None:
        if "value" in data:
            dict.__setitem__(self, data["item"], data["value"])
        else:
            dict.pop(self, data["item"], None)


_NO_ITEMS = FrozenDict()


def _fold_run_start(state: ThreadState, data: FrozenDict) -> None:
    run, inputs, _, runs = data["run"], data["input"], data["guards"], state.runs  # all three are required
    if inputs or runs.open is None or runs.open["run"] != run:  # else the open run is resumed
        runs.output_from, runs.steps, runs.replies = len(state.messages) - inputs, 0, []
    runs.open, runs.outcome, runs.unheard = data, "", ()


def _fold_run_end(state: ThreadState, data: FrozenDict) -> None:
    run, outcome, spent, runs = data["run"], data["outcome"], data.get("usage", _NO_ITEMS), state.runs
    runs.outcome = outcome
    runs.usage[run], runs.replies = FrozenDict({name: int(count) for name, count in spent.items()}), []
    runs.unheard = tuple(
        (Message.from_json(thaw(row["message"])), int(row["failures"])) for row in data.get("unheard", ())
    )
    if outcome != "interrupted":
        runs.open, state.approvals.questions = None, {}
    elif runs.open is not None:
        left = {key: data[key] for key in ("usage", "guards", "added_guards", "stopping") if key in data}
        runs.open = FrozenDict({**runs.open, **left})


def _fold_compaction(state: ThreadState, data: FrozenDict) -> None:
    if not 0 < data["replaces"] <= len(state.messages):
        raise ValueError(f"{data['replaces']} messages cannot be summed up: there are {len(state.messages)}")
    Message.from_json(thaw(data["summary"]))
    state.compacted = data


_FOLDS: dict[EntryKind, Callable[[ThreadState, Any], None]] = {
    "message": _fold_message,
    "call": _fold_call,
    "result": _fold_nested_result,
    "suspended": _fold_suspended,
    "intent": _fold_intent,
    "done": _fold_done,
    "asked": _fold_asked,
    "answered": _fold_answered,
    "value": _fold_value,
    "run_start": _fold_run_start,
    "run_end": _fold_run_end,
    "compaction": _fold_compaction,
}
