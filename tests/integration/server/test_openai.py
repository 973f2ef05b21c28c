"""Agents for clients that are not ours: the `openai` package against /v1."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from agents_program import AGENTS
from server_process import TOKENS, ServerProcess, open_client, run_server


def connect(server: ServerProcess, user: str = "ada", **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=TOKENS.get(user, user), **options)


@pytest.fixture
async def ada(server: ServerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with connect(server) as client:
        yield client


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("scripted"), script=AGENTS, allow_system_messages=True) as found:
        yield found


HELLO: list[Any] = [{"role": "user", "content": "What is 6 * 7?"}]


async def test_agents_are_models(ada: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in ada.models.list()] == ["default", "plain"]
    assert (await ada.models.retrieve("plain")).id == "plain"
    with pytest.raises(openai.NotFoundError, match="there is no agent 'nobody'"):
        await ada.models.retrieve("nobody")


async def test_an_answer(ada: openai.AsyncOpenAI) -> None:
    words: list[Any] = [{"role": "user", "content": "Write a file notes.txt that says hello"}]
    found = await ada.chat.completions.create(model="default", messages=words)
    (choice,) = found.choices
    assert choice.message.content == "I will write `notes.txt`.\n\nI wrote `notes.txt` (6 characters)."
    assert choice.finish_reason == "stop"
    assert found.model == "default" and found.id.startswith("chatcmpl-run_") and found.created > 1_700_000_000
    assert found.usage and found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens > 0


async def test_a_stream_has_the_same_content(ada: openai.AsyncOpenAI) -> None:
    whole = await ada.chat.completions.create(model="plain", messages=HELLO)
    options: Any = {"include_usage": True}
    stream = await ada.chat.completions.create(model="plain", messages=HELLO, stream=True, stream_options=options)
    pieces = [piece async for piece in stream]
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content and pieces[0].choices[0].delta.role == "assistant"
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] == "stop"
    assert pieces[-1].usage and pieces[-1].choices == [] and pieces[-1].usage.total_tokens > 0
    assert len({piece.id for piece in pieces}) == 1


async def test_the_run_and_its_thread_are_the_users(ada: openai.AsyncOpenAI, server: ServerProcess) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "I am a teapot."}]
    found = await ada.chat.completions.create(model="plain", messages=[*messages, *HELLO])
    run = found.id.removeprefix("chatcmpl-")
    async with open_client(server) as client:
        async with client.get(f"/runs/{run}") as answer:
            state = await answer.json()
        async with client.get(f"/threads/{state['thread_id']}") as answer:
            thread = await answer.json()
    assert state["outcome"] == "completed"
    said = [(message["role"], message.get("name", "")) for message in thread["messages"]]
    assert said[:3] == [("user", ""), ("assistant", "client"), ("user", "")], "the client's word is marked as such"
    async with open_client(server, "bob") as other, other.get(f"/runs/{run}") as answer:
        assert answer.status == 404


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"tools": [TOOL]}, "leave out tools"),
        ({"n": 2}, "answers once"),
        ({"messages": [{"role": "system", "content": "x"}, *HELLO]}, "takes no system messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}, *HELLO]}, "the agent uses its own tools"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, "the last message must be a user message"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"stream": True, "tools": [TOOL]}, "leave out tools"),
    ],
)
async def test_invalid_requests_are_refused(ada: openai.AsyncOpenAI, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await ada.chat.completions.create(**{"model": "plain", "messages": HELLO, **more})
    body: Any = refused.value.body
    assert sentence in body["message"] and body["type"] == "invalid_request_error" and body["code"]


async def test_invalid_credentials_are_refused(server: ServerProcess) -> None:
    async with connect(server, "nobody", max_retries=0) as nobody:
        with pytest.raises(openai.AuthenticationError):
            await nobody.chat.completions.create(model="plain", messages=HELLO)
        with pytest.raises(openai.AuthenticationError):
            _ = [model async for model in nobody.models.list()]
    async with connect(server) as ada:
        with pytest.raises(openai.NotFoundError) as refused:
            await ada.chat.completions.create(model="nobody", messages=HELLO)
    body: Any = refused.value.body
    assert body["type"] == "not_found_error"


async def test_invalid_json_is_refused(server: ServerProcess) -> None:
    headers = {"Content-Type": "application/json"}
    async with open_client(server) as client, client.post("/v1/chat/completions", data=b"{", headers=headers) as bad:
        found = json.loads(await bad.read())
        assert bad.status == 400 and found["error"]["type"] == "invalid_request_error"


# -- other agents ---------------------------------------------------------------------------------------------------


async def test_deltas_are_streamed_as_they_arrive(scripted: ServerProcess) -> None:
    async with connect(scripted) as client:
        words: list[Any] = [{"role": "user", "content": "5 0.05"}]
        stream = await client.chat.completions.create(model="slow", messages=words, stream=True)
        texts = [piece.choices[0].delta.content async for piece in stream if piece.choices]
    assert len([text for text in texts if text]) >= 3, "in pieces, not all at the end"
    assert "".join(text or "" for text in texts) == "0 1 2 3 4 "


async def test_steps_are_separated(scripted: ServerProcess) -> None:
    async with connect(scripted) as client:
        found = await client.chat.completions.create(model="adding", messages=HELLO)
    assert found.choices[0].message.content == "Let me see.\n\nIt is 5."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_that_fails(scripted: ServerProcess, stream: bool) -> None:
    async with connect(scripted) as client:
        with pytest.raises(openai.APIError, match="this model fails"):
            found: Any = await client.chat.completions.create(model="failing", messages=HELLO, stream=stream)
            _ = [piece async for piece in found]
    async with open_client(scripted) as watcher, watcher.get("/threads", params={"limit": "200"}) as answer:
        threads = [row for row in (await answer.json())["threads"] if row["agent_id"] == "failing"]
    assert len(threads) == 1 + stream, "a client that asks again by itself would have run it again"


async def test_system_messages_need_the_setting(scripted: ServerProcess) -> None:
    async with connect(scripted) as client:
        system: list[Any] = [{"role": "system", "content": "Be brief."}, *HELLO]
        assert (await client.chat.completions.create(model="adding", messages=system)).choices


def test_the_sync_package(scripted: ServerProcess) -> None:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key=TOKENS["bob"]) as client:
        found = client.chat.completions.create(model="adding", messages=HELLO)
        assert found.choices[0].message.content == "Let me see.\n\nIt is 5."


async def test_an_idempotency_key_makes_one_run(scripted: ServerProcess) -> None:
    async with connect(scripted) as client:
        headers = {"Idempotency-Key": "the-same"}
        first = await client.chat.completions.create(model="adding", messages=HELLO, extra_headers=headers)
        again = await client.chat.completions.create(model="adding", messages=HELLO, extra_headers=headers)
    assert first.id == again.id and first.choices == again.choices
