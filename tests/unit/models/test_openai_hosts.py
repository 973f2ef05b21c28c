"""Providers with OpenAI's API under their own names: addresses, keys, and their differences."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from provider import Call, Reply, ScriptedServer, Thought
from wick import Agent, Message, ToolCall, assistant, tool, tool_message, user
from wick.errors import ConfigError
from wick.messages import ImagePart, Reasoning, TextPart
from wick.models import _http, openai_hosts, resolve
from wick.models.openai import ChatReplyParser
from wick.models.openai_hosts import HostedChat, Mistral
from wick.models.registry import HOSTED
from wick.models.reply import Reply as Assembled
from wick.protocols import Request, holds_schema

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Each provider has a key of its own, and no address of the environment."""
    for provider, (_, key, address) in HOSTED.items():
        monkeypatch.setenv(key, f"sk-{provider}")
        monkeypatch.delenv(address, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    return monkeypatch


def sent_authorization(model: Any) -> str | None:
    found: str | None = model.server.headers.get("authorization")
    return found


@pytest.mark.parametrize("provider", HOSTED)
def test_a_provider_gets_its_own_key(provider: str) -> None:
    model: Any = resolve(f"{provider}:some/model:free")
    assert type(model) is getattr(openai_hosts, HOSTED[provider][0])
    assert model.name == f"{provider}:some/model:free"
    assert repr(model) == f"<{HOSTED[provider][0]} {model.name}>"
    assert model.server.url == f"{model.home.url}/chat/completions"
    assert sent_authorization(model) == f"Bearer sk-{provider}"
    assert model.home.variable == HOSTED[provider][1]


@pytest.mark.parametrize("provider", HOSTED)
def test_a_key_is_sent_to_its_own_provider_only(provider: str, keys: pytest.MonkeyPatch) -> None:
    elsewhere: Any = resolve({"provider": provider, "model": "m", "base_url": "https://elsewhere.example/v1"})
    assert elsewhere.server.url == "https://elsewhere.example/v1/chat/completions"
    assert sent_authorization(elsewhere) is None
    others = [other for other in HOSTED if other != provider]
    home = getattr(openai_hosts, HOSTED[provider][0]).home.url
    assert all(
        sent_authorization(resolve({"provider": other, "model": "m", "base_url": home})) is None for other in others
    )
    keys.setenv(HOSTED[provider][2], "http://gate:1/v1")
    assert sent_authorization(resolve(f"{provider}:m")) == f"Bearer sk-{provider}"


@pytest.mark.parametrize("provider", HOSTED)
def test_a_missing_key_names_its_variable(provider: str, keys: pytest.MonkeyPatch) -> None:
    keys.delenv(HOSTED[provider][1])
    with pytest.raises(ConfigError, match=f"needs a key: set {HOSTED[provider][1]}, or give api_key=…"):
        resolve(f"{provider}:m")
    with pytest.raises(ConfigError, match=f"name the model of {provider}, as in '{provider}:[^']+'"):
        resolve(f"{provider}:")
    with pytest.raises(ConfigError, match="there is no key 'colour' for a model of "):
        resolve({"provider": provider, "model": "m", "colour": "red"})


LIMITS = dict.fromkeys(("groq", "cerebras"), "max_completion_tokens")


@pytest.mark.parametrize("provider", HOSTED)
def test_the_fields_of_a_request(provider: str) -> None:
    model: Any = resolve(f"{provider}:m")
    body = json.loads(model.body(Request((user("hi"),), settings={"max_tokens": 9})))
    limit = LIMITS.get(provider, "max_tokens")
    usage = {} if provider == "mistral" else {"stream_options": {"include_usage": True}}
    assert body == {
        "model": "m", "stream": True, **usage, limit: 9, "messages": [{"role": "user", "content": "hi"}],
    }  # fmt: skip
    assert not holds_schema(model, tools=True)
    assert holds_schema(model, tools=False) == (provider != "deepseek")


def test_options_replace_the_defaults() -> None:
    model: Any = resolve({"provider": "mistral", "model": "m", "stream_usage": True, "replay_reasoning": True})
    assert (model.stream_usage, model.replay_reasoning) == (True, True)


HISTORY = (
    user("Add."),
    assistant("", ToolCall("call_1", "add", {}), reasoning=[Reasoning("hm", provider="deepseek")]),
    tool_message("call_1", "add", "5"),
)


def test_deepseek_gets_its_reasoning_back() -> None:
    model: Any = resolve("deepseek:m")
    others: Any = resolve("groq:m")
    assert json.loads(model.body(Request(HISTORY)))["messages"][1]["reasoning_content"] == "hm"
    assert "reasoning_content" not in others.body(Request(HISTORY)).decode()


# -- Mistral --------------------------------------------------------------------------------------------------------


def mistral_messages(*messages: Message) -> list[Any]:
    model: Any = resolve("mistral:m")
    read: list[Any] = json.loads(model.body(Request(messages)))["messages"]
    return read


def test_ids_of_calls_fit_mistral() -> None:
    own = (assistant("", ToolCall("D681PevKs", "add", {})), tool_message("D681PevKs", "add", "5"))
    read = mistral_messages(*HISTORY, *own)
    ids = [call["id"] for message in read for call in message.get("tool_calls", ())]
    assert re.fullmatch("[a-zA-Z0-9]{9}", ids[0]) and ids[1] == "D681PevKs"
    assert [message["tool_call_id"] for message in read if message["role"] == "tool"] == ids
    groq: Any = resolve("groq:m")  # messages are encoded apart for each
    assert "call_1" in groq.body(Request(HISTORY)).decode()


def test_no_user_message_follows_a_tool_result_at_mistral() -> None:
    drawn = Message("tool", (TextPart("done"), ImagePart(data=PIXEL)), tool_call_id="call_1", name="add")
    for messages in ((*HISTORY, user("And?")), (*HISTORY[:2], drawn), (*HISTORY[:2], drawn, user("And?"))):
        roles = [message["role"] for message in mistral_messages(*messages)]
        assert ("tool", "user") not in pairwise(roles), roles
        assert roles[-1] == "user"


def test_a_long_conversation_with_mistral_is_encoded_once() -> None:
    messages = tuple(message for n in range(30) for message in (*HISTORY, user(f"And {n}?")))
    model: Any = resolve("mistral:m")
    first = model.body(Request(messages))
    assert model.body(Request(messages)) == first
    assert len(json.loads(first)["messages"]) == 30 * 5


# -- replies --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server
        await _http.close()


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@pytest.mark.parametrize("provider", HOSTED)
async def test_an_agent_runs_with_each_provider(provider: str, server: ScriptedServer) -> None:
    thinks = Reply("I'll add.", (Thought("Two and three."),), (Call.of("call_1", "add", a=2, b=3),))
    script = server.script(thinks, Reply("It is 5."))
    client: type[HostedChat] = getattr(openai_hosts, HOSTED[provider][0])
    result = await Agent(client("m", base_url=script.url, api_key="sk-test"), tools=[add]).run("2 + 3?")
    assert result.text == "It is 5." and not script.refusals
    assert [message.text for message in result.messages if message.role == "tool"] == ["5"]


def test_signed_reasoning_of_openrouter_is_sent_back() -> None:
    model: Any = resolve("openrouter:google/gemini-3-pro")
    details = [
        {"type": "reasoning.text", "text": "Two ", "index": 0, "format": "x", "signature": None},
        {"type": "reasoning.text", "text": "and three.", "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "AAAA", "id": "call_1", "index": 1},
    ]
    call = {"index": 0, "id": "call_1", "function": {"name": "add", "arguments": "{}"}}
    chunks: list[Any] = [{"delta": {"reasoning": "hm", "reasoning_details": [detail]}} for detail in details]
    chunks += [{"delta": {"tool_calls": [call]}}, {"delta": {}, "finish_reason": "tool_calls"}]
    parser, reply = ChatReplyParser(model.server), Assembled()
    for delta in parser.deltas([json.dumps({"choices": [{"index": 0, **chunk}]}).encode() for chunk in chunks]):
        reply.feed(delta)
    reply.feed(parser.end())
    request = Request((user("Add."), reply.message(), tool_message("call_1", "add", "5")))
    assert json.loads(model.body(request))["messages"][1]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Two and three.", "index": 0, "format": "x", "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "AAAA", "id": "call_1", "index": 1},
    ]
    other: Any = resolve("groq:m")
    assert "reasoning_details" not in other.body(request).decode()


async def test_reasoning_in_a_list_of_parts_is_read() -> None:
    model = Mistral("m", api_key="sk-test")
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Yes."}]
    data = json.dumps({"choices": [{"index": 0, "delta": {"content": parts}, "finish_reason": "stop"}]})
    deltas = [*ChatReplyParser(model.server).deltas([data.encode()])]
    assert [getattr(delta, "text", "") for delta in deltas] == ["hm", "Yes."]
    assert [type(delta).__name__ for delta in deltas] == ["ReasoningDelta", "TextDelta"]
