"""What the demo model does next: a pure function of what was asked and of what its tools have said since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick._internal.frozen import digest
from wick.messages import Message, ToolCall
from wick.models.demo import reports
from wick.models.demo.actions import Act, Job
from wick.models.demo.instance import LABEL, instance, resolved
from wick.models.demo.intents import ABILITIES
from wick.models.demo.parser import is_small_talk, understand
from wick.protocols import Request
from wick.tools import Tool

MOST_ROUNDS = 16  # of tools in answer to one message; then it sums up, whatever is left to do

GREETING = (
    f"{LABEL.capitalize()}: I need no key and no network, and understand a handful of requests. I can {ABILITIES}."
)
REFUSAL = f"{LABEL.capitalize()}: I do not understand that. I can {ABILITIES}."

# Other names that tools may have for wick's arguments.
_SYNONYMS = {
    "path": ("file_path", "directory", "dir"),
    "old_text": ("old_string",),
    "new_text": ("new_string",),
    "pattern": ("query", "regex"),
    "command": ("cmd",),
    "agent": ("subagent", "subagent_type", "agent_type", "agent_name", "name"),
    "prompt": ("task", "instructions", "message", "input"),
    "question": ("message", "prompt", "text"),
    "options": ("choices",),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The text of a tool's result, and whether the call failed or was blocked."""

    text: str
    failed: bool

    @classmethod
    def of(cls, message: Message | None) -> Outcome:
        return cls("there is no answer", True) if message is None else cls(message.text, message.failed)


@dataclass(frozen=True, slots=True)
class Turn:
    """The user's last message and what has happened since."""

    said: str
    made: tuple[tuple[ToolCall, Outcome], ...]  # the calls and their results
    rounds: int
    path: str  # of the file that was used last before it

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Turn:
        start = next((at for at in reversed(range(len(messages))) if _is_users(messages[at])), None)
        if start is None:
            return cls("", (), 0, "")
        since = messages[start + 1 :]
        results = {message.tool_call_id: message for message in since if message.role == "tool"}
        calls = [call for message in since for call in message.tool_calls]
        made = tuple((call, Outcome.of(results.get(call.id))) for call in calls)
        rounds = sum(bool(message.tool_calls) for message in since)
        return cls(messages[start].text, made, rounds, _last_path(messages[:start]))


def _is_users(message: Message) -> bool:
    return message.role == "user" and not message.name  # a name is that of a hook


def _last_path(messages: Sequence[Message]) -> str:
    paths = (call.args.get("path") for message in reversed(messages) for call in reversed(message.tool_calls))
    return next((path for path in paths if isinstance(path, str)), "")


@dataclass(slots=True)
class Progress:
    """How far a job is: what came of the acts that were done, and those that are left."""

    job: Job
    done: list[tuple[Act, Outcome]] = field(default_factory=list)
    left: list[Act] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # the tools that it takes and that are not there

    @property
    def answer(self) -> str:
        """What to say about it, once nothing is left to do, or nothing more can be done."""
        if self.missing:
            tools = "tool" if len(self.missing) == 1 else "tools"
            return f"I would use {_and(self.missing)} for that, but this agent has no such {tools}."
        failed = [(act, made) for act, made in self.done if not _worked(act, made)]
        if self.job.summary and not failed and not self.left:
            return self.job.summary
        shown = self.done if self.job.only_looks else failed or self.done
        told = [reports.report(act.tool, act.args, made.text, failed=made.failed) for act, made in shown]
        return "\n\n".join(dict.fromkeys(told))


def decide(request: Request) -> Message:
    """The reply to a request: text, and the tools to use next."""
    turn = Turn.of(request.messages)
    jobs = understand(turn.said, turn.path)
    tools = {} if request.settings.get("tool_choice") == "none" else _by_name(request.tools)
    progress = _progress(jobs, turn, tools)
    acts = _next(progress) if turn.rounds < MOST_ROUNDS else []
    if forced := _forced(request, turn):
        acts = [act for act in acts if tools[act.tool] is forced]
        if not acts:
            return _reply(request, "", [(forced.name, fitted(forced, {}))])
    if acts:
        acts = acts[:1] if request.settings.get("parallel_tool_calls") is False else acts
        calls = [(tools[act.tool].name, fitted(tools[act.tool], act.args)) for act in acts]
        return _reply(request, f"I will {_and([reports.doing(act.tool, act.args) for act in acts])}.", calls)
    return _reply(request, _formatted(request, _answer(turn, progress)), [])


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """The tools by wick's own names: one that was renamed is still known by the name it was born with."""
    known = {tool.name: tool for tool in tools}
    return known | {tool.origin: tool for tool in tools if tool.origin not in known}


def _progress(jobs: Sequence[Job], turn: Turn, tools: Mapping[str, Tool]) -> list[Progress]:
    """Where each job stands. A call belongs to the first act that it fits, and to one only."""
    made, found = list(turn.made), [Progress(job) for job in jobs]
    for progress in found:
        progress.missing = [*dict.fromkeys(act.tool for act in progress.job.acts if act.tool not in tools)]
        for act in () if progress.missing else progress.job.acts:
            wanted = (tools[act.tool].name, fitted(tools[act.tool], act.args))
            index = next((at for at, (call, _) in enumerate(made) if (call.name, call.args) == wanted), None)
            if index is None:
                progress.left.append(act)
                continue
            outcome = made.pop(index)[1]
            progress.done.append((act, outcome))
            if not _worked(act, outcome) and not progress.job.only_looks:
                break  # what comes after builds on it
    return found


def _worked(act: Act, made: Outcome) -> bool:
    return reports.outcome(act.tool, made.text, failed=made.failed) == "done"


def _next(found: Sequence[Progress]) -> list[Act]:
    """What can be done now: looking around goes side by side, everything else one by one."""
    acts: list[Act] = []
    for progress in found:
        if progress.left and not progress.job.only_looks:
            return acts or progress.left[:1]
        acts += progress.left
    return acts


def _answer(turn: Turn, found: Sequence[Progress]) -> str:
    if not found:
        return GREETING if is_small_talk(turn.said) else REFUSAL
    told = [progress.answer for progress in found]
    if any(progress.left for progress in found):
        told.append(f"I stopped after {turn.rounds} rounds of tools; ask me to go on.")
    return "\n\n".join(filter(None, told))


def _and(items: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


# -- arguments and formats ------------------------------------------------------------------------------------------


def fitted(tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a tool calls them, and those that it requires besides."""
    known = tool.parameters.get("properties")
    if not known:
        return {} if known == {} else dict(args)
    ready: dict[str, Any] = {}
    for name, value in args.items():
        names = (name, *_SYNONYMS.get(name, ()))
        if found := next((name for name in names if name in known and name not in ready), ""):
            ready[found] = _chosen(resolved(known[found], tool.parameters), value)
    needed = [name for name in tool.parameters.get("required", ()) if name not in ready]
    return ready | {name: instance(known.get(name, {}), tool.parameters) for name in needed}


def _chosen(schema: Mapping[str, Any], value: Any) -> Any:
    """The value, or the one of its choices that is nearest to it."""
    choices = schema.get("enum")
    if not choices or value in choices:
        return value
    return next((choice for choice in choices if str(choice).lower() == str(value).lower()), choices[0])


def _forced(request: Request, turn: Turn) -> Tool | None:
    """The tool that has to be used, if it has not been: the one that `tool_choice` names, or the only one."""
    choice = request.settings.get("tool_choice")
    if choice == "required" and len(request.tools) == 1:
        choice = request.tools[0].name
    used = any(call.name == choice for call, _ in turn.made)
    return next((tool for tool in request.tools if tool.name == choice and not used), None)


def _formatted(request: Request, text: str) -> str:
    """The answer as `response_format` wants it: the smallest JSON that fits its schema."""
    form = request.settings.get("response_format")
    if not form or form.get("type") == "text":
        return text
    if form.get("type") == "json_object":
        return json.dumps({"answer": text}, ensure_ascii=False)
    schema = form.get("json_schema", {}).get("schema", {}) if form.get("type") == "json_schema" else form
    return json.dumps(instance(schema), ensure_ascii=False)


def _reply(request: Request, text: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> Message:
    """The reply. The ids of its calls are made of the conversation, so that they are new and the same each time."""
    last = request.messages[-1].digest if request.messages else ""
    ids = [digest(f"{len(request.messages)} {last} {index}".encode())[:12] for index in range(len(calls))]
    made = [ToolCall(f"call_{id}", name, args) for id, (name, args) in zip(ids, calls, strict=True)]
    return Message("assistant", text, tuple(made))
