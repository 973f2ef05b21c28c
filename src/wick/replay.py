"""Policy replay: consult an agent's guards about the tool uses of recorded threads.

    report = await replay(agent, threads)
    for change in report.changes: print(change)

The guards see each recorded tool use again, with the sealed arguments and the thread at that time. Nothing is run,
asked or written. After the first different verdict, the rest of that thread is skipped: the run would have continued
differently.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wick._internal.frozen import thaw
from wick.agent import Agent
from wick.errors import InvalidArgs
from wick.loop import Loop
from wick.onion import consult_guards
from wick.operations import Run, ToolUse
from wick.threads import Thread
from wick.threads.state import Entry, EntryKind

Verdict = Literal["allow", "ask", "block"]
_SEVERITY: tuple[Verdict, ...] = ("allow", "ask", "block")
_RECORDED_VERDICTS: dict[str, Verdict] = {"ask": "ask", "block": "block", "stop": "block", "failed": "block"}


@dataclass(frozen=True, slots=True)
class Change:
    """A tool use for which the guards now return a different verdict."""

    thread: str
    seq: int  # sequence number of the entry that recorded the verdict
    call_id: str
    tool: str
    args: dict[str, Any]
    recorded: Verdict
    now: Verdict
    reason: str = ""

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.thread} entry {self.seq}: {self.tool} was {_PAST[self.recorded]}, now {_PRESENT[self.now]}{why}"


_PAST = {"allow": "allowed", "ask": "asked about", "block": "blocked"}
_PRESENT = {"allow": "it is allowed", "ask": "the user is asked", "block": "it is blocked"}


@dataclass(slots=True)
class Report:
    """The result of a replay. `skipped` lists tool uses that could not be compared, with reasons."""

    threads: int = 0  # number of evaluated threads
    uses: int = 0  # number of evaluated tool uses
    asked: int = 0  # number of those that the guards ask about now
    changes: list[Change] = field(default_factory=list)  # tool uses with a different verdict
    skipped: list[str] = field(default_factory=list)  # tool uses that could not be compared, with reasons


async def replay(
    agent: Agent, threads: Iterable[Thread] | AsyncIterable[Thread], *, deps: object | None = None
) -> Report:
    """Compare the recorded verdicts on the tool uses of threads with those of an agent's guards.

    Guards that need deps get `deps`, or those of the agent's `deps_factory`.
    """
    report, loop = Report(), Loop(agent.hooks)
    async for thread in _iterate(threads):
        report.threads += 1
        if change := await _find_change(agent, loop, thread, report, deps):
            report.changes.append(change)
    return report


async def _iterate(threads: Iterable[Thread] | AsyncIterable[Thread]) -> AsyncIterator[Thread]:
    if isinstance(threads, AsyncIterable):
        async for thread in threads:
            yield thread
    else:
        for thread in threads:
            yield thread


async def _find_change(agent: Agent, loop: Loop, thread: Thread, report: Report, deps: object) -> Change | None:
    past, verdicts = _RecordedThread(thread.id), _collect_verdicts(thread.entries)
    for entry in thread.entries:
        recorded = verdicts.get(entry.seq)
        if recorded and (change := await _compare_verdict(agent, loop, past, entry, recorded, report, deps)):
            return change
        past.apply(entry)
    return None


class _RecordedThread(Thread):
    """A thread at an earlier time, for guards to read. Appended entries are discarded."""

    __slots__ = ()

    def append(self, kind: EntryKind, data: Any, about: Any = None) -> Entry:
        return Entry(len(self.entries) + 1, kind, data)


def _collect_verdicts(entries: Iterable[Entry]) -> dict[int, Verdict]:
    """Return the recorded verdict on each tool use, by the first entry that has it."""
    verdicts: dict[int, Verdict] = {}
    first: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.kind == "message" and entry.data.role == "assistant":
            first = {}  # call ids may repeat in the next step
        elif found := _entry_verdict(entry):
            seq = first.setdefault((entry.data["call"], entry.data["hash"]), entry.seq)
            verdicts[seq] = max(verdicts.get(seq, "allow"), found, key=_SEVERITY.index)
    return verdicts


def _entry_verdict(entry: Entry) -> Verdict | None:
    if entry.kind == "intent":
        return "allow"
    counts = entry.kind == "decision" and entry.data.get("operation") == "tool_use" and not entry.data.get("shadow")
    return _RECORDED_VERDICTS.get(entry.data["verdict"]) if counts and "hash" in entry.data else None


async def _compare_verdict(
    agent: Agent, loop: Loop, past: _RecordedThread, entry: Entry, recorded: Verdict, report: Report, deps: object
) -> Change | None:
    call, tools = past.current.calls.find(entry.data["call"]), {tool.name: tool for tool in agent.tools}
    name = entry.data.get("tool", call.name if call else "")
    if call is None or name not in tools:
        report.skipped.append(f"{past.id} entry {entry.seq}: the agent has no tool named {name!r}")
        return None
    run = Run(agent=agent.name, thread=past, system=agent.system, tools={**tools}, loop=loop, deps=deps)
    if deps is None and agent.deps_factory is not None:
        run = replace(run, deps=agent.deps_factory(run))
    unchanged = {key: value for key, value in call.args.items() if key not in entry.data.get("without", ())}
    use = ToolUse(run, call, tools[name], {**thaw(unchanged), **thaw(entry.data.get("args", {}))})
    try:
        tools[name].validate(use.args)
    except InvalidArgs as error:
        report.skipped.append(f"{past.id} entry {entry.seq}: {name} takes other arguments now: {error}")
        return None
    report.uses += 1
    refusal, asks = await consult_guards(run.guards(ToolUse), use.seal_recorded())
    now: Verdict = "block" if refusal is not None else "ask" if asks else "allow"
    report.asked += now == "ask"
    reason = refusal.reason if refusal is not None else "; ".join(ask.question for ask in asks)
    if now == recorded:
        return None
    return Change(past.id, entry.seq, call.id, name, thaw(use.args), recorded, now, reason)
