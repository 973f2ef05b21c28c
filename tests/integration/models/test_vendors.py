"""The vendors' SDKs as witnesses: they parse the scripted server, it accepts them, and they accept wick's requests.

Were the server wrong about a wire format, the clients that are tested against it would be wrong, too.
The SDKs are imported by the tests: an import takes seconds, and every worker of a test run collects this file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any

import pytest
from pydantic import TypeAdapter

from provider import Answer, Call, Reply, Script, ScriptedServer, Thought, Tokens
from provider.faults import status
from wick import Agent, tool
from wick.messages import FilePart, ImagePart, Part, TextPart, user
from wick.models.anthropic import Anthropic
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses

CALLS = (
    Call.of("call_a", "add", a=2, b=3),
    Call.of("call_b", "greet", name="Zoë"),
    Call.of("call_c", "add", a=-1, b=0),
)
REPLIES = {
    "text": Reply("Grüße, 世界 🙂!", tokens=Tokens(50, 7, 30)),
    "thought": Reply("Yes.", (Thought("Let me see.", "c2lnbmVk"),), tokens=Tokens(50, 20, 0, 12)),
    "call": Reply("I'll add.", (Thought("Add them.", "c2lnbmVk"),), CALLS[:1], Tokens(11, 5)),
    "calls": Reply("", (), CALLS, Tokens(1, 1)),
    "interleaved": Reply("", (), CALLS, Tokens(1, 1), order=(0, 1, 2, 2, 0, 1, 1, 2)),
    "length": Reply("It goes on and", finish="length"),
}
TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}),
    ("greet", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
]


@dataclass
class Read:
    """The reply as an SDK parsed it."""

    text: str = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    tokens: Tokens | None = None
    finish: str = ""

    def check(self, reply: Reply, tokens: Tokens | None = None) -> None:
        assert self.text == reply.text
        assert [(call.id, call.name) for call in self.calls] == [(call.id, call.name) for call in reply.calls]
        assert [json.loads(call.args) for call in self.calls] == [json.loads(call.args) for call in reply.calls]
        assert self.tokens == (tokens or reply.tokens)
        assert self.finish == reply.reason


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=REPLIES)
def reply(request: pytest.FixtureRequest) -> Reply:
    return REPLIES[request.param]


def openai(script: Script) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=script.url, api_key="key", max_retries=0)


def anthropic(script: Script) -> Any:
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=script.url.removesuffix("/v1"), api_key="key", max_retries=0)


# -- they read it ---------------------------------------------------------------------------------------------------


async def chat(script: Script, streamed: bool, messages: list[Any]) -> Any:
    from openai import LengthFinishReasonError

    tools: Any = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in TOOLS]
    asked: Any = {"model": "gpt-4o", "messages": messages, "tools": tools}
    async with openai(script) as client:
        if not streamed:
            return await client.chat.completions.create(**asked)
        async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            try:
                return await stream.get_final_completion()
            except LengthFinishReasonError as cut:
                return cut.completion


async def test_openai_reads_chat(server: ScriptedServer, reply: Reply, streamed: bool) -> None:
    done = await chat(server.script(reply), streamed, [{"role": "user", "content": "go"}])
    (choice,) = done.choices
    calls = [Call(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    usage = done.usage
    tokens = Tokens(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens_details.cached_tokens,
        usage.completion_tokens_details.reasoning_tokens,
    )
    Read(choice.message.content or "", [], calls, tokens, choice.finish_reason).check(reply)


async def responses(script: Script, streamed: bool, input: list[Any]) -> Any:
    tools: Any = [{"type": "function", "name": name, "parameters": schema, "strict": False} for name, schema in TOOLS]
    asked: Any = {"model": "gpt-5", "input": input, "tools": tools, "store": False}
    asked |= {"include": ["reasoning.encrypted_content"]}
    async with openai(script) as client:
        if not streamed:
            return await client.responses.create(**asked)
        async with client.responses.stream(**asked) as stream:
            ends = [event async for event in stream if event.type in ("response.completed", "response.incomplete")]
            return ends[-1].response


async def test_openai_reads_responses(server: ScriptedServer, reply: Reply, streamed: bool) -> None:
    done = await responses(server.script(reply), streamed, [{"role": "user", "content": "go"}])
    calls = [Call(item.call_id, item.name, item.arguments) for item in done.output if item.type == "function_call"]
    thoughts = [(item.summary[0].text, item.encrypted_content) for item in done.output if item.type == "reasoning"]
    usage = done.usage
    cached, thought = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
    cut = "length" if done.status == "incomplete" else "tool_calls" if calls else "stop"
    Read(done.output_text, [], calls, Tokens(usage.input_tokens, usage.output_tokens, cached, thought), cut).check(
        reply
    )
    assert thoughts == [(thought.text, thought.signature) for thought in reply.thoughts]


async def test_openai_reads_every_event_of_responses(server: ScriptedServer) -> None:
    """The deltas of the stream add up to its last event."""
    script = server.script(REPLIES["call"])
    async with openai(script) as client:
        kinds, text, args = [], "", ""
        async for event in await client.responses.create(model="gpt-5", input="go", stream=True):
            kinds.append((event.sequence_number, event.type))
            text += event.delta if event.type == "response.output_text.delta" else ""
            args += event.delta if event.type == "response.function_call_arguments.delta" else ""
    assert (text, args) == (REPLIES["call"].text, REPLIES["call"].calls[0].args)
    assert [number for number, _ in kinds] == [*range(len(kinds))]
    assert kinds[0][1] == "response.created" and kinds[-1][1] == "response.completed"


async def messages(script: Script, streamed: bool, messages: list[Any]) -> Any:
    tools: Any = [{"name": name, "input_schema": schema} for name, schema in TOOLS]
    asked: Any = {"model": "claude", "max_tokens": 2000, "messages": messages, "tools": tools}
    async with anthropic(script) as client:
        if not streamed:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()


REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


async def test_anthropic_reads_messages(server: ScriptedServer, reply: Reply, streamed: bool) -> None:
    done = await messages(server.script(reply), streamed, [{"role": "user", "content": "go"}])
    text = "".join(block.text for block in done.content if block.type == "text")
    calls = [Call.of(block.id, block.name, **block.input) for block in done.content if block.type == "tool_use"]
    usage = done.usage
    cached, thought = usage.cache_read_input_tokens, getattr(usage.output_tokens_details, "thinking_tokens", 0)
    tokens = Tokens(usage.input_tokens + cached, usage.output_tokens, cached, thought)
    wanted = reply.tokens if streamed else replace(reply.tokens or Tokens(), reasoning=0)
    Read(text, [], calls, tokens, REASONS[done.stop_reason]).check(reply, wanted)
    thoughts = [(block.thinking, block.signature) for block in done.content if block.type == "thinking"]
    assert thoughts == [(thought.text, thought.signature) for thought in reply.thoughts]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 422, 429, 500, 503])
async def test_the_sdks_know_its_errors(server: ScriptedServer, code: int) -> None:
    import anthropic
    import openai

    refused = Answer(Reply("no"), status(code))
    for ask in (chat, responses, messages):
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            await ask(server.script(refused), True, [{"role": "user", "content": "go"}])
        assert f"the script says {code}" in str(caught.value)
        assert getattr(caught.value, "status_code") == code  # noqa: B009


# -- it accepts them ------------------------------------------------------------------------------------------------


async def test_the_script_accepts_a_conversation_of_openai_chat(server: ScriptedServer, streamed: bool) -> None:
    script = server.script(REPLIES["calls"], Reply("done"))
    said: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
    first = (await chat(script, streamed, said)).choices[0].message
    said += [first.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})]
    for call in said[-1]["tool_calls"]:
        call.pop("index", None)  # the SDK's own notes, which it would not send
        call["function"].pop("parsed_arguments", None)
        said += [{"role": "tool", "tool_call_id": call["id"], "content": "5"}]
    last = await chat(script, streamed, said)
    assert last.choices[0].message.content == "done" and not script.refusals


async def test_the_script_accepts_a_conversation_of_openai_responses(server: ScriptedServer, streamed: bool) -> None:
    script = server.script(REPLIES["call"], Reply("done"))
    said: list[Any] = [{"role": "user", "content": "go"}]
    first = await responses(script, streamed, said)
    said += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    said += [{"type": "function_call_output", "call_id": "call_a", "output": "5"}]
    assert (await responses(script, streamed, said)).output_text == "done" and not script.refusals


async def test_the_script_accepts_a_conversation_of_anthropic(server: ScriptedServer, streamed: bool) -> None:
    script = server.script(REPLIES["call"], Reply("done"))
    said: list[Any] = [{"role": "user", "content": "go"}]
    first = await messages(script, streamed, said)
    said += [{"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]}]
    said += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "5"}]}]
    assert (await messages(script, streamed, said)).content[0].text == "done" and not script.refusals


# -- the SDKs accept requests of wick -------------------------------------------------------------------------------

PARAMS = {
    OpenAI: "openai.types.chat.completion_create_params.CompletionCreateParamsStreaming",
    OpenAIResponses: "openai.types.responses.response_create_params.ResponseCreateParamsStreaming",
    Anthropic: "anthropic.types.message_create_params.MessageCreateParamsStreaming",
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"


@tool
async def add(a: int, b: int = 0) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def greet(name: str) -> str:
    """Greet a person."""
    return f"hello {name}"


@pytest.mark.parametrize("kind", PARAMS)
async def test_the_vendor_sdks_accept_requests_of_wick(server: ScriptedServer, kind: Any) -> None:
    """Every key and value of a request has a place in the types of the vendor's SDK, and none is left over."""
    model = {OpenAI: "gpt-4o", OpenAIResponses: "gpt-5", Anthropic: "claude-sonnet-4-5"}[kind]
    script = server.script(replace(REPLIES["calls"], thoughts=REPLIES["call"].thoughts), Reply("done"))
    settings: dict[str, Any] = {"max_tokens": 3000, "tool_choice": "auto", "parallel_tool_calls": True}
    agent = Agent(
        kind(model, base_url=script.url, api_key="key"), system="be brief", tools=[add, greet], settings=settings
    )
    parts: list[Part] = [
        TextPart("look"),
        ImagePart(data=PIXEL),
        FilePart(data=PDF, name="a.pdf", media_type="application/pdf"),
    ]
    assert (await agent.run(user(parts))).text == "done"
    assert len(script.asked) == 2 and not script.refusals
    for asked in script.asked:
        known = TypeAdapter(resolve_name(PARAMS[kind]))
        assert plain(known.dump_python(known.validate_python(asked.body), warnings=False)) == asked.body


def plain(data: Any) -> Any:
    """The same with lists where pydantic left iterators."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    return [*map(plain, data)] if not isinstance(data, str) and hasattr(data, "__iter__") else data
