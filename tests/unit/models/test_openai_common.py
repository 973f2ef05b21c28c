"""A long conversation: its beginning is written once, and never serves for another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from wick.messages import ImagePart, Message, TextPart, ToolCall, assistant, system, tool_message, user
from wick.models import openai_common
from wick.models.anthropic import Anthropic
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.protocols import Request

Client = OpenAI | OpenAIResponses | Anthropic
HERE = "http://localhost:1/v1"


@pytest.fixture(params=["openai", "responses", "anthropic"])
def client(request: pytest.FixtureRequest) -> Client:
    clients: dict[str, type[Client]] = {"openai": OpenAI, "responses": OpenAIResponses, "anthropic": Anthropic}
    return clients[request.param]("m", base_url=HERE, api_key="key")


def conversation(turns: int) -> Iterator[Message]:
    """Text, parallel calls, an image of a tool, system messages, and an empty reply."""
    yield system("be kind")
    for number in range(turns):
        first, second = ToolCall(f"a{number}", "look", {"n": number}), ToolCall(f"b{number}", "look")
        picture = ImagePart(data="iVBORw0KGgo=")
        yield user(f"question {number}")
        yield assistant("wait", first, second)
        yield Message("tool", (TextPart("seen"), picture), tool_call_id=first.id, name="look")
        yield tool_message(second.id, "look", "nothing")
        yield user("and?")
        yield assistant(f"answer {number}" if number % 5 else " ")
        if number % 4 == 3:
            yield system(f"rule {number}")


def body(client: Client, messages: list[Message]) -> bytes:
    return client.body(Request(tuple(messages), "be brief"))


def at_once(client: Client, messages: list[Message], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The same body, made of its messages one by one."""
    with monkeypatch.context() as patch:
        patch.setattr(openai_common, "_STEP", 1_000_000)
        return body(client, messages)


def cached_places(messages: list[Message]) -> list[int]:
    """The messages that keep a beginning."""
    return [place for place, message in enumerate(messages) if any("prefix" in key for key in message.cache)]


def test_a_growing_conversation_is_sent_unchanged(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [*conversation(20)]
    for length in range(len(said) + 1):
        assert body(client, said[:length]) == at_once(client, said[:length], monkeypatch)
    (place,) = cached_places(said)  # one copy, however long the conversation
    assert place > len(said) / 2


def test_the_beginning_is_written_once(client: Client) -> None:
    said = [*conversation(20)]
    first = body(client, said)
    (place,) = cached_places(said)
    before = {key: value for key, value in said[place].cache.items() if "prefix" in key}
    assert body(client, said) == first
    assert all(said[place].cache[key] is value for key, value in before.items())


@pytest.mark.parametrize("changed", [1, 7, 40])
def test_an_edited_conversation_has_its_own_beginning(
    client: Client, changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [*conversation(20)]
    body(client, said)
    edited = [*said[:changed], replace(said[changed], content="edited"), *said[changed + 1 :]]
    assert b"edited" in body(client, edited)
    for messages in (edited, said, said[:changed], said[changed:], said[::-1], [*said[:90], user("fork")]):
        assert body(client, messages) == at_once(client, messages, monkeypatch)


def test_messages_that_are_equal_but_spelled_otherwise_are_not_mistaken(client: Client) -> None:
    spelled = [assistant("", ToolCall("c", "look", {"n": 1}, raw=raw)) for raw in ('{"n":1}', '{"n": 1}')]
    assert spelled[0] == spelled[1]
    rest = [*conversation(20)]
    first, second = (body(client, [user("hi"), call, tool_message("c", "look", "x"), *rest]) for call in spelled)
    again = body(client, [user("hi"), spelled[0], tool_message("c", "look", "x"), *rest])
    assert again == first
    assert (first == second) == isinstance(client, Anthropic)  # which is sent the arguments, not their spelling
