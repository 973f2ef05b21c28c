"""Checks at registration: refuse a hook that cannot work, and print the expected and the actual signature."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Protocol, Union

from wick._internal.dependencies import DepsParameter, read_deps_parameter
from wick._internal.visible_text import format_count
from wick.decisions import DECISIONS, Ask, Block, Continue, Decision, Stop
from wick.errors import HookError
from wick.operations import OPERATIONS, Operation, Run, Step

Position = Literal["before", "wrap", "after", "guard"]
POSITIONS: tuple[Position, ...] = ("before", "wrap", "after", "guard")
_PARAMETERS = {"run": "run: Run", "step": "step: Step", "model_call": "call: ModelCall", "tool_use": "use: ToolUse"}


class RegisteredHook(Protocol):
    """The attributes of a hook that the checks read. `wick.hooks` imports this module, so `Hook` is not known here."""

    @property
    def fn(self) -> Callable[..., object]: ...
    @property
    def operation(self) -> type[Operation[object]]: ...
    @property
    def position(self) -> Position: ...
    @property
    def name(self) -> str: ...
    @property
    def on_error(self) -> str: ...
    @property
    def hold(self) -> bool: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def tools(self) -> tuple[str, ...]: ...
    @property
    def deps(self) -> tuple[DepsParameter, ...]: ...


def allowed_decisions(position: Position, operation: str) -> tuple[type[Decision], ...]:
    """Return the decisions that a hook may return at a point."""
    return _BY_POINT[position, operation]


def _decisions_at(position: Position, operation: type[Operation[object]]) -> tuple[type[Decision], ...]:
    return (
        Block,
        *((Ask,) if position != "after" else ()),
        *((Stop,) if (position, operation) != ("after", Run) else ()),
        *((Continue,) if (position, operation) == ("after", Step) else ()),
    )


_BY_POINT = {(position, op.operation_name): _decisions_at(position, op) for position in POSITIONS for op in OPERATIONS}
for _position in POSITIONS:  # a hook of `Operation` may return any of these; the concrete operation decides
    _every = {decision for op in OPERATIONS for decision in _BY_POINT[_position, op.operation_name]}
    _BY_POINT[_position, Operation.operation_name] = tuple(_every)


_POSSIBLE = {
    Block: "Block is possible at every point",
    Ask: "Ask is possible at before, wrap and guard",
    Stop: "Stop is possible at every point but after(Run)",
    Continue: "Continue is possible at after(Step)",
}


def check_hook(hook: RegisteredHook) -> None:
    """Raise a HookError if a hook cannot work."""
    for check in _CHECKS:
        if problem := check(hook):
            expected, found = _expected_signature(hook), _actual_signature(hook.fn)
            raise HookError(f"{problem}.\n  expected: {expected}\n  found:    {found}")


def read_operation(position: Position, fn: Callable[..., object]) -> type[Operation[object]]:
    """Return the operation that the first parameter of a function is annotated with; raise a HookError without one."""
    example = f"@{position}(ToolUse)"
    if isinstance(fn, str):
        raise HookError(f"@{position} takes an operation; tools are matched with @{position}(ToolUse, match={fn!r})")
    if not callable(fn):
        raise HookError(f"@{position} takes an operation, as in {example}, not {fn!r}")
    hints = {name: hint for name, hint in _resolve_hints(fn).items() if name != "return"}
    kinds = [typing.get_origin(hint) or hint for hint in hints.values()]
    found = [kind for kind in kinds if kind in (*OPERATIONS, Operation)]
    if len(found) == 1:
        return found[0]
    name = getattr(fn, "__name__", "the hook")
    raise HookError(
        f"@{position} needs to know the operation of {name}: write {example}, or annotate its first parameter "
        "as Run, Step, ModelCall or ToolUse"
    )


def _check_options(hook: RegisteredHook) -> str:
    if hook.operation not in (*OPERATIONS, Operation):
        return f"a hook is for Run, Step, ModelCall, ToolUse or Operation, not for {hook.operation!r}"
    if hook.on_error not in ("fail", "log"):
        return f"on_error is 'fail' or 'log', not {hook.on_error!r}"
    if hook.position == "guard" and hook.on_error == "log":
        return "a guard that fails has not agreed: on_error='log' is not for guards; use shadow=True to only record"
    if hook.position == "guard" and not hook.timeout:
        return "a guard needs a time limit"
    if hook.timeout is not None and hook.timeout <= 0:
        return f"a time limit is a number of seconds above 0, not {hook.timeout!r}"
    if hook.hold and hook.operation.operation_name not in ("model_call", "tool_use"):
        return "only a ModelCall's deltas and a ToolUse's live output can be held"
    if hook.tools and hook.operation is not Run:
        return "tools are brought by before(Run)"
    return ""


def _check_callable(hook: RegisteredHook) -> str:
    if not callable(hook.fn):
        return f"a hook is a function, not {hook.fn!r}"
    if inspect.isgeneratorfunction(hook.fn) or inspect.isasyncgenfunction(hook.fn):
        return f"the hook {hook.name!r} is a generator; a hook returns its decision and yields nothing"
    if hook.position == "wrap" and inspect.isfunction(hook.fn) and not inspect.iscoroutinefunction(hook.fn):
        return f"the hook {hook.name!r} wraps an operation, so it must be async"
    return ""


def _check_parameters(hook: RegisteredHook) -> str:
    names = _argument_names(hook)
    wanted = 2 if hook.position == "wrap" else 1
    if names is None or len(names) == wanted:
        return ""
    taken = format_count(len(names), "argument")
    given = f"the hook {hook.name!r} takes {taken}, but {_point_name(hook)} gives it {wanted}"
    hint = f"; to receive the deps of the run, annotate {names[-1]} as Deps[…]" if len(names) == wanted + 1 else ""
    return given + hint


def _check_annotation(hook: RegisteredHook) -> str:
    names, hints = _argument_names(hook), _resolve_hints(hook.fn)
    kind = hints.get(names[0]) if names else None
    kind = typing.get_origin(kind) or kind  # Run of Run[Database]
    if not inspect.isclass(kind) or not issubclass(kind, Operation) or issubclass(hook.operation, kind):
        return ""
    expected, given = kind.__name__, hook.operation.__name__
    return f"the hook {hook.name!r} expects a {expected}, but {_point_name(hook)} gives it a {given}"


def _check_decisions(hook: RegisteredHook) -> str:
    possible = _BY_POINT[hook.position, hook.operation.operation_name]
    for decision in DECISIONS:
        if decision in _union_members(_resolve_hints(hook.fn).get("return")) and decision not in possible:
            if hook.position == "wrap" and hook.operation in (Step, Operation):
                continue  # a step's result is itself a Stop or a Continue
            return (
                f"the hook {hook.name!r} may answer {decision.__name__}, which is not possible at {_point_name(hook)}; "
                f"{_POSSIBLE[decision]}"
            )
    return ""


def _check_other_answers(hook: RegisteredHook) -> str:
    """Refuse a `before` hook or a guard that is annotated to return another value, such as a bool, than a decision."""
    if hook.position not in ("before", "guard"):
        return ""
    possible = " or ".join(f"{kind.__name__}(…)" for kind in _BY_POINT[hook.position, hook.operation.operation_name])
    for hint in _union_members(_resolve_hints(hook.fn).get("return")):
        if not _may_be_decision(kind := typing.get_origin(hint) or hint):
            name = getattr(kind, "__name__", kind)
            return (
                f"the hook {hook.name!r} returns a {name}, which is not a decision; "
                f"return None to continue, or {possible}"
            )
    return ""


def _may_be_decision(kind: object) -> bool:
    """Return False for a class that has no decision among its instances. A coroutine or a protocol may give one."""
    if not inspect.isclass(kind) or kind in (Any, type(None)) or hasattr(kind, "__await__"):
        return True
    if getattr(kind, "_is_protocol", False):
        return True
    return any(issubclass(decision, kind) or issubclass(kind, decision) for decision in DECISIONS)


_CHECKS = (
    _check_options,
    _check_callable,
    _check_parameters,
    _check_annotation,
    _check_decisions,
    _check_other_answers,
)


def _argument_names(hook: RegisteredHook) -> list[str] | None:
    """Return the names of the positional arguments without `self`, or None if any number is accepted."""
    try:
        parameters = list(inspect.signature(hook.fn).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    injected = {parameter.name for parameter in hook.deps if parameter.is_injected}
    required = [p for p in required if p.name not in injected]
    if required and required[0].name == "self":
        required = required[1:]
    return [p.name for p in required]


def find_deps(fn: Callable[..., object]) -> tuple[DepsParameter, ...]:
    """Return the parameters of a hook that depend on the type of the run's deps."""
    try:
        parameters, hints = inspect.signature(fn).parameters, _resolve_hints(fn, include_extras=True)
    except (TypeError, ValueError):
        return ()
    read = (
        read_deps_parameter(name, hints.get(name), parameter.default is parameter.empty, (Run,))
        for name, parameter in parameters.items()
    )
    return tuple(parameter for parameter in read if parameter is not None)


def _resolve_hints(fn: Callable[..., object], *, include_extras: bool = False) -> dict[str, object]:
    """Return the annotations that can be resolved. Other answers are checked when the hook returns."""
    try:
        return typing.get_type_hints(fn, include_extras=include_extras)
    except Exception:
        return {name: hint for name, hint in getattr(fn, "__annotations__", {}).items() if not isinstance(hint, str)}


def _union_members(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (Union, UnionType):
        return tuple(member for part in typing.get_args(hint) for member in _union_members(part))
    return (hint,)


def _point_name(hook: RegisteredHook) -> str:
    return f"{hook.position}_{hook.operation.operation_name}"


def _expected_signature(hook: RegisteredHook) -> str:
    operation = getattr(hook.operation, "operation_name", "")
    first = _PARAMETERS.get(operation, "op: Operation")
    result = " | ".join(d.__name__ for d in _BY_POINT.get((hook.position, operation), (Block,)))
    more, result = (", next", f"<result of next> | {result}") if hook.position == "wrap" else ("", f"{result} | None")
    name = hook.name if hook.name.isidentifier() else "hook"
    return f"async def {name}({first}{more}) -> {result}"


def _actual_signature(fn: Callable[..., object]) -> str:
    code = getattr(fn, "__code__", None)
    try:
        start = "async def" if inspect.iscoroutinefunction(fn) else "def"
        shape = f"{start} {getattr(fn, '__name__', fn)}{inspect.signature(fn)}"
    except (TypeError, ValueError):
        shape = repr(fn)
    return f"{shape}  ({code.co_filename}:{code.co_firstlineno})" if code else shape
