"""Facts about the messages of a thread: entry, time, run and tool duration; and the ends of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick._internal.frozen import digest, thaw
from wick.messages import Message
from wick.threads import Thread
from wick.threads.branches import MessageTree
from wick.threads.state import Entry

DELEGATES = ("task", "start_task")  # tools that run in a child thread


@dataclass(eq=False, slots=True)
class MessageFact:
    """The entry, time and run of a message; for a tool result also the duration of the tool."""

    seq: int
    at: float
    run: str = ""
    ms: float | None = None
    cut: bool = False  # a reply whose run was cancelled before its end
    denied_by: str = ""  # the hook or the user that denied a tool call
    children: dict[str, str] = field(default_factory=dict)  # thread of the subagent, by call id
    label: Mapping[str, Any] | None = None  # of information flow
    sources: Sequence[int] = ()  # of a tool result: the reply that has its call
    nested: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # by program, its calls by id
    branches: Sequence[int] = ()  # entries of the messages in the same place, if there are others


@dataclass(eq=False, slots=True)
class ThreadHistory:
    """The facts of each message, by the identity of the message object, and the ends of runs."""

    thread: str
    facts: dict[int, MessageFact] = field(default_factory=dict)
    ends: list[dict[str, Any]] = field(default_factory=list)
    # last user messages, maybe logged before their run started
    _unassigned: list[MessageFact] = field(default_factory=list)
    _run: str = ""
    _started: dict[str, float] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)
    # by call id: the requesting message and the tool
    _requested_calls: dict[str, tuple[MessageFact, str]] = field(default_factory=dict)
    _denied: dict[str, str] = field(default_factory=dict)  # by call id: the hook or the user that denied it
    _questions: dict[str, str] = field(default_factory=dict)  # by question id: the call

    @classmethod
    def from_thread(cls, thread: Thread) -> ThreadHistory:
        found = cls(thread.id)
        effective = thread.effective_entries()
        for entry in effective:
            found.add_entry(entry)
        if len(effective) < len(thread.entries):  # there are branches only after a rewind
            tree = MessageTree(thread.entries)
            for fact in found.facts.values():
                branches = tree.list_branches(fact.seq)
                fact.branches = branches if len(branches) > 1 else ()
        return found

    def add_entry(self, entry: Entry) -> None:
        if isinstance(entry.data, Message):
            message, fact = entry.data, MessageFact(entry.seq, entry.at, self._run)
            fact.cut = bool(entry.about and entry.about.get("cut"))
            fact.label = entry.about.get("label") if entry.about else None
            self.facts[id(message)] = fact
            if message.role == "user":
                self._unassigned.append(fact)
            else:
                self._unassigned.clear()
            for call in message.tool_calls:
                self._requested_calls[call.id] = (fact, call.name)
            if message.role == "tool":
                request, _ = self._requested_calls.get(message.tool_call_id, (None, ""))
                fact.sources = [request.seq] if request is not None else []
                fact.ms = self._took.pop(message.tool_call_id, None)
                denied_by = self._denied.pop(message.tool_call_id, "")
                fact.denied_by = denied_by if message.failed else ""
        elif entry.kind == "run_start":
            run = entry.data["run"]
            for fact in self._unassigned if run != self._run else ():
                fact.run = run
            self._run = run
            self._unassigned.clear()
        elif entry.kind == "run_end":
            if entry.data["outcome"] != "interrupted":  # it is resumed, so this is not an end
                about = {name: entry.data.get(name) for name in ("run", "outcome", "reason", "error")}
                self.ends.append({"seq": entry.seq, "at": entry.at, **about})
            self._run = ""
        elif entry.kind == "intent":
            call = entry.data["call"]
            self._started[call] = entry.at
            asked, tool = self._requested_calls.get(call, (None, ""))
            if asked is not None and tool in DELEGATES:
                place = digest(entry.data["key"].encode("utf-8", "surrogatepass"))[:12]
                asked.children[call] = f"{self.thread[:150]}.{place}"
        elif entry.kind == "call":
            row = {"id": entry.data["call"], **{name: thaw(entry.data[name]) for name in ("name", "args", "lines")}}
            self._requested_calls[entry.data["program"]][0].nested.setdefault(entry.data["program"], {})[row["id"]] = (
                row
            )
        elif entry.kind == "result":
            nested, call = self._requested_calls[entry.data["program"]][0].nested, entry.data["call"]
            output = {"output": entry.data.get("error") or entry.data["output"], "failed": "error" in entry.data}
            more = {"ms": self._took.pop(call, None), "denied_by": self._denied.pop(call, "")}
            nested[entry.data["program"]][call] |= {**output, **more}
        elif entry.kind == "decision" and is_denial(entry.data):
            self._denied.setdefault(entry.data["call"], entry.data["hook"])
        elif entry.kind == "asked":
            self._questions[entry.data["id"]] = entry.data.get("call_id", "")
        elif entry.kind == "answered" and not entry.data["allowed"]:
            self._denied[self._questions.pop(entry.data["id"], "")] = entry.data.get("by") or "user"
        elif entry.kind == "done" and entry.data["call"] in self._started:
            self._took[entry.data["call"]] = (entry.at - self._started[entry.data["call"]]) * 1000

    def to_json(self, message: Message) -> dict[str, Any]:
        """Return a message as JSON data with its facts. A message made by a summary has none."""
        row, fact = message.to_json(), self.facts.get(id(message))
        if fact is None:
            return row
        if fact.children:
            row["tool_calls"] = [call | {"child": fact.children.get(call["id"], "")} for call in row["tool_calls"]]
        if fact.nested:
            nested = {program: [*calls.values()] for program, calls in fact.nested.items()}
            row["tool_calls"] = [call | {"calls": nested.get(call["id"], [])} for call in row["tool_calls"]]
        if fact.denied_by:
            row["denied_by"] = fact.denied_by
        if fact.cut:
            row["cut"] = True
        if fact.label:
            private, sources = fact.label.get("private", ()), fact.label.get("from", fact.sources)
            row["label"] = {"trusted": fact.label["trusted"], "private": [*private], "sources": [*sources]}
        if fact.branches:
            row["branches"] = fact.branches
        return row | {"seq": fact.seq, "at": fact.at, "run": fact.run, "ms": fact.ms}


def is_denial(decision: Mapping[str, Any]) -> bool:
    """Return whether a logged decision prevented a tool call or withheld its result."""
    denies = decision["verdict"] in ("block", "stop") and not decision.get("shadow")
    return denies and decision.get("operation") == "tool_use" and "call" in decision
