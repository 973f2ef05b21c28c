"""A foreign server with a real model: llama.cpp's, through the `openai` client and through `local:`.

What the model says is its own business; what must hold is how it arrives, what is counted, and that tools really run.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from smollm2 import load_model, needs_smollm2
from wick import Agent, ModelCall, Thread, before, tool, user
from wick.errors import ModelError
from wick.messages import Message, ToolCall, assistant
from wick.models import _http, resolve
from wick.models.local import Local
from wick.models.openai import OpenAI
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, Request, TextDelta, Usage
from wick.tools import Tool

needs_smollm2()

BRIEF = {"max_tokens": 16, "temperature": 0}
KEY = "a key for tests"

# SmolLM2 knows no tools, and llama.cpp forgets them then. This is how Llama 3.1 writes calls, in SmolLM2's words.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
You have these tools: {{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
<function={{ call.function.name }}>{{ call.function.arguments | tojson }}</function>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""

SERVER = """\
import json, os, sys, xllamacpp
path, template, key = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path, params.chat_template, params.api_keys = path, template, [key]
params.n_ctx, params.cpuparams.n_threads, params.cpuparams_batch.n_threads, params.verbosity = 1024, 1, 1, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run llama.cpp's own server with one model for all tests, and yield its address."""
    path = Local("smollm2").path
    command = [sys.executable, "-c", SERVER, json.dumps([path, TEMPLATE, KEY])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    model = resolve({"provider": "local", "model": "smollm2", "context": 1024, "threads": 1})
    assert isinstance(model, Local)
    yield load_model(model)
    asyncio.run(model.close())


@pytest.fixture(params=["openai", "local"])
async def model(request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    if request.param == "local":
        yield request.getfixturevalue("local")
    else:
        url = request.getfixturevalue("address")
        yield OpenAI("smollm2", base_url=f"{url}/v1", api_key=KEY, name="llama.cpp")
    await _http.close()


async def ask(model: Model, text: str, *tools: Tool, **settings: object) -> list[Delta]:
    request = Request((user(text),), tools=tools, settings={**BRIEF, **settings})
    return [delta async for delta in model.stream(request)]


async def slot_of(model: Model) -> dict[str, Any]:
    """Return the state of the only slot of llama.cpp."""
    client = model._llama.client if isinstance(model, Local) and model._llama else model
    assert isinstance(client, OpenAI)
    url = client.server.url.removesuffix("/v1/chat/completions") + "/slots"
    async with aiohttp.ClientSession() as session, session.get(url, headers=client.server.headers) as response:
        (slot,) = await response.json()
        return dict(slot)


class Trips:
    """A tool that remembers how it was used."""

    def __init__(self) -> None:
        self.planned: list[tuple[str, int]] = []

        @tool
        async def plan_trip(city: str, days: int) -> str:
            """Plan a trip to a city."""
            self.planned.append((city, days))
            return f"{days} days in {city}"

        self.tool = plan_trip


@before(ModelCall)
def first_a_tool(call: ModelCall) -> None:
    """The first answer must be a call; once a tool has answered, the model must talk."""
    answered = any(message.role == "tool" for message in call.messages)
    call.settings["tool_choice"] = "none" if answered else "required"


async def test_a_chat_is_streamed(model: Model) -> None:
    *said, usage, finish = await ask(model, "Say hello.")
    assert len(said) > 1
    assert all(isinstance(delta, TextDelta) and delta.text for delta in said)
    assert isinstance(usage, Usage)
    assert usage.input_tokens > 0
    assert len(said) <= usage.output_tokens <= 16
    assert finish in (Finish("stop"), Finish("length"))


async def test_a_conversation_has_turns(model: Model) -> None:
    agent, thread = Agent(model, system="You are brief.", settings=BRIEF), Thread()
    first = await agent.run("My name is Ada.", thread=thread)
    second = await agent.run("What is my name?", thread=thread)
    assert first.text
    assert second.text
    assert [message.role for message in thread.messages] == ["user", "assistant", "user", "assistant"]
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens // 2
    assert second.usage.cached_tokens > 0  # the first turn was not read again


async def test_usage_is_counted(model: Model) -> None:
    result = await Agent(model, settings={**BRIEF, "max_tokens": 4}).run("Count from one to twenty.")
    assert result.usage.output_tokens == 4
    assert result.usage.input_tokens > 0
    assert (result.outcome, result.reason) == ("completed", "finish reason: length")


async def test_a_tool_call_that_is_forced_runs_the_tool(model: Model) -> None:
    trips = Trips()
    settings = {**BRIEF, "max_tokens": 64, "parallel_tool_calls": False}
    agent = Agent(model, tools=[trips.tool], hooks=[first_a_tool], settings=settings)
    result = await agent.run("Plan two trips.")
    ((city, days),) = trips.planned
    assert isinstance(city, str)
    assert isinstance(days, int)
    assert [message.role for message in result.messages][:3] == ["user", "assistant", "tool"]
    assert result.messages[1].tool_calls[0].args == {"city": city, "days": days}
    assert result.messages[2].text == f"{days} days in {city}"


async def test_calls_and_results_of_an_earlier_turn_can_be_read(model: Model) -> None:
    """Also several at once, and text beside them."""
    trips = Trips()
    calls = (
        ToolCall("a", "plan_trip", {"city": "Rome", "days": 2}),
        ToolCall("b", "plan_trip", {"city": "Bonn", "days": 1}),
    )
    messages = (
        user("Plan two trips."),
        assistant("Here they are.", *calls),
        Message("tool", "2 days in Rome", tool_call_id="a", name="plan_trip"),
        Message("tool", "1 day in Bonn", tool_call_id="b", name="plan_trip"),
    )
    request = Request(messages, "", (trips.tool,), {**BRIEF, "tool_choice": "none"})
    *_, usage, finish = [delta async for delta in model.stream(request)]
    assert isinstance(usage, Usage)
    assert usage.input_tokens > 100
    assert isinstance(finish, Finish)


async def test_an_answer_can_be_held_to_a_schema(model: Model) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "sunny": {"type": "boolean"}},
        "required": ["city", "sunny"],
        "additionalProperties": False,
    }
    deltas = await ask(model, "Describe Paris as JSON.", max_tokens=48, response_format=schema)
    answer = json.loads("".join(delta.text for delta in deltas if isinstance(delta, TextDelta)))
    assert isinstance(answer["city"], str)
    assert isinstance(answer["sunny"], bool)


async def test_a_prompt_that_is_too_long_is_a_sentence(model: Model) -> None:
    with pytest.raises(ModelError, match=r"answered 400: .*exceeds the available context size") as error:
        await ask(model, "word " * 2_000)
    assert error.value.status == 400
    assert not error.value.retryable


async def test_a_reply_that_is_cancelled_is_not_made(model: Model) -> None:
    """Otherwise it would generate until the context is full and block the next request."""
    begun = asyncio.Event()

    async def read() -> None:
        endless = {"max_tokens": 900, "extra": {"ignore_eos": True}}
        request = Request((user("Tell me a very long story."),), settings=endless)
        async for _ in model.stream(request):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while (slot := await slot_of(model))["is_processing"]:
        assert slot["next_token"][0]["n_decoded"] < 800
        await asyncio.sleep(0.01)
    assert (await ask(model, "Say hello.", max_tokens=1))[-1] == Finish("length")


async def test_one_connection_after_the_other(model: Model) -> None:
    """llama.cpp promises to keep a connection, and closes it after every stream."""
    for _ in range(3):
        assert (await ask(model, "Say hello.", max_tokens=1))[-1] == Finish("length")


async def test_a_wrong_key_is_a_sentence(address: str) -> None:
    model = OpenAI("smollm2", base_url=f"{address}/v1", api_key="wrong", name="llama.cpp")
    with pytest.raises(ModelError, match=r"llama\.cpp answered 401: .*; check the api_key of llama\.cpp") as error:
        await ask(model, "Say hello.")
    assert "wrong" not in str(error.value)
    await _http.close()


async def test_parallel_calls_are_distinguished(address: str) -> None:
    """The template lets the model make as many calls as it likes, and here it must make one at least."""
    trips = Trips()
    model = OpenAI("smollm2", base_url=f"{address}/v1", api_key=KEY, name="llama.cpp")
    settings = {"tool_choice": "required", "parallel_tool_calls": True, "max_tokens": 64}
    deltas = await ask(model, "Plan two trips.", trips.tool, **settings)
    starts = [delta for delta in deltas if isinstance(delta, CallStart)]
    assert starts
    assert [start.index for start in starts] == [*range(len(starts))]
    assert len({start.id for start in starts}) == len(starts)
    for start in starts[:-1]:  # the last one may have been cut off
        args = "".join(delta.text for delta in deltas if isinstance(delta, CallArgs) and delta.index == start.index)
        assert set(json.loads(args)) == {"city", "days"}
    await _http.close()
