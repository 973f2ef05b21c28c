"""The client for Gemini: requests, replies, signatures, keys and schemas."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, Field

from wick import ToolCall, assistant, system, tool, user
from wick.errors import ConfigError, ModelError
from wick.messages import AudioPart, FilePart, ImagePart, Message, Reasoning, TextPart, tool_message
from wick.models import resolve
from wick.models.google import Google, _encode_tool, convert_schema
from wick.models.google_replies import GeminiReply
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Finish, ReasoningDelta, Request, TextDelta, Usage

HOME = "https://generativelanguage.googleapis.com/v1beta/models/"


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def google(model: str = "gemini-3-pro", **options: Any) -> Google:
    return Google(model, api_key="k", **options)


def body(*messages: Message, model: Google | None = None, **options: Any) -> Any:
    return json.loads((model or google()).body(Request(messages or (user("hi"),), **options)))


# -- keys and addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_the_key_of_the_environment_is_sent_to_google_alone(env: pytest.MonkeyPatch, variable: str) -> None:
    env.setenv(variable, "sk-goog")
    model: Any = resolve("google:gemini-2.5-flash")
    assert type(model) is Google and model.name == "google:gemini-2.5-flash"
    assert model.server.url == f"{HOME}gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert model.server.headers["x-goog-api-key"] == "sk-goog" and "sk-goog" not in repr(model) + repr(model.server)
    elsewhere: Any = resolve({"provider": "google", "model": "m", "base_url": "https://elsewhere.example"})
    assert "x-goog-api-key" not in elsewhere.server.headers
    env.setenv("GOOGLE_GEMINI_BASE_URL", "http://gate:1/v1")
    gate: Any = resolve("google:m")
    assert gate.server.url == "http://gate:1/v1/models/m:streamGenerateContent?alt=sse"
    assert gate.server.headers["x-goog-api-key"] == "sk-goog"


def test_a_model_cannot_change_the_path() -> None:
    for model in ("../m", "tunedModels/../x", "models//m", "models/.", ".."):
        with pytest.raises(ConfigError, match="the model of Google .* must not be empty, '.' or '..'"):
            google(model)
    end = ":streamGenerateContent?alt=sse"
    assert google("tunedModels/a?b#c").server.url == f"{HOME.removesuffix('models/')}tunedModels/a%3Fb%23c{end}"


def test_a_version_in_the_address_of_google_gets_the_key_too(env: pytest.MonkeyPatch) -> None:
    env.setenv("GEMINI_API_KEY", "sk-goog")
    model = Google("m", base_url="https://generativelanguage.googleapis.com/v1")
    assert model.server.url == "https://generativelanguage.googleapis.com/v1/models/m:streamGenerateContent?alt=sse"
    assert model.server.headers["x-goog-api-key"] == "sk-goog"
    for address in (
        "http://generativelanguage.googleapis.com",
        "https://generativelanguage.googleapis.com.evil.example",
    ):
        assert "x-goog-api-key" not in Google("m", base_url=address).server.headers


def test_a_missing_key_names_its_variables() -> None:
    with pytest.raises(ConfigError, match="Google needs a key: set GEMINI_API_KEY or GOOGLE_API_KEY, or give api_key"):
        resolve("google:gemini-2.5-flash")
    with pytest.raises(ConfigError, match="name the model of google, as in 'google:gemini-2.5-flash'"):
        resolve("google:")
    with pytest.raises(ConfigError, match="the base_url of Google must be like https://host/path"):
        resolve({"provider": "google", "model": "m", "base_url": "https://u:p@host"})
    with pytest.raises(ConfigError, match="thinking is a number of tokens"):
        google(thinking=-1)


# -- requests -------------------------------------------------------------------------------------------------------


@tool
async def add(a: int, b: int = 0) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def now() -> str:
    """Return the time."""
    return "noon"


def test_settings_and_tools() -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 99, "stop": "END", "tool_choice": "add"}
    settings["extra"] = {"generationConfig": {"topK": 7}, "safetySettings": []}
    asked = body(system="Be brief.", tools=(add, now), settings=settings, model=google(thinking=128))
    thinking = {"thinkingBudget": 128, "includeThoughts": True}
    assert asked["generationConfig"] == {
        "thinkingConfig": thinking, "temperature": 0.5, "topP": 0.9, "maxOutputTokens": 99, "stopSequences": ["END"],
        "topK": 7,
    }  # fmt: skip
    assert asked["safetySettings"] == []
    assert asked["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    assert asked["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    first, second = asked["tools"][0]["functionDeclarations"]
    assert first["parametersJsonSchema"]["properties"]["a"] == {"type": "integer"}
    assert first["parametersJsonSchema"]["required"] == ["a"]
    assert second == {"name": "now", "description": "Return the time."}  # the API refuses an object without keys
    with pytest.raises(ModelError, match="extra cannot set 'contents'"):
        body(settings={"extra": {"contents": []}})


def test_formats_of_replies() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}, "required": ["n"]}
    for form in (schema, {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}):
        config = body(settings={"response_format": form})["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        assert config["responseJsonSchema"]["properties"] == {"n": {"type": "integer"}}
    config = body(settings={"response_format": {"type": "json_object"}})["generationConfig"]
    assert config == {"responseMimeType": "application/json"}
    assert body(settings={"response_format": {"type": "text"}})["generationConfig"] == {}


class Item(BaseModel):
    """A recursive model with keywords that the API refuses."""

    name: str = Field(min_length=1, pattern="^a", description="A name.")
    price: float | None = Field(None, gt=0)
    kind: str = Field("x", json_schema_extra={"const": "x"})
    mixed: int = Field(0, json_schema_extra={"enum": [1, 2, None]})
    mail: str = Field("", json_schema_extra={"format": "email"})
    day: str = Field("", json_schema_extra={"format": "date"})
    parts: list[Item] = []
    counts: dict[str, int] = {}


def test_only_known_keywords_of_a_schema_are_sent() -> None:
    converted = convert_schema(Item.model_json_schema())
    found = converted["$defs"]["Item"]["properties"]
    assert converted["$ref"] == "#/$defs/Item"
    assert found["name"] == {"type": "string", "title": "Name", "description": "A name."}
    assert found["price"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert found["kind"]["enum"] == ["x"] and found["mixed"]["enum"] == [1, 2]
    assert "format" not in found["mail"] and found["day"]["format"] == "date"
    assert found["parts"]["items"] == {"$ref": "#/$defs/Item"}
    assert found["counts"]["additionalProperties"] == {"type": "integer"}
    both = convert_schema({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}], "title": "T"})
    assert both == {"type": "object", "properties": {"a": {"type": "string"}}, "title": "T"}


def test_parts_of_allof_are_merged() -> None:
    definitions = {
        "Base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "Loop": {"allOf": [{"$ref": "#/$defs/Loop"}], "properties": {"l": {"type": "string"}}},
    }
    more = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
    schema = {"$defs": definitions, "allOf": [{"$ref": "#/$defs/Base"}, {"$ref": "#/$defs/Loop"}, more]}
    converted = convert_schema({**schema, "properties": {"c": {"$ref": "#/$defs/Base"}}})
    assert "$ref" not in converted and converted["type"] == "object"
    assert converted["properties"] == {
        "a": {"type": "string"},
        "l": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"$ref": "#/$defs/Base"},
    }
    assert {*converted["required"]} == {"a", "b"} and converted["$defs"]["Loop"]["properties"] == {
        "l": {"type": "string"}
    }


@pytest.mark.parametrize("key", ["$ref", "anyOf", "oneOf", "allOf"])
def test_parameters_without_properties_at_the_top_are_sent(key: str) -> None:
    part = {"$ref": "#/$defs/Place"}
    definitions = {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}}
    schema = {"$defs": definitions, **(part if key == "$ref" else {key: [part]})}

    class Weather(NamedTuple):
        name: str = "weather"
        description: str = ""
        parameters: Any = schema

    declared = _encode_tool(Weather())
    assert "city" in json.dumps(declared["parametersJsonSchema"])
    assert "parametersJsonSchema" not in _encode_tool(Weather(parameters={"type": "object", "properties": {}}))


CALLS = assistant("Both.", ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "odd name!", {}))


def test_a_conversation() -> None:
    drawn = Message("tool", (TextPart("done"), ImagePart(data="iVBORw0K")), tool_call_id="c1", name="add")
    failed = Message("tool", "no such tool", tool_call_id="c2", name="odd name!", failed=True)
    asked = body(user("  "), user("go"), system("Briefly."), CALLS, drawn, failed, user("and?"))
    skip = "skip_thought_signature_validator"
    assert asked["systemInstruction"] == {"parts": [{"text": "Briefly."}]}
    assert asked["contents"] == [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Both."},
                {"functionCall": {"name": "add", "args": {"a": 1}, "id": "c1"}, "thoughtSignature": skip},
                {"functionCall": {"name": "odd_name_", "args": {}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "id": "c1", "response": {"output": "done"}}},
                {"functionResponse": {"name": "odd_name_", "id": "c2", "response": {"error": "no such tool"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"text": "What add returned for c1:"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}},
                {"text": "and?"},
            ],
        },
    ]


@pytest.mark.parametrize("name", ["models/gemini-2.5-flash", "publishers/google/models/gemini-1.5-pro"])
def test_an_older_model_is_recognized_in_a_path(name: str) -> None:
    sent = body(assistant("", ToolCall("c1", "look", {})), tool_message("c1", "look", "ok"), model=google(name))
    assert sent["contents"][0]["parts"] == [{"functionCall": {"name": "look", "args": {}}}]


def test_older_models_get_no_ids_and_no_dummy_signatures() -> None:
    result = (tool_message("c1", "add", "2"), tool_message("c2", "odd name!", "3"))
    older = json.dumps(body(user("go"), CALLS, *result, model=google("gemini-2.5-flash")))
    newer = json.dumps(body(user("go"), CALLS, *result))
    assert '"id"' not in older and "thoughtSignature" not in older
    assert newer.count('"id"') == 4


def test_media() -> None:
    parts = [
        AudioPart(data="UklGRiQ="),
        FilePart(data="JVBERi0=", name="a.pdf"),
        FilePart(data="YSxi", media_type="text/csv"),
        ImagePart(url="https://x.org/a.jpg?size=1"),
        FilePart(url="https://x.org/a.mp3"),
    ]
    assert body(user(parts))["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRiQ="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        {"text": "a,b"},
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x.org/a.jpg?size=1"}},
        {"fileData": {"mimeType": "audio/mpeg", "fileUri": "https://x.org/a.mp3"}},
    ]
    with pytest.raises(ModelError, match=r"not a.zip \(application/zip\); give its media_type, or its text"):
        body(user([FilePart(data="UEsD", media_type="application/zip", name="a.zip")]))


# -- replies --------------------------------------------------------------------------------------------------------


def read(*chunks: Any, model: Google | None = None) -> list[Any]:
    parser = GeminiReply((model or google()).server)
    deltas = [*parser.deltas([json.dumps(chunk).encode() for chunk in chunks])]
    return [*deltas, parser.end()]


def parts(*given: Any, **more: Any) -> Any:
    return {"candidates": [{"content": {"role": "model", "parts": given}, **more}]}


def test_a_reply() -> None:
    call = {"name": "add", "args": {"a": 1}, "id": "c1"}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4}
    deltas = read(
        parts({"text": "hm", "thought": True}),
        parts({"text": "I'll "}),
        parts({"text": "add.", "thoughtSignature": "s1"}),
        parts({"functionCall": call, "thoughtSignature": "s2"}, {"functionCall": {"name": "now"}}),
        {**parts(finishReason="STOP"), "usageMetadata": usage},
    )
    assert deltas == [
        ReasoningDelta("hm", provider="google"),
        TextDelta("I'll "),
        TextDelta("add."),
        ReasoningDelta("", "s1", "google@5-9"),
        CallStart(0, "c1", "add"),
        CallArgs(0, '{"a":1}'),
        ReasoningDelta("", "s2", "google+0"),
        CallStart(1, "", "now"),
        Usage(10, 5, 4, 2),
        Finish("tool_calls"),
    ]
    named = read({**parts({"text": "a"}, finishReason="STOP"), "responseId": "r1", "modelVersion": "gemini-3"})[-1]
    assert (named.response_id, named.response_model) == ("r1", "gemini-3")
    reply = Reply()
    for delta in deltas:
        reply.feed(delta)
    _, replayed = body(user("go"), reply.message(), *_results(reply.message()))["contents"][:2]
    assert replayed["parts"][:3] == [
        {"text": "I'll "},
        {"text": "add.", "thoughtSignature": "s1"},
        {"functionCall": call, "thoughtSignature": "s2"},
    ]
    assert "thoughtSignature" not in replayed["parts"][3]


def _results(message: Message) -> list[Message]:
    return [tool_message(call.id, call.name, "5") for call in message.tool_calls]


def test_signatures_of_others_are_not_sent() -> None:
    signed = assistant("Yes.", reasoning=[Reasoning("", "s9", "vertex@0-4"), Reasoning("", "s8", "anthropic")])
    assert "s8" not in json.dumps(body(user("go"), signed, user("so?")))
    assert "s9" not in json.dumps(body(user("go"), signed, user("so?")))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("RECITATION", "content_filter"),
     ("PROHIBITED_CONTENT", "content_filter"), ("SPII", "content_filter"), ("OTHER", "other")],
)  # fmt: skip
def test_finish_reasons(reason: str, finish: str) -> None:
    assert read(parts({"text": "a"}, finishReason=reason))[-1] == Finish(finish)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
def test_a_malformed_call_is_an_error_that_may_pass(reason: str) -> None:
    with pytest.raises(ModelError, match="google broke off its answer: .*; ask again") as caught:
        read(parts({"functionCall": {"name": "add", "args": {}}}), parts(finishReason=reason))
    assert caught.value.retryable


def test_a_blocked_prompt_is_a_sentence() -> None:
    with pytest.raises(ModelError, match="google refused the conversation: PROHIBITED_CONTENT") as caught:
        read({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
    assert (caught.value.status, caught.value.retryable) == (400, False)


def test_an_error_in_the_stream_keeps_its_status() -> None:
    error = {"error": {"code": 429, "message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"}}
    with pytest.raises(ModelError, match="broke off its answer: Resource has been exhausted") as caught:
        read(parts({"text": "a"}), error)
    assert (caught.value.status, caught.value.retryable) == (429, True)


def test_arguments_with_a_repeated_key_are_refused() -> None:
    parser = GeminiReply(google().server)
    data = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"rm","args":{"p":"a","p":"b"}}}]}}]}'
    with pytest.raises(ModelError, match="cannot be read"):
        _ = [*parser.deltas([data])]


def test_the_finish_has_the_id_and_the_model_of_the_reply() -> None:
    head = {"responseId": "r1", "modelVersion": "gemini-3-pro-001"}
    end = read(parts({"text": "hi"}) | head, parts({"text": ""}, finishReason="STOP") | head)[-1]
    assert (end.reason, end.response_id, end.response_model) == ("stop", "r1", "gemini-3-pro-001")
