"""Shared parts of the clients for OpenAI's two APIs: address and key, settings, media, and errors."""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from wick._internal.environment import read_variable as read_variable
from wick._internal.fast_json import encode_json
from wick.errors import ConfigError, ModelError
from wick.messages import AudioPart, FilePart, ImagePart, MediaPart, Message, Part, ToolCall
from wick.models._http import RETRYABLE, ModelServer, TimeLimits
from wick.models._network import NetworkSettings, shown_address
from wick.protocols import Finish, Request
from wick.tools import Tool, unknown_tool_error

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_LIMITS = TimeLimits()

_T = TypeVar("_T")


class ProviderHome(NamedTuple):
    """A provider's own address, and the environment variable with its key. The key is sent nowhere else."""

    title: str
    variable: str
    url: str


OPENAI_HOME = ProviderHome("OpenAI", "OPENAI_API_KEY", OPENAI_URL)


def build_server(
    name: str,
    base_url: str,
    path: str,
    api_key: str | None,
    headers: Mapping[str, str] | None,
    limits: TimeLimits,
    network: NetworkSettings,
    home: ProviderHome = OPENAI_HOME,
) -> ModelServer:
    """Return the server with credentials. The key of the environment is sent to the provider's own address only."""
    try:
        address = urlsplit(base_url)
        usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # an invalid port, or an unclosed bracket
        usable = False
    if not usable:
        raise ConfigError(f"the base_url of {name} must be like http://host:port/v1, not {shown_address(base_url)!r}")
    if address.username or address.password:
        raise ConfigError(f"the base_url of {name} holds a password; give it as api_key or in headers instead")
    is_home = (address.scheme, address.hostname, address.port) == ("https", urlsplit(home.url).hostname, None)
    key = api_key or (read_variable(home.variable) if is_home else "")
    missing = f"{home.title} needs a key: set {home.variable}, or give api_key=…" if is_home else ""
    return ModelServer(
        name,
        address._replace(path=address.path.rstrip("/") + path).geturl(),
        {"accept": "text/event-stream"} | build_headers("authorization", key, headers, missing),
        limits,
        unreachable="start it with: ollama serve" if name == "ollama" else "check its base_url, and that it runs",
        unauthorized=f"check {home.variable}" if is_home else f"check the api_key of {name}",
        network=network,
    )


def build_headers(header: str, key: str, given: Mapping[str, str] | None, missing: str = "") -> dict[str, str]:
    """Return the headers of a request: the key in its header, and the given headers, which come first.

    Raise ConfigError with the text `missing`, if there is one and neither a key nor a given header has credentials.
    """
    headers, key = {"content-type": "application/json"}, key.strip()
    if key:
        headers[header] = f"Bearer {key}" if header == "authorization" else key
    headers |= {name.lower(): value for name, value in (given or {}).items()}
    if missing and not headers.keys() & {header, "authorization"}:
        raise ConfigError(missing)
    return headers


# -- requests -------------------------------------------------------------------------------------------------------

SETTINGS = ("temperature", "top_p", "max_tokens", "stop", "tool_choice", "parallel_tool_calls", "response_format")
_CHOICES = ("auto", "none", "required")
_FORMATS = ("json_schema", "json_object", "text")
_STEP = 16  # number of messages by which the cached prefix grows
_LOOSE = frozenset("allOf oneOf not if then else default patternProperties dependentRequired dependentSchemas".split())


def build_settings(server: ModelServer, request: Request) -> dict[str, Any]:
    """Return the settings without `extra`. Refuse unknown ones, and drop those of tools if there are none."""
    if not request.settings:
        return {}
    settings = {name: value for name, value in request.settings.items() if value is not None and name != "extra"}
    for name in settings:
        if name not in SETTINGS:
            raise ModelError(f"there is no setting {name!r}; {server.name} knows {', '.join(SETTINGS)} and extra")
    for name in ("extra", "response_format"):
        if not isinstance(request.settings.get(name) or {}, Mapping):
            raise ModelError(f"the setting {name} is an object, not {request.settings[name]!r}")
    choice = settings.get("tool_choice")
    if not request.tools:  # servers refuse a tool_choice without tools
        settings.pop("tool_choice", None)
        settings.pop("parallel_tool_calls", None)
    elif choice and choice not in _CHOICES and choice not in (names := [tool.name for tool in request.tools]):
        raise ModelError(f"the tool_choice cannot be kept: {unknown_tool_error(str(choice), names)}")
    return settings


def named_tool(choice: str) -> str:
    """Return the name of the tool in a `tool_choice`, if any."""
    return "" if choice in _CHOICES else choice


def with_extra(server: ModelServer, body: dict[str, Any], request: Request, *ours: str) -> bytes:
    """Return the body with the keys of `extra` merged in, without its closing brace."""
    for name, value in (request.settings.get("extra") or {}).items():
        if name in ours:
            raise ModelError(f"extra cannot set {name!r}: it is made of the conversation; {server.name} was not asked")
        both = isinstance(value, dict) and isinstance(body.get(name), dict)
        body[name] = {**body[name], **value} if both else value
    return encode_json(body)[:-1]


def cached_prefix(
    key: str, messages: tuple[Message, ...], write: Callable[[tuple[Message, ...]], _T]
) -> tuple[list[_T], tuple[Message, ...]]:
    """Return the encoded prefix of a long conversation from an earlier request, and the remaining messages.

    The prefix ends before an assistant turn, where no wire format depends on earlier messages. It is cached in its
    last message together with the messages before, and used only for exactly these messages.
    """
    count = (len(messages) // _STEP - 1) * _STEP
    while count > 0 and not (messages[count].role == "assistant" != messages[count - 1].role):
        count -= 1
    if count <= 0:
        return [], messages
    last = messages[count - 1]
    before, written = last.cache.get(key, ((), None))
    if len(before) != count - 1 or not all(map(is_, before, messages)):
        before, written = messages[: count - 1], write(messages[:count])
        for message in before:  # a conversation caches one prefix only
            message.cache.pop(key, None)
        last.cache[key] = before, written
    return [written], messages[count:]


def join_items(head: bytes, items: list[bytes], tail: bytes) -> bytes:
    """Join head, list items and tail to a body. Long items are copied only once."""
    items = items or [b""]
    items[0] = head + items[0]
    items[-1] = items[-1] + tail
    return b",".join(items)


def encode_tools(key: str, tools: tuple[Tool, ...], convert: Callable[[Tool], Any]) -> list[bytes]:
    """Return the encoded tools. Each is encoded once and cached in the tool."""
    return [vars(tool).get(key) or vars(tool).setdefault(key, encode_json(convert(tool))) for tool in tools]


def build_json_format(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat `response_format`. A JSON Schema gets a name, and is strict if OpenAI supports it."""
    if form.get("type") in _FORMATS:
        return {"type": form["type"], **form.get("json_schema", {})}
    name = sanitize_name(str(form.get("title") or "answer"))
    strict = form.get("type") == "object" and _is_closed(form)
    return {"type": "json_schema", "name": name, "schema": form, "strict": strict}


def _is_closed(schema: Any) -> bool:
    """Return True if every object excludes additional properties and requires all its keys."""
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    held = schema.get("properties", {})
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(held)
    ):
        return False
    others = [value for name, value in schema.items() if name != "properties"]  # visit each part once, at any depth
    return _LOOSE.isdisjoint(schema) and all(map(_is_closed, [*held.values(), *others]))


def call_fields(call: ToolCall) -> dict[str, str]:
    """Return the name and the arguments of a call. Invalid arguments are encoded again, as servers refuse them."""
    args = call.raw if call.raw.strip() and not call.invalid else json.dumps(call.args, ensure_ascii=False)
    return {"name": sanitize_name(call.name), "arguments": args}


@lru_cache(1024)
def sanitize_name(text: str) -> str:
    """Return a name in the characters and the length that most APIs allow."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)[:64]


_MAGIC = {
    "iVBOR": "image/png",
    "/9j/": "image/jpeg",
    "R0lGO": "image/gif",
    "UklGR": "image/webp",
    "JVBER": "application/pdf",
}
_AUDIO_MAGIC = {
    "UklGR": "audio/wav",
    "SUQz": "audio/mpeg",
    "//": "audio/mpeg",
    "T2dnU": "audio/ogg",
    "ZkxhQ": "audio/flac",
}
_AUDIO_NAMES = {
    "x-wav": "wav",
    "wave": "wav",
    "vnd.wave": "wav",
    "mpeg": "mp3",
    "x-m4a": "m4a",
    "mp4": "m4a",
    "x-flac": "flac",
}


def media_type(part: MediaPart) -> str:
    """Return the declared media type of a part, or the type of its first bytes."""
    known = _AUDIO_MAGIC if isinstance(part, AudioPart) else _MAGIC
    guess = next((kind for magic, kind in known.items() if part.data.startswith(magic)), "")
    return part.media_type or guess or ("image/png" if isinstance(part, ImagePart) else "application/octet-stream")


def is_audio(part: MediaPart) -> bool:
    """Return True for a recording, also in a file part."""
    return isinstance(part, AudioPart) or media_type(part).startswith("audio/")


def audio_format(part: MediaPart) -> str:
    """Return the short name of a recording's format, such as `wav` or `mp3`."""
    name = media_type(part).partition(";")[0].strip().lower().removeprefix("audio/")
    return _AUDIO_NAMES.get(name, name)


def media_url(part: MediaPart) -> str:
    return part.url or f"data:{media_type(part)};base64,{part.data}"


_DATA = re.compile(r"data:([^;,]*)[^,]*;base64,(?=.)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^/]", re.IGNORECASE)


def inline_media(part: MediaPart) -> MediaPart:
    """Return a part with a data URL as a part with bytes."""
    if (match := _DATA.match(part.url)) is None:
        return part
    return replace(part, url="", data=part.url[match.end() :], media_type=part.media_type or match[1])


def find_media_flaw(part: MediaPart) -> str:
    """Return why no server could read a part's bytes, or an empty string."""
    if part.url:
        if part.url.isprintable() and _ADDRESS.match(part.url):  # data URLs were converted before
            return ""
        return f"{describe_media(part)} is at an address that no model reads; use https: or data: in base64"
    try:
        a2b_base64(part.data, strict_mode=True)
    except ValueError:
        return f"{describe_media(part)} is not valid base64; encode its bytes with base64"
    return ""


def describe_media(part: MediaPart) -> str:
    """Return a description of a part for messages: `the file a.zip (application/zip)`."""
    is_shown = part.url.isprintable() and not part.url.startswith("data:")
    url = part.url[:200] if is_shown else part.url.partition(":")[0][:20]
    name = part.name if isinstance(part, FilePart) and part.name else url
    what = {ImagePart: "the picture", AudioPart: "the audio"}.get(type(part), "the file")
    return f"{what} {name} ({media_type(part)})" if name else f"{what} ({media_type(part)})"


def media_note(part: MediaPart) -> str:
    """Return the text that replaces a part which a model cannot read."""
    return f"[{describe_media(part)} is not supported by this model]"


def check_newest_message(messages: tuple[Message, ...], unsupported_reason: Callable[[Part], str]) -> None:
    """Raise ModelError if the newest user message has a part that the model cannot read.

    Parts of earlier messages are replaced by a note, so that the thread can be continued with any model.
    """
    newest = messages[-1] if messages else None
    if newest is None or newest.role != "user" or isinstance(newest.content, str):
        return
    if why := next(filter(None, map(unsupported_reason, newest.content)), ""):
        raise ModelError(why)


# -- replies --------------------------------------------------------------------------------------------------------

_IDS = ("id", "model")
_NAME = re.compile(r"[!-~]{1,200}")  # an id or a name that is passed on
_AGAIN = re.compile("rate.?limit|server|overload|time.?out|unavailable|capacity|connection", re.IGNORECASE)


def build_finish(reason: str, reply: Mapping[str, Any]) -> Finish:
    """Return the end of a reply, with the `id` and the `model` that the server names in it."""
    id, model = (value if isinstance(value, str) and _NAME.fullmatch(value) else "" for value in map(reply.get, _IDS))
    return Finish(reason, id, model)


def count_tokens(usage: Mapping[str, Any], key: str, detail: str = "") -> int:
    """Return a number of tokens; 0 if it is missing or invalid."""
    count = usage.get(key)
    if detail:
        count = count.get(detail) if isinstance(count, dict) else None
    return count if type(count) is int and count > 0 else 0


def refusal_error(server: ModelServer, error: Any) -> ModelError:
    """Return the ModelError for an error inside of a reply."""
    details = error if isinstance(error, dict) else {"message": error, "type": error}
    code = str(details.get("code") or details.get("status") or "")
    status = int(code) if re.fullmatch("[1-5][0-9][0-9]", code) else None
    again = status in RETRYABLE if status else bool(_AGAIN.search(f"{code} {details.get('type')}"))
    reason = " ".join(server.redact(str(details.get("message") or code or "no reason was given")).split())[:500]
    return ModelError(f"{server.name} broke off its answer: {reason}", status=status, retryable=again)


def broken_off_error(server: ModelServer, reason: str, status: int | None) -> ModelError:
    """Return the ModelError for an error event with a known status."""
    text = f"{server.name} broke off its answer: {' '.join(server.redact(reason).split())[:500]}"
    return ModelError(text, status=status, retryable=status in RETRYABLE)


def require_text(value: Any) -> str:
    """Return the value if it is a text, else raise TypeError, so that the event counts as unreadable."""
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def unreadable_error(server: ModelServer, data: bytes) -> ModelError:
    start = server.redact(data[:5_000].decode(errors="backslashreplace"))[:100]  # redact first: a cut key stays
    return ModelError(f"{server.name} sent an event that cannot be read: {start!r}; ask again", retryable=True)


def truncated_error(server: ModelServer) -> ModelError:
    return ModelError(f"{server.name} broke off before it had finished its answer", retryable=True)
