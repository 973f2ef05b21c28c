"""Resume an open run: the run of a thread whose start is in the log, and whose end is not.

A run stays open if it pauses for an answer, if its server shuts down, or if its process is killed. Any process
that holds the thread can resume it, with the same id: `agent.run(thread=thread)` without input. First the run is
read from the log (`restore_run`). It is refused if a guard is missing that it was started under, unless an operator
waives that guard, and if it has ended elsewhere. Its usage, its charges, a requested Stop and a shelved input are
restored. Then the loop takes the step in which the run was interrupted (`count_finished_steps`), and that
step begins with the tool calls that have no result (`find_pending_calls`). Each of them passes all hooks, the seal
and the guards once more; an answer that is in the log is not asked for again. A tool whose intent is in the log may
have run: it runs again only if it is idempotent or read-only, or if the user agrees (`find_refusal`). Otherwise its
result is an error: the outcome is unknown. A run that ends instead of being resumed gives its pending calls such a
result, too (`answer_lost_calls`, `end_abandoned_run`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wick._internal.frozen import digest
from wick.approvals import ask_user, new_question_id
from wick.decisions import Allow, Question, Stop
from wick.errors import ConfigError, StoreError
from wick.messages import Message, ToolCall, ToolResult, result_message
from wick.operations import Outcome, Run, Step, ToolUse
from wick.prices import Charge
from wick.protocols import Usage
from wick.threads import Thread

# -- what is read, refused and restored ------------------------------------------------------------------------------


def restore_run(run: Run) -> None:
    """Make a run without input continue the open run of its thread. Refuse it if guards are missing, or if it is over.

    `resume_data` and `shelve_input` write what this reads.
    """
    open_run = run.thread.open_run
    if open_run is None or run.input or run.thread.busy:
        if run.thread.has_ended(run.id):  # ended elsewhere before it was resumed; the next run gets its messages
            raise StoreError(f"run {run.id} of thread {run.thread.id} is over", "over")
        return
    _check_guards(run, open_run, {*open_run["guards"]} - {*open_run.get("added_guards", ())})
    run.id, run.progress.resumption.resumed = open_run["run"], True
    _restore_spending(run, open_run)
    if "stopping" in open_run:
        run.halt(Stop(open_run["stopping"]))
    run.input = [Message.from_json(message) for message in open_run.get("shelved", ())]


def check_added_guards(run: Run) -> None:
    """Refuse a resumed run that lacks a guard which a `before(Run)` hook added to it when it was started."""
    open_run = run.thread.open_run
    if run.resumed and open_run is not None:
        _check_guards(run, open_run, {*open_run.get("added_guards", ())})


def _check_guards(run: Run, open_run: Mapping[str, Any], wanted: set[str]) -> None:
    missing = sorted(wanted - {*guard_names(run)} - run.progress.resumption.waived_guards)
    if missing:
        raise ConfigError(
            f"run {open_run['run']} was started under the guards {', '.join(missing)}, which are missing now; "
            f"resume it with them, or with without={missing!r} to continue without them"
        )


def _restore_spending(run: Run, open_run: Mapping[str, Any]) -> None:
    """Restore usage and charges from each interruption in the log, and from the replies since the last one.

    They are incomplete if a process was killed: it may have paid for more than the replies in the log.
    """
    entries = run.thread.effective_entries()
    ends = [entry.data for entry in entries if entry.kind == "run_end" and entry.data["run"] == run.id]
    try:
        charges = [Charge.from_json(row) for end in ends for row in end.get("charges", ())]
        counted = sum((charge.usage for charge in charges), Usage())
        usage = Usage.from_json(open_run["usage"]) if "usage" in open_run else counted
        since = _reply_charges(run.thread)
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"the usage of run {run.id} of thread {run.thread.id} cannot be read: {error}") from None
    complete = run.thread.outcome == "interrupted" and usage == counted
    run.progress.spending.restore(usage, charges, since, complete=complete)


def _reply_charges(thread: Thread) -> list[Charge]:
    """Return the charges of the replies of a killed process: those that no interruption has logged."""
    replies = thread.current.runs.replies
    return [Charge(str(reply["model"]), Usage.from_json(reply["usage"])) for reply in replies]


def resume_data(run: Run) -> dict[str, Any]:
    """Return the data of an interrupted run's end from which it is restored."""
    stopping = {"stopping": run.stopping.reason} if run.stopping else {}
    charges = [charge.to_json() for charge in run.progress.spending.unlogged]
    return {**describe_guards(run), "charges": charges, **stopping}


def shelve_input(input: Sequence[Message]) -> dict[str, Any]:
    """Return the data of a run's start that keeps its input, for a run that paused before it used the input."""
    return {"input": 0, "shelved": [message.to_json() for message in input]}


def describe_guards(run: Run) -> dict[str, list[str]]:
    """Return the guards for the log. Those that hooks added are also listed apart: a resumed run adds them itself."""
    added = sorted({guard.name for guard in run.progress.extensions.guards})
    return {"guards": guard_names(run), **({"added_guards": added} if added else {})}


def guard_names(run: Run) -> list[str]:
    """Return the names of all guards of a run. When it is resumed, guards with these names must be present."""
    return sorted({guard.name for kind in run.loop.guards for guard in run.guards(kind)})


# -- where the loop continues ----------------------------------------------------------------------------------------


def count_finished_steps(thread: Thread) -> int:
    """Return the number of steps that the run has finished. A step with pending calls is taken again."""
    return max(thread.steps - bool(thread.pending), 0)


def find_pending_calls(step: Step) -> list[ToolCall]:
    """Return the calls that a resumed step still has to answer. An earlier attempt may have answered some of them."""
    return [call for call in step.pending if step.run.thread.is_waiting_for(call)]


async def find_refusal(use: ToolUse) -> str:
    """Return why a tool must not run, or "" if it may: only an idempotent tool runs twice for one call."""
    thread, tool = use.run.thread, use.bound
    status = "" if tool.idempotent or tool.read_only else thread.attempt_status(use.call.id)
    if status == "unknown" and use.run.progress.resumption.ask_before_rerun and await _confirm_rerun(use):
        status = ""
    if use.run.progress.over:  # the tool use ignored the run's cancellation
        return f"{tool.name} does not run any more: the run is over"
    if not thread.is_waiting_for(use.call):  # a wrap abandoned this use and answered without it
        return f"{tool.name} does not run any more: its call has been answered"
    return _ALREADY_RUN.get(status, "").format(name=tool.name)


_ALREADY_RUN = {
    "done": "{name} has already run for this call; it is not idempotent, so it does not run again",
    "unknown": "{name} was started before, and may have taken effect for this call; it is not idempotent, "
    "so it does not run again",
}


async def _confirm_rerun(use: ToolUse) -> bool:
    """Return True if the user agrees to run a tool again after an attempt with unknown outcome."""
    text = f"{use.bound.name} was started before, and may have taken effect. Run it again?"
    attempt = str(use.attempt)  # part of the hash: an approval of the call or of another attempt does not count
    about = {**use.to_json(), "again": attempt}
    question = Question(text, new_question_id(), digest(f"{use.hash} {attempt}".encode()), about, use)
    return isinstance(await ask_user(use.run, question), Allow)


# -- a run that is not resumed ---------------------------------------------------------------------------------------


def answer_lost_calls(thread: Thread, event: str) -> None:
    """Answer the pending tool calls with an error that says whether they took effect."""
    for call in thread.pending:
        error = _LOST_CALL_ERRORS[thread.attempt_status(call.id)].format(name=call.name, event=event)
        thread.add(result_message(call, ToolResult(error=error)))


_LOST_CALL_ERRORS = {
    "": "{event} before {name} ran",
    "failed": "{name} failed, and {event}",
    "done": "{name} ran, and {event} before its result was known",
    "unknown": "{event} while {name} ran; whether it took effect is unknown",
}


def describe_end(outcome: Outcome) -> str:
    """Return the end of a run as part of a sentence."""
    return "the run failed" if outcome == "failed" else f"the run was {outcome}"


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
    spent = Usage.from_json({} if thread.open_run is None else thread.open_run.get("usage", {}))
    usage = sum((charge.usage for charge in _reply_charges(thread)), spent).to_json()
    answer_lost_calls(thread, describe_end(outcome))
    about: dict[str, Any] = {"run": run, "outcome": outcome, "reason": reason, "usage": usage}
    about |= {"unheard": unheard} if unheard else {}  # the next run still gets them as input
    thread.append("run_end", about | ({"error": {"code": error[0], "message": error[1]}} if error else {}))
