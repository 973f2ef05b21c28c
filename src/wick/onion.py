"""The onion: dispatches an operation through its rings to the gate, and the result back out.

    after    gets the result or the error on the way out
    wrap     calls `next`; each call is a separate attempt
    before   gets the operation on the way in; may change it or decide
    gate     seals the operation, consults every guard, asks the user, performs it

The gate is always the innermost ring. The others nest in the order of their hooks, whatever their position: a `before`
that is listed first runs before a `wrap` that is listed second. Only the hooks of one capability nest as above.

A decision is a return value. `Paused` and cancellation are not an `Exception`, so rings pass them on. A cancellation is
raised again if a hook swallows it. A `Paused` is not: a `wrap` that catches `BaseException` gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, iscoroutine
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

from wick._internal.frozen import thaw
from wick._internal.prompt_text import to_one_line
from wick._internal.tasks import run_with_timeout
from wick.approvals import find_answered_question, request_approval
from wick.constants import MAX_ANSWERS, PREVIEW_CHARS
from wick.decisions import DECISIONS, Ask, Block, Continue, Decision, Stop
from wick.errors import HookError, InvalidArgs, Paused
from wick.hook_checks import allowed_decisions
from wick.hooks import Hook, Next, order_rings
from wick.operations import OPERATIONS, Operation, ToolUse
from wick.results import ResultSnapshot, name_type
from wick.why import PASS_REASON, Why

R = TypeVar("R")

logger = logging.getLogger(__name__)

Ring = Callable[[Next[R], Any], Awaitable[R]]


def compose(rings: Sequence[Ring[R]], core: Callable[[Any], Awaitable[R]]) -> Next[R]:
    """Nest rings around `core`. The first ring is the outermost."""
    next: Next[R] = core
    for ring in reversed(rings):
        next = partial(ring, next)
    return next


def build_rings(hooks: Iterable[Hook], operation: type[Operation[R]]) -> list[Ring[R]]:
    """Return the rings of an operation, outermost first: its hooks, and inside them the gate with its guards."""
    rings: list[Ring[R]] = []
    for hook in order_rings(hooks, operation):
        if hook.position == "before":
            rings.append(partial(_before_ring, hook))
        elif hook.position == "wrap":
            rings.append(partial(_wrap_ring, hook))
        elif hook.position == "after":
            rings.append(partial(_after_ring, hook))
    return [*rings, partial(_gate, operation)]


def collect_guards(hooks: Iterable[Hook]) -> dict[type[Operation[object]], tuple[Hook, ...]]:
    """Return the guards of each operation, in the order in which they run."""
    hooks = [hook for hook in hooks if hook.position == "guard"]
    return {operation: tuple(order_rings(hooks, operation)) for operation in OPERATIONS}


async def _before_ring(hook: Hook, next: Next[R], op: Operation[R]) -> R:
    """Run a `before` hook, then the next ring, unless the hook blocks the operation or stops the run."""
    asks, fixed = op.asks, _fixed_fields(op)
    verdict = None if op.state.invalid else await _run_before(hook, op)
    op.restore(fixed)
    if verdict is not None and isinstance(verdict, Block | Stop):
        return op.result_rules.prevent(verdict)
    # The gate asks the question, about the sealed operation. No hook can drop it.
    op.asks = (*asks, verdict) if isinstance(verdict, Ask) else asks
    return await next(op)


async def _run_before(hook: Hook, op: Operation[object]) -> Decision | None:
    """Return the decision of a `before` hook.

    An error in the hook fails the operation. With `on_error="log"` the hook's changes are undone instead.
    """
    start, snapshot = perf_counter(), _NO_SNAPSHOT
    try:
        if not hook.matches(op):
            return None
        snapshot = op.snapshot()
        verdict = _check_answer(hook, op, await _call_hook(hook, op))
        changed = op.changed_since(snapshot)
    except Exception as error:
        _record_why(hook, op, start, error)
        if hook.on_error == "fail":
            raise
        op.restore(snapshot)
        return None
    _record_why(hook, op, start, verdict, changed)
    return verdict


def _wrap_ring(hook: Hook, next: Next[R], op: Operation[R]) -> Awaitable[R]:
    """Run a `wrap` hook, or go straight to the next ring if it does not match."""
    # It is not `async`, so that a hook that does not match adds no coroutine.
    return next(op) if op.state.invalid or not _wrap_matches(hook, op) else _run_wrap(hook, next, op)


def _wrap_matches(hook: Hook, op: Operation[object]) -> bool:
    """Return True if a `wrap` hook matches the operation. An error in its predicate counts as an error of the hook."""
    try:
        return hook.matches(op)
    except Exception as error:
        _record_why(hook, op, perf_counter(), error)
        if hook.on_error == "fail":
            raise
        return False


async def _run_wrap(hook: Hook, next: Next[R], op: Operation[R]) -> R:
    """Run a `wrap` hook and return its result, or apply its decision."""
    start, snapshot, attempts = perf_counter(), op.snapshot(), _Attempts(op, next)
    try:
        answer = await _call_hook(hook, op, attempts)
        if attempts.pause is not None:
            raise attempts.pause  # the hook swallowed it
        op.restore(attempts.fixed)
        verdict, result = attempts.interpret(hook, answer)
        changed = attempts.changed or op.changed_since(snapshot)
    except Exception as error:
        _record_why(hook, op, start, None if error is attempts.error else error)  # not the hook's own error
        if hook.on_error == "fail" or error is attempts.error:
            raise
        op.restore({**snapshot, **attempts.fixed, "asks": attempts.asks})
        return await attempts.result_without_hook()
    finally:
        attempts.error = attempts.pause = None  # break the cycle error → traceback → frame → attempts
    _record_why(hook, op, start, verdict, changed)
    if isinstance(verdict, Ask):
        op.asks = (*attempts.asks, verdict)
        return await next(op)
    return cast(R, result) if verdict is None or isinstance(verdict, Continue) else op.result_rules.prevent(verdict)


class _Attempts(Generic[R]):
    """The `next` of a wrap. Each call is a separate attempt on its own copy of the operation."""

    __slots__ = ("asks", "cancels", "changed", "count", "error", "fixed", "next", "op", "pause", "snapshots", "task")

    def __init__(self, op: Operation[R], next: Next[R]) -> None:
        self.op, self.asks, self.fixed, self.next, self.count = op, op.asks, _fixed_fields(op), next, 0
        self.task = asyncio.current_task()
        self.cancels = self.task.cancelling() if self.task else 0
        self.snapshots: list[ResultSnapshot[R]] = []  # one for each attempt
        self.error: Exception | None = None  # of the last attempt
        self.pause: Paused | None = None  # of the last attempt
        self.changed: dict[str, object] | None = None

    async def __call__(self, op: Operation[R] | None = None) -> R:
        if self.task and self.task.cancelling() > self.cancels:
            raise asyncio.CancelledError  # the hook swallowed the cancellation; start nothing more
        inner = self._copy_for_inner_rings(self.op if op is None else op)
        self.count, self.error, self.pause = self.count + 1, None, None
        try:
            result = await self.next(inner)
        except Paused as pause:
            self.pause = pause
            raise
        except Exception as error:
            self.error = error
            raise
        self.snapshots.append(self.op.result_rules.snapshot(result))
        return result

    def _copy_for_inner_rings(self, op: Operation[R]) -> Operation[R]:
        """Return a copy for the inner rings, with the original fixed fields and all questions."""
        if not isinstance(op, type(self.op)):
            given = f"the {self.op.operation_name} that the hook was given"
            problem = f"next takes {given}, or a copy of it, not {name_type(op)}"
            raise HookError(problem, is_loggable=True)
        new = () if op.asks is self.asks else tuple(ask for ask in op.asks if ask not in self.asks)
        inner = op.fork(asks=(*self.asks, *new), **self.fixed)
        if op is not self.op:
            self.changed = inner.changed_since(self.op.snapshot())
        return inner

    def interpret(self, hook: Hook, answer: object) -> tuple[Decision | None, R | None]:
        """Return a wrap's answer as a pair: its decision or None, and its result.

        A step's result is itself a Stop or a Continue. So the result of an attempt is not a decision of the hook.
        """
        last: ResultSnapshot[R] = self.snapshots[-1] if self.snapshots else ResultSnapshot()
        snapshot = next((found for found in reversed(self.snapshots) if found.result is answer), last)
        if answer is not None and answer is snapshot.result:  # the result of an attempt, passed through
            return None, self.op.result_rules.reconcile(snapshot, answer)
        if answer is None or isawaitable(answer):
            if iscoroutine(answer):
                answer.close()  # the error below replaces Python's warning about it
            what = "nothing" if answer is None else "an awaitable"
            problem = f"the hook {hook.name!r} returned {what}; its result is missing: `return await next(…)`"
            raise HookError(problem, is_loggable=True)
        if not isinstance(answer, DECISIONS):
            return None, self.op.result_rules.reconcile(snapshot, answer)
        verdict = _check_answer(hook, self.op, answer)
        if isinstance(verdict, Ask) and self.count:
            problem = f"the hook {hook.name!r} asked after it had called next; ask first, then call next"
            raise HookError(problem, is_loggable=True)
        return verdict, None

    async def result_without_hook(self) -> R:
        """Return the result as if the hook did not exist, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast(R, self.snapshots[-1].copy) if self.snapshots else await self.next(self.op)


async def _after_ring(hook: Hook, next: Next[R], op: Operation[R]) -> R:
    """Run the next ring, then an `after` hook on its result or error."""
    stream, holding = op.state.stream, _holds_stream(hook, op)
    stream.holds += holding
    try:
        op.result, op.error = await next(op), None
    except Exception as error:
        op.result, op.error = None, error  # type: ignore[assignment]
    except BaseException:
        stream.holds -= holding
        raise
    snapshot = op.result_rules.snapshot(op.result) if holding else None
    await _run_after(hook, op)
    if snapshot is not None:
        unchanged = op.result is not None and not op.result_rules.has_changed(snapshot)
        # An inner hook may have replaced the streamed reply before.
        stream.release(unchanged and stream.reply in (None, op.result), op.run.emit)
    if op.result is None and op.error is not None:
        try:
            raise op.error
        finally:
            op.error = None  # break the cycle error → traceback → frame → operation
    return op.result


def _holds_stream(hook: Hook, op: Operation[object]) -> bool:
    """Return True if streamed output is held until the hook has run; also if its predicate fails."""
    try:
        return hook.hold and hook.matches(op)
    except Exception:
        return True


async def _run_after(hook: Hook, op: Operation[R]) -> None:
    """Run an `after` hook, which may replace the result or the error.

    If the hook fails, the result is withheld: the hook may be a redactor.
    """
    start, results, result, error = perf_counter(), op.result_rules, op.result, op.error
    snapshot = results.snapshot(result)
    try:
        if not hook.matches(op):
            return
        answer = await _call_hook(hook, op)
        verdict = _check_answer(hook, op, results.take_decision(result) if answer is None else answer)
        if op.error is not error and op.error is not None:
            op.result = None  # type: ignore[assignment]  # the hook replaced the result with an error
        elif op.result is not None:
            op.result, op.error = results.reconcile(snapshot, op.result), None
        elif op.error is None and verdict is None:
            problem = f"the hook {hook.name!r} took the result away and left none in its place"
            raise HookError(problem, is_loggable=True)
    except Exception as failure:
        _record_why(hook, op, start, failure)
        op.result, op.error = cast(R, snapshot.copy), error
        if hook.on_error == "fail":
            results.withhold(f"the hook {hook.name!r} failed: {type(failure).__name__}")
        return
    _record_why(hook, op, start, verdict, {"result": "changed"} if results.has_changed(snapshot) else None)
    results.apply_verdict(verdict, hook.name)


async def _gate(operation: type[Operation[R]], core: Next[R], op: Operation[R]) -> R:
    """Seal the operation, consult every guard, ask the user if necessary, then perform exactly the sealed operation.

    Only this function and `core` have a reference to `sealed`. Guards and the user get read-only views.
    If the user answers with other arguments, these are sealed and guarded in turn. The user is asked about them only
    if sealing changes them.
    """
    agreed = b""  # canonical bytes of the arguments that the user supplied
    for _ in range(MAX_ANSWERS):
        if op.state.invalid:
            op.on_gate_passed()
            return op.result_rules.blocked(op.state.invalid)
        try:
            await op.prepare()
            sealed = op.seal()
        except InvalidArgs as error:
            op.on_gate_passed()
            return op.result_rules.blocked(str(error))
        op.state.sealed = {name: getattr(sealed, name) for name in op.editable}
        # Patterns compare names only, so they need no view.
        guards = [hook for hook in op.run.guards(operation) if not hook.has_patterns or hook.matches(sealed)]
        refusal, asks = await consult_guards(guards, sealed) if guards else (None, [])
        op.on_gate_passed()
        if refusal is not None:
            return op.result_rules.prevent(refusal)
        questions = [*op.asks, *asks] or await find_answered_question(op, sealed)
        if not questions or (agreed and _canonical_args(sealed) == agreed):
            break
        answer = await request_approval(op, sealed, questions)
        if isinstance(answer, Block):
            return op.result_rules.prevent(answer)
        if answer.args is None:
            break
        op = op.fork(args=thaw(answer.args))
        agreed = _canonical_args(op)
    else:
        reason = "the tool changes every answer that was given to the question; answer without args"
        return op.result_rules.prevent(Block(reason))
    sealed.apply_sealed()
    return await core(sealed)


def _canonical_args(op: Operation[object]) -> bytes:
    return op.canonical_args() if isinstance(op, ToolUse) else b""


async def consult_guards(guards: Sequence[Hook], sealed: Operation[object]) -> tuple[Block | Stop | None, list[Ask]]:
    """Run every guard and return the refusal, if any, and all questions. A refusal wins over questions.

    Each guard gets its own view, so that it cannot change the view of another guard.
    """
    refusal: Block | Stop | None = None
    asks: list[Ask] = []
    for hook in guards:
        view = sealed.view()
        verdict = await _run_guard(hook, sealed, view)
        try:
            intact = sealed.is_intact(view)
        except Exception:  # a value in the view may fail when it is compared
            intact = False
        if not intact:
            refusal = refusal or Block(
                f"the guard {hook.name!r} changed its view of the operation, so it has not agreed"
            )
        if isinstance(verdict, Ask):
            asks.append(verdict)
        elif isinstance(verdict, Stop) and isinstance(refusal, Block | None):
            refusal = verdict
        elif isinstance(verdict, Block):
            refusal = refusal or verdict
    return refusal, asks


async def _run_guard(hook: Hook, sealed: Operation[object], view: Operation[object]) -> Decision | None:
    """Return the verdict of a guard on a view of the sealed operation; None for a guard in shadow mode."""
    start = perf_counter()
    try:
        if not hook.matches(view):
            return None
        verdict = _check_answer(hook, sealed, await _call_hook(hook, view))
    except Exception as error:  # a guard that fails has not agreed
        verdict = Block(f"the guard {hook.name!r} failed, so it has not agreed: {type(error).__name__}: {error}")
        _record_why(hook, sealed, start, error)
    else:
        _record_why(hook, sealed, start, verdict)
    return None if hook.shadow else verdict


async def _call_hook(hook: Hook, op: Operation[object], *next: object) -> object:
    """Call a hook within its time limit. Raise a cancellation again if the hook swallowed it."""
    task = asyncio.current_task()
    cancels = task.cancelling() if task else 0
    try:
        start = perf_counter()
        answer: object = hook.call_with_deps(op, *next) if hook.deps else hook.fn(op, *next)
        if answer is not None and isawaitable(answer):
            name = f"the hook {hook.name!r}"
            answer = await (run_with_timeout(hook.timeout, answer, name) if hook.timeout else answer)
        elif hook.timeout and perf_counter() - start > hook.timeout:
            raise TimeoutError(f"the hook {hook.name!r} took longer than its {hook.timeout:g} s")
    except asyncio.CancelledError:
        if task and task.cancelling() > cancels:
            raise
        raise HookError(f"the hook {hook.name!r} was cancelled from within") from None
    except TypeError as error:
        if str(error) != _RAISED_DECISION:
            raise
        problem = f"the hook {hook.name!r} raised a decision, or another value that is not an exception; return it: "
        raise HookError(f"{problem}`return Block(…)`", is_loggable=True) from None
    if task and task.cancelling() > cancels:
        raise asyncio.CancelledError
    return answer


def _check_answer(hook: Hook, op: Operation[object], answer: object) -> Decision | None:
    """Return a hook's answer if it is allowed at its point; else raise a HookError."""
    if answer is None or isinstance(answer, possible := allowed_decisions(hook.position, op.operation_name)):
        return answer
    words = " or ".join(f"{kind.__name__}(…)" for kind in possible)
    if hook.position == "after" and not isinstance(answer, DECISIONS):
        words += "; to replace the result, set it: use.result = …, call.result = …, run.result = …"
    is_private = hook.position in _PRIVATE
    given = name_type(answer) if is_private else repr(answer)
    problem = f"the hook {hook.name!r} answered {given} at {hook.point}; return None to continue, or {words}"
    raise HookError(problem, is_loggable=is_private)


def _record_why(
    hook: Hook,
    op: Operation[object],
    start: float,
    answer: Decision | Exception | None,
    changed: dict[str, object] | None = None,
) -> None:
    """Add a hook's answer to the operation's `why`. Decisions and failures are also logged in the thread."""
    verdict, reason = "pass", ""
    if isinstance(answer, Exception):
        # An error of `after` or `wrap` may quote a result that is to be redacted, so only its type is recorded.
        quote = "" if hook.position in _PRIVATE else f": {answer}"
        verdict, reason = "failed", f"{type(answer).__name__}{quote}"
        # the message of a private hook is only logged if it is about code, and not about data
        is_loggable = answer.is_loggable if isinstance(answer, HookError) else isinstance(answer, _CODE_ERRORS)
        logged = f"{reason}: {to_one_line(str(answer), PREVIEW_CHARS)}" if is_loggable and not quote else reason
        logger.warning("the hook %s failed at %s: %s", hook.name, hook.point, logged)
        logger.debug("traceback of the hook %s", hook.name, exc_info=answer)
    elif answer is not None:
        verdict = type(answer).__name__.lower()
        field = "question" if isinstance(answer, Ask) else "message" if isinstance(answer, Continue) else "reason"
        reason = getattr(answer, field)
    elif PASS_REASON in op.notes:
        reason = str(op.notes.pop(PASS_REASON))
    ms = (perf_counter() - start) * 1000
    why = Why(hook.name, hook.position, verdict, reason, ms, changed, hook.shadow)
    op.why.append(why)
    if verdict != "pass":
        about = op.log_key() | (op.sealed_to_json() if hook.position == "guard" else {})
        op.run.thread.append("decision", {"run": op.run.id, "operation": op.operation_name, **about, **why.to_json()})


def _fixed_fields(op: Operation[object]) -> dict[str, object]:
    """Return the fields of an operation that no hook may change."""
    return {name: getattr(op, name) for name in op.fixed}


_RAISED_DECISION = "exceptions must derive from BaseException"  # the message of Python
_NO_SNAPSHOT: Mapping[str, object] = {}
_PRIVATE = {"after", "wrap"}  # hooks that see results; their errors may quote one
_CODE_ERRORS = (AttributeError, NameError, TypeError)  # of Python itself, they name identifiers and types
