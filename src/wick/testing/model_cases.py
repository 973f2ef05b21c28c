"""Conformance tests for models. Subclass `ModelCases` with a fixture `model`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, ClassVar

import pytest

from wick.agent import Agent
from wick.messages import Message, user
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, ReasoningDelta, Request, TextDelta, Usage
from wick.testing.async_cases import AsyncCases
from wick.tools import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


needs = pytest.mark.wick_needs
QUESTION = Request((user("Say hello in one short sentence."),), system="Be brief.")
TASK = Request((user("What is 2 + 3? Use the tool add."),), system="Use tools.", tools=(add,))


async def stream_deltas(model: Model, request: Request) -> list[Delta]:
    """Return all deltas of a reply."""
    return [delta async for delta in model.stream(request)]


def join_deltas(deltas: list[Delta]) -> Message:
    """Return the message of a reply; fail if it is not complete."""
    reply = Reply()
    for delta in deltas:
        reply.feed(delta)
    return reply.message()


class ModelCases(AsyncCases):
    """Test cases for a model: deltas, usage, tool calls, cancelling, concurrent requests, event loops, an agent.

        class TestAcmeModel(ModelCases):
            @pytest.fixture
            def model(self, cassette):
                return cassette("acme:large")

    The model answers a greeting with a text, and calls a tool `add` if it is asked to. A `Cassette` of a real model
    does both without a network. Set `uses_tools` or `reports_usage` to False if the model does not.
    """

    uses_tools: ClassVar[bool] = True
    reports_usage: ClassVar[bool] = True

    @pytest.fixture(autouse=True)
    def skip_unsupported(self, request: pytest.FixtureRequest) -> None:
        """Skip a case that needs tools or usage if the model has none, before the model is created."""
        missing = {"tools": not self.uses_tools, "usage": not self.reports_usage}
        for mark in request.node.iter_markers("wick_needs"):
            if any(missing[need] for need in mark.args):
                pytest.skip(f"the model does not support {', '.join(mark.args)}")

    async def test_a_model_follows_the_protocol(self, model: Any) -> None:
        assert isinstance(model, Model)
        name: object = model.name
        assert isinstance(name, str) and name.strip() == name != ""
        assert getattr(model, "holds_schema", "") in ("", "always", "alone")
        await stream_deltas(model, QUESTION)

    async def test_a_reply_has_text_and_one_finish(self, model: Model) -> None:
        deltas = await stream_deltas(model, QUESTION)
        kinds = (TextDelta, ReasoningDelta, CallStart, CallArgs, Usage, Finish)
        assert all(type(delta) in kinds for delta in deltas), deltas
        assert [type(delta) for delta in deltas].count(Finish) == 1
        assert not any(isinstance(delta, CallStart) for delta in deltas)
        ends = [delta for delta in deltas if not isinstance(delta, Usage)]
        assert isinstance(ends[-1], Finish) and ends[-1].reason == "stop"
        assert join_deltas(deltas).text.strip()

    @needs("usage")
    async def test_usage_is_reported(self, model: Model) -> None:
        found = [delta for delta in await stream_deltas(model, QUESTION) if isinstance(delta, Usage)]
        assert found and found[-1].input_tokens > 0 and found[-1].output_tokens > 0
        counts = found[-1].to_json().values()
        assert all(type(count) is int and count >= 0 for count in counts)
        assert found[-1].cached_tokens <= found[-1].input_tokens
        assert found[-1].reasoning_tokens <= found[-1].output_tokens

    async def test_a_request_is_not_changed(self, model: Model) -> None:
        request = Request(QUESTION.messages, QUESTION.system, settings={"max_tokens": 100})
        before = [message.to_json() for message in request.messages]
        await stream_deltas(model, request)
        assert [message.to_json() for message in request.messages] == before
        assert request.settings == {"max_tokens": 100} and request.tools == ()

    @needs("tools")
    async def test_a_tool_is_called(self, model: Model) -> None:
        deltas = await stream_deltas(model, TASK)
        (call,) = join_deltas(deltas).tool_calls
        assert (call.name, call.invalid) == ("add", "")
        assert add.validate(call.args) == {"a": 2, "b": 3}
        assert call.id and [delta.reason for delta in deltas if isinstance(delta, Finish)] == ["tool_calls"]

    @needs("tools")
    async def test_an_agent_runs_with_the_model(self, model: Model) -> None:
        result = await Agent(model, tools=[add], system=TASK.system).run(TASK.messages[0].text)
        assert result.outcome == "completed" and "5" in result.text
        assert [message.text for message in result.messages.tool_messages()] == ["5"]

    async def test_a_stream_can_be_closed_early(self, model: Model) -> None:
        async with aclosing(model.stream(QUESTION)) as stream:  # type: ignore[type-var]
            assert isinstance(await anext(stream), TextDelta | ReasoningDelta | Usage)
        assert join_deltas(await stream_deltas(model, QUESTION)).text

    async def test_a_request_can_be_cancelled(self, model: Model) -> None:
        running = asyncio.create_task(stream_deltas(model, QUESTION))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert join_deltas(await stream_deltas(model, QUESTION)).text

    @needs("tools")
    async def test_requests_run_concurrently(self, model: Model) -> None:
        first, second = await asyncio.gather(stream_deltas(model, QUESTION), stream_deltas(model, TASK))
        assert join_deltas(first).text.strip() and not join_deltas(first).tool_calls
        assert [call.name for call in join_deltas(second).tool_calls] == ["add"]
