"""OpenTelemetry spans and metrics for every operation; a no-op without an SDK.

Tracing is the outermost ring: it times all hooks, and sees results only after redactors.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

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
    variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides. Messages of errors and reasons of hooks are
    content, too. `redact` changes each text of the content.
    """

    def __init__(self, *, content: bool | None = None, redact: Callable[[str], str] | None = None) -> None:
        if content is not None and not isinstance(content, bool):
            raise ConfigError(f"Tracing(content={content!r}): give True, False or None")
        if redact is not None and not callable(redact):
            raise ConfigError(f"Tracing(redact={redact!r}): give a function that takes a text and returns it redacted")
        self.content, self.redact = content, redact

    @wrap(Run, match=is_recording, priority=inf)
    async def trace_run(self, run: Run, next: Next[Result]) -> Result:
        with self._start_span(run) as span:
            try:
                result = await next(run)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            finally:
                for name, data in list_record_events(run):
                    span.add_event(name, data)
            # The part after a colon is the text of a hook or of an error.
            reason = self._redact_text(span, result.reason) or result.reason.partition(":")[0]
            span.set_attributes(describe_result(result) | {"wick.reason": reason})
            return result

    @wrap(Step, match=is_recording, priority=inf)
    async def trace_step(self, step: Step, next: Next[Stop | Continue]) -> Stop | Continue:
        with self._start_span(step) as span:
            try:
                verdict = await next(step)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            span.set_attribute("wick.verdict", type(verdict).__name__.lower())
            return verdict

    @wrap(ModelCall, match=is_observed, priority=inf)
    async def trace_model_call(self, call: ModelCall, next: Next[Message]) -> Message:
        """Describe a model call on the span of its request, after the last hook, and end the span."""
        from opentelemetry.trace import get_current_span

        try:
            reply = await next(call)
        except BaseException as error:
            if (request := call.notes.get(self._note)) is not None:
                self._end_failed_request(request, call, error)
            raise
        request = call.notes.get(self._note)
        if request is None:  # a hook replied or decided, so that there is no request and no span
            self._add_hook_events(get_current_span(), call)
            return reply
        _describe_call(request, call)
        request.span.set_attributes(describe_reply(call, reply))
        self._add_content(request.span, lambda redact: encode_request(call, reply, redact))
        self._add_hook_events(request.span, call)
        request.span.end()
        return reply

    @wrap(ModelCall, match=is_observed, priority=-inf)
    async def trace_request(self, call: ModelCall, next: Next[Message]) -> Message:
        """Start the span of a model call at its first attempt; further attempts are in the same span."""
        from opentelemetry.trace import SpanKind, get_tracer, use_span

        request = call.notes.get(self._note)
        if request is None:
            span = get_tracer("wick").start_span(
                name_span(call), kind=SpanKind.CLIENT, attributes=describe_operation(call)
            )
            request = call.notes[self._note] = _RequestSpan(span, perf_counter())
        with use_span(request.span, record_exception=False, set_status_on_exception=False):
            return await next(call)

    @property
    def _note(self) -> str:
        return f"{self.name} {id(self)}"

    def _end_failed_request(self, request: _RequestSpan, call: ModelCall, error: BaseException) -> None:
        if isinstance(error, Exception):
            _describe_call(request, call, name_error(error))
            self._report_error(request.span, error)
        else:  # cancelled or paused: the duration means nothing
            request.span.set_attributes(describe_request(call))
        request.span.end()

    @wrap(ToolUse, match=is_recording, priority=inf)
    async def trace_tool_use(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        with self._start_span(use) as span:
            try:
                result = await next(use)
            except Exception as error:
                span.set_attribute("error.type", name_error(error))
                raise
            span.set_attributes(describe_tool_result(use, result))
            if result.error:
                self._set_failed(span, str(result.error))
            self._add_content(span, lambda redact: encode_tool_use(use, result, redact))
            self._add_hook_events(span, use)
            return result

    @contextmanager
    def _start_span(self, op: Operation[Any]) -> Iterator[Any]:
        """Open a span. An exception makes its status an error; the SDK would add its message and its stack trace."""
        from opentelemetry.trace import get_tracer

        with get_tracer("wick").start_as_current_span(
            name_span(op),
            attributes=describe_operation(op),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                self._report_error(span, error)
                raise

    def _report_error(self, span: Any, error: Exception) -> None:
        self._set_failed(span, str(error))
        if text := self._redact_text(span, str(error)):
            span.add_event("exception", {"exception.type": name_error(error), "exception.message": text})

    def _set_failed(self, span: Any, message: str) -> None:
        """Set the status to an error. The message of the error is content."""
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, self._redact_text(span, message) or None))

    def _redact_text(self, span: Any, text: str) -> str:
        """Return the beginning of a text as content of a span, or an empty string if it has none."""
        if not self._has_content(span):
            return ""
        try:
            return (self.redact or str)(text)[:PREVIEW_CHARS]
        except Exception:
            logger.warning("a span has no text of an error or a hook, because it could not be redacted", exc_info=True)
            return ""

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
        """Add an event to the span for each hook that decided or changed something. Reasons and values are content."""
        for why in op.why:
            if why.verdict == "pass" and not why.changed:
                continue
            row = {key: to_attribute(value) for key, value in why.to_json().items()}
            if why.reason and not (reason := self._redact_text(span, why.reason)):
                del row["reason"]
            elif why.reason:
                row["reason"] = reason
            if why.changed and (self.redact is not None or not self._has_content(span)):
                row["changed"] = ", ".join(map(str, why.changed))
            span.add_event("hook", row)


class _RequestSpan(NamedTuple):
    """The span of a model call, and when it was started."""

    span: Any
    started: float


def _describe_call(request: _RequestSpan, call: ModelCall, error: str = "") -> None:
    """Describe the request as it was sent, and record its metrics. A hook may have chosen another model."""
    failed: Attributes = {"error.type": error} if error else {}
    request.span.update_name(name_span(call))
    request.span.set_attributes(describe_request(call) | failed)
    if is_measuring(call):
        record_model_call(call, perf_counter() - request.started, failed)
