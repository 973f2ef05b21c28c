"""Agents built from specs, their observed behaviour, and strategies that generate specs."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from agent_specs import Call, Reply, Spec
from agent_specs import FailedSpec as Failure
from agent_specs import Hook as Described
from reference import Reference
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    Capability,
    Continue,
    Hook,
    Limits,
    ModelCall,
    Operation,
    Result,
    Run,
    Step,
    Stop,
    Thread,
    ToolError,
    ToolResult,
    ToolUse,
    tool,
)
from wick import Paused as PausedRun
from wick.decisions import Question
from wick.events import Event, ToolEnd
from wick.messages import Message
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta

OPERATIONS: dict[str, type[Operation[Any]]] = {
    "run": Run, "step": Step, "model_call": ModelCall, "tool_use": ToolUse, "operation": Operation,
}  # fmt: skip


class Boom(Exception):
    """An error raised by hooks."""


# -- observations -----------------------------------------------------------------------------------------------------


@dataclass
class Observed:
    """The observed behaviour of an agent, in terms of the reference."""

    trace: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    events: list[Event] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)  # tools that have started and not ended, by strand
    overlaps: list[tuple[str, str]] = field(default_factory=list)
    strands: dict[str, str] = field(default_factory=dict)  # by run
    thread: Thread = field(default_factory=lambda: Thread("go"))
    below: list[Thread] = field(default_factory=list)  # the children's
    specs: dict[str, Spec] = field(default_factory=dict)  # by strand

    def note(self, op: Any, *what: Any) -> None:
        self.strands[op.run.id] = op.run.thread.id
        self.trace[strand_of(op)].append(what)

    @property
    def terminal(self) -> list[Event]:
        return [event for event in self.events if event.terminal]

    @property
    def messages(self) -> list[list[str]]:
        return [[message.role, plain_text(message.name), plain_text(message.text)] for message in self.thread.messages]

    @property
    def why(self) -> dict[str, list[tuple[str, str, str]]]:
        """Return the record of each hook about each answered tool use."""
        said = defaultdict[str, list[tuple[str, str, str]]](list)
        for end in self.events:
            if isinstance(end, ToolEnd) and end.why:
                rows = [(plain_text(row["hook"]), row["position"], row["verdict"]) for row in end.why]
                said[f"{self.strands.get(end.run_id)}.{end.call_id}"] += rows
        return said


watched: ContextVar[Observed] = ContextVar("watched")  # where a tool records its work


def strand_of(op: Any) -> str:
    """Operations of one strand follow each other; a tool use is a strand of its own."""
    return f"{op.run.thread.id}.{op.call.id}" if isinstance(op, ToolUse) else op.run.thread.id


def payload_of(op: Any) -> str | None:
    if isinstance(op, ToolUse):
        return op.args.get("x")
    return str(op.number) if isinstance(op, Step) else op.system


def plain_text(text: str) -> str:
    """Return a text without parts unknown to the reference: the capability and the wording."""
    text = re.sub(r"capability_\d+\.", "", text)
    text = re.sub(r"(HookError|ConfigError|ModelError):[^|]*", r"\1", text)
    text = re.sub(r"^(\w+) (was not used|ran|failed|may have run)\b.*: (\w+)$", r"\1 fell through: \3", text)
    text = re.sub(r"^(the run [\w ]+) while (\w+) ran; whether it took effect is unknown$", r"\1 before \2 ran", text)
    return "invalid" if re.match(r"there is no tool named|the arguments |\w+: x is missing", text) else text


def observed_result(op: Any) -> str:
    """An operation's result or error, as the reference writes it."""
    result = op.result
    if op.error is not None:
        return f"!{type(op.error).__name__}"
    if isinstance(result, Message):
        return f"{plain_text(result.text)} and {len(result.tool_calls)} calls"
    if isinstance(result, Result):
        return "|".join((result.outcome, plain_text(result.reason), plain_text(result.text)))
    if isinstance(result, Stop):
        return plain_text(result.reason)
    return "continue" if isinstance(result, Continue) else plain_text(result.text)


# -- hooks that do as they are described ------------------------------------------------------------------------------


def make_decision(hook: Described) -> Any:
    decisions = {
        "block": Block(hook.name),
        "ask": Ask(hook.name),
        "stop": Stop("enough"),
        "budget": Stop("budget: spent"),
        "continue": Continue(f"go on, says {hook.name}"),
        "nonsense": 42,
    }
    return decisions.get(hook.act)


def make_observer(hook: Described, observed: Observed) -> Callable[[Any], Any]:
    """The function of a before, an after or a guard."""

    def act(op: Any) -> Any:
        observed.note(
            op, hook.position, hook.name, payload_of(op), *([observed_result(op)] if hook.position == "after" else [])
        )
        apply_change(hook, op)
        if hook.act in ("raise", "edit and raise"):
            raise Boom(hook.name)
        return make_decision(hook)

    async def act_later(op: Any) -> Any:
        await yield_to_others(hook.awaits, hook.act == "swallow")
        answer = act(op)
        await yield_to_others(hook.awaits)
        return answer

    return act_later if hook.awaits else act


def apply_change(hook: Described, op: Any) -> None:
    if hook.position == "guard":
        try_tampering(op)
    elif hook.position == "after":
        amend_step(hook, op)
    elif hook.act in ("edit", "edit and raise"):
        edit_payload(hook, op)
    elif hook.act == "spoil" and isinstance(op, ToolUse):
        op.args = {}


def try_tampering(op: Any) -> None:
    """Try to change a sealed operation; it must fail."""
    for attempt in (lambda: setattr(op, "args", {}), lambda: op.args.update(x="y"), lambda: op.tools.clear()):
        try:
            attempt()
        except Exception:
            continue
        raise AssertionError("a guard changed what it saw")


def edit_payload(hook: Described, op: Any) -> None:
    if isinstance(op, ToolUse):
        op.args["x"] = f"{op.args.get('x')}/{hook.name}"
    elif not isinstance(op, Step):
        op.system = f"{op.system}/{hook.name}"


def amend_step(hook: Described, op: Any) -> None:
    if hook.act == "replace" and op.error is None:
        op.result = amended_step(op.result, hook.name)
    if hook.act == "heal" and op.error is not None:
        op.result = Stop("enough") if isinstance(op, Step) else hook.name


def amended_step(result: Any, name: str) -> Any:
    if isinstance(result, Message):
        return replace(result, content=f"{plain_text(result.text)}/{name}")
    if isinstance(result, Result):
        return replace(result, text=f"{plain_text(result.text)}/{name}")
    return ToolResult(f"{plain_text(result.text)}/{name}") if isinstance(result, ToolResult) else result


def make_wrap(hook: Described, observed: Observed) -> Callable[[Any, Any], Any]:
    """The function of a wrap."""

    async def act(op: Any, next: Any) -> Any:
        observed.note(op, "wrap", hook.name, payload_of(op))
        await yield_to_others(hook.awaits, hook.act == "swallow")
        apply_change(hook, op)
        if hook.act in ("raise", "edit and raise"):
            raise Boom(hook.name)
        if hook.act == "skip":
            return hook.name
        if (answer := make_decision(hook)) is not None:
            return answer
        if hook.act in ("twice", "retry", "heal", "raise late"):
            return await call_again(hook, op, next)
        result = await next(copy_operation(hook, op) if hook.act == "copy" else op)
        await yield_to_others(hook.awaits)
        return amended_step(result, hook.name) if hook.act == "replace" else result

    return act


async def call_again(hook: Described, op: Any, next: Any) -> Any:
    try:
        result = await next(op)
    except Exception:
        if hook.act == "twice":
            raise
        result = hook.name if hook.act == "heal" else None
    if hook.act == "raise late":
        raise Boom(hook.name)
    return await next(op) if hook.act == "twice" or result is None else result


def copy_operation(hook: Described, op: Any) -> Any:
    copy = op.fork()
    edit_payload(hook, copy)
    return copy


async def yield_to_others(times: int, swallow: bool = False) -> None:
    """Yield to other tasks; a hook that suppresses cancellation ignores it."""
    try:
        for _ in range(times):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if not swallow:
            raise


# -- agents -----------------------------------------------------------------------------------------------------------


def build_agent(spec: Spec, observed: Observed, strand: str = "go") -> Agent:
    """Build the agent of a spec; its behaviour is recorded."""
    observed.specs[strand] = spec
    watched.set(observed)
    return Agent(
        SpecModel(spec.script, observed.trace[strand]),
        name="agent" if strand == "go" else "child",
        system="be brief",
        tools=TOOLS,
        hooks=[
            Limits(steps=spec.steps),
            NoRetry(),
            *(build_part(number, hooks, observed) for number, hooks in enumerate(spec.parts)),
        ],
        ask=SpecUser(spec.answers, observed),
    )


def build_part(number: int, hooks: Sequence[Described], observed: Observed) -> Hook | Capability:
    """One hook is registered alone, several as a capability."""
    made = {hook.name: build_hook(hook, observed) for hook in hooks}
    if len(hooks) == 1:
        return made[hooks[0].name]
    named: Capability = type(f"Capability{number}", (Capability,), {**made, "name": f"capability_{number}"})()
    return named


def build_hook(hook: Described, observed: Observed) -> Hook:
    fn = (make_wrap if hook.position == "wrap" else make_observer)(hook, observed)
    return Method(
        fn,
        OPERATIONS[hook.operation],
        hook.position,  # type: ignore[arg-type]
        name=hook.name,
        match=hook.match or None,
        priority=hook.priority,
        timeout=30 if hook.position == "guard" else None,
        on_error="log" if hook.log else "fail",
        inherit=hook.inherit,
        shadow=hook.shadow,
    )


class NoRetry(Capability):
    """Nothing is asked again that the spec does not ask again."""

    name = "retry"


class Method(Hook):
    """A hook whose function does not take `self`, also in a capability."""

    __slots__ = ()

    def __get__(self, owner: Any, kind: type | None = None) -> Hook:
        return self if owner is None else replace(self, name=f"{owner.name}.{self.name}", owner=owner)


async def add(x: str, use: ToolUse) -> str:
    return await track_execution(use, x)


async def child(x: str, use: ToolUse) -> str:
    """Ask the agent below, if there is one."""
    text, observed = await track_execution(use, x), watched.get()
    spec = observed.specs[use.run.thread.id].child
    if spec is None:
        return text
    thread = Thread(f"{strand_of(use)}/")
    observed.below.append(thread)
    result = await build_agent(spec, observed, thread.id).run(x, parent=use.run, thread=thread)
    return "|".join((result.outcome, plain_text(result.reason), plain_text(result.text)))


async def broken(x: str, use: ToolUse) -> str:
    await track_execution(use, x)
    raise ToolError("it broke")


async def track_execution(use: ToolUse, x: str) -> str:
    """Record executions and concurrent ones of the same run."""
    observed, key, name = watched.get(), strand_of(use), use.call.name
    run = key.rpartition(".")[0]
    observed.note(use, "tool", x)
    observed.overlaps += [(name, mate) for other, mate in observed.running.items() if other.rpartition(".")[0] == run]
    observed.running[key] = name
    await yield_to_others(2)
    del observed.running[key]
    return f"{name} {x}"


TOOLS = [
    tool(add),
    tool(add, name="safe", idempotent=True),
    tool(add, name="solo", alone=True),
    tool(broken),
    tool(child),
]


class SpecModel:
    """Replies by position in the conversation, so that repeated requests give the same reply."""

    name = "model"

    def __init__(self, script: Sequence[Reply], trace: list[Any]) -> None:
        self.script, self.trace = script, trace

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        said = sum(message.role == "assistant" for message in request.messages)
        reply = self.script[said] if said < len(self.script) else Reply("the end")
        self.trace.append(("model", request.system, len(request.messages)))
        await yield_to_others(1)
        yield TextDelta(reply.text)
        for index, call in enumerate(reply.calls):
            yield CallStart(index, call.id, call.tool)
            yield CallArgs(index, '{"x": "ha' if call.x is None else f'{{"x": "{call.x}"}}')
            await yield_to_others(1)
        if reply.finish:
            yield Finish(reply.finish)


class SpecUser:
    """Answers by the name of the tool in question."""

    def __init__(self, answers: dict[str, str], observed: Observed) -> None:
        self.answers, self.observed = answers, observed

    async def __call__(self, question: Question) -> Any:
        op = question.op
        self.observed.note(op, "user", question.question, payload_of(op))
        await yield_to_others(1)
        name = op.call.name if isinstance(op, ToolUse) else next(iter(op.names))
        match self.answers.get(name, "yes"):
            case "pause":
                raise PausedRun("later")
            case "raise":
                raise Boom("no line")
            case "args":
                return Allow({"x": f"{payload_of(op)}/user"})
            case answer:
                return {"yes": True, "no": False, "nonsense": 42}[answer]


# -- watching a run --------------------------------------------------------------------------------------------------

Outcome = tuple[str, str, str]


async def observe_agent(spec: Spec, text: str = "go") -> tuple[Observed, Outcome]:
    """Build an agent, run it, and return its outcome or its error."""
    observed = Observed()
    agent = build_agent(spec, observed)
    try:
        result = await agent.run(text, thread=observed.thread, emit=observed.events.append)
    except Exception as error:
        return observed, ("failed", "error", type(error).__name__)
    return observed, (result.outcome, plain_text(result.reason), plain_text(result.text))


def expected_outcome(spec: Spec, text: str = "go") -> tuple[Reference, Outcome]:
    """Return the outcome of the reference."""
    reference = Reference(spec)
    try:
        return reference, reference.answer(text)
    except Failure as failure:
        return reference, ("failed", "error", failure.args[0])


# -- generating them --------------------------------------------------------------------------------------------------

NAMES = ("add", "child", "safe", "solo", "broken", "nosuch")
ACTS = {
    "before": ["pass", "ask", "edit", "block", "stop", "budget", "raise", "edit and raise", "spoil", "nonsense"],
    "wrap": [
        *("pass", "ask", "edit", "copy", "twice", "retry", "replace", "heal", "skip"),
        *("block", "stop", "raise", "edit and raise", "raise late", "nonsense"),
    ],
    "after": ["pass", "replace", "heal", "continue", "block", "stop", "budget", "raise", "nonsense", "ask"],
    "guard": ["pass", "ask", "pass", "ask", "block", "stop", "budget", "raise", "nonsense", "continue"],
}


OPERATION_NAMES = st.sampled_from(["tool_use", "model_call", "step", "run", "operation"])
focuses = st.sampled_from(["tool_use", "tool_use", "tool_use", "model_call", "step", "run"])


@st.composite
def hook_specs(draw: st.DrawFn, name: str, focus: str) -> Described:
    """Generate a hook at one of the sixteen points, or at four at once; most are at the focus."""
    position = draw(st.sampled_from(tuple(ACTS)))
    operation = draw(st.just(focus) | st.just(focus) | OPERATION_NAMES)
    patience = (
        [] if operation == "tool_use" else ["pass"] * 8
    )  # decisions that end the run are rare, or little would happen
    return Described(
        name,
        position,
        operation,
        draw(st.sampled_from([*ACTS[position], *patience])),
        match=draw(st.sampled_from(["", "", "", "add", "safe", "child"])) if operation == "tool_use" else "",
        priority=draw(st.sampled_from([0, 0, 0, 0, 1, -1])),
        log=position != "guard" and draw(st.booleans()),
        inherit=position in ("before", "after") and draw(st.booleans()),
        shadow=position == "guard" and draw(st.sampled_from([False, False, False, True])),
        awaits=draw(st.integers(0, 2)),
    )


@st.composite
def part_specs(draw: st.DrawFn, most: int = 8, prefix: str = "h") -> tuple[tuple[Described, ...], ...]:
    """Up to so many hooks, some of them together in a capability."""
    focus, count = draw(focuses), draw(st.integers(0, most))
    together: list[tuple[Described, ...]] = []
    for number in range(count):
        hook = draw(hook_specs(f"{prefix}{number}", focus))
        if together and draw(st.booleans()):
            together[-1] += (hook,)
        else:
            together.append((hook,))
    return tuple(together)


@st.composite
def script_specs(draw: st.DrawFn, names: Sequence[str] = NAMES) -> tuple[Reply, ...]:
    """Replies with calls, and one without that ends it."""
    wanted = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3), min_size=1, max_size=2))
    replies = []
    for step, tools in enumerate(wanted):
        xs = [draw(st.sampled_from(["x", "y", None] if tool == "add" else ["x"])) for tool in tools]
        calls = [Call(f"c{step}{'abc'[n]}", tool, x) for n, (tool, x) in enumerate(zip(tools, xs, strict=True))]
        replies.append(Reply(draw(st.sampled_from(["", "well"])), tuple(calls)))
    return (*replies, Reply("done", finish=draw(st.sampled_from(["stop", "stop", "stop", "length", ""]))))


answers = st.dictionaries(
    st.sampled_from(["add", "safe", "child", "step", "model", "agent"]),
    st.sampled_from(["yes", "no", "args", "nonsense", "raise", "pause"]),
    max_size=3,
)
leaves = st.builds(Spec, part_specs(3, "k"), script_specs(("add", "safe", "broken")))
specs = st.builds(Spec, part_specs(), script_specs(), answers, child=leaves, steps=st.sampled_from([2, 6]))


def ignore_cancellation(spec: Spec) -> Spec:
    """The same agent with hooks that take no notice when they are cancelled."""
    deaf = tuple(tuple(replace(hook, act="swallow", awaits=2) for hook in part) for part in spec.parts)
    return replace(spec, parts=deaf)


deaf_specs = specs.map(ignore_cancellation)


@st.composite
def asking_specs(draw: st.DrawFn) -> Spec:
    """Generate agents without children that ask about their tools, and whose runs can be resumed."""
    acts = {
        "before": ["ask", "edit", "block", "spoil"],
        "wrap": ["ask", "edit", "copy", "replace", "skip"],
        "after": ["replace", "heal", "block", "stop"],
        "guard": ["ask", "ask", "ask", "block", "raise", "stop"],
    }
    found = draw(st.lists(st.sampled_from([(place, act) for place in acts for act in acts[place]]), max_size=6))
    named = [Described(f"h{n}", place, "tool_use", act, awaits=n % 3) for n, (place, act) in enumerate(found)]
    asks = Described("sure", "guard", "tool_use", "ask", match=draw(st.sampled_from(["", "add", "safe"])))
    said = draw(st.dictionaries(st.sampled_from(["add", "safe", "solo"]), st.sampled_from(["yes", "no", "args"])))
    return Spec(tuple((hook,) for hook in (*named, asks)), draw(script_specs(NAMES[:1] + NAMES[2:])), said)
