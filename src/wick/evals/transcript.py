"""The transcript of a run: the tool calls with the decisions about them, the answer and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from wick._internal.frozen import thaw
from wick.capabilities.structured_output import ACCEPTED, ANSWER, TOOL
from wick.messages import Message
from wick.operations import Result
from wick.protocols import Usage
from wick.threads.state import Entry

Decided = Literal["ran", "blocked", "denied", "invalid"]
_BLOCKING = ("block", "stop", "failed")


@dataclass(slots=True)
class CallQuestion:
    """A question about a tool call, with its answer."""

    args: dict[str, Any]  # the arguments in the question
    allowed: bool = False
    run_with: dict[str, Any] | None = None  # the arguments that the answer gives instead


@dataclass(slots=True)
class TranscriptCall:
    """One tool call of a run, with its final arguments and the decision about it."""

    tool: str
    args: dict[str, Any]
    decision: Decided = "invalid"
    asked: bool = False
    hook: str = ""  # the hook that blocked it, or asked
    reason: str = ""
    output: str = ""
    failed: bool = False
    questions: list[CallQuestion] = field(default_factory=list, repr=False)
    model_args: dict[str, Any] = field(default_factory=dict, repr=False)  # the arguments of the model

    @property
    def is_answer(self) -> bool:
        """True if the call gives the structured output of the agent, which some models return as text."""
        return self.tool == TOOL or is_accepted_answer(self.tool, self.output)


def is_accepted_answer(tool: str, output: str) -> bool:
    """Return True if a call was accepted as the structured output, or as one of several."""
    return (tool == TOOL or tool.startswith(f"{ANSWER}_")) and output.startswith(ACCEPTED)


@dataclass(frozen=True, slots=True)
class EvalTranscript:
    """The transcript of one case: calls, texts and usage of the agent. Custom scorers get it."""

    case: str  # the id of the case
    input: Sequence[Message]  # the messages of the user, and of an earlier conversation
    text: str = ""  # the answer
    outcome: str = "failed"  # as in the result of a run
    reason: str = ""  # why the run ended
    calls: Sequence[TranscriptCall] = ()  # the tool calls, with the decisions about them
    steps: int = 0  # the number of model replies
    usage: Usage = field(default_factory=Usage)  # tokens
    price: Decimal | None = None  # dollars, or None if unknown
    messages: Sequence[Message] = ()  # the messages of the run


def build_transcript(case: str, input: Sequence[Message], result: Result[Any]) -> EvalTranscript:
    """Return the transcript of a finished run, from its log."""
    entries = result.thread.entries
    start = next((index for index, entry in enumerate(entries) if entry.kind == "run_start"), len(entries))
    entries = entries[start:]  # the input is logged before
    return EvalTranscript(
        case,
        input,
        result.text,
        result.outcome,
        result.reason,
        collect_calls(entries),
        sum(entry.kind == "message" and entry.data.role == "assistant" for entry in entries),
        result.usage,
        result.price,
        [entry.data for entry in entries if entry.kind == "message"],
    )


def collect_calls(entries: Sequence[Entry]) -> list[TranscriptCall]:
    """Return the tool calls of log entries, also those of programs, in the order of the log."""
    calls, open, questions = list[TranscriptCall](), dict[str, TranscriptCall](), dict[str, CallQuestion]()
    for entry in entries:
        if entry.kind == "message" and entry.data.role == "assistant":
            given = {call.id: (call.name, thaw(call.args)) for call in entry.data.tool_calls}
            open = {id: TranscriptCall(name, args, model_args=args) for id, (name, args) in given.items()}
            calls += open.values()
        elif entry.kind == "call":  # of a program
            args = thaw(entry.data["args"])
            open[entry.data["call"]] = TranscriptCall(entry.data["name"], args, model_args=args)
            calls.append(open[entry.data["call"]])
        elif entry.kind == "result" and entry.data["call"] in open:
            call = open[entry.data["call"]]
            call.output, call.failed = entry.data.get("error") or entry.data["output"], "error" in entry.data
        elif entry.kind == "message" and entry.data.tool_call_id in open:
            call = open[entry.data.tool_call_id]
            call.output, call.failed = entry.data.text, entry.data.failed
        elif entry.kind in ("decision", "intent", "asked"):
            call_id = str(entry.data.get("call_id" if entry.kind == "asked" else "call", ""))
            if call_id in open:
                _apply_entry(open[call_id], entry)
                if entry.kind == "asked":
                    questions[entry.data["id"]] = open[call_id].questions[-1]
        elif entry.kind == "answered" and entry.data["id"] in questions:
            question = questions[entry.data["id"]]
            question.allowed, question.run_with = entry.data["allowed"], thaw(entry.data.get("args"))
    return calls


def _apply_entry(call: TranscriptCall, entry: Entry) -> None:
    data = entry.data
    if entry.kind == "asked":
        call.asked, call.args, call.reason = True, thaw(data.get("args", call.args)), data["question"]
        call.questions.append(CallQuestion(call.args))
        call.decision = "denied"  # until its intent is logged
        return
    if "hash" in data:
        call.tool = data["tool"]  # the model may have called it by an alias
        # The entry has the difference of the arguments to those of the model.
        kept = {name: value for name, value in call.model_args.items() if name not in data.get("without", ())}
        call.args = {**kept, **thaw(data.get("args", {}))}
    if entry.kind == "intent":
        call.decision = "ran"
    elif not data.get("shadow") and data["verdict"] in _BLOCKING:
        call.decision, call.hook, call.reason = "blocked", data["hook"], data.get("reason", "")
    elif not data.get("shadow") and data["verdict"] == "ask":
        call.hook = data["hook"]
