"""A conversation as Markdown, to be read by people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from wick._internal.frozen import thaw
from wick.messages import Message
from wick.threads import Thread

WHO = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def as_markdown(title: str, thread: Thread) -> str:
    """What was said in a thread, and which tools were used."""
    return "\n\n".join([f"# {' '.join(title.split())}", *_parts(thread)]) + "\n"


def _parts(thread: Thread) -> Iterator[str]:
    times = {id(entry.data): entry.at for entry in thread.entries if entry.kind == "message"}
    for message in thread.messages:
        yield f"## {_who(message)} · {_when(times.get(id(message), 0.0))}"
        yield from _said(message)


def _who(message: Message) -> str:
    return f"{WHO[message.role]} `{message.name}`" if message.name else WHO[message.role]


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _said(message: Message) -> Iterator[str]:
    if message.role == "tool":
        yield _block(message.text)
        return
    if message.text:
        yield message.text
    for call in message.tool_calls:
        yield f"uses `{call.name}`"
        yield _block(_indented(thaw(call.args)), "json")


def _indented(args: Any) -> str:
    try:
        return orjson.dumps(args, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # a number beyond 64 bits, or half a character
        return json.dumps(args, ensure_ascii=False, indent=2)


def _block(text: str, language: str = "") -> str:
    """A block that its text cannot close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
