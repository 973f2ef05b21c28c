"""Client input and its conversion to messages."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from wick import Thread, ToolCall, assistant, tool_message, user
from wick.api.conversions import make_thread_info
from wick.api.types import ThreadContent
from wick.errors import MessageError
from wick.messages import FilePart, ImagePart, TextPart
from wick.protocols import Summary
from wick.server.errors import ApiError
from wick.server.runs.record import RunInfo
from wick.server.schemas import (
    MessageRequest,
    RunRequest,
    list_root_threads,
    make_run_state,
    parse_messages,
    thread_content,
)


def parse_request(*messages: Any) -> list[Any]:
    return parse_messages(MessageRequest.model_validate({"messages": messages}), systems=False)


def test_a_text_and_its_role() -> None:
    (message,) = parse_request({"content": "Hello."})
    assert message == user("Hello.")


def test_pictures_and_files_beside_a_text() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "data": "aGk=", "media_type": "image/png"},
        {"type": "file", "url": "https://example.org/a.pdf", "name": "a.pdf"},
    ]
    (message,) = parse_request({"role": "user", "content": parts})
    assert message.content == (
        TextPart("Look:"),
        ImagePart(data="aGk=", media_type="image/png"),
        FilePart(url="https://example.org/a.pdf", name="a.pdf"),
    )
    for wrong in ({"type": "image"}, {"type": "image", "url": "x", "data": "y"}):
        with pytest.raises(MessageError):
            parse_request({"content": [wrong]})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "I agreed."},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"content": ""},
        {"content": []},
        {"content": "x", "name": "a_hook"},
        {"content": [{"type": "video", "url": "x"}]},
        {},
    ],
)
def test_invalid_client_fields_are_refused(message: Any) -> None:
    with pytest.raises(ValidationError):
        MessageRequest.model_validate({"messages": [message]})


@pytest.mark.parametrize("many", [{}, {"messages": [{"content": "x"}]}])
def test_several_errors_are_reported_as_one(many: Any) -> None:
    odd = {str(number): 0 for number in range(5_000)}
    with pytest.raises(ValidationError, match=r"has 5,00\d fields") as told:
        MessageRequest.model_validate({**many, **odd})
    assert told.value.error_count() == 1
    with pytest.raises(ValidationError, match=r"it has [\d,]+ errors") as told:
        MessageRequest.model_validate({**many, "messages": [{"a": 0, "b": 0}] * 60})
    assert told.value.error_count() == 1
    with pytest.raises(ValidationError) as told:
        MessageRequest.model_validate({"messages": [{"content": "x", **odd}]})
    assert told.value.error_count() == 1
    with pytest.raises(ValidationError, match="odd") as told:
        MessageRequest.model_validate({"messages": [{"content": "x"}], "odd": 1, "other": 2})
    assert told.value.error_count() == 2


def test_words_of_the_system_only_where_that_is_allowed() -> None:
    words = MessageRequest.model_validate({"messages": [{"role": "system", "content": "Obey."}]})
    with pytest.raises(ApiError, match="allow_system_messages"):
        parse_messages(words, systems=False)
    assert parse_messages(words, systems=True)[0].role == "system"


@pytest.mark.parametrize("id", ["", "a b", "a/b", "ä", "x" * 201, "a\0b", "\ud800"])
def test_ids_that_cannot_be_ones_own(id: str) -> None:
    with pytest.raises(ValidationError):
        RunRequest.model_validate({"messages": [{"content": "x"}], "thread_id": id})


def test_a_stored_thread_fits_its_schema() -> None:
    thread = Thread("th_1")
    thread.add(user("Go."), assistant("", ToolCall("c1", "echo", {"text": "x"})), tool_message("c1", "echo", "x"))
    thread.values["todos"] = [{"id": "1", "title": "Do it", "status": "done"}]
    thread.values.put("files", "a.txt", "hello")
    thread.values.put("files", "b.bin", {"size": 5_000_000})
    found = ThreadContent.model_validate(thread_content(thread))
    assert [message.seq for message in found.messages] == [1, 2, 3] and found.todos[0].title == "Do it"
    assert found.files["a.txt"] == "hello" and found.files["b.bin"].size == 5_000_000  # type: ignore[union-attr]


def head(id: str, **meta: Any) -> Summary:
    return Summary("ada", id, "A title", meta, 1.0, 2.0, run="run_1", leased=True)


def test_subagent_threads_are_not_listed() -> None:
    found = list_root_threads([head("th_1", agent="a", star=True), head("th_1.x", agent="b", parent="th_1")])
    assert [thread.id for thread in found] == ["th_1"]
    assert found[0].agent_id == "a" and found[0].meta == {"star": True} and found[0].running
    assert make_thread_info(head("th_2")).agent_id == ""


def test_an_active_run_has_no_end() -> None:
    run = make_run_state(RunInfo("run_1", "ada", "th_1", "a", started=5.0), "running")
    assert run.ended is None and run.outcome == "" and run.usage.input_tokens == 0
