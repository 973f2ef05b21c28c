"""The client of OpenAI's Responses API, against a real server on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fake_http_server import FakeServer, model_request, run_fake_server, sse_body, stream_deltas
from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, ImagePart, Message, Reasoning, TextPart, ToolCall, assistant, tool_message, user
from wick.models._http import ModelServer
from wick.models.openai_responses import OpenAIResponses, _Response
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta, Usage
from wick.tools import tool

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQ="
PROVIDER = "openai-responses"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with run_fake_server() as told:
        yield told


@pytest.fixture
def model(server: FakeServer) -> OpenAIResponses:
    return OpenAIResponses("gpt-5", base_url=server.url, api_key="k", name="here")


@tool
def look(city: str, days: int = 1) -> str:
    """The weather."""
    return ""


def body(request: Request, model: str = "gpt-5") -> dict[str, Any]:
    client = OpenAIResponses(model, base_url="http://localhost:1/v1", name="here")
    data: dict[str, Any] = json.loads(client.body(request))
    return data


def sent_input(*messages: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(model_request(*messages))["input"]
    return found


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 1, **fields}


def item(state: str, place: int, **fields: Any) -> dict[str, Any]:
    return event(f"output_item.{state}", output_index=place, item=fields)


def text(piece: Any, place: int = 0) -> dict[str, Any]:
    return event("output_text.delta", output_index=place, content_index=0, item_id="msg_1", delta=piece)


def args(piece: Any, place: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=place, item_id="fc_1", delta=piece)


def completed(kind: str = "completed", **fields: Any) -> dict[str, Any]:
    return event(kind, response={"object": "response", "status": kind, "output": [], **fields})


async def stream_reply(server: FakeServer, model: OpenAIResponses, *events: Any, end: str = "") -> list[Delta]:
    server.say(sse_body(*events, end=end))
    return await stream_deltas(model)


# -- requests -------------------------------------------------------------------------------------------------------


def test_its_name_is_the_provider_and_the_model() -> None:
    assert OpenAIResponses("gpt-5", api_key="sk-secret").name == "openai-responses:gpt-5"
    assert "sk-secret" not in repr(OpenAIResponses("gpt-5", api_key="sk-secret"))


def test_a_missing_key_or_name_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        OpenAIResponses("gpt-5")
    with pytest.raises(ConfigError, match="name the model"):
        OpenAIResponses("", api_key="k")


async def test_a_request_body(server: FakeServer, model: OpenAIResponses) -> None:
    server.say(sse_body(completed(), end=""))
    await stream_deltas(model, model_request(user("hello"), system="be kind", tools=(look,)))
    assert server.paths == ["/v1/responses"]
    assert server.headers[0]["authorization"] == "Bearer k"
    assert server.bodies == [
        {
            "model": "gpt-5",
            "stream": True,
            "store": False,
            "instructions": "be kind",
            "include": ["reasoning.encrypted_content"],
            "input": [{"role": "user", "content": "hello"}],
            "tools": [{"type": "function", **look.schema, "strict": False}],
        }
    ]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("o4-mini", True),
        ("gpt-5.2-codex", True),
        ("gpt-10", True),
        ("ft:o4-mini:me", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("chatgpt-4o-latest", False),
        ("something-new", True),
    ],
)
def test_models_without_reasoning_get_no_reasoning_options(name: str, reasons: bool) -> None:
    assert ("include" in body(model_request(), name)) is reasons


def test_a_conversation_with_tools_pictures_and_files() -> None:
    picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"}
    request = [
        user([TextPart("see"), ImagePart(data=PNG), FilePart(data=PDF), FilePart(url="https://x.org/a.pdf")]),
        assistant(
            "I look.", ToolCall("c1", "look", {"city": "Bonn"}), ToolCall("c2", "look", {}, raw="{", invalid="x")
        ),
        Message("tool", (TextPart("rain"), ImagePart(data=PNG)), tool_call_id="c1", name="look"),
        tool_message("c2", "look", "it failed"),
        assistant("It rains."),
    ]
    assert sent_input(*request) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                picture,
                {"type": "input_file", "filename": "file", "file_data": f"data:application/pdf;base64,{PDF}"},
                {"type": "input_file", "file_url": "https://x.org/a.pdf"},
            ],
        },
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city": "Bonn"}'},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rain"}, picture]},
        {"type": "function_call_output", "call_id": "c2", "output": "it failed"},
        {"role": "assistant", "content": "It rains."},
    ]


def test_a_message_is_encoded_once() -> None:
    request = model_request(user("hello"))
    body(request)
    request.messages[0].cache["openai-responses"] = b'{"kept":1}'
    assert body(request)["input"] == [{"kept": 1}]


def thought(place: int, text: str = "") -> Reasoning:
    return Reasoning(text, f"{place} rs_{place} gAAA{place}=", PROVIDER)


def kinds(message: Message) -> list[str]:
    return [item.get("id") or item.get("call_id") or item["role"] for item in sent_input(message)]


def test_reasoning_is_replayed_in_place() -> None:
    calls = ToolCall("c1", "look"), ToolCall("c2", "look")
    assert kinds(assistant("", *calls, reasoning=[thought(0), thought(2)])) == ["rs_0", "c1", "rs_2", "c2"]
    assert kinds(assistant("hm", *calls, reasoning=[thought(0), thought(3)])) == [
        "rs_0",
        "assistant",
        "c1",
        "rs_3",
        "c2",
    ]
    assert sent_input(assistant("4", reasoning=[thought(0, "2+2")]))[0] == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "2+2"}],
        "encrypted_content": "gAAA0=",
    }


def test_reasoning_is_never_last() -> None:
    assert kinds(assistant("4", reasoning=[thought(0), thought(7)])) == ["rs_0", "rs_7", "assistant"]
    assert kinds(assistant("", reasoning=[thought(0)])) == ["rs_0", "assistant"]


@pytest.mark.parametrize(
    "foreign",
    [Reasoning("hm", "0 rs_0 abc", "anthropic"), Reasoning("hm", "", PROVIDER), Reasoning("hm", "x", PROVIDER)],
)
def test_reasoning_of_other_models_is_not_sent(foreign: Reasoning) -> None:
    assert kinds(assistant("4", reasoning=[foreign])) == ["assistant"]


def test_settings() -> None:
    chosen = {"max_tokens": 7, "temperature": 0, "top_p": 1, "parallel_tool_calls": False, "tool_choice": "look"}
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    extra = {"text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}}
    found = body(model_request(tools=(look,), settings={**chosen, "response_format": schema, "extra": extra}))
    assert found["max_output_tokens"] == 7
    assert (found["temperature"], found["top_p"], found["parallel_tool_calls"]) == (0, 1, False)
    assert found["tool_choice"] == {"type": "function", "name": "look"}
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    assert found["text"] == {"format": form, "verbosity": "low"}
    assert found["reasoning"] == {"summary": "auto"}
    assert found.keys().isdisjoint(("max_tokens", "response_format"))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
            {"type": "json_schema", "name": "x", "schema": {}},
        ),
    ],
)
def test_a_format_in_the_words_of_chat_completions(form: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body(model_request(settings={"response_format": form}))["text"] == {"format": expected}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"stop": ["x"]}, "here has no setting 'stop'; leave it out, or use 'openai:gpt-5'"),
        ({"topp": 1}, "there is no setting 'topp'"),
        ({"extra": {"input": []}}, "extra cannot set 'input'"),
    ],
)
def test_unsupported_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        body(model_request(settings=settings))


def _drain(value: Any) -> None:
    """The vendor's types hold iterables, which pydantic checks when they are read."""
    if isinstance(value, dict):
        for item in value.values():
            _drain(item)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            _drain(item)


def test_the_vendor_types_accept_requests() -> None:
    params = pytest.importorskip("openai.types.responses.response_create_params")
    request = model_request(
        user([TextPart("see"), ImagePart(data=PNG), FilePart(data=PDF, name="a.pdf")]),
        assistant("I look.", ToolCall("c1", "look", {"city": "Bonn"}), reasoning=[thought(0, "hm")]),
        Message("tool", (TextPart("rain"), ImagePart(data=PNG)), tool_call_id="c1", name="look"),
        system="be kind",
        tools=(look,),
        settings={"tool_choice": "look", "response_format": {"type": "object"}, "max_tokens": 5, "temperature": 0},
    )
    accepted = TypeAdapter(params.ResponseCreateParamsStreaming)
    _drain(accepted.validate_python(body(request)))


# -- replies --------------------------------------------------------------------------------------------------------


async def test_thoughts_text_and_usage(server: FakeServer, model: OpenAIResponses) -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    found = await stream_reply(
        server,
        model,
        event("created", response={"object": "response", "status": "in_progress"}),
        item("added", 0, type="reasoning", id="rs_0", encrypted_content="gAA"),
        event("reasoning_summary_part.added", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="2+2"),
        event("reasoning_summary_part.added", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="is 4"),
        item("done", 0, type="reasoning", id="rs_0", encrypted_content="gAAAA=", summary=[]),
        item("added", 1, type="message", id="msg_1", role="assistant", content=[]),
        text("It is", 1),
        text(" 4", 1),
        item("done", 1, type="message", id="msg_1", content=[{"type": "output_text", "text": "It is 4"}]),
        completed(usage=usage),
    )
    assert found == [
        ReasoningDelta("2+2", provider=PROVIDER),
        ReasoningDelta("\n\n", provider=PROVIDER),
        ReasoningDelta("is 4", provider=PROVIDER),
        ReasoningDelta("", "0 rs_0 gAAAA=", PROVIDER),
        TextDelta("It is"),
        TextDelta(" 4"),
        Usage(10, 5, 8, 3),
        Finish("stop"),
    ]


async def test_a_thought_survives_the_round_trip(server: FakeServer, model: OpenAIResponses) -> None:
    reply = Reply()
    for delta in await stream_reply(
        server,
        model,
        item("done", 0, type="reasoning", id="rs_0", encrypted_content="gAAAA=", summary=[]),
        item("done", 1, type="function_call", id="fc_1", call_id="c1", name="look", arguments='{"city": "Bonn"}'),
        completed(),
    ):
        reply.feed(delta)
    assert sent_input(Message.from_json(reply.message().to_json())) == [
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "gAAAA="},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"city": "Bonn"}'},
    ]


async def test_parallel_calls_are_separated(server: FakeServer, model: OpenAIResponses) -> None:
    found = await stream_reply(
        server,
        model,
        item("added", 1, type="function_call", id="fc_1", call_id="c1", name="look", arguments=""),
        item("added", 2, type="function_call", id="fc_2", call_id="c2", name="look", arguments=""),
        args('{"y"', 2),
        args('{"x"', 1),
        args(":1}", 1),
        args(":2}", 2),
        event("function_call_arguments.done", output_index=1, arguments='{"x":1}'),
        item("done", 1, type="function_call", id="fc_1", call_id="c1", name="look", arguments='{"x":1}'),
        item("done", 2, type="function_call", id="fc_2", call_id="c2", name="look", arguments='{"y":2}'),
        completed(),
    )
    assert found == [
        CallStart(1, "c1", "look"),
        CallStart(2, "c2", "look"),
        CallArgs(2, '{"y"'),
        CallArgs(1, '{"x"'),
        CallArgs(1, ":1}"),
        CallArgs(2, ":2}"),
        Finish("tool_calls"),
    ]


@pytest.mark.parametrize("done", ["arguments", "item", "both"])
async def test_arguments_in_one_piece(server: FakeServer, model: OpenAIResponses, done: str) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
    whole = event("function_call_arguments.done", output_index=0, arguments="{}")
    ends = {"arguments": [whole], "item": [item("done", 0, **call, arguments="{}")]}
    last = ends.get(done) or [*ends["arguments"], *ends["item"]]
    found = await stream_reply(server, model, item("added", 0, **call), *last, completed())
    assert found == [CallStart(0, "c1", "look"), CallArgs(0, "{}"), Finish("tool_calls")]


async def test_two_messages_and_a_refusal_are_separated(server: FakeServer, model: OpenAIResponses) -> None:
    refusal = event("refusal.delta", output_index=1, delta="No.")
    found = await stream_reply(
        server,
        model,
        item("added", 0, type="message"),
        text("Well."),
        item("added", 1, type="message"),
        refusal,
        completed(),
    )
    assert found == [TextDelta("Well."), TextDelta("\n\n"), TextDelta("No."), Finish("stop")]


@pytest.mark.parametrize(
    ("cut", "reason"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("steered", "steered")]
)
async def test_the_reason_of_a_truncation(server: FakeServer, model: OpenAIResponses, cut: str, reason: str) -> None:
    found = await stream_reply(server, model, text("hi"), completed("incomplete", incomplete_details={"reason": cut}))
    assert found == [TextDelta("hi"), Finish(reason)]


async def test_an_answer_that_is_not_streamed(server: FakeServer, model: OpenAIResponses) -> None:
    output = [
        {
            "type": "reasoning",
            "id": "rs_0",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "g",
        },
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}, {"type": "refusal", "refusal": "!"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    ]
    whole = {"object": "response", "status": "completed", "error": None, "output": output, "usage": {"input_tokens": 1}}
    server.say(json.dumps(whole).encode(), content_type="application/json")
    assert await stream_deltas(model) == [
        ReasoningDelta("hm", provider=PROVIDER),
        ReasoningDelta("", "0 rs_0 g", PROVIDER),
        TextDelta("hi!"),
        CallStart(2, "c1", "look"),
        CallArgs(2, "{}"),
        Usage(1),
        Finish("content_filter"),
    ]


async def test_unknown_events_and_a_done_line_are_nothing(server: FakeServer, model: OpenAIResponses) -> None:
    strange: Any = event("web_search_call.searching", output_index=0), item("added", 3, type="web_search_call"), {}
    assert await stream_reply(server, model, *strange, text("hi"), completed(), end="data: [DONE]\n\n") == [
        TextDelta("hi"),
        Finish("stop"),
    ]


async def test_a_connection_serves_many_questions(server: FakeServer, model: OpenAIResponses) -> None:
    for _ in range(5):
        await stream_reply(server, model, text("hi"), completed())
    assert len(server.peers) == 1


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "retryable", "sentence"),
    [
        (completed("failed", error={"code": "server_error", "message": "oops"}), True, "oops"),
        (completed("failed", error={"code": "invalid_prompt", "message": "no"}), False, "no"),
        (completed("failed", error=None), False, "no reason was given"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, True, "slow"),
        ({"type": "error", "error": {"type": "server_error", "message": "nested"}}, True, "nested"),
        ({"error": {"code": 503, "message": "a proxy's"}}, True, "a proxy's"),
    ],
)
async def test_a_failure_is_a_sentence(
    server: FakeServer, model: OpenAIResponses, failure: dict[str, Any], retryable: bool, sentence: str
) -> None:
    with pytest.raises(ModelError) as failed:
        await stream_reply(server, model, text("hi"), failure)
    assert str(failed.value) == f"here broke off its answer: {sentence}"
    assert failed.value.retryable is retryable


@pytest.mark.parametrize("end", ["", "data: [DONE]\n\n"])
async def test_a_stream_that_breaks_off(server: FakeServer, model: OpenAIResponses, end: str) -> None:
    with pytest.raises(ModelError, match="here broke off before it had finished") as failed:
        await stream_reply(server, model, text("hi"), end=end)
    assert failed.value.retryable


@pytest.mark.parametrize(
    "strange",
    [[], 3, text(3), args("{}", "x"), item("added", 0), event("completed"), item("done", 0, type="function_call")],
)
async def test_an_event_that_cannot_be_read(server: FakeServer, model: OpenAIResponses, strange: Any) -> None:
    with pytest.raises(ModelError, match="here sent an event that cannot be read"):
        await stream_reply(server, model, text("hi"), strange, completed())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from(["", "a", "function_call", "message", "reasoning"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                "type id call_id name arguments content summary encrypted_content error usage text".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
KINDS = (
    "output_text.delta",
    "refusal.delta",
    "reasoning_summary_text.delta",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "output_item.added",
    "output_item.done",
    "completed",
    "incomplete",
    "failed",
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={"type": st.sampled_from([f"response.{kind}" for kind in KINDS]), "object": st.just("response")}
    | dict.fromkeys("delta output_index item response arguments output object".split(), JSON),
)


@given(st.lists(JSON | EVENTS, max_size=5))
def test_any_response_is_a_reply_or_a_model_error(events: list[Any]) -> None:
    reply, response = Reply(), _Response(ModelServer("here", "http://localhost/"))
    try:
        for delta in response.deltas([json.dumps(event).encode() for event in events]):
            reply.feed(delta)
        message = reply.message()
    except ModelError:
        return
    assert Message.from_json(message.to_json()) == message


async def test_the_finish_has_the_id_and_the_model_of_the_response(server: FakeServer, model: OpenAIResponses) -> None:
    end = (await stream_reply(server, model, text("hi"), completed(id="resp_1", model="gpt-5-2025-08-07")))[-1]
    assert isinstance(end, Finish)
    assert (end.response_id, end.response_model) == ("resp_1", "gpt-5-2025-08-07")
