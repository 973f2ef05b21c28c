"""Spans on the real OpenTelemetry SDK, and nothing at all without one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from kit import echo, echo_agent, hello_agent, tool_call, tool_calls_reply
from wick import (
    Agent,
    Block,
    ModelCall,
    Run,
    Scripted,
    Step,
    Stop,
    ToolCall,
    ToolError,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    tool,
    wrap,
)
from wick.errors import ModelError
from wick.hooks import Next

SOURCE = Path(__file__).parents[3] / "src"


class Spans:
    """All exported spans."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0))

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self if span.name == name]

    def one(self, name: str) -> Any:
        (span,) = self.of(name)
        return span

    def tree(self) -> list[tuple[str, ...]]:
        """Each span as the path from its root."""
        by_id: dict[Any, Any] = {span.context.span_id: span for span in self if span.context}

        def path(span: Any) -> tuple[str, ...]:
            return (*(path(by_id[span.parent.span_id]) if span.parent else ()), span.name)

        return [path(span) for span in self]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the API lets it be set only once
    return Spans(exporter)


def events(span: Any, name: str) -> list[dict[str, Any]]:
    return [dict(event.attributes) for event in span.events if event.name == name]


async def test_the_tree_of_spans(spans: Spans) -> None:
    model = Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")), "done")
    await Agent(model, tools=[echo]).run("go")
    run, step = ("run",), ("run", "step")
    assert spans.tree() == [
        run,
        step,
        (*step, "llm.call"),
        (*step, "tool.call"),
        (*step, "tool.call"),
        step,
        (*step, "llm.call"),
    ]


async def test_the_attributes(spans: Spans) -> None:
    result = await echo_agent(name="parrot").run("go")
    assert result.thread is not None
    run, (first, second) = spans.one("run"), spans.of("llm.call")
    use, steps = spans.one("tool.call"), spans.of("step")
    for span in spans:
        assert span.attributes is not None
        assert span.attributes["gen_ai.conversation.id"] == result.thread.id
        assert str(span.attributes["run_id"]).startswith("run_")
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.agent.name"] == "parrot"
    assert (run.attributes["outcome"], run.attributes["reason"]) == ("completed", "completed")
    assert run.attributes["gen_ai.usage.input_tokens"] == result.usage.input_tokens
    assert run.attributes["gen_ai.usage.output_tokens"] == result.usage.output_tokens
    assert [step.attributes["step"] for step in steps] == [1, 2]  # type: ignore[index]
    assert [step.attributes["verdict"] for step in steps] == ["continue", "stop"]  # type: ignore[index]
    asked = dict(first.attributes or {})
    assert asked["gen_ai.operation.name"] == "chat"
    assert asked["gen_ai.request.model"] == "scripted"
    assert asked["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert (asked["message_count"], asked["content_length"], asked["content_preview"]) == (1, 0, "")
    assert (asked["tool_calls_count"], asked["tool_calls"]) == (1, ("echo",))
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.usage.output_tokens"]) == (0, 3)
    asked = dict(second.attributes or {})
    assert (asked["message_count"], asked["content_length"], asked["content_preview"]) == (3, 4, "done")
    assert asked["tool_calls_count"] == 0
    used = dict(use.attributes)
    assert used["gen_ai.operation.name"] == "execute_tool"
    assert (used["tool_name"], used["tool_call_id"]) == ("echo", "c1")
    assert (used["gen_ai.tool.name"], used["gen_ai.tool.call.id"]) == ("echo", "c1")
    assert used["tool_args"] == '{"text":"hi","times":1}'
    assert (used["output_length"], used["output_preview"]) == (2, "hi")
    assert all(span.status.status_code is StatusCode.UNSET for span in spans)


async def test_previews_have_500_characters(spans: Spans) -> None:
    long = "é" * 2000
    model = Scripted(assistant(long, tool_call(text=long)), "done")
    await Agent(model, tools=[echo]).run("go")
    asked, used = spans.of("llm.call")[0].attributes or {}, spans.one("tool.call").attributes
    assert (asked["content_length"], asked["content_preview"]) == (2000, long[:500])
    assert (used["output_length"], used["output_preview"]) == (2000, long[:500])
    assert len(used["tool_args"]) == 500


async def test_output_removed_by_an_after_is_not_traced(spans: Spans) -> None:
    @after(ToolUse)
    def redact(use: ToolUse) -> None:
        use.result.output = use.result.output.replace("hunter2", "***")

    @after(ModelCall)
    def redact_reply(call: ModelCall) -> None:
        call.result = assistant(call.result.text.replace("hunter2", "***"), *call.result.tool_calls)

    @tool
    def secret() -> str:
        """Tell a secret."""
        return "it is hunter2"

    model = Scripted(tool_calls_reply(ToolCall("c1", "secret")), "the secret is hunter2")
    await Agent(model, tools=[secret], hooks=[redact, redact_reply]).run("go")
    assert spans.one("tool.call").attributes["output_preview"] == "it is ***"
    assert (spans.of("llm.call")[1].attributes or {})["content_preview"] == "the secret is ***"
    assert not any("hunter2" in span.to_json() for span in spans)


async def test_a_change_by_a_before_is_traced(spans: Spans) -> None:
    @before(ToolUse)
    def shout(use: ToolUse) -> None:
        use.args["text"] = "HI"

    await echo_agent(shout).run("go")
    used = spans.one("tool.call")
    assert used.attributes["tool_args"] == '{"text":"HI","times":1}'
    (said,) = events(used, "hook")
    assert (said["hook"], said["position"], said["verdict"]) == ("shout", "before", "pass")
    assert "HI" in said["changed"]


async def test_decisions_are_events_of_the_span(spans: Spans) -> None:
    @guard(ToolUse)
    def never(use: ToolUse) -> Block:
        return Block("not today")

    await echo_agent(never).run("go")
    used = spans.one("tool.call")
    (said,) = events(used, "hook")
    assert (said["hook"], said["verdict"], said["reason"]) == ("never", "block", "not today")
    assert used.status.status_code is StatusCode.ERROR
    assert used.attributes["error"] == "not today"


async def test_a_tool_that_fails_is_an_error_of_its_span_alone(spans: Spans) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ToolError("it is broken " + "x" * 1000)

    await Agent(Scripted(tool_calls_reply(ToolCall("c1", "broken")), "done"), tools=[broken]).run("go")
    used = spans.one("tool.call")
    assert used.status.status_code is StatusCode.ERROR
    assert used.attributes["error"].startswith("it is broken") and len(used.attributes["error"]) == 500
    assert [span.name for span in spans if span.status.status_code is StatusCode.ERROR] == ["tool.call"]


async def test_a_call_that_cannot_be_made_is_no_tool_call(spans: Spans) -> None:
    await Agent(Scripted(tool_calls_reply(tool_call("nothing")), "done"), tools=[echo]).run("go")
    assert not spans.of("tool.call")
    assert (spans.of("llm.call")[0].attributes or {})["tool_calls"] == ("nothing",)


async def test_a_model_that_fails_is_an_error_up_to_the_run(spans: Spans) -> None:
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded"))).run("go")
    assert [span.name for span in spans] == ["run", "step", "llm.call"]
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert "overloaded" in (span.status.description or "")
    asked = spans.one("llm.call").attributes
    assert (asked["gen_ai.request.model"], asked["message_count"]) == ("scripted", 1)


async def test_a_run_that_is_cancelled_ends_its_spans(spans: Spans) -> None:
    @tool
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "awake"

    agent = Agent(Scripted(tool_calls_reply(ToolCall("c1", "sleep"))), tools=[sleep])
    task = asyncio.create_task(agent.run("go"))
    while not spans.of("llm.call"):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [span.name for span in spans] == ["run", "step", "llm.call", "tool.call"]


async def test_a_recorded_value_is_a_span_event(spans: Spans) -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", files=3, names=["a", "b"], name="notes")

    await hello_agent(note).run("go")
    assert events(spans.one("run"), "loaded") == [{"files": 3, "names": "['a', 'b']", "name": "notes"}]


async def test_values_of_a_failed_run_are_traced(spans: Spans) -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", files=3)

    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded")), hooks=[note]).run("go")
    assert events(spans.one("run"), "loaded") == [{"files": 3}]


async def test_a_retry_is_one_span(spans: Spans) -> None:
    @wrap(ModelCall)
    async def again(call: ModelCall, next: Next[Any]) -> Any:
        try:
            return await next(call)
        except ModelError:
            return await next(call)

    await Agent(Scripted(ModelError("overloaded"), "done"), hooks=[again]).run("go")
    assert spans.one("llm.call").status.status_code is StatusCode.UNSET


async def test_child_spans_are_below_their_tool(spans: Spans) -> None:
    child = Agent(Scripted("from below"), name="child")

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        return (await child.run("do it", parent=run)).text

    model = Scripted(tool_calls_reply(ToolCall("c1", "delegate")), "done")
    await Agent(model, tools=[delegate], name="parent").run("go")
    below = ("run", "step", "tool.call", "run")
    deep = [path for path in spans.tree() if path[:4] == below]
    assert deep == [below, (*below, "step"), (*below, "step", "llm.call")]


async def test_a_purpose_is_traced(spans: Spans) -> None:
    @before(Run)
    async def prepare(run: Run) -> None:
        await run.call_model([assistant("hm"), *run.input], purpose="critique")

    await Agent(Scripted("fine", "done"), hooks=[prepare]).run("go")
    assert [(span.attributes or {})["purpose"] for span in spans.of("llm.call")] == ["critique", ""]


async def test_a_run_that_is_stopped_is_not_an_error(spans: Spans) -> None:
    @before(Step)
    def enough(step: Step) -> Stop:
        return Stop("enough")

    await hello_agent(enough).run("go")
    run = spans.one("run")
    assert (run.attributes["outcome"], run.attributes["reason"]) == ("stopped", "stop requested: enough")
    assert run.status.status_code is StatusCode.UNSET


# -- without an SDK ---------------------------------------------------------------------------------------------------


async def test_without_an_sdk_the_hooks_are_disabled() -> None:
    result = await echo_agent().run("go")
    assert result.outcome == "completed"
    assert trace.get_current_span().get_span_context().is_valid is False


def test_without_an_sdk_nothing_is_imported() -> None:
    code = """
import sys
from wick import Agent, Scripted, ToolCall, assistant, tool

@tool
def look() -> str:
    '''Look around.'''
    return "a room"

Agent(Scripted(assistant("", ToolCall("c", "look")), "done"), tools=[look]).run_sync("go")
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_api_without_an_sdk_is_not_recorded_to() -> None:
    code = """
from opentelemetry import trace
from wick import Agent, Scripted
from wick.capabilities.tracing import is_recording
tracers = []
get, trace.get_tracer = trace.get_tracer, lambda *args: tracers.append(args)
Agent(Scripted("done")).run_sync("go")
print(is_recording(None), tracers)
trace.set_tracer_provider(trace.NoOpTracerProvider())
print(is_recording(None))
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False []\nFalse\n", "")
