"""Models of Amazon Bedrock, through its Converse API: text, reasoning, tools, images and documents."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, count
from typing import Any

from wick._internal.aws_credentials import find_credentials, find_region
from wick._internal.aws_signature import AwsCredentials as AwsCredentials
from wick._internal.aws_signature import CredentialsLike, sign_request
from wick._internal.fast_json import encode_json
from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, ImagePart, MediaPart, Message, Part, TextPart, ToolCall
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText, check_address, check_host_label, quote_segment
from wick.models.access_tokens import fetch_credentials
from wick.models.bedrock_replies import ConverseReply
from wick.protocols import Delta, Request

Credentials = CredentialsLike | Callable[[], CredentialsLike | Awaitable[CredentialsLike]]


class Bedrock:
    """A model at Amazon Bedrock.

        Bedrock("us.anthropic.claude-sonnet-4-5-20250929-v1:0", region="us-east-1")

    Credentials are the `api_key` (a key of Bedrock), `credentials` (or a function that returns them, for temporary
    ones), or those of the environment and of the files of AWS. The latter are used for Amazon's own address only.
    `cache` sets cache points after the system prompt, the tools and the last user turn, for models that support them.
    """

    def __init__(
        self,
        model: str,
        *,
        region: str = "",
        profile: str = "",
        base_url: str = "",
        api_key: str | None = None,
        credentials: Credentials | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        cache: bool = False,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        if not model:
            raise ConfigError("name the model of bedrock, as in 'bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0'")
        self.model, self.cache = model, cache
        arn = re.match(r"arn:aws[\w-]*:bedrock:([\w-]+):", model)
        self.region = region or (arn[1] if arn else find_region(profile))
        if credentials is not None and not (callable(credentials) or hasattr(credentials, "secret_key")):
            raise ConfigError("the credentials of bedrock are AwsCredentials, or a function that returns them")
        if not self.region and (credentials or not base_url):
            raise ConfigError("Bedrock needs a region: set AWS_REGION, as in AWS_REGION=us-east-1, or give region=…")
        if self.region:
            check_host_label(self.region, "the region of Bedrock")
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        address = base_url or openai_common.read_variable("AWS_ENDPOINT_URL_BEDROCK_RUNTIME")
        address = address or f"https://bedrock-runtime.{self.region}.{domain}"
        sent_headers = openai_common.build_headers("authorization", "", headers)
        key = api_key or ("" if base_url or credentials else openai_common.read_variable("AWS_BEARER_TOKEN_BEDROCK"))
        self._credentials: Credentials | None = None
        if key.strip():
            sent_headers["authorization"] = f"Bearer {key.strip()}"
        elif "authorization" not in sent_headers:
            self._credentials = credentials
            if credentials is None and not base_url:
                self._credentials = find_credentials(
                    profile, purpose="Bedrock", other_variable="AWS_BEARER_TOKEN_BEDROCK"
                )
        self.server = ModelServer(
            "bedrock",
            f"{check_address(address, 'Bedrock')}/model/{quote_segment(model, 'the model of bedrock')}/converse-stream",
            sent_headers,
            limits,
            unreachable="check the region, and that it has Bedrock",
            unauthorized="check the credentials of AWS, and that they may use this model in this region",
            network=NetworkSettings(verify, cert, trust_env),
        )

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<Bedrock {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        return "" if isinstance(part, TextPart) else _find_flaw(openai_common.inline_media(part))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        authorize = self._sign if self._credentials is not None else None
        return _http.stream(self.server, self.body(request), ConverseReply(self.server), authorize)

    async def _sign(self, server: ModelServer, body: bytes) -> ModelServer:
        """Return the server with the signature of one request."""
        found: Any = self._credentials
        if callable(found):
            found = await fetch_credentials(found, "the credentials of bedrock")
        if not hasattr(found, "secret_key"):
            raise ModelError(f"the function for the credentials of bedrock returned {type(found).__name__}")
        content = {"content-type": server.headers["content-type"]}
        signed = sign_request(
            "POST",
            server.endpoint.url,
            content,
            body,
            found,
            region=self.region,
            service="bedrock",
            now=datetime.now(UTC),
        )
        return replace(server, headers={**server.headers, **signed})

    # -- requests ---------------------------------------------------------------------------------------------------

    def body(self, request: Request) -> bytes:
        """Return the request body: the options, and the cached bytes of tools and messages."""
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        settings = openai_common.build_settings(self.server, request)
        tools = request.tools if settings.get("tool_choice") != "none" else ()  # the API cannot forbid tools
        turns, notes = _encode_turns(request.messages, with_calls=bool(tools))
        texts = [encode_json({"text": text}) for text in (request.system, *notes) if text.strip()]
        point = [_CACHE_POINT] if self.cache else []
        pieces = [openai_common.with_extra(self.server, self._options(settings), request, *_OURS)]
        if texts:
            pieces += b',"system":[', b",".join(texts + point), b"]"
        if tools:
            encoded = openai_common.encode_tools("bedrock", tools, _encode_tool)
            choice = settings.get("tool_choice", "")
            chosen = (
                b',"toolChoice":' + encode_json(_CHOICES.get(choice) or {"tool": {"name": choice}}) if choice else b""
            )
            pieces += b',"toolConfig":{"tools":[', b",".join(encoded + point), b"]", chosen, b"}"
        if point and turns and turns[-1][0] == "user":
            turns[-1][1].extend(point)
        messages = [b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(blocks)) for role, blocks in turns]
        return b"".join((*pieces, b',"messages":[', b",".join(messages), b"]}"))

    def _options(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request without the conversation."""
        if not settings.get("parallel_tool_calls", True):
            raise ModelError(f"{self.server.name} has no setting 'parallel_tool_calls'; leave it out")
        config = {name: settings[key] for key, name in _SETTINGS.items() if key in settings}
        if isinstance(config.get("stopSequences"), str):
            config["stopSequences"] = [config["stopSequences"]]
        options: dict[str, Any] = {"inferenceConfig": config}
        form = settings.get("response_format", {})
        if form.get("type") == "json_object":
            raise ModelError(
                "Bedrock has no response_format json_object; give the JSON Schema of what you want instead"
            )
        if form and form.get("type") != "text":
            wanted = openai_common.build_json_format(form)
            schema = {"schema": encode_json(wanted["schema"]).decode(), "name": wanted["name"]}
            options["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
        return options


_OURS = ("messages", "system", "toolConfig")  # fields that `extra` cannot set
_SETTINGS = {"temperature": "temperature", "top_p": "topP", "max_tokens": "maxTokens", "stop": "stopSequences"}
_CHOICES: dict[str, dict[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}
_CACHE_POINT = b'{"cachePoint":{"type":"default"}}'


def _encode_tool(tool: Any) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": tool.parameters}}}


# -- writing --------------------------------------------------------------------------------------------------------


def _encode_turns(messages: Iterable[Message], with_calls: bool) -> tuple[list[tuple[str, list[bytes]]], list[str]]:
    """Return alternating turns, and the texts of system messages, which the API takes apart.

    The API refuses tool calls and results in a request without tools, so there they become texts.
    """
    turns: list[tuple[str, list[bytes]]] = []
    notes: list[str] = []
    names = set[str]()  # of documents; the API refuses a name twice
    key = "bedrock" if with_calls else "bedrock+texts"
    for message in messages:
        if message.role == "system":
            notes.append(message.text)
            continue
        if key not in message.cache or not names.isdisjoint(message.cache[key][1]):
            taken = names.copy()
            encoded = [*map(encode_json, _encode_blocks(message, with_calls, taken))]
            message.cache[key] = encoded, taken - names
        blocks, named = message.cache[key]
        names |= named
        role = "assistant" if message.role == "assistant" else "user"
        if blocks and turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, [*blocks]))
    return turns, notes


def _encode_blocks(message: Message, with_calls: bool, taken: set[str]) -> Iterator[dict[str, Any]]:
    if message.role == "assistant":
        yield from _reply_blocks(message, with_calls)
        return
    parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
    blocks = [_encode_part(part, taken) for part in parts if not isinstance(part, TextPart) or part.text.strip()]
    if message.role == "user":
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.append({"text": "See the document."})  # the API refuses a document without a text
        yield from blocks
    elif with_calls:
        result = {"toolUseId": _call_id(message.tool_call_id), "content": blocks or [{"text": "(no output)"}]}
        yield {"toolResult": {**result, "status": "error"} if message.failed else result}
    else:
        yield {"text": f"[{message.name} returned:]"}
        yield from blocks


def _reply_blocks(message: Message, with_calls: bool) -> Iterator[dict[str, Any]]:
    """Return the content of a reply, with signed reasoning at its place."""
    text, calls, spoken, called = message.text, message.tool_calls, 0, 0
    for thought in message.reasoning:
        match = _THOUGHT.fullmatch(thought.provider)
        if match is None or not thought.signature:
            continue
        chars, count = int(match[2] or 0), int(match[3] or 0)
        yield from _text_and_calls(text[spoken:chars], calls[called:count], with_calls)
        spoken, called = max(spoken, chars), max(called, count)
        if match[1] == "bedrock":
            yield {"reasoningContent": {"reasoningText": {"text": thought.text, "signature": thought.signature}}}
        else:
            yield {"reasoningContent": {"redactedContent": thought.signature}}
    yield from _text_and_calls(text[spoken:], calls[called:], with_calls)


_THOUGHT = re.compile(r"(bedrock|bedrock-redacted)(?:@(\d+)\+(\d+))?")  # a kind, and the place in the reply


def _text_and_calls(text: str, calls: Sequence[ToolCall], with_calls: bool) -> Iterator[dict[str, Any]]:
    if text.strip():  # the API refuses blank text
        yield {"text": text}
    for call in calls:
        if with_calls:
            name = openai_common.sanitize_name(call.name) or "_"
            yield {"toolUse": {"toolUseId": _call_id(call.id), "name": name, "input": call.args}}
        else:
            yield {"text": f"[called {call.name} with {call.raw_args}]"}


def _call_id(id: str) -> str:
    """Return an id in the characters and the length that the API allows. It may be from another model."""
    return id if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id) else sha256(id.encode()).hexdigest()[:32]


_PICTURES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}


def _encode_part(part: Part, taken: set[str]) -> dict[str, Any]:
    """Return a part as a block. The name of a document is added to those that are taken."""
    if isinstance(part, TextPart):
        return {"text": part.text}
    part = openai_common.inline_media(part)
    if _find_flaw(part):
        return {"text": openai_common.media_note(part)}
    kind = openai_common.media_type(part)
    if kind in _PICTURES:
        return {"image": {"format": _PICTURES[kind], "source": {"bytes": part.data}}}
    name = part.name if isinstance(part, FilePart) else ""
    name = re.sub(r"\s+", " ", re.sub(r"[^a-zA-Z0-9\s()\[\]-]", "-", name)).strip() or "file"
    name = f"{name[:100]}-{sha256(part.data.encode()).hexdigest()[:8]}"
    name = next(free for free in chain([name], (f"{name}-{number}" for number in count(2))) if free not in taken)
    taken.add(name)
    return {"document": {"format": _DOCUMENTS.get(kind, "txt"), "name": name, "source": {"bytes": part.data}}}


def _find_flaw(part: MediaPart) -> str:
    """Return why the API cannot read a part, or an empty string."""
    kind = openai_common.media_type(part)
    if part.url:
        return f"Bedrock takes files as data, not by their address; read {part.url[:200]} first"
    known = kind in _PICTURES or (isinstance(part, FilePart) and (kind in _DOCUMENTS or kind.startswith("text/")))
    if not known:
        what = openai_common.describe_media(part)
        what = what if isinstance(part, ImagePart) else what.removeprefix("the file ")
        return f"Bedrock reads png, jpeg, gif and webp images, PDFs, office and text files, not {what}"
    return openai_common.find_media_flaw(part)
