"""Export of a thread as Markdown."""

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

ROLE_NAMES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def export_markdown(title: str, thread: Thread) -> str:
    """Return the messages and tool calls of a thread as Markdown."""
    return "\n\n".join([f"# {' '.join(title.split())}", *_render_messages(thread)]) + "\n"


def _render_messages(thread: Thread) -> Iterator[str]:
    times = {id(entry.data): entry.at for entry in thread.entries if entry.kind == "message"}
    for message in thread.messages:
        yield f"## {_author_name(message)} · {_format_time(times.get(id(message), 0.0))}"
        yield from _render_message(message)


def _author_name(message: Message) -> str:
    return f"{ROLE_NAMES[message.role]} `{message.name}`" if message.name else ROLE_NAMES[message.role]


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _render_message(message: Message) -> Iterator[str]:
    if message.role == "tool":
        yield _code_block(message.text)
        return
    if message.text:
        yield message.text
    for call in message.tool_calls:
        yield f"uses `{call.name}`"
        yield _code_block(_format_json(thaw(call.args)), "json")


def _format_json(args: Any) -> str:
    try:
        return orjson.dumps(args, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        return json.dumps(args, ensure_ascii=False, indent=2)


def _code_block(text: str, language: str = "") -> str:
    """Return a fenced code block; its fence does not occur in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
