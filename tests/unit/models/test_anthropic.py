"""The Messages API: requests, replies and errors."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from aiohttp import web
from anthropic.types import ContentBlockParam, ToolParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from wick import Agent, tool
from wick.errors import ConfigError, ModelError
from wick.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Reasoning,
    TextPart,
    ToolCall,
    assistant,
    system,
    tool_message,
    user,
)
from wick.models import _http
from wick.models._http import TimeLimits
from wick.models.anthropic import MAX_TOKENS, Anthropic
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage

PNG = "iVBORw0KGgoAAAANSUhEUg=="
PDF = "JVBERi0xLjQK"


# -- a scripted server ----------------------------------------------------------------------------------------------


def sse(*events: dict[str, Any] | str) -> bytes:
    """Return events as the API writes them; a text is literal."""
    return "".join(
        event if isinstance(event, str) else f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in events
    ).encode()


def begin(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-sonnet-4-5"}
    rest = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1, **usage}}
    return {"type": "message_start", "message": {**message, **rest}}


def start(index: int, kind: str, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **block}}


def piece(index: int, kind: str, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text(index: int, *pieces: str) -> list[Any]:
    said = [piece(index, "text_delta", text=said) for said in pieces]
    return [start(index, "text", text=""), *said, stop(index)]


def thought(index: int, text: str, signature: str) -> list[Any]:
    said = [piece(index, "thinking_delta", thinking=text), piece(index, "signature_delta", signature=signature)]
    return [start(index, "thinking", thinking="", signature=""), *said, stop(index)]


def call(index: int, id: str, name: str, *pieces: str) -> list[Any]:
    said = [piece(index, "input_json_delta", partial_json=said) for said in pieces]
    return [start(index, "tool_use", id=id, name=name, input={}), *said, stop(index)]


def end(reason: str = "end_turn", **usage: Any) -> list[Any]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5, **usage}},
        {"type": "message_stop"},
    ]


HELLO = sse(begin(), {"type": "ping"}, *text(0, "Hel", "lo"), *end())


class Provider:
    """A server that answers each question with the next of its answers, the last one again and again."""

    url: str

    def __init__(self) -> None:
        self.answers: list[bytes | web.Response] = [HELLO]
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        self.hang = False
        self.over = asyncio.Event()
        self.connections: set[Any] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/v1/messages"
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        self.connections.add(request.transport)
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(said, web.Response):
            return said
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(said)
        if self.hang:
            await self.over.wait()
        return response

    @property
    def body(self) -> Any:
        return self.bodies[-1]


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    provider = Provider()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", provider.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield provider
    provider.over.set()
    await _http.close()
    await runner.cleanup()


def claude(url: str = "http://127.0.0.1:1", **options: Any) -> Anthropic:
    return Anthropic("claude-sonnet-4-5", **{"base_url": url, "api_key": "sk-secret", **options})


async def deltas(model: Anthropic, *messages: Message, **request: Any) -> list[Delta]:
    return [delta async for delta in model.stream(Request(messages or (user("hi"),), **request))]


async def reply(model: Anthropic, *messages: Message, **request: Any) -> Message:
    reply = Reply()
    for delta in await deltas(model, *messages, **request):
        reply.feed(delta)
    return reply.message()


def body(model: Anthropic, *messages: Message, **request: Any) -> Any:
    """Return the request body, checked against the vendor's types."""
    data = json.loads(model.body(Request(messages or (user("hi"),), **request)))
    fits(data)
    return data


PARAMS, BLOCK, TOOL = (
    TypeAdapter(MessageCreateParamsStreaming),
    TypeAdapter[Any](ContentBlockParam),
    TypeAdapter(ToolParam),
)


def fits(data: Any) -> None:
    known = PARAMS.validate_python(data)
    assert known.keys() == data.keys() - {"temperature", "top_p"}  # which its newest version of the API has not
    blocks = [block for message in data["messages"] for block in message["content"]]
    blocks += [inner for block in blocks if block["type"] == "tool_result" for inner in block.get("content", [])]
    for block in [*blocks, *data.get("system", [])]:
        content = {"content"} if block["type"] == "tool_result" else set()
        assert without(BLOCK.validate_python(block), content) == without(block, content)
    for told in data.get("tools", []):
        assert TOOL.validate_python(told).keys() == told.keys()


def without(block: Any, keys: set[str]) -> Any:
    return {key: value for key, value in block.items() if key not in keys}


def plain(data: Any) -> Any:
    """The same without its cache breakpoints."""
    if isinstance(data, list):
        return [plain(item) for item in data]
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items() if key != "cache_control"}
    return data


def blocks(model: Anthropic, *messages: Message) -> Any:
    return [(message["role"], plain(message["content"])) for message in body(model, *messages)["messages"]]


# -- replies --------------------------------------------------------------------------------------------------------


async def test_text_usage_and_the_end(provider: Provider) -> None:
    assert await deltas(claude(provider.url)) == [
        Usage(10, 1),
        TextDelta("Hel"),
        TextDelta("lo"),
        Usage(10, 5),
        Finish("stop"),
    ]


async def test_thinking_is_read_with_its_signature(provider: Provider) -> None:
    hidden = [start(1, "redacted_thinking", data="opaque"), stop(1)]
    provider.answers = [sse(begin(), *thought(0, "hm", "sig"), *hidden, *text(2, "yes"), *end())]
    message = await reply(claude(provider.url))
    assert message.text == "yes"
    assert message.reasoning == (Reasoning("hm", "sig", "anthropic"), Reasoning("", "opaque", "anthropic-redacted"))


async def test_parallel_calls_are_separated(provider: Provider) -> None:
    provider.answers = [
        sse(
            begin(),
            *text(0, "I look."),
            start(1, "tool_use", id="toolu_1", name="read", input={}),
            start(2, "tool_use", id="toolu_2", name="list", input={}),
            piece(2, "input_json_delta", partial_json=""),
            piece(1, "input_json_delta", partial_json='{"pa'),
            piece(2, "input_json_delta", partial_json='{"dir": "."}'),
            piece(1, "input_json_delta", partial_json='th": "é"}'),
            *end("tool_use"),
        )
    ]
    said = await deltas(claude(provider.url))
    assert said[-1] == Finish("tool_calls")
    assert said.index(CallStart(1, "toolu_1", "read")) < said.index(CallArgs(1, '{"pa'))
    message = await reply(claude(provider.url))
    assert message.tool_calls == (
        ToolCall("toolu_1", "read", {"path": "é"}),
        ToolCall("toolu_2", "list", {"dir": "."}),
    )


async def test_a_call_may_arrive_with_all_arguments(provider: Provider) -> None:
    whole = start(0, "tool_use", id="t1", name="read", input={"path": "a"})
    provider.answers = [sse(begin(), whole, stop(0), *call(1, "t2", "now"), *end("tool_use"))]
    message = await reply(claude(provider.url))
    assert message.tool_calls == (ToolCall("t1", "read", {"path": "a"}), ToolCall("t2", "now", {}))


async def test_the_servers_own_tools_and_unknown_events_are_passed_over(provider: Provider) -> None:
    search = [start(0, "server_tool_use", id="s", name="web_search", input={})]
    search += [piece(0, "input_json_delta", partial_json='{"query": "x"}'), stop(0)]
    unknown = [{"type": "news"}, start(1, "novel", x=1), piece(1, "novel_delta", x=1), stop(1)]
    provider.answers = [sse(begin(), *search, *unknown, *text(2, "found"), *end(), "data: [DONE]\n\n")]
    message = await reply(claude(provider.url))
    assert (message.text, message.tool_calls) == ("found", ())


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
    ],
)
async def test_stop_reasons(provider: Provider, reason: str, finish: str) -> None:
    provider.answers = [sse(begin(), *text(0, "x"), *end(reason))]
    assert (await deltas(claude(provider.url)))[-1] == Finish(finish)


async def test_usage_counts_cache_reads_and_writes(provider: Provider) -> None:
    first = begin(input_tokens=3, cache_read_input_tokens=100, cache_creation_input_tokens=20)
    last = end(output_tokens=7, cache_read_input_tokens=None, output_tokens_details={"thinking_tokens": 4})
    provider.answers = [sse(first, *text(0, "x"), *last)]
    usages = [delta for delta in await deltas(claude(provider.url)) if isinstance(delta, Usage)]
    assert usages == [Usage(123, 1, 100, 0, 20), Usage(123, 7, 100, 4, 20)]


@pytest.mark.parametrize("thinking", ["lots", -5, 0, True, 1.5])
def test_the_thinking_budget_is_a_number_or_an_object(thinking: Any) -> None:
    with pytest.raises(ConfigError, match="number of tokens"):
        claude(thinking=thinking)


async def test_invalid_usage_counts_as_zero(provider: Provider) -> None:
    first, last = begin(input_tokens="many", cache_read_input_tokens=-5), end(output_tokens=[1])  # type: ignore[arg-type]
    provider.answers = [sse(first, *text(0, "x"), *last)]
    assert (await deltas(claude(provider.url)))[-2] == Usage(0, 0)


async def test_the_vendors_sdk_reads_the_same_stream_alike(provider: Provider) -> None:
    provider.answers = [
        sse(
            begin(),
            *thought(0, "hm", "sig"),
            *text(1, "I ", "look."),
            *call(2, "t1", "read", '{"a"', ": 1}"),
            *end("tool_use"),
        )
    ]
    ours = await reply(claude(provider.url))
    async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="x") as client:
        sent = {**without(body(claude()), {"stream"}), "model": "claude-next"}  # it warns of older ones
        async with client.messages.stream(**sent) as stream:
            theirs = await stream.get_final_message()
    assert {**provider.bodies[0], "model": "claude-next"} == provider.bodies[1]
    thinking, said, called = theirs.content
    assert isinstance(thinking, anthropic.types.ThinkingBlock)
    assert isinstance(said, anthropic.types.TextBlock)
    assert isinstance(called, anthropic.types.ToolUseBlock)
    assert ours.reasoning == (Reasoning(thinking.thinking, thinking.signature, "anthropic"),)
    assert ours.text == said.text
    assert ours.tool_calls == (ToolCall(called.id, called.name, called.input),)


# -- errors ---------------------------------------------------------------------------------------------------------


async def test_an_overloaded_server_may_be_asked_again(provider: Provider) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    provider.answers = [sse(begin(), *text(0, "x"), error)]
    with pytest.raises(ModelError, match="anthropic broke off its answer: Overloaded") as caught:
        await deltas(claude(provider.url))
    assert (caught.value.status, caught.value.retryable) == (529, True)


@pytest.mark.parametrize(
    ("kind", "status", "again"),
    [
        ("rate_limit_error", 429, True),
        ("api_error", 500, True),
        ("timeout_error", 504, True),
        ("invalid_request_error", 400, False),
        ("authentication_error", 401, False),
        ("request_too_large", 413, False),
        ("news", None, False),
    ],
)
async def test_errors_in_the_middle(provider: Provider, kind: str, status: int | None, again: bool) -> None:
    provider.answers = [sse(begin(), {"type": "error", "error": {"type": kind}})]
    with pytest.raises(ModelError, match=kind) as caught:
        await deltas(claude(provider.url))
    assert (caught.value.status, caught.value.retryable) == (status, again)


async def test_a_refusal_has_its_reason_without_the_key(provider: Provider) -> None:
    said = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    provider.answers = [web.json_response(said, status=401)]
    model = claude(provider.url)
    with pytest.raises(
        ModelError, match="answered 401: invalid x-api-key; check the key in ANTHROPIC_API_KEY"
    ) as caught:
        await deltas(model)
    assert not caught.value.retryable
    assert "secret" not in f"{caught.value!r} {model!r} {model.server!r}"


async def test_an_overloaded_server_is_recognized_by_status(provider: Provider) -> None:
    provider.answers = [
        web.json_response({"error": {"message": "Overloaded"}}, status=529, headers={"retry-after": "3"})
    ]
    with pytest.raises(ModelError, match="answered 529: Overloaded") as caught:
        await deltas(claude(provider.url))
    assert (caught.value.retryable, caught.value.retry_after) == (True, 3.0)


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="anthropic cannot be reached at http://127.0.0.1:1/v1/messages") as caught:
        await deltas(claude())
    assert caught.value.retryable
    await _http.close()


@pytest.mark.parametrize(
    "event",
    [
        "data: {nonsense\n\n",
        "data: []\n\n",
        "data: null\n\n",
        {"type": "message_start"},
        {"type": "message_start", "message": {"usage": [1]}},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": {"stop_reason": ["x"]}},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "error"},
        {"type": "error", "error": "x"},
        start(0, "text", text=None),
        start(0, "tool_use", id="x", name=5),
        start(0, "tool_use", name="x"),
        {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "x", "name": "x"}},
        piece(0, "text_delta", text=7),
        piece(0, "text_delta"),
        piece(0, "thinking_delta", thinking={}),
        piece([0], "input_json_delta", partial_json="x"),  # type: ignore[arg-type]
    ],
)
async def test_events_that_cannot_be_read(provider: Provider, event: Any) -> None:
    provider.answers = [sse(begin(), event, *text(1, "x"), *end())]
    with pytest.raises(ModelError, match="anthropic sent an event that cannot be read"):
        await deltas(claude(provider.url))


SCRIPT = sse(
    begin(), *thought(0, "hm", "sig"), *text(1, "héllo"), *call(2, "t", "read", '{"a": ', '"b"}'), *end("tool_use")
)
DECIDED = SCRIPT.index(b"event: message_stop") - 2  # from here on the reason is known


async def test_a_stream_cut_anywhere_has_one_outcome(provider: Provider) -> None:
    for cut in {*range(0, len(SCRIPT), 7), *range(DECIDED - 5, len(SCRIPT) + 1)}:
        provider.answers = [SCRIPT[:cut]]
        if cut >= DECIDED:
            message = await reply(claude(provider.url))
            assert message.text == "héllo"
            assert message.tool_calls == (ToolCall("t", "read", {"a": "b"}),)
        else:
            with pytest.raises(ModelError) as caught:
                await deltas(claude(provider.url))
            assert caught.value.retryable


async def test_a_server_that_does_not_hang_up_is_not_waited_for(provider: Provider, monkeypatch: Any) -> None:
    monkeypatch.setattr("wick.constants.LAST_BYTE_SECONDS", 0.01)
    provider.hang = True
    assert (await deltas(claude(provider.url)))[-1] == Finish("stop")


async def test_a_silent_server_times_out(provider: Provider) -> None:
    provider.answers, provider.hang = [sse(begin(), *text(0, "x"))], True
    with pytest.raises(ModelError, match="sent no data for 0.05 s"):
        await deltas(claude(provider.url, limits=TimeLimits(between_chunks=0.05)))


async def test_a_closed_reader_closes_the_connection(provider: Provider) -> None:
    provider.hang, provider.answers = True, [sse(begin(), *text(0, "x"))]
    stream = claude(provider.url).stream(Request((user("hi"),)))
    assert await anext(stream) == Usage(10, 1)
    await stream.aclose()
    (transport,) = provider.connections
    while not transport.is_closing():
        await asyncio.sleep(0.01)


async def test_the_connection_is_used_again(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.constants.LAST_BYTE_SECONDS", 30.0)
    for _ in range(3):
        await deltas(claude(provider.url))
    assert len(provider.connections) == 1


# -- requests -------------------------------------------------------------------------------------------------------


async def test_headers(provider: Provider) -> None:
    await deltas(claude(provider.url, headers={"Anthropic-Beta": "x"}, version="2026-10-21"))
    (sent,) = provider.headers
    assert sent["x-api-key"] == "sk-secret"
    assert sent["anthropic-version"] == "2026-10-21"
    assert sent["anthropic-beta"] == "x"
    assert sent["content-type"] == "application/json"


def test_the_smallest_request() -> None:
    assert body(claude(cache=False), user("hi")) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }


def test_results_of_parallel_calls_are_one_turn_and_first() -> None:
    asked = assistant("", ToolCall("a", "read", {"n": 1}), ToolCall("b", "read", {"n": 2}))
    answers = (
        tool_message("a", "read", "one"),
        Message("user", "by the way", name="nag"),
        tool_message("b", "read", "two"),
    )
    assert blocks(claude(), user("go"), asked, *answers, user("and?")) == [
        ("user", [{"type": "text", "text": "go"}]),
        (
            "assistant",
            [
                {"type": "tool_use", "id": "a", "name": "read", "input": {"n": 1}},
                {"type": "tool_use", "id": "b", "name": "read", "input": {"n": 2}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "by the way"},
                {"type": "text", "text": "and?"},
            ],
        ),
    ]


def test_empty_text_is_never_sent() -> None:
    said = [user("hi"), assistant(" \n"), user((TextPart(""), TextPart("you"))), assistant("", ToolCall("a", "now"))]
    assert blocks(claude(), *said, tool_message("a", "now", "")) == [
        ("user", [{"type": "text", "text": "hi"}, {"type": "text", "text": "you"}]),
        ("assistant", [{"type": "tool_use", "id": "a", "name": "now", "input": {}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "a"}]),
    ]


def test_system_messages_are_the_system_prompt() -> None:
    data = body(claude(cache=False), system("be kind"), user("hi"), system("be brief"), system=" ")
    assert data["system"] == [{"type": "text", "text": "be kind\n\nbe brief"}]
    assert [message["role"] for message in data["messages"]] == ["user"]
    assert body(claude(), user("hi"), system="be")["system"][0]["text"] == "be"
    assert "system" not in body(claude(), user("hi"), system="\n")


def test_half_a_character_in_the_system_prompt_can_be_sent() -> None:
    assert "system" in json.loads(claude().body(Request((user("hi"),), system="x\ud800y")))


def test_numbers_of_any_size_in_arguments() -> None:
    asked = assistant("", ToolCall("a", "add", {"n": 2**70}))
    assert blocks(claude(), asked)[0][1][0]["input"] == {"n": 2**70}


def test_arguments_that_could_not_be_read_are_sent_as_none() -> None:
    asked = assistant("", ToolCall("a", "add", {}, raw='{"n": ', invalid="the arguments are not valid JSON"))
    assert blocks(claude(), asked)[0][1][0]["input"] == {}


def test_ids_and_names_of_other_models_are_made_legal() -> None:
    asked = assistant("", ToolCall("functions.read:0", "fs.read", {}))
    (_, (called,)), (_, (result,)) = blocks(claude(), asked, tool_message("functions.read:0", "fs.read", "x"))
    assert called["id"] == result["tool_use_id"] == "functions_read_0"
    assert called["name"] == "fs_read"


async def test_thinking_is_replayed_in_place(provider: Provider) -> None:
    provider.answers = [
        sse(
            begin(),
            *thought(0, "hm", "sig1"),
            *text(1, "First ", "this."),
            *thought(2, "aha", "sig2"),
            *call(3, "a", "read", "{}"),
            start(4, "redacted_thinking", data="opaque"),
            stop(4),
            *call(5, "b", "read", "{}"),
            *text(6, "Then that."),
            *end("tool_use"),
        )
    ]
    message = await reply(claude(provider.url))
    stored = Message.from_json(json.loads(json.dumps(message.to_json())))
    ((_, said),) = blocks(claude(), stored)
    assert said == [
        {"type": "thinking", "thinking": "hm", "signature": "sig1"},
        {"type": "text", "text": "First this."},
        {"type": "thinking", "thinking": "aha", "signature": "sig2"},
        {"type": "tool_use", "id": "a", "name": "read", "input": {}},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "Then that."},
        {"type": "tool_use", "id": "b", "name": "read", "input": {}},
    ]


async def test_a_thought_that_is_not_shown_is_replayed_all_the_same(provider: Provider) -> None:
    hidden = [start(0, "thinking", thinking="", signature=""), piece(0, "signature_delta", signature="sig"), stop(0)]
    provider.answers = [sse(begin(), *hidden, *text(1, "yes"), *end())]
    message = await reply(claude(provider.url))
    assert message.reasoning == (Reasoning("", "sig", "anthropic"),)
    assert blocks(claude(), message)[0][1][0] == {"type": "thinking", "thinking": "", "signature": "sig"}


@pytest.mark.parametrize(
    "thought",
    [
        Reasoning("hm", "", "anthropic"),  # was cut off before it was signed
        Reasoning("hm", "sig", "openai-responses"),
        Reasoning("hm", "sig", "anthropic@x"),
        Reasoning("hm"),
    ],
)
def test_thoughts_that_are_not_sent(thought: Reasoning) -> None:
    assert blocks(claude(), assistant("yes", reasoning=[thought])) == [("assistant", [{"type": "text", "text": "yes"}])]


@given(st.text(max_size=20), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=4))
def test_no_text_or_call_is_lost_beside_thinking(said: str, places: list[tuple[int, int]]) -> None:
    thoughts = [Reasoning("hm", "sig", f"anthropic@{chars}+{calls}") for chars, calls in places]
    calls = [ToolCall(f"c{index}", "read", {}) for index in range(3)]
    message = assistant(said, *calls, reasoning=thoughts)
    ((_, sent),) = blocks(claude(), message)
    texts = "".join(block["text"] for block in sent if block["type"] == "text")
    assert "".join(texts.split()) == "".join(message.text.split())
    assert [block["id"] for block in sent if block["type"] == "tool_use"] == ["c0", "c1", "c2"]


# -- pictures and files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "source"),
    [
        (ImagePart(url="https://x/a.png"), {"type": "url", "url": "https://x/a.png"}),
        (ImagePart(data=PNG), {"type": "base64", "media_type": "image/png", "data": PNG}),
        (ImagePart(data="/9j/4AAQ"), {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}),
        (
            ImagePart(data="eA==", media_type="image/webp"),
            {"type": "base64", "media_type": "image/webp", "data": "eA=="},
        ),
        (ImagePart(url=f"data:image/gif;base64,{PNG}"), {"type": "base64", "media_type": "image/gif", "data": PNG}),
        (FilePart(data=PNG, media_type="image/png"), {"type": "base64", "media_type": "image/png", "data": PNG}),
    ],
)
def test_pictures(part: Part, source: Any) -> None:
    assert blocks(claude(), user([part])) == [("user", [{"type": "image", "source": source}])]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            FilePart(data=PDF, name="a.pdf"),
            {"source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "a.pdf"},
        ),
        (FilePart(url="https://x/A.PDF"), {"source": {"type": "url", "url": "https://x/A.PDF"}}),
        (FilePart(url="https://x/a", media_type="application/pdf"), {"source": {"type": "url", "url": "https://x/a"}}),
        (
            FilePart(data=b64encode("é".encode()).decode(), media_type="text/csv"),
            {"source": {"type": "text", "media_type": "text/plain", "data": "é"}},
        ),
    ],
)
def test_documents(part: Part, block: Any) -> None:
    assert blocks(claude(), user([part])) == [("user", [{"type": "document", **block}])]


def test_a_tool_may_answer_with_a_picture() -> None:
    answer = Message("tool", (TextPart("here"), ImagePart(data=PNG)), tool_call_id="a", name="draw")
    _, (_, (result,)) = blocks(claude(), assistant("", ToolCall("a", "draw")), answer)
    assert [block["type"] for block in result["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (FilePart(data="UEsDBA==", name="a.zip"), "reads pictures, PDFs and text files, not a.zip"),
        (FilePart(url="https://x/a.txt", media_type="text/plain"), "not https://x/a.txt"),
        (FilePart(data="a", name="a.txt", media_type="text/plain"), r"a.txt \(text/plain\) is not valid base64"),
    ],
)
async def test_files_that_cannot_be_sent(part: Part, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        await deltas(claude(), user([part]))


# -- tools, settings and the cache ----------------------------------------------------------------------------------


@tool
async def read(path: str) -> str:
    """Read a file."""
    return path


@tool
async def now() -> str:
    return "now"


def test_tools() -> None:
    told = body(claude(cache=False), tools=(read, now))["tools"]
    assert told[0] == {"name": "read", "description": "Read a file.", "input_schema": read.parameters}
    assert told[1] == {"name": "now", "input_schema": now.parameters}


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "read"}, {"type": "tool", "name": "read"}),
        ({"parallel_tool_calls": True}, None),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "required", "parallel_tool_calls": False}, {"type": "any", "disable_parallel_tool_use": True}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
    ],
)
def test_the_choice_of_a_tool(settings: Any, choice: Any) -> None:
    assert body(claude(), tools=(read,), settings=settings).get("tool_choice") == choice
    assert "tool_choice" not in body(claude(), settings=settings)


def test_settings() -> None:
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop": "END",
        "extra": {"metadata": {"user_id": "u"}},
    }
    data = body(claude(), settings=settings)
    assert [data[name] for name in ("temperature", "top_p", "max_tokens")] == [0.5, 0.9, 7]
    assert data["stop_sequences"] == ["END"]
    assert data["metadata"] == {"user_id": "u"}
    assert body(claude(), settings={"stop": ["a", "b"]})["stop_sequences"] == ["a", "b"]


def test_a_schema_for_the_answer() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"all": {"type": "array", "items": inner}}, "required": ["all"]}
    closed = {"additionalProperties": False, **inner}
    wanted = {**schema, "properties": {"all": {"type": "array", "items": closed}}, "additionalProperties": False}
    effort = {"output_config": {"effort": "low"}}
    data = body(claude(), settings={"response_format": schema, "extra": effort})
    assert data["output_config"] == {"format": {"type": "json_schema", "schema": wanted}, "effort": "low"}
    named = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert body(claude(), settings={"response_format": named})["output_config"]["format"]["schema"] == wanted
    assert "output_config" not in body(claude(), settings={"response_format": {"type": "text"}})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"response_format": {"type": "json_object"}}, "no response_format json_object; give the JSON Schema"),
        ({"temprature": 1}, "there is no setting 'temprature'"),
        ({"extra": {"messages": []}}, "extra cannot set 'messages'"),
        ({"tool_choice": "write"}, "there is no tool named 'write'"),
    ],
)
async def test_unsupported_settings_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        await deltas(claude(), tools=(read,), settings=settings)


def test_thinking() -> None:
    data = body(claude(thinking=2_000))
    assert data["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert data["max_tokens"] == MAX_TOKENS + 2_000
    assert body(claude(thinking=2_000), settings={"max_tokens": 4_000})["max_tokens"] == 4_000
    adaptive = body(claude(thinking={"type": "adaptive"}))
    assert (adaptive["thinking"], adaptive["max_tokens"]) == ({"type": "adaptive"}, MAX_TOKENS)


def marks(data: Any) -> list[str]:
    """The blocks that carry a breakpoint."""
    blocks = [*data.get("tools", []), *data.get("system", [])]
    blocks += [block for message in data["messages"] for block in message["content"]]
    return [
        block.get("name") or block.get("text") or block["tool_use_id"] for block in blocks if "cache_control" in block
    ]


def test_cache_breakpoints_are_at_tools_system_and_the_last_two_user_turns() -> None:
    said: list[Message] = []
    for turn in range(4):
        said += user(f"u{turn}"), assistant("x", ToolCall(f"c{turn}", "read")), tool_message(f"c{turn}", "read", "r")
        said += (assistant("done"),)
    data = body(claude(), *said, user("a"), user("b"), tools=(read, now), system="be kind")
    assert marks(data) == ["now", "be kind", "c3", "b"]
    assert marks(body(claude(), user("hi"))) == ["hi"]
    assert marks(body(claude(cache=False), *said, tools=(read,), system="x")) == []


def test_a_message_is_encoded_once_marked_or_not() -> None:
    said = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
    body(claude(), *said[:1])
    kept = said[0].cache["anthropic"]
    for length in (3, 5):
        body(claude(), *said[:length])
        assert said[0].cache["anthropic"] is kept
    assert all(message.cache["anthropic"].count(b"cache_control") == 0 for message in said)


# -- keys and addresses ---------------------------------------------------------------------------------------------


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY, for instance with `export ANTHROPIC_API_KEY=…`"):
        Anthropic("claude-sonnet-4-5")
    Anthropic("claude-sonnet-4-5", headers={"Authorization": "Bearer x"})


def test_the_environment_key_is_sent_only_to_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-env\n")
    assert Anthropic("x").server.headers["x-api-key"] == "sk-env"
    assert Anthropic("x", api_key="sk-mine").server.headers["x-api-key"] == "sk-mine"
    assert "x-api-key" not in Anthropic("x", base_url="http://127.0.0.1:1").server.headers


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("http://localhost:4000/", "http://localhost:4000/v1/messages"),
        ("http://localhost:4000/v1", "http://localhost:4000/v1/messages"),
        ("https://gate/anthropic/", "https://gate/anthropic/v1/messages"),
    ],
)
def test_addresses(base_url: str, url: str) -> None:
    assert claude(base_url).server.url == url


@pytest.mark.parametrize("base_url", ["", "localhost:4000", "ftp://x", "https://me:secret@x", "https://x?key=secret"])
def test_invalid_addresses_are_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match="the base_url of Anthropic must be like") as caught:
        claude(base_url)
    assert "secret" not in str(caught.value)


def test_a_model_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="name the model"):
        Anthropic("", api_key="x")
    assert claude().name == "anthropic:claude-sonnet-4-5"


# -- in an agent ----------------------------------------------------------------------------------------------------


async def test_an_agent_uses_tools_side_by_side(provider: Provider) -> None:
    provider.answers = [
        sse(
            begin(), *call(0, "t1", "read", '{"path": "a"}'), *call(1, "t2", "read", '{"path": "b"}'), *end("tool_use")
        ),
        sse(begin(), *text(0, "done"), *end()),
    ]
    result = await Agent(claude(provider.url), tools=[read], system="be kind").run("go")
    assert result.text == "done"
    assert (result.usage.input_tokens, result.usage.output_tokens) == (20, 10)
    assert marks(provider.body) == ["read", "be kind", "go", "t2"]
    fits(provider.body)


async def test_deltas_are_of_the_right_kind(provider: Provider) -> None:
    provider.answers = [SCRIPT]
    kinds = {type(delta) for delta in await deltas(claude(provider.url))}
    assert kinds == {Usage, ReasoningDelta, TextDelta, CallStart, CallArgs, Finish}


async def test_the_finish_has_the_id_and_the_model_of_the_message(provider: Provider) -> None:
    end = (await deltas(claude(provider.url)))[-1]
    assert isinstance(end, Finish)
    assert (end.response_id, end.response_model) == ("msg_1", "claude-sonnet-4-5")
