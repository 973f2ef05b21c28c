"""The ledger of a soak: messages, outcomes and problems."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Literal

MOST_KEPT = 200  # descriptions of problems, by kind

Kind = Literal["lost", "duplicated", "invalid", "leaked", "refused"]
TERMINAL = ("done", "error")
_numbers = count(1)


@dataclass(eq=False)
class Turn:
    """A message of a user and its outcome."""

    agent: str
    ask: str  # the plan of the model: `talk 20 0.5`, `work 3`, `pay`
    number: int = field(default_factory=lambda: next(_numbers))
    began: float = field(default_factory=monotonic)
    run: str = ""
    thread: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)  # the id and the name of every durable frame
    broken: int = 0  # how often its connection broke
    killed: bool = False  # the server was killed while it went on
    faults: set[str] = field(default_factory=set)  # faults of this turn
    effects: list[str] = field(default_factory=list)  # effects that commands reported
    end: dict[str, Any] = field(default_factory=dict)  # the last frame
    outcome: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"turn-{self.number}"

    @property
    def text(self) -> str:
        return f"{self.name} {self.ask}"

    @property
    def last(self) -> str:
        return self.seen[-1][0] if self.seen else ""


@dataclass
class Ledger:
    """Counts, and the sentences that explain the bad ones."""

    live: dict[str, Turn] = field(default_factory=dict)  # by name
    ended: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    clean: Counter[str] = field(default_factory=Counter)  # outcomes of turns that nothing was done to
    through_kills: Counter[str] = field(default_factory=Counter)
    touched: Counter[str] = field(default_factory=Counter)
    ready_ms: list[float] = field(default_factory=list)
    everywhere: str = ""  # faults that affect all turns now
    open_streams: int = 0
    most_streams: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    def begin(self, turn: Turn) -> Turn:
        self.live[turn.name] = turn
        turn.faults |= {self.everywhere} - {""}
        return turn

    def end(self, turn: Turn) -> None:
        """Record the outcome of a turn."""
        self.live.pop(turn.name, None)
        self.ended[turn.outcome] += 1
        if turn.faults:
            self.touched[turn.outcome] += 1
        else:
            self.clean[turn.outcome] += 1
            if turn.outcome != "completed":
                self.say("failed", f"{turn.name} ({turn.ask}) {turn.outcome}: {turn.reason} [{turn.run}]")
        if turn.killed:
            self.through_kills[turn.outcome] += 1

    def say(self, kind: str, sentence: str) -> None:
        """Something is wrong."""
        self.counts[kind] += 1
        said = self.wrong.setdefault(kind, [])
        if len(said) < MOST_KEPT:
            said.append(sentence)

    def fault(self, name: str, told: str = "") -> None:
        self.faults[name] += 1
        self.recent.append(f"{name} {told}".strip())

    def mark(self, name: str, fault: str) -> None:
        """Something is done to this very turn, so that it need not complete."""
        if (turn := self.live.get(name)) is not None:
            turn.faults.add(fault)

    def streamed(self, more: int) -> None:
        self.open_streams += more
        self.most_streams = max(self.most_streams, self.open_streams)

    @property
    def share(self) -> float:
        """Return the share of completed turns among those without faults."""
        total = sum(self.clean.values())
        return self.clean["completed"] / total if total else 0.0


def summary(ledger: Ledger) -> dict[str, Any]:
    return {
        "turns": sum(ledger.ended.values()),
        "outcomes": dict(ledger.ended),
        "untouched": dict(ledger.clean),
        "touched": dict(ledger.touched),
        "through_kills": dict(ledger.through_kills),
        "share": round(ledger.share, 6),
        "faults": dict(ledger.faults),
        "tool_calls": ledger.counts["tool_calls"],
        "answers": ledger.counts["answers"],
        "terminal_lines": ledger.counts["terminal_lines"],
        "reconnects": ledger.counts["reconnects"],
        "checked_runs": ledger.counts["checked_runs"],
        "checked_threads": ledger.counts["checked_threads"],
        "most_streams": ledger.most_streams,
        "lost": ledger.counts["lost"],
        "duplicated": ledger.counts["duplicated"],
        "invalid": ledger.counts["invalid"],
        "leaked": ledger.counts["leaked"],
        "refused": ledger.counts["refused"],
        "wrong": ledger.wrong,
    }
