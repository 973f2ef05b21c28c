"""Specifications of agents and the effects of their hooks, for `reference.py` and `generated_agents.py`.

The payload of an operation is one text: a tool's argument, the system prompt of a model call or of a run.
Its result is a text too, or a tuple: a run's (outcome, reason, text), a model call's (text, calls).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

DECISIONS = ("block", "ask", "stop", "budget", "continue")
STOPS = {"stop": "enough", "budget": "budget: spent", "limit": "step limit"}
SAID_NO = {
    "no": "the user said no to: {}",
    "nonsense": "42 is not an answer to: {}; return True, False, Allow(…) or Block(…) from the `ask` function",
    "raise": "the user could not be asked: no line",
    "args": "only a tool's arguments can be changed by an answer",
}


class BriefRepr:
    """Prints only non-default fields, in a form that can be pasted into a test."""

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if f.default is MISSING or getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class Hook(BriefRepr):
    """A hook and its behaviour at every position."""

    name: str
    position: str
    operation: str  # run, step, model_call, tool_use, or operation for all of them
    act: str = "pass"
    match: str = ""
    priority: int = 0
    log: bool = False
    inherit: bool = False
    shadow: bool = False
    awaits: int = 0  # how often it yields to other tasks first; it makes no difference


@dataclass(frozen=True, repr=False)
class Call(BriefRepr):
    """The model asks for a tool; without `x` its arguments break off in the middle."""

    id: str
    tool: str
    x: str | None = "x"


@dataclass(frozen=True, repr=False)
class Reply(BriefRepr):
    """A reply of the model; without `finish` it breaks off."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"


@dataclass(frozen=True, repr=False)
class Spec(BriefRepr):
    """An agent: its hooks (each tuple is one capability), the replies of its model, and the answers of its user."""

    parts: tuple[tuple[Hook, ...], ...] = ()
    script: tuple[Reply, ...] = ()
    answers: dict[str, str] = field(default_factory=dict)  # to a question about the tool of that name
    child: Spec | None = None
    steps: int = 6


class FailedSpec(Exception):
    """A failure: the name of the exception and its message."""


class PausedSpec(BaseException):
    """The user wants to answer later."""


@dataclass
class Op:
    """An operation on its way in. Its copies share `state`."""

    kind: str
    name: str
    strand: str  # events of one strand have one order
    payload: str | None
    asks: tuple[str, ...] = ()
    state: dict[str, Any] = field(default_factory=lambda: defaultdict(list))


# -- behaviour of hooks -----------------------------------------------------------------------------------------------


def apply_decision(hook: Hook, op: Op) -> str:
    """A hook changes an operation or fails, and decides; a decision that is not possible here is a failure."""
    if hook.act in ("edit", "edit and raise") and op.kind != "step":
        op.payload = f"{op.payload}/{hook.name}"
    if hook.act == "spoil" and op.kind == "tool_use":
        op.payload = None
    if hook.act in ("raise", "edit and raise"):
        raise FailedSpec("Boom", hook.name)
    if hook.act == "nonsense" or (hook.act in DECISIONS and not is_possible(hook, op)):
        raise FailedSpec("HookError")
    return hook.act if hook.act in DECISIONS else ""


def is_possible(hook: Hook, op: Op) -> bool:
    """Rule 4: which decision where."""
    if hook.act == "ask":
        return hook.position != "after"
    if hook.act == "continue":
        return (hook.position, op.kind) == ("after", "step")
    return hook.act == "block" or (hook.position, op.kind) != ("after", "run")


def apply_wrap(hook: Hook, op: Op, next: Callable[[str | None], Any]) -> Any:
    """Apply a wrap to an operation: once, twice, changed, or not at all."""
    if hook.act == "skip":
        return own_result(op, hook)
    if hook.act in ("copy", "replace"):
        result = next(f"{op.payload}/{hook.name}" if hook.act == "copy" and op.kind != "step" else op.payload)
        return change_payload(op, hook, result) if hook.act == "replace" else result
    try:
        result = next(op.payload)
    except FailedSpec:
        if hook.act not in ("retry", "heal", "raise late"):
            raise
        result = own_result(op, hook) if hook.act == "heal" else next(op.payload) if hook.act == "retry" else None
    if hook.act == "raise late":
        raise FailedSpec("Boom", hook.name)
    return next(op.payload) if hook.act == "twice" else result


def own_result(op: Op, hook: Hook) -> Any:
    """A result of a hook's own making; that of a step is a decision."""
    if op.kind == "step" and hook.position == "wrap":
        raise FailedSpec("HookError")
    return {"run": ("completed", "completed", hook.name), "model_call": (hook.name, ())}.get(op.kind, hook.name)


def change_payload(op: Op, hook: Hook, result: Any) -> Any:
    if op.kind == "run":
        return (*result[:2], f"{result[2]}/{hook.name}")
    if op.kind == "model_call":
        return f"{result[0]}/{hook.name}", result[1]
    return result if op.kind == "step" else f"{result}/{hook.name}"


def is_withheld(op: Op, hook: Hook, failed: FailedSpec) -> str:
    if op.kind != "tool_use":
        raise FailedSpec("HookError")
    return f"the result was withheld: the hook '{hook.name}' failed: {failed.args[0]}"


def visible_result(result: Any) -> str:
    if isinstance(result, FailedSpec):
        return f"!{result.args[0]}"
    if isinstance(result, tuple) and len(result) == 2:
        return f"{result[0]} and {len(result[1])} calls"
    return "|".join(result) if isinstance(result, tuple) else str(result)
