"""The client for Bedrock: requests, replies, credentials and addresses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from threading import Thread, current_thread
from typing import Any

import pytest

from provider import Reply, ScriptedServer
from wick import Agent, ToolCall, assistant, system, tool, user
from wick.errors import ConfigError, ModelError
from wick.messages import AudioPart, FilePart, ImagePart, Message, Reasoning, TextPart, tool_message
from wick.models import TimeLimits, _http, resolve
from wick.models.bedrock import AwsCredentials, Bedrock
from wick.models.bedrock_replies import ConverseReply
from wick.protocols import CallArgs, CallStart, Finish, ReasoningDelta, Request, TextDelta, Usage

NOVA = "amazon.nova-pro-v1:0"
PATH = "/model/amazon.nova-pro-v1%3A0/converse-stream"


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    names = "REGION DEFAULT_REGION SESSION_TOKEN PROFILE BEARER_TOKEN_BEDROCK ENDPOINT_URL_BEDROCK_RUNTIME".split()
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-aws")
    return monkeypatch


def bedrock(**options: Any) -> Bedrock:
    return Bedrock(NOVA, region="eu-west-1", api_key="k", **options)


def body(*messages: Message, model: Bedrock | None = None, **options: Any) -> Any:
    return json.loads((model or bedrock()).body(Request(messages or (user("hi"),), **options)))


# -- addresses and credentials --------------------------------------------------------------------------------------


def test_the_region_is_in_the_address(env: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Bedrock needs a region: set AWS_REGION"):
        resolve(f"bedrock:{NOVA}")
    env.setenv("AWS_REGION", "eu-west-1")
    model: Any = resolve(f"bedrock:{NOVA}")
    assert model.server.url == f"https://bedrock-runtime.eu-west-1.amazonaws.com{PATH}"
    assert repr(model) == f"<Bedrock bedrock:{NOVA}>"
    china: Any = resolve({"provider": "bedrock", "model": NOVA, "region": "cn-north-1"})
    assert china.server.url.startswith("https://bedrock-runtime.cn-north-1.amazonaws.com.cn/")
    env.delenv("AWS_REGION")
    arn: Any = resolve("bedrock:arn:aws:bedrock:us-west-2:123456789012:inference-profile/p")
    assert arn.server.url.startswith("https://bedrock-runtime.us-west-2.amazonaws.com/model/arn%3Aaws%3A")
    with pytest.raises(ConfigError, match="Bedrock needs a region"):
        Bedrock(NOVA, base_url="https://vpce.example", credentials=AwsCredentials("a", "b"))
    with pytest.raises(ConfigError, match="are AwsCredentials, or a function that returns them"):
        resolve({"provider": "bedrock", "model": NOVA, "region": "r", "credentials": "AK:SK"})
    with pytest.raises(ConfigError, match="name the model of bedrock"):
        resolve("bedrock:")


@pytest.mark.parametrize(
    "region", ["x.evil.example/", "evil.example#", "a.b", "eu-west-1\n", "EU-WEST-1", "a@b", "a:1"]
)
def test_a_region_cannot_change_the_host(env: pytest.MonkeyPatch, region: str) -> None:
    env.setenv("AWS_BEARER_TOKEN_BEDROCK", "sk-bedrock")
    with pytest.raises(ConfigError, match="the region of Bedrock must have only lower-case letters, digits and"):
        resolve({"provider": "bedrock", "model": NOVA, "region": region})


def test_a_model_cannot_change_the_path() -> None:
    assert Bedrock("a/../b", region="r").server.url.endswith("/model/a%2F..%2Fb/converse-stream")
    with pytest.raises(ConfigError, match=r"the model of bedrock must not be empty, '\.' or '\.\.'; correct it"):
        Bedrock("..", region="r")


def test_the_region_of_an_arn_comes_before_that_of_the_environment(env: pytest.MonkeyPatch) -> None:
    env.setenv("AWS_REGION", "eu-west-1")
    name = "arn:aws:bedrock:us-west-2:123456789012:inference-profile/p"
    arn: Any = resolve(f"bedrock:{name}")
    assert arn.region == "us-west-2" and arn.server.url.startswith("https://bedrock-runtime.us-west-2.amazonaws.com/")
    assert Bedrock(name, region="eu-central-1").region == "eu-central-1"


def test_missing_credentials_are_a_sentence(env: pytest.MonkeyPatch) -> None:
    env.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match="Bedrock needs credentials of AWS: set AWS_ACCESS_KEY_ID and"):
        resolve({"provider": "bedrock", "model": NOVA, "region": "eu-west-1"})
    env.setenv("AWS_BEARER_TOKEN_BEDROCK", "sk-bedrock")
    model: Any = resolve({"provider": "bedrock", "model": NOVA, "region": "eu-west-1"})
    assert model.server.headers["authorization"] == "Bearer sk-bedrock"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server
        await _http.close()


async def test_requests_are_signed_for_the_address_of_the_environment_alone(
    env: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    script = server.script(Reply("Hello!"), Reply("Hello again!"))
    env.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", script.url)
    env.setenv("AWS_SESSION_TOKEN", "token-of-aws")
    model = Bedrock(NOVA, region="eu-west-1")
    assert (await Agent(model).run("Hi.")).text == "Hello!"
    asked = script.asked[0]
    assert asked.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKTEST/")
    assert (
        "/eu-west-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"
        in (asked.headers["authorization"])
    )
    assert asked.headers["x-amz-security-token"] == "token-of-aws" and not script.refusals
    assert "secret-of-aws" not in str(asked.headers) + repr(model) + repr(model.server) + repr(vars(model))
    elsewhere = Bedrock(NOVA, region="eu-west-1", base_url=script.url)
    with pytest.raises(ModelError, match="Missing Authentication Token"):
        await Agent(elsewhere).run("Hi.")
    assert "authorization" not in script.asked[1].headers and "x-amz-security-token" not in script.asked[1].headers


async def test_credentials_of_a_function_are_fetched_for_each_request(server: ScriptedServer) -> None:
    script, given = server.script(Reply("a"), Reply("b")), iter(["AK1", "AK2"])

    async def fetch() -> AwsCredentials:
        return AwsCredentials(next(given), "s")

    model = Bedrock(NOVA, region="eu-west-1", base_url=script.url, credentials=fetch)
    for key in ("AK1", "AK2"):
        await Agent(model).run("Hi.")
        assert f"Credential={key}/" in script.asked[-1].headers["authorization"]


# -- requests -------------------------------------------------------------------------------------------------------


@tool
async def add(a: int, b: int = 0) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_a_function_for_credentials_runs_in_a_thread_and_its_errors_are_sentences(server: ScriptedServer) -> None:
    script, threads = server.script(Reply("a")), list[Thread]()

    def fetch() -> AwsCredentials:
        threads.append(current_thread())
        return AwsCredentials("AKFN", "secret")

    def fail() -> AwsCredentials:
        raise RuntimeError("sign in first")

    options: Any = {"region": "r", "base_url": script.url}
    assert (await Agent(Bedrock(NOVA, credentials=fetch, **options)).run("Hi.")).text == "a"
    assert threads and current_thread() not in threads
    for source, why in ((fail, "cannot be fetched: sign in first"), (lambda: None, "returned NoneType")):
        with pytest.raises(ModelError, match=f"the credentials of bedrock {why}"):
            await Agent(Bedrock(NOVA, credentials=source, **options)).run("Hi.")
    assert len(script.asked) == 1


async def test_credentials_that_take_too_long_are_an_error() -> None:
    async def hang() -> AwsCredentials:
        await asyncio.Event().wait()
        raise AssertionError

    limits = TimeLimits(total=0.05)
    model = Bedrock(NOVA, region="r", base_url="http://127.0.0.1:1", credentials=hang, limits=limits)
    with pytest.raises(ModelError, match=r"the credentials of bedrock were not fetched within 0\.05 s") as caught:
        _ = [delta async for delta in model.stream(Request((user("hi"),)))]
    assert caught.value.retryable


def test_a_document_that_is_attached_again_has_another_name() -> None:
    def list_names(sent: Any) -> list[str]:
        blocks = [block for message in sent["messages"] for block in message["content"]]
        blocks += [inner for block in blocks for inner in block.get("toolResult", {}).get("content", ())]
        return [block["document"]["name"] for block in blocks if "document" in block]

    part = FilePart(data="JVBERi0=", name="a.pdf")
    call = assistant("", ToolCall("c1", "add", {}))
    messages = (user([part, part]), assistant("ok"), user([part]), call, tool_message("c1", "add", [part]))
    first = list_names(body(*messages, tools=(add,)))
    assert len(first) == len({*first}) == 4
    assert list_names(body(*messages, tools=(add,))) == first
    assert len(list_names(body(messages[2], model=bedrock()))) == 1


def test_settings_and_tools() -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 99, "stop": "END", "tool_choice": "required"}
    settings["extra"] = {"additionalModelRequestFields": {"thinking": {"type": "adaptive"}}}
    asked = body(system="Be brief.", tools=(add,), settings=settings, model=bedrock(cache=True))
    point = {"cachePoint": {"type": "default"}}
    assert asked["inferenceConfig"] == {"temperature": 0.5, "topP": 0.9, "maxTokens": 99, "stopSequences": ["END"]}
    assert asked["system"] == [{"text": "Be brief."}, point]
    assert asked["toolConfig"]["toolChoice"] == {"any": {}}
    spec, last = asked["toolConfig"]["tools"]
    assert (spec["toolSpec"]["name"], spec["toolSpec"]["inputSchema"]["json"]["required"]) == ("add", ["a"])
    assert last == point == asked["messages"][0]["content"][-1]
    assert asked["additionalModelRequestFields"] == {"thinking": {"type": "adaptive"}}
    with pytest.raises(ModelError, match="Bedrock has no response_format json_object"):
        body(settings={"response_format": {"type": "json_object"}})


CALLS = assistant(
    "Both.",
    ToolCall("call/1", "add", {"a": 1}),
    reasoning=[Reasoning("hm", "sig", "bedrock"), Reasoning("", "ZGF0YQ==", "bedrock-redacted@5+0")],
)
HISTORY = (user("go"), system("Briefly."), CALLS, tool_message("call/1", "add", "  "), user("and?"))


def test_a_conversation() -> None:
    asked = body(*HISTORY, tools=(add,))
    assert asked["system"] == [{"text": "Briefly."}]
    _, reply, results = asked["messages"]
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
    assert reply["content"][:3] == [
        thought, {"text": "Both."}, {"reasoningContent": {"redactedContent": "ZGF0YQ=="}},
    ]  # fmt: skip
    use = reply["content"][3]["toolUse"]
    assert (use["name"], use["input"]) == ("add", {"a": 1})
    assert results["content"] == [
        {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": "(no output)"}]}},
        {"text": "and?"},
    ]


def test_calls_are_texts_where_there_are_no_tools() -> None:
    for options in ({}, {"tools": (add,), "settings": {"tool_choice": "none"}}):
        asked = body(*HISTORY, **options)
        assert "toolConfig" not in asked and "toolUse" not in json.dumps(asked)
        assert {"text": '[called add with {"a": 1}]'} in asked["messages"][1]["content"]
        assert asked["messages"][2]["content"] == [{"text": "[add returned:]"}, {"text": "and?"}]


def test_media() -> None:
    parts = [ImagePart(data="iVBORw0K"), FilePart(data="JVBERi0=", name="my  report_v1.pdf")]
    picture, document, text = body(user(parts))["messages"][0]["content"]
    assert picture == {"image": {"format": "png", "source": {"bytes": "iVBORw0K"}}}
    assert document["document"]["format"] == "pdf"
    assert document["document"]["name"].startswith("my report-v1-pdf-")
    assert text == {"text": "See the document."}
    for part, why in (
        (AudioPart(data="UklGRiQ="), "not the audio"),
        (FilePart(data="UEsD", media_type="application/zip", name="a.zip"), "not a.zip"),
        (ImagePart(url="https://x.org/a.png"), "takes files as data"),
        (FilePart(data="?", media_type="text/plain"), "not valid base64"),
    ):
        with pytest.raises(ModelError, match=why):
            body(user([TextPart("See"), part]))


# -- replies --------------------------------------------------------------------------------------------------------


def read(*events: Any) -> list[Any]:
    parser = ConverseReply(bedrock().server)
    deltas = [*parser.deltas([json.dumps(event).encode() for event in events])]
    return [*deltas, parser.end()]


def block(index: int, **delta: Any) -> Any:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}


def test_a_reply() -> None:
    usage = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 2}
    start = {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c1", "name": "add"}}}
    deltas = read(
        {"messageStart": {"role": "assistant"}},
        block(0, reasoningContent={"text": "hm"}),
        block(0, reasoningContent={"signature": "sig"}),
        block(1, text="I'll add."),
        block(1, reasoningContent={"redactedContent": "ZGF0YQ=="}),
        {"contentBlockStart": start},
        block(2, toolUse={"input": '{"a": 1}'}),
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": usage}},
    )
    assert deltas == [
        ReasoningDelta("hm", "", "bedrock"),
        ReasoningDelta("", "sig", "bedrock"),
        TextDelta("I'll add."),
        ReasoningDelta("", "ZGF0YQ==", "bedrock-redacted@9+0"),
        CallStart(2, "c1", "add"),
        CallArgs(2, '{"a": 1}'),
        Usage(16, 3, 4, 0, 2),
        Finish("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("guardrail_intervened", "guardrail_intervened"),
     ("content_filtered", "content_filter"), ("model_context_window_exceeded", "length")],
)  # fmt: skip
def test_stop_reasons(reason: str, finish: str) -> None:
    assert read({"messageStop": {"stopReason": reason}})[-1] == Finish(finish)


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [("throttlingException", 429, True), ("ValidationException", 400, False), ("modelStreamErrorException", 500, True),
     ("modelTimeoutException", 408, True), ("somethingElse", None, False)],
)  # fmt: skip
def test_exceptions_in_the_stream(kind: str, status: int | None, retryable: bool) -> None:
    with pytest.raises(ModelError, match="bedrock broke off its answer: too fast") as caught:
        read(block(0, text="a"), {"error": {"type": kind, "message": "too fast"}})
    assert (caught.value.status, caught.value.retryable) == (status, retryable)


def test_malformed_output_is_an_error_that_may_pass() -> None:
    with pytest.raises(ModelError, match="ask again") as caught:
        read({"messageStop": {"stopReason": "malformed_tool_use"}})
    assert caught.value.retryable
