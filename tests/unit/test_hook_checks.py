"""An invalid hook is refused at registration, with the expected and the actual signature."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Optional, Union

import pytest

from wick import (  # fmt: skip
    Ask,
    Block,
    Capability,
    Continue,
    Hook,
    ModelCall,
    Operation,
    Run,
    Step,
    Stop,
    ToolUse,
    after,
    before,
    guard,
    wrap,
)
from wick.decisions import DECISIONS
from wick.errors import HookError
from wick.hook_checks import POSITIONS, Position, allowed_decisions
from wick.hooks import Next
from wick.operations import OPERATIONS

Kind = type[Operation[Any]]
POINTS = [(position, operation) for position in POSITIONS for operation in OPERATIONS]

# rule 4: which decision where


def _possible(position: Position, operation: Kind, decision: type) -> bool:
    """Return the rule of the design."""
    if decision is Block:
        return True
    if decision is Ask:
        return position in ("before", "wrap", "guard")
    if decision is Stop:
        return (position, operation) != ("after", Run)
    return (position, operation) == ("after", Step)


@pytest.mark.parametrize(("position", "operation"), POINTS)
def test_the_table_of_decisions_is_the_rule(position: Position, operation: Kind) -> None:
    assert set(allowed_decisions(position, operation.operation_name)) == {
        d for d in DECISIONS if _possible(position, operation, d)
    }


def _annotated(position: Position, returns: Any) -> Callable[..., Any]:
    async def look(op): ...  # type: ignore[no-untyped-def]
    async def around(op, next): ...  # type: ignore[no-untyped-def]

    fn = around if position == "wrap" else look
    fn.__annotations__["return"] = returns
    return fn


def _register(position: Position, operation: Kind, fn: Callable[..., Any]) -> Hook:
    make: dict[str, Any] = {"before": before, "wrap": wrap, "after": after, "guard": guard}
    hook = make[position](operation)(fn)
    assert isinstance(hook, Hook)
    return hook


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize(("position", "operation"), POINTS)
def test_an_annotation_that_shows_a_wrong_decision_is_refused(
    position: Position, operation: Kind, decision: Any
) -> None:
    a_steps_own_result = position == "wrap" and operation is Step and decision is Continue
    for returns in (decision, decision | None, Optional[decision], Union[Block, decision, None]):  # noqa: UP007, UP045
        fn = _annotated(position, returns)
        if _possible(position, operation, decision) or a_steps_own_result:
            assert _register(position, operation, fn).point == f"{position}_{operation.operation_name}"
        else:
            with pytest.raises(HookError, match=f"may answer {decision.__name__}, which is not possible at") as refused:
                _register(position, operation, fn)
            assert re.search(
                rf"{position}_{operation.operation_name}; {decision.__name__} is possible at .+\.\n  expected: async",
                str(refused.value),
            )


@pytest.mark.parametrize(
    ("position", "decision"),
    [("before", Continue), ("guard", Continue), ("after", Ask)],
)
def test_an_operation_hook_may_return_what_one_operation_allows(position: Position, decision: Any) -> None:
    _register("after", Operation, _annotated("after", Continue | Stop | Block | None))
    with pytest.raises(HookError, match=f"may answer {decision.__name__}"):
        _register(position, Operation, _annotated(position, decision | None))


def test_a_wrap_result_is_not_a_decision() -> None:
    @wrap(Step)
    async def around(step: Step, next: Next[Any]) -> Stop | Continue:
        result: Stop | Continue = await next(step)
        return result

    assert around.name == "around"


def test_an_annotation_that_cannot_be_resolved_is_left_to_the_run() -> None:
    async def look(use: ToolUse) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert before(ToolUse)(look).name == "look"


# printed form


def test_expected_and_actual_signatures_are_printed() -> None:
    with pytest.raises(HookError) as refused:

        @before(ToolUse)  # type: ignore[arg-type]
        async def look(use: ToolUse, extra: str) -> Block | None: ...

    first, expected, found = str(refused.value).splitlines()
    words = "to receive the deps of the run, annotate extra as Deps[…]."
    assert first == f"the hook 'look' takes 2 arguments, but before_tool_use gives it 1; {words}"
    assert expected == "  expected: async def look(use: ToolUse) -> Block | Ask | Stop | None"
    assert found.startswith("  found:    async def look(use: 'ToolUse', extra: 'str') -> 'Block | None'  (")
    assert "test_hook_checks.py:" in found


@pytest.mark.parametrize(
    ("position", "operation", "expected"),
    [
        ("before", Run, "async def look(run: Run) -> Block | Ask | Stop | None"),
        ("after", Run, "async def look(run: Run) -> Block | None"),
        ("after", Step, "async def look(step: Step) -> Block | Stop | Continue | None"),
        ("guard", ModelCall, "async def look(call: ModelCall) -> Block | Ask | Stop | None"),
        ("wrap", ToolUse, "async def look(use: ToolUse, next) -> <result of next> | Block | Ask | Stop"),
        ("after", ToolUse, "async def look(use: ToolUse) -> Block | Stop | None"),
    ],
)
def test_the_expected_signature_is_valid(position: Position, operation: Kind, expected: str) -> None:
    def look() -> None: ...

    with pytest.raises(HookError) as refused:
        Hook(look, operation, position, timeout=1)
    assert f"expected: {expected}" in str(refused.value)


def test_the_expected_signature_of_a_hook_without_identifier() -> None:
    with pytest.raises(HookError, match=r"expected: async def hook\(use: ToolUse\)"):
        before(ToolUse, name="my hook")(lambda: None)  # type: ignore[arg-type]


# the number of arguments


@pytest.mark.parametrize(
    ("position", "fn", "count", "wanted"),
    [
        ("before", lambda: None, 0, 1),
        ("before", lambda a, b: None, 2, 1),
        ("after", lambda a, b, c: None, 3, 1),
        ("guard", lambda: None, 0, 1),
    ],
)
def test_a_wrong_number_of_arguments_is_refused(position: Position, fn: Any, count: int, wanted: int) -> None:
    with pytest.raises(HookError, match=f"takes {count} arguments, but {position}_tool_use gives it {wanted}"):
        Hook(fn, ToolUse, position, timeout=1)


def test_a_wrap_without_next_is_refused() -> None:
    async def around(use: ToolUse) -> None: ...

    with pytest.raises(HookError, match="takes 1 argument, but wrap_tool_use gives it 2"):
        wrap(ToolUse)(around)  # type: ignore[arg-type]


def test_arguments_with_defaults_and_any_number_of_arguments_are_fine() -> None:
    assert before(ToolUse)(lambda use, limit=3: None).name == "<lambda>"
    assert before(ToolUse, name="any")(lambda *args: None).name == "any"
    assert before(ToolUse, name="part")(partial(lambda limit, use: None, 3)).name == "part"


def test_a_method_is_counted_without_its_self() -> None:
    class Good(Capability):
        @before(Run)
        async def look(self, run: Run) -> None: ...

    assert [hook.name for hook in Good().hooks()] == ["good.look"]
    with pytest.raises(HookError, match="takes 2 arguments"):

        class Bad(Capability):
            @before(Run)  # type: ignore[arg-type]
            async def look(self, run: Run, more: str) -> None: ...


# generators, and functions that are not async


def test_a_generator_is_refused() -> None:
    def some(use: ToolUse) -> Iterator[Block]:
        yield Block("no")

    async def many(use: ToolUse) -> AsyncIterator[Block]:
        yield Block("no")

    for fn in (some, many):
        with pytest.raises(HookError, match=f"{fn.__name__!r} is a generator; a hook returns its decision"):
            guard(ToolUse)(fn)  # type: ignore[arg-type]


def test_a_wrap_that_is_not_async_is_refused() -> None:
    def around(use: ToolUse, next: Next[Any]) -> None: ...

    with pytest.raises(HookError, match="wraps an operation, so it must be async"):
        wrap(ToolUse)(around)  # type: ignore[arg-type]


def test_an_object_that_can_be_called_is_a_hook() -> None:
    class Look:
        async def __call__(self, use: ToolUse) -> None: ...

    assert before(ToolUse)(Look()).name == "Look"


def test_an_uncallable_hook_is_refused() -> None:
    with pytest.raises(HookError, match="a hook is a function, not 'look'"):
        before(ToolUse)("look")  # type: ignore[arg-type]


# the operation


def test_an_annotation_with_another_operation_is_refused() -> None:
    async def look(call: ModelCall) -> None: ...

    with pytest.raises(HookError, match="'look' expects a ModelCall, but guard_tool_use gives it a ToolUse"):
        guard(ToolUse)(look)  # type: ignore[arg-type]


def test_an_operation_hook_cannot_expect_one_operation() -> None:
    async def look(use: ToolUse) -> None: ...

    with pytest.raises(HookError, match="'look' expects a ToolUse, but before_operation gives it a Operation"):
        before(Operation)(look)  # type: ignore[arg-type]


def test_a_hook_for_any_operation_can_be_at_each() -> None:
    async def look(op: Operation[Any]) -> None: ...

    assert before(ToolUse)(look).point == "before_tool_use"


@pytest.mark.parametrize("operation", [str, int, Block])
def test_a_hook_at_something_else_is_refused(operation: Any) -> None:
    with pytest.raises(HookError, match="is for Run, Step, ModelCall, ToolUse or Operation, not for"):
        before(operation)(lambda op: None)


# the options


def test_a_guard_cannot_fail_silently() -> None:  # rule 9
    with pytest.raises(HookError, match=r"on_error='log' is not for guards; use shadow=True to only record"):
        guard(ToolUse, on_error="log")(lambda use: None)


def test_a_guard_has_a_time_limit_of_thirty_seconds_and_needs_one() -> None:  # rule 9
    assert guard(ToolUse)(lambda use: None).timeout == 30
    for none in (None, 0):
        with pytest.raises(HookError, match="a guard needs a time limit"):
            guard(ToolUse, timeout=none)(lambda use: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_limit_is_above_zero(seconds: float) -> None:
    with pytest.raises(HookError, match="a number of seconds above 0"):
        before(ToolUse, timeout=seconds)(lambda use: None)


def test_on_error_is_fail_or_log() -> None:
    with pytest.raises(HookError, match="on_error is 'fail' or 'log', not 'ignore'"):
        before(ToolUse, on_error="ignore")(lambda use: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", [Run, Step, Operation])
def test_only_model_calls_and_tool_uses_can_be_held(operation: Any) -> None:  # rule 18
    with pytest.raises(HookError, match="only a ModelCall's deltas and a ToolUse's live output can be held"):
        after(operation, hold=True)(lambda op: None)


@pytest.mark.parametrize("operation", [Step, ModelCall, ToolUse, Operation])
def test_tools_added_at_run_start(operation: Any) -> None:  # rule 11
    with pytest.raises(HookError, match=r"tools are brought by before\(Run\)"):
        before(operation, tools="mcp_*")(lambda op: None)
    assert before(Run, tools="mcp_*")(lambda run: None).tools == ("mcp_*",)


@pytest.mark.parametrize("returns", [bool, str, bool | None, Block | str, list[Block], dict[str, Any]])
@pytest.mark.parametrize("position", ["before", "guard"])
def test_an_annotation_without_a_decision_is_refused(position: Position, returns: Any) -> None:
    with pytest.raises(HookError, match=r"not a decision; return None to continue, or Block\(…\) or Ask\(…\)"):
        _register(position, ToolUse, _annotated(position, returns))


@pytest.mark.parametrize("returns", [object, Any, None, Block | None, AsyncIterator, Callable, "Unknown"])
def test_an_annotation_that_may_be_a_decision_is_accepted(returns: Any) -> None:
    _register("after", ToolUse, _annotated("after", returns))
    if returns not in (AsyncIterator, Callable):
        _register("guard", ToolUse, _annotated("guard", returns))


def test_a_function_that_returns_an_awaitable_is_accepted() -> None:
    def look(use: ToolUse) -> Awaitable[Block | None]: ...  # type: ignore[empty-body]

    assert guard(ToolUse)(look).position == "guard"
