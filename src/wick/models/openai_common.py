"""What the clients of OpenAI's two APIs share: address and key, settings, media, and what a server says is wrong."""

from __future__ import annotations

import json
import os
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import orjson

from wick.errors import ConfigError, ModelError
from wick.messages import FilePart, ImagePart, Message, Part, ToolCall
from wick.models._http import RETRYABLE, Server, TimeLimits, shown_address
from wick.protocols import Request
from wick.tools import Tool, unknown_tool_error

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_LIMITS = TimeLimits()

_T = TypeVar("_T")


def server(
    name: str, base_url: str, path: str, api_key: str | None, headers: Mapping[str, str] | None, limits: TimeLimits
) -> Server:
    """Where to ask and as whom. The key in the environment is OpenAI's, and goes nowhere else."""
    address = _address(name, base_url)
    own = (address.scheme, address.hostname, address.port) == ("https", "api.openai.com", None)
    key = (api_key or (os.environ.get("OPENAI_API_KEY", "") if own else "")).strip()
    sent = {"content-type": "application/json", "accept": "text/event-stream"}
    sent |= {"authorization": f"Bearer {key}"} if key else {}
    sent |= {header.lower(): value for header, value in (headers or {}).items()}
    if own and "authorization" not in sent:
        raise ConfigError("OpenAI needs a key: set OPENAI_API_KEY, or give api_key=…")
    return Server(
        name,
        address._replace(path=address.path.rstrip("/") + path).geturl(),
        sent,
        limits,
        unreachable="start it with: ollama serve" if name == "ollama" else "check its base_url, and that it runs",
        unauthorized="check OPENAI_API_KEY" if own else f"check the api_key of {name}",
    )


def _address(name: str, base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        usable = False
    if not usable:
        raise ConfigError(f"the base_url of {name} must be like http://host:port/v1, not {shown_address(base_url)!r}")
    if parts.username or parts.password:
        raise ConfigError(f"the base_url of {name} holds a password; give it as api_key or in headers instead")
    return parts


# -- what is sent ---------------------------------------------------------------------------------------------------

SETTINGS = ("temperature", "top_p", "max_tokens", "stop", "tool_choice", "parallel_tool_calls", "response_format")
_CHOICES = ("auto", "none", "required")
_FORMATS = ("json_schema", "json_object", "text")
_STEP = 16  # messages by which the beginning of a conversation grows
_LOOSE = frozenset("allOf oneOf not if then else default patternProperties dependentRequired dependentSchemas".split())


def dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, half a character, or no JSON at all, which this refuses too
        return json.dumps(value).encode()


def settings(server: Server, request: Request) -> dict[str, Any]:
    """What is set, without `extra`; what nobody knows, or needs tools where there are none, is sorted out."""
    if not request.settings:
        return {}
    found = {name: value for name, value in request.settings.items() if value is not None and name != "extra"}
    for name in found:
        if name not in SETTINGS:
            raise ModelError(f"there is no setting {name!r}; {server.name} knows {', '.join(SETTINGS)} and extra")
    for name in ("extra", "response_format"):
        if not isinstance(request.settings.get(name) or {}, Mapping):
            raise ModelError(f"the setting {name} is an object, not {request.settings[name]!r}")
    choice = found.get("tool_choice")
    if not request.tools:  # a choice among none is refused by the servers
        found.pop("tool_choice", None)
        found.pop("parallel_tool_calls", None)
    elif choice and choice not in _CHOICES and choice not in (names := [tool.name for tool in request.tools]):
        raise ModelError(f"the tool_choice cannot be kept: {unknown_tool_error(str(choice), names)}")
    return found


def named(choice: str) -> str:
    """The tool that a `tool_choice` names, if it names one."""
    return "" if choice in _CHOICES else choice


def with_extra(server: Server, body: dict[str, Any], request: Request, *ours: str) -> bytes:
    """The body with the user's own keys in it, still open at its end; objects on both sides are merged."""
    for name, value in (request.settings.get("extra") or {}).items():
        if name in ours:
            raise ModelError(f"extra cannot set {name!r}: it is made of the conversation; {server.name} was not asked")
        both = isinstance(value, dict) and isinstance(body.get(name), dict)
        body[name] = {**body[name], **value} if both else value
    return dumps(body)[:-1]


def beginning(
    key: str, messages: tuple[Message, ...], write: Callable[[tuple[Message, ...]], _T]
) -> tuple[list[_T], tuple[Message, ...]]:
    """What a long conversation begins with, as it was written for an earlier request, and the messages after that.

    It ends where the assistant's turn begins: there, no wire format looks back. The last message it is made of keeps
    it, beside the messages before, and it serves for these very messages alone.
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
        for message in before:  # a conversation keeps its beginning once
            message.cache.pop(key, None)
        last.cache[key] = before, written
    return [written], messages[count:]


def listed(head: bytes, items: list[bytes], tail: bytes) -> bytes:
    """A body: the items of its list stand between head and tail. However long they are, they are copied once."""
    items = items or [b""]
    items[0] = head + items[0]
    items[-1] = items[-1] + tail
    return b",".join(items)


def tools(key: str, tools: tuple[Tool, ...], tell: Callable[[Tool], Any]) -> list[bytes]:
    """What the model is told of each tool. It is encoded once, and kept with the tool as its properties are."""
    return [vars(tool).get(key) or vars(tool).setdefault(key, dumps(tell(tool))) for tool in tools]


def json_format(form: Mapping[str, Any]) -> dict[str, Any]:
    """A `response_format`, flat: a JSON Schema gets a name, and is strict where OpenAI can be."""
    if form.get("type") in _FORMATS:
        return {"type": form["type"], **form.get("json_schema", {})}
    name = _word(str(form.get("title") or "answer"))
    strict = form.get("type") == "object" and _closed(form)
    return {"type": "json_schema", "name": name, "schema": form, "strict": strict}


def _closed(schema: Any) -> bool:
    """Whether every object says all that it holds, and every key is required."""
    if isinstance(schema, list):
        return all(map(_closed, schema))
    if not isinstance(schema, dict):
        return True
    held = schema.get("properties", {})
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(held)
    ):
        return False
    others = [value for name, value in schema.items() if name != "properties"]  # each part once, however deep it is
    return _LOOSE.isdisjoint(schema) and all(map(_closed, [*held.values(), *others]))


def called(call: ToolCall) -> dict[str, str]:
    """A call's name and arguments as the model wrote them, but never as what servers refuse to read again."""
    args = call.raw if call.raw.strip() and not call.invalid else json.dumps(call.args, ensure_ascii=False)
    return {"name": _word(call.name), "arguments": args}


@lru_cache(1024)
def _word(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)[:64]


_MAGIC = {
    "iVBOR": "image/png",
    "/9j/": "image/jpeg",
    "R0lGO": "image/gif",
    "UklGR": "image/webp",
    "JVBER": "application/pdf",
}


def media_type(part: ImagePart | FilePart) -> str:
    """What a part says it is, or what its first bytes say."""
    guess = next((kind for magic, kind in _MAGIC.items() if part.data.startswith(magic)), "")
    return part.media_type or guess or ("image/png" if isinstance(part, ImagePart) else "application/octet-stream")


def media_url(part: ImagePart | FilePart) -> str:
    return part.url or f"data:{media_type(part)};base64,{part.data}"


_DATA = re.compile(r"data:([^;,]*)[^,]*;base64,(?=.)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^/]", re.IGNORECASE)


def inline(part: ImagePart | FilePart) -> ImagePart | FilePart:
    """Return a part whose address holds its bytes as one with these bytes."""
    if (found := _DATA.match(part.url)) is None:
        return part
    return replace(part, url="", data=part.url[found.end() :], media_type=part.media_type or found[1])


def media_flaw(part: ImagePart | FilePart) -> str:
    """Return why no server could read a part's bytes, or an empty text."""
    if part.url:
        known = part.url.isprintable() and _ADDRESS.match(part.url)  # one with the bytes in it is none by now
        return (
            "" if known else f"{media_name(part)} is at an address that no model reads; use https: or data: in base64"
        )
    try:
        a2b_base64(part.data, strict_mode=True)
    except ValueError:
        return f"{media_name(part)} is not valid base64; encode its bytes with base64"
    return ""


def media_name(part: ImagePart | FilePart) -> str:
    """Return a part as sentences name it: `the file a.zip (application/zip)`."""
    name = part.name if isinstance(part, FilePart) and part.name else _shown_url(part.url)
    what = "the picture" if isinstance(part, ImagePart) else "the file"
    return f"{what} {name} ({media_type(part)})" if name else f"{what} ({media_type(part)})"


def _shown_url(url: str) -> str:
    return url[:200] if url.isprintable() and not url.startswith("data:") else url.partition(":")[0][:20]


def media_note(part: ImagePart | FilePart) -> str:
    """Return the text that stands for a part of the conversation that a model cannot read."""
    return f"[{media_name(part)} is not supported by this model]"


def check_newest(messages: tuple[Message, ...], refuses: Callable[[Part], str]) -> None:
    """Refuse a user's message with a part that the model cannot read. Earlier ones are sent with a note instead.

    So a part that one model could not read never keeps a thread from being continued.
    """
    newest = messages[-1] if messages else None
    if newest is None or newest.role != "user" or isinstance(newest.content, str):
        return
    if why := next(filter(None, map(refuses, newest.content)), ""):
        raise ModelError(why)


# -- what comes back ------------------------------------------------------------------------------------------------

_AGAIN = re.compile("rate.?limit|server|overload|time.?out|unavailable|capacity|connection", re.IGNORECASE)


def count(usage: Mapping[str, Any], key: str, detail: str = "") -> int:
    """A number of tokens; what is missing, or no number, counts as none."""
    found = usage.get(key)
    if detail:
        found = found.get(detail) if isinstance(found, dict) else None
    return found if type(found) is int and found > 0 else 0


def refused(server: Server, error: Any) -> ModelError:
    """What a server says is wrong in the middle of its answer."""
    said = error if isinstance(error, dict) else {"message": error, "type": error}
    code = str(said.get("code") or said.get("status") or "")
    status = int(code) if re.fullmatch("[1-5][0-9][0-9]", code) else None
    again = status in RETRYABLE if status else bool(_AGAIN.search(f"{code} {said.get('type')}"))
    reason = " ".join(server.redact(str(said.get("message") or code or "no reason was given")).split())[:500]
    return ModelError(f"{server.name} broke off its answer: {reason}", status=status, retryable=again)


def unreadable(server: Server, data: bytes) -> ModelError:
    start = server.redact(data[:5_000].decode(errors="backslashreplace"))[:100]  # a key is whole before it is cut
    return ModelError(f"{server.name} sent an event that cannot be read: {start!r}; ask again", retryable=True)


def cut(server: Server) -> ModelError:
    return ModelError(f"{server.name} broke off before it had finished its answer", retryable=True)
