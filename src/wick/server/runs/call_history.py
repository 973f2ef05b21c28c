"""The history of a tool call from the log: its arguments, hook verdicts, questions, attempts and result."""

from __future__ import annotations

from typing import Any

from wick._internal.frozen import thaw
from wick.api.types import CallAttempt, CallQuestion, CallReasons, HookVerdict
from wick.capabilities.recorder import VALUE
from wick.messages import Message, ToolCall
from wick.server.runs.call_content import walk_spans
from wick.threads import Thread
from wick.threads.state import Entry
from wick.why import describe_answer


def explain_call(thread: Thread, call_id: str, seq: int | None = None) -> CallReasons | None:
    """Return the history of the last tool call with this id, or of the one in entry `seq`."""
    found: CallReasons | None = None
    run, asked = "", None
    for entry in thread.entries:
        if entry.kind == "run_start":
            run = entry.data["run"]
            continue
        calls = entry.data.tool_calls if isinstance(entry.data, Message) else ()
        if entry.kind == "call":  # of a program
            row = entry.data
            calls = (ToolCall(row["call"], row["name"], row["args"], invalid=row.get("invalid", "")),)
        if (call := next((call for call in calls if call.id == call_id), None)) is not None:
            if found is not None and found.seq == seq:
                break
            about: dict[str, Any] = {"thread_id": thread.id, "run_id": run, "call_id": call.id, "seq": entry.seq}
            found = CallReasons(**about, tool=call.name, args=thaw(call.args), invalid=call.invalid)
            asked = call
        elif found is not None and asked is not None and found.result is None:
            _apply_entry(found, asked, entry)
    if found is None or (seq is not None and found.seq != seq):
        return None
    # the trace of the run, if there is one, has the verdicts of all hooks
    trace = thread.values.get(VALUE, {}).get(found.run_id, {"spans": ()})
    this = {"tool_call_id": found.call_id, "gen_ai.conversation.id": thread.id}
    uses = [span for span in walk_spans(trace["spans"]) if this.items() <= span["attributes"].items()]
    if len(uses) == 1:  # ambiguous if two calls have this id
        found.verdicts = [HookVerdict(**row) for row in thaw(uses[0].get("why", []))] or found.verdicts
    return found


def _apply_entry(found: CallReasons, call: ToolCall, entry: Entry) -> None:
    """Add an entry that follows a call to its history, if the entry is about the call."""
    data = entry.data
    if isinstance(data, Message):
        if data.tool_call_id == call.id:
            found.result, found.result_seq = data.text, entry.seq
    elif entry.kind == "answered":
        for asked in found.questions:
            if asked.id == data["id"]:
                asked.allowed, asked.answered_at, asked.by = data["allowed"], entry.at, data.get("by", "")
                asked.reason, asked.scope = data.get("reason", ""), data.get("scope", "")
                waited = (entry.at - asked.at) * 1000
                verdict = describe_answer(thaw(data), asked.args, waited)
                found.verdicts.append(HookVerdict(**verdict.to_json()))
    elif entry.kind == "asked" and data.get("call_id") == call.id:
        if all(question.id != data["id"] for question in found.questions):  # after a rewind it is asked again
            args = thaw(data.get("args", {}))
            found.questions.append(CallQuestion(id=data["id"], question=data["question"], args=args, at=entry.at))
    elif data.get("call") != call.id:
        return
    elif entry.kind == "decision":
        found.verdicts.append(
            HookVerdict(**{name: thaw(data[name]) for name in HookVerdict.model_fields if name in data})
        )
    elif entry.kind == "intent":
        # the log holds the difference of the sealed arguments to those of the call
        unchanged = {name: value for name, value in call.args.items() if name not in data.get("without", ())}
        args = {**thaw(unchanged), **thaw(data.get("args", {}))}
        found.attempts.append(CallAttempt(number=data["attempt"], args=args, hash=data["hash"], at=entry.at))
    elif entry.kind == "result":
        found.result, found.result_seq = data.get("error") or data["output"], entry.seq
    elif entry.kind == "done":
        for attempt in found.attempts:
            attempt.ended = data["ended"] if attempt.number == data["attempt"] else attempt.ended
