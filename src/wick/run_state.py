"""The mutable state of a run, shared by all of its copies.

    RunProgress         how far the run has come
    ├─ Inbox         messages that arrive while it runs
    ├─ Spending      tokens and charges
    ├─ Resumption    how it was resumed, and how it may be resumed later
    └─ Extensions    objects that hooks, capabilities and tools leave with it

The comment of each field names the module or method that writes it. All others only read it.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from wick.constants import ASK_SECONDS, CRASHES_KEPT
from wick.decisions import Block, Stop
from wick.messages import Message
from wick.prices import Charge, total_price
from wick.protocols import Usage
from wick.results import Result
from wick.threads import Thread

if TYPE_CHECKING:
    from wick._internal.frozen import FrozenDict
    from wick.hooks import Hook
    from wick.messages import ToolCall
    from wick.operations import ModelCall, Run, ToolUse

InboxScreen = Callable[[Message], Awaitable[Block | None]]
RefuseMessage = Callable[[Message, str, str], None]  # the message, the name of the screen, the reason


@dataclass(eq=False, slots=True)
class Inbox:
    """Messages that arrive while a run is running. They are screened, and join the thread before the next step.

    A message is in one place at a time: in the store, in `queue`, in `screened`, in the thread.
    """

    queue: deque[Message] = field(default_factory=deque)  # not screened yet; `Run.send`, `fetch`
    screened: list[Message] = field(default_factory=list)  # passed every screen; `screen`
    initial: list[Message] = field(default_factory=list)  # queued before the start, so the run's input; `fetch_initial`
    screens: dict[str, InboxScreen] = field(default_factory=dict)  # by name; `Run.screen`

    def __len__(self) -> int:
        """Return the number of messages that are not in the thread yet. The initial input is not counted."""
        return len(self.queue) + len(self.screened)

    async def fetch_initial(self, thread: Thread) -> list[Message]:
        """Return the messages that were queued for a thread before the run started, as the input of the run."""
        if thread.writer is not None:
            self.initial = [*unheard_messages(thread), *await thread.writer.fetch_messages()]
        return [*self.initial]

    def release_initial(self, thread: Thread, logged: Sequence[Message] = ()) -> None:
        """Remove the initial input from the store's inbox, also the messages that hooks replaced or dropped."""
        queued, self.initial = self.initial, []
        for message in queued:
            if thread.writer is not None and not any(message is other for other in logged):
                thread.writer.discard_message(message)

    async def fetch(self, thread: Thread) -> None:
        """Move messages from the store to the queue, unless tool calls are pending. Any process may have sent them."""
        if thread.writer is not None and not thread.pending:
            self.queue.extend(await thread.writer.fetch_messages())

    async def screen(self, refuse: RefuseMessage) -> None:
        """Run the screens on each queued message. It stays in the queue until its screens have returned."""
        while self.queue:
            message = self.queue[0]
            name, refusal = await self._run_screens(message) if self.screens else ("", None)
            self.queue.popleft()
            if refusal is None:
                self.screened.append(message)
            else:
                refuse(message, name, refusal.reason)

    async def _run_screens(self, message: Message) -> tuple[str, Block | None]:
        for name, look in [*self.screens.items()]:
            try:
                refusal = await look(message)
            except Exception as error:  # a screen that fails has not agreed
                refusal = Block(f"{name} failed, so it has not agreed: {type(error).__name__}")
            if refusal is not None:
                return name, refusal
        return "", None

    def take_screened(self) -> list[Message]:
        """Remove and return the messages that passed every screen."""
        accepted, self.screened = self.screened, []
        return accepted

    def take_late(self) -> tuple[list[Message], list[Message]]:
        """Remove the messages that came too late for an answer. Return those to add, and those never screened."""
        accepted, late = self.take_screened(), [*self.queue]
        self.queue.clear()
        return (accepted, late) if self.screens else ([*accepted, *late], [])


def unheard_messages(thread: Thread) -> list[Message]:
    """Return the messages of runs that failed before they started. The next run answers them."""
    return [message for message, _ in thread.current.runs.unheard]


@dataclass(eq=False, slots=True)
class Spending:
    """The tokens of a run and of its children, as a sum and as charges. Only its own methods write them."""

    usage: Usage = field(default_factory=Usage)
    charges: list[Charge] = field(default_factory=list)  # one per model call; their sum is `usage`
    logged: int = 0  # how many of the charges an earlier part of a resumed run has logged

    def add(self, charge: Charge) -> None:
        """Add the charge of a model call."""
        self.usage += charge.usage
        self.charges.append(charge)

    def restore(
        self, usage: Usage, logged: Sequence[Charge], unlogged: Sequence[Charge] = (), *, complete: bool
    ) -> None:
        """Set the spending of a resumed run. `usage` is that of the logged part. If incomplete, it has no price."""
        unpriced = [] if complete else [Charge("", Usage())]
        self.usage = sum((charge.usage for charge in unlogged), usage)
        self.charges, self.logged = [*logged, *unpriced, *unlogged], len(logged)

    @property
    def unlogged(self) -> list[Charge]:
        """The charges that are not in the log yet."""
        return self.charges[self.logged :]

    @property
    def price(self) -> Decimal | None:
        """The sum of the charges in dollars, or None if one of them has no known price."""
        return total_price(self.charges)


@dataclass(eq=False, slots=True)
class Resumption:
    """The settings and state of resuming a run, now and after a later interruption."""

    resumed: bool = False  # it continues an interrupted run; `resume`
    waived_guards: frozenset[str] = frozenset()  # guards that it may lack, by an operator's decision; `agent`
    ask_before_rerun: bool = False  # ask the user before a tool with unknown outcome runs again; `Sessions`
    answer_within: float = ASK_SECONDS  # seconds until a question expires; `Sessions`
    released: bool = False  # a cancellation leaves it open, since this process is shutting down; `server`


@dataclass(frozen=True, slots=True)
class CutReply:
    """The part of a reply that was shown before its model call was cancelled."""

    text: str
    model: str
    usage: Usage


class EffectObserver(Protocol):
    """An object that is called around each tool that really runs: after its approval, within its turn."""

    async def before_effect(self, use: ToolUse) -> str:
        """Prepare for a tool, before its intent is logged; return why it must not run, or an empty text."""

    async def after_effect(self, use: ToolUse) -> None:
        """Observe a tool that has ended, before its end is logged."""

    async def release_effect(self, use: ToolUse) -> None:
        """Release what `before_effect` has acquired: called last, also if the tool was refused or cancelled."""


ArgumentResolver = Callable[["Run", "ToolCall"], dict[str, Any]]  # returns the arguments with references replaced


class ProgramFlow(Protocol):
    """The flow of data in a program that the model wrote. A call has a place: its first byte, and the one after it."""

    def list_clean(self, span: Any, places: Mapping[str, int], tainted: Collection[Any]) -> list[str]:
        """Return the arguments of a call, of some positions, that no result of tainted calls can have reached."""


class Labeler(Protocol):
    """An object that labels what a run saves. Unlike an `after` hook, it cannot change a result, and costs no ring."""

    def label_input(self, run: Run, message: Message) -> FrozenDict:
        """Return the label of a message of the user, or of the prompt of a child, that is about to be saved."""

    def label_reply(self, call: ModelCall) -> FrozenDict:
        """Return the label of a reply that is about to be saved."""

    def label_result(self, use: ToolUse) -> FrozenDict:
        """Return the label of a tool result that is about to be saved. Called once for each use."""

    def analyze_program(self, code: str, tree: ast.Module, functions: Iterable[str]) -> ProgramFlow:
        """Return the flow of data in a program that calls functions of tools. Called in a thread."""


@dataclass(eq=False, slots=True)
class Extensions:
    """Objects that hooks, capabilities and tools leave with a run. Each list is only appended to."""

    guards: list[Hook] = field(default_factory=list)  # added while it runs; `Run.add_guard`
    observers: list[EffectObserver] = field(default_factory=list)  # around each tool, also of children; `snapshots`
    resolvers: list[ArgumentResolver] = field(default_factory=list)  # before arguments are checked; `information_flow`
    labelers: list[Labeler] = field(default_factory=list)  # of saved messages, also of children; `information_flow`
    delegates: list[Any] = field(default_factory=list)  # may answer a question in place of the user; `hook_programs`
    compactions: list[Any] = field(default_factory=list)  # hooks before and after a summary; `hook_programs`
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # custom events; `Run.record`
    cut_reply: CutReply | None = None  # the reply during which the run was cancelled; `run_log`
    crashes: deque[BaseException] = field(default_factory=lambda: deque(maxlen=CRASHES_KEPT))  # of tools; `run_log`
    scratch: dict[Any, Any] = field(default_factory=dict)  # state of capabilities, by capability; `capabilities`


@dataclass(eq=False, slots=True)
class RunProgress:
    """The progress of a run: its step, its Stop, its result, and four groups of state."""

    inbox: Inbox = field(default_factory=Inbox)
    spending: Spending = field(default_factory=Spending)
    resumption: Resumption = field(default_factory=Resumption)
    extensions: Extensions = field(default_factory=Extensions)
    step: int = 0  # number of the current step; `loop`
    continues: int = 0  # times in a row that hooks continued it after the model had finished; `loop`, `results`
    stopping: Stop | None = None  # ends it after the current step; `Run.halt`
    output_from: int | None = None  # index of its first message in the thread, once it is started; `run_log`
    over: bool = False  # from here on it logs nothing and emits only its terminal event; `run_log`, `run_events`
    result: Result | None = None  # set when it is over; `run_log`

    @property
    def started(self) -> bool:
        """True once this process has logged its start, also that of a resumed run."""
        return self.output_from is not None
