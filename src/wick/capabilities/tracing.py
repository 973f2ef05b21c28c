"""Spans for every operation, on OpenTelemetry's API; nothing at all where no SDK is set.

    run                 invoke_agent
    └─ step
       ├─ llm.call      chat
       └─ tool.call     execute_tool

It is the outermost ring, so that it times everything and sees a result only after every redactor has.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from wick.capability import Capability
from wick.caps import PREVIEW_CHARS
from wick.decisions import Continue, Stop
from wick.frozen import canonical
from wick.hooks import Next, wrap
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse
from wick.protocols import Usage


def recording(op: Operation[Any]) -> bool:
    """Whether somebody collects spans. An SDK that was set has been imported, so nothing is imported to find out."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and type(trace.get_tracer_provider()).__name__ not in (
        "ProxyTracerProvider",
        "NoOpTracerProvider",
    )


class Tracing(Capability):
    """A span around each run, step, model call and tool use, with the attributes of the GenAI conventions."""

    @wrap(Run, match=recording, priority=inf)
    async def trace_run(self, run: Run, next: Next[Result]) -> Result:
        with _span("run", "invoke_agent", run) as span:
            span.set_attribute("gen_ai.agent.name", run.agent)
            try:
                result = await next(run)
            finally:
                _recorded(span, run)
            span.set_attributes({"outcome": result.outcome, "reason": result.reason, **_usage(result.usage)})
            return result

    @wrap(Step, match=recording, priority=inf)
    async def trace_step(self, step: Step, next: Next[Stop | Continue]) -> Stop | Continue:
        with _span("step", "", step) as span:
            span.set_attribute("step", step.number)
            verdict = await next(step)
            span.set_attribute("verdict", type(verdict).__name__.lower())
            return verdict

    @wrap(ModelCall, match=recording, priority=inf)
    async def trace_model_call(self, call: ModelCall, next: Next[Message]) -> Message:
        with _span("llm.call", "chat", call) as span:
            try:
                reply = await next(call)
            finally:
                spent = sum((charge.usage for charge in call.charges), Usage())  # of all attempts
                span.set_attributes(_asked(call.trail.sealed or call) | _usage(spent))
            span.set_attributes(_replied(reply))
            if call.trail.finish:
                span.set_attribute("gen_ai.response.finish_reasons", [call.trail.finish])
            _decided(span, call)
            return reply

    @wrap(ToolUse, match=recording, priority=inf)
    async def trace_tool_use(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with _span("tool.call", "execute_tool", use) as span:
            result = await next(use)
            sealed = use.trail.sealed or use
            args = canonical(sealed.args).decode()
            span.set_attributes({"tool_args": args[:PREVIEW_CHARS]} | _used(use) | _answered(result))
            if result.error:
                _fail(span, result.error)
            _decided(span, use)
            return result


def _span(name: str, operation: str, op: Operation[Any]) -> AbstractContextManager[Any]:
    from opentelemetry import trace

    attributes = {"gen_ai.conversation.id": op.run.thread.id, "run_id": op.run.id}
    if operation:
        attributes["gen_ai.operation.name"] = operation
    return trace.get_tracer("wick").start_as_current_span(name, attributes=attributes)


def _recorded(span: Any, run: Run) -> None:
    for name, data in run.progress.records:
        span.add_event(name, {key: _attribute(value) for key, value in data.items()})


def _asked(call: Any) -> dict[str, Any]:
    return {"gen_ai.request.model": call.model.name, "message_count": len(call.messages), "purpose": call.purpose}


def _replied(reply: Message) -> dict[str, Any]:
    return {
        "content_length": len(reply.text),
        "content_preview": reply.text[:PREVIEW_CHARS],
        "tool_calls_count": len(reply.tool_calls),
        "tool_calls": [call.name for call in reply.tool_calls],
    }


def _used(use: ToolUse) -> dict[str, Any]:
    name, id = use.call.name, use.call.id
    return {"tool_name": name, "tool_call_id": id, "gen_ai.tool.name": name, "gen_ai.tool.call.id": id}


def _answered(result: ToolResult) -> dict[str, Any]:
    return {"output_length": len(result.output), "output_preview": result.output[:PREVIEW_CHARS]}


def _usage(usage: Usage) -> dict[str, int]:
    return {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}


def _decided(span: Any, op: Operation[Any]) -> None:
    """Every hook that said something about the operation, as an event of its span."""
    for why in op.why:
        if why.verdict != "pass" or why.changed:
            span.add_event("hook", {key: _attribute(value) for key, value in why.to_json().items()})


def _fail(span: Any, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, error[:PREVIEW_CHARS]))
    span.set_attribute("error", error[:PREVIEW_CHARS])


def _attribute(value: Any) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else repr(value)[:PREVIEW_CHARS]
