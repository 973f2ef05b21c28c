"""What an agent does, and what a hook may say about it.

Four operations, each inside the one above:        Four decisions:

    Run           one answer to one input            Block     do not do it, say why
    └─ Step       one turn of the loop               Ask       do it if the user agrees
       ├─ ModelCall   one question to the model      Stop      end the run
       └─ ToolUse     one tool being used            Continue  take another step

An operation is open while its hooks change it, and sealed once nothing can: validated, copied,
read-only, hashed. What the guards see sealed is what is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar
from uuid import uuid4

from wick._internal.frozen import FrozenDict, canonical_json, digest, freeze, thaw
from wick._internal.tasks import ToolUseOrder
from wick.constants import MAX_CONTINUES
from wick.decisions import Ask, Asker, Block, Continue, Decision, Stop
from wick.errors import ConfigError, HookError, InvalidArgs, ModelError, Sealed
from wick.events import Emit, Event, ToolStream
from wick.messages import Message, Messages, ToolCall, ToolResult, user
from wick.prices import Charge, total
from wick.protocols import Model, Request, Usage
from wick.seal import copied, open_copy, sealed_copy
from wick.threads import Thread
from wick.tools import Injected, Tool
from wick.why import DispatchState, Why, difference

R = TypeVar("R")
Kept = tuple[R | None, R | None]

Screen = Callable[[Message], Awaitable[Block | None]]
Outcome = Literal["completed", "stopped", "cancelled", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to."""

    text: str = ""
    reason: str = "completed"
    outcome: Outcome = "completed"
    usage: Usage = field(default_factory=Usage)
    messages: Messages = field(default_factory=Messages, repr=False)
    error: Exception | None = None
    thread: Thread | None = field(default=None, repr=False, compare=False)
    charges: tuple[Charge, ...] = field(default=(), repr=False)
    output: Any = None  # the answer as a value, where a capability makes one of it

    @property
    def price(self) -> Decimal | None:
        """What the run and its children cost in dollars; `None` if that is not known of one of their `charges`."""
        return total(self.charges)


class _HasRun:
    """What belongs to a run. A run belongs to itself, which it does not have to remember: who holds themselves stays in
    memory, with all that a run can reach, until Python looks for garbage."""

    __slots__ = ()
    run: Run


@dataclass(eq=False, slots=True)
class Operation(_HasRun, Generic[R]):
    """Something the agent does. A hook reads it, changes it, and decides about it."""

    name: ClassVar[str] = "operation"
    editable: ClassVar[tuple[str, ...]] = ()  # what hooks change
    fixed: ClassVar[tuple[str, ...]] = ("run", "trail")  # whose it is: what no hook can change

    result: R = field(default=None, init=False, repr=False)  # type: ignore[assignment]
    error: Exception | None = field(default=None, init=False, repr=False)
    asks: tuple[Ask, ...] = field(default=(), kw_only=True, repr=False)
    trail: DispatchState = field(default_factory=DispatchState, kw_only=True, repr=False)

    @property
    def why(self) -> list[Why]:
        """What each hook said, in the order they spoke."""
        return self.trail.why

    @property
    def notes(self) -> dict[str, Any]:
        """Data that hooks leave for hooks further in, and for later."""
        return self.trail.notes

    @property
    def names(self) -> frozenset[str]:
        """What a hook's `match` is compared with."""
        return frozenset((self.name,))

    @property
    def kind(self) -> str:
        """The kind of tool that is used: shell, read, write, network, …"""
        return ""

    @property
    def hash(self) -> str:
        """What an approval is bound to."""
        return digest(canonical_json([self.name, self.to_json()]))

    def to_json(self) -> dict[str, Any]:
        """What will be done, as JSON data."""
        return {}

    async def prepare(self) -> None:
        """Do in a thread what would make `seal` block the event loop."""

    def seal(self) -> Self:
        """Return this operation, final. The gate performs it and shows it to no hook; hooks get a `view`."""
        return self._read_only()

    def view(self) -> Self:
        """Return a read-only copy of a sealed operation, for one hook: writing past its lock changes nothing else."""
        return sealed_copy(self, {})

    def is_intact(self, view: Operation[Any]) -> bool:
        """Return True if a view still shows what was sealed."""
        return all(getattr(view, name) is getattr(self, name) for name in (*self.fixed, *self.editable))

    def spell(self) -> bytes:
        """Return the arguments as they are hashed, before validators have changed them; none if there are none."""
        return b""

    def enforce(self) -> None:
        """Undo what a hook has written to the objects that performing a sealed operation reads."""

    def blocked(self, reason: str) -> R:
        """The result of not performing this operation."""
        raise TypeError(f"{type(self).__name__} is not one of the four operations")

    def coerce_result(self, result: Any) -> R:
        """A hook's own result, if it can be one."""
        raise TypeError(f"{type(self).__name__} is not one of the four operations")

    def on_gate_passed(self) -> None:
        """The gate has been passed."""

    async def before_asking(self) -> None:
        """Wait for what must be known before the user is asked."""

    def prevent(self, decision: Block | Stop) -> R:
        """Do not do it; a Run, Step or ModelCall that is not done ends the run."""
        self.trail.prevented = decision
        if isinstance(decision, Stop):
            self.run.halt(decision)
        elif not isinstance(self, ToolUse):
            self.run.halt(Stop(f"blocked: {decision.reason}"))
        return self.blocked(decision.reason)

    def fork(self, **changes: Any) -> Self:
        """A copy that inner rings may change without this one noticing; it shares the trail."""
        return open_copy(self, self.snapshot() | changes)

    def snapshot(self) -> dict[str, Any]:
        """What a hook may change, as it is now."""
        return {name: copied(getattr(self, name)) for name in self.editable} if self.editable else {}

    def protected_fields(self) -> dict[str, Any]:
        """What no hook may change, as it is now."""
        return {name: getattr(self, name) for name in self.fixed}

    def restore(self, mark: dict[str, Any]) -> None:
        for name, value in mark.items():
            setattr(self, name, value)

    def changed_since(self, mark: dict[str, Any]) -> dict[str, Any] | None:
        """Which fields a hook changed; not how, for that may be what it took out."""
        changed = [name for name, value in mark.items() if getattr(self, name) != value]
        return dict.fromkeys(changed, "changed") if changed else None

    def log_key(self) -> dict[str, Any]:
        """What tells this operation apart in the log."""
        return {}

    def sealed_form(self) -> dict[str, Any]:
        """What the log needs to know of a sealed operation beside its place, to look at it again later."""
        return {"hash": self.hash}

    def snapshot_result(self, result: R | None) -> Kept[R]:
        """A result and what it is now, so that a hook's change to it shows."""
        return (result, result)

    def is_same_result(self, kept: Kept[R]) -> bool:
        return self.result is kept[1]

    def reconcile(self, kept: Kept[R], result: Any) -> R:
        """The result that a hook returned or left behind."""
        same: R | None = kept[0] if result is kept[0] else None
        return same if same is not None else self.coerce_result(result)

    def decision_from_result(self, result: R | None) -> Stop | Continue | None:
        """The decision that replacing a result amounts to."""
        return None

    def withhold(self, reason: str) -> None:
        """Nobody gets to see the result."""
        self.result, self.error = None, HookError(f"the result was withheld: {reason}")  # type: ignore[assignment]

    def conclude(self, verdict: Decision | None, hook: str) -> None:
        """What an `after` decided."""
        if isinstance(verdict, Block):
            self.result, self.error = self.prevent(verdict), None
        elif isinstance(verdict, Stop):
            self.run.halt(verdict)

    def final(self, name: str) -> Any:
        """A field that hooks may change, as it was last sealed; as it is now if it never was."""
        return self.trail.sealed[name] if self.trail.sealed else getattr(self, name)

    def _read_only(self, **changes: Any) -> Self:
        sealed = sealed_copy(self, changes)
        self.trail.sealed = {name: getattr(sealed, name) for name in self.editable}
        return sealed


@dataclass(slots=True)
class Progress:
    """How far a run has come; every copy of a run shares it."""

    usage: Usage = field(default_factory=Usage)
    charges: list[Charge] = field(default_factory=list)  # what the usage is made of
    restored: int = 0  # of these, how many the log knows
    stopping: Stop | None = None
    inbox: deque[Message] = field(default_factory=deque)
    screened: list[Message] = field(default_factory=list)  # of these, those that every screen has let pass
    initial_input: list[Message] = field(default_factory=list)  # what was queued before it began, and is its input
    screens: dict[str, Screen] = field(default_factory=dict)  # who looks at them first
    guards: list[Any] = field(default_factory=list)  # added while it runs
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    scratch: dict[Any, Any] = field(default_factory=dict)
    output_from: int | None = None  # where its messages begin in the thread, once it has begun
    continues: int = 0
    over: bool = False
    resumed: bool = False
    without: frozenset[str] = frozenset()  # guards that it may be resumed without
    asks_again: bool = False  # the user is asked about a tool of which nobody knows what came of it, not the model told
    released: bool = False  # the program that runs it stops: it is cancelled here to be taken up elsewhere
    result: Result | None = None  # what it came to, once it is over
    deputies: list[Any] = field(default_factory=list)  # who may answer a question before the user is asked
    compactions: list[Any] = field(default_factory=list)  # who looks before and after its conversation is summed up


@dataclass(eq=False, slots=True)
class Run(Operation[Result], Injected):
    """One answer to one input, and everything its hooks and tools may reach."""

    name = "run"
    editable = ("input", "system", "tools", "settings", "model", "user")
    fixed = ("trail", "id", "parent", "loop", "progress", "thread", "recipe")

    agent: str = "agent"
    input: list[Message] = field(default_factory=list)
    thread: Thread = field(default_factory=Thread)
    model: Model = field(default=None, repr=False)  # type: ignore[assignment]
    system: str = ""
    tools: dict[str, Tool] = field(default_factory=dict, repr=False)
    settings: dict[str, Any] = field(default_factory=dict)
    user: str = ""
    id: str = field(default_factory=lambda: f"run_{uuid4().hex[:12]}")
    parent: Run | None = field(default=None, repr=False)
    loop: Any = field(default=None, repr=False)  # the rings this run started with
    emitter: Emit | None = field(default=None, repr=False)
    asker: Asker | None = field(default=None, repr=False)
    make: Any = field(default=None, repr=False)  # makes an agent, for who runs one as a child of this run
    recipe: str = ""  # the name of the recipe that its input comes from
    progress: Progress = field(default_factory=Progress, repr=False)
    opened: Run | None = field(default=None, init=False, repr=False)  # of one that is sealed, the one that goes on

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse another parent or other rings: a run would be under other guards than those it began with."""
        if name in _BOUND_ONCE and getattr(self, name, value) is not value:
            raise Sealed(f"the {name} of a run cannot be changed: its guards are those it began with")
        object.__setattr__(self, name, value)

    @property
    def run(self) -> Run:  # type: ignore[override]
        return self if self.opened is None else self.opened

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.agent,))

    @property
    def scratch(self) -> dict[Any, Any]:
        """What capabilities keep for this run: `run.scratch[self]`."""
        return self.progress.scratch

    @property
    def usage(self) -> Usage:
        """The tokens of this run and of its children."""
        return self.progress.usage

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Each question of this run and of its children that was counted, attempts that failed among them."""
        return tuple(self.progress.charges)

    @property
    def price(self) -> Decimal | None:
        """What this run and its children have cost so far in dollars, if that is known of all `charges`."""
        return total(self.progress.charges)

    @property
    def stopping(self) -> Stop | None:
        return self.progress.stopping

    @property
    def resumed(self) -> bool:
        """This run takes up one that was interrupted."""
        return self.progress.resumed

    @property
    def output(self) -> Messages:
        """This run's messages, its input among them."""
        start = self.progress.output_from
        return Messages() if start is None else self.thread.messages[start:]

    @property
    def root(self) -> Run:
        """The run at the top, whose user is asked."""
        return self if self.parent is None else self.parent.root

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def to_json(self) -> dict[str, Any]:
        words = [message.to_json() for message in self.input]
        return {"run": self.id, "agent": self.agent, "user": self.user, "input": words}

    def fork(self, **changes: Any) -> Run:
        return Operation.fork(self, opened=None, **changes)  # what is inside refers to the copy

    def seal(self) -> Run:
        _only(Message, self.input, "the input of a run")
        _only(Tool, self.tools.values(), "the tools of a run")
        tools, settings = FrozenDict(self.tools), freeze(self.settings)
        return self._read_only(input=tuple(self.input), tools=tools, settings=settings, opened=self.run)

    def view(self) -> Run:
        return sealed_copy(self, {"tools": FrozenDict(self.tools), "settings": freeze(thaw(self.settings))})

    def is_intact(self, view: Operation[Any]) -> bool:
        names = ("agent", *self.fixed, *self.editable, "opened")
        return all(getattr(view, name) == getattr(self, name) for name in names)

    def enforce(self) -> None:
        """Give the run that goes on what was sealed; a guard can reach it by `run.run`."""
        run = self.run
        for name in ("agent", "system", "model", "user", "emitter", "asker", *self.fixed):
            setattr(run, name, getattr(self, name))
        run.input = [*self.input]
        if run.tools != self.tools:
            run.tools = {**self.tools}
        if run.settings != self.settings:
            run.settings = thaw(self.settings)

    def blocked(self, reason: str) -> Result:
        reason = self._stop().reason
        return Result("", reason, "stopped", self.usage, thread=self.thread, charges=self.charges)

    def coerce_result(self, result: Any) -> Result:
        if isinstance(result, str):
            return Result(result, usage=self.usage, messages=self.output, thread=self.thread, charges=self.charges)
        return _expect(result, Result, "a Result or a text")

    def withhold(self, reason: str) -> None:
        """What a run came to is not lost because somebody could not look at it; the failure is in the log."""

    def guards(self, operation: type[Operation[Any]]) -> Sequence[Any]:
        """Every guard of an operation: of the agents above, of this one, and those added since."""
        own: Sequence[Any] = self.loop.guards[operation]
        if self.parent is None and not self.progress.guards:
            return own
        above = self.parent.guards(operation) if self.parent is not None else ()
        return (*above, *own, *(guard for guard in self.progress.guards if issubclass(operation, guard.operation)))

    def add_guard(self, guard: Any) -> None:
        """Put this run and its children under one more guard, from the next operation on."""
        if getattr(guard, "position", "") != "guard":
            raise HookError(f"only a guard can be added to a run that has begun, not {guard!r}")
        self.progress.guards.append(guard)

    def emit(self, event: Event) -> None:
        if self.emitter is not None and (event.terminal or not self.progress.over):
            event.run_id = self.id
            self.emitter(event)

    def record(self, name: str, /, **data: Any) -> None:
        """Log that something happened; traces show it too."""
        self.thread.append("event", {"run": self.id, "name": name, "data": data})
        self.progress.records.append((name, data))

    def send(self, message: str | Message) -> None:
        """Say something while the run goes on; it joins at the next step."""
        if self.progress.over:
            raise ConfigError("the run is over; say it in another one: agent.run(message, thread=run.thread)")
        self.progress.inbox.extend(Messages([user(message) if isinstance(message, str) else message]).validate())

    def screen(self, name: str, look: Screen) -> None:
        """Have what is said while the run goes on looked at before it joins; what is refused is never said."""
        self.progress.screens[name] = look

    def spend(self, charge: Charge) -> None:
        """Count what was used, also for the runs above."""
        self.progress.usage += charge.usage
        self.progress.charges.append(charge)
        if self.parent is not None:
            self.parent.spend(charge)

    def halt(self, stop: Stop) -> None:
        """End the run when the current step has ended; the most authoritative reason is kept."""
        stop = stop.requested()
        if self.stopping is None or stop.outranks(self.stopping):
            self.progress.stopping = stop

    def _stop(self) -> Stop:
        return self.progress.stopping or Stop("stop requested")

    async def call_model(
        self, messages: Sequence[Message], *, purpose: str, system: str = "", **changes: Any
    ) -> Message:
        """Ask the model on a capability's own behalf: same rings, same budget, same trace."""
        call = ModelCall(self, changes.pop("model", self.model), system, [*messages], [], thaw(self.settings), purpose)
        call.restore(changes)
        reply: Message = await self.loop.call_model(call)
        if call.trail.prevented:
            raise ModelError(f"the model was not asked for its {purpose}: {call.trail.prevented.reason}")
        return reply


@dataclass(eq=False, slots=True)
class Step(Operation[Stop | Continue]):
    """One turn of the loop. Its result says whether there is another."""

    name = "step"

    run: Run
    number: int
    pending: tuple[ToolCall, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run.id, "number": self.number, "pending": [call.to_json() for call in self.pending]}

    def blocked(self, reason: str) -> Stop:
        return self.run._stop()

    def coerce_result(self, result: Any) -> Stop | Continue:
        if isinstance(result, Stop):
            return result
        raise HookError(f"a step's result is what `next` gave, or a decision, not {result!r}")

    def log_key(self) -> dict[str, Any]:
        return {"step": self.number}

    def decision_from_result(self, result: Stop | Continue | None) -> Stop | Continue | None:
        replaced, self.result = self.result, result  # type: ignore[assignment]
        if isinstance(replaced, Stop) and self.error is not None:
            self.result, self.error = replaced, None  # a result that is set heals
        if isinstance(replaced, Stop) and replaced is not result:
            self.error = None  # an end in place of an error heals it
        return None if replaced is result else replaced

    def _may_continue(self) -> bool:
        """Hooks send a finished run back a limited number of times in a row; that tools were used does not count."""
        if isinstance(self.result, Continue):
            return True
        self.run.progress.continues += 1
        return self.run.progress.continues <= MAX_CONTINUES

    def conclude(self, verdict: Decision | None, hook: str) -> None:
        """A Stop that a hook decided stands; Continue overrides only that the model has finished."""
        Operation.conclude(self, verdict, hook)
        if isinstance(verdict, Continue) and self._may_continue():
            self.trail.follow += [Message("user", verdict.message, name=hook)] if verdict.message else []
            self.result, self.error = verdict, None
        if self.run.stopping is not None and self.error is None:
            self.result = self.run.stopping


@dataclass(eq=False, slots=True)
class ModelCall(Operation[Message]):
    """One question to the model. Changes reach the model; the thread stays as it is."""

    name = "model_call"
    editable = ("model", "system", "messages", "tools", "settings")
    fixed = ("run", "trail", "charges")

    run: Run
    model: Model
    system: str
    messages: list[Message]
    tools: list[Tool]
    settings: dict[str, Any]
    purpose: str = ""
    charges: list[Charge] = field(default_factory=list, kw_only=True, repr=False)  # one for each attempt that counted
    endpoint: tuple[Any, ...] = field(default=(), init=False, repr=False)  # of the model, when it was sealed

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.model.name,))

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "model": self.model.name,
            "purpose": self.purpose,
            "settings": self.settings,
            "system": digest(self.system.encode("utf-8", "surrogatepass")),
            "tools": {tool.name: digest(canonical_json(tool.schema)) for tool in self.tools},
            "messages": self.run.thread.chain(self.messages),
        }

    def changed_since(self, mark: dict[str, Any]) -> dict[str, Any] | None:
        changed = Operation.changed_since(self, mark)
        if changed:  # looked at only then, for a thread may be long
            _only(Message, self.messages, "the messages of a model call")
            _only(Tool, self.tools, "the tools of a model call")
        return changed

    def charge(self, usage: Usage) -> None:
        """Count an attempt; every copy of this call shares what was counted."""
        charge = Charge(self.model.name, usage)
        self.charges.append(charge)
        self.run.spend(charge)

    def seal(self) -> ModelCall:
        settings, endpoint = freeze(thaw(self.settings)), _endpoint(self.model)
        return self._read_only(
            messages=tuple(self.messages), tools=tuple(self.tools), settings=settings, endpoint=endpoint
        )

    def view(self) -> ModelCall:
        return sealed_copy(self, {"settings": freeze(thaw(self.settings))})

    def is_intact(self, view: Operation[Any]) -> bool:
        same = ("run", "trail", "charges", "model", "system", "messages", "tools", "purpose")
        return (
            all(getattr(view, name) is getattr(self, name) for name in same)
            and bool(view.settings == self.settings)  # type: ignore[attr-defined]
            and _endpoint(self.model) == self.endpoint
        )

    @property
    def request(self) -> Request:
        return Request(tuple(self.messages), self.system, tuple(self.tools), self.settings)

    def blocked(self, reason: str) -> Message:
        return Message("assistant", reason)

    def coerce_result(self, result: Any) -> Message:
        if isinstance(result, str):
            return Message("assistant", result)
        if isinstance(result, Message) and result.role != "assistant":
            raise HookError(f"a model call's result is an assistant's message, not one of the {result.role}")
        return _expect(result, Message, "a message or a text")


@dataclass(eq=False, slots=True)
class ToolUse(Operation[ToolResult], Injected):
    """One tool being used."""

    name = "tool_use"
    editable = ("args", "tool")
    fixed = ("run", "trail", "call", "turns", "number", "valid")

    run: Run
    call: ToolCall
    tool: Tool | None
    args: dict[str, Any]
    turns: ToolUseOrder = field(default_factory=ToolUseOrder, repr=False)
    number: int = 0
    valid: tuple[Tool | None, bytes] = field(default=(None, b""), init=False, repr=False)  # as last validated
    data: bytes = field(default=b"", init=False, repr=False)  # the sealed arguments, as they are hashed
    values: Mapping[str, Any] | None = field(default=None, init=False, repr=False)  # what the tool is called with
    shown: Tool | None = field(default=None, init=False, repr=False)  # the tool as hooks know it; `tool` is a copy

    @property
    def names(self) -> frozenset[str]:
        known = self.tool.names if self.tool else _NOBODY
        return known if self.call.name in known else known | {self.call.name}

    @property
    def kind(self) -> str:
        return self.tool.kind if self.tool else ""

    @property
    def attempt(self) -> int:
        """How often this call has been begun."""
        return len(self.run.thread.fates.get(self.call.id, ()))

    @property
    def key(self) -> str:
        """The same for every attempt at this call, for services that take an idempotency key."""
        thread, step = self.run.thread, self.run.thread.steps  # a model may use the same id in every step
        return f"{thread.id}:{self.run.id}:{step}:{self.call.id}"

    @property
    def hash(self) -> str:
        return digest(
            canonical_json([self.name, self.run.id, self.call.id, self.bound.name, self.bound.origin]) + self.data
        )

    @property
    def bound(self) -> Tool:
        """The tool that this use is of; there is one wherever a use can be sealed."""
        if self.tool is None:
            raise HookError(f"there is no tool named {self.call.name!r}")
        return self.tool

    @property
    def grants(self) -> frozenset[tuple[str, bytes]]:
        """What programs have allowed for this call: it silences the question of a permission mode, and no rule."""
        return frozenset(self.trail.grants)

    def grant(self) -> None:
        """Allow this call, with exactly these arguments."""
        self.trail.grants.add((self.bound.name, canonical_json(self.args)))

    def follows_links(self, path: str) -> bool:
        """Return False if a permission rule decided about a path by its names, so that no link may redirect it."""
        return path not in self.trail.unlinked

    def to_json(self) -> dict[str, Any]:
        return {"call_id": self.call.id, "tool": self.bound.name, "args": thaw(self.args)}

    async def prepare(self) -> None:
        if self.tool is not None and self.tool.foreign is not None and not self._is_checked():
            await self.tool.prepare(self.args)

    def _is_checked(self) -> bool:
        """Return True if the arguments are those that `validate` has checked."""
        try:
            return (self.tool, canonical_json(self.args)) == self.valid
        except (TypeError, ValueError, RecursionError):
            return False

    def validate(self) -> None:
        """Check the arguments and complete them; raise InvalidArgs if the tool does not take them."""
        tool = self.bound
        self.args = tool.validate(self.args)
        self.valid = (tool, b"" if tool.foreign is None else canonical_json(self.args))

    def seal(self) -> ToolUse:
        """Run the validators once. The values and a copy of the tool stay with the gate, which calls exactly these."""
        tool, data = self.valid
        bound = self.bound.bind(self.args, data if tool is self.tool else b"")
        return self._sealed(bound.form, bound.data, bound.values)

    def spell(self) -> bytes:
        try:
            return self.data or canonical_json(self.bound.validate(self.args))
        except InvalidArgs:
            return b""

    def seal_recorded(self) -> ToolUse:
        """Seal arguments that are the JSON form of values validated before, to show them to guards again."""
        return self._sealed(freeze(thaw(self.args)), canonical_json(self.args), None)

    def _sealed(self, form: dict[str, Any], data: bytes, values: Mapping[str, Any] | None) -> ToolUse:
        return self._read_only(args=form, data=data, values=values, tool=self.bound.copy(), shown=self.tool)

    def view(self) -> ToolUse:
        return sealed_copy(self, {"args": freeze(thaw(self.args)), "tool": self.shown, "values": None})

    def is_intact(self, view: Operation[Any]) -> bool:
        return (
            isinstance(view, ToolUse)
            and (view.run, view.call, view.trail, view.tool) == (self.run, self.call, self.trail, self.shown)
            and view.data == self.data
            and bool(view.args == self.args)
            and view.bound.is_same(self.bound)
        )

    @property
    def exception(self) -> BaseException | None:
        """The exception that the tool raised, if it crashed. `error` stays empty, for there is a result."""
        return getattr(self.result, "exception", None)

    def stream(self, text: str) -> None:
        """Show a piece of the tool's output while it runs."""
        if self.run.emitter is not None:
            self.trail.show(ToolStream(name=self.call.name, call_id=self.call.id, delta=text), self.run.emit)

    def blocked(self, reason: str) -> ToolResult:
        return ToolResult(error=reason, tool_call_id=self.call.id, name=self.call.name)

    def coerce_result(self, result: Any) -> ToolResult:
        given = ToolResult(result) if isinstance(result, str) else _expect(result, ToolResult, "a ToolResult or a text")
        if given.tool_call_id == self.call.id and given.name == self.call.name:
            return given
        mine = self._copy(given, given.data)
        mine.exception = given.exception
        return mine

    def log_key(self) -> dict[str, Any]:
        return {"call": self.call.id}

    def sealed_form(self) -> dict[str, Any]:
        """Of the arguments only how they differ from those of the call, which is in the log."""
        asked, form = self.call.args, {"hash": self.hash, "tool": self.bound.name}
        if self.args == asked:
            return form
        changed = {name: value for name, value in self.args.items() if asked.get(name, _NOBODY) != value}
        return {**form, "args": changed, "without": [name for name in asked if name not in self.args]}

    def changed_since(self, mark: dict[str, Any]) -> dict[str, Any] | None:
        if not isinstance(self.args, dict):
            raise HookError(f"a hook made the arguments a {type(self.args).__name__}; they must be a dict")
        changed = {} if self.args == mark["args"] else difference(mark["args"], self.args)
        if self.tool is not mark["tool"]:
            changed["tool"] = [tool and tool.name for tool in (mark["tool"], self.tool)]
        return changed or None

    def snapshot_result(self, result: ToolResult | None) -> Kept[ToolResult]:
        return (result, None if result is None else self._copy(result, thaw(result.data)))

    def _copy(self, result: ToolResult, data: Any) -> ToolResult:
        return ToolResult(result.output, result.error, data, result.parts, self.call.id, self.call.name)

    def is_same_result(self, kept: Kept[ToolResult]) -> bool:
        return self.result == kept[1]

    def reconcile(self, kept: Kept[ToolResult], result: Any) -> ToolResult:
        """Whoever changes the output has not seen to the data and parts beside it, unless they changed too."""
        given, was = self.coerce_result(result), kept[1]
        if was is not None and given.output != was.output:
            given.data = None if given.data == was.data else given.data
            given.parts = () if given.parts == was.parts else given.parts
        return given

    def withhold(self, reason: str) -> None:
        self.result, self.error = self.blocked(f"the result was withheld: {reason}"), None

    def on_gate_passed(self) -> None:
        self.turns.mark_gated(self.number)

    async def before_asking(self) -> None:
        await self.turns.wait_all_gated()


_NOBODY: frozenset[str] = frozenset()
_BOUND_ONCE = frozenset(("parent", "loop", "progress"))

OPERATIONS: tuple[type[Operation[Any]], ...] = (Run, Step, ModelCall, ToolUse)


def _endpoint(model: Model) -> tuple[Any, ...]:
    """Return what decides which server a model's requests go to."""
    return (model.name, *(getattr(model, name, None) for name in ("server", "model", "base_url")))


def _only(kind: type, items: Iterable[Any], what: str) -> None:
    for found in set(map(type, items)):
        if not issubclass(found, kind):
            raise HookError(f"{what} must be {kind.__name__} objects, and a hook put a {found.__name__} there")


def _expect(value: Any, kind: type[R], words: str) -> R:
    if not isinstance(value, kind):
        raise HookError(f"the result must be {words}, not {value!r}")
    return value
