"""Messages as dicts, in the form of OpenAI's chat API: all of it arrives, or a sentence names the key."""

from __future__ import annotations

from typing import Any

import pytest

from wick import Agent, Message, Scripted, ToolCall, assistant, tool_message, user
from wick.errors import MessageError
from wick.messages import AudioPart, FilePart, ImagePart, TextPart
from wick.models.message_dicts import read_message_dicts

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "What is 1 + 2?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "It is 3."},
    {"role": "user", "content": [{"type": "text", "text": "And this?"}]},
]
READ = [
    Message("system", "Be brief."),
    user("What is 1 + 2?"),
    assistant("", ToolCall("c1", "add", {"a": 1, "b": 2})),
    tool_message("c1", "add", "3"),
    assistant("It is 3."),
    user([TextPart("And this?")]),
]


def test_a_conversation_is_converted() -> None:
    assert read_message_dicts(CONVERSATION) == READ
    assert read_message_dicts([message.to_json() for message in READ]) == READ
    assert read_message_dicts(READ[:3] + CONVERSATION[3:]) == READ  # a tool message finds the call of a Message


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("hello", TextPart("hello")),
        ({"type": "input_text", "text": "hello"}, TextPart("hello")),
        ({"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}, TextPart("hello")),
        ({"type": "image_url", "image_url": {"url": "https://a.test/b.png", "detail": "low"}},
         ImagePart("https://a.test/b.png")),
        ({"type": "input_image", "image_url": "data:image/png;base64,aGk="},
         ImagePart(data="aGk=", media_type="image/png")),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
         FilePart(data="aGk=", media_type="application/pdf", name="a.pdf")),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
         AudioPart(data="aGk=", media_type="audio/wav")),
        ({"type": "image", "url": "https://a.test/b.png"}, ImagePart("https://a.test/b.png")),
    ],
)  # fmt: skip
def test_parts_are_converted(part: Any, expected: object) -> None:
    (message,) = read_message_dicts([{"role": "user", "content": [part]}])
    assert message.content == (expected,)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"role": "human", "content": "hi"}, "message 0 has the role 'human'; write 'user'"),
        ({"role": "ai", "content": "hi"}, "write 'assistant'"),
        ({"content": "hi"}, "the role None; the roles are system, user, assistant, tool"),
        ({"role": ["user"], "content": "hi"}, r"the role \['user'\]; the roles are"),
        (("human", "hi"), r"message 0 is not a Message but \('human', 'hi'\); write user\(…\), or {\"role\": \"user\""),
        ({"role": "user", "content": 5}, "message 0: the message cannot be read at content"),
        ({"role": "user", "text": "hi"}, "at text: there is no such key"),
        ({"role": "user", "content": "hi", "name": "Ada"}, "a name, which only tool messages have; leave it out"),
        ({"role": "user", "content": [{"type": "video_url"}]},
         r"message 0, content\[0\] has the type 'video_url'; a part is text, image_url, input_audio or file"),
        ({"role": "user", "content": [{"type": "text", "text": "hi", "mood": "good"}]}, "the key 'mood', which is not"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.test", "x": 1}}]}, "'x'"),
        ({"role": "user", "content": [7]}, "has the type 7"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, r"tool_calls\[0\] is not a tool call"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": "{"}}]},
         "the arguments of add are not JSON"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": "[]"}}]},
         "add' are not a JSON object|tool_calls"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": "aGk="}, "mood": 1}]}, "the key 'mood'"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": "aGk=", "file_id": "f"}}]}, "'file_id'"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "a", "format": "wav"}, "x": 1}]},
         "the key 'x'"),
        ({"role": "assistant", "tool_calls": 5}, "message 0: tool_calls is a list of calls, not 5"),
        ({"role": "assistant", "tool_calls": {"id": "1"}}, "tool_calls is a list of calls"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "add"}, "mood": 1}]}, "the key 'mood'"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "add", "strict": True}}]}, "'strict'"),
        ({"role": "assistant", "content": "", "refusal": "I will not."}, "at refusal: there is no such key"),
    ],
)  # fmt: skip
def test_a_malformed_dict_is_refused_with_a_sentence(item: Any, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        read_message_dicts([item])


def test_arguments_may_be_an_object_as_ollama_writes_them() -> None:
    call = {"id": "1", "type": "function", "index": 0, "function": {"name": "add", "arguments": {"a": 1}}}
    (message,) = read_message_dicts([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert message.tool_calls == (ToolCall("1", "add", {"a": 1}),)


def test_a_tool_message_without_its_call_is_refused() -> None:
    with pytest.raises(MessageError, match="a tool message needs a tool_call_id and a name"):
        Agent(Scripted()).run_sync([{"role": "tool", "tool_call_id": "c1", "content": "3"}])


async def test_all_ways_to_run_accept_dicts() -> None:
    agent = Agent(Scripted("It is me.", "And again."))
    assert (await agent.run(CONVERSATION)).messages[:6] == READ
    stream = agent.stream({"role": "user", "content": "Who?"})
    assert (await stream.finish()).messages == [user("Who?"), assistant("And again.")]


def test_dicts_and_messages_may_be_mixed() -> None:
    result = Agent(Scripted("Hi.")).run_sync([user("Hello."), {"role": "user", "content": "Anyone?"}])
    assert [message.text for message in result.messages] == ["Hello.", "Anyone?", "Hi."]
