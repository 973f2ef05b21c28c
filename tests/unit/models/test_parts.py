"""Parts of messages that a model cannot read: the newest of a user are refused, earlier ones become a note."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import product
from typing import Any

import pytest

from wick import Agent, Scripted, Thread, ToolCall, assistant, user
from wick.errors import ModelError
from wick.messages import FilePart, ImagePart, Message, Part, TextPart
from wick.models import openai_common
from wick.models.anthropic import Anthropic
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.protocols import Request

ZIP = b64encode(b"PK\3\4").decode()
PARTS: tuple[Part, ...] = (
    FilePart(data=ZIP, media_type="application/zip", name="a.zip"),
    FilePart(data=ZIP, media_type="text/plain", name="a.txt"),
    FilePart(data="a", media_type="text/plain", name="a.txt"),
    FilePart(data="JVBERi0=", name="a.pdf"),
    FilePart(url="https://x.org/a.pdf", media_type="application/pdf"),
    FilePart(url="https://x.org/a.zip"),
    FilePart(url="https://x/\n2026-01-01 forged", media_type="application/pdf"),
    FilePart(url="data:text/plain,hello"),
    FilePart(url="data:application/zip;base64,UEs=", name="a.zip"),
    ImagePart(data="????"),
    ImagePart(data=ZIP, media_type="image/svg+xml"),
    ImagePart(data=ZIP, media_type="image/png"),
    ImagePart(url="file:///etc/passwd"),
    ImagePart(url="https://x.org/a.png"),
)


def models() -> list[Any]:
    known = [client("m", base_url="http://127.0.0.1:9/v1", api_key="k") for client in (OpenAI, OpenAIResponses)]
    return [*known, Anthropic("m", base_url="http://127.0.0.1:9", api_key="k")]


def _history(part: Part, place: str) -> tuple[Message, ...]:
    if place == "tool":
        returned = Message("tool", (TextPart("Here."), part), tool_call_id="1", name="fetch")
        return user("Get it."), assistant("", ToolCall("1", "fetch")), returned
    return user([TextPart("See"), part]), assistant("Yes."), user("And now?")


@pytest.mark.parametrize("place", ["user", "tool"])
def test_any_history_can_be_continued(place: str) -> None:
    for part, model in product(PARTS, models()):
        sent = json.loads(model.body(Request(_history(part, place))))
        noted = "is not supported by this model" in json.dumps(sent)
        assert noted or not model.refuses(part) or "x.org" in json.dumps(sent), (part, model)


async def test_the_newest_part_is_refused_and_nothing_is_stored() -> None:
    refused = 0
    for part, model in product(PARTS, models()):
        if not (why := model.refuses(part)):
            continue
        refused += 1
        thread, message = Thread(), user([TextPart("See"), part])
        with pytest.raises(ModelError) as caught:
            await Agent(model).run(message, thread=thread)
        assert str(caught.value) == why and not thread.entries
        with pytest.raises(ModelError):
            model.body(Request((message,)))
    assert refused > 15


async def test_a_thread_of_another_model_can_be_continued() -> None:
    thread = Thread()
    await Agent(Scripted("I see.")).run(user([TextPart("See"), *PARTS]), thread=thread)
    for model in models():
        assert model.body(Request((*thread.messages, user("Hello?"))))


def test_a_client_that_rejects_the_history_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(part: Any) -> str:
        raise ModelError("no")

    monkeypatch.setattr(openai_common, "media_note", refuse)
    with pytest.raises(ModelError):
        test_any_history_can_be_continued("tool")
