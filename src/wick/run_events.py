"""The announcer: the outermost rings of the operations, which emit the events of a run.

An announcer wraps the recorder of `run_log`, and waits until its entries are saved. So the content of an event is
durable before it is emitted, and every hook has seen it. Only deltas are emitted from within, while the model replies
or a tool runs: they are provisional. Those of a reply that is replaced are retracted.

Without a subscriber an announcer only calls the next ring. A subscriber may have an `Audience`, so that unread
events are not built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from wick._internal.frozen import thaw
from wick.decisions import Continue, Stop
from wick.errors import public_text
from wick.events import (
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Done,
    Emit,
    Event,
    Failed,
    StateChange,
    ToolEnd,
    ToolStart,
)
from wick.hooks import Next
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Result, Run, Step, ToolUse
from wick.protocols import CallArgs, Delta, ReasoningDelta, TextDelta
from wick.run_log import build_result, error_code
from wick.why import StreamState


class Audience(Protocol):
    """The readers of an emitter, which has them in its attribute `audience`."""

    def needs(self, kind: type[Event]) -> bool:
        """Return True if the run must emit events of a kind."""

    def take_delta(self, model: str, text: str) -> bool:
        """Take a delta of the reply's text; return False if its event must be emitted."""


def _audience(run: Run) -> Audience | None:
    return getattr(run.emitter, "audience", None)


def _needs(run: Run, kind: type[Event]) -> bool:
    """Return True if a subscriber needs events of a kind."""
    if run.emitter is None:
        return False
    audience = _audience(run)
    return audience is None or audience.needs(kind)


async def announce_run(next: Next[Result], run: Run) -> Result:
    """Emit the one terminal event of a run, after its sessions are closed."""
    try:
        return await next(run)
    finally:
        run.progress.over = True
        run.emit(_terminal_event(run, run.progress.result or build_result(run, "cancelled", "user requested")))


def _terminal_event(run: Run, result: Result) -> Done | Failed:
    if result.error is not None:
        return Failed(thread_id=run.thread.id, code=error_code(result.error), message=public_text(result.error))
    usage = result.usage.to_json()
    return Done(thread_id=run.thread.id, outcome=result.outcome, reason=result.reason, text=result.text, usage=usage)


async def announce_last_changes(next: Next[Result], run: Run) -> Result:
    """Emit the values that have changed since the last step, also if the run failed. Its end is logged after that."""
    try:
        return await next(run)
    finally:
        await _emit_state_changes(run)


async def announce_step(next: Next[Stop | Continue], step: Step) -> Stop | Continue:
    """Emit the values of the thread that have changed during a step."""
    verdict = await next(step)
    await _emit_state_changes(step.run)
    return verdict


async def announce_model_call(next: Next[Message], call: ModelCall) -> Message:
    """Emit the saved reply of a model call. Calls of capabilities have a purpose and no events."""
    run, stream = call.run, call.state.stream
    if run.emitter is None or call.purpose:
        return await next(call)
    reply = await next(call)
    if call.prevented is not None:
        _retract_deltas(call)
        return reply
    await run.thread.wait_announceable()
    name = call.last_sealed("model").name  # the model that replied, after fallbacks
    if reply is not stream.reply and (stream.shown or reply.text):  # a hook replaced the streamed reply
        run.emit(ChatModelRestart(name=name, content=reply.text))
    if _needs(run, ChatModelEnd):
        run.emit(ChatModelEnd(name=name, message=reply.to_json(), usage=stream.usage.to_json()))
    return reply


def open_delta_stream(call: ModelCall) -> Callable[[Delta], None] | None:
    """Emit the start of a request, or retract the deltas of an earlier attempt at it.

    Return the function that emits new deltas; None without a subscriber.
    """
    run, stream = call.run, call.state.stream
    is_first, stream.is_sent = not stream.is_sent, True
    _retract_deltas(call)
    if run.emitter is None or call.purpose:
        return None
    if is_first:
        run.emit(ChatModelStart(name=call.model.name, step=run.progress.step))
    model, emit, audience = call.model.name, run.emit, _audience(run)
    if audience is None:
        return partial(_emit_delta, model, stream, emit)
    take, sent = audience.take_delta, stream.sent

    def emit_delta(delta: Delta) -> None:
        kind = type(delta)
        text = delta.text if kind is TextDelta else ""  # type: ignore[union-attr]
        if stream.holds or (not text and kind not in _SHOWN_DELTAS) or not take(model, text):
            _emit_delta(model, stream, emit, delta)
        else:  # most deltas
            stream.shown = True
            if text:
                sent.append(text)

    return emit_delta


def _retract_deltas(call: ModelCall) -> None:
    """Discard the deltas of a reply that a retry or a decision replaces: clear held ones, retract sent ones."""
    if call.state.stream.retract():
        call.run.emit(ChatModelRestart(name=call.model.name))


def _emit_delta(model: str, stream: StreamState, emit: Emit, delta: Delta) -> None:
    if isinstance(delta, TextDelta):
        stream.show(ChatModelStream("", model, delta.text), emit)
    elif isinstance(delta, CallArgs):
        stream.show(ChatModelStream("", model, delta.text, "tool_args", delta.index), emit)
    elif isinstance(delta, ReasoningDelta) and delta.text:
        stream.show(ChatModelStream("", model, delta.text, "reasoning"), emit)


_SHOWN_DELTAS = frozenset((TextDelta, CallArgs, ReasoningDelta))


async def announce_tool_use(next: Next[ToolResult], use: ToolUse) -> ToolResult:
    """Emit the start of a tool use and its saved result, also if a hook failed."""
    run = use.run
    if run.emitter is None:
        return await next(use)
    if _needs(run, ToolStart):
        start = ToolStart(name=use.call.name, call_id=use.call.id, args=thaw(use.args), program=use.program)
        if start.program:
            start.lines = run.thread.current.calls.programs[start.program].calls[use.call.id]["lines"]
        run.emit(start)
    try:
        result = await next(use)
    except Exception:
        await _emit_tool_end(use)
        raise
    await _emit_tool_end(use)
    return result


async def _emit_tool_end(use: ToolUse) -> None:
    """Emit the result that the recorder has logged, once it is saved. Without one there is no event."""
    saved: ToolResult | None = use.result
    if saved is not None:
        await use.run.thread.wait_announceable()
        if _needs(use.run, ToolEnd):
            name, id, why = use.call.name, use.call.id, [row.to_json() for row in use.why]
            use.run.emit(ToolEnd(name=name, call_id=id, output=saved.output, error=saved.error, why=why))
        await _emit_state_changes(use.run)


async def _emit_state_changes(run: Run) -> None:
    """Emit the values of the thread that have changed since the last call, once they are saved."""
    changed, run.thread.changed_values = run.thread.changed_values, {}
    if changed and _needs(run, StateChange):
        await run.thread.saved()
        values = dict[str, Any]()
        for key, items in changed.items():  # of a map, only the changed items, with None for deleted ones
            value = run.thread.values.get(key)
            part = value if items is None or value is None else {item: value.get(item) for item in sorted(items)}
            values[key] = thaw(part)
        run.emit(StateChange(values=values))
