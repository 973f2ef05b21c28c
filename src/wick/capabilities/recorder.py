"""A recorder that stores the spans and hook decisions of a thread's last runs with the thread."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from time import perf_counter, time
from types import MappingProxyType
from typing import Any, cast

from wick._internal.frozen import canonical_json, digest, freeze, thaw
from wick.capabilities._spans import describe_attempts, describe_result, describe_start, list_record_events
from wick.capability import Capability
from wick.constants import PREVIEW_CHARS, RUNS_RECORDED, SPANS_RECORDED, TRACE_BYTES
from wick.errors import ConfigError, Paused
from wick.hooks import Next, after, before, wrap
from wick.messages import Message
from wick.operations import ModelCall, Operation, Result, Run, ToolUse
from wick.threads import Thread

VALUE = "traces"  # key of `thread.values`: traces by run id
EVENTS = WHYS = 200  # of one span
DEPTH = 40  # of nested spans; deeper JSON is not stored


class Recorder(Capability):
    """Stores the spans of a thread's last `runs` runs, with the hook decisions, in `thread.values["traces"]`.

    There is a span for each operation, as with `Tracing`, but without OpenTelemetry. Child runs are nested below the
    tool that started them. A run stores at most `spans` spans in about `size` bytes of JSON; further spans are
    shortened or left out.
    """

    def __init__(self, runs: int = RUNS_RECORDED, *, spans: int = SPANS_RECORDED, size: int = TRACE_BYTES) -> None:
        for name, value in {"runs": runs, "spans": spans, "size": size}.items():
            if type(value) is not int or value < 1:
                raise ConfigError(f"Recorder({name}={value!r}): give a whole number of at least 1")
        self.runs, self.spans, self.size = runs, spans, size

    @staticmethod
    def traces(thread: Thread) -> list[dict[str, Any]]:
        """Return the traces of a thread as JSON data, the latest run first."""
        is_recorded = thread.values.get(VALUE, {})
        return [thaw(trace) for trace in reversed(is_recorded.values())]

    @staticmethod
    def is_recorded(run: Run) -> bool:
        """Return True if a recorder records the run."""
        return any(isinstance(key, Recorder) for key in run.scratch)

    @staticmethod
    def build_partial_trace(run: Run) -> dict[str, Any] | None:
        """Return the trace of a run in progress, or None if it is not recorded. `ms` of open spans is None."""
        recording = next((found for by, found in run.scratch.items() if isinstance(by, Recorder)), None)
        return None if recording is None else recording.build_trace(run)

    @wrap(Run, priority=inf, on_error="log")
    async def begin(self, run: Run, next: Next[Result]) -> Result:
        """Record this run; also store the trace of a run that pauses or is cancelled."""
        if self._find_recording(run) is not None:
            return await next(run)
        recording = _Recording(self, self.spans, self.size)
        run.scratch[self] = recording
        try:
            return await next(run)
        except (Paused, CancelledError) as error:  # `after` hooks do not run for these
            recording.end_open_spans("paused" if isinstance(error, Paused) else "cancelled")
            self._store_trace(run, recording)
            raise

    @before(Operation, priority=inf, inherit=True, on_error="log")
    def begin_span(self, op: Operation[Any]) -> None:
        recording = self._find_recording(op.run)
        if recording is not None and self._note not in op.notes:  # a child may share this recorder with its parent
            op.notes[self._note] = recording.open_span(op)

    @after(Operation, priority=inf, inherit=True, on_error="log")
    def end_span(self, op: Operation[Any]) -> None:
        recording = self._find_recording(op.run)
        if recording is None:
            return
        # A call that fails before its `before` hooks has no span yet.
        span = op.notes.get(self._note) or recording.open_span(op)
        op.notes[self._note] = span
        recording.close_span(span, op, self.name)
        if isinstance(op, Run) and self in op.scratch:
            self._store_trace(op, recording)

    @property
    def _note(self) -> str:
        return f"{self.name} {id(self)}"

    def _find_recording(self, run: Run) -> _Recording | None:
        """Return the recording of the outermost run that has this recorder, or None."""
        recording: _Recording | None = run.scratch.get(self)
        return recording if recording is not None or run.parent is None else self._find_recording(run.parent)

    def _store_trace(self, run: Run, recording: _Recording) -> None:
        values = run.thread.values
        values.put(VALUE, run.id, recording.build_trace(run))
        for old in [*values[VALUE]][: -self.runs]:
            values.drop(VALUE, old)
        run.thread.changed_values.pop(VALUE, None)  # do not send the trace to clients that follow the run


@dataclass(eq=False, slots=True)
class _Span:
    """The span of one operation: its start, duration and result."""

    name: str
    attributes: dict[str, Any]
    parent: _Span | None
    is_recorded: bool  # False: over the limit
    depth: int
    start: float = field(default_factory=time)
    started: float = field(default_factory=perf_counter)
    ms: float | None = None  # None: still open
    error: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    why: list[dict[str, Any]] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)  # of a model call
    children: list[_Span] = field(default_factory=list)

    def to_row(self) -> dict[str, Any]:
        row = {"name": self.name, "start": self.start, "ms": self.ms, "attributes": self.attributes}
        more = {"error": self.error, "events": self.events, "why": self.why, "request": self.request}
        return row | {key: value for key, value in more.items() if value}

    def to_json(self) -> dict[str, Any]:
        return self.to_row() | {"children": [child.to_json() for child in self.children]}

    def iterate_open(self) -> Iterator[_Span]:
        if self.ms is None:
            yield self
        for child in self.children:
            yield from child.iterate_open()

    def finish(self) -> _Span | None:
        """Set the duration, drop the reference to the parent span, and return the parent."""
        self.ms = round((perf_counter() - self.started) * 1000, 3)
        above, self.parent = self.parent, None
        return above


# The current span of each recorder in this context.
_current_spans: ContextVar[Mapping[Recorder, _Span | None]] = ContextVar("within", default=MappingProxyType({}))


@dataclass(eq=False, slots=True)
class _Recording:
    """The spans of one run and its children."""

    recorder: Recorder
    max_spans: int
    bytes_left: int
    roots: list[_Span] = field(default_factory=list)
    count: int = 0
    left_out: int = 0
    texts: dict[str, str] = field(default_factory=dict)  # system prompts, by their hash: each is stored once

    def build_trace(self, run: Run) -> dict[str, Any]:
        """Return the trace as JSON data, after that of the run before it was resumed."""
        before = run.thread.values.get(VALUE, {}).get(run.id, {}) if run.resumed else {}
        return {
            "run": run.id,
            "agent": run.agent,
            "spans": [*thaw(before.get("spans", [])), *(span.to_json() for span in self.roots)],
            "left_out": self.left_out,
            "texts": thaw(before.get("texts", {})) | self.texts,
        }

    def open_span(self, op: Operation[Any]) -> _Span:
        above = _current_spans.get().get(self.recorder)
        name, attributes = describe_start(op)
        is_recorded = self.count < self.max_spans and (above is None or (above.is_recorded and above.depth < DEPTH))
        span = _Span(name, attributes, above, is_recorded, 1 if above is None else above.depth + 1)
        self.count += is_recorded
        self.left_out += not is_recorded
        if is_recorded:
            (self.roots if above is None else above.children).append(span)
        self._set_current(span)
        return span

    def _set_current(self, span: _Span | None) -> None:
        _current_spans.set({**_current_spans.get(), self.recorder: span})

    def close_span(self, span: _Span, op: Operation[Any], own: str) -> None:
        if span.ms is not None:
            return
        self._set_current(span.finish())
        if not span.is_recorded:
            return
        if op.error is not None:
            span.error = f"{type(op.error).__name__}: {op.error}"[:PREVIEW_CHARS]
        elif isinstance(op, ToolUse) and op.result is not None:
            span.error = op.result.error[:PREVIEW_CHARS]
        short, result = span.attributes, describe_result(op, op.result) if op.result is not None else {}
        span.attributes = short | describe_attempts(op) | result  # a new dict: a trace in progress has the old one
        span.why = [row.to_json() for row in op.why if not row.hook.startswith(f"{own}.")][:WHYS]
        events = [*list_record_events(op)][:EVENTS] if isinstance(op, Run) else []
        span.events = [{"name": name, "attributes": data} for name, data in events]
        if isinstance(op, ModelCall):
            span.request = self._describe_request(op)
        size = len(canonical_json(span.to_row()))
        if size > self.bytes_left:
            span.attributes, span.why, span.events, span.request = short, [], [], {}
            self.left_out += 1
        else:
            self.bytes_left -= size

    def _describe_request(self, op: ModelCall) -> dict[str, Any]:
        """Return the request and the reply of a model call. Messages of the thread's log are entry numbers."""
        system, entries = op.last_sealed("system"), op.run.thread.entries
        name = digest(system.encode("utf-8", "surrogatepass"))[:16] if system else ""
        if name and name not in self.texts and len(system) <= self.bytes_left:
            self.texts[name] = system
            self.bytes_left -= len(system)
        known = {id(entry.data): entry.seq for entry in entries if entry.kind == "message"}
        messages = [known.get(id(message)) or message.to_json() for message in op.last_sealed("messages")]
        request = {"system": name, "messages": messages, "settings": thaw(freeze(op.last_sealed("settings")))}
        request["tools"], reply = [tool.name for tool in op.last_sealed("tools")], cast(Message | None, op.result)
        return request if reply is None else request | {"reply": reply.to_json()}

    def end_open_spans(self, how: str) -> None:
        """Finish all open spans with this error."""
        for span in [span for root in self.roots for span in root.iterate_open()]:
            span.finish()
            span.error = how
        self._set_current(None)
