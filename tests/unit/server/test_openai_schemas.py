"""OpenAI's schema and wick's: valid requests, and responses of a run."""

from __future__ import annotations

from typing import Any

import pytest

from wick.events import ApprovalRequest, ChatModelEnd, ChatModelRestart, ChatModelStream, Done, Event, Failed
from wick.messages import AudioPart, ImagePart, Message, TextPart
from wick.server.openai_schemas import (
    ChatRequest,
    CompletionText,
    OpenAIError,
    chat_usage,
    failure_error,
    finish_reason,
    parse_conversation,
)


def parse_messages(*messages: dict[str, Any], systems: bool = False, **more: Any) -> list[Message]:
    return [
        *parse_conversation(ChatRequest.model_validate({"model": "a", "messages": messages, **more}), systems=systems)
    ]


HELLO = {"role": "user", "content": "hello"}


def test_a_conversation_is_text_with_client_supplied_assistant_messages() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = parse_messages(HELLO, {"role": "assistant", "content": parts}, {"role": "user", "content": "and?"})
    assert found == [
        Message("user", "hello"),
        Message("assistant", "a\nb", name="client"),
        Message("user", "and?"),
    ]


def test_pictures() -> None:
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    far = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    (message,) = parse_messages({"role": "user", "content": [{"type": "text", "text": "what?"}, inline, far]})
    assert message.content == (
        TextPart("what?"),
        ImagePart(data="iVBORw==", media_type="image/png"),
        ImagePart(url="https://example.com/a.png"),
    )


def test_audio() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "SUQzBAA=", "format": "mp3"}}
    (message,) = parse_messages({"role": "user", "content": [part]})
    assert message.content == (AudioPart(data="SUQzBAA=", media_type="audio/mpeg"),)
    part["input_audio"] = {"data": "?", "format": "wav"}
    with pytest.raises(OpenAIError, match="is not valid base64"):
        parse_messages({"role": "user", "content": [part]})


def test_system_messages_need_the_setting() -> None:
    assert parse_messages({"role": "developer", "content": "Be brief."}, HELLO, systems=True)[0] == Message(
        "system", "Be brief."
    )


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "more", "sentence"),
    [
        ([{"role": "system", "content": "x"}, HELLO], {}, "messages[0]: this server takes no system messages"),
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}, HELLO], {}, "the agent uses its own tools"),
        ([{"role": "function", "content": "x", "name": "f"}, HELLO], {}, "the agent uses its own tools"),
        ([{"role": "assistant", "tool_calls": [CALL]}, HELLO], {}, "the agent uses its own tools"),
        ([HELLO, {"role": "assistant", "content": "x"}], {}, "the last message must be a user message"),
        ([HELLO], {"tools": [CALL]}, "leave out tools"),
        ([HELLO], {"functions": [{"name": "f"}]}, "leave out tools"),
        ([HELLO], {"n": 2}, "answers once"),
        ([HELLO], {"logprobs": True}, "logprobs"),
        ([HELLO], {"response_format": {"type": "json_object"}}, "response_format"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}], {},
         "a picture or a file is a data: URL"),
        ([{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "https://e.org"}}]}, HELLO], {},
         "only text can be sent"),
    ],
)  # fmt: skip
def test_unsupported_fields_are_refused(messages: list[Any], more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OpenAIError) as refused:
        parse_messages(*messages, **more)
    body = refused.value.body()["error"]
    assert sentence in body["message"] and body["type"] == "invalid_request_error" and refused.value.status == 400


def test_meaningless_fields_are_accepted() -> None:
    assert parse_messages(
        HELLO, temperature=0.2, max_tokens=5, tools=[], response_format={"type": "text"}, user="x", top_p=1
    )


# -- telling ---------------------------------------------------------------------------------------------------------


def complete_events(*events: Event) -> tuple[str, CompletionText]:
    spoken = CompletionText(run_id="r")
    for event in events:
        event.run_id = event.run_id or "r"
    return "".join([spoken.add_event(event) for event in events]), spoken


def end(text: str) -> ChatModelEnd:
    return ChatModelEnd(message={"role": "assistant", "content": text})


def test_deltas_are_sent_once() -> None:
    text, spoken = complete_events(
        ChatModelStream(delta="It "), ChatModelStream(delta="is 5."), end("It is 5."), Done()
    )
    assert text == "It is 5." and isinstance(spoken.end, Done)


def test_an_unstreamed_message_is_sent_when_complete() -> None:
    assert complete_events(ChatModelStream(delta="It "), end("It is 5."))[0] == "It is 5."  # deltas may be dropped


def test_replies_of_several_steps_are_separated() -> None:
    assert complete_events(end("Let me see."), end(""), ChatModelStream(delta="It is 5."), end("It is 5."))[0] == (
        "Let me see.\n\nIt is 5."
    )


def test_only_text_of_this_run_is_sent() -> None:
    child = ChatModelStream(run_id="child", delta="no")
    thought, args = ChatModelStream(delta="hm", kind="reasoning"), ChatModelStream(delta="{", kind="tool_args", index=0)
    assert complete_events(child, thought, args, ChatModelStream(delta="yes"))[0] == "yes"


def test_a_replaced_reply_is_sent_as_replaced() -> None:
    assert (
        complete_events(ChatModelStream(delta="My secret"), ChatModelRestart(content="…"), end("…"))[0]
        == "My secret\n\n…"
    )
    assert complete_events(
        ChatModelStream(delta="It "), ChatModelRestart(), ChatModelStream(delta="It is"), end("It is")
    )[0].endswith("is")


def test_a_question_is_sent_when_the_run_waits() -> None:
    asked, paused = ApprovalRequest(id="1", question="May I?"), Done(outcome="interrupted", reason="paused")
    assert complete_events(end("Let me."), asked, paused)[0] == (
        "Let me.\n\nThe agent waits for an answer to its question: May I?"
    )
    assert complete_events(asked, end("Done."), Done())[0] == "Done."


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("completed", "stop"),
        ("finish reason: length", "length"),
        ("finish reason: content_filter", "content_filter"),
        ("token limit: 5", "length"),
        ("blocked: no", "content_filter"),
        ("budget", "stop"),
    ],
)
def test_why_an_answer_ended(reason: str, finish: str) -> None:
    assert finish_reason(reason) == finish


def test_usage_and_failures() -> None:
    assert chat_usage({"input_tokens": 3, "output_tokens": 4, "later": 9}).total_tokens == 7
    assert (failure_error(Failed(code="model_error")).status, failure_error(Failed(code="x")).status) == (502, 500)
