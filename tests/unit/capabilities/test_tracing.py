"""Spans on the real OpenTelemetry SDK, and nothing at all without one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
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
from wick.capabilities.structured_output import StructuredOutput
from wick.capabilities.tracing import Tracing
from wick.capabilities.tracing.conventions import describe_model
from wick.config import load
from wick.errors import ConfigError, ModelError
from wick.hooks import Next
from wick.messages import ImagePart, Part, TextPart, user
from wick.models.openai import OpenAI

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
    run, step = ("invoke_agent agent",), ("invoke_agent agent", "step")
    assert spans.tree() == [
        run,
        step,
        (*step, "chat scripted"),
        (*step, "execute_tool echo"),
        (*step, "execute_tool echo"),
        step,
        (*step, "chat scripted"),
    ]
    assert {span.name: span.kind.name for span in spans} == {
        "invoke_agent agent": "INTERNAL",
        "step": "INTERNAL",
        "chat scripted": "CLIENT",
        "execute_tool echo": "INTERNAL",
    }


async def test_the_attributes(spans: Spans) -> None:
    result = await echo_agent(name="parrot").run("go")
    run, (first, second) = spans.one("invoke_agent parrot"), spans.of("chat scripted")
    use, steps = spans.one("execute_tool echo"), spans.of("step")
    for span in spans:
        assert span.attributes is not None
        assert span.attributes["gen_ai.conversation.id"] == result.thread.id
        assert span.attributes["gen_ai.agent.name"] == "parrot"
        assert str(span.attributes["wick.run.id"]).startswith("run_")
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert (run.attributes["wick.outcome"], run.attributes["wick.reason"]) == ("completed", "completed")
    assert run.attributes["gen_ai.usage.input_tokens"] == result.usage.input_tokens
    assert run.attributes["gen_ai.usage.output_tokens"] == result.usage.output_tokens
    assert [step.attributes["wick.step"] for step in steps] == [1, 2]  # type: ignore[index]
    assert [step.attributes["wick.verdict"] for step in steps] == ["continue", "stop"]  # type: ignore[index]
    asked = dict(first.attributes or {})
    assert asked["gen_ai.operation.name"] == "chat"
    assert (asked["gen_ai.provider.name"], asked["gen_ai.request.model"]) == ("scripted", "scripted")
    assert asked["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert (asked["wick.message_count"], asked["wick.content_length"]) == (1, 0)
    assert asked["wick.tool_calls"] == ("echo",)
    assert (asked["gen_ai.usage.input_tokens"], asked["gen_ai.usage.output_tokens"]) == (0, 3)
    asked = dict(second.attributes or {})
    assert (asked["wick.message_count"], asked["wick.content_length"]) == (3, 4)
    assert "wick.tool_calls" not in asked
    used = dict(use.attributes)
    assert used["gen_ai.operation.name"] == "execute_tool"
    assert (used["gen_ai.tool.name"], used["gen_ai.tool.call.id"]) == ("echo", "c1")
    assert (used["gen_ai.tool.type"], used["gen_ai.tool.description"]) == ("function", "Say it again.")
    assert used["wick.output_length"] == 2
    assert all(span.status.status_code is StatusCode.UNSET for span in spans)


async def test_the_settings_of_a_request_are_attributes(spans: Spans) -> None:
    settings = {"temperature": 0.5, "top_p": 1, "max_tokens": 100, "stop": "END", "response_format": {"type": "object"}}
    await Agent(Scripted("done"), settings=settings).run("go")
    asked = dict(spans.one("chat scripted").attributes)
    assert (asked["gen_ai.request.temperature"], asked["gen_ai.request.top_p"]) == (0.5, 1)
    assert (asked["gen_ai.request.max_tokens"], asked["gen_ai.request.stop_sequences"]) == (100, ("END",))
    assert asked["gen_ai.output.type"] == "json"


async def test_another_model_chosen_by_a_hook_is_the_one_in_the_span(spans: Spans) -> None:
    @before(ModelCall)
    def choose(call: ModelCall) -> None:
        call.model = Scripted("from the other", name="other:large")

    await Agent(Scripted(), hooks=[choose]).run("go")
    asked = spans.one("chat large").attributes
    assert (asked["gen_ai.provider.name"], asked["gen_ai.request.model"]) == ("other", "large")


def test_a_server_is_an_address_and_a_port() -> None:
    known = describe_model(OpenAI("gpt-5", api_key="k"))
    assert known == {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "server.address": "api.openai.com",
        "server.port": 443,
    }
    local = describe_model(OpenAI("qwen3:4b", base_url="http://127.0.0.1:11434/v1", name="ollama"))
    assert (local["gen_ai.provider.name"], local["gen_ai.request.model"]) == ("ollama", "qwen3:4b")
    assert (local["server.address"], local["server.port"]) == ("127.0.0.1", 11434)
    assert "server.address" not in describe_model(Scripted())


# -- content --------------------------------------------------------------------------------------------------------


def secret_agent(*hooks: Any) -> Agent:
    @tool
    def secret(word: str) -> str:
        """Tell a secret."""
        return "the output is hunter2"

    model = Scripted(assistant("", ToolCall("c1", "secret", {"word": "hunter2"})), "the reply is hunter2")
    return Agent(model, tools=[secret], system="The system is hunter2.", hooks=hooks)


async def test_content_is_not_in_spans(spans: Spans) -> None:
    @before(ToolUse)
    def edit(use: ToolUse) -> None:
        use.args["word"] = "hunter2 again"

    await secret_agent(edit).run("the question is hunter2")
    assert not any("hunter2" in span.to_json() for span in spans)
    (event,) = events(spans.one("execute_tool secret"), "hook")
    assert (event["hook"], event["changed"]) == ("edit", "word")


@pytest.mark.parametrize("by", ["option", "environment"])
async def test_content_is_in_spans_if_wanted(spans: Spans, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    await secret_agent(Tracing(content=True) if by == "option" else Tracing()).run("the question is hunter2")
    asked = spans.of("chat scripted")[1].attributes or {}
    assert json.loads(str(asked["gen_ai.system_instructions"])) == [
        {"type": "text", "content": "The system is hunter2."}
    ]
    call = {"type": "tool_call", "id": "c1", "name": "secret", "arguments": {"word": "hunter2"}}
    answer = {"type": "tool_call_response", "id": "c1", "response": "the output is hunter2"}
    assert json.loads(str(asked["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "the question is hunter2"}]},
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [answer]},
    ]
    assert json.loads(str(asked["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "the reply is hunter2"}],
            "finish_reason": "stop",
        }
    ]
    used = spans.one("execute_tool secret").attributes
    assert json.loads(used["gen_ai.tool.call.arguments"]) == {"word": "hunter2"}
    assert used["gen_ai.tool.call.result"] == "the output is hunter2"


async def test_content_is_redacted(spans: Spans) -> None:
    @before(ToolUse)
    def edit(use: ToolUse) -> None:
        use.args["word"] = "hunter2 again"

    tracing = Tracing(content=True, redact=lambda text: text.replace("hunter2", "***"))
    await secret_agent(tracing, edit).run("the question is hunter2")
    assert not any("hunter2" in span.to_json() for span in spans)
    asked = spans.of("chat scripted")[1].attributes or {}
    assert "the question is ***" in str(asked["gen_ai.input.messages"])
    assert spans.one("execute_tool secret").attributes["gen_ai.tool.call.arguments"] == '{"word":"*** again"}'


@pytest.mark.parametrize("options", [{}, {"content": True, "redact": lambda text: text.replace("hunter2", "***")}])
async def test_errors_and_reasons_are_content(spans: Spans, options: dict[str, Any]) -> None:
    @tool
    def broken(word: str) -> str:
        """Fail."""
        raise ToolError(f"{word} is wrong") if word == "hunter2" else ValueError(word)

    @guard(ToolUse)
    def never(use: ToolUse) -> Block | None:
        return Block("not with hunter2") if use.args["word"] == "blocked" else None

    @before(Step)
    def enough(step: Step) -> Stop | None:
        return Stop("enough of hunter2") if step.number == 2 else None

    words = ("hunter2", "crash hunter2", "blocked")
    calls = tool_calls_reply(*(ToolCall(f"c{number}", "broken", {"word": word}) for number, word in enumerate(words)))
    hooks = [Tracing(**options), never, enough]
    await Agent(Scripted(calls), tools=[broken], hooks=hooks).run("go")
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("no hunter2")), hooks=[Tracing(**options)]).run("go")
    assert not any("hunter2" in span.to_json() for span in spans)
    failed = [span for span in spans if span.status.status_code is StatusCode.ERROR]
    assert [span.name for span in failed] == ["execute_tool broken"] * 3 + [
        "invoke_agent agent",
        "step",
        "chat scripted",
    ]
    assert all((span.attributes or {})["error.type"] for span in failed)
    shown = {span.status.description for span in failed}
    assert ("*** is wrong" in shown) if options else shown == {None}


async def test_a_redactor_that_fails_leaves_no_content(spans: Spans, caplog: pytest.LogCaptureFixture) -> None:
    def fail(text: str) -> str:
        raise ValueError("no")

    result = await secret_agent(Tracing(content=True, redact=fail)).run("the question is hunter2")
    assert result.outcome == "completed"
    assert not any("hunter2" in span.to_json() for span in spans)
    assert "could not be redacted" in caplog.text


async def test_bytes_of_pictures_are_not_in_spans(spans: Spans) -> None:
    parts: list[Part] = [
        TextPart("see"),
        ImagePart(data="aGk=", media_type="image/png"),
        ImagePart(url="https://a.example/b.png"),
    ]
    await Agent(Scripted("done"), hooks=[Tracing(content=True)]).run(user(parts))
    (message,) = json.loads(str(spans.one("chat scripted").attributes["gen_ai.input.messages"]))
    assert message["parts"] == [
        {"type": "text", "content": "see"},
        {"type": "media", "modality": "image", "mime_type": "image/png", "base64_length": 4},
        {"type": "uri", "modality": "image", "mime_type": "", "uri": "https://a.example/b.png"},
    ]


def test_a_configuration_file_turns_content_on(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text('model: demo\ntracing: {content: true, redact: "textwrap:dedent"}\n')
    (part,) = load(path).agents.values()
    (tracing,) = (part for part in part.agent().capabilities if isinstance(part, Tracing))
    assert (tracing.content, tracing.redact) == (True, textwrap.dedent)


@pytest.mark.parametrize("options", [{"content": "yes"}, {"redact": "x"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give "):
        Tracing(**options)


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
    await Agent(model, tools=[secret], hooks=[Tracing(content=True), redact, redact_reply]).run("go")
    assert spans.one("execute_tool secret").attributes["gen_ai.tool.call.result"] == "it is ***"
    assert "the secret is ***" in str((spans.of("chat scripted")[1].attributes or {})["gen_ai.output.messages"])
    assert not any("hunter2" in span.to_json() for span in spans)


# -- hooks, errors and records --------------------------------------------------------------------------------------


async def test_a_change_by_a_before_is_traced(spans: Spans) -> None:
    @before(ToolUse)
    def shout(use: ToolUse) -> None:
        use.args["text"] = "HI"

    await echo_agent(Tracing(content=True), shout).run("go")
    used = spans.one("execute_tool echo")
    assert used.attributes["gen_ai.tool.call.arguments"] == '{"text":"HI","times":1}'
    (said,) = events(used, "hook")
    assert (said["hook"], said["position"], said["verdict"]) == ("shout", "before", "pass")
    assert "HI" in said["changed"]


async def test_decisions_are_events_of_the_span(spans: Spans) -> None:
    @guard(ToolUse)
    def never(use: ToolUse) -> Block:
        return Block("not today")

    await echo_agent(Tracing(content=True), never).run("go")
    used = spans.one("execute_tool echo")
    (said,) = events(used, "hook")
    assert (said["hook"], said["verdict"], said["reason"]) == ("never", "block", "not today")
    assert (used.status.status_code, used.status.description) == (StatusCode.ERROR, "not today")
    assert used.attributes["error.type"] == "blocked"


async def test_a_tool_that_fails_is_an_error_of_its_span_alone(spans: Spans) -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ToolError("it is broken " + "x" * 1000)

    model = Scripted(tool_calls_reply(ToolCall("c1", "broken")), "done")
    await Agent(model, tools=[broken], hooks=[Tracing(content=True)]).run("go")
    used = spans.one("execute_tool broken")
    assert used.status.status_code is StatusCode.ERROR
    assert used.status.description.startswith("it is broken") and len(used.status.description) == 500
    assert used.attributes["error.type"] == "tool_error"
    assert [span.name for span in spans if span.status.status_code is StatusCode.ERROR] == ["execute_tool broken"]


async def test_the_type_of_a_crash_is_its_exception(spans: Spans) -> None:
    @tool
    def crash() -> str:
        """Crash."""
        raise KeyError("x")

    await Agent(Scripted(tool_calls_reply(ToolCall("c1", "crash")), "done"), tools=[crash]).run("go")
    assert spans.one("execute_tool crash").attributes["error.type"] == "KeyError"


async def test_the_type_of_a_server_error_is_its_status(spans: Spans) -> None:
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("busy", status=400))).run("go")
    assert {dict(span.attributes or {})["error.type"] for span in spans} == {"400"}


async def test_a_call_that_cannot_be_made_is_no_tool_call(spans: Spans) -> None:
    await Agent(Scripted(tool_calls_reply(tool_call("nothing")), "done"), tools=[echo]).run("go")
    assert not spans.of("execute_tool nothing")
    assert (spans.of("chat scripted")[0].attributes or {})["wick.tool_calls"] == ("nothing",)


async def test_a_model_that_fails_is_an_error_up_to_the_run(spans: Spans) -> None:
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded")), hooks=[Tracing(content=True)]).run("go")
    assert [span.name for span in spans] == ["invoke_agent agent", "step", "chat scripted"]
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert "overloaded" in (span.status.description or "")
        assert dict(span.attributes or {})["error.type"] == "wick.errors.ModelError"
    asked = spans.one("chat scripted").attributes
    assert (asked["gen_ai.request.model"], asked["wick.message_count"]) == ("scripted", 1)


async def test_a_run_that_is_cancelled_ends_its_spans(spans: Spans) -> None:
    @tool
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "awake"

    agent = Agent(Scripted(tool_calls_reply(ToolCall("c1", "sleep"))), tools=[sleep])
    task = asyncio.create_task(agent.run("go"))
    while not spans.of("chat scripted"):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [span.name for span in spans] == ["invoke_agent agent", "step", "chat scripted", "execute_tool sleep"]


async def test_a_recorded_value_is_a_span_event(spans: Spans) -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", files=3, names=["a", "b"], name="notes")

    await hello_agent(note).run("go")
    assert events(spans.one("invoke_agent agent"), "loaded") == [{"files": 3, "names": "['a', 'b']", "name": "notes"}]


async def test_values_of_a_failed_run_are_traced(spans: Spans) -> None:
    @before(Run)
    def note(run: Run) -> None:
        run.record("loaded", files=3)

    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("overloaded")), hooks=[note]).run("go")
    assert events(spans.one("invoke_agent agent"), "loaded") == [{"files": 3}]


async def test_a_retry_is_one_span(spans: Spans) -> None:
    @wrap(ModelCall)
    async def again(call: ModelCall, next: Next[Any]) -> Any:
        try:
            return await next(call)
        except ModelError:
            return await next(call)

    await Agent(Scripted(ModelError("overloaded"), "done"), hooks=[again]).run("go")
    assert spans.one("chat scripted").status.status_code is StatusCode.UNSET


async def test_an_answer_that_needs_no_model_call_has_no_chat_span(spans: Spans) -> None:
    call = ToolCall("1", "final_answer", {"city": "Bern"})
    agent = Agent(
        Scripted(call), output_type=StructuredOutput({"type": "object", "properties": {"city": {"type": "string"}}})
    )
    result = await agent.run("Where?")
    assert result.output == {"city": "Bern"}
    assert spans.tree() == [
        ("invoke_agent agent",),
        ("invoke_agent agent", "step"),
        ("invoke_agent agent", "step", "chat scripted"),
        ("invoke_agent agent", "step", "execute_tool final_answer"),
        ("invoke_agent agent", "step"),
    ]


async def test_a_model_call_that_a_hook_blocks_is_an_event_of_the_step(spans: Spans) -> None:
    @before(ModelCall)
    def refuse(call: ModelCall) -> Block:
        return Block("not now")

    await hello_agent(refuse).run("go")
    assert [span.name for span in spans] == ["invoke_agent agent", "step"]
    (event,) = spans.one("step").events
    assert (event.name, event.attributes["hook"], event.attributes["verdict"]) == ("hook", "refuse", "block")


async def test_child_spans_are_below_their_tool(spans: Spans) -> None:
    child = Agent(Scripted("from below"), name="child")

    @tool
    async def delegate(run: Run) -> str:
        """Let another do it."""
        return (await child.run("do it", parent=run)).text

    model = Scripted(tool_calls_reply(ToolCall("c1", "delegate")), "done")
    await Agent(model, tools=[delegate], name="parent").run("go")
    below = ("invoke_agent parent", "step", "execute_tool delegate", "invoke_agent child")
    deep = [path for path in spans.tree() if path[:4] == below]
    assert deep == [below, (*below, "step"), (*below, "step", "chat scripted")]


async def test_a_purpose_is_traced(spans: Spans) -> None:
    @before(Run)
    async def prepare(run: Run) -> None:
        await run.call_model([assistant("hm"), *run.input], purpose="critique")

    await Agent(Scripted("fine", "done"), hooks=[prepare]).run("go")
    assert [(span.attributes or {})["wick.purpose"] for span in spans.of("chat scripted")] == ["critique", ""]


async def test_a_run_that_is_stopped_is_not_an_error(spans: Spans) -> None:
    @before(Step)
    def enough(step: Step) -> Stop:
        return Stop("enough")

    await hello_agent(Tracing(content=True), enough).run("go")
    run = spans.one("invoke_agent agent")
    assert (run.attributes["wick.outcome"], run.attributes["wick.reason"]) == ("stopped", "stop requested: enough")
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
