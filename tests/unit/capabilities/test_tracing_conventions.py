"""Spans and metrics of a real request, checked against the registry of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from fake_http_server import FakeServer, run_fake_server, sse_body
from kit import echo
from wick import Agent, Block, ModelCall, Scripted, guard
from wick.capabilities.fallback import Fallback
from wick.capabilities.tracing import Tracing
from wick.capabilities.tracing.conventions import PROVIDER_NAMES, describe_model_name
from wick.capabilities.tracing.metrics import SECONDS_BUCKETS, TOKEN_BUCKETS
from wick.errors import ModelError
from wick.models.openai import OpenAI
from wick.models.registry import PROVIDERS
from wick.protocols import Finish, Request, TextDelta, Usage


@dataclass
class Telemetry:
    """All exported spans and metrics."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(self.exporter.get_finished_spans())

    def one(self, name: str) -> dict[str, Any]:
        (span,) = (span for span in self.spans() if span.name == name)
        return dict(span.attributes or {})

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        resources = data.resource_metrics if data is not None else ()
        scopes = [scope for resource in resources for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self, name: str) -> list[Any]:
        return list(self.metrics()[name].data.data_points)


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the API lets it be set only once
    monkeypatch.setattr(metrics, "_METER_PROVIDER", meters)
    return Telemetry(exporter, reader)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with run_fake_server() as server:
        yield server


def say_reply(server: FakeServer, finish: str = "stop", **delta: Any) -> None:
    """Let the server stream one reply of 20 and 5 tokens."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-4o-2024-08-06"}
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    first = head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = head | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    server.say(sse_body(first, last, head | {"choices": [], "usage": usage}))


async def run_agent(server: FakeServer) -> None:
    """Run an agent that uses a tool, with every attribute that Tracing knows."""
    function = {"name": "echo", "arguments": '{"text": "hi"}'}
    say_reply(server, "tool_calls", tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}])
    say_reply(server, content="done")
    model = OpenAI("gpt-4o", base_url=server.url, name="openai")
    settings = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 100, "stop": ["END"]}
    settings |= {"response_format": {"type": "json_object"}}
    agent = Agent(model, tools=[echo], system="Be kind.", settings=settings, hooks=[Tracing(content=True)])
    assert (await agent.run("go")).text == "done"


async def test_a_request_has_the_address_and_the_reply_its_id(server: FakeServer, telemetry: Telemetry) -> None:
    await run_agent(server)
    asked = [dict(span.attributes or {}) for span in telemetry.spans() if span.name == "chat gpt-4o"]
    assert len(asked) == 2
    for attributes in asked:
        assert attributes["gen_ai.provider.name"] == "openai"
        assert (attributes["gen_ai.request.model"], attributes["gen_ai.response.model"]) == (
            "gpt-4o",
            "gpt-4o-2024-08-06",
        )
        assert attributes["gen_ai.response.id"] == "chatcmpl-1"
        assert attributes["server.address"] == "127.0.0.1"
        assert f":{attributes['server.port']}/" in server.url
        assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (20, 5)
        assert attributes["gen_ai.usage.cache_read.input_tokens"] == 10
        assert attributes["gen_ai.usage.reasoning.output_tokens"] == 2
    assert telemetry.one("invoke_agent agent")["gen_ai.usage.input_tokens"] == 40


# -- metrics --------------------------------------------------------------------------------------------------------


async def test_tokens_and_durations_are_measured(server: FakeServer, telemetry: Telemetry) -> None:
    await run_agent(server)
    found = telemetry.metrics()
    assert {name: metric.unit for name, metric in found.items()} == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
    }
    tokens = {point.attributes["gen_ai.token.type"]: point for point in telemetry.points("gen_ai.client.token.usage")}
    assert {kind: (point.count, point.sum) for kind, point in tokens.items()} == {"input": (2, 40), "output": (2, 10)}
    assert tokens["input"].explicit_bounds == TOKEN_BUCKETS
    (duration,) = telemetry.points("gen_ai.client.operation.duration")
    assert (duration.count, duration.explicit_bounds) == (2, SECONDS_BUCKETS)
    for point in (*tokens.values(), duration):
        known = dict(point.attributes)
        assert (known["gen_ai.operation.name"], known["gen_ai.provider.name"]) == ("chat", "openai")
        assert (known["gen_ai.request.model"], known["gen_ai.response.model"]) == ("gpt-4o", "gpt-4o-2024-08-06")
        assert (known["server.address"], "error.type" in known) == ("127.0.0.1", False)


def test_the_buckets_are_those_of_the_conventions() -> None:
    assert (TOKEN_BUCKETS[:4], TOKEN_BUCKETS[-1]) == ((1, 4, 16, 64), 67_108_864)
    assert (SECONDS_BUCKETS[:4], SECONDS_BUCKETS[-1]) == ((0.01, 0.02, 0.04, 0.08), 81.92)


async def test_an_error_is_measured_with_its_type(telemetry: Telemetry) -> None:
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("no", status=403))).run("go")
    (duration,) = telemetry.points("gen_ai.client.operation.duration")
    assert (duration.count, duration.attributes["error.type"]) == (1, "403")


async def test_a_prevented_call_is_not_measured(telemetry: Telemetry) -> None:
    @guard(ModelCall)
    def refuse(call: ModelCall) -> Block:
        return Block("not today")

    await Agent(Scripted(), hooks=[refuse]).run("go")
    assert telemetry.metrics() == {}


class Broken:
    """A model that uses tokens and fails."""

    name = "first:small"

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        yield TextDelta("hm")
        yield Usage(7, 1)
        raise ModelError("down", status=503)


class Working:
    """A model that uses tokens and answers."""

    name = "second:large"

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        yield TextDelta("done")
        yield Usage(9, 2)
        yield Finish()


async def test_tokens_of_a_fallback_count_for_their_own_model(telemetry: Telemetry) -> None:
    await Agent(Broken(), hooks=[Fallback(Working())]).run("go")
    points = [dict(point.attributes) | {"sum": point.sum} for point in telemetry.points("gen_ai.client.token.usage")]
    counted = {(point["gen_ai.provider.name"], point["gen_ai.token.type"]): point["sum"] for point in points}
    assert counted == {
        ("first", "input"): 7,
        ("first", "output"): 1,
        ("second", "input"): 9,
        ("second", "output"): 2,
    }


async def test_metrics_need_no_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "_METER_PROVIDER", MeterProvider([reader], shutdown_on_exit=False))
    await Agent(Scripted("done")).run("go")
    assert "gen_ai.client.operation.duration" in Telemetry(InMemorySpanExporter(), reader).metrics()


# -- the registry ---------------------------------------------------------------------------------------------------

OWN = "wick."


def registered_names(*modules: Any) -> set[str]:
    """The attributes or metrics of a registry, without those that have a replacement."""
    outdated = {"gen_ai.system", "gen_ai.prompt", "gen_ai.completion"} | {
        name for name in vars(gen_ai_attributes).values() if isinstance(name, str) and name.startswith("gen_ai.openai.")
    }
    values = {value for module in modules for name, value in vars(module).items() if name.isupper()}
    return {value for value in values if isinstance(value, str)} - outdated


def enum_values(kind: type[Enum]) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the registry has moved to a repository of its own
        return {member.value for member in kind}


def wrong_names(found: Iterable[str]) -> list[str]:
    known = registered_names(gen_ai_attributes, error_attributes, server_attributes)
    return sorted(name for name in found if name not in known and not name.startswith(OWN))


async def test_every_attribute_is_in_the_registry(server: FakeServer, telemetry: Telemetry) -> None:
    await run_agent(server)
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("no"))).run("go")
    names = {name for span in telemetry.spans() for name in span.attributes or {}}
    points = [point for metric in telemetry.metrics() for point in telemetry.points(metric)]
    measured = {name for point in points for name in point.attributes}
    assert {"error.type", "gen_ai.token.type", "gen_ai.input.messages", "gen_ai.response.id"} <= names | measured
    assert wrong_names(names | measured) == []
    assert wrong_names({"gen_ai.usage.prompt", "gen_ai.system"}) == ["gen_ai.system", "gen_ai.usage.prompt"]
    assert telemetry.metrics().keys() <= registered_names(gen_ai_metrics)


async def test_every_value_is_in_the_registry(server: FakeServer, telemetry: Telemetry) -> None:
    await run_agent(server)
    values = {
        "gen_ai.operation.name": enum_values(gen_ai_attributes.GenAiOperationNameValues),
        "gen_ai.provider.name": enum_values(gen_ai_attributes.GenAiProviderNameValues),
        "gen_ai.output.type": enum_values(gen_ai_attributes.GenAiOutputTypeValues),
        "gen_ai.token.type": enum_values(gen_ai_attributes.GenAiTokenTypeValues),
    }
    rows = [dict(span.attributes or {}) for span in telemetry.spans()]
    rows += [dict(point.attributes) for metric in telemetry.metrics() for point in telemetry.points(metric)]
    found = {(name, row[name]) for row in rows for name in values if name in row}
    assert {("gen_ai.token.type", "input"), ("gen_ai.operation.name", "execute_tool")} <= found
    assert [pair for pair in sorted(found) if pair[1] not in values[pair[0]]] == []


def test_providers_have_the_names_of_the_registry() -> None:
    known = enum_values(gen_ai_attributes.GenAiProviderNameValues)
    assert set(PROVIDER_NAMES.values()) <= known
    # Providers that the registry does not have. A new one goes here, or to PROVIDER_NAMES.
    others = {"openrouter", "together", "fireworks", "nvidia", "cerebras"}
    local = {"ollama", "gateway", "proxy", "local", "demo", "auto"}
    named = {str(describe_model_name(f"{name}:x")["gen_ai.provider.name"]) for name in PROVIDERS}
    assert named - others - local <= known
