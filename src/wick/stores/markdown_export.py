"""Export of a thread as Markdown."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import orjson

from wick._internal.frozen import thaw
from wick.threads import Thread

ROLE_NAMES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def export_markdown(title: str, thread: Thread) -> str:
    """Return the messages and tool calls of a thread as Markdown."""
    times = {id(entry.data): entry.at for entry in thread.entries if entry.kind == "message"}
    parts = [f"# {' '.join(title.split())}"]
    for message in thread.messages:
        author = ROLE_NAMES[message.role] + (f" `{message.name}`" if message.name else "")
        time = datetime.fromtimestamp(times.get(id(message), 0.0), UTC)
        parts.append(f"## {author} · {time:%Y-%m-%d %H:%M:%S UTC}")
        if message.role == "tool":
            parts.append(_code_block(message.text))
            continue
        if message.text:
            parts.append(message.text)
        for call in message.tool_calls:
            args = thaw(call.args)
            try:
                text = orjson.dumps(args, option=orjson.OPT_INDENT_2).decode()
            except TypeError:  # an integer beyond 64 bits, or a lone surrogate
                text = json.dumps(args, ensure_ascii=False, indent=2)
            parts += [f"uses `{call.name}`", _code_block(text, "json")]
    return "\n\n".join(parts) + "\n"


def _code_block(text: str, language: str = "") -> str:
    """Return a fenced code block; its fence does not occur in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
