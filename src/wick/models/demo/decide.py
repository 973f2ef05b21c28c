"""The next reply of the demo model: a pure function of the last user message and of the tool results since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick._internal.frozen import digest
from wick.messages import Message, ToolCall
from wick.models.demo import reports
from wick.models.demo.instance import LABEL, instance
from wick.models.demo.intents import ABILITIES, Act, Job, is_small_talk, understand
from wick.protocols import Request
from wick.tools import Tool

MOST_ROUNDS = 16  # of tool calls for one user message

GREETING = (
    f"{LABEL.capitalize()}: I need no key and no network, and understand a handful of requests. I can {ABILITIES}."
)
REFUSAL = f"{LABEL.capitalize()}: I do not understand that. I can {ABILITIES}."
_NO_RESULT = Message("tool", "there is no result", failed=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """The last user message, and the tool calls since with their results."""

    text: str = ""
    calls: tuple[tuple[ToolCall, Message], ...] = ()
    rounds: int = 0

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Turn:
        since: list[Message] = []
        for message in reversed(messages):
            if message.role == "user" and not message.name:  # a message with a name was added by a hook
                results = {later.tool_call_id: later for later in since if later.role == "tool"}
                calls = [call for later in reversed(since) for call in later.tool_calls]
                pairs = tuple((call, results.get(call.id, _NO_RESULT)) for call in calls)
                return cls(message.text, pairs, sum(bool(later.tool_calls) for later in since))
            since.append(message)
        return cls()


@dataclass(slots=True)
class Progress:
    """The state of a job: the acts with a result, and those still to do."""

    job: Job
    done: list[tuple[Act, Message]] = field(default_factory=list)
    left: list[Act] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # tools that the agent does not have

    @property
    def answer(self) -> str:
        if self.missing:
            tools = "tool" if len(self.missing) == 1 else "tools"
            return f"I would use {_join(self.missing)} for that, but this agent has no such {tools}."
        failed = [(act, result) for act, result in self.done if result.failed]
        if self.job.summary and not failed and not self.left:
            return self.job.summary
        shown = self.done if self.job.is_reading else failed or self.done
        sentences = [reports.report(act.tool, act.args, result.text, failed=result.failed) for act, result in shown]
        return "\n\n".join(dict.fromkeys(sentences))


def decide(request: Request) -> Message:
    """Return the reply to a request: text, and the next tool calls."""
    turn = Turn.of(request.messages)
    tools: dict[str, Tool] = {}
    if request.settings.get("tool_choice") != "none":  # a renamed tool has its original name, too
        tools = {tool.origin: tool for tool in request.tools} | {tool.name: tool for tool in request.tools}
    progress = _track_progress(understand(turn.text), turn, tools)
    acts: list[Act] = []
    for job_progress in progress if turn.rounds < MOST_ROUNDS else ():
        if job_progress.left and not job_progress.job.is_reading:  # reads run in parallel, everything else one by one
            acts = acts or job_progress.left[:1]
            break
        acts += job_progress.left
    choice = request.settings.get("tool_choice")
    if choice == "required" and len(request.tools) == 1:
        choice = request.tools[0].name
    is_used = any(call.name == choice for call, _ in turn.calls)
    if forced := next((tool for tool in request.tools if tool.name == choice and not is_used), None):
        acts = [act for act in acts if tools[act.tool] is forced]
        if not acts:
            return _build_reply(request, "", [(forced.name, fit_args(forced, {}))])
    if acts:
        acts = acts[:1] if request.settings.get("parallel_tool_calls") is False else acts
        calls = [(tools[act.tool].name, fit_args(tools[act.tool], act.args)) for act in acts]
        return _build_reply(request, f"I will {_join([reports.describe(act.tool, act.args) for act in acts])}.", calls)
    return _build_reply(request, _build_answer(request, turn, progress), [])


def _track_progress(jobs: Sequence[Job], turn: Turn, tools: Mapping[str, Tool]) -> list[Progress]:
    """Assign each call to the first act with the same tool and arguments."""
    calls, jobs_progress = list(turn.calls), [Progress(job) for job in jobs]
    for progress in jobs_progress:
        progress.missing = [*dict.fromkeys(act.tool for act in progress.job.acts if act.tool not in tools)]
        for act in () if progress.missing else progress.job.acts:
            wanted = (tools[act.tool].name, fit_args(tools[act.tool], act.args))
            index = next((at for at, (call, _) in enumerate(calls) if (call.name, call.args) == wanted), None)
            if index is None:
                progress.left.append(act)
                continue
            result = calls.pop(index)[1]
            progress.done.append((act, result))
            if result.failed and not progress.job.is_reading:
                break  # the later acts depend on this one
    return jobs_progress


def _build_answer(request: Request, turn: Turn, jobs_progress: Sequence[Progress]) -> str:
    """Return the answer as text, or in the `response_format`: the smallest JSON that is valid for its schema."""
    form = request.settings.get("response_format") or {}
    kind = form.get("type")
    if form and kind not in ("text", "json_object"):
        schema = form.get("json_schema", {}).get("schema", {}) if kind == "json_schema" else form
        return json.dumps(instance(schema), ensure_ascii=False)
    answers = [progress.answer for progress in jobs_progress]
    if not jobs_progress:
        answers = [GREETING if is_small_talk(turn.text) else REFUSAL]
    elif any(progress.left for progress in jobs_progress):
        answers.append(f"I stopped after {turn.rounds} rounds of tools; ask me again for the rest.")
    text = "\n\n".join(filter(None, answers))
    return json.dumps({"answer": text}, ensure_ascii=False) if kind == "json_object" else text


def _join(items: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


# -- arguments and formats ------------------------------------------------------------------------------------------


def fit_args(tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a tool has, and the smallest valid value of each further required one."""
    known = tool.parameters.get("properties")
    if not known:
        return {} if known == {} else dict(args)
    ready = {name: value for name, value in args.items() if name in known}
    needed = [name for name in tool.parameters.get("required", ()) if name not in ready]
    return ready | {name: instance(known.get(name, {}), tool.parameters) for name in needed}


def _build_reply(request: Request, text: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> Message:
    """Return the reply. The ids of its calls are derived from the conversation: unique and reproducible."""
    last = request.messages[-1].digest if request.messages else ""
    ids = [digest(f"{len(request.messages)} {last} {index}".encode())[:12] for index in range(len(calls))]
    tool_calls = (ToolCall(f"call_{id}", name, args) for id, (name, args) in zip(ids, calls, strict=True))
    return Message("assistant", text, tuple(tool_calls))
