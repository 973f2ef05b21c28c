"""Reference implementation of the hook rules: compute the behaviour of an agent from its `Spec`.

`Reference(spec).answer("go")` is straight-line and recursive. It shares no code with the dispatcher: it has no tasks,
no seal and no log, and runs tools one after another instead of concurrently. `generated_agents.py` builds the agent of
a `Spec`; its observed behaviour must equal the computed one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from agent_specs import (
    SAID_NO,
    STOPS,
    Call,
    FailedSpec,
    Hook,
    Op,
    PausedSpec,
    Reply,
    Spec,
    apply_decision,
    apply_wrap,
    change_payload,
    is_withheld,
    own_result,
    visible_result,
)

RANKS = ("blocked", "stop requested", "budget", "step limit")  # the most authoritative reason first


class Reference:
    """One run of an agent, as the rules have it."""

    def __init__(self, spec: Spec, above: Reference | None = None, strand: str = "go") -> None:
        self.spec, self.strand = spec, strand
        self.root: Reference = above.root if above else self
        handed = [tuple(hook for hook in part if hook.inherit) for part in above.parts] if above else []
        self.parts: list[tuple[Hook, ...]] = [*handed, (Hook("limits", "before", "step", "limit"),), *spec.parts]
        self.guards: list[Hook] = [*(above.guards if above else ()), *outermost_first(self.parts, "guard")]
        self.trace: dict[str, list[Any]] = above.trace if above else defaultdict(list)
        self.why: dict[str, list[Any]] = above.why if above else defaultdict(list)
        self.messages: list[list[str]] = []  # role, name and text; a call that waits for its result has no text
        self.stopping, self.continues, self.answers = "", 0, dict[Any, str]()

    # -- the loop -----------------------------------------------------------------------------------------------

    def answer(self, text: str) -> tuple[str, str, str]:
        run = Op("run", "agent" if self.root is self else "child", self.strand, "be brief")
        try:
            outcome: tuple[str, str, str] = self.perform(run, partial(self.run, text))
        except PausedSpec:
            if self.root is not self:
                raise  # a question to a child waits for the user of the root run
            return "interrupted", "paused: later", self.last_reply()
        except FailedSpec:
            self.dismiss("the run failed")
            raise
        self.dismiss(f"the run was {outcome[0]}")
        return outcome

    def run(self, text: str, run: Op) -> tuple[str, str, str]:
        """Another attempt continues where the last one ended; messages are not repeated."""
        self.messages += [] if self.messages else [["user", "", text]]
        waiting = any(len(row) == 2 for row in self.messages)
        number = sum(row[0] == "assistant" for row in self.messages) - waiting
        verdict = self.stopping or ("completed" if self.messages[-1][0] == "assistant" else "continue")
        while verdict == "continue":
            number += 1
            step = Op("step", "step", self.strand, str(number))
            verdict = self.perform(step, partial(self.step, run.payload))
            verdict = self.stopping or verdict
            self.messages += step.state["follow"] if verdict == "continue" else []
        natural = verdict.startswith(("completed", "finish reason"))
        return "completed" if natural else "stopped", verdict, self.last_reply()

    def step(self, system: str | None, step: Op) -> str:
        return self.stopping or self.turn(system)

    def turn(self, system: str | None) -> str:
        if self.messages[-1][0] == "assistant":  # a hook repeats a step that has ended with a reply
            self.messages.append(["user", "continue", "Continue."])
        call = Op("model_call", "model", self.strand, system)
        text, calls = self.perform(call, self.model)
        rows = [["tool", wanted.tool] for wanted in calls]
        if not call.state["prevented"] and (text or calls):
            self.messages += [["assistant", "", text], *rows]
        if self.stopping or not calls:
            return self.stopping or str(call.state["finish"] or "completed")
        failures = [failure for failure in map(self.tool_use, calls, rows) if failure]
        if failures:
            raise next((failure for failure in failures if isinstance(failure, FailedSpec)), failures[0])
        self.continues = 0
        return self.stopping or "continue"  # type: ignore[redundant-expr]  # a tool's hook may have stopped it

    def model(self, call: Op) -> tuple[str, tuple[Call, ...]]:
        said = sum(row[0] == "assistant" for row in self.messages)
        reply = self.spec.script[said] if said < len(self.spec.script) else Reply("the end")
        self.trace[call.strand].append(("model", call.payload, len(self.messages)))
        if not reply.finish:
            raise FailedSpec("ModelError")
        call.state["finish"] = "completed" if reply.finish == "stop" else f"finish reason: {reply.finish}"
        return reply.text, reply.calls

    def tool_use(self, call: Call, row: list[str]) -> BaseException | None:
        use = Op("tool_use", call.tool, f"{self.strand}.{call.id}", call.x)
        use.state["invalid"] = call.x is None or call.tool == "nosuch"
        try:
            row.append(self.perform(use, self.tool))
        except FailedSpec as failed:
            row.append(f"{call.tool} fell through: {failed.args[0]}")
            return failed
        except PausedSpec as paused:
            return paused
        return None

    def tool(self, use: Op) -> str:
        if "done" in use.state["fates"] and use.name != "safe":
            return f"{use.name} has already run for this call; it is not idempotent, so it does not run again"
        self.trace[use.strand].append(("tool", use.payload))
        use.state["fates"].append("failed" if use.name == "broken" else "done")
        if use.name != "child" or self.spec.child is None:
            return "it broke" if use.name == "broken" else f"{use.name} {use.payload}"
        try:
            return "|".join(Reference(self.spec.child, self, f"{use.strand}/").answer(str(use.payload)))
        except FailedSpec as failed:
            use.state["fates"][-1] = "failed"
            return ": ".join(("child", *failed.args))

    # -- the rings ----------------------------------------------------------------------------------------------

    def perform(self, op: Op, core: Callable[[Op], Any]) -> Any:
        hooks = outermost_first(self.parts, "after", "wrap", "before")
        return self.enter([hook for hook in hooks if is_at(hook, op)], core, op)

    def enter(self, hooks: list[Hook], core: Callable[[Op], Any], op: Op) -> Any:
        if not hooks:
            return self.gate(core, op)
        inner = partial(self.enter, hooks[1:], core)
        if op.state["invalid"] and hooks[0].position != "after":
            return inner(op)
        rings = {"before": self.before, "wrap": self.wrap, "after": self.after}
        return rings[hooks[0].position](hooks[0], inner, op)

    def before(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        payload, verdict = op.payload, self.look(hook, op)
        if isinstance(verdict, FailedSpec):
            if not hook.log:
                raise verdict
            op.payload = payload
        elif verdict == "ask":
            op.asks += (hook.name,)
        elif verdict:
            return self.prevent(op, verdict, hook.name)
        return inner(op)

    def wrap(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        payload, given, lost = op.payload, list[Any](), list[FailedSpec]()

        def next(payload: str | None) -> Any:
            lost.clear()
            try:
                given.append(inner(replace(op, payload=payload)))
            except FailedSpec as failed:
                lost.append(failed)
                raise
            return given[-1]

        try:
            self.trace[op.strand].append(("wrap", hook.name, op.payload))
            verdict = apply_decision(hook, op)
            result = None if verdict else apply_wrap(hook, op, next)
        except FailedSpec as failed:
            self.says(hook, op, "" if failed in lost else failed)
            if not hook.log or failed in lost:
                raise
            op.payload = payload
            if lost:
                raise lost[0] from None
            return given[-1] if given else inner(op)
        self.says(hook, op, verdict)
        if verdict == "ask":
            op.asks += (hook.name,)
            return inner(op)
        return self.prevent(op, verdict, hook.name) if verdict else result

    def after(self, hook: Hook, inner: Callable[[Op], Any], op: Op) -> Any:
        try:
            result, error = inner(op), None
        except FailedSpec as failed:
            result, error = None, failed
        verdict = self.look(hook, op, visible_result(error or result))
        if isinstance(verdict, FailedSpec):  # it may have been a redactor: the result is withheld
            if not hook.log and op.kind != "run":
                return is_withheld(op, hook, verdict)
        elif hook.act == "replace" and error is None:
            result = change_payload(op, hook, result)
        elif hook.act == "heal" and error is not None:
            result, error, verdict = own_result(op, hook), None, "stop" if op.kind == "step" else ""
        elif verdict == "block":
            result, error = self.prevent(op, verdict, hook.name), None
        elif verdict == "continue" and self.may_continue(result):
            op.state["follow"].append(["user", hook.name, f"go on, says {hook.name}"])
            result, error = "continue", None
        if verdict in STOPS:
            self.halt(STOPS[verdict])
        if error is not None:
            raise error
        return self.stopping or result if op.kind == "step" else result

    def may_continue(self, result: Any) -> bool:
        self.continues += result != "continue"
        return result == "continue" or self.continues <= 8

    # -- the gate -----------------------------------------------------------------------------------------------

    def gate(self, core: Callable[[Op], Any], op: Op) -> Any:
        agreed = False
        while not op.state["invalid"] and op.payload is not None:
            verdicts = [(guard, self.look(guard, op)) for guard in self.guards if is_at(guard, op)]
            counted = [(guard, verdict) for guard, verdict in verdicts if verdict and not guard.shadow]
            refusals = [(guard, verdict) for guard, verdict in counted if verdict != "ask"]
            if refusals:  # any refusal wins over any question, and a Stop over a Block
                stops = [refusal for refusal in refusals if refusal[1] in STOPS]
                return self.refuse(op, *(stops or refusals)[0])
            asks = dict.fromkeys((*op.asks, *(guard.name for guard, _ in counted)))
            answer = "yes" if agreed or not asks else self.ask(op, "\n".join(asks))
            if answer == "yes":
                return core(op)
            if answer != "args" or op.kind != "tool_use":
                return self.prevent(op, "block", SAID_NO[answer].format("\n".join(asks)))
            op, agreed = replace(op, payload=f"{op.payload}/user"), True
        return "invalid"

    def refuse(self, op: Op, guard: Hook, verdict: str | FailedSpec) -> Any:
        if isinstance(verdict, str):
            return self.prevent(op, verdict, guard.name)
        why = ": ".join(verdict.args)
        return self.prevent(op, "block", f"the guard '{guard.name}' failed, so it has not agreed: {why}")

    def ask(self, op: Op, question: str) -> str:
        """Ask once about each payload; the answer covers later attempts with the same payload."""
        bound = (op.kind, op.strand, op.payload, len(self.messages) if op.kind == "model_call" else 0)
        answer = self.root.spec.answers.get(op.name, "yes")
        if bound not in self.answers:
            self.trace[op.strand].append(("user", question, op.payload))
        if answer == "pause":
            raise PausedSpec
        self.answers[bound] = answer
        agreed = answer == "yes" or (answer == "args" and op.kind == "tool_use")
        self.why[op.strand].append(("user", "gate", "approved" if agreed else "refused"))
        return answer

    # -- decisions ----------------------------------------------------------------------------------------------

    def look(self, hook: Hook, op: Op, *seen: str) -> str | FailedSpec:
        if hook.act == "limit":
            return "limit" if int(op.payload or 0) > self.spec.steps else ""
        verdict: str | FailedSpec
        try:
            self.trace[op.strand].append((hook.position, hook.name, op.payload, *seen))
            verdict = apply_decision(hook, op)
        except FailedSpec as failed:
            verdict = failed
        self.says(hook, op, verdict)
        return verdict

    def says(self, hook: Hook, op: Op, verdict: str | FailedSpec) -> None:
        word = "failed" if isinstance(verdict, FailedSpec) else "stop" if verdict in STOPS else verdict or "pass"
        self.why[op.strand].append((hook.name, hook.position, word))

    def prevent(self, op: Op, decision: str, reason: str) -> Any:
        op.state["prevented"] = True
        if decision in STOPS:
            self.halt(STOPS[decision])
        elif op.kind != "tool_use":
            self.halt(f"blocked: {reason}")
        told = STOPS.get(decision, reason)
        results = {"run": ("stopped", self.stopping, ""), "step": self.stopping, "model_call": (told, ())}
        return results.get(op.kind, told)

    def halt(self, reason: str) -> None:
        reason = reason if reason.partition(":")[0] in RANKS else f"stop requested: {reason}"
        self.stopping = min(filter(None, (self.stopping, reason)), key=lambda r: RANKS.index(r.partition(":")[0]))

    def dismiss(self, event: str) -> None:
        for row in self.messages:
            row += [f"{event} before {row[1]} ran"] if len(row) == 2 else []

    def last_reply(self) -> str:
        return next((row[2] for row in reversed(self.messages) if row[0] == "assistant"), "")


def outermost_first(parts: Iterable[tuple[Hook, ...]], *positions: str) -> list[Hook]:
    """Rule 1: a capability is one ring, its after around its wrap around its before; then priority, stable."""
    rings = [hook for part in parts for position in positions for hook in part if hook.position == position]
    return sorted(rings, key=lambda hook: -hook.priority)


def is_at(hook: Hook, op: Op) -> bool:
    return hook.operation in (op.kind, "operation") and hook.match in ("", op.name)
