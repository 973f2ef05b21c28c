"""Schemas and conversions for OpenAI's chat completions API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from wick.events import ApprovalRequest, ChatModelEnd, ChatModelRestart, ChatModelStream, Done, Event, Failed
from wick.messages import AudioPart, ImagePart, Message, Messages, Part, TextPart
from wick.protocols import Usage
from wick.server.errors import ApiError
from wick.server.media import address_problem, media_problem

CLIENT_NAME = "client"  # name of assistant messages that a client sent: no agent wrote them
SEPARATOR = "\n\n"  # between the replies of one run, which clients see as one text
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)

FinishReason = Literal["stop", "length", "content_filter"]


class _Lenient(BaseModel):
    """A model that ignores unknown fields."""

    model_config = ConfigDict(extra="ignore")


class ImageUrl(_Lenient):
    """A picture: a `data:` URL, or an address that the model's own server fetches."""

    url: str = Field(max_length=20_000_000)


class TextContent(_Lenient):
    """A piece of text."""

    type: Literal["text"]
    text: str


class ImageContent(_Lenient):
    """A picture in a user's message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class InputAudio(_Lenient):
    """A recording in base64."""

    data: str
    format: Literal["wav", "mp3"]


class AudioContent(_Lenient):
    """A recording in a user's message."""

    type: Literal["input_audio"]
    input_audio: InputAudio


Content = Annotated[TextContent | ImageContent | AudioContent, Field(discriminator="type")]


class ChatMessage(_Lenient):
    """A message as a client sends it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Content] | None = None
    tool_calls: list[dict[str, JsonValue]] | None = None
    function_call: dict[str, JsonValue] | None = None


class StreamOptions(_Lenient):
    """How a client wants its stream."""

    include_usage: bool = False


class ChatRequest(_Lenient):
    """A request of a client. `model` is the id of an agent; the settings of its model are the agent's own."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[ChatMessage] = Field(min_length=1, max_length=2_000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[dict[str, JsonValue]] | None = None
    functions: list[dict[str, JsonValue]] | None = None
    response_format: dict[str, JsonValue] | None = None
    logprobs: bool | None = None


class ChatUsage(BaseModel):
    """Tokens, as OpenAI counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatReply(BaseModel):
    """The reply of the agent."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """The one answer, and why it ended."""

    index: Literal[0] = 0
    message: ChatReply
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage


class ChatModel(BaseModel):
    """An agent, as a client that looks for models sees it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "wick"


class ChatModels(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[ChatModel]


# -- requests ---------------------------------------------------------------------------------------------------------


def parse_conversation(request: ChatRequest, *, systems: bool) -> Messages:
    """Return the messages of a request. Assistant messages are marked as sent by the client."""
    if request.tools or request.functions:
        raise request_error(
            "an agent has its own tools and takes none from a client; leave out tools and functions", "tools"
        )
    if request.n not in (None, 1):
        raise request_error("an agent answers once; leave out n", "n")
    if request.logprobs:
        raise request_error("an agent has no log probabilities; leave out logprobs", "logprobs")
    if request.response_format and request.response_format.get("type") != "text":
        raise request_error(
            "the shape of an agent's answer is the agent's own; leave out response_format", "response_format"
        )
    messages = [_parse_message(message, number, systems) for number, message in enumerate(request.messages)]
    if messages[-1].role != "user":
        raise request_error("the last message must be a user message", "messages")
    return Messages(messages).validate()


def _parse_message(message: ChatMessage, number: int, systems: bool) -> Message:
    place = f"messages[{number}]"
    if message.role in ("tool", "function") or message.tool_calls or message.function_call:
        raise request_error(f"{place}: the agent uses its own tools; send the messages without tool calls", "messages")
    if message.role in ("system", "developer"):
        if not systems:
            raise request_error(
                f"{place}: this server takes no {message.role} messages; the agent has its own", "messages"
            )
        return Message("system", _message_text(message, place))
    if message.role == "assistant":
        return Message("assistant", _message_text(message, place), name=CLIENT_NAME)
    if isinstance(message.content, list):
        return Message("user", tuple(_parse_part(part, place) for part in message.content))
    return Message("user", message.content or "")


def _message_text(message: ChatMessage, place: str) -> str:
    parts = (
        message.content if isinstance(message.content, list) else [TextContent(type="text", text=message.content or "")]
    )
    texts = [part.text for part in parts if isinstance(part, TextContent)]
    if len(texts) < len(parts):
        raise request_error(f"{place}: only text can be sent as a message of the {message.role}", "messages")
    return "\n".join(texts)


def _parse_part(part: TextContent | ImageContent | AudioContent, place: str) -> Part:
    if isinstance(part, TextContent):
        return TextPart(part.text)
    if isinstance(part, AudioContent):
        audio = AudioPart(data=part.input_audio.data, media_type=_AUDIO[part.input_audio.format])
        if why := media_problem(audio):
            raise request_error(f"{place}: {why}", "messages")
        return audio
    url = part.image_url.url
    if found := _DATA_URL.fullmatch(url):
        return ImagePart(data=found[2], media_type=found[1])
    if why := address_problem(url):
        raise request_error(f"{place}: {why}", "messages")
    return ImagePart(url=url)


# -- responses --------------------------------------------------------------------------------------------------------


def request_error(message: str, param: str = "", status: int = 400, code: str = "unsupported") -> OpenAIError:
    return OpenAIError(status, code, message, param=param)


class OpenAIError(ApiError):
    """An error in OpenAI's format."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, *, param: str = ""
    ) -> None:
        super().__init__(status, code, message, headers)
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param or None, "code": self.code}}


_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass(slots=True)
class CompletionText:
    """The text of one run as it is streamed to a client, and how the run ended."""

    run_id: str = ""  # events of other runs, such as subagents, are ignored
    open_text: str = ""  # sent text of the current message
    started: bool = False  # an earlier message was sent
    question: str = ""
    end: Done | Failed | None = None

    def add_event(self, event: Event) -> str:
        """Add an event and return the text to send for it."""
        if isinstance(event, ApprovalRequest):
            self.question = event.question
        if event.run_id != self.run_id:
            return ""
        if isinstance(event, ChatModelStream):
            return self._append(event.delta) if event.kind == "text" else ""
        if isinstance(event, ChatModelRestart):
            return self._replace_open(event.content)
        if isinstance(event, ChatModelEnd):
            rest = self._replace_open(Message.from_json(event.message).text)
            self.open_text, self.started = "", self.started or bool(self.open_text)
            return rest
        if isinstance(event, Done | Failed):
            self.end = event
            if isinstance(event, Done) and event.outcome == "interrupted" and self.question:
                self.open_text = ""
                return self._append(f"The agent waits for an answer to its question: {self.question}")
        return ""

    def _append(self, text: str) -> str:
        apart = SEPARATOR if text and not self.open_text and self.started else ""
        self.open_text += text
        return apart + text

    def _replace_open(self, text: str) -> str:
        """Return the rest of the current message. If it differs from the sent text, send it again as a whole."""
        if text.startswith(self.open_text):
            return self._append(text[len(self.open_text) :])
        if not text:
            return ""
        self.open_text, self.started = "", True
        return self._append(text)


def finish_reason(reason: str) -> FinishReason:
    """Return OpenAI's finish reason for the reason of a run."""
    reason = reason.lower()
    if "content_filter" in reason or reason.startswith("blocked"):
        return "content_filter"
    return "length" if "length" in reason or "token limit" in reason or "step limit" in reason else "stop"


def chat_usage(tokens: Mapping[str, Any]) -> ChatUsage:
    usage = Usage.from_json(tokens)
    return ChatUsage(
        prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens, total_tokens=usage.total_tokens
    )


def failure_error(end: Failed) -> OpenAIError:
    """Return the error for a failed run. `x-should-retry: false` keeps clients from starting another run."""
    status = 502 if end.code == "model_error" else 500
    return OpenAIError(status, end.code, end.message, {"x-should-retry": "false"})


def create_chunk(
    id: str, created: int, model: str, choices: Sequence[dict[str, Any]], usage: ChatUsage | None
) -> dict[str, Any]:
    """Return one chunk of a streamed completion."""
    head: dict[str, Any] = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
    return {**head, "choices": [*choices], "usage": None if usage is None else usage.model_dump()}


def create_choice(delta: dict[str, Any], finish: FinishReason | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
