"""Recorded replies and tool results: a model and tools that replay them.

A `Replay` has the recordings of one case. `EvalSubstitution` replaces the model and the tools of a run with them. The
hooks and guards of the agent run as they do without recordings.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wick._internal.frozen import canonical_json, digest, thaw
from wick._internal.visible_text import format_count
from wick.capabilities.structured_output import ANSWER
from wick.capability import Capability
from wick.decisions import Block
from wick.errors import ModelError, ToolError
from wick.evals.suite import (
    EvalReply,
    RecordedCall,
    RecordedReasoning,
    RecordedRequest,
    RecordedResult,
    RequestFingerprint,
    RequestPart,
    equals_argument,
)
from wick.hooks import before, guard
from wick.messages import Message, ToolCall, ToolResult
from wick.models.reply import UNNAMED, Reply
from wick.operations import ModelCall, ToolUse
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, ReasoningDelta, Request, TextDelta, Usage
from wick.testing.cassette_format import (
    describe_message_change,
    describe_text_change,
    describe_tool_change,
    is_same_tool,
    matches_request,
    summarize_message,
    summarize_request,
)
from wick.testing.redaction import RecordingRedactor, matches_redacted
from wick.tools import Tool, run_tool

_HASH_CHARS = 16
NO_RECORDING = "add it to the `results` of the case, or set `tools: real`"


def record_request(request: Request, redactor: RecordingRedactor) -> RecordedRequest:
    """Return the summary of a request for a recording, as a cassette has it.

    Secrets are redacted: in a recording all of them, and in a replay those that every machine knows.
    """
    rest = redactor.redact_json(summarize_request(replace(request, messages=())))
    messages = [_record_message(message, redactor) for message in request.messages]
    return RecordedRequest.model_construct(
        system=rest.get("system", ""),
        tools=rest.get("tools", {}),
        settings=rest.get("settings", {}),
        messages=messages,
    )


def _record_message(message: Message, redactor: RecordingRedactor) -> dict[str, Any]:
    """Return the redacted summary of a message. It is computed once: later requests repeat the message."""
    known = message.cache.get("redacted_summary")
    if known is None or known[0] is not redactor:
        known = message.cache["redacted_summary"] = redactor, redactor.redact_json(summarize_message(message))
    summary: dict[str, Any] = known[1]
    return summary


def fingerprint_request(request: Request, redactor: RecordingRedactor) -> RequestFingerprint:
    """Return the hashes of a redacted request, to compare it with a recording of an earlier version."""
    redact = redactor.redact_texts  # earlier versions did not know the names of arguments
    return RequestFingerprint(
        system=_hash_json(redact(request.system)),
        tools={tool.name: _hash_json(redact(thaw(tool.schema))) for tool in request.tools},
        messages=_hash_json([digest(canonical_json(redact(message.to_json()))) for message in request.messages]),
    )


def _hash_json(value: Any) -> str:
    return digest(canonical_json(value))[:_HASH_CHARS]


AnyRequest = RecordedRequest | RequestFingerprint


def describe_difference(recorded: AnyRequest, sent: AnyRequest, parts: Iterable[RequestPart]) -> dict[str, str]:
    """Return the parts that differ between two requests, each with the words that changed, if they are recorded."""
    found, wanted, is_text = dict[str, str](), {*parts}, isinstance(recorded, RecordedRequest)
    if "system" in wanted and not matches_redacted(recorded.system, sent.system):
        found["the system prompt"] = describe_text_change(recorded.system, sent.system) if is_text else ""
    if "tools" in wanted:
        for name in dict.fromkeys([*recorded.tools, *sent.tools]):
            old, new = recorded.tools.get(name), sent.tools.get(name)
            if not is_same_tool(old, new):
                found[f"the tool {name}"] = describe_tool_change(old, new) if is_text else ""
    if "messages" in wanted and not matches_redacted(recorded.messages, sent.messages):
        found["the messages"] = _describe_first_change(recorded, sent)
    return found


def _describe_first_change(recorded: AnyRequest, sent: AnyRequest) -> str:
    """Return the words that changed in the first message that differs; an empty text without both messages."""
    if not isinstance(recorded, RecordedRequest) or not isinstance(sent, RecordedRequest):
        return ""
    pairs = zip(recorded.messages, sent.messages, strict=False)
    return next((describe_message_change(*pair) for pair in pairs if not matches_redacted(*pair)), "")


# -- the recordings of one case --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Replay:
    """The recorded replies and results of one case, and the problems of replaying them."""

    replies: Sequence[EvalReply] = ()
    results: Sequence[RecordedResult] = ()
    own_results: int = 0  # the first results are those of the suite, which a variant may not need
    compared: Sequence[RequestPart] = ()
    live_model: bool = False  # call the model, and record its replies
    live_tools: bool = False  # execute a tool that has no recorded result, and record it
    redactor: RecordingRedactor = field(default_factory=RecordingRedactor)
    requests: list[RecordedRequest] = field(default_factory=list)
    changed: dict[str, tuple[int, str]] = field(default_factory=dict)  # parts that differ: first request, change
    missing: list[str] = field(default_factory=list)  # replies and results that are not recorded
    new_replies: list[EvalReply] = field(default_factory=list)
    new_results: list[RecordedResult] = field(default_factory=list)
    _used_replies: set[int] = field(default_factory=set)
    _used_results: set[int] = field(default_factory=set)
    # Results by the identity of a call, for other attempts: ids of calls may repeat in later replies.
    _answered: dict[int, tuple[ToolCall, RecordedResult]] = field(default_factory=dict)

    def next_reply(self, purpose: str, request: Request) -> EvalReply:
        """Return the next recorded reply for a purpose, and compare the request with the recorded one.

        A reply that was recorded for the same request comes first, because parallel runs of subagents have no order.
        """
        # Requests that are recorded have no secret. Those that are compared must not depend on this machine.
        sent = record_request(request, self.redactor if self.live_tools else self.redactor.portable)
        self.requests.append(sent)
        left = [index for index, reply in enumerate(self.replies) if reply.purpose == purpose]
        left = [index for index in left if index not in self._used_replies]
        if not left:
            self.missing.append(f"reply {len(self.requests)}{f' ({purpose})' if purpose else ''} is not recorded")
            replies = format_count(len(self.replies), "reply")
            raise ModelError(f"the recording has {replies}, and the run needs another one")
        is_old = any(isinstance(reply.request, RequestFingerprint) for reply in self.replies)
        old_form = fingerprint_request(request, self.redactor) if is_old else None
        forms = [old_form if isinstance(reply.request, RequestFingerprint) else sent for reply in self.replies]
        equal = (index for index in left if self.replies[index].request == forms[index])
        requests = {index: self.replies[index].request for index in left}
        alike = (
            index
            for index, request in requests.items()
            if isinstance(request, RecordedRequest) and matches_request(request.model_dump(), sent.model_dump())
        )
        chosen = next(equal, next(alike, left[0]))
        self._used_replies.add(chosen)
        reply, form = self.replies[chosen], forms[chosen]
        if reply.request is not None and form is not None:
            for part, change in describe_difference(reply.request, form, self.compared).items():
                self.changed[part] = min((chosen + 1, change), self.changed.get(part, (chosen + 1, change)))
        return reply

    def find_result(self, use: ToolUse) -> RecordedResult | None:
        """Return the recorded result of a tool use; None without one. Each is used for one call."""
        if (found := self._answered.get(id(use.call))) is not None:
            return found[1]
        names, args = use.names, self.read_arguments(thaw(use.args))
        for index, result in enumerate(self.results):
            if index not in self._used_results and result.tool in names and self.has_arguments(args, result.args):
                self._used_results.add(index)
                self._answered[id(use.call)] = use.call, result
                return result
        return None

    def read_arguments(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a tool use as a recording has them, without secrets and paths of the machine."""
        redacted: dict[str, Any] = self.redactor.portable.redact_json(args)
        return redacted

    def has_arguments(self, args: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
        """Return True if arguments from `read_arguments` have the recorded ones."""
        recorded = self.read_arguments(wanted or {})
        return all(
            name in args and (matches_redacted(value, args[name]) or equals_argument(value, args[name]))
            for name, value in recorded.items()
        )

    @property
    def unused_results(self) -> list[RecordedResult]:
        """The results of calls that were executed while the case was recorded, and not in this run."""
        unused = (index for index in range(self.own_results, len(self.results)) if index not in self._used_results)
        return [self.results[index] for index in unused]

    @property
    def unused(self) -> int:
        """The number of recorded replies that the run did not need."""
        return 0 if self.live_model else len(self.replies) - len(self._used_replies)


# -- models and tools ------------------------------------------------------------------------------------------------


class RecordedModel:
    """A model that returns the recorded replies of a replay."""

    def __init__(self, replay: Replay, name: str, purpose: str = "") -> None:
        self.replay, self.name, self.purpose = replay, name, purpose

    @property
    def holds_schema(self) -> str:
        """Return the form in which the recorded model was asked for structured output."""
        return next((reply.holds_schema for reply in self.replay.replies if reply.purpose == self.purpose), "")

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        reply = self.replay.next_reply(self.purpose, request)
        usage = Usage.from_json(reply.usage) if reply.usage else estimate_usage(request, reply)
        for delta in reply_deltas(reply, usage, f"call_{len(self.replay.requests)}_"):
            yield delta


def reply_deltas(reply: EvalReply, usage: Usage, id_prefix: str = "") -> Iterator[Delta]:
    """Yield the deltas of a reply. A call without an id gets one with the prefix, if there is a prefix."""
    for thought in reply.reasoning:
        yield ReasoningDelta(thought.text, thought.signature, thought.provider)
    if reply.text:
        yield TextDelta(reply.text)
    for index, call in enumerate(reply.calls):
        yield CallStart(index, call.id or (id_prefix and f"{id_prefix}{index + 1}"), call.tool)
        yield CallArgs(index, json.dumps(call.args, ensure_ascii=False) if call.raw is None else call.raw)
    yield usage
    yield Finish(reply.finish or ("tool_calls" if reply.calls else "stop"))


def estimate_usage(request: Request, reply: EvalReply) -> Usage:
    """Return the estimated tokens of a recorded reply that has no usage."""
    calls = tuple(ToolCall(str(index), call.tool, call.args) for index, call in enumerate(reply.calls))
    sent = sum(message.tokens for message in request.messages) + Message("system", request.system).tokens
    return Usage(input_tokens=sent, output_tokens=Message("assistant", reply.text, calls).tokens)


class RecordingModel:
    """A model that passes requests to another one, and records the replies."""

    def __init__(self, replay: Replay, model: Model, purpose: str = "") -> None:
        self.replay, self.model, self.purpose, self.name = replay, model, purpose, model.name

    def __getattr__(self, name: str) -> Any:  # optional attributes such as `holds_schema`
        return getattr(self.model, name)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        reply, sent = Reply(), record_request(request, self.replay.redactor)
        async for delta in self.model.stream(request):
            reply.feed(delta)
            yield delta
        self.replay.requests.append(sent)
        new = record_reply(reply, sent, self.purpose, self.name)
        self.replay.new_replies.append(new.model_copy(update={"holds_schema": getattr(self.model, "holds_schema", "")}))


def record_reply(reply: Reply, request: AnyRequest | None, purpose: str, model: str) -> EvalReply:
    """Return a complete reply for a recording."""
    message = reply.message()
    return EvalReply(
        text=message.text,
        calls=[record_call(call) for call in message.tool_calls],
        reasoning=record_reasoning(message),
        purpose=purpose,
        model=model,
        usage={name: count for name, count in reply.usage.to_json().items() if count},
        finish="" if reply.finish in ("stop", "tool_calls") else reply.finish,
        request=request,
    )


def record_call(call: ToolCall) -> RecordedCall:
    """Return a call for a recording. Arguments that could not be parsed are recorded as the model wrote them."""
    if call.invalid:
        return RecordedCall(tool="" if call.invalid == UNNAMED else call.name, id=call.id, raw=call.raw)
    return RecordedCall(tool=call.name, args=thaw(call.args), id=call.id)


def record_reasoning(message: Message) -> list[RecordedReasoning]:
    """Return the reasoning of a message for a recording."""
    return [
        RecordedReasoning(text=thought.text, signature=thought.signature, provider=thought.provider)
        for thought in message.reasoning
    ]


class RecordedTool(Tool[..., Any]):
    """A tool that returns recorded results. Its name, schema, kind and other options are those of the real tool."""

    replay: Replay

    @classmethod
    def replace_tool(cls, tool: Tool, replay: Replay) -> RecordedTool:
        """Return a copy of a tool that is not executed."""
        recorded = object.__new__(cls)
        recorded.__dict__.update(tool.copy().__dict__, replay=replay)
        return recorded

    async def call(self, values: Mapping[str, Any], *context: object) -> Any:
        """Return the recorded result of the tool use in the context."""
        use = next(item for item in context if isinstance(item, ToolUse))
        if (found := self.replay.find_result(use)) is not None:
            return ToolResult(output=found.output, error=found.error, data=thaw(found.data))
        if self.kind == "agent":  # what its agent does is recorded: replies of the model, and results of tools
            return await self._run_real(values, *context)
        args = json.dumps(thaw(use.args), ensure_ascii=False, sort_keys=True)
        if not self.replay.live_tools:
            self.replay.missing.append(f"the result of {self.name}({args}) is not recorded; {NO_RECORDING}")
            raise ToolError(f"there is no recorded result of {self.name} with these arguments")
        result = await self._run_real(values, *context)
        new = RecordedResult(
            tool=self.name, args=thaw(use.args), output=result.output, error=result.error, data=thaw(result.data)
        )
        self.replay.new_results.append(new)
        return result

    async def _run_real(self, values: Mapping[str, Any], *context: object) -> ToolResult:
        real = object.__new__(Tool)
        real.__dict__.update({name: value for name, value in self.__dict__.items() if name != "replay"})
        return (await run_tool(real, values, *context))[0]


def _is_safe(tool: Tool | None) -> bool:
    """Return True if a tool is recorded, or takes the structured output of the run, which has no other effect."""
    return isinstance(tool, RecordedTool) or (tool is not None and tool.kind == ANSWER)


class EvalSubstitution(Capability):
    """A capability that replaces the calls of the model and the execution of tools with recordings.

    It is the innermost capability. Sealing, guards and the hooks around a tool use are those of the agent. A guard
    refuses a tool use that would execute a real tool.
    """

    def __init__(self, replay: Replay, *, model: bool, tools: bool) -> None:
        self.replay, self.replaces_model, self.replaces_tools = replay, model, tools

    @before(ModelCall, inherit=True)
    def replace_model(self, call: ModelCall) -> None:
        if not self.replaces_model:
            return
        purpose = call.purpose or (f"subagent {call.run.agent}" if call.run.depth else "")
        if self.replay.live_model:
            call.model = RecordingModel(self.replay, call.model, purpose)
        else:
            call.model = RecordedModel(self.replay, call.model.name, purpose)

    @before(ToolUse, inherit=True)
    def replace_tool(self, use: ToolUse) -> None:
        if self.replaces_tools and use.tool is not None and not _is_safe(use.tool):
            use.tool = RecordedTool.replace_tool(use.tool, self.replay)

    @guard(ToolUse)
    def refuse_real_tool(self, use: ToolUse) -> Block | None:
        if self.replaces_tools and not _is_safe(use.tool):
            self.replay.missing.append(f"a hook put a real tool in place of the recorded {use.call.name}")
            return Block("the tools of this eval are recorded, and a hook would execute a real one")
        return None
