"""Parts of messages that a model cannot read: the newest of a user are refused, earlier ones become a note."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import product
from typing import Any

import pytest

from wick import Agent, Scripted, Thread, ToolCall, assistant, user
from wick.errors import ModelError
from wick.messages import AudioPart, FilePart, ImagePart, Message, Part, TextPart
from wick.models import openai_common
from wick.models.anthropic import Anthropic
from wick.models.bedrock import Bedrock
from wick.models.google import Google
from wick.models.openai import OpenAI
from wick.models.openai_hosts import Mistral
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
    AudioPart(data="UklGRiQ="),
    AudioPart(data="SUQzBAA=", media_type="audio/mpeg"),
    AudioPart(data="T2dnUw==", media_type="audio/ogg"),
    AudioPart(data=ZIP),
    AudioPart(url="https://x.org/a.wav"),
    FilePart(data="UklGRiQ=", media_type="audio/x-wav", name="a.wav"),
    ImagePart(data="????"),
    ImagePart(data=ZIP, media_type="image/svg+xml"),
    ImagePart(data=ZIP, media_type="image/png"),
    ImagePart(url="file:///etc/passwd"),
    ImagePart(url="https://x.org/a.png"),
)


def models() -> list[Any]:
    known = [client("m", base_url="http://127.0.0.1:9/v1", api_key="k") for client in (OpenAI, OpenAIResponses)]
    others: tuple[Any, ...] = (Anthropic, Google, Bedrock)
    return [*known, *(client("m", base_url="http://127.0.0.1:9", api_key="k") for client in others)]


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
        assert noted or not model.unsupported_reason(part) or "x.org" in json.dumps(sent), (part, model)


async def test_the_newest_part_is_refused_and_nothing_is_stored() -> None:
    refused = 0
    for part, model in product(PARTS, models()):
        if not (why := model.unsupported_reason(part)):
            continue
        refused += 1
        thread, message = Thread(), user([TextPart("See"), part])
        with pytest.raises(ModelError) as caught:
            await Agent(model).run(message, thread=thread)
        assert str(caught.value) == why and not thread.entries
        with pytest.raises(ModelError):
            model.body(Request((message,)))
    assert refused > 15


AUDIO = (AudioPart(data="UklGRiQ="), FilePart(data="UklGRiQ=", media_type="audio/x-wav", name="a.wav"))


@pytest.mark.parametrize("part", AUDIO)
def test_audio_is_sent_or_refused_in_a_sentence(part: Part) -> None:
    """A recording is never dropped silently, and a file with one is a recording, too."""
    message = user([TextPart("Listen:"), part])
    chat, responses, anthropic, google, bedrock = models()
    content = json.loads(chat.body(Request((message,))))["messages"][0]["content"]
    assert content[1] == {"type": "input_audio", "input_audio": {"data": "UklGRiQ=", "format": "wav"}}
    mistral = json.loads(Mistral("m", api_key="k").body(Request((message,))))["messages"][0]["content"]
    assert mistral[1] == {"type": "input_audio", "input_audio": "UklGRiQ="}
    with pytest.raises(ModelError, match="has no audio input, .* use openai:MODEL with an audio model"):
        responses.body(Request((message,)))
    assert "inlineData" in google.body(Request((message,))).decode()
    with pytest.raises(ModelError, match="Bedrock reads .* and text files, not "):
        bedrock.body(Request((message,)))
    with pytest.raises(ModelError, match="Anthropic reads pictures, PDFs and text files, not "):
        anthropic.body(Request((message,)))


def test_formats_of_audio() -> None:
    openai = OpenAI("gpt-audio", api_key="k")
    for data in ("SUQzBAA=", "//uQZAA="):
        assert openai.unsupported_reason(AudioPart(data=data)) == ""
    reason = openai.unsupported_reason(AudioPart(data="T2dnUw=="))
    assert "reads audio in wav or mp3, not the audio (audio/ogg)" in reason
    assert "give its media_type" in models()[0].unsupported_reason(AudioPart(data=ZIP))
    assert "takes recordings as data" in openai.unsupported_reason(AudioPart(url="https://x.org/a.wav"))


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
