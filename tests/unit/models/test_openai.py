"""The client of Chat Completions, against a real server on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from gc import collect
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fake_http_server import FakeServer, model_request, run_fake_server, sse_body, stream_deltas
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
    tool_message,
    user,
)
from wick.models._http import ModelServer
from wick.models.openai import ChatReplyParser, OpenAI
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage
from wick.tools import Tool, tool

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQ="


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with run_fake_server() as told:
        yield told


@pytest.fixture
def model(server: FakeServer) -> OpenAI:
    return OpenAI("m", base_url=server.url, name="local")


@tool
def look(city: str, days: int = 1) -> str:
    """The weather."""
    return ""


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(args: Any = None, name: str | None = None, **ids: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return {**ids, "function": function}


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(pieces))


def body(request: Request, **options: Any) -> dict[str, Any]:
    client = OpenAI("m", **{"base_url": "http://localhost:1/v1", "name": "local", **options})
    data: dict[str, Any] = json.loads(client.body(request))
    return data


def sent_messages(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(model_request(*messages), **options)["messages"]
    return found


# -- addresses ------------------------------------------------------------------------------------------------------


def test_its_name_is_the_provider_and_the_model() -> None:
    assert OpenAI("gpt-4o", api_key="sk-secret").name == "openai:gpt-4o"


def test_the_key_shows_nowhere() -> None:
    client = OpenAI("gpt-4o", api_key="sk-secret")
    assert "sk-secret" not in repr(client) + repr(client.server)


async def test_a_request_has_base_url_key_and_headers(server: FakeServer) -> None:
    server.say(sse_body(chunk("stop", content="hi")))
    client = OpenAI("m", base_url=f"{server.url}/?api-version=2", api_key=" k\n", headers={"X-Org": "wick"})
    await stream_deltas(client)
    assert server.paths == ["/v1/chat/completions?api-version=2"]
    assert server.headers[0]["authorization"] == "Bearer k"
    assert server.headers[0]["x-org"] == "wick"


async def test_a_header_of_ones_own_replaces_the_key(server: FakeServer) -> None:
    server.say(sse_body(chunk("stop", content="hi")))
    await stream_deltas(OpenAI("m", base_url=server.url, api_key="k", headers={"Authorization": "Basic x"}))
    assert server.headers[0]["authorization"] == "Basic x"


async def test_the_key_of_the_environment_is_for_openai_alone(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    assert OpenAI("gpt-4o").server.headers["authorization"] == "Bearer sk-env"
    server.say(sse_body(chunk("stop", content="hi")))
    await stream_deltas(OpenAI("m", base_url=server.url))
    assert "authorization" not in server.headers[0]


def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        OpenAI("gpt-4o")


@pytest.mark.parametrize(
    "url", ["localhost:11434", "ftp://host/v1", "http://", "http://host:x/v1", "http://[::1/v1", ""]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url of local must be like http"):
        OpenAI("m", base_url=url, name="local")


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="holds a password") as refused:
        OpenAI("m", base_url="http://me:hunter2@host/v1")
    assert "hunter2" not in str(refused.value)


def test_a_model_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="name the model of ollama"):
        OpenAI("", name="ollama", base_url="http://localhost:1/v1")


async def test_an_unreachable_server_names_its_start_command(unused_tcp_port: int) -> None:
    client = OpenAI("m", base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", name="ollama")
    with pytest.raises(ModelError, match="start it with: ollama serve") as failed:
        await stream_deltas(client)
    assert failed.value.retryable


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, False), (404, False), (429, True), (503, True)])
async def test_a_refusal_is_a_sentence(server: FakeServer, model: OpenAI, status: int, retryable: bool) -> None:
    server.say(b'{"error": {"message": "not like this"}}', status=status, content_type="application/json")
    with pytest.raises(ModelError, match=f"local answered {status}: not like this") as failed:
        await stream_deltas(model)
    assert (failed.value.status, failed.value.retryable) == (status, retryable)


# -- requests -------------------------------------------------------------------------------------------------------


async def test_a_request_body(server: FakeServer, model: OpenAI) -> None:
    server.say(sse_body(chunk("stop", content="hi")))
    await stream_deltas(model, model_request(user("hello ☀"), system="be kind", tools=(look,)))
    assert server.bodies == [
        {
            "model": "m",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello ☀"}],
            "tools": [{"type": "function", "function": look.schema}],
        }
    ]


def test_a_conversation_with_tools() -> None:
    request = [
        user("weather?"),
        assistant("", ToolCall("c1", "look", {"city": "Bonn"}, raw='{"city" : "Bonn"}')),
        tool_message("c1", "look", "rain"),
        assistant("It rains."),
        Message("user", "really?", name="a_hook"),
    ]
    called = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city" : "Bonn"}'}}
    assert sent_messages(*request) == [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "really?"},
    ]


def test_a_message_and_a_tool_are_encoded_once() -> None:
    client, request = OpenAI("m", base_url="http://localhost:1/v1"), model_request(user("hello"), tools=(look,))
    first = client.body(request)
    kept, told = request.messages[0].cache["openai"], vars(look)["openai"]
    request.messages[0].cache["openai"] = b'{"kept":1}'
    assert client.body(request) == first.replace(kept, b'{"kept":1}')
    assert vars(look)["openai"] is told


@pytest.mark.parametrize("raw", ['{"a": 1', "  ", '{"a": 1, "a": 2}', ""])
def test_arguments_that_servers_cannot_read_are_not_sent_back(raw: str) -> None:
    broken = ToolCall("c1", "look", {}, raw=raw, invalid="not JSON" if raw.strip() else "")
    assert sent_messages(assistant("", broken))[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_name_that_servers_refuse_is_not_sent_back() -> None:
    called = ToolCall("c1", "look; rm -rf /" + "x" * 99)
    name = sent_messages(assistant("", called))[0]["tool_calls"][0]["function"]["name"]
    assert name.startswith("look__rm_-rf__x")
    assert len(name) == 64


def test_a_number_of_any_size_is_sent() -> None:
    called = ToolCall("c1", "look", {"n": 2**80})
    assert json.loads(sent_messages(assistant("", called))[0]["tool_calls"][0]["function"]["arguments"]) == {"n": 2**80}
    assert body(model_request(settings={"extra": {"min_p": 2**80}}))["min_p"] == 2**80


def test_pictures_and_files() -> None:
    parts: list[Part] = [
        TextPart("see"),
        ImagePart(url="https://x.org/a.png"),
        ImagePart(data=PNG),
        ImagePart(data="AAAA", media_type="image/webp"),
        FilePart(data=PDF, name="a.pdf"),
        FilePart(data=PNG),
    ]
    assert sent_messages(user(parts))[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "data:image/webp;base64,AAAA"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]


def test_a_file_by_its_address_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"local takes files as data, not by their address; read https://x.org/a.pdf"):
        sent_messages(user([FilePart(url="https://x.org/a.pdf")]))


def test_pictures_that_tools_return_are_shown_when_all_have_answered() -> None:
    both = assistant("", ToolCall("c1", "shot"), ToolCall("c2", "shot"))
    shots = [
        Message("tool", (TextPart("done"), ImagePart(data=PNG)), tool_call_id=id, name="shot") for id in ("c1", "c2")
    ]
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    shown = {
        "role": "user",
        "content": [
            {"type": "text", "text": "What shot returned for c1:"},
            picture,
            {"type": "text", "text": "What shot returned for c2:"},
            picture,
        ],
    }
    answers = [{"role": "tool", "content": "done", "tool_call_id": id} for id in ("c1", "c2")]
    assert sent_messages(both, *shots)[1:] == [*answers, shown]
    assert sent_messages(both, *shots, assistant("ok"))[1:] == [*answers, shown, {"role": "assistant", "content": "ok"}]


def test_a_file_that_a_tool_returns_by_its_address_is_named() -> None:
    found = Message("tool", (FilePart(url="https://x.org/a.pdf"),), tool_call_id="c1", name="find")
    line = {"type": "text", "text": "What find returned for c1:"}
    assert sent_messages(assistant("", ToolCall("c1", "find")), found)[1:] == [
        {"role": "tool", "content": "", "tool_call_id": "c1"},
        {"role": "user", "content": [line, {"type": "text", "text": "https://x.org/a.pdf"}]},
    ]


def test_reasoning_is_replayed_only_on_request() -> None:
    plain = [{"role": "assistant", "content": "4"}]
    thought = assistant("4", reasoning=[Reasoning("2+2", provider="vllm"), Reasoning("hidden", provider="anthropic")])
    assert sent_messages(thought) == plain
    own = sent_messages(thought, replay_reasoning=True, name="vllm")
    assert own == [{"role": "assistant", "content": "4", "reasoning_content": "2+2"}]
    assert sent_messages(thought, replay_reasoning=True, name="other") == sent_messages(thought) == plain, (
        "others' thoughts are not sent"
    )


def test_settings() -> None:
    chosen = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["x"], "parallel_tool_calls": False}
    found = body(model_request(tools=(look,), settings={**chosen, "tool_choice": "required", "extra": {"min_p": 1}}))
    assert {key: found[key] for key in (*chosen, "tool_choice", "min_p")} == {
        **chosen,
        "tool_choice": "required",
        "min_p": 1,
    }


def test_none_settings_are_omitted() -> None:
    assert "temperature" not in body(model_request(settings={"temperature": None, "extra": None}))


def test_a_tool_can_be_demanded_by_name() -> None:
    found = body(model_request(tools=(look,), settings={"tool_choice": "look"}))
    assert found["tool_choice"] == {"type": "function", "function": {"name": "look"}}


def test_a_tool_that_is_not_there_cannot_be_demanded() -> None:
    with pytest.raises(ModelError, match="there is no tool named 'lock'; the tools are look; did you mean look?"):
        body(model_request(tools=(look,), settings={"tool_choice": "lock"}))


def test_without_tools_there_is_no_tool_choice() -> None:
    found = body(model_request(settings={"tool_choice": "required", "parallel_tool_calls": True}))
    assert found.keys().isdisjoint(("tools", "tool_choice", "parallel_tool_calls"))


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(ModelError, match="there is no setting 'temprature'; local knows temperature, top_p"):
        body(model_request(settings={"temprature": 1}))


@pytest.mark.parametrize("key", ["messages", "tools"])
def test_extra_cannot_replace_the_conversation(key: str) -> None:
    with pytest.raises(ModelError, match=f"extra cannot set '{key}'"):
        body(model_request(settings={"extra": {key: []}}))


def test_extra_is_merged_into_objects_and_replaces_the_rest() -> None:
    found = body(model_request(settings={"temperature": 1, "extra": {"temperature": 0, "stream_options": {"x": 1}}}))
    assert (found["temperature"], found["stream_options"]) == (0, {"include_usage": True, "x": 1})


def test_usage_need_not_be_asked_for() -> None:
    assert "stream_options" not in body(model_request(), stream_usage=False)


@pytest.mark.parametrize(
    "client",
    [OpenAI("gpt-4o", api_key="k"), OpenAI("gpt-5", base_url="http://localhost:1/v1")],
    ids=lambda client: client.name,
)
def test_openai_itself_has_another_name_for_max_tokens(client: OpenAI) -> None:
    found = json.loads(client.body(model_request(settings={"max_tokens": 7})))
    assert found["max_completion_tokens"] == 7
    assert "max_tokens" not in found


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "properties": {"a": CLOSED}}, True),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "string", "default": "x"}}}, False),
        ({**CLOSED, "$defs": {"b": {"anyOf": [{"type": "object", "properties": {}}]}}}, False),
        ({"type": "array"}, False),
    ],
)
def test_a_schema_is_strict_where_possible(schema: dict[str, Any], strict: bool) -> None:
    found = body(model_request(settings={"response_format": {**schema, "title": "My answer"}}))["response_format"]
    assert found["type"] == "json_schema"
    assert found["json_schema"] == {"name": "My_answer", "schema": {**schema, "title": "My answer"}, "strict": strict}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_object"},
        {"type": "text"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}},
    ],
)
def test_a_native_format_is_unchanged(form: dict[str, Any]) -> None:
    assert body(model_request(settings={"response_format": form}))["response_format"] == form


def _drain(value: Any) -> None:
    """The vendor's types hold iterables, which pydantic checks when they are read."""
    if isinstance(value, dict):
        for item in value.values():
            _drain(item)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            _drain(item)


def test_the_vendor_types_accept_requests() -> None:
    params = pytest.importorskip("openai.types.chat.completion_create_params")
    shot = Message("tool", (TextPart("done"), ImagePart(data=PNG)), tool_call_id="c1", name="look")
    request = model_request(
        user([TextPart("see"), ImagePart(data=PNG), FilePart(data=PDF, name="a.pdf")]),
        assistant("", ToolCall("c1", "look", {"city": "Bonn"})),
        shot,
        system="be kind",
        tools=(look,),
        settings={"tool_choice": "look", "response_format": CLOSED, "max_tokens": 5, "stop": "x", "temperature": 0},
    )
    accepted = TypeAdapter(params.CompletionCreateParamsStreaming)
    _drain(accepted.validate_python(body(request)))


# -- replies --------------------------------------------------------------------------------------------------------


async def stream_reply(server: FakeServer, model: OpenAI, data: bytes, **options: Any) -> list[Delta]:
    server.say(data, **options)
    return await stream_deltas(model)


async def test_text_usage_and_finish_reason(server: FakeServer, model: OpenAI) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    pieces = [chunk(role="assistant", content=""), chunk(content="Hel"), chunk("length", content="lo")]
    found = await stream_reply(server, model, sse_body(*pieces, {"choices": [], "usage": usage}))
    assert found == [TextDelta("Hel"), TextDelta("lo"), Usage(10, 5, 8, 3), Finish("length")]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "prompt_cache_hit_tokens": 1}, Usage(3, 2, 1)),
        ({"prompt_tokens": None, "completion_tokens": "2", "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": 3}, Usage()),
    ],
)
async def test_usage_in_other_dialects(
    server: FakeServer, model: OpenAI, usage: dict[str, Any], expected: Usage
) -> None:
    found = await stream_reply(server, model, sse_body({**chunk("stop", content="hi"), "usage": usage}))
    assert found == [TextDelta("hi"), expected, Finish("stop")]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning(server: FakeServer, model: OpenAI, key: str) -> None:
    pieces = [chunk(**{key: "2+2"}), chunk(**{key: " is 4", "content": None}), chunk("stop", content="4")]
    assert await stream_reply(server, model, sse_body(*pieces)) == [
        ReasoningDelta("2+2", provider="local"),
        ReasoningDelta(" is 4", provider="local"),
        TextDelta("4"),
        Finish("stop"),
    ]


async def test_a_refusal_and_content_in_parts_are_text(server: FakeServer, model: OpenAI) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "b"}]
    found = await stream_reply(server, model, sse_body(chunk(refusal="No. "), chunk("stop", content=parts)))
    assert found == [TextDelta("No. "), TextDelta("b"), Finish("stop")]


HI = [TextDelta("hi"), Finish("stop")]


@pytest.mark.parametrize(
    "data",
    [
        sse_body(chunk(content="hi"), chunk("stop")).replace(b"\n", b"\r\n"),
        b": keep-alive\n\nevent: message\nid: 3\n"
        + sse_body(chunk(content="hi"), end=": more\n\n")
        + sse_body(chunk("stop")),
        sse_body(chunk(content="hi"), chunk("stop"), end=""),
        sse_body(chunk(content="hi"), end="data: [DONE]\n\n"),
        sse_body(chunk(content="hi"), chunk("stop"), end="data: [DONE]"),
        sse_body(chunk(content="hi"), chunk("stop"), end="data:[DONE] \n\n" + "data: {}\n\n"),
        sse_body({"choices": [], "prompt_filter_results": []}, chunk(content="hi"), chunk("stop"), {"choices": None}),
        sse_body({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": None}),
        sse_body({"choices": [{"index": 1, "delta": {"content": "no"}}, *chunk("stop", content="hi")["choices"]]}),
        sse_body(chunk(content="hi", tool_calls=None, role="assistant"), {"choices": [{"finish_reason": "stop"}]}),
        sse_body(chunk(content="hi"), {"choices": [{"delta": None, "finish_reason": "stop"}]}, {"id": "x"}),
    ],
    ids=[
        "CRLF",
        "comments and fields",
        "no DONE",
        "no finish_reason",
        "no last line",
        "talk after DONE",
        "empty choices",
        "no index",
        "a second choice",
        "no delta",
        "null delta",
    ],
)
async def test_dialects(server: FakeServer, model: OpenAI, data: bytes) -> None:
    assert await stream_reply(server, model, data) == HI


async def test_a_very_long_line(server: FakeServer, model: OpenAI) -> None:
    long = "x" * 3_000_000
    assert await stream_reply(server, model, sse_body(chunk("stop", content=long))) == [TextDelta(long), Finish("stop")]


async def test_an_answer_that_is_not_streamed(server: FakeServer, model: OpenAI) -> None:
    message = {"role": "assistant", "content": "hi", "reasoning": "hm", "tool_calls": [call("{}", "look", id="c1")]}
    whole = {"object": "chat.completion", "choices": [{"message": message}], "usage": {"prompt_tokens": 1}}
    found = await stream_reply(server, model, json.dumps(whole, indent=2).encode(), content_type="application/json")
    assert found == [
        ReasoningDelta("hm", provider="local"),
        TextDelta("hi"),
        CallStart(0, "c1", "look"),
        CallArgs(0, "{}"),
        Usage(1),
        Finish("tool_calls"),
    ]


BOTH = [("a", "look", {"x": 1}), ("b", "look", {"y": 2})]


@pytest.mark.parametrize(
    "pieces",
    [
        [
            calls(call("", "look", index=0, id="a"), call("", "look", index=1, id="b")),
            calls(call('{"y"', index=1), call('{"x"', index=0)),
            calls(call(": 1}", index=0), call(": 2}", index=1)),
        ],
        [
            calls(call('{"y"', "look", index=1, id="b")),
            calls(call('{"x"', "look", index=0, id="a")),
            calls(call(": 2}", index=1), call(": 1}", index=0)),
        ],
        [
            calls(call('{"x"', "look", index=0, id="a")),
            calls(call(": 1}", "look", index=0, id="a")),
            calls(call('{"y": 2}', "look", index=1, id="b")),
        ],
        [calls(call('{"x"', "look", id="a")), calls(call(": 1}")), calls(call('{"y": 2}', "look", id="b"))],
        [calls(call({"x": 1}, "look", id="a"), call({"y": 2}, "look", id="b"))],
        [calls(call('{"x": 1}', "look", index=0, id="a")), calls(call('{"y": 2}', "look", index=0, id="b"))],
        [
            calls(call('{"x"', "look", index=0, id="a"), call('{"y"', "look", index=0, id="b")),
            calls(call(": 1}", index=0, id="a"), call(": 2}", index=0, id="b")),
        ],
        [
            calls(call('{"x"', "look", id="a"), call('{"y"', "look", id="b")),
            calls(call(": 1}", id="a"), call(": 2}", id="b")),
        ],
    ],
    ids=[
        "interleaved",
        "the second first",
        "all repeated",
        "no index",
        "objects",
        "every index 0",
        "every index 0, interleaved",
        "no index, interleaved",
    ],
)
async def test_parallel_calls_are_separated(server: FakeServer, model: OpenAI, pieces: list[Any]) -> None:
    reply = Reply()
    for delta in await stream_reply(server, model, sse_body(*pieces, chunk("tool_calls"))):
        reply.feed(delta)
    assert [(call.id, call.name, call.args) for call in reply.message().tool_calls] == BOTH
    assert reply.finish == "tool_calls"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([call('{"x": 1}', "look"), call('{"y": 2}', "find")], [("look", {"x": 1}), ("find", {"y": 2})]),
        ([call('{"x": 1}', "look"), call('{"y": 2}', "look")], [("look", {"x": 1}), ("look", {"y": 2})]),
        ([call('{"x"', "look"), call(": 1}", "look")], [("look", {"x": 1})]),
        ([call('{"x"', "look"), call(": 1}")], [("look", {"x": 1})]),
        ([call("", "look"), call('{"x": 1}', "look")], [("look", {"x": 1})]),
        ([call('{"x"', "look", index=0), call(": 1}", "look", index=0)], [("look", {"x": 1})]),
        ([call('{"x"', "look", index=0), call(": 1}", index=0, id="late")], [("look", {"x": 1})]),
        ([call({"x": 1}, "look", index="0")], [("look", {"x": 1})]),
        ([call(None, "look", id=7)], [("look", {})]),
        ([call({}, "look", id="", index=None)], [("look", {})]),
    ],
)
async def test_calls_without_ids(server: FakeServer, model: OpenAI, pieces: list[Any], expected: list[Any]) -> None:
    reply = Reply()
    for delta in await stream_reply(server, model, sse_body(*map(calls, pieces), chunk("tool_calls"))):
        reply.feed(delta)
    made = reply.message().tool_calls
    assert [(call.name, call.args) for call in made] == expected
    assert all(call.id and not call.invalid for call in made)


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call"])
async def test_a_reply_with_calls_finishes_with_tool_calls(server: FakeServer, model: OpenAI, reason: str) -> None:
    found = await stream_reply(server, model, sse_body(calls(call("{}", "look", index=0, id="a")), chunk(reason)))
    assert found[-1] == Finish("tool_calls")


@pytest.mark.parametrize("reason", ["length", "content_filter", "something else"])
async def test_other_finish_reasons_are_kept(server: FakeServer, model: OpenAI, reason: str) -> None:
    found = await stream_reply(server, model, sse_body(calls(call('{"x', "look", index=0, id="a")), chunk(reason)))
    assert found[-1] == Finish(reason)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "retryable", "sentence"),
    [
        ({"message": "too\n many", "code": 429}, 429, True, "too many"),
        ({"message": "bad", "code": "400", "type": "server_error"}, 400, False, "bad"),
        ({"message": "oops", "type": "InternalServerError"}, None, True, "oops"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, None, True, "slow down"),
        ({"message": "pay", "code": "insufficient_quota"}, None, False, "pay"),
        ("all wrong", None, False, "all wrong"),
        ("overloaded", None, True, "overloaded"),
        ({}, None, False, None),
        ([1], None, False, "[1]"),
    ],
)
async def test_an_error_in_the_middle(
    server: FakeServer, model: OpenAI, error: Any, status: int | None, retryable: bool, sentence: str | None
) -> None:
    server.say(sse_body(chunk(content="hi"), {"error": error}, chunk(content="more")))
    if sentence is None:  # an empty error is ignored, and the stream continues to its end
        assert (await stream_deltas(model))[-1] == Finish("stop")
        return
    with pytest.raises(ModelError) as failed:
        await stream_deltas(model)
    assert str(failed.value) == f"local broke off its answer: {sentence}"
    assert (failed.value.status, failed.value.retryable) == (status, retryable)


async def test_an_error_that_is_the_event_itself(server: FakeServer, model: OpenAI) -> None:
    server.say(sse_body({"object": "error", "message": "too long", "code": 400}))
    with pytest.raises(ModelError, match="local broke off its answer: too long"):
        await stream_deltas(model)


async def test_an_error_after_the_end_counts(server: FakeServer, model: OpenAI) -> None:
    server.say(sse_body(chunk("stop", content="hi"), {"error": "withheld"}))
    with pytest.raises(ModelError, match="withheld"):
        await stream_deltas(model)


@pytest.mark.parametrize(
    "event", [b"{", b"[]", b"null", b'"x"', b"3", b"\xff", b'{"choices":{"a":1}}', b'{"choices":[3]}']
)
async def test_an_event_that_cannot_be_read(server: FakeServer, model: OpenAI, event: bytes) -> None:
    server.say(sse_body(chunk(content="hi"), end="") + b"data: " + event + b"\n\n")
    with pytest.raises(ModelError, match="local sent an event that cannot be read") as failed:
        await stream_deltas(model)
    assert failed.value.retryable


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_breaks_off(server: FakeServer, model: OpenAI, cut: bool) -> None:
    server.say(sse_body(chunk(content="hi"), end=""), cut=cut)
    with pytest.raises(ModelError, match="local.* broke off") as failed:
        await stream_deltas(model)
    assert failed.value.retryable


@pytest.mark.parametrize(
    "data", [sse_body(chunk("stop", content="hi"), end=""), sse_body(chunk("stop", content="hi"), end="data: {")]
)
@pytest.mark.parametrize("cut", [True, False])
async def test_a_disconnect_after_the_end_is_ignored(server: FakeServer, model: OpenAI, data: bytes, cut: bool) -> None:
    assert await stream_reply(server, model, data, cut=cut) == HI


async def test_an_answer_of_nothing_is_an_error(server: FakeServer, model: OpenAI) -> None:
    server.say(b"")
    with pytest.raises(ModelError, match="local broke off before it had finished"):
        await stream_deltas(model)


async def test_a_connection_serves_many_questions(server: FakeServer, model: OpenAI) -> None:
    for _ in range(5):
        assert await stream_reply(server, model, sse_body(chunk("stop", content="hi"))) == HI
    assert len(server.peers) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "a", "stop", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices delta message content reasoning tool_calls function name arguments index id "
                "finish_reason usage prompt_tokens error code object text".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": JSON}, optional={"index": JSON}), max_size=2) | JSON},
    optional={"usage": JSON, "error": JSON},
)


@given(st.lists(JSON | CHUNKS, max_size=4))
def test_any_response_is_a_reply_or_a_model_error(events: list[Any]) -> None:
    reply, completion = Reply(), ChatReplyParser(ModelServer("local", "http://localhost/"))
    try:
        for delta in completion.deltas([json.dumps(event).encode() for event in events]):
            reply.feed(delta)
        reply.feed(completion.end())
        message = reply.message()
    except ModelError:
        return
    assert Message.from_json(message.to_json()) == message


def test_a_tool_is_forgotten_with_its_agent() -> None:
    client, short = OpenAI("m", base_url="http://localhost:1/v1"), Tool("short", "", print, foreign={"type": "object"})
    client.body(model_request(tools=(short,)))
    kept = ref(short)
    del short
    collect()
    assert kept() is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"data: " + b"x" * 3000, "text/event-stream"),
        (b"data: xxxx\n" * 300, "text/event-stream"),
        (b" " * 3000, "application/json"),
    ],
    ids=["a line", "an event", "a document"],
)
async def test_an_endless_stream_is_bounded(
    server: FakeServer, model: OpenAI, monkeypatch: pytest.MonkeyPatch, data: bytes, kind: str
) -> None:
    monkeypatch.setattr("wick.models._sse.SSE_LINE_BYTES", 2000)
    server.say(data, content_type=kind)
    with pytest.raises(ModelError, match="the model's server sent an? .* longer than 2,000 bytes"):
        await stream_deltas(model)


async def test_an_error_beside_a_whole_answer_is_an_error(server: FakeServer, model: OpenAI) -> None:
    answer = {"choices": [{"message": {"content": "hi"}}], "error": {"message": "overloaded", "code": 503}}
    server.say(json.dumps(answer).encode(), content_type="application/json")
    with pytest.raises(ModelError, match="broke off its answer: overloaded"):
        await stream_deltas(model)


@pytest.mark.parametrize("settings", [{"response_format": "json"}, {"extra": [1]}, {"extra": "x"}])
def test_a_setting_that_is_no_object_is_refused_in_a_sentence(settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="is an object"):
        body(model_request(user("hi"), settings=settings))


# -- calls in the old form, and refusals -----------------------------------------------------------------------------


async def _finished(*pieces: dict[str, Any], finish: str = "stop") -> list[Delta]:
    reply = ChatReplyParser(ModelServer("openai", "http://127.0.0.1:1/v1"))
    rows = [{"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces]
    rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return [*reply.deltas([json.dumps(row).encode() for row in rows]), reply.end()]


async def test_a_call_in_the_old_form_is_served() -> None:
    pieces = [{"function_call": {"name": "pay", "arguments": ""}}, {"function_call": {"arguments": '{"amount": 1}'}}]
    expected = [CallStart(0, "", "pay"), CallArgs(0, '{"amount": 1}'), Finish("tool_calls")]
    assert await _finished(*pieces, finish="function_call") == expected
    both = [{**piece, "tool_calls": [{"index": 0, "id": "c", "function": piece["function_call"]}]} for piece in pieces]
    assert await _finished(*both) == [CallStart(0, "c", "pay"), *expected[1:]]


@pytest.mark.parametrize(
    ("piece", "finish", "reason"),
    [
        ({"refusal": "No."}, "stop", "stop"),
        ({"refusal": "No.", "function_call": {"name": "pay", "arguments": "{}"}}, "stop", "content_filter"),
        ({"refusal": "No.", "tool_calls": [{"index": 0, "function": {"name": "pay"}}]}, "tool_calls", "content_filter"),
        ({"content": "x"}, "content_filter", "content_filter"),
        ({"content": "x"}, "length", "length"),
    ],
)
async def test_why_a_reply_ended(piece: dict[str, Any], finish: str, reason: str) -> None:
    assert (await _finished(piece, finish=finish))[-1] == Finish(reason)


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"id": "chatcmpl-1", "model": "gpt-4o-2024-08-06"}, ("chatcmpl-1", "gpt-4o-2024-08-06")),
        ({"id": 7, "model": "two words"}, ("", "")),
        ({}, ("", "")),
    ],
)
async def test_the_finish_has_the_id_and_the_model_of_the_reply(
    server: FakeServer, model: OpenAI, fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    server.say(sse_body(chunk(content="hi") | fields, chunk("stop")))
    end = (await stream_deltas(model))[-1]
    assert isinstance(end, Finish)
    assert (end.reason, end.response_id, end.response_model) == ("stop", *expected)
