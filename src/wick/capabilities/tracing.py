"""Spans for every operation, on OpenTelemetry's API; nothing at all where no SDK is set.

It is the outermost ring, so that it times everything and sees a result only after every redactor has.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from wick.capabilities._spans import attribute, ended, opened, records, tried
from wick.capability import Capability
from wick.decisions import Continue, Stop
from wick.hooks import Next, wrap
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse


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
        with _span(run) as span:
            try:
                result = await next(run)
            finally:
                for name, data in records(run):
                    span.add_event(name, data)
            span.set_attributes(ended(run, result))
            return result

    @wrap(Step, match=recording, priority=inf)
    async def trace_step(self, step: Step, next: Next[Stop | Continue]) -> Stop | Continue:
        with _span(step) as span:
            verdict = await next(step)
            span.set_attributes(ended(step, verdict))
            return verdict

    @wrap(ModelCall, match=recording, priority=inf)
    async def trace_model_call(self, call: ModelCall, next: Next[Message]) -> Message:
        with _span(call) as span:
            try:
                reply = await next(call)
            finally:
                span.set_attributes(tried(call))
            span.set_attributes(ended(call, reply))
            _decided(span, call)
            return reply

    @wrap(ToolUse, match=recording, priority=inf)
    async def trace_tool_use(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with _span(use) as span:
            result = await next(use)
            attributes = ended(use, result)
            span.set_attributes(attributes)
            if "error" in attributes:
                _fail(span, attributes["error"])
            _decided(span, use)
            return result


def _span(op: Operation[Any]) -> AbstractContextManager[Any]:
    from opentelemetry import trace

    name, attributes = opened(op)
    return trace.get_tracer("wick").start_as_current_span(name, attributes=attributes)


def _decided(span: Any, op: Operation[Any]) -> None:
    """Every hook that said something about the operation, as an event of its span."""
    for why in op.why:
        if why.verdict != "pass" or why.changed:
            span.add_event("hook", {key: attribute(value) for key, value in why.to_json().items()})


def _fail(span: Any, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, error))
