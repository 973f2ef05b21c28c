"""Messages as dicts, in the form of OpenAI's chat API or of `Message.to_json`, converted strictly.

    agent.run([{"role": "user", "content": "Hello."}])

A dict that cannot be converted without loss raises a MessageError that names the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wick.errors import MessageError
from wick.messages import ROLES, Message

_ROLES: dict[object, str] = {role: role for role in ROLES} | {"developer": "system"}
_MEANT = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant", "function": "tool"}
_EMPTY = (
    "refusal",
    "audio",
    "annotations",
    "function_call",
    "tool_calls",
)  # of replies; None or [] counts as absent
_HINTS = ("detail", "cache_control", "annotations")  # keys of parts that change no content
_CALL_KEYS = ("id", "type", "index")  # keys of a call beside its function; the index is its place in the list
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)


def read_message_dicts(items: Sequence[object]) -> list[Message]:
    """Return messages for dicts and messages. A tool message gets its name from the call that it answers."""
    messages, tools = list[Message](), dict[str, str]()
    for index, item in enumerate(items):
        message = item if isinstance(item, Message) else _read_dict(f"message {index}", item, tools)
        tools |= {call.id: call.name for call in message.tool_calls}
        messages.append(message)
    return messages


def _read_dict(where: str, item: object, tools: Mapping[str, str]) -> Message:
    if not isinstance(item, Mapping):
        raise MessageError(f"{where} is not a Message but {item!r}; write user(…), or {_EXAMPLE}")
    data = {str(key): value for key, value in item.items() if key not in _EMPTY or value}
    role = data.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        hint = (
            f"; write {_MEANT[role]!r}"
            if isinstance(role, str) and role in _MEANT
            else f"; the roles are {', '.join(ROLES)}"
        )
        raise MessageError(f"{where} has the role {role!r}{hint}")
    data["role"] = _ROLES[role]
    if isinstance(content := data.get("content"), list | tuple):
        data["content"] = [_read_part(f"{where}, content[{number}]", part) for number, part in enumerate(content)]
    elif content is None:
        data["content"] = ""
    if calls := data.get("tool_calls"):
        if not isinstance(calls, list | tuple):
            raise MessageError(f"{where}: tool_calls is a list of calls, not {calls!r}")
        data["tool_calls"] = [_read_call(f"{where}, tool_calls[{number}]", call) for number, call in enumerate(calls)]
    if role == "tool" and not data.get("name"):
        data["name"] = tools.get(str(data.get("tool_call_id")), "")
    elif role != "tool" and "name" in data:
        raise MessageError(f"{where} has a name, which only tool messages have; leave it out, or write it in the text")
    try:
        return Message.from_json(data)
    except MessageError as error:
        raise MessageError(f"{where}: {error}") from None


_EXAMPLE = '{"role": "user", "content": "…"}'


def _read_part(where: str, part: object) -> object:
    """Return a part of the content in wick's form; a part of wick's own form is unchanged."""
    match part:
        case str():
            return {"type": "text", "text": part}
        case {"type": "text" | "input_text" | "output_text", "text": str(text), **rest}:
            found, more = {"type": "text", "text": text}, rest
        case {"type": "image_url" | "input_image", "image_url": {"url": str(url), **rest}, **others}:
            found, more = {"type": "image", **_read_address(url)}, {**rest, **others}
        case {"type": "image_url" | "input_image", "image_url": str(url), **rest}:
            found, more = {"type": "image", **_read_address(url)}, rest
        case {"type": "file", "file": {"file_data": str(url), **rest}, **others}:
            found, more = _read_file(url, {**rest, **others})
        case {"type": "input_file", "file_data": str(url), **rest}:
            found, more = _read_file(url, rest)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form), **rest}, **others}:
            found, more = {"type": "audio", "data": data, "media_type": f"audio/{form}"}, {**rest, **others}
        case {"type": "text" | "image" | "audio" | "file"}:
            return part  # checked by `Message.from_json`
        case _:
            kind = part.get("type") if isinstance(part, Mapping) else part
            raise MessageError(
                f"{where} has the type {kind!r}; a part is text, image_url, input_audio or file, or of wick.messages"
            )
    if unknown := [key for key in more if key not in _HINTS]:
        raise MessageError(f"{where} has the key {unknown[0]!r}, which is not supported; leave it out")
    return found


def _read_file(url: str, more: dict[object, object]) -> tuple[dict[str, str], dict[object, object]]:
    """Return a file in wick's form, and the keys that are left."""
    return {"type": "file", **_read_address(url), "name": str(more.pop("filename", ""))}, more


def _read_address(url: str) -> dict[str, str]:
    data = _DATA_URL.fullmatch(url)
    return {"media_type": data[1], "data": data[2]} if data else {"url": url}


def _read_call(where: str, call: Any) -> object:
    """Return a tool call in wick's form. The arguments of OpenAI's form are JSON in a string, or an object."""
    match call:
        case {"function": {"name": str(name), **function}, **rest}:
            args = function.pop("arguments", None) or {}
            if isinstance(args, str):
                try:
                    args = json.loads(args)
                except ValueError:
                    raise MessageError(f"{where}: the arguments of {name} are not JSON") from None
            if unknown := [*function, *(key for key in rest if key not in _CALL_KEYS)]:
                raise MessageError(f"{where} has the key {unknown[0]!r}, which is not supported; leave it out")
            return {"id": rest.get("id", ""), "name": name, "args": args}
        case {"name": str(), "args": Mapping(), **rest}:
            return {key: value for key, value in call.items() if key != "type"}
    raise MessageError(
        f'{where} is not a tool call; write {{"id": …, "function": {{"name": …, "arguments": "{{…}}"}}}}'
    )
