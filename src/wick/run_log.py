"""The log of a run: entries in its thread, from which the run can be resumed, and events for subscribers.

Content is logged and saved before its event is emitted. A tool starts only after its intent has been saved.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wick._internal.frozen import FrozenDict, digest, thaw
from wick.approvals import ask_user, new_question_id
from wick.constants import UNHEARD_RUNS
from wick.decisions import Allow, Block, Continue, Question, Stop
from wick.errors import TEMPORARY, ConfigError, StoreError, public_text
from wick.events import (
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Done,
    Failed,
    StateChange,
    ToolEnd,
    ToolStart,
)
from wick.messages import Message, ToolResult, result_message
from wick.operations import ModelCall, Outcome, Result, Run, Step, ToolUse
from wick.protocols import CallArgs, Delta, ReasoningDelta, TextDelta, Usage
from wick.thread_state import AttemptStatus
from wick.threads import Thread

logger = logging.getLogger(__name__)


async def fetch_initial_input(run: Run) -> None:
    """Use the queued messages of a stored thread as the run's input, so that every hook sees them."""
    if run.thread.has_ended(run.id):  # ended elsewhere before it was resumed; the next run gets the messages
        raise StoreError(f"run {run.id} of thread {run.thread.id} is over", "over")
    if not run.input and not run.resumed and not run.thread.busy and run.thread.writer is not None:
        run.progress.initial_input = [*_failed_run_messages(run), *await run.thread.writer.fetch_messages()]
        run.input = [*run.progress.initial_input]


async def start_run(run: Run, messages: Sequence[Message]) -> Stop | Continue:
    """Log the start of a run and its input. Return a Stop if the thread already ends with the final reply.

    Another attempt at the same run continues after the last one: messages already in the thread are skipped.
    """
    thread, again = run.thread, run.progress.output_from is not None
    if again:
        messages = [message for message in messages if not any(message is logged for logged in run.output)]
    elif thread.busy:
        raise ConfigError(
            f"a run of thread {thread.id} is already running; send it the message with run.send, or wait for it"
        )
    if not again and not run.progress.initial_input:
        run.progress.inbox.extend(_failed_run_messages(run))
    await _fetch_inbox(run)
    if messages:
        _cancel_pending_calls(run, "the user went on")
    elif not thread.messages and not run.progress.inbox:
        raise ConfigError("there is nothing to answer: give the run a text, messages, or a thread that has some")
    messages = [*await _take_screened_messages(run), *messages]  # inbox messages are older
    thread.add(*messages)  # before run_start, so that every logged run has an input
    if not again:
        _write_run_start(run, input=len(messages))
    _release_initial_input(run, messages)
    if run.stopping is not None and (again or not thread.pending):
        return run.stopping
    if not thread.messages:
        return Stop("blocked: all messages were refused, and there is nothing else to answer")
    last = thread.messages[-1]
    return Stop("completed") if last.role == "assistant" and not last.tool_calls else Continue()


def _failed_run_messages(run: Run) -> list[Message]:
    """Return the messages of runs that failed before they started. This run answers them."""
    return [message for message, _ in run.thread.current.runs.unheard]


def _release_initial_input(run: Run, logged: Sequence[Message] = ()) -> None:
    """Remove the initial input from the inbox, also the messages that hooks replaced or dropped."""
    queued, run.progress.initial_input = run.progress.initial_input, []
    for message in queued:
        if run.thread.writer is not None and not any(message is other for other in logged):
            run.thread.writer.discard_message(message)


def _write_run_start(run: Run, **more: Any) -> None:
    about = {"run": run.id, "agent": run.agent, "guards": _guard_names(run), "resumed": run.resumed}
    run.thread.append("run_start", about | more)
    run.thread.busy, run.progress.output_from = True, run.thread.output_from


def _guard_names(run: Run) -> list[str]:
    return sorted({guard.name for kind in run.loop.guards for guard in run.guards(kind)})


async def finish_step(step: Step, verdict: Stop | Continue) -> Stop | Continue:
    """Return the final verdict of a step. Add the messages of hooks and the user for the next step."""
    run = step.run
    await emit_state_changes(run)
    if run.stopping is not None:
        return run.stopping
    if isinstance(verdict, Continue):
        run.thread.add(*step.state.follow)
    if isinstance(verdict, Stop):
        await _fetch_inbox(run)
        await _screen_inbox(run)
    return Continue() if run.progress.screened else verdict  # answer messages that arrived before the end


async def emit_state_changes(run: Run) -> None:
    """Emit the values of the thread that have changed since the last call."""
    changed, run.thread.changed_values = run.thread.changed_values, {}
    if changed and run.emitter is not None:
        await run.thread.saved()
        values = run.thread.values
        run.emit(StateChange(values={key: _changed_value(values.get(key), items) for key, items in changed.items()}))


def _changed_value(value: Any, items: set[str] | None) -> Any:
    """Return a value. Of a map, return only the changed items, with None for deleted ones."""
    return thaw(value if items is None or value is None else {item: value.get(item) for item in sorted(items)})


async def append_inbox(run: Run) -> None:
    """Append queued user messages to the thread, unless tool calls are pending."""
    await _fetch_inbox(run)
    run.thread.add(*await _take_screened_messages(run))
    await run.thread.saved()


async def _fetch_inbox(run: Run) -> None:
    """Move messages that were queued in the store, perhaps by another process, to the run's inbox."""
    if run.thread.writer is not None and not run.thread.pending:
        run.progress.inbox.extend(await run.thread.writer.fetch_messages())


async def _take_screened_messages(run: Run) -> list[Message]:
    """Screen the inbox and return the accepted messages; none while tool calls are pending."""
    if run.thread.pending:
        return []
    await _screen_inbox(run)
    accepted, run.progress.screened = run.progress.screened, []
    return accepted


async def _screen_inbox(run: Run) -> None:
    """Run the screens on each inbox message. A message stays in the inbox until its screens have returned."""
    progress = run.progress
    while progress.inbox:
        message = progress.inbox[0]
        name, refusal = await _run_screens(run, message) if progress.screens else ("", None)
        progress.inbox.popleft()
        if refusal is None:
            progress.screened.append(message)
            continue
        run.record("message_refused", hook=name, reason=refusal.reason, message=message.to_json())
        if run.thread.writer is not None:
            run.thread.writer.discard_message(message)


def _take_unanswered_messages(run: Run) -> list[Message]:
    """Return messages that arrived too late for an answer. Messages that are not screened are only recorded."""
    accepted, run.progress.screened = run.progress.screened, []
    late = [*run.progress.inbox]
    run.progress.inbox.clear()
    if not run.progress.screens:
        return [*accepted, *late]
    for message in late:
        run.record("message_unheard", message=message.to_json())
    return accepted


async def _run_screens(run: Run, message: Message) -> tuple[str, Block | None]:
    for name, look in [*run.progress.screens.items()]:
        try:
            refusal = await look(message)
        except Exception as error:  # a screen that fails has not agreed
            refusal = Block(f"{name} failed, so it has not agreed: {type(error).__name__}")
        if refusal is not None:
            return name, refusal
    return "", None


def result_from_stop(run: Run, stop: Stop) -> Result:
    """Return the result of a run that ended without an error."""
    natural = stop.reason.partition(":")[0] in ("completed", "finish reason")
    return _build_result(run, "completed" if natural else "stopped", stop.reason)


async def pause_run(run: Run, reason: str, input: Sequence[Message]) -> Result:
    """Log that a run is paused. A run that had not started logs its input, to use it when it is resumed."""
    return await end_run(run, _build_result(run, "interrupted", reason), input)


async def close_run(run: Run, outcome: Outcome, reason: str, error: Exception | None = None) -> Result:
    """Log the end of a run with this outcome."""
    return await end_run(run, _build_result(run, outcome, reason, error))


async def record_cancellation(run: Run) -> Result:
    """Log that a run was cancelled, or interrupted if this process only released it to be resumed later."""
    released = run.root.progress.released
    return await close_run(run, *(("interrupted", "interrupted") if released else ("cancelled", "user requested")))


async def end_run(run: Run, result: Result, input: Sequence[Message] = ()) -> Result:
    """Log the end of a run, once. Afterwards the thread accepts new messages."""
    if run.progress.over:
        return result
    try:
        await emit_state_changes(run)
        run.progress.over, run.progress.result = True, result  # abandoned tools log nothing from here on
        _write_run_end(run, result, input)
        await run.thread.saved()
    except Exception as error:  # a run whose end cannot be saved has failed
        record_failure(run, error)
        raise
    finally:
        run.progress.over = True
        run.thread.busy = run.thread.busy and run.progress.output_from is None
    return result


def end_abandoned_run(
    thread: Thread,
    run: str,
    input: Sequence[Message],
    outcome: Outcome,
    reason: str,
    error: tuple[str, str] | None = None,
) -> None:
    """Log the end of a run that no process is executing: one that never started, or was interrupted."""
    unheard = [
        {"message": message.to_json(), "failures": failures} for message, failures in thread.current.runs.unheard
    ]
    if thread.open_run is None or thread.open_run["run"] != run:
        thread.add(*input)
        thread.append("run_start", {"run": run, "agent": "", "guards": [], "resumed": False, "input": len(input)})
    usage = {} if thread.open_run is None else thread.open_run.get("usage", {})
    _answer_pending_calls(thread, f"the run {'failed' if outcome == 'failed' else f'was {outcome}'}")
    about = {"run": run, "outcome": outcome, "reason": reason, "usage": usage}
    about |= {"unheard": unheard} if unheard else {}  # the next run still gets them as input
    thread.append("run_end", about | ({"error": {"code": error[0], "message": error[1]}} if error else {}))


def record_failure(run: Run, error: Exception) -> None:
    """Set the result of a run to failed after an error outside of its log; the first error counts."""
    result = run.progress.result or _build_result(run, "failed", "error")
    if result.error is None:
        run.progress.result = replace(result, outcome="failed", reason="error", error=error)


def emit_terminal_event(run: Run) -> None:
    """Emit the one terminal event, after all sessions are closed."""
    run.progress.over = True
    run.emit(_terminal_event(run, run.progress.result or _build_result(run, "cancelled", "user requested")))


def _write_run_end(run: Run, result: Result, input: Sequence[Message]) -> None:
    if input and run.progress.output_from is None and not run.thread.busy:
        _write_run_start(run, input=0, shelved=[message.to_json() for message in input])
        _release_initial_input(run)
    unheard: list[Any] = []
    if run.progress.output_from is None:
        if not run.progress.initial_input or result.outcome == "interrupted" or _is_temporary(result.error):
            return  # the messages stay in the inbox
        unheard = _log_unstarted_run(run, result)
    if result.outcome != "interrupted":
        _cancel_pending_calls(run, "the run failed" if result.outcome == "failed" else f"the run was {result.outcome}")
    if not run.thread.pending:
        run.thread.add(*_take_unanswered_messages(run))
    about = {"run": run.id, "outcome": result.outcome, "reason": result.reason, "usage": run.usage.to_json()}
    error = {"error": {"code": _error_code(result.error), "message": _error_text(result.error)}} if result.error else {}
    more = {"unheard": unheard} if unheard else _resume_data(run) if result.outcome == "interrupted" else {}
    run.thread.append("run_end", about | error | more)


def _log_unstarted_run(run: Run, result: Result) -> list[Any]:
    """Log a run that ended before it started, with its inbox messages; return the messages to try again.

    Messages leave the inbox in the same commit that logs their text. A refused message is not tried again.
    The messages of a failed run are an input of the next run, so that every hook sees them then. The number
    of tries is limited, so that a message on which a hook always fails does not block its thread.
    """
    failed, again = result.outcome == "failed", list[Any]()
    before = {id(message): failures for message, failures in run.thread.current.runs.unheard}
    queued = run.progress.initial_input
    _write_run_start(run, input=0)
    for message in queued:
        text, failures = message.to_json(), before.get(id(message), 0) + 1
        if failed and failures < UNHEARD_RUNS:
            again.append({"message": text, "failures": failures})
        elif failed or result.outcome == "cancelled":
            run.record("message_unheard", message=text)
        else:
            run.record("message_refused", hook="", reason=result.reason, message=text)
    _release_initial_input(run)
    return again


def _is_temporary(error: Exception | None) -> bool:
    """Return True for a temporary store error. The messages then stay in the inbox."""
    return isinstance(error, StoreError) and error.code in TEMPORARY


def _resume_data(run: Run) -> dict[str, Any]:
    """Return the data needed to resume a run: its guards, new charges and a requested Stop."""
    stopping = {"stopping": run.stopping.reason} if run.stopping else {}
    new = run.progress.charges[run.progress.logged_charges :]  # the others are in the log already
    return {"guards": _guard_names(run), "charges": [charge.to_json() for charge in new], **stopping}


def _build_result(run: Run, outcome: Outcome, reason: str, error: Exception | None = None) -> Result:
    output = run.output
    text = next((message.text for message in reversed(output) if message.role == "assistant"), "")
    return Result(text, reason, outcome, run.usage, output, error, run.thread, run.charges, crashes=run.crashes)


def _cancel_pending_calls(run: Run, event: str) -> None:
    """Answer the pending tool calls of a run with an error."""
    _answer_pending_calls(run.thread, event)


def _answer_pending_calls(thread: Thread, event: str) -> None:
    for call in thread.pending:
        error = _LOST_CALL_ERRORS[thread.attempt_status(call.id)].format(name=call.name, event=event)
        thread.add(result_message(call, ToolResult(error=error)))


_LOST_CALL_ERRORS = {
    "": "{event} before {name} ran",
    "failed": "{name} failed, and {event}",
    "done": "{name} ran, and {event} before its result was known",
    "unknown": "{event} while {name} ran; whether it took effect is unknown",
}


def _terminal_event(run: Run, result: Result) -> Done | Failed:
    if result.error is not None:
        return Failed(thread_id=run.thread.id, code=_error_code(result.error), message=_error_text(result.error))
    usage = result.usage.to_json()
    return Done(thread_id=run.thread.id, outcome=result.outcome, reason=result.reason, text=result.text, usage=usage)


def _error_text(error: Exception) -> str:
    return public_text(error)


def _error_code(error: Exception) -> str:
    """Return the class name of an error in snake case: `ModelError` becomes `model_error`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__).strip("_")


def emit_model_start(call: ModelCall, step: int) -> None:
    if call.run.emitter is not None:
        call.run.emit(ChatModelStart(name=call.model.name, step=step))


def retract_partial_reply(call: ModelCall) -> None:
    """Discard the deltas of a reply that a retry or a decision replaces: clear held ones, retract sent ones."""
    if call.state.stream.retract():
        call.run.emit(ChatModelRestart(name=call.model.name))


def emit_delta(call: ModelCall, delta: Delta) -> None:
    """Emit a delta of the reply, unless the call serves a capability or the run has no subscriber."""
    run = call.run
    if run.emitter is None or call.purpose:
        return
    if isinstance(delta, TextDelta):
        call.state.stream.show(ChatModelStream("", call.model.name, delta.text), run.emit)
    elif isinstance(delta, CallArgs):
        call.state.stream.show(ChatModelStream("", call.model.name, delta.text, "tool_args", delta.index), run.emit)
    elif isinstance(delta, ReasoningDelta) and delta.text:
        call.state.stream.show(ChatModelStream("", call.model.name, delta.text, "reasoning"), run.emit)


async def record_reply(call: ModelCall, reply: Message) -> None:
    """Log the reply and emit it. A reply that a hook replaced also replaces its streamed deltas."""
    run, stream = call.run, call.state.stream
    if call.prevented is not None:
        return retract_partial_reply(call)
    name = call.last_sealed("model").name  # the model that replied, after fallbacks
    if reply.text or reply.tool_calls:
        about = {"model": name, "usage": stream.usage.to_json()} if stream.usage != Usage() else None
        _append_reply(run, reply, about)
        await run.thread.saved()
    if run.emitter is None:
        return
    if reply is not stream.reply and (stream.shown or reply.text):
        run.emit(ChatModelRestart(name=name, content=reply.text))
    run.emit(ChatModelEnd(name=name, message=reply.to_json(), usage=stream.usage.to_json()))


def _append_reply(run: Run, reply: Message, about: dict[str, Any] | None) -> None:
    """Append a reply. It closes the open questions of this run, but not those of background children."""
    others = [question for question in run.thread.questions.values() if question.get("run") != run.id]
    run.thread.append("message", reply, about)
    for question in others:
        run.thread.append("asked", question)


def emit_tool_start(use: ToolUse) -> None:
    if use.run.emitter is not None:
        use.run.emit(ToolStart(name=use.call.name, call_id=use.call.id, args=thaw(use.args)))


async def record_tool_result(use: ToolUse, result: ToolResult) -> None:
    """Log the result of a tool use and emit it. Results after the end of the run are dropped."""
    run = use.run
    if run.progress.over:
        return
    run.thread.add(result_message(use.call, result))
    await run.thread.saved()
    if run.emitter is not None:
        why = [row.to_json() for row in use.why]
        run.emit(ToolEnd(name=use.call.name, call_id=use.call.id, output=result.output, error=result.error, why=why))
        await emit_state_changes(run)


async def record_hook_failure(use: ToolUse, error: Exception) -> None:
    """Log that a hook around a tool use failed, and whether the tool ran."""
    phrases = {"": "was not used", "unknown": "may have run, and its result is lost"}
    happened = phrases.get(use.run.thread.attempt_status(use.call.id), "ran, and its result is lost")
    await record_tool_result(use, use.results.blocked(f"{use.call.name} {happened}: {type(error).__name__}"))


async def record_intent(use: ToolUse) -> str:
    """Log the intent to run a tool, or return why it must not run: a tool is not run twice unless it is idempotent."""
    thread, tool = use.run.thread, use.bound
    status = "" if tool.idempotent or tool.read_only else thread.attempt_status(use.call.id)
    agreed = status == "unknown" and use.run.progress.ask_before_rerun and await _confirm_rerun(use)
    if refusal := _late_use_error(use) or ("" if agreed else _ALREADY_RUN.get(status, "")):
        return refusal.format(name=tool.name)
    number = thread.count_attempts(use.call.id) + 1
    thread.append("intent", {"call": use.call.id, "attempt": number, "key": use.key, **use.sealed_to_json()})
    await thread.saved()
    return ""


_ALREADY_RUN = {
    "done": "{name} has already run for this call; it is not idempotent, so it does not run again",
    "unknown": "{name} was started before, and may have taken effect for this call; it is not idempotent, "
    "so it does not run again",
}


def _late_use_error(use: ToolUse) -> str:
    if use.run.progress.over:  # the tool use ignored the run's cancellation
        return "{name} does not run any more: the run is over"
    if not use.run.thread.is_waiting_for(use.call):  # a wrap abandoned this use and answered without it
        return "{name} does not run any more: its call has been answered"
    return ""


async def _confirm_rerun(use: ToolUse) -> bool:
    """Return True if the user agrees to run a tool again after an attempt with unknown outcome."""
    text = f"{use.bound.name} was started before, and may have taken effect. Run it again?"
    attempt = str(use.attempt)  # part of the hash: an approval of the call or of another attempt does not count
    about = {**use.to_json(), "again": attempt}
    question = Question(text, new_question_id(), digest(f"{use.hash} {attempt}".encode()), about, use)
    return isinstance(await ask_user(use.run, question), Allow)


def record_tool_end(use: ToolUse, attempt: int, result: ToolResult, outcome: AttemptStatus) -> None:
    """Log that a tool has ended, with a hash of its output. The output is logged after all hooks have run."""
    if (crash := result.exception) is not None:
        where = (use.bound.name, use.call.id, use.run.id, type(crash).__name__)
        logger.warning("the tool %s crashed in call %s of run %s: %s", *where, exc_info=crash)
        use.run.progress.crashes.append(crash)
    if not use.run.progress.over and use.run.thread.is_waiting_for(use.call):
        hash = digest(result.text.encode("utf-8", "surrogatepass"))
        use.run.thread.append("done", FrozenDict(call=use.call.id, attempt=attempt, ended=outcome, hash=hash))
