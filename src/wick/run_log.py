"""What a run writes down: into its thread, so that it can be taken up again, and to whoever watches.

What carries content is logged and saved first, and announced after. A tool runs only once it is saved that it is
about to.
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
from wick.threads import AttemptStatus, Thread

logger = logging.getLogger(__name__)


async def fetch_initial_input(run: Run) -> None:
    """What was said to a kept thread before its run began is the run's input, so that every hook of a run sees it."""
    if run.thread.has_ended(run.id):  # somebody ended it while it was to be taken up; what waits is for the next one
        raise StoreError(f"run {run.id} of thread {run.thread.id} is over", "over")
    if not run.input and not run.resumed and not run.thread.busy and run.thread.writer is not None:
        run.progress.initial_input = [*_failed_run_messages(run), *await run.thread.writer.fetch_messages()]
        run.input = [*run.progress.initial_input]


async def start_run(run: Run, words: Sequence[Message]) -> Stop | Continue:
    """Log that a run starts, and what it is to answer; a run that had all but ended is done at once.

    Another attempt at the same run goes on where the last one left: what was said is not said again.
    """
    thread, again = run.thread, run.progress.output_from is not None
    if again:
        words = [word for word in words if not any(word is said for said in run.output)]
    elif thread.busy:
        raise ConfigError(f"a run of thread {thread.id} is going on; send it the message with run.send, or wait for it")
    if not again and not run.progress.initial_input:
        run.progress.inbox.extend(_failed_run_messages(run))
    await _fetch_inbox(run)
    if words:
        _cancel_pending_calls(run, "the user went on")
    elif not thread.messages and not run.progress.inbox:
        raise ConfigError("there is nothing to answer: give the run a text, messages, or a thread that has some")
    words = [*await _take_screened_messages(run), *words]  # what was said before comes first
    thread.add(*words)  # first, so that a run that the log knows of has something to answer
    if not again:
        _write_run_start(run, input=len(words))
    _release_initial_input(run, words)
    if run.stopping is not None and (again or not thread.pending):
        return run.stopping
    if not thread.messages:
        return Stop("blocked: what was said was refused, and there is nothing else to answer")
    last = thread.messages[-1]
    return Stop("completed") if last.role == "assistant" and not last.tool_calls else Continue()


def _failed_run_messages(run: Run) -> list[Message]:
    """Return the messages of runs that failed before they began, which this run is to answer."""
    return [message for message, _ in run.thread.unheard]


def _release_initial_input(run: Run, said: Sequence[Message] = ()) -> None:
    """What waited for this run waits no more, whatever hooks have made of it."""
    waited, run.progress.initial_input = run.progress.initial_input, []
    for message in waited:
        if run.thread.writer is not None and not any(message is word for word in said):
            run.thread.writer.discard_message(message)


def _write_run_start(run: Run, **more: Any) -> None:
    about = {"run": run.id, "agent": run.agent, "guards": _guard_names(run), "resumed": run.resumed}
    run.thread.append("run_start", about | more)
    run.thread.busy, run.progress.output_from = True, run.thread.output_from


def _guard_names(run: Run) -> list[str]:
    return sorted({guard.name for kind in run.loop.guards for guard in run.guards(kind)})


async def finish_step(step: Step, verdict: Stop | Continue) -> Stop | Continue:
    """Whether there is another step, and what hooks and the user have to say before it."""
    run = step.run
    await emit_state_changes(run)
    if run.stopping is not None:
        return run.stopping
    if isinstance(verdict, Continue):
        run.thread.add(*step.state.follow)
    if isinstance(verdict, Stop):
        await _fetch_inbox(run)
        await _screen_inbox(run)
    return Continue() if run.progress.screened else verdict  # what was said before the end is answered before the end


async def emit_state_changes(run: Run) -> None:
    """Announce the values of the thread that were set since this was last asked."""
    touched, run.thread.changed_values = run.thread.changed_values, {}
    if touched and run.emitter is not None:
        await run.thread.saved()
        values = run.thread.values
        run.emit(StateChange(values={key: _changed_value(values.get(key), items) for key, items in touched.items()}))


def _changed_value(value: Any, items: set[str] | None) -> Any:
    """A value; of a map that is set item by item, only the items that changed, and nothing for those that are gone."""
    return thaw(value if items is None or value is None else {item: value.get(item) for item in sorted(items)})


async def append_inbox(run: Run) -> None:
    """What the user said while the run went on joins the thread, once nothing there waits for a result."""
    await _fetch_inbox(run)
    run.thread.add(*await _take_screened_messages(run))
    await run.thread.saved()


async def _fetch_inbox(run: Run) -> None:
    """What was said to the thread where it is kept, perhaps by another program."""
    if run.thread.writer is not None and not run.thread.waiting:
        run.progress.inbox.extend(await run.thread.writer.fetch_messages())


async def _take_screened_messages(run: Run) -> list[Message]:
    """What was said meanwhile, if it can be added now."""
    if run.thread.waiting:
        return []
    await _screen_inbox(run)
    said, run.progress.screened = run.progress.screened, []
    return said


async def _screen_inbox(run: Run) -> None:
    """Let whoever screens messages look at those that came; each stays in the inbox until it has been looked at."""
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
    """What came too late to be answered; what nobody has screened is not said, and stays where it was queued."""
    said, run.progress.screened = run.progress.screened, []
    late = [*run.progress.inbox]
    run.progress.inbox.clear()
    if not run.progress.screens:
        return [*said, *late]
    for message in late:
        run.record("message_unheard", message=message.to_json())
    return said


async def _run_screens(run: Run, message: Message) -> tuple[str, Block | None]:
    for name, look in [*run.progress.screens.items()]:
        try:
            refusal = await look(message)
        except Exception as error:  # who could not look has not agreed
            refusal = Block(f"{name} failed, so it has not agreed: {type(error).__name__}")
        if refusal is not None:
            return name, refusal
    return "", None


def result_from_stop(run: Run, stop: Stop) -> Result:
    """What a run came to that nothing went wrong with."""
    natural = stop.reason.partition(":")[0] in ("completed", "finish reason")
    return _build_result(run, "completed" if natural else "stopped", stop.reason)


async def pause_run(run: Run, reason: str, words: Sequence[Message]) -> Result:
    """Write that a run waits; one that had not begun leaves its input for when it is taken up."""
    return await end_run(run, _build_result(run, "interrupted", reason), words)


async def close_run(run: Run, outcome: Outcome, reason: str, error: Exception | None = None) -> Result:
    return await end_run(run, _build_result(run, outcome, reason, error))


async def record_cancellation(run: Run) -> Result:
    """Write that a run was cancelled; one that was only let go of waits to be taken up."""
    released = run.root.progress.released
    return await close_run(run, *(("interrupted", "interrupted") if released else ("cancelled", "user requested")))


async def end_run(run: Run, result: Result, words: Sequence[Message] = ()) -> Result:
    """Write the run's end, once, and leave a thread that the next message can be added to."""
    if run.progress.over:
        return result
    try:
        await emit_state_changes(run)
        run.progress.over, run.progress.result = True, result  # who was abandoned has nothing to say from here on
        _write_run_end(run, result, words)
        await run.thread.saved()
    except Exception as error:  # an end that cannot be written is a failure
        record_failure(run, error)
        raise
    finally:
        run.progress.over = True
        run.thread.busy = run.thread.busy and run.progress.output_from is None
    return result


def end_abandoned_run(
    thread: Thread,
    run: str,
    said: Sequence[Message],
    outcome: Outcome,
    reason: str,
    error: tuple[str, str] | None = None,
) -> None:
    """Write that a run is over which nobody performs now: it was to begin with these words, or waits to go on."""
    unheard = [{"message": message.to_json(), "failures": failures} for message, failures in thread.unheard]
    if thread.open_run is None or thread.open_run["run"] != run:
        thread.add(*said)
        thread.append("run_start", {"run": run, "agent": "", "guards": [], "resumed": False, "input": len(said)})
    usage = {} if thread.open_run is None else thread.open_run.get("usage", {})
    _answer_pending_calls(thread, f"the run {'failed' if outcome == 'failed' else f'was {outcome}'}")
    about = {"run": run, "outcome": outcome, "reason": reason, "usage": usage}
    about |= {"unheard": unheard} if unheard else {}  # they are still an input of the next run
    thread.append("run_end", about | ({"error": {"code": error[0], "message": error[1]}} if error else {}))


def record_failure(run: Run, error: Exception) -> None:
    """Something went wrong about a run outside of its log."""
    result = run.progress.result or _build_result(run, "failed", "error")
    if result.error is None:
        run.progress.result = replace(result, outcome="failed", reason="error", error=error)


def emit_terminal_event(run: Run) -> None:
    """Announce the end, once all is put away: the one terminal event."""
    run.progress.over = True
    run.emit(_terminal_event(run, run.progress.result or _build_result(run, "cancelled", "user requested")))


def _write_run_end(run: Run, result: Result, words: Sequence[Message]) -> None:
    if words and run.progress.output_from is None and not run.thread.busy:
        _write_run_start(run, input=0, shelved=[message.to_json() for message in words])
        _release_initial_input(run)
    unheard: list[Any] = []
    if run.progress.output_from is None:
        if not run.progress.initial_input or result.outcome == "interrupted" or _is_temporary(result.error):
            return  # the messages stay in the inbox
        unheard = _log_unstarted_run(run, result)
    if result.outcome != "interrupted":
        _cancel_pending_calls(run, "the run failed" if result.outcome == "failed" else f"the run was {result.outcome}")
    if not run.thread.waiting:
        run.thread.add(*_take_unanswered_messages(run))
    about = {"run": run.id, "outcome": result.outcome, "reason": result.reason, "usage": run.usage.to_json()}
    error = {"error": {"code": _error_code(result.error), "message": _error_text(result.error)}} if result.error else {}
    more = {"unheard": unheard} if unheard else _resume_data(run) if result.outcome == "interrupted" else {}
    run.thread.append("run_end", about | error | more)


def _log_unstarted_run(run: Run, result: Result) -> list[Any]:
    """Log a run that ended before it began, with the full text of its inbox messages; return those to try again.

    Inbox messages leave the inbox in the commit that logs their text. A refused message is not an input again. A
    message of a run that failed is an input of the next run, so that every hook sees it then. The number of runs is
    limited, so that a message on which a hook fails every time does not make its thread unusable.
    """
    failed, again = result.outcome == "failed", list[Any]()
    before = {id(message): failures for message, failures in run.thread.unheard}
    waited = run.progress.initial_input
    _write_run_start(run, input=0)
    for message in waited:
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
    """Return True if the store failed for now, so that nothing is decided about the run's messages."""
    return isinstance(error, StoreError) and error.code in TEMPORARY


def _resume_data(run: Run) -> dict[str, Any]:
    """What is to hold for a run when it is taken up: the guards it is under by now, and the Stop that waits for it."""
    stopping = {"stopping": run.stopping.reason} if run.stopping else {}
    new = run.progress.charges[run.progress.logged_charges :]  # the rest is in the log already
    return {"guards": _guard_names(run), "charges": [charge.to_json() for charge in new], **stopping}


def _build_result(run: Run, outcome: Outcome, reason: str, error: Exception | None = None) -> Result:
    output = run.output
    text = next((message.text for message in reversed(output) if message.role == "assistant"), "")
    return Result(text, reason, outcome, run.usage, output, error, run.thread, run.charges)


def _cancel_pending_calls(run: Run, event: str) -> None:
    """Answer the calls that nobody will answer any more."""
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
    """The error's name as codes are written: ModelError is model_error."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__).strip("_")


def emit_model_start(call: ModelCall, step: int) -> None:
    if call.run.emitter is not None:
        call.run.emit(ChatModelStart(name=call.model.name, step=step))


def retract_partial_reply(call: ModelCall) -> None:
    """A reply does not count, neither what was shown of it nor what is held: another begins, or none is to be."""
    call.state.held.clear()
    if call.state.shown:
        call.run.emit(ChatModelRestart(name=call.model.name))
        call.state.shown = False


def emit_delta(call: ModelCall, delta: Delta) -> None:
    """Announce a piece of the reply, if it is for the user and somebody listens."""
    run = call.run
    if run.emitter is None or call.purpose:
        return
    if isinstance(delta, TextDelta):
        call.state.show(ChatModelStream("", call.model.name, delta.text), run.emit)
    elif isinstance(delta, CallArgs):
        call.state.show(ChatModelStream("", call.model.name, delta.text, "tool_args", delta.index), run.emit)
    elif isinstance(delta, ReasoningDelta) and delta.text:
        call.state.show(ChatModelStream("", call.model.name, delta.text, "reasoning"), run.emit)


async def record_reply(call: ModelCall, reply: Message) -> None:
    """Log the reply; one that hooks replaced takes the place of what was streamed."""
    run, trail = call.run, call.state
    if trail.prevented is not None:
        return retract_partial_reply(call)
    name = call.last_sealed("model").name  # the one that really answered
    if reply.text or reply.tool_calls:
        told = {"model": name, "usage": trail.usage.to_json()} if trail.usage != Usage() else None
        _append_reply(run, reply, told)
        await run.thread.saved()
    if run.emitter is None:
        return
    if reply is not trail.reply and (trail.shown or reply.text):
        run.emit(ChatModelRestart(name=name, content=reply.text))
    run.emit(ChatModelEnd(name=name, message=reply.to_json(), usage=trail.usage.to_json()))


def _append_reply(run: Run, reply: Message, told: dict[str, Any] | None) -> None:
    """Add a reply. It settles what was asked about the last one, but not what a child asks in the background."""
    others = [question for question in run.thread.questions.values() if question.get("run") != run.id]
    run.thread.append("message", reply, told)
    for question in others:
        run.thread.append("asked", question)


def emit_tool_start(use: ToolUse) -> None:
    if use.run.emitter is not None:
        use.run.emit(ToolStart(name=use.call.name, call_id=use.call.id, args=thaw(use.args)))


async def record_tool_result(use: ToolUse, result: ToolResult) -> None:
    """Log what a tool use came to. Who was abandoned when the run ended has nothing to say any more."""
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
    """Log that the hooks around a tool use failed, and whether the tool ran all the same."""
    words = {"": "was not used", "unknown": "may have run, and its result is lost"}
    happened = words.get(use.run.thread.attempt_status(use.call.id), "ran, and its result is lost")
    await record_tool_result(use, use.blocked_result(f"{use.call.name} {happened}: {type(error).__name__}"))


async def record_intent(use: ToolUse) -> str:
    """Log that a tool is about to run; or say why it must not, for nothing runs twice without being told."""
    thread, tool = use.run.thread, use.bound
    fate = "" if tool.idempotent or tool.read_only else thread.attempt_status(use.call.id)
    agreed = fate == "unknown" and use.run.progress.ask_before_rerun and await _confirm_rerun(use)
    if refusal := _late_use_error(use) or ("" if agreed else _ALREADY_RUN.get(fate, "")):
        return refusal.format(name=tool.name)
    number = len(thread.attempts.get(use.call.id, ())) + 1
    thread.append("intent", {"call": use.call.id, "attempt": number, "key": use.key, **use.sealed_to_json()})
    await thread.saved()
    return ""


_ALREADY_RUN = {
    "done": "{name} has already run for this call; it is not idempotent, so it does not run again",
    "unknown": "{name} was begun before, and may have taken effect for this call; it is not idempotent, "
    "so it does not run again",
}


def _late_use_error(use: ToolUse) -> str:
    if use.run.progress.over:  # who ignored that the run was cancelled comes too late
        return "{name} does not run any more: the run is over"
    if not use.run.thread.is_waiting_for(use.call):  # a wrap let go of it, and answered without it
        return "{name} does not run any more: its call has been answered"
    return ""


async def _confirm_rerun(use: ToolUse) -> bool:
    """Whether the user wants a tool to run again of which nobody knows what came of it."""
    words = f"{use.bound.name} was begun before, and may have taken effect. Run it again?"
    attempt = str(use.attempt)  # another question than the one whether it may run at all, and another one each time
    about = {**use.to_json(), "again": attempt}
    question = Question(words, new_question_id(), digest(f"{use.hash} {attempt}".encode()), about, use)
    return isinstance(await ask_user(use.run, question), Allow)


def record_tool_end(use: ToolUse, attempt: int, result: ToolResult, fate: AttemptStatus) -> None:
    """Log that a tool has ended. What it said is logged only when every hook has seen it."""
    if (crash := result.exception) is not None:
        where = (use.bound.name, use.call.id, use.run.id, type(crash).__name__)
        logger.warning("the tool %s crashed in call %s of run %s: %s", *where, exc_info=crash)
    if not use.run.progress.over and use.run.thread.is_waiting_for(use.call):
        said = digest(result.text.encode("utf-8", "surrogatepass"))
        use.run.thread.append("done", FrozenDict(call=use.call.id, attempt=attempt, ended=fate, hash=said))
