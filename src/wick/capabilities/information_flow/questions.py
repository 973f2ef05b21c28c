"""Questions to the user: the value, the passage it was taken from, and the data that would leave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from wick._internal.visible_text import cut_visible
from wick.capabilities.information_flow.sources import Passage

VALUE_CHARS, PASSAGE_CHARS, SENT_CHARS = 200, 240, 300


def describe_target(name: str, value: Any, passage: Passage | None) -> str:
    """Return a sentence about a value without a voucher, with the text around it."""
    shown = cut_visible(value if isinstance(value, str) else json.dumps(value), VALUE_CHARS)
    if passage is None:
        return f"{name} {shown!r} is neither in your messages nor in trusted data."
    at = passage.text.index(str(value))
    around = passage.text[max(at - PASSAGE_CHARS // 2, 0) : at + len(str(value)) + PASSAGE_CHARS // 2]
    quoted = cut_visible(" ".join(around.split()), PASSAGE_CHARS + VALUE_CHARS)
    return f"{name} {shown!r} was taken from {passage.author} (entry {passage.seq}): «{quoted}»."


def describe_voucher(name: str, value: Any, seq: int) -> str:
    """Return a phrase about a value that an entry vouches for."""
    shown = cut_visible(value if isinstance(value, str) else json.dumps(value), VALUE_CHARS)
    return f"{name} {shown!r} is vouched for by entry {seq}"


def describe_content(args: Mapping[str, Any], targets: Iterable[str]) -> str:
    """Return a sentence about the arguments that are not targets, which leave with the call."""
    content = {name: value for name, value in args.items() if name not in set(targets) and value not in (None, "", [])}
    if not content:
        return ""
    return f"It would pass on {cut_visible(json.dumps(content, ensure_ascii=False, default=str), SENT_CHARS)}."
