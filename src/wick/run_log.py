"""The recorder: durable entries in the thread, from which a run can be resumed and its history read.

A recorder is a ring around the hooks of an operation: it logs the result that they return. A tool starts only
after its intent is saved, and a model is called only after the thread is. The announcer of `wick.run_events` wraps the
recorder: it waits until the result is saved, and emits it.
"""

from __future__ import annotations

import json
import logging
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wick._internal.frozen import FrozenDict, digest, freeze
from wick.constants import UNHEARD_RUNS
from wick.decisions import Continue, Stop
from wick.errors import TEMPORARY, ConfigError, Paused, StoreError, public_text
from wick.hooks import Hook, Next
from wick.messages import Message, ToolResult, result_message
from wick.operations import ModelCall, Outcome, Result, Run, Step, ToolUse
from wick.protocols import Usage
from wick.resume import (
    answer_lost_calls,
    check_added_guards,
    describe_end,
    describe_guards,
    find_refusal,
    resume_data,
    shelve_input,
)
from wick.run_state import CutReply, EffectObserver, Labeler, unheard_messages
from wick.threads import Thread
from wick.threads.state import AttemptStatus

logger = logging.getLogger(__name__)


# -- the start of a run ----------------------------------------------------------------------------------------------


def _describe_nothing_to_answer(run: Run) -> str:
    if run.thread.writer is None:
        return "there is nothing to answer: give the run a text, messages, or a thread that has some"
    return (
        f"there is nothing to answer: the thread {run.thread.id!r} of the owner {run.user or 'local'!r} has no "
        "messages; give the run a text, or the user= that the thread belongs to"
    )


async def start_run(run: Run, messages: Sequence[Message]) -> Stop | Continue:
    """Log the start of a run and its input. Return a Stop if the thread already ends with the final reply.

    Another attempt at the same run continues after the last one: messages already in the thread are skipped.
    """
    thread, inbox, is_retry = run.thread, run.progress.inbox, run.progress.started
    if is_retry:
        messages = [message for message in messages if not any(message is logged for logged in run.output)]
    elif thread.busy:
        raise ConfigError(
            f"a run of thread {thread.id} is already running; send it the message with run.send, or wait for it"
        )
    elif not inbox.initial:
        inbox.queue.extend(unheard_messages(thread))
    check_added_guards(run)
    if messages:
        answer_lost_calls(thread, "the user sent another message")  # first: nothing is fetched while calls are pending
    await inbox.fetch(thread)
    if not messages and not thread.messages and not inbox.queue:
        raise ConfigError(_describe_nothing_to_answer(run))
    messages = [*await _take_screened_messages(run), *messages]  # inbox messages are older
    _append_input(run, messages)  # before run_start, so that every logged run has an input
    if not is_retry:
        _write_run_start(run, {"input": len(messages)})
    inbox.release_initial(thread, messages)
    if run.stopping is not None and (is_retry or not thread.pending):
        return run.stopping
    if not thread.messages:
        return Stop("blocked: all messages were refused, and there is nothing else to answer")
    last = thread.messages[-1]
    is_answer = last.role == "assistant" and not last.tool_calls and not _is_cut(thread, last)
    return Stop("completed") if is_answer else Continue()


def _is_cut(thread: Thread, reply: Message) -> bool:
    """Return whether a reply was cut off because its run was cancelled."""
    about = next((entry.about for entry in reversed(thread.entries) if entry.data is reply), None)
    return bool(about and about.get("cut"))


def _write_run_start(run: Run, about_input: dict[str, Any]) -> None:
    about = {"run": run.id, "agent": run.agent, **describe_guards(run), "resumed": run.resumed}
    run.thread.append("run_start", about | about_input)
    run.thread.busy, run.progress.output_from = True, run.thread.output_from


# -- steps and messages ----------------------------------------------------------------------------------------------


def prompt_after_reply(run: Run) -> None:
    """Ask the model to continue, if the thread ends with its reply: many providers refuse such a request."""
    thread = run.thread
    if thread.messages and (last := thread.messages[-1]).role == "assistant" and not last.tool_calls:
        text = CONTINUE_CUT if _is_cut(thread, last) else CONTINUE
        thread.append("message", Message("user", text, name="continue"), {"hook": "continue"})


CONTINUE = "Continue."
CONTINUE_CUT = "Your reply was interrupted before its end. Continue where it stopped."


async def append_inbox(run: Run) -> None:
    """Append queued user messages to the thread, unless tool calls are pending."""
    await run.progress.inbox.fetch(run.thread)
    _append_input(run, await _take_screened_messages(run))
    await run.thread.saved()


def _append_input(run: Run, messages: Sequence[Message]) -> None:
    """Append messages to the thread; those of users with their labels."""
    labelers = list_labelers(run)
    for message in messages:
        label = labelers[-1].label_input(run, message) if labelers and message.role == "user" else None
        run.thread.append("message", message, label and FrozenDict(label=label))


async def record_step(next: Next[Stop | Continue], step: Step) -> Stop | Continue:
    """Add the messages of hooks for the next step. A message that arrives before the end of the run is answered."""
    verdict, run = await next(step), step.run
    if run.stopping is not None:
        return run.stopping
    if isinstance(verdict, Continue):
        for message in step.state.follow_ups:
            run.thread.append("message", message, {"hook": message.name})
    else:
        await run.progress.inbox.fetch(run.thread)
        await _screen_inbox(run)
    return Continue() if run.progress.inbox.screened else verdict


async def _take_screened_messages(run: Run) -> list[Message]:
    """Screen the inbox and return the accepted messages; none while tool calls are pending."""
    if run.thread.pending:
        return []
    await _screen_inbox(run)
    return run.progress.inbox.take_screened()


async def _screen_inbox(run: Run) -> None:
    def refuse(message: Message, hook: str, reason: str) -> None:
        run.record("message_refused", hook=hook, reason=reason, message=message.to_json())
        if run.thread.writer is not None:
            run.thread.writer.discard_message(message)

    await run.progress.inbox.screen(refuse)


# -- model calls and tool uses ---------------------------------------------------------------------------------------


async def record_model_call(next: Next[Message], call: ModelCall) -> Message:
    """Log the reply of a model call, unless the call was refused, or serves a capability."""
    call.run.progress.extensions.cut_reply = None
    try:
        reply = await next(call)
    except CancelledError:
        text = "".join(call.state.stream.sent)
        if text.strip() and not call.purpose and not _may_change_reply(call.run.loop.hooks):
            usage = call.charges[-1].usage if call.charges else Usage()
            call.run.progress.extensions.cut_reply = CutReply(text, call.last_sealed("model").name, usage)
        raise
    thread, usage = call.run.thread, call.usage
    if call.purpose or call.prevented is not None or not (reply.text or reply.tool_calls):
        return reply
    # A reply closes the open questions of its run, but not those of background children.
    others = [question for question in thread.questions.values() if question.get("run") != call.run.id]
    name = call.last_sealed("model").name  # the model that replied, after fallbacks
    about: dict[str, Any] = {"model": name, "usage": freeze(usage.to_json())} if usage != Usage() else {}
    for labeler in list_labelers(call.run):
        about["label"] = labeler.label_reply(call)
    thread.append("message", reply, FrozenDict(about) if about else None)  # frozen already, so not copied
    for question in others:
        thread.append("asked", question)
    return reply


def _may_change_reply(hooks: Sequence[Hook]) -> bool:
    """Return whether a hook that is not wick's own could have changed a reply, for example to redact it."""
    after_reply = (hook for hook in hooks if hook.operation is ModelCall and hook.position in ("wrap", "after"))
    return any(not hook.fn.__module__.startswith("wick.") for hook in after_reply)


async def record_intent(use: ToolUse) -> str:
    """Save the intent to run a tool, so that a crash never runs it twice unnoticed; or return why it must not run."""
    if refusal := await find_refusal(use):
        return refusal
    observers = effect_observers(use.run)
    for observer in observers:
        if refusal := await observer.before_effect(use):
            return refusal
    if observers and (refusal := await find_refusal(use)):  # the run may be over by now
        return refusal
    thread, number = use.run.thread, use.attempt + 1
    thread.append("intent", {"call": use.call.id, "attempt": number, "key": use.key, **use.sealed_to_json()})
    await thread.saved()
    return ""


def effect_observers(run: Run) -> list[EffectObserver]:
    """Return the observers of a run's tools: those of the run, and those of the runs above it."""
    own = run.progress.extensions.observers
    return own if run.parent is None else [*dict.fromkeys((*effect_observers(run.parent), *own))]


async def record_tool_end(use: ToolUse, attempt: int, result: ToolResult, outcome: AttemptStatus) -> None:
    """Log that a tool has ended, with a hash of its output. The output is logged after all hooks have run."""
    for observer in effect_observers(use.run):
        await observer.after_effect(use)
    if (crash := result.exception) is not None:
        where = (use.bound.name, use.call.id, use.run.id, type(crash).__name__)
        hint = "an error that the model should handle is a ToolError"
        logger.warning("the tool %s crashed in call %s of run %s: %s; %s", *where, hint, exc_info=crash)
        use.run.progress.extensions.crashes.append(crash)
    if not use.run.progress.over and use.run.thread.is_waiting_for(use.call):
        hash = digest(result.text.encode("utf-8", "surrogatepass"))
        use.run.thread.append("done", FrozenDict(call=use.call.id, attempt=attempt, ended=outcome, hash=hash))


async def release_effect(use: ToolUse) -> None:
    """Let the observers of a tool release what they hold, whether it has run or not."""
    for observer in effect_observers(use.run):
        await observer.release_effect(use)


async def record_tool_use(next: Next[ToolResult], use: ToolUse) -> ToolResult:
    """Log the result of a tool use. If a hook failed, the logged result says whether the tool ran.

    Afterwards `use.result` is the logged result, or None if nothing was logged.
    """
    try:
        result = await next(use)
        _log_result(use, result)
        return result
    except Exception as error:
        use.result = None  # type: ignore[assignment]  # the failed hook may have been a redactor
        if use.run.thread.is_waiting_for(use.call):
            happened = _HAPPENED.get(use.run.thread.attempt_status(use.call.id), "ran, and its result is lost")
            _log_result(use, use.result_rules.blocked(f"{use.call.name} {happened}: {type(error).__name__}"))
        raise


_HAPPENED = {"": "was not used", "unknown": "may have run, and its result is lost"}


def _log_result(use: ToolUse, result: ToolResult) -> None:
    """Log a result, unless the run is over: an abandoned tool logs nothing."""
    use.result = None  # type: ignore[assignment]
    if not use.run.progress.over:
        label = label_result(use)
        if not (program := use.program):
            use.run.thread.append("message", result_message(use.call, result), label and FrozenDict(label=label))
        else:  # no message: the model sees only the output of the program
            about: dict[str, Any] = {
                "call": use.call.id,
                "program": program,
                "name": use.call.name,
                "output": result.output,
            }
            about |= {"error": result.error} if result.error else {"is_json": True} if _is_json(result) else {}
            about |= {"denied": True} if use.prevented is not None else {}
            about |= {"refused": True} if any(item.verdict == "refused" for item in use.why) else {}
            use.run.thread.append("result", about | ({"label": label} if label else {}))
        use.result = result


def _is_json(result: ToolResult) -> bool:
    """Return True if the output is the JSON of the data, or of its field `result`, in which MCP servers put a value."""
    data = result.data
    if data is None:
        return False
    try:
        value = json.loads(result.output)
    except (ValueError, RecursionError):  # a text beside the data
        return False
    return value in ((data, data["result"]) if isinstance(data, Mapping) and data.keys() == {"result"} else (data,))


def label_result(use: ToolUse) -> FrozenDict | None:
    """Return the label of a tool result, which is determined once; None without a labeler."""
    notes = use.notes
    if LABEL not in notes:
        for labeler in list_labelers(use.run):
            notes[LABEL] = labeler.label_result(use)
    return notes.get(LABEL)


def list_labelers(run: Run) -> list[Labeler]:
    """Return the labelers of a run: those of the runs above it, then its own."""
    own = run.progress.extensions.labelers
    return own if run.parent is None else [*dict.fromkeys((*list_labelers(run.parent), *own))]


LABEL = "label"  # in the notes of a tool use


# -- the end of a run ------------------------------------------------------------------------------------------------


async def record_run(next: Next[Result], run: Run) -> Result:
    """Save the end of a run, whatever its outcome."""
    input = [*run.input]  # before hooks change it: they run again when the run is resumed
    try:
        result = await next(run)
    except Paused as pause:
        result = await _end_run(run, build_result(run, "interrupted", f"paused: {pause}"), input)
        if run.parent is not None:
            raise  # the root run pauses, too, because its user must answer
        return result
    except Exception as error:
        await _end_run(run, build_result(run, "failed", "error", error))
        raise
    except BaseException:
        released = run.root.progress.resumption.released  # this process shuts down; another one resumes the run
        end: tuple[Outcome, str] = ("interrupted", "interrupted") if released else ("cancelled", "user requested")
        if not released:
            _keep_cut_reply(run)
        await _end_run(run, build_result(run, *end))
        raise
    return await _end_run(run, result)


def _keep_cut_reply(run: Run) -> None:
    """Log the part of a reply that the user has seen before they cancelled the run. It is marked as cut."""
    cut = run.progress.extensions.cut_reply
    if cut is None or run.progress.over or not run.progress.started:
        return
    usage = {"usage": cut.usage.to_json()} if cut.usage != Usage() else {}
    run.thread.append("message", Message("assistant", cut.text), {"model": cut.model, **usage, "cut": True})


def result_from_stop(run: Run, stop: Stop) -> Result:
    """Return the result of a run that ended without an error."""
    return build_result(run, "completed" if stop.kind in ("completed", "finish reason") else "stopped", stop.reason)


def build_result(run: Run, outcome: Outcome, reason: str, error: Exception | None = None) -> Result:
    """Return the result of a run from its state."""
    output = run.output
    text = next((message.text for message in reversed(output) if message.role == "assistant"), "")
    return Result(text, reason, outcome, run.usage, output, error, run.thread, run.charges, crashes=run.crashes)


def record_failure(run: Run, error: Exception) -> None:
    """Set the result of a run to failed after an error outside of its log; the first error counts."""
    result = run.progress.result or build_result(run, "failed", "error")
    if result.error is None:
        run.progress.result = replace(result, outcome="failed", reason="error", error=error)


async def _end_run(run: Run, result: Result, paused_input: Sequence[Message] = ()) -> Result:
    """Log the end of a run, once. Afterwards the thread accepts new messages."""
    if run.progress.over:
        return result
    try:
        run.progress.over, run.progress.result = True, result  # abandoned tools log nothing from here on
        _write_run_end(run, result, paused_input)
        await run.thread.save_end()
    except Exception as error:  # a run whose end cannot be saved has failed
        record_failure(run, error)
        raise
    finally:
        if run.progress.started:  # else another run may be active in the thread
            run.thread.busy = False
    return result


def _write_run_end(run: Run, result: Result, paused_input: Sequence[Message]) -> None:
    """Write the end of a run. A run that paused before it started also logs its input, to use it when resumed."""
    thread, inbox = run.thread, run.progress.inbox
    if paused_input and not run.progress.started and not thread.busy:
        _write_run_start(run, shelve_input(paused_input))
        inbox.release_initial(thread)
    unheard: list[Any] = []
    if not run.progress.started:
        temporary = isinstance(result.error, StoreError) and result.error.code in TEMPORARY
        if not inbox.initial or result.outcome == "interrupted" or temporary:
            return  # the messages stay in the inbox
        unheard = _log_unstarted_run(run, result)
    if result.outcome != "interrupted":
        answer_lost_calls(thread, describe_end(result.outcome))
    if not thread.pending:
        accepted, late = inbox.take_late()
        for message in late:
            run.record("message_unheard", message=message.to_json())
        _append_input(run, accepted)
    about = {"run": run.id, "outcome": result.outcome, "reason": result.reason, "usage": run.usage.to_json()}
    error = {"error": {"code": error_code(result.error), "message": public_text(result.error)}} if result.error else {}
    more = {"unheard": unheard} if unheard else resume_data(run) if result.outcome == "interrupted" else {}
    thread.append("run_end", about | error | more)


def _log_unstarted_run(run: Run, result: Result) -> list[Any]:
    """Log a run that ended before it started, with its inbox messages; return the messages to try again.

    Messages leave the inbox in the same commit that logs their text. A refused message is not tried again.
    The messages of a failed run are an input of the next run, so that every hook sees them then. The number
    of tries is limited, so that a message on which a hook always fails does not block its thread.
    """
    failed, retried = result.outcome == "failed", list[Any]()
    earlier_failures = {id(message): failures for message, failures in run.thread.current.runs.unheard}
    queued = run.progress.inbox.initial
    _write_run_start(run, {"input": 0})
    for message in queued:
        text, failures = message.to_json(), earlier_failures.get(id(message), 0) + 1
        if failed and failures < UNHEARD_RUNS:
            retried.append({"message": text, "failures": failures})
        elif failed or result.outcome == "cancelled":
            run.record("message_unheard", message=text)
        else:
            run.record("message_refused", hook="", reason=result.reason, message=text)
    run.progress.inbox.release_initial(run.thread)
    return retried


def error_code(error: Exception) -> str:
    """Return the class name of an error in snake case: `ModelError` becomes `model_error`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__).strip("_")
