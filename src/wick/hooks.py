"""Hooks: functions that run before, around or after an operation, or guard its gate.

Hooks nest like the rings of an onion. The first hook is the outermost ring: it runs
first on the way in and last on the way out, so it has the last word.

    @guard(ToolUse, match="execute")
    async def no_deletes(use: ToolUse) -> Block | None:
        if "rm -rf" in use.args["command"]:
            return Block("that would delete everything")

`wick.onion` runs the rings and the gate inside them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

from wick._internal.dependencies import DepsParameter
from wick._internal.familiar_words import HOOK_OPTIONS, explain_options
from wick._internal.tool_flow import EFFECTS
from wick.constants import GUARD_SECONDS
from wick.decisions import Ask, Block, Continue, Stop
from wick.errors import HookError
from wick.hook_checks import Position, check_hook, find_deps, read_operation
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse

if TYPE_CHECKING:
    from wick.capability import Capability

Op = TypeVar("Op", bound=Operation[object])
R = TypeVar("R")
Answer = TypeVar("Answer")


class Next(Protocol[R]):
    """The `next` of a wrap: performs the operation, or a changed copy of it, and returns its result."""

    def __call__(self, op: Operation[R], /) -> Awaitable[R]: ...


# A hook takes its operation: as a function, or as a method, with or without the `Deps` of the run.
HookFunction = (
    Callable[[Op], Answer | Awaitable[Answer]]
    | Callable[[Any, Op], Answer | Awaitable[Answer]]
    | Callable[[Op, Any], Answer | Awaitable[Answer]]
    | Callable[[Any, Op, Any], Answer | Awaitable[Answer]]
)
WrapFunction = (
    Callable[[Op, Next[R]], Awaitable[Answer]]
    | Callable[[Any, Op, Next[R]], Awaitable[Answer]]
    | Callable[[Op, Next[R], Any], Awaitable[Answer]]
    | Callable[[Any, Op, Next[R], Any], Awaitable[Answer]]
)
OnError = Literal["fail", "log"]


@dataclass(frozen=True, eq=False, slots=True)
class Hook:
    """A function at one point of the loop. Create one with `before`, `wrap`, `after` or `guard`."""

    fn: Callable[..., object] = field(repr=False)  # the function
    operation: type[Operation[object]]  # the operation that it is about: Run, Step, ModelCall or ToolUse
    position: Position  # before, wrap, after or guard
    name: str = ""  # by default the function's name; unique in an agent
    match: Match = None  # tool names, patterns or a predicate; None matches everything
    priority: float = 0  # higher is further out
    timeout: float | None = None  # in seconds
    on_error: OnError = "fail"  # "log": ignore an error of the hook
    inherit: bool = False  # child runs have this hook, too
    hold: bool = False  # buffer streamed output until this `after` has run
    shadow: bool = False  # a guard that only records its verdict
    tools: tuple[str, ...] = ()  # names or patterns of tools that it adds when a run starts
    owner: Capability | None = field(default=None, repr=False)  # the capability that it belongs to
    deps: tuple[DepsParameter, ...] = field(default=(), repr=False)  # parameters that receive the deps of the run
    matches: Callable[[Operation[object]], bool] = field(init=False, repr=False)
    has_patterns: bool = field(init=False, repr=False)  # it matches by patterns, and not by a predicate

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or getattr(self.fn, "__name__", type(self.fn).__name__))
        object.__setattr__(self, "matches", compile_match(self.match))
        object.__setattr__(self, "has_patterns", self.match is not None and not callable(self.match))
        if self.owner is None:
            object.__setattr__(self, "deps", find_deps(self.fn))
            check_hook(self)

    def __call__(self, *args: Any) -> Any:
        """Call the plain function, for tests."""
        return self.fn(*args)

    def call_with_deps(self, op: Operation[object], *next: object) -> object:
        """Call the function with an operation and with the deps of the run that the hook belongs to."""
        deps, given = self._find_owner(op.run).deps, {}
        for parameter in self.deps:
            if parameter.is_injected and parameter.wants(deps):
                given[parameter.name] = deps
            elif not parameter.accepts(deps):
                raise HookError(
                    f"the hook {self.name!r} needs deps of type {parameter.type_name}; pass deps=… to the run"
                )
        return self.fn(op, *next, **given)

    def _find_owner(self, run: Run) -> Run:
        """Return the outermost run that has this hook, so that a child run cannot replace the deps of its guards."""
        owner, above = run, run.parent
        while above is not None:
            if self in above.loop.hooks or self in above.progress.extensions.guards:
                owner = above
            above = above.parent
        return owner

    @property
    def point(self) -> str:
        """The name of the point in configuration, traces and hook programs, such as `before_tool_use`."""
        return f"{self.position}_{self.operation.operation_name}"

    def __get__(self, owner: Capability | None, kind: type | None = None) -> Hook:
        """Bind a hook that is a method to its object, as Python binds methods."""
        if owner is None:
            return self
        return replace(self, fn=MethodType(self.fn, owner), name=f"{owner.name}.{self.name}", owner=owner)


class HookOptions(TypedDict, total=False):
    """Options of `wrap`, as the fields of `Hook` describe them."""

    name: str
    match: Match
    priority: float
    timeout: float | None
    on_error: OnError


class AfterOptions(HookOptions, total=False):
    """Options of `after`."""

    inherit: bool
    hold: bool


@overload
def before(fn: HookFunction[Op, Block | Ask | Stop | None], /) -> Hook: ...
@overload
def before(
    operation: type[Op], *, match: Match = None, priority: float = 0, timeout: float | None = None,
    on_error: OnError = "fail", inherit: bool = False, tools: str | Sequence[str] = (), name: str = "",
) -> Callable[[HookFunction[Op, Block | Ask | Stop | None]], Hook]: ...  # fmt: skip
def before(
    operation: Any = None, *, match: Match = None, priority: float = 0, timeout: float | None = None,
    on_error: OnError = "fail", inherit: bool = False, tools: str | Sequence[str] = (), name: str = "",
) -> Any:  # fmt: skip
    """Make a hook that runs before an operation. It may change the operation or return a decision."""
    names = (tools,) if isinstance(tools, str) else tuple(tools)
    return _decorate(
        "before", operation,
        lambda fn, op: Hook(fn, op, "before", name, match, priority, timeout, on_error, inherit, tools=names),
    )  # fmt: skip


@overload
def wrap(fn: WrapFunction[Run, Result, Result | str | Block | Ask | Stop], /) -> Hook: ...
@overload
def wrap(fn: WrapFunction[Step, Stop | Continue, Stop | Continue | Block | Ask], /) -> Hook: ...
@overload
def wrap(fn: WrapFunction[ModelCall, Message, Message | str | Block | Ask | Stop], /) -> Hook: ...
@overload
def wrap(fn: WrapFunction[ToolUse, ToolResult, ToolResult | str | Block | Ask | Stop], /) -> Hook: ...
@overload
def wrap(
    operation: type[Run], **options: Unpack[HookOptions]
) -> Callable[[WrapFunction[Run, Result, Result | str | Block | Ask | Stop]], Hook]: ...
@overload
def wrap(
    operation: type[Step], **options: Unpack[HookOptions]
) -> Callable[[WrapFunction[Step, Stop | Continue, Stop | Continue | Block | Ask]], Hook]: ...
@overload
def wrap(
    operation: type[ModelCall], **options: Unpack[HookOptions]
) -> Callable[[WrapFunction[ModelCall, Message, Message | str | Block | Ask | Stop]], Hook]: ...
@overload
def wrap(
    operation: type[ToolUse], **options: Unpack[HookOptions]
) -> Callable[[WrapFunction[ToolUse, ToolResult, ToolResult | str | Block | Ask | Stop]], Hook]: ...
@overload
def wrap(
    operation: type[Operation[Any]], **options: Unpack[HookOptions]
) -> Callable[[WrapFunction[Operation[Any], Any, Any]], Hook]: ...
def wrap(
    operation: Any = None, *, match: Match = None, priority: float = 0, timeout: float | None = None,
    on_error: OnError = "fail", name: str = "",
) -> Any:  # fmt: skip
    """Make a hook around an operation. It calls `next` once, several times, with a changed copy, or not at all."""
    return _decorate("wrap", operation, lambda fn, op: Hook(fn, op, "wrap", name, match, priority, timeout, on_error))


@overload
def after(fn: HookFunction[Run, Block | None], /) -> Hook: ...
@overload
def after(fn: HookFunction[Step, Block | Stop | Continue | None], /) -> Hook: ...
@overload
def after(fn: HookFunction[ModelCall, Block | Stop | None], /) -> Hook: ...
@overload
def after(fn: HookFunction[ToolUse, Block | Stop | None], /) -> Hook: ...
@overload
def after(
    operation: type[Run], **options: Unpack[AfterOptions]
) -> Callable[[HookFunction[Run, Block | None]], Hook]: ...
@overload
def after(
    operation: type[Step], **options: Unpack[AfterOptions]
) -> Callable[[HookFunction[Step, Block | Stop | Continue | None]], Hook]: ...
@overload
def after(
    operation: type[ModelCall], **options: Unpack[AfterOptions]
) -> Callable[[HookFunction[ModelCall, Block | Stop | None]], Hook]: ...
@overload
def after(
    operation: type[ToolUse], **options: Unpack[AfterOptions]
) -> Callable[[HookFunction[ToolUse, Block | Stop | None]], Hook]: ...
@overload
def after(
    operation: type[Operation[Any]], **options: Unpack[AfterOptions]
) -> Callable[[HookFunction[Operation[Any], Block | Stop | Continue | None]], Hook]: ...
def after(
    operation: Any = None, *, match: Match = None, priority: float = 0, timeout: float | None = None,
    on_error: OnError = "fail", inherit: bool = False, hold: bool = False, name: str = "",
) -> Any:  # fmt: skip
    """Make a hook that runs after an operation. It may replace the result or error, or return a decision."""
    return _decorate(
        "after", operation,
        lambda fn, op: Hook(fn, op, "after", name, match, priority, timeout, on_error, inherit, hold),
    )  # fmt: skip


@overload
def guard(fn: HookFunction[Op, Block | Ask | Stop | None], /) -> Hook: ...
@overload
def guard(
    operation: type[Op], *, match: Match = None, priority: float = 0, timeout: float = GUARD_SECONDS,
    shadow: bool = False, on_error: OnError = "fail", name: str = "",
) -> Callable[[HookFunction[Op, Block | Ask | Stop | None]], Hook]: ...  # fmt: skip
def guard(
    operation: Any = None, *, match: Match = None, priority: float = 0, timeout: float = GUARD_SECONDS,
    shadow: bool = False, on_error: OnError = "fail", name: str = "",
) -> Any:  # fmt: skip
    """Make a guard. It runs last before an operation and sees it sealed, exactly as it will be performed."""
    return _decorate(
        "guard", operation,
        lambda fn, op: Hook(fn, op, "guard", name, match, priority, timeout, on_error, shadow=shadow),
    )  # fmt: skip


if not TYPE_CHECKING:  # type checkers report unknown options themselves
    before, wrap, after, guard = (
        explain_options(f"@{fn.__name__}()", HOOK_OPTIONS)(fn) for fn in (before, wrap, after, guard)
    )


def _decorate(
    position: Position, given: Any, build: Callable[[Any, type[Operation[object]]], Hook]
) -> Hook | Callable[[Any], Hook]:
    """Return the decorator of a position, or the hook if the decorator is used without parentheses.

    Without an operation, the annotation of the function names it.
    """
    if isinstance(given, type):
        return lambda fn: build(fn, given)
    if given is None:
        return lambda fn: build(fn, read_operation(position, fn))
    return build(given, read_operation(position, given))


_RANK = {"after": 0, "wrap": 1, "before": 2, "guard": 3}


def order_rings(hooks: Iterable[Hook], operation: type[Operation[object]]) -> list[Hook]:
    """Return the hooks of an operation, outermost first.

    Hooks are sorted by priority, then by position in the list. The hooks of a capability stay together.
    """
    places: dict[object, int] = {}
    order = []
    for number, hook in enumerate(hooks):
        if issubclass(operation, hook.operation):
            place = places.setdefault(id(hook.owner) if hook.owner is not None else hook, number)
            order.append((-hook.priority, place, _RANK[hook.position], number, hook))
    return [hook for *_, hook in sorted(order, key=lambda row: row[:4])]


Match = str | Sequence[str] | Callable[[Any], bool] | None


def parse_patterns(match: Match) -> tuple[str, ...]:
    """Return the patterns of a match, or an empty tuple for a predicate."""
    if match is None or callable(match):
        return ()
    texts = [match] if isinstance(match, str) else list(match)
    found = tuple(part.strip() for text in texts for part in text.split("|") if part.strip())
    if not found:
        raise HookError(f"match={match!r} names nothing; leave it out to match everything")
    return found


ATTRIBUTES = ("kind", "effect", "private")  # of a tool, for patterns such as `kind:shell`


def is_plain_name(pattern: str) -> bool:
    """Return True if a pattern is a tool name without wildcards."""
    return pattern.partition(":")[0] not in ATTRIBUTES and not any(sign in pattern for sign in "*?[")


def compile_match(match: Match) -> Callable[[Operation[object]], bool]:
    """Compile a match into a predicate of operations."""
    if match is None:
        return lambda op: True
    if callable(match):
        return lambda op: bool(match(op))
    patterns = parse_patterns(match)
    exact = frozenset(filter(is_plain_name, patterns))
    tests = [(name, *_split_values(patterns, f"{name}:")) for name in ATTRIBUTES]
    about = [(name, plain, some) for name, plain, some in tests if plain or some]
    globs = [text for text in patterns if text not in exact and text.partition(":")[0] not in ATTRIBUTES]

    def test(op: Operation[object]) -> bool:
        for name, plain, some in about:
            value = getattr(op, name)
            if value in plain or (value and some and any(fnmatchcase(value, pattern) for pattern in some)):
                return True
        if not exact and not globs:
            return False
        names = op.names
        return not exact.isdisjoint(names) or any(fnmatchcase(name, pattern) for pattern in globs for name in names)

    return test


def _split_values(patterns: Iterable[str], prefix: str) -> tuple[frozenset[str], list[str]]:
    """Return the values of the patterns with a prefix: plain ones, and those with wildcards."""
    values = [pattern.removeprefix(prefix) for pattern in patterns if pattern.startswith(prefix)]
    plain = frozenset(value for value in values if not any(sign in value for sign in "*?["))
    if prefix == "effect:" and (wrong := sorted(plain - EFFECTS)):
        raise HookError(f"match='effect:{wrong[0]}': there is no such effect; use {', '.join(sorted(EFFECTS))}")
    return plain, [value for value in values if value not in plain]
