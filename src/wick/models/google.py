"""Gemini, through Google's Gemini API: text, thinking, tools, images, audio and PDFs.

The API signs some parts of a reply, such as the first function call. A signature is stored as reasoning, with the place
of its part in the reply, and sent back with the same part.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from wick._internal.fast_json import encode_json
from wick._internal.json_schema import merge_schemas
from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, ImagePart, MediaPart, Message, Part, TextPart
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText, check_address, quote_path
from wick.models.google_replies import GeminiReply
from wick.protocols import Delta, HoldsSchema, Request

BASE_URL = "https://generativelanguage.googleapis.com"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
Thinking = int | Mapping[str, Any] | None


class Google:
    """A Gemini model.

    `thinking` is a token budget, or the API's own `thinkingConfig` such as `{"thinkingLevel": "low"}`. Without an
    `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY is used for Google's own address, and no key for any other.
    """

    provider: ClassVar[str] = "google"
    holds_schema: HoldsSchema = "alone"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        thinking: Thinking = None,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        self._set_model(model, thinking)
        address = check_address(base_url, "Google")
        is_default_endpoint = urlsplit(address)[:2] == urlsplit(BASE_URL)[:2]  # the same scheme, host and port
        key = api_key or (read_key() if is_default_endpoint else "")
        missing = f"Google needs a key: set {' or '.join(KEYS)}, or give api_key=…" if is_default_endpoint else ""
        version = "" if re.search(r"/v\d\w*$", address) else "/v1beta"
        path = quote_path(self.model if "/" in self.model else f"models/{self.model}", "the model of Google")
        self.server = ModelServer(
            self.provider,
            f"{address}{version}/{path}:streamGenerateContent?alt=sse",
            openai_common.build_headers("x-goog-api-key", key, headers, missing),
            limits,
            unreachable="check the network, or the address in GOOGLE_GEMINI_BASE_URL",
            unauthorized="check the key in GEMINI_API_KEY",
            network=NetworkSettings(verify, cert, trust_env),
        )

    def _set_model(self, model: str, thinking: Thinking) -> None:
        if not model:
            raise ConfigError(f"name the model of {self.provider}, as in '{self.provider}:gemini-2.5-flash'")
        if thinking is not None and not isinstance(thinking, Mapping):
            if type(thinking) is not int or thinking < 0:
                raise ConfigError(
                    f"thinking is a number of tokens, or the API's own setting as an object, not {thinking!r}"
                )
            thinking = {"thinkingBudget": thinking, "includeThoughts": thinking > 0}
        self.model = model
        self.thinking: Mapping[str, Any] = thinking or {}
        self._signs_calls = not re.search(
            r"(?:^|/)gemini-[12]\D", model
        )  # such models have ids of calls, and check signatures

    @property
    def name(self) -> str:
        return f"{self.server.name}:{self.model}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        return "" if isinstance(part, TextPart) else _find_flaw(openai_common.inline_media(part))

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), GeminiReply(self.server))

    def body(self, request: Request) -> bytes:
        """Return the request body: the options, and the cached bytes of tools and messages."""
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        contents, notes = self._contents(request.messages)
        text = "\n\n".join(text for text in (request.system, *notes) if text.strip())
        pieces = [openai_common.with_extra(self.server, self._options(request), request, *_OURS)]
        if text:
            pieces += b',"systemInstruction":', encode_json({"parts": [{"text": text}]})
        if request.tools:
            tools = openai_common.encode_tools(self.provider, request.tools, _encode_tool)
            pieces += b',"tools":[{"functionDeclarations":[', b",".join(tools), b"]}]"
        return b"".join((*pieces, b',"contents":[', b",".join(contents), b"]}"))

    def _options(self, request: Request) -> dict[str, Any]:
        """Return the request without the conversation."""
        config: dict[str, Any] = {"thinkingConfig": dict(self.thinking)} if self.thinking else {}
        settings = openai_common.build_settings(self.server, request)
        config |= {_SETTINGS[name]: settings[name] for name in _SETTINGS if name in settings}
        if isinstance(config.get("stopSequences"), str):
            config["stopSequences"] = [config["stopSequences"]]
        if not settings.get("parallel_tool_calls", True):
            raise ModelError(f"{self.server.name} has no setting 'parallel_tool_calls'; leave it out")
        form = settings.get("response_format", {})
        if form and form.get("type") != "text":
            config["responseMimeType"] = "application/json"
            schema = form["json_schema"]["schema"] if form.get("type") == "json_schema" else form
            if form.get("type") != "json_object":
                config["responseJsonSchema"] = convert_schema(schema)
        options: dict[str, Any] = {"generationConfig": config}
        if choice := settings.get("tool_choice", ""):
            named = {"allowedFunctionNames": [choice]} if choice not in _MODES else {}
            mode = {"mode": _MODES.get(choice, "ANY")}
            options["toolConfig"] = {"functionCallingConfig": mode | named}
        return options

    def _contents(self, messages: Iterable[Message]) -> tuple[list[bytes], list[str]]:
        """Return the turns of a conversation, and the texts of system messages, which the API takes apart."""
        turns: list[tuple[str, list[bytes]]] = []
        shown: list[bytes] = []  # the media of tool results, which follow these in a turn of their own
        notes: list[str] = []
        for message in messages:
            if message.role == "system":
                notes.append(message.text)
                continue
            if shown and message.role != "tool":
                _append_turn(turns, "user", shown)
                shown = []
            key = f"{self.provider}+ids" if self._signs_calls else self.provider
            parts, media = message.cache.get(key) or message.cache.setdefault(key, self._encode(message))
            _append_turn(turns, message.role, parts)
            shown = shown + media
        _append_turn(turns, "user", shown)
        return [b'{"role":"%s","parts":[%s]}' % (_ROLES[role], b",".join(parts)) for role, parts in turns], notes

    def _encode(self, message: Message) -> tuple[list[bytes], list[bytes]]:
        """Return the encoded parts of a message, and the media of a tool result."""
        if message.role == "assistant":
            return [*map(encode_json, self._reply_parts(message))], []
        if message.role == "tool":
            result = {"name": _function_name(message.name)}
            result |= {"id": message.tool_call_id} if self._signs_calls else {}
            response = {"response": {"error" if message.failed else "output": message.text}}
            media = () if isinstance(message.content, str) else message.content
            shown = [_encode_media(part) for part in media if not isinstance(part, TextPart)]
            if shown:
                shown.insert(0, {"text": f"What {message.name} returned for {message.tool_call_id}:"})
            return [encode_json({"functionResponse": result | response})], [*map(encode_json, shown)]
        parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
        sendable = (part for part in parts if not isinstance(part, TextPart) or part.text.strip())
        encoded = ({"text": part.text} if isinstance(part, TextPart) else _encode_media(part) for part in sendable)
        return [*map(encode_json, encoded)], []

    def _reply_parts(self, message: Message) -> Iterator[dict[str, Any]]:
        """Return the parts of a reply, each with its signature."""
        text, sent, of_calls = message.text, 0, dict[int, str]()
        for thought in message.reasoning:
            match = _PLACE.fullmatch(thought.provider) if thought.signature else None
            if match is None or match["provider"] != self.provider:
                continue
            if match["call"]:
                of_calls[int(match["call"])] = thought.signature
            elif match["start"]:
                start, end = max(sent, int(match["start"])), max(sent, int(match["end"]))
                if text[sent:start].strip():
                    yield {"text": text[sent:start]}
                yield {"text": text[start:end], "thoughtSignature": thought.signature}
                sent = end
            else:
                yield {"text": thought.text, "thought": True, "thoughtSignature": thought.signature}
        if text[sent:].strip():
            yield {"text": text[sent:]}
        for number, call in enumerate(message.tool_calls):
            part: dict[str, Any] = {"functionCall": {"name": _function_name(call.name), "args": call.args}}
            if self._signs_calls:
                part["functionCall"]["id"] = call.id
            signature = of_calls.get(number) or ("" if number or of_calls else _UNSIGNED)
            if signature and (self._signs_calls or signature != _UNSIGNED):
                part["thoughtSignature"] = signature
            yield part


def read_key() -> str:
    """Return the key of the environment, or an empty string."""
    return next(filter(None, map(openai_common.read_variable, KEYS)), "")


# -- settings -------------------------------------------------------------------------------------------------------

_OURS = ("contents", "systemInstruction", "tools")  # fields that `extra` cannot set
_SETTINGS = {"temperature": "temperature", "top_p": "topP", "max_tokens": "maxOutputTokens", "stop": "stopSequences"}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

# The part of JSON Schema that the API reads. Other keywords are refused, and checked by wick alone.
_PLAIN = ("type", "title", "description", "minItems", "maxItems", "minimum", "maximum", "required")
_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
_FORMATS = ("date-time", "date", "time", "int32", "int64", "float", "double", "enum")


def convert_schema(schema: Any, known: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON Schema with only the keywords that Gemini reads. `known` are the definitions of the root."""
    if not isinstance(schema, Mapping):
        return schema
    known = schema.get("$defs", {}) if known is None else known
    definitions = {"$defs": _convert_each(schema["$defs"], known)} if "$defs" in schema else {}
    if "$ref" in schema:  # the API refuses other keywords beside it
        return {"$ref": schema["$ref"], **definitions}
    read = {key: schema[key] for key in _PLAIN if key in schema} | definitions
    for key in ("items", "additionalProperties"):
        if key in schema:
            read[key] = convert_schema(schema[key], known)
    if "properties" in schema:
        read["properties"] = _convert_each(schema["properties"], known)
    for key, name in _LISTS.items():
        if key in schema:
            read[name] = [convert_schema(part, known) for part in schema[key]]
    if schema.get("format") in _FORMATS:
        read["format"] = schema["format"]
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if sendable := [value for value in values if type(value) in (str, int, float)]:
        read["enum"] = sendable
    for part in schema.get("allOf", ()):
        read = merge_schemas(_expand_reference(part, known), read)
    return read


def _expand_reference(part: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a converted part of `allOf`, with the definition in place of a reference, as the API has no `allOf`."""
    name = str(part.get("$ref", "")).removeprefix("#/$defs/") if isinstance(part, Mapping) else ""
    if not name:
        return convert_schema(part, known) if isinstance(part, Mapping) else {}
    others = {key: known[key] for key in known if key != name}  # a definition may contain itself
    return _expand_reference(known.get(name, {}), others)


def _convert_each(schemas: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: convert_schema(schema, known) for name, schema in schemas.items()}


def _encode_tool(tool: Any) -> dict[str, Any]:
    declared = {"name": tool.name} | ({"description": tool.description} if tool.description else {})
    schema = convert_schema(tool.parameters)
    has_parameters = any(schema.get(key) for key in ("properties", "$ref", "anyOf"))
    return declared | ({"parametersJsonSchema": schema} if has_parameters else {})


# -- writing --------------------------------------------------------------------------------------------------------

_ROLES = {"user": b"user", "tool": b"user", "assistant": b"model"}
_UNSIGNED = "skip_thought_signature_validator"  # the API's own word for calls of another model
_PLACE = re.compile(  # of a signature: in the text, at a call, or at a thought
    r"(?P<provider>\w+)(?:@(?P<start>\d+)-(?P<end>\d+)|\+(?P<call>\d+))?"
)


def _append_turn(turns: list[tuple[str, list[bytes]]], role: str, parts: list[bytes]) -> None:
    """Append parts to the last turn if it is of the same role, else in a new one."""
    if not parts:
        return
    if turns and turns[-1][0] == role:
        turns[-1][1].extend(parts)
    else:
        turns.append((role, [*parts]))


def _function_name(name: str) -> str:
    """Return a name in the characters that the API allows. It may be from another model."""
    word = re.sub(r"[^a-zA-Z0-9_.:-]", "_", name)[:64]
    return word if re.match("[a-zA-Z_]", word) else f"_{word}"[:64]


def _encode_media(part: MediaPart) -> dict[str, Any]:
    part = openai_common.inline_media(part)
    if _find_flaw(part):
        return {"text": openai_common.media_note(part)}
    kind = _media_type(part)
    if part.url:
        return {"fileData": {"mimeType": kind, "fileUri": part.url}}
    if kind.startswith("text/") and kind != "text/plain":
        return {"text": b64decode(part.data).decode(errors="replace")}
    return {"inlineData": {"mimeType": kind, "data": part.data}}


_ENDINGS = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".pdf": "application/pdf",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
}


def _media_type(part: MediaPart) -> str:
    """Return the media type of a part, for an address without one by its ending."""
    ending = re.search(r"\.\w+$", part.url.partition("?")[0].lower())
    guess = _ENDINGS.get(ending[0], "") if ending and not part.media_type else ""
    return guess or openai_common.media_type(part)


def _find_flaw(part: MediaPart) -> str:
    """Return why the API cannot read a part, or an empty string."""
    kind = _media_type(part)
    known = isinstance(part, ImagePart) or kind.startswith(("image/", "audio/", "video/", "text/"))
    if not known and kind != "application/pdf":
        what = openai_common.describe_media(part)
        what = what.removeprefix("the file ") if isinstance(part, FilePart) else what
        return f"Gemini reads images, audio, videos, PDFs and text files, not {what}; give its media_type, or its text"
    return openai_common.find_media_flaw(part)
