"""The rules of hooks on a page: from a description of an agent, what it must do.

`Reference(spec).answer("go")` is straight-line and recursive. It shares nothing with the dispatcher: it has no
tasks, no sealing and no log, and one operation after another takes the place of side by side. `tests/generated.py`
builds the agent that a `Spec` describes; what the two observe must be the same.

What an operation is about is one text, its payload: a tool's argument, a model call's and a run's system prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

DECISIONS = ("block", "ask", "stop", "budget", "continue")
STOPS = {"stop": "enough", "budget": "budget: spent", "limit": "step limit"}
RANKS = ("blocked", "stop requested", "budget", "step limit")  # the most authoritative reason first
MAX_CONTINUES = 8
SAID_NO = {
    "no": "the user said no to: {}",
    "nonsense": "42 is not an answer to: {}",
    "raise": "the user could not be asked: no line",
}


@dataclass(frozen=True)
class Hook:
    """A hook, and what it does wherever it stands."""

    name: str
    position: str
    operation: str  # run, step, model_call, tool_use, or operation for all of them
    act: str = "pass"
    match: str = ""
    priority: int = 0
    log: bool = False
    inherit: bool = False
    shadow: bool = False
    awaits: int = 0  # how often it lets others go on first; it makes no difference


@dataclass(frozen=True)
class Call:
    """The model asks for a tool; without `x` its arguments break off in the middle."""

    id: str
    tool: str
    x: str | None = "x"


@dataclass(frozen=True)
class Reply:
    """What the model says; without `finish` it breaks off."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"


@dataclass(frozen=True)
class Spec:
    """An agent: its hooks, each tuple of them one capability, what its model says, and what its user answers."""

    parts: tuple[tuple[Hook, ...], ...] = ()
    script: tuple[Reply, ...] = ()
    answers: dict[str, str] = field(default_factory=dict)  # to a question about what has that name
    child: Spec | None = None
    steps: int = 6


class Failed(Exception):
    """Something failed; `kind` is the name of the exception."""

    def __init__(self, kind: str, text: str = "") -> None:
        self.kind, self.text = kind, text


class Paused(BaseException):
    """The user wants to answer later."""


@dataclass
class Op:
    """An operation on its way in. Its copies share what stands in `trail`."""

    kind: str
    name: str
    strand: str  # what happens in one strand happens in one order
    payload: str | None
    asks: tuple[str, ...] = ()
    trail: dict[str, Any] = field(default_factory=lambda: defaultdict(list))


class Reference:
    """One run of an agent, as the rules have it."""

    def __init__(self, spec: Spec, above: Reference | None = None, strand: str = "go") -> None:
        self.spec, self.strand, self.root = spec, strand, above.root if above else self
        limit = (Hook("limits", "before", "step", "limit"),)
        handed = [tuple(hook for hook in part if hook.inherit) for part in above.parts] if above else []
        self.parts = [*handed, limit, *spec.parts]
        self.guards = [*(above.guards if above else ()), *outermost_first(self.parts, "guard")]
        self.trace: dict[str, list[Any]] = above.trace if above else defaultdict(list)
        self.why: dict[str, list[Any]] = above.why if above else defaultdict(list)
        self.messages: list[tuple[str, str, str]] = []
        self.pending: list[Call] = []
        self.stopping, self.continues, self.answers = "", 0, dict[Any, str]()

    def answer(self, text: str) -> tuple[str, str, str]:
        run = Op("run", "child" if self.root is not self else "agent", self.strand, "be brief")
        try:
            outcome = self.perform(run, partial(self.run, text))
        except Paused:
            return "interrupted", "paused: later", self.last()
        except Failed:
            self.dismiss("the run failed")
            raise
        self.dismiss(f"the run was {outcome[0]}")
        return outcome

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self, text: str, op: Op) -> tuple[str, str, str]:
        if self.messages:
            raise Failed("ConfigError")
        self.messages.append(("user", "", text))
        number, going = 0, True
        while going:
            number += 1
            step = Op("step", "step", self.strand, str(number))
            verdict = self.perform(step, partial(self.step, op.payload))
            going = verdict == "continue" and not self.stopping
            self.messages += step.trail["follow"] if going else []
        reason = self.stopping or verdict
        natural = reason.startswith(("completed", "finish reason"))
        return "completed" if natural else "stopped", reason, self.last()

    def step(self, system: str | None, op: Op) -> str:
        call = Op("model_call", "model", self.strand, system)
        reply: Reply = self.perform(call, self.model)
        if not call.trail["prevented"] and (reply.text or reply.calls):
            self.messages.append(("assistant", "", reply.text))
            self.pending = [*reply.calls]
        if self.stopping or not reply.calls:
            finish = call.trail["finish"] or "stop"
            return self.stopping or ("completed" if finish == "stop" else f"finish reason: {finish}")
        failures = [failure for failure in map(self.tool_use, reply.calls) if failure]
        if failures:
            raise next((failure for failure in failures if isinstance(failure, Failed)), failures[0])
        self.continues = 0
        return self.stopping or "continue"

    def model(self, op: Op) -> Reply:
        said = sum(role == "assistant" for role, *_ in self.messages)
        reply = self.spec.script[said] if said < len(self.spec.script) else Reply("the end")
        self.trace[op.strand].append(("model", op.payload, len(self.messages)))
        if not reply.finish:
            raise Failed("ModelError")
        op.trail["finish"] = reply.finish
        return reply

    def tool_use(self, call: Call) -> BaseException | None:
        op = Op("tool_use", call.tool, f"{self.strand}.{call.id}", call.x)
        op.trail["invalid"] = call.x is None or call.tool == "nosuch"
        failure = None
        try:
            text = self.perform(op, partial(self.use, call))
        except Failed as failed:
            failure, text = failed, f"{call.tool} was not used: {failed.kind}"
        except Paused as paused:
            return paused
        self.messages.append(("tool", call.tool, text))
        self.pending.remove(call)
        return failure

    def use(self, call: Call, op: Op) -> str:
        if "done" in op.trail["fates"] and call.tool != "safe":
            return f"{call.tool} has already run for this call; it is not idempotent, so it does not run again"
        self.trace[op.strand].append(("tool", op.payload))
        op.trail["fates"].append("failed" if call.tool == "broken" else "done")
        if call.tool != "child" or self.spec.child is None:
            return "it broke" if call.tool == "broken" else f"{call.tool} {op.payload}"
        try:
            return "|".join(Reference(self.spec.child, self, f"{op.strand}/").answer(str(op.payload)))
        except Failed as failed:
            op.trail["fates"][-1] = "failed"
            return f"child: {failed.kind}" + (f": {failed.text}" if failed.text else "")

    # -- the rings ----------------------------------------------------------------------------------------------

    def perform(self, op: Op, core: Callable[[Op], Any]) -> Any:
        hooks = outermost_first(self.parts, "after", "wrap", "before")
        return self.enter([hook for hook in hooks if stands(hook, op)], core, op)

    def enter(self, hooks: list[Hook], core: Callable[[Op], Any], op: Op) -> Any:
        if not hooks:
            return self.gate(core, op)
        ring: Any = getattr(self, hooks[0].position)
        inner = partial(self.enter, hooks[1:], core)
        if op.trail["invalid"] and hooks[0].position != "after":
            return inner(op)
        return ring(hooks[0], inner, op)

    def before(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        payload = op.payload
        try:
            decision = self.decide(hook, op)
        except Failed:
            self.says(hook, op, "failed")
            if not hook.log:
                raise
            op.payload, decision = payload, ""
        else:
            self.says(hook, op, decision or "pass")
        if decision == "ask":
            op.asks += (hook.name,)
        elif decision:
            return self.prevent(op, decision, hook.name)
        return inner(op)

    def wrap(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        payload, given, lost = op.payload, list[Any](), list[Failed]()

        def next(payload: str | None) -> Any:
            lost.clear()
            try:
                given.append(inner(replace(op, payload=payload)))
            except Failed as failed:
                lost.append(failed)
                raise
            return given[-1]

        try:
            result, decision = None, self.decide(hook, op)
            result = result if decision else self.around(hook, op, next)
        except Failed as failed:
            self.says(hook, op, "failed")
            if not hook.log or failed in lost:
                raise
            op.payload = payload
            if lost:
                raise lost[0] from None
            return given[-1] if given else inner(op)
        self.says(hook, op, decision or "pass")
        if decision == "ask":
            op.asks += (hook.name,)
            return inner(op)
        return self.prevent(op, decision, hook.name) if decision else result

    def around(self, hook: Hook, op: Op, next: Callable[[str | None], Any]) -> Any:
        if hook.act == "skip":
            return own(op, hook)
        if hook.act == "copy" and op.kind != "step":
            return next(f"{op.payload}/{hook.name}")
        if hook.act == "replace":
            return changed(op, hook, next(op.payload))
        if hook.act not in ("twice", "retry", "heal", "raise late"):
            return next(op.payload)
        try:
            result = next(op.payload)
        except Failed:
            if hook.act == "twice":
                raise
            result = own(op, hook) if hook.act == "heal" else None
        if hook.act == "raise late":
            raise Failed("Boom", hook.name)
        return next(op.payload) if hook.act == "twice" or result is None else result

    def after(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        result, error = None, None
        try:
            result = inner(op)
        except Failed as failed:
            error = failed
        try:
            decision = self.decide(hook, op, seen(error or result))
        except Failed as failed:
            self.says(hook, op, "failed")
            if not hook.log and op.kind == "tool_use":  # whatever it was: it may be a redactor that has failed
                return f"the result was withheld: the hook '{hook.name}' failed: {failed.kind}"
            if not hook.log and op.kind != "run":
                raise Failed("HookError") from None
        else:
            if hook.act == "replace" and error is None:
                result = changed(op, hook, result)
            elif hook.act == "heal" and error is not None:
                decision = "stop" if op.kind == "step" else decision
                result, error = None if decision else own(op, hook), None
            self.says(hook, op, decision or "pass")
            if decision == "block":
                result, error = self.prevent(op, decision, hook.name), None
            elif decision == "continue":
                self.continues += result != "continue"
                if result == "continue" or self.continues <= MAX_CONTINUES:
                    op.trail["follow"].append(("user", hook.name, f"go on, says {hook.name}"))
                    result, error = "continue", None
            elif decision:
                self.halt(STOPS[decision])
            if op.kind == "step" and error is None:
                result = self.stopping or result
        if error:
            raise error
        return result

    # -- the gate -----------------------------------------------------------------------------------------------

    def gate(self, core: Callable[[Op], Any], op: Op) -> Any:
        agreed = False
        while not op.trail["invalid"] and op.payload is not None:
            asks, refusals = [*op.asks], []
            for guard in self.guards:
                if stands(guard, op):
                    verdict, reason = self.guarded(guard, op)
                    asks += [guard.name] if verdict == "ask" else []
                    refusals += [(verdict, reason)] if verdict in ("block", "stop", "budget") else []
            if refusals:  # any refusal wins over any question, and a Stop over a Block
                return self.prevent(op, *sorted(refusals, key=lambda refusal: refusal[0] == "block")[0])
            if agreed or not asks:
                return core(op)
            answer, reason = self.ask(op, "\n".join(dict.fromkeys(asks)))
            if answer == "no":
                return self.prevent(op, "block", reason)
            if answer == "yes":
                return core(op)
            op, agreed = replace(op, payload=f"{op.payload}/user"), True
        return "invalid"

    def guarded(self, guard: Hook, op: Op) -> tuple[str, str]:
        try:
            verdict, reason = self.decide(guard, op), guard.name
        except Failed as failed:
            self.says(guard, op, "failed")
            told = ": ".join(filter(None, (failed.kind, failed.text)))
            verdict, reason = "block", f"the guard '{guard.name}' failed, so it has not agreed: {told}"
        else:
            self.says(guard, op, verdict or "pass")
        return "" if guard.shadow else verdict, reason

    def ask(self, op: Op, question: str) -> tuple[str, str]:
        """Once about each payload: what was answered covers every later attempt at the same."""
        bound = (op.kind, op.strand, op.payload, len(self.messages) if op.kind == "model_call" else 0)
        if bound not in self.answers:
            self.trace[op.strand].append(("user", question, op.payload))
            self.answers[bound] = self.root.spec.answers.get(op.name, "yes")
        answer = self.answers[bound]
        if answer == "pause":
            del self.answers[bound]
            raise Paused
        reason = SAID_NO.get(answer, "only a tool's arguments can be changed by an answer")
        no = answer in SAID_NO or (answer == "args" and op.kind != "tool_use")
        self.why[op.strand].append(("user", "gate", "refused" if no else "approved"))
        return "no" if no else answer, reason.format(question)

    # -- decisions ----------------------------------------------------------------------------------------------

    def decide(self, hook: Hook, op: Op, result: str = "") -> str:
        """A hook looks, changes the operation or fails, and decides; a decision that is not possible here fails."""
        if hook.act == "limit":
            return "limit" if int(op.payload or 0) > self.spec.steps else ""
        self.trace[op.strand].append((hook.position, hook.name, op.payload, *([result] if result else [])))
        if hook.act in ("edit", "edit and raise") and hook.position in ("before", "wrap") and op.kind != "step":
            op.payload = f"{op.payload}/{hook.name}"
        if hook.act == "spoil" and op.kind == "tool_use" and hook.position == "before":
            op.payload = None
        if hook.act in ("raise", "edit and raise"):
            raise Failed("Boom", hook.name)
        if hook.act == "nonsense" or (hook.act in DECISIONS and not possible(hook, op)):
            raise Failed("HookError")
        return hook.act if hook.act in DECISIONS else ""

    def says(self, hook: Hook, op: Op, verdict: str) -> None:
        if hook.act != "limit":
            self.why[op.strand].append((hook.name, hook.position, "stop" if verdict in STOPS else verdict))

    def prevent(self, op: Op, decision: str, reason: str) -> Any:
        op.trail["prevented"] = True
        if decision in STOPS:
            self.halt(STOPS[decision])
        elif op.kind != "tool_use":
            self.halt(f"blocked: {reason}")
        told = STOPS.get(decision, reason)
        results = {"run": ("stopped", self.stopping, ""), "step": self.stopping, "model_call": Reply(told)}
        return results.get(op.kind, told)

    def halt(self, reason: str) -> None:
        reason = reason if reason.partition(":")[0] in RANKS else f"stop requested: {reason}"
        if not self.stopping or rank(reason) < rank(self.stopping):
            self.stopping = reason

    def dismiss(self, event: str) -> None:
        self.messages += [("tool", call.tool, f"{event} before {call.tool} ran") for call in self.pending]

    def last(self) -> str:
        return next((text for role, _, text in reversed(self.messages) if role == "assistant"), "")


def outermost_first(parts: Iterable[tuple[Hook, ...]], *positions: str) -> list[Hook]:
    """Rule 1: a capability is one ring, its after around its wrap around its before; then priority, stable."""
    rings = [hook for part in parts for position in positions for hook in part if hook.position == position]
    return sorted(rings, key=lambda hook: -hook.priority)


def stands(hook: Hook, op: Op) -> bool:
    return hook.operation in (op.kind, "operation") and hook.match in ("", op.name)


def possible(hook: Hook, op: Op) -> bool:
    """Rule 4: which decision where."""
    if hook.act == "ask":
        return hook.position != "after"
    if hook.act == "continue":
        return (hook.position, op.kind) == ("after", "step")
    return hook.act == "block" or (hook.position, op.kind) != ("after", "run")


def own(op: Op, hook: Hook) -> Any:
    """A result of a hook's own making; a step has none."""
    if op.kind == "step":
        raise Failed("HookError")
    return {"run": ("completed", "completed", hook.name), "model_call": Reply(hook.name)}.get(op.kind, hook.name)


def changed(op: Op, hook: Hook, result: Any) -> Any:
    if op.kind == "run":
        return (*result[:2], f"{result[2]}/{hook.name}")
    if op.kind == "model_call":
        return replace(result, text=f"{result.text}/{hook.name}")
    return result if op.kind == "step" else f"{result}/{hook.name}"


def seen(result: Any) -> str:
    if isinstance(result, Failed):
        return f"!{result.kind}"
    if isinstance(result, Reply):
        return f"{result.text} and {len(result.calls)} calls"
    return "|".join(result) if isinstance(result, tuple) else str(result)


def rank(reason: str) -> int:
    return RANKS.index(reason.partition(":")[0])
