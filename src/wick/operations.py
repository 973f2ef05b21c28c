"""The four operations of an agent, and the decisions that hooks make about them.

Four operations, each inside the one above:        Four decisions:

    Run           one answer to one input            Block     do not perform it, give a reason
    └─ Step       one turn of the loop               Ask       perform it if the user agrees
       ├─ ModelCall   one request to the model       Stop      end the run
       └─ ToolUse     one use of a tool              Continue  take another step

An operation is open while hooks may change it. The gate then seals it: validated, copied, read-only
and hashed. The loop performs exactly the operation that the guards have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self
from uuid import uuid4

from typing_extensions import TypeVar  # a dependency of pydantic

from wick._internal.familiar_words import OPERATION_ATTRIBUTES, explain_attributes
from wick._internal.frozen import FrozenDict, canonical_json, digest, freeze, thaw
from wick._internal.sealed_copies import copy_value, open_copy, sealed_copy
from wick._internal.tasks import ToolUseOrder
from wick._internal.worker_threads import run_in_thread
from wick.constants import CHARS_PER_TOKEN
from wick.decisions import Ask, Asker, Block, Continue, Stop
from wick.errors import ConfigError, HookError, InvalidArgs, ModelError, Sealed
from wick.events import Emit, Event, ToolStream
from wick.messages import Message, Messages, ToolCall, ToolResult, user
from wick.prices import Charge
from wick.protocols import Model, Request, Usage
from wick.results import ModelCallResults, ResultRules, RunResults, StepResults, ToolUseResults
from wick.results import Outcome as Outcome
from wick.results import Output as Output
from wick.results import Result as Result
from wick.run_state import InboxScreen, RunProgress
from wick.threads import Thread
from wick.tools import Injected, Tool
from wick.why import DispatchState, Why, diff_values

if TYPE_CHECKING:
    from wick.agent import Agent
    from wick.hooks import Hook
    from wick.loop import Loop

DepsType = TypeVar("DepsType", default=Any)

ModelLike = Model | str | Mapping[str, Any]  # a model, its name, or a dict with its provider, name and options

R = TypeVar("R", covariant=True)  # the type of an operation's result

ANSWERED = "answered"  # in the notes of a step that calls no model, because the run has its answer


class _HasRun:
    """An object with a `run`. A `Run` returns itself from a property instead of storing a reference.

    A stored self-reference would be a reference cycle. It would keep the run and all it refers to in memory
    until the next garbage collection.
    """

    __slots__ = ()
    run: Run


@dataclass(eq=False, slots=True)
class Operation(_HasRun, Generic[R]):
    """Base class of the four operations. Hooks read it, change it, and make decisions about it."""

    operation_name: ClassVar[str] = "operation"
    editable: ClassVar[tuple[str, ...]] = ()  # fields that hooks may change
    fixed: ClassVar[tuple[str, ...]] = ("run", "state")  # fields that no hook may change

    # None before it is performed; an `after` may replace it
    result: R = field(default=None, init=False, repr=False)  # type: ignore[assignment]
    error: Exception | None = field(default=None, init=False, repr=False)  # the exception if it failed
    asks: tuple[Ask, ...] = field(default=(), kw_only=True, repr=False)
    state: DispatchState = field(default_factory=DispatchState, kw_only=True, repr=False)

    @property
    def why(self) -> list[Why]:
        """The answer of each hook, in the order in which they ran."""
        return self.state.why

    @property
    def notes(self) -> dict[str, Any]:
        """Data that hooks share with inner hooks and later ones."""
        return self.state.notes

    @property
    def prevented(self) -> Block | Stop | None:
        """The decision not to perform this operation, or to replace its result; None without one."""
        return self.state.prevented

    @property
    def result_rules(self) -> ResultRules[R]:
        """The rules for what hooks may do with the result of this operation."""
        raise TypeError(f"{type(self).__name__} is not one of the four operations")

    @property
    def names(self) -> frozenset[str]:
        """The names that a hook's `match` is compared with."""
        return frozenset((self.operation_name,))

    @property
    def kind(self) -> str:
        """The kind of the tool: shell, read, write, network, …; empty for other operations."""
        return ""

    @property
    def effect(self) -> str:
        """The declared effect of the tool: read, send, pay, …; empty for other operations."""
        return ""

    @property
    def private(self) -> str:
        """The private source that the tool reads; empty without one, and for other operations."""
        return ""

    @property
    def hash(self) -> str:
        """The hash that an approval is bound to."""
        return digest(canonical_json([self.operation_name, self.to_json()]))

    def to_json(self) -> dict[str, Any]:
        """Return the operation as JSON data."""
        return {}

    async def prepare(self) -> None:
        """Validate large arguments in a thread, so that `seal` does not block the event loop."""

    def seal(self) -> Self:
        """Return the final, read-only form of this operation. Only the gate has it; hooks get a `view`."""
        return sealed_copy(self, {})

    def view(self) -> Self:
        """Return a read-only copy of a sealed operation for one hook. Changes forced on it affect nothing else."""
        return sealed_copy(self, {})

    def is_intact(self, view: Self) -> bool:
        """Return True if a view still equals the sealed operation."""
        return all(getattr(view, name) is getattr(self, name) for name in (*self.fixed, *self.editable))

    def apply_sealed(self) -> None:
        """Write the sealed values back to the objects that the loop reads, in case a hook has changed them."""

    def on_gate_passed(self) -> None:
        """Let parallel tool uses ask the user. Called when the gate has decided, for or against the operation."""

    async def before_asking(self) -> None:
        """Wait until the guards have decided about all parallel operations, so that all questions are asked at once."""

    def fork(self, **changes: object) -> Self:
        """Return a copy that inner rings may change independently. It shares `state`."""
        return open_copy(self, self.snapshot() | changes)

    def snapshot(self) -> dict[str, object]:
        """Return copies of the fields that hooks may change."""
        return {name: copy_value(getattr(self, name)) for name in self.editable} if self.editable else {}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Set the fields of this operation to the values of a snapshot."""
        for name, value in snapshot.items():
            if getattr(self, name) is not value:
                setattr(self, name, value)

    def changed_since(self, snapshot: Mapping[str, object]) -> dict[str, object] | None:
        """Return the names of the fields that a hook changed. Their values may contain redacted text."""
        changed = [name for name, value in snapshot.items() if getattr(self, name) != value]
        return dict.fromkeys(changed, "changed") if changed else None

    def log_key(self) -> dict[str, object]:
        """Return the key that identifies this operation in the log."""
        return {}

    def sealed_to_json(self) -> dict[str, Any]:
        """Return the data that a replay needs to seal this operation again."""
        return {"hash": self.hash}

    def last_sealed(self, name: str) -> Any:
        """Return the value of an editable field when the gate last sealed it; the current value before that."""
        return self.state.sealed[name] if self.state.sealed else getattr(self, name)


def new_run_id() -> str:
    return f"run_{uuid4().hex[:12]}"


@explain_attributes(OPERATION_ATTRIBUTES["run"])
@dataclass(eq=False, slots=True)
class Run(Operation[Result[Any]], Injected, Generic[DepsType]):
    """One answer to one input. It gives hooks and tools access to the agent's state. `Run[T]` has deps of type T."""

    operation_name = "run"
    editable = ("input", "system", "tools", "settings", "model", "user")
    fixed = ("state", "id", "parent", "loop", "progress", "thread", "recipe", "deps")

    agent: str = "agent"  # the name of the agent
    input: list[Message] = field(default_factory=list)  # the messages that it answers
    thread: Thread = field(default_factory=Thread)  # the conversation
    model: Model = field(default=None, repr=False)  # type: ignore[assignment]  # the model of its calls
    system: str = ""  # the system prompt
    tools: dict[str, Tool] = field(default_factory=dict, repr=False)  # the tools by name
    settings: dict[str, Any] = field(default_factory=dict)  # the settings of its model calls
    user: str = ""  # the user, and owner of a stored thread
    # the id of the run, the same after it is resumed; empty until it is known whether a run without input resumes one
    id: str = field(default_factory=new_run_id)
    parent: Run | None = field(default=None, repr=False)  # the run that started this child run
    loop: Loop = field(default=None, repr=False)  # type: ignore[assignment]
    emitter: Emit | None = field(default=None, repr=False)
    asker: Asker | None = field(default=None, repr=False)
    make: type[Agent] = field(default=None, repr=False)  # type: ignore[assignment]  # to create child agents
    recipe: str = ""  # name of the recipe that its input comes from
    deps: DepsType = field(default=None, repr=False)  # type: ignore[assignment]  # as given to the run, never stored
    progress: RunProgress = field(default_factory=RunProgress, repr=False)
    opened: Run | None = field(default=None, init=False, repr=False)  # of a sealed copy: the run that it was made from

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change the parent or the rings, because that would change the guards of the run."""
        if name in _SET_ONCE and getattr(self, name, value) is not value:
            raise Sealed(f"the {name} of a run cannot be changed: its guards depend on it")
        object.__setattr__(self, name, value)

    @property
    def run(self) -> Run:  # type: ignore[override]
        """This run. For a sealed copy, the open run, to which all steps refer."""
        return self if self.opened is None else self.opened

    @property
    def result_rules(self) -> RunResults:
        return RunResults(self)

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.agent,))

    @property
    def scratch(self) -> dict[object, Any]:
        """Per-run state of capabilities: `run.scratch[self]`."""
        return self.progress.extensions.scratch

    @property
    def usage(self) -> Usage:
        """The tokens of this run and of its children."""
        return self.progress.spending.usage

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The model calls of this run and of its children that used tokens, including failed attempts."""
        return tuple(self.progress.spending.charges)

    @property
    def price(self) -> Decimal | None:
        """The price of this run and its children so far in dollars, or `None` if a charge has no known price."""
        return self.progress.spending.price

    @property
    def crashes(self) -> tuple[BaseException, ...]:
        """The exceptions of tools that crashed in this run, without children; the last 10 of them."""
        return tuple(self.progress.extensions.crashes)

    @property
    def stopping(self) -> Stop | None:
        return self.progress.stopping

    @property
    def resumed(self) -> bool:
        """True if this run resumes an interrupted one."""
        return self.progress.resumption.resumed

    @property
    def output(self) -> Messages:
        """The messages of this run, including its input."""
        start = self.progress.output_from
        return Messages() if start is None else self.thread.messages[start:]

    @property
    def root(self) -> Run:
        """The outermost run, whose user answers questions."""
        return self if self.parent is None else self.parent.root

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def to_json(self) -> dict[str, Any]:
        words = [message.to_json() for message in self.input]
        return {"run": self.id, "agent": self.agent, "user": self.user, "input": words}

    def fork(self, **changes: object) -> Run:
        return Operation.fork(self, opened=None, **changes)  # inner operations refer to the copy

    def seal(self) -> Run:
        _check_types(Message, self.input, "the input of a run")
        _check_types(Tool, self.tools.values(), "the tools of a run")
        tools, settings = FrozenDict(self.tools), freeze(self.settings)
        changes = {"input": tuple(self.input), "tools": tools, "settings": settings, "opened": self.run}
        return sealed_copy(self, changes)

    def view(self) -> Run:
        return sealed_copy(self, {"tools": FrozenDict(self.tools), "settings": freeze(thaw(self.settings))})

    def is_intact(self, view: Self) -> bool:
        names = ("agent", *self.fixed, *self.editable, "opened")
        pairs = ((getattr(view, name), getattr(self, name)) for name in names)
        return all(mine is theirs or mine == theirs for mine, theirs in pairs)  # deps may not support ==

    def apply_sealed(self) -> None:
        """Copy the sealed values to the open run, which performs the steps. Guards can reach it through `run.run`."""
        run = self.run
        for name in ("agent", "system", "model", "user", "emitter", "asker", *self.fixed):
            if (value := getattr(self, name)) is not getattr(run, name):
                setattr(run, name, value)
        run.input = [*self.input]
        if run.tools != self.tools:
            run.tools = {**self.tools}
        if run.settings != self.settings:
            run.settings = thaw(self.settings)

    def guards(self, operation: type[Operation[object]]) -> Sequence[Hook]:
        """Return all guards of an operation: of parent runs, of this agent, and added during the run."""
        own = self.loop.guards[operation]
        added = self.progress.extensions.guards
        if self.parent is None and not added:
            return own
        above = self.parent.guards(operation) if self.parent is not None else ()
        return (*above, *own, *(guard for guard in added if issubclass(operation, guard.operation)))

    def add_guard(self, guard: Hook) -> None:
        """Add a guard to this run and its children, starting with the next operation."""
        if getattr(guard, "position", "") != "guard":
            raise HookError(f"only a guard can be added to a started run, not {guard!r}")
        self.progress.extensions.guards.append(guard)

    def emit(self, event: Event) -> None:
        if self.emitter is not None and (event.terminal or not self.progress.over):
            event.run_id = self.id
            self.emitter(event)

    def record(self, name: str, /, **data: object) -> None:
        """Log a custom event. Traces show it too."""
        self.thread.append("event", {"run": self.id, "name": name, "data": data})
        self.progress.extensions.records.append((name, data))

    def send(self, message: str | Message) -> None:
        """Send a message to a running run. It is added before the next step."""
        if self.progress.over:
            raise ConfigError("the run is over; start another one: agent.run(message, thread=run.thread)")
        self.progress.inbox.queue.extend(Messages([user(message) if isinstance(message, str) else message]).validate())

    def screen(self, name: str, look: InboxScreen) -> None:
        """Check messages that arrive during the run with `look`. A refused message is never added."""
        self.progress.inbox.screens[name] = look

    def spend(self, charge: Charge) -> None:
        """Add a charge to this run and its parents."""
        self.progress.spending.add(charge)
        if self.parent is not None:
            self.parent.spend(charge)

    def halt(self, stop: Stop) -> None:
        """End the run after the current step. Of several reasons, the most authoritative one counts."""
        stop = stop.with_prefix()
        if self.stopping is None or stop.outranks(self.stopping):
            self.progress.stopping = stop

    async def find_model(self, given: ModelLike) -> Model:
        """Return a model; one given by name is created once per run, in a worker thread."""
        if not isinstance(given, str | Mapping):
            return given
        models: dict[str, Model] = self.root.scratch.setdefault(_MODELS, {})
        key = repr(given)
        if key not in models:
            models[key] = await run_in_thread(lambda: self.make(given).model, "finding a model")
        return models[key]

    async def call_model(
        self,
        messages: Sequence[Message],
        *,
        purpose: str,
        system: str = "",
        model: ModelLike | None = None,
        **changes: object,
    ) -> Message:
        """Call the model for a capability, with the same hooks, budget and trace as other calls."""
        if not purpose:
            raise ConfigError("purpose= is missing: it says what a capability calls the model for, as in 'summary'")
        found = await self.find_model(model) if model else self.model
        call = ModelCall(self, found, system, [*messages], [], thaw(self.settings), purpose)
        call.restore(changes)
        reply = await self.loop.call_model(call)
        if call.prevented is not None:
            raise ModelError(f"the model was not asked for its {purpose}: {call.prevented.reason}")
        return reply


@explain_attributes(OPERATION_ATTRIBUTES["step"])
@dataclass(eq=False, slots=True)
class Step(Operation[Stop | Continue]):
    """One turn of the loop. Its result is Stop, or Continue for another turn."""

    operation_name = "step"

    run: Run  # the run
    number: int  # counted from 1
    pending: tuple[ToolCall, ...] = ()  # calls of an interrupted step that are performed first

    @property
    def result_rules(self) -> StepResults:
        return StepResults(self)

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run.id, "number": self.number, "pending": [call.to_json() for call in self.pending]}

    def log_key(self) -> dict[str, object]:
        return {"step": self.number}


@explain_attributes(OPERATION_ATTRIBUTES["model_call"])
@dataclass(eq=False, slots=True)
class ModelCall(Operation[Message]):
    """One request to the model. Hooks change the request, not the thread."""

    operation_name = "model_call"
    editable = ("model", "system", "messages", "tools", "settings")
    fixed = ("run", "state", "charges")

    run: Run  # the run
    model: Model  # the model that is called
    system: str  # the system prompt of this request
    messages: list[Message]  # the messages of this request
    tools: list[Tool]  # the tools that are offered to the model
    settings: dict[str, Any]  # the settings of this request
    purpose: str = ""  # of a call by a capability, such as `summary`; empty for the conversation
    charges: list[Charge] = field(
        default_factory=list, kw_only=True, repr=False
    )  # one for each attempt that used tokens
    endpoint: tuple[object, ...] = field(default=(), init=False, repr=False)  # the model's endpoint when sealed

    @property
    def result_rules(self) -> ModelCallResults:
        return ModelCallResults(self)

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.model.name,))

    @property
    def usage(self) -> Usage:
        """The tokens of the last attempt."""
        return self.state.stream.usage

    @property
    def finish(self) -> str:
        """The finish reason of the last attempt."""
        return self.state.stream.finish

    @property
    def response_id(self) -> str:
        """The provider's id of the last reply; empty if unknown."""
        return self.state.stream.end.response_id

    @property
    def response_model(self) -> str:
        """The model that wrote the last reply, as its provider named it; empty if unknown."""
        return self.state.stream.end.response_model

    @property
    def is_sent(self) -> bool:
        """True if a request was sent to the model. It is not if a hook replied or decided in its place."""
        return self.state.stream.is_sent

    @property
    def shown(self) -> bool:
        """True if deltas of the reply were emitted, so that a retry is visible to subscribers."""
        return self.state.stream.shown

    @property
    def request(self) -> Request:
        return Request(tuple(self.messages), self.system, tuple(self.tools), self.settings)

    def to_json(self) -> dict[str, Any]:
        address = _address(self.model)  # hashed, as it may contain a key; a model without one has none
        return {
            "run": self.run.id,
            "model": self.model.name,
            **({"address": digest(address.encode())} if address else {}),
            "purpose": self.purpose,
            "settings": self.settings,
            "system": digest(self.system.encode("utf-8", "surrogatepass")),
            "tools": {tool.name: digest(canonical_json(tool.schema)) for tool in self.tools},
            "messages": self.run.thread.hash_messages(self.messages),
        }

    def changed_since(self, snapshot: Mapping[str, object]) -> dict[str, object] | None:
        changed = Operation.changed_since(self, snapshot)
        if changed:  # a thread may be long, so check only after a change
            _check_types(Message, self.messages, "the messages of a model call")
            _check_types(Tool, self.tools, "the tools of a model call")
        return changed

    def estimate_usage(self, reply: str) -> Usage:
        """Estimate the tokens of an attempt that was cancelled before the model reported them."""
        sent = sum(message.tokens for message in self.messages) + len(self.system) // CHARS_PER_TOKEN
        return Usage(sent, len(reply) // CHARS_PER_TOKEN)

    def charge(self, usage: Usage, *, estimated: bool = False) -> None:
        """Count the tokens of an attempt. All copies of this call share the charges."""
        charge = Charge(self.model.name, usage, estimated)
        self.charges.append(charge)
        self.run.spend(charge)

    def seal(self) -> ModelCall:
        changes = {"messages": tuple(self.messages), "tools": tuple(self.tools), "endpoint": _endpoint(self.model)}
        return sealed_copy(self, {**changes, "settings": freeze(thaw(self.settings))})

    def view(self) -> ModelCall:
        return sealed_copy(self, {"settings": freeze(thaw(self.settings))})

    def is_intact(self, view: Self) -> bool:
        same = ("run", "state", "charges", "model", "system", "messages", "tools", "purpose")
        return (
            all(getattr(view, name) is getattr(self, name) for name in same)
            and view.settings == self.settings
            and _endpoint(self.model) == self.endpoint
        )


@explain_attributes(OPERATION_ATTRIBUTES["tool_use"])
@dataclass(eq=False, slots=True)
class ToolUse(Operation[ToolResult], Injected):
    """One use of a tool."""

    operation_name = "tool_use"
    editable = ("args", "tool")
    fixed = ("run", "state", "call", "turns", "number", "valid")

    run: Run  # the run
    call: ToolCall  # the call as the model made it
    tool: Tool | None  # the tool; None for an unknown name
    args: dict[str, Any]  # the validated arguments, as JSON data
    turns: ToolUseOrder = field(default_factory=ToolUseOrder, repr=False)
    number: int = 0
    valid: tuple[Tool | None, bytes] = field(
        default=(None, b""), init=False, repr=False
    )  # last validated: the tool, and its arguments as canonical JSON if it has a JSON Schema of its own
    data: bytes = field(default=b"", init=False, repr=False)  # the sealed arguments as canonical JSON
    values: Mapping[str, Any] | None = field(default=None, init=False, repr=False)  # the validated values for the call
    shown: Tool | None = field(default=None, init=False, repr=False)  # the tool for views; a sealed `tool` is a copy

    @property
    def result_rules(self) -> ToolUseResults:
        return ToolUseResults(self)

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.tool.name if self.tool else self.call.name

    @property
    def names(self) -> frozenset[str]:
        known = self.tool.names if self.tool else _NO_NAMES
        return known if self.call.name in known else known | {self.call.name}

    @property
    def kind(self) -> str:
        return self.tool.kind if self.tool else ""

    @property
    def effect(self) -> str:
        """The declared effect of the tool. A tool without a declaration changes something."""
        return self.tool.effect if self.tool else ""

    @property
    def private(self) -> str:
        return self.tool.private if self.tool else ""

    @property
    def invalid(self) -> str:
        """Why the call cannot run: an unknown tool, or arguments that do not fit. Empty if it can."""
        return self.state.invalid

    @property
    def exception(self) -> BaseException | None:
        """The exception that the tool raised, if it crashed. `error` stays None, because there is a result."""
        return getattr(self.result, "exception", None)

    @property
    def attempt(self) -> int:
        """The number of attempts at this call so far."""
        return self.run.thread.count_attempts(self.call.id)

    @property
    def program(self) -> str:
        """The id of the call of the program that makes this call; empty if the model makes it itself."""
        return self.run.thread.current.calls.parents.get(self.call.id, "")

    @property
    def key(self) -> str:
        """The idempotency key of this call, equal for all attempts."""
        thread, step = self.run.thread, self.run.thread.steps  # a model may reuse call ids in each step
        return f"{thread.id}:{self.run.id}:{step}:{self.call.id}"

    @property
    def hash(self) -> str:
        about = [self.operation_name, self.run.id, self.call.id, self.bound.name, self.bound.origin]
        return digest(canonical_json(about) + self.data)

    @property
    def bound(self) -> Tool:
        """The tool, or a HookError if the model called an unknown one."""
        if self.tool is None:
            raise HookError(f"there is no tool named {self.call.name!r}")
        return self.tool

    @property
    def grants(self) -> frozenset[tuple[str, bytes]]:
        """Permissions granted by hook programs. They skip the question of a permission mode, but no rule."""
        return frozenset(self.state.grants.allowed)

    def grant(self) -> None:
        """Allow this call with exactly these arguments."""
        self.state.grants.allowed.add((self.bound.name, canonical_json(self.args)))

    def follows_links(self, path: str) -> bool:
        """Return False if a permission rule decided about a path by its names, so that no link may redirect it."""
        return path not in self.state.grants.unlinked

    def stream(self, text: str) -> None:
        """Emit a piece of the tool's output while it runs."""
        if self.run.emitter is not None:
            self.state.stream.show(ToolStream(name=self.call.name, call_id=self.call.id, delta=text), self.run.emit)

    def to_json(self) -> dict[str, Any]:
        return {"call_id": self.call.id, "tool": self.bound.name, "args": thaw(self.args)}

    async def prepare(self) -> None:
        if self.tool is None or self.tool.foreign is None:
            return
        try:
            is_checked = (self.tool, canonical_json(self.args)) == self.valid
        except (TypeError, ValueError, RecursionError):
            is_checked = False
        if not is_checked:
            await self.tool.prepare(self.args)

    def validate(self) -> None:
        """Check the arguments and add defaults. Raise InvalidArgs if they do not fit the tool."""
        tool = self.bound
        self.args = tool.validate(self.args)
        self.valid = (tool, b"" if tool.foreign is None else canonical_json(self.args))

    def canonical_args(self) -> bytes:
        """Return the arguments as canonical JSON bytes, before validators change them; empty if they are invalid."""
        try:
            return self.data or canonical_json(self.bound.validate(self.args))
        except InvalidArgs:
            return b""

    def seal(self) -> ToolUse:
        """Run the validators once. Only the gate has the values and the copy of the tool, and calls exactly these."""
        tool, checked = self.valid
        arguments = self.bound.bind(self.args, checked if tool is self.tool else b"")
        return self._seal_args(arguments.form, arguments.data, arguments.values)

    def seal_recorded(self) -> ToolUse:
        """Seal recorded arguments, which were validated then, to consult the guards again."""
        return self._seal_args(freeze(thaw(self.args)), canonical_json(self.args), None)

    def _seal_args(self, args: dict[str, Any], data: bytes, values: Mapping[str, Any] | None) -> ToolUse:
        changes = {"args": args, "data": data, "values": values, "tool": self.bound.copy(), "shown": self.tool}
        return sealed_copy(self, changes)

    def view(self) -> ToolUse:
        return sealed_copy(self, {"args": freeze(thaw(self.args)), "tool": self.shown, "values": None})

    def is_intact(self, view: Self) -> bool:
        return (
            type(view) is type(self)
            and (view.run, view.call, view.state, view.tool) == (self.run, self.call, self.state, self.shown)
            and view.data == self.data
            and bool(view.args == self.args)
            and view.bound.is_same(self.bound)
        )

    def log_key(self) -> dict[str, object]:
        return {"call": self.call.id}

    def sealed_to_json(self) -> dict[str, Any]:
        """Return the hash, the tool, and the difference of the arguments to those of the logged call."""
        asked, row = self.call.args, {"hash": self.hash, "tool": self.bound.name}
        if self.args == asked:
            return row
        changed = {name: value for name, value in self.args.items() if name not in asked or asked[name] != value}
        return {**row, "args": changed, "without": [name for name in asked if name not in self.args]}

    def changed_since(self, snapshot: Mapping[str, Any]) -> dict[str, object] | None:
        if not isinstance(self.args, dict):
            raise HookError(f"a hook made the arguments a {type(self.args).__name__}; they must be a dict")
        changed = {} if self.args == snapshot["args"] else diff_values(snapshot["args"], self.args)
        if self.tool is not snapshot["tool"]:
            changed["tool"] = [tool and tool.name for tool in (snapshot["tool"], self.tool)]
        return changed or None

    def on_gate_passed(self) -> None:
        self.turns.mark_gated(self.number)

    async def before_asking(self) -> None:
        await self.turns.wait_all_gated(self.number)


_MODELS = "models by name"  # of run.scratch
_NO_NAMES: frozenset[str] = frozenset()
_SET_ONCE = frozenset(("parent", "loop", "progress", "deps"))

OPERATIONS: tuple[type[Operation[object]], ...] = (Run, Step, ModelCall, ToolUse)


def _address(model: Model) -> str:
    """Return the URL that a model's requests are sent to, or an empty text."""
    url = getattr(getattr(model, "server", None), "url", None) or getattr(model, "base_url", None)
    return url if isinstance(url, str) else ""


def _endpoint(model: Model) -> tuple[object, ...]:
    """Return the attributes that determine the server of a model's requests."""
    try:
        return (model.name, *(getattr(model, name, None) for name in ("server", "model", "base_url")))
    except AttributeError:
        raise HookError(
            f"a hook set the model to {model!r}, which is not a model; set `await run.find_model(…)`, which also takes "
            "a name"
        ) from None


def _check_types(kind: type, items: Iterable[object], what: str) -> None:
    for found in set(map(type, items)):
        if not issubclass(found, kind):
            raise HookError(f"{what} must be {kind.__name__} objects, and a hook put a {found.__name__} there")
