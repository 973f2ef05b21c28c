"""OpenTelemetry spans for every operation; a no-op without an SDK.

Tracing is the outermost ring: it times all hooks, and sees results only after redactors.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from wick.capabilities._spans import (
    describe_attempts,
    describe_result,
    describe_start,
    list_record_events,
    to_attribute,
)
from wick.capability import Capability
from wick.decisions import Continue, Stop
from wick.hooks import Next, wrap
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse


def is_recording(op: Operation[Any]) -> bool:
    """Return True if an SDK is configured. Only `sys.modules` is checked: a configured SDK is already imported."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and type(trace.get_tracer_provider()).__name__ not in (
        "ProxyTracerProvider",
        "NoOpTracerProvider",
    )


class Tracing(Capability):
    """Creates a span for each run, step, model call and tool use, with GenAI semantic conventions."""

    @wrap(Run, match=is_recording, priority=inf)
    async def trace_run(self, run: Run, next: Next[Result]) -> Result:
        with _start_span(run) as span:
            try:
                result = await next(run)
            finally:
                for name, data in list_record_events(run):
                    span.add_event(name, data)
            span.set_attributes(describe_result(run, result))
            return result

    @wrap(Step, match=is_recording, priority=inf)
    async def trace_step(self, step: Step, next: Next[Stop | Continue]) -> Stop | Continue:
        with _start_span(step) as span:
            verdict = await next(step)
            span.set_attributes(describe_result(step, verdict))
            return verdict

    @wrap(ModelCall, match=is_recording, priority=inf)
    async def trace_model_call(self, call: ModelCall, next: Next[Message]) -> Message:
        with _start_span(call) as span:
            try:
                reply = await next(call)
            finally:
                span.set_attributes(describe_attempts(call))
            span.set_attributes(describe_result(call, reply))
            _add_hook_events(span, call)
            return reply

    @wrap(ToolUse, match=is_recording, priority=inf)
    async def trace_tool_use(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with _start_span(use) as span:
            result = await next(use)
            attributes = describe_result(use, result)
            span.set_attributes(attributes)
            if "error" in attributes:
                from opentelemetry.trace import Status, StatusCode

                span.set_status(Status(StatusCode.ERROR, attributes["error"]))
            _add_hook_events(span, use)
            return result


def _start_span(op: Operation[Any]) -> AbstractContextManager[Any]:
    from opentelemetry import trace

    name, attributes = describe_start(op)
    return trace.get_tracer("wick").start_as_current_span(name, attributes=attributes)


def _add_hook_events(span: Any, op: Operation[Any]) -> None:
    """Add an event to the span for each hook that decided or changed something."""
    for why in op.why:
        if why.verdict != "pass" or why.changed:
            span.add_event("hook", {key: to_attribute(value) for key, value in why.to_json().items()})
