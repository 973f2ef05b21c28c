"""OpenTelemetry spans and metrics for every operation; a no-op without an SDK.

Tracing is the outermost ring: it times all hooks, and sees results only after redactors.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from time import perf_counter
from typing import Any

from wick.capabilities._spans import list_record_events, to_attribute
from wick.capabilities.tracing.content import TextRedactor, encode_request, encode_tool_use
from wick.capabilities.tracing.conventions import (
    Attributes,
    describe_operation,
    describe_reply,
    describe_request,
    describe_result,
    describe_tool_result,
    name_error,
    name_span,
)
from wick.capabilities.tracing.metrics import record_model_call
from wick.capability import Capability
from wick.constants import PREVIEW_CHARS
from wick.decisions import Continue, Stop
from wick.errors import ConfigError
from wick.hooks import Next, wrap
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse

logger = logging.getLogger(__name__)

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURE_VALUES = ("true", "span_only", "span_and_event")
_NO_SDK = ("ProxyTracerProvider", "NoOpTracerProvider", "_ProxyMeterProvider", "NoOpMeterProvider")


def is_recording(op: Operation[Any]) -> bool:
    """Return True if an SDK records spans. Only `sys.modules` is checked: a configured SDK is already imported."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and type(trace.get_tracer_provider()).__name__ not in _NO_SDK


def is_measuring(op: Operation[Any]) -> bool:
    """Return True if an SDK records metrics."""
    metrics = sys.modules.get("opentelemetry.metrics")
    return metrics is not None and type(metrics.get_meter_provider()).__name__ not in _NO_SDK


def is_observed(op: Operation[Any]) -> bool:
    """Return True if an SDK records spans or metrics."""
    return is_recording(op) or is_measuring(op)


class Tracing(Capability):
    """Creates spans and metrics for runs, model calls and tool uses, with OpenTelemetry's GenAI conventions.

    `content=True` adds messages, tool arguments and tool results to the spans. Without a value, the environment
    variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides. `redact` changes each text of the content.
    """

    def __init__(self, *, content: bool | None = None, redact: Callable[[str], str] | None = None) -> None:
        if content is not None and not isinstance(content, bool):
            raise ConfigError(f"Tracing(content={content!r}): give True, False or None")
        if redact is not None and not callable(redact):
            raise ConfigError(f"Tracing(redact={redact!r}): give a function that takes a text and returns it redacted")
        self.content, self.redact = content, redact

    @wrap(Run, match=is_recording, priority=inf)
    async def trace_run(self, run: Run, next: Next[Result]) -> Result:
        with _start_span(run) as span:
            try:
                result = await next(run)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            finally:
                for name, data in list_record_events(run):
                    span.add_event(name, data)
            span.set_attributes(describe_result(result))
            return result

    @wrap(Step, match=is_recording, priority=inf)
    async def trace_step(self, step: Step, next: Next[Stop | Continue]) -> Stop | Continue:
        with _start_span(step) as span:
            try:
                verdict = await next(step)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            span.set_attribute("wick.verdict", type(verdict).__name__.lower())
            return verdict

    @wrap(ModelCall, match=is_observed, priority=inf)
    async def trace_model_call(self, call: ModelCall, next: Next[Message]) -> Message:
        started = perf_counter()
        with _start_span(call) as span:
            try:
                reply = await next(call)
            except Exception as error:
                _end_model_call(span, call, started, name_error(error))
                raise
            except BaseException:  # cancelled or paused: the duration means nothing
                span.set_attributes(describe_request(call))
                raise
            _end_model_call(span, call, started)
            span.set_attributes(describe_reply(call, reply))
            self._add_content(span, lambda redact: encode_request(call, reply, redact))
            self._add_hook_events(span, call)
            return reply

    @wrap(ToolUse, match=is_recording, priority=inf)
    async def trace_tool_use(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with _start_span(use) as span:
            try:
                result = await next(use)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            span.set_attributes(describe_tool_result(use, result))
            if result.error:
                _set_failed(span, result.error)
            self._add_content(span, lambda redact: encode_tool_use(use, result, redact))
            self._add_hook_events(span, use)
            return result

    def _has_content(self, span: Any) -> bool:
        if self.content is None:
            return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES and bool(span.is_recording())
        return self.content and bool(span.is_recording())

    def _add_content(self, span: Any, encode: Callable[[TextRedactor], Attributes]) -> None:
        """Add content to the span if it is wanted. If `redact` fails, the span has none."""
        if not self._has_content(span):
            return
        try:
            span.set_attributes(encode(self.redact or str))
        except Exception:
            logger.warning("a span has no content, because it could not be redacted", exc_info=True)

    def _add_hook_events(self, span: Any, op: Operation[Any]) -> None:
        """Add an event to the span for each hook that decided or changed something. Changed values are content."""
        for why in op.why:
            if why.verdict == "pass" and not why.changed:
                continue
            row = {key: to_attribute(value) for key, value in why.to_json().items()}
            if why.changed and (self.redact is not None or not self._has_content(span)):
                row["changed"] = ", ".join(map(str, why.changed))
            span.add_event("hook", row)


def _start_span(op: Operation[Any]) -> AbstractContextManager[Any]:
    from opentelemetry.trace import SpanKind, get_tracer

    kind = SpanKind.CLIENT if isinstance(op, ModelCall) else SpanKind.INTERNAL
    return get_tracer("wick").start_as_current_span(name_span(op), kind=kind, attributes=describe_operation(op))


def _end_model_call(span: Any, call: ModelCall, started: float, error: str = "") -> None:
    """Describe the request as it was sent, and record its metrics. A hook may have chosen another model."""
    failed: Attributes = {"error.type": error} if error else {}
    span.update_name(name_span(call))
    span.set_attributes(describe_request(call) | failed)
    if is_measuring(call):
        record_model_call(call, perf_counter() - started, failed)


def _set_failed(span: Any, error: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, error[:PREVIEW_CHARS]))
