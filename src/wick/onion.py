"""The onion: what an operation goes through, from the outermost ring to the gate and back.

    after   ┐ outside of every ring further in: looks at the result or the error on its way out
     wrap   │ around: calls `next`, and each call is an attempt of its own
      before│ looks at the operation on its way in, changes it, decides
        gate┘ seals it, lets every guard look, asks the user if need be, and does exactly that

A decision is a value. `Paused` and cancellation pass through every ring untouched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from inspect import isawaitable
from time import perf_counter
from typing import Any

from wick._internal.frozen import thaw
from wick._internal.tasks import run_with_timeout
from wick.approvals import request_approval
from wick.constants import MAX_ANSWERS
from wick.decisions import DECISIONS, Ask, Block, Continue, Stop
from wick.errors import HookError, InvalidArgs
from wick.hook_checks import allowed_decisions
from wick.hooks import Hook, Next, order_rings
from wick.operations import OPERATIONS, Operation
from wick.why import Why

logger = logging.getLogger(__name__)


def build_onion(hooks: Iterable[Hook], operation: type[Operation[Any]], core: Next[Any]) -> Next[Any]:
    """Put every hook of `operation` around `core`: the first one outermost, the gate at the heart."""
    next: Next[Any] = partial(_gate, operation, core)
    for hook in reversed(order_rings(hooks, operation)):
        if hook.position != "guard":
            next = partial(_RINGS[hook.position], hook, next)
    return next


def collect_guards(hooks: Iterable[Hook]) -> dict[type[Operation[Any]], tuple[Hook, ...]]:
    """The guards of each operation, in the order they are asked."""
    hooks = [hook for hook in hooks if hook.position == "guard"]
    return {operation: tuple(order_rings(hooks, operation)) for operation in OPERATIONS}


async def _before_ring(hook: Hook, next: Next[Any], op: Operation[Any]) -> Any:
    asks, whose = op.asks, op.protected_fields()
    verdict = None if op.state.invalid else await _run_before(hook, op)
    op.restore(whose)
    if isinstance(verdict, Block | Stop):
        return op.prevent(verdict)
    # A question is carried to the gate, where it is put about what will really be done; no hook can drop one.
    op.asks = asks if verdict is None else (*asks, verdict)
    return await next(op)


async def _run_before(hook: Hook, op: Operation[Any]) -> Any:
    """What a `before` says. One that fails, fails the operation; if that is only logged, its edits are undone."""
    start, mark = perf_counter(), _NO_SNAPSHOT
    try:
        if not hook.matches(op):
            return None
        mark = op.snapshot()
        verdict = _check_answer(hook, op, await _call_hook(hook, op))
        changed = op.changed_since(mark)
    except Exception as error:
        _record_why(hook, op, start, error)
        if hook.on_error == "fail":
            raise
        op.restore(mark)
        return None
    _record_why(hook, op, start, verdict, changed)
    return verdict


def _wrap_ring(hook: Hook, next: Next[Any], op: Operation[Any]) -> Awaitable[Any]:
    """One that does not stand around this operation is no ring of it."""
    return next(op) if op.state.invalid or not _matches(hook, op) else _run_wrap(hook, next, op)


async def _run_wrap(hook: Hook, next: Next[Any], op: Operation[Any]) -> Any:
    start, mark, attempts = perf_counter(), op.snapshot(), _Attempts(op, next)
    try:
        answer = await _call_hook(hook, op, attempts)
        op.restore(attempts.protected_fields)
        verdict, result = _interpret_wrap_result(hook, op, attempts, answer)
        changed = attempts.changed or op.changed_since(mark)
    except Exception as error:
        _record_why(hook, op, start, None if error is attempts.error else error)  # passing one on is no failure
        if hook.on_error == "fail" or error is attempts.error:
            raise
        op.restore(mark | attempts.protected_fields | {"asks": attempts.asks})
        return await attempts.result_without_hook()
    finally:
        attempts.error = None  # it holds this frame
    _record_why(hook, op, start, verdict, changed)
    if isinstance(verdict, Ask):
        op.asks = (*attempts.asks, verdict)
        return await next(op)
    return result if verdict is None else op.prevent(verdict)


def _interpret_wrap_result(hook: Hook, op: Operation[Any], attempts: _Attempts, answer: Any) -> tuple[Any, Any]:
    """What a wrap's answer is: a decision of its own, or a result."""
    kept = attempts.find_snapshot(answer)
    if answer is not None and answer is kept[0]:  # simply what an attempt came to
        return None, op.reconcile(kept, answer)
    if answer is None or isawaitable(answer):
        what = "nothing" if answer is None else "what it should have waited for"
        raise HookError(f"the hook {hook.name!r} returned {what}; its result is missing: `return await next(…)`")
    if not isinstance(answer, DECISIONS):
        return None, op.reconcile(kept, answer)
    verdict = _check_answer(hook, op, answer)
    if isinstance(verdict, Ask) and attempts.count:
        raise HookError(f"the hook {hook.name!r} asked about what it had already begun; ask first, then call next")
    return verdict, None


class _Attempts:
    """The `next` of a wrap. Each call of it is an attempt of its own, on a copy of its own."""

    __slots__ = ("asks", "cancels", "changed", "error", "snapshots", "count", "next", "op", "protected_fields", "task")

    def __init__(self, op: Operation[Any], next: Next[Any]) -> None:
        self.op, self.asks, self.protected_fields, self.next, self.count = op, op.asks, op.protected_fields(), next, 0
        self.task = asyncio.current_task()
        self.cancels = self.task.cancelling() if self.task else 0
        self.snapshots: list[tuple[Any, Any]] = []  # what each attempt came to, and what that was like
        self.error: Exception | None = None
        self.changed: dict[str, Any] | None = None

    async def __call__(self, op: Operation[Any] | None = None) -> Any:
        if self.task and self.task.cancelling() > self.cancels:
            raise asyncio.CancelledError  # the hook took no notice of it; nothing is begun any more
        inner = self._copy_for_inner_rings(self.op if op is None else op)
        self.count, self.error = self.count + 1, None
        try:
            result = await self.next(inner)
        except Exception as error:
            self.error = error
            raise
        self.snapshots.append(self.op.snapshot_result(result))
        return result

    def _copy_for_inner_rings(self, op: Operation[Any]) -> Operation[Any]:
        """A copy for the rings further in; whatever the hook passes on, whose it is and what is asked stay."""
        if not isinstance(op, type(self.op)):
            raise HookError(f"next takes the {self.op.name} that the hook was given, or a copy of it, not {op!r}")
        new = () if op.asks is self.asks else tuple(ask for ask in op.asks if ask not in self.asks)
        inner = op.fork(asks=(*self.asks, *new), **self.protected_fields)
        if op is not self.op:
            self.changed = inner.changed_since(self.op.snapshot())
        return inner

    def find_snapshot(self, answer: object) -> tuple[Any, Any]:
        """The attempt that an answer is of; the last one if it is the hook's own."""
        own = self.snapshots[-1] if self.snapshots else (None, None)
        return next((kept for kept in reversed(self.snapshots) if kept[0] is answer), own)

    async def result_without_hook(self) -> Any:
        """What it comes to without the hook."""
        if self.error is not None:
            raise self.error
        return self.snapshots[-1][1] if self.snapshots else await self.next(self.op)


async def _after_ring(hook: Hook, next: Next[Any], op: Operation[Any]) -> Any:
    holding = _holds_stream(hook, op)
    op.state.holds += holding
    try:
        op.result, op.error = await next(op), None
    except Exception as error:
        op.result, op.error = None, error
    except BaseException:
        op.state.holds -= holding
        raise
    streamed = op.snapshot_result(op.result) if holding else None
    await _run_after(hook, op)
    if streamed is not None:
        intact = op.result is not None and op.is_same_result(streamed) and op.state.reply in (None, op.result)
        op.state.release(intact, op.run.emit)
    if op.result is None and op.error is not None:
        try:
            raise op.error
        finally:
            op.error = None  # it holds this frame, and the frame the operation
    return op.result


def _holds_stream(hook: Hook, op: Operation[Any]) -> bool:
    """Whether what is streamed waits for a hook; it does for one that cannot tell before there is a result."""
    try:
        return hook.hold and hook.matches(op)
    except Exception:
        return True


async def _run_after(hook: Hook, op: Operation[Any]) -> None:
    """What an `after` makes of a result or an error. One that fails withholds the result: it may be a redactor."""
    start, result, error, kept = perf_counter(), op.result, op.error, op.snapshot_result(op.result)
    try:
        if not hook.matches(op):
            return
        answer = await _call_hook(hook, op)
        verdict = _check_answer(hook, op, op.decision_from_result(result) if answer is None else answer)
        if op.error is not error and op.error is not None:
            op.result = None  # it is an error now
        elif op.result is not None:
            op.result, op.error = op.reconcile(kept, op.result), None
        elif op.error is None and verdict is None:
            raise HookError(f"the hook {hook.name!r} took the result away and left none in its place")
    except Exception as failure:
        _record_why(hook, op, start, failure)
        op.result, op.error = kept[1], error
        if hook.on_error == "fail":
            op.withhold(f"the hook {hook.name!r} failed: {type(failure).__name__}")
        return
    _record_why(hook, op, start, verdict, None if op.is_same_result(kept) else {"result": "changed"})
    op.apply_verdict(verdict, hook.name)


async def _gate(operation: type[Operation[Any]], core: Next[Any], op: Operation[Any]) -> Any:
    """Seal the operation, let every guard look at it, ask the user if need be, and do exactly that.

    `sealed` is known to this function alone: guards and the user get views of it.
    """
    agreed = b""  # arguments that the user has given, as they are hashed
    for _ in range(MAX_ANSWERS):
        if op.state.invalid:
            op.on_gate_passed()
            return op.blocked_result(op.state.invalid)
        try:
            await op.prepare()
            sealed = op.seal()
        except InvalidArgs as error:
            op.on_gate_passed()
            return op.blocked_result(str(error))
        guards = op.run.guards(operation)
        refusal, asks = await consult_guards(guards, sealed) if guards else (None, [])
        op.on_gate_passed()
        if refusal is not None:
            return op.prevent(refusal)
        questions = [*op.asks, *asks]
        if not questions or (agreed and sealed.canonical_args() == agreed):
            break
        answer = await request_approval(op, sealed, questions)
        if isinstance(answer, Block):
            return op.prevent(answer)
        if answer.args is None:
            break
        op = op.fork(args=thaw(answer.args))  # sealed and guarded anew
        agreed = op.canonical_args()
    else:
        return op.prevent(Block("the tool changes every answer that was given to the question; answer without args"))
    sealed.apply_sealed()
    return await core(sealed)


def _is_intact(sealed: Operation[Any], view: Operation[Any]) -> bool:
    try:
        return sealed.is_intact(view)
    except Exception:  # a value in the view may fail when it is compared
        return False


async def consult_guards(guards: Sequence[Hook], sealed: Operation[Any]) -> tuple[Block | Stop | None, list[Ask]]:
    """Every guard looks, whatever the others said: any refusal wins over any question.

    Each gets a view of its own, so that none can change what another sees.
    """
    refusal: Block | Stop | None = None
    asks: list[Ask] = []
    for hook in guards:
        view = sealed.view()
        verdict = await _run_guard(hook, sealed, view)
        if not _is_intact(sealed, view):
            refusal = refusal or Block(f"the guard {hook.name!r} changed what it was shown, so it has not agreed to it")
        if isinstance(verdict, Ask):
            asks.append(verdict)
        elif verdict is not None and (refusal is None or (isinstance(verdict, Stop) and isinstance(refusal, Block))):
            refusal = verdict
    return refusal, asks


async def _run_guard(hook: Hook, sealed: Operation[Any], view: Operation[Any]) -> Any:
    start, error = perf_counter(), None
    try:
        if not hook.matches(view):
            return None
        verdict = _check_answer(hook, sealed, await _call_hook(hook, view))
    except Exception as failure:  # a guard that fails has not agreed
        error = failure
        verdict = Block(f"the guard {hook.name!r} failed, so it has not agreed: {type(error).__name__}: {error}")
    _record_why(hook, sealed, start, error or verdict)
    return None if hook.shadow else verdict


async def _call_hook(hook: Hook, *args: Any) -> Any:
    """Call a hook, within its time limit. A cancellation that it swallows is raised again."""
    task = asyncio.current_task()
    cancels = task.cancelling() if task else 0
    try:
        start, answer = perf_counter(), hook.fn(*args)
        if answer is not None and isawaitable(answer):
            name = f"the hook {hook.name!r}"
            answer = await (run_with_timeout(hook.timeout, answer, name) if hook.timeout else answer)
        elif hook.timeout and perf_counter() - start > hook.timeout:
            raise TimeoutError(f"the hook {hook.name!r} took longer than its {hook.timeout:g} s")
    except asyncio.CancelledError:
        if task and task.cancelling() > cancels:
            raise
        raise HookError(f"the hook {hook.name!r} was cancelled from within") from None
    if task and task.cancelling() > cancels:
        raise asyncio.CancelledError
    return answer


def _matches(hook: Hook, op: Operation[Any]) -> bool:
    """Whether a hook is for this operation; a predicate that fails is the hook's failure."""
    try:
        return hook.matches(op)
    except Exception as error:
        _record_why(hook, op, perf_counter(), error)
        if hook.on_error == "fail":
            raise
        return False


def _check_answer(hook: Hook, op: Operation[Any], answer: Any) -> Any:
    if answer is None or isinstance(answer, possible := allowed_decisions(hook.position, op.name)):
        return answer
    words = ", ".join(["nothing", *(kind.__name__ for kind in possible)])
    raise HookError(f"the hook {hook.name!r} answered {answer!r} at {hook.point}; it may answer {words}")


def _record_why(hook: Hook, op: Operation[Any], start: float, said: Any, changed: dict[str, Any] | None = None) -> None:
    """Write down what a hook said; a decision is logged with the thread, too."""
    verdict, reason = "pass", ""
    if isinstance(said, Exception):
        verdict, reason = "failed", _describe_failure(hook, said)
        logger.warning("the hook %s failed at %s: %s", hook.name, hook.point, reason)
        logger.debug("it failed here", exc_info=said)
    elif said is not None:
        verdict = type(said).__name__.lower()
        reason = said.question if isinstance(said, Ask) else said.message if isinstance(said, Continue) else said.reason
    why = Why(hook.name, hook.position, verdict, reason, _elapsed_ms(start), changed, hook.shadow)
    op.why.append(why)
    if verdict != "pass":
        about = op.log_key() | (op.sealed_to_json() if hook.position == "guard" else {})
        op.run.thread.append("decision", {"run": op.run.id, "operation": op.name, **about, **why.to_json()})


def _describe_failure(hook: Hook, error: Exception) -> str:
    """What went wrong with a hook; one that has seen the result may have failed over what is to be taken out."""
    return type(error).__name__ if hook.position in ("after", "wrap") else f"{type(error).__name__}: {error}"


def _elapsed_ms(start: float) -> float:
    return (perf_counter() - start) * 1000


_NO_SNAPSHOT: dict[str, Any] = {}
_RINGS = {"before": _before_ring, "wrap": _wrap_ring, "after": _after_ring}
